"""Nothing is silently lost: every value of a document shows in what comes out, or its place is in the ledger.

One value at a time is changed (or one unknown member added) and the document translated again. A string must be
found in the output, or its place in the ledger; a changed number or switch must change the output or the ledger.
A refusal that names a place is not silent either. What is left has no meaning of its own: `MEANINGLESS` holds
all of it, with reasons.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
from laws.answers import ANSWERS
from laws.losses import (
    MEANINGLESS_IN_ANSWERS,
    MEANINGLESS_IN_REQUESTS,
    covered_by_simple_writer,
    covered_by_writer,
    lost_in,
    lost_in_frames,
)
from laws.plant import leaves
from laws.requests import FIXTURES
from laws.runs import answered, mended, translated
from oracle import CHAT, MESSAGES, PROTOCOL_NAMES, RESPONSES, SIMPLE, SIMPLE_EVENTS
from oracle import samples as s

from dragoman import RemoteProtocolError, RequestRefused

PAIRS = [(client, upstream) for client in PROTOCOL_NAMES for upstream in PROTOCOL_NAMES]

REQUESTS = [
    pytest.param(client, name, id=f"{name}-{client}") for client in FIXTURES for name in FIXTURES[client]
]


@pytest.mark.promise("R13")
@pytest.mark.parametrize(("client", "name"), REQUESTS)
def test_requests_lose_nothing_silently(client: str, name: str) -> None:
    body = FIXTURES[client][name]
    for upstream in PROTOCOL_NAMES:
        run = partial(translated, client, upstream)
        try:
            run(body)
        except (RemoteProtocolError, RequestRefused) as error:
            # Refused as a whole: the refusal names what it is about.
            if not error.path:
                raise
            continue
        assert lost_in(body, client, MEANINGLESS_IN_REQUESTS, run, set()) == [], upstream


MENDED = [
    pytest.param(protocol, name, id=f"{name}-{protocol}")
    for protocol in PROTOCOL_NAMES
    for name in FIXTURES[protocol]
]


@pytest.mark.promise("R13")
@pytest.mark.parametrize(("protocol", "name"), MENDED)
def test_mended_requests_lose_nothing_silently(protocol: str, name: str) -> None:
    body = FIXTURES[protocol][name]
    run = lambda each: mended(protocol, each)  # noqa: E731
    try:
        run(body)
    except (RemoteProtocolError, RequestRefused) as error:
        if not error.path:
            raise
        return
    assert lost_in(body, protocol, MEANINGLESS_IN_REQUESTS, run, set()) == []


WHOLE = [
    pytest.param(upstream, name, id=f"{name}-{upstream}")
    for upstream in PROTOCOL_NAMES
    for name in ANSWERS[upstream]
]


@pytest.mark.promise("R13")
@pytest.mark.parametrize(("upstream", "name"), WHOLE)
def test_answers_lose_nothing_silently(upstream: str, name: str) -> None:
    body = ANSWERS[upstream][name]
    for client in [*PROTOCOL_NAMES, SIMPLE_EVENTS]:
        run = partial(answered, upstream, client)
        known = covered_by_simple_writer if client in SIMPLE else covered_by_writer
        assert lost_in(body, upstream, MEANINGLESS_IN_ANSWERS, run, set(), known) == [], client


@pytest.mark.parametrize(
    ("table", "documents"),
    [
        pytest.param(MEANINGLESS_IN_REQUESTS, FIXTURES, id="requests"),
        pytest.param(MEANINGLESS_IN_ANSWERS, ANSWERS, id="answers"),
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


FOREIGN = [pair for pair in PAIRS if pair[0] != pair[1]] + [
    (upstream, SIMPLE_EVENTS) for upstream in PROTOCOL_NAMES
]
SAMPLES = {CHAT: s.chat, MESSAGES: s.messages, RESPONSES: s.responses}


@pytest.mark.promise("R13")
@pytest.mark.parametrize(("upstream", "client"), FOREIGN)
def test_frames_lose_nothing_silently(upstream: str, client: str) -> None:
    assert lost_in_frames(upstream, client, SAMPLES[upstream](), set()) == []
