"""Tool calls on their way to the client."""

import pytest
from core.chop import PROPERTY, all_ways
from core.events import STARTED, responses
from core.passes import pass_context, through
from hypothesis import given

from dragoman._ir.assembly import Fold
from dragoman._ir.event_order import EventOrderChecker
from dragoman._ir.events import ArgumentsDelta, BlockEnded, BlockKind, BlockStarted, Event, ToolHead, ToolKind
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Message, Request, ToolCall
from dragoman._ir.tools import CustomTool, FunctionTool, Grammar
from dragoman._ir.undo import ToolOrigin, Undo
from dragoman._transforms.freeform import wrap_input
from dragoman._transforms.tool_calls import CheckInput, ToolCallStage, Unchecked
from dragoman._transforms.tools import fit_tools
from dragoman.codec import ToolLimits

CUSTOM = ToolKind.CUSTOM
EVERYTHING = ToolLimits(custom=True, namespaces=True)
WRAPPED = Undo({"patch": ToolOrigin("patch", None, CUSTOM, wrapped=True)})


def call(
    call_id: str, name: str, *fragments: str, block: int = 0, complete: bool = True, **head: object
) -> list[Event]:
    tool = ToolHead(call_id, name, **head)  # type: ignore[arg-type]
    return [
        BlockStarted(block, BlockKind.TOOL_CALL, tool=tool),
        *[ArgumentsDelta(block, fragment) for fragment in fragments],
        BlockEnded(block, complete),
    ]


def staged(
    events: list[Event], undo: Undo = Undo(), rule: ToolLimits = EVERYTHING
) -> tuple[list[Event], Ledger]:
    ledger = Ledger()
    return through(ToolCallStage(undo, rule, "0123456789", ledger), events), ledger


@PROPERTY
@given(responses(parallel=2))
def test_everything_else_passes(events: list[Event]) -> None:
    quiet = [
        event
        for event in events
        if not (isinstance(event, BlockStarted) and event.tool) and not isinstance(event, ArgumentsDelta)
    ]
    assert staged(quiet)[0] == quiet


# Emulated custom tools


def folded_input(events: list[Event]) -> str:
    fold = Fold()
    for event in [STARTED, *events]:
        fold.send(event)
    return fold.finished(0).text


@pytest.mark.parametrize("text", ["", "plain", 'two\nlines "quoted" \\ 😀'])
def test_h3_h5_wrapped_input_comes_out(text: str) -> None:
    for fragments in all_ways(wrap_input(text)):
        out, ledger = staged(call("c1", "patch", *fragments), WRAPPED)
        assert out[0] == call("c1", "patch", kind=CUSTOM)[0]
        assert folded_input(out) == text
        assert len(ledger) == 0
        assert all(event.text for event in out if isinstance(event, ArgumentsDelta))


# Both passes


def test_names_are_mapped_there_and_back() -> None:
    """Names that the client declared are the names of its calls."""
    tools = (
        FunctionTool("a.b"),
        FunctionTool("read", namespace="fs"),
        CustomTool("pa tch"),
        CustomTool("edit", namespace="fs"),
    )
    history = (Message("assistant", (ToolCall("c0", "a.b", "{}"),)),)
    request = Request(protocol="toy", model="m", messages=history, tools=tools)
    context = pass_context(request, limits=ToolLimits(custom=False))
    fitted, undo = fit_tools(request, context), context.undo
    events: list[Event] = []
    for block, tool in enumerate(fitted.tools):
        assert isinstance(tool, FunctionTool)
        wrapped = tool.parameters is not None
        events += call(f"c{block}", tool.name, wrap_input("free") if wrapped else "{}", block=block)
    out, ledger = staged(events, undo)
    heads = [event.tool for event in out if isinstance(event, BlockStarted)]
    assert heads == [
        ToolHead("c0_01234567", "a.b"),
        ToolHead("c1", "read", namespace="fs"),
        ToolHead("c2", "pa tch", CUSTOM),
        ToolHead("c3", "edit", CUSTOM, "fs"),
    ]
    assert [event.text for event in out if isinstance(event, ArgumentsDelta)] == ["{}", "{}", "free", "free"]
    assert len(ledger) == 0


@PROPERTY
@given(responses(choices=2))
def test_passes_keep_the_event_order(events: list[Event]) -> None:
    checker = EventOrderChecker()
    for event in staged(events, Undo({"look": ToolOrigin("l", None, CUSTOM, wrapped=True)}))[0]:
        checker.check(event)


# Hosted tools, and grammars


GRAMMAR = Grammar("regex", "[0-9]+")
CHECKED = Undo({"count": ToolOrigin("count", None, CUSTOM, wrapped=True, grammar=GRAMMAR)})


@pytest.mark.parametrize(
    ("fragments", "complete", "checked", "breach"),
    [
        (['{"input":"12', '34"}'], True, ["1234"], False),
        (['{"input":"1x', '"}'], True, ["1x"], True),
        (["1x"], True, ["1x"], True),  # not wrapped: that is reported beside it
        (['{"input":"1'], False, [], False),  # cut off: there is nothing to judge
    ],
)
def test_input_is_checked_by_its_grammar(
    fragments: list[str], complete: bool, checked: list[str], breach: bool
) -> None:
    requested: list[str] = []

    def check(grammar: Grammar, text: str) -> str | None:
        assert grammar is GRAMMAR
        requested.append(text)
        return None if text.isdigit() else "line 1"

    ledger = Ledger()
    stage = ToolCallStage(CHECKED, EVERYTHING, "0123456789", ledger, check)
    out = through(stage, call("c", "count", *fragments, complete=complete))
    assert "".join(each.text for each in out if isinstance(each, ArgumentsDelta))
    assert requested == checked
    losses = {(loss.code, loss.path) for loss in ledger}
    assert ((LossCode.BREACH, "/tool_calls/c/input") in losses) is breach


def unchecked(grammar: Grammar, text: str) -> str | None:
    raise Unchecked("it is too long")


@pytest.mark.parametrize(
    ("check", "reason"),
    [(None, "no check is configured"), (unchecked, "it is too long")],
    ids=["nobody", "no idea"],
)
def test_a_schema_that_cannot_be_checked_is_recorded(check: CheckInput | None, reason: str) -> None:
    ledger = Ledger()
    stage = ToolCallStage(CHECKED, EVERYTHING, "0123456789", ledger, check)
    assert len(through(stage, call("c", "count", '{"input":"x"}'))) == 3
    [loss] = ledger
    assert (loss.code, loss.path) == (LossCode.UNCHECKED, "/tool_calls/c/input")
    assert loss.detail.endswith(reason)
