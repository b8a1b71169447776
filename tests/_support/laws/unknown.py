"""Unknown fields, put into any objects of a document by Hypothesis, and which of them the ledger lacks."""

import copy
import json
import re
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from laws.extras import BOOKKEEPING
from laws.plant import child, covered, key_in, objects, steps_of
from laws.runs import ECHO, Outcome, rewritten, streamed, token, translated, translated_response

from dragoman import RemoteProtocolError, RequestRefused

Body = dict[str, Any]
RULES = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
MAX_PLANTED = 5  # fields at once

# Names that no protocol has: those that it has would mean something. `/` and `~` are escaped in pointers.
NAMES = st.text(
    st.one_of(st.sampled_from("/~. \"\\'"), st.characters(exclude_categories=["Cs"])), max_size=12
).map("zq_".__add__)
SCALARS = st.one_of(st.booleans(), st.integers(-(2**53), 2**53), st.floats(-1e9, 1e9), st.text(max_size=8))
VALUES = st.recursive(
    st.one_of(st.none(), SCALARS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


# Objects in responses where it has no meaning: what repeats the request, what servers add for themselves, counters of
# nothing.
_NOTHING = "|".join([ECHO, *BOOKKEEPING.values()])
REPEATS = re.compile(_NOTHING)
# Some servers put the whole message beside each delta.
BESIDE = re.compile(rf"/choices/\d+/message(/.*)?|{_NOTHING}")
# Figures and flags, and what a server adds whole: zero, false and empty values have no meaning there.
FIGURES = re.compile(
    r"/(usage|usageMetadata|tool_usage/image_gen|(choices|prompt_filter_results)/\d+/content_filter_results"
    r"|choices/\d+/(delta|message)/graph_data)(/.*)?"
)


class Planted:
    """A document with unknown fields. fields: the place of each, the token that it holds, whether it says nothing."""

    def __init__(self, document: Any, draw: st.DataObject, repeats: re.Pattern[str] = REPEATS) -> None:
        self.document = copy.deepcopy(document)
        self.fields: list[tuple[str, str, bool]] = []
        places = [place.path.rpartition("/")[0] for place in objects(document)]
        places = [path for path in places if not repeats.fullmatch(path)]
        for path in draw.draw(
            st.lists(st.sampled_from(places), min_size=1, max_size=MAX_PLANTED, unique=True)
        ):
            name, value, sign = draw.draw(NAMES), draw.draw(VALUES), token()
            if value is not None and draw.draw(st.booleans()):
                value = {"held": value, "sign": sign}
            holder = self.document
            for step in steps_of(path):
                holder = holder[key_in(holder, step)]
            holder[name] = value
            nothing = value is None or (FIGURES.fullmatch(path) is not None and not _counts(value))
            self.fields.append((child(path, name), sign, nothing))

    def lost(self, outcome: Outcome) -> list[str]:
        out, losses = outcome
        return [
            path
            for path, sign, nothing in self.fields
            if not (
                nothing
                or sign in out
                or covered(path, losses)
                or covered(_camel_case(path), losses)
                or _is_inside(path, self.document, out)
            )
        ]


def _counts(value: Any) -> bool:
    members = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return bool(value) if members is None else any(map(_counts, members))


def _camel_case(path: str) -> str:
    """The place as Gemini's ledger names it: requests may have the names of proto3's fields, with underscores."""
    return re.sub(r"_([a-z])", lambda letter: letter[1].upper(), path)


def _is_inside(path: str, document: Any, out: str) -> bool:
    """Whether a field came out with the object around it, by its name, which a relay spells as the client did."""
    last = steps_of(path)[-1]
    name = json.dumps(last, ensure_ascii=False)[1:-1]
    spellings = name, json.dumps(name, ensure_ascii=False)[1:-1], json.dumps(last)[1:-1]
    return any(each in out for each in spellings)


def lost_of_request(
    client: str, upstream: str, body: Body, draw: st.DataObject, rewrites: bool = False
) -> list[str]:
    """The places of planted fields that come to nothing on the way to an upstream."""
    planted = Planted(body, draw)
    try:
        outcome = (
            rewritten(client, planted.document)
            if rewrites
            else translated(client, upstream, planted.document)
        )
    except (RemoteProtocolError, RequestRefused) as error:
        if not error.path:  # a refusal names its place
            raise
        return []
    return planted.lost(outcome)


def lost_of_response(upstream: str, client: str, body: Body, draw: st.DataObject) -> list[str]:
    """The same on the way to a client."""
    planted = Planted(body, draw)
    try:
        outcome = translated_response(upstream, client, planted.document)
    except (RemoteProtocolError, RequestRefused):
        return []  # it is an error, so nothing is silent
    return planted.lost(outcome)


def lost_of_frame(upstream: str, client: str, frames: list[Any], draw: st.DataObject) -> list[str]:
    """The same in a frame that adds something: others repeat what is said elsewhere."""
    number = frames.index(draw.draw(st.sampled_from(list(filter(has_content, frames)))))
    planted = Planted(frames[number], draw, BESIDE)
    try:
        outcome = streamed(upstream, client, [*frames[:number], planted.document, *frames[number + 1 :]])
    except (RemoteProtocolError, RequestRefused):
        return []
    return [path for path in planted.lost(outcome) if not any(_names(loss, path) for loss in outcome[1])]


def has_content(frame: Any) -> bool:
    if not isinstance(frame, dict):
        return False
    kind = frame.get("type", "")
    return (
        "choices" in frame
        or "candidates" in frame
        or kind == "content_block_delta"
        or (kind.endswith(".delta") and "_call" not in kind)
    )


def _names(loss: str, path: str) -> bool:
    """In the ledger a stream is its whole response: the field has its own name there, its object's or its block."""
    return not {*steps_of(path)[-2:]}.isdisjoint(steps_of(loss)[-1:]) or loss.rpartition("/")[2].isdigit()
