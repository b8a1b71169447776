"""The stages of a response: which there are, and that each gets the events of the one before it."""

import itertools
import json
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import golden
import msgspec
import pytest
from core.events import STARTED, start_of
from core.toy_protocol import context_of, toy

from dragoman._engine.request import RequestTranslator
from dragoman._ir.events import EVENTS, BlockKind, Event, TextDelta
from dragoman._ir.losses import Ledger
from dragoman._ir.request import ResponseFormat
from dragoman._ir.tools import ToolChoice
from dragoman._ir.undo import Undo
from dragoman._transforms import pipeline
from dragoman._transforms.compaction import CompactionStage
from dragoman._transforms.json_output import CodeFenceStage, JsonToolStage
from dragoman._transforms.pipeline import PASSES, Passes, Pipeline, Stage
from dragoman._transforms.reasoning_cache import ReasoningCacheStage
from dragoman._transforms.response_checks import OutputCheckStage
from dragoman._transforms.signatures import SignatureStage
from dragoman._transforms.stop_sequences import StopSequenceStage
from dragoman._transforms.tool_calls import ToolCallStage
from dragoman._transforms.tools import _ToolFitter
from dragoman._wire.exceptions import RemoteProtocolError, RequestRefused

ALWAYS = [SignatureStage, ToolCallStage]


def outcome(client: str, upstream: str, body: bytes, capabilities: str) -> Any:
    try:
        done = golden.request(client, upstream, body, capabilities)
    except (RemoteProtocolError, RequestRefused) as error:
        return str(error), error.path
    return done.body, list(done.losses), done.undo, done.fan_out


@pytest.mark.no_cover
def test_what_is_left_out_has_nothing_to_do(subtests: pytest.Subtests) -> None:
    for fixture in golden.fixtures()["request"]:
        with subtests.test(fixture=fixture["name"]):
            for upstream, name in itertools.product(golden.NAMES, ("rewrite", "narrow", "object")):
                case = fixture["protocol"], upstream, golden.bytes_of(fixture), name
                with (
                    patch.object(Passes, "_needed", lambda *_: tuple(reversed(range(len(PASSES))))),
                    patch.object(pipeline, "_SETTLED", len(PASSES)),
                    patch.object(_ToolFitter, "accepts", lambda *_: False),
                    patch.object(_ToolFitter, "accepts_calls", lambda *_: False),
                ):
                    general = outcome(*case)
                assert outcome(*case) == general


def test_only_so_many_kinds_of_requests_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "_KEPT", 1)
    translator = RequestTranslator(client="openai_chat", upstream="anthropic_messages")
    for members in ({}, {"tools": [{"type": "function", "function": {"name": "f"}}]}, {}):
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **members}
        sent = json.loads(translator.translate(json.dumps(body).encode()).body)
        assert ("tools" in sent) == ("tools" in members)
    assert len(translator._passes._known) == 1


STAGES: list[tuple[Undo, bool, list[type[object]], bool]] = [
    (Undo(), False, [], False),
    (Undo(), True, [ReasoningCacheStage], False),
    (Undo(json_tool="t"), False, [JsonToolStage], True),
    (Undo(strip_code_fence=True), False, [CodeFenceStage], True),
    (Undo(stop_sequences=("x",)), False, [StopSequenceStage], True),
    (Undo(compacts=True), False, [CompactionStage], True),
    (Undo(unenforced_format=ResponseFormat()), False, [OutputCheckStage], True),
    (Undo(unenforced_choice=ToolChoice("required")), False, [OutputCheckStage], False),
    (
        Undo(json_tool="t", stop_sequences=("x",), unenforced_format=ResponseFormat()),
        False,
        [JsonToolStage, StopSequenceStage, OutputCheckStage],
        True,
    ),
    (Undo(json_tool="t", stop_sequences=("x",)), True, [JsonToolStage, StopSequenceStage, ReasoningCacheStage], True),
]  # fmt: skip


def test_the_stages(subtests: pytest.Subtests) -> None:
    for undo, forgets, stages, text in STAGES:
        with subtests.test(forgets=forgets, text=text):
            context = msgspec.structs.replace(context_of(), undo=undo)
            line = Pipeline(toy(clients_drop_signatures=forgets), context, Ledger())
            assert [type(stage) for stage in line._stages] == [*ALWAYS, *stages]
            assert (line.needs_text, line.reasoning_cache is not None) == (text, forgets)


@pytest.mark.parametrize(("n", "ended"), [(None, True), (1, True), (2, False)])
def test_a_stop_ends_a_response_of_one_choice(n: int | None, ended: bool) -> None:
    request = msgspec.structs.replace(context_of().request, params={} if n is None else {"n": n})
    context = msgspec.structs.replace(context_of(), undo=Undo(stop_sequences=("x",)), request=request)
    line = Pipeline(toy(), context, Ledger())
    out = [
        each for event in (STARTED, start_of(BlockKind.TEXT), TextDelta(0, "x")) for each in line.send(event)
    ]
    assert (type(out[-1]).__name__ == "Ended") is ended


class Twice:
    needs_text = True
    kinds = EVENTS

    def send(self, event: Event) -> Sequence[Event]:
        return (event, event)


class Never:
    needs_text = False
    kinds = EVENTS

    def send(self, event: Event) -> Sequence[Event]:
        return ()


@pytest.mark.parametrize(
    ("stages", "expected"),
    [([], [STARTED]), ([Twice(), Twice()], [STARTED] * 4), ([Twice(), Never(), Twice()], [])],
)
def test_each_stage_gets_what_the_one_before_gives(stages: list[Stage], expected: list[Event]) -> None:
    line = Pipeline(toy(), context_of(), Ledger())
    line._stages = stages
    assert list(line.send(STARTED)) == expected


def test_the_checks_of_an_output_need_its_text_only_for_a_form() -> None:
    for form in (None, ResponseFormat()):
        assert OutputCheckStage(form, None, Ledger()).needs_text is (form is not None)
