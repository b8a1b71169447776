"""The events of one request, from the moments that its metrics and traces are made of as well."""

from collections.abc import Callable, Mapping
from time import time

from dragoman import Ledger
from dragoman.jsontext import JSON, JSONObject
from dragoman_server.feed.events import WIRE_EVENT
from dragoman_server.feed.feed import Feed
from dragoman_server.log import RequestRecord, shorten

# Losses in one event. A long conversation may have one in each message.
MAX_LOSSES = 50

# Seconds between two events with the progress of a response.
PROGRESS_S = 1.0


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
        self._publish(
            "request.begun",
            worker=worker,
            protocol=record.protocol,
            path=shorten(record.path),
            method=record.method,
            client_address=record.client_address,
            client_key=record.client_key,
        )

    def _publish(self, kind: str, /, **members: JSON) -> None:
        """Publish an event, without what is not known. The members of each are explained in docs/feed.md."""
        data: JSONObject = {"request": self._record.id, "at": time()}
        for name, value in members.items():  # a comprehension would be one more call
            if value is not None:
                data[name] = value
        self._feed.publish(kind, self._record, data)

    def planned(self, *, stream: bool, losses: Ledger, session: str | None) -> None:
        """Publish where the request goes. session: the key of its conversation."""
        record = self._record
        texts, left_out = list[str](), None
        if losses:
            texts, left_out = bounded_losses([f"{loss.code.value} {loss.path}" for loss in losses])
        self._publish(
            "request.planned",
            stream=stream,
            losses=texts,
            losses_left_out=left_out,
            client_key=record.client_key,
            model=record.model and shorten(record.model),
            upstream=record.upstream,
            upstream_model=record.upstream_model and shorten(record.upstream_model),
            upstream_protocol=record.upstream_protocol,
            session=session and session[:16],
        )

    def attempt(self, upstream: str, model: str, account: str) -> None:
        """Publish that an attempt begins. model: the upstream's name of it."""
        number, hedge = self._record.attempts, self._attempts > 0
        self._attempts += 1
        self._publish(
            "request.attempt",
            number=number,
            upstream=upstream,
            account=account,
            model=shorten(model),
            hedge=hedge,
        )

    def attempt_failed(self, number: int, failure: Mapping[str, JSON]) -> None:
        """Publish that an attempt has failed. failure: its row in the record."""
        self._attempts -= 1
        self._publish("request.attempt_failed", number=number, **failure)

    def wire(self, data: Mapping[str, JSON]) -> None:
        """Publish bytes that were sent."""
        self._publish(WIRE_EVENT, **data)

    def first_byte(self) -> None:
        """Publish that the response begins."""
        seconds = self._record.first_byte_s and round(self._record.first_byte_s, 4)
        self._publish("request.first_byte", status=self._record.status, seconds=seconds)

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
        self._reported = self._bytes
        self._publish("request.progress", frames=self._frames, bytes=self._bytes)


def with_bounded_losses(line: JSONObject) -> JSONObject:
    """Return the members of a request's line in the log, with as many losses as an event has."""
    losses, left_out = bounded_losses(line["losses"])
    return {**line, "losses": losses, **({} if left_out is None else {"losses_left_out": left_out})}


def bounded_losses(losses: list[str]) -> tuple[list[str], int | None]:
    """Return the first losses, and how many were left out, None if none was."""
    shown = [shorten(loss) for loss in losses[:MAX_LOSSES]]
    return shown, len(losses) - len(shown) or None
