"""How long an upstream wants to be left alone, in the several forms in which servers say it.

Strategy: a table of headers in the order in which they count. The precise one comes first; a date needs the wall
clock, which is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable

# The longest that anybody means is until the next month's quota: a server that names a longer time has a wrong clock,
# or counts in another unit.
MAX_SECONDS = 32 * 24 * 3600.0


def retry_after(headers: Iterable[tuple[str, str]], now: float) -> float | None:
    """Seconds to wait, None when no header says so.

    headers: names in lower case. now: seconds since the epoch. A time that has passed is 0. Source: RFC 9110,
    10.2.3; `retry-after-ms` is OpenAI's and Azure's.
    """
    found = dict(headers)
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = found.get(name, "").strip()
        seconds = _number(text)
        if seconds is not None:
            return _bounded(seconds * unit)
        if unit == 1.0 and text:
            date = _date(text)
            return None if date is None else _bounded(date - now)
    return None


def _number(text: str) -> float | None:
    # float() takes more than digits: "nan", "1_0" and "inf" are no times.
    if not text.replace(".", "", 1).isdecimal() or not text.isascii():
        return None
    return float(text)


def _date(text: str) -> float | None:
    # Slow to import, and few servers send dates.
    from email.utils import parsedate_tz

    parsed = parsedate_tz(text)
    if parsed is None:
        return None
    from email.utils import mktime_tz

    try:
        return float(mktime_tz(parsed))
    except (ValueError, OverflowError):
        return None


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), MAX_SECONDS)
