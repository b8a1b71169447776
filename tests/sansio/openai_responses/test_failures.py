"""Failures of other gateways towards Responses clients and upstreams, by the rows of tests/conformance/failures."""

from __future__ import annotations

import json
from typing import Any

import pytest
from responses_client import (
    FOREIGN,
    MESSAGES_SIGNATURE,
    SIGNER,
    call,
    output,
    reasoning_block,
    response_payloads,
    text,
)

from dragoman._engine.response import ResponseTranslator
from dragoman._engine.response_machine import Outcome
from dragoman._ir.events import (
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    ReasoningDelta,
    Signature,
    SignatureDelta,
    TextDelta,
)
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Message, Reasoning, Request, Text, ToolCall
from dragoman._wire.json import encode
from dragoman._wire.sse import encode_frame
from dragoman.protocols.openai_responses import SPEC
from dragoman.protocols.openai_responses.capabilities import ResponsesCapabilities as Capabilities

ORIGIN = "openai_responses"


def rich() -> list[Event]:
    """Events of a response with an item of every kind that other vendors have."""
    return [
        *reasoning_block(ReasoningDelta(0, "hm"), SignatureDelta(0, MESSAGES_SIGNATURE)),
        *text(1, "Be", "fore"),
        *call(2, '{"a"', ":1}"),
        BlockStarted(3, BlockKind.REFUSAL),
        TextDelta(3, "No."),
        BlockEnded(3),
        *text(4, "After"),
    ]


def of_item(payloads: list[dict[str, Any]], index: int) -> list[dict[str, Any]]:
    return [payload for payload in payloads if payload.get("output_index") == index]


def test_h8_added_items_have_their_empty_arrays() -> None:
    added = [
        each["item"] for each in response_payloads(*rich()) if each["type"] == "response.output_item.added"
    ]
    assert [(item["type"], item.get("content"), item.get("summary")) for item in added] == [
        ("reasoning", None, []),
        ("message", [], None),
        ("function_call", None, None),
        ("message", [], None),
        ("message", [], None),
    ]
    assert added[2]["arguments"] == ""


def test_h9_added_parts_have_their_empty_texts() -> None:
    parts = [each["part"] for each in response_payloads(*rich()) if each["type"].endswith("part.added")]
    assert parts == [
        {"type": "summary_text", "text": ""},
        {"type": "output_text", "text": "", "annotations": [], "logprobs": []},
        {"type": "refusal", "refusal": ""},
        {"type": "output_text", "text": "", "annotations": [], "logprobs": []},
    ]


def test_h10_an_item_has_one_id_and_one_index() -> None:
    payloads = response_payloads(*rich())
    for index, item in enumerate(output(payloads)):
        events = of_item(payloads, index)
        ids = {each.get("item_id") or each["item"]["id"] for each in events}
        assert ids == {item["id"]}
        assert events[0]["type"] == "response.output_item.added"
        assert events[-1]["type"] == "response.output_item.done"


def test_h11_what_came_in_deltas_is_also_in_the_final_output() -> None:
    payloads = response_payloads(*rich())
    deltas = [each["delta"] for each in payloads if each["type"].endswith(".delta")]
    assert deltas == ["hm", "Be", "fore", '{"a"', ":1}", "No.", "After"]
    done = [each["item"] for each in payloads if each["type"] == "response.output_item.done"]
    assert output(payloads) == done
    assert len(done) == 5


def test_c3_reasoning_of_another_vendor_can_be_sent_back() -> None:
    [item] = output(response_payloads(*reasoning_block(SignatureDelta(0, MESSAGES_SIGNATURE))))
    request = SPEC.read_request({"model": "m", "input": [item]}, SIGNER)
    [found] = request.messages[0].parts
    assert isinstance(found, Reasoning)
    assert found.signature == MESSAGES_SIGNATURE


# --- ends, with this protocol on both sides of a translator -------------------------------------------------------

HEAD = {"id": "resp_1", "model": "gpt", "created_at": 5, "status": "in_progress", "output": []}
OPENING = [
    {"type": "response.created", "response": HEAD},
    {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": {"id": "msg_1", "type": "message", "role": "assistant", "content": []},
    },
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Hel"},
]


def sent(payloads: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], ResponseTranslator]:
    machine = ResponseTranslator(client=SPEC, upstream=SPEC, context=FOREIGN, client_streams=True)
    for payload in payloads:
        machine.receive_data(encode_frame(encode(payload), payload["type"].encode()))
    machine.receive_eof()
    frames = machine.data_to_send().decode().strip().split("\n\n")
    return [json.loads(each.partition("data: ")[2]) for each in frames], machine


@pytest.mark.parametrize("length", [1, 2, 3])
def test_e2_e3_an_early_end_is_a_failure_and_an_end(length: int) -> None:
    payloads, machine = sent(OPENING[:length])
    assert machine.outcome is Outcome.FAILED
    assert [each["type"] for each in payloads[-2:]] == ["error", "response.failed"]
    failed = payloads[-1]["response"]
    assert (failed["status"], failed["incomplete_details"]) == ("failed", None)
    assert failed["error"]["code"] == "server_error"
    assert not [each for each in payloads if each["type"] in ("response.completed", "response.incomplete")]


def test_e3_an_end_has_the_full_output() -> None:
    end = {"type": "response.completed", "response": {**HEAD, "status": "completed"}}
    payloads, machine = sent([*OPENING, end])
    assert machine.outcome is Outcome.COMPLETED
    last = payloads[-1]
    assert last["type"] == "response.completed"
    assert last["response"]["output"][0]["content"][0]["text"] == "Hel"
    assert last["response"]["usage"]["input_tokens"] == FOREIGN.prompt_tokens


# --- towards this protocol's servers ------------------------------------------------------------------------------


def written(*messages: Message) -> tuple[list[dict[str, Any]], list[LossCode]]:
    ledger = Ledger()
    body = SPEC.write_request(Request("anthropic_messages", "m", messages), Capabilities(), ledger)
    return body["input"], [loss.code for loss in ledger]


def reasoning(**fields: Any) -> Reasoning:
    return Reasoning("", Signature(ORIGIN, {"type": "reasoning", "summary": [], **fields}), path="/p")


TEXT = Text("so")


def test_b9_ids_of_stored_items_are_not_sent_elsewhere() -> None:
    items, losses = written(
        Message("assistant", (reasoning(id="rs_1"), ToolCall("c", "f", "{}", item_id="fc_1")))
    )
    assert [(item["type"], item.get("id")) for item in items] == [("function_call", None)]
    assert losses == [LossCode.DROPPED]


@pytest.mark.parametrize("fields", [{}, {"id": None}])
def test_b10_reasoning_without_an_id_stays_without(fields: dict[str, Any]) -> None:
    items, _ = written(Message("assistant", (reasoning(encrypted_content="g", **fields), TEXT)))
    assert items[0] == {"type": "reasoning", "summary": [], "encrypted_content": "g"}
