"""`dragoman doctor` before servers with one fault each: what is found, and what fixes it."""

import json
import re
import socket
from collections.abc import Collection, Mapping
from email.utils import formatdate
from pathlib import Path
from time import time
from typing import Any

import anyio
import httpx2
import pytest
import rows
from config_text import CANARY
from http_certificate import Certificate, make_certificate, make_expired_certificate
from http_server import DeafServer, Peer, Script, ScriptedServer
from valkey_server import valkey_server
from virtual_time import REAL_BACKENDS

from dragoman_server.accounts.stores.operations import WriteKeyTable
from dragoman_server.accounts.stores.valkey import ValkeyAccountStore
from dragoman_server.cli.doctor.online import examine_upstreams, online_findings
from dragoman_server.cli.doctor.upstreams import UpstreamExamination
from dragoman_server.config.loader import LoadedConfig, load
from dragoman_server.hosts.credential_libraries import (
    CREDENTIAL_LIBRARIES,
    CredentialLibrary,
    FoundCredential,
)
from dragoman_server.hosts.credentials import credential_of
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
    findings = await online_findings(load_file(text, environ), timeout_s=timeout_s, spend=spend)
    assert CANARY not in repr(findings)
    port, *others = findings
    assert (port.check, port.severity) == ("port", CheckSeverity.OK)
    return others


async def the_finding(text: str, **options: Any) -> tuple[str, str, str, str]:
    (finding,) = await found(text, **options)
    return finding.severity.value, finding.check, finding.text, finding.fix


async def examined(lines: list[str]) -> list[str]:
    """Return what is found at a server that behaves as the lines of online.txt say."""
    responses: dict[str, bytes] = {}
    refused: dict[str, int] = {}
    base, protocol, spend, text = "/v1", "openai_chat", False, ""
    environ: dict[str, str] = {}
    for line in lines:
        line = line.replace("$MODELS", json.dumps(MODELS)).replace("$CANARY", CANARY)
        word, _, rest = line.partition(" ")
        first, _, more = rest.partition(" ")
        match word:
            case "POST":
                refused[first] = int(more)
            case "base":
                base = rest
            case "protocol":
                protocol = rest
            case "env":
                environ |= [rest.split("=")]
            case "spend":
                spend = True
            case _ if word.startswith("/"):
                responses[word] = response(int(first), more.encode())
            case _:
                text += line.replace("$KEY", KEY.strip()) + "\n"

    async def script(peer: Peer) -> None:
        head, _, body = (await peer.request()).partition(b"\r\n\r\n")
        method, path = head.decode().split(" ")[:2]
        assert spend or method == "GET" or body == b"{", "it would cost tokens"
        statuses = dict.fromkeys(responses, 400) | (refused or {"/v1/chat/completions": 400})
        if body == b"{" and path in statuses:
            await peer.send(response(statuses[path], {}))
        else:
            await peer.send(responses.get(path, response(404, {})))

    async with ScriptedServer(*[script] * 12) as server:
        url = server.url.rstrip("/")
        environ = {name: value.replace("$URL", url) for name, value in environ.items()}
        file = FILE.format(url=base if base.startswith("$") else url + base).replace("openai_chat", protocol)
        findings = await found("" if environ else file + text, spend=spend, LOCAL_URL=url, **environ)
    shown = [f"{each.severity.value} {each.check}: {each}" for each in findings]
    return [re.sub(r"within [0-9.]+ m?s", "within T", line.replace(url, "http://SERVER")) for line in shown]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_what_is_found_at_a_server(backend: str) -> None:
    rows.check(
        Path(__file__).with_name("online.txt"), lambda lines: anyio.run(examined, lines, backend=backend)
    )


async def test_a_request_for_models_has_the_key_and_a_redirect_is_not_followed() -> None:
    redirect = response(308, b"", location="https://other.example/v1/models?key=" + CANARY)
    async with serving({"/v1/models": redirect}) as server:
        finding = await the_finding(FILE.format(url=server.url + "v1") + KEY)
        assert b"authorization: bearer" in server.peers[0].requests[0].lower()
    expected = ("error", "base_url", "it redirects to https://other.example, and redirects are not followed")
    assert finding[:3] == expected


async def test_a_window_that_is_too_small_for_an_agent() -> None:
    small = {"id": "small", "owned_by": "llamacpp", "meta": {"n_ctx": 4096}}
    models = response(200, {"data": [small, {"id": "other", "context_length": 1}]})
    async with serving({"/v1/models": models}) as server:
        text = FILE.format(url=server.url + "v1") + 'default_model = "small"\n'
        loaded = load_file(text, {})
        _, _, window = await online_findings(
            loaded, timeout_s=20.0, spend=False, first_requests={"one": 100, "another": 2049}
        )
    expected = (CheckSeverity.WARNING, "context", "upstream local")
    assert (window.severity, window.check, window.subject) == expected
    assert window.text == (
        '"small" has a context window of 4,096 tokens, and the first request of another takes about 2,049'
    )
    assert window.fix == "start llama.cpp with -c 65536"


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


async def test_the_clock_is_compared_with_that_of_upstreams() -> None:
    for ahead, text in ((-3600, "ahead of"), (3600, "behind"), (-30, None)):
        models = response(200, MODELS, date=formatdate(time() + ahead, usegmt=True))
        async with serving({"/v1/models": models}) as server:
            first, *others = await found(FILE.format(url=server.url + "v1"))
        if text is None:
            assert (first.severity, others) == (CheckSeverity.OK, []), "half a minute is no difference"
        else:
            assert (first.severity, first.check) == (CheckSeverity.WARNING, "clock")
            assert f" s {text} that of 127.0.0.1" in first.text
            assert first.fix == "sudo timedatectl set-ntp true"


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


async def test_a_client_certificate_that_cannot_be_used_hides_nothing() -> None:
    text = '[server]\nupstream_certfile = "none.pem"\n'
    async with serving({"/v1/models": response(200, MODELS)}) as server:
        assert (await the_finding(text + FILE.format(url=server.url + "v1")))[0] == "ok"


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


async def test_a_response_of_a_server_that_is_not_there() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    text = FILE.format(url=url + "/v1") + 'model_list = false\ndefault_model = "a"\n'
    dead, note = await found(text, spend=True)  # once, though it was met twice
    expected = (CheckSeverity.ERROR, "connect", f"nothing listens at {url}")
    assert (dead.severity, dead.check, dead.text) == expected
    assert (note.severity, note.check) == (CheckSeverity.NOTE, "models")


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
        loaded = load(environ={"DRAGOMAN_PORT": str(taken.getsockname()[1])})
        (finding,) = await online_findings(loaded, timeout_s=1, spend=False)
    assert (finding.severity, finding.check) == (CheckSeverity.ERROR, "port")
    assert finding.fix.endswith("or change the port: DRAGOMAN_PORT")


async def test_a_gateway_that_runs_already_is_no_error() -> None:
    async with serving({"/healthz": response(200, {"status": "ok", "name": "dragoman"})}) as server:
        loaded = load(environ={"DRAGOMAN_PORT": str(server.port)})
        (finding,) = await online_findings(loaded, timeout_s=1, spend=False)
    assert (finding.severity, finding.check) == (CheckSeverity.NOTE, "port")
    assert finding.text.startswith("is in use by a Dragoman that serves http://127.0.0.1:")


STORES = {"ACCOUNT": CheckSeverity.ERROR, "USAGE": CheckSeverity.WARNING}


@pytest.mark.parametrize("store", STORES)
async def test_a_store_on_a_server(store: str) -> None:
    with valkey_server() as server:
        environ = {f"DRAGOMAN_{store}_STORE": "valkey", f"DRAGOMAN_{store}_STORE_URL": server.url}
        (works,) = await found("", **environ)
        assert server.command("CONFIG", "SET", "maxmemory", "1")
        (takes_no_writes,) = await found("", **environ)
    environ[f"DRAGOMAN_{store}_STORE_URL"] = f"valkey://user:{CANARY}@127.0.0.1:{free_port()}"
    (gone,) = await found("", **environ)
    assert (works.severity, works.check) == (CheckSeverity.OK, "store")
    assert "used memory > 'maxmemory'" in takes_no_writes.text
    assert gone.fix == f"start the server, or correct the URL: DRAGOMAN_{store}_STORE_URL"
    for each in (takes_no_writes, gone):
        assert (each.severity, each.check) == (STORES[store], "store")


async def test_stored_keys_whose_group_is_gone() -> None:
    with valkey_server() as server:
        store = ValkeyAccountStore(server.url)
        table = json.dumps({"name": "ci", "hash": "0" * 64, "group": "team"})
        async with store.running():
            await store.apply(WriteKeyTable("ci", "", table, "1"))
        environ = {"STORE": "valkey", "STORE_URL": server.url}
        more = {"DRAGOMAN_STORED_KEYS": "yes", "DRAGOMAN_SECRET": CANARY * 2}
        text = '[[groups]]\nname = "crew"\nbudget = 1\n[[prices]]\nmodel = "other"\ninput = 1\noutput = 1\n'
        findings = await found(
            text, **{f"DRAGOMAN_ACCOUNT_{name}": value for name, value in environ.items()}, **more
        )
    expected = [("keys", "group team"), ("store", "server.account_store_url")]
    assert [(each.check, each.subject) for each in findings] == expected


async def test_an_address_of_another_machine() -> None:
    environ = {"DRAGOMAN_HOST": "192.0.2.1", "DRAGOMAN_ALLOW_PUBLIC_WITHOUT_KEYS": "yes"}
    (finding,) = await online_findings(load_file("", environ), timeout_s=1, spend=False)
    assert (finding.severity, finding.check) == (CheckSeverity.ERROR, "port")
    assert finding.fix == "choose an address of this machine: 127.0.0.1, or 0.0.0.0 for all of them"


ENDS = 1764158400.0


async def test_the_credentials_of_a_cloud(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whose they are and how long they last, never what they are. Its paths are in a table, so they are not tried."""
    credential_of.cache_clear()
    bearer = [("authorization", f"Bearer {CANARY}")]
    library = CredentialLibrary(
        "toy-auth", "vertex", lambda *_: lambda: FoundCredential("toy-auth: profile x", ENDS, bearer)
    )
    monkeypatch.setitem(CREDENTIAL_LIBRARIES, "vertex", library)  # type: ignore[arg-type]
    text = FILE.format(url="http://127.0.0.1:9") + 'host = "vertex"\n'
    ok, note = await found(text)
    assert (ok.severity, ok.check) == (CheckSeverity.OK, "credentials")
    assert ok.text == "uses toy-auth: profile x, until 2025-11-26T12:00:00Z"
    assert note.text.startswith("its list of models is not requested")
    assert [each.check for each in await found(text + KEY)] == ["models"]  # the key is used


async def test_credentials_that_cannot_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(identity: str | None, scope: str) -> Any:
        raise ValueError(f"nothing at {identity}")

    credential_of.cache_clear()
    monkeypatch.setitem(CREDENTIAL_LIBRARIES, "vertex", CredentialLibrary("toy-auth", "vertex", find))  # type: ignore[arg-type]
    text = FILE.format(url="http://127.0.0.1:9") + 'host = "vertex"\nidentity = "me.json"\n'
    failed, _ = await found(text)
    assert (failed.severity, failed.check) == (CheckSeverity.ERROR, "credentials")
    assert failed.text == "toy-auth has no credentials for it: ValueError: nothing at me.json"
    assert failed.fix.endswith(": dragoman.toml:2")
