"""The usage of a request: reported by the upstream, else a marked estimate."""

import json
from typing import Any

import pytest
from gateway.scripted import CHAT, MESSAGES, PROTOCOL_NAMES, chunk, plan_of, request_body, settings_with

from dragoman import Usage
from dragoman_server.accounts.usage import Meter, usage_of
from dragoman_server.log import RequestRecord
from dragoman_server.proxying.plan import Plan

FRAME = b"data: " + json.dumps(chunk({"content": "word "})).encode() + b"\n\n"
HEAD = b'data: {"instructions": "' + b"x" * 9000 + b'"}\n\n'


def sequence(events: bytes) -> bytes:
    """Return the same events as a JSON text sequence."""
    return b"".join(b"\x1e%b\n" % event.partition(b"data: ")[2] for event in events.split(b"\n\n")[:-1])


MEASURED: list[tuple[list[bytes], int, int]] = [
    ([], 0, 0),
    ([b"x" * 400], 100, 100),  # a whole response
    ([b"x" * 200, b"x" * 200], 100, 100),
    ([FRAME], 1, 1),
    ([FRAME] * 50, 50, 60),  # a token in an event
    ([FRAME + FRAME] * 25, 50, 60),
    ([FRAME, *[FRAME.replace(b"word ", b"word " * 100)] * 10], 1000, 1500),  # many in an event
    ([FRAME.replace(b"\n", b"\r\n")] * 10, 10, 15),
    ([HEAD + FRAME, *[FRAME] * 10], 11, 15),  # repeated parts of the request are no output
    ([FRAME, *[b": keepalive\n\n"] * 10], 1, 11),
    # Events of a WebSocket.
    ([sequence(HEAD + FRAME), *[sequence(FRAME)] * 10], 11, 15),
    ([b""], 0, 0),
]


def test_sent_bytes_are_measured_in_tokens() -> None:
    for deltas, minimum, maximum in MEASURED:
        meter = Meter()
        for delta in deltas:
            meter.add(delta)
        assert minimum <= meter.tokens() <= maximum, deltas


def planned(client: str, upstream: str, body: dict[str, Any] | None = None) -> Plan:
    return plan_of(settings_with(upstream), client, body)


def measured(count: int) -> Meter:
    meter = Meter()
    for _ in range(count):
        meter.add(FRAME)
    return meter


def record(**more: Any) -> RequestRecord:
    return RequestRecord(id="a", protocol=CHAT, path="/", **({"status": 200, "outcome": "completed"} | more))


COUNTED: list[tuple[dict[str, Any], int, tuple[Any, Any], bool | None]] = [
    # The usage that the upstream reports counts, whatever was sent.
    ({"input_tokens": 5, "output_tokens": 6}, 100, (5, 6), None),
    ({"input_tokens": 0, "output_tokens": 0}, 100, (0, 0), None),
    # One figure is missing.
    ({"input_tokens": 5}, 100, (5, 100), True),
    ({"output_tokens": 6}, 100, ("prompt", 6), True),
    # A client that leaves: Messages begins with a figure from before there was any output.
    ({"input_tokens": 5, "output_tokens": 1, "outcome": "client_left"}, 100, (5, 100), True),
    ({"input_tokens": 5, "output_tokens": 900, "outcome": "client_left"}, 100, (5, 900), True),
    ({"outcome": "client_left"}, 100, ("prompt", 100), True),
    ({"outcome": "client_left", "status": None}, 0, ("prompt", 0), True),
    ({"outcome": "cancelled"}, 100, ("prompt", 100), True),
    # A stream that broke off.
    ({"outcome": "failed", "input_tokens": 5, "output_tokens": 1}, 100, (5, 100), True),
    # Errors are no output, however long they are.
    ({"outcome": "failed", "status": 500}, 100, (None, None), None),
    ({"outcome": "failed", "status": 429}, 100, (None, None), None),
    ({"outcome": "failed", "status": None}, 0, (None, None), None),
    # But usage before the error counts.
    ({"outcome": "failed", "status": 502, "input_tokens": 5, "output_tokens": 6}, 1, (5, 6), None),
]


def test_reported_usage_counts_and_estimates_fill_its_gaps() -> None:
    for known, meter, expected, estimated in COUNTED:
        seen = record(**known)
        usage = usage_of(seen, planned(CHAT, MESSAGES), measured(meter))
        tokens_in, tokens_out = expected
        if tokens_in == "prompt":
            assert usage.input is not None, (known, meter)
            assert 5 < usage.input < 20, (known, meter)
        else:
            assert usage.input == tokens_in, (known, meter)
        if meter and isinstance(tokens_out, int) and estimated:
            assert tokens_out <= (usage.output or 0) <= tokens_out * 1.2, (known, meter)
        else:
            assert usage.output == tokens_out, (known, meter)
        assert seen.estimated is estimated, (known, meter)
        assert (seen.input_tokens, seen.output_tokens) == (usage.input, usage.output), (known, meter)


def test_cached_tokens_are_those_that_the_upstream_reports() -> None:
    seen = record(input_tokens=5, output_tokens=6, cached_tokens=3, cache_write_tokens=1)
    found = usage_of(seen, planned(CHAT, CHAT), measured(0))
    assert found == Usage(input=5, output=6, cached=3, cache_write=1)


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
@pytest.mark.parametrize("upstream", PROTOCOL_NAMES)
def test_a_prompt_is_estimated_relayed_or_not(client: str, upstream: str) -> None:
    """By its text, not by its bytes: an image of a megabyte is no million tokens."""
    text = "word " * 1000
    body = json.loads(json.dumps(request_body(client)).replace("Hi", text))
    usage = usage_of(record(), planned(client, upstream, body), measured(1))
    assert usage.input is not None
    assert 1000 <= usage.input <= 1500


def test_an_image_in_a_relay_is_an_image() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1_000_000}}
    body = request_body(CHAT) | {"messages": [{"role": "user", "content": [image]}]}
    assert (usage_of(record(), planned(CHAT, CHAT, body), measured(1)).input or 0) < 5000


def test_several_choices_have_several_prompts() -> None:
    """An upstream that gives one choice at a time gets as many requests."""
    one = usage_of(record(), planned(CHAT, MESSAGES), measured(1)).input
    three = usage_of(record(), planned(CHAT, MESSAGES, request_body(CHAT) | {"n": 3}), measured(1)).input
    assert one is not None
    assert three == 3 * one


def test_an_unreadable_relayed_body_is_estimated_by_its_size() -> None:
    body = request_body(CHAT) | {"messages": [{"role": "who", "content": {"a": "word " * 100}}]}
    plan = planned(CHAT, CHAT, body)
    assert usage_of(record(), plan, measured(1)).input == plan.context.prompt_tokens > 50
