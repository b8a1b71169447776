"""Watches a relayed Chat Completions stream: did it end, did it fail, what did it use.

Strategy: a relay must stay cheap, so a frame is decoded only when its bytes show that it says one of these
things. Quotes inside JSON strings are escaped, so text that a model wrote cannot look like a member.
"""

from __future__ import annotations

from dragoman._ir.errors import Fault
from dragoman._ir.events import Usage
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSONObject, decode
from dragoman._wire.sse import Frame
from dragoman.codec import Exchange
from dragoman.protocols.openai_chat.errors import error_frame, fault_of, is_error
from dragoman.protocols.openai_chat.tables import STOP_FAULTS
from dragoman.protocols.openai_chat.usage import read_usage


class ChatTap:
    """The tap of one stream.

    ended: [DONE] came behind an answer, or a finish reason (there are servers that never send [DONE]).
    """

    __slots__ = ("_started", "begun", "ended", "fault", "last", "usage", "whole")

    def __init__(self, exchange: Exchange) -> None:
        self.usage = Usage()
        self.begun = False
        self.ended = False
        self.last = False
        self.fault: Fault | None = None
        self.whole: JSONObject | None = None  # no frame repeats the answer
        self._started = False

    def watch(self, frame: Frame) -> None:
        data = frame.data
        if data == b"[DONE]":
            self.last = True
            self.ended = self.ended or self._started
            return
        if self.begun and _says_nothing(data) and frame.event != b"error":
            return
        try:
            chunk = decode(data)
        except RemoteProtocolError:
            chunk = None
        if frame.event == b"error" or (type(chunk) is dict and is_error(chunk)):
            said = chunk if type(chunk) is dict else {"error": data.decode("utf-8", "replace")}
            self.fault = self.fault or fault_of(said, None)
        if type(chunk) is dict:
            self._look(chunk)

    def _look(self, chunk: JSONObject) -> None:
        usage = chunk.get("usage")
        if type(usage) is dict:
            self.usage = self.usage.updated(read_usage(usage))
        choices = chunk.get("choices")
        for choice in choices if type(choices) is list else ():
            if type(choice) is not dict:
                continue
            self._started = True
            delta = choice.get("delta")
            # The first chunk names the role, and some servers put an empty text beside it.
            if type(delta) is dict and any(value for name, value in delta.items() if name != "role"):
                self.begun = True
            finish = choice.get("finish_reason")
            if type(finish) is str and finish:
                self.ended = True
                failed = STOP_FAULTS.get(finish)
                if failed is not None and self.fault is None:
                    message = f"the upstream stopped with finish_reason {finish}"
                    self.fault = Fault(failed, message, code=finish)

    def fail(self, fault: Fault) -> bytes:
        return error_frame(fault)


# The forms in which nearly all servers say that a choice goes on, and that the usage comes later.
_UNFINISHED = b'"finish_reason":null'
_NO_USAGE = b'"usage":null'


def _says_nothing(data: bytes) -> bool:
    """Of usage, the end, or an error."""
    return _UNFINISHED in data and b'"error"' not in data and (b'"usage"' not in data or _NO_USAGE in data)
