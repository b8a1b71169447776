"""The events of one request, from the moments that its metrics and traces are made of as well."""

from collections.abc import Callable, Mapping
from time import time

import msgspec

from dragoman import Ledger
from dragoman.jsontext import JSON, JSONObject
from dragoman_server.feed.events import WIRE_EVENT
from dragoman_server.feed.feed import Feed
from dragoman_server.log import RequestRecord, shorten

# Losses in one event. A long conversation may have one in each message.
MAX_LOSSES = 50

# Seconds between two events with the progress of a response.
PROGRESS_S = 1.0


class _RequestData(msgspec.Struct, omit_defaults=True, gc=False):
    """The data of an event, without what is not known. The members of each are explained in docs/feed.md."""

    request: str
    at: float


class _Begun(_RequestData):
    worker: int
    protocol: str
    path: str
    method: str | None = None
    client_address: str | None = None
    client_key: str | None = None


class _Planned(_RequestData):
    stream: bool
    losses: list[str]
    losses_left_out: int | None = None
    client_key: str | None = None
    model: str | None = None
    upstream: str | None = None
    upstream_model: str | None = None
    upstream_protocol: str | None = None
    session: str | None = None


class _AttemptBegun(_RequestData):
    number: int | None
    upstream: str
    account: str
    model: str
    hedge: bool


class _FirstByte(_RequestData):
    status: int | None = None
    seconds: float | None = None


class _Progress(_RequestData):
    frames: int
    bytes: int


class RequestEvents:
    """The events of one request, after it has begun. Its end is added by whoever has its complete record.

    Args:
        clock: of the event loop.

    Attributes:
        wants_wire: Call wire().
    """

    __slots__ = (
        "_attempts",
        "_bytes",
        "_clock",
        "_feed",
        "_frames",
        "_last",
        "_record",
        "_reported",
        "wants_wire",
    )

    def __init__(self, feed: Feed, record: RequestRecord, worker: int, clock: Callable[[], float]) -> None:
        self._feed = feed
        self._record = record
        self.wants_wire = feed.wants_wire
        self._attempts = 0  # begun, and not failed
        self._frames = self._bytes = self._reported = 0
        self._clock = clock
        self._last = clock()
        begun = _Begun(
            record.id,
            time(),
            worker,
            record.protocol,
            shorten(record.path),
            record.method,
            record.client_address,
            record.client_key,
        )
        feed.publish("request.begun", record, begun)

    def planned(self, *, stream: bool, losses: Ledger, session: str | None) -> None:
        """Publish where the request goes. session: the key of its conversation."""
        record = self._record
        texts, left_out = list[str](), None
        if losses:
            texts, left_out = bounded_losses([f"{loss.code.value} {loss.path}" for loss in losses])
        planned = _Planned(
            record.id,
            time(),
            stream,
            texts,
            left_out,
            record.client_key,
            record.model and shorten(record.model),
            record.upstream,
            record.upstream_model and shorten(record.upstream_model),
            record.upstream_protocol,
            session and session[:16],
        )
        self._feed.publish("request.planned", record, planned)

    def attempt(self, upstream: str, model: str, account: str) -> None:
        """Publish that an attempt begins. model: the upstream's name of it."""
        record = self._record
        attempt = _AttemptBegun(
            record.id, time(), record.attempts, upstream, account, shorten(model), self._attempts > 0
        )
        self._attempts += 1
        self._feed.publish("request.attempt", record, attempt)

    def attempt_failed(self, number: int, failure: Mapping[str, JSON]) -> None:
        """Publish that an attempt has failed. failure: its row in the record."""
        record = self._record
        self._attempts -= 1
        failed = {"request": record.id, "at": time(), "number": number, **failure}
        self._feed.publish("request.attempt_failed", record, failed)

    def wire(self, data: Mapping[str, JSON]) -> None:
        """Publish bytes that were sent."""
        record = self._record
        known = {name: value for name, value in data.items() if value is not None}
        self._feed.publish(WIRE_EVENT, record, {"request": record.id, "at": time(), **known})

    def first_byte(self) -> None:
        """Publish that the response begins."""
        record = self._record
        seconds = record.first_byte_s and round(record.first_byte_s, 4)
        self._feed.publish(
            "request.first_byte", record, _FirstByte(record.id, time(), record.status, seconds)
        )

    def sent(self, data: bytes) -> None:
        """Count bytes that were sent to the client, and publish the counts from time to time."""
        # A piece of a stream has whole frames. What has no such frames is one itself.
        self._frames += data.count(b"\n\n") or 1
        self._bytes += len(data)
        if (now := self._clock()) - self._last >= PROGRESS_S:
            self._last = now
            self._publish_progress()

    def end(self) -> None:
        """Publish the last counts."""
        if self._bytes > self._reported:
            self._publish_progress()

    def _publish_progress(self) -> None:
        record = self._record
        self._reported = self._bytes
        self._feed.publish(
            "request.progress", record, _Progress(record.id, time(), self._frames, self._bytes)
        )


def with_bounded_losses(line: JSONObject) -> JSONObject:
    """Return the members of a request's line in the log, with as many losses as an event has."""
    losses, left_out = bounded_losses(line["losses"])
    return {**line, "losses": losses, **({} if left_out is None else {"losses_left_out": left_out})}


def bounded_losses(losses: list[str]) -> tuple[list[str], int | None]:
    """Return the first losses, and how many were left out, None if none was."""
    shown = [shorten(loss) for loss in losses[:MAX_LOSSES]]
    return shown, len(losses) - len(shown) or None
