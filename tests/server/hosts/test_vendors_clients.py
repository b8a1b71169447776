"""What the vendors' own clients for clouds send is what the clouds get: URL, body and the headers that clouds read."""

# ruff: noqa: E501 -- the tables are read by row

import base64
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import anthropic
import anyio
import botocore.session
import httpx2
import openai
import pytest
from anthropic.lib.aws import AnthropicAWS
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from gateway.fakes import call
from openai.lib.azure import AzureOpenAI

from dragoman_server.app import create_app
from dragoman_server.settings import Settings, UpstreamSettings
from dragoman_server.settings.secret import Secret
from dragoman_server.upstream.client import UpstreamClient

KEY = "the-key-of-the-cloud"
HI: Any = [{"role": "user", "content": "Hi"}]
# Those that say how a cloud is called. Others are the client's own, such as its name.
READ = (
    "authorization",
    "x-api-key",
    "api-key",
    "anthropic-version",
    "anthropic-beta",
    "anthropic-workspace-id",
)
BETA = "context-1m-2025-08-07"

Captured = list[httpx2.Request]


def refuse(captured: Captured) -> httpx2.MockTransport:
    def respond(request: httpx2.Request) -> httpx2.Response:
        captured.append(request)
        return httpx2.Response(400, json={"error": {"message": "no"}})

    return httpx2.MockTransport(respond)


def messages(make: Callable[..., Any], model: str, **more: Any) -> Callable[[httpx2.Client], Any]:
    return lambda client: make(http_client=client, max_retries=0).messages.create(
        model=model, max_tokens=9, messages=HI, extra_headers={"anthropic-beta": BETA}, **more
    )


def vertex(**more: Any) -> Any:
    return anthropic.AnthropicVertex(project_id="p", region="us-east5", access_token=KEY, **more)


def foundry(**more: Any) -> Any:
    return anthropic.AnthropicFoundry(api_key=KEY, resource="res", **more)


def mantle(**more: Any) -> Any:
    return anthropic.AnthropicBedrockMantle(api_key=KEY, aws_region="us-east-1", **more)


def bedrock(**more: Any) -> Any:
    return anthropic.AnthropicBedrock(api_key=KEY, aws_region="us-east-1", **more)


def on_aws(**more: Any) -> Any:
    return AnthropicAWS(api_key=KEY, aws_region="us-east-1", workspace_id="w", **more)


def azure(client: httpx2.Client) -> Any:
    where = {"azure_endpoint": "https://res.openai.azure.com", "api_version": "2024-10-21"}
    made = AzureOpenAI(api_key=KEY, http_client=client, max_retries=0, **where)
    return made.chat.completions.create(model="mine", messages=HI)


US_EAST5 = {"base_url": "https://us-east5-aiplatform.googleapis.com/v1/projects/p/locations/us-east5"}
INVOKE = {"base_url": "https://bedrock-runtime.us-east-1.amazonaws.com", "host": "bedrock-invoke"}
WORKSPACE = {"headers": {"anthropic-workspace-id": Secret("w")}}
ASK = {"max_tokens": 9, "messages": HI}
# The vendor's client; our settings; our client's request.
CASES: dict[str, tuple[Callable[[httpx2.Client], Any], dict[str, Any], dict[str, Any]]] = {
    "vertex": (messages(vertex, "claude-sonnet-5"), US_EAST5, {"model": "up/claude-sonnet-5", **ASK}),
    "vertex stream": (messages(vertex, "claude@1", stream=True), US_EAST5, {"model": "up/claude@1", **ASK, "stream": True}),
    "vertex beta": (
        lambda client: vertex(http_client=client, max_retries=0).beta.messages.create(
            model="claude-sonnet-5", max_tokens=9, messages=HI, betas=[BETA]
        ),
        US_EAST5,
        {"model": "up/claude-sonnet-5", **ASK},
    ),
    "foundry": (messages(foundry, "mine"), {"base_url": "https://res.services.ai.azure.com/anthropic"}, {"model": "up/mine", **ASK}),
    "mantle": (messages(mantle, "anthropic.claude-x"), {"base_url": "https://bedrock-mantle.us-east-1.api.aws"}, {"model": "up/anthropic.claude-x", **ASK}),
    "invoke": (messages(bedrock, "us.anthropic.claude-x-v1:0"), INVOKE, {"model": "up/us.anthropic.claude-x-v1:0", **ASK}),
    "invoke stream": (messages(bedrock, "arn:a/b", stream=True), INVOKE, {"model": "up/arn:a/b", **ASK, "stream": True}),
    "claude on aws": (messages(on_aws, "claude-x"), {"base_url": "https://aws-external-anthropic.us-east-1.api.aws", **WORKSPACE}, {"model": "up/claude-x", **ASK}),
    "azure, dated": (
        azure,
        {"base_url": "https://res.openai.azure.com/openai", "host": "azure-dated", "protocol": "openai_chat"},
        {"messages": HI, "model": "up/mine"},
    ),
}  # fmt: skip


def ours(settings: dict[str, Any], body: dict[str, Any], path: str = "") -> httpx2.Request:
    captured: Captured = []
    path = path or ("/v1/messages" if "max_tokens" in body else "/v1/chat/completions")
    given = {"name": "up", "protocol": "anthropic_messages", "api_key": Secret(KEY), **settings}

    async def send() -> None:
        upstreams = (UpstreamSettings(**given),)
        app = create_app(Settings(upstreams=upstreams), client=UpstreamClient(transport=refuse(captured)))
        # The client of the vendor sends the newest version of the API.
        headers = {"anthropic-version": "2026-10-21", "anthropic-beta": BETA}
        async with app.lifespan():
            await call(app, path, body, headers=headers)

    anyio.run(send)
    [request] = captured
    return request


@pytest.mark.parametrize("case", CASES)
def test_the_vendors_client_sends_the_same(case: str) -> None:
    create, settings, body = CASES[case]
    captured: Captured = []
    refused = anthropic.BadRequestError, openai.BadRequestError
    with httpx2.Client(transport=refuse(captured)) as client, pytest.raises(refused):
        create(client)
    [theirs] = captured
    mine = ours(settings, body)
    assert str(mine.url) == str(theirs.url)
    assert json.loads(mine.content) == json.loads(theirs.content)
    if "anthropic_beta" in json.loads(theirs.content):
        del theirs.headers["anthropic-beta"]  # it is in both, and InvokeModel has no such header
    shown = [{name: each.headers[name] for name in READ if name in each.headers} for each in (mine, theirs)]
    assert shown[0] == shown[1]


def test_boto_counts_tokens_in_the_same_way() -> None:
    """The body that is counted has a vector: what botocore makes of it is what the service model says."""
    counted = {"max_tokens": 1, "messages": HI, "anthropic_version": "2026-10-21", "anthropic_beta": [BETA]}
    theirs: list[AWSPreparedRequest] = []

    def answer(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        theirs.append(request)
        raw: Any = SimpleNamespace(stream=lambda: iter((b'{"inputTokens": 7}',)))
        return AWSResponse(request.url, 200, {}, raw)

    client: Any = botocore.session.Session().create_client(
        "bedrock-runtime", "us-east-1", aws_access_key_id="AKIDEXAMPLE", aws_secret_access_key="k"
    )
    client.meta.events.register("before-send", answer)
    content = json.dumps(counted, separators=(",", ":")).encode()
    counts = client.count_tokens(modelId="anthropic.claude-x-v1:0", input={"invokeModel": {"body": content}})
    settings = {**INVOKE, "counts_tokens": True}
    body = {"model": "up/us.anthropic.claude-x-v1:0", "messages": HI}
    mine = ours(settings, body, "/v1/messages/count_tokens")
    assert counts["inputTokens"] == 7
    assert unquote(str(mine.url)) == unquote(theirs[0].url)
    sent, expected = [
        json.loads(base64.b64decode(json.loads(each)["input"]["invokeModel"]["body"]))
        for each in (mine.content, theirs[0].body)
    ]
    assert sent == expected == counted
