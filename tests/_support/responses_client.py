"""Responses for Responses clients, checked as they are written.

Every response is checked three times: by the order rules and types of the oracle, by the vendor's own pydantic types,
and by the accumulator of the vendor's SDK. Streamed and whole responses must be the same.
"""

from __future__ import annotations

import json
from typing import Any

from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent
from oracle.frames import strict_frames
from oracle.order import check_order
from oracle.types import check_body, check_event
from pydantic import TypeAdapter

from dragoman._ir.assembly import AssembledResponse, Fold
from dragoman._ir.event_order import EventOrderChecker
from dragoman._ir.events import (
    ENDED,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    Failed,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    ToolHead,
    Usage,
)
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Request
from dragoman._ir.wrapped_signatures import Signer
from dragoman._wire.json import encode
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_responses import SPEC

ORIGIN = "openai_responses"
SIGNER = Signer(b"secret")
FOREIGN = ResponseContext(Request("openai_chat", "alias", ()), "x1", 7, "alias", SIGNER, prompt_tokens=11)
STARTED = Started("up_1", "gpt", 5)
USAGE = Usage(10, 5, 4, 2, 3)
# Reasoning of another vendor.
ENDS_WELL = Stopped(StopReason.END)
SDK_EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def responses_context(**body: Any) -> ResponseContext:
    return ResponseContext(Request(ORIGIN, "alias", ()), "x1", 7, "alias", SIGNER, echo=body)


def stream(
    *events: Event, context: ResponseContext = FOREIGN, ledger: Ledger | None = None
) -> list[dict[str, Any]]:
    """Return the payloads of a stream, checked in three ways."""
    ledger = Ledger() if ledger is None else ledger
    writer = SPEC.stream_writer(context, ledger)
    data = b"".join(writer.send(event) for event in events)
    ended = type(events[-1]) in (type(ENDED), Failed)
    problems = [each for each in check_order(ORIGIN, data) if ended or "responses-end" not in each]
    frames, _ = strict_frames(data)
    state = ResponseStreamState(input_tools=omit, text_format=omit)
    for number, frame in enumerate(frames):
        problems += [f"{number}: {problem}" for problem in check_event(ORIGIN, frame.data)]
        sdk_event = SDK_EVENTS.validate_json(frame.data)
        if sdk_event.type != "error":
            state.handle_event(sdk_event)
    # A model's arguments are passed on as they are, if the ledger says so.
    if any(loss.code is LossCode.BREACH and loss.path.endswith("/arguments") for loss in ledger):
        problems = [each for each in problems if "responses-arguments" not in each]
    assert problems == []
    return [json.loads(frame.data) for frame in frames]


def fold(*events: Event) -> AssembledResponse:
    folded, checker = Fold(), EventOrderChecker()
    for event in events:
        checker.check(event)
        folded.send(event)
    return folded.response()


def whole(*events: Event, context: ResponseContext = FOREIGN, ledger: Ledger | None = None) -> dict[str, Any]:
    body = encode(SPEC.write_whole(fold(*events), context, Ledger() if ledger is None else ledger))
    assert check_body(ORIGIN, body) == []
    Response.model_validate_json(body)
    value: dict[str, Any] = json.loads(body)
    return value


def response_payloads(
    *middle: Event,
    stop: Stopped = ENDS_WELL,
    usage: tuple[Usage, ...] = (USAGE,),
    context: ResponseContext = FOREIGN,
    lost: tuple[str, ...] = (),
) -> list[dict[str, Any]]:
    """The payloads of a response that ended, the same whole and streamed."""
    events = (STARTED, *middle, *usage, stop, ENDED)
    ledgers = Ledger(), Ledger()
    payloads = stream(*events, context=context, ledger=ledgers[0])
    assert payloads[-1]["response"] == whole(*events, context=context, ledger=ledgers[1])
    for ledger in ledgers:
        assert tuple(loss.path for loss in ledger) == lost
    return payloads


def kinds(payloads: list[dict[str, Any]]) -> list[str]:
    return [payload["type"].removeprefix("response.") for payload in payloads]


def output(payloads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = payloads[-1]["response"]["output"]
    return items


def text(number: int = 0, *texts: str, **head: Any) -> list[Event]:
    deltas = [TextDelta(number, each) for each in texts or ("Hel", "lo")]
    return [BlockStarted(number, BlockKind.TEXT, **head), *deltas, BlockEnded(number)]


def call(number: int = 0, *fragments: str, complete: bool = True, **head: Any) -> list[Event]:
    tool = ToolHead(**{"call_id": f"c{number}", "name": "f", **head})
    deltas = [ArgumentsDelta(number, each) for each in fragments]
    return [BlockStarted(number, BlockKind.TOOL_CALL, tool=tool), *deltas, BlockEnded(number, complete)]


def reasoning_block(*inside: Event, complete: bool = True, **head: Any) -> list[Event]:
    return [BlockStarted(0, BlockKind.REASONING, **head), *inside, BlockEnded(0, complete)]
