"""The JSON of Chat Completions, as far as this package touches it.

Strategy: the decoder gives plain dicts, so that unknown keys survive; the TypedDicts here name the known keys
of the objects that clients send. What an object holds beyond them is `extra`: printed again for the same
protocol, entered in the ledger for another one. Fields of widespread compatible servers (earlier reasoning,
cache marks) are listed beside the official ones because they are translated.
"""

# No `from __future__ import annotations` here: TypedDict compiles each string annotation, 10 ms in all at import.
from typing import TypedDict

from dragoman._wire.json import JSON, JSONObject


class Function(TypedDict, total=False):
    """The called function inside a tool call, and the whole of a legacy `function_call`."""

    name: str
    arguments: str


class Custom(TypedDict, total=False):
    """The called custom tool inside a tool call."""

    name: str
    input: str


class Call(TypedDict, total=False):
    """A tool call in the history."""

    id: str
    type: str
    function: Function
    custom: Custom
    cache_control: JSONObject


class ImageURL(TypedDict, total=False):
    url: str
    detail: str


class InputAudio(TypedDict, total=False):
    data: str
    format: str


class File(TypedDict, total=False):
    file_data: str
    file_id: str
    filename: str


class Part(TypedDict, total=False):
    """What every content part may have beside its own member."""

    type: str
    prompt_cache_breakpoint: JSONObject
    cache_control: JSONObject


class TextPart(Part, total=False):
    text: str


class ImagePart(Part, total=False):
    image_url: ImageURL


class AudioPart(Part, total=False):
    input_audio: InputAudio


class FilePart(Part, total=False):
    file: File


class RefusalPart(TypedDict, total=False):
    type: str
    refusal: str


class Message(TypedDict, total=False):
    """A message of any role but assistant. `cache_control` is what agents send for Claude models."""

    role: str
    content: str | list[JSONObject] | None
    name: str
    cache_control: JSONObject


class ToolMessage(Message, total=False):
    tool_call_id: str


class AssistantMessage(Message, total=False):
    refusal: str | None
    audio: JSONObject | None
    function_call: Function | None
    tool_calls: list[Call]
    annotations: list[JSONObject] | None
    reasoning_content: str
    reasoning: str
    reasoning_details: list[JSONObject]
    thinking_blocks: list[JSONObject]


class ReasoningEntry(TypedDict, total=False):
    """An entry of `reasoning_details` or `thinking_blocks`."""

    type: str
    text: str
    summary: str
    thinking: str
    signature: str
    data: str
    format: str
    id: str
    index: int


class FunctionDefinition(TypedDict, total=False):
    name: str
    description: str
    parameters: JSONObject
    strict: bool | None


class CustomDefinition(TypedDict, total=False):
    name: str
    description: str
    format: JSONObject


class Tool(TypedDict, total=False):
    type: str
    function: FunctionDefinition
    custom: CustomDefinition
    cache_control: JSONObject


class JSONSchema(TypedDict, total=False):
    name: str
    description: str
    schema: JSONObject
    strict: bool | None


class ResponseFormat(TypedDict, total=False):
    type: str
    json_schema: JSONSchema


class Reasoning(TypedDict, total=False):
    """OpenRouter's `reasoning`."""

    effort: str
    max_tokens: int
    enabled: bool
    exclude: bool


class Thinking(TypedDict, total=False):
    """`thinking` of z.ai and of servers of Claude models."""

    type: str
    budget_tokens: int


class TemplateSettings(TypedDict, total=False):
    """`chat_template_kwargs` of open servers, as far as it is about thinking."""

    enable_thinking: bool
    thinking: bool


class Place(TypedDict, total=False):
    """Where the user is, about."""

    city: str
    country: str
    region: str
    timezone: str


class UserLocation(TypedDict, total=False):
    type: str
    approximate: Place


class WebSearchOptions(TypedDict, total=False):
    search_context_size: str
    user_location: UserLocation | None


class Structure(TypedDict, total=False):
    """The members of a request that are more than plain settings (those are rows of `_tables.PARAMS`)."""

    model: str
    messages: list[JSONObject]
    tools: list[Tool]
    functions: list[FunctionDefinition]
    tool_choice: JSON
    function_call: JSON
    parallel_tool_calls: bool
    response_format: JSONObject
    reasoning_effort: str
    reasoning: JSONObject
    thinking: JSONObject
    enable_thinking: bool
    thinking_budget: int
    chat_template_kwargs: JSONObject
    include_reasoning: bool
    web_search_options: JSONObject
    stream: bool
    stream_options: JSONObject


KNOWN_TEXT = frozenset(TextPart.__annotations__)
KNOWN_IMAGE = frozenset(ImagePart.__annotations__)
KNOWN_IMAGE_URL = frozenset(ImageURL.__annotations__)
KNOWN_AUDIO_PART = frozenset(AudioPart.__annotations__)
KNOWN_AUDIO = frozenset(InputAudio.__annotations__)
KNOWN_FILE_PART = frozenset(FilePart.__annotations__)
KNOWN_FILE = frozenset(File.__annotations__)
KNOWN_REFUSAL = frozenset(RefusalPart.__annotations__)
KNOWN_MESSAGE = frozenset(Message.__annotations__)
KNOWN_TOOL_MESSAGE = frozenset(ToolMessage.__annotations__)
KNOWN_ASSISTANT = frozenset(AssistantMessage.__annotations__)
KNOWN_CALL = frozenset(Call.__annotations__)
KNOWN_FUNCTION = frozenset(Function.__annotations__)
KNOWN_CUSTOM = frozenset(Custom.__annotations__)
KNOWN_ENTRY = frozenset(ReasoningEntry.__annotations__)
KNOWN_TOOL = frozenset(Tool.__annotations__)
KNOWN_FUNCTION_DEFINITION = frozenset(FunctionDefinition.__annotations__)
KNOWN_CUSTOM_DEFINITION = frozenset(CustomDefinition.__annotations__)
KNOWN_JSON_SCHEMA = frozenset(JSONSchema.__annotations__)
KNOWN_RESPONSE_FORMAT = frozenset(ResponseFormat.__annotations__)
KNOWN_REASONING = frozenset(Reasoning.__annotations__)
KNOWN_THINKING = frozenset(Thinking.__annotations__)
KNOWN_TEMPLATE = frozenset(TemplateSettings.__annotations__)
KNOWN_PLACE = frozenset(Place.__annotations__)
KNOWN_LOCATION = frozenset(UserLocation.__annotations__)
KNOWN_WEB_SEARCH = frozenset(WebSearchOptions.__annotations__)
KNOWN_STRUCTURE = frozenset(Structure.__annotations__)


def unknown(value: JSONObject, known: frozenset[str]) -> JSONObject | None:
    """The members of an object that its type does not name; null is the same as absent."""
    if value.keys() <= known:
        return None
    return {key: member for key, member in value.items() if key not in known and member is not None} or None
