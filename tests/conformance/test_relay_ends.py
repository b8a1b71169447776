"""Nothing follows the end of a relayed stream, whatever the upstream sends behind it (R3)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from oracle import CHAT, MESSAGES, RESPONSES
from oracle import samples as s

from dragoman import UPSTREAMS, Outcome, Relay
from dragoman.codec import ResponseContext
from dragoman.document import Request

pytestmark = pytest.mark.promise("R3")


def encode_frame(event: dict[str, Any]) -> bytes:
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n".encode()


def response(status: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{status}", "sequence_number": 2, "response": s.response(status, **fields)}


ERROR = {"code": "server_error", "message": "overloaded"}
_DELTA = {"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0}
BEGINS: dict[str, bytes] = {
    CHAT: encode_frame(s.chunk({"role": "assistant", "content": ""}))
    + encode_frame(s.chunk({"content": "Hello"})),
    MESSAGES: b"".join(
        map(
            encode_frame,
            [
                {"type": "message_start", "message": s.message()},
                {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
                {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
            ],
        )
    ),
    RESPONSES: encode_frame({"type": "response.created", "sequence_number": 0, "response": s.response()})
    + encode_frame({**_DELTA, "sequence_number": 1, "delta": "Hello"}),
}
ENDS: list[tuple[str, bytes]] = [
    (CHAT, b"data: [DONE]\n\n"),
    (CHAT, encode_frame({"error": ERROR})),
    (CHAT, encode_frame({"error": ERROR}) + b"data: [DONE]\n\n"),
    (MESSAGES, encode_frame({"type": "message_stop"})),
    (
        MESSAGES,
        encode_frame({"type": "error", "error": {"type": "overloaded_error", "message": "overloaded"}}),
    ),
    (RESPONSES, encode_frame(response("completed"))),
    (RESPONSES, encode_frame(response("incomplete"))),
    (RESPONSES, encode_frame(response("failed", error=ERROR))),
    (RESPONSES, encode_frame(response("cancelled"))),
    (RESPONSES, encode_frame({"type": "error", "sequence_number": 2, **ERROR})),
    (
        RESPONSES,
        encode_frame({"type": "error", "sequence_number": 2, **ERROR})
        + encode_frame(response("failed", error=ERROR)),
    ),
]
AFTER: dict[str, bytes] = {
    CHAT: encode_frame(s.chunk({"content": "AFTER"})),
    MESSAGES: encode_frame(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "AFTER"}}
    ),
    RESPONSES: encode_frame({**_DELTA, "sequence_number": 4, "delta": "AFTER"})
    + encode_frame(response("completed")),
}


def test_nothing_is_relayed_after_an_end_or_an_error(subtests: pytest.Subtests) -> None:
    for protocol, end in ENDS:
        with subtests.test(protocol=protocol, end=end):
            begin, after = BEGINS[protocol], AFTER[protocol]
            for reads in ([begin + end + after], [begin, end, after], [begin, end + after]):
                request = Request(protocol=protocol, model="m", messages=(), stream=True)
                relay = Relay(
                    protocol=UPSTREAMS[protocol],
                    context=ResponseContext(request=request, id="x", now=1, model="m"),
                )
                for read in reads:
                    relay.receive_data(read)
                relay.receive_eof()
                assert relay.data_to_send() == begin + end
                assert relay.outcome is not Outcome.OPEN
