"""Make the reasoning of the simulator, and check that clients send it back unchanged.

A proof contains the text and a hash of it, so that the simulator needs no memory to recognize it. It has the form of
each protocol: the signature of a thinking block, the encrypted content of a reasoning item. Chat Completions has
neither: there the text itself must be sent back, as servers like DeepSeek's require, and its last word is the hash of
the rest.
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


def paragraphs(request: SimulatedRequest) -> tuple[str, ...]:
    """Return the reasoning for a request, which depends only on its text and tools."""
    count = len(request.user_text.split())
    first = f"**Reading the question** It has {count} words, and each of them counts."
    second = (
        f"**Choosing the answer** There {'are tools to call' if request.tools else 'is no tool to call'}."
    )
    mark = hashlib.sha256(_SALT + f"{first}\n\n{second}".encode()).hexdigest()[:8]
    return first, f"{second} [{mark}]"


def encode_proof(text: str) -> str:
    """Return an opaque text that contains `text` and its hash."""
    data = text.encode("utf-8", "surrogatepass")
    return base64.b64encode(hashlib.sha256(_SALT + data).digest()[:_HASH_BYTES] + data).decode("ascii")


def decode_proof(proof: JSON) -> str | None:
    """Return the text of a proof of encode_proof(), None for everything else."""
    if not isinstance(proof, str):
        return None
    try:
        raw = base64.b64decode(proof.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return None
    text = raw[_HASH_BYTES:].decode("utf-8", "replace")
    return text if encode_proof(text) == proof else None


@dataclass(frozen=True, slots=True)
class _ReasoningFormat:
    """How one protocol represents reasoning.

    thing, proof: the protocol's names of the block and of the part that proves it.
    native: paragraphs and item id -> the block or item in the protocol's form.
    genuine: true if a block of the history is unchanged.
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


def _native(block: Reasoning, key: str) -> JSON:
    native = None if block.signature is None else block.signature.native
    return native.get(key) if isinstance(native, dict) else None


def _is_genuine_thinking(block: Reasoning) -> bool:
    text = decode_proof(_native(block, "signature"))
    # With `display: omitted` there is only the signature, without the text.
    return text is not None and _native(block, "thinking") in (text, "")


def _is_genuine_item(block: Reasoning) -> bool:
    return decode_proof(_native(block, "encrypted_content")) is not None


def _is_genuine_text(block: Reasoning) -> bool:
    found = _MARKED.fullmatch(block.text)
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


def wants_reasoning(request: SimulatedRequest) -> bool:
    """True unless the client has switched reasoning off."""
    config = request.document.reasoning
    return config is None or (config.mode != "disabled" and config.effort != "none")


def make_reasoning(
    request: SimulatedRequest, item_id: str
) -> tuple[tuple[str, ...], ReasoningForm, Signature]:
    """Return the visible parts, their form, and the signature, as the request's protocol has them."""
    form = _FORMS[request.document.protocol]
    parts = paragraphs(request)
    signature = Signature(request.document.protocol, form.native(parts, item_id), request.document.model)
    if form.kind is ReasoningForm.FULL:
        parts = ("\n\n".join(parts),)
    config = request.document.reasoning
    if (
        config is not None
        and config.display == "omitted"
        and request.document.protocol == "anthropic_messages"
    ):
        parts = ()
    return parts, form.kind, signature


def check_returned_reasoning(request: SimulatedRequest) -> WireError | None:
    """Return an error if reasoning was not sent back unchanged, else None.

    Every turn with tool calls since the user's last text must have its reasoning. Older turns need none, because all
    vendors allow clients to leave it out.
    """
    if not wants_reasoning(request):
        return None
    form = _FORMS[request.document.protocol]
    for turn in _running_turns(request.document.messages):
        calls = [part for part in turn if isinstance(part, ToolCall)]
        blocks = [part for part in turn if isinstance(part, Reasoning)]
        if calls and not blocks:
            return _invalid_reasoning(
                calls[0].path,
                f"the {form.thing} before this tool call was not sent back: send the assistant's turn unchanged",
            )
        for block in blocks:
            if not form.genuine(block):
                return _invalid_reasoning(
                    block.path, f"the {form.proof} of this {form.thing} was not sent back unchanged"
                )
    return None


def _invalid_reasoning(path: str, message: str) -> WireError:
    place = dotted_path(path)
    return WireError(
        ErrorKind.INVALID_REQUEST,
        f"{place}: {message}",
        status=400,
        code="invalid_reasoning",
        param=place or None,
    )


def _running_turns(messages: tuple[Message, ...]) -> list[list[Reasoning | ToolCall]]:
    """Return the assistant's turns since the user's last text, each as its reasoning and calls."""
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
