"""The JSON of this protocol, as far as it is touched here.

Strategy: one TypedDict an object, naming exactly the fields that the request reader and the answer reader
turn into something; the KNOWN sets are derived from them. Every other field is kept as an extra.
"""

# No `from __future__ import annotations` here: TypedDict compiles each string annotation, 10 ms in all at import.
from typing import TypedDict

from dragoman._wire.json import JSON


class CacheControl(TypedDict, total=False):
    type: str
    ttl: str


class TextBlock(TypedDict, total=False):
    type: str
    text: str
    citations: list[JSON] | None
    cache_control: CacheControl | None


class Source(TypedDict, total=False):
    """The source of an image or a document; its `type` says which of the others is there."""

    type: str
    media_type: str
    data: str
    url: str
    file_id: str


class ImageBlock(TypedDict, total=False):
    type: str
    source: Source
    cache_control: CacheControl | None


class DocumentBlock(TypedDict, total=False):
    type: str
    source: Source
    title: str | None
    context: str | None
    citations: JSON
    cache_control: CacheControl | None


class ToolUseBlock(TypedDict, total=False):
    type: str
    id: str
    name: str
    input: JSON
    cache_control: CacheControl | None


class ToolResultBlock(TypedDict, total=False):
    type: str
    tool_use_id: str
    content: JSON
    is_error: bool | None
    cache_control: CacheControl | None


class ThinkingBlock(TypedDict, total=False):
    """Both kinds: a readable one has thinking and signature, a redacted one has data."""

    type: str
    thinking: str
    signature: str
    data: str


class CompactionBlock(TypedDict, total=False):
    """The summary that stands for all that came before it."""

    type: str
    content: str | None
    encrypted_content: str | None


class MessageParam(TypedDict, total=False):
    role: str
    content: JSON


class Tool(TypedDict, total=False):
    """A tool with a schema; `type` is absent or "custom"."""

    type: str | None
    name: str
    description: str | None
    input_schema: JSON
    strict: bool | None
    defer_loading: bool | None
    input_examples: list[JSON] | None
    cache_control: CacheControl | None


class McpServer(TypedDict, total=False):
    type: str
    name: str
    url: str
    authorization_token: str | None
    tool_configuration: JSON


class Choice(TypedDict, total=False):
    type: str
    name: str
    disable_parallel_tool_use: bool


class Thinking(TypedDict, total=False):
    type: str
    budget_tokens: int
    display: str | None


class OutputFormat(TypedDict, total=False):
    type: str
    schema: JSON


class OutputConfig(TypedDict, total=False):
    effort: str | None
    format: OutputFormat | None


class Metadata(TypedDict, total=False):
    user_id: str | None


class ContextManagement(TypedDict, total=False):
    edits: list[JSON]


class CompactEdit(TypedDict, total=False):
    type: str
    trigger: JSON


class Trigger(TypedDict, total=False):
    type: str
    value: int


class CompactionParam(TypedDict, total=False):
    type: str
    instructions: str | None


class Thread(TypedDict, total=False):
    type: str
    previous_message_id: str


class Body(TypedDict, total=False):
    """A request. `output_format` is the older, beta place of `output_config.format`."""

    model: str
    max_tokens: int
    messages: list[MessageParam]
    system: str | list[TextBlock]
    stream: bool
    tools: list[Tool]
    tool_choice: Choice
    thinking: Thinking
    output_config: OutputConfig
    output_format: OutputFormat
    metadata: Metadata
    temperature: float
    top_p: float
    top_k: int
    stop_sequences: list[str]
    service_tier: str
    speed: str
    container: JSON
    context_management: ContextManagement
    compaction: CompactionParam
    mcp_servers: list[McpServer]
    inference_geo: str
    cache_control: CacheControl
    thread: Thread
    diagnostics: JSON
    fallbacks: JSON
    fallback_credit_token: JSON
    billing_policy: JSON
    user_profile_id: str
    workspace_id: str
    betas: list[str]


class Usage(TypedDict, total=False):
    """Of an answer. input_tokens counts neither the cached tokens nor those written to a cache."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int | None
    cache_creation_input_tokens: int | None
    output_tokens_details: JSON
    server_tool_use: JSON
    service_tier: str | None


class ServerToolUsage(TypedDict, total=False):
    web_search_requests: int
    web_fetch_requests: int


class Message(TypedDict, total=False):
    """A whole answer, and the start of a streamed one."""

    id: str
    type: str
    role: str
    model: str
    content: list[JSON]
    stop_reason: str | None
    stop_sequence: str | None
    stop_details: JSON
    usage: Usage


KNOWN_CACHE = frozenset(CacheControl.__annotations__)
KNOWN_TEXT = frozenset(TextBlock.__annotations__)
KNOWN_SOURCE = frozenset(Source.__annotations__)
KNOWN_IMAGE = frozenset(ImageBlock.__annotations__)
KNOWN_DOCUMENT = frozenset(DocumentBlock.__annotations__)
KNOWN_TOOL_USE = frozenset(ToolUseBlock.__annotations__)
KNOWN_TOOL_RESULT = frozenset(ToolResultBlock.__annotations__)
KNOWN_THOUGHT = frozenset(ThinkingBlock.__annotations__)
KNOWN_MESSAGE_PARAM = frozenset(MessageParam.__annotations__)
KNOWN_TOOL = frozenset(Tool.__annotations__)
KNOWN_SERVER = frozenset(McpServer.__annotations__)
KNOWN_CHOICE = frozenset(Choice.__annotations__)
KNOWN_THINKING = frozenset(Thinking.__annotations__)
KNOWN_FORMAT = frozenset(OutputFormat.__annotations__)
KNOWN_CONFIG = frozenset(OutputConfig.__annotations__)
KNOWN_METADATA = frozenset(Metadata.__annotations__)
KNOWN_MANAGEMENT = frozenset(ContextManagement.__annotations__)
KNOWN_EDIT = frozenset(CompactEdit.__annotations__)
KNOWN_TRIGGER = frozenset(Trigger.__annotations__)
KNOWN_COMPACTION = frozenset(CompactionParam.__annotations__)
KNOWN_BODY = frozenset(Body.__annotations__)
KNOWN_USAGE = frozenset(Usage.__annotations__)
KNOWN_SERVER_USAGE = frozenset(ServerToolUsage.__annotations__)
KNOWN_MESSAGE = frozenset(Message.__annotations__)


def extra_of(value: dict[str, JSON], known: frozenset[str]) -> dict[str, JSON] | None:
    """The fields of an object that are not in `known`; null means absent. None when there are none."""
    return {key: item for key, item in value.items() if key not in known and item is not None} or None
