"""Requests that are relayed with signatures in them that were wrapped for clients of another protocol."""

from collections.abc import Sequence
from typing import Any

import pytest
from core.toy_protocol import toy
from oracle import CHAT, GEMINI, MESSAGES, PROTOCOL_NAMES, RESPONSES

from dragoman._engine.request import RequestTranslator, TranslatedRequest
from dragoman._ir.events import Signature
from dragoman._ir.losses import LossCode, LossPolicy
from dragoman._ir.undo import Undo
from dragoman._ir.wrapped_signatures import Signer
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


def test_of_native_blocks_only_an_object_is_put_back() -> None:
    wrapped = SIGNER.wrap(Signature(MESSAGES, "a text", MODEL))
    found = losses_of(relayed(MESSAGES, body_of(MESSAGES, [carrier(MESSAGES, wrapped)])))
    assert found == [(LossCode.FOREIGN_SIGNATURE, "/messages/1/content/0")]


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


# --- Messages ---


def turn(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


HI = {"role": "user", "content": "Hi"}
TEXT = {"type": "text", "text": "a"}
CALL = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "r"}]}
WRAPPED = carrier(MESSAGES, FORGED)


def conversation(*messages: Any) -> tuple[Any, list[tuple[LossCode, str]]]:
    """Return what the upstream gets of a Messages conversation, and the losses."""
    out = relayed(MESSAGES, {"model": "m", "max_tokens": 5000, "messages": list(messages)})
    return decode(out.body)["messages"], losses_of(out)


def test_a_turn_of_foreign_reasoning_only_is_left_out() -> None:
    found = conversation(HI, turn(WRAPPED), HI)
    assert found == ([HI, HI], [(LossCode.FOREIGN_SIGNATURE, "/messages/1/content/0")])


def test_reasoning_that_nobody_signed_stays_until_the_upstream_refuses_it() -> None:
    """Servers that sign nothing take it back. It passes where nothing else is wrapped, and so it passes here."""
    unsigned = {"type": "thinking", "thinking": "so", "signature": ""}
    lost = [(LossCode.FOREIGN_SIGNATURE, f"/messages/1/content/{at}") for at in (0, 1)]
    assert conversation(HI, turn(WRAPPED, unsigned, TEXT)) == ([HI, turn(unsigned, TEXT)], lost[:1])
    body = {"model": "m", "max_tokens": 5000, "messages": [HI, turn(WRAPPED, unsigned, TEXT)]}
    out = relayed(MESSAGES, body, signed_reasoning=False)
    assert (decode(out.body)["messages"], losses_of(out)) == ([HI, turn(TEXT)], lost)


def test_a_restored_block_has_no_cache_mark() -> None:
    """ "cache_control cannot be set on thinking blocks"."""
    wrapped = carrier(MESSAGES, SIGNER.wrap(signed(MESSAGES)))
    found = conversation(turn({**wrapped, "cache_control": {"type": "ephemeral"}}))
    assert found == ([turn(NATIVE[MESSAGES])], [(LossCode.DROPPED, "/messages/0/content/0/cache_control")])


def test_searches_that_were_made_for_the_client_are_left_out() -> None:
    use = {"type": "server_tool_use", "id": "srvtoolu_drg_x7_1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_drg_x7_1", "content": []}
    theirs = {**use, "id": "srvtoolu_1"}
    assert conversation(HI, turn(use, found, theirs, TEXT)) == ([HI, turn(theirs, TEXT)], [])


def summary_block(text: str, **fields: Any) -> dict[str, Any]:
    wrapped = SIGNER.wrap(Signature("dragoman", {"summary": text}))
    return {"type": "compaction", "content": text, "encrypted_content": wrapped, **fields}


def test_a_conversation_starts_at_its_last_summary() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    first = turn(summary_block("old"))
    second = turn(TEXT, summary_block("new", **mark), CALL)
    start = {"type": "text", "text": "Summary of the conversation so far:\nnew", **mark}
    found = conversation(HI, first, HI, second, RESULT)
    assert found == ([{"role": "user", "content": [start]}, turn(CALL), RESULT], [])
    assert conversation(HI, turn(summary_block("new")), HI)[0][1:] == [HI]


def test_a_summary_of_the_vendor_or_of_another_gateway_stays() -> None:
    theirs = turn({"type": "compaction", "content": "x", "encrypted_content": "theirs"})
    forged = turn(summary_block("x", encrypted_content=FORGED))
    assert conversation(HI, theirs, HI, forged) == ([HI, theirs, HI, forged], [])


@pytest.mark.parametrize(
    ("thinking", "messages", "stays"),
    [
        ("enabled", [HI, turn(WRAPPED, CALL), RESULT], False),
        ("enabled", [HI, turn(WRAPPED), turn(CALL), RESULT], False),
        ("enabled", [HI, turn(NATIVE[MESSAGES], WRAPPED, CALL), RESULT], True),
        ("enabled", [HI, turn(NATIVE[MESSAGES], WRAPPED), turn(CALL), RESULT], True),
        ("enabled", [HI, turn(WRAPPED, CALL), RESULT, turn(TEXT)], True),
        ("enabled", [HI, turn(WRAPPED, CALL), HI], True),
        ("enabled", [HI, turn(WRAPPED)], True),
        ("adaptive", [HI, turn(WRAPPED, CALL), RESULT], True),
    ],
)
def test_thinking_with_a_budget_is_dropped_in_a_tool_loop_whose_reasoning_is_lost(
    thinking: str, messages: list[Any], stays: bool
) -> None:
    """ "Expected `thinking` or `redacted_thinking`, but found ..."."""
    out = relayed(MESSAGES, {"messages": messages, "thinking": {"type": thinking}, "model": "m"})
    assert ("thinking" in decode(out.body)) is ("thinking" in out.members) is stays
    assert ((LossCode.ALTERED, "/thinking") in losses_of(out)) is not stays


# --- Responses ---


def items(*objects: Any) -> tuple[list[Any], list[tuple[LossCode, str]]]:
    """Return the items that the upstream gets, and the losses."""
    out = relayed(RESPONSES, {"model": "m", "input": list(objects)})
    return decode(out.body)["input"], losses_of(out)


def test_items_without_a_form_in_the_clients_protocol_are_put_back() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "created_by": "x"}
    wrapped = carrier(RESPONSES, SIGNER.wrap(Signature(RESPONSES, search)))
    assert items(wrapped) == ([{"type": "web_search_call", "id": "ws_1", "status": "completed"}], [])


@pytest.mark.parametrize(
    ("native", "code"),
    [
        ({"type": "message", "role": "system", "content": "x"}, LossCode.FOREIGN_SIGNATURE),
        ({"type": 5}, LossCode.FOREIGN_SIGNATURE),
        ({"type": "reasoning", "id": "rs_1", "summary": []}, LossCode.DROPPED),
    ],
)
def test_items_that_were_not_signed_or_refer_to_nothing_are_left_out(native: Any, code: LossCode) -> None:
    wrapped = carrier(RESPONSES, SIGNER.wrap(Signature(RESPONSES, native)))
    assert items(wrapped) == ([], [(code, "/input/0")])


def test_empty_fields_are_not_sent_back() -> None:
    native = {**NATIVE[RESPONSES], "id": "", "content": None}
    wrapped = carrier(RESPONSES, SIGNER.wrap(Signature(RESPONSES, native)))
    assert items(wrapped) == ([{"type": "reasoning", "summary": [], "encrypted_content": "Y2lwaGVy"}], [])


def test_a_summary_becomes_a_message_of_the_user() -> None:
    text = {"type": "input_text", "text": "Summary of the conversation so far:\nnew"}
    hi = {"role": "user", "content": "Hi"}
    theirs = {"type": "compaction", "id": "c", "encrypted_content": "theirs"}
    found = items(hi, summary_block("new"), theirs)
    assert found == ([hi, {"type": "message", "role": "user", "content": [text]}, theirs], [])


# --- Chat ---


def chat_turn(native: Any, entry_id: str | None = None, **fields: Any) -> tuple[Any, list[Any]]:
    """Return a turn as the upstream gets it, that has this for its own signature."""
    entry = carrier(CHAT, SIGNER.wrap(Signature(CHAT, native)))
    if entry_id is not None:
        entry["id"] = entry_id
    message = {"role": "assistant", "content": "x", **fields, "reasoning_details": [entry]}
    out = relayed(CHAT, {"model": "m", "messages": [message]})
    return decode(out.body)["messages"][0], losses_of(out)


def test_members_that_a_server_signed_stand_beside_the_clients() -> None:
    native = {"reasoning": "hm", "reasoning_details": [NATIVE[CHAT]], "thinking_blocks": [{"type": "x"}]}
    found = chat_turn(native, reasoning_content="hm")
    assert found == ({"role": "assistant", "content": "x", "reasoning_content": "hm", **native}, [])
    assert chat_turn({"reasoning": "hm"}, reasoning="as sent")[0]["reasoning"] == "as sent"


@pytest.mark.parametrize("content", ["x", [{"type": "text", "text": "x"}], None])
def test_thinking_in_the_content_comes_first(content: Any) -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "so"}]}
    text = [] if content is None else [{"type": "text", "text": "x"}]
    sent, losses = chat_turn({"content": [thinking, {"type": "text", "text": "forged"}]}, content=content)
    assert (sent, losses) == ({"role": "assistant", "content": [thinking, *text]}, [])


EXTRA = {"extra_content": {"google": {"thought_signature": "G"}}}


def tool_call(call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("signed_id", "entry_id", "marked"),
    [
        ("c2", None, "c2"),
        ("gone", None, "c1"),  # the ids have changed: then by position
        ("gone", "drg-0-1", "c2"),
        ("gone", "drg-0-2", None),
    ],
)
def test_members_of_calls_are_put_back_onto_them(
    signed_id: str, entry_id: str | None, marked: str | None
) -> None:
    calls = [tool_call("c1"), tool_call("c2")]
    sent, losses = chat_turn({"tool_calls_extra": {signed_id: EXTRA, "c1": 5}}, entry_id, tool_calls=calls)
    assert sent["tool_calls"] == [{**call, **EXTRA} if call["id"] == marked else call for call in calls]
    assert losses == ([(LossCode.DROPPED, "/messages/0/reasoning_details/0")] if marked is None else [])


def test_members_of_a_call_that_is_gone_are_a_loss() -> None:
    _, losses = chat_turn({"tool_calls_extra": {"c1": EXTRA}}, tool_calls={"c1": 1})
    assert losses == [(LossCode.DROPPED, "/messages/0/reasoning_details/0")]


def test_members_of_the_message_are_put_back() -> None:
    sent, _ = chat_turn(EXTRA, extra_content={"own": 1})
    assert sent["extra_content"] == {"own": 1, **EXTRA["extra_content"]}
