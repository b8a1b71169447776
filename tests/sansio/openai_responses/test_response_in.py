"""The start, the end, failures and losses of a Responses response: frames or a body in, events out."""

from __future__ import annotations

from typing import Any

import pytest
from responses_upstream import (
    ADDED,
    CALL,
    CALL_ADDED,
    CONTEXT,
    REASONING,
    REASONING_ADDED,
    arguments,
    created,
    delta,
    ended,
    event,
    message,
    summary,
    text_part,
)

from dragoman._ir.events import ArgumentsDelta, Failed, ReasoningDelta, ReasoningForm, TextDelta
from dragoman._ir.losses import Ledger
from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import encode
from dragoman._wire.sse import Frame
from dragoman.protocols.openai_responses import SPEC

SERVER = ErrorKind.SERVER


def test_an_error_named_only_by_the_event_line() -> None:
    for data, error in (
        (b'{"message":"oops"}', WireError(SERVER, "oops")),
        (b'{"message":"oops","type":"server_error"}', WireError(SERVER, "oops", type="server_error")),
    ):
        reader, observer = SPEC.stream_reader(CONTEXT, Ledger()), SPEC.observer(CONTEXT)
        assert reader.read(Frame(b"error", data)) == (Failed(error),)
        observer.observe(Frame(b"error", data))
        assert observer.error == error


UNREADABLE_FRAMES: list[bytes] = [
    b"{",
    b"[]",
    b'{"type":"response.created"}',
    b'{"type":"response.completed","response":[]}',
    b"\xff",
]


def test_frames_that_cannot_be_read(subtests: pytest.Subtests) -> None:
    for data in UNREADABLE_FRAMES:
        for name in [b"", b"response.output_text.delta"]:
            with subtests.test(data=data, name=name):
                reader = SPEC.stream_reader(CONTEXT, Ledger())
                with pytest.raises(RemoteProtocolError) as caught:
                    reader.read(Frame(name, data))
                assert caught.value.status == 502


# The fast path.

FAST_PATHS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    (ADDED, delta("Hel"), ended(message(text_part("Hello")))),
    (CALL_ADDED, arguments("Hel"), ended({**CALL, "arguments": "Hello"})),
    (REASONING_ADDED, summary("Hel"), ended({**REASONING, "summary": [{"text": "Hello"}]})),
]


@pytest.mark.parametrize(("added", "first", "last"), FAST_PATHS)
def test_text_of_the_fast_path_is_not_emitted_again(
    added: dict[str, Any], first: dict[str, Any], last: dict[str, Any]
) -> None:
    reader = SPEC.stream_reader(CONTEXT, Ledger())
    for payload in (
        created(),
        event("output_item.added", 7, item={"id": "ws_1", "type": "web_search_call"}),
        added,
    ):
        reader.read(Frame(b"", encode(payload)))
    found = reader.read(Frame(b"", encode(first)))[-1]
    assert isinstance(found, (TextDelta, ArgumentsDelta, ReasoningDelta))
    hint = reader.template_for(found)
    assert hint is not None
    assert (hint.key, hint.number, hint.padding) == (b"delta", b"sequence_number", b"obfuscation")
    assert hint.on_texts is not None
    hint.on_texts(["l", "o"])
    after = reader.read(Frame(b"", encode(last)))
    assert [each for each in after if type(each) is type(found)] == []
    assert reader.template_for(found) is None


def test_reasoning_of_several_parts_has_no_fast_path() -> None:
    reader = SPEC.stream_reader(CONTEXT, Ledger())
    for payload in (created(), REASONING_ADDED, summary("a"), summary("b", 1)):
        reader.read(Frame(b"", encode(payload)))
    assert reader.template_for(ReasoningDelta(0, "b", 1, ReasoningForm.SUMMARY)) is None
