"""Fewer cases of a test with several parameters: all pairs of values, or each value once, instead of the product.

    @pytest.mark.parametrize("client", PROTOCOLS)
    @pytest.mark.parametrize("upstream", PROTOCOLS)
    @pytest.mark.parametrize("stream", [True, False])

runs 9 cases of these 18, in which each two values of two parameters meet once. With `@pytest.mark.each_choice` it runs
9, too, because `client` and `upstream` are one parameter there: together they decide between relay and translation.
With `@pytest.mark.all_combinations` it runs 18. The markers may stand in a module's `pytestmark`, too. Which cases
these are depends on nothing but the parameters.
"""

from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from zlib import crc32

import pytest

PAIR = {"client", "upstream"}


def chosen(items: Sequence[pytest.Function]) -> Sequence[pytest.Function]:
    """Return the cases of one test that are worth their time."""
    if not items or not hasattr(items[0], "callspec") or items[0].get_closest_marker("all_combinations"):
        return items
    strength = 1 if items[0].get_closest_marker("each_choice") else 2
    cases = [_values(item) for item in items]
    if strength == 1:
        for case in cases:
            if case.keys() >= PAIR:
                case["pair"] = tuple(case.pop(name) for name in sorted(PAIR))
    return [items[number] for number in covering(cases, strength)]


def _values(item: pytest.Function) -> dict[str, Hashable]:
    """Return the row that each `parametrize` contributes to a case, and the parameters of fixtures."""
    params = dict(item.callspec.params)
    found: dict[str, Hashable] = {}
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0]
        listed = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
        found[str(names)] = tuple(id(params.pop(name)) for name in listed)
    return found | {name: id(value) for name, value in params.items()}


def covering(cases: Sequence[Mapping[str, Hashable]], strength: int) -> list[int]:
    """Return the numbers of the cases that together have each `strength` values that some case has.

    A case is its value for each parameter. The choice is greedy: the next one is that with the most values that are
    new, of these the one with the most new pairs, and of these any, which is not always the first value of all others.
    """
    if all(len(case) <= strength for case in cases):
        return list(range(len(cases)))
    sets = [_sets(case, strength) for case in cases]
    pairs = [_sets(case, 2) for case in cases]
    missing: set[Hashable] = set().union(*sets)
    new_pairs: set[Hashable] = set().union(*pairs)
    numbers = []
    while missing:
        best = max(
            range(len(cases)),
            key=lambda n: (len(sets[n] & missing), len(pairs[n] & new_pairs), crc32(b"%d" % n)),
        )
        numbers.append(best)
        missing -= sets[best]
        new_pairs -= pairs[best]
    return sorted(numbers)


def _sets(case: Mapping[str, Hashable], strength: int) -> set[Hashable]:
    return set(combinations(sorted(case.items()), min(strength, len(case))))
