"""The JSON of the Responses protocol, as far as it has a form of its own in the IR.

Strategy: each TypedDict names the fields of one object that the reader understands. The sets derived from them
decide what is `extra`: a field that is not named here travels in `extra`, is printed again towards another
Responses server, and is named in the ledger towards everybody else.
"""

# No `from __future__ import annotations` here: TypedDict compiles each string annotation, 10 ms in all at import.
from typing import Literal, TypedDict

from dragoman._wire.json import JSON, JSONObject

ORIGIN = "openai_responses"

Status = Literal["in_progress", "completed", "incomplete"]


class Reasoning(TypedDict, total=False):
    """`reasoning` of a request."""

    effort: str | None
    summary: str | None


class Format(TypedDict, total=False):
    """`text.format`: flat, unlike in Chat."""

    type: str
    name: str
    schema: JSONObject
    description: str | None
    strict: bool | None


class TextConfig(TypedDict, total=False):
    """`text` of a request."""

    format: Format | None
    verbosity: str | None


class MessageItem(TypedDict, total=False):
    """A message; clients leave out `type`, and assistants' messages may come without id and status."""

    type: Literal["message"]
    role: str
    content: str | list[JSONObject]
    id: str
    status: Status
    phase: str | None


class FunctionCallItem(TypedDict, total=False):
    """A function call. `id` names the item, `call_id` the call."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    id: str
    namespace: str | None
    status: Status


class CustomCallItem(TypedDict, total=False):
    """A call of a custom tool. It has no status."""

    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    input: str
    id: str
    namespace: str | None
    status: Status


class CallOutputItem(TypedDict, total=False):
    """The result of a function or of a custom tool."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    output: str | list[JSONObject]
    id: str | None
    name: str | None
    namespace: str | None
    status: Status | None


class ReasoningItem(TypedDict, total=False):
    """Reasoning: summaries for people, content where it is open, ciphertext for the model."""

    type: Literal["reasoning"]
    id: str
    summary: list[JSONObject]
    content: list[JSONObject] | None
    encrypted_content: str | None
    status: Status | None


class ClientCallItem(TypedDict, total=False):
    """A call of a tool that the client runs and whose form the vendor implies, of any kind."""

    type: str
    id: str | None
    call_id: str
    action: JSONObject
    actions: list[JSONObject]
    arguments: JSON
    operation: JSONObject
    status: Status | None


class ClientOutputItem(TypedDict, total=False):
    """What such a tool gave back."""

    type: str
    id: str | None
    call_id: str | None
    output: JSON
    tools: list[JSONObject]
    status: str | None


class CompactionItem(TypedDict, total=False):
    """What takes the place of a conversation."""

    type: Literal["compaction"]
    id: str | None
    encrypted_content: str


class ConfigurationItem(TypedDict, total=False):
    """Settings that change in mid-conversation."""

    type: Literal["configuration_update"]
    id: str | None
    reasoning: JSONObject
    text: JSONObject


class AdditionalToolsItem(TypedDict, total=False):
    """Tools that are declared in mid-conversation."""

    type: Literal["additional_tools"]
    role: Literal["developer"]
    tools: list[JSONObject]
    id: str | None


class NamespaceTool(TypedDict, total=False):
    """Tools under a common name."""

    type: Literal["namespace"]
    name: str
    description: str
    tools: list[JSONObject]


class InputText(TypedDict, total=False):
    """`input_text`."""

    type: str
    text: str
    prompt_cache_breakpoint: JSONObject | None


class OutputText(TypedDict, total=False):
    """`output_text` in an assistant's message."""

    type: str
    text: str
    annotations: list[JSONObject]
    prompt_cache_breakpoint: JSONObject | None


class RefusalPart(TypedDict, total=False):
    """`refusal` in an assistant's message."""

    type: str
    refusal: str


class InputImage(TypedDict, total=False):
    """`input_image`: image_url is a URL or a data URI."""

    type: str
    image_url: str | None
    file_id: str | None
    detail: str | None
    prompt_cache_breakpoint: JSONObject | None


class InputFile(TypedDict, total=False):
    """`input_file`: file_data is a data URI or bare base64."""

    type: str
    file_data: str | None
    file_url: str | None
    file_id: str | None
    filename: str | None
    detail: str | None
    prompt_cache_breakpoint: JSONObject | None


class FunctionToolParam(TypedDict, total=False):
    """A function tool: flat, unlike in Chat."""

    type: Literal["function"]
    name: str
    description: str | None
    parameters: JSON
    strict: bool | None
    defer_loading: bool | None


class CustomToolParam(TypedDict, total=False):
    """A custom tool."""

    type: Literal["custom"]
    name: str
    description: str | None
    format: JSONObject | None


class Body(TypedDict, total=False):
    """The request."""

    model: str
    input: str | list[JSONObject]
    instructions: str | None
    background: bool | None
    client_metadata: JSONObject | None
    context_management: list[JSONObject] | None
    conversation: str | JSONObject | None
    include: list[str] | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, str] | None
    moderation: JSONObject | None
    parallel_tool_calls: bool | None
    previous_response_id: str | None
    prompt: JSONObject | None
    prompt_cache_key: str | None
    prompt_cache_options: JSONObject | None
    prompt_cache_retention: str | None
    reasoning: Reasoning | None
    safety_identifier: str | None
    service_tier: str | None
    store: bool | None
    stream: bool | None
    stream_options: JSONObject | None
    temperature: float | None
    text: TextConfig | None
    tool_choice: str | JSONObject | None
    tools: list[JSONObject] | None
    top_logprobs: int | None
    top_p: float | None
    truncation: str | None
    user: str | None


BODY = frozenset(Body.__annotations__)
REASONING_CONFIG = frozenset(Reasoning.__annotations__)
TEXT_CONFIG = frozenset(TextConfig.__annotations__)
FORMAT = frozenset(Format.__annotations__)
MESSAGE = frozenset(MessageItem.__annotations__)
FUNCTION_CALL = frozenset(FunctionCallItem.__annotations__)
CUSTOM_CALL = frozenset(CustomCallItem.__annotations__)
CALL_OUTPUT = frozenset(CallOutputItem.__annotations__)
REASONING = frozenset(ReasoningItem.__annotations__)
CLIENT_CALL = frozenset(ClientCallItem.__annotations__)
CLIENT_OUTPUT = frozenset(ClientOutputItem.__annotations__)
COMPACTION = frozenset(CompactionItem.__annotations__)
CONFIGURATION = frozenset(ConfigurationItem.__annotations__)
ADDITIONAL_TOOLS = frozenset(AdditionalToolsItem.__annotations__)
NAMESPACE = frozenset(NamespaceTool.__annotations__)
INPUT_TEXT = frozenset(InputText.__annotations__)
OUTPUT_TEXT = frozenset(OutputText.__annotations__)
REFUSAL = frozenset(RefusalPart.__annotations__)
INPUT_IMAGE = frozenset(InputImage.__annotations__)
INPUT_FILE = frozenset(InputFile.__annotations__)
FUNCTION_TOOL = frozenset(FunctionToolParam.__annotations__)
CUSTOM_TOOL = frozenset(CustomToolParam.__annotations__)
