"""The laws that hold for every pair of protocols (tests/_support/laws/pairs.py), over the recordings."""

import corpus
import pytest
from laws.pairs import LAWS, Law, Source
from oracle import PROTOCOL_NAMES

SOURCES = [Source(each.name, each.protocol, each.read()) for each in corpus.recordings()]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_law_holds(law: Law, subtests: pytest.Subtests) -> None:
    for source in SOURCES:
        for client in PROTOCOL_NAMES:
            if LAWS[law](source, client):
                with subtests.test(source=source.name, client=client):
                    law(source, client)
