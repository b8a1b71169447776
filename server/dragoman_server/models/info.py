"""What lists of models say, whoever wrote them. Pure: a body in, models out.

Strategy: every vendor has names of its own for the same few facts, so tables say where each fact may stand, the most
telling place first. A model that is described badly is listed all the same, for its name is what counts; what is no
list at all is an error.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType

from dragoman import RemoteProtocolError
from dragoman.jsontext import JSON, decode

# Names of models are short. What is longer, or cannot be printed, is no name.
_LONGEST_NAME = 256
# No model reads or writes more, and no text of a vendor's is this long.
_MOST_TOKENS = 10**10
_LONGEST_TEXT = 200

_Path = tuple[str, ...]

# How much a model reads, in tokens. Vendors do not agree whether the answer counts as well.
CONTEXT_FIELDS: tuple[_Path, ...] = (
    ("max_input_tokens",),  # Anthropic
    ("context_length",),  # OpenRouter, Together, Fireworks, Moonshot
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
# How much it writes at most.
OUTPUT_FIELDS: tuple[_Path, ...] = (
    ("top_provider", "max_completion_tokens"),  # OpenRouter
    ("max_completion_tokens",),  # Groq
    ("max_output_tokens",),
    ("max_output_length",),  # Chutes
    ("metadata", "max_tokens"),  # DeepInfra
    ("limits", "max_output_tokens"),  # GitHub Models
    ("max_tokens",),  # Anthropic, Vercel
)
# Seconds since the epoch, or a date.
CREATED_FIELDS: tuple[_Path, ...] = (("created",), ("created_at",))
RETIRES_FIELDS: tuple[_Path, ...] = (("retires_at",), ("shutdown_date",))  # Anthropic, OpenAI
NAME_FIELDS: tuple[_Path, ...] = (("display_name",), ("name",))  # Anthropic, OpenRouter
ID_FIELDS: tuple[_Path, ...] = (("id",), ("model",), ("name",))  # the others: Ollama's own list

# Where the list stands, where it is not the whole body.
_LISTS = ("data", "models")

# What only Anthropic tells, and only its clients ask for.
_LIFECYCLES = ("active", "deprecated", "retired")
_ANTHROPIC: Mapping[str, tuple[type, ...]] = MappingProxyType(
    {"line": (str,), "deprecated_at": (str,), "capabilities": (dict,)}
)


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is known of a model. None: nobody says.

    id: its name at the upstream. context, output: tokens. created, retires: seconds since the epoch.
    anthropic: more members of its form, as they came.
    """

    id: str
    display_name: str | None = None
    context: int | None = None
    output: int | None = None
    created: int | None = None
    retires: int | None = None
    lifecycle: str | None = None
    anthropic: Mapping[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelPage:
    """next: the id to ask for more with, None at the end."""

    models: tuple[ModelInfo, ...]
    next: str | None


def read_models(body: bytes) -> ModelPage:
    """One page of a list. Raises RemoteProtocolError where it is none; the message never repeats the body."""
    value = decode(body)
    items = value if isinstance(value, list) else _items(value)
    if items is None:
        raise RemoteProtocolError("the answer is no list of models")
    models = tuple(model for item in items if (model := _model(item)) is not None)
    return ModelPage(models, _next(value, models) if isinstance(value, dict) else None)


def _items(value: JSON) -> list[JSON] | None:
    if not isinstance(value, dict):
        return None
    return next((value[name] for name in _LISTS if isinstance(value.get(name), list)), None)


def _next(page: Mapping[str, JSON], models: Sequence[ModelInfo]) -> str | None:
    if page.get("has_more") is not True:
        return None
    return _text(page.get("last_id"), _LONGEST_NAME) or (models[-1].id if models else None)


def _model(item: JSON) -> ModelInfo | None:
    if isinstance(item, str):
        item = {"id": item}
    if not isinstance(item, dict):
        return None
    id = next((text for value in _values(item, ID_FIELDS) if (text := _text(value, _LONGEST_NAME))), None)
    if id is None:
        return None
    lifecycle = item.get("lifecycle")
    return ModelInfo(
        id,
        display_name=next(
            (t for value in _values(item, NAME_FIELDS) if (t := _text(value, _LONGEST_TEXT))), None
        ),
        context=_tokens(item, CONTEXT_FIELDS),
        output=_tokens(item, OUTPUT_FIELDS),
        created=_seconds(item, CREATED_FIELDS),
        retires=_seconds(item, RETIRES_FIELDS),
        lifecycle=lifecycle if lifecycle in _LIFECYCLES else None,
        anthropic={
            name: item[name] for name, types in _ANTHROPIC.items() if isinstance(item.get(name), types)
        },
    )


def _values(item: Mapping[str, JSON], paths: Sequence[_Path]) -> Iterator[JSON]:
    """What stands in these places, where there is something."""
    for path in paths:
        value: JSON = item
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            yield value


def _text(value: JSON, longest: int) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= longest and value.isprintable() else None


def _tokens(item: Mapping[str, JSON], paths: Sequence[_Path]) -> int | None:
    # `type`: a truth value is an int to Python.
    found = (value for value in _values(item, paths) if type(value) is int and 0 < value <= _MOST_TOKENS)
    return next(found, None)


def _seconds(item: Mapping[str, JSON], paths: Sequence[_Path]) -> int | None:
    times = (_time(value) for value in _values(item, paths))
    # "May be set to an epoch value if the release date is unknown."
    return next((time for time in times if time), None)


def _time(value: JSON) -> int | None:
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            value = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        if type(value) not in (int, float):
            return None
        # What no calendar has is no time.
        return int(datetime.fromtimestamp(value, UTC).timestamp())
    except (ValueError, OverflowError, OSError):
        return None
