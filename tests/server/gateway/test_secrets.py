"""Every secret that a configuration can have, and every way out: none of them gets out.

The upstream repeats all that it can have received, in all forms; what clients and the log get of
that has none of it. Real processes: tests/edge/test_secrets.py.
"""

# ruff: noqa: E501 -- the tables are read by row

import base64
import glob
import io
import json
import logging
import pickle
import time
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner
from failures.responses import Text, begun
from failures.responses import stream as stream_of
from gateway.fakes import FakeClient, FakeUpstreams, Script, http_scope
from gateway.provider import InBand, in_band
from gateway.provider_errors import anthropic, google
from gateway.scripted import GEMINI, MESSAGES, PROTOCOL_NAMES, whole
from laws.clients import path_of
from msgspec.structs import replace
from secret_settings import (
    CANARIES,
    CANARY_TEXTS,
    all_values,
    leaked,
    repeated,
    secret_fields,
    secret_keys,
    settings,
)
from translation import client_request

from dragoman_server.app import Application, create_app
from dragoman_server.cli import banner as banners
from dragoman_server.cli.commands import main
from dragoman_server.config.loader import LoadedConfig, load
from dragoman_server.serving.sockets import BoundAddress
from dragoman_server.settings import AccountSettings, Settings, UpstreamSettings
from dragoman_server.settings.secret import MASK, MIN_SECRET_LENGTH, Mask, Secret
from dragoman_server.upstream.errors import UpstreamBroken, UpstreamUnreachable

pytestmark = pytest.mark.anyio


class Received(logging.Handler):
    """All that the log gets, before masking."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.came: anyio.Event | None = None  # set by the first line

    def emit(self, record: logging.LogRecord) -> None:
        self.text += f"{record.getMessage()} {getattr(record, 'dragoman', '')}\n"
        if self.came is not None:
            self.came.set()


@pytest.fixture
def log(logger: logging.Logger) -> Received:
    handler = Received()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    return handler


@pytest.mark.promise("S3")
def test_every_setting_that_holds_a_secret_has_a_canary() -> None:
    assert secret_keys() == set(CANARIES)
    fields = secret_fields() - {
        ("Settings", "proxies")
    }  # of the environment: see test_a_proxy_of_the_environment
    expected = set(CANARIES)
    assert fields == expected, "a secret of no secret kind: `config show` and the command line would show it"


def error_of(upstream: str, message: str) -> dict[str, Any]:
    """Secrets in every member of an error."""
    if upstream == MESSAGES:
        return anthropic("api_error", message)
    if upstream == GEMINI:
        details = {"BadRequest": {"fieldViolations": [{"field": message, "description": message}]}}
        error = google(
            message, 500, ErrorInfo={"reason": message}, Help={"links": [{"url": message}]}, **details
        )
        return {"error": {**error["error"], "status": message}}
    return {"error": {"message": message, "type": message, "param": message, "code": "server_error"}}


# Behaviour of an upstream -> its response to a request for a stream.
def ways(upstream: str) -> dict[str, Script]:
    error, json_type = error_of(upstream, repeated()), [("content-type", "application/json")]
    good = stream_of(upstream, Text("Hello"))
    first = begun(good, "Hello")
    bare = in_band(upstream, InBand(error, bare=True), stream=True)
    late = b"".join([*first, bare])
    escaped = json.dumps(error).replace("canary", "\\u0063anary").replace("/", "\\/").encode()
    return {
        "an error response": whole(error, 500),
        "an error response, escaped": Script([escaped], 400, json_type),
        "an error response, no JSON": Script([repeated().encode()], 503),
        "a page": Script([f"<html>{repeated()}</html>".encode()], 502),
        "the type of a page": Script([b"<html>"], 404, [("content-type", f"text/html-{all_values()[0]}")]),
        "an unknown shape": whole({"detail": [{"loc": ["x"], "msg": repeated()}]}, 422),
        "headers": Script(
            [json.dumps(error).encode()],
            429,
            [(f"x-ratelimit-{number}", each) for number, each in enumerate(all_values())]
            + [("x-request-id", all_values()[0]), ("retry-after", all_values()[1])],
        ),
        "headers of a response": Script([good], 200, [("x-ratelimit-x", each) for each in all_values()] + [("request-id", all_values()[2])]),
        "a redirect": Script(
            [],
            302,
            [("location", f"http://me:{CANARY_TEXTS[0]}@new.test/v1?key={CANARY_TEXTS[5]}#{CANARY_TEXTS[9]}")],
        ),
        "in the stream": Script([in_band(upstream, InBand(error), stream=True)]),
        "in the stream, alone": Script([bare]),
        "in the stream, behind content": Script([late]),
        "in the stream, byte by byte": Script([late[at : at + 1] for at in range(len(late))]),
        "in the stream, with CR LF": Script([late.replace(b"\n", b"\r\n")]),
        "in the stream, escaped": Script([late.replace(b'"no: ', b'"no: \\u0063anary').replace(b"canary", b"\\u0063anary")]),
        "in the stream, by its own line": Script([b"".join(first) + b"error: " + json.dumps(error).encode() + b"\n\n"]),
        "in the stream, not ended": Script([late.rstrip(b"\n")]),
        "no JSON in the stream": Script([b"".join(first) + b"event: error\ndata: " + repeated().encode() + b"\n\n"]),
        "in the stream, without a type": Script([b"".join(first) + b"data: " + json.dumps({"error": {"message": repeated()}}).encode() + b"\n\n"]),
        "JSON in place of a stream": Script([in_band(upstream, InBand(error, bare=True), stream=False)], headers=json_type),
        "a connection that fails": Script(connect=[UpstreamUnreachable("cannot connect to http://up.corp.test: refused")]),
        "a connection that breaks": Script([*first, UpstreamBroken("http://up.corp.test: reading the body failed")]),
        "its address": Script([b"".join(first), _reported(upstream)]),
    }  # fmt: skip


def _reported(upstream: str) -> bytes:
    message = (
        "bad gateway: http://up.corp.test/v1 of up.corp.test:80, organization org-0123456789abcdefghij01"
    )
    return in_band(upstream, InBand(error_of(upstream, message), bare=True), stream=True)


def gateway(upstream: str, *scripts: Script, **server: Any) -> Application:
    # A store on a server is not called here, and its URL is a secret all the same.
    return create_app(settings(upstream, **server), client=FakeUpstreams(*scripts))


async def request(app: Application, client: str, *, stream: bool = True, **more: Any) -> FakeClient:
    body = {**client_request(client, "", None, stream=stream), "model": "up/m", **more}
    response = FakeClient(json.dumps(body).encode())
    await app(http_scope(path_of(client, "up/m", stream=stream)), response.receive, response.send)
    assert response.finished
    return response


def reported(response: FakeClient) -> str:
    """Return all that the client got; of JSON its decoded texts, too."""
    text = response.body.decode() + repr(response.messages)
    for line in [*response.body.decode().splitlines(), response.body.decode()]:
        try:
            text += repr(json.loads(line.removeprefix("data: ")))
        except ValueError:
            continue
    return text


@pytest.mark.promise("S3", "S18")
@pytest.mark.parametrize("way", ways(MESSAGES))
async def test_secrets_that_an_upstream_repeats_reach_no_client_and_no_log(way: str, log: Received) -> None:
    for client, upstream in product(PROTOCOL_NAMES, PROTOCOL_NAMES):
        response = await request(gateway(upstream, ways(upstream)[way]), client)
        assert leaked(reported(response)) == [], (client, upstream)
        assert leaked(log.text) == [], (client, upstream)
        assert "up.corp.test" not in reported(response)
        assert "org-01234" not in reported(response) + log.text
        assert '"outcome"' in log.text.replace("'", '"')


@pytest.mark.prints_secrets
@pytest.mark.promise("R12")
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
async def test_content_of_a_model_is_not_masked(protocol: str) -> None:
    """It passes unchanged, also if it looks like one, and so do errors without secrets."""
    text = '{"error": {"message": "canary-of-a-header"}} event: error'
    sent = b"".join(begun(stream_of(protocol, Text(text)), text)) + in_band(
        protocol, InBand(error_of(protocol, "no more room"), bare=True), stream=True
    )
    response = await request(gateway(protocol, Script([sent])), protocol)
    assert response.body == sent


@pytest.mark.promise("S3")
def test_a_stored_response_has_no_secret(tmp_path: Path) -> None:
    """Of a response that failed after its id was sent."""
    file = tmp_path / "responses"
    upstream = "openai_responses"
    late = ways(upstream)["in the stream, behind content"]
    app = gateway(upstream, late, response_store="sqlite", response_store_path=str(file))

    async def run() -> None:
        async with app.lifespan():
            await request(app, upstream, store=True)

    anyio.run(run)
    stored = b"".join(Path(file).read_bytes() for file in glob.glob(f"{file}*"))
    assert b"SQLite format 3" in stored
    assert leaked(stored) == []


@pytest.mark.promise("S3")
async def test_admin_shows_no_cause_with_a_secret() -> None:
    made = settings()
    another = AccountSettings(upstream="two", name="b", api_key=Secret("sk-canary-of-an-account-b"))
    refused = whole({"error": {"message": repeated(), "code": repeated()}}, 401)
    app = create_app(replace(made, accounts=(*made.accounts, another)), client=FakeUpstreams(refused))
    await request(app, "openai_chat", model="two/m")
    response = FakeClient()
    key = CANARIES["ServerSettings", "admin_key"].reveal()
    await app(http_scope("/admin/accounts", "GET", {"x-api-key": key}), response.receive, response.send)
    assert response.status == 200
    assert b"disabled" in response.body
    assert leaked(reported(response)) == []


@pytest.mark.promise("S3")
async def test_a_bug_inside_a_request_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The traceback has no values of variables, and the text of its exception goes through the mask of the log."""
    from dragoman_server.log import JSONFormatter, TextFormatter
    from dragoman_server.proxying import attempt

    def fail(*args: object, **more: object) -> None:
        held = all_values()
        raise RuntimeError(f"a bug that tells {held[3]}")

    monkeypatch.setattr(attempt.upstream_errors, "invalid_response_error", fail)
    app = gateway("openai_chat", whole({}))
    logger, out = logging.getLogger("dragoman"), io.StringIO()
    for formatter in (JSONFormatter, TextFormatter):
        handler = logging.StreamHandler(out)
        handler.setFormatter(formatter(settings().mask))
        logger.addHandler(handler)
        try:
            response = await request(app, "openai_chat")
        finally:
            logger.removeHandler(handler)
        assert (response.status, leaked(reported(response))) == (500, [])
        assert "a bug that tells ****" in out.getvalue()
        assert leaked(out.getvalue()) == []
        out.truncate(0)


# Masks made from settings.


@pytest.mark.promise("S3")
def test_settings_show_nothing() -> None:
    made = settings()
    texts = [
        repr(made),
        str(made),
        repr(made.mask),
        repr(made.upstreams),
        repr(made.accounts),
        f"{made.server}",
    ]
    assert [leaked(text) for text in texts] == [[]] * len(texts)
    copy = pickle.loads(pickle.dumps(made))
    assert copy == made
    assert copy.mask(repeated()) == made.mask(repeated())


@pytest.mark.promise("S3")
def test_the_banner_shows_nothing() -> None:
    base = f"http://me:{CANARY_TEXTS[9]}@up.corp.test/v1?key={CANARY_TEXTS[5]}"  # only code can set it
    loaded = LoadedConfig(settings(base_url=base), None, Path())
    lines = banners.banner(loaded, BoundAddress("http", "127.0.0.1", 1, "asyncio"), "1", {"up": "why"})
    text = "\n".join(lines)
    assert "up: http://up.corp.test, openai_chat, key ****" in text
    assert leaked(text) == []


TOML = """
[server]
secret = "canary-of-the-secret-0123456789-abcdef"
admin_key = "{admin}"
account_store = "{store}"
account_store_url = "{url}"

[[upstreams]]
name = "up"
protocol = "openai_chat"
base_url = "{base_url}"
api_key = "sk-canary-0123456789-0123456789"
headers = {{ x-team = "canary-of-a-header{header}" }}
proxy = "{proxy}"
"""
FINE = {
    "admin": "canary-of-the-admin-0123456789-abcdef",
    "store": "memory",
    "url": "valkey://user:canary-of-the-store@127.0.0.1:1/0",
    "base_url": "http://127.0.0.1:1/v1",
    "proxy": "http://me:canary-of-the-proxy@127.0.0.1:1",
    "header": "",
}


@pytest.mark.promise("S3")
@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"admin": "canary-of-the-secret-0123456789-abcdef"},
        {"admin": "canary"},
        {"url": "valkey://user:canary-of-the-store@127.0.0.1:nine"},
        {"url": "http://user:canary-of-the-store@127.0.0.1", "store": "valkey"},
        {"base_url": "http://me:canary-of-an-url@h.test/v1"},
        {"base_url": "http://h.test/v1?key=canary-of-an-url"},
        {"proxy": "ftp://me:canary-of-the-proxy@h.test"},
        {"proxy": "http://me:canary-of-the-proxy@h.test:nine"},
        {"header": "\\n"},
        {"header": '", "x y" = "canary'},
    ],
    ids=lambda wrong: "-".join(wrong),
)
def test_commands_show_nothing(
    wrong: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dragoman.toml").write_text(TOML.format(**{**FINE, **wrong}))
    for command in ("config check", "config show", "config show --origin", "keys list", "serve"):
        if command == "serve" and not wrong:
            continue
        result = CliRunner().invoke(main, command.split())
        # The query of a URL is the user's own text, which is quoted as in the file.
        if wrong and "?" not in wrong.get("base_url", ""):
            assert "canary" not in result.output.replace("canary-of-a-header.x", "")
        elif not wrong:
            assert "canary" not in result.output


@pytest.mark.promise("S3")
def test_the_credentials_of_a_proxy_of_the_environment_are_masked() -> None:
    environ = {"HTTPS_PROXY": "http://me:canary-of-the-proxy@proxy.test:1", "OPENAI_API_KEY": "sk-1"}
    loaded = load(environ=environ)
    found = loaded.settings.mask("by http://me:canary-of-the-proxy@proxy.test:1, canary-of-the-proxy")
    assert found == "by ****, ****"
    assert "canary" not in repr(loaded.settings)


# The mask itself.


@pytest.mark.promise("S3")
def test_the_mask_covers_every_form_of_a_secret() -> None:
    assert leaked(settings().mask(repeated())) == []


# Text before the secret, and the masked text.
IN_BASE64 = (("", "****OQ=="), ("x", "eH****ODk="), ("ab", "YWJ****"), ("Bearer ", "QmVhcmVyIH****ODk="))


MASKED: list[tuple[str, str]] = [
    ("nothing to hide", "nothing to hide"),
    ("sk-0123456789", "****"),
    ("Bearer sk-0123456789, twice sk-0123456789", "Bearer ****, twice ****"),
    ("xsk-0123456789x", "x****x"),
    # The upstream has masked it itself.
    ("Incorrect API key provided: sk-01**6789", "Incorrect API key provided: sk-01**6789"),
    # Cut.
    ("no: sk-012345", "no: ****"),
    ("no: sk-012345...", "no: ****..."),
    ("no: sk-012345 more", "no: sk-012345 more"),
    ("no: sk-01", "no: sk-01"),
    (r"no: \u0073\u006b-01234\u00", r"no: ****\u00"),
    ("no: %73k-01234%3", "no: ****%3"),
    # Written otherwise: large, in a URL, JSON in JSON, a page.
    ("SK-0123456789", "****"),
    ("%73%6B%2d%30%31%32%33456789", "****"),
    ("?key=sk%252D0123456789&a=b%20c", "?key=****&a=b%20c"),
    (r"the text \u0073k\u002D0123456789 in a page", "the text **** in a page"),
    (r"{\"error\": \"\\u0073k-0123456789\"}", r"{\"error\": \"****\"}"),
    ("&#115;k&#x2d;0123456789", "****"),
    # In base64, with other bytes before or after it.
    *((base64.b64encode(f"{before}sk-0123456789".encode()).decode(), shown) for before, shown in IN_BASE64),
    # Shorter values occur in any text, and so does the name of the upstream.
    ("openai said true", "openai said true"),
    ("the upstream lm-studio", "the upstream lm-studio"),
    # An unknown key of a client.
    ("unknown model drk_0123456789012345678901234567890123456789012", "unknown model ****"),
    ("drk_ begins one", "drk_ begins one"),
]


def test_secrets_are_masked_in_a_text() -> None:
    for text, shown in MASKED:
        upstream = UpstreamSettings(
            name="lm-studio",
            protocol="openai_chat",
            base_url="http://h.test/v1",
            api_key=Secret("lm-studio"),
            headers={"x-team": Secret("true"), "x-other": Secret("openai"), "x-key": Secret("sk-0123456789")},
        )
        assert Settings(upstreams=(upstream,)).mask(text) == shown, text


def test_a_text_of_backslashes_is_masked_in_linear_time() -> None:
    """Quadratic work would take half a minute here, in one call, during which no other thread runs."""
    start = time.process_time()
    assert Mask(["sk-0123456789"])(f"sk-0123456789{'%5C' * 30_000}!") == f"{MASK}{'%5C' * 30_000}!"
    assert time.process_time() - start < 2


def test_a_mask_of_many_secrets_finds_each_in_a_short_text_and_in_a_long_one() -> None:
    secrets = [f"{number:08}-key-of-an-account" for number in range(100)]
    mask = Mask(secrets)
    for secret, around in product(secrets, (0, 1, 1000)):
        assert mask(f"{'a' * around} {secret}.") == f"{'a' * around} {MASK}."
        assert not mask.may_change(f"{'a' * around} {secret[1:]}")


def test_a_secret_is_seen_in_any_value_of_a_document() -> None:
    secret = "a-canary-of-a-key-0123456789"
    mask = Mask([secret])
    for value in (
        secret,
        f"x{secret}",
        [1, [secret]],
        {"a": {secret: None}},
        {"a": [{"b": secret}]},
        Path(secret),
    ):
        assert mask.may_change_values([None, 1, "text", value]), value
    assert not mask.may_change_values([None, 1, True, 0.5, "text", [], {"a": ["b"]}, secret[:4], secret[4:]])


def test_a_mask_of_nothing_changes_nothing() -> None:
    assert Mask(())("any text") == "any text"
    assert Mask(["x" * (MIN_SECRET_LENGTH - 1)])("x" * 20) == "x" * 20
    assert Mask(["Basic no base64!", "http://[", "token "])("Basic token") == "Basic token"


# Requests of the gateway itself.


def log_of(app: Application, path: str) -> tuple[str, FakeClient]:
    """Return what a gateway logs by itself, in real time, and the response to the request that causes it."""
    response, handler, logger = FakeClient(), Received(), logging.getLogger("dragoman")
    level = logger.level

    async def run() -> None:
        handler.came = anyio.Event()
        async with app.lifespan():
            await app(http_scope(path, "GET"), response.receive, response.send)
            with anyio.fail_after(30):
                await handler.came.wait()

    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        anyio.run(run)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    return handler.text, response


@pytest.mark.promise("S3")
@pytest.mark.parametrize("status", [200, 401, 500])
def test_a_list_of_models_that_is_an_error(status: int) -> None:
    refused = whole({"error": {"message": repeated()}, repeated(): repeated()}, status)
    text, response = log_of(create_app(settings(), client=FakeUpstreams(refused)), "/v1/models")
    assert "cannot be listed" in text
    assert leaked(text + reported(response)) == []


@pytest.mark.promise("S3")
def test_a_store_that_cannot_be_reached() -> None:
    pytest.importorskip("coredis")
    app = create_app(settings(account_store="valkey"), client=FakeUpstreams(whole({})))
    text, _ = log_of(app, "/healthz")
    assert "the account store does not work" in text
    assert leaked(text) == []
