"""Read what endpoints take from a request: its path, its query parameters, and its body within limits of size and time.

The size limit counts bytes as they arrive and as they are after unpacking, each coding separately, and applies while
they are unpacked, so a small body that would grow to gigabytes stops early. A coding that cannot be decoded is refused
by name, because a JSON error would be about a mistake that the client did not make. A body that stops, or that is
slower than any network, is refused too, because it would keep its connection open for ever.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import parse_qs

import anyio
import anyio.lowlevel
import msgspec
from starlette.types import Message, Receive

from dragoman import RemoteProtocolError, RequestRefused
from dragoman.jsontext import JSONObject
from dragoman_server.platform.off_loop import off_loop
from dragoman_server.proxying.client_request import ClientDisconnected, ReceiveNow
from dragoman_server.upstream.content_coding import CodingError, ContentDecoder, TooLarge, decoder_for

# Far more than any endpoint has.
MAX_PARAMETERS = 100

# Python parses no integer of thousands of digits, and no body has a length of twenty.
_MAX_LENGTH_DIGITS = 20

# So many parts of a body are some megabytes at most, which are joined in a few milliseconds.
_FEW_PARTS = 64

# A whole body may take `silence_s`, and a second for each 1024 bytes. GPRS is faster.
_MIN_BYTES_PER_S = 1024


class BodyReader:
    """The body of an ASGI request.

    It raises ClientDisconnected; RequestRefused with status 408 (too slow), 413 (too large) or 415 (unknown coding);
    RemoteProtocolError if the coding, or the body's framing, is broken.

    Args:
        headers: with lower-case names.
        silence_s: seconds for which the client may send nothing of it.

    Attributes:
        length: Its bytes, None if they are not known before.
        has_more: receive() may return more than b"".
    """

    # Of the whole body, moved by the time for which nobody has waited for it. Most come at once, and need none.
    _deadline: float | None = None
    _left_at = 0.0

    def __init__(
        self,
        receive: Receive,
        headers: Mapping[str, str],
        limit: int,
        silence_s: float,
        receive_now: ReceiveNow | None = None,
    ) -> None:
        coding, content_length = headers.get("content-encoding"), headers.get("content-length", "")
        try:
            self._decoder = decoder_for(coding, limit) if coding else None
        except CodingError as error:
            raise RequestRefused(str(error), status=415) from None
        length = int(content_length[:_MAX_LENGTH_DIGITS]) if content_length.isdecimal() else None
        if length is not None and length > limit:
            raise _too_large(limit)
        self.length = length if self._decoder is None else None
        self._receive, self._limit, self._silence_s = receive, limit, silence_s
        self._receive_now = receive_now
        self._received = 0
        self.has_more = self._expects = True  # messages

    async def read_all(self) -> bytes:
        """Return the whole body."""
        parts = [await self.receive()]
        while self.has_more:
            parts.append(await self.receive())
        if len(parts) <= _FEW_PARTS:
            return b"".join(parts)
        return await off_loop(sum(map(len, parts)), b"".join, parts)

    async def receive(self) -> bytes:
        """Return the next bytes; b"" at the end."""
        while True:
            if self._decoder is not None and (portion := self._unpacked(self._decoder)) is not None:
                await anyio.lowlevel.checkpoint()  # some bytes from the socket may unpack to many megabytes
                if portion:
                    return portion
            elif not self._expects:
                self.has_more = False
                return b""
            else:
                # What has arrived needs no deadline.
                message = None if self._receive_now is None else self._receive_now()
                data = await self._receive_in_time() if message is None else self._taken(message)
                if self._decoder is not None:
                    self._decoder.receive_data(data)
                elif data:
                    self.has_more = self._expects
                    return data

    async def _receive_in_time(self) -> bytes:
        """Wait for the next message, and return its bytes."""
        now = anyio.current_time()
        if self._deadline is None:
            self._deadline = now + self._silence_s
        else:
            self._deadline += now - self._left_at
        whole = self._deadline + self._received / _MIN_BYTES_PER_S
        with anyio.CancelScope(deadline=min(whole, now + self._silence_s)):
            data = self._taken(await self._receive())
            self._left_at = anyio.current_time()
            return data
        problem = "arrives too slowly" if whole < now + self._silence_s else "stopped in the middle"
        # "the server did not receive a complete request message within the time that it was prepared to wait"
        # -- RFC 9110, 15.5.9
        raise RequestRefused(
            f"the request body {problem} (body_timeout_s is {self._silence_s:g} s); send the request again",
            status=408,
        )

    def _taken(self, message: Message) -> bytes:
        if message["type"] == "http.disconnect":
            # serving/http1.py adds the error if the body was broken and the client has not left.
            # Taken out, because its traceback has this frame, and so the message: a reference cycle.
            raise message.pop("error", ClientDisconnected)
        data: bytes = message.get("body", b"")
        self._expects = message.get("more_body", False)
        self._received += len(data)
        if self._received > self._limit:
            raise _too_large(self._limit)
        return data

    def _unpacked(self, decoder: ContentDecoder) -> bytes | None:
        """Return unpacked bytes, perhaps none, None if it takes more of the body. Raises at a bad end of it."""
        try:
            portion = decoder.next_portion()
            if portion is None and not self._expects:
                decoder.receive_eof()
            return portion
        except TooLarge:
            raise _too_large(self._limit) from None
        except CodingError as error:
            raise RemoteProtocolError(f"the request body cannot be unpacked: {error}") from None


def _too_large(limit: int) -> RequestRefused:
    return RequestRefused(f"the request body has more than {limit} bytes", status=413)


class Parameter(msgspec.Struct, frozen=True):
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
