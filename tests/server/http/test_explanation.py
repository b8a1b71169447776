"""What is explained of a request is what happens to it: at paths of clouds, and at those of the other endpoints."""

# ruff: noqa: E501 -- the table is read by row

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from gateway.fakes import App, FakeUpstreams, Script, call

from dragoman_server.app import create_app
from dragoman_server.http import explanation
from dragoman_server.proxying.explanation import ExplainedRequest
from dragoman_server.proxying.upload import SMALL_BYTES
from dragoman_server.settings import AccountSettings, Settings, UpstreamSettings
from dragoman_server.settings.secret import Secret

pytestmark = pytest.mark.anyio

UPSTREAMS = (
    UpstreamSettings(name="up", protocol="openai_chat", base_url="http://up.test/v1"),
    UpstreamSettings(name="claude", protocol="anthropic_messages", base_url="http://claude.test"),
    UpstreamSettings(
        name="counts", protocol="anthropic_messages", base_url="http://counts.test", counts_tokens=True
    ),
    UpstreamSettings(name="google", protocol="gemini", base_url="http://google.test"),
    UpstreamSettings(
        name="aws",
        protocol="anthropic_messages",
        base_url="http://aws.test",
        host="bedrock-invoke",
        api_key=Secret("the-key-of-aws-0123"),
        counts_tokens=True,
    ),
)
SETTINGS = Settings(
    upstreams=UPSTREAMS,
    accounts=tuple(
        AccountSettings(upstream="up", name=name, api_key=Secret(f"the-key-of-{name}-0123")) for name in "ab"
    ),
    models={"emb": "up/text-embedding-3-small", "anthropic.*": "claude/*", "g": "google/embed-x"},
    endpoints={"/v1/files": ("up",), "/v1/moderations": ("up",)},
)
ASK = {"max_tokens": 9, "messages": []}
COUNTED = {"input": {"invokeModel": {"body": b64encode(json.dumps(ASK).encode()).decode()}}}
FORM = {"content-type": "multipart/form-data; boundary=b"}
PART = b'--b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n--b--'


@asynccontextmanager
async def gateway(*scripts: Script) -> AsyncIterator[tuple[App, FakeUpstreams]]:
    fake = FakeUpstreams(*scripts)
    app = create_app(SETTINGS, client=fake)
    async with app.lifespan():
        yield app, fake


async def explained(app: App, path: str, *sent: Any, **more: Any) -> Any:
    client = await call(app, f"/admin/explain{path}", *sent, **more)
    assert client.status == 200, client.body
    return json.loads(client.body)


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "notes"),
    [
        # Clouds.
        ("POST", "/model/anthropic.claude-x/invoke", {}, {"anthropic_version": "bedrock-2023-05-31", "anthropic_beta": ["b"], **ASK}, "(Bedrock, InvokeModel), and is served as /v1/messages"),
        ("POST", "/v1/projects/p/locations/l/publishers/anthropic/models/up@1:streamRawPredict", {}, {"anthropic_version": "x", **ASK}, None),
        ("POST", "/anthropic/v1/messages", {"anthropic-beta": "b"}, {"model": "aws/anthropic.x", **ASK}, "(Foundry, Mantle, Bedrock Runtime), and"),
        ("POST", "/openai/deployments/emb/embeddings", {}, {"input": "Hi"}, "(Azure, with a version), and is served as /v1/embeddings"),
        ("POST", "/model/anthropic.claude-x/invoke", {"x-amzn-bedrock-guardrailidentifier": "g"}, ASK, None),
        ("POST", "/model/anthropic.claude-x/invoke", {}, [], None),
        # Counts of tokens: relayed, translated, and by another request.
        ("POST", "/v1/messages/count_tokens?beta=true", {}, {"model": "counts/x", "messages": []}, ""),
        ("POST", "/v1beta/models/counts/x:countTokens", {}, {"contents": [{"parts": [{"text": "Hi"}]}]}, ""),
        ("POST", "/v1/projects/p/locations/l/publishers/anthropic/models/count-tokens:rawPredict", {}, {"model": "aws/us.anthropic.x", "messages": []}, "(Vertex AI)"),
        ("POST", "/v1/messages/count_tokens", {}, {"messages": []}, None),
        # The other endpoints.
        ("POST", "/v1/embeddings?x=1", {"openai-beta": "x"}, {"model": "emb", "input": "Hi"}, "accounts that cool down"),
        ("POST", "/v1/embeddings", {}, {"input": "Hi"}, None),
        ("POST", "/v1/embeddings", {}, {"model": "claude/x"}, None),
        ("POST", "/v1/moderations", {}, {"input": "Hi"}, ""),
        ("POST", "/v1/completions", {}, b"{", None),
        ("POST", "/v1/audio/transcriptions", FORM, PART % (b"model", b"emb"), ""),
        ("POST", "/v1/audio/transcriptions", {}, {"model": "emb"}, None),
        ("POST", "/v1beta/models/g:embedContent", {}, {"content": {}}, ""),
        ("POST", "/v1/models/google/embed-x:predict", {}, {"instances": []}, ""),
        ("POST", "/v1beta/models/nowhere:embedContent", {}, {"content": {}}, None),
        ("POST", "/v1/messages/batches", {"anthropic-version": "2023-06-01"}, {"requests": [{"params": {"model": "anthropic.x"}}]}, ""),
        ("POST", "/v1/messages/batches", {"anthropic-version": "2023-06-01"}, {"requests": [{"params": {"model": "emb"}}]}, None),
        ("POST", "/v1/files", FORM, PART % (b"purpose", b"batch"), ""),
        ("GET", "/v1/files?limit=2", {}, b"", ""),
        ("GET", "/v1/files/file-abc123", {}, b"", "the account that has made the id"),
        ("DELETE", "/v1/files/file-abc123", {}, b"", "the account that has made the id"),
        ("GET", "/v1/batches", {}, b"", None),
        ("PATCH", "/v1beta/cachedContents/abc123", {"x-goog-api-key": "x"}, {"ttl": "9s"}, "the account that has made the id"),
    ],
)  # fmt: skip
async def test_it_is_what_is_sent(method: str, path: str, headers: Any, body: Any, notes: str | None) -> None:
    """notes: what one of them says, None for a request that is refused."""
    async with gateway(Script([b"{}"], headers=[("content-type", "application/json")])) as (app, fake):
        found = await explained(app, path, body, method, headers)
        assert fake.sent == []
        client = await call(app, path, body, method, headers)
        steps = found["upstreams"]
        if notes is None:
            assert (fake.sent, client.status) == ([], steps[0]["status"])
            assert json.dumps(steps[0]["message"])[1:-1] in client.body.decode()
            return
        [sent], [step] = fake.sent, steps
        assert (step["method"], step["url"]) == (method, sent.url)
        assert step["body"] in (
            json.loads(sent.content) if sent.content[:1] == b"{" else None,
            f"multipart/form-data, {len(sent.content)} bytes",
        )
        named = dict(step["headers"])
        assert named.keys() == sent.headers.keys()
        assert {
            name: value for name, value in sent.headers.items() if "key-of" not in value
        }.items() <= named.items()
        assert "the-key-of" not in json.dumps(found)
        assert any(notes in note for note in found["notes"]) or not notes


async def test_an_id_leads_to_the_account_that_made_it() -> None:
    made = Script([b'{"id":"file-abc123"}'], headers=[("content-type", "application/json")])
    async with gateway(made) as (app, fake):
        await call(app, "/v1/files", PART % (b"purpose", b"batch"), headers=FORM)
        for path in ("/v1/files/file-abc123", "/v1/files/file-abc123/content"):
            [step] = (await explained(app, path, method="GET"))["upstreams"]
            assert step["accounts"] == ["up/a"]
        assert fake.sent[0].account == "the-key-of-a-0123"


async def test_a_body_that_nothing_reads_need_not_be_json() -> None:
    async with gateway(Script([b"{}"])) as (app, fake):
        [step] = (await explained(app, "/v1/files", b"{"))["upstreams"]
        await call(app, "/v1/files", b"{")
    assert (step["body"], fake.sent[0].content) == ("application/json, 1 bytes", b"{")


async def test_a_count_that_is_an_estimate_is_sent_nowhere() -> None:
    async with gateway(Script([b"{}"])) as (app, _):
        found = await explained(app, "/model/claude/x/count-tokens", COUNTED)
    assert (found["model"], found["upstreams"]) == ("claude/x", [])
    assert found["notes"][-1] == "the gateway estimates the tokens, because claude/x does not count them"


@pytest.mark.parametrize("path", ["/v1/elsewhere", "/v1/messages/count_token", "/model/x/converse"])
async def test_nothing_is_explained_where_nothing_is_served(path: str) -> None:
    async with gateway(Script([b"{}"])) as (app, _):
        client = await call(app, f"/admin/explain{path}", {})
        assert (client.status, "no model is requested at" in client.error["message"]) == (404, True)


def test_a_large_body_is_explained_at_the_command_line_as_well() -> None:
    model, large = {"model": "counts/x"}, {"messages": [{"role": "user", "content": "x" * SMALL_BYTES}]}
    [step] = explanation.explained(
        SETTINGS, "POST", "/v1/messages", {}, json.dumps({**model, **ASK, **large}).encode()
    ).steps
    assert isinstance(step, ExplainedRequest)
    assert json.loads(step.body)["messages"] == large["messages"]
    file = explanation.explained(SETTINGS, "POST", "/v1/files", {}, b"x" * (SMALL_BYTES + 1))
    assert file.notes[0] == "a large body is sent while it arrives, and to one account only"
    assert not file.is_refused


def test_a_header_at_the_command_line_may_have_any_characters() -> None:
    body = json.dumps({"model": "counts/x", **ASK}).encode()
    assert not explanation.explained(SETTINGS, "POST", "/v1/messages", {"x-name": "日本"}, body).is_refused
