"""The request as a document that belongs to no protocol.

Strategy: readers build it, passes change it, writers print it. Conversation content is typed; plain settings
(temperature, seed, ...) are a mapping from neutral names to JSON values, so that carrying one more of them is
a row in a protocol's table and not a line of code. Every object remembers where it stood (`path`, a JSON
Pointer into the client's body) so that a loss can be named, and keeps the fields that its protocol does not
define (`extra`). Objects are frozen: a pass gives a new document.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from dragoman._ir.events import Seal, ToolKind
from dragoman._ir.losses import Loss, LossCode
from dragoman._wire.json import JSON, JSONObject

Role: TypeAlias = Literal["system", "developer", "user", "assistant"]

# The neutral names of plain settings. A reader's table maps its wire names to these, a writer's table maps
# these to its own; a name that is missing in the writer's table goes into the ledger.
Param: TypeAlias = Literal[
    "audio",
    "background",
    "betas",
    "billing_policy",
    "cache_control",
    "client_metadata",
    "container",
    "context_management",
    "conversation",
    "diagnostics",
    "fallback_credit_token",
    "fallbacks",
    "frequency_penalty",
    "include",
    "inference_geo",
    "logit_bias",
    "logprobs",
    "max_output_tokens",
    "max_tool_calls",
    "mcp_servers",
    "metadata",
    "modalities",
    "moderation",
    "n",
    "prediction",
    "presence_penalty",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "seed",
    "service_tier",
    "speed",
    "stop",
    "store",
    "temperature",
    "thread",
    "top_k",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
    "user_profile_id",
    "verbosity",
    "web_search_options",
    "workspace_id",
]


# What an upstream may refuse: a setting, or a member elsewhere. `tool_strict` is `strict` of a function,
# `message_name` is `name` of a message, `image` and `file` are those in the conversation, `allowed_tools` is a list of
# tools in `tool_choice`.
Refusable: TypeAlias = (
    Param | Literal["allowed_tools", "file", "image", "message_name", "parallel_tool_calls", "tool_strict"]
)


class CacheMark(msgspec.Struct, frozen=True, gc=False):
    """A prompt-cache breakpoint: `cache_control` in Messages, `prompt_cache_breakpoint` in the other two.

    ttl: "short" (5 or 30 minutes), "long" (1 or 12 hours) or None for the vendor's default.
    """

    path: str
    ttl: Literal["short", "long"] | None = None


class Citation(msgspec.Struct, frozen=True, gc=False):
    """A web page that a piece of text cites. start, end: the cited span in characters, None for all of it."""

    url: str
    title: str | None = None
    start: int | None = None
    end: int | None = None


class Text(msgspec.Struct, frozen=True, gc=False):
    """A piece of text.

    citations: the annotations it came with, as they came.
    sources: those of them that are web pages, in a form that other protocols can print.
    stand_in: the words of a block that has no counterpart, and no part of what is said beside it.
    """

    text: str
    cache: CacheMark | None = None
    citations: JSON = None
    extra: JSONObject | None = None
    path: str = ""
    sources: tuple[Citation, ...] = ()
    stand_in: bool = False


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Text in which the assistant declined."""

    text: str
    extra: JSONObject | None = None
    path: str = ""


class Media(msgspec.Struct, frozen=True, gc=False):
    """An image, a file or a sound.

    source: "base64" (data is base64 text), "text" (data is plain text), "url" or "file_id".
    media_type: e.g. "image/png", None when the protocol does not say.
    context, citations: Messages' document fields, as they came.
    """

    kind: Literal["image", "file", "audio"]
    source: Literal["base64", "text", "url", "file_id"]
    data: str
    media_type: str | None = None
    filename: str | None = None
    detail: str | None = None
    context: str | None = None
    citations: JSON = None
    cache: CacheMark | None = None
    extra: JSONObject | None = None
    path: str = ""


class Thought(msgspec.Struct, frozen=True, gc=False):
    """Reasoning of an earlier assistant turn.

    text: what can be read of it, "" for redacted or summary-less reasoning.
    seal: its opaque carrier, None when it came unsigned.
    forged: it came with a carrier in our own form (see `_ir.signatures`) that was not made here, or was changed.
    """

    text: str
    seal: Seal | None = None
    item_id: str | None = None
    extra: JSONObject | None = None
    path: str = ""
    forged: bool = False


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """A tool call that the assistant made. input is JSON text for a function, free text for a custom tool.

    hosted: the kind of the HostedTool that was called (`shell`, say), when its calls have a form of their own in
        the client's protocol. `name` and `input` are then those of its stand-in.
    """

    call_id: str
    name: str
    input: str
    kind: ToolKind = ToolKind.FUNCTION
    namespace: str | None = None
    item_id: str | None = None
    cache: CacheMark | None = None
    extra: JSONObject | None = None
    path: str = ""
    hosted: str | None = None


class ToolResult(msgspec.Struct, frozen=True, gc=False):
    """What a tool gave back. is_error is None where the protocol cannot say. hosted: as of its call."""

    call_id: str
    parts: tuple[Text | Media | OpaquePart, ...]
    kind: ToolKind = ToolKind.FUNCTION
    is_error: bool | None = None
    item_id: str | None = None
    cache: CacheMark | None = None
    extra: JSONObject | None = None
    path: str = ""
    hosted: str | None = None


class OpaquePart(msgspec.Struct, frozen=True, gc=False):
    """A block, part or item that has no form of its own here.

    kind: its type in its protocol.
    text: what it says in plain words, for a target that does not know it; None when it says nothing alone, "" when
        it is not for the model but for the server.
    """

    origin: str
    kind: str
    native: JSON
    path: str = ""
    text: str | None = None


Part: TypeAlias = Text | Refusal | Media | Thought | ToolCall | ToolResult | OpaquePart


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message or item, in the order of the conversation.

    Tool results stand in messages of role "user". Readers keep the client's boundaries; writers regroup.
    """

    role: Role
    parts: tuple[Part, ...]
    path: str = ""
    name: str | None = None
    phase: str | None = None
    item_id: str | None = None
    extra: JSONObject | None = None


class Grammar(msgspec.Struct, frozen=True, gc=False):
    """What a custom tool's input must look like."""

    syntax: str  # "lark" or "regex"
    definition: str


class FunctionTool(msgspec.Struct, frozen=True, gc=False):
    """A tool with a JSON Schema. parameters is None when the client gave none.

    deferred: the model gets to see it only when a tool search finds it (`defer_loading`); None when unsaid.
    examples: inputs that show its use (Messages' `input_examples`), None when there are none.
    """

    name: str
    description: str | None = None
    parameters: JSON = None
    strict: bool | None = None
    namespace: str | None = None
    cache: CacheMark | None = None
    extra: JSONObject | None = None
    path: str = ""
    deferred: bool | None = None
    examples: list[JSON] | None = None


class CustomTool(msgspec.Struct, frozen=True, gc=False):
    """A tool that takes free text. grammar is None when any text will do."""

    name: str
    description: str | None = None
    grammar: Grammar | None = None
    namespace: str | None = None
    cache: CacheMark | None = None
    extra: JSONObject | None = None
    path: str = ""


class WebSearch(msgspec.Struct, frozen=True, gc=False, tag="web_search"):
    """A web search that the provider runs. None: not said.

    location: `{"type": "approximate", "city": ..., "country": ..., "region": ..., "timezone": ...}`.
    context_size: low, medium or high.
    """

    allowed_domains: tuple[str, ...] | None = None
    blocked_domains: tuple[str, ...] | None = None
    max_uses: int | None = None
    location: JSONObject | None = None
    context_size: str | None = None


class CodeExecution(msgspec.Struct, frozen=True, gc=False, tag="code_execution"):
    """A sandbox of the provider in which the model runs code."""


class McpServer(msgspec.Struct, frozen=True, gc=False, tag="mcp"):
    """An MCP server that the provider connects to. allowed_tools: None for all of them."""

    label: str
    url: str
    authorization: str | None = None
    allowed_tools: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"McpServer(label={self.label!r}, url=..., authorization=..., allowed_tools={self.allowed_tools!r})"


class HostedTool(msgspec.Struct, frozen=True, gc=False):
    """A tool that the provider runs, or whose schema it implies, e.g. web_search. kind: its type.

    use: what it does, where another protocol may have the same; None for everything else.
    stand_in: for a tool that the client runs: the same tool as a function, for targets that do not know it.
    """

    origin: str
    kind: str
    native: JSON
    path: str = ""
    use: WebSearch | CodeExecution | McpServer | None = None
    stand_in: FunctionTool | None = None

    @property
    def loss(self) -> LossCode:
        """How it is entered where the upstream does not run it: a use that others have is no unknown kind."""
        return LossCode.UNKNOWN_KIND if self.use is None else LossCode.DROPPED


Tool: TypeAlias = FunctionTool | CustomTool | HostedTool


class Namespace(msgspec.Struct, frozen=True, gc=False):
    """What a namespace of tools says beside its name and its tools, which name it themselves."""

    description: str | None = None
    extra: JSONObject | None = None
    path: str = ""


class ToolRef(msgspec.Struct, frozen=True, gc=False):
    """One tool by its name. hosted: the kind of a HostedTool, whose name is of no account then."""

    name: str
    namespace: str | None = None
    kind: ToolKind = ToolKind.FUNCTION
    hosted: str | None = None


class ToolChoice(msgspec.Struct, frozen=True, gc=False):
    """Which tools the model may or must call.

    mode: "named" demands the tool `name` (or the HostedTool of kind `hosted`); "allowed" restricts to
    `allowed`, `required` says whether one of them must be called.
    """

    mode: Literal["auto", "none", "required", "named", "allowed"]
    name: str | None = None
    kind: ToolKind = ToolKind.FUNCTION
    namespace: str | None = None
    allowed: tuple[ToolRef, ...] = ()
    required: bool = False
    path: str = ""
    hosted: str | None = None


class ReasoningConfig(msgspec.Struct, frozen=True, gc=False):
    """How much the model should think, and how much of that it should show.

    mode: "adaptive", "enabled" (with budget) or "disabled"; None when the client spoke of effort alone.
    effort: one of none minimal low medium high xhigh max.
    budget: tokens.
    show: "summarized" or "omitted"; None when the client did not say.
    effort_path, show_path: where the effort and `show` stood, "" for `path`.
    """

    mode: Literal["adaptive", "enabled", "disabled"] | None = None
    effort: str | None = None
    budget: int | None = None
    show: Literal["summarized", "omitted"] | None = None
    extra: JSONObject | None = None
    path: str = ""
    effort_path: str = ""
    show_path: str = ""

    @property
    def thinks(self) -> bool:
        """Whether the client asks for thinking."""
        if self.mode == "disabled":
            return False
        return self.mode is not None or self.effort not in (None, "none")


class ResponseFormat(msgspec.Struct, frozen=True, gc=False):
    """Structured output: JSON of a schema, or any JSON object when schema is None."""

    schema: JSON = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None
    extra: JSONObject | None = None
    path: str = ""


class Request(msgspec.Struct, frozen=True, gc=False):
    """One request.

    protocol: the protocol that it came in.
    parallel_path: where `parallel_tool_calls` stood.
    namespaces: those that any of the tools are in.
    params: plain settings by neutral name.
    param_paths: where each of them stood in the client's body.
    include_usage: the client wants usage at the end of a stream (always true but in Chat).
    compact: the client wants the conversation summed up, in the form its protocol has for that, and no answer.
    extra: top-level fields that nobody reads.
    defined: names of fields in any `extra` that the protocol defines and no other has.
    repairs: what its reader understood though it broke the protocol.
    raw: the client's body as decoded, and repaired; writers of the same protocol echo from it.
    """

    protocol: str
    model: str
    messages: tuple[Message, ...]
    raw: JSONObject
    tools: tuple[Tool, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    parallel_path: str = "/parallel_tool_calls"
    stream: bool = False
    include_usage: bool = True
    params: dict[Param, JSON] = {}
    param_paths: dict[Param, str] = {}
    reasoning: ReasoningConfig | None = None
    response_format: ResponseFormat | None = None
    extra: JSONObject | None = None
    compact: bool = False
    repairs: tuple[Loss, ...] = ()
    defined: frozenset[str] = frozenset()
