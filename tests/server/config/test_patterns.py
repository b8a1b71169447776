"""Patterns of model names: a table of names and patterns in, the text of each `*` out."""

import itertools

from dragoman_server.settings.patterns import PatternTable, captures, matches, substitute

MATCHED = [
    ("a", "a", ()),
    ("a", "A", None),
    ("a", "ab", None),
    ("", "*", ("",)),
    ("any/thing", "*", ("any/thing",)),
    ("claude-opus-5", "claude-*", ("opus-5",)),
    ("claude-", "claude-*", ("",)),
    ("claud", "claude-*", None),
    # The texts before the first * and after the last have no character in common.
    ("aa", "aa*a", None),
    ("aaa", "aa*a", ("",)),
    # Nothing else is special.
    ("claude-opus-4-8[1m]", "claude-*[1m]", ("opus-4-8",)),
    ("a?c", "a?*", ("c",)),
    ("abc", "a?*", None),
    # The last * matches as much as it can, the others as little.
    ("one@two@three", "*@*", ("one", "two@three")),
    ("one@two@three", "*@*@*", ("one", "two", "three")),
    ("one@two", "*@*@*", None),
    ("abc", "**", ("", "abc")),
    ("xay", "*a*y*z", None),
]


def test_the_texts_that_the_stars_of_a_pattern_match() -> None:
    for name, pattern, texts in MATCHED:
        assert captures(name, pattern) == texts, (name, pattern)
        assert matches(name, pattern) is (texts is not None), (name, pattern)
        if texts is not None:
            assert substitute(pattern, texts) == name, (name, pattern)


FILLED = [
    ("or/anthropic/*", ("opus-5",), "or/anthropic/opus-5"),
    ("or/x", ("opus-5",), "or/x"),
    ("or/*", ("a", "b"), "or/a"),
    ("or/*-*", ("a", "b"), "or/a-b"),
    # Text of a client is never a pattern.
    ("or/*-*", ("*", "b"), "or/*-b"),
]


def test_a_target_gets_the_texts_in_order() -> None:
    for target, texts, full in FILLED:
        assert substitute(target, texts) == full, target


def test_a_long_name_is_matched_fast() -> None:
    assert captures("a" * 100_000, "*a" * 20 + "*b") is None


def test_a_table_finds_the_row_that_a_walk_over_the_list_would_find() -> None:
    names = [name for name, _, _ in MATCHED]
    for patterns in itertools.permutations({pattern for _, pattern, _ in MATCHED[:10]}, 3):
        table = PatternTable([(pattern, pattern) for pattern in patterns])
        for pair in itertools.product(names, ("", "claude-3")):
            found = next((each for each in patterns if any(matches(name, each) for name in pair)), None)
            assert table.first(*pair) == found, (patterns, pair)
    assert PatternTable([("a", 1), ("a", 2)]).first("a") == 1
    assert PatternTable([("*", 1)]).first() is None
