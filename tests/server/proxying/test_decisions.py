"""At level debug the log has what was decided for a request: route, plan, capabilities, losses, accounts, failures."""

import io
import logging
from typing import Any

import pytest
from gateway.provider import PoolGateway, RawResponse, good, pool_of
from gateway.provider_errors import broken, limited, unauthorized
from oracle import CHAT, MESSAGES
from oracle import samples as s
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.log import DECISIONS, REQUESTS, configure_logging

pytestmark = [pytest.mark.anyio, pytest.mark.backends(VIRTUAL_BACKENDS[0])]

WITHOUT_USAGE = s.render(CHAT, [s.chunk({"content": "Hello"}), s.chunk({}, "stop")])


@pytest.fixture
def debug(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "dragoman")
    return caplog


def decisions(log: pytest.LogCaptureFixture, *kinds: str) -> list[str]:
    """Return the lines of these kinds, by default all."""
    lines = [each.getMessage() for each in log.records if each.name == DECISIONS.name]
    return [line for line in lines if not kinds or line.partition(":")[0] in kinds]


def chain_of(plays: dict[str, Any], **more: Any) -> PoolGateway:
    models = {"fast*": ("up/one", "else/two")}
    return pool_of(MESSAGES, plays, others={"else": (CHAT, ["c"])}, models=models, **more)


async def test_all_decisions_of_a_request(debug: pytest.LogCaptureFixture) -> None:
    pool = chain_of({"a": good("Hello"), "b": good("Hello"), "c": good("Hello")})
    await pool.call(CHAT, model="fast-1", stream=False, body={"seed": 7})
    assert decisions(debug) == [
        "route: fast-1 -> up/one (models.fast*); if that fails, else/two",
        "plan: openai_chat -> anthropic_messages at up/one, translated",
        "capabilities: billing_header=false, efforts=low|medium|high",
        "loss: dropped at /seed of the request: the upstream's protocol has no such setting",
        "account: up/a; not up/b (next), else/c (fallback)",
    ]
    (request,) = [each for each in debug.records if each.name == REQUESTS.name]
    assert {each.dragoman["id"] for each in debug.records if each.name == DECISIONS.name} == {  # type: ignore[attr-defined]
        request.dragoman["id"]  # type: ignore[attr-defined]
    }


async def test_what_failed_and_what_follows(debug: pytest.LogCaptureFixture) -> None:
    pool = chain_of(
        {"a": limited(MESSAGES, ("retry-after", "9")), "b": unauthorized(MESSAGES), "c": broken(CHAT)}
    )
    await pool.call(CHAT, model="fast-1")
    assert decisions(debug, "account", "attempt") == [
        "account: up/a; not up/b (next), else/c (fallback)",
        "attempt: up/a failed: rate_limit, so cool_down after 9 s",
        "account: up/b; not up/a (tried), else/c (fallback)",
        "attempt: up/b failed: authentication, so disable",
        "account: else/c; not up/a (tried), up/b (tried)",
        "attempt: else/c failed: server, so retry_later",
        "account: none; not up/a (tried), up/b (tried), else/c (tried)",
    ]
    # The next request finds them in the state that these failures have left.
    debug.clear()
    await pool.call(CHAT, model="fast-1")
    assert decisions(debug, "account")[0] == (
        "account: else/c; not up/a (cooling down for 9 s: rate_limit (429)), up/b (disabled: authentication (401))"
    )


async def test_the_usual_log_says_why_an_account_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman")
    plays = {"a": limited(MESSAGES, ("retry-after", "9")), "b": unauthorized(MESSAGES), "c": good("Hello")}
    pool = chain_of(plays)
    for _ in range(2):
        await pool.call(CHAT, model="fast-1")
    first, second = [each for each in caplog.records if each.name == REQUESTS.name]
    changes = [each for each in caplog.records if each.name == "dragoman.accounts"]
    assert [(each.levelname, each.getMessage()) for each in changes] == [
        ("INFO", "up/a cools down for 9 s: rate_limit (429)"),
        ("WARNING", "up/b is disabled until it is reset: authentication (401)"),
    ]
    lines = [each.dragoman for each in (*changes, first, second)]  # type: ignore[attr-defined]
    assert len({line["id"] for line in lines[:3]}) == 1
    assert "skipped" not in lines[2]
    assert lines[3]["skipped"] == {
        "up/a": "cooling down for 9 s: rate_limit (429)",
        "up/b": "disabled: authentication (401)",
    }


async def test_accounts_behind_the_one_that_is_used_are_not_skipped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman")
    models = {"last": ("last/three", "else/two"), "fast": ("up/one", "else/two", "last/three")}
    plays = {"a": unauthorized(MESSAGES), "c": good("Hello"), "d": unauthorized(CHAT)}
    pool = pool_of(MESSAGES, plays, others={"else": (CHAT, ["c"]), "last": (CHAT, ["d"])}, models=models)
    for model in ("last", "fast", "fast"):
        await pool.call(CHAT, model=model)
    records = [each for each in caplog.records if each.name == REQUESTS.name]
    line = records[-1].dragoman  # type: ignore[attr-defined]
    assert (line["account"], line["skipped"]) == ("else/c", {"up/a": "disabled: authentication (401)"})


@pytest.mark.parametrize(
    ("upstream", "client", "response", "begins"),
    [
        (CHAT, MESSAGES, RawResponse([WITHOUT_USAGE]), "estimated at /usage"),
        (MESSAGES, CHAT, good("Hello", between=[b'data: {"type":"odd"}\n\n']), "unknown_kind at /"),
    ],
)
async def test_the_losses_of_the_response(
    debug: pytest.LogCaptureFixture, upstream: str, client: str, response: Any, begins: str
) -> None:
    await pool_of(upstream, {"a": response}).call(client)
    (loss,) = decisions(debug, "loss")
    assert loss.startswith(f"loss: {begins} of the response: ")


async def test_above_debug_nothing_of_it_is_made(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "dragoman")
    monkeypatch.setattr(DECISIONS, "makeRecord", None)
    pool = chain_of({"a": limited(MESSAGES), "b": unauthorized(MESSAGES), "c": good("Hello")})
    await pool.call(CHAT, model="fast-1", body={"seed": 7})
    assert decisions(caplog) == []


BODY_CANARY, HEADER_CANARY, ANSWER_CANARY = (
    "canary-of-the-prompt",
    "canary-of-a-header",
    "canary-of-the-answer",
)


@pytest.mark.promise("S3")
@pytest.mark.usefixtures("logger")
@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("client", [CHAT, MESSAGES])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_no_body_and_no_header_value_is_in_a_line(form: str, client: str, stream: bool) -> None:
    out = io.StringIO()
    configure_logging("debug", form, out)
    pool = chain_of({"a": limited(MESSAGES), "b": broken(MESSAGES), "c": good(ANSWER_CANARY)})
    tool = {"type": "object", "properties": {"x": {"type": "string", "description": BODY_CANARY}}}
    body = {
        "messages": [{"role": "user", "content": BODY_CANARY}],
        # Each of these is lost on the way to one of the upstreams.
        "seed": 7,
        "container": BODY_CANARY,
        "logit_bias": {"1": 2},
        "metadata": {"user_id": BODY_CANARY},
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": tool}},
        "unknown": {"of_any_protocol": BODY_CANARY},
    }
    headers = {"authorization": f"Bearer {HEADER_CANARY}", "cookie": HEADER_CANARY, "x-other": HEADER_CANARY}
    response = await pool.call(client, stream=stream, model="fast-1", body=body, headers=headers)
    assert response.status == 200
    text = out.getvalue()
    assert "unknown_field at /unknown" in text
    assert "account: else/c" in text
    assert "canary" not in text
