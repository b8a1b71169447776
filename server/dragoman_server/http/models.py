"""GET /v1/models and /v1/models/{id}: the catalog of models in the form of a vendor.

The client's path, headers and query decide which form a response has. OpenAI's is one list, the others have pages.
Models that the client's key may not use are left out.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType
from starlette.routing import BaseRoute

from dragoman import RequestRefused
from dragoman.jsontext import JSON, JSONObject, encode
from dragoman_server.gateway import Gateway
from dragoman_server.http.endpoint import BaseEndpoint, ByProtocol
from dragoman_server.http.operations import ApiOperation, DescribedRoute
from dragoman_server.http.request import Parameter, Query, invalid_parameter
from dragoman_server.models.catalog import MODEL_BYTES, CatalogEntry
from dragoman_server.platform.clock import utc_text
from dragoman_server.proxying.client_request import ClientRequest
from dragoman_server.relayed.table import endpoints_for
from dragoman_server.settings.client_keys import may_use
from dragoman_server.wire.replies import MODELS_PATH

# "Ranges from 1 to 1000" -- `limit` in anthropic 2.12.0, types/model_list_params.py
_PAGE_LIMITS = (1, 1000)
_LIMIT = Parameter("limit", "how many models; all by default", _PAGE_LIMITS)
_AFTER_ID = Parameter("after_id", "the id of the last model of the page before")
_BEFORE_ID = Parameter("before_id", "the id of the first model of the page after; not with after_id")
_LIFECYCLE = Parameter("lifecycle", "models in this state", repeats=True)
_PAGE_SIZE = Parameter("pageSize", "how many models; all by default", _PAGE_LIMITS)
_PAGE_TOKEN = Parameter("pageToken", "nextPageToken of the page before")
# "When omitted, the list contains the `active` and `deprecated` models" -- `lifecycle`, ibid. Requests that name a
# retired one fail.
_DEFAULT_LIFECYCLES = ("active", "deprecated")


def models_routes(gateway: Gateway) -> list[BaseRoute]:
    """Return the routes of the model list and of single models."""
    all_forms = list(dict.fromkeys(spec.model_list_form for spec in gateway.protocols.values()))
    by_protocol = ByProtocol(ModelsEndpoint(gateway, spec) for spec in gateway.protocols.values())
    routes = _routes(MODELS_PATH, by_protocol, all_forms)
    for spec in gateway.protocols.values():
        for prefix in spec.path_prefixes:
            routes += _routes(f"{prefix}/models", ModelsEndpoint(gateway, spec), [spec.model_list_form])
    return routes


def _routes(path: str, endpoint: "ByProtocol | ModelsEndpoint", names: Iterable[str]) -> list[BaseRoute]:
    """Return the routes of a list and its models. names: of the forms in which clients may get them."""
    forms = [_FORMS[name] for name in names]
    several = ApiOperation(
        summary="List the models that the key may use",
        answers={200: [form.types[1] for form in forms]},
        parameters=[parameter for form in forms for parameter in form.parameters],
    )
    one = ApiOperation(
        summary="Return a model",
        answers={200: [form.types[0] for form in forms]},
        errors=(404,),
        place="the name of a model",
    )
    return [
        DescribedRoute(path, endpoint, GET=several),
        DescribedRoute(path + "/{model:path}", endpoint, GET=one),
    ]


class ModelsEndpoint(BaseEndpoint):
    """The list of models, or the one that the path names, in the form of the protocol."""

    async def serve(self, request: ClientRequest) -> None:
        form = _FORMS[self.protocol.model_list_form]
        entries = await self.gateway.catalog.entries()
        name: str | None = request.scope["path_params"].get("model")
        if name is None:

            def listed() -> bytes:
                visible = [
                    entry for entry in entries.values() if entry.listed and may_use(request.key, entry.name)
                ]
                return encode(form.several(visible, request.query))

            await request.respond_json(
                msgspec.Raw(await request.off_loop(MODEL_BYTES * len(entries), listed))
            )
        elif name in entries and may_use(request.key, name):
            await request.respond_json(form.one(entries[name]))
        else:
            raise RequestRefused(
                f"the model {name[:100]!a} is not listed here",
                status=404,
                path="/model",
                code="model_not_found",
            )


def openai_list(entries: Iterable[CatalogEntry], _: str) -> "OpenAIModels":
    """Return the list in OpenAI's form."""
    return OpenAIModels(
        [openai_model(entry) for entry in entries if lifecycle_of(entry) in _DEFAULT_LIFECYCLES]
    )


def anthropic_list(entries: Iterable[CatalogEntry], query_string: str) -> "AnthropicModels":
    """Return a page in Anthropic's form. Without `limit` it is the only one, because many clients read no second one.

    Raises RemoteProtocolError for wrong parameters.
    """
    query = Query(query_string)
    # SDKs write lists as `lifecycle[]=`.
    lifecycles = [*query.all(_LIFECYCLE.name), *query.all("lifecycle[]")] or _DEFAULT_LIFECYCLES
    page, has_more = page_of([entry for entry in entries if lifecycle_of(entry) in lifecycles], query)
    return AnthropicModels(
        [anthropic_model(entry) for entry in page],
        page[0].name if page else None,
        page[-1].name if page else None,
        has_more,
    )


def page_of(entries: Sequence[CatalogEntry], query: Query) -> tuple[Sequence[CatalogEntry], bool]:
    """Return a page, and true if there are more entries in its direction. Raises RemoteProtocolError."""
    limit = query.integer(_LIMIT) or len(entries)
    names = [entry.name for entry in entries]
    after, before = query.place(_AFTER_ID, names), query.place(_BEFORE_ID, names)
    if after is not None and before is not None:
        raise invalid_parameter("before_id", "omitted if after_id is sent")
    if before is not None:
        return entries[:before][-limit:], before > limit
    entries = entries[0 if after is None else after + 1 :]
    return entries[:limit], len(entries) > limit


class OpenAIModel(msgspec.Struct, kw_only=True):
    """A model in OpenAI's form. Unknown figures are left out, because OpenAI's own models have none of them."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    name: str | UnsetType = UNSET
    # Clients read either of them. Not `max_tokens`: some clients take it for the context.
    context_length: int | UnsetType = UNSET
    max_input_tokens: int | UnsetType = UNSET
    max_completion_tokens: int | UnsetType = UNSET
    max_output_tokens: int | UnsetType = UNSET
    shutdown_date: str | UnsetType = UNSET
    # Of models that do not chat. The name is that of GitHub's and LiteLLM's lists.
    supported_endpoints: tuple[str, ...] | UnsetType = UNSET


class OpenAIModels(msgspec.Struct):
    """The list in OpenAI's form."""

    data: list[OpenAIModel]
    object: Literal["list"] = "list"


def openai_model(entry: CatalogEntry) -> OpenAIModel:
    """Return a model in OpenAI's form."""
    info = entry.info
    context, output = _known(info.context), _known(info.output)
    return OpenAIModel(
        id=entry.name,
        created=info.created or 0,
        owned_by=entry.owner,
        name=entry.display_name if entry.display_name != entry.name else UNSET,
        context_length=context,
        max_input_tokens=context,
        max_completion_tokens=output,
        max_output_tokens=output,
        shutdown_date=UNSET if info.retires is None else utc_text(info.retires)[:10],
        supported_endpoints=endpoints_for(info.id) or UNSET,
    )


class AnthropicModel(msgspec.Struct, kw_only=True):
    """A model in Anthropic's form, with what the upstream says about it."""

    type: Literal["model"] = "model"
    id: str
    display_name: str
    created_at: str
    lifecycle: str
    max_input_tokens: int | None
    max_tokens: int | None
    line: str | None = None
    deprecated_at: str | None = None
    retires_at: str | None
    capabilities: JSONObject | None = None


class AnthropicModels(msgspec.Struct):
    """A page in Anthropic's form."""

    data: list[AnthropicModel]
    first_id: str | None
    last_id: str | None
    has_more: bool


def anthropic_model(entry: CatalogEntry) -> JSON:
    """Return a model in Anthropic's form."""
    info = entry.info
    model = AnthropicModel(
        id=entry.name,
        display_name=entry.display_name,
        # "May be set to an epoch value if the release date is unknown" -- anthropic 2.12.0, types/model_info.py
        created_at=utc_text(info.created or 0),
        lifecycle=lifecycle_of(entry),
        max_input_tokens=info.context,
        max_tokens=info.output,
        retires_at=None if info.retires is None else utc_text(info.retires),
    )
    return {**msgspec.structs.asdict(model), **info.anthropic}


class GoogleModel(msgspec.Struct):
    """A model in Google's form, which leaves out unknown members."""

    name: str
    displayName: str
    inputTokenLimit: int | UnsetType = UNSET
    outputTokenLimit: int | UnsetType = UNSET
    supportedGenerationMethods: tuple[str, ...] = ("generateContent", "countTokens")


class GoogleModels(msgspec.Struct):
    """A page in Google's form."""

    models: list[GoogleModel]
    nextPageToken: str | UnsetType = UNSET


def google_list(entries: Iterable[CatalogEntry], query_string: str) -> GoogleModels:
    """Return a page in Google's form, without `pageSize` the only one.

    Raises RemoteProtocolError for wrong parameters.
    """
    query = Query(query_string)
    shown = [entry for entry in entries if lifecycle_of(entry) in _DEFAULT_LIFECYCLES]
    size = query.integer(_PAGE_SIZE) or len(shown)
    last = query.place(_PAGE_TOKEN, [entry.name for entry in shown])
    shown = shown[0 if last is None else last + 1 :]
    more = shown[size - 1].name if len(shown) > size else UNSET
    return GoogleModels([google_model(entry) for entry in shown[:size]], more)


def google_model(entry: CatalogEntry) -> GoogleModel:
    """Return a model in Google's form."""
    return GoogleModel(
        f"models/{entry.name}", entry.display_name, _known(entry.info.context), _known(entry.info.output)
    )


def _known(figure: int | None) -> int | UnsetType:
    return UNSET if figure is None else figure


def lifecycle_of(entry: CatalogEntry) -> str:
    """Return the lifecycle that the upstream reports, else "deprecated" if it has a date of retirement.

    `retires_at` is "`null` while the model is `active`" -- anthropic 2.12.0, types/model_info.py
    """
    return entry.info.lifecycle or ("active" if entry.info.retires is None else "deprecated")


class _Form(msgspec.Struct, frozen=True):
    """How a vendor lists models.

    Attributes:
        one, several: Return a model, and a list for a query string.
        types: What they return.
        parameters: Those of a list.
    """

    one: Callable[[CatalogEntry], JSON]
    several: Callable[[Iterable[CatalogEntry], str], JSON]
    types: tuple[type, type]
    parameters: tuple[Parameter, ...] = ()


# By ProtocolSpec.model_list_form.
_FORMS: Mapping[str, _Form] = {
    "openai": _Form(openai_model, openai_list, (OpenAIModel, OpenAIModels)),
    "anthropic": _Form(
        anthropic_model,
        anthropic_list,
        (AnthropicModel, AnthropicModels),
        (_LIMIT, _AFTER_ID, _BEFORE_ID, _LIFECYCLE),
    ),
    "google": _Form(google_model, google_list, (GoogleModel, GoogleModels), (_PAGE_SIZE, _PAGE_TOKEN)),
}
