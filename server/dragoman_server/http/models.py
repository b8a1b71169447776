"""GET /v1/models and /v1/models/{id}: the catalog in OpenAI's form or Anthropic's, as the client's headers tell.

Strategy: one path, two endpoints behind it, each in the form of its protocol. OpenAI's form is one list; Anthropic's
has pages, which are cut here from what the catalog knows. What a client may not use is not there for it.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from dragoman import RemoteProtocolError
from dragoman.jsontext import JSONObject
from dragoman_server.gateway import Gateway
from dragoman_server.http.endpoint import BaseEndpoint, ClientRequest
from dragoman_server.http.query import Query, integer_parameter, invalid_parameter, last_value, parse_query
from dragoman_server.keys import may_use
from dragoman_server.models.catalog import CatalogEntry
from dragoman_server.replies import MODELS_PATH, protocol_by_version

# "Ranges from 1 to 1000."
_MOST_ON_A_PAGE = 1000
# "When omitted, the list contains the active and deprecated models." Requests that name a retired one fail.
_USUAL_LIFECYCLES = ("active", "deprecated")


def models_routes(gateway: Gateway) -> list[BaseRoute]:
    return [
        Route(MODELS_PATH, _ByDialect(gateway, _LISTS), methods=["GET"]),
        Route(MODELS_PATH + "/{model:path}", _ByDialect(gateway, _MODELS), methods=["GET"]),
    ]


class _ByDialect:
    """Lets the endpoint answer whose form the client reads. forms: by ProtocolSpec.model_list_form."""

    def __init__(self, gateway: Gateway, forms: Mapping[str, type[BaseEndpoint]]) -> None:
        self._protocols = gateway.protocols
        self._endpoints = {
            name: forms[spec.model_list_form](gateway, spec) for name, spec in gateway.protocols.items()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        spec = protocol_by_version(Headers(scope=scope), self._protocols)
        await self._endpoints[spec.name](scope, receive, send)


async def _listed(gateway: Gateway, call: ClientRequest, lifecycles: Collection[str]) -> list[CatalogEntry]:
    entries = await gateway.catalog.entries()
    return [
        entry
        for entry in entries.values()
        if entry.listed and lifecycle_of(entry) in lifecycles and may_use(call.key, entry.name)
    ]


async def _one(gateway: Gateway, call: ClientRequest) -> CatalogEntry:
    """The model that the path names. Raises RemoteProtocolError (404)."""
    name: str = call.scope["path_params"]["model"]
    entry = (await gateway.catalog.entries()).get(name)
    if entry is None or not may_use(call.key, name):
        raise RemoteProtocolError(
            f"the model {name[:100]!a} is not listed here",
            status=404,
            path="/model",
            code="model_not_found",
        )
    return entry


class OpenAIModelListEndpoint(BaseEndpoint):
    """The list in OpenAI's form."""

    async def serve(self, call: ClientRequest) -> None:
        entries = await _listed(self.gateway, call, _USUAL_LIFECYCLES)
        await call.respond_json({"object": "list", "data": [openai_model(entry) for entry in entries]})


class OpenAIModelEndpoint(OpenAIModelListEndpoint):
    async def serve(self, call: ClientRequest) -> None:
        await call.respond_json(openai_model(await _one(self.gateway, call)))


class AnthropicModelListEndpoint(BaseEndpoint):
    """The list in Anthropic's form. Without `limit` all is one page: many clients read no second one."""

    async def serve(self, call: ClientRequest) -> None:
        query = parse_query(call.query)
        # SDKs write lists as `lifecycle[]=`.
        lifecycles = [*query.get("lifecycle", ()), *query.get("lifecycle[]", ())] or _USUAL_LIFECYCLES
        page, has_more = page_of(await _listed(self.gateway, call, lifecycles), query)
        await call.respond_json(
            {
                "data": [anthropic_model(entry) for entry in page],
                "first_id": page[0].name if page else None,
                "last_id": page[-1].name if page else None,
                "has_more": has_more,
            }
        )


class AnthropicModelEndpoint(AnthropicModelListEndpoint):
    async def serve(self, call: ClientRequest) -> None:
        await call.respond_json(anthropic_model(await _one(self.gateway, call)))


_LISTS: Mapping[str, type[BaseEndpoint]] = {
    "openai": OpenAIModelListEndpoint,
    "anthropic": AnthropicModelListEndpoint,
}
_MODELS: Mapping[str, type[BaseEndpoint]] = {
    "openai": OpenAIModelEndpoint,
    "anthropic": AnthropicModelEndpoint,
}


def page_of(entries: Sequence[CatalogEntry], query: Query) -> tuple[Sequence[CatalogEntry], bool]:
    """A page, and whether there is more in its direction. Raises RemoteProtocolError."""
    limit = integer_parameter(query, "limit", 1, _MOST_ON_A_PAGE) or len(entries)
    after, before = last_value(query, "after_id"), last_value(query, "before_id")
    if after is not None and before is not None:
        raise invalid_parameter("before_id", "left out beside after_id")
    if before is not None:
        entries = entries[: _place(entries, "before_id", before)]
        return entries[-limit:], len(entries) > limit
    if after is not None:
        entries = entries[_place(entries, "after_id", after) + 1 :]
    return entries[:limit], len(entries) > limit


def _place(entries: Sequence[CatalogEntry], parameter: str, name: str) -> int:
    for place, entry in enumerate(entries):
        if entry.name == name:
            return place
    raise invalid_parameter(parameter, f"the id of a listed model, and {name[:100]!a} is none")


def openai_model(entry: CatalogEntry) -> JSONObject:
    """What is not known is left out, for OpenAI's own models have none of it."""
    info = entry.info
    known = {
        "name": entry.display_name if entry.display_name != entry.name else None,
        # Clients look for either. Not `max_tokens`: there are some that take it for the context.
        "context_length": info.context,
        "max_input_tokens": info.context,
        "max_completion_tokens": info.output,
        "max_output_tokens": info.output,
        "shutdown_date": None if info.retires is None else _moment(info.retires)[:10],
    }
    return {
        "id": entry.name,
        "object": "model",
        "created": info.created or 0,
        "owned_by": entry.owner,
        **{name: value for name, value in known.items() if value is not None},
    }


def anthropic_model(entry: CatalogEntry) -> JSONObject:
    info = entry.info
    return {
        "type": "model",
        "id": entry.name,
        "display_name": entry.display_name,
        # "May be set to an epoch value if the release date is unknown."
        "created_at": _moment(info.created or 0),
        "lifecycle": lifecycle_of(entry),
        "max_input_tokens": info.context,
        "max_tokens": info.output,
        "line": None,
        "deprecated_at": None,
        "retires_at": None if info.retires is None else _moment(info.retires),
        "capabilities": None,
        **info.anthropic,
    }


def lifecycle_of(entry: CatalogEntry) -> str:
    """As the upstream has it. "retires_at: null while the model is active." """
    return entry.info.lifecycle or ("active" if entry.info.retires is None else "deprecated")


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
