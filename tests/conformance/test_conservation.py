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
from law_plant import Place, covered, leaves, objects, planted, steps_of
from law_requests import FIXTURES
from oracle import CHAT, MESSAGES, PROTOCOLS, RESPONSES, as_object, corpus
from oracle import samples as s
from oracle.frames import lenient_frames

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
    (
        RESPONSES,
        r"/input/[^/]*/id",
    ): "names the item in the vendor's store; calls and results meet by call_id",
    (RESPONSES, r"/input/[^/]*/status"): "the state of an item that is past",
    (RESPONSES, r"/input/function_call_output/(name|namespace)"): "repeats what the call says",
    (RESPONSES, r"/input/additional_tools[^/]*/role"): "has one value, developer",
}

# The members of a Response that say again what was asked.
ECHO = (
    "/(access_programs|background|conversation|image|instructions|max_output_tokens|max_tool_calls|metadata"
    "|parallel_tool_calls|previous_response_id|prompt|prompt_cache_key|prompt_cache_options"
    "|prompt_cache_retention|reasoning|safety_identifier|store|temperature|text|tool_choice|tools"
    "|top_logprobs|top_p|truncation|user)(/.*)?"
)

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
    if any(sign in out for sign in signs) or covered(place.path, losses) or covered_by_writer(place, losses):
        return None
    if not signs and (out, losses) != base:
        return None
    return f"{place.path} ({place.pattern}): {str(place.value)[:40]!r}"


# A writer that cannot print one of these names it by its own place: it never saw the upstream's.
_WRITERS = re.compile(r"/(annotations|citations|logprobs|phase|explanation|service_tier)(/|$)")


def covered_by_writer(place: Place, losses: tuple[str, ...]) -> bool:
    found = _WRITERS.search(place.path)
    names = (
        {"annotations", "citations"}
        if found and found[1] in ("annotations", "citations")
        else {found and found[1]}
    )
    return found is not None and any(names & set(loss.split("/")) for loss in losses)


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
        if not error.path:
            raise
        return
    lost = lost_in(
        body, client, MEANINGLESS_IN_REQUESTS, lambda each: translated(client, upstream, each), set()
    )
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
            if not error.path:
                raise
            continue
        run = lambda each: translated(client, upstream, each)  # noqa: E731
        lost += lost_in(body, client, MEANINGLESS_IN_REQUESTS, run, tried)
    assert lost == []


MEANINGLESS_IN_ANSWERS: dict[tuple[str, str], str] = {
    (CHAT, r"/(id|created|model)"): "the client is told ours: an id of the exchange, its time, its alias",
    (CHAT, r"/object"): "has one value",
    (CHAT, r"/choices/\*/message/role"): "has one value, assistant",
    (CHAT, r"/choices/\*/message/tool_calls/\w+/type"): "the member beside it says the same",
    (CHAT, r"/choices/\*/message/(annotations|content/thinking/thinking)/\w+/type"): "the members say it",
    (CHAT, r"/usage/(total_tokens|prompt_cache_miss_tokens)"): "follows from the other figures",
    (MESSAGES, r"/(id|model)"): "the client is told ours",
    (MESSAGES, r"/(type|role|stop_details/type)"): "has one value",
    (RESPONSES, r"/(id|created_at|completed_at|model)"): "the client is told ours",
    (RESPONSES, r"/object"): "has one value",
    (RESPONSES, r"/output/message.*/role"): "has one value, assistant",
    (RESPONSES, r"/output/[^/]*/(id|status)"): "names an item of the vendor's, and its state in the stream",
    (RESPONSES, r"/usage/total_tokens"): "follows from the other figures",
    (RESPONSES, ECHO): "repeats the request",
}


def asked(client: str) -> Exchange:
    request = Request(protocol=client, model="alias", messages=(), raw={}, params={"stop": ["STOP"]})
    return Exchange(request=request, id="0123456789abcdef", now=1, model="alias")


def answered(upstream: str, client: str, body: Any) -> Outcome:
    """A whole answer translated. Raises RemoteProtocolError where it becomes an error: that is loud."""
    specs = REGISTRY[upstream], REGISTRY[client]
    translator = ResponseTranslator(*specs, asked(client), upstream_streams=False)
    translator.receive_data(json.dumps(body).encode())
    translator.receive_eof()
    if translator.fault is not None:
        raise RemoteProtocolError(translator.fault.message, path="/answer")
    out = translator.data_to_send().decode()
    return out + opened(out), tuple(loss.path for loss in translator.losses)


def opened(out: str) -> str:
    """What travels inside of sealed reasoning."""
    seals = [Sealer().unwrap(text) for text in re.findall(r"drg1\.[A-Za-z0-9_-]+", out)]
    return "".join(encode(seal.native).decode() for seal in seals if seal is not None)


WHOLE = [
    pytest.param(upstream, client, name, id=f"{name}-{upstream}-to-{client}")
    for upstream, client in PAIRS
    for name in ANSWERS[upstream]
    if upstream != client  # the same protocol is relayed, byte for byte
]


@pytest.mark.parametrize(("upstream", "client", "name"), WHOLE)
def test_answers_lose_nothing_silently(upstream: str, client: str, name: str) -> None:
    run = lambda each: answered(upstream, client, each)  # noqa: E731
    assert lost_in(ANSWERS[upstream][name], upstream, MEANINGLESS_IN_ANSWERS, run, set()) == []


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
        for protocol in PROTOCOLS
    }
    idle = [
        (protocol, rule)
        for protocol, rule in table
        if not any(re.fullmatch(rule, pattern) for pattern in patterns[protocol])
    ]
    assert idle == []


# Frames whose members repeat what other frames say, or say nothing: what is planted there is not missed.
REPEATS = re.compile(
    r"response\.(created|queued|in_progress|output_item\.added|content_part\..*|reasoning_summary_part\..*"
    r"|.*\.done|(mcp_list_tools|\w+_call)\..*)|ping|\[DONE\]"
    r"|message_stop|content_block_stop|keepalive"
)
MEANINGLESS_IN_FRAMES: dict[tuple[str, str], str] = {
    (RESPONSES, r"/response/output/.*"): "says the finished items again",
    (MESSAGES, r"/content_block/input/.*"): "the deltas say it",
    (RESPONSES, "/response" + ECHO): "repeats the request",
}


def streamed(upstream: str, client: str, frames: list[Any]) -> Outcome:
    translator = ResponseTranslator(REGISTRY[upstream], REGISTRY[client], asked(client), client_streams=True)
    translator.receive_data(s.render(upstream, frames))
    translator.receive_eof()
    if translator.fault is not None:
        raise RemoteProtocolError(translator.fault.message, path="/answer")
    out = translator.data_to_send().decode()
    return out + opened(out), tuple(loss.path for loss in translator.losses)


def lost_in_frames(upstream: str, client: str, frames: list[Any], tried: set[str]) -> list[str]:
    """Unknown members of frames that come to nothing: not in the output, and no new entry in the ledger."""
    base = streamed(upstream, client, frames)
    found = []
    for number, frame in enumerate(frames):
        kind = frame.get("type", "chunk") if isinstance(frame, dict) else str(frame)
        if REPEATS.fullmatch(kind):
            continue
        for place in objects(frame):
            name = f"{kind}{place.pattern}"
            if name in tried or is_meaningless(MEANINGLESS_IN_FRAMES, upstream, place.pattern):
                continue
            tried.add(name)
            changed, signs = planted(frame, place, token())
            try:
                out, losses = streamed(upstream, client, [*frames[:number], changed, *frames[number + 1 :]])
            except RemoteProtocolError:
                continue
            if any(sign in out for sign in signs) or not set(losses) <= set(base[1]):
                continue
            if not (covered_around(place, frame, losses) or covered_by_writer(place, losses)):
                found.append(f"{name} in frame {number}")
    return found


def covered_around(place: Place, frame: Any, losses: tuple[str, ...]) -> bool:
    """Whether a member around the place, or the block or item that the frame is about, is in the ledger."""
    whole = {f"/content/{frame.get('index')}", f"/output/{frame.get('output_index')}"}
    around = set(steps_of(place.path)[:-1])
    return any(loss in whole or loss.rpartition("/")[2] in around for loss in losses)


FOREIGN = [pair for pair in PAIRS if pair[0] != pair[1]]
SAMPLES = {CHAT: s.chat, MESSAGES: s.messages, RESPONSES: s.responses}
# Longer recordings hold more of the same, and each place costs a translation.
LONG = 12_000


@pytest.mark.parametrize(("upstream", "client"), FOREIGN)
def test_frames_lose_nothing_silently(upstream: str, client: str) -> None:
    tried: set[str] = set()
    lost = lost_in_frames(upstream, client, SAMPLES[upstream](), tried)
    for recording in corpus.recordings():
        stream = recording.read()
        if recording.protocol == upstream and len(stream) < LONG:
            frames = [as_object(frame.data) or frame.data for frame in lenient_frames(stream)]
            try:
                lost += lost_in_frames(upstream, client, frames, tried)
            except RemoteProtocolError:
                continue  # it ends in an error
    assert lost == []
