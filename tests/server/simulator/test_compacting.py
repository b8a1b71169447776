"""Conversations that the simulator sums up: at the endpoint for it, and in a turn that requests it."""

import json
from typing import Any

import pytest
from oracle import RESPONSES, check_error, check_stream, check_whole
from simulator_requests import encoded

from dragoman_server.simulator import reply_to
from dragoman_server.simulator.reply import SimulatedReply

STORY = [{"type": "message", "role": "user", "content": "Build a ship"}]


def body_of(reply: SimulatedReply) -> bytes:
    return b"".join(chunk.data for chunk in reply.chunks)


def compacted(**body: Any) -> SimulatedReply:
    return reply_to(RESPONSES, encoded(body), compacts=True)


def test_the_summary_is_accepted_as_input() -> None:
    response = json.loads(body_of(compacted(model="echo", input=STORY)))
    assert response.keys() == {"id", "object", "created_at", "output", "usage"}
    found = [(item["type"], item.get("role")) for item in response["output"]]
    assert found == [("message", "user"), ("compaction", None)]
    further = [*response["output"], {"role": "user", "content": "Go on"}]
    after = json.loads(body_of(reply_to(RESPONSES, encoded({"model": "echo", "input": further}))))
    assert after["output"][0]["content"][0]["text"] == "Go on"
    assert after["usage"]["input_tokens"] > 5 + 3  # the five words of the conversation, and the summary


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_for_a_summary_gets_nothing_else(stream: bool) -> None:
    requested = {"model": "echo", "input": [*STORY, {"type": "compaction_trigger"}], "stream": stream}
    body = body_of(reply_to(RESPONSES, encoded(requested)))
    assert (check_stream if stream else check_whole)(RESPONSES, body) == []
    assert body.count(b'"type":"compaction"') == (3 if stream else 1)  # added, done, and in the end
    assert b'"type":"message"' not in body


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"input": STORY}, 400),
        ({"model": "echo", "input": 3}, 400),
        ({"model": "error-429", "input": STORY}, 429),
        ({"model": "error-mid", "input": STORY}, 503),
        ({"model": "empty", "input": STORY}, 502),
        ({"model": "length", "input": STORY}, 502),
    ],
)
def test_a_summary_that_fails(body: dict[str, Any], status: int) -> None:
    reply = compacted(**body)
    assert reply.status == status
    assert check_error(RESPONSES, status, body_of(reply)) == []
