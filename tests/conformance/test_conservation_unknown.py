"""Fields that nobody knows are never lost in silence, wherever they stand, whatever they are called and hold.

Hypothesis makes names and values, and puts several at once into any objects of any fixture, recorded request,
answer or stream. Between different protocols each of them is in the ledger under its own place, or it travels inside
of something that travels whole; a null is nothing.
"""

from __future__ import annotations

import copy
import json
import re
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_answers import ANSWERS
from law_extras import BOOKKEEPING
from law_plant import child, covered, objects, steps_of
from law_requests import FIXTURES
from law_runs import ECHO, Outcome, answered, first_answer, streamed, token, translated
from oracle import CHAT, MESSAGES, PROTOCOLS, RESPONSES, as_object, corpus
from oracle import samples as s
from oracle.frames import lenient_frames

from dragoman import RemoteProtocolError

Body = dict[str, Any]
FOREIGN = [(source, target) for source in PROTOCOLS for target in PROTOCOLS if source != target]
RULES = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
MOST = 5  # fields at once

# Names that no protocol has: those that it has would mean something. `/` and `~` are escaped in pointers.
NAMES = st.text(
    st.one_of(st.sampled_from("/~. \"\\'"), st.characters(exclude_categories=["Cs"])), max_size=12
).map("x_".__add__)
SCALARS = st.one_of(st.booleans(), st.integers(-(2**53), 2**53), st.floats(-1e9, 1e9), st.text(max_size=8))
VALUES = st.recursive(
    st.one_of(st.none(), SCALARS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


# Objects in answers where it says nothing: what repeats the request, what servers write for themselves, and counters of
# nothing.
_NOTHING = "|".join([ECHO, *BOOKKEEPING.values()])
REPEATS = re.compile(_NOTHING)
# Some servers put the whole message beside each delta.
BESIDE = re.compile(rf"/choices/\d+/message(/.*)?|{_NOTHING}")
COUNTERS = re.compile(r"/usage(/.*)?")


class Planted:
    """A document with unknown fields. fields: the place of each, the token that it holds, whether it says nothing."""

    def __init__(self, document: Any, draw: st.DataObject, repeats: re.Pattern[str] = REPEATS) -> None:
        self.document = copy.deepcopy(document)
        self.fields: list[tuple[str, str, bool]] = []
        places = [place.path.rpartition("/")[0] for place in objects(document)]
        places = [path for path in places if not repeats.fullmatch(path)]
        for path in draw.draw(st.lists(st.sampled_from(places), min_size=1, max_size=MOST, unique=True)):
            name, value, sign = draw.draw(NAMES), draw.draw(VALUES), token()
            if value is not None and draw.draw(st.booleans()):
                value = {"held": value, "sign": sign}
            holder = self.document
            for step in steps_of(path):
                holder = holder[int(step) if isinstance(holder, list) else step]
            holder[name] = value
            nothing = value is None or (COUNTERS.fullmatch(path) is not None and not _counts(value))
            self.fields.append((child(path, name), sign, nothing))

    def lost(self, outcome: Outcome) -> list[str]:
        out, losses = outcome
        return [
            path
            for path, sign, nothing in self.fields
            if not (nothing or sign in out or covered(path, losses) or _is_inside(path, self.document, out))
        ]


def _counts(value: Any) -> bool:
    members = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return bool(value) if members is None else any(map(_counts, members))


def _is_inside(path: str, document: Any, out: str) -> bool:
    """Whether a field came out with the object around it, by its name."""
    name = json.dumps(steps_of(path)[-1], ensure_ascii=False)[1:-1]
    return name in out or json.dumps(name, ensure_ascii=False)[1:-1] in out


@cache
def requests(protocol: str) -> list[Body]:
    """Those that reach some other protocol, of ours and recorded ones."""
    recorded = [each.request for each in corpus.recordings() if each.protocol == protocol and each.request]
    recorded += [each.request for each in corpus.equivalents() if each.protocol == protocol and each.request]
    return [*FIXTURES[protocol].values(), *recorded]


@pytest.mark.parametrize(("client", "upstream"), FOREIGN)
@given(data=st.data())
@RULES
def test_unknown_fields_of_requests_are_told(client: str, upstream: str, data: st.DataObject) -> None:
    body = data.draw(st.sampled_from(requests(client)))
    planted = Planted(body, data)
    try:
        outcome = translated(client, upstream, planted.document)
    except RemoteProtocolError as error:
        if not error.path:  # a refusal names its place
            raise
        return
    assert planted.lost(outcome) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(data=st.data())
@RULES
def test_the_same_protocol_gets_unknown_fields_as_they_are(protocol: str, data: st.DataObject) -> None:
    planted = Planted(data.draw(st.sampled_from(requests(protocol))), data)
    try:
        out, losses = translated(protocol, protocol, planted.document)
    except RemoteProtocolError as error:
        if not error.path:
            raise
        return
    assert planted.lost((out, losses)) == []


@cache
def whole_answers(protocol: str) -> list[Body]:
    recorded = [
        as_object(each.body)
        for each in corpus.equivalents()
        if each.protocol == protocol and each.status == 200
    ]
    return [*ANSWERS[protocol].values(), *(each for each in recorded if each)]


@pytest.mark.parametrize(("upstream", "client"), FOREIGN)
@given(data=st.data())
@RULES
def test_unknown_fields_of_answers_are_told(upstream: str, client: str, data: st.DataObject) -> None:
    planted = Planted(data.draw(st.sampled_from(whole_answers(upstream))), data)
    try:
        outcome = answered(upstream, client, planted.document)
    except RemoteProtocolError:
        return  # it is an error: that is loud
    assert planted.lost(outcome) == []


SAMPLES = {CHAT: s.chat, MESSAGES: s.messages, RESPONSES: s.responses}
# Each example costs a translation of the whole stream.
LONG = 60_000


@cache
def streams(protocol: str) -> list[list[Any]]:
    recorded = [each.read() for each in corpus.recordings() if each.protocol == protocol]
    parsed = [
        [as_object(frame.data) or frame.data for frame in lenient_frames(stream)]
        for stream in recorded
        if len(stream) < LONG
    ]
    every = [SAMPLES[protocol](), *map(first_answer, parsed)]
    return [frames for frames in every if any(map(_tells, frames))]


@pytest.mark.parametrize(("upstream", "client"), FOREIGN)
@given(data=st.data())
@RULES
def test_unknown_members_of_chunks_and_deltas_are_told(
    upstream: str, client: str, data: st.DataObject
) -> None:
    """In frames that say something of their own: others repeat what is said elsewhere."""
    frames = data.draw(st.sampled_from(streams(upstream)))
    telling = list(filter(_tells, frames))
    number = frames.index(data.draw(st.sampled_from(telling)))
    planted = Planted(frames[number], data, BESIDE)
    try:
        outcome = streamed(upstream, client, [*frames[:number], planted.document, *frames[number + 1 :]])
    except RemoteProtocolError:
        return
    lost = [path for path in planted.lost(outcome) if not any(_names(loss, path) for loss in outcome[1])]
    assert lost == []


def _tells(frame: Any) -> bool:
    if not isinstance(frame, dict):
        return False
    kind = frame.get("type", "")
    return (
        "choices" in frame
        or kind == "content_block_delta"
        or (kind.endswith(".delta") and "_call" not in kind)
    )


def _names(loss: str, path: str) -> bool:
    """In the ledger a stream is the whole answer that it stands for: the field has its own name there, or its block."""
    return steps_of(loss)[-1:] == steps_of(path)[-1:] or loss.rpartition("/")[2].isdigit()
