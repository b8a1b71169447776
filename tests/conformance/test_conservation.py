"""Nothing is silently lost: every value of a document is in the output, or its path is in the ledger.

One value at a time is changed (or one unknown member added) and the document translated again. A string must be
found in the output, or its place in the ledger; a changed number or switch must change the output or the ledger.
A refusal with a path is not silent either. Other values have no meaning alone: `MEANINGLESS` has all of
them, with reasons.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from laws.fixtures import REQUESTS, WHOLE_RESPONSES
from laws.losses import (
    MEANINGLESS_IN_REQUESTS,
    MEANINGLESS_IN_RESPONSES,
    covered_by_simple_writer,
    covered_by_writer,
    lost_in,
    lost_in_frames,
)
from laws.plant import leaves
from laws.runs import rewritten, translated, translated_response
from oracle import CHAT, GEMINI, MESSAGES, PROTOCOL_NAMES, RESPONSES, SIMPLE_EVENTS
from oracle import samples as s

from dragoman import RemoteProtocolError, RequestRefused


def lost_or_refused(body: Any, protocol: str, run: Callable[[Any], Any]) -> list[Any]:
    """Return the places of a request that are lost silently: none of one that is refused by the name of a place."""
    try:
        run(body)
    except (RemoteProtocolError, RequestRefused) as error:
        if not error.path:
            raise
        return []
    return lost_in(body, protocol, MEANINGLESS_IN_REQUESTS, run, set())


@pytest.mark.promise("R13")
@pytest.mark.parametrize("client", REQUESTS)
def test_requests_lose_nothing_silently(client: str, subtests: pytest.Subtests) -> None:
    for name, body in REQUESTS[client].items():
        for upstream in PROTOCOL_NAMES:
            with subtests.test(name=name, upstream=upstream):
                assert lost_or_refused(body, client, partial(translated, client, upstream)) == []


@pytest.mark.promise("R13")
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_repaired_requests_lose_nothing_silently(protocol: str, subtests: pytest.Subtests) -> None:
    for name, body in REQUESTS[protocol].items():
        with subtests.test(name=name):
            assert lost_or_refused(body, protocol, partial(rewritten, protocol)) == []


@pytest.mark.promise("R13")
@pytest.mark.parametrize("upstream", PROTOCOL_NAMES)
def test_responses_lose_nothing_silently(upstream: str, subtests: pytest.Subtests) -> None:
    for name, body in WHOLE_RESPONSES[upstream].items():
        for client in [*PROTOCOL_NAMES, SIMPLE_EVENTS]:
            with subtests.test(name=name, client=client):
                run = partial(translated_response, upstream, client)
                known = covered_by_simple_writer if client == SIMPLE_EVENTS else covered_by_writer
                assert lost_in(body, upstream, MEANINGLESS_IN_RESPONSES, run, set(), known) == []


@pytest.mark.parametrize(
    ("table", "documents"),
    [
        pytest.param(MEANINGLESS_IN_REQUESTS, REQUESTS, id="requests"),
        pytest.param(MEANINGLESS_IN_RESPONSES, WHOLE_RESPONSES, id="answers"),
    ],
)
def test_every_exception_is_about_something(table: Any, documents: Any) -> None:
    patterns = {
        protocol: {place.pattern for body in documents[protocol].values() for place in leaves(body)}
        for protocol in PROTOCOL_NAMES
    }
    idle = [
        (protocol, rule)
        for protocol, rule in table
        if not any(re.fullmatch(rule, pattern) for pattern in patterns[protocol])
    ]
    assert idle == []


FOREIGN = [
    (upstream, client)
    for upstream in PROTOCOL_NAMES
    for client in [*PROTOCOL_NAMES, SIMPLE_EVENTS]
    if client != upstream
]
SAMPLES = {CHAT: s.chat, MESSAGES: s.messages, RESPONSES: s.responses, GEMINI: s.gemini}


@pytest.mark.promise("R13")
@pytest.mark.parametrize(("upstream", "client"), FOREIGN)
def test_frames_lose_nothing_silently(upstream: str, client: str) -> None:
    assert lost_in_frames(upstream, client, SAMPLES[upstream](), set()) == []
