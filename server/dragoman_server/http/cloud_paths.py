"""The paths at which clients that are set for a cloud call it. The gateway has them too, so they need no change.

A row of the table leads from a path of a cloud to the path of a protocol, before anything reads the path. Most rows are
no more than that. Others say what the body of the cloud has, or lacks, and in which form its clients get responses.
Endpoints and protocols know nothing of it. Names of models stay as clients send them: `[models]` says where they lead.
"""

import binascii
import re
from collections.abc import Callable, Mapping

import msgspec
from starlette.types import Message, Scope, Send

from dragoman import UPSTREAMS, RemoteProtocolError, RequestRefused, peek
from dragoman.codec import SSE, Framing, TokenCount, reframe
from dragoman.jsontext import decode, decode_object, encode
from dragoman_server.capabilities.cloud_apis import BETAS, CLOUD_APIS, VERSION
from dragoman_server.capabilities.provider import MESSAGES
from dragoman_server.hosts.aws import BEDROCK_STREAM, ERROR_TYPE, write_error
from dragoman_server.proxying.client_request import SCOPE_CLOUD, SCOPE_PATH, path_below_mount
from dragoman_server.streams.byte_stream import NOW
from dragoman_server.wire.headers import HeaderList, encode_headers, join_lists, media_type

# Status and body of a whole response -> those of the cloud, and more headers.
WriteReply = Callable[[int, bytes], tuple[int, bytes, HeaderList]]


# Places in paths. Clients may have the version in their base URL, or leave it out.
PLACES = {
    "project": r"(?:/v1|/v1beta1)?/projects/[^/]+/locations/[^/]+",
    "workspace": "[^/]+",
    "model": ".+?",
    "rest": ".*",
}


class CloudPath(msgspec.Struct, frozen=True):
    """One path of a cloud.

    Attributes:
        path: With names of PLACES in braces.
        leads_to: The path here, with some of them.
        cloud: For people.
        version: The parameter of the query with the version of the cloud's API.
        stream: The path says if the response is a stream, and the body does not.
        wraps_messages: The body has members that are headers in Messages.
        unwrap: Returns the body of Messages that a body has in it.
        reply: See WriteReply.
        framing: Of streams.
    """

    path: str
    leads_to: str
    cloud: str
    version: str = ""
    stream: bool | None = None
    wraps_messages: bool = False
    unwrap: Callable[[bytes], bytes] | None = None
    reply: WriteReply | None = None
    framing: Framing | None = None
    pattern: str = ""

    def __post_init__(self) -> None:
        places = {name: f"(?P<{name}>{pattern})" for name, pattern in PLACES.items()}
        msgspec.structs.force_setattr(self, "pattern", self.path.format(**places))


def _invoke_model(status: int, body: bytes) -> tuple[int, bytes, HeaderList]:
    if status < 400:
        return status, body, []
    status, exception, body = write_error(status, body)
    return status, body, [(ERROR_TYPE, exception)]


def _count_tokens(status: int, body: bytes) -> tuple[int, bytes, HeaderList]:
    if status < 400:
        body = encode({"inputTokens": decode_object(body, "the count")[_COUNT.member]})
    return _invoke_model(status, body)


def _counted(body: bytes) -> bytes:
    """Return the request whose tokens CountTokens counts. Raises RemoteProtocolError."""
    value: object = decode_object(body, "the request body")
    for name in ("input", "invokeModel", "body"):
        value = value.get(name) if isinstance(value, dict) else None
    try:
        request = binascii.a2b_base64(str(value or ""), strict_mode=True)
    except ValueError:
        request = b""
    if not request:
        text = 'input must be {"invokeModel": {"body": ...}} with the body in base64'
        raise RemoteProtocolError(text, path="/input")
    # A request for a response has more than Messages counts.
    known = _COUNT.fields | _HEADER_MEMBERS.keys()
    return encode({name: value for name, value in peek(request).fields.items() if name in known})


_count = UPSTREAMS[MESSAGES].token_count
assert _count is not None
_COUNT: TokenCount = _count

# What the bodies of clouds have instead of headers of Messages, and the versions of the API by their names for them.
_BODIES = [route.body for api in CLOUD_APIS.values() for route in api.routes if route.body is not None]
_HEADER_MEMBERS: Mapping[str, str] = {
    "anthropic_version": VERSION,
    **{member: header for body in _BODIES for header, member in body.from_headers.items()},
}
_VERSIONS = {theirs: ours for body in _BODIES for ours, theirs in body.versions.items()}

_FOUNDRY = "Foundry, Mantle, Bedrock Runtime"
_AZURE = "Azure, Mantle, Bedrock Runtime"
_DATED = "Azure, with a version"
_VERTEX = "Vertex AI"
_GOOGLE = "Claude on Google Cloud"
_BEDROCK = "Bedrock, InvokeModel"
_CLAUDE = "{project}/publishers/anthropic/models/"

# The first one that fits is used.
CLOUD_PATHS = (
    CloudPath("/anthropic/v1/{rest}", "/v1/{rest}", _FOUNDRY),
    CloudPath("/openai/v1/{rest}", "/v1/{rest}", _AZURE),
    CloudPath("/openai/deployments/{model}/{rest}", "/v1/{rest}", _DATED, "api-version"),
    *(
        CloudPath(f"/openai/{name}{{rest}}", f"/v1/{name}{{rest}}", _DATED, "api-version")
        for name in ("responses", "models", "files", "batches")
    ),
    CloudPath(_CLAUDE + "count-tokens:rawPredict", "/v1/messages/count_tokens", _VERTEX, wraps_messages=True),
    CloudPath(_CLAUDE + "{model}:rawPredict", "/v1/messages", _VERTEX, stream=False, wraps_messages=True),
    CloudPath(
        _CLAUDE + "{model}:streamRawPredict", "/v1/messages", _VERTEX, stream=True, wraps_messages=True
    ),
    CloudPath("{project}/publishers/openai/v1/{rest}", "/v1/{rest}", _VERTEX),
    CloudPath("{project}/endpoints/openapi/{rest}", "/v1/{rest}", _VERTEX),
    CloudPath("{project}/publishers/google/models/{rest}", "/v1beta/models/{rest}", _VERTEX),
    CloudPath("{project}/workspaces/{workspace}/invoke/v1/{rest}", "/v1/{rest}", _GOOGLE),
    CloudPath("{project}/claudeOrganization/invoke/v1/{rest}", "/v1/{rest}", _GOOGLE),
    CloudPath(
        "/model/{model}/invoke",
        "/v1/messages",
        _BEDROCK,
        stream=False,
        wraps_messages=True,
        reply=_invoke_model,
    ),
    CloudPath(
        "/model/{model}/invoke-with-response-stream",
        "/v1/messages",
        _BEDROCK,
        stream=True,
        wraps_messages=True,
        reply=_invoke_model,
        framing=BEDROCK_STREAM,
    ),
    CloudPath(
        "/model/{model}/count-tokens",
        "/v1/messages/count_tokens",
        _BEDROCK,
        wraps_messages=True,
        unwrap=_counted,
        reply=_count_tokens,
    ),
    # These get an error that clients of AWS can read.
    CloudPath("/model/{rest}", "/model/{rest}", "", reply=_invoke_model),
    CloudPath("/inference-profiles{rest}", "/inference-profiles{rest}", "", reply=_invoke_model),
)
_BEGINNINGS = (
    *("/anthropic/", "/openai/", "/projects/", "/v1/projects/", "/v1beta1/projects/"),
    *("/model/", "/inference-profiles"),
)


class CloudRequest(msgspec.Struct, frozen=True):
    """A request that has come at the path of a cloud.

    Attributes:
        model: The name of the model that its path has, "" if it has none.
    """

    row: CloudPath
    model: str

    def query_as_served(self, query: str) -> str:
        """Return the query of the request here."""
        if not self.row.version:
            return query
        return "&".join([each for each in query.split("&") if each.partition("=")[0] != self.row.version])

    def as_served(self, body: bytes, headers: Mapping[str, str]) -> tuple[bytes, dict[str, str]]:
        """Return the body of the request here, and the headers that were members of it.

        Raises RemoteProtocolError and RequestRefused.
        """
        row = self.row
        if not (row.wraps_messages or self.model) or media_type(headers.items()).startswith("multipart/"):
            return body, {}
        if _GUARDRAIL in headers:
            # What would come is not what the client has asked for.
            raise RequestRefused(
                f"guardrails are those of Bedrock: leave out {_GUARDRAIL}", code="unsupported_value"
            )
        fields = peek(body if row.unwrap is None else row.unwrap(body)).fields
        members: dict[str, object] = {**fields}
        moved = dict[str, str]()
        if row.wraps_messages:
            for member, header in _HEADER_MEMBERS.items():
                if members.pop(member, None) is not None and bytes(fields[member]) != b"null":
                    moved[header] = _header_value(member, fields[member])
            if VERSION in moved:
                moved[VERSION] = _VERSIONS.get(moved[VERSION], moved[VERSION])
            if BETAS in moved and BETAS in headers:  # Claude Code has some of them in both places
                moved[BETAS] = join_lists(headers[BETAS], moved[BETAS])
        if self.model:
            members["model"] = self.model
        if row.stream is not None:
            members["stream"] = row.stream
        return encode(members), moved


_GUARDRAIL = "x-amzn-bedrock-guardrailidentifier"
# Characters of a header that was a member: as many as a server accepts in a whole head.
_MAX_HEADER = 8192
_HEADER_VALUE = re.compile(r"[\x21-\x2b\x2d-\x7e]+")


def _header_value(member: str, raw: msgspec.Raw) -> str:
    """Return the value of a member as that of a header. Raises RemoteProtocolError."""
    value = decode(bytes(raw))
    texts = value if type(value) is list else [value]
    joined = ",".join(text for text in texts if type(text) is str)
    if len(joined) > _MAX_HEADER or not all(
        type(text) is str and _HEADER_VALUE.fullmatch(text) for text in texts
    ):
        text = (
            f"{member} must be a text without spaces, or a list of such, of at most {_MAX_HEADER} characters"
        )
        raise RemoteProtocolError(text, path=f"/{member}")
    return joined


def cloud_request_at(path: str) -> tuple[str, CloudRequest] | None:
    """Return where a path of a cloud leads here, and what is special about its requests; None for any other path."""
    for row in CLOUD_PATHS:
        found = re.fullmatch(row.pattern, path)
        if found is not None:
            places = found.groupdict()
            return row.leads_to.format(**places), CloudRequest(row, places.get("model", ""))
    return None


def enter(scope: Scope, send: Send) -> tuple[str, Scope, Send]:
    """Return the path of a request below the mount, its scope and what takes its response.

    All three are as they are served here, if it has come at the path of a cloud.
    """
    path = path_below_mount(scope)
    found = cloud_request_at(path) if path.startswith(_BEGINNINGS) else None
    if found is None:
        return path, scope, send
    path, request = found
    row, served = request.row, scope.get("root_path", "") + path
    query = request.query_as_served(scope.get("query_string", b"").decode("latin-1")).encode("latin-1")
    scope = {**scope, "path": served, SCOPE_PATH: scope["path"], SCOPE_CLOUD: request, "query_string": query}
    if request.model:
        scope["path_params"] = {"model": request.model}
    if row.reply is None or scope["type"] != "http":
        return path, scope, send
    response = _CloudResponse(row.reply, row.framing, send)
    extensions = {**scope.get("extensions", {})}
    if (write := extensions.get(NOW, {}).get("write")) is not None:
        extensions[NOW] = {**extensions[NOW], "write": lambda data: write(response.reframed(data))}
        scope["extensions"] = extensions
    return path, scope, response.send


class _CloudResponse:
    """The response to a request, in the form of its cloud."""

    def __init__(self, reply: WriteReply, framing: Framing | None, send: Send) -> None:
        self._reply = reply
        self._framing = framing
        self._frames = None if framing is None or framing.writer is None else framing.writer()
        self._send = send
        self._start: Message | None = None  # of a whole response, until its end
        self._body: list[bytes] = []

    def reframed(self, data: bytes) -> bytes:
        """Return whole events in the framing of the cloud."""
        return data if self._frames is None else reframe(self._frames, data)

    async def send(self, message: Message) -> None:
        """Take a message of ASGI, and send what the client gets."""
        if message["type"] == "http.response.start":
            framing, sent = self._framing, dict(message["headers"]).get(b"content-type", b"")
            if (
                framing is not None
                and media_type([("content-type", sent.decode("latin-1"))]) == SSE.media_type
            ):
                await self._send(_with_headers(message, [("content-type", framing.media_type)]))
            else:
                self._start = message
        elif message["type"] != "http.response.body":
            await self._send(message)
        elif self._start is not None:
            self._body.append(message.get("body", b""))
            if not message.get("more_body", False):
                status, body, headers = self._reply(self._start["status"], b"".join(self._body))
                headers = [*headers, ("content-length", str(len(body)))]
                await self._send(_with_headers({**self._start, "status": status}, headers))
                await self._send({**message, "body": body})
        else:
            data = self.reframed(message.get("body", b""))
            if self._frames is not None and not message.get("more_body", False):
                data += self._frames.eof()
            await self._send({**message, "body": data})


def _with_headers(start: Message, headers: HeaderList) -> Message:
    """Return the start of a response with these headers, and with its id as AWS calls it."""
    others = [(name, value) for name, value in start["headers"] if name.decode("ascii") not in dict(headers)]
    ids = [(b"x-amzn-requestid", value) for name, value in others if name == b"dragoman-request-id"]
    return {**start, "headers": [*others, *ids, *encode_headers(headers)]}
