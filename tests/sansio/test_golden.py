"""What becomes of every fixture is what golden.txt says. See golden.py."""

import golden
import pytest

MAX_LINES = 80


@pytest.mark.no_cover
def test_every_fixture_becomes_what_it_was() -> None:
    found = golden.differences(golden.parse(golden.GOLDEN.read_text("utf-8")), golden.cases())
    more = [f"... and {len(found) - MAX_LINES} more lines"] if len(found) > MAX_LINES else []
    shown = "\n".join([*found[:MAX_LINES], *more])
    assert not found, (
        f"\n{shown}\n\n`{golden.COMMAND}` prints all of it, and writes {golden.GOLDEN.name} again."
    )


def test_the_file_is_as_the_command_writes_it() -> None:
    text = golden.GOLDEN.read_text("utf-8")
    assert golden.render(golden.parse(text)) == text


def test_a_difference_is_shown_line_by_line() -> None:
    old = {"kept": ["a"], "changed": ["a", "b", "c"], "gone": ["a"]}
    new = {"kept": ["a"], "changed": ["a", "x", "c"], "new": ["y"]}
    assert golden.differences(old, new) == ["# changed", "-b", "+x", "# gone: is gone", "# new: is new", "+y"]


def test_what_is_folded_depends_on_all_of_it() -> None:
    text = "a" * 200
    assert golden.line_of(text) != golden.line_of(text[:100] + "b" + text[101:])
    assert golden.frames(b"data: one frame\n\ndata: one frams\n\n") == ["  data: one frame", "  «14»s"]
