"""The request as a document that belongs to no protocol.

Readers build it, passes change it, writers write it. Conversation content is typed; plain settings (temperature,
seed, ...) are a mapping from neutral names to JSON values, so another setting is a row in a protocol's table and not
a line of code. Every object has its place in the client's body (`path`, a JSON Pointer) so that a loss can be named,
and the JSON object that it was read from (see `Node`). Objects are frozen: a pass returns a new document.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count, takewhile
from typing import Any, Literal, TypeAlias

import msgspec

from dragoman._ir.events import Signature, ToolKind
from dragoman._ir.losses import Loss
from dragoman._ir.media_types import MAGIC, split_data_uri
from dragoman._ir.native import Node
from dragoman._ir.shape import Param as Param
from dragoman._ir.tools import CacheMark, Namespace, Tool, ToolChoice, native_mark
from dragoman._wire.exceptions import RequestRefused
from dragoman._wire.json import JSON, JSONObject

Role: TypeAlias = Literal["system", "developer", "user", "assistant"]

# What an upstream may refuse besides the plain settings: members elsewhere in a request. `tool_strict` is `strict` of a
# function, `message_name` is `name` of a message, `image`, `file` and `video` are those in the conversation and
# `media_url` those by URL, `allowed_tools` is a list of tools in `tool_choice`, and `named_tool` one tool there.
REFUSABLE_MEMBERS = (
    "allowed_tools",
    "cache_control",
    "file",
    "image",
    "media_url",
    "message_name",
    "named_tool",
    "parallel_tool_calls",
    "tool_strict",
    "video",
    "web_search_options",
)


class Citation(msgspec.Struct, frozen=True, gc=False):
    """A web page that a text cites.

    Attributes:
        url: The page's URL.
        title: The page's title, or None.
        start: The first character of the cited span, None for the whole text.
        end: The end of that span, or None.
    """

    url: str
    title: str | None = None
    start: int | None = None
    end: int | None = None


class Text(Node, frozen=True, gc=False):
    """A text of a message.

    Attributes:
        text: The characters.
        cache: A cache mark on it, or None.
        citations: The annotations that it came with, as they came.
        path: A JSON Pointer to it in the client's body.
        sources: Those annotations that are web pages, in a form that other protocols can write.
        rendered: The text was rendered from a block that has no counterpart, and is no part of the text next to it.
    """

    text: str
    cache: CacheMark | None = None
    citations: JSON = None
    path: str = ""
    sources: tuple[Citation, ...] = ()
    rendered: bool = False


class Refusal(Node, frozen=True, gc=False):
    """Text in which the assistant refused.

    Attributes:
        text: The characters.
        path: A JSON Pointer to it in the client's body.
    """

    text: str
    path: str = ""

    cache = None


class Media(Node, frozen=True, gc=False):
    """An image, a file, a sound or a video.

    Attributes:
        kind: Which of the four.
        source: "base64" (data is base64 text), "text" (data is plain text), "url" or "file_id".
        data: The content, or the URL or id of it.
        media_type: E.g. "image/png", None if unknown.
        filename: The name of the file, or None.
        detail: OpenAI's `detail` of an image, or None.
        context: The document field of Messages, as it came.
        citations: The document field of Messages, as it came.
        cache: A cache mark on it, or None.
        path: A JSON Pointer to it in the client's body.
    """

    kind: Literal["image", "file", "audio", "video"]
    source: Literal["base64", "text", "url", "file_id"]
    data: str
    media_type: str | None = None
    filename: str | None = None
    detail: str | None = None
    context: str | None = None
    citations: JSON = None
    cache: CacheMark | None = None
    path: str = ""

    def inline(self) -> tuple[str, str]:
        """Return media type and base64 text of media with both in them, "" for a type that is not known.

        Raises RequestRefused (400).
        """
        media_type, data = self.media_type or "", self.data
        if data.startswith("data:"):
            found = split_data_uri(data)
            if found is None:
                raise RequestRefused(
                    "a data: URI must have the form data:<type>;base64,<data>",
                    path=self.path,
                    code="unsupported_value",
                )
            media_type, data = found
        # An image by another type is refused (litellm#24900, comic-translate#399, read 2026-12-01).
        if self.kind == "image" or media_type in ("", "application/octet-stream"):
            media_type = next((name for magic, name in MAGIC if data.startswith(magic)), media_type)
        return media_type.lower().replace("image/jpg", "image/jpeg"), data

    def as_text(self) -> str:
        """Return the text of a plain-text document, after its context and name."""
        return "\n\n".join(filter(None, (self.context, self.filename, self.data)))


class Reasoning(Node, frozen=True, gc=False):
    """Reasoning of an earlier assistant turn.

    Attributes:
        text: What can be read of it, "" for redacted reasoning or reasoning without a summary.
        signature: Its signature, None if it came unsigned.
        path: A JSON Pointer to it in the client's body.
        forged: It came with a wrapped signature (see `_ir.wrapped_signatures`) that was not made here, or was changed.
    """

    text: str
    signature: Signature | None = None
    path: str = ""
    forged: bool = False

    cache = None


class ToolCall(Node, frozen=True, gc=False):
    """A tool call that the assistant made.

    Attributes:
        call_id: The id by which the result refers to it.
        name: The name of the tool.
        input: JSON text for a function, free text for a custom tool.
        kind: How the tool is called.
        namespace: The tool's namespace, or None.
        cache: A cache mark on it, or None.
        path: A JSON Pointer to it in the client's body.
        hosted: The kind of the HostedTool that was called (`shell`, say), if its calls have their own form in the
            client's protocol. `name` and `input` are then its function's.
    """

    call_id: str
    name: str
    input: str
    kind: ToolKind = ToolKind.FUNCTION
    namespace: str | None = None
    cache: CacheMark | None = None
    path: str = ""
    hosted: str | None = None


class ToolResult(Node, frozen=True, gc=False):
    """The result of a tool call.

    Attributes:
        call_id: The id of the call.
        content: Its parts, () if its reader made none of a plain text.
        kind: How the tool was called.
        is_error: The tool failed; None if the protocol has no such member.
        cache: A cache mark on it, or None.
        path: A JSON Pointer to it in the client's body.
        hosted: As in ToolCall.
    """

    call_id: str
    content: tuple[ResultPart, ...]
    kind: ToolKind = ToolKind.FUNCTION
    is_error: bool | None = None
    cache: CacheMark | None = None
    path: str = ""
    hosted: str | None = None

    @property
    def parts(self) -> tuple[ResultPart, ...]:
        """The content of the result."""
        return self.content or _plain_parts(self)


class OpaquePart(msgspec.Struct, frozen=True, gc=False):
    """A block, part or item without a class here.

    Attributes:
        origin: The protocol that it came in.
        kind: Its type in that protocol.
        native: The object as it came.
        path: A JSON Pointer to it in the client's body.
        text: Its plain text for upstreams of other protocols; None if it has none by itself, "" if it is not for the
            model but for the server.
        shape: The members that are elsewhere in the document, of an item with settings or tools: what other protocols
            have of it, they do not lose. None for all others.
    """

    origin: str
    kind: str
    native: JSON
    path: str = ""
    text: str | None = None
    shape: Any = None

    before = None  # as in a Node

    @property
    def cache(self) -> CacheMark | None:
        """A cache mark on it, or None."""
        return native_mark(self.native, self.path)


ResultPart: TypeAlias = Text | Media | OpaquePart
Part: TypeAlias = Text | Refusal | Media | Reasoning | ToolCall | ToolResult | OpaquePart


class Message(Node, frozen=True, gc=False):
    """One message or item, in the order of the conversation.

    Tool results are in messages of role "user". Readers keep the client's boundaries; writers regroup.

    Attributes:
        role: Who wrote it.
        content: Its parts, () if its reader made none of a plain text.
        path: A JSON Pointer to it in the client's body.
        name: OpenAI's `name` of the participant, or None.
        phase: Responses' `phase`, or None.
    """

    role: Role
    content: tuple[Part, ...]
    path: str = ""
    name: str | None = None
    phase: str | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """Its content. What knows that a message is not plain, finds it faster in `content`."""
        return self.content or _plain_parts(self)


def plain_text_of(parts: Sequence[Part]) -> str:
    """Return Node.plain_text of a node that has nothing but these parts."""
    only = parts[0] if len(parts) == 1 else None
    return only.text if type(only) is Text and only.shape is None else ""


def _plain_parts(node: Message | ToolResult) -> tuple[Text, ...]:
    return (Text(node.plain_text, path=f"{node.path}/content"),) if node.plain_text else ()


class ReasoningConfig(msgspec.Struct, frozen=True, gc=False):
    """How much the model should reason, and how much of that the client gets.

    Attributes:
        mode: "adaptive", "enabled" (with budget) or "disabled"; None if the client sent only an effort.
        effort: One of EFFORTS, or another name that the client sent.
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
    path: str = "/reasoning"
    effort_path: str = ""
    display_path: str = ""

    @property
    def requests_reasoning(self) -> bool:
        """True if the client requests reasoning."""
        if self.mode == "disabled":
            return False
        return self.mode is not None or self.effort not in (None, "none")


class ResponseFormat(msgspec.Struct, frozen=True, gc=False):
    """Structured output: JSON of a schema, or any JSON object.

    Attributes:
        schema: The JSON Schema, None for any object.
        name: The format's name, or None.
        description: For the model, or None.
        strict: The response must match the schema; None if the client sent nothing.
        extra: Fields that the protocol does not define, None for none.
        path: A JSON Pointer to it in the client's body.
        schema_member: A JSON Pointer to the schema from there, "" if the schema itself is there.
    """

    schema: JSON = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None
    extra: JSONObject | None = None
    path: str = "/response_format"
    schema_member: str = "/schema"


class Request(msgspec.Struct, frozen=True, gc=False):
    """One request.

    Attributes:
        protocol: The protocol that it came in.
        model: The requested model, "" if the client may leave it out.
        messages: The conversation, instructions included.
        tools: The tools that the client offers.
        namespaces: The namespaces that any of the tools are in.
        tool_choice: Which tools may or must be called, None if the client sent nothing.
        parallel_tool_calls: Several calls in one turn are allowed; None if the client sent nothing.
        parallel_path: A JSON Pointer to `parallel_tool_calls`.
        stream: The client requests a stream.
        include_usage: The client requests usage at the end of a stream (always true but in Chat).
        params: Plain settings by neutral name.
        param_paths: A JSON Pointer to each of them in the client's body.
        reasoning: The settings of reasoning, None if the client sent none.
        response_format: The format of the output, None for text.
        extra: Top-level fields that no reader takes.
        compact: The client requests a summary of the conversation, in the form its protocol has for that.
        repairs: What the reader repaired, because it broke the protocol, or altered.
        defined: Names of fields that the protocol defines: True if no other has them, so that they have no place in the
            document, False for an object of which some members have one, or why it may be lost.
        native: The client's body, of a request that is fitted to an upstream of the same protocol (Capabilities.relay).
            Its writer sends what no pass has changed as it came.
        received: That request as its reader returned it, None for all others.
    """

    protocol: str
    model: str
    messages: tuple[Message, ...]
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
    defined: Mapping[str, bool | str] = {}
    native: JSONObject = {}
    received: Request | None = None

    def leading_instructions(self, conversation: str) -> list[Message]:
        """Return the system messages before the conversation.

        conversation: the beginning of the paths of messages in a body of the protocol. A request that does not leave it
        keeps its messages there, whatever their role.
        """
        return list(
            takewhile(
                lambda message: (
                    message.role in ("system", "developer")
                    and not (self.native and message.path.startswith(conversation))
                ),
                self.messages,
            )
        )

    def changed_settings(self, fitted: Collection[Param] = ()) -> Request:
        """Return the request with those settings only that the client's body does not have as they are now.

        fitted: settings that its writer writes all the same.
        """
        was = self.received
        if was is None:
            return self
        params = {
            param: value
            for param, value in self.params.items()
            if param in fitted or was.params.get(param) is not value
        }
        form = None if self.response_format is was.response_format else self.response_format
        return msgspec.structs.replace(self, params=params, response_format=form)

    def native_body(
        self, out: JSONObject, written: Iterable[str], format_places: Iterable[str]
    ) -> JSONObject:
        """Return the client's body with the members in `out`, and without the settings that passes have removed.

        written: the paths of members that are only in `out`. format_places: places of the response's format.
        """
        was = self.received
        if was is None:
            return out
        gone = {*written, *[was.path_of(param) for param in was.params if param not in self.params]}
        if self.response_format is not was.response_format:
            gone.update(format_places)
        body: JSONObject = {}
        for name, left in self.native.items():
            is_gone, new = f"/{name}" in gone, out.get(name)
            if type(left) is dict and left:
                left = {key: value for key, value in left.items() if f"/{name}/{key}" not in gone}
                is_gone = is_gone or not left
            if name in out:
                body[name] = {**left, **new} if type(left) is type(new) is dict and not is_gone else new
            elif not is_gone:
                body[name] = left
        return {**body, **{name: value for name, value in out.items() if name not in body}}

    def path_of(self, param: Param) -> str:
        """Return a JSON Pointer to a setting, with its neutral name if the client's body has none."""
        return self.param_paths.get(param, f"/{param}")


# So many pointers to messages are made together, and kept of each sort.
_SEVERAL = 16
_KEPT_PATHS = 512
# JSON Pointers to a message, to its content and to its first parts: as many as a turn of an agent has.
Paths: TypeAlias = tuple[str, str, tuple[str, str, str, str]]


class MessagePaths:
    """The pointers of the messages of a body, in their order.

    content: the pointer to the content in a message. parts: the one to the list with its parts, by default the content.

    Many are kept once they were needed, because to format a number costs as much as to build a message.
    """

    __slots__ = ("_content", "_first", "_kept", "_member", "_part")

    def __init__(self, member: str, content: str = "content", parts: str = "") -> None:
        self._member, parts = member, parts or content
        self._content, self._part = f"/{content}", f"/{parts}/"
        self._kept: dict[int, tuple[Paths, ...]] = {}
        self._first = self._several(0)

    def __iter__(self) -> Iterator[Paths]:
        return chain(self._first, chain.from_iterable(map(self._several, count(1))))

    def _several(self, number: int) -> tuple[Paths, ...]:
        if number in self._kept:
            return self._kept[number]
        first = number * _SEVERAL
        paths = tuple(map(self._paths, range(first, first + _SEVERAL)))
        if first < _KEPT_PATHS:
            self._kept[number] = paths
        return paths

    def _paths(self, index: int) -> Paths:
        path = f"/{self._member}/{index}"
        parts = path + self._part
        return path, path + self._content, (f"{parts}0", f"{parts}1", f"{parts}2", f"{parts}3")
