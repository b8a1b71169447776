"""What is served at which path, to clients and by upstreams: responses, counts of tokens, lists of models."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

import msgspec

from dragoman._wire.exceptions import RequestRefused
from dragoman._wire.framing import SSE, Framing
from dragoman._wire.json import JSONObject

# The place of the model in a path.
MODEL_IN_PATH = "{model}"

# Characters that a segment of a path may have (RFC 3986, 3.3). Others are percent-encoded, a slash as well.
_NOT_IN_SEGMENT = re.compile(rb"[^A-Za-z0-9._~!$&'()*+,;=:@-]")


def fill_path(path: str, model: str) -> str:
    """Return a path with the name of the model in the place of `{model}`.

    Raises RequestRefused for a name that would lead to another path.
    """
    if MODEL_IN_PATH not in path:
        return path
    if model in ("", ".", ".."):
        raise RequestRefused(f"{model!r} is no name of a model", path="/model", code="invalid_value")
    name = model.encode("utf-8", "replace")
    segment = _NOT_IN_SEGMENT.sub(lambda found: b"%%%02X" % found.group()[0], name)
    return path.replace(MODEL_IN_PATH, segment.decode("ascii"))


class Endpoint(msgspec.Struct, frozen=True):
    """One path at which a protocol is served.

    Attributes:
        path: Below the gateway's root. `{model}` in it stands for the name of the model, which is then not in the body.
        heartbeat: Bytes that keep a client's connection alive, legal between any two frames in the endpoint's framing;
            b"" for none.
        heartbeat_event: Returns them where they are an event of the response, by its ResponseContext.
        streams: When the response is a stream: as the body's `stream` requests, or always, or never.
        framing: How a stream reaches clients. Its writer has server-sent events whatever this is.
        media_type: A stream's media type. Everything else is application/json.
        query: The parameter with which its requests come, such as `alt=sse`; "" if none tells them from others. Its
            name may have `$` before it, and its value parameters behind a semicolon, as in all of Google's APIs.
        query_optional: Requests without that parameter are the endpoint's as well.
        model_prefix: A regular expression of what clients may send before the name of the model in the path, and is no
            part of it, but for what its groups match. It takes linear time.
    """

    path: str
    heartbeat: bytes = b""
    streams: Literal["requested", "always", "never"] = "requested"
    framing: Framing = SSE
    media_type: str = "text/event-stream; charset=utf-8"
    query: str = ""
    query_optional: bool = False
    model_prefix: str = ""
    heartbeat_event: Callable[[Any], bytes] | None = None

    def heartbeat_for(self, context: Any) -> bytes:
        """Return the heartbeat of a response with this ResponseContext."""
        return self.heartbeat if self.heartbeat_event is None else self.heartbeat_event(context)

    def match(self, path: str, query: str = "") -> str | None:
        """Return the model that a path names, "" if it has no place for one, None if it is another endpoint's."""
        before, place, after = self.path.partition(MODEL_IN_PATH)
        if not place:
            return "" if path == before and self.accepts(query) else None
        if len(path) <= len(before) + len(after) or not (path.startswith(before) and path.endswith(after)):
            return None
        if not self.accepts(query):
            return None
        model = path[len(before) : len(path) - len(after)]
        prefix = re.match(self.model_prefix, model)
        if prefix is None:
            return model
        rest = model[prefix.end() :]
        return "".join([*filter(None, prefix.groups()), rest]) if rest else None

    def accepts(self, query: str) -> bool:
        """True if a request with this query is the endpoint's."""
        if not self.query:
            return True
        name, _, value = self.query.partition("=")
        given = re.findall(rf"(?:^|&)(?:\$|%24)?{name}=([^&;%]*)", query)
        return value in given or (self.query_optional and not given)

    def streams_if(self, requested: bool) -> bool:
        """True if the response is a stream. requested: the body requests one."""
        return requested if self.streams == "requested" else self.streams == "always"


class WebSocketWriter(Protocol):
    """The bytes of one response's stream in, with heartbeats of Endpoint.heartbeat_event among them; messages out.

    Attributes:
        response_id: The id of the response, None until it was announced.
    """

    response_id: str | None

    def send(self, data: bytes) -> list[bytes]:
        """Return the messages for whole events."""

    def end(self) -> list[bytes]:
        """Return the messages behind the last event."""


class WebSocketSpec(msgspec.Struct, frozen=True):
    """How a protocol is served over a WebSocket: a request in each message, and an event in each message of a response.

    Attributes:
        endpoint: Its requests come in there, each as a body with `stream`.
        writer: Makes the messages of one response.
        write_error: Status, body and headers of an error response -> the message in its place.
    """

    endpoint: Endpoint
    writer: Callable[[], WebSocketWriter]
    write_error: Callable[[int, bytes, Mapping[str, str]], bytes]


class TokenCount(msgspec.Struct, frozen=True):
    """How the input tokens of a request are counted.

    Attributes:
        endpoints: Where clients have them counted.
        path: The path of upstreams, below the base URL. It may have the model in it, see UpstreamSpec.path.
        fields: The members of a request for a response that a request for a count has as well.
        defaults: Values of members that a request for a response requires and a request for a count may leave out.
        constant: Members of the response besides the count.
        member: The member of the response with the count.
        wrapper: The member of the body that has the whole request in it. A body without it is a request itself. None:
            every body is.
    """

    endpoints: tuple[Endpoint, ...]
    path: str
    fields: frozenset[str]
    defaults: JSONObject = {}
    constant: JSONObject = {}
    member: str = "input_tokens"
    wrapper: str | None = None

    def read(self, body: JSONObject) -> JSONObject:
        """Return the request for a response whose tokens a client has counted."""
        wrapped = body.get(self.wrapper) if self.wrapper is not None else None
        request = wrapped if isinstance(wrapped, dict) else body
        missing = {name: value for name, value in self.defaults.items() if request.get(name) is None}
        return {**request, **missing}

    def write(self, request: JSONObject, model: str) -> JSONObject:
        """Return the request for a count of this request's tokens. model: as a wrapped one names it."""
        body = {name: value for name, value in request.items() if name in self.fields}
        return body if self.wrapper is None else {self.wrapper: {"model": model, **body}}


class ModelList(msgspec.Struct, frozen=True):
    """Where an upstream lists its models.

    Attributes:
        path: Below the base URL, see UpstreamSpec.base_path.
        query: Parameters of every page.
        cursor: The parameter with the last id of the page before, or with what that page names for it.
        name_prefix: What stands before each name in the list, and is no part of it in requests.
    """

    path: str = "/models"
    query: Mapping[str, str] = {}
    cursor: str = "after"
    name_prefix: str = ""
