"""Tools, names and call ids as a target takes them, and the book for the way back."""

import re

import msgspec
import pytest
from core.chop import PROPERTY
from core.passes import pass_context
from core.toy_protocol import toy
from hypothesis import given
from hypothesis import strategies as st

from dragoman._ir.events import ToolKind
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Message, Request, Text, ToolCall, ToolResult
from dragoman._ir.tools import (
    CodeExecution,
    CustomTool,
    FunctionTool,
    Grammar,
    HostedTool,
    Tool,
    ToolChoice,
    ToolRef,
    WebSearch,
)
from dragoman._ir.undo import ToolOrigin, Undo
from dragoman._transforms.tools import fit_call_id, fit_name, fit_tools
from dragoman._wire.exceptions import RequestRefused
from dragoman.codec import Capabilities, ToolLimits

PLAIN = ToolLimits(custom=False)
STRICT = ToolLimits(max_name=128, max_call_id=None, call_id_chars=True, custom=False)
CUSTOM = ToolLimits(custom=True, custom_by_default=True)
SPACES = ToolLimits(custom=True, custom_by_default=True, namespaces=True)
FUNCTION = ToolKind.FUNCTION


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
    ("", None, PLAIN, ""),
    ("read", "fs", PLAIN, "fs__read"),
    ("read", "fs.2", PLAIN, "fs_2__read_*"),
    ("read", "f" * 64, PLAIN, "f" * 55 + "_*"),
    ("read", "fs", SPACES, "read"),
    ("re.ad", "fs", SPACES, "re_ad_*"),
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
    st.text(max_size=90), st.none() | st.text(max_size=90), st.sampled_from([PLAIN, STRICT, CUSTOM, SPACES])
)
def test_names_on_the_wire_are_allowed(name: str, namespace: str | None, rule: ToolLimits) -> None:
    wire = fit_name(name, namespace, rule)
    assert re.fullmatch(r"[a-zA-Z0-9_-]*", wire)
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
    ("", STRICT, ""),
]


def test_fit_call_id(subtests: pytest.Subtests) -> None:
    for call_id, rule, wire in CALL_IDS:
        with subtests.test(call_id=call_id, wire=wire):
            assert re.fullmatch(re.escape(wire).replace(r"\*", "[0-9a-f]{8}"), fit_call_id(call_id, rule))


ODD_IDS = ["call_1", "bash:0", "bash_0", "c" * 80, "c" * 81, "é", "\ud83d"]


@pytest.mark.parametrize("rule", [PLAIN, STRICT, CUSTOM], ids=["plain", "strict", "custom"])
def test_call_and_result_keep_the_same_id(rule: ToolLimits) -> None:
    parts: tuple[ToolCall | ToolResult, ...] = ()
    for each in ODD_IDS:
        parts += (ToolCall(each, "look", "{}"), ToolResult(each, ()))
    out, undo, _ = fitted(request(parts=parts), rule)
    found = [part.call_id for part in out.messages[0].parts]  # type: ignore[union-attr]
    assert found[0::2] == found[1::2] == [fit_call_id(each, rule) for each in ODD_IDS]
    assert len(set(found)) == len(ODD_IDS)
    assert undo.used_ids == frozenset(ODD_IDS)  # the client's own ids: those that it pairs by


# What need not change does not


def test_tools_that_fit_are_unchanged() -> None:
    requested = request(
        FunctionTool("look"),
        HostedTool("toy", "web_search", {"type": "web_search"}),
        parts=(Text("a"), ToolCall("c1", "look", "{}"), ToolResult("c1", (Text("b"),))),
        choice=ToolChoice("named", name="look"),
    )
    out, undo, ledger = fitted(requested, PLAIN)
    assert out == requested
    assert out.messages[0] is requested.messages[0]
    assert (out.tools[0], undo.origins, len(ledger)) == (requested.tools[0], {}, 0)


def test_an_empty_request() -> None:
    out, undo, _ = fitted(request(), PLAIN)
    assert (out, undo) == (request(), Undo())


# Names of tools, calls and choices change together


def test_a_renamed_function() -> None:
    wire = fit_name("fs.read", None, PLAIN)
    requested = request(
        FunctionTool("fs.read", "Reads.", {"type": "object"}, path="/tools/0"),
        FunctionTool("look"),
        parts=(ToolCall("c1", "fs.read", '{"a":1}'), ToolCall("c2", "look", "{}")),
        choice=ToolChoice("named", name="fs.read"),
    )
    out, undo, ledger = fitted(requested, PLAIN)
    assert out.tools == (
        FunctionTool(wire, "Reads.", {"type": "object"}, path="/tools/0"),
        FunctionTool("look"),
    )
    assert out.messages[0].parts == (ToolCall("c1", wire, '{"a":1}'), ToolCall("c2", "look", "{}"))
    assert out.tool_choice == ToolChoice("named", name=wire)
    assert undo.origins == {wire: ToolOrigin("fs.read", None, FUNCTION, wrapped=False)}
    assert len(ledger) == 0


def test_a_namespace_without_namespaces() -> None:
    requested = request(
        FunctionTool("read", namespace="fs"),
        CustomTool("edit", namespace="fs"),
        parts=(ToolCall("c1", "read", "{}", namespace="fs"),),
        choice=ToolChoice("named", name="read", namespace="fs"),
    )
    out, undo, _ = fitted(requested, CUSTOM)
    assert out.tools == (FunctionTool("fs__read"), CustomTool("fs__edit"))
    assert out.messages[0].parts == (ToolCall("c1", "fs__read", "{}"),)
    assert out.tool_choice == ToolChoice("named", name="fs__read")
    assert undo.origins == {
        "fs__read": ToolOrigin("read", "fs", FUNCTION, wrapped=False),
        "fs__edit": ToolOrigin("edit", "fs", ToolKind.CUSTOM, wrapped=False),
    }


def test_a_namespace_with_namespaces() -> None:
    tools = (FunctionTool("read", namespace="fs"), FunctionTool("read", namespace="db"), FunctionTool("read"))
    requested = request(*tools, parts=(ToolCall("c1", "read", "{}", namespace="db"),))
    out, undo, _ = fitted(requested, SPACES)
    assert (out, undo.origins) == (requested, {})


@pytest.mark.parametrize("rule", [PLAIN, SPACES], ids=["flat", "spaces"])
def test_collisions(rule: ToolLimits) -> None:
    """A tool has the name that another tool's name is mapped to: the later one gets another name."""
    shortened = fit_name("fs.read", None, rule)
    requested = request(
        FunctionTool("fs.read"),
        FunctionTool(shortened),
        parts=(ToolCall("c1", "fs.read", "{}"), ToolCall("c2", shortened, "{}")),
    )
    out, undo, _ = fitted(requested, rule)
    first, second = (tool.name for tool in out.tools)  # type: ignore[union-attr]
    assert first == shortened
    assert second != shortened
    assert [part.name for part in out.messages[0].parts] == [first, second]  # type: ignore[union-attr]
    assert {wire: origin.name for wire, origin in undo.origins.items()} == {
        first: "fs.read",
        second: shortened,
    }


def test_a_flattened_name_collides_with_a_plain_one() -> None:
    requested = request(FunctionTool("fs__read"), FunctionTool("read", namespace="fs"))
    out, undo, _ = fitted(requested, PLAIN)
    first, second = (tool.name for tool in out.tools)  # type: ignore[union-attr]
    assert first == "fs__read"
    assert re.fullmatch("fs__read_[0-9a-f]{8}", second)
    assert undo.origins == {second: ToolOrigin("read", "fs", FUNCTION, wrapped=False)}


CHOICES: dict[str, tuple[ToolChoice | None, ToolChoice | None]] = {
    "none at all": (None, None),
    "auto": (ToolChoice("auto"), ToolChoice("auto")),
    "required": (ToolChoice("required", path="/c"), ToolChoice("required", path="/c")),
    "named": (ToolChoice("named", name="x.y"), ToolChoice("named", name=fit_name("x.y", None, PLAIN))),
    "named custom": (
        ToolChoice("named", name="patch", kind=ToolKind.CUSTOM),
        ToolChoice("named", name="patch"),
    ),
    "allowed": (
        ToolChoice(
            "allowed", allowed=(ToolRef("x.y"), ToolRef("patch", kind=ToolKind.CUSTOM)), required=True
        ),
        ToolChoice(
            "allowed", allowed=(ToolRef(fit_name("x.y", None, PLAIN)), ToolRef("patch")), required=True
        ),
    ),
}


@pytest.mark.parametrize(("choice", "expected"), CHOICES.values(), ids=CHOICES)
def test_choices(choice: ToolChoice | None, expected: ToolChoice | None) -> None:
    out, _, _ = fitted(request(FunctionTool("x.y"), CustomTool("patch"), choice=choice), PLAIN)
    assert out.tool_choice == expected


# Custom tools


PATCH = CustomTool("patch", "Changes files.", path="/tools/0")
CALL = ToolCall("c1", "patch", 'a "b"\n', ToolKind.CUSTOM, path="/messages/0/parts/0")
RESULT = ToolResult("c1", (Text("ok"),), ToolKind.CUSTOM)


def test_custom_tools_become_functions() -> None:
    out, undo, ledger = fitted(request(PATCH, parts=(CALL, RESULT)), PLAIN)
    [tool] = out.tools
    assert isinstance(tool, FunctionTool)
    assert (tool.name, tool.parameters["required"]) == ("patch", ["input"])
    assert out.messages[0].parts == (
        ToolCall("c1", "patch", '{"input":"a \\"b\\"\\n"}', path="/messages/0/parts/0"),
        ToolResult("c1", (Text("ok"),)),
    )
    assert undo.origins == {"patch": ToolOrigin("patch", None, ToolKind.CUSTOM, wrapped=True)}
    assert len(ledger) == 0


def test_a_grammar_cannot_be_enforced() -> None:
    tool = CustomTool("patch", grammar=Grammar("lark", "start: /x/"), path="/tools/0")
    out, _, ledger = fitted(request(tool), PLAIN)
    assert "start: /x/" in out.tools[0].description  # type: ignore[operator, union-attr]
    assert [(loss.code, loss.path) for loss in ledger] == [(LossCode.ALTERED, "/tools/0/format")]


@pytest.mark.parametrize(
    ("rule", "reported", "stays"),
    [
        (ToolLimits(custom=False), None, False),
        (ToolLimits(custom=False), True, False),  # the protocol has no such thing
        (ToolLimits(custom=True), None, False),
        (ToolLimits(custom=True), True, True),
        (CUSTOM, None, True),
        (CUSTOM, True, True),
        (CUSTOM, False, False),
    ],
)
def test_which_upstreams_accept_custom_tools(rule: ToolLimits, reported: bool | None, stays: bool) -> None:
    requested = request(PATCH, parts=(CALL, RESULT))
    out, undo, _ = fitted(requested, rule, Capabilities(custom_tools=reported))
    assert (out == requested) is stays
    assert bool(undo.origins) is not stays


def test_a_named_choice_of_a_custom_tool_that_stays() -> None:
    choice = ToolChoice("named", name="x.y", kind=ToolKind.CUSTOM)
    out, _, _ = fitted(request(CustomTool("x.y"), choice=choice), CUSTOM)
    wire = fit_name("x.y", None, CUSTOM)
    assert out.tool_choice == ToolChoice("named", name=wire, kind=ToolKind.CUSTOM)


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


def test_a_result_without_its_call_keeps_an_id_that_is_allowed() -> None:
    requested = request(parts=(ToolResult("lost", (Text("a"),)),))
    assert fitted(requested, STRICT)[0].messages == requested.messages


# Tools that the client runs, of a kind that other protocols do not have


SHELL = HostedTool(
    "toy", "shell", {"type": "shell"}, "/tools/0", function_fallback=FunctionTool("shell", "Runs.")
)
ODD = HostedTool("toy", "run_2", {"type": "run_2"}, "/tools/1", function_fallback=FunctionTool("run.2"))
SEARCH = HostedTool("toy", "web_search", {"type": "web_search"}, "/tools/2")
SEARCHES = HostedTool("toy", "web_search", {"type": "web_search"}, "/tools/2", use=WebSearch())
SANDBOX = HostedTool("toy", "code", {"type": "code"}, "/tools/3", use=CodeExecution())
RUNS_SEARCHES = Capabilities(hosted_tools=frozenset({"web_search"}))


def test_no_fallback_function_where_the_upstream_has_the_tool() -> None:
    requested = request(SHELL, ODD)
    ledger = Ledger()
    context = pass_context(requested, ledger, limits=PLAIN, upstream=toy())
    fitted = fit_tools(requested, context)
    assert (fitted.tools, context.undo, len(ledger)) == (requested.tools, Undo(), 0)


def test_fallback_functions_replace_them() -> None:
    out, undo, ledger = fitted(request(SHELL, ODD, SEARCH), PLAIN)
    wire = fit_name("run.2", None, PLAIN)
    assert out.tools == (FunctionTool("shell", "Runs."), FunctionTool(wire), SEARCH)
    assert undo.origins == {
        "shell": ToolOrigin("shell", None, ToolKind.FUNCTION, wrapped=False, hosted="shell"),
        wire: ToolOrigin("run.2", None, ToolKind.FUNCTION, wrapped=False, hosted="run_2"),
    }
    assert [(loss.code, loss.path) for loss in ledger] == [
        (LossCode.ALTERED, "/tools/0"),
        (LossCode.ALTERED, "/tools/1"),
    ]


@pytest.mark.parametrize("first", ["client", "vendor"])
@pytest.mark.parametrize("kind", ["function", "custom", "vendor"])
def test_a_function_with_the_name_of_a_fallback_function_is_another_tool(kind: str, first: str) -> None:
    """Two tools of one name: the later one gets a hash, and calls in the history belong to the right one."""
    namesakes: dict[str, Tool] = {
        "function": FunctionTool("shell", "Own."),
        "custom": CustomTool("shell", "Own."),
        "vendor": HostedTool(
            "toy", "shell_2", {}, "/tools/1", function_fallback=FunctionTool("shell", "Own.")
        ),
    }
    client_tool = namesakes[kind]
    hosted = client_tool.kind if isinstance(client_tool, HostedTool) else None
    calls = (ToolCall("c1", "shell", "{}", hosted="shell"), ToolCall("c2", "shell", "{}", hosted=hosted))
    tools = (client_tool, SHELL) if first == "client" else (SHELL, client_tool)
    out, undo, _ = fitted(request(*tools, parts=calls), PLAIN)
    wires = {
        ("Own." in (tool.description or "")): tool.name
        for tool in out.tools
        if isinstance(tool, FunctionTool)
    }
    assert wires.keys() == {True, False}
    assert [part.name for part in out.messages[0].parts if isinstance(part, ToolCall)] == [
        wires[False],
        wires[True],
    ]
    assert wires[first == "client"] == "shell"
    assert re.fullmatch("shell_[0-9a-f]{8}", wires[first != "client"])
    assert undo.origins[wires[False]].hosted == "shell"
    if wires[True] in undo.origins:  # a function under its own name needs no entry
        assert undo.origins[wires[True]].hosted == hosted
        assert undo.origins[wires[True]].name == "shell"
    else:
        assert (kind, first) == ("function", "client")


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (ToolChoice("named", hosted="shell", path="/c"), ToolChoice("named", "shell", path="/c")),
        (ToolChoice("named", hosted="web_search"), ToolChoice("named", hosted="web_search")),
        (
            ToolChoice("allowed", allowed=(ToolRef("", hosted="shell"), ToolRef("", hosted="web_search"))),
            ToolChoice("allowed", allowed=(ToolRef("shell"), ToolRef("", hosted="web_search"))),
        ),
    ],
)
def test_choices_of_hosted_tools_that_do_not_run(choice: ToolChoice, expected: ToolChoice) -> None:
    out, _, _ = fitted(request(SHELL, SEARCHES, choice=choice), PLAIN, RUNS_SEARCHES)
    assert out.tool_choice == expected


LOOK = FunctionTool("look")


def allowed(*kinds: str) -> ToolChoice:
    return ToolChoice("allowed", allowed=tuple(ToolRef("", hosted=kind) for kind in kinds))


@pytest.mark.parametrize(
    ("tools", "choice", "capabilities", "refused"),
    [
        pytest.param((SEARCH,), None, RUNS_SEARCHES, "tools[2]", id="a tool that nobody else has"),
        pytest.param((SEARCHES,), None, Capabilities(), "tools[2]", id="the only tool"),
        ((SEARCHES,), ToolChoice("required"), Capabilities(), "tools[2]"),
        ((SEARCHES, SANDBOX), ToolChoice("auto"), Capabilities(), "tools[2]"),
        ((SEARCHES,), None, RUNS_SEARCHES, None),
        ((SEARCHES, SANDBOX), None, RUNS_SEARCHES, None),
        ((SEARCHES, LOOK), None, Capabilities(), None),
        ((SEARCHES, LOOK), ToolChoice("required"), Capabilities(), None),
        ((SHELL,), None, Capabilities(), None),
        ((LOOK,), None, Capabilities(), None),
        pytest.param((SEARCHES,), ToolChoice("none"), Capabilities(), None, id="no tool may be called"),
        pytest.param(
            (LOOK, SEARCHES, SANDBOX),
            ToolChoice("named", hosted="code"),
            Capabilities(),
            "tools[3]",
            id="the demanded tool",
        ),
        ((LOOK, SEARCHES), ToolChoice("named", "look"), Capabilities(), None),
        ((LOOK, SEARCHES), ToolChoice("named", hosted="web_search"), RUNS_SEARCHES, None),
        pytest.param(
            (LOOK, SEARCHES), allowed("web_search"), Capabilities(), "tools[2]", id="the only allowed tool"
        ),
        ((LOOK, SEARCHES, SHELL), allowed("web_search", "shell"), Capabilities(), None),
        ((LOOK, SEARCHES), allowed(), Capabilities(), None),
    ],
)
def test_a_request_whose_tool_the_upstream_does_not_run(
    tools: tuple[Tool, ...], choice: ToolChoice | None, capabilities: Capabilities, refused: str | None
) -> None:
    requested = request(*tools, choice=choice)
    if refused is None:
        fitted(requested, CUSTOM, capabilities)
        return
    with pytest.raises(RequestRefused, match="the upstream does not run") as caught:
        fitted(requested, CUSTOM, capabilities)
    assert (caught.value.param, caught.value.status, caught.value.code) == (refused, 400, "unsupported_value")


def test_a_protocol_may_have_no_form_for_a_hosted_tool() -> None:
    rule = ToolLimits(hosted_tools=frozenset({"web_search"}))
    runs_all = Capabilities(hosted_tools=frozenset({"web_search", "code_execution"}))
    fitted(request(SEARCHES), rule, runs_all)
    with pytest.raises(RequestRefused, match="does not run code"):
        fitted(request(SANDBOX), rule, runs_all)


def test_allowed_custom_tools_stay_custom_where_they_are_accepted() -> None:
    choice = ToolChoice("allowed", allowed=(ToolRef("x.y", kind=ToolKind.CUSTOM),))
    out, _, _ = fitted(
        request(CustomTool("x.y"), choice=choice), ToolLimits(), Capabilities(custom_tools=True)
    )
    assert out.tool_choice is not None
    assert out.tool_choice.allowed == (ToolRef(fit_name("x.y", None, PLAIN), kind=ToolKind.CUSTOM),)


@pytest.mark.parametrize("call_id", ["abcDEF123", "call_0", "", "toolu_01ABC", "abcdefgh_"])
def test_ids_of_nine_letters_and_digits(call_id: str) -> None:
    found = fit_call_id(call_id, PLAIN, "alnum9")
    assert re.fullmatch("[a-zA-Z0-9]{9}", found)
    assert (found == call_id) is (call_id == "abcDEF123")
    assert fit_call_id(call_id, PLAIN, "alnum9") == found
    call, result = ToolCall(call_id, "f", "{}"), ToolResult(call_id, ())
    out, _, _ = fitted(request(parts=(call, result)), PLAIN, Capabilities(call_ids="alnum9"))
    assert [part.call_id for part in out.messages[0].parts] == [found, found]  # type: ignore[union-attr]


# Lists of allowed tools

F, G = FunctionTool("f", path="/tools/0"), FunctionTool("g", path="/tools/1")
NO_LISTS = ToolLimits(allowed=False)


@pytest.mark.parametrize(
    ("refs", "required", "names", "mode", "losses"),
    [
        ((ToolRef("g"),), False, ["g"], "auto", ["/tools/0", "/tools/2"]),
        ((ToolRef("g"),), True, ["g"], "required", ["/tools/0", "/tools/2"]),
        ((ToolRef("f"), ToolRef("", hosted="web_search")), False, ["f", "web_search"], "auto", ["/tools/1"]),
        ((ToolRef("g"), ToolRef("h")), False, ["g"], "auto", ["/tools/0", "/tools/2", "/tool_choice"]),
        ((ToolRef("g", "ns"),), True, [], "required", ["/tools/0", "/tools/1", "/tools/2", "/tool_choice"]),
    ],
)
def test_without_allowed_tools_the_other_tools_are_dropped(
    refs: tuple[ToolRef, ...], required: bool, names: list[str], mode: str, losses: list[str]
) -> None:
    requested = request(F, G, SEARCHES, choice=ToolChoice("allowed", allowed=refs, required=required))
    for rule, capabilities in (
        (NO_LISTS, RUNS_SEARCHES),
        (ToolLimits(), msgspec.structs.replace(RUNS_SEARCHES, refuses=frozenset({"allowed_tools"}))),
    ):
        out, _, ledger = fitted(requested, rule, capabilities)
        sent = [tool.kind if isinstance(tool, HostedTool) else tool.name for tool in out.tools]
        assert (sent, out.tool_choice) == (names, ToolChoice(mode))  # type: ignore[arg-type]
        assert [(loss.code, loss.path) for loss in ledger] == [(LossCode.DROPPED, path) for path in losses]
    out, _, ledger = fitted(requested, ToolLimits(), RUNS_SEARCHES)
    assert (out.tool_choice, list(ledger)) == (requested.tool_choice, [])
