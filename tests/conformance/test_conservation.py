"""Nothing is silently lost: every value of a document shows in what comes out, or its place is in the ledger.

One value at a time is changed (or one unknown member added) and the document translated again. A string must be
found in the output, or its place in the ledger; a changed number or switch must change the output or the ledger.
A refusal that names a place is not silent either. What is left has no meaning of its own: `MEANINGLESS` holds
all of it, with reasons.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any

import pytest
from law_answers import ANSWERS
from law_plant import Place, covered, leaves, objects, planted
from law_requests import FIXTURES
from oracle import CHAT, MESSAGES, PROTOCOLS, RESPONSES, corpus

from dragoman import (
    REGISTRY,
    Exchange,
    Ledger,
    RemoteProtocolError,
    Request,
    RequestTranslator,
    ResponseTranslator,
    Sealer,
    Target,
)
from dragoman._json import encode

PAIRS = [(client, upstream) for client in PROTOCOLS for upstream in PROTOCOLS]

# (protocol of the document, pattern of places) -> why nothing is lost with them.
MEANINGLESS_IN_REQUESTS: dict[tuple[str, str], str] = {
    (CHAT, r"/messages/.*/tool_calls/\w+/type"): "the member beside it, function or custom, says the same",
    (CHAT, r"/messages/.*/reasoning"): "the text of reasoning_details under a second name",
    (CHAT, r"/stream_options/include_usage"): "heeded when the answer is written",
    (CHAT, r"/parallel_tool_calls"): "says nothing where there are no tools",
    (MESSAGES, r"/tool_choice/disable_parallel_tool_use"): "says nothing where there are no tools",
    (MESSAGES, r".*/source/media_type"): "a source of type text has one media type, text/plain",
    (RESPONSES, r"/parallel_tool_calls"): "says nothing where there are no tools",
    (RESPONSES, r"/input/[^/]*/id"): "names the item in the vendor's store; calls and results meet by call_id",
    (RESPONSES, r"/input/[^/]*/status"): "the state of an item that is past",
    (RESPONSES, r"/input/function_call_output/(name|namespace)"): "repeats what the call says",
    (RESPONSES, r"/input/additional_tools[^/]*/role"): "has one value, developer",
}

_numbers = count()


def token() -> str:
    return f"Zq{next(_numbers):06d}"


Outcome = tuple[str, tuple[str, ...]]  # the output, and the places in the ledger


def translated(client: str, upstream: str, body: Any) -> Outcome:
    if client != upstream:
        done = RequestTranslator(REGISTRY[client], REGISTRY[upstream]).translate(json.dumps(body).encode())
        return done.body.decode(), tuple(loss.path for loss in done.losses)
    # Equal protocols are relayed; what their reader and writer make of it must hold all the same.
    ledger = Ledger()
    request = REGISTRY[client].read_request(json.loads(json.dumps(body)), Sealer())
    own = Target(mid_system=True, developer_role=True, cache_marks=True)
    out = encode(REGISTRY[client].write_request(request, own, ledger))
    return out.decode(), tuple(loss.path for loss in ledger)


def problem(document: Any, place: Place, base: Outcome, run: Callable[[Any], Outcome]) -> str | None:
    """What got lost with a value, None when nothing did."""
    changed, signs = planted(document, place, token())
    try:
        out, losses = run(changed)
    except RemoteProtocolError as error:
        return None if error.path else f"{place.path}: refused without a place: {error}"
    if any(sign in out for sign in signs) or covered(place.path, losses):
        return None
    if not signs and (out, losses) != base:
        return None
    return f"{place.path} ({place.pattern}): {str(place.value)[:40]!r}"


def is_meaningless(table: dict[tuple[str, str], str], protocol: str, pattern: str) -> bool:
    return any(name == protocol and re.fullmatch(rule, pattern) for name, rule in table)


def lost_in(
    document: Any,
    protocol: str,
    table: dict[tuple[str, str], str],
    run: Callable[[Any], Outcome],
    tried: set[str],
) -> list[str]:
    """What a translation loses of a document. Kinds of places in `tried` are not tried again."""
    base = run(document)
    found = []
    for place in [*leaves(document), *objects(document)]:
        if place.pattern in tried or is_meaningless(table, protocol, place.pattern):
            continue
        tried.add(place.pattern)
        lost = problem(document, place, base, run)
        if lost is not None:
            found.append(lost)
    return found


REQUESTS = [
    pytest.param(client, upstream, name, id=f"{name}-{client}-to-{upstream}")
    for client, upstream in PAIRS
    for name in FIXTURES[client]
]


@pytest.mark.parametrize(("client", "upstream", "name"), REQUESTS)
def test_requests_lose_nothing_silently(client: str, upstream: str, name: str) -> None:
    body = FIXTURES[client][name]
    try:
        translated(client, upstream, body)
    except RemoteProtocolError as error:
        # Refused as a whole: the refusal names what it is about.
        assert error.path, error
        return
    lost = lost_in(body, client, MEANINGLESS_IN_REQUESTS, lambda each: translated(client, upstream, each), set())
    assert lost == []


@cache
def recorded_requests() -> dict[str, list[Any]]:
    """All recorded request bodies, by protocol."""
    found: dict[str, list[Any]] = {protocol: [] for protocol in PROTOCOLS}
    for recording in corpus.recordings():
        if recording.request is not None:
            found[recording.protocol].append(recording.request)
    for answer in corpus.equivalents():
        if answer.request is not None:
            found[answer.protocol].append(answer.request)
    return found


@pytest.mark.parametrize(("client", "upstream"), PAIRS)
@pytest.mark.skipif(corpus.root() is None, reason="the recordings are not at hand")
def test_recorded_requests_lose_nothing_silently(client: str, upstream: str) -> None:
    tried: set[str] = set()
    lost: list[str] = []
    for body in recorded_requests()[client]:
        try:
            translated(client, upstream, body)
        except RemoteProtocolError as error:
            assert error.path, error
            continue
        run = lambda each: translated(client, upstream, each)  # noqa: E731
        lost += lost_in(body, client, MEANINGLESS_IN_REQUESTS, run, tried)
    assert lost == []


MEANINGLESS_IN_ANSWERS: dict[tuple[str, str], str] = {
}


def asked(client: str) -> Exchange:
    request = Request(protocol=client, model="alias", messages=(), raw={}, params={"stop": ["STOP"]})
    return Exchange(request=request, id="0123456789abcdef", now=1, model="alias")


def answered(upstream: str, client: str, body: Any) -> Outcome:
    translator = ResponseTranslator(REGISTRY[upstream], REGISTRY[client], asked(client), upstream_streams=False)
    translator.receive_data(json.dumps(body).encode())
    translator.receive_eof()
    if translator.fault is not None:
        return translator.fault.message, ("/failed",)
    return translator.data_to_send().decode(), tuple(loss.path for loss in translator.losses)


WHOLE = [
    pytest.param(upstream, client, name, id=f"{name}-{upstream}-to-{client}")
    for upstream, client in PAIRS
    for name in ANSWERS[upstream]
]


@pytest.mark.parametrize(("upstream", "client", "name"), WHOLE)
def test_answers_lose_nothing_silently(upstream: str, client: str, name: str) -> None:
    run = lambda each: answered(upstream, client, each)  # noqa: E731
    body = ANSWERS[upstream][name]
    assert "/failed" not in run(body)[1]
    assert lost_in(body, upstream, MEANINGLESS_IN_ANSWERS, run, set()) == []
