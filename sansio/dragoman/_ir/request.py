"""The request as a document that belongs to no protocol.

Readers build it, passes change it, writers write it. Conversation content is typed; plain settings (temperature,
seed, ...) are a mapping from neutral names to JSON values, so another setting is a row in a protocol's table and not
a line of code. Every object has its place in the client's body (`path`, a JSON Pointer) so that a loss can be named,
and the fields that its protocol does not define (`extra`). Objects are frozen: a pass returns a new document.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from dragoman._ir.events import Signature, ToolKind
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

    Attributes:
        path: A JSON Pointer to it in the client's body.
        ttl: "short" (5 or 30 minutes), "long" (1 or 12 hours) or None for the vendor's default.
    """

    path: str
    ttl: Literal["short", "long"] | None = None


class Citation(msgspec.Struct, frozen=True, gc=False):
    """A web page that a text cites.

    Attributes:
        url: Of the page.
        title: Of the page, or None.
        start: The first character of the cited span, None for the whole text.
        end: The end of that span, or None.
    """

    url: str
    title: str | None = None
    start: int | None = None
    end: int | None = None


class Text(msgspec.Struct, frozen=True, gc=False):
    """A text of a message.

    Attributes:
        text: The characters.
        cache: A cache mark on it, or None.
        citations: The annotations that it came with, as they came.
        extra: Fields that the protocol does not define, None for none.
        path: A JSON Pointer to it in the client's body.
        sources: Those annotations that are web pages, in a form that other protocols can write.
        rendered: The text was rendered from a block that has no counterpart, and is no part of the text beside it.
    """

    text: str
    cache: CacheMark | None = None
    citations: JSON = None
    extra: JSONObject | None = None
    path: str = ""
    sources: tuple[Citation, ...] = ()
    rendered: bool = False


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Text in which the assistant refused.

    Attributes:
        text: The characters.
        extra: Fields that the protocol does not define, None for none.
        path: A JSON Pointer to it in the client's body.
    """

    text: str
    extra: JSONObject | None = None
    path: str = ""


class Media(msgspec.Struct, frozen=True, gc=False):
    """An image, a file or a sound.

    Attributes:
        kind: Which of the three.
        source: "base64" (data is base64 text), "text" (data is plain text), "url" or "file_id".
        data: The content, or the URL or id of it.
        media_type: E.g. "image/png", None if unknown.
        filename: The name of the file, or None.
        detail: OpenAI's `detail` of an image, or None.
        context: The document field of Messages, as it came.
        citations: The document field of Messages, as it came.
        cache: A cache mark on it, or None.
        extra: Fields that the protocol does not define, None for none.
        path: A JSON Pointer to it in the client's body.
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


class Reasoning(msgspec.Struct, frozen=True, gc=False):
    """Reasoning of an earlier assistant turn.

    Attributes:
        text: What can be read of it, "" for redacted reasoning or reasoning without a summary.
        seal: Its signature, None if it came unsigned.
        item_id: The id of the item in its protocol, if it has one.
        extra: Fields that the protocol does not define, None for none.
        path: A JSON Pointer to it in the client's body.
        forged: It came with a wrapped signature (see `_ir.signatures`) that was not made here, or was changed.
    """

    text: str
    seal: Signature | None = None
    item_id: str | None = None
    extra: JSONObject | None = None
    path: str = ""
    forged: bool = False


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """A tool call that the assistant made.

    Attributes:
        call_id: The id by which the result refers to it.
        name: The name of the tool.
        input: JSON text for a function, free text for a custom tool.
        kind: How the tool is called.
        namespace: Of the tool, or None.
        item_id: The id of the item in its protocol, if it has one.
        cache: A cache mark on it, or None.
        extra: Fields that the protocol does not define, None for none.
        path: A JSON Pointer to it in the client's body.
        hosted: The kind of the HostedTool that was called (`shell`, say), if its calls have a form of their own in the
            client's protocol. `name` and `input` are then those of its function.
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
    """The result of a tool call.

    Attributes:
        call_id: The id of the call.
        parts: The content of the result.
        kind: How the tool was called.
        is_error: The tool failed; None if the protocol has no such member.
        item_id: The id of the item in its protocol, if it has one.
        cache: A cache mark on it, or None.
        extra: Fields that the protocol does not define, None for none.
        path: A JSON Pointer to it in the client's body.
        hosted: As in ToolCall.
    """

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
    """A block, part or item that has no class of its own here.

    Attributes:
        origin: The protocol that it came in.
        kind: Its type in that protocol.
        native: The object as it came.
        path: A JSON Pointer to it in the client's body.
        text: Its plain text for upstreams of other protocols; None if it has none by itself, "" if it is not for the
            model but for the server.
    """

    origin: str
    kind: str
    native: JSON
    path: str = ""
    text: str | None = None


Part: TypeAlias = Text | Refusal | Media | Reasoning | ToolCall | ToolResult | OpaquePart


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message or item, in the order of the conversation.

    Tool results are in messages of role "user". Readers keep the client's boundaries; writers regroup.

    Attributes:
        role: Who wrote it.
        parts: Its content.
        path: A JSON Pointer to it in the client's body.
        name: OpenAI's `name` of the participant, or None.
        phase: Responses' `phase`, or None.
        item_id: The id of the item in its protocol, if it has one.
        extra: Fields that the protocol does not define, None for none.
    """

    role: Role
    parts: tuple[Part, ...]
    path: str = ""
    name: str | None = None
    phase: str | None = None
    item_id: str | None = None
    extra: JSONObject | None = None


class Grammar(msgspec.Struct, frozen=True, gc=False):
    """The grammar of a custom tool's input.

    Attributes:
        syntax: "lark" or "regex".
        definition: The grammar in that syntax.
    """

    syntax: str  # "lark" or "regex"
    definition: str


class FunctionTool(msgspec.Struct, frozen=True, gc=False):
    """A tool with a JSON Schema.

    Attributes:
        name: The name of the tool.
        description: For the model, or None.
        parameters: The schema, None if the client sent none.
        strict: The input must match the schema; None if the client sent nothing.
        namespace: Of the tool, or None.
        cache: A cache mark on it, or None.
        extra: Fields that the protocol does not define, None for none.
        path: A JSON Pointer to it in the client's body.
        deferred: The model gets it only when a tool search finds it (`defer_loading`); None if the client sent nothing.
        examples: Inputs that show its use (Messages' `input_examples`), None if there are none.
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
    """A tool that takes free text.

    Attributes:
        name: The name of the tool.
        description: For the model, or None.
        grammar: Of the input, None if any text is allowed.
        namespace: Of the tool, or None.
        cache: A cache mark on it, or None.
        extra: Fields that the protocol does not define, None for none.
        path: A JSON Pointer to it in the client's body.
    """

    name: str
    description: str | None = None
    grammar: Grammar | None = None
    namespace: str | None = None
    cache: CacheMark | None = None
    extra: JSONObject | None = None
    path: str = ""


class WebSearch(msgspec.Struct, frozen=True, gc=False, tag="web_search"):
    """A web search that the provider runs. None means that the client sent nothing.

    Attributes:
        allowed_domains: The only domains that are searched.
        blocked_domains: Domains that are not searched.
        max_uses: The most searches for one response.
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
    """An MCP server that the provider connects to.

    Attributes:
        label: The name of the server.
        url: The address of the server.
        authorization: The token for the server, or None. A secret.
        allowed_tools: The names of the tools, None for all of them.
    """

    label: str
    url: str
    authorization: str | None = None
    allowed_tools: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"McpServer(label={self.label!r}, url=..., authorization=..., allowed_tools={self.allowed_tools!r})"


class HostedTool(msgspec.Struct, frozen=True, gc=False):
    """A tool that the provider runs, or whose schema it implies, e.g. web_search.

    Attributes:
        origin: The protocol that it came in.
        kind: Its type in that protocol.
        native: The object as it came.
        path: A JSON Pointer to it in the client's body.
        use: What it does, if another protocol may have the same; None for everything else.
        function_fallback: For a tool that the client runs: the same tool as a function, for upstreams that do not
            support it.
    """

    origin: str
    kind: str
    native: JSON
    path: str = ""
    use: WebSearch | CodeExecution | McpServer | None = None
    function_fallback: FunctionTool | None = None

    @property
    def loss_code(self) -> LossCode:
        """The code of the loss if the upstream does not run it: a use that other protocols have is no unknown kind."""
        return LossCode.UNKNOWN_KIND if self.use is None else LossCode.DROPPED


Tool: TypeAlias = FunctionTool | CustomTool | HostedTool


class Namespace(msgspec.Struct, frozen=True, gc=False):
    """A namespace of tools. The tools have its name, see FunctionTool.namespace.

    Attributes:
        description: For the model, or None.
        extra: Fields that the protocol does not define, None for none.
        path: A JSON Pointer to it in the client's body.
    """

    description: str | None = None
    extra: JSONObject | None = None
    path: str = ""


class ToolRef(msgspec.Struct, frozen=True, gc=False):
    """A reference to one tool.

    Attributes:
        name: The name of the tool.
        namespace: Of the tool, or None.
        kind: How the tool is called.
        hosted: The kind of a HostedTool, for which `name` does not matter.
    """

    name: str
    namespace: str | None = None
    kind: ToolKind = ToolKind.FUNCTION
    hosted: str | None = None


class ToolChoice(msgspec.Struct, frozen=True, gc=False):
    """Which tools the model may or must call.

    Attributes:
        mode: "named" requires the tool `name` (or the HostedTool of kind `hosted`); "allowed" restricts to `allowed`.
        name: The tool for "named".
        kind: How that tool is called.
        namespace: Of that tool, or None.
        allowed: The tools for "allowed".
        required: One of `allowed` must be called.
        path: A JSON Pointer to it in the client's body.
        hosted: The kind of a HostedTool for "named".
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
    """How much the model should reason, and how much of that the client gets.

    Attributes:
        mode: "adaptive", "enabled" (with budget) or "disabled"; None if the client sent only an effort.
        effort: One of EFFORTS, or another word of the client's.
        budget: Tokens.
        display: "summarized" or "omitted"; None if the client sent nothing.
        extra: Fields that the protocol does not define, None for none.
        path: A JSON Pointer to it in the client's body.
        effort_path: A JSON Pointer to the effort, "" for `path`.
        display_path: A JSON Pointer to `display`, "" for `path`.
    """

    mode: Literal["adaptive", "enabled", "disabled"] | None = None
    effort: str | None = None
    budget: int | None = None
    display: Literal["summarized", "omitted"] | None = None
    extra: JSONObject | None = None
    path: str = ""
    effort_path: str = ""
    display_path: str = ""

    @property
    def thinks(self) -> bool:
        """True if the client requests reasoning."""
        if self.mode == "disabled":
            return False
        return self.mode is not None or self.effort not in (None, "none")


class ResponseFormat(msgspec.Struct, frozen=True, gc=False):
    """Structured output: JSON of a schema, or any JSON object.

    Attributes:
        schema: The JSON Schema, None for any object.
        name: Of the format, or None.
        description: For the model, or None.
        strict: The response must match the schema; None if the client sent nothing.
        extra: Fields that the protocol does not define, None for none.
        path: A JSON Pointer to it in the client's body.
    """

    schema: JSON = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None
    extra: JSONObject | None = None
    path: str = ""


class Request(msgspec.Struct, frozen=True, gc=False):
    """One request.

    Attributes:
        protocol: The protocol that it came in.
        model: The requested model, "" if the client may leave it out.
        messages: The conversation, instructions included.
        raw: The client's body as decoded, and repaired. Writers of the same protocol take values from it.
        tools: The tools that the client offers.
        namespaces: The namespaces that any of the tools are in.
        tool_choice: Which tools may or must be called, None if the client sent nothing.
        parallel_tool_calls: Several calls in one turn are allowed; None if the client sent nothing.
        parallel_path: A JSON Pointer to `parallel_tool_calls`.
        stream: The client requests a stream.
        include_usage: The client wants usage at the end of a stream (always true but in Chat).
        params: Plain settings by neutral name.
        param_paths: A JSON Pointer to each of them in the client's body.
        reasoning: The settings of reasoning, None if the client sent none.
        response_format: The format of the output, None for text.
        extra: Top-level fields that no reader takes.
        compact: The client requests a summary of the conversation, in the form its protocol has for that.
        repairs: What the reader repaired, because it broke the protocol.
        defined: Names of fields in any `extra` that the protocol defines and no other has.
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
