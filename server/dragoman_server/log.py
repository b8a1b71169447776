"""One line per request: what was asked, who answered, how it ended, what was lost.

Strategy: the standard library's logging, so that an embedding application decides where lines go; this module
only makes the record. Never bodies, never keys, never header values. In text form, control characters are
escaped and the lines of a traceback indented, so a model name cannot forge a second line.
"""

import json
import logging
import sys
from dataclasses import dataclass, field, fields
from typing import TextIO

REQUESTS = logging.getLogger("dragoman.requests")

# Characters of a text from outside (a model name, a path, an error's message) that a line shows.
_LONGEST = 500


@dataclass(slots=True)
class RequestRecord:
    """What is known of one request. Times are seconds. None: it never came that far.

    upstream, upstream_protocol, upstream_model, account: of the attempt whose answer or error the client was told.
    attempts: how many were made. failures: each that failed before the client saw anything of it: see note_failure().
    upstream_completed: the client left before it had the end, but the upstream's answer, and its usage, is complete.
    """

    id: str
    protocol: str
    path: str
    client_key: str | None = None
    model: str | None = None
    upstream: str | None = None
    upstream_protocol: str | None = None
    upstream_model: str | None = None
    account: str | None = None
    attempts: int | None = None
    failures: list[dict[str, object]] = field(default_factory=list)
    hedge: dict[str, object] | None = None
    stream: bool | None = None
    status: int | None = None
    upstream_status: int | None = None
    outcome: str = "open"
    upstream_completed: bool | None = None
    error: str | None = None
    first_byte_s: float | None = None
    duration_s: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: float | None = None
    estimated: bool | None = None
    losses: list[str] = field(default_factory=list)

    def note_failure(self, account: str, model: str, status: int | None, cause: str, seconds: float) -> None:
        """An attempt has failed. model: `upstream/model`. status: of the upstream's response, if there was one."""
        row = {"account": account, "model": _short(model), "status": status}
        more = {"cause": _short(cause), "seconds": round(seconds, 4)}
        self.failures.append({**{name: value for name, value in row.items() if value is not None}, **more})

    def as_dict(self) -> dict[str, object]:
        """The known fields, times rounded to a tenth of a millisecond, money to a millionth of a cent."""
        found: dict[str, object] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if value is None or value == []:
                continue
            if isinstance(value, float):
                value = round(value, 4 if each.name.endswith("_s") else 8)
            elif isinstance(value, str):
                value = _short(value)
            found[each.name] = value
        return found


def log_request(record: RequestRecord) -> None:
    """Write the line. INFO when it went well or the client left, WARNING when it failed."""
    level = logging.WARNING if record.outcome == "failed" else logging.INFO
    if REQUESTS.isEnabledFor(level):
        REQUESTS.log(level, "request", extra={"dragoman": record.as_dict()})


class JSONFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update(getattr(record, "dragoman", {}))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, default=str)


class TextFormatter(logging.Formatter):
    """`time level logger message key=value ...`"""

    def format(self, record: logging.LogRecord) -> str:
        known = getattr(record, "dragoman", {})
        words = [self.formatTime(record, "%H:%M:%S"), record.levelname.lower(), _visible(record.getMessage())]
        words += [f"{key}={_plain(value)}" for key, value in known.items()]
        text = " ".join(words)
        if record.exc_info:
            # The message of an exception may hold line ends that came from outside.
            lines = self.formatException(record.exc_info).splitlines()
            text += "".join(f"\n    {_visible(line)}" for line in lines)
        return text


def configure(level: str, form: str, stream: TextIO | None = None) -> None:
    """Send Dragoman's lines to stderr. Only the `dragoman` command calls this; a library never should."""
    out = stream or sys.stderr
    handler = logging.StreamHandler(out)
    as_text = form == "text" or (form == "auto" and out.isatty())
    handler.setFormatter(TextFormatter() if as_text else JSONFormatter())
    logger = logging.getLogger("dragoman")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _plain(value: object) -> str:
    """A value behind `key=`: in quotes where it would not be one word."""
    text = _joined(value)
    if text.isprintable() and " " not in text and '"' not in text:
        return text
    return json.dumps(text, ensure_ascii=True)


def _joined(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_joined, value))
    if isinstance(value, dict):
        return " ".join(f"{key}={each}" for key, each in value.items())
    return str(value)


def _visible(text: str) -> str:
    return text if text.isprintable() else json.dumps(text, ensure_ascii=True)[1:-1]
