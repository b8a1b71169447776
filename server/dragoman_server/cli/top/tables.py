"""The tables of `dragoman top` as text: which columns fit, how a cell is written, which rows match and their order."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

from dragoman_server.cli.top.state import (
    COUNTS,
    GAUGES,
    OPEN,
    RATES_S,
    AccountRow,
    RequestRow,
    TopState,
    mean,
)
from dragoman_server.settings.problems import printable

Row = TypeVar("Row", bound=RequestRow | AccountRow)


class Column(NamedTuple, Generic[Row]):
    """One column.

    Attributes:
        rank: The columns of a higher rank are left out first where there is little space.
        value: What rows are sorted by. Those without one come last.
        text: What a cell shows of the value.
        right: Numbers are at its right end.
    """

    title: str
    width: int
    rank: int
    value: Callable[[Row, float], Any]
    text: Callable[[Any], str] = str
    right: bool = True


def seconds_text(seconds: float) -> str:
    """Return a duration in at most six characters."""
    if seconds < 10:
        return f"{seconds:.2f}s"
    if seconds < 60:
        return f"{seconds:.1f}s"
    if seconds < 3600:
        return (
            f"{seconds // 60:.0f}m{seconds % 60:02.0f}s" if seconds % 60 < 59.5 else f"{seconds / 60:.0f}m00s"
        )
    return f"{seconds // 3600:.0f}h{seconds % 3600 // 60:02.0f}m"


def count_text(count: float) -> str:
    """Return a number in at most five characters, up to a thousand billion."""
    for unit in ("", "k", "M", "G"):
        if count < 999.5:
            return f"{count:.1f}{unit}" if unit and count < 99.95 else f"{count:.0f}{unit}"
        count /= 1000
    return f"{count:.0f}T"


def _time_text(at: float) -> str:
    return datetime.fromtimestamp(at).strftime("%H:%M:%S")


def _way(request: RequestRow, now: float = 0) -> str | None:
    """Return the model that the client named, and where it goes."""
    members = request.members
    model, upstream = members.get("model"), members.get("upstream")
    if model is None:
        return f"{members.get('method', '')} {members.get('path', '')}".strip() or None
    goal = f"{upstream}/{members.get('upstream_model')}"
    return str(model) if upstream is None else goal if goal == model else f"{model} > {goal}"


def _tokens_text(tokens: tuple[int, int]) -> str:
    return ">".join(map(count_text, tokens))


def _tokens(request: RequestRow, now: float) -> tuple[int, int] | None:
    members = request.members
    if "input_tokens" not in members and "output_tokens" not in members:
        return None
    return members.get("input_tokens", 0), members.get("output_tokens", 0)


def _member(name: str) -> Callable[[RequestRow, float], Any]:
    return lambda request, now: request.members.get(name)


REQUESTS: tuple[Column[RequestRow], ...] = (
    Column("time", 8, 0, lambda request, now: request.at, _time_text, right=False),
    Column("key", 12, 4, _member("client_key"), right=False),
    Column("model > upstream", 0, 0, _way, right=False),
    Column("account", 18, 5, _member("account"), right=False),
    Column("try", 3, 3, lambda request, now: request.members.get("attempts", len(request.attempts)) or None),
    Column("code", 4, 1, _member("status")),
    Column("outcome", 11, 0, lambda request, now: request.outcome, right=False),
    Column("took", 6, 0, lambda request, now: request.duration_s(now), seconds_text),
    Column("first", 6, 1, _member("first_byte_s"), seconds_text),
    Column("frames", 6, 6, _member("frames"), count_text),
    Column("bytes", 5, 6, _member("bytes"), count_text),
    Column("in>out", 11, 1, _tokens, _tokens_text),
    Column("cached", 6, 7, _member("cached_tokens"), count_text),
    Column("cost $", 8, 4, _member("cost_usd"), "{:.4f}".format),
    Column("lost", 4, 2, lambda request, now: request.losses or None),
)

ACCOUNTS: tuple[Column[AccountRow], ...] = (
    Column("account", 22, 0, lambda account, now: account.id, right=False),
    Column("state", 9, 0, lambda account, now: account.state, right=False),
    Column(
        "cools",
        6,
        0,
        lambda account, now: None if account.cools_until is None else max(0.0, account.cools_until - now),
        seconds_text,
    ),
    Column("cooldowns", 9, 1, lambda account, now: account.cooldowns),
    Column(
        "used ago",
        8,
        1,
        lambda account, now: None if account.last_used is None else max(0.0, now - account.last_used),
        seconds_text,
    ),
    Column("last error", 0, 0, lambda account, now: account.last_error or None, right=False),
)

# The least width of the column that gets what the others leave.
_LEAST = 20


def fit(columns: Sequence[Column[Row]], width: int) -> list[tuple[Column[Row], int]]:
    """Return the columns that a line of this width has, with theirs. There is a space between two."""
    for rank in range(max(each.rank for each in columns), -1, -1):
        shown = [each for each in columns if each.rank <= rank]
        left = width - sum(each.width for each in shown) - len(shown) + 1
        if left >= _LEAST or rank == 0:
            break
    return [(each, each.width or max(_LEAST, left)) for each in shown]


def cell(column: Column[Row], row: Row, now: float) -> str:
    value = column.value(row, now)
    return "" if value is None else printable(column.text(value))


def chosen(rows: Iterable[Row], columns: Sequence[Column[Row]], words: str, now: float) -> list[Row]:
    """Return the rows in which each of the words is, in any column, in upper or lower case."""
    wanted = words.lower().split()
    if not wanted:
        return list(rows)
    found = []
    for row in rows:
        text = " ".join([cell(each, row, now) for each in columns]).lower()
        if all(word in text for word in wanted):
            found.append(row)
    return found


def in_order(rows: Iterable[Row], column: Column[Row], *, descending: bool, now: float) -> list[Row]:
    """Return the rows sorted by a column; those without a value come last."""
    pairs = [(column.value(row, now), row) for row in rows]
    known = sorted(
        [pair for pair in pairs if pair[0] is not None], key=lambda pair: pair[0], reverse=descending
    )
    return [row for _, row in [*known, *(pair for pair in pairs if pair[0] is None)]]


# One request.


def request_lines(request: RequestRow, now: float) -> Iterator[str]:
    """Return all that is known of a request."""
    members = {"duration_s": request.duration_s(now), **request.members}
    losses, left_out = members.pop("losses", ()), members.pop("losses_left_out", 0)
    facts = {
        "request": request.id,
        "began": datetime.fromtimestamp(request.at).isoformat(" ", "milliseconds"),
        "outcome": members.pop("outcome", OPEN),
        **members,
    }
    for name, value in facts.items():
        if value is not None:
            yield f"{name:<18} {_value_text(value)}"
    if request.attempts:
        yield f"\nattempts ({len(request.attempts)})"
    for number, attempt in request.attempts.items():
        yield f"  {number}: " + _pairs(attempt)
    if losses:
        yield f"\nlosses ({len(losses) + left_out})"
        yield from (f"  {printable(each)}" for each in losses)
    if left_out:
        yield f"  and {left_out} more"


def event_line(kind: str, data: Mapping[str, Any]) -> str:
    """Return an event as one line."""
    members = {name: value for name, value in data.items() if name != "at"}
    return f"{_time_text(data['at'])} {kind} {_pairs(members)}"


def _pairs(members: Mapping[str, Any]) -> str:
    return " ".join([f"{name}={_value_text(value)}" for name, value in members.items() if value is not None])


def _value_text(value: Any) -> str:
    return printable(value if isinstance(value, str) else repr(value))


# The rates.

_BLOCKS = " ▁▂▃▄▅▆▇█"
_ASCII = " .:-=+*#@"
_TITLES = {
    "requests": "requests/s",
    "errors": "errors/s",
    "tokens": "tokens/s",
    "open": "open requests",
    "streams": "open streams",
}


def sparkline(values: Sequence[float], width: int, *, blocks: bool) -> str:
    """Draw the values in this width, the last ones at the right end. A place has the highest of those that share it."""
    each = -(-len(values) // width) if values else 1
    # Groups are counted from the end, so that they do not change their members when they are not full.
    highest = [max(values[max(0, end - each) : end]) for end in range(len(values), 0, -each)][::-1]
    levels, top = _BLOCKS if blocks else _ASCII, max(highest, default=0) or 1
    # A value above 0 is never drawn as nothing.
    return "".join([levels[-int(-value * 8 // top)] for value in highest]).rjust(width)


def rate_lines(state: TopState, now: float, width: int, *, blocks: bool) -> Iterator[str]:
    """Return the rates: of the last ten seconds, the last minute and all that is remembered, with a line for each."""
    yield f"{'':<14}{'10 s':>8}{'1 min':>8}{f'{RATES_S // 60} min':>8}{'highest':>9}"
    for name in (*COUNTS, *GAUGES):
        values = state.series(name, now)
        means = [f"{_rate_text(mean(values, count)):>8}" for count in (10, 60, RATES_S)]
        yield ""
        yield f"{_TITLES[name]:<14}{''.join(means)}{_rate_text(max(values, default=0)):>9}"
        yield sparkline(values, width, blocks=blocks)


def _rate_text(value: float) -> str:
    return f"{value:.1f}" if value < 100 else count_text(value)
