"""Free-text tools with a grammar, through the whole gateway: the model's text arrives, and breaches are recorded."""

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
    chunk,
    events_in,
    messages_response,
    responses_response,
    scripted,
    stream,
    whole,
)

from dragoman_server.proxying import tool_grammar as grammar_module
from dragoman_server.proxying.tool_grammar import MAX_TEXT, grammar_checker

needs_extra = pytest.mark.skipif(
    grammar_checker() is None, reason="the extra dragoman[grammar] is not installed"
)
# Grammars are compiled in a thread.
pytestmark = [pytest.mark.anyio, pytest.mark.backends("real-asyncio")]


LARK = 'start: "*** Begin" LF line+ "*** End" LF?\nline: "+" /(.*)/ LF\n%import common.LF\n'
REGEX = r"\+[a-z]+"
VALID, INVALID = '*** Begin\n+say "hi"\n*** End\n', "*** Begin\nsay canary\n*** End\n"


def asking(syntax: str = "lark", definition: str = LARK, **more: Any) -> dict[str, Any]:
    form = {"type": "grammar", "syntax": syntax, "definition": definition}
    tool = {"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": form}
    return {"model": "up/m", "input": "Fix it.", "tools": [tool], **more}


def call_of(text: str, protocol: str, name: str = "apply_patch") -> Any:
    """Return a whole response in which the model calls the tool with this text."""
    arguments = json.dumps({"input": text})
    if protocol == MESSAGES:
        content = [{"type": "tool_use", "id": "t1", "name": name, "input": {"input": text}}]
        return whole(messages_response(content, "tool_use"))
    call = {"id": "t1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return whole(chat_response({"tool_calls": [call]}, "tool_calls"))


def streamed_call_of(text: str) -> Any:
    arguments = json.dumps({"input": text})
    head = {"index": 0, "id": "t1", "type": "function", "function": {"name": "apply_patch", "arguments": ""}}
    deltas = [
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": arguments[at : at + 3]}}]})
        for at in range(0, len(arguments), 3)
    ]
    return stream(
        chunk({"role": "assistant", "tool_calls": [head]}), *deltas, chunk({}, "tool_calls"), done=True
    )


def input_of(client: Any) -> str:
    (call,) = [each for each in json.loads(client.body)["output"] if each["type"] == "custom_tool_call"]
    assert call["name"] == "apply_patch"
    return str(call["input"])


REQUEST = "altered=/tools/0/format"
BREACH, UNCHECKED = (f"{code}=answer:/tool_calls/t1/input" for code in ("breach", "unchecked"))


@needs_extra
@pytest.mark.parametrize("protocol", [CHAT, MESSAGES])
@pytest.mark.parametrize(
    ("syntax", "definition", "text", "breach"),
    [
        ("lark", LARK, VALID, False),
        ("lark", LARK, INVALID, True),
        ("regex", REGEX, "+abc", False),
        ("regex", REGEX, "-abc", True),
    ],
)
async def test_a_breach_is_in_the_header_and_hides_nothing(
    protocol: str, syntax: str, definition: str, text: str, breach: bool
) -> None:
    gateway = scripted(protocol, call_of(text, protocol))
    client = await gateway.call(PATHS[RESPONSES], asking(syntax, definition))
    assert input_of(client) == text
    found = client.headers["dragoman-loss"].partition("; ")[2].split(", ")
    assert found == [REQUEST, BREACH] if breach else [REQUEST]
    (tool,) = gateway.sent[0].body["tools"]
    assert definition in tool.get("function", tool)["description"], "it is in the tool's description"


@needs_extra
@pytest.mark.parametrize(("text", "breach"), [(VALID, False), (INVALID, True)])
async def test_a_streamed_breach_is_in_the_log(
    text: str, breach: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The headers are out before the model has written anything."""
    with caplog.at_level(logging.DEBUG):
        client = await scripted(CHAT, streamed_call_of(text)).call(PATHS[RESPONSES], asking(stream=True))
    deltas = [
        each["delta"]
        for each in events_in(client.body)
        if each["type"] == "response.custom_tool_call_input.delta"
    ]
    assert "".join(deltas) == text
    assert len(deltas) > 3
    assert client.headers["dragoman-loss"] == f"1; {REQUEST}"
    (line,) = [each.__dict__["dragoman"] for each in caplog.records if each.name == "dragoman.requests"]
    assert ("breach answer:/tool_calls/t1/input" in line["losses"]) is breach
    assert "canary" not in str([record.__dict__ for record in caplog.records])


async def reported_losses(text: str = INVALID, **settings: Any) -> str:
    client = await scripted(CHAT, call_of(text, CHAT), **settings).call(PATHS[RESPONSES], asking())
    assert input_of(client) == text
    return client.headers["dragoman-loss"]


async def test_without_the_extra_the_ledger_has_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_module, "find_spec", lambda name: None)
    assert await reported_losses() == f"2; {REQUEST}, {UNCHECKED}"


async def test_without_checking_the_ledger_has_not_checked() -> None:
    assert await reported_losses(check_grammars=False) == f"2; {REQUEST}, {UNCHECKED}"


@needs_extra
async def test_with_a_text_that_is_too_long_the_ledger_has_not_checked() -> None:
    assert await reported_losses("x" * (MAX_TEXT + 1)) == f"2; {REQUEST}, {UNCHECKED}"


async def test_strict_mode_refuses_a_grammar_that_the_upstream_cannot_enforce() -> None:
    gateway = scripted(CHAT, call_of(VALID, CHAT), loss_policy="refuse")
    client = await gateway.call(PATHS[RESPONSES], asking())
    assert client.status == 400
    assert "/tools/0/format" in client.error["message"]
    assert gateway.sent == []


@pytest.mark.parametrize("settings", [{}, {"custom_tools": True}])
async def test_an_upstream_that_enforces_grammars_is_not_checked(settings: dict[str, Any]) -> None:
    call = {"type": "custom_tool_call", "id": "c", "call_id": "t1", "name": "apply_patch", "input": INVALID}
    gateway = scripted(RESPONSES, whole(responses_response([call])), upstream=settings)
    form = {"type": "grammar", "grammar": {"syntax": "lark", "definition": LARK}}
    tools = [{"type": "custom", "custom": {"name": "apply_patch", "format": form}}]
    body = {"model": "up/m", "messages": [{"role": "user", "content": "Fix it."}], "tools": tools}
    client = await gateway.call(PATHS[CHAT], body)
    assert gateway.sent[0].body["tools"][0]["format"]["definition"] == LARK
    (made,) = json.loads(client.body)["choices"][0]["message"]["tool_calls"]
    assert made["custom"] == {"name": "apply_patch", "input": INVALID}
    assert "dragoman-loss" not in client.headers
