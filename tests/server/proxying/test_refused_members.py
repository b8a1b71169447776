"""What upstreams refuse by name: recognized, left out of the next request, forgotten after a time."""

import json
import logging
from typing import Any

import pytest
from gateway.scripted import (
    CHAT,
    MESSAGES,
    PATHS,
    RESPONSES,
    chat_response,
    responses_response,
    scripted,
    whole,
)
from msgspec.structs import replace

from dragoman import ErrorKind, RemoteProtocolError, WireError
from dragoman._wire import limits
from dragoman_server.proxying.betas import refused_beta
from dragoman_server.proxying.refused_members import (
    MAX_LEFT_OUT,
    REMEMBERED_S,
    RefusedMembers,
    refused_member,
)
from dragoman_server.settings.secret import Secret

SENT = {"reasoning_effort", "temperature", "top_p", "service_tier", "metadata"}


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("Unsupported parameter: 'reasoning_effort' is not supported with this model.", "reasoning_effort"),
        ("Unknown parameter: 'service_tier'.", "service_tier"),
        ("Unrecognized request argument supplied: top_p", "top_p"),
        ("property 'metadata' is unsupported", "metadata"),
        ("metadata: Extra inputs are not permitted", "metadata"),
        ("[{'type': 'extra_forbidden', 'loc': ('body', 'top_p'), 'msg': 'x'}]", "top_p"),
        ('json: unknown field "metadata"', "metadata"),
        ('Invalid JSON payload received. Unknown name "metadata": Cannot find field.', "metadata"),
        ("Unknown name \"metadata\" at 'contents[0]': Cannot find field.", None),
        ("Unknown parameter: 'metadata.a'.", None),  # a part of it
        ("Unknown parameter: 'top_p'. Unknown parameter: 'metadata'.", None),  # two
        ("Unknown parameter: 'seed'.", None),  # which was not sent
        ("temperature must be at most 1", None),  # it is accepted, with another value
        ("", None),
    ],
)
def test_the_member_that_an_error_names(message: str, found: str | None) -> None:
    assert refused_member(WireError(ErrorKind.INVALID_REQUEST, message, status=400), SENT) == found
    assert refused_member(WireError(ErrorKind.INVALID_REQUEST, message, status=422), SENT) == found
    assert refused_member(WireError(ErrorKind.SERVER, message, status=500), SENT) is None


def test_the_parameter_of_an_error_counts_with_its_code() -> None:
    for code, found in (("unsupported_parameter", "top_p"), ("invalid_value", None)):
        named = WireError(ErrorKind.INVALID_REQUEST, "No.", status=400, code=code, param="top_p")
        assert refused_member(named, SENT) == found


def test_members_are_remembered_for_a_time() -> None:
    members = RefusedMembers()
    assert members.add("up", "m", "top_p", 5)
    assert members.get("up", "m", 5 + REMEMBERED_S - 1) == ("top_p",)
    assert members.get("up", "other", 6) == members.get("other", "m", 6) == ()
    assert members.get("up", "m", 5 + REMEMBERED_S) == ()


def test_a_model_cannot_lose_all_its_members() -> None:
    members = RefusedMembers()
    expected = [*[True] * MAX_LEFT_OUT, False]
    assert [members.add("up", "m", f"m{n}", 5) for n in range(MAX_LEFT_OUT + 1)] == expected
    assert members.add("up", "m", "m0", 5)


HELLO: dict[str, Any] = {"model": "up/m", "messages": [{"role": "user", "content": "Hi"}]}
REFUSAL = {"error": {"message": "Unsupported parameter: 'seed'", "type": "invalid_request_error"}}


@pytest.mark.anyio
@pytest.mark.parametrize("relay", ["exact", "rewrite"])
async def test_a_refused_member_is_left_out_at_once_and_of_later_requests(
    relay: str, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = scripted(
        CHAT, whole(REFUSAL, 400), *[whole(chat_response({"content": "Yes."}))] * 3, upstream={"relay": relay}
    )
    body = {**HELLO, "seed": 7, "temperature": 1.50}
    with caplog.at_level(logging.WARNING, "dragoman.upstream"):
        client = await gateway.call(PATHS[CHAT], body)
        assert client.status == 200
        assert ["seed" in each.body for each in gateway.sent] == [True, False]
        expected = {name: each for name, each in gateway.sent[0].body.items() if name != "seed"}
        assert gateway.sent[1].body == expected
        assert client.headers["dragoman-loss"] == "1; dropped=/seed"
        await gateway.call(PATHS[CHAT], body)
        assert "seed" not in gateway.sent[2].body
    expected = ["up/m has refused seed: it is left out for 3600 s"]
    assert [record.getMessage() for record in caplog.records if "seed" in record.getMessage()] == expected


@pytest.mark.anyio
@pytest.mark.parametrize("times", [1, 2])
async def test_a_refused_capability_is_left_out_once(times: int) -> None:
    text = "Unknown name \"id\" at 'contents[1].parts[0].function_call': Cannot find field."
    refusal = whole({"error": {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}}, 400)
    answer = whole({"candidates": [{"content": {"parts": [{"text": "Yes."}]}, "finishReason": "STOP"}]})
    gateway = scripted("gemini", *[refusal] * times, answer)
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turns = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "a"},
    ]
    client = await gateway.call(PATHS[CHAT], {**HELLO, "messages": [*HELLO["messages"], *turns]})
    assert client.status == (200 if times == 1 else 400)
    assert ["'id'" in str(each.body) for each in gateway.sent] == [True, False]
    relayed = scripted("gemini", refusal, answer)  # whose ids are the client's
    await relayed.call("/v1beta/models/up/m:generateContent", gateway.sent[0].body)
    assert len(relayed.sent) == 1


NAMESPACE = {
    "type": "namespace",
    "name": "ns",
    "description": "",
    "tools": [{"type": "function", "name": "f"}],
}
OF_CODEX = {"model": "up/m", "input": "Hi", "tools": [NAMESPACE, {"type": "custom", "name": "c"}]}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("error", "found"),
    [
        (
            {"message": "Invalid discriminator value. Expected 'function' | 'mcp'", "param": "tools.6.type"},
            True,
        ),
        ({"message": "Invalid", "param": "tools.8.type", "code": "invalid_string"}, True),
        ({"message": "'type' of tool must be 'function'"}, True),
        ({"message": "tool type namespace not supported"}, True),
        ({"message": "validation failed: tools[8]: unknown discriminator value: custom"}, True),
        ({"message": "tools[5].type: unknown variant `namespace`, expected one of `function`"}, True),
        ({"message": "failed to parse JSON for /v1/responses: unknown tool type"}, True),
        (
            {
                "message": "[{'loc': ('body', 'tools', 11, 'CodeInterpreter', 'type'), "
                "'msg': \"Input should be 'code_interpreter'\", 'input': 'namespace'}]"
            },
            True,
        ),
        (
            {"message": "Invalid schema for function 'f': None is not of type 'object'", "param": "tools[0]"},
            False,
        ),
    ],
)
async def test_a_server_that_refuses_other_tools_gets_functions(error: dict[str, Any], found: bool) -> None:
    refusal, call = whole({"error": error}, 400), {"type": "function_call", "call_id": "k", "arguments": "{}"}
    answer = whole(responses_response([{**call, "name": "ns__f", "id": "fc_1", "status": "completed"}]))
    gateway = scripted(RESPONSES, refusal, answer, answer)
    client = await gateway.call(PATHS[RESPONSES], OF_CODEX)
    assert client.status == (200 if found else 400)
    if found:
        (item,) = json.loads(client.body)["output"]
        assert (item["namespace"], item["name"]) == ("ns", "f")
        await gateway.call(PATHS[RESPONSES], OF_CODEX)
        names = [[(tool["type"], tool["name"]) for tool in each.body["tools"]] for each in gateway.sent]
        functions = [("function", "ns__f"), ("function", "c")]
        assert names == [[("namespace", "ns"), ("custom", "c")], functions, functions]


@pytest.mark.anyio
async def test_what_is_known_of_a_server_is_not_learnt_from_an_error() -> None:
    refusal = whole({"error": {"message": "Invalid value: 'x'", "param": "tools[0].type"}}, 400)
    gateway = scripted(RESPONSES, refusal, refusal, upstream={"custom_tools": True})
    assert (await gateway.call(PATHS[RESPONSES], OF_CODEX)).status == 400
    assert len(gateway.sent) == 1


BETAS = ("context-1m-2025-08-07", "brand-new-2027-01-01", "files-api-2025-04-14")
SAID = {"type": "message", "content": [{"type": "text", "text": "Yes."}], "stop_reason": "end_turn"}
ASK = {**HELLO, "max_tokens": 9}


@pytest.mark.anyio
async def test_a_refused_beta_is_left_out_at_once_and_of_later_requests() -> None:
    error = {"type": "invalid_request_error", "message": f"Unsupported beta header: {BETAS[1]}"}
    refusal = whole({"type": "error", "error": error}, 400)
    gateway = scripted(MESSAGES, refusal, *[whole(SAID)] * 2, refusal)
    asked = {"anthropic-beta": ",".join(BETAS[:2])}
    for _ in range(2):
        client = await gateway.call(PATHS[MESSAGES], ASK, headers=asked)
        assert client.status == 200
        assert client.headers["dragoman-loss"] == f"1; dropped=/anthropic-beta/{BETAS[1]}"
    betas = [each.headers["anthropic-beta"] for each in gateway.sent]
    assert betas == [",".join(BETAS[:2]), BETAS[0], BETAS[0]]
    assert (await gateway.call(PATHS[MESSAGES], ASK, headers=asked)).status == 400  # it was not sent


@pytest.mark.parametrize(("status", "found"), [(400, BETAS[1]), (403, None), (500, None)])
def test_a_beta_is_refused_with_a_400(status: int, found: str | None) -> None:
    error = WireError(ErrorKind.SERVER, f"no {BETAS[1]}", status=status)
    headers = [("x-other", BETAS[1]), ("anthropic-beta", f"{BETAS[0]}, {BETAS[1]}")]
    assert refused_beta(error, headers, {"anthropic-beta"}) == found


@pytest.mark.anyio
@pytest.mark.parametrize(("policy", "status"), [("record", 200), ("refuse", 400)])
async def test_betas_that_an_api_does_not_have_are_dropped(policy: str, status: int) -> None:
    """Those of the configuration are sent all the same."""
    configured = {"anthropic-beta": Secret(BETAS[2])}
    upstream = {"host": "mantle", "api_key": Secret("k"), "headers": configured, "loss_policy": policy}
    gateway = scripted(MESSAGES, whole(SAID), upstream=upstream)
    asked = {"anthropic-beta": ", ".join(BETAS[:2])}
    client = await gateway.call(PATHS[MESSAGES], ASK, headers=asked)
    assert client.status == status
    sent = [each.headers["anthropic-beta"] for each in gateway.sent]
    assert sent == ([f"{BETAS[0]},{BETAS[2]}"] if status == 200 else [])


@pytest.mark.anyio
async def test_a_request_that_has_more_values_in_the_upstreams_form_than_a_client_may_send(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "VALUES", replace(limits.VALUES, most=5000))
    named = {"error": {"message": "Unsupported parameter: 'temperature'", "type": "invalid_request_error"}}
    gateway = scripted(RESPONSES, whole(named, 400), whole({"error": {"message": "No."}}, 400))
    body = {**HELLO, "messages": [{"role": "user", "content": "Hi"}] * 800, "temperature": 1}
    for _ in "again", "with what is remembered":
        client = await gateway.call(PATHS[CHAT], body)
        assert (client.status, client.error["message"]) == (400, "No.")
    assert [each.body.get("temperature") for each in gateway.sent] == [1, None, None]
    with pytest.raises(RemoteProtocolError, match="more than 5000 values"):
        limits.check_values(gateway.sent[0].content)


@pytest.mark.anyio
async def test_content_is_never_left_out() -> None:
    error = {"message": "Unknown parameter: 'tools'.", "code": "unknown_parameter", "param": "tools"}
    gateway = scripted(CHAT, whole({"error": error}, 400))
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    client = await gateway.call(PATHS[CHAT], {**HELLO, "tools": tools})
    assert (client.status, len(gateway.sent)) == (400, 1)
