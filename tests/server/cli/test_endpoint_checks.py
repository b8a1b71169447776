"""An endpoint is judged by what it returns for a few requests: this gateway's have no findings, broken ones have."""

# ruff: noqa: E501 -- the tables are read by row

import copy
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import NoReturn

import anyio
import httpx2
import pytest
from gateway.simulated import KEY, gateway
from oracle import samples
from oracle.changes import both, put, remove
from virtual_time import VIRTUAL_BACKENDS

from dragoman import UPSTREAMS, lint
from dragoman_server.cli.lint.endpoint_checks import PROBES, EndpointChecks, EndpointError, Probe, base_url_of
from dragoman_server.hosts import UpstreamCall
from dragoman_server.simulator import SimulatedUpstream
from dragoman_server.upstream.client import UpstreamClient

pytestmark = pytest.mark.anyio

CHAT = "openai_chat"
WHOLE, STREAM, USAGE, CALL, CALL_STREAM, ERROR = PROBES[:6]
SAMPLE = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "logprobs": None, "message": {"role": "assistant", "content": "Hi", "refusal": None}}],
}  # fmt: skip

EVENT_STREAM = {"content-type": "text/event-stream"}


def calls_and_stop() -> tuple[httpx2.Response, httpx2.Response]:
    """A whole response and a stream without usage, both with tool calls and finish_reason stop."""
    whole, chunks = copy.deepcopy(samples.WHOLE[CHAT]), [copy.deepcopy(each) for each in samples.chat()]
    put(0, "choices.0.finish_reason", "stop")([whole])
    both(put(8, "choices.0.finish_reason", "stop"), remove(9))(chunks)
    stream = samples.render(CHAT, chunks)
    return httpx2.Response(200, json=whole), httpx2.Response(200, content=stream, headers=EVENT_STREAM)


CALLED, CALLED_STREAM = calls_and_stop()

Handler = Callable[[httpx2.Request], httpx2.Response]


def client_of(handler: Handler) -> UpstreamClient:
    return UpstreamClient(transport=httpx2.MockTransport(handler))


async def findings(handler: Handler, probe: Probe) -> list[str]:
    async with client_of(handler) as client:
        [report] = (await EndpointChecks(client, CHAT, "http://up.test", None, "m").run([probe])).values()
    return [each.rule.id for each in report.findings]


@pytest.mark.backends(*VIRTUAL_BACKENDS)
@pytest.mark.parametrize("upstream", ["chat", "messages", "stateless"])
@pytest.mark.parametrize("client", UPSTREAMS)
@pytest.mark.parametrize("model", ["echo", "reasoning", "tools"])
@pytest.mark.each_choice
async def test_this_gateway_has_no_findings(client: str, upstream: str, model: str) -> None:
    async with (
        gateway() as running,
        UpstreamClient(transport=httpx2.ASGITransport(app=running.app)) as sender,
    ):
        checks = EndpointChecks(sender, client, "http://127.0.0.1:8080", None, f"{upstream}/{model}")
        results = await checks.run()
    assert [*results] == [probe.name for probe in PROBES]
    for name, report in results.items():
        assert report.findings == [], name


@pytest.mark.parametrize("protocol", UPSTREAMS)
async def test_the_simulator_has_no_findings_for_its_first_model(protocol: str) -> None:
    checks = EndpointChecks(SimulatedUpstream(), protocol, "http://up.test", KEY, None)
    for name, report in (await checks.run()).items():
        assert report.findings == [], name


@pytest.mark.parametrize(
    ("probe", "response", "rules"),
    [
        (WHOLE, httpx2.Response(200, json=SAMPLE), []),
        (WHOLE, httpx2.Response(200, text=json.dumps(SAMPLE)), ["http-content-type"]),
        (WHOLE, httpx2.Response(429, json={"error": {}}), ["http-refused"]),
        (WHOLE, httpx2.Response(200, content=b"data: [DONE]\n\n", headers={"content-type": "text/event-stream"}), ["chat-empty", "http-stream"]),
        (STREAM, httpx2.Response(200, json=SAMPLE), ["http-stream"]),
        (STREAM, httpx2.Response(200, content=b"data: [DONE]\n\n"), ["chat-empty", "http-content-type"]),
        (WHOLE, CALLED, ["chat-finish-stop"]),
        (CALL, CALLED, []),
        (STREAM, CALLED_STREAM, ["chat-finish-stop"]),
        (CALL_STREAM, CALLED_STREAM, []),
        (USAGE, CALLED_STREAM, ["chat-finish-stop", "chat-usage-missing"]),
        (ERROR, httpx2.Response(200, json=SAMPLE), ["http-error"]),
        (ERROR, httpx2.Response(502, html="<h1>Bad Gateway</h1>"), ["json-syntax", "http-content-type"]),
    ],
)  # fmt: skip
async def test_what_is_wrong_is_found(probe: Probe, response: httpx2.Response, rules: list[str]) -> None:
    assert sorted(set(await findings(lambda request: response, probe))) == sorted(rules)


async def test_the_requests_have_the_key_and_the_model() -> None:
    seen: list[httpx2.Request] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(400, json={})

    async with client_of(handle) as client:
        await EndpointChecks(client, "anthropic_messages", "http://up.test/v1/messages", KEY, "m").run()
    assert {str(request.url) for request in seen} == {"http://up.test/v1/messages"}
    assert {request.headers["x-api-key"] for request in seen} == {KEY}
    bodies = [request.content for request in seen]
    found = [json.loads(body)["model"] for body in bodies if body.startswith(b"{") and body.endswith(b"}")]
    assert found == ["m"] * 6


async def test_a_refusal_is_quoted_without_its_control_characters() -> None:
    async with client_of(lambda request: httpx2.Response(422, content=b"no\x1b[31m")) as client:
        [report] = (await EndpointChecks(client, CHAT, "http://up.test", None, "m").run([WHOLE])).values()
    assert report.findings[0].detail == "status 422: no [31m"
    assert report.findings[0].rule is lint.RULES["http-refused"]


@pytest.mark.parametrize(
    ("status", "advice"), [(401, "a valid key into LINT_API_KEY"), (404, "with --model")]
)
async def test_a_request_that_is_not_admitted_is_no_finding(status: int, advice: str) -> None:
    async with client_of(lambda request: httpx2.Response(status, content=b"no")) as client:
        with pytest.raises(EndpointError, match=f"a whole response: status {status}: no; .*{advice}"):
            await EndpointChecks(client, CHAT, "http://up.test", None, "m").run()


@pytest.mark.backends(*VIRTUAL_BACKENDS)
async def test_an_endpoint_that_does_not_respond() -> None:
    class Silent(SimulatedUpstream):
        def open(self, call: UpstreamCall, **way: object) -> AbstractAsyncContextManager[object]:  # type: ignore[override]
            return _Silence()

    class _Silence:
        async def __aenter__(self) -> NoReturn:
            await anyio.sleep_forever()

        async def __aexit__(self, *error: object) -> None:
            pass

    with pytest.raises(EndpointError, match="a whole response: no complete response within 120 s"):
        await EndpointChecks(Silent(), CHAT, "http://up.test", None, "m").run()
    with pytest.raises(EndpointError, match="name one with --model"):
        await EndpointChecks(Silent(), CHAT, "http://up.test", None, None).run()


async def test_an_endpoint_that_cannot_be_reached() -> None:
    def refuse(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    async with client_of(refuse) as client:
        with pytest.raises(EndpointError, match="a whole response: cannot connect to"):
            await EndpointChecks(client, CHAT, "http://up.test", None, "m").run()


async def test_a_connection_that_breaks_is_one_finding_among_others() -> None:
    def handle(request: httpx2.Request) -> httpx2.Response:
        if b"tools" in request.content:
            raise httpx2.RemoteProtocolError("closed")
        return httpx2.Response(400, json={"error": {"message": "no"}})

    async with client_of(handle) as client:
        results = await EndpointChecks(client, CHAT, "http://up.test", None, "m").run()
    found = {name: [finding.rule.id for finding in report.findings] for name, report in results.items()}
    assert len(found) == len(PROBES)
    expected = {"a tool call", "a tool call in a stream"}
    assert {name for name, rules in found.items() if rules == ["http-broken"]} == expected


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (httpx2.Response(404), r"the models cannot be listed \(it returned status 404\): name one with --model"),
        (httpx2.Response(200, json={"data": []}), "the endpoint lists no models: name one with --model"),
    ],
)  # fmt: skip
async def test_a_model_is_needed(response: httpx2.Response, message: str) -> None:
    async with client_of(lambda request: response) as client:
        with pytest.raises(EndpointError, match=message):
            await EndpointChecks(client, CHAT, "http://up.test", None, None).run()


@pytest.mark.parametrize(
    ("protocol", "url", "base"),
    [
        (CHAT, "http://h", "http://h/v1"),
        (CHAT, "http://h/v1/", "http://h/v1"),
        (CHAT, "http://h/v1/chat/completions", "http://h/v1"),
        ("openai_responses", "http://h/api/v1/responses", "http://h/api/v1"),
        ("anthropic_messages", "http://h", "http://h"),
        ("anthropic_messages", "http://h/v1", "http://h"),
        ("anthropic_messages", "http://h/x/v1/messages", "http://h/x"),
        ("gemini", "http://h/v1beta", "http://h"),
        ("gemini", "http://h/v1/models/acme/kite:streamGenerateContent", "http://h"),
    ],
)
def test_a_url_as_people_write_it(protocol: str, url: str, base: str) -> None:
    assert base_url_of(url, UPSTREAMS[protocol]) == base
