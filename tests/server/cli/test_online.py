"""`dragoman doctor` before servers with one fault each: what is found, and what fixes it."""

# ruff: noqa: E501 -- the tables are read by row

import json
import socket
from collections.abc import Collection, Mapping
from email.utils import formatdate
from pathlib import Path
from time import time
from typing import Any

import anyio
import httpx2
import pytest
from config_text import CANARY
from http_certificate import Certificate, make_certificate, make_expired_certificate
from http_server import DeafServer, Peer, Script, ScriptedServer
from valkey_server import valkey_server
from virtual_time import REAL_BACKENDS

from dragoman_server.cli.doctor.online import examine_upstreams, online_findings
from dragoman_server.cli.doctor.upstreams import UpstreamExamination
from dragoman_server.config.loader import LoadedConfig, load
from dragoman_server.settings.problems import CheckFinding, CheckSeverity
from dragoman_server.upstream.client import UpstreamClient

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*REAL_BACKENDS)]

# The lines of the file that findings name.
FILE = """\
[[upstreams]]
name = "local"
protocol = "openai_chat"
base_url = "{url}"
"""
KEY = 'api_key = "${LOCAL_KEY}"\n'
MODELS = {"data": [{"id": "qwen3:8b"}, {"id": "llama"}]}
WHOLE = {
    "id": "a",
    "object": "chat.completion",
    "created": 1,
    "model": "llama",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
}


# Where servers of OpenAI's protocols refuse what is no request.
POSTS = ("/v1/chat/completions",)


def response(status: int, value: object = None, **headers: str) -> bytes:
    """Return a whole response, after which the connection closes. value: JSON, or bytes as they are."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    lines = [f"{name.replace('_', '-')}: {text}\r\n" for name, text in headers.items()]
    head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\nconnection: close\r\n{''.join(lines)}\r\n"
    return head.encode() + body


def by_path(responses: Mapping[str, bytes], posts: Collection[str] = POSTS) -> Script:
    """A script that responds to one request by its path, with 404 to any other.

    posts: paths that refuse what is no request, as those in `responses` do.
    """

    async def script(peer: Peer) -> None:
        head, _, body = (await peer.request()).partition(b"\r\n\r\n")
        path = head.split(b" ")[1].decode()
        other = responses.get(path, response(404, {}))
        await peer.send(response(400, {}) if body == b"{" and (path in posts or path in responses) else other)

    return script


def serving(responses: Mapping[str, bytes], posts: Collection[str] = POSTS) -> ScriptedServer:
    return ScriptedServer(*[by_path(responses, posts)] * 12)


def load_file(text: str, environ: Mapping[str, str]) -> LoadedConfig:
    Path("dragoman.toml").write_text(text)
    return load(environ={"LOCAL_KEY": CANARY, "DRAGOMAN_PORT": "0", **environ})


async def found(
    text: str, *, spend: bool = False, timeout_s: float = 20.0, **environ: str
) -> list[CheckFinding]:
    """Return what is found except for the port, which is any free one."""
    loaded = load_file(text, environ)
    findings = await online_findings(loaded, timeout_s=timeout_s, spend=spend)
    assert CANARY not in repr(findings)
    port, *others = findings
    assert (port.check, port.severity) == ("port", CheckSeverity.OK)
    return others


async def the_finding(text: str, **options: Any) -> tuple[str, str, str, str]:
    (finding,) = await found(text, **options)
    return finding.severity.value, finding.check, finding.text, finding.fix


async def test_an_upstream_that_works() -> None:
    async with serving({"/v1/models": response(200, MODELS)}) as server:
        severity, check, text, fix = await the_finding(FILE.format(url=server.url + "v1") + KEY)
        assert b"authorization: bearer" in server.peers[0].requests[0].lower()
    assert (severity, check, fix) == ("ok", "models", "")
    assert text.endswith('its models: "qwen3:8b", "llama"')


STATUSES = [
    (401, KEY, ("error", "key", "its key is refused (status 401)"), "change it: LOCAL_KEY (dragoman.toml:5)"),
    (403, KEY, ("error", "key", "its key may not be used for this (status 403)"), "LOCAL_KEY (dragoman.toml:5)"),
    (401, "", ("error", "key", "it requires a key, and none is configured: its key is refused (status 401)"), 'add api_key = "${NAME}": dragoman.toml:2'),
    (402, KEY, ("error", "key", "its account has no money left"), "LOCAL_KEY (dragoman.toml:5)"),
    (429, KEY, ("warning", "key", "its account is at its limit (status 429)"), "wait, or add [[accounts]]"),
    (503, KEY, ("error", "connect", "it has an error of its own (status 503)"), "look at the log of http://127"),
    (400, KEY, ("error", "base_url", "it returned status 400"), "write https:// if that server speaks TLS"),
    (418, KEY, ("error", "base_url", "it returned status 418"), "correct the base URL: dragoman.toml:4"),
]  # fmt: skip


async def test_error_statuses() -> None:
    for status, key, expected, fix in STATUSES:
        async with serving({"/v1/models": response(status, {"error": {"message": CANARY}})}) as server:
            finding = await the_finding(FILE.format(url=server.url + "v1") + key)
        assert finding[:3] == expected
        assert fix in finding[3]


BASE_URLS = [
    ("", "/v1", 'write base_url = "{}/v1": dragoman.toml:4'),
    ("/v1", "", 'write base_url = "{}": dragoman.toml:4'),
    # Such a path may be private.
    ("/tenant-7/v1", "/tenant-7", "remove /v1 at the end of the base URL: dragoman.toml:4"),
]


@pytest.mark.parametrize(("written", "right", "fix"), BASE_URLS)
async def test_a_base_url_with_or_without_v1(written: str, right: str, fix: str) -> None:
    async with serving({right + "/models": response(200, MODELS)}) as server:
        url = server.url.rstrip("/")
        severity, check, _, found_fix = await the_finding(FILE.format(url=url + written))
    assert (severity, check, found_fix) == ("error", "base_url", fix.format(url))


async def test_the_right_base_url_is_not_printed_if_a_part_of_it_may_be_private() -> None:
    async with serving({"/v1/models": response(200, MODELS)}) as server:
        text = FILE.format(url="${LOCAL_URL}")
        _, check, _, fix = await the_finding(text, LOCAL_URL=server.url.rstrip("/"))
    assert (check, fix) == ("base_url", "add /v1 at the end of the base URL: LOCAL_URL (dragoman.toml:4)")


async def test_the_base_url_of_a_variable() -> None:
    async with serving({"/v1/models": response(200, MODELS)}) as server:
        url = server.url.rstrip("/")
        _, check, _, fix = await the_finding("", OPENAI_API_KEY=CANARY, OPENAI_BASE_URL=url)
    assert (check, fix) == ("base_url", f"export OPENAI_BASE_URL={url}/v1")


NO_LISTS = [
    ({}, "warning", "has no list of models there (status 404)"),
    ({"/v1/models": response(200, b"<html>")}, "error", "returned something else than a list of models"),
    (
        {"/v1/models": response(308, b"", location="https://other.example/v1/models?key=" + CANARY)},
        "error",
        "it redirects to https://other.example, and redirects are not followed",
    ),
]


async def test_no_list_of_models_anywhere() -> None:
    for responses, severity, text in NO_LISTS:
        async with serving(responses) as server:
            finding = await the_finding(FILE.format(url=server.url + "v1"))
        assert finding[:3] == (severity, "base_url", text)
        assert "dragoman.toml:4" in finding[3]


_CHAT, _RESPONSES, _MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
_LIST = {"/v1/models": response(200, MODELS)}

# Protocol and base URL of the file, what the server has: check, text, fix.
MISPLACED: list[tuple[str, str, Mapping[str, bytes], Collection[str], tuple[str, str, str] | None]] = [
    ("openai_chat", "/v1", _LIST, [_CHAT], None),
    (
        "openai_responses",
        "/v1",
        _LIST,
        [_CHAT],
        (
            "protocol",
            f"has nothing at {_RESPONSES} (status 404), where openai_responses is requested; "
            f"openai_chat answers at {_CHAT}",
            'write protocol = "openai_chat": dragoman.toml:3',
        ),
    ),
    (
        "anthropic_messages",
        "",
        _LIST,
        [_CHAT, _RESPONSES],
        (
            "protocol",
            f"has nothing at {_MESSAGES} (status 404), where anthropic_messages is requested; "
            f"openai_chat answers at {_CHAT}",
            'write protocol = "openai_chat": dragoman.toml:3; and add /v1 at the end of the base URL',
        ),
    ),
    # The list is where another base URL would have it, which is not what is wrong.
    (
        "openai_chat",
        "",
        _LIST,
        [_MESSAGES],
        (
            "protocol",
            f"has nothing at {_CHAT} (status 404), where openai_chat is requested; "
            f"anthropic_messages answers at {_MESSAGES}",
            'write protocol = "anthropic_messages": dragoman.toml:3',
        ),
    ),
    (
        "openai_chat",
        "/v1",
        {},
        ["/chat/completions"],
        (
            "base_url",
            f"has nothing at {_CHAT} (status 404), where openai_chat is requested, "
            "but has something if you remove /v1 at the end of the base URL",
            'write base_url = "{}": dragoman.toml:4',
        ),
    ),
    *(
        (
            "openai_chat",
            "/v1",
            responses,
            [],
            (
                "base_url",
                f"has nothing at {_CHAT} (status 404), where openai_chat is requested",
                "correct the base URL, or the protocol (dragoman.toml:3): dragoman.toml:4",
            ),
        )
        for responses in (_LIST, {})
    ),
]


@pytest.mark.parametrize(("protocol", "base", "responses", "posts", "expected"), MISPLACED)
async def test_the_path_of_a_protocol(
    protocol: str,
    base: str,
    responses: Mapping[str, bytes],
    posts: Collection[str],
    expected: tuple[str, str, str] | None,
) -> None:
    async with serving(responses, posts) as server:
        url = server.url.rstrip("/")
        text = FILE.format(url=url + base).replace("openai_chat", protocol)
        findings = [each for each in await found(text) if each.check != "models"]
        # What was sent costs no tokens.
        sent = [request for peer in server.peers for request in peer.requests if request.startswith(b"POST")]
        assert all(request.endswith(b"\r\n\r\n{") for request in sent)
    shown = [(each.check, each.text, each.fix) for each in findings]
    assert shown == ([] if expected is None else [(*expected[:2], expected[2].replace("{}", url))])


async def test_one_of_several_protocols_is_not_served() -> None:
    async with serving(_LIST, [_CHAT]) as server:
        text = FILE.format(url=server.url + "v1") + 'protocols = ["openai_chat", "openai_responses"]\n'
        _, missing = await found(text)
    assert (missing.check, missing.fix) == (
        "protocol",
        'leave "openai_responses" out of protocols: dragoman.toml:2',
    )


@pytest.mark.parametrize(
    ("own", "other", "check"), [(405, 400, "protocol"), (404, 500, "base_url"), (404, 200, "base_url")]
)
async def test_which_statuses_show_that_a_path_is_served(own: int, other: int, check: str) -> None:
    async def script(peer: Peer) -> None:
        path = (await peer.request()).split(b" ")[1]
        status = {b"/v1/models": 200, b"/v1/chat/completions": own, b"/v1/responses": other}.get(path, 404)
        await peer.send(response(status, MODELS))

    async with ScriptedServer(*[script] * 12) as server:
        _, path = await found(FILE.format(url=server.url + "v1"))
    assert path.check == check


async def test_what_shows_without_a_list_of_models() -> None:
    text = KEY + "model_list = false\n"
    for status, check in [(401, "key"), (500, None), (403, None)]:

        async def script(peer: Peer) -> None:
            await peer.respond(response(status, {}))  # noqa: B023

        async with ScriptedServer(script) as server:
            findings = await found(FILE.format(url=server.url + "v1") + text)
        assert [each.check for each in findings] == ([check] if check else []) + ["models"]


async def test_a_window_that_is_too_small_for_an_agent() -> None:
    small = {"id": "small", "owned_by": "llamacpp", "meta": {"n_ctx": 4096}}
    models = response(200, {"data": [small, {"id": "other", "context_length": 1}]})
    async with serving({"/v1/models": models}) as server:
        text = FILE.format(url=server.url + "v1") + 'default_model = "small"\n'
        loaded = load_file(text, {})
        _, _, window = await online_findings(
            loaded, timeout_s=20.0, spend=False, first_requests={"one": 100, "another": 2049}
        )
    assert (window.severity, window.check, window.subject) == (
        CheckSeverity.WARNING,
        "context",
        "upstream local",
    )
    assert window.text == (
        '"small" has a context window of 4,096 tokens, and the first request of another takes about 2,049'
    )
    assert window.fix == "start llama.cpp with -c 65536"


async def test_an_upstream_without_models() -> None:
    async with serving({"/v1/models": response(200, {"data": []})}) as server:
        finding = await the_finding(FILE.format(url=server.url + "v1") + 'models = ["a"]\n')
    assert finding == ("warning", "models", "responds, but lists no models", "load a model there")


async def test_models_that_requests_are_routed_to_and_that_do_not_exist() -> None:
    routes = '[models]\na = "local/qwen3"\nb = ["local/lama", "local/llama"]\n"c-*" = "local/*"\n'
    async with serving({"/v1/models": response(200, MODELS)}) as server:
        # `qwen3` is `qwen3:8b` for servers whose names have tags.
        _, missing = await found(FILE.format(url=server.url + "v1") + routes)
    assert str(missing) == (
        'upstream local: does not list the model "lama", which requests are routed to; '
        'write "llama", or another name in its list: dragoman.toml:7'
    )
    assert missing.severity is CheckSeverity.ERROR


async def test_each_account_has_its_own_finding() -> None:
    accounts = "".join(
        f'[[accounts]]\nupstream = "local"\nname = "{name}"\napi_key = "${{{name}}}"\n'
        for name in ("A1", "B1")
    )

    async def script(peer: Peer) -> None:
        right = b"right-key" in await peer.request()
        await peer.send(response(200 if right else 401, MODELS))

    async with ScriptedServer(*[script] * 6) as server:
        text = FILE.format(url=server.url + "v1") + accounts
        wrong = await found(text, A1="wrong-key", B1="wrong-key")
        good, bad = await found(text, A1="right-key", B1="wrong-key")
    assert [each.subject for each in wrong] == ["account local/A1", "account local/B1"]
    assert (good.severity, good.subject) == (CheckSeverity.OK, "account local/A1")
    assert (bad.severity, bad.subject) == (CheckSeverity.ERROR, "account local/B1")
    assert bad.fix.endswith("change it: B1 (dragoman.toml:12)")


@pytest.mark.parametrize(("ahead", "text"), [(-3600, "ahead of"), (3600, "behind")])
async def test_the_clock_is_compared_with_that_of_upstreams(ahead: int, text: str) -> None:
    models = response(200, MODELS, date=formatdate(time() + ahead, usegmt=True))
    async with serving({"/v1/models": models}) as server:
        clock, _ = await found(FILE.format(url=server.url + "v1"))
    assert (clock.severity, clock.check) == (CheckSeverity.WARNING, "clock")
    assert f" s {text} that of 127.0.0.1" in clock.text
    assert clock.fix == "sudo timedatectl set-ntp true"


async def test_a_minute_is_no_difference() -> None:
    models = response(200, MODELS, date=formatdate(time() - 30, usegmt=True))
    async with serving({"/v1/models": models}) as server:
        assert (await the_finding(FILE.format(url=server.url + "v1")))[0] == "ok"


# Connections.


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


async def test_nothing_listens_there() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert await the_finding(FILE.format(url=url + "/v1")) == (
        "error",
        "connect",
        f"nothing listens at {url}",
        "start that server, or correct the base URL: dragoman.toml:4",
    )


async def test_a_name_that_does_not_exist() -> None:
    finding = await the_finding(FILE.format(url="http://no-such-host.invalid/v1"))
    assert finding[:3] == ("error", "dns", "the name no-such-host.invalid cannot be resolved")
    assert finding[3].endswith("correct the base URL: dragoman.toml:4")


@pytest.mark.parametrize("also_without_a_proxy", [True, False])
async def test_an_upstream_that_one_account_reaches_is_reachable(also_without_a_proxy: bool) -> None:
    account = '[[accounts]]\nupstream = "local"\nname = "{}"\n'
    proxied = account.format("a") + f'proxy = "http://127.0.0.1:{free_port()}"\n'
    async with serving({"/v1/models": response(200, MODELS)}) as server:
        text = FILE.format(url=server.url + "v1") + proxied + account.format("b") * also_without_a_proxy
        (examined,) = await examine_upstreams(load_file(text, {}), timeout_s=20.0, limit_s=20.0)
    assert [each.check for each in examined.findings if each.severity is CheckSeverity.ERROR] == ["proxy"]
    assert examined.unreachable is not also_without_a_proxy


async def test_a_server_that_sends_nothing() -> None:
    with DeafServer() as server:
        severity, check, text, fix = await the_finding(FILE.format(url=server.url + "v1"), timeout_s=0.2)
    assert (severity, check) == ("error", "connect")
    assert "sent no response head within 0.2 s" in text
    assert "accepts connections, but sends no response" in fix


async def test_a_list_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman_server.cli.doctor.upstreams._WAITS", 0)
    with DeafServer() as server:
        severity, check, text, _ = await the_finding(FILE.format(url=server.url + "v1"))
    assert (severity, check, text) == ("error", "connect", "sent no list of models within 0 s")


async def test_a_server_that_is_not_http() -> None:
    async def script(peer: Peer) -> None:
        await peer.respond(b"SSH-2.0-OpenSSH_9\r\n")

    async with ScriptedServer(script, script) as server:
        severity, check, _, fix = await the_finding(FILE.format(url=server.url + "v1"))
    assert (severity, check) == ("error", "connect")
    assert fix.startswith(f"check that an HTTP server is at {server.url.rstrip('/')}")


async def test_a_proxy_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://user:{CANARY}@127.0.0.1:{free_port()}")
    severity, check, _, fix = await the_finding(FILE.format(url="http://upstream.example/v1"))
    assert (severity, check) == ("error", "proxy")
    assert fix.endswith("or add upstream.example to no_proxy")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"))


async def tls_finding(certificate: Certificate, host: str = "127.0.0.1") -> tuple[str, str, str, str]:
    responses = {"/v1/models": response(200, MODELS)}
    async with ScriptedServer(*[by_path(responses)] * 3, tls=certificate.server()) as server:
        return await the_finding(FILE.format(url=f"https://{host}:{server.port}/v1"))


async def test_a_certificate_of_an_unknown_authority(certificate: Certificate) -> None:
    finding = await tls_finding(certificate)
    assert finding[:2] == ("error", "tls")
    assert "from an authority that this machine does not trust" in finding[2]
    assert "export SSL_CERT_FILE=" in finding[3]


async def test_a_certificate_of_a_known_authority(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.cert))
    assert (await tls_finding(certificate))[0] == "ok"


async def test_a_certificate_for_another_name(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.cert))
    assert await tls_finding(certificate, "localhost") == (
        "error",
        "tls",
        "its certificate is for another name than localhost",
        "write the name in the certificate: dragoman.toml:4",
    )


async def test_an_expired_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = make_expired_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.cert))
    severity, check, text, fix = await tls_finding(certificate)
    assert (severity, check, text) == ("error", "tls", "its certificate has expired")
    assert fix == "renew the certificate of 127.0.0.1, or set this machine's clock"


async def test_https_to_a_server_of_plain_http() -> None:
    async def script(peer: Peer) -> None:
        await peer.send(response(400, b"not HTTP"))
        await peer.until_closed()

    async with ScriptedServer(script, script) as server:
        url = f"https://127.0.0.1:{server.port}/v1"
        assert await the_finding(FILE.format(url=url)) == (
            "error",
            "tls",
            "it does not speak TLS",
            "write http:// instead of https:// in the base URL: dragoman.toml:4",
        )


# --spend.


async def test_a_tiny_response_is_requested_as_for_a_client() -> None:
    responses = {"/v1/models": response(200, MODELS), "/v1/chat/completions": response(200, WHOLE)}
    async with serving(responses) as server:
        text = FILE.format(url=server.url + "v1") + 'default_model = "llama"\n'
        _, called = await found(text, spend=True)
        sent = server.peers[-1].requests[0].partition(b"\r\n\r\n")[2]
    assert (called.severity, called.check) == (CheckSeverity.OK, "response")
    assert called.text.startswith('"llama" responds within ')
    body = json.loads(sent)
    assert (body["model"], body["max_tokens"]) == ("llama", 16)


async def test_a_response_that_is_refused() -> None:
    error = {"error": {"message": f"no {{model}}\n\x1b[2J for {CANARY}"}}
    responses = {"/v1/models": response(200, MODELS), "/v1/chat/completions": response(400, error)}
    async with serving(responses) as server:
        _, called = await found(FILE.format(url=server.url + "v1") + KEY, spend=True)
    assert (called.severity, called.check) == (CheckSeverity.ERROR, "response")
    assert called.text.startswith('a request for "qwen3:8b" returned status 400: no {model}  [2J for ****')
    assert called.fix.startswith("correct the model's name or its capabilities")


@pytest.mark.parametrize("status", [401, 402, 403, 429])
async def test_what_a_list_has_shown_is_not_repeated(status: int) -> None:
    refused = response(status, {})
    async with serving({"/v1/models": refused, "/v1/chat/completions": refused}) as server:
        text = FILE.format(url=server.url + "v1") + KEY + 'default_model = "llama"\n'
        assert (await the_finding(text, spend=True))[1] == "key"


NO_RESPONSES = [b"<html>", b"{}", b"[]"]


async def test_a_response_that_is_none() -> None:
    for body in NO_RESPONSES:
        responses = {"/v1/models": response(200, MODELS), "/v1/chat/completions": response(200, body)}
        async with serving(responses) as server:
            _, called = await found(FILE.format(url=server.url + "v1"), spend=True)
        assert (called.severity, called.check) == (CheckSeverity.ERROR, "response")
        assert called.fix == "correct the base URL or the protocol: dragoman.toml:4"


async def test_a_response_of_a_server_that_is_not_there() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    text = FILE.format(url=url + "/v1") + 'model_list = false\ndefault_model = "a"\n'
    dead, note = await found(text, spend=True)  # once, though it was met twice
    assert (dead.severity, dead.check, dead.text) == (
        CheckSeverity.ERROR,
        "connect",
        f"nothing listens at {url}",
    )
    assert (note.severity, note.check) == (CheckSeverity.NOTE, "models")


async def test_without_a_list_of_models_there_is_nothing_to_examine_but_the_response() -> None:
    async with serving({}) as server:
        text = FILE.format(url=server.url + "v1") + "model_list = false\n"
        assert (await the_finding(text))[:2] == ("note", "models")
        _, called = await found(text, spend=True)
    assert (called.severity, called.fix) == (
        CheckSeverity.WARNING,
        'add default_model = "NAME": dragoman.toml:2',
    )


# Accounts whose money is known.

BALANCES = [
    (401, {}, "error", "its key is refused (status 401)"),
    (200, {"data": {"limit_remaining": 0}}, "error", "its account has no money left"),
    (200, {"data": {"limit_remaining": 3.5}}, "ok", 'its models: "qwen3:8b", "llama"'),
    (200, {"data": {"limit_remaining": None}}, "ok", 'its models: "qwen3:8b", "llama"'),
    (500, {}, "ok", 'its models: "qwen3:8b", "llama"'),
]


async def test_a_wrong_key_is_found_where_models_are_listed_for_any_key() -> None:
    for status, balance, severity, text in BALANCES:

        def respond(request: httpx2.Request) -> httpx2.Response:
            if request.url.path == "/api/v1/models":
                return httpx2.Response(200, json=MODELS)
            if request.method == "POST":
                return httpx2.Response(400)
            assert (request.url.path, request.headers["authorization"]) == ("/api/v1/key", f"Bearer {CANARY}")
            return httpx2.Response(status, json=balance)  # noqa: B023

        loaded = load_file("", {"OPENROUTER_API_KEY": CANARY})
        async with UpstreamClient(transport=httpx2.MockTransport(respond)) as client:
            limiter = anyio.CapacityLimiter(1)
            examination = UpstreamExamination(loaded, 0, client, 20.0, False, limiter)
            await examination.run()
        finding = examination.findings[0]
        assert (finding.severity.value, finding.subject) == (severity, "upstream openrouter")
        assert finding.text.endswith(text)
        assert severity == "ok" or finding.fix.endswith("OPENROUTER_API_KEY")


# This machine.


async def test_a_port_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman_server.cli.listeners._HEALTHZ_S", 0.05)  # nobody accepts there
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        loaded = load(environ={"DRAGOMAN_PORT": port})
        (finding,) = await online_findings(loaded, timeout_s=1, spend=False)
    assert (finding.severity, finding.check) == (CheckSeverity.ERROR, "port")
    assert finding.fix.endswith("or change the port: DRAGOMAN_PORT")


async def test_a_gateway_that_runs_already_is_no_error() -> None:
    async with serving({"/healthz": response(200, {"status": "ok", "name": "dragoman"})}) as server:
        loaded = load(environ={"DRAGOMAN_PORT": str(server.port)})
        (finding,) = await online_findings(loaded, timeout_s=1, spend=False)
    assert (finding.severity, finding.check) == (CheckSeverity.NOTE, "port")
    assert finding.text.startswith("is in use by a Dragoman that serves http://127.0.0.1:")


async def test_a_store_that_cannot_be_reached() -> None:
    url = f"valkey://user:{CANARY}@127.0.0.1:{free_port()}"
    environ = {"DRAGOMAN_ACCOUNT_STORE": "valkey", "DRAGOMAN_ACCOUNT_STORE_URL": url}
    (finding,) = await found("", **environ)
    assert (finding.severity, finding.check) == (CheckSeverity.ERROR, "store")
    assert finding.fix == "start the server, or correct the URL: DRAGOMAN_ACCOUNT_STORE_URL"


async def test_a_store_that_responds() -> None:
    with valkey_server() as server:
        environ = {"DRAGOMAN_ACCOUNT_STORE": "valkey", "DRAGOMAN_ACCOUNT_STORE_URL": server.url}
        (finding,) = await found("", **environ)
    assert (finding.severity, finding.check) == (CheckSeverity.OK, "store")


async def test_an_address_of_another_machine() -> None:
    environ = {"DRAGOMAN_HOST": "192.0.2.1", "DRAGOMAN_ALLOW_PUBLIC_WITHOUT_KEYS": "yes"}
    (finding,) = await online_findings(load_file("", environ), timeout_s=1, spend=False)
    assert (finding.severity, finding.check) == (CheckSeverity.ERROR, "port")
    assert finding.fix == "choose an address of this machine: 127.0.0.1, or 0.0.0.0 for all of them"
