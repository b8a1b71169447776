"""Patterns of model names: a table of names and patterns in, what each `*` stands for out."""

import pytest

from dragoman_server.settings.patterns import captures, matches, substitute

MATCHED = [
    ("a", "a", ()),
    ("a", "A", None),
    ("a", "ab", None),
    ("", "*", ("",)),
    ("any/thing", "*", ("any/thing",)),
    ("claude-opus-5", "claude-*", ("opus-5",)),
    ("claude-", "claude-*", ("",)),
    ("claud", "claude-*", None),
    # What stands before the first * and behind the last has no character in common.
    ("aa", "aa*a", None),
    ("aaa", "aa*a", ("",)),
    # Nothing else is special.
    ("claude-opus-4-8[1m]", "claude-*[1m]", ("opus-4-8",)),
    ("a?c", "a?*", ("c",)),
    ("abc", "a?*", None),
    # The last * takes as much as it can, the others as little.
    ("one@two@three", "*@*", ("one", "two@three")),
    ("one@two@three", "*@*@*", ("one", "two", "three")),
    ("one@two", "*@*@*", None),
    ("abc", "**", ("", "abc")),
    ("xay", "*a*y*z", None),
]


@pytest.mark.parametrize(("name", "pattern", "texts"), MATCHED)
def test_a_pattern_tells_what_its_stars_stand_for(
    name: str, pattern: str, texts: tuple[str, ...] | None
) -> None:
    assert captures(name, pattern) == texts
    assert matches(name, pattern) is (texts is not None)
    if texts is not None:
        assert substitute(pattern, texts) == name


FILLED = [
    ("or/anthropic/*", ("opus-5",), "or/anthropic/opus-5"),
    ("or/x", ("opus-5",), "or/x"),
    ("or/*", ("a", "b"), "or/a"),
    ("or/*-*", ("a", "b"), "or/a-b"),
    # What came from a client is never read as a pattern.
    ("or/*-*", ("*", "b"), "or/*-b"),
]


@pytest.mark.parametrize(("target", "texts", "full"), FILLED)
def test_a_target_takes_the_texts_in_order(target: str, texts: tuple[str, ...], full: str) -> None:
    assert substitute(target, texts) == full


def test_a_long_name_takes_no_time_worth_mentioning() -> None:
    assert captures("a" * 100_000, "*a" * 20 + "*b") is None
