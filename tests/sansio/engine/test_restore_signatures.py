"""Requests that are relayed with signatures in them that were wrapped for clients of another protocol.

What is special in one protocol is in the rows of its restored.txt.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from core.toy_protocol import toy
from oracle import CHAT, GEMINI, MESSAGES, PROTOCOL_NAMES, RESPONSES

from dragoman._engine.request import RequestTranslator, TranslatedRequest
from dragoman._ir.events import Signature
from dragoman._ir.losses import LossCode, LossPolicy
from dragoman._ir.undo import Undo
from dragoman._ir.wrapped_signatures import SEPARATOR, Signer
from dragoman._wire.exceptions import RequestRefused
from dragoman._wire.json import decode, encode
from dragoman._wire.splice import peek
from dragoman.codec import Capabilities, SignaturePlaces

SIGNER = Signer(b"a secret")
MODEL = "upstream-model"

# What each vendor makes, and the place in a body where a client sends its own objects of that kind.
NATIVE: dict[str, dict[str, Any]] = {
    CHAT: {"type": "reasoning.encrypted", "data": "Z29vZ2xl", "format": "google-gemini-v1", "index": 0},
    MESSAGES: {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
    RESPONSES: {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "Y2lwaGVy"},
    GEMINI: {"text": "Hm.", "thought": True, "thoughtSignature": "c2ln"},
}
AT = {
    CHAT: "/messages/1/reasoning_details",
    MESSAGES: "/messages/1/content",
    RESPONSES: "/input",
    GEMINI: "/contents/1/parts",
}
FIRST = {CHAT: 0, MESSAGES: 0, RESPONSES: 1, GEMINI: 0}


def signed(protocol: str, model: str = "") -> Signature:
    """Return a signature as the protocol's reader of responses makes it."""
    native = NATIVE[protocol]
    return Signature(protocol, {"reasoning_details": [native]} if protocol == CHAT else native, model)


def wrapped(protocol: str, signature: Signature, signer: Signer = SIGNER) -> str:
    """Return the text that a client of the protocol got in place of the signature. Gemini's fields hold bytes."""
    return signer.wrap_list([signature]) if protocol == GEMINI else signer.wrap(signature)


FORGED = "drg1.bm8"
TEXT = {"type": "text", "text": "a"}


def forged(protocol: str) -> str:
    return "ZHJnMS5XMTA=" if protocol == GEMINI else FORGED


def carrier(protocol: str, text: str) -> dict[str, Any]:
    """Return an object in which a client of the protocol sends a wrapped signature back."""
    if protocol == CHAT:
        return {"type": "reasoning.encrypted", "data": text, "format": "dragoman-v1", "index": 0}
    if protocol == MESSAGES:
        return {"type": "thinking", "thinking": "Hm.", "signature": text}
    if protocol == GEMINI:
        return {"text": "", "thoughtSignature": text}
    return {
        "type": "reasoning",
        "id": "rs_x7",
        "summary": [],
        "encrypted_content": text,
        "status": "completed",
    }


def body_of(protocol: str, objects: Sequence[Any]) -> dict[str, Any]:
    """Return a body with these objects in their place, and all kinds of other values around them."""
    odd: dict[str, Any] = {"type": "odd", "deep": [{"number": 1.50, "nothing": None}]}
    body: dict[str, Any] = {
        "zeta": odd,
        "temperature": 1.0,
        "model": "alias",
        "tools": [odd],
        "nothing": None,
    }
    if protocol == RESPONSES:
        turn = {"role": "assistant", "content": [{"type": "text", "text": "Hm.", "logprobs": []}], "new": 1}
        more: list[Any] = [turn, {"type": "web_search_call", "id": "ws_1"}, {"role": "user"}]
        items = [{"role": "user", "content": "Hi"}, *objects, *more]
        return {**body, "input": items, "tool_choice": {"type": "function", "function": {"name": "g"}}}
    if protocol == GEMINI:
        parts: list[Any] = [*objects, {"text": "Hm.", "new": 1}, odd]
        turns = [{"role": "user", "parts": [{"text": "Hi"}]}, {"role": "model", "parts": parts, "new": 1}]
        del body["model"]  # it is in the path
        return {**body, "contents": [*turns, {"role": "user"}], "generationConfig": {"stopSequences": ["a"]}}
    parts = [{"type": "text", "text": "Hm.", "new": 1}, odd]
    turn = {"role": "assistant", "content": [*objects, *parts], "new": 1}
    if protocol == CHAT:
        turn = {"role": "assistant", "content": parts, "reasoning_content": "Hm.", "new": 1}
        turn["function_call"] = {"name": "f", "arguments": "{}"}
        if objects:
            turn["reasoning_details"] = list(objects)
    question = {"role": "user", "content": [{"type": "text", "text": "Hi"}], "name": None}
    more = [
        {"role": "system", "content": ""},
        {"role": "user", "content": []},
        {"role": "user", "content": "x"},
        {"role": "user"},
    ]
    return {**body, "system": [odd], "messages": [question, turn, *more], "stop_sequences": ["a"]}


def relayed(protocol: str, body: dict[str, Any], **options: Any) -> TranslatedRequest:
    capabilities = options.pop("capabilities", Capabilities())
    policy = options.pop("policy", LossPolicy.RECORD)
    translator = RequestTranslator(
        client=protocol, upstream=protocol, signer=SIGNER, capabilities=capabilities, policy=policy
    )
    data = encode(body)
    head = peek(data, "" if "model" in body else "alias")  # otherwise the path has it
    return translator.translate(data, **{"model": MODEL, "request_head": head, **options})


def sent(protocol: str, objects: Sequence[Any]) -> bytes:
    """Return the body that the upstream is to get."""
    body = body_of(protocol, objects)
    return encode({**body, "model": MODEL} if "model" in body else body)


def losses_of(out: TranslatedRequest) -> list[tuple[LossCode, str]]:
    return [(loss.code, loss.path) for loss in out.losses]


OTHER = {CHAT: MESSAGES, MESSAGES: RESPONSES, RESPONSES: GEMINI, GEMINI: CHAT}


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_what_the_vendor_signed_is_put_back_and_every_other_byte_stays(protocol: str) -> None:
    objects = [carrier(protocol, wrapped(protocol, signed(protocol, MODEL)))]
    out = relayed(protocol, body_of(protocol, objects))
    assert out.body == sent(protocol, [NATIVE[protocol]])
    assert losses_of(out) == []
    assert (out.relayed, out.rewritten, out.headers, out.undo) == (True, False, (), Undo())
    assert (out.upstream_model, out.request.model, out.request.stream) == (MODEL, "alias", False)
    assert out.prompt_tokens == len(encode(body_of(protocol, objects))) // 4


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@pytest.mark.parametrize("by", ["another vendor", "another model", "nobody", "another secret"])
def test_what_the_upstream_cannot_read_is_dropped_and_recorded(protocol: str, by: str) -> None:
    text = {
        "another vendor": wrapped(protocol, signed(OTHER[protocol], MODEL)),
        "another model": wrapped(protocol, signed(protocol, "another")),
        "nobody": forged(protocol),
        "another secret": wrapped(protocol, signed(protocol, MODEL), Signer(b"another")),
    }[by]
    out = relayed(protocol, body_of(protocol, [NATIVE[protocol], carrier(protocol, text)]))
    assert out.body == sent(protocol, [NATIVE[protocol]])
    assert losses_of(out) == [(LossCode.FOREIGN_SIGNATURE, f"{AT[protocol]}/{FIRST[protocol] + 1}")]


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_a_signature_alone_leaves_no_empty_list(protocol: str) -> None:
    out = relayed(protocol, body_of(protocol, [carrier(protocol, forged(protocol))]))
    assert out.body == sent(protocol, [])


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_what_the_upstream_has_refused_is_left_out(protocol: str) -> None:
    body = body_of(
        protocol, [NATIVE[protocol], carrier(protocol, wrapped(protocol, signed(protocol, MODEL)))]
    )
    out = relayed(protocol, body, signed_reasoning=False)
    # A part is there for its text, too.
    assert out.body == sent(protocol, [{"text": "Hm.", "thought": True}] if protocol == GEMINI else [])
    paths = [f"{AT[protocol]}/{FIRST[protocol] + number}" for number in (0, 1)]
    assert losses_of(out) == [(LossCode.FOREIGN_SIGNATURE, path) for path in paths]


REWRITTEN = Capabilities(relay="rewrite")


@pytest.mark.parametrize("signed_reasoning", [True, False])
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_a_request_that_is_rewritten_has_its_signatures_restored_first(
    protocol: str, signed_reasoning: bool
) -> None:
    restorable = carrier(protocol, wrapped(protocol, signed(protocol, MODEL)))
    foreign = carrier(protocol, wrapped(protocol, signed(OTHER[protocol], MODEL)))
    hi = {"role": "user", "content": "Hi"}
    turn: dict[str, Any] = {"role": "assistant", "content": "a"}
    expected = [NATIVE[protocol]] if signed_reasoning else []
    body: dict[str, Any]
    if protocol == RESPONSES:
        body = {"model": "m", "input": [hi, foreign, restorable, turn]}
    elif protocol == CHAT:
        body = {"model": "m", "messages": [hi, {**turn, "reasoning_details": [foreign, restorable]}]}
    elif protocol == GEMINI:
        parts = [foreign, restorable, {"text": "a"}]
        contents = [{"role": "user", "parts": [{"text": "Hi"}]}, {"role": "model", "parts": parts}]
        body = {"contents": contents}
    else:
        turn_of = {"role": "assistant", "content": [foreign, restorable, TEXT]}
        body = {"model": "m", "max_tokens": 9, "messages": [hi, turn_of, hi]}
    out = relayed(protocol, body, capabilities=REWRITTEN, signed_reasoning=signed_reasoning)
    received = decode(out.body)
    assert out.rewritten
    if protocol == RESPONSES:
        assert received["input"][1:-1] == expected
    elif protocol == CHAT:
        assert received["messages"][1].get("reasoning_details", []) == expected
    elif protocol == GEMINI:
        assert received["contents"][1]["parts"] == [*expected, {"text": "a"}]
    else:
        assert received["messages"][1]["content"] == [*expected, TEXT]
    codes = [LossCode.FOREIGN_SIGNATURE] * (1 if signed_reasoning else 2)
    assert [code for code, _ in losses_of(out)] == codes


def test_a_text_of_a_rewritten_request_is_not_split_where_reasoning_stood() -> None:
    entry = {**carrier(CHAT, SIGNER.wrap(signed(MESSAGES, MODEL))), "id": "drg-1-0"}
    turn = {"role": "assistant", "content": "ab", "reasoning_details": [entry]}
    out = relayed(CHAT, {"model": "m", "messages": [turn]}, capabilities=REWRITTEN)
    assert decode(out.body)["messages"] == [{"role": "assistant", "content": "ab"}]


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_nothing_is_decoded_without_wrapped_signatures(protocol: str) -> None:
    out = relayed(protocol, body_of(protocol, [NATIVE[protocol]]))
    assert out.body == sent(protocol, [NATIVE[protocol]])
    assert (out.relayed, losses_of(out)) == (True, [])


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_a_gateway_gets_its_own_wrapped_signatures_back(protocol: str) -> None:
    body = body_of(protocol, [carrier(protocol, wrapped(protocol, signed(OTHER[protocol], MODEL)))])
    out = relayed(protocol, body, capabilities=Capabilities(unwraps_signatures=True), model=None)
    assert (out.body, losses_of(out)) == (encode(body), [])


def test_without_another_name_the_model_is_the_clients() -> None:
    body = body_of(MESSAGES, [carrier(MESSAGES, SIGNER.wrap(signed(MESSAGES, "alias")))])
    out = relayed(MESSAGES, body, model=None)
    assert (decode(out.body)["model"], out.upstream_model, losses_of(out)) == ("alias", "alias", [])


def test_losses_can_be_refused() -> None:
    with pytest.raises(RequestRefused, match="strict mode"):
        relayed(MESSAGES, body_of(MESSAGES, [carrier(MESSAGES, FORGED)]), policy=LossPolicy.REFUSE)


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_a_model_is_required(protocol: str) -> None:
    body = {**body_of(protocol, [carrier(protocol, forged(protocol))]), "model": ""}
    with pytest.raises(RequestRefused, match="model is required"):
        relayed(protocol, body, model=None)


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@pytest.mark.parametrize(
    "conversation", [None, "drg1.", 5, [None, "drg1."], [{"content": FORGED}], [[FORGED]]]
)
def test_a_body_that_breaks_the_protocol_is_for_the_upstream_to_refuse(
    protocol: str, conversation: Any
) -> None:
    body = {"model": MODEL, "messages": conversation, "input": conversation, "text": FORGED}
    assert relayed(protocol, body, signed_reasoning=False).body == encode(body)


@pytest.mark.parametrize("bound", [True, False])
def test_a_protocol_says_where_its_signatures_are(bound: bool) -> None:
    """By default an object is replaced by what its signature wraps."""
    places = SignaturePlaces(members=("parts",), fields={"thought": "seal"})
    spec = toy("toy", signature_places=places, model_bound_signatures=bound)
    wrapped = [
        SIGNER.wrap(Signature("toy", {"n": number}, model)) for number, model in enumerate(("", "other"))
    ]
    parts = ["text", {"seal": FORGED}, *({"type": "thought", "seal": each} for each in wrapped)]
    body = {"model": MODEL, "messages": [{"role": "assistant", "parts": parts}]}
    out = RequestTranslator(client=spec, upstream=spec, signer=SIGNER).translate(encode(body))
    remaining = [{"n": 0}] if bound else [{"n": 0}, {"n": 1}]
    assert decode(out.body)["messages"][0]["parts"] == ["text", {"seal": FORGED}, *remaining]
    assert losses_of(out) == ([(LossCode.FOREIGN_SIGNATURE, "/messages/0/parts/3")] if bound else [])


def test_a_signature_of_gemini_that_a_client_has_made_up_has_no_text() -> None:
    made_up = Signature(GEMINI, {"of": "text"}, MODEL)
    out = relayed(GEMINI, body_of(GEMINI, [carrier(GEMINI, wrapped(GEMINI, made_up))]))
    assert out.body == sent(GEMINI, [carrier(GEMINI, "") | {"thoughtSignature": None}])


def test_the_end_of_a_text_is_no_loss() -> None:
    carriers = [carrier(GEMINI, wrapped(GEMINI, each)) for each in (SEPARATOR, signed(MESSAGES))]
    out = relayed(GEMINI, body_of(GEMINI, [{"text": "a"}, *({**each, "text": ""} for each in carriers)]))
    assert out.body == sent(GEMINI, [{"text": "a"}])
    assert losses_of(out) == [(LossCode.FOREIGN_SIGNATURE, f"{AT[GEMINI]}/2")]
