"""The losses of a request that leaves its protocol, whatever the upstream's protocol is."""

import msgspec
import pytest
from core.passes import pass_context

from dragoman._ir.losses import Ledger, Loss, LossCode
from dragoman._ir.request import (
    Media,
    Message,
    OpaquePart,
    Param,
    Reasoning,
    ReasoningConfig,
    Refusal,
    Request,
    ResponseFormat,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman._ir.tools import CustomTool, FunctionTool, HostedTool, Namespace, Tool, ToolChoice, ToolRef
from dragoman._transforms.extensions import refuse_server_state, strip_extensions
from dragoman._wire.exceptions import RequestRefused

X = {"x": 1}


def left(request: Request) -> tuple[Request, list[tuple[LossCode, str]]]:
    ledger = Ledger()
    out = strip_extensions(request, pass_context(request, ledger))
    return out, [(loss.code, loss.path) for loss in ledger]


def request(*messages: Message, tools: tuple[Tool, ...] = (), **more: object) -> Request:
    return Request(protocol="toy", model="m", messages=messages, tools=tools, **more)  # type: ignore[arg-type]


def test_parts_of_every_protocol_are_no_losses() -> None:
    requested = request(
        Message("user", (Text("a"), Media("image", "url", "https://x"))),
        Message("assistant", (Reasoning("t"), Refusal("r"), ToolCall("c", "look", "{}"))),
        Message("user", (ToolResult("c", (Text("b"),)),)),
        tools=(FunctionTool("look"), CustomTool("run"), HostedTool("toy", "search", {})),
        reasoning=ReasoningConfig(effort="low"),
        response_format=ResponseFormat(),
    )
    out, losses = left(requested)
    assert out is requested
    assert losses == []


def test_references_to_the_vendors_store_are_refused() -> None:
    held: dict[Param, str] = {"thread": "no_thread"}
    refuse_server_state(request(params={"temperature": 1}), held)
    requested = request(params={"thread": {"id": 1}}, param_paths={"thread": "/more/thread"})
    with pytest.raises(RequestRefused, match=r"^more\.thread: .* send all its messages") as caught:
        refuse_server_state(requested, held)
    error = caught.value
    assert (error.status, error.code, error.path) == (400, "no_thread", "/more/thread")


def test_every_unknown_field_is_recorded_once() -> None:
    requested = request(
        Message(
            "user",
            (
                Text("a", native=X, shape={}, path="/m/0/0"),
                Media("image", "url", "u", native=X, shape={}, path="/m/0/1"),
                ToolResult(
                    "c",
                    (Text("b", native=X, shape={}, path="/m/0/2/0"), Text("c")),
                    native=X,
                    shape={},
                    path="/m/0/2",
                ),
            ),
            path="/m/0",
            native={"x": 1, "y/z": 2},
            shape={},
        ),
        Message(
            "assistant",
            (
                Reasoning("t", native=X, shape={}, path="/m/1/0"),
                Refusal("r", native=X, shape={}, path="/m/1/1"),
                ToolCall("c", "look", "{}", native=X, shape={}, path="/m/1/2"),
            ),
        ),
        tools=(
            FunctionTool("look", native=X, shape={}, path="/t/0"),
            CustomTool("run", native=X, shape={}, path="/t/1"),
            HostedTool("toy", "search", {"x": 1}, path="/t/2"),
        ),
        reasoning=ReasoningConfig(extra=X, path="/r"),
        response_format=ResponseFormat(extra=X, path="/f"),
        extra=X,
    )
    out, losses = left(requested)
    assert out is requested
    paths = [path for _, path in losses]
    assert paths == [
        *["/x", "/t/0/x", "/t/1/x", "/r/x", "/f/x", "/m/0/x", "/m/0/y~1z", "/m/0/0/x", "/m/0/1/x"],
        *["/m/0/2/0/x", "/m/0/2/x", "/m/1/0/x", "/m/1/1/x", "/m/1/2/x"],
    ]
    assert {code for code, _ in losses} == {LossCode.UNKNOWN_FIELD}


def test_fields_of_the_own_protocol_are_not_unknown() -> None:
    defined = frozenset({"caller", "edits"})
    requested = request(
        Message(
            "assistant",
            (ToolCall("c", "look", "{}", native={"caller": "code", "x": 1}, shape={}, path="/m/0/0"),),
        ),
        extra={"management": {"edits": [], "caller": 1}, "other": {"edits": [], "x": 1}, "empty": {}},
        defined=defined,
    )
    _, losses = left(requested)
    assert losses == [
        (LossCode.DROPPED, "/management"),
        (LossCode.UNKNOWN_FIELD, "/other"),
        (LossCode.UNKNOWN_FIELD, "/empty"),
        (LossCode.DROPPED, "/m/0/0/caller"),
        (LossCode.UNKNOWN_FIELD, "/m/0/0/x"),
    ]


def test_corrections_by_the_reader_are_recorded() -> None:
    # Also where the request stays in its protocol, unless what was read is sent as it came.
    repairs = Loss(LossCode.REPAIRED, "/tools/0", "in another form"), Loss(LossCode.ALTERED, "/t", "moved")
    both = [(loss.code, loss.path) for loss in repairs]
    assert left(request(repairs=repairs))[1] == both
    ledger = Ledger()
    strip_extensions(request(repairs=repairs), pass_context(request(), ledger, rewritten=True))
    assert [(loss.code, loss.path) for loss in ledger] == both[:1]


def test_namespaces_are_taken_apart() -> None:
    requested = request(
        namespaces=(
            Namespace("Files.", native=X, shape={}, path="/t/0"),
            Namespace(path="/t/1"),
        )
    )
    _, losses = left(requested)
    assert losses == [(LossCode.DROPPED, "/t/0/description"), (LossCode.UNKNOWN_FIELD, "/t/0/x")]


def test_parts_without_a_counterpart_leave_their_text() -> None:
    has_content = OpaquePart("toy", "search_result", {"t": "w"}, "/p", text="words")
    mute = OpaquePart("toy", "blob", {"b": 1}, "/q")
    plain = Text("words", path="/p", rendered=True)
    quiet = Message("user", (Text("a"), mute, ToolResult("c", (mute,))))
    requested = request(
        quiet,
        Message("user", (Text("a"), has_content, mute, has_content)),
        Message("user", (ToolResult("c", (Text("b"), has_content)), ToolResult("d", (Text("b"),)))),
    )
    out, losses = left(requested)
    assert out.messages[0] is quiet
    assert out.messages[1].parts == (Text("a"), plain, mute, plain)
    assert out.messages[2].parts == (ToolResult("c", (Text("b"), plain)), ToolResult("d", (Text("b"),)))
    assert losses == [(LossCode.ALTERED, "/p")]


def test_a_message_of_one_text_is_passed_over_unless_it_has_unknown_fields() -> None:
    plain, odd = (
        Message("user", (Text("a"),)),
        Message("user", (Text("b", native=X, shape={}, path="/m/1/0"),)),
    )
    out, losses = left(request(plain, odd))
    assert out.messages == (plain, odd)
    assert losses == [(LossCode.UNKNOWN_FIELD, "/m/1/0/x")]


def test_content_for_the_provider_is_dropped() -> None:
    header = OpaquePart("toy", "header", {}, "/system/0", text="")
    out, losses = left(request(Message("system", (header, Text("Be brief."))), Message("user", (Text("a"),))))
    assert out.messages == (Message("system", (Text("Be brief."),)), Message("user", (Text("a"),)))
    assert losses == [(LossCode.DROPPED, "/system/0")]


LATE, OTHER = FunctionTool("late", path="/t/0", deferred=True), FunctionTool("other", path="/t/1")
CALL = Message("assistant", (ToolCall("c", "late", "{}"),))
SEARCHES = HostedTool("toy", "tool_search_tool_bm25", {}, "/t/2")
CLIENT_SEARCHES = HostedTool("toy", "tool_search", {}, "/t/2", function_fallback=FunctionTool("tool_search"))
LOADED = msgspec.structs.replace(LATE, deferred=False)


@pytest.mark.parametrize(
    ("requested", "tools"),
    [
        pytest.param(request(tools=(LATE, OTHER)), (OTHER,), id="nothing has found it"),
        (request(tools=(LATE, CLIENT_SEARCHES)), (CLIENT_SEARCHES,)),
        pytest.param(request(tools=(LATE, SEARCHES)), (LATE, SEARCHES), id="nothing else would find it"),
        pytest.param(request(CALL, tools=(LATE, OTHER)), (LATE, OTHER), id="it was called"),
        (request(tools=(LATE, OTHER), tool_choice=ToolChoice("named", "late")), (LATE, OTHER)),
        (request(tools=(LATE,), tool_choice=ToolChoice("allowed", allowed=(ToolRef("late"),))), (LATE,)),
        (request(tools=(LOADED, OTHER)), (LOADED, OTHER)),
    ],
)
def test_a_tool_whose_loading_is_deferred_waits_until_it_is_found(
    requested: Request, tools: tuple[Tool, ...]
) -> None:
    out, losses = left(requested)
    assert out.tools == tools
    assert losses == ([(LossCode.DROPPED, "/t/0")] if len(tools) < len(requested.tools) else [])
