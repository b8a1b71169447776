"""The members of each object of requests and responses, see `_ir.shape`.

They come from google-genai 3.6.1 and the REST reference of v1beta. A member that is not in a shape is unknown: it is an
extra member of a request, and a loss of a response.

A new setting that is only a name and a value is a row of REQUEST_SHAPE; CONTRIBUTING.md has the other steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from dragoman._ir.request import Param
from dragoman._ir.shape import (
    ARRAY,
    BOOLEAN,
    INTEGER,
    NUMBER,
    OBJECT,
    STRING,
    Counters,
    DroppedUnless,
    JSONType,
    OneOf,
    Setting,
    Shape,
    TakenIf,
    defined_members,
    members,
    setting_paths,
)
from dragoman._wire.json import read_integer, read_number

# Requests.

# "Either numbers or strings are accepted." (protobuf.dev, ProtoJSON format, read 2026-11-28) Its "NaN" and "Infinity"
# are refused, because no upstream accepts them as a setting.
_INTEGER = JSONType((int,), INTEGER.name, read_integer)
_NUMBER = JSONType((int, float), NUMBER.name, read_number)

REQUEST_SHAPE: dict[str, Shape] = {
    "model": STRING,
    **members("contents systemInstruction tools"),
    "toolConfig": {
        # The third does not matter: the whole arguments always come in one piece.
        "functionCallingConfig": members("mode allowedFunctionNames streamFunctionCallArguments"),
        **members("retrievalConfig includeServerSideToolInvocations", Setting(None)),
    },
    "generationConfig": {
        "temperature": Setting("temperature", _NUMBER),
        "topP": Setting("top_p", _NUMBER),
        "topK": Setting("top_k", _INTEGER),
        "candidateCount": Setting("n", _INTEGER),
        "maxOutputTokens": Setting("max_output_tokens", _INTEGER),
        "stopSequences": Setting("stop", ARRAY),
        "presencePenalty": Setting("presence_penalty", _NUMBER),
        "frequencyPenalty": Setting("frequency_penalty", _NUMBER),
        "seed": Setting("seed", _INTEGER),
        "responseLogprobs": Setting("logprobs", BOOLEAN),
        "logprobs": Setting("top_logprobs", _INTEGER),
        "responseModalities": Setting("modalities", ARRAY),
        "responseMimeType": STRING,
        "responseSchema": OBJECT,
        "responseJsonSchema": None,
        "thinkingConfig": {"includeThoughts": BOOLEAN, "thinkingBudget": _INTEGER, "thinkingLevel": STRING},
        **members("responseFormat speechConfig imageConfig mediaResolution", Setting(None)),
        **members("audioTimestamp routingConfig modelSelectionConfig", Setting(None)),
        **members("enableEnhancedCivicAnswers audioTranscriptionConfig", Setting(None)),
        **members("enableAffectiveDialog translationConfig", Setting(None)),
    },
    "cachedContent": Setting("cached_content", STRING),
    "continuationToken": Setting("continuation_token", STRING),
    "labels": Setting("metadata", OBJECT),
    "serviceTier": Setting("service_tier", STRING),
    **members("safetySettings store modelArmorConfig", Setting(None)),
}
SETTING_PATHS: dict[Param, str] = setting_paths(REQUEST_SHAPE)

_SIDE: dict[str, Shape] = {
    "thoughtSignature": None,
    "thought": OneOf((True, False)),
    **members("videoMetadata mediaProcessing documentMetadata partMetadata", Setting(None)),
    **members("spreadsheetMetadata audioMetadata speechMetadata", Setting(None)),
}
_DATA: dict[str, Shape] = {"mimeType": STRING, "data": STRING, "fileUri": STRING, "displayName": STRING}
TEXT_SHAPE: dict[str, Shape] = {"text": None, **_SIDE}
MEDIA_SHAPE: dict[str, Shape] = {
    "inlineData": _DATA,
    "fileData": _DATA,
    "mediaResolution": {"level": OneOf(("MEDIA_RESOLUTION_LOW", "MEDIA_RESOLUTION_HIGH"))},
    **_SIDE,
}
_UNNAMED: Shape = {**_DATA, "displayName": Setting(None)}
# Of images, sounds and videos, for which other protocols have no names.
UNNAMED_SHAPE: dict[str, Shape] = {**MEDIA_SHAPE, "inlineData": _UNNAMED, "fileData": _UNNAMED}
CALL_SHAPE: dict[str, Shape] = {"functionCall": {"id": None, "name": None, "args": None}, **_SIDE}
RESULT_SHAPE: dict[str, Shape] = {
    "functionResponse": {
        **members("id name response parts"),
        **members("scheduling willContinue", Setting(None)),
    },
    **_SIDE,
}
CONTENT_SHAPE: dict[str, Shape] = members("role parts")
FUNCTION_SHAPE: dict[str, Shape] = {
    **members("name description parametersJsonSchema"),
    "parameters": TakenIf({"parametersJsonSchema": (None,)}),
    **members("response responseJsonSchema behavior", Setting(None)),
}
SEARCH_SHAPE: dict[str, Shape] = {"excludeDomains": ARRAY}
MCP_SHAPE: dict[str, Shape] = {
    "name": STRING,
    "streamableHttpTransport": {"url": STRING, "headers": OBJECT, "timeout": None, "sseReadTimeout": None},
}

DEFINED_MEMBERS = {
    **dict.fromkeys(_DATA, "a part has one source: its first one was read"),
    **defined_members(REQUEST_SHAPE, UNNAMED_SHAPE, CALL_SHAPE, RESULT_SHAPE, FUNCTION_SHAPE),
    "propertyOrdering": True,
    "responseMimeType": "a format that only its protocol has",
    "responseSchema": "a schema of such a format, or next to responseJsonSchema, which was read",
}


def _names(shape: Shape) -> Iterator[str]:
    for name, inner in shape.items() if isinstance(shape, dict) else ():
        yield name
        yield from _names(inner)


def by_snake_case(names: Iterable[str]) -> dict[str, str]:
    """Return names in lowerCamelCase by those with underscores."""
    return {re.sub("(?=[A-Z])", "_", name).lower(): name for name in names}


# Whose names clients may spell with underscores, by that spelling. Others of tools stay as they came.
_SPELLED: tuple[dict[str, Shape], ...] = (
    *(REQUEST_SHAPE, MEDIA_SHAPE, CALL_SHAPE, RESULT_SHAPE, FUNCTION_SHAPE, SEARCH_SHAPE, MCP_SHAPE),
    members("functionDeclarations googleSearch codeExecution urlContext executableCode mcpServers"),
    members("codeExecutionResult toolCall toolResponse audioTranscription"),
)
MEMBERS = by_snake_case([name for shape in _SPELLED for name in _names(shape)])
MEMBERS["_responseJsonSchema"] = "responseJsonSchema"  # older SDKs

# Responses. Where nothing else is said, the shapes are for clients of other protocols.

_NO_FIELD = "other protocols have no field for it"

# The members of a response and of a candidate that our writer makes. Clients of this protocol get all others as they
# came.
WRITTEN_RESPONSE_SHAPE: dict[str, Shape] = members(
    "candidates usageMetadata modelVersion responseId createTime"
)
RESPONSE_SHAPE: dict[str, Shape] = {
    **WRITTEN_RESPONSE_SHAPE,
    "promptFeedback": {"blockReason": None, "blockReasonMessage": None, "safetyRatings": _NO_FIELD},
    "modelStatus": _NO_FIELD,
}
WRITTEN_CANDIDATE_SHAPE: dict[str, Shape] = members("index content finishReason logprobsResult")
# 1: as a number, see `checks.enum_name`. So is that of text below.
_MEANINGLESS: frozenset[str | int] = frozenset({"NEGLIGIBLE", "HARM_SEVERITY_NEGLIGIBLE", 1})
_TOKENS: Shape = [{"token": None, "tokenId": None, "logProbability": None}]
CANDIDATE_SHAPE: dict[str, Shape] = {
    **WRITTEN_CANDIDATE_SHAPE,
    "content": CONTENT_SHAPE,
    # The sum and the average follow from the log probabilities. The last three are kept whole.
    "logprobsResult": {
        "chosenCandidates": _TOKENS,
        "topCandidates": [{"candidates": _TOKENS}],
        "logProbabilitySum": None,
    },
    **members("finishMessage avgLogprobs tokenCount citationMetadata groundingMetadata urlContextMetadata"),
    "safetyRatings": [
        {
            **members("category probabilityScore severityScore"),
            **members("probability severity", DroppedUnless(_NO_FIELD, _MEANINGLESS)),
            **members("blocked overwrittenThreshold", _NO_FIELD),
        }
    ],
    "continuationToken": "only a request of this protocol can have the response continued",
}
# What a piece of a call's arguments may hold besides a piece of a string.
ARGUMENT_VALUES = ("numberValue", "boolValue", "nullValue", "structValue", "listValue")
PART_SHAPE: dict[str, Shape] = {
    **members("text thought thoughtSignature"),
    "functionCall": {
        **members("id name args willContinue"),
        "partialArgs": [dict.fromkeys(("jsonPath", "stringValue", *ARGUMENT_VALUES, "willContinue"))],
    },
    **members("partMetadata mediaResolution videoMetadata mediaProcessing documentMetadata", _NO_FIELD),
    **members("spreadsheetMetadata audioMetadata speechMetadata", _NO_FIELD),
}
_MODALITIES: Shape = [{"modality": DroppedUnless(_NO_FIELD, frozenset({"TEXT", 1})), "tokenCount": None}]
USAGE_SHAPE: Shape = Counters(
    {
        **members("promptTokenCount cachedContentTokenCount candidatesTokenCount"),
        **members("thoughtsTokenCount toolUsePromptTokenCount totalTokenCount serviceTier"),
        **members("promptTokensDetails cacheTokensDetails", _MODALITIES),
        **members("candidatesTokensDetails toolUsePromptTokensDetails", _MODALITIES),
        "trafficType": None,  # how the request is billed
    }
)
