"""What an attempt knows about the reads of a response before its machine has them: form and size."""

from collections.abc import Sequence

from dragoman import FanOut, ResponseMachine, ResponseTranslator
from dragoman.codec import SSE
from dragoman_server.wire.headers import media_type


def is_stream(headers: Sequence[tuple[str, str]], first: bytes) -> bool:
    """True if a success response is an event stream. The first byte decides, because content types are often wrong."""
    start = first.lstrip(b" \t\r\n")[:1]
    if start:
        return start not in (b"{", b"[")
    return media_type(headers) == SSE.media_type


class UnreadBytes:
    """Counts the bytes of a stream that the machine handles at its next read, when it may be a whole large event.

    Attributes:
        bytes: At least what the machine holds, without asking it.
        left: A read that may complete a large event, so that it waits for a thread.
    """

    __slots__ = ("_machine", "bytes", "left")

    def __init__(self, machine: ResponseMachine) -> None:
        self._machine = machine
        self.bytes = 0
        self.left = b""

    def count_again(self, data: bytes) -> int:
        """Return what the machine holds, with the next read."""
        self.bytes = self._machine.held_bytes + len(data)
        return self.bytes


def receive_and_merge(fan_out: FanOut, branch: ResponseTranslator, data: bytes) -> None:
    """Pass a read of a branch, or b"" for its end, to the client's machine."""
    if data:
        branch.receive_data(data)
    else:
        branch.receive_eof()
    fan_out.merge()
