"""The events of one request, from the moments that its metrics and traces are made of as well."""

from collections.abc import Iterable, Mapping

from dragoman import Loss
from dragoman.jsontext import JSON
from dragoman_server.feed.events import WIRE_EVENT
from dragoman_server.feed.feed import Feed
from dragoman_server.log import RequestRecord, shorten
from dragoman_server.platform.clock import event_loop_clock

# Losses in one event. A long conversation may have one in each message.
MAX_LOSSES = 50

# Seconds between two events with the progress of a response.
PROGRESS_S = 1.0


class RequestEvents:
    """The events of one request, after it has begun. Its end is published by whoever has its complete record.

    Attributes:
        wants_wire: Call wire().
    """

    __slots__ = (
        "_attempts",
        "_bytes",
        "_feed",
        "_frames",
        "_last",
        "_record",
        "_reported",
        "_time",
        "wants_wire",
    )

    def __init__(self, feed: Feed, record: RequestRecord, worker: int) -> None:
        self._feed = feed
        self._record = record
        self.wants_wire = feed.wants_wire
        self._attempts = 0  # begun, and not failed
        self._frames = self._bytes = self._reported = 0
        self._time = event_loop_clock()
        self._last = self._time()
        begun = {
            "worker": worker,
            "protocol": record.protocol,
            "method": record.method,
            "path": shorten(record.path),
            "client_address": record.client_address,
            "client_key": record.client_key,
        }
        feed.publish("request.begun", record, known(begun))

    def planned(self, *, stream: bool, losses: Iterable[Loss], session: str | None) -> None:
        """Publish where the request goes. session: the key of its conversation."""
        record = self._record
        planned: dict[str, JSON] = {
            "client_key": record.client_key,
            "model": None if record.model is None else shorten(record.model),
            "upstream": record.upstream,
            "upstream_model": None if record.upstream_model is None else shorten(record.upstream_model),
            "upstream_protocol": record.upstream_protocol,
            "stream": stream,
            "session": None if session is None else session[:16],
            **bounded_losses([f"{loss.code.value} {loss.path}" for loss in losses]),
        }
        self._feed.publish("request.planned", record, known(planned))

    def attempt(self, upstream: str, model: str, account: str) -> None:
        """Publish that an attempt begins. model: the upstream's name of it."""
        attempt = {
            "number": self._record.attempts,
            "upstream": upstream,
            "account": account,
            "model": shorten(model),
            "hedge": self._attempts > 0,
        }
        self._attempts += 1
        self._feed.publish("request.attempt", self._record, attempt)

    def attempt_failed(self, number: int, failure: Mapping[str, JSON]) -> None:
        """Publish that an attempt has failed. failure: its row in the record."""
        self._attempts -= 1
        self._feed.publish("request.attempt_failed", self._record, {"number": number, **failure})

    def wire(self, data: Mapping[str, JSON]) -> None:
        """Publish bytes that were sent."""
        self._feed.publish(WIRE_EVENT, self._record, known(data))

    def first_byte(self) -> None:
        """Publish that the response begins."""
        record = self._record
        seconds = None if record.first_byte_s is None else round(record.first_byte_s, 4)
        first = {"status": record.status, "seconds": seconds}
        self._feed.publish("request.first_byte", record, known(first))

    def sent(self, data: bytes) -> None:
        """Count bytes that were sent to the client, and publish the counts from time to time."""
        # A piece of a stream has whole frames. What has no such frames is one itself.
        self._frames += data.count(b"\n\n") or 1
        self._bytes += len(data)
        if (now := self._time()) - self._last >= PROGRESS_S:
            self._last = now
            self._publish_progress()

    def end(self) -> None:
        """Publish the last counts."""
        if self._bytes > self._reported:
            self._publish_progress()

    def _publish_progress(self) -> None:
        self._reported = self._bytes
        progress = {"frames": self._frames, "bytes": self._bytes}
        self._feed.publish("request.progress", self._record, progress)


def publish_end(feed: Feed, record: RequestRecord, line: Mapping[str, JSON]) -> None:
    """Publish the end of a request. Its record is complete. line: the members of its line in the log."""
    ended = {**line, **bounded_losses(line.get("losses", []))}
    del ended["id"]
    feed.publish("request.ended", record, ended)


def known(data: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the members that are not None."""
    return {name: value for name, value in data.items() if value is not None}


def bounded_losses(losses: list[str]) -> dict[str, JSON]:
    """Return the first losses, and how many were left out."""
    shown: dict[str, JSON] = {"losses": list(map(shorten, losses[:MAX_LOSSES]))}
    if len(losses) > MAX_LOSSES:
        shown["losses_left_out"] = len(losses) - MAX_LOSSES
    return shown
