"""Failures of upstreams, as clients get them: whose they are, what to do, and if to try again."""

# ruff: noqa: E501 -- the tables are read by row

from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import anthropic as sdk_anthropic
import anyio
import httpx2
import openai as sdk_openai
import pytest
import rows
from failures.responses import Text, begun
from failures.responses import stream as stream_of
from failures.translate import each
from gateway.provider import InBand, Plays, RawResponse, in_band, key_of, pool_of
from gateway.provider_errors import anthropic, broken, google, openai, refusal, server_error, unauthorized
from msgspec.structs import replace as replace_struct
from oracle import CHAT, GEMINI, MESSAGES, PROTOCOL_NAMES, RESPONSES, check_error
from translation import client_request

from dragoman import ErrorKind, WireError
from dragoman._wire.errors import kind_of_status
from dragoman_server.proxying.upstream_errors import (
    Scrub,
    error_for_client,
    error_from_upstream,
    invalid_response_error,
)
from dragoman_server.settings import AccountSettings, UpstreamSettings
from dragoman_server.settings.secret import Mask, Secret
from dragoman_server.upstream.errors import (
    UpstreamBroken,
    UpstreamRequestInvalid,
    UpstreamTimeout,
    UpstreamTimeoutPhase,
    UpstreamUnreachable,
)

pytestmark = pytest.mark.anyio

URL = "https://llm.corp.test:8443/v1/chat/completions"
PAGE = b"\n <!doctype html><title>Welcome</title>"
HTML = ("content-type", "text/html; charset=utf-8")
CREDIT = "Your credit balance is too low to access the API."


def upstream(**more: Any) -> UpstreamSettings:
    return UpstreamSettings(name="ok", protocol=CHAT, base_url="https://llm.corp.test:8443/v1", **more)


FAILURES: list[tuple[Any, ErrorKind, str]] = [
    (UpstreamUnreachable("cannot connect to https://llm.corp.test:8443: Connection refused"), ErrorKind.UNREACHABLE, 'cannot connect to upstream "ok": Connection refused'),
    (
        UpstreamUnreachable(
            "cannot connect to https://llm.corp.test:8443: certificate is not valid for 'llm.corp.test'"
        ),
        ErrorKind.UNREACHABLE,
        "cannot connect to upstream \"ok\": certificate is not valid for 'its host'",
    ),
    (
        UpstreamTimeout("https://llm.corp.test:8443 sent no response head within 5 s", UpstreamTimeoutPhase.READ),
        ErrorKind.TIMEOUT,
        'upstream "ok" sent no response head within 5 s',
    ),
    (UpstreamBroken("the connection broke"), ErrorKind.UNREACHABLE, 'upstream "ok": the connection broke'),
    (UpstreamRequestInvalid("the upstream's URL is not valid"), ErrorKind.MISCONFIGURED, 'upstream "ok": the upstream\'s URL is not valid'),
]  # fmt: skip


@pytest.mark.promise("S18")
def test_a_failed_request_names_the_upstream_and_no_address() -> None:
    for error, kind, message in FAILURES:
        assert error_from_upstream(error, upstream(), URL) == WireError(kind, message), message


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("http://me:secret@llm.test:9/v1", "http://llm.test:9"),
        ("https://LLM.test:443/v1", "https://llm.test"),
        ("http://[::1]:9/v1", "http://[::1]:9"),
        ("http://a/v1", "http://a"),
    ],
)
def test_an_address_is_found_however_it_is_written(url: str, named: str) -> None:
    error = error_from_upstream(UpstreamBroken(f"a break: {named} closed the connection"), upstream(), url)
    assert error.message.replace("its host", "a") == 'a break: upstream "ok" closed the connection'


def test_other_text_is_no_address() -> None:
    error = error_from_upstream(UpstreamRequestInvalid("no URL"), upstream(), "http://[")
    assert error.message == 'upstream "ok": no URL'


SECRET = "sk-0123456789abcdef"


@pytest.mark.parametrize(
    "text",
    [
        "req_1",
        "",
        f"key {SECRET}!",
        SECRET[:12],  # cut inside of the secret
        "in org-0123456789abcdefghij01",
        "at https://llm.corp.test:8443",
        "by llm.corp.test",
    ],
)
@pytest.mark.parametrize("others", [[], ["10000", "6ms"]])
def test_several_texts_are_scrubbed_as_each_alone(text: str, others: list[str]) -> None:
    scrub = Scrub(Mask([SECRET]), upstream())
    assert (scrub(text) == text) is (text in ("req_1", ""))
    assert scrub.each([text, *others]) == [scrub(text), *others]


REFUSED = WireError(ErrorKind.AUTHENTICATION, "Incorrect API key provided: sk-1**9", 401, "invalid_api_key")


@pytest.mark.parametrize(
    ("name", "account", "key", "message"),
    [
        ("ok", "default", "k", 'upstream "ok" refused its key (401): check api_key of [[upstreams]] ok'),
        ("ok", "default", None, 'upstream "ok" refused a request without a key (401): set api_key of [[upstreams]] ok'),
        ("ok", "b", "k", 'upstream "ok" refused the key of account "b" (401): check api_key of [[accounts]] b'),
        ("anthropic", "default", "k", 'upstream "anthropic" refused its key (401): check api_key of [[upstreams]] anthropic'),
    ],
)  # fmt: skip
def test_a_refused_key_is_reported_with_its_place(
    name: str, account: str, key: str | None, message: str
) -> None:
    settings = UpstreamSettings(name=name, protocol=CHAT, base_url="http://h.test/v1")
    theirs = AccountSettings(upstream=name, name=account, api_key=Secret(key) if key else None)
    assert error_for_client(REFUSED, settings, theirs, []) == WireError(ErrorKind.AUTHENTICATION, message)


@pytest.mark.parametrize(
    ("of_upstream", "of_account", "place"),
    [
        (None, None, "HTTP_PROXY"),
        ("http://h.test", None, "proxy of [[upstreams]] ok"),
        ("http://h.test", "http://u:p@h.test", "proxy of [[accounts]] b"),
    ],
)
def test_the_place_of_a_proxys_setting(of_upstream: str | None, of_account: str | None, place: str) -> None:
    settings = upstream(proxy=of_upstream and Secret(of_upstream))
    theirs = AccountSettings(upstream="ok", name="b", proxy=Secret(of_account) if of_account else None)
    shown = error_for_client(WireError(ErrorKind.MISCONFIGURED, "no", 407), settings, theirs, [])
    assert shown.message.endswith(f"(407): check {place}")


PATH_ERRORS: list[tuple[int, str, bool]] = [
    (404, "Not Found", True),
    (404, "404 page not found", True),
    (404, "File Not Found", True),
    (404, "Resource not found", True),
    (404, "Invalid URL (POST /v1/v1/chat/completions)", True),
    (404, "Unknown request URL: POST /openai/chat/completions. Please check the URL for typos", True),
    (404, "Unrecognized request URL (POST: /v1/chat). Please see the documentation", True),
    (404, "Route POST:/chat/completions not found", True),
    (404, "no Route matched with those values", True),
    (405, "Method Not Allowed", True),
    (405, "no", False),
    (404, "The model `m` does not exist", False),
    (404, "model: claude-x", False),
    (404, "Model not found, inaccessible, and/or not deployed", False),
    (404, "No endpoints found that support tool use", False),
    (404, "Item with id 'rs_1' not found.", False),
    (400, "Not Found", False),
]


def test_an_error_about_the_path_points_at_base_url() -> None:
    for status, message, expected in PATH_ERRORS:
        error = WireError(kind_of_status(status), message, status, "model_not_found")
        theirs = AccountSettings(upstream="ok", name="default", api_key=Secret("key1"))
        shown = error_for_client(error, upstream(), theirs, [], b'{"detail":"..."}')
        text = f'upstream "ok" does not serve this path ({status}): is base_url of [[upstreams]] ok right?'
        assert shown == (replace_struct(error, message=text, code="unknown_url") if expected else error), (
            status,
            message,
        )


BEGINNINGS: list[bytes] = [
    b"{",
    b" [",
    b"d",
    b"data: x",
    b"event: x",
    b": x",
    b"\r\n",
    b"id: 1",
    b"retry: 9",
    b"error: {}",
]


def test_a_body_that_begins_like_json_or_sse_is_read_whatever_its_content_type() -> None:
    for first in BEGINNINGS:
        assert invalid_response_error(upstream(), [("content-type", "text/plain")], first) is None, first


def test_a_body_with_the_type_of_a_stream_is_read_whatever_its_beginning() -> None:
    assert invalid_response_error(upstream(), [("content-type", "text/event-stream")], b"other: x") is None


PATH_OF = {
    CHAT: "/chat/completions",
    MESSAGES: "/v1/messages",
    RESPONSES: "/responses",
    GEMINI: "/v1beta/models/m:streamGenerateContent?alt=sse",
}
NO_CREDIT = {
    CHAT: openai(CREDIT, "invalid_request_error"),
    MESSAGES: anthropic("invalid_request_error", CREDIT),
    RESPONSES: openai(CREDIT, "invalid_request_error", "invalid_prompt"),
    GEMINI: google(CREDIT, 400),
}
NO_MODEL = "The model does not exist or you do not have access to it"


def test_the_errors_that_clients_get(record: Any) -> None:
    """What an upstream does, and maybe the client's model; status, code and message for clients, and the log."""
    turns = count()

    def output_of(lines: list[str]) -> list[str]:
        statuses, codes, texts = [], set(), dict[str, list[str]]()
        turn = next(turns)
        for number, client in enumerate((MESSAGES, CHAT, RESPONSES, GEMINI)):
            protocol = PROTOCOL_NAMES[(number + turn) % 4]
            play = eval(lines[0], {**globals(), "protocol": protocol})
            pool = pool_of(protocol, {"a": play}, models={"claude-*": "up/gpt-y"})
            response = anyio.run(partial(pool.call, client, model=lines[-1] if len(lines) > 1 else "up/m"))
            assert check_error(client, response.status or 0, response.body) == []
            assert b".test" not in response.body
            error, line = response.error, record()
            assert line["error"] == line["failures"][0]["cause"]
            logged = f"\nlog: {line['error'].removeprefix(error['message'])}"
            rule = f"\nrule: {line.get('rule')}"
            shown = error["message"] + logged * (logged != "\nlog: ") + rule * ("rule" in line)
            texts.setdefault(shown, []).append(protocol)
            statuses.append(str(response.status))
            codes |= {str(error["code"])} if client in (CHAT, RESPONSES) else set()
        head = " ".join([*dict.fromkeys(statuses), *sorted(codes)])
        if len(texts) == 1:
            return [f"{head}: {shown}"]
        return [head, *[f"{', '.join(protocols)}: {text}" for text, protocols in texts.items()]]

    rows.check(Path(__file__).with_name("upstream_errors.txt"), output_of)


@pytest.mark.promise("S18")
@each("client")
@each("upstream")
async def test_an_invalid_status_is_returned_as_502(client: str, upstream: str, record: Any) -> None:
    """Clients react to one in any way: "unknown" status lines, endless retries, a crash."""
    play = refusal(upstream, 999, "no")
    response = await pool_of(upstream, {"a": play}).call(client)
    assert response.status == 502
    assert check_error(client, 502, response.body) == []
    assert record()["failures"][0]["status"] == 999


@pytest.mark.prints_secrets  # the log's formatter masks the name of the model
async def test_a_secret_that_a_client_sends_as_a_model_is_masked_in_the_error() -> None:
    play = refusal(CHAT, 404, NO_MODEL, "not_found_error")
    response = await pool_of(CHAT, {"a": play}, models={"*": "up/gpt-y"}).call(CHAT, model=key_of("a"))
    assert response.error["message"] == f'{NO_MODEL} ("****" was routed to "up/gpt-y": models.*)'


# -- whether to try again


def forbidden(protocol: str) -> RawResponse:
    return refusal(protocol, 403, "Your organization may not use this model.")


class Counted(httpx2.ASGITransport):
    """The way from an SDK to the gateway."""

    count = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.count += 1
        return await super().handle_async_request(request)


# Those of Gemini send nothing again by default.
SDKS = (CHAT, MESSAGES, RESPONSES)
# How often the vendors' SDKs, which try an error twice more by default, send a request.
SENT: dict[str, tuple[dict[str, Any], int]] = {
    "a refused key": ({"a": unauthorized}, 1),
    "forbidden": ({"a": forbidden}, 1),
    "no money": ({"a": lambda protocol: refusal(protocol, 400, CREDIT, "invalid_request_error")}, 1),
    "a redirect": ({"a": lambda protocol: RawResponse(status=302)}, 1),
    "no account is left": ({"a": unauthorized, "b": unauthorized}, 1),
    "a bad moment": ({"a": broken}, 3),
}


@each("client", SDKS)
@each("upstream")
@pytest.mark.parametrize("case", SENT)
@pytest.mark.each_choice
async def test_the_sdks_do_not_repeat_permanent_errors(client: str, upstream: str, case: str) -> None:
    plays, count = SENT[case]
    pool = pool_of(upstream, {name: play(upstream) for name, play in plays.items()})
    transport = Counted(pool.app)
    async with httpx2.AsyncClient(transport=transport) as http:
        options: dict[str, Any] = {"api_key": "any", "http_client": http}
        body: dict[str, Any] = {**client_request(client, "", None, stream=False), "model": "up/m"}
        body.pop("stream", None)
        sdk: Any
        if client == MESSAGES:
            sdk = sdk_anthropic.AsyncAnthropic(base_url="http://localhost", **options).messages
        else:
            made = sdk_openai.AsyncOpenAI(base_url="http://localhost/v1", **options)
            sdk = made.responses if client == RESPONSES else made.chat.completions
        with pytest.raises((sdk_openai.APIStatusError, sdk_anthropic.APIStatusError)):
            await sdk.create(**body)
    assert transport.count == count


# -- the log


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@each("upstream")
@pytest.mark.promise("S3")
async def test_no_secret_is_in_the_log(upstream: str, stream: bool, record: Any) -> None:
    """Servers repeat what they refuse, in error responses and inside responses, before content and after."""
    refused_with = "no: canary-of-a, team-secret"
    error = server_error(upstream, refused_with)
    ending = InBand(error, bare=True)
    late = RawResponse(
        [*begun(stream_of(upstream, Text("Hello")), "Hello"), in_band(upstream, ending, stream=True)]
    )
    plays: list[Plays] = [refusal(upstream, 500, refused_with), InBand(error), ending, late]
    pool = pool_of(upstream, {"a": plays}, upstream={"headers": {"x-team": Secret("team-secret")}})
    for _ in plays:
        await pool.call(MESSAGES if upstream == CHAT else CHAT, stream=stream)
        assert "no: ****, ****" in record()["error"]
        assert "canary-of-a" not in repr(record())
        assert "team-secret" not in repr(record())
