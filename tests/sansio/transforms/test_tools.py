"""Tools, names and call ids as a target takes them, and the book for the way back."""

import re

import pytest
from core.chop import PROPERTY
from core.passes import pass_context
from core.toy_protocol import toy
from hypothesis import given
from hypothesis import strategies as st

from dragoman._ir.events import ToolKind
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Message, Request, Text, ToolCall, ToolResult
from dragoman._ir.tools import CustomTool, FunctionTool, HostedTool, Tool, ToolChoice
from dragoman._ir.undo import Undo
from dragoman._transforms.tool_names_and_ids import fit_call_id, fit_name, fits_names
from dragoman._transforms.tools import fit_tools
from dragoman.codec import Capabilities, ToolLimits

PLAIN = ToolLimits(custom=False)
STRICT = ToolLimits(max_name=128, max_call_id=None, call_id_chars=True, custom=False)
CUSTOM = ToolLimits(custom=True, custom_by_default=True)
LETTER = ToolLimits(letter_first=True)
SPACES = ToolLimits(custom=True, custom_by_default=True, namespaces=True)


def request(
    *tools: Tool, parts: tuple[ToolCall | ToolResult | Text, ...] = (), choice: ToolChoice | None = None
) -> Request:
    messages = (Message("assistant", parts),) if parts else ()
    return Request(protocol="toy", model="m", messages=messages, tools=tools, tool_choice=choice)


def fitted(
    requested: Request, rule: ToolLimits, capabilities: Capabilities = Capabilities()
) -> tuple[Request, Undo, Ledger]:
    ledger = Ledger()
    context = pass_context(requested, ledger, capabilities, limits=rule)
    return fit_tools(requested, context), context.undo, ledger


# Names


NAMES: list[tuple[str, str | None, ToolLimits, str]] = [
    ("look", None, PLAIN, "look"),
    ("a-b_C9", None, PLAIN, "a-b_C9"),
    ("n" * 64, None, PLAIN, "n" * 64),
    ("n" * 65, None, PLAIN, "n" * 55 + "_*"),
    ("n" * 65, None, STRICT, "n" * 65),
    ("fs.read", None, PLAIN, "fs_read_*"),
    ("fs/read", None, PLAIN, "fs_read_*"),
    ("größe", None, PLAIN, "gr__e_*"),
    ("", None, PLAIN, "_*"),
    ("read", "fs", PLAIN, "fs__read"),
    ("read", "fs.2", PLAIN, "fs_2__read_*"),
    ("read", "f" * 64, PLAIN, "f" * 55 + "_*"),
    ("read", "fs", SPACES, "read"),
    ("re.ad", "fs", SPACES, "re_ad_*"),
    ("9a", None, PLAIN, "9a"),
    ("9a", None, LETTER, "_9a_*"),
    ("-a", None, LETTER, "_-a_*"),
    (".a", None, LETTER, "_a_*"),
    ("_a", None, LETTER, "_a"),
    ("9" * 64, None, LETTER, "_" + "9" * 54 + "_*"),
]


def test_fit_name(subtests: pytest.Subtests) -> None:
    for name, namespace, rule, wire in NAMES:
        with subtests.test(name=name, wire=wire):
            found = fit_name(name, namespace, rule)
            assert re.fullmatch(re.escape(wire).replace(r"\*", "[0-9a-f]{8}"), found)
            assert len(found) <= rule.max_name
            assert fit_name(name, namespace, rule) == found


def test_different_names_stay_different() -> None:
    names = ["fs.read", "fs/read", "fs read", "n" * 65, "n" * 66, "n" * 64 + "m", "\ud83d", "\ude00"]
    assert len({fit_name(name, None, PLAIN) for name in names}) == len(names)


@PROPERTY
@given(
    st.lists(
        st.text("aZ1_-. ", max_size=12) | st.text("a1", min_size=60, max_size=70), min_size=1, max_size=3
    )
)
def test_names_fit_together_if_each_fits(names: list[str]) -> None:
    for limits in (PLAIN, STRICT, LETTER):
        assert fits_names(names, limits) == all(fit_name(each, None, limits) == each for each in names)


@PROPERTY
@given(
    st.text(max_size=90), st.none() | st.text(max_size=90), st.sampled_from([PLAIN, STRICT, CUSTOM, SPACES])
)
def test_i20_names_on_the_wire_are_allowed(name: str, namespace: str | None, rule: ToolLimits) -> None:
    wire = fit_name(name, namespace, rule)
    assert re.fullmatch(r"[a-zA-Z0-9_-]+", wire)
    assert len(wire) <= rule.max_name


# Call ids


CALL_IDS: list[tuple[str, ToolLimits, str]] = [
    ("call_1", PLAIN, "call_1"),
    ("bash:0", PLAIN, "bash:0"),
    ("bash:0", STRICT, "bash_0_*"),
    ("c" * 64, PLAIN, "c" * 64),
    ("c" * 65, PLAIN, "c" * 55 + "_*"),
    ("c" * 256, STRICT, "c" * 256),
    ("c" * 257, STRICT, "c" * 247 + "_*"),
    ("call|fc_1", STRICT, "call_fc_1_*"),
    ("", STRICT, "_*"),
]


def test_fit_call_id(subtests: pytest.Subtests) -> None:
    for call_id, rule, wire in CALL_IDS:
        with subtests.test(call_id=call_id, wire=wire):
            assert re.fullmatch(re.escape(wire).replace(r"\*", "[0-9a-f]{8}"), fit_call_id(call_id, rule))


# Custom tools


PATCH = CustomTool("patch", "Changes files.", path="/tools/0")
CALL = ToolCall("c1", "patch", 'a "b"\n', ToolKind.CUSTOM, path="/messages/0/parts/0")
RESULT = ToolResult("c1", (Text("ok"),), ToolKind.CUSTOM)


def test_the_same_conversation_gives_the_same_bytes() -> None:
    requested = request(FunctionTool("a.b"), PATCH, parts=(CALL, RESULT, ToolCall("x:y", "a.b", "{}")))
    assert fitted(requested, STRICT)[0] == fitted(requested, STRICT)[0]


@pytest.mark.parametrize("rule", [PLAIN, STRICT, CUSTOM, SPACES])
def test_a_longer_conversation_is_mapped_the_same_way(rule: ToolLimits) -> None:
    def turn(call_id: str, name: str, namespace: str | None = None) -> tuple[Message, ...]:
        call = Message("assistant", (ToolCall(call_id, name, "{}", namespace=namespace),))
        return call, Message("user", (ToolResult(call_id, (Text("a"),)),))

    turns = (turn("c", "look"), turn("c.1", "lo.ok"), turn("d", "look", "fs"))
    user_turn = (Message("user", (Text("go on"),)),)
    requested = Request(protocol="toy", model="m", messages=sum((*turns, user_turn, *turns), ()))
    out, undo, _ = fitted(requested, rule)
    assert out.messages[:6] == out.messages[7:]
    assert out.messages[6] is user_turn[0]
    assert out.messages[7:9] == turns[0]  # nothing to change
    for call, result in zip(out.messages[::2][:3], out.messages[1::2][:3], strict=True):
        assert call.parts[0].call_id == result.parts[0].call_id  # type: ignore[union-attr]
    assert undo.used_ids == {"c", "c.1", "d"}


# Tools that the client runs, of a kind that other protocols do not have


SHELL = HostedTool(
    "toy", "shell", {"type": "shell"}, "/tools/0", function_fallback=FunctionTool("shell", "Runs.")
)
ODD = HostedTool("toy", "run_2", {"type": "run_2"}, "/tools/1", function_fallback=FunctionTool("run.2"))


def test_no_fallback_function_where_the_upstream_has_the_tool() -> None:
    requested = request(SHELL, ODD)
    ledger = Ledger()
    context = pass_context(requested, ledger, limits=PLAIN, upstream=toy())
    fitted = fit_tools(requested, context)
    assert (fitted.tools, context.undo, len(ledger)) == (requested.tools, Undo(), 0)


# Lists of allowed tools
