"""Several choices for one request, each requested by a separate branch: one response to the client."""

import json
from typing import Any

import pytest
from gateway.fakes import FakeClient, FakeResponse, FakeUpstream, Script, Sleep, carry_out, play
from virtual_time import VIRTUAL_BACKENDS

from dragoman import PROTOCOLS, RequestRefused, peek
from dragoman_server.log import RequestRecord
from dragoman_server.proxying.plan import MAX_FAN_OUT, Planner
from dragoman_server.settings import Settings, UpstreamSettings
from dragoman_server.upstream.errors import UpstreamIdleClosed

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]


def message(text: str, *, delay: float = 0) -> Script:
    """Return a Messages stream of one word."""
    events = [
        {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "x",
         "content": [], "usage": {"input_tokens": 5, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]  # fmt: skip
    body = [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events]
    return Script(body=[Sleep(delay), *body], headers=[("content-type", "text/event-stream")])


class Branches(FakeUpstream):
    """One script for each call, in the order of the calls."""

    def __init__(self, *scripts: Script) -> None:
        super().__init__(scripts[0])
        self.scripts = list(scripts)
        self.max_open = 0

    async def __aenter__(self) -> FakeResponse:
        self.script = self.scripts.pop(0)
        script = self.script
        self.open_count += 1
        self.max_open = max(self.max_open, self.open_count)
        try:
            for step in script.connect:
                await play(step)
        except BaseException:
            self._close()
            raise
        return FakeResponse(script, self)


def plan_for(n: int, *, stream: bool) -> Any:
    upstreams = (UpstreamSettings(name="up", protocol="anthropic_messages", base_url="http://127.0.0.1:9"),)
    settings = Settings(upstreams=upstreams)
    body = {"model": "up/x", "messages": [{"role": "user", "content": "Hi"}], "n": n, "stream": stream}
    if stream:
        body["stream_options"] = {"include_usage": True}
    data = json.dumps(body).encode()
    return Planner(
        settings, PROTOCOLS["openai_chat"], {}, "", data, peek(data), id="0123456789ab", now=7
    ).first()


async def run(
    branches: Branches, *, stream: bool = True, n: int = 0, **more: Any
) -> tuple[FakeClient, RequestRecord]:
    plan = plan_for(n or len(branches.scripts), stream=stream)
    fake = FakeClient(**more)
    request = await carry_out(plan, branches, fake)
    assert branches.open_count == 0
    return fake, request.record


def chunks(body: bytes) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in body.decode().split("\n\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


async def test_a_stream_of_three() -> None:
    branches = Branches(message("a", delay=2), message("b"), message("c", delay=1))
    fake, record = await run(branches)
    found = chunks(fake.body)
    assert {each["id"] for each in found} == {"chatcmpl-0123456789ab"}
    texts = ["", "", ""]
    finishes = {}
    for chunk in found:
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["delta"].get("content") or ""
            finishes[choice["index"]] = choice["finish_reason"] or finishes.get(choice["index"])
    assert sorted(texts) == ["a", "b", "c"]  # which call is which choice is a matter of chance
    assert finishes == {0: "stop", 1: "stop", 2: "stop"}
    assert (found[-1]["usage"]["prompt_tokens"], found[-1]["usage"]["completion_tokens"]) == (15, 9)
    assert (record.outcome, record.input_tokens, record.output_tokens) == ("completed", 15, 9)
    assert branches.max_open == 3, "the calls are made at once"


async def test_a_whole_response_of_two() -> None:
    fake, record = await run(Branches(message("a"), message("b")), stream=False)
    body = json.loads(fake.body)
    assert [each["index"] for each in body["choices"]] == [0, 1]
    assert sorted(each["message"]["content"] for each in body["choices"]) == ["a", "b"]
    assert body["usage"]["total_tokens"] == 16
    assert (fake.status, record.outcome) == (200, "completed")


@pytest.mark.parametrize(
    ("status", "content", "media_type", "reported"),
    [
        (429, b'{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}', "json", 429),
        (203, b"<html>", "html", 502),
    ],
)
async def test_a_refusal_has_its_own_status_and_headers_though_another_branch_begins_meanwhile(
    status: int, content: bytes, media_type: str, reported: int
) -> None:
    headers = [("content-type", f"application/{media_type}"), ("retry-after", "9")]
    begun = message("a", delay=60)
    begun.connect = [Sleep(1)]
    fake, record = await run(Branches(Script([Sleep(2), content], status=status, headers=headers), begun))
    assert (fake.status, fake.headers["retry-after"]) == (reported, "9")
    assert [each["status"] for each in record.failures] == [status]
    assert record.upstream_status == status


def test_there_is_a_limit() -> None:
    with pytest.raises(RequestRefused, match=f"at most {MAX_FAN_OUT} choices"):
        plan_for(MAX_FAN_OUT + 1, stream=True)


@pytest.mark.parametrize(
    ("first", "delay"),
    [(message("a"), 5), (message("a" * 70_000, delay=11), 13)],
    ids=["reads it", "reads a heartbeat before it"],
)
async def test_a_refusal_while_a_slow_client_reads_is_an_error_after_what_it_reads(
    first: Script, delay: float
) -> None:
    refusal = Script([Sleep(delay), b'{"error":{"message":"too late"}}'], status=500)
    fake, record = await run(Branches(first, refusal), pace=4)
    assert (fake.finished, record.outcome) == (True, "failed")
    assert b'"content":"a' in fake.body
    assert b"too late" in fake.body


@pytest.mark.parametrize("stream", [True, False])
async def test_branches_that_meet_a_closed_idle_connection_are_sent_again(stream: bool) -> None:
    closed = Script(connect=[UpstreamIdleClosed("http://up.test: the idle connection was closed")])
    slow = message("never", delay=5)
    fake, record = await run(Branches(slow, closed, message("a"), message("b")), stream=stream, n=2)
    assert (fake.status, record.outcome) == (200, "completed")


async def test_a_client_that_leaves_closes_all() -> None:
    branches = Branches(message("a", delay=60), message("b", delay=60))
    _, record = await run(branches, leaves_after=2)
    assert record.outcome == "client_left"
    assert branches.closed_at == pytest.approx(2)
