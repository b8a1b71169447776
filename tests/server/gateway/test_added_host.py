"""A host that a protocol knows nothing of: a row in HOSTS is all that the gateway needs to call it."""

import hashlib
import json
import threading
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from gateway.fakes import call
from gateway.mocked import mocked
from msgspec import structs
from msgspec.structs import replace

from dragoman import PROTOCOLS
from dragoman.codec import UpstreamSpec
from dragoman_server.config.loader import load
from dragoman_server.hosts import HOSTS, Host, UpstreamCall
from dragoman_server.http.explanation import explained
from dragoman_server.platform.off_loop import INLINE_BYTES
from dragoman_server.proxying.explanation import ExplainedRequest
from dragoman_server.settings import AccountSettings, Settings, UpstreamSettings
from dragoman_server.upstream.errors import UpstreamUnreachable

pytestmark = pytest.mark.anyio

CONFIGURATION = """
[[upstreams]]
name = "up"
protocol = "openai_chat"
base_url = "http://127.0.0.1:9/v1"
api_key = "k"
model_list = true
"""
REQUEST = {"model": "up/kite", "messages": [{"role": "user", "content": "Hi"}]}
RESPONSE = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "kite",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hey"}, "finish_reason": "stop"}],
}


THREADS: list[int] = []  # in which calls were fitted


def deploy(call: UpstreamCall, upstream: UpstreamSettings) -> UpstreamCall:
    """Put the model into the path, and take it out of the body."""
    if call.content is None:
        return structs.replace(call, url=f"{call.url}?version=7")
    THREADS.append(threading.get_ident())
    body = json.loads(call.content)
    base = call.url.removesuffix(urlsplit(call.url).path)
    url = f"{base}/deployments/{body.pop('model')}/chat?version=7"
    return structs.replace(call, url=url, content=json.dumps(body).encode())


class Signer:
    """Signs the final body, with a token that it fetches for each call."""

    def __init__(self) -> None:
        self.tokens = 0

    async def __call__(
        self,
        call: UpstreamCall,
        upstream: UpstreamSettings,
        protocol: UpstreamSpec,
        account: AccountSettings,
        now: float,
    ) -> UpstreamCall:
        assert now > 1_700_000_000
        self.tokens += 1
        if account.api_key is None:
            raise UpstreamUnreachable("there is nothing to sign with")
        digest = signature(call.content, account.api_key.reveal(), str(self.tokens))
        headers = [*call.headers, ("x-token", str(self.tokens)), ("x-signature", digest)]
        return structs.replace(call, headers=headers)


def signature(content: bytes | None, key: str, token: str) -> str:
    return hashlib.sha256((content or b"") + f"{key} {token}".encode()).hexdigest()


def settings_of(directory: Path, **changes: object) -> Settings:
    file = directory / "dragoman.toml"
    file.write_text(CONFIGURATION)
    settings = load(environ={}, path=str(file)).settings
    return replace(settings, upstreams=(replace(settings.upstreams[0], host="toy", **changes),))  # type: ignore[arg-type]


async def test_each_call_is_fitted_and_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HOSTS, "toy", Host(deploy, Signer()))
    requests: list[httpx2.Request] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        if request.method == "GET":
            return httpx2.Response(200, json={"data": [{"id": "kite"}]})
        if "seed" in json.loads(request.content):  # refused by its name, and sent again without it
            message = "Unsupported parameter: 'seed'"
            error = {"message": message, "param": "seed", "code": "unsupported_parameter"}
            return httpx2.Response(400, json={"error": error})
        return httpx2.Response(200, json=RESPONSE)

    async with mocked(settings_of(tmp_path), respond) as app:
        client = await call(app, "/v1/chat/completions", {**REQUEST, "seed": 1})
        assert json.loads(client.body)["choices"][0]["message"]["content"] == "Hey"
        await call(app, "/v1/models", {}, method="GET")
    posts = [request for request in requests if request.method == "POST"]
    assert [request.url.raw_path for request in posts] == [b"/deployments/kite/chat?version=7"] * 2
    assert b"/v1/models?version=7" in [request.url.raw_path for request in requests]
    assert all("model" not in json.loads(request.content) for request in posts)
    assert len({request.headers["x-token"] for request in requests}) == len(requests)
    for request in requests:
        token = request.headers["x-token"]
        assert request.headers["x-signature"] == signature(request.content or None, "k", token)
        assert "authorization" not in request.headers


async def test_a_large_call_is_fitted_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HOSTS, "toy", Host(deploy))
    THREADS.clear()
    async with mocked(settings_of(tmp_path), lambda request: httpx2.Response(200, json=RESPONSE)) as app:
        for size in (1, INLINE_BYTES):
            messages = [{"role": "user", "content": "x" * size}]
            assert (await call(app, "/v1/chat/completions", {**REQUEST, "messages": messages})).status == 200
    assert [thread == threading.get_ident() for thread in THREADS] == [True, False]


def test_what_would_be_sent_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, body = PROTOCOLS["openai_chat"].endpoints[0].path, json.dumps(REQUEST).encode()
    for host, has_key in ((Host(deploy, Signer()), False), (Host(deploy), True)):
        monkeypatch.setitem(HOSTS, "toy", host)
        [step] = explained(settings_of(tmp_path), "POST", path, {}, body).steps
        assert isinstance(step, ExplainedRequest)
        assert step.url == "http://127.0.0.1:9/deployments/kite/chat?version=7"
        assert "model" not in json.loads(step.body)
        assert ("authorization" in dict(step.headers)) is has_key


async def test_what_cannot_be_authorized_is_a_failure_of_its_upstream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(HOSTS, "toy", Host(authorize=Signer()))
    settings = settings_of(tmp_path, api_key=None)
    async with mocked(settings, lambda request: httpx2.Response(200, json=RESPONSE)) as app:
        refused = await call(app, "/v1/chat/completions", REQUEST)
    assert refused.status == 502
    assert json.loads(refused.body)["error"]["code"] == "upstream_unreachable"
