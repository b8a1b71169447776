"""The fidelity matrix: no cell is a silent loss, every field and type has a row, and the page is current."""

# ruff: noqa: E501 -- the tables are read by row

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sdk_fields as fid_sdk
from fidelity import page as pages
from fidelity.judge import Cell, Fate, Note, cells_of, judge
from fidelity.probe import Probe, find, probe
from fidelity.rows import rows_of
from fidelity.run import PROTOCOL_NAMES, Output
from fidelity.streams import SUBJECT
from fidelity.summary import summary

from dragoman import Loss, LossCode, RemoteProtocolError
from dragoman_server.capabilities.provider import CHAT, GEMINI, MESSAGES, RESPONSES

PAGE = Path(__file__).parents[1] / "docs" / "fidelity.md"
PREFIX = {CHAT: "chat", MESSAGES: "messages", RESPONSES: "responses", GEMINI: "gemini"}


def rows(table: dict[str, list[Probe]]) -> Iterator[tuple[str, str, Probe]]:
    """Yield each row with its source protocol and its target protocol."""
    for origin, probes in table.items():
        for row in probes:
            yield from ((origin, other, row) for other in PROTOCOL_NAMES if other != origin)


def problems(row: Probe, cell: Cell) -> list[str]:
    found = [f"{row.section}: {row.name}: lost silently: {cell.words}"] * (cell.fate is Fate.LOST)
    if row.nothing and cell.fate is not Fate.NOTHING:
        found.append(f"{row.section}: {row.name}: it is said to be nothing, and is {cell.fate.value}")
    if cell.fate in (Fate.CARRIED, Fate.ALTERED) and not cell.places:
        found.append(f"{row.section}: {row.name}: nobody knows where it is")
    return found


@pytest.mark.promise("R13")
@pytest.mark.parametrize("table", [pages.REQUESTS, pages.ANSWERS], ids=["a request", "a stream"])
def test_no_part_is_lost_silently(table: dict[str, list[Probe]]) -> None:
    found = [
        f"{origin} to {other}: {problem}"
        for origin, other, row in rows(table)
        for cell in cells_of(origin, other, row)
        for problem in problems(row, cell)
    ]
    assert found == []


# Good streams that cannot be translated further: the response becomes an error, as it must.
ERRORS = {"`error`", "`MALFORMED_FUNCTION_CALL`"}


def test_streams_become_errors_only_where_they_must() -> None:
    found = {
        row.name
        for upstream, client, row in rows(pages.ANSWERS)
        for cell in cells_of(upstream, client, row)
        if cell.fate is Fate.REFUSED
    }
    assert found == ERRORS


def test_the_page_is_current() -> None:
    # When this fails: run `make docs`, and read what has changed.
    assert pages.page() == PAGE.read_text("utf-8")


def test_the_summary_is_current() -> None:
    # When this fails: run `make docs`, and read what has changed.
    assert summary() == PAGE.with_name("what-you-lose.md").read_text("utf-8")


@pytest.mark.parametrize("table", [pages.REQUESTS, pages.ANSWERS], ids=["requests", "responses"])
def test_no_two_rows_have_one_name(table: dict[str, list[Probe]]) -> None:
    for probes in table.values():
        names = [(row.section, row.name) for row in probes]
        assert [name for name in names if names.count(name) > 1] == []


# --- every field and type has a row ---------------------------------------------------------------------------


def named(probes: list[Probe]) -> set[str]:
    """Return the names of fields in the rows' names, and the types of the values at their paths."""
    names = {word for row in probes for name in re.findall(r"`([^`]+)`", row.name) for word in _parts(name)}
    # `message_start` and its like are the name of a section.
    names |= {word for row in probes for word in re.findall(r"`([^`]+)`", row.section)}
    return names | {kind for row in probes for kind in _types(find(row.body, row.place))}


def _parts(name: str) -> list[str]:
    return [name, *name.split(".")] if not name.startswith("response.") else [name]


def _types(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (value[key] for key in ("type", "role") if isinstance(value.get(key), str))


SDK_FIELDS: list[tuple[dict[str, list[Probe]], str, set[str]]] = [
    *((pages.REQUESTS, what, expected) for what, expected in fid_sdk.REQUESTS.items()),
    *((pages.ANSWERS, what, expected) for what, expected in fid_sdk.WHOLE_RESPONSES.items()),
]


def test_every_field_of_the_vendors_sdk_has_a_row(subtests: pytest.Subtests) -> None:
    for table, what, expected in SDK_FIELDS:
        with subtests.test(what=what):
            assert expected, "the SDK has moved it"
            origin = next(protocol for protocol, name in PREFIX.items() if what.startswith(name))
            assert sorted(expected - named(table[origin])) == []


# --- how rows are written -------------------------------------------------------------------------------------

ROWS = """
# Requests

$HI = {"role": "user"}
// A comment.

## Fields
in {"model": "m", "messages": [$HI], ...}
"toy": "Zqtoy"
"tools": [], "choice": {"mode": «"a" → "b"»}
"model": «? → "Zqmodel"» | the model | why

## Parts
in {"messages": [$HI, ...]} | part: `*` | because
{"type": "text",
  "text": "Zqtext"}
{"type": "text", "mark": «1»}
"""
HI = {"role": "user"}
FIELDS = {"model": "m", "messages": [HI]}


def test_a_row_is_one_line() -> None:
    """Its name, and what is compared, follow from what it adds to its template."""
    text = {"type": "text", "text": "Zqtext"}
    assert rows_of(ROWS)["Requests"] == [
        Probe("Fields", "`toy`", {**FIELDS, "toy": "Zqtoy"}, "/toy", FIELDS),
        Probe("Fields", "`choice.mode`", {**FIELDS, "tools": [], "choice": {"mode": "b"}}, "/choice/mode", {**FIELDS, "tools": [], "choice": {"mode": "a"}}),
        Probe("Fields", "the model", {**FIELDS, "model": "Zqmodel"}, "/model", None, "why"),
        Probe("Parts", "part: `text`", {"messages": [HI, text]}, "/messages/1", {"messages": [HI]}, "because"),
        Probe("Parts", "part: `mark`", {"messages": [HI, {"type": "text", "mark": 1}]}, "/messages/1/mark", {"messages": [HI, {"type": "text"}]}, "because"),
    ]  # fmt: skip


STREAM = """
# Streams

## Blocks
in [{"type": "message_start"}, ...]
{"block": {"type": "text", "text": "Zqtext"}}
{"block": {"type": "text", "text": "Zqtext"}} | `text_delta`
{"block": {"type": "thinking", "thinking": "", "signature": "s", "toy": «true»}}
«? → {"type": "error"}»
"""


def test_a_row_of_a_stream_has_a_block_or_item_once() -> None:
    """It is about the frame with most of it, about an event, or about a member."""
    whole, delta, member, needed = rows_of(STREAM)["Streams"]
    found = [frame["type"] for frame in whole.body]
    assert found == ["message_start", "content_block_start", "content_block_delta", "content_block_stop"]
    assert (whole.place, whole.without) == ("/2", whole.body[:1])
    assert (delta.place, delta.without) == ("/2", [frame for frame in whole.body if "delta" not in frame])
    assert (member.name, member.place) == ("`toy`", "/1/content_block/toy")
    assert find(member.body, member.place) is True
    assert "toy" not in member.without[1]["content_block"]
    assert (needed.place, needed.without) == ("/1", None)


# --- the judge itself -----------------------------------------------------------------------------------------

ROW = probe("S", "n", {"a": {SUBJECT: [{"x": "Zqone", "y": "Zqother"}]}, "b": 1})
SWITCH = probe("S", "n", {"a": {SUBJECT: [True]}})
EMPTY = probe("S", "n", {"a": {SUBJECT: [True]}}, "why")
BOTH = '{"o": "Zqone Zqother"}'
DROPPED, ALTERED, WRAPPED = LossCode.DROPPED, LossCode.ALTERED, LossCode.WRAPPED


def out(wire: str = "{}", *losses: tuple[LossCode, str], wrapped: str = "", here: str = "") -> Output:
    return Output(wire, wrapped, here, tuple(Loss(code, path, "d") for code, path in losses))


NOTHING_SENT = out()


JUDGE: list[tuple[Probe, Output, Output, Fate]] = [
    (ROW, out(BOTH), NOTHING_SENT, Fate.CARRIED),
    (ROW, out('{"o": "Zqone"}'), NOTHING_SENT, Fate.LOST),
    (ROW, out('{"o": "Zqone"}', (DROPPED, "/a/y")), NOTHING_SENT, Fate.ALTERED),
    (ROW, out('{"o": "Zqone"}', (DROPPED, "/a/x")), NOTHING_SENT, Fate.LOST),
    (ROW, out('{"o": "Zqone"}', (DROPPED, "/b")), out("{}", (DROPPED, "/b")), Fate.LOST),
    (ROW, NOTHING_SENT, NOTHING_SENT, Fate.LOST),
    (ROW, out("{}", (DROPPED, "/a")), NOTHING_SENT, Fate.LEFT_OUT),
    (ROW, out("{}", (DROPPED, "/elsewhere")), NOTHING_SENT, Fate.LEFT_OUT),
    (ROW, out(BOTH, (ALTERED, "/a")), NOTHING_SENT, Fate.ALTERED),
    (ROW, out("{}", wrapped="Zqone Zqother"), NOTHING_SENT, Fate.WRAPPED),
    (ROW, out("{}", (WRAPPED, "/a")), NOTHING_SENT, Fate.WRAPPED),
    (ROW, out("{}", here="Zqone Zqother"), NOTHING_SENT, Fate.BY_US),
    (SWITCH, out('{"o": true}'), NOTHING_SENT, Fate.CARRIED),
    (SWITCH, NOTHING_SENT, NOTHING_SENT, Fate.LOST),
    (SWITCH, NOTHING_SENT, out('{"o": true}'), Fate.CARRIED),
    (SWITCH, out("{}", (DROPPED, "/a")), NOTHING_SENT, Fate.LEFT_OUT),
    (SWITCH, out("{}", here="2"), out("{}", here="1"), Fate.BY_US),
    (EMPTY, NOTHING_SENT, NOTHING_SENT, Fate.NOTHING),
    (EMPTY, out('{"o": true}'), NOTHING_SENT, Fate.CARRIED),
    (EMPTY, out("{}", (DROPPED, "/a")), NOTHING_SENT, Fate.LEFT_OUT),
]


def translation(row: Probe, translated: Output, base: Output) -> Callable[[Any], Output]:
    """Return a translation with the output `translated` for the row's body, and `base` without its part."""
    return lambda body: translated if body == row.body else base


def test_the_fate_of_a_row(subtests: pytest.Subtests) -> None:
    for row, translated, base, fate in JUDGE:
        with subtests.test(translated=translated, base=base, fate=fate):
            assert judge(row, translation(row, translated, base)).fate is fate


def test_a_refusal_has_its_own_message() -> None:
    def refuse(_: Any) -> Output:
        raise RemoteProtocolError("no such thing")

    assert judge(ROW, refuse) == Cell(Fate.REFUSED, words="no such thing")


def test_a_cell_has_its_places_and_notes() -> None:
    translated = out('{"list": [{"type": "t", "o": "Zqone"}], "n": 1}', (DROPPED, "/a/y"))
    cell = judge(ROW, lambda body: translated if body == ROW.body else NOTHING_SENT)
    assert cell == Cell(Fate.ALTERED, ("list[t].o",), (Note("dropped", ("y",), "d"),))
