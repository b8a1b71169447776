"""Fuzzing: documents, streams and bytes that the repository has are mutated, and the results are checked.

@fuzz(mutated_json(fixtures), examples=200)
def test_it(body: bytes) -> None: ...

A run of the suite tries so many inputs, the same ones each time. With FUZZ_SECONDS in the environment (`make fuzz`)
each test draws new ones for that time instead. An input that fails is made small by Hypothesis and printed as it is
called, so that it can become a row of the subject's own tests.
"""

import copy
import json
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

Json = Any

SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
# So many at a time, so that a run of some seconds ends near its time.
_BATCH = 200


def run(
    check: Callable[..., None],
    *inputs: st.SearchStrategy[Any],
    examples: int,
    after: Callable[[], None] = lambda: None,
    shrinks: bool = True,
) -> None:
    """Run a check with generated inputs.

    examples: how many in a run of the suite. after: what to look at behind each batch. shrinks: what fails is made
    small, for checks that take no time.
    """
    rules = settings(
        deadline=None,
        database=None,
        derandomize=not SECONDS,
        max_examples=_BATCH if SECONDS else examples,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink) if shrinks else (Phase.generate,),
    )
    deadline = time.monotonic() + SECONDS
    while True:
        batch = rules(given(*inputs)(check))
        if SECONDS:
            batch = seed(random.getrandbits(64))(batch)
        batch()
        after()
        if time.monotonic() >= deadline:
            return


def fuzz(
    *inputs: st.SearchStrategy[Any], examples: int
) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Make a test of a check."""

    def decorate(check: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            run(check, *inputs, examples=examples)

        test.__name__ = check.__name__
        test.__doc__ = check.__doc__
        return pytest.mark.fuzz(test)

    return decorate


# --- values ---------------------------------------------------------------------------------------------------


def nested(depth: int) -> Json:
    value: Json = []
    for _ in range(depth):
        value = [value]
    return value


# By name, so that a failing case prints short.
ODD: dict[str, Json] = {
    "null": None,
    "true": True,
    "false": False,
    "zero": 0,
    "minus": -1,
    "seven": 7,
    "half": 0.5,
    "2**53": 2**53,
    "2**63": 2**63,
    "2**70": 2**70,
    "1e300": 1e300,
    "empty": "",
    "blank": " ",
    "text": "x",
    "number": "12",
    "json": '{"a": 1}',
    "cut json": '{"a": ',
    "lines": "a\nb\r\n\r\ndata: c\n\n",
    "nul": "\0",
    "surrogate": "\ud800",
    "astral": "\U0001f600",
    "separators": "\u2028\u2029\u0085",
    "bom": "\ufeff",
    "bidi": "\u202e\u200f",
    "slash": "/~0~1",
    "long": "long " * 2000,
    "data url": "data:image/png;base64,iVBORw0KGgo=",
    "bad url": "data:;base64,***",
    "[]": [],
    "[null]": [None],
    "[text]": ["x"],
    "[{}]": [{}],
    "[[]]": [[]],
    "{}": {},
    "{type}": {"type": {}},
    "{text}": {"type": "text", "text": "x"},
    "deep": nested(60),
    "wide": list(range(300)),
}
# Values of all protocols for types, roles and reasons.
WIRE_VALUES = tuple(
    word
    for line in (
        "text image image_url input_text input_image input_file output_text refusal thinking redacted_thinking",
        "reasoning tool_use tool_result tool function function_call function_call_output custom custom_tool_call",
        "document file server_tool_use web_search_tool_result web_search_call mcp_call compaction message",
        "assistant user system developer auto any none required stop length end_turn max_tokens tool_calls",
        "completed incomplete failed json_schema json_object enabled adaptive text_delta input_json_delta",
        "thinking_delta signature_delta citations_delta message_start content_block_start content_block_delta",
        "content_block_stop message_delta message_stop error ping response.created response.output_item.added",
        "response.output_item.done response.output_text.delta response.function_call_arguments.delta",
        "response.completed response.failed response.incomplete",
    )
    for word in line.split()
)

_names = st.sampled_from(sorted(ODD))
_places = st.integers(0, 2**16)

# --- JSON documents -------------------------------------------------------------------------------------------

Holder = tuple[Any, Any]  # a list or an object, and the index or the key in it


def holders(document: Json) -> list[Holder]:
    """Where each value of a document stands, but for the document itself."""
    found: list[Holder] = []
    todo = [document]
    while todo:
        value = todo.pop(0)
        keys = (
            list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        )
        for key in keys:
            found.append((value, key))
            todo.append(value[key])
    return found


def _replace(holder: Holder, other: Holder, value: Json, word: str) -> None:
    holder[0][holder[1]] = value


def _set(holder: Holder, other: Holder, value: Json, word: str) -> None:
    holder[0][holder[1]] = word


def _drop(holder: Holder, other: Holder, value: Json, word: str) -> None:
    del holder[0][holder[1]]


def _repeat(holder: Holder, other: Holder, value: Json, word: str) -> None:
    inside, key = holder
    if isinstance(inside, list):
        inside.insert(key, copy.deepcopy(inside[key]))
    else:
        inside[f"{key}_2"] = copy.deepcopy(inside[key])


def _swap(holder: Holder, other: Holder, value: Json, word: str) -> None:
    (a, i), (b, j) = holder, other
    # Copies, because a value could otherwise be put into itself.
    a[i], b[j] = copy.deepcopy(b[j]), copy.deepcopy(a[i])


def _wrap(holder: Holder, other: Holder, value: Json, word: str) -> None:
    holder[0][holder[1]] = [holder[0][holder[1]]]


def _rename(holder: Holder, other: Holder, value: Json, word: str) -> None:
    inside, key = holder
    if isinstance(inside, dict):
        inside[other[1] if isinstance(other[1], str) else word] = inside.pop(key)
    else:
        inside.reverse()


def _add(holder: Holder, other: Holder, value: Json, word: str) -> None:
    inside, key = holder
    if isinstance(inside, dict):
        inside[str(other[1])] = value
    else:
        inside.insert(key, value)


JSON_STEPS = {
    "replace": _replace,
    "say": _set,
    "drop": _drop,
    "repeat": _repeat,
    "swap": _swap,
    "wrap": _wrap,
    "rename": _rename,
    "add": _add,
}

Step = tuple[str, int, int, str, str]
steps = st.tuples(st.sampled_from(sorted(JSON_STEPS)), _places, _places, _names, st.sampled_from(WIRE_VALUES))


def change(document: Json, plan: Sequence[Step]) -> Json:
    """The document with each step of a plan taken, in their order."""
    changed = {"": copy.deepcopy(document)}
    for name, place, another, odd, word in plan:
        # What gets small, continues: an empty document has one place, itself.
        found = holders(changed)[1 if len(holders(changed)) > 1 else 0 :]
        if not found:
            break
        value = copy.deepcopy(ODD[odd])
        JSON_STEPS[name](found[place % len(found)], found[another % len(found)], value, word)
    return changed.get("")


def as_bytes(document: Json) -> bytes:
    """JSON in UTF-8; a text with a lone surrogate in escapes."""
    try:
        return json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(document).encode()


def mutated_json(
    fixtures: Mapping[str, Sequence[Json]], max_steps: int = 4
) -> st.SearchStrategy[tuple[str, bytes]]:
    """The name of a protocol and the bytes of one of its documents, changed. Seldom no JSON any more."""

    def of(name: str) -> st.SearchStrategy[tuple[str, bytes]]:
        documents = st.tuples(st.sampled_from(fixtures[name]), st.lists(steps, max_size=max_steps))
        bodies = documents.map(lambda drawn: as_bytes(change(*drawn)))
        cut = st.tuples(bodies, st.lists(cuts, max_size=2)).map(lambda drawn: damage(*drawn))
        return st.tuples(st.just(name), st.one_of(bodies, bodies, bodies, cut))

    return st.sampled_from(sorted(fixtures)).flatmap(of)


# --- bytes ----------------------------------------------------------------------------------------------------

_BITS = (
    b"",
    b"\0",
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"\xff",
    b"\xe2\x80",
    b"\xef\xbb\xbf",
    b":",
    b"data:",
    b"{",
    b'"',
)
Cut = tuple[int, int, bytes]
cuts = st.tuples(_places, st.integers(0, 40), st.one_of(st.sampled_from(_BITS), st.binary(max_size=6)))


def damage(data: bytes, plan: Sequence[Cut]) -> bytes:
    """The bytes with some of them replaced: where, how many, by what."""
    for place, count, instead in plan:
        at = place % (len(data) + 1)
        data = data[:at] + instead + data[at + count :]
    return data


def chunks(data: bytes, places: Sequence[int]) -> list[bytes]:
    """The bytes, cut at these places, whatever their length."""
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    return [data[a:b] for a, b in zip([0, *ends], ends, strict=False)]


cut_places = st.lists(_places, max_size=6)

# --- streams --------------------------------------------------------------------------------------------------

FRAME_STEPS = (
    "drop",
    "repeat",
    "swap",
    "move",
    "end",
    "change",
    "change",
    "change",
    "index",
    "lines",
    "blank",
)
FrameStep = tuple[str, int, int, Step]
frame_steps = st.tuples(st.sampled_from(FRAME_STEPS), _places, _places, steps)

_INDICES = ("index", "output_index", "content_index", "summary_index", "sequence_number")


def change_frames(frames: Sequence[bytes], plan: Sequence[FrameStep]) -> bytes:
    """A stream of frames (each with its blank line), changed: frames dropped, repeated, moved, their JSON mutated."""
    changed = list(frames)
    for name, place, another, step in plan:
        if not changed:
            break
        at, to = place % len(changed), another % len(changed)
        if name == "drop":
            del changed[at]
        elif name == "repeat":
            changed.insert(to, changed[at])
        elif name == "swap":
            changed[at], changed[to] = changed[to], changed[at]
        elif name == "move":
            changed.insert(to, changed.pop(at))
        elif name == "end":
            del changed[at:]
        elif name == "blank":
            changed[at] += b"\n" * (1 + another % 3)
        elif name == "lines":
            changed[at] = changed[at].replace(b"\n", (b"\r\n", b"\r")[another % 2])
        else:
            changed[at] = _in_frame(changed[at], name, another, step)
    return b"".join(changed)


def _in_frame(frame: bytes, name: str, number: int, step: Step) -> bytes:
    head, found, data = frame.partition(b"data: ")
    try:
        payload = json.loads(data)
    except ValueError:
        return frame
    if not found:
        return frame
    if name == "change":
        payload = change(payload, [step])
    else:
        for holder, key in holders(payload):
            if key in _INDICES:
                holder[key] = number % 5
    return head + b"data: " + as_bytes(payload) + b"\n\n"


def frames_of(stream: bytes) -> list[bytes]:
    return [frame + b"\n\n" for frame in stream.split(b"\n\n")[:-1]]


def mutated_streams(streams: Mapping[str, Sequence[bytes]]) -> st.SearchStrategy[tuple[str, bytes]]:
    """The name of a protocol and one of its streams, changed."""

    def of(name: str) -> st.SearchStrategy[tuple[str, bytes]]:
        drawn = st.tuples(st.sampled_from(streams[name]), st.lists(frame_steps, max_size=5))
        whole = drawn.map(lambda pair: change_frames(frames_of(pair[0]), pair[1]))
        cut = st.tuples(whole, st.lists(cuts, max_size=2)).map(lambda pair: damage(*pair))
        return st.tuples(st.just(name), st.one_of(whole, whole, cut))

    return st.sampled_from(sorted(streams)).flatmap(of)


@cache
def streams() -> dict[str, list[bytes]]:
    """Whole streams of each protocol: samples, and hand-written events as its writer prints them."""
    from laws.events import EVENTS, scripted
    from laws.pairs import Source, translated_response
    from oracle import CHAT, GEMINI, MESSAGES, PROTOCOL_NAMES, RESPONSES
    from oracle import samples as s

    found = {
        CHAT: [s.render(CHAT, s.chat())],
        MESSAGES: [s.render(MESSAGES, s.messages())],
        RESPONSES: [s.render(RESPONSES, s.responses())],
        GEMINI: [s.render(GEMINI, s.gemini())],
    }
    for label, events in EVENTS.items():
        spec, script = scripted(events)
        for name in PROTOCOL_NAMES:
            found[name].append(translated_response(Source(label, "scripted", script, spec), name))
    return found
