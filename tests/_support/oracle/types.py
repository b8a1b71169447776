"""Strict type checks of emitted JSON against the official SDKs' own pydantic types.

Parse the text as plain JSON first, pick the SDK class by the `type` field, let pydantic validate
in strict mode (the SDKs' own `construct` never complains), then walk the validated objects for the two
things pydantic is silent about: fields the schema requires as "present, null allowed" (`PRESENT`), and
fields the SDK does not know (`EXTENSIONS` lists the ones that are accepted by convention). A problem is
`path: what`.
"""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

import anthropic.types as m
import anthropic.types.beta as mb
import openai.types.chat as c
import openai.types.responses as r
from anthropic.types import raw_message_delta_event as m_delta
from anthropic.types.beta import beta_raw_message_delta_event as mb_delta
from anthropic.types.shared import ErrorObject as MErrorObject
from openai.types import CompletionUsage
from openai.types import Model as OpenAIModel
from openai.types.chat import chat_completion as c_whole
from openai.types.chat import chat_completion_chunk as c_chunk
from openai.types.chat import chat_completion_token_logprob as c_logprob
from openai.types.shared import ErrorObject as OErrorObject
from pydantic import BaseModel, TypeAdapter, ValidationError

from oracle.frames import strict_json

CHAT = "openai_chat"
MESSAGES = "anthropic_messages"
RESPONSES = "openai_responses"
# Its types are those of `dragoman.lint` only: its SDK brings more packages than all of ours.
GEMINI = "gemini"
# What upstreams speak, and clients too.
PROTOCOL_NAMES = (CHAT, MESSAGES, RESPONSES, GEMINI)
# The simple API is only for clients. There is no SDK for it, and lint does not judge it.
SIMPLE_EVENTS = "simple_chat/chat/sse"

# "Required, may be null": the generator gives such a field a default, so pydantic lets it be absent.
_CITED = {"document_title", "file_id"}
PRESENT: dict[type[BaseModel], set[str]] = {
    c_whole.Choice: {"logprobs"},
    c_logprob.ChatCompletionTokenLogprob: {"bytes"},
    c_logprob.TopLogprob: {"bytes"},
    c.ChatCompletionMessage: {"content", "refusal"},
    m.Message: {"container", "diagnostics", "stop_details", "stop_reason", "stop_sequence"},
    m.Usage: {"cache_creation", "cache_creation_input_tokens", "cache_read_input_tokens", "inference_geo"},
    m.MessageDeltaUsage: {"input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"},
    m_delta.Delta: {"container", "stop_details", "stop_reason", "stop_sequence"},
    m.ToolUseBlock: {"caller"},
    m.ServerToolUseBlock: {"caller"},
    m.WebSearchToolResultBlock: {"caller"},
    m.WebFetchToolResultBlock: {"caller"},
    m.RefusalStopDetails: {"category", "explanation"},
    m.CitationCharLocation: _CITED,
    m.CitationPageLocation: _CITED,
    m.CitationContentBlockLocation: _CITED,
    m.CitationsWebSearchResultLocation: {"title"},
    m.CitationsSearchResultLocation: {"title"},
    m.WebSearchResultBlock: {"page_age"},
    m.WebFetchBlock: {"retrieved_at"},
    m.DocumentBlock: {"citations", "title"},
    r.Response: {"access_programs", "error", "incomplete_details", "instructions", "metadata", "temperature", "top_p"},
    r.FunctionTool: {"parameters", "strict"},
    r.ResponseErrorEvent: {"code", "param"},
    r.ResponseOutputTextAnnotationAddedEvent: {"annotation"},
    r.ResponseToolSearchCall: {"call_id"},
    OErrorObject: {"param", "code"},
}  # fmt: skip

# Fields outside the SDK types that a client may be sent, and why.
_CHAT_MESSAGE_EXTENSIONS = {
    "reasoning_content",  # the widespread name of unsigned thinking text
    "reasoning",  # the same under its other name
    "reasoning_details",  # the one carrier of signatures and encrypted reasoning
    "thinking_blocks",  # ready-made thinking blocks, as one widespread library prints them
    "annotations",  # typed in whole responses, also seen in deltas
}
EXTENSIONS: dict[type[BaseModel], set[str]] = {
    c_chunk.ChoiceDelta: _CHAT_MESSAGE_EXTENSIONS,
    c.ChatCompletionMessage: _CHAT_MESSAGE_EXTENSIONS,
    c_chunk.Choice: {"stop_reason"},  # the matched stop string
    c_whole.Choice: {"stop_reason"},
    CompletionUsage: {"server_tool_use_details"},  # how many searches, as OpenRouter reports them
    r.ResponseErrorEvent: {"error"},  # the server nests what the SDK type has flat; we send both
    # The server echoes them, and Open Responses requires them.
    r.Response: {"store", "frequency_penalty", "presence_penalty"},
}
REASONING_DETAIL_TYPES = {
    "reasoning.text": ("text",),
    "reasoning.summary": ("summary",),
    "reasoning.encrypted": ("data",),
}


class CustomFragment(BaseModel, extra="forbid", strict=True):
    """The inside of a custom tool call fragment in a chunk, which the SDK does not type at all."""

    name: str | None = None
    input: str | None = None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _by_type(union: Any) -> dict[str, type[BaseModel]]:
    """Members of a discriminated union by the value of their `type` literal."""
    members = get_args(get_args(union)[0])
    return {tag: member for member in members for tag in get_args(member.model_fields["type"].annotation)}


RESPONSES_EVENTS = _by_type(r.ResponseStreamEvent)
MESSAGES_EVENTS = _by_type(m.RawMessageStreamEvent)
BETA_EVENTS = _by_type(mb.BetaRawMessageStreamEvent)
_GA_BLOCKS = set(_by_type(m.ContentBlock))
BETA_BLOCKS = {
    tag
    for member in get_args(get_args(mb.BetaContentBlock)[0])
    if isinstance(member, type)
    for tag in get_args(member.model_fields["type"].annotation)
} - _GA_BLOCKS
_MESSAGES_ERRORS = set(_by_type(MErrorObject))
# Sent by the server, absent from the SDK's list of error types.
MESSAGES_ERROR_TYPES = _MESSAGES_ERRORS | {"request_too_large", "conflict_error", "timeout_error"}


def check_event(protocol: str, text: str) -> list[str]:
    """Problems of one `data:` payload of a stream."""
    payload, problems = _object(text)
    if payload is None or protocol == GEMINI:
        return problems
    if protocol == CHAT:
        return _check_chat_chunk(payload, text)
    kind = payload.get("type")
    if protocol == MESSAGES:
        if kind == "ping":
            return [] if payload == {"type": "ping"} else ["ping: carries fields"]
        if kind == "error":
            return _check_messages_error(payload)
        return _check_messages(
            payload, text, MESSAGES_EVENTS.get(kind), BETA_EVENTS.get(kind), f"event {kind!r}"
        )
    known = RESPONSES_EVENTS.get(kind) if isinstance(kind, str) else None
    if known is None:
        return [f"type: unknown event {kind!r}"]
    problems = _validate(known, text)
    if kind == "error" and "error" in payload:
        nested = payload["error"]
        flat = {name: payload.get(name) for name in ("code", "message", "param")}
        if not isinstance(nested, dict) or {name: nested.get(name) for name in flat} != flat:
            problems.append("error: the nested error does not repeat code, message and param")
    return problems


def check_body(protocol: str, text: str | bytes) -> list[str]:
    """Problems of a whole response."""
    payload, problems = _object(text)
    if payload is None or protocol == GEMINI:
        return problems
    if protocol == CHAT:
        problems = _validate(c.ChatCompletion, text)
        for index, choice in enumerate(_dicts(payload.get("choices"))):
            message = choice.get("message")
            if isinstance(message, dict):
                problems += _check_reasoning_details(message, f"choices.{index}.message")
        return problems
    if protocol == MESSAGES:
        return _check_messages(payload, text, m.Message, mb.BetaMessage, "message")
    return _validate(r.Response, text)


def check_error_body(protocol: str, text: str | bytes) -> list[str]:
    """Problems of an HTTP error body."""
    payload, problems = _object(text)
    if payload is None or protocol == GEMINI:
        return problems
    if protocol == MESSAGES:
        return _check_messages_error(payload)
    if set(payload) != {"error"}:
        return [f"body: fields {sorted(payload)}, expected only `error`"]
    return [f"error.{problem}" for problem in _validate(OErrorObject, json.dumps(payload["error"]))]


def check_models_body(protocol: str, text: str | bytes) -> list[str]:
    """Problems of a model list."""
    payload, problems = _object(text)
    if payload is None:
        return problems
    required = {"data", "first_id", "last_id", "has_more"} if protocol == MESSAGES else {"object", "data"}
    problems = [f"{name}: absent" for name in sorted(required - set(payload))]
    if protocol != MESSAGES and payload.get("object") != "list":
        problems.append("object: must be 'list'")
    kind = m.ModelInfo if protocol == MESSAGES else OpenAIModel
    for index, entry in enumerate(_dicts(payload.get("data"))):
        problems += [
            f"data.{index}.{problem}" for problem in _validate(kind, json.dumps(entry), extras=False)
        ]
    return problems


def _object(text: str | bytes) -> tuple[dict[str, Any] | None, list[str]]:
    try:
        payload = strict_json(text)
    except ValueError as error:
        return None, [f"json: {error}"]
    if not isinstance(payload, dict):
        return None, [f"json: {type(payload).__name__}, expected an object"]
    return payload, []


def _dicts(value: object) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _check_chat_chunk(payload: dict[str, Any], text: str) -> list[str]:
    if "error" in payload:
        return check_error_body(CHAT, text)
    problems: list[str] = []
    rewritten = False
    for number, choice in enumerate(_dicts(payload.get("choices"))):
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            continue
        where = f"choices.{number}.delta"
        problems += _check_reasoning_details(delta, where)
        for index, call in enumerate(_dicts(delta.get("tool_calls"))):
            if call.get("type") == "custom" or "custom" in call:
                # Outside the SDK's chunk type: judge the custom half here, the rest as a function fragment.
                custom = call.pop("custom", None)
                call.pop("type", None)
                rewritten = True
                found = _validate(CustomFragment, json.dumps(custom))
                problems += [f"{where}.tool_calls.{index}.custom.{problem}" for problem in found]
    return problems + _validate(c.ChatCompletionChunk, json.dumps(payload) if rewritten else text)


def _check_reasoning_details(holder: dict[str, Any], where: str) -> list[str]:
    problems: list[str] = []
    for name in ("reasoning_content", "reasoning"):
        if not isinstance(holder.get(name), str | None):
            problems.append(f"{where}.{name}: not a string")
    details = holder.get("reasoning_details")
    if details is None:
        return problems
    if not isinstance(details, list) or len(_dicts(details)) != len(details):
        return [*problems, f"{where}.reasoning_details: not a list of objects"]
    for index, detail in enumerate(details):
        needed = REASONING_DETAIL_TYPES.get(detail.get("type", ""))
        spot = f"{where}.reasoning_details.{index}"
        if needed is None:
            problems.append(f"{spot}.type: unknown {detail.get('type')!r}")
        elif not any(isinstance(detail.get(name), str) for name in (*needed, "signature")):
            problems.append(f"{spot}: has none of {needed}")
    return problems


def _check_messages(
    payload: dict[str, Any], text: str | bytes, stable: Any, beta: Any, name: str
) -> list[str]:
    if stable is None:
        return [f"type: unknown {name}"]
    return _validate(beta if _is_beta(payload) else stable, text)


def _is_beta(payload: dict[str, Any]) -> bool:
    """Does the payload hold a block, delta or stop reason that only the beta surface has?"""
    message = payload.get("message", payload)
    blocks = [
        payload.get("content_block"),
        *_dicts(message.get("content") if isinstance(message, dict) else None),
    ]
    delta = payload.get("delta")
    holders = [holder for holder in (message, delta) if isinstance(holder, dict)]
    return (
        any(isinstance(block, dict) and block.get("type") in BETA_BLOCKS for block in blocks)
        or any(holder.get("stop_reason") == "compaction" for holder in holders)
        or (isinstance(delta, dict) and delta.get("type") == "compaction_delta")
    )


def _check_messages_error(payload: dict[str, Any]) -> list[str]:
    problems = [f"{name}: unexpected" for name in sorted(set(payload) - {"type", "error", "request_id"})]
    if payload.get("type") != "error":
        problems.append("type: must be 'error'")
    if not isinstance(payload.get("request_id"), str | None):
        problems.append("request_id: not a string")
    error = payload.get("error")
    if not isinstance(error, dict):
        return [*problems, "error: not an object"]
    problems += [f"error.{name}: unexpected" for name in sorted(set(error) - {"type", "message", "details"})]
    if error.get("type") not in MESSAGES_ERROR_TYPES:
        problems.append(f"error.type: unknown {error.get('type')!r}")
    if not isinstance(error.get("message"), str) or not error["message"]:
        problems.append("error.message: must be a text")
    return problems


def _validate(kind: Any, text: str | bytes, *, extras: bool = True) -> list[str]:
    try:
        value = _adapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        return _recorded(error)
    return list(_walk(value, "", extras))


def _recorded(error: ValidationError) -> list[str]:
    """Pydantic's errors without the union members that were never meant."""
    found = error.errors(include_url=False, include_input=False)
    # A member whose `type` literal does not fit is not the member that was meant.
    unmeant = [e["loc"][:-1] for e in found if e["type"] == "literal_error" and e["loc"][-1] == "type"]
    upstream_meaning = [e for e in found if not any(e["loc"][: len(prefix)] == prefix for prefix in unmeant)]
    if (
        not upstream_meaning
    ):  # a union inside the member that was meant has no fitting member: the deepest problem
        depth = max(len(e["loc"]) for e in found)
        upstream_meaning = [e for e in found if len(e["loc"]) == depth]
    reported = [f"{_path(e['loc'])}: {e['msg']}" for e in upstream_meaning]
    return list(dict.fromkeys(reported))


def _path(loc: tuple[Any, ...]) -> str:
    """A location without the names of union members, which pydantic puts between the keys."""
    return ".".join(str(part) for part in loc if isinstance(part, int) or part.replace("_", "").islower())


def _walk(value: Any, path: str, extras: bool) -> Iterator[str]:
    if isinstance(value, BaseModel):
        kind = type(value)
        for name in sorted(PRESENT.get(kind, set()) - value.model_fields_set):
            yield f"{path}{name}: absent (null is allowed, absence is not)"
        for name in sorted(value.model_extra or ()) if extras else ():
            if not _extension(kind, name):
                yield f"{path}{name}: unknown to {kind.__name__}"
        for name in kind.model_fields:
            yield from _walk(getattr(value, name), f"{path}{name}.", extras)
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _walk(entry, f"{path}{index}.", extras)


def _extension(kind: type[BaseModel], name: str) -> bool:
    # Padding that hides token lengths comes on any delta event, though the SDK types it on few.
    if name == "obfuscation" and kind.__name__.endswith("DeltaEvent"):
        return True
    twin = mb_delta.Delta if kind is m_delta.Delta else getattr(mb, f"Beta{kind.__name__}", None)
    # What the beta surface adds to a stable object may come along with a beta header.
    beta = kind.__module__.startswith("anthropic") and twin is not None and name in twin.model_fields
    return beta or name in EXTENSIONS.get(kind, set())
