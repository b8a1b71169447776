"""The APIs of clouds: a client's request in, the cloud's out, as rows of sent.txt; and what its answers mean."""

# ruff: noqa: E501 -- a table is read by row

import base64
import json
import struct
from binascii import crc32
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
import rows
from gateway.fakes import call
from gateway.mocked import mocked
from msgspec.structs import replace
from transport_requests import Pieces
from virtual_time import VIRTUAL_BACKENDS

from dragoman import UPSTREAMS
from dragoman.codec import find_endpoint
from dragoman.sse import SSEParser
from dragoman_server.capabilities.cloud_apis import BETAS_BY_API, CLOUD_APIS
from dragoman_server.capabilities.provider import MESSAGES
from dragoman_server.capabilities.providers import PROVIDERS
from dragoman_server.http.explanation import explained
from dragoman_server.models.listing import can_list, fetch_models
from dragoman_server.proxying.explanation import ExplainedRequest
from dragoman_server.settings import Settings, UpstreamSettings
from dragoman_server.settings.secret import Secret
from dragoman_server.settings.upstreams import AUTO_HOST, HOST_NAMES, PLAIN_HOST
from dragoman_server.upstream.client import UpstreamClient

SENT = Path(__file__).with_name("sent.txt")
SHOWN = ("authorization", "x-api-key", "api-key", "accept", "anthropic-version", "anthropic-beta")
HI = [{"role": "user", "content": "Hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/messages": {"max_tokens": 9, "messages": HI},
    "/v1/messages/count_tokens": {"messages": HI},
    "/v1/chat/completions": {"messages": HI},
    "/v1/responses": {"input": "Hi"},
}
GEMINI = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}


def sent(lines: list[str]) -> list[str]:
    """What the cloud gets, and what the client is told of it."""
    base_url, host, target, model = lines[0].split(" ", 3)
    path, _, query = target.partition("?")
    headers, end = json.JSONDecoder().raw_decode(lines[1])
    members = json.loads(lines[1][end:])
    found = find_endpoint(UPSTREAMS.values(), path, query)
    upstream = UpstreamSettings(
        name="up",
        protocol=MESSAGES if found is None else found[0].name,
        protocols=tuple(UPSTREAMS),
        base_url=base_url,
        host=host,
        api_key=Secret("the-key-of-the-cloud"),
        counts_tokens=True,
    )
    requests: list[httpx2.Request] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        return httpx2.Response(400, json={"error": {"message": "no"}})

    settings = Settings(upstreams=(upstream,))
    body = BODIES.get(path, GEMINI) | members
    if "/models/" not in path:
        body = {"model": f"up/{model}", **body}

    async def ask() -> None:
        async with mocked(settings, respond) as app:
            await call(app, target, body, headers=headers)

    anyio.run(ask)
    [request] = requests
    shown = [f"{name}: {request.headers[name]}" for name in SHOWN if name in request.headers]
    [step] = explained(settings, "POST", target, headers, json.dumps(body).encode()).steps
    assert isinstance(step, ExplainedRequest)
    assert (step.url, step.body) == (str(request.url), request.content)
    keys = {name for name, value in request.headers.items() if "the-key" in value}
    assert keys == {name for name, value in step.headers if value.endswith("****")}
    losses = [f"{code}: {place}" for code, place, _ in step.losses]
    return [f"{request.method} {request.url}", *shown, request.content.decode(), *losses]


def test_what_the_clouds_get() -> None:
    rows.check(SENT, sent)


def test_each_api_can_be_set_and_has_a_provider() -> None:
    assert {AUTO_HOST, PLAIN_HOST, *CLOUD_APIS} == set(HOST_NAMES)
    assert {api.provider or name for name, api in CLOUD_APIS.items()} <= {each.name for each in PROVIDERS}
    assert {api.betas for api in CLOUD_APIS.values()} == {"", *BETAS_BY_API}


# What comes back from InvokeModel.

INVOKE = UpstreamSettings(
    name="up", protocol=MESSAGES, base_url="http://127.0.0.1:9", host="bedrock-invoke", api_key=Secret("k")
)
ASK = {"model": "up/anthropic.claude-opus-5", "max_tokens": 9, "messages": HI}
START = {
    "type": "message_start",
    "message": {"id": "msg_1", "role": "assistant", "content": [], "model": "m"},
}
TEXT = [
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hé"}},
]
END = [
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
]
METRICS = {"amazon-bedrock-invocationMetrics": {"inputTokenCount": 2, "outputTokenCount": 3}}


def message(payload: object, **headers: str) -> bytes:
    """Return a message of an event stream."""
    heads = b"".join(
        bytes([len(name) + 1]) + f":{name}".encode() + b"\7" + len(value).to_bytes(2, "big") + value.encode()
        for name, value in ((name.replace("_", "-"), value) for name, value in headers.items())
    )
    body = b"" if payload is None else json.dumps(payload).encode()
    start = struct.pack("!II", 16 + len(heads) + len(body), len(heads))
    rest = start + struct.pack("!I", crc32(start)) + heads + body
    return rest + struct.pack("!I", crc32(rest))


def chunk(event: object) -> bytes:
    data = base64.b64encode(json.dumps(event).encode()).decode()
    return message({"bytes": data, "p": "abcdef"}, event_type="chunk", message_type="event")


async def invoked(body: bytes, path: str = "/v1/messages", status: int = 200, **headers: str) -> Any:
    """Return what a client gets if this comes back."""
    stream = status == 200
    media_type = "application/vnd.amazon.eventstream" if stream else "application/json"
    sent = {"content-type": media_type, **{name.replace("_", "-"): value for name, value in headers.items()}}

    def respond(request: httpx2.Request) -> httpx2.Response:
        assert request.headers["x-amzn-bedrock-accept" if stream else "accept"] == "application/json"
        return httpx2.Response(status, stream=Pieces(body, 7), headers=sent)

    async with mocked(Settings(upstreams=(INVOKE,)), respond) as app:
        return await call(app, path, {**ASK, "stream": stream})


@pytest.mark.anyio
@pytest.mark.backends(*VIRTUAL_BACKENDS)
async def test_a_stream_of_chunks_is_a_stream_of_events() -> None:
    """The metrics are taken out of the last one, and a kind of message that is not known is skipped."""
    initial = message({"x": 1}, event_type="initial-response", message_type="event")
    events = [START, *TEXT, *END[:-1], {**END[-1], **METRICS}]
    client = await invoked(initial + b"".join(map(chunk, events)))
    frames = SSEParser().receive_data(client.body)
    assert [json.loads(frame.data) for frame in frames] == [START, *TEXT, *END]
    assert [frame.event.decode() for frame in frames] == [event["type"] for event in (START, *TEXT, *END)]
    chat = await invoked(b"".join(map(chunk, events)), "/v1/chat/completions")
    assert [part in chat.body for part in ('"content":"Hé"'.encode(), b"[DONE]")] == [True, True]


@pytest.mark.anyio
async def test_the_metrics_are_the_usage_of_a_stream_that_has_none() -> None:
    """It is in the event that ends it, in front of an error as well."""
    delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    metrics = {
        **METRICS["amazon-bedrock-invocationMetrics"],
        "cacheReadInputTokenCount": 5,
        "invocationLatency": 9,
    }
    usage = {"input_tokens": 2, "output_tokens": 3, "cache_read_input_tokens": 5}
    last = {**END[-1], "amazon-bedrock-invocationMetrics": metrics}
    for end, counted in ((chunk(last), {"usage": usage}), (chunk(END[-1]), {})):
        client = await invoked(b"".join(map(chunk, [START, *TEXT, END[0], delta])) + end)
        *_, found, stop = [json.loads(frame.data) for frame in SSEParser().receive_data(client.body)]
        assert (found, stop) == ({**delta, **counted}, END[-1])
    exception_type = "serviceUnavailableException"
    down = message({"message": "Down"}, exception_type=exception_type, message_type="exception")
    client = await invoked(b"".join(map(chunk, [START, *TEXT, END[0], delta])) + down)
    kinds = [frame.event for frame in SSEParser().receive_data(client.body)]
    assert kinds[-2:] == [b"message_delta", b"error"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("ending", "kind", "text"),
    [
        (b"", "api_error", "ended without being complete"),
        (message({"message": "Slow down"}, exception_type="throttlingException", message_type="exception"), "rate_limit_error", "Slow down"),
        (message({"message": "Down"}, exception_type="serviceUnavailableException", message_type="exception"), "overloaded_error", "Down"),
        (message({"message": "Bad"}, exception_type="validationException", message_type="exception"), "invalid_request_error", "Bad"),
        (
            message(
                {"originalStatusCode": 429, "originalMessage": "Model is busy", "message": "m"},
                exception_type="modelStreamErrorException", message_type="exception",
            ),
            "rate_limit_error", "Model is busy",
        ),
        (message(None, error_code="InternalServerException", error_message="Oops", message_type="error"), "api_error", "Oops"),
        (message([], exception_type="newException", message_type="exception"), "api_error", "NewException"),
        (chunk(END[0])[:-1] + b"?", "api_error", "its checksum is wrong"),
        (message({"bytes": "?"}, event_type="chunk", message_type="event"), "api_error", "not in base64"),
        (message({"bytes": "AAAA"}, event_type="chunk", message_type="event"), "api_error", "a chunk of the"),
    ],
)  # fmt: skip
async def test_a_stream_that_ends_badly_ends_in_an_error(ending: bytes, kind: str, text: str) -> None:
    client = await invoked(b"".join(map(chunk, (START, *TEXT))) + ending)
    *_, last = SSEParser().receive_data(client.body)
    error = json.loads(last.data)["error"]
    assert (last.event, error["type"]) == (b"error", kind)
    assert text in error["message"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("status", "name", "body", "means", "kind"),
    [
        (400, "ValidationException", {"message": "No."}, 400, "invalid_request_error"),
        (400, "ServiceQuotaExceededException:http://x/", {"message": "No."}, 429, "rate_limit_error"),
        (403, "AccessDeniedException", {"message": "No."}, 403, "permission_error"),
        (404, "ResourceNotFoundException", {"message": "No."}, 404, "not_found_error"),
        (408, "ModelTimeoutException", {"message": "No."}, 408, "timeout_error"),
        (424, "ModelErrorException", {"message": "No.", "originalStatusCode": 529}, 529, "overloaded_error"),
        (424, "ModelErrorException", {"message": "No.", "originalStatusCode": 200}, 500, "api_error"),
        (424, "ModelErrorException", {"message": "No."}, 500, "api_error"),
        (429, "ThrottlingException", {"message": "No."}, 429, "rate_limit_error"),
        (429, "ModelNotReadyException", {"message": "No."}, 529, "overloaded_error"),
        (500, "InternalServerException", {"message": "No."}, 500, "api_error"),
        (503, "ServiceUnavailableException", {"message": "No."}, 529, "overloaded_error"),
    ],
)
async def test_the_errors_of_aws(status: int, name: str, body: Any, means: int, kind: str) -> None:
    client = await invoked(json.dumps(body).encode(), status=status, x_amzn_ErrorType=name)
    error = json.loads(client.body)["error"]
    assert (client.status, error["type"]) == (means, kind)
    assert "No." in error["message"]


@pytest.mark.anyio
async def test_what_was_signed_is_not_told_to_the_client() -> None:
    text = "The request signature ... 'x-amz-security-token:SESSION'"
    body = json.dumps({"message": text}).encode()
    client = await invoked(body, status=403, x_amzn_ErrorType="InvalidSignatureException")
    assert (client.status, b"SESSION" in client.body) == (401, False)


@pytest.mark.anyio
async def test_the_address_of_a_resource_is_not_told() -> None:
    def respond(request: httpx2.Request) -> httpx2.Response:
        error = {"message": f"https://{request.url.host} refuses {request.url.host}"}
        return httpx2.Response(400, json={"error": error})

    up = replace(INVOKE, host="auto", base_url="https://the-resource.services.ai.azure.com/anthropic")
    async with mocked(Settings(upstreams=(up,)), respond) as app:
        client = await call(app, "/v1/messages", ASK)
    assert json.loads(client.body)["error"]["message"] == 'upstream "up" refuses its host'


@pytest.mark.anyio
async def test_the_models_that_an_api_lists() -> None:
    """Mantle has its list in another place; most APIs have none."""
    asked: list[str] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        asked.append(str(request.url))
        return httpx2.Response(200, json={"data": [{"id": "openai.gpt-6"}]})

    up = replace(INVOKE, host="auto", base_url="https://bedrock-mantle.us-east-1.api.aws")
    async with UpstreamClient(transport=httpx2.MockTransport(respond)) as sender:
        [model] = await fetch_models(sender, up, [up.default_account])
    assert model.id == "openai.gpt-6"
    assert asked == ["https://bedrock-mantle.us-east-1.api.aws/v1/models?limit=1000"]
    listing = [name for name in HOST_NAMES if can_list(replace(INVOKE, host=name))]
    assert listing == ["auto", "plain", "claude-google", "claude-aws", "mantle"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("path", "more", "asked", "counted"),
    [
        ("/v1/messages/count_tokens", {}, {"messages": HI, "max_tokens": 1}, {"input_tokens": 7}),
        (
            "/v1/messages/count_tokens",
            {"thinking": {"type": "enabled", "budget_tokens": 2048}},
            {"messages": HI, "thinking": {"type": "enabled", "budget_tokens": 2048}, "max_tokens": 2049},
            {"input_tokens": 7},
        ),
        ("/v1beta/models/up/us.anthropic.claude-x:countTokens", GEMINI, {"messages": HI, "max_tokens": 1, "anthropic_version": "2026-10-21"}, {"totalTokens": 7}),
        (
            "/model/up%2Fus.anthropic.claude-x/count-tokens",
            {"input": {"invokeModel": {"body": base64.b64encode(json.dumps({"messages": HI}).encode()).decode()}}},
            {"messages": HI, "max_tokens": 1},
            {"inputTokens": 7},
        ),
    ],
)  # fmt: skip
async def test_bedrock_counts_tokens(path: str, more: Any, asked: Any, counted: Any) -> None:
    """CountTokens is asked for the foundation model, whoever asks; a refusal of what was made here is an estimate."""
    bodies: list[Any] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        assert request.url.path == "/model/anthropic.claude-x/count-tokens"
        [body] = json.loads(request.content)["input"].values()
        bodies.append(json.loads(base64.b64decode(body["body"])))
        if len(bodies) > 1:
            return httpx2.Response(
                400, json={"message": "The provided model doesn't support counting tokens."}
            )
        return httpx2.Response(200, json={"inputTokens": 7})

    body = (
        more
        if more is GEMINI or "input" in more
        else {"model": "up/us.anthropic.claude-x", "messages": HI, **more}
    )
    up = replace(INVOKE, counts_tokens=True)
    async with mocked(Settings(upstreams=(up,)), respond) as app:
        first, second = [await call(app, path, body) for _ in range(2)]
    assert json.loads(first.body) == counted
    assert (second.status, second.headers.get("dragoman-estimate")) == (200, "true")
    for sent in bodies:
        assert sent == {"anthropic_version": "bedrock-2023-05-31", **asked}


@pytest.mark.anyio
async def test_tokens_of_a_profile_whose_model_is_not_known_are_estimated() -> None:
    def respond(request: httpx2.Request) -> httpx2.Response:
        raise AssertionError(request.url)

    arn = "arn:aws:bedrock:us-east-1:1:application-inference-profile/abc"
    async with mocked(Settings(upstreams=(replace(INVOKE, counts_tokens=True),)), respond) as app:
        client = await call(app, "/v1/messages/count_tokens", {"model": f"up/{arn}", "messages": HI})
    assert (client.status, client.headers.get("dragoman-estimate")) == (200, "true")


FORM = b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b--'
AZURE, DATED = "https://res.openai.azure.com/openai", "api-version=2024-10-21"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("base_url", "host", "method", "path", "body", "url"),
    [
        (AZURE, "azure-dated", "POST", "/v1/embeddings", {"model": "up/e", "input": "Hi"}, f"{AZURE}/deployments/e/embeddings?{DATED}"),
        (AZURE, "azure-dated", "POST", "/openai/deployments/m/completions?api-version=1&x=2", {"prompt": "Hi"}, f"{AZURE}/deployments/e/completions?{DATED}&x=2"),
        (AZURE, "azure-dated", "POST", "/v1/audio/speech", {"model": "up/e"}, f"{AZURE}/deployments/e/audio/speech?{DATED}"),
        (AZURE, "azure-dated", "POST", "/openai/deployments/m/audio/transcriptions?api-version=1", FORM.replace(b"purpose", b"model").replace(b"batch", b"up/e"), f"{AZURE}/deployments/e/audio/transcriptions?{DATED}"),
        (AZURE, "azure-dated", "POST", "/v1/files", FORM, f"{AZURE}/files?{DATED}"),
        (AZURE, "azure-dated", "GET", "/v1/files/file-abc1/content", b"", f"{AZURE}/files/file-abc1/content?{DATED}"),
        (AZURE, "azure-dated", "GET", "/v1/batches?limit=2", b"", f"{AZURE}/batches?{DATED}&limit=2"),
        # Where an API says nothing of a path it stays, and a form is no JSON.
        ("https://bedrock-mantle.us-east-1.api.aws/v1", "auto", "POST", "/v1/files", FORM, "https://bedrock-mantle.us-east-1.api.aws/v1/files"),
    ],
)  # fmt: skip
async def test_the_other_endpoints_at_clouds(
    base_url: str, host: str, method: str, path: str, body: Any, url: str
) -> None:
    asked: list[httpx2.Request] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(200, json={})

    up = replace(INVOKE, protocol="openai_chat", protocols=("openai_chat",), base_url=base_url, host=host)
    endpoints = {"/v1/files": ("up",), "/v1/batches": ("up",)}
    settings = Settings(upstreams=(up,), models={"m": "up/e"}, endpoints=endpoints)
    kind = "multipart/form-data; boundary=b" if isinstance(body, bytes) and body else "application/json"
    async with mocked(settings, respond) as app:
        client = await call(app, path, body, method, headers={"content-type": kind})
    assert (client.status, [str(each.url) for each in asked]) == (200, [url]), client.body
    assert asked[0].content == (body.replace(b"up/e", b"e") if isinstance(body, bytes) else asked[0].content)
