"""What the vendors' own SDKs know of their protocols: names of fields, types of blocks, items and events."""

import typing
from collections.abc import Iterator
from typing import Any

import anthropic.types.beta as messages
import openai.types.chat as chat
import openai.types.responses as responses
from anthropic.types.beta.message_create_params import MessageCreateParamsBase
from openai.types import CompletionUsage
from openai.types.chat.chat_completion_chunk import Choice, ChoiceDelta
from openai.types.chat.completion_create_params import CompletionCreateParamsBase, ResponseFormat
from openai.types.completion_usage import CompletionTokensDetails, PromptTokensDetails
from openai.types.responses.response_create_params import ResponseCreateParamsBase, ToolChoice
from openai.types.responses.response_output_text_param import Annotation
from openai.types.responses.response_usage import ResponseUsage
from pydantic import BaseModel

from dragoman.protocols.gemini import shapes as gemini
from dragoman.protocols.gemini.tables import DATA_MEMBERS, MODES


def fields(kind: Any) -> set[str]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return set(kind.model_fields)
    return set(typing.get_type_hints(kind))


def literals(kind: Any, key: str = "type") -> set[str]:
    """The literals of a union, and what its members say under `key`."""
    return set(_literals(kind, key))


def _literals(kind: Any, key: str) -> Iterator[str]:
    if typing.get_origin(kind) is typing.Literal:
        yield from typing.get_args(kind)
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        if key in kind.model_fields:
            yield from _literals(kind.model_fields[key].annotation, key)
    elif hasattr(kind, "__required_keys__"):  # a TypedDict, of typing or of its backport
        yield from _literals(typing.get_type_hints(kind).get(key), key)
    else:
        for member in typing.get_args(kind):
            if not isinstance(member, str):
                yield from _literals(member, key)


def _event_fields(kind: Any) -> set[str]:
    """Of a vendor's response: without those whose contents have their own rows."""
    return fields(kind) - {
        *("object", "type", "choices", "content", "output", "usage", "status", "error"),
        *("stop_reason", "incomplete_details"),
    }


# protocol's request or response -> what its rows must name.
REQUESTS: dict[str, set[str]] = {
    "chat fields": fields(CompletionCreateParamsBase) | {"stream"},
    "chat roles": literals(chat.ChatCompletionMessageParam, "role"),
    "chat assistants": fields(chat.ChatCompletionAssistantMessageParam) - {"content", "role"},
    "chat parts": literals(chat.ChatCompletionContentPartParam)
    | literals(chat.ChatCompletionContentPartRefusalParam),
    "chat tools": literals(chat.ChatCompletionToolUnionParam),
    "chat choices": literals(chat.ChatCompletionToolChoiceOptionParam),
    "chat formats": literals(ResponseFormat),
    "messages fields": fields(MessageCreateParamsBase) | {"stream"},
    "messages blocks": literals(messages.BetaContentBlockParam),
    "messages citations": literals(messages.BetaTextCitationParam),
    "messages tools": literals(messages.BetaToolUnionParam),
    "messages choices": literals(messages.BetaToolChoiceParam),
    "responses fields": fields(ResponseCreateParamsBase) | {"stream"},
    "responses items": literals(responses.ResponseInputItemParam),
    "responses parts": literals(responses.ResponseInputContentParam) | {"output_text", "refusal"},
    "responses annotations": literals(Annotation),
    "responses tools": literals(responses.ToolParam),
    "responses choices": literals(ToolChoice),
    "responses includes": literals(responses.ResponseIncludable),
    # Its SDK brings more packages than all of ours. These come from it.
    "gemini fields": gemini.REQUEST_SHAPE.keys() - {"toolConfig", "generationConfig"},
    "gemini settings": set(gemini.REQUEST_SHAPE["generationConfig"]),
    "gemini choices": (set(gemini.REQUEST_SHAPE["toolConfig"]) | MODES.keys())
    - {"functionCallingConfig", "MODE_UNSPECIFIED"},
    "gemini parts": {*DATA_MEMBERS, *gemini.TEXT_SHAPE, *gemini.MEDIA_SHAPE} - {"thought"},
    "gemini results": set(gemini.RESULT_SHAPE["functionResponse"]) - {"id", "name"},
}
WHOLE_RESPONSES: dict[str, set[str]] = {
    "chat chunks": _event_fields(chat.ChatCompletionChunk),
    "chat deltas": fields(ChoiceDelta),
    "chat reasons": literals(Choice.model_fields["finish_reason"].annotation) - {"function_call"},
    "chat usage": (fields(CompletionUsage) | fields(CompletionTokensDetails) | fields(PromptTokensDetails)),
    "messages events": literals(messages.BetaRawMessageStreamEvent),
    "messages message": _event_fields(messages.BetaMessage),
    "messages blocks": literals(messages.BetaContentBlock),
    "messages deltas": literals(messages.BetaRawContentBlockDelta),
    "messages citations": literals(messages.BetaTextCitation),
    "messages reasons": literals(messages.BetaStopReason),
    "messages usage": fields(messages.BetaUsage),
    "responses events": literals(responses.ResponseStreamEvent),
    "responses items": literals(responses.ResponseOutputItem),
    "responses response": _event_fields(responses.Response),
    "responses usage": fields(ResponseUsage),
    "gemini chunks": gemini.RESPONSE_SHAPE.keys() - {"usageMetadata"},
    "gemini candidates": gemini.CANDIDATE_SHAPE.keys() - {"index", "content", "finishReason"},
    "gemini parts": gemini.PART_SHAPE.keys() - {"thought"},
    "gemini usage": set(gemini.USAGE_SHAPE.shapes),
}
