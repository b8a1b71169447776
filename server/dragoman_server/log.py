"""Log one line per request: models, upstream, outcome, usage and losses; at level debug also the decisions about it.

It uses the standard library's logging, so an embedding application decides where lines go. There are never bodies, keys
or header values in them. As JSON a line has every field. As text, for people, a request is a short line with its failed
attempts indented below it; control characters are escaped and the lines of a traceback indented, so a model name cannot
forge a line.

The command writes all lines of its process in this form: also lines of event loops and libraries, warnings, and
uncaught exceptions. The secrets of the settings are removed from each line, and lines that repeat are left out and
counted.
"""

import json
import logging
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from operator import attrgetter
from types import TracebackType
from typing import Any, TextIO, TypeAlias

import msgspec

from dragoman.errors import mask_value
from dragoman_server.platform.log_stream import LogStream, is_coloured
from dragoman_server.settings.secret import Mask

REQUESTS = logging.getLogger("dragoman.requests")
# Outcomes of requests that count as errors.
ERROR_OUTCOMES = ("failed", "refused")
# How requests are routed, planned and sent, and their losses: see log_decision().
DECISIONS = logging.getLogger("dragoman.decisions")

# Characters of a text from outside (a model name, a path, an error's message) in a line.
_MAX_TEXT_LENGTH = 500

# A line that repeats is written MAX_REPEATS times in REPEAT_WINDOW_S seconds. Otherwise an error in each connection
# fills the disk, with up to 80 MB of tracebacks in a minute.
MAX_REPEATS = 20
REPEAT_WINDOW_S = 10.0


class RequestRecord(msgspec.Struct, omit_defaults=True):
    """The fields of one request's log line. Times are seconds. None: the request did not get that far.

    Attributes:
        upstream, upstream_protocol, upstream_model, account: Those of the attempt that the client's response came from.
        rule: The rule that has led to another model than the client named.
        failures: The attempts that failed before anything was sent to the client: see note_failure().
        skipped: Accounts that could not be tried, and why, if the request went to a fallback or nowhere.
        upstream_completed: The client left before the end, but the upstream's response, and its usage, is complete.
        error, error_kind: The error for people, and its class, a value of ErrorKind.
        planned_s: Until it was planned, where sent_s (until it was last sent), first_byte_s and first_content_s begin.
        first_content_s: If heartbeats came before the first content.
    """

    id: str
    protocol: str
    path: str
    method: str | None = None
    client_address: str | None = None
    client_key: str | None = None
    group: str | None = None
    model: str | None = None
    upstream: str | None = None
    upstream_protocol: str | None = None
    upstream_model: str | None = None
    rule: str | None = None
    account: str | None = None
    attempts: int | None = None
    failures: list[dict[str, object]] = []
    skipped: dict[str, str] | None = None
    hedge: dict[str, object] | None = None
    stream: bool | None = None
    background: bool | None = None
    status: int | None = None
    upstream_status: int | None = None
    outcome: str = msgspec.field(default_factory=partial(str, "open"))  # so that it is never omitted
    upstream_completed: bool | None = None
    error: str | None = None
    error_kind: str | None = None
    planned_s: float | None = None
    sent_s: float | None = None
    first_byte_s: float | None = None
    first_content_s: float | None = None
    duration_s: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cached_share: float | None = None
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    reasoning_tokens: int | None = None
    units: dict[str, float] | None = None
    cost_usd: float | None = None
    estimated: bool | None = None
    losses: list[str] = []
    trace_id: str | None = None

    def note_failure(
        self, account: str, model: str, status: int | None, kind: str, cause: str, seconds: float
    ) -> None:
        """Add a failed attempt. model: `upstream/model`. status: of the upstream's response, if there was one.

        kind: of the error, a value of ErrorKind. cause: the error for people.
        """
        row = {"account": account, "model": shorten(model), "status": status, "kind": kind}
        outcome = {"cause": shorten(cause), "seconds": round(seconds, 4)}
        self.failures.append({**{name: value for name, value in row.items() if value is not None}, **outcome})

    def as_dict(self) -> dict[str, object]:
        """Return the known fields, times rounded to a tenth of a millisecond, money to a millionth of a cent."""
        known: dict[str, Any] = msgspec.to_builtins(self)
        for name, parts in _PARTS:
            if name in known:
                known[name] = int(known[name] * parts + 0.5) / parts  # a third of the time of round()
        # Hardly any text from outside is too long, and it costs less to add them up. All others are the gateway's.
        if len("".join(filter(None, _FROM_OUTSIDE(self)))) > _MAX_TEXT_LENGTH:
            known.update({name: shorten(text) for name, text in known.items() if isinstance(text, str)})
        return known


_KINDS = RequestRecord.__annotations__.items()
_PARTS = [(name, 1e4 if name.endswith("_s") else 1e8) for name, kind in _KINDS if kind == float | None]
_FROM_OUTSIDE = attrgetter("method", "path", "model", "upstream_model", "error")


def log_request(record: RequestRecord) -> dict[str, object] | None:
    """Write the line. INFO when it went well or the client left, WARNING when it failed. Return its members."""
    level = logging.WARNING if record.outcome == "failed" else logging.INFO
    if not REQUESTS.isEnabledFor(level):
        return None
    line = record.as_dict()
    if (handler := _only_handler()) is not None and handler.lock is not None:
        with handler.lock:  # as handle() does
            handler.emit(_RequestLine(line, level, logging.getLevelName(level), time.time()))
        return line
    # Not by log(), which looks for its caller in the stack.
    REQUESTS.handle(
        REQUESTS.makeRecord(REQUESTS.name, level, __file__, 0, "request", (), None, extra={"dragoman": line})
    )
    return line


class _RequestLine(msgspec.Struct, frozen=True):
    """What our handler and formatters use of a record. A LogRecord costs as much as to format it."""

    dragoman: dict[str, object]
    levelno: int
    levelname: str
    created: float
    name: str = REQUESTS.name
    msg: str = "request"
    exc_info: None = None

    def getMessage(self) -> str:
        return self.msg


_Record: TypeAlias = logging.LogRecord | _RequestLine


def _only_handler() -> "_Handler | None":
    """Return our handler if it is the only place that the line of a request goes to."""
    parent = REQUESTS.parent
    if parent is None or parent.propagate or not REQUESTS.propagate or REQUESTS.handlers or REQUESTS.filters:
        return None
    only = parent.handlers[0] if len(parent.handlers) == 1 else None
    if type(only) is not _Handler or only.filters or only.level:
        return None
    return only if type(only.formatter) in (JSONFormatter, TextFormatter) else None


def log_decision(id: str, text: str, *args: object) -> None:
    """Write a line about a request, by its id. args: may come from outside, but are no bodies and no header values.

    Where a line takes work, check DECISIONS.isEnabledFor(DEBUG) first.
    """
    DECISIONS.debug(text, *args, extra={"dragoman": {"id": id}})


class _Formatter(logging.Formatter):
    """Base of the formats.

    Args:
        mask: removes secrets from a line.
    """

    def __init__(self, mask: Mask | None = None) -> None:
        super().__init__()
        self._mask = mask or Mask(())

    def formatTime(self, record: _Record, datefmt: str | None = None) -> str:
        """Return the local time to a millisecond. datefmt: a form, with %f for the milliseconds."""
        before, after = _format_second(int(record.created), datefmt or "%H:%M:%S.%f")
        return f"{before}{int(record.created * 1000) % 1000:03}{after}"


@lru_cache(maxsize=2)
def _format_second(second: int, form: str) -> tuple[str, str]:
    """Return what is before the milliseconds, and behind them."""
    before, _, after = (time.strftime(part, time.localtime(second)) for part in form.partition("%f"))
    # With a colon, as in RFC 3339: %:z is new in Python 3.12.
    return before, f"{after[:-2]}:{after[-2:]}" if form.endswith("%z") else after


_encode_utf8 = msgspec.json.Encoder(enc_hook=str).encode
_encode_ascii = json.JSONEncoder(ensure_ascii=True, default=str).encode


def _encode(line: object) -> str:
    """Return JSON in ASCII, with blanks behind `:` and `,`. Nearly all lines need no escapes; msgspec makes none."""
    try:
        return msgspec.json.format(_encode_utf8(line), indent=0).decode("ascii")
    except UnicodeError:  # also of half a surrogate pair
        return _encode_ascii(line)


class JSONFormatter(_Formatter):
    """Format a record as one JSON object."""

    def format(self, record: _Record) -> str:
        line: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S.%f%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        line.update(getattr(record, "dragoman", {}))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        text, mask = _encode(line), self._mask
        # Without escapes the text has each string as it is, and it costs less to look at it once.
        if mask.may_change_values(line.values()) if "\\" in text else mask.may_change(text):
            return _encode(mask_value(line, mask))
        return text


_RED, _GREEN, _YELLOW = 31, 32, 33
_LEVEL_COLOURS = {"warning": _YELLOW, "error": _RED, "critical": _RED}
_OUTCOME_COLOURS = {"completed": _GREEN, "websocket_refused": None, "failed": _RED}  # others: yellow


class TextFormatter(_Formatter):
    """Format a record for people: a request as below, anything else as `time level message key=value ...`

        12:03:04.512 POST /v1/messages claude-x -> local/qwen3 200 0.31s 12>40 tokens, 1 loss
            local/a (local/qwen3) failed with 429 after 0.1s: slow down

    Args:
        mask: see _Formatter.
        coloured: statuses and levels have colours.
        with_ids: lines of requests have their ids.
    """

    def __init__(self, mask: Mask | None = None, *, coloured: bool = False, with_ids: bool = False) -> None:
        super().__init__(mask)
        self._coloured = coloured
        self._with_ids = with_ids

    def format(self, record: _Record) -> str:
        known = getattr(record, "dragoman", {})
        text = self._line(record, known)
        if not self._mask.may_change(text):
            return text
        # Value by value, because a value may end inside a secret; then the whole line, for message and traceback.
        return self._mask(self._line(record, mask_value(known, self._mask)))

    def _line(self, record: _Record, known: Mapping[str, Any]) -> str:
        time = self.formatTime(record)
        if record.name == REQUESTS.name and "path" in known:
            return "\n    ".join([f"{time} {self._request(known)}", *_failure_lines(known)])
        level = record.levelname.lower()
        words = [time, self._painted(level, _LEVEL_COLOURS.get(level)), _escaped(_message(record))]
        words += [f"{key}={_plain(value)}" for key, value in known.items()]
        text = " ".join(words)
        if record.exc_info:
            # The message of an exception may hold line ends that came from outside.
            lines = self.formatException(record.exc_info).splitlines()
            text += "".join(f"\n    {_escaped(line)}" for line in lines)
        return text

    def _request(self, known: Mapping[str, Any]) -> str:
        words = [_plain(known[name]) for name in ("method", "path", "model") if name in known]
        if "upstream" in known:
            words += ["->", _plain(f"{known['upstream']}/{known.get('upstream_model', '')}")]
        colour = _OUTCOME_COLOURS.get(known["outcome"], _YELLOW)
        words.append(self._painted(str(known.get("status", "-")), colour))
        if "duration_s" in known:
            words.append(_seconds(known["duration_s"]))
        details = ", ".join(_details(known))
        if self._with_ids:
            details += f"{', ' if details else ''}id={_plain(known['id'])}"
        return " ".join([*words, details] if details else words)

    def _painted(self, text: str, colour: int | None) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._coloured and colour else text


def _details(known: Mapping[str, Any]) -> Iterator[str]:
    """Yield what follows the duration in the line of a request."""
    if known["outcome"] != "completed":
        yield _escaped(known["outcome"].replace("_", " "))
        if "rule" in known:
            yield f"by {_escaped(known['rule'])}"
    if "input_tokens" in known or "output_tokens" in known:
        about = "~" if known.get("estimated") else ""
        cached = f" ({known['cached_share']:.0%} cached)" if known.get("cached_share") else ""
        yield f"{about}{known.get('input_tokens', '-')}>{known.get('output_tokens', '-')} tokens{cached}"
    if "cost_usd" in known:
        yield f"${known['cost_usd']:.6f}".rstrip("0").rstrip(".")
    if losses := known.get("losses"):
        yield "1 loss" if len(losses) == 1 else f"{len(losses)} losses"
    if known.get("stream") and "first_byte_s" in known:
        yield f"first byte {_seconds(known['first_byte_s'])}"
    if known.get("attempts", 1) > 1:
        yield f"{known['attempts']} attempts"
    if "hedge" in known:
        yield f"hedge {_plain(known['hedge'].get('account'))} {_plain(known['hedge'].get('outcome'))}"
    if "client_key" in known:
        yield f"key {_plain(known['client_key'])}"
    if "client_address" in known and known["client_address"] not in _LOOPBACK:
        yield f"from {_plain(known['client_address'])}"


# A client on the same machine is the usual one where a person looks at a terminal.
_LOOPBACK = ("127.0.0.1", "::1")


def _failure_lines(known: Mapping[str, Any]) -> Iterator[str]:
    """Yield what was skipped, the failed attempts, then the error if it is none of theirs, with the client's id."""
    if skipped := known.get("skipped"):
        yield f"skipped {_escaped(', '.join(f'{account} ({why})' for account, why in skipped.items()))}"
    failures = known.get("failures", ())
    for failure in failures:
        status = f" with {failure['status']}" if "status" in failure else ""
        what = f"{_plain(failure['account'])} ({_plain(failure['model'])}) failed{status}"
        yield f"{what} after {_seconds(failure['seconds'])}: {_escaped(failure['cause'])}"
    if (error := known.get("error")) is not None:
        request = f"request {_plain(known['id'])}"
        repeated = any(failure["cause"] == error for failure in failures)
        yield request if repeated else f"{_escaped(error)} ({request})"


def _seconds(value: float) -> str:
    """Format a time: two digits after the point below ten seconds, then one, then none."""
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}s"


class _Handler(logging.StreamHandler[LogStream]):
    """Write lines, except those that repeat too often."""

    formatter: JSONFormatter | TextFormatter

    def __init__(self, stream: TextIO, formatter: JSONFormatter | TextFormatter) -> None:
        super().__init__(LogStream(stream, self._warning))
        self.formatter = formatter
        self._repeats: Counter[_LineKind] = Counter()
        self._since = 0.0

    def emit(self, record: _Record) -> None:
        if record.created - self._since >= REPEAT_WINDOW_S:
            for left_out in self._left_out():
                self._write(left_out)
            self._since = record.created
        if record.name not in _UNLIMITED:
            kind = _LineKind.of(record)
            self._repeats[kind] += 1
            if self._repeats[kind] > MAX_REPEATS:
                return
        self._write(record)

    def _write(self, record: _Record) -> None:
        try:
            self.stream.write(f"{self.formatter.format(record)}\n")
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Write the counts of lines left out so far, because the process ends."""
        for left_out in self._left_out():
            self.handle(left_out)
        super().close()

    def _warning(self, text: str) -> str:
        record = logging.LogRecord("dragoman.server", logging.WARNING, "", 0, text, None, None)
        return f"{self.formatter.format(record)}\n"

    def handleError(self, record: _Record) -> None:
        """Do nothing: stderr itself fails, and there is no other place to report that."""

    def _left_out(self) -> Iterator[logging.LogRecord]:
        repeats, self._repeats = self._repeats, Counter()
        for kind, count in repeats.items():
            if count > MAX_REPEATS:
                more = (count - MAX_REPEATS, kind.words)
                text = "lines left out: %d more like: %s"
                yield logging.LogRecord(kind.logger, kind.level, "", 0, text, more, None)


# Every request has its lines.
_UNLIMITED = (REQUESTS.name, DECISIONS.name)


class _LineKind(msgspec.Struct, frozen=True):
    """The parts that two lines have in common if one repeats the other."""

    logger: str
    level: int
    words: str
    failed: type[BaseException] | None

    @classmethod
    def of(cls, record: _Record) -> "_LineKind":
        # Event loops write numbers and addresses of objects into the text itself.
        words = _NUMBER.sub("0", shorten(str(record.msg).partition("\n")[0]))
        return cls(record.name, record.levelno, words, record.exc_info[0] if record.exc_info else None)


_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")


def configure_logging(level: str, form: str, stream: TextIO | None = None, mask: Mask | None = None) -> None:
    """Send Dragoman's lines to stderr. Only the `dragoman` command calls this; a library never should.

    mask: see Settings.mask.
    """
    out = stream or sys.stderr
    formatter: JSONFormatter | TextFormatter = JSONFormatter(mask)
    if form == "text" or (form == "auto" and out.isatty()):
        formatter = TextFormatter(mask, coloured=is_coloured(out, os.environ), with_ids=level == "debug")
    handler = _Handler(out, formatter)
    logger = logging.getLogger("dragoman")
    for before in logger.handlers:
        if isinstance(before, _Handler):
            before.close()  # a reload replaces it, and what it has left out would not be counted
            handler.stream.follow(before.stream)
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())


def capture_foreign_logs() -> None:
    """Write everything else that this process reports on stderr in the form of Dragoman's own lines.

    These are the lines of all other loggers from WARNING on (at lower levels some log the bytes on the wire),
    warnings, and uncaught exceptions. Call it after configure_logging().
    """
    root = logging.getLogger()
    root.handlers[:] = logging.getLogger("dragoman").handlers
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)
    # Its own level, so that the error which ends the process is never left out as a repetition.
    sys.excepthook = lambda kind, error, trace: _uncaught(logging.CRITICAL, kind, error, trace)
    threading.excepthook = lambda it: _uncaught(logging.ERROR, it.exc_type, it.exc_value, it.exc_traceback)
    sys.unraisablehook = lambda it: _uncaught(logging.ERROR, it.exc_type, it.exc_value, it.exc_traceback)


def _uncaught(
    level: int, kind: type[BaseException], error: BaseException | None, trace: TracebackType | None
) -> None:
    if not issubclass(kind, SystemExit | KeyboardInterrupt):
        info = None if error is None else (kind, error, trace)
        logging.getLogger("dragoman.errors").log(level, "uncaught %s", kind.__name__, exc_info=info)


def _message(record: _Record) -> str:
    try:
        return record.getMessage()
    except Exception:  # the arguments do not fit the format
        return str(record.msg)


def shorten(text: str) -> str:
    """Cut a text from outside to what a line has of it."""
    return text if len(text) <= _MAX_TEXT_LENGTH else f"{text[:_MAX_TEXT_LENGTH]}..."


def _plain(value: object) -> str:
    """Format a value after `key=`: in quotes if it would not be one word."""
    text = _joined(value)
    is_word = text.isprintable() and " " not in text and '"' not in text
    return text if is_word else json.dumps(text, ensure_ascii=True)


def _joined(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_joined, value))
    if isinstance(value, dict):
        return " ".join(f"{key}={element}" for key, element in value.items())
    return str(value)


def _escaped(text: str) -> str:
    return text if text.isprintable() else json.dumps(text, ensure_ascii=True)[1:-1]
