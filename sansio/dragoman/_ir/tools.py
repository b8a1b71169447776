"""Tools of a request document, and the choice among them, in a form that belongs to no protocol.

Readers build them, passes fit them to the upstream, writers write them. Cache marks are here because tools have them
like parts of messages.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, final

import msgspec

from dragoman._ir.events import ToolKind
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.native import Node
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, JSONObject, decode, encode_text


class CacheMark(msgspec.Struct, frozen=True, gc=False):
    """A prompt-cache breakpoint: `cache_control` in Messages, `prompt_cache_breakpoint` in the other two.

    Attributes:
        path: A JSON Pointer to it in the client's body.
        ttl: "short" (5 or 30 minutes), "long" (1 or 12 hours) or None for the vendor's default.
    """

    path: str
    ttl: Literal["short", "long"] | None = None


def native_mark(native: JSON, path: str) -> CacheMark | None:
    """Return the mark of an object that stays as it came, None if it has none."""
    mark = native.get("cache_control") if type(native) is dict else None
    if mark is None:
        return None
    return CacheMark(
        f"{path}/cache_control", "long" if type(mark) is dict and mark.get("ttl") == "1h" else None
    )


# The neutral values of `ttl` in the setting `prompt_cache_options`.
SHORT_CACHE_OPTION, LONG_CACHE_OPTION = "30m", "12h"


class Grammar(msgspec.Struct, frozen=True, gc=False):
    """The grammar of a custom tool's input.

    Attributes:
        syntax: "lark" or "regex".
        definition: The grammar in that syntax.
    """

    syntax: str
    definition: str


@final
class FunctionTool(Node, frozen=True, gc=False):
    """A tool with a JSON Schema.

    Attributes:
        name: The name of the tool.
        description: For the model, or None.
        parameters: The schema, None if the client sent none.
        strict: The input must match the schema; None if the client sent nothing.
        namespace: The tool's namespace, or None.
        cache: A cache mark on it, or None.
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
    path: str = ""
    deferred: bool | None = None
    examples: list[JSON] | None = None

    def described(self, ledger: Ledger) -> str | None:
        """Return the description with the examples, for protocols that have no place for these."""
        if not self.examples:
            return self.description
        ledger.altered(f"{self.path}/input_examples", "added to the tool's description")
        examples = "\n".join(["Examples of its input:", *map(encode_text, self.examples)])
        return f"{self.description}\n\n{examples}" if self.description else examples


@final
class CustomTool(Node, frozen=True, gc=False):
    """A tool that takes free text.

    Attributes:
        name: The name of the tool.
        description: For the model, or None.
        grammar: The input's grammar, None if any text is allowed.
        namespace: The tool's namespace, or None.
        cache: A cache mark on it, or None.
        path: A JSON Pointer to it in the client's body.
    """

    name: str
    description: str | None = None
    grammar: Grammar | None = None
    namespace: str | None = None
    cache: CacheMark | None = None
    path: str = ""


# What the protocols call the schema of a tool.
_SCHEMA_NAMES = ("parametersJsonSchema", "parameters", "input_schema")


def member_path(tool: FunctionTool | CustomTool, name: str) -> str:
    """Return the path of a member of a tool in the client's body, the tool's path if the client sent none.

    Chat Completions has it in an object that is named as the tool's type.
    """
    own, path = tool.native or tool.before, tool.path
    if own is None:
        return f"{path}/{name}"
    kind = "custom" if type(tool) is CustomTool else "function"
    if type(own.get(kind)) is dict:
        own, path = own[kind], f"{path}/{kind}"
    names = _SCHEMA_NAMES if name == "parameters" else (name,)
    return next((f"{path}/{each}" for each in names if own.get(each) is not None), tool.path)


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

    @property
    def bearer(self) -> str:
        """The value of an `Authorization` header with the token."""
        return f"Bearer {self.authorization}"

    def __repr__(self) -> str:
        return f"McpServer(label={self.label!r}, url=..., authorization=..., allowed_tools={self.allowed_tools!r})"


@final
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

    shape = None  # see Node: it stays whole

    @property
    def cache(self) -> CacheMark | None:
        """A cache mark on it, or None."""
        return native_mark(self.native, self.path)

    @property
    def loss_code(self) -> LossCode:
        """The code of the loss if the upstream does not run it: a use that other protocols have is no unknown kind."""
        return LossCode.UNKNOWN_KIND if self.use is None else LossCode.DROPPED


# Where many tools are compared, it is with `type(tool) is ...`: isinstance() takes ten times as long to say no.
Tool: TypeAlias = FunctionTool | CustomTool | HostedTool


class Namespace(Node, frozen=True, gc=False):
    """A namespace of tools. The tools have its name, see FunctionTool.namespace.

    Attributes:
        description: For the model, or None.
        path: A JSON Pointer to it in the client's body.
    """

    description: str | None = None
    path: str = ""


class ToolRef(msgspec.Struct, frozen=True, gc=False):
    """A reference to one tool.

    Attributes:
        name: The name of the tool.
        namespace: The tool's namespace, or None.
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
        namespace: That tool's namespace, or None.
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
    path: str = "/tool_choice"
    hosted: str | None = None

    @property
    def requires_call(self) -> bool:
        """True if the model must call a tool."""
        return self.required or self.mode in ("required", "named")


def arguments_object(text: str) -> JSON:
    """Return arguments as an object in one line, with the model's own characters if they are; None for another text.

    null and an empty list are no arguments: some clients write them so (.NET's and PHP's, recorded in 2026).
    """
    if not text or text.isspace():
        return {}
    data = text.encode("utf-8", "backslashreplace")  # half of a surrogate pair becomes its escape
    try:
        value = decode(data)
    except RemoteProtocolError:
        return None
    if type(value) is not dict:
        return {} if value is None or value == [] else None
    return value if "\n" in text or "\r" in text else msgspec.Raw(data)


def input_object(text: str, path: str, ledger: Ledger) -> JSON:
    """Return arguments as the object that a call needs."""
    found = arguments_object(text)
    if found is None:
        ledger.altered(path, "the arguments are not a JSON object: they were sent as text under the key _raw")
        return {"_raw": text}
    return found
