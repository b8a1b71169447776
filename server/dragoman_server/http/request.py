"""Read what endpoints take from a request: its path, its query parameters, and its body within limits of size and time.

The size limit counts bytes as they arrive and as they are after unpacking, each coding separately, and applies while
they are unpacked, so a small body that would grow to gigabytes stops early. A coding that cannot be decoded is refused
by name, because a JSON error would be about a mistake that the client did not make. A body that stops, or that is
slower than any network, is refused too, because it would keep its connection open for ever.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs

import anyio
import anyio.lowlevel
from starlette.types import Receive, Scope

from dragoman import RemoteProtocolError, RequestRefused
from dragoman.jsontext import JSONObject
from dragoman_server.proxying.client_request import ClientDisconnected, ReceiveNow
from dragoman_server.upstream.content_coding import CodingError, ContentDecoder, TooLarge, decoder_for

# Far more than any endpoint has.
MAX_PARAMETERS = 100

# Python parses no integer of thousands of digits, and no body has a length of twenty.
_MAX_LENGTH_DIGITS = 20

# A whole body may take `silence_s`, and a second for each 1024 bytes. GPRS is faster.
_MIN_BYTES_PER_S = 1024


async def read_body(
    receive: Receive,
    content_encoding: str,
    content_length: str,
    limit: int,
    silence_s: float,
    receive_now: ReceiveNow | None = None,
) -> bytes:
    """Read the whole body of an ASGI request. silence_s: seconds for which the client may send nothing of it.

    Raises ClientDisconnected; RequestRefused with status 408 (too slow), 413 (too large) or 415 (unknown coding);
    RemoteProtocolError if the coding, or the body's framing, is broken.
    """
    try:
        decoder = decoder_for(content_encoding, limit)
    except CodingError as error:
        raise RequestRefused(str(error), status=415) from None
    if content_length.isdecimal() and int(content_length[:_MAX_LENGTH_DIGITS]) > limit:
        raise _too_large(limit)
    first = None if receive_now is None else receive_now()
    is_whole = decoder is None and first is not None and first.get("more_body") is False
    if first is not None and is_whole and len(first["body"]) <= limit:
        return bytes(first["body"])  # as in most cases, so it needs no deadline
    parts: list[bytes] = []
    received = 0
    deadline = first_deadline = anyio.current_time() + silence_s
    # One scope for all messages.
    with anyio.CancelScope(deadline=deadline) as scope:
        while True:
            message, first = first or await receive(), None
            if message["type"] == "http.disconnect":
                # serving/http1.py adds the error if the body was broken and the client has not left.
                # Taken out, because its traceback has this frame, and so the message: a reference cycle.
                raise message.pop("error", ClientDisconnected)
            data = message.get("body", b"")
            more = message.get("more_body", False)
            received += len(data)
            if received > limit:
                raise _too_large(limit)
            if decoder is None:
                parts.append(data)
            else:
                scope.deadline = math.inf  # the time for unpacking is not the client's
                await _unpack(decoder, data, more, parts, limit)
            if not more:
                return b"".join(parts)
            now = anyio.current_time()
            deadline = min(first_deadline + received / _MIN_BYTES_PER_S, now + silence_s)
            scope.deadline = deadline
    problem = (
        "stopped in the middle"
        if deadline < first_deadline + received / _MIN_BYTES_PER_S
        else "arrives too slowly"
    )
    # "the server did not receive a complete request message within the time that it was prepared to wait"
    # -- RFC 9110, 15.5.9
    raise RequestRefused(
        f"the request body {problem} (body_timeout_s is {silence_s:g} s); send the request again",
        status=408,
    )


async def _unpack(decoder: ContentDecoder, data: bytes, more: bool, parts: list[bytes], limit: int) -> None:
    """Append the unpacked `data` to `parts`."""
    try:
        if data:
            decoder.receive_data(data)
        while (portion := decoder.next_portion()) is not None:
            parts.append(portion)
            await anyio.lowlevel.checkpoint()  # some bytes from the socket may unpack to many megabytes
        if not more:
            decoder.receive_eof()
    except TooLarge:
        raise _too_large(limit) from None
    except CodingError as error:
        raise RemoteProtocolError(f"the request body cannot be unpacked: {error}") from None


def _too_large(limit: int) -> RequestRefused:
    return RequestRefused(f"the request body has more than {limit} bytes", status=413)


def path_below_mount(scope: Scope) -> str:
    """Return the path of a request without what the application is mounted under."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a query, as it is checked and as the API description shows it.

    Attributes:
        about: What it does.
        limits: The least and the greatest value of an integer. Without them it is a text.
        choices: The values that there are; none: any text.
        repeats: It may occur more than once.
    """

    name: str
    about: str
    limits: tuple[int, int] | None = None
    choices: tuple[str, ...] = ()
    repeats: bool = False

    @property
    def schema(self) -> JSONObject:
        """Its JSON Schema."""
        if self.limits is not None:
            return {"type": "integer", "minimum": self.limits[0], "maximum": self.limits[1]}
        one: JSONObject = {"type": "string", **({"enum": list(self.choices)} if self.choices else {})}
        return {"type": "array", "items": one} if self.repeats else one


# The choices of a parameter that is false by default.
BOOLEAN = ("true", "false")


class Query:
    """The parameters of a query. Unknown names are errors for check_names() only.

    Where a value is repeated the last one counts.

    Its methods raise RemoteProtocolError for a wrong value, and return None for a parameter that is missing.

    keeps_empty: one without a value is there, with an empty one.
    """

    def __init__(self, text: str, *, keeps_empty: bool = False) -> None:
        try:
            self._values = parse_qs(text, keeps_empty, max_num_fields=MAX_PARAMETERS)
        except ValueError:
            message = f"the query has more than {MAX_PARAMETERS} parameters"
            raise RemoteProtocolError(message, code="invalid_value") from None

    def names(self) -> list[str]:
        """Return the names of all parameters that have a value."""
        return list(self._values)

    def check_names(self, known: Sequence[str]) -> None:
        """Raise RemoteProtocolError for a parameter that is none of these."""
        for name in self._values:
            if name not in known:
                there_are = f"there are {', '.join(known)}" if known else "there are none here"
                raise RemoteProtocolError(
                    f"unknown parameter {name[:100]!a}; {there_are}",
                    path=f"/{name[:100]}",
                    code="unknown_parameter",
                )

    def get(self, name: str) -> str | None:
        """Return the value of a parameter."""
        return self.all(name)[-1] if name in self._values else None

    def all(self, name: str) -> list[str]:
        """Return all values of a parameter."""
        return self._values.get(name, [])

    def choice(self, parameter: Parameter) -> str | None:
        """Return the value of a parameter with choices."""
        value = self.get(parameter.name)
        if value is not None and value not in parameter.choices:
            raise invalid_parameter(parameter.name, " or ".join(parameter.choices))
        return value

    def boolean(self, parameter: Parameter) -> bool:
        """Return the value of a parameter that is false by default."""
        value = (self.get(parameter.name) or "false").lower()
        if value not in BOOLEAN:
            raise invalid_parameter(parameter.name, " or ".join(BOOLEAN))
        return value == "true"

    def integer(self, parameter: Parameter) -> int | None:
        """Return the value of a parameter within its limits."""
        assert parameter.limits is not None
        low, high = parameter.limits
        text = self.get(parameter.name)
        if text is None:
            return None
        value = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else low - 1
        if not low <= value <= high:
            raise invalid_parameter(parameter.name, f"an integer from {low} to {high}")
        return value

    def place(self, parameter: Parameter, ids: Sequence[str]) -> int | None:
        """Return the place of the id that a parameter names in a list."""
        id = self.get(parameter.name)
        if id is not None and id not in ids:
            raise invalid_parameter(parameter.name, f"an id of this list, and {id[:100]!a} is not one")
        return None if id is None else ids.index(id)


def invalid_parameter(name: str, expected: str) -> RemoteProtocolError:
    """Return the error for a parameter with a wrong value. expected: completes "... must be"."""
    return RemoteProtocolError(f"{name} must be {expected}", path=f"/{name}", code="invalid_value")
