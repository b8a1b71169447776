"""The laws that hold for every pair of protocols (tests/_support/laws/pairs.py), over the recordings."""

from __future__ import annotations

import corpus
import pytest
from laws.pairs import Law, Source, cases

SOURCES = [Source(each.name, each.protocol, each.read()) for each in corpus.recordings()]


@pytest.mark.parametrize(("law", "crossings"), cases(SOURCES))
def test_a_law_holds(law: Law, crossings: list[tuple[Source, str]]) -> None:
    for source, client in crossings:
        law(source, client)
