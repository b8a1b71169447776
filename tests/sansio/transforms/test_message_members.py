"""Names and phases of messages: dropped where the upstream lacks them, and phases put back that a client carried."""

import pytest
from core.passes import pass_context
from core.toy_protocol import toy

from dragoman._ir.events import Signature
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Message, Reasoning, Request, Text, ToolCall
from dragoman._ir.wrapped_signatures import phase_signature
from dragoman._transforms.message_members import fit_message_members
from dragoman.codec import Capabilities

BOTH = frozenset({"name", "phase"})
HI = Message("user", (Text("hi"),), "/0")
NAMED = Message("user", (Text("hi"),), "/0", name="ann")
PHASED = Message("assistant", (Text("a"),), "/1", phase="commentary")
CALL = ToolCall("c", "f", "{}")
HM = Reasoning("hm", Signature("upstream", {"sig": "x"}))


def carrier(phase: str) -> Reasoning:
    return Reasoning("", phase_signature(phase), path="/1/0")


def said(*parts: Text | Reasoning | ToolCall, phase: str | None = None) -> Message:
    return Message("assistant", parts, "/1", phase=phase)


FORGED = [
    said(Reasoning("", Signature("dragoman", native)), Text("a"))
    for native in ("x", {"phase": 1}, {"summary": "x"})
]


def fitted(
    *messages: Message, has: frozenset[str] = BOTH, refuses: frozenset[str] = frozenset()
) -> tuple[tuple[Message, ...], list[tuple[str, str]]]:
    ledger, request = Ledger(), Request("client", "m", messages)
    capabilities = Capabilities(refuses=refuses)
    context = pass_context(request, ledger, capabilities, upstream=toy("another", message_members=has))
    out = fit_message_members(request, context)
    assert (out is request) is (out.messages == messages)
    return out.messages, [(loss.code.value, loss.path) for loss in ledger]


@pytest.mark.parametrize(
    ("has", "refuses", "left", "lost"),
    [
        (BOTH, "", (NAMED, PHASED), []),
        ({"phase"}, "", (HI, PHASED), ["/0/name"]),
        ({"name"}, "", (NAMED, said(Text("a"))), ["/1/phase"]),
        ({}, "", (HI, said(Text("a"))), ["/0/name", "/1/phase"]),
        (BOTH, "message_name", (HI, PHASED), ["/0/name"]),
    ],
)
def test_members_that_the_upstream_lacks_or_refuses(
    has: set[str], refuses: str, left: tuple[Message, ...], lost: list[str]
) -> None:
    found = fitted(NAMED, PHASED, has=frozenset(has), refuses=frozenset({refuses}))
    assert found == (left, [("dropped", path) for path in lost])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (said(carrier("x"), Text("a"), CALL), [said(Text("a"), CALL, phase="x")]),
        (
            said(HM, carrier("x"), Text("a"), carrier("y"), Text("b"), CALL),
            [said(HM), said(Text("a"), phase="x"), said(Text("b"), CALL, phase="y")],
        ),
        # Of two for one text the nearest counts, and the first part keeps the phase that its message has.
        (
            said(Text("a"), carrier("x"), carrier("y"), Text("b"), phase="z"),
            [said(Text("a"), phase="z"), said(Text("b"), phase="y")],
        ),
        (said(carrier("x")), []),
        (said(HM, Text("a")), [said(HM, Text("a"))]),
        # Made by a client: not of the form that is sent to them.
        *[(message, [message]) for message in FORGED],
        (Message("user", (carrier("x"), Text("a"))), [Message("user", (carrier("x"), Text("a")))]),
    ],
)
def test_a_carried_phase_is_that_of_the_text_behind_it(before: Message, after: list[Message]) -> None:
    assert fitted(HI, before) == ((HI, *after), [])


def test_a_carried_phase_is_a_loss_where_there_are_none() -> None:
    found = fitted(said(carrier("x"), Text("a")), has=frozenset())
    assert found == ((said(Text("a")),), [("dropped", "/1/phase")])
