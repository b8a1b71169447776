"""Responses requests for Responses upstreams that are mended: what the protocol defines stays, the target is obeyed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman._ir.losses import Ledger
from dragoman._ir.request import ReasoningConfig, Request, ResponseFormat
from dragoman._ir.signatures import Sealer
from dragoman._transforms.history import mend_history
from dragoman._wire.json import decode, encode
from dragoman.codec import Target
from dragoman.protocols.openai_responses import SPEC

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
POINT = {"mode": "explicit"}
JSON = {"type": "json_schema", "name": "n", "schema": {}, "new": 1}


def read(**body: Any) -> Request:
    return SPEC.read_request({"model": "m", "input": [HI], **body}, Sealer())


def written(request: Request, **target: Any) -> tuple[dict[str, Any], list[str]]:
    """The body for the upstream without its model, and the places in the ledger."""
    ledger = Ledger()
    out = decode(encode(SPEC.write_request(request, Target(relay="mend", **target), ledger)))
    del out["model"]
    return out, [loss.path for loss in ledger]


@pytest.mark.parametrize(
    ("target", "before", "after", "losses"),
    [
        (
            {"efforts": ("low", "high")},
            {"reasoning": {"effort": "max", "summary": "detailed", "new": 1}},
            {"reasoning": {"effort": "high", "summary": "detailed", "new": 1}},
            ["/reasoning/effort"],
        ),
        (
            {"efforts": ()},
            {"reasoning": {"effort": "low", "new": 1}, "include": ["reasoning.encrypted_content"]},
            {},
            ["/reasoning", "/reasoning/effort"],
        ),
        ({"efforts": ()}, {"reasoning": {"effort": "none"}, "include": ["x"]}, {"include": ["x"]}, []),
        (
            {"summaries": "never"},
            {"reasoning": {"effort": "low", "summary": "auto", "generate_summary": "auto"}},
            {"reasoning": {"effort": "low"}},
            ["/reasoning/summary"],
        ),
        ({"summaries": "never"}, {"reasoning": {"summary": "auto"}}, {}, ["/reasoning/summary"]),
        (
            {},
            {"reasoning": {"effort": "low", "generate_summary": "detailed"}},
            {"reasoning": {"effort": "low", "generate_summary": "detailed"}},
            [],
        ),
        (
            {"refuses": frozenset({"store", "include"})},
            {"store": False, "include": ["reasoning.encrypted_content"], "metadata": {}},
            {"metadata": {}},
            [],
        ),
        ({}, {"store": True, "new": 1, "include": ["x"]}, {"store": True, "new": 1, "include": ["x"]}, []),
        (
            {},
            {"text": {"format": JSON, "verbosity": "low"}},
            {"text": {"format": JSON, "verbosity": "low"}},
            [],
        ),
        (
            {},
            {"text": {"format": {"type": "text", "new": 1}}},
            {"text": {"format": {"type": "text", "new": 1}}},
            [],
        ),
        ({}, {"instructions": "I", "stream": True}, {"instructions": "I", "stream": True}, []),
        (
            {},
            {"tools": [{"type": "web_search", "new": 1}]},
            {"tools": [{"type": "web_search", "new": 1}]},
            [],
        ),
    ],
)
def test_settings_and_tools(
    target: dict[str, Any], before: dict[str, Any], after: dict[str, Any], losses: list[str]
) -> None:
    out, lost = written(read(**before), **target)
    assert out.pop("input") == [HI]
    assert out == after
    assert lost == losses


def test_marks_where_the_upstream_has_none() -> None:
    text = {"type": "input_text", "text": "a", "prompt_cache_breakpoint": POINT}
    item = {"type": "message", "role": "user", "content": [text]}
    out, lost = written(read(input=[item]))
    assert out["input"] == [{**item, "content": [{"type": "input_text", "text": "a"}]}]
    assert lost == ["/input/0/content/0/prompt_cache_breakpoint"]
    assert written(read(input=[item]), cache_marks="breakpoint") == ({"input": [item]}, [])


def test_what_passes_took_out_is_out() -> None:
    asked = read(text={"format": JSON, "verbosity": "low", "new": 1})
    asked = msgspec.structs.replace(asked, params={}, response_format=None)
    assert written(asked)[0]["text"] == {"new": 1}


def test_a_schema_that_a_pass_asks_for_in_words() -> None:
    asked = read(text={"format": JSON, "verbosity": "low"})
    asked = msgspec.structs.replace(asked, response_format=ResponseFormat(path="/text/format"))
    assert written(asked)[0]["text"] == {"format": {"type": "json_object"}, "verbosity": "low"}


def test_what_passes_put_in_is_in() -> None:
    shows = ReasoningConfig(effort="low", show="summarized")
    asked = msgspec.structs.replace(read(), reasoning=shows)
    assert written(asked)[0]["reasoning"] == {"effort": "low", "summary": "auto"}
    asked = msgspec.structs.replace(read(), reasoning=ReasoningConfig(mode="disabled"))
    assert written(asked)[0]["reasoning"] == {"effort": "none"}


def test_an_effort_in_mid_conversation_stays_there() -> None:
    update = {"type": "configuration_update", "reasoning": {"effort": "max"}}
    out, lost = written(read(input=[HI, update], reasoning={"effort": "low"}), efforts=("low",))
    assert (out, lost) == ({"input": [HI, update], "reasoning": {"effort": "low"}}, [])


def mended(*items: dict[str, Any]) -> list[dict[str, Any]]:
    request = mend_history(read(input=list(items)), Ledger())
    written_items: list[dict[str, Any]] = written(request)[0]["input"]
    return written_items


SHELL = {
    "type": "shell_call",
    "id": "sh_1",
    "call_id": "c1",
    "action": {"commands": ["ls"]},
    "status": "completed",
}


def test_the_history_is_mended_and_nothing_comes_back_from_the_clients_body() -> None:
    # An orphan is told as text, a late result moves, and what declares tools stays in its place.
    tools = {"type": "additional_tools", "role": "developer", "tools": []}
    words = {"type": "input_text", "text": "<tool_result>\nr\n</tool_result>"}
    orphan = {"type": "message", "role": "user", "content": [words]}
    late = mended(HI, tools, {**RESULT, "call_id": "c9"}, CALL, HI, RESULT)
    assert late == [HI, tools, orphan, CALL, RESULT, HI]
    # A result that a pass has made up has nothing of the call that it answers.
    stand_in = mended(CALL, HI)[1]
    assert stand_in.keys() == {"type", "call_id", "output"}
    assert (stand_in["type"], stand_in["call_id"]) == ("function_call_output", "c1")
    # Nor is a tool's own call printed twice for it.
    assert [item["type"] for item in mended(SHELL, HI)] == ["shell_call", "function_call_output", "message"]
