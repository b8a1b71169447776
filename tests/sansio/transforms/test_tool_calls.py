"""Tool calls on their way to the client."""

import json

import pytest
from core.chop import PROPERTY, all_ways
from core.events import STARTED, responses, start_of
from core.passes import pass_context
from hypothesis import given

from dragoman._ir.assembly import Fold
from dragoman._ir.event_order import EventOrderChecker
from dragoman._ir.events import (
    ENDED,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    TextDelta,
    ToolHead,
    ToolKind,
)
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
FUNCTIONS = ToolLimits(custom=False)
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
    stage = ToolCallStage(undo, rule, "0123456789", ledger)
    return [each for event in events for each in stage.send(event)], ledger


def ids(events: list[Event]) -> list[str]:
    return [event.tool.call_id for event in events if isinstance(event, BlockStarted) and event.tool]


def test_plain_calls_pass() -> None:
    events = call("c1", "look", '{"a"', ":1}")
    assert staged(events)[0] == events


@PROPERTY
@given(responses(parallel=2))
def test_everything_else_passes(events: list[Event]) -> None:
    quiet = [
        event
        for event in events
        if not (isinstance(event, BlockStarted) and event.tool) and not isinstance(event, ArgumentsDelta)
    ]
    assert staged(quiet)[0] == quiet


# Arguments


@pytest.mark.parametrize("fragments", [(), ("",), (" ",), ("", "\n", "")])
def test_no_arguments_are_an_empty_object(fragments: tuple[str, ...]) -> None:
    events = call("c1", "look", *fragments)
    assert staged(events)[0] == [*events[:-1], ArgumentsDelta(0, "{}"), BlockEnded(0)]


@pytest.mark.parametrize(
    "events",
    [
        call("c1", "look", "{}"),
        call("c1", "look", "", "{", "", "}"),
        call("c1", "look", complete=False),
        call("c1", "patch", kind=CUSTOM),
    ],
    ids=["an object", "in fragments", "cut off", "free text"],
)
def test_complete_calls_are_unchanged(events: list[Event]) -> None:
    assert staged(events)[0] == events


# Names


def test_names_are_mapped_back() -> None:
    undo = Undo({"fs_read_1": ToolOrigin("fs.read", None, ToolKind.FUNCTION, wrapped=False)})
    out, _ = staged(call("c1", "fs_read_1", "{}"), undo)
    assert out == call("c1", "fs.read", "{}")


def test_namespaces_come_back() -> None:
    undo = Undo({"fs__read": ToolOrigin("read", "fs", ToolKind.FUNCTION, wrapped=False)})
    out, _ = staged(call("c1", "fs__read", "{}", item_id="fc_1"), undo)
    assert out == call("c1", "read", "{}", namespace="fs", item_id="fc_1")


def test_a_renamed_custom_tool_stays_custom() -> None:
    undo = Undo({"a_b_1": ToolOrigin("a.b", None, CUSTOM, wrapped=False)})
    out, _ = staged(call("c1", "a_b_1", "free", kind=CUSTOM), undo)
    assert out == call("c1", "a.b", "free", kind=CUSTOM)


def test_an_undeclared_name_is_unchanged() -> None:
    events = call("c1", "made_up", "{}")
    assert staged(events, WRAPPED)[0] == events


# Emulated custom tools


def folded_input(events: list[Event]) -> str:
    fold = Fold()
    for event in [STARTED, *events]:
        fold.send(event)
    return fold.finished(0).text


@pytest.mark.parametrize("text", ["", "plain", 'two\nlines "quoted" \\ 😀'])
def test_wrapped_input_comes_out(text: str) -> None:
    for fragments in all_ways(wrap_input(text)):
        out, ledger = staged(call("c1", "patch", *fragments), WRAPPED)
        assert out[0] == call("c1", "patch", kind=CUSTOM)[0]
        assert folded_input(out) == text
        assert len(ledger) == 0
        assert all(event.text for event in out if isinstance(event, ArgumentsDelta))


def test_input_of_another_shape_is_a_loss() -> None:
    out, ledger = staged(call("c/1", "patch", "*** Begin", " Patch"), WRAPPED)
    assert folded_input(out) == "*** Begin Patch"
    assert [(loss.code, loss.path) for loss in ledger] == [(LossCode.ALTERED, "/tool_calls/c~11/input")]


def test_input_that_was_cut_off_is_not_checked() -> None:
    out, ledger = staged(call("c1", "patch", '{"input":"ab', complete=False), WRAPPED)
    assert folded_input(out) == "ab"
    assert len(ledger) == 0


def test_a_custom_call_to_a_wrapped_tool_stays_free_text() -> None:
    events = call("c1", "patch", '{"input":"a"}', kind=CUSTOM)
    assert staged(events, WRAPPED)[0] == events


# Clients that have less than the upstream


@pytest.mark.parametrize("fragments", [(), ("a",), ("a ", '"b"', "\n", "\ud83d", "\ude00")])
def test_a_custom_call_for_a_client_without_them(fragments: tuple[str, ...]) -> None:
    out, ledger = staged(call("c1", "run", *fragments, kind=CUSTOM), rule=FUNCTIONS)
    assert out[0] == call("c1", "run")[0]
    assert json.loads(folded_input(out)) == json.loads(wrap_input("".join(fragments)))
    assert len(ledger) == 0


def test_a_custom_call_that_was_cut_off_does_not_look_whole() -> None:
    out, _ = staged(call("c1", "run", "rm -rf /tmp", kind=CUSTOM, complete=False), rule=FUNCTIONS)
    assert folded_input(out) == '{"input":"rm -rf /tmp'


def test_a_namespace_for_a_client_without_them() -> None:
    out, _ = staged(call("c1", "read", "{}", namespace="fs"), rule=FUNCTIONS)
    assert out == call("c1", "fs__read", "{}")


# Ids


def test_distinct_ids_pass() -> None:
    events = [*call("c1", "look", "{}"), *call("c2", "look", "{}", block=1)]
    assert staged(events)[0] == events


def test_two_calls_of_one_id() -> None:
    events = [
        *call("c1", "look", "{}"),
        *call("c1", "look", "{}", block=1),
        *call("c1", "look", "{}", block=2),
    ]
    assert ids(staged(events)[0]) == ["c1", "c1_01234567", "c1_012345671"]


def test_an_id_that_the_conversation_has_used() -> None:
    out, _ = staged(call("call_0", "look", "{}"), Undo({}, frozenset({"call_0"})))
    assert ids(out) == ["call_0_01234567"]


def test_the_suffix_may_be_used_too() -> None:
    undo = Undo({}, frozenset({"c", "c_01234567", "c_012345671"}))
    assert ids(staged(call("c", "look", "{}"), undo)[0]) == ["c_012345672"]


def test_renamed_and_used() -> None:
    undo = Undo({"x_1": ToolOrigin("x", None, ToolKind.FUNCTION, wrapped=False)}, frozenset({"c"}))
    assert staged(call("c", "x_1", "{}"), undo)[0] == call("c_01234567", "x", "{}")


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


def test_text_between_calls_passes() -> None:
    text: list[Event] = [start_of(BlockKind.TEXT, 9), TextDelta(9, "a"), BlockEnded(9), ENDED]
    assert staged(text)[0] == text


# Hosted tools, and grammars


def test_a_call_of_a_fallback_function_is_one_of_the_clients_tools() -> None:
    undo = Undo({"shell_1": ToolOrigin("shell", None, ToolKind.FUNCTION, wrapped=False, hosted="shell")})
    out, _ = staged(call("c", "shell_1", "{}"), undo)
    assert out[0] == BlockStarted(0, BlockKind.TOOL_CALL, tool=ToolHead("c", "shell", hosted="shell"))


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
    out = [each for event in call("c", "count", *fragments, complete=complete) for each in stage.send(event)]
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
    out = [each for event in call("c", "count", '{"input":"x"}') for each in stage.send(event)]
    assert len(out) == 3
    [loss] = ledger
    assert (loss.code, loss.path) == (LossCode.UNCHECKED, "/tool_calls/c/input")
    assert loss.detail.endswith(reason)


def test_a_call_that_was_cut_off_is_not_sent() -> None:
    _, ledger = staged(call("c", "count", '{"input":"1', complete=False), CHECKED)
    assert len(ledger) == 0
