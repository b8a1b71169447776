"""The reasoning of the simulator, and whether it came back as it was.

Strategy: a carrier holds what it vouches for and a hash over it, so that a simulator without memory can tell
whether it is the one that it gave out. It is made in the form that each protocol has for it: a signature on
a thinking block, the encrypted content of a reasoning item. Chat Completions has neither: there the text
itself must come back, as servers of the DeepSeek kind demand it, and its last word is the hash of the rest.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass

from dragoman import ErrorKind, WireError
from dragoman.document import Message, Reasoning, ToolCall, ToolResult
from dragoman.errors import dotted_path
from dragoman.events import ReasoningForm, Signature
from dragoman.jsontext import JSON
from dragoman_server.simulator.request import SimulatedRequest

_SALT = b"dragoman simulator: "
_HASH_BYTES = 16
_MARKED = re.compile(r"(.*) \[([0-9a-f]{8})\]", re.DOTALL)


def paragraphs(asked: SimulatedRequest) -> tuple[str, ...]:
    """What the simulator thinks about a request."""
    count = len(asked.user_text.split())
    first = f"**Reading the question** It has {count} words, and each of them counts."
    second = f"**Choosing the answer** There {'are tools to call' if asked.tools else 'is no tool to call'}."
    mark = hashlib.sha256(_SALT + f"{first}\n\n{second}".encode()).hexdigest()[:8]
    return first, f"{second} [{mark}]"


def encode_proof(text: str) -> str:
    """An opaque text that vouches for `text`."""
    data = text.encode("utf-8", "surrogatepass")
    return base64.b64encode(hashlib.sha256(_SALT + data).digest()[:_HASH_BYTES] + data).decode("ascii")


def decode_proof(carrier: JSON) -> str | None:
    """The text that a carrier of ours vouches for, None for everything else."""
    if not isinstance(carrier, str):
        return None
    try:
        raw = base64.b64decode(carrier.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return None
    text = raw[_HASH_BYTES:].decode("utf-8", "replace")
    return text if encode_proof(text) == carrier else None


@dataclass(frozen=True, slots=True)
class _ReasoningFormat:
    """How one protocol carries reasoning.

    thing, proof: what it calls the block and the part of it that proves it.
    native: paragraphs and item id -> the block or item in the protocol's own form.
    genuine: whether a thought of the history is one of ours, unchanged.
    """

    thing: str
    proof: str
    kind: ReasoningForm
    native: Callable[[tuple[str, ...], str], JSON]
    genuine: Callable[[Reasoning], bool]


def _thinking(parts: tuple[str, ...], item_id: str) -> JSON:
    text = "\n\n".join(parts)
    return {"type": "thinking", "thinking": text, "signature": encode_proof(text)}


def _reasoning_item(parts: tuple[str, ...], item_id: str) -> JSON:
    return {
        "type": "reasoning",
        "id": item_id,
        "summary": [{"type": "summary_text", "text": part} for part in parts],
        "encrypted_content": encode_proof("\n\n".join(parts)),
    }


def _chat_fields(parts: tuple[str, ...], item_id: str) -> JSON:
    return {"reasoning_content": "\n\n".join(parts)}


def _native(thought: Reasoning, key: str) -> JSON:
    native = None if thought.seal is None else thought.seal.native
    return native.get(key) if isinstance(native, dict) else None


def _is_genuine_thinking(thought: Reasoning) -> bool:
    text = decode_proof(_native(thought, "signature"))
    # With its display omitted, the text stays away and the signature stands for it.
    return text is not None and _native(thought, "thinking") in (text, "")


def _is_genuine_item(thought: Reasoning) -> bool:
    return decode_proof(_native(thought, "encrypted_content")) is not None


def _is_genuine_text(thought: Reasoning) -> bool:
    found = _MARKED.fullmatch(thought.text)
    if found is None:
        return False
    return hashlib.sha256(_SALT + found.group(1).encode()).hexdigest()[:8] == found.group(2)


_FORMS = {
    "anthropic_messages": _ReasoningFormat(
        "thinking block", "signature", ReasoningForm.FULL, _thinking, _is_genuine_thinking
    ),
    "openai_responses": _ReasoningFormat(
        "reasoning item", "encrypted_content", ReasoningForm.SUMMARY, _reasoning_item, _is_genuine_item
    ),
    "openai_chat": _ReasoningFormat(
        "reasoning", "reasoning_content", ReasoningForm.FULL, _chat_fields, _is_genuine_text
    ),
}


def wants_reasoning(asked: SimulatedRequest) -> bool:
    """Whether the client lets the model reason."""
    config = asked.request.reasoning
    return config is None or (config.mode != "disabled" and config.effort != "none")


def make_reasoning(asked: SimulatedRequest, item_id: str) -> tuple[tuple[str, ...], ReasoningForm, Signature]:
    """The parts to show, their form, and the seal, all as the request's protocol has them."""
    form = _FORMS[asked.request.protocol]
    parts = paragraphs(asked)
    seal = Signature(asked.request.protocol, form.native(parts, item_id), asked.request.model)
    if form.kind is ReasoningForm.FULL:
        parts = ("\n\n".join(parts),)
    config = asked.request.reasoning
    if config is not None and config.display == "omitted" and asked.request.protocol == "anthropic_messages":
        parts = ()
    return parts, form.kind, seal


def check_returned_reasoning(asked: SimulatedRequest) -> WireError | None:
    """What is wrong with the reasoning that came back, None when nothing is.

    Every turn with tool calls since the user's last words must have its reasoning, unchanged. Older turns may
    lack theirs: all vendors let clients leave those out.
    """
    if not wants_reasoning(asked):
        return None
    form = _FORMS[asked.request.protocol]
    for turn in _running_turns(asked.request.messages):
        calls = [part for part in turn if isinstance(part, ToolCall)]
        thoughts = [part for part in turn if isinstance(part, Reasoning)]
        if calls and not thoughts:
            return _fault(
                calls[0].path,
                f"the {form.thing} before this tool call did not come back: send the assistant's turn as it was",
            )
        for thought in thoughts:
            if not form.genuine(thought):
                return _fault(
                    thought.path, f"the {form.proof} of this {form.thing} did not come back unchanged"
                )
    return None


def _fault(path: str, message: str) -> WireError:
    place = dotted_path(path)
    return WireError(
        ErrorKind.INVALID_REQUEST,
        f"{place}: {message}",
        status=400,
        code="invalid_reasoning",
        param=place or None,
    )


def _running_turns(messages: tuple[Message, ...]) -> list[list[Reasoning | ToolCall]]:
    """The assistant's turns in the tool loop that is running, each as its thoughts and calls."""
    turns: list[list[Reasoning | ToolCall]] = []
    turn: list[Reasoning | ToolCall] = []
    for message in messages:
        if message.role == "assistant":
            if not turn:
                turns.append(turn)
            turn += [part for part in message.parts if isinstance(part, Reasoning | ToolCall)]
            continue
        turn = []
        if message.role == "user" and not any(isinstance(part, ToolResult) for part in message.parts):
            turns.clear()
    return turns
