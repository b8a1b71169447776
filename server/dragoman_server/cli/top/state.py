"""What is known of a gateway from its feed: requests, accounts and rates. Events in, rows out, no I/O, no clock."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from dragoman_server.log import ERROR_OUTCOMES

# The oldest ended request goes first, and an open one only if all are open.
MAX_REQUESTS = 1000

# Attempts of one request that are kept, and accounts whose last failure is.
MAX_ATTEMPTS = 50
MAX_FAILURES = 1000

# Seconds that the rates reach back.
RATES_S = 300

OPEN = "open"
# The outcome of a request whose end was lost: the reader was slow or away, or the worker was killed.
UNKNOWN = "unknown"

# Counts by second, and measurements.
COUNTS = ("requests", "errors", "tokens")
GAUGES = ("open", "streams")


class RequestRow(msgspec.Struct, frozen=True):
    """One request.

    Attributes:
        at: When it began, as far as that is known.
        members: Of all its events; those of a later event replace earlier ones.
        attempts: The members of an attempt's events, by its number.
    """

    id: str
    at: float
    members: Mapping[str, Any]
    attempts: Mapping[int, Mapping[str, Any]]

    @property
    def outcome(self) -> str:
        return str(self.members.get("outcome", OPEN))

    @property
    def losses(self) -> int:
        return len(self.members.get("losses", ())) + int(self.members.get("losses_left_out", 0))

    def duration_s(self, now: float) -> float | None:
        """Return how long it took, or has taken by now; None if its end is not known."""
        if self.outcome == OPEN:
            return max(0.0, now - self.at)
        known: float | None = self.members.get("duration_s")
        return known


class AccountRow(msgspec.Struct, frozen=True):
    """One account. cools_until: seconds since the epoch. last_error: why it cools, or how its last attempt failed."""

    id: str
    state: str
    cools_until: float | None
    cooldowns: int
    last_used: float | None
    last_error: str


class TopState:
    """The state of one gateway. Pass it events and accounts as they come, and call tick() a few times a second.

    Attributes:
        away: Why the gateway is not connected, "" while it is.
        version, workers: Of the gateway; the process ids of its workers.
        lost: How many events the feed has dropped because they were not read fast enough.
    """

    def __init__(self, now: float, max_requests: int = MAX_REQUESTS) -> None:
        self.away = "connecting"
        self.version = ""
        self.workers: set[int] = set()
        self.lost = 0
        self._max_requests = max_requests
        self._open: dict[str, RequestRow] = {}
        self._ended: dict[str, RequestRow] = {}
        self._accounts: list[Mapping[str, Any]] = []
        self._failures: dict[str, str] = {}
        self._began = int(now)
        self._seconds: dict[int, dict[str, float]] = {}

    # What comes in.

    def receive(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take an event. kind: its type."""
        match kind:
            case "hello":
                self.away, self.version, self.workers = "", data["version"], set(data["workers"])
                if not data["resumed"]:
                    self._lose_open()
            case "lost":
                self.lost += data["count"]
                self._lose_open(data["worker"])
            case "worker.joined":
                self.workers.add(data["worker"])
            case "worker.left":
                self.workers.discard(data["worker"])
                self._lose_open(data["worker"])
            case _ if kind.startswith("request."):
                self._receive_request(kind, data)

    def receive_accounts(self, accounts: Iterable[Mapping[str, Any]]) -> None:
        """Take the list of GET /admin/accounts."""
        self._accounts = list(accounts)

    def disconnected(self, reason: str) -> None:
        self.away = reason

    def tick(self, now: float) -> None:
        """Measure the open requests."""
        second = self._second(int(now))
        second["open"] = self.open
        second["streams"] = sum(1 for each in self._open.values() if each.members.get("stream"))

    # What is shown.

    @property
    def open(self) -> int:
        """How many requests are open."""
        return len(self._open)

    def requests(self) -> list[RequestRow]:
        """Return all requests, in no order."""
        return [*self._open.values(), *self._ended.values()]

    def find(self, id: str) -> RequestRow | None:
        return self._open.get(id) or self._ended.get(id)

    def accounts(self) -> list[AccountRow]:
        return [
            AccountRow(
                id=row["id"],
                state=row["state"],
                cools_until=_seconds_of(row.get("cools_until")),
                cooldowns=row.get("consecutive_cooldowns", 0),
                last_used=_seconds_of(row.get("last_used")),
                last_error=row.get("cause") or self._failures.get(row["id"], ""),
            )
            for row in self._accounts
        ]

    def series(self, name: str, now: float) -> list[float]:
        """Return a count or a measure of each whole second that is remembered, the last one last."""
        seconds, first = self._seconds, max(self._began, int(now) - RATES_S)
        return [seconds.get(each, {}).get(name, 0.0) for each in range(first, int(now))]

    # One event.

    def _receive_request(self, kind: str, data: Mapping[str, Any]) -> None:
        id, at = data["request"], data["at"]
        known = self.find(id)
        if known is not None and known.outcome not in (OPEN, UNKNOWN):
            return
        members = {name: value for name, value in data.items() if name not in ("request", "at")}
        if known is None:
            known = RequestRow(id, at - members.get("duration_s", 0.0), {}, {})
            self._count(known.at, "requests")
        attempts = known.attempts
        match kind:
            case "request.attempt" | "request.attempt_failed":
                number = members.pop("number")
                attempt = {**attempts.get(number, {}), **members}
                attempts = dict([*attempts.items(), (number, attempt)][-MAX_ATTEMPTS:])
                members = {"account": members["account"]}
                if "cause" in attempt:
                    self._note_failure(attempt)
            case "request.first_byte":
                members["first_byte_s"] = members.pop("seconds")
            case "request.ended":
                failures = members.pop("failures", ())
                attempts = attempts or dict(enumerate(failures[:MAX_ATTEMPTS], 1))
                self._count(at, "errors", members["outcome"] in ERROR_OUTCOMES)
                self._count(at, "tokens", members.get("input_tokens", 0) + members.get("output_tokens", 0))
        before = {name: value for name, value in known.members.items() if name != "outcome"}
        self._keep(msgspec.structs.replace(known, members={**before, **members}, attempts=attempts))

    def _keep(self, request: RequestRow) -> None:
        self._open.pop(request.id, None)
        self._ended.pop(request.id, None)
        (self._open if request.outcome == OPEN else self._ended)[request.id] = request
        while len(self._open) + len(self._ended) > self._max_requests:
            oldest = self._ended or self._open
            del oldest[next(iter(oldest))]

    def _lose_open(self, worker: int | None = None) -> None:
        """Note that the end of open requests may never come: of one worker's, or of all. If more comes, they go on."""
        for each in list(self._open.values()):
            if worker is None or each.members.get("worker", worker) == worker:
                self._keep(msgspec.structs.replace(each, members={**each.members, "outcome": UNKNOWN}))

    def _note_failure(self, attempt: Mapping[str, Any]) -> None:
        self._failures.pop(attempt["account"], None)
        status = f"{attempt['status']} " if attempt.get("status") else ""
        self._failures[attempt["account"]] = f"{status}{attempt['kind']}: {attempt['cause']}"
        if len(self._failures) > MAX_FAILURES:
            del self._failures[next(iter(self._failures))]

    def _count(self, at: float, name: str, amount: float = 1) -> None:
        second = self._second(int(at))
        second[name] = second.get(name, 0) + amount

    def _second(self, number: int) -> dict[str, float]:
        found = self._seconds.setdefault(number, {})
        # One more for the second that has begun.
        while len(self._seconds) > RATES_S + 1:
            del self._seconds[min(self._seconds)]
        return found


def _seconds_of(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp()


def mean(values: list[float], count: int) -> float:
    """Return the mean of the last values, 0 without any."""
    last = values[-count:]
    return sum(last) / len(last) if last else 0.0
