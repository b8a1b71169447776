"""Patterns of model names: a table of names and patterns in, the text of each `*` out."""

import itertools
import json
from pathlib import Path

import rows

from dragoman_server.settings.patterns import PatternTable, captures, matches, substitute


def result(lines: list[str]) -> list[str]:
    pattern, given = json.loads(lines[0])
    if isinstance(given, list):
        return [substitute(pattern, given)]
    texts = captures(given, pattern)
    assert matches(given, pattern) is (texts is not None)
    assert texts is None or substitute(pattern, texts) == given
    return [json.dumps(texts)]


def test_the_texts_that_the_stars_of_a_pattern_match() -> None:
    rows.check(Path(__file__).with_name("patterns.txt"), result)


def test_a_long_name_is_matched_fast() -> None:
    assert captures("a" * 100_000, "*a" * 20 + "*b") is None


def test_a_table_finds_the_row_that_a_walk_over_the_list_would_find() -> None:
    names = ["a", "A", "ab", "", "any/thing", "claude-opus-5", "claude-", "claud", "aa", "aaa", "abc"]
    for patterns in itertools.permutations({"a", "*", "claude-*", "aa*a"}, 3):
        table = PatternTable([(pattern, pattern) for pattern in patterns])
        for pair in itertools.product(names, ("", "claude-3")):
            found = next((each for each in patterns if any(matches(name, each) for name in pair)), None)
            assert table.first(*pair) == found, (patterns, pair)
    assert PatternTable([("a", 1), ("a", 2)]).first("a") == 1
    assert PatternTable([("*", 1)]).first() is None
