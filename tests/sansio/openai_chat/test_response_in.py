"""Streams and whole responses of Chat upstreams: how they start and end, and what is beside the choices."""

from __future__ import annotations

from typing import Any

import pytest
from chat_upstream import calls, context, delta, fragment

from dragoman._ir.events import ENDED, Event
from dragoman._ir.losses import Ledger
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import encode
from dragoman._wire.sse import Frame
from dragoman.protocols.openai_chat import SPEC


@pytest.mark.parametrize(
    "deltas",
    [
        [{"content": "a"}, {"content": "b"}, {"content": ""}, {"content": None}, {"content": ["x"]}, {"refusal": "r"}],
        [{"reasoning_content": "a"}, {"reasoning_content": "b"}, {"reasoning_content": ""}, {"reasoning": "c"},
         {"reasoning": "d"}, {"content": "e"}],
        [calls(fragment(0, "c1", "f", "{")), calls(fragment(0, arguments='"a":')), calls(fragment(0, arguments="")),
         calls(fragment(0, arguments="1}"), fragment(1, "c2", "g", "{}")), calls(fragment(1, arguments=" ")), calls(),
         {"refusal": "r"}, {"refusal": "s"}],
        [calls(fragment(0, "c1", "f", "{")), calls({"index": 0, "function": {"arguments": {}}}),
         calls({"index": 0, "function": None}), calls({"index": "0", "function": {"arguments": ""}})],
    ],
)  # fmt: skip
def test_members_without_content_change_nothing(deltas: list[dict[str, Any]]) -> None:
    def read(noise: dict[str, Any]) -> list[Event]:
        reader = SPEC.stream_reader(context(), Ledger())
        out: list[Event] = []
        try:
            for members in deltas:
                body = {"id": "c1", "choices": [delta(**members, **noise)]}
                out += reader.read(Frame(b"", encode(body)))
            out += reader.read(Frame(b"", b"[DONE]"))
        except RemoteProtocolError:
            out.append(ENDED)
        return out

    assert read({}) == read({"function_call": None, "annotations": None})
