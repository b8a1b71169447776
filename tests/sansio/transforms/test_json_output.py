"""Structured output for upstreams without it: what is requested instead, and what the client gets."""

from typing import Any

import pytest
from core.events import ERROR, STARTED, start_of
from core.passes import pass_context
from hypothesis import given
from hypothesis import strategies as st

from dragoman._ir.events import (
    ENDED,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    Failed,
    Stopped,
    StopReason,
    TextDelta,
    ToolHead,
)
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Message, ReasoningConfig, Request, ResponseFormat, Text
from dragoman._ir.tools import FunctionTool, ToolChoice
from dragoman._ir.undo import Undo
from dragoman._transforms.json_output import JSON_TOOL, CodeFenceStage, JsonToolStage, fit_format
from dragoman.codec import Capabilities

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
FORM = ResponseFormat(SCHEMA, "n", "what it is", True, path="/format")
ANY = ResponseFormat(path="/format")
LIST = ResponseFormat({"type": "array"}, path="/format")
TOOL = FunctionTool("look")

NATIVE = Capabilities()
OBJECT = Capabilities(structured_output="object")
NONE = Capabilities(structured_output="none")


def requested(form: ResponseFormat | None = FORM, **fields: Any) -> Request:
    messages = (Message("system", (Text("be"),)), Message("user", (Text("hi"),)))
    return Request("toy", "m", messages, response_format=form, **fields)


@pytest.mark.parametrize(
    ("request_", "capabilities", "way"),
    [
        (requested(None), NONE, "native"),
        (requested(), NATIVE, "native"),
        (requested(ANY), OBJECT, "native"),
        (requested(), OBJECT, "json mode and instruction"),
        (requested(), NONE, "tool"),
        (requested(ANY), NONE, "tool"),
        (requested(LIST), NONE, "instruction"),
        (requested(), Capabilities(structured_output="none", forced_tools="no"), "instruction"),
        # the client's own choices win
        (requested(tools=(TOOL,)), NONE, "instruction"),
        (requested(tool_choice=ToolChoice("none")), NONE, "instruction"),
        (requested(reasoning=ReasoningConfig("adaptive")), NONE, "instruction"),
        (requested(reasoning=ReasoningConfig("enabled", budget=2000)), NONE, "instruction"),
        (requested(reasoning=ReasoningConfig(effort="low")), NONE, "instruction"),
        (requested(reasoning=ReasoningConfig(effort="none")), NONE, "tool"),
        (requested(reasoning=ReasoningConfig("disabled")), NONE, "tool"),
        (requested(reasoning=ReasoningConfig(display="omitted")), NONE, "tool"),
    ],
)
def test_how_json_is_requested(request_: Request, capabilities: Capabilities, way: str) -> None:
    fitted = fit_format(request_, pass_context(request_, Ledger(), capabilities))
    if fitted is request_:
        assert way == "native"
    elif fitted.messages == request_.messages:
        assert (way, [tool.name for tool in fitted.tools]) == ("tool", [JSON_TOOL])  # type: ignore[union-attr]
    else:
        assert way == ("instruction" if fitted.response_format is None else "json mode and instruction")


def test_native_output_is_unchanged() -> None:
    ledger = Ledger()
    request = requested()
    context = pass_context(request, ledger, NATIVE)
    assert fit_format(request, context) is request
    assert context.undo == Undo()
    assert len(ledger) == 0


@pytest.mark.parametrize(
    ("form", "description", "parameters", "strict"),
    [
        (FORM, "what it is", SCHEMA, True),
        (
            ANY,
            "Give the answer to the user by calling this tool: its input is the whole answer.",
            {"type": "object"},
            None,
        ),
    ],
)
def test_by_a_tool(form: ResponseFormat, description: str, parameters: Any, strict: bool | None) -> None:
    ledger = Ledger()
    context = pass_context(requested(form), ledger, NONE)
    request = fit_format(requested(form), context)
    assert context.undo == Undo(json_tool=JSON_TOOL, strip_code_fence=True)
    assert request.tools == (FunctionTool(JSON_TOOL, description, parameters, strict, path="/format"),)
    assert request.tool_choice == ToolChoice("named", JSON_TOOL, path="/format")
    assert (request.response_format, request.messages) == (None, requested().messages)
    assert [(loss.code, loss.path) for loss in ledger] == [(LossCode.ALTERED, "/format")]


@pytest.mark.parametrize(
    ("capabilities", "form", "left", "phrases"),
    [
        (OBJECT, FORM, ANY, ["what it is", '{"type":"object","properties":{"a":{"type":"integer"}}}']),
        (NONE, LIST, None, ['{"type":"array"}']),
        (NONE, ANY, None, ["It must be a JSON object."]),
    ],
)
def test_json_requested_by_an_instruction(
    capabilities: Capabilities, form: ResponseFormat, left: ResponseFormat | None, phrases: list[str]
) -> None:
    ledger = Ledger()
    context = pass_context(requested(form), ledger, capabilities)
    request = fit_format(requested(form, tools=(TOOL,)), context)
    assert context.undo == Undo(strip_code_fence=True)
    assert (request.response_format, request.tools, request.tool_choice) == (left, (TOOL,), None)
    first, reported, last = request.messages
    assert (first, last) == requested().messages
    assert reported.role == "system"
    assert isinstance(reported.parts[0], Text)
    assert all(word in reported.parts[0].text for word in ["Answer with one JSON value", *phrases])
    assert [(loss.code, loss.path) for loss in ledger] == [(LossCode.ALTERED, "/format")]


def test_a_loss_always_has_a_path() -> None:
    ledger = Ledger()
    request = requested(ResponseFormat(SCHEMA))
    fit_format(request, pass_context(request, ledger, NONE))
    assert [loss.path for loss in ledger] == ["/response_format"]


# The tool's response


def staged(stage: JsonToolStage | CodeFenceStage, events: list[Event]) -> list[Event]:
    return [each for event in events for each in stage.send(event)]


def tool(block: int, *texts: str, name: str = JSON_TOOL) -> list[Event]:
    start = BlockStarted(block, BlockKind.TOOL_CALL, tool=ToolHead(f"c{block}", name))
    return [start, *[ArgumentsDelta(block, each) for each in texts], BlockEnded(block)]


def text(block: int, *texts: str) -> list[Event]:
    return [start_of(BlockKind.TEXT, block), *[TextDelta(block, each) for each in texts], BlockEnded(block)]


ANOTHER = tool(1, "{}", name="other")
CALLED = Stopped(StopReason.TOOL_USE)
END = Stopped(StopReason.END)
CUT = Stopped(StopReason.MAX_TOKENS)


@pytest.mark.parametrize(
    ("events", "expected", "losses"),
    [
        ([*tool(0, "{", "}"), CALLED], [*text(0, "{", "}"), END], 0),
        ([*tool(0, "{"), CUT], [*text(0, "{"), CUT], 0),
        ([*text(0, "Well:"), *tool(1, "{}"), CALLED], [*text(1, "{}"), END], 1),
        ([*tool(0, "{}"), *text(1, "Done."), CALLED], [*text(0, "{}"), END], 1),
        ([*tool(0, "{}"), *tool(1, "{}"), CALLED], [*text(0, "{}"), END], 1),
        # the model did not obey: its text is better than nothing
        ([*text(0, "No"), END], [*text(0, "No"), END], 0),
        (
            [*text(0, "a"), *tool(1, "{}", name="other"), CALLED],
            [*tool(1, "{}", name="other"), *text(0, "a"), CALLED],
            0,
        ),
        ([*text(0, "No")[:2], Failed(ERROR)], [*text(0, "No")[:2], Failed(ERROR)], 0),
    ],
)
def test_the_client_sees_text(events: list[Event], expected: list[Event], losses: int) -> None:
    ledger = Ledger()
    assert staged(JsonToolStage(JSON_TOOL, ledger), [STARTED, *events, ENDED]) == [STARTED, *expected, ENDED]
    assert len(ledger) == losses


# The fence


FENCES = [
    ('{"a":1}', '{"a":1}'),
    ('```json\n{"a":1}\n```', '{"a":1}'),
    ('```\n{"a":1}\n```\n', '{"a":1}'),
    ('\n ```json\n{"a":\n1}```', '{"a":\n1}'),
    ("```json\n{}", "{}"),
    ('```json\n{"a":"`` `"}\n```', '{"a":"`` `"}'),
    ('{"a":"```"}', '{"a":"```"}'),
    ("`x`", "`x`"),
    ("``", "``"),
    ("```json", "```json"),
    ("```" + "x" * 200 + "\n```", "```" + "x" * 200 + "\n```"),  # that is no name of a language
    ("```\na ` ```", "a `"),
    ("```\na\n \n` `b", "a\n \n` `b"),
    ("", ""),
    ("  7", "  7"),
]


def test_a_markdown_fence_is_removed(subtests: pytest.Subtests) -> None:
    for fenced, bare in FENCES:
        with subtests.test(fenced=fenced, bare=bare):
            for size in (1, 2, 3, 100):
                texts = [fenced[at : at + size] for at in range(0, len(fenced), size)]
                out = staged(CodeFenceStage(), [STARTED, *text(0, *texts), END, ENDED])
                assert "".join(each.text for each in out if isinstance(each, TextDelta)) == bare
                assert all(each.text for each in out if isinstance(each, TextDelta))
                assert [type(each) for each in out if not isinstance(each, TextDelta)] == [
                    type(STARTED), BlockStarted, BlockEnded, Stopped, type(ENDED),
                ]  # fmt: skip


@given(st.text("`a\n {", max_size=20), st.integers(1, 5))
def test_any_cut_of_a_fence_gives_the_same(fenced: str, size: int) -> None:
    def bare(size: int) -> str:
        texts = [fenced[at : at + size] for at in range(0, len(fenced), size)]
        out = staged(CodeFenceStage(), text(0, *texts))
        return "".join(each.text for each in out if isinstance(each, TextDelta))

    assert bare(size) == bare(100)


def test_events_other_than_text_pass() -> None:
    events: list[Event] = [
        *tool(0, "```"),
        start_of(BlockKind.REFUSAL, 1),
        TextDelta(1, "```"),
        BlockEnded(1),
    ]
    assert staged(CodeFenceStage(), events) == events
