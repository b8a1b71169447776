"""GET /v1/models and /v1/models/{id}: the catalog of models in the form of a vendor.

The client's path, headers and query decide which form a response has. OpenAI's is one list, the others have pages.
Models that the client's key may not use are left out.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec
from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman import RequestRefused
from dragoman.jsontext import JSONObject, encode
from dragoman_server.gateway import Gateway
from dragoman_server.http.endpoint import BaseEndpoint
from dragoman_server.http.request import Query, invalid_parameter
from dragoman_server.models.catalog import MODEL_BYTES, CatalogEntry
from dragoman_server.proxying.client_request import ClientRequest
from dragoman_server.settings.client_keys import may_use
from dragoman_server.wire.replies import MODELS_PATH, protocol_of_client

# "Ranges from 1 to 1000" -- `limit` in anthropic 2.12.0, types/model_list_params.py
_MAX_PAGE_SIZE = 1000
# "When omitted, the list contains the `active` and `deprecated` models" -- `lifecycle`, ibid. Requests that name a
# retired one fail.
_DEFAULT_LIFECYCLES = ("active", "deprecated")


def models_routes(gateway: Gateway) -> list[BaseRoute]:
    """Return the routes of the model list and of single models."""
    endpoints: dict[str, ASGIApp] = {MODELS_PATH: _ByProtocol(gateway)}
    for spec in gateway.protocols.values():
        for prefix in spec.path_prefixes:
            endpoints[f"{prefix}/models"] = ModelsEndpoint(gateway, spec)
    return [
        Route(path, endpoint, methods=["GET"])
        for models_path, endpoint in endpoints.items()
        for path in (models_path, models_path + "/{model:path}")
    ]


class _ByProtocol:
    """Pass a request on to the endpoint for the client's protocol."""

    def __init__(self, gateway: Gateway) -> None:
        self._protocols = gateway.protocols
        self._endpoints = {name: ModelsEndpoint(gateway, spec) for name, spec in gateway.protocols.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = scope["query_string"].decode("latin-1")
        spec = protocol_of_client(query, Headers(scope=scope), self._protocols)
        await self._endpoints[spec.name](scope, receive, send)


class ModelsEndpoint(BaseEndpoint):
    """The list of models, or the one that the path names, in the form of the protocol."""

    async def serve(self, request: ClientRequest) -> None:
        one, several = _FORMS[self.protocol.model_list_form]
        entries = await self.gateway.catalog.entries()
        name: str | None = request.scope["path_params"].get("model")
        if name is None:

            def listed() -> bytes:
                visible = [
                    entry for entry in entries.values() if entry.listed and may_use(request.key, entry.name)
                ]
                return encode(several(visible, request.query))

            await request.respond_json(
                msgspec.Raw(await request.off_loop(MODEL_BYTES * len(entries), listed))
            )
        elif name in entries and may_use(request.key, name):
            await request.respond_json(one(entries[name]))
        else:
            raise RequestRefused(
                f"the model {name[:100]!a} is not listed here",
                status=404,
                path="/model",
                code="model_not_found",
            )


def openai_list(entries: Iterable[CatalogEntry], _: str) -> JSONObject:
    """Return the list in OpenAI's form."""
    shown = [openai_model(entry) for entry in entries if lifecycle_of(entry) in _DEFAULT_LIFECYCLES]
    return {"object": "list", "data": shown}


def anthropic_list(entries: Iterable[CatalogEntry], query_string: str) -> JSONObject:
    """Return a page in Anthropic's form. Without `limit` it is the only one, because many clients read no second one.

    Raises RemoteProtocolError for wrong parameters.
    """
    query = Query(query_string)
    # SDKs write lists as `lifecycle[]=`.
    lifecycles = [*query.all("lifecycle"), *query.all("lifecycle[]")] or _DEFAULT_LIFECYCLES
    page, has_more = page_of([entry for entry in entries if lifecycle_of(entry) in lifecycles], query)
    return {
        "data": [anthropic_model(entry) for entry in page],
        "first_id": page[0].name if page else None,
        "last_id": page[-1].name if page else None,
        "has_more": has_more,
    }


def page_of(entries: Sequence[CatalogEntry], query: Query) -> tuple[Sequence[CatalogEntry], bool]:
    """Return a page, and true if there are more entries in its direction. Raises RemoteProtocolError."""
    limit = query.integer("limit", 1, _MAX_PAGE_SIZE) or len(entries)
    names = [entry.name for entry in entries]
    after, before = query.place("after_id", names), query.place("before_id", names)
    if after is not None and before is not None:
        raise invalid_parameter("before_id", "omitted if after_id is sent")
    if before is not None:
        return entries[:before][-limit:], before > limit
    entries = entries[0 if after is None else after + 1 :]
    return entries[:limit], len(entries) > limit


def openai_model(entry: CatalogEntry) -> JSONObject:
    """Return a model in OpenAI's form. Unknown figures are left out, because OpenAI's own models have none of them."""
    info = entry.info
    known = {
        "name": entry.display_name if entry.display_name != entry.name else None,
        # Clients read either of them. Not `max_tokens`: some clients take it for the context.
        "context_length": info.context,
        "max_input_tokens": info.context,
        "max_completion_tokens": info.output,
        "max_output_tokens": info.output,
        "shutdown_date": None if info.retires is None else _rfc3339(info.retires)[:10],
    }
    return {
        "id": entry.name,
        "object": "model",
        "created": info.created or 0,
        "owned_by": entry.owner,
        **{name: value for name, value in known.items() if value is not None},
    }


def anthropic_model(entry: CatalogEntry) -> JSONObject:
    """Return a model in Anthropic's form."""
    info = entry.info
    return {
        "type": "model",
        "id": entry.name,
        "display_name": entry.display_name,
        # "May be set to an epoch value if the release date is unknown" -- anthropic 2.12.0, types/model_info.py
        "created_at": _rfc3339(info.created or 0),
        "lifecycle": lifecycle_of(entry),
        "max_input_tokens": info.context,
        "max_tokens": info.output,
        "line": None,
        "deprecated_at": None,
        "retires_at": None if info.retires is None else _rfc3339(info.retires),
        "capabilities": None,
        **info.anthropic,
    }


def google_list(entries: Iterable[CatalogEntry], query_string: str) -> JSONObject:
    """Return a page in Google's form, without `pageSize` the only one.

    Raises RemoteProtocolError for wrong parameters.
    """
    query = Query(query_string)
    shown = [entry for entry in entries if lifecycle_of(entry) in _DEFAULT_LIFECYCLES]
    size = query.integer("pageSize", 1, _MAX_PAGE_SIZE) or len(shown)
    last = query.place("pageToken", [entry.name for entry in shown])
    shown = shown[0 if last is None else last + 1 :]
    more = {"nextPageToken": shown[size - 1].name} if len(shown) > size else {}
    return {"models": [google_model(entry) for entry in shown[:size]], **more}


def google_model(entry: CatalogEntry) -> JSONObject:
    """Return a model in Google's form, which leaves out what is not known."""
    limits = {"inputTokenLimit": entry.info.context, "outputTokenLimit": entry.info.output}
    return {
        "name": f"models/{entry.name}",
        "displayName": entry.display_name,
        **{name: value for name, value in limits.items() if value is not None},
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    }


def lifecycle_of(entry: CatalogEntry) -> str:
    """Return the lifecycle that the upstream reports, else "deprecated" if it has a date of retirement.

    `retires_at` is "`null` while the model is `active`" -- anthropic 2.12.0, types/model_info.py
    """
    return entry.info.lifecycle or ("active" if entry.info.retires is None else "deprecated")


def _rfc3339(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# By ProtocolSpec.model_list_form: a model, and a list for a query string.
_FORMS: Mapping[
    str, tuple[Callable[[CatalogEntry], JSONObject], Callable[[Iterable[CatalogEntry], str], JSONObject]]
] = {
    "openai": (openai_model, openai_list),
    "anthropic": (anthropic_model, anthropic_list),
    "google": (google_model, google_list),
}
