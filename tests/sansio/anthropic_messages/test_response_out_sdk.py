"""The responses of response_out.txt as the vendor's own SDK reads them, and as they come back in requests."""

from typing import Any

import pytest
from anthropic.lib.streaming._beta_messages import accumulate_event
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from core.rows import responses_of
from pydantic import TypeAdapter

from dragoman._ir.losses import Ledger
from dragoman._ir.wrapped_signatures import WRAPPED_MARKER, Signer
from dragoman._wire.json import decode, encode
from dragoman._wire.sse import SSEParser
from dragoman.protocols.anthropic_messages import SPEC
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities as Capabilities

EVENT: Any = TypeAdapter(BetaRawMessageStreamEvent)
RESPONSES = [
    (row.heads[0], response)
    for row, response in responses_of("anthropic_messages")
    if response.body and response.stream.startswith(b"event: message_start")
]
# A stream cannot take back an empty block; the SDK refuses or drops arguments that are not JSON, and has no types for
# what the test of an upstream's own values has made up.
UNLIKE = (
    *("# a complete response has no empty", "# losses have paths in", "# arguments that are no JSON"),
    *("# indexes are contiguous", "# Messages' own citation", "# message fields of this protocol"),
)


def meaning(message: Any) -> tuple[Any, ...]:
    body = message.model_dump(mode="json", exclude_none=True)
    counters = {name: value for name, value in body["usage"].items() if type(value) is int}
    return body["content"], body["stop_reason"], counters


def test_the_sdk_reads_stream_and_complete_response_alike(subtests: pytest.Subtests) -> None:
    compared = [each for each in RESPONSES if not each[0].startswith(UNLIKE)]
    for title, response in compared:
        message: Any = None
        options: dict[str, Any] = {"request_headers": {}, "json_bufs": {}}
        for frame in SSEParser().receive_data(response.stream):
            value = decode(frame.data)
            if value["type"] != "ping":
                event = EVENT.validate_python(value, strict=True)
                message = accumulate_event(event=event, current_snapshot=message, **options)
        with subtests.test(title):
            assert meaning(message) == meaning(BetaMessage.model_validate(decode(response.body), strict=True))
    assert len(compared) == len(RESPONSES) - len(UNLIKE)


def test_no_upstream_gets_wrapped_signatures_or_search_blocks() -> None:
    """It would refuse it: a body that carries any of it is read and written again."""
    for title, response in RESPONSES:
        content = decode(response.body)["content"]
        body = {"model": "m", "max_tokens": 9, "messages": [{"role": "assistant", "content": content}]}
        request = SPEC.read_request(body, Signer(b"key"))
        assert not WRAPPED_MARKER.search(encode(SPEC.write_request(request, Capabilities(), Ledger())))
        if "a search of another protocol" in title:
            assert [bool(WRAPPED_MARKER.search(encode(each))) for each in content] == [*[True] * 3, False]


def test_g4_the_heartbeat() -> None:
    assert SPEC.endpoints[0].heartbeat == b'event: ping\ndata: {"type":"ping"}\n\n'
