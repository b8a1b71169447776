"""Read the model lists of all vendors. Pure: a body in, models out.

Vendors have different names for the same few facts, so tables have the places of each fact, the most exact one first. A
model with a wrong description is listed too, because only its name is needed; a body that is not a list is an error.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TypeVar

import msgspec

from dragoman import RemoteProtocolError
from dragoman.jsontext import JSON, decode

# Names of models are short. A longer text, or one that cannot be printed, is not a name.
_MAX_NAME_LENGTH = 256
# Larger numbers of tokens and longer texts of a vendor are errors.
_MAX_TOKENS = 10**10
_MAX_TEXT_LENGTH = 200

_Path = tuple[str, ...]
_T = TypeVar("_T")

# The context window in tokens. Vendors do not agree if the output counts as well.
CONTEXT_FIELDS: tuple[_Path, ...] = (
    ("max_input_tokens",),  # Anthropic
    ("inputTokenLimit",),  # Google
    ("context_length",),  # OpenRouter, Together, Fireworks, Moonshot, Ollama's list of loaded models
    ("context_window",),  # Groq, Vercel
    ("loaded_context_length",),  # LM Studio: what is in use, which may be less than the model could
    ("max_context_length",),  # Mistral, LM Studio
    ("max_model_len",),  # vLLM, SGLang
    ("meta", "n_ctx"),  # llama.cpp: what is in use
    ("meta", "n_ctx_train"),  # llama.cpp: what the model was made for
    ("metadata", "context_length"),  # DeepInfra
    ("limits", "max_input_tokens"),  # GitHub Models
    ("top_provider", "context_length"),  # OpenRouter
)
# The longest output in tokens.
OUTPUT_FIELDS: tuple[_Path, ...] = (
    ("top_provider", "max_completion_tokens"),  # OpenRouter
    ("max_completion_tokens",),  # Groq
    ("outputTokenLimit",),  # Google
    ("max_output_tokens",),
    ("max_output_length",),  # Chutes
    ("metadata", "max_tokens"),  # DeepInfra
    ("limits", "max_output_tokens"),  # GitHub Models
    ("max_tokens",),  # Anthropic, Vercel
)
# Seconds since the epoch, or a date.
CREATED_FIELDS: tuple[_Path, ...] = (("created",), ("created_at",))
RETIRES_FIELDS: tuple[_Path, ...] = (("retires_at",), ("shutdown_date",))  # Anthropic, OpenAI
NAME_FIELDS: tuple[_Path, ...] = (
    ("display_name",),
    ("displayName",),
    ("name",),
)  # Anthropic, Google, OpenRouter
ID_FIELDS: tuple[_Path, ...] = (("id",), ("model",), ("name",))  # the others: Ollama's own list, Google

# The member with the list, if the body is not the list itself.
_LIST_FIELDS = ("data", "models")

# Members that only Anthropic's lists have, and only its clients read.
_LIFECYCLES = ("active", "deprecated", "retired")
_ANTHROPIC_FIELDS: Mapping[str, tuple[type, ...]] = MappingProxyType(
    {"line": (str,), "deprecated_at": (str,), "capabilities": (dict,)}
)


class ModelInfo(msgspec.Struct, frozen=True):
    """The description of a model. None: unknown.

    Attributes:
        id: Its name at the upstream.
        display_name: Its name for people.
        context, output: Its limits in tokens.
        created, retires: Seconds since the epoch.
        lifecycle: Its state in Anthropic's words.
        anthropic: More members of Anthropic's form, unchanged.
        owned_by: Local servers write their own name there.
    """

    id: str
    display_name: str | None = None
    context: int | None = None
    output: int | None = None
    created: int | None = None
    retires: int | None = None
    lifecycle: str | None = None
    anthropic: Mapping[str, JSON] = msgspec.field(default_factory=dict)
    owned_by: str | None = None

    @property
    def largest_limit(self) -> int | None:
        """The largest limit of its output that it can accept. No output is longer than the context."""
        return min(filter(None, (self.output, self.context)), default=None)


class ModelPage(msgspec.Struct, frozen=True):
    """One page of a list.

    Attributes:
        next: The id with which the next page is requested, None at the end.
    """

    models: tuple[ModelInfo, ...]
    next: str | None


def read_models(body: bytes, name_prefix: str = "") -> ModelPage:
    """Read one page of a list. Raises RemoteProtocolError for another body; the message never repeats the body.

    name_prefix: see codec.ModelList.
    """
    value = decode(body)
    items = value if isinstance(value, list) else _items(value)
    if items is None:
        raise RemoteProtocolError("the response is not a list of models")
    models = tuple(model for item in items if (model := _model(item, name_prefix)) is not None)
    return ModelPage(models, _next(value, models) if isinstance(value, dict) else None)


def _items(value: JSON) -> list[JSON] | None:
    if not isinstance(value, dict):
        return None
    return next((value[name] for name in _LIST_FIELDS if isinstance(value.get(name), list)), None)


def _next(page: Mapping[str, JSON], models: Sequence[ModelInfo]) -> str | None:
    if "nextPageToken" in page:  # Google
        return _name(page["nextPageToken"])
    if page.get("has_more") is not True:
        return None
    return _name(page.get("last_id")) or (models[-1].id if models else None)


def _model(item: JSON, name_prefix: str) -> ModelInfo | None:
    if isinstance(item, str):
        item = {"id": item}
    if not isinstance(item, dict):
        return None
    id = _first(item, ID_FIELDS, _name)
    if id is None:
        return None
    lifecycle = item.get("lifecycle")
    return ModelInfo(
        id.removeprefix(name_prefix),
        display_name=_first(item, NAME_FIELDS, _display_name),
        owned_by=_name(item.get("owned_by")),
        context=_first(item, CONTEXT_FIELDS, _tokens),
        output=_first(item, OUTPUT_FIELDS, _tokens),
        # 0: "May be set to an epoch value if the release date is unknown" -- anthropic 2.12.0, types/model_info.py
        created=_first(item, CREATED_FIELDS, _time),
        retires=_first(item, RETIRES_FIELDS, _time),
        lifecycle=lifecycle if lifecycle in _LIFECYCLES else None,
        anthropic={
            name: item[name] for name, types in _ANTHROPIC_FIELDS.items() if isinstance(item.get(name), types)
        },
    )


def _first(item: Mapping[str, JSON], paths: Sequence[_Path], read: Callable[[JSON], _T | None]) -> _T | None:
    """Return the first value at these places that can be read and is not 0."""
    for path in paths:
        value: JSON = item
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if found := read(value):
            return found
    return None


def _name(value: JSON, longest: int = _MAX_NAME_LENGTH) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= longest and value.isprintable() else None


def _display_name(value: JSON) -> str | None:
    return _name(value, _MAX_TEXT_LENGTH)


def _tokens(value: JSON) -> int | None:
    # `type`, because bool is a subclass of int.
    return value if type(value) is int and 0 < value <= _MAX_TOKENS else None


def _time(value: JSON) -> int | None:
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            value = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        if type(value) not in (int, float):
            return None
        # A time outside the calendar is an error.
        return int(datetime.fromtimestamp(value, UTC).timestamp())
    except (ValueError, OverflowError, OSError):
        return None
