"""Wrapped signatures on their way to the client and back, and blocks that are kept in them."""

from typing import Any

import pytest
from core.events import STARTED, start_of
from core.passes import pass_context, through
from core.toy_protocol import toy

from dragoman._ir.events import (
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    Opaque,
    Search,
    Signature,
    SignatureDelta,
    Source,
    TextDelta,
)
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Message, Reasoning, Request, Text
from dragoman._ir.wrapped_signatures import phase_signature
from dragoman._transforms.signatures import MAX_WRAPPED_BYTES, SignatureStage, drop_foreign_signatures
from dragoman.codec import SignaturePlaces

UPSTREAM = toy("upstream")
LOOSE = toy("upstream", model_bound_signatures=False)
MINE = Signature("upstream", {"sig": "x"}, "big")
OTHERS = Signature("upstream", {"sig": "x"}, "small")
UNKNOWN = Signature("upstream", {"sig": "x"})
FOREIGN = Signature("elsewhere", {"sig": "x"}, "small")


def reasoning(signature: Signature | None) -> Reasoning:
    return Reasoning("hm", signature, path="/t")


@pytest.mark.parametrize(
    ("spec", "signature", "left"),
    [
        (UPSTREAM, MINE, MINE),
        (UPSTREAM, UNKNOWN, UNKNOWN),
        (UPSTREAM, FOREIGN, FOREIGN),  # the writer's business
        (UPSTREAM, None, None),
        (UPSTREAM, OTHERS, None),
        (LOOSE, OTHERS, OTHERS),
    ],
)
def test_c13_a_signature_is_sent_only_to_its_model(
    spec: Any, signature: Signature | None, left: Signature | None
) -> None:
    ledger = Ledger()
    messages = (Message("user", (Text("hi"),)), Message("assistant", (reasoning(signature), Text("a"))))
    request = Request("client", "big", messages)
    out = drop_foreign_signatures(request, pass_context(request, ledger, upstream=spec))
    assert out.messages == (messages[0], Message("assistant", (reasoning(left), Text("a"))))
    assert (out is request) is (left is signature)
    losses = [(loss.code, loss.path) for loss in ledger]
    assert losses == ([] if left is signature else [(LossCode.FOREIGN_SIGNATURE, "/t")])


@pytest.mark.parametrize(
    ("signature", "left"), [(MINE, None), (UNKNOWN, None), (OTHERS, None), (FOREIGN, FOREIGN), (None, None)]
)
def test_refused_reasoning_is_dropped_whatever_model_made_it(
    signature: Signature | None, left: Signature | None
) -> None:
    ledger = Ledger()
    request = Request("client", "big", (Message("assistant", (reasoning(signature), Text("a"))),))
    out = drop_foreign_signatures(
        request, pass_context(request, ledger, upstream=UPSTREAM, signed_reasoning=False)
    )
    assert out.messages == (Message("assistant", (reasoning(left), Text("a"))),)
    losses = [(loss.code, loss.path) for loss in ledger]
    assert losses == ([] if left is signature else [(LossCode.FOREIGN_SIGNATURE, "/t")])


@pytest.mark.parametrize("spec", [UPSTREAM, LOOSE], ids=["pinned", "loose"])
def test_a_forged_signature_is_always_a_loss(spec: Any) -> None:
    ledger = Ledger()
    forged = Reasoning("hm", None, path="/t", forged=True)
    turns = (Message("assistant", (Text("a"),)), Message("assistant", (Text("a"), forged)))
    request = Request("client", "big", turns)
    assert drop_foreign_signatures(request, pass_context(request, ledger, upstream=spec)) is request
    assert [(loss.code, loss.path) for loss in ledger] == [(LossCode.FOREIGN_SIGNATURE, "/t")]


def staged(
    events: list[Event], *, model: str = "big", **habits: Any
) -> tuple[list[Event], list[tuple[LossCode, str]]]:
    ledger = Ledger()
    stage = SignatureStage(toy("client", **habits), model, ledger)
    out = through(stage, events)
    return out, [(loss.code, loss.path) for loss in ledger]


@pytest.mark.parametrize(
    ("model", "marked"), [("asked", Signature("upstream", {"sig": "x"}, "asked")), ("", MINE)]
)
def test_signatures_name_the_model_that_was_requested(model: str, marked: Signature) -> None:
    events: list[Event] = [STARTED, start_of(BlockKind.REASONING), SignatureDelta(0, MINE), BlockEnded(0)]
    out, losses = staged(events, model=model)
    assert out == [*events[:2], SignatureDelta(0, marked), events[3]]
    assert losses == []


FOUND = Search(("what",), (Source("https://a.example", "A"),))
BLOCK = Opaque("upstream", "thing", {"n": 1}, "/blocks/3", 2)
SEARCH = Opaque("upstream", "search", {"n": 1}, "/blocks/3", search=FOUND)
ASIDE = Opaque("upstream", "progress", {"n": 1}, "/blocks/3", round_trip=False)
LARGE = Opaque("upstream", "picture", {"data": "x" * MAX_WRAPPED_BYTES}, "/blocks/3")
OPAQUE = Opaque("client", "thing", {"n": 1})


def wrapped(opaque: Opaque, block: int = 1 << 40, model: str = "big") -> list[Event]:
    return [
        BlockStarted(block, BlockKind.REASONING, opaque.choice),
        SignatureDelta(block, Signature("upstream", opaque.native, model)),
        BlockEnded(block),
    ]


RELAYS = {"returns_signatures": True}
SHOWS = {"shows_searches": True}


@pytest.mark.parametrize(
    ("event", "habits", "expected", "code"),
    [
        (OPAQUE, RELAYS, [OPAQUE], None),
        (BLOCK, RELAYS, wrapped(BLOCK), LossCode.WRAPPED),
        (BLOCK, {}, [], LossCode.UNKNOWN_KIND),
        (BLOCK, SHOWS, [], LossCode.UNKNOWN_KIND),
        (SEARCH, RELAYS, wrapped(SEARCH), LossCode.WRAPPED),
        (SEARCH, RELAYS | SHOWS, [*wrapped(SEARCH), SEARCH], LossCode.WRAPPED),
        (SEARCH, SHOWS, [SEARCH], LossCode.ALTERED),
        (ASIDE, RELAYS, [], LossCode.UNKNOWN_KIND),
        (LARGE, RELAYS, [], LossCode.DROPPED),
    ],
)
def test_blocks_without_a_form(
    event: Opaque, habits: dict[str, Any], expected: list[Event], code: LossCode | None
) -> None:
    assert staged([event], **habits) == (expected, [] if code is None else [(code, "/blocks/3")])


def test_each_signature_has_its_own_block() -> None:
    out, _ = staged([BLOCK, TextDelta(0, "a"), BLOCK], model="", **RELAYS)
    assert out == [*wrapped(BLOCK, model=""), TextDelta(0, "a"), *wrapped(BLOCK, (1 << 40) + 1, model="")]


def phased(block: int, item: str | None, phase: str | None = "commentary") -> BlockStarted:
    return BlockStarted(block, BlockKind.TEXT, 1, item_id=item, phase=phase, path="/blocks/3")


def carried(block: int, phase: str = "commentary") -> list[Event]:
    signature = SignatureDelta(block, phase_signature(phase))
    return [BlockStarted(block, BlockKind.REASONING, 1), signature, BlockEnded(block)]


AT = 1 << 40


@pytest.mark.parametrize(
    ("events", "habits", "expected", "codes"),
    [
        ([phased(0, "a")], {"message_members": {"phase"}}, [phased(0, "a")], []),
        ([phased(0, "a")], {}, [phased(0, "a", None)], [LossCode.DROPPED]),
        ([phased(0, "a")], RELAYS, [*carried(AT), phased(0, "a", None)], [LossCode.WRAPPED]),
        # Blocks of one item have one phase, and each other item has its own, be it the same.
        (
            [phased(0, "a"), phased(1, "a"), phased(2, "b")],
            RELAYS,
            [*carried(AT), phased(0, "a", None), phased(1, "a", None), *carried(AT + 1), phased(2, "b", None)],
            [LossCode.WRAPPED],
        ),
        (
            [phased(0, None), phased(1, None, "final_answer")],
            RELAYS,
            [*carried(AT), phased(0, None, None), *carried(AT + 1, "final_answer"), phased(1, None, None)],
            [LossCode.WRAPPED],
        ),
    ],
)  # fmt: skip
def test_a_phase_goes_before_its_message(
    events: list[Event], habits: dict[str, Any], expected: list[Event], codes: list[LossCode]
) -> None:
    assert staged(events, model="", **habits) == (expected, [(code, "/blocks/3/phase") for code in codes])


def test_reasoning_without_its_signature_stays_whatever_was_refused() -> None:
    upstream = toy("upstream", signature_places=SignaturePlaces(fields={"thought": "sealed"}))
    for native, stays in (
        ({"type": "thought", "sealed": None}, True),
        ({"type": "thought", "sealed": "x"}, False),
        ({"type": "other"}, False),
        ("x", False),
    ):
        part = reasoning(Signature("upstream", native))
        request = Request("client", "big", (Message("assistant", (part,)),))
        context = pass_context(request, upstream=upstream, signed_reasoning=False)
        assert (drop_foreign_signatures(request, context) is request) is stays, native
