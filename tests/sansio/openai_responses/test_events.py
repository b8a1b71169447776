"""The events of a stored response: numbered without a gap, and about it, whatever the upstream's stream says."""

import json

import pytest

from dragoman import ErrorKind, WireError
from dragoman.protocols.openai_responses.events import StoredEvents
from dragoman.sse import SSEParser

ENDS = ("completed", "incomplete", "failed", "cancelled")
ABOUT = '"response":{"id":"theirs","output":[]}'
# The stream's frames, each its event line and data, and what is stored behind the first event: type, number, id.
ROWS: dict[str, tuple[list[tuple[str, str]], list[tuple[str, int, str | None]]]] = {
    "as they come": (
        [("in_progress", f'"sequence_number":1,{ABOUT}'), ("delta", '"sequence_number":2'), ("completed", ABOUT)],
        [("in_progress", 1, "ours"), ("delta", 2, None), ("completed", 3, "ours")],
    ),
    "numbered in another way": (
        [("delta", '"sequence_number":0'), ("delta", '"n":0'), ("delta", '"n":"\\ud800"')],
        [("delta", 1, None), ("delta", 2, None), ("delta", 3, None)],
    ),
    "begun again": ([("created", ABOUT), ("in_progress", ABOUT)], [("in_progress", 1, "ours")]),
    "nothing behind the end": ([("failed", ABOUT), ("delta", '"n":0')], [("failed", 1, "ours")]),
    "an end without a response": ([("completed", '"n":0'), ("incomplete", ABOUT)], [("incomplete", 1, "ours")]),
    "an end whose response cannot be read": (
        [("completed", '"response":1e999'), ("failed", ABOUT)], [("failed", 1, "ours")],
    ),
    "an error": (
        [("error", '"sequence_number":1'), ("cancelled", ABOUT)],
        [("error", 1, None), ("cancelled", 2, "ours")],
    ),
    "a type that is no name": (
        [("delta", '"type":"a b"'), ("delta", '"type":"\\ud800"')],
        [("a b", 1, None), ("\ud800", 2, None)],
    ),
    "on several lines": ([("delta", '"sequence_number":1,\n"n":0')], [("delta", 1, None)]),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_events_are_numbered_and_about_our_response(name: str) -> None:
    received, written = ROWS[name]
    writer = StoredEvents({"id": "ours"})
    begun = writer.begin({"id": "theirs"})
    data = "".join(
        [
            f"event: {kind}\ndata: {{"
            + f'"type":"response.{kind}",{members}}}\n\n'.replace(",\n", ",\ndata: ")
            for kind, members in received
        ]
    )
    noise = b": comment\n\ndata: [DONE]\n\nevent: broken\ndata: {\n\nevent: none\ndata: 5\n\n"
    frames = [begun, *writer.receive(noise + data.encode())]
    parsed = [frame for each in frames for frame in SSEParser().receive_data(each)]
    events = [json.loads(frame.data) for frame in parsed]
    expected = [("created", 0, "ours"), *written]
    kinds = [event["type"].removeprefix("response.") for event in events]
    ids = [event.get("response", {}).get("id") for event in events]
    assert [*zip(kinds, [event["sequence_number"] for event in events], ids, strict=True)] == expected
    assert len(frames) == len(parsed) == writer.next
    assert writer.final == (events[-1]["response"] if kinds[-1] in ENDS else None)


def test_an_end_that_is_not_stored_is_replaced() -> None:
    writer = StoredEvents({}, 7)
    writer.end({"status": "failed"})
    assert writer.next == 8
    writer = StoredEvents({"id": "ours"}, 7)
    writer.receive(b'event: x\ndata: {"type":"response.completed",%b}\n\n' % ABOUT.encode())
    end = writer.end({"status": "failed"})
    assert end == (
        b'event: response.failed\ndata: {"type":"response.failed","response":{"status":"failed","id":"ours"},'
        b'"sequence_number":7}\n\n'
    )
    assert (writer.final, writer.next) == ({"status": "failed"}, 8)


def test_an_error_of_sending_them_has_no_number() -> None:
    (frame,) = SSEParser().receive_data(StoredEvents({}).error(WireError(ErrorKind.INVALID_REQUEST, "gone")))
    event = json.loads(frame.data)
    found = (frame.event, event["type"], event["message"], event["error"]["message"])
    assert found == (b"error", "error", "gone", "gone")
    assert "sequence_number" not in event
