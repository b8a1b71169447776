"""Conversations as clients of each protocol send them: a script of turns, and the bodies of its requests.

A script says nothing of a protocol. Each request of a client has the whole script up to one of its turns, so it begins
with the request before. What real histories have is in it: tools of both kinds, results with images, results that are
missing, late or doubled, ids that come again or are too long, reasoning with and without signatures, system texts in
between, blank texts, and cache marks that move with the end.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
from hypothesis import strategies as st
from oracle import CHAT, GEMINI, MESSAGES, PROTOCOL_NAMES, RESPONSES

from dragoman import Signer
from dragoman._ir.events import Signature

SIGNER = Signer(b"secret of a test of prompt caches")
PICTURE = "iVBORw0KGgo="
MODEL = "the-model"


class Turn(NamedTuple):
    """What the client's side says and what the model answers, then the results of its calls by their numbers.

    system: a text in mid-conversation, before the user's. calls: pairs of an id and a tool.
    results: positions of calls, in the order in which they come back; -1 is of a call that is not there.
    """

    user: tuple[str, ...]
    system: str
    reasoning: str
    text: tuple[str, ...]
    calls: tuple[tuple[str, str], ...]
    results: tuple[int, ...]
    result: str


class Script(NamedTuple):
    """marks: the client marks its last message for the cache. system: the instructions."""

    system: tuple[str, ...]
    turns: tuple[Turn, ...]
    marks: bool


TEXTS = st.sampled_from(["hi", "do it\nnow", 'é "quoted"', "", " ", "<system>"])
IDS = st.sampled_from(["a", "b", "call_1", "call.1", "x" * 80, "toolu_01", "a_2"])
TOOLS = st.sampled_from(["read", "shell.run", "apply", "t" * 70])
USER = st.one_of(TEXTS, st.sampled_from(["image", "document"]).map("!{}".format))
SIGNED = ["", "plain", "own", *[f"wrapped {name}" for name in PROTOCOL_NAMES], "foreign", "forged"]


@st.composite
def _turns(draw: st.DrawFn) -> Turn:
    calls = draw(st.lists(st.tuples(IDS, TOOLS), max_size=3))
    results = draw(
        st.one_of(st.just(list(range(len(calls)))), st.lists(st.integers(-1, len(calls) - 1), max_size=3))
    )
    return Turn(
        tuple(draw(st.lists(USER, max_size=2))),
        draw(st.sampled_from(["", "", "", "a reminder"])),
        draw(st.sampled_from(SIGNED)),
        tuple(draw(st.lists(TEXTS, max_size=2))),
        tuple(calls),
        tuple([each for each in results if each < len(calls)]),
        draw(st.sampled_from(["done", "", "error", "image"])),
    )


def _spoken(turns: list[Turn]) -> tuple[Turn, ...]:
    """Return the turns, each with a visible text if no result comes: else a request would end with the model's own."""
    answered = [False, *[any(at >= 0 for at in turn.results) for turn in turns]]
    return tuple(
        [
            turn if has_result else turn._replace(user=("go on", *turn.user))
            for turn, has_result in zip(turns, answered, strict=False)
        ]
    )


SCRIPTS = st.builds(
    Script,
    st.lists(st.sampled_from(["be brief", "you are a tool"]), max_size=2).map(tuple),
    st.lists(_turns(), min_size=2, max_size=12).map(_spoken),
    st.booleans(),
)


def requests(
    script: Script, client: str, signer: Signer = SIGNER, more: Mapping[str, Any] | None = None
) -> list[bytes]:
    """Return the bodies that a client sends, one for each turn. more: members of each."""
    make = {CHAT: _chat, MESSAGES: _messages, RESPONSES: _responses, GEMINI: _gemini}[client]
    bodies = []
    for end in range(1, len(script.turns) + 1):
        body = make(script, script.turns[:end], signer)
        if body is not None:
            bodies.append(json.dumps({**body, **(more or {})}).encode())
    return bodies


def _signature(kind: str, client: str, signer: Signer) -> str:
    """Return a wrapped signature: of an upstream's protocol, of another model, or one that nobody made here."""
    natives: dict[str, Any] = {
        CHAT: {"reasoning_content": "hm"},
        MESSAGES: {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        RESPONSES: {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "Y2lwaGVy"},
        GEMINI: {"of": "functionCall", "thoughtSignature": "c2ln"},
    }
    if kind == "forged":
        return "drg1.bm8.no"
    name = {"own": client, "foreign": MESSAGES}.get(kind) or kind.partition(" ")[2]
    return signer.wrap(Signature(name, natives[name], "another" if kind == "foreign" else MODEL))


def _result_ids(turn: Turn) -> list[tuple[str, str]]:
    return [turn.calls[at] if at >= 0 else ("nobody", "read") for at in turn.results]


def is_from_client(item: dict[str, Any]) -> bool:
    """True if the client's side makes such an item of Responses."""
    return item.get("role") in ("user", "developer") or item.get("type", "").endswith("_output")


# The protocols. The model's side of a turn belongs to the request after it.


def _chat(script: Script, turns: tuple[Turn, ...], signer: Signer) -> dict[str, Any] | None:
    messages: list[dict[str, Any]] = [{"role": "system", "content": text} for text in script.system]
    pictured = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}
    document = {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,aGk="}}
    for at, turn in enumerate(turns):
        if turn.system and at:
            messages.append({"role": "developer", "content": turn.system})
        for text in turn.user:
            part = {"!image": pictured, "!document": document}.get(text)
            content: Any = text if part is None else [{"type": "text", "text": "see"}, part]
            messages.append({"role": "user", "content": content})
        if at == len(turns) - 1:
            break
        answer: dict[str, Any] = {"role": "assistant", "content": "\n".join(turn.text) or None}
        if turn.reasoning == "plain":
            answer["reasoning_content"] = "hm"
        elif turn.reasoning:
            entry = {
                "type": "reasoning.encrypted",
                "data": _signature(turn.reasoning, CHAT, signer),
                "index": 0,
            }
            answer["reasoning_details"] = [entry]
        if turn.calls:
            answer["tool_calls"] = [
                {"id": call, "type": "custom", "custom": {"name": name, "input": "*** patch"}}
                if name == "apply"
                else {"id": call, "type": "function", "function": {"name": name, "arguments": '{"n": 1.0}'}}
                for call, name in turn.calls
            ]
        elif answer["content"] is None:
            answer["content"] = ""
        messages.append(answer)
        for call, _ in _result_ids(turn):
            output: Any = [{"type": "text", "text": "seen"}] if turn.result == "image" else turn.result
            messages.append({"role": "tool", "tool_call_id": call, "content": output})
    tools: list[Any] = [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
        for name in ("read", "shell.run", "t" * 70)
    ]
    tools.append({"type": "custom", "custom": {"name": "apply"}})
    if not messages or messages[-1]["role"] not in ("user", "tool"):
        return None
    return {"model": MODEL, "messages": messages, "tools": tools, "stream": True}


def _messages(script: Script, turns: tuple[Turn, ...], signer: Signer) -> dict[str, Any] | None:
    messages: list[dict[str, Any]] = []
    pictured = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}}
    content: list[Any] = []
    for at, turn in enumerate(turns):
        for text in turn.user:
            content.append(
                {"!image": pictured, "!document": document}.get(text) or {"type": "text", "text": text}
            )
        if content:
            messages.append({"role": "user", "content": content})
        if turn.system and at:
            messages.append({"role": "system", "content": turn.system})
        if at == len(turns) - 1:
            break
        blocks: list[Any] = []
        if turn.reasoning:
            native = {"plain": "", "own": "c2ln"}.get(turn.reasoning)
            signature = _signature(turn.reasoning, MESSAGES, signer) if native is None else native
            blocks.append({"type": "thinking", "thinking": "hm", "signature": signature})
        blocks += [{"type": "text", "text": text} for text in turn.text]
        blocks += [
            {"type": "tool_use", "id": call, "name": name, "input": {"n": 1.0}} for call, name in turn.calls
        ]
        if blocks:
            messages.append({"role": "assistant", "content": blocks})
        content = [
            {
                "type": "tool_result",
                "tool_use_id": call,
                "content": [pictured] if turn.result == "image" else turn.result,
                **({"is_error": True} if turn.result == "error" else {}),
            }
            for call, _ in _result_ids(turn)
        ]
    if (
        not messages
        or messages[-1]["role"] not in ("user", "system")
        or (len(messages) == 1 and not turns[0].user)
    ):
        return None
    system: list[Any] = [{"type": "text", "text": text} for text in script.system]
    if script.marks and type(messages[-1]["content"]) is list:
        # The content is shared with no other request: each is made anew.
        messages[-1]["content"][-1] = {**messages[-1]["content"][-1], "cache_control": {"type": "ephemeral"}}
        if system:
            system[-1]["cache_control"] = {"type": "ephemeral"}
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in ("read", "shell_run", "apply")]
    return {
        "model": MODEL,
        "max_tokens": 5000,
        **({"system": system} if system else {}),
        "messages": messages,
        "tools": tools,
    }


def _responses(script: Script, turns: tuple[Turn, ...], signer: Signer) -> dict[str, Any] | None:
    items: list[Any] = []
    pictured = {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PICTURE}"}
    document = {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGk="}
    for at, turn in enumerate(turns):
        if turn.system and at:
            items.append({"type": "message", "role": "developer", "content": turn.system})
        for text in turn.user:
            part = {"!image": pictured, "!document": document}.get(text)
            content: Any = text if part is None else [{"type": "input_text", "text": "see"}, part]
            items.append({"role": "user", "content": content})
        if at == len(turns) - 1:
            break
        if turn.reasoning:
            cipher = {"plain": None, "own": "Y2lwaGVy"}.get(turn.reasoning, "")
            items.append(
                {
                    "type": "reasoning",
                    "id": f"rs_{at}",
                    "summary": [{"type": "summary_text", "text": "hm"}],
                    "encrypted_content": _signature(turn.reasoning, RESPONSES, signer)
                    if cipher == ""
                    else cipher,
                }
            )
        for text in turn.text:
            items.append(
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": text, "annotations": []}],
                }
            )
        for call, name in turn.calls:
            items.append(
                {"type": "custom_tool_call", "call_id": call, "name": name, "input": "*** patch"}
                if name == "apply"
                else {"type": "function_call", "call_id": call, "name": name, "arguments": '{"n": 1.0}'}
            )
        for call, name in _result_ids(turn):
            kind = "custom_tool_call_output" if name == "apply" else "function_call_output"
            items.append(
                {
                    "type": kind,
                    "call_id": call,
                    "output": [pictured] if turn.result == "image" else turn.result,
                }
            )
    if not items or not is_from_client(items[-1]):
        return None
    tools: list[Any] = [
        {
            "type": "function",
            "name": name,
            "parameters": {"type": "object", "properties": {}},
            "strict": False,
        }
        for name in ("read", "shell.run", "t" * 70)
    ]
    tools.append({"type": "custom", "name": "apply"})
    return {
        "model": MODEL,
        **({"instructions": "\n".join(script.system)} if script.system else {}),
        "input": items,
        "tools": tools,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }


def _gemini(script: Script, turns: tuple[Turn, ...], signer: Signer) -> dict[str, Any] | None:
    contents: list[dict[str, Any]] = []
    pictured = {"inlineData": {"mimeType": "image/png", "data": PICTURE}}
    document = {"inlineData": {"mimeType": "text/plain", "data": "aGk="}}
    parts: list[Any] = []
    for at, turn in enumerate(turns):
        parts += [
            {"!image": pictured, "!document": document}.get(text) or {"text": text} for text in turn.user
        ]
        if parts:
            contents.append({"role": "user", "parts": parts})
        if turn.system and at:
            contents.append({"role": "system", "parts": [{"text": turn.system}]})
        if at == len(turns) - 1:
            break
        answer: list[Any] = [{"text": text} for text in turn.text]
        answer += [{"functionCall": {**_gemini_name(*call), "args": {"n": 1.0}}} for call in turn.calls]
        if turn.reasoning not in ("", "plain"):
            native = "c2ln" if turn.reasoning == "own" else _signature(turn.reasoning, GEMINI, signer)
            # It is on the first call, else on the last text.
            signed = len(turn.text) if turn.calls else len(answer) - 1
            if signed < 0:
                answer, signed = [{"text": ""}], 0
            answer[signed] = {**answer[signed], "thoughtSignature": native}
        if turn.reasoning:
            answer.insert(0, {"text": "hm", "thought": True})
        if answer:
            contents.append({"role": "model", "parts": answer})
        parts = [
            {
                "functionResponse": {
                    **_gemini_name(*call),
                    "response": {"error" if turn.result == "error" else "output": turn.result},
                    **({"parts": [pictured]} if turn.result == "image" else {}),
                }
            }
            for call in _result_ids(turn)
        ]
    if not contents or contents[-1]["role"] == "model":
        return None
    tools = [
        {"name": name, "parametersJsonSchema": {"type": "object", "properties": {}}}
        for name in ("read", "shell.run", "apply", "t" * 70)
    ]
    return {
        "contents": contents,
        **(
            {"systemInstruction": {"parts": [{"text": text} for text in script.system]}}
            if script.system
            else {}
        ),
        "tools": [{"functionDeclarations": tools}],
        "generationConfig": {"maxOutputTokens": 5000},
    }


def _gemini_name(call: str, name: str) -> dict[str, str]:
    """Return what calls and results share. Older models gave no ids: those of one letter are left out."""
    return {"name": name} if len(call) == 1 else {"id": call, "name": name}


# The law.

_CONVERSATION = {CHAT: "messages", MESSAGES: "messages", RESPONSES: "input", GEMINI: "contents"}
_MARKS = {"cache_control", "prompt_cache_breakpoint"}
# A limit of the output is no part of the prompt.
_LIMITS = {"max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens"}


def _without_marks(value: Any) -> Any:
    """Return a value without its cache marks. A text that was a part because of its mark is a string again."""
    if type(value) is list:
        values = [_without_marks(each) for each in value]
        only = values[0] if len(values) == 1 else None
        if type(only) is dict and only.keys() == {"type", "text"}:
            return only["text"]
        return values
    if type(value) is not dict:
        return value
    return {name: _without_marks(each) for name, each in value.items() if name not in _MARKS}


def _members(body: bytes, protocol: str, marks: bool) -> tuple[dict[str, bytes], list[bytes]]:
    """Return the members of a body in their order, and the messages or items of its conversation.

    marks: the client marks messages, so they are spelled without marks.
    """

    def spelled(raw: msgspec.Raw) -> bytes:
        return msgspec.json.encode(_without_marks(msgspec.json.decode(raw))) if marks else bytes(raw)

    decoded = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    decoded |= msgspec.json.decode(decoded.pop("generationConfig", b"{}"), type=dict[str, msgspec.Raw])
    conversation = msgspec.json.decode(decoded.pop(_CONVERSATION[protocol]), type=list[msgspec.Raw])
    head = {name: spelled(each) for name, each in decoded.items() if name not in _LIMITS}
    return head, [spelled(each) for each in conversation]


def check_prefixes(bodies: Sequence[bytes], protocol: str, marks: bool) -> None:
    """Check that what an upstream gets begins with what it got before."""
    for before, after in pairwise(bodies):
        head, sent = _members(before, protocol, marks)
        new_head, new = _members(after, protocol, marks)
        assert list(new_head.items()) == list(head.items())
        assert new[: len(sent) - 1] == sent[:-1]
