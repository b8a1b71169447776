"""Fewer cases of a test with several parameters: all pairs of values, or each value once, instead of the product.

    @pytest.mark.parametrize("client", PROTOCOLS)
    @pytest.mark.parametrize("upstream", PROTOCOLS)
    @pytest.mark.parametrize("stream", [True, False])

runs 9 cases of these 18, in which each two values of two parameters meet once. With `@pytest.mark.each_choice` it runs
9, too, because `client` and `upstream` are one parameter there: together they decide between relay and translation.
With `@pytest.mark.all_combinations` it runs 18. The markers may stand in a module's `pytestmark`, too. The backends of
AnyIO are spread over the cases and add none. Which cases run depends on nothing but the test's name and parameters.
"""

from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from zlib import crc32

import pytest

PAIR = {"client", "upstream"}
BACKEND = "anyio_backend"


def chosen(items: Sequence[pytest.Function]) -> Sequence[pytest.Function]:
    """Return the cases of one test that are worth their time."""
    if not items or not hasattr(items[0], "callspec") or items[0].get_closest_marker("all_combinations"):
        return items
    each_choice = items[0].get_closest_marker("each_choice") is not None
    cases = [_values(item) for item in items]
    if each_choice:
        for case in cases:
            if case.keys() >= PAIR:
                case["pair"] = tuple(case.pop(name) for name in sorted(PAIR))
    # The name makes tests of the same shape run other combinations.
    strength = 1 if each_choice else 2
    return [items[number] for number in covering(cases, strength, items[0].originalname)]


def _values(item: pytest.Function) -> dict[str, Hashable]:
    """Return the row that each `parametrize` contributes to a case, and the parameters of fixtures."""
    params = dict(item.callspec.params)
    found: dict[str, Hashable] = {}
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0]
        listed = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
        found[str(names)] = tuple(id(params.pop(name)) for name in listed)
    return found | {name: id(value) for name, value in params.items()}


def covering(cases: Sequence[Mapping[str, Hashable]], strength: int, seed: str = "") -> list[int]:
    """Return the numbers of the cases that together have each `strength` values that some case has.

    A case is its value for each parameter. The choice is greedy: the next one is that with the most values that are
    new, of these the one with the most new pairs, and of these any, which is not always the first value of all others.
    """
    if all(len(case) <= 1 for case in cases):
        return list(range(len(cases)))
    sets = [_sets(case, strength) for case in cases]
    pairs = [set(combinations(sorted(case.items()), 2)) for case in cases]
    missing: set[Hashable] = set().union(*sets)
    new_pairs: set[Hashable] = set().union(*pairs)
    numbers = []
    while missing:
        best = max(
            range(len(cases)),
            key=lambda n: (len(sets[n] & missing), len(pairs[n] & new_pairs), crc32(f"{seed}{n}".encode())),
        )
        numbers.append(best)
        missing -= sets[best]
        new_pairs -= pairs[best]
    return sorted(numbers)


def _sets(case: Mapping[str, Hashable], strength: int) -> set[Hashable]:
    """Return what a case covers: its values, and with strength 2 all pairs of them but those with a backend."""
    values: set[Hashable] = set(case.items())
    if strength == 1:
        return values
    others = sorted(item for item in case.items() if item[0] != BACKEND)
    return values | set(combinations(others, 2))
