"""Responses requests that a pass has changed, written for a Responses upstream: all else stays."""

from typing import Any

import msgspec
import pytest
from core.passes import fit_and_write, pass_context
from core.same_protocol import read_same_protocol
from laws.fixtures import REQUESTS

from dragoman._ir.losses import Ledger
from dragoman._ir.native import changed
from dragoman._ir.request import ReasoningConfig, Request, ResponseFormat
from dragoman._ir.tools import FunctionTool
from dragoman._transforms.history import repair_history
from dragoman._wire.json import decode, encode
from dragoman.protocols.openai_responses import SPEC
from dragoman.protocols.openai_responses.capabilities import ResponsesCapabilities as Capabilities


@pytest.mark.parametrize("body", REQUESTS["openai_responses"].values(), ids=REQUESTS["openai_responses"])
def test_requests_return_whole(body: dict[str, Any]) -> None:
    ledger = Ledger()
    marks = Capabilities(cache_marks="breakpoint")
    assert fit_and_write(SPEC, read_same_protocol(SPEC, body), marks, ledger) == body
    assert list(ledger) == []


def test_a_tool_of_another_kind_copies_nothing_from_the_body() -> None:
    custom = {"type": "custom", "name": "c", "format": {"type": "text"}}
    request = read_same_protocol(SPEC, {"model": "m", "input": "hi", "tools": [custom]})
    changed = msgspec.structs.replace(request, tools=(FunctionTool("c", path="/tools/0"),))
    expected = [{"type": "function", "name": "c"}]
    assert fit_and_write(SPEC, changed, Capabilities(), Ledger())["tools"] == expected


HI = {"type": "message", "role": "user", "content": "Hi"}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "c1",
    "name": "f",
    "arguments": "{}",
    "status": "completed",
}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "r"}
JSON = {"type": "json_schema", "name": "n", "schema": {}, "new": 1}


def read(**body: Any) -> Request:
    return read_same_protocol(SPEC, {"model": "m", "input": [HI], **body})


def written(request: Request, **capabilities: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the body for the upstream without its model, and the paths of the losses."""
    ledger = Ledger()
    out = decode(encode(fit_and_write(SPEC, request, Capabilities(relay="rewrite", **capabilities), ledger)))
    del out["model"]
    return out, [loss.path for loss in ledger]


def test_settings_removed_by_a_pass_stay_removed() -> None:
    changed = read(text={"format": JSON, "verbosity": "low", "new": 1})
    changed = msgspec.structs.replace(changed, params={}, response_format=None)
    assert written(changed)[0]["text"] == {"new": 1}


def test_a_schema_that_a_pass_moved_into_the_text() -> None:
    changed = read(text={"format": JSON, "verbosity": "low"})
    changed = msgspec.structs.replace(changed, response_format=ResponseFormat(path="/text/format"))
    assert written(changed)[0]["text"] == {"format": {"type": "json_object"}, "verbosity": "low"}


def test_settings_added_by_a_pass_are_written() -> None:
    visible = ReasoningConfig(effort="low", display="summarized")
    changed = msgspec.structs.replace(read(), reasoning=visible)
    assert written(changed)[0]["reasoning"] == {"effort": "low", "summary": "auto"}
    changed = msgspec.structs.replace(read(), reasoning=ReasoningConfig(mode="disabled"))
    assert written(changed)[0]["reasoning"] == {"effort": "none"}


def repaired(*items: dict[str, Any]) -> list[dict[str, Any]]:
    request = read(input=list(items))
    request = repair_history(request, pass_context(request))
    written_items: list[dict[str, Any]] = written(request)[0]["input"]
    return written_items


SHELL = {
    "type": "shell_call",
    "id": "sh_1",
    "call_id": "c1",
    "action": {"commands": ["ls"]},
    "status": "completed",
}


def test_a_repaired_history_takes_nothing_back_from_the_clients_body() -> None:
    # A result without a call becomes text, a late result moves, and declarations of tools stay in their place.
    tools = {"type": "additional_tools", "role": "developer", "tools": []}
    part = {"type": "input_text", "text": "<tool_result>\nr\n</tool_result>"}
    orphan = {"type": "message", "role": "user", "content": [part]}
    late = repaired(HI, tools, {**RESULT, "call_id": "c9"}, CALL, HI, RESULT)
    assert late == [HI, tools, orphan, CALL, RESULT, HI]
    # A result made up by a pass has no fields of its call.
    made_up = repaired(CALL, HI)[1]
    assert made_up.keys() == {"type", "call_id", "output"}
    assert (made_up["type"], made_up["call_id"]) == ("function_call_output", "c1")
    # The call itself is written once.
    [call, result, message] = repaired(SHELL, HI)
    assert (call, result["type"], message) == (SHELL, "function_call_output", HI)


def test_what_a_pass_has_changed_keeps_all_else() -> None:
    request = read(input=[SHELL])
    [message] = request.messages
    message = changed(message, content=(changed(message.parts[0], call_id="c9"),))  # type: ignore[type-var]
    expected = [{**SHELL, "call_id": "c9"}]
    assert written(msgspec.structs.replace(request, messages=(message,)))[0]["input"] == expected
