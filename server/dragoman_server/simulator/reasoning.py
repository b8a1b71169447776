"""Make the reasoning of the simulator, and check that clients send it back unchanged.

The last word of the reasoning is a hash of the rest, so that the simulator needs no memory to recognize it. All of it
is in the signature of a thinking block, of a call or text of Gemini, and in the encrypted content of a reasoning item.
Chat Completions has none of them: there the text itself must be sent back, as servers like DeepSeek's require.
"""

import base64
import hashlib
from collections.abc import Sequence
from itertools import groupby

from dragoman import RequestRefused
from dragoman.document import Message, Part, Reasoning, ToolCall, ToolResult
from dragoman.errors import dotted_path
from dragoman.events import ReasoningForm, Signature
from dragoman.jsontext import JSON
from dragoman_server.simulator.request import SimulatedRequest

_MARK_LENGTH = len(" [01234567]")


# The protocol's names of the block, and of the member that proves it.
_NAMES = {
    "anthropic_messages": ("thinking block", "signature"),
    "openai_responses": ("reasoning item", "encrypted_content"),
    "openai_chat": ("reasoning", "reasoning_content"),
    "gemini": ("thought signature", "thoughtSignature"),
}


def wants_reasoning(request: SimulatedRequest) -> bool:
    """True unless the client has switched reasoning off."""
    config = request.document.reasoning
    return config is None or (config.mode != "disabled" and config.effort != "none")


def make_reasoning(request: SimulatedRequest, item_id: str) -> tuple[list[str], ReasoningForm, Signature]:
    """Return the visible parts, their form, and the signature, as the request's protocol has them."""
    document = request.document
    text = _with_mark(
        f"**Reading the question** It has {len(request.user_text.split())} words, and each of them counts.\n\n"
        f"**Choosing the answer** There {'are tools to call' if request.tools else 'is no tool to call'}."
    )
    parts, form = [text], ReasoningForm.FULL
    encoded = base64.b64encode(text.encode()).decode()
    native: JSON = {"reasoning_content": text}
    if document.protocol == "anthropic_messages":
        native = {"signature": encoded}
        if document.reasoning is not None and document.reasoning.display == "omitted":
            parts = []
    elif document.protocol == "gemini":
        calls = request.tools and not request.results
        native = {"of": "functionCall" if calls else "text", "thoughtSignature": encoded}
    elif document.protocol == "openai_responses":
        parts, form = text.split("\n\n"), ReasoningForm.SUMMARY
        summary = [{"type": "summary_text", "text": part} for part in parts]
        native = {"type": "reasoning", "id": item_id, "summary": summary, "encrypted_content": encoded}
    return parts, form, Signature(document.protocol, native, document.model)


def check_returned_reasoning(request: SimulatedRequest) -> None:
    """Raise RequestRefused if reasoning was not sent back unchanged.

    Every turn with tool calls since the user's last text must have its reasoning. Older turns need none, because all
    vendors allow clients to leave it out.
    """
    name, proof = _NAMES[request.document.protocol]
    for turn in _running_turns(request.document.messages):
        call = next((part for part in turn if isinstance(part, ToolCall)), None)
        blocks = [part for part in turn if isinstance(part, Reasoning)]
        if request.document.protocol == "gemini":
            # "Thought summaries need not be sent back": the signature is on another part.
            blocks = [block for block in blocks if block.signature is not None]
        if call is not None and not blocks:
            message = (
                f"the {name} before this tool call was not sent back: send the assistant's turn unchanged"
            )
            raise _refusal(call.path, message)
        for block in blocks:
            if not _is_unchanged(block, request.document.protocol):
                message = f"the {proof} of this {name} was not sent back unchanged"
                raise _refusal(block.path, message)


def _refusal(path: str, message: str) -> RequestRefused:
    return RequestRefused(f"{dotted_path(path)}: {message}", code="invalid_reasoning", path=path)


def _running_turns(messages: Sequence[Message]) -> list[list[Part]]:
    """Return the parts of the assistant's turns since the user's last text."""
    turns: list[list[Part]] = []
    for role, run in groupby(messages, lambda message: message.role):
        contents = [message.parts for message in run]
        if role == "assistant":
            turns.append([part for parts in contents for part in parts])
        elif role == "user" and not all(any(isinstance(p, ToolResult) for p in parts) for parts in contents):
            turns.clear()
    return turns


def _is_unchanged(block: Reasoning, protocol: str) -> bool:
    if protocol == "openai_chat":
        return _has_mark(block.text)
    native = None if block.signature is None else block.signature.native
    proof: JSON = native.get(_NAMES[protocol][1]) if isinstance(native, dict) else None
    try:
        # Some SDKs encode it again, with the alphabet for URLs.
        standard = str(proof).replace("-", "+").replace("_", "/")
        text = base64.b64decode(standard, validate=True).decode("utf-8", "replace")
    except ValueError:
        return False
    # With `display: omitted` a thinking block has no text. A summary is not compared.
    return _has_mark(text) and (protocol == "openai_responses" or block.text in (text, ""))


def _with_mark(text: str) -> str:
    digest = hashlib.sha256(b"dragoman simulator: " + text.encode("utf-8", "surrogatepass"))
    return f"{text} [{digest.hexdigest()[:8]}]"


def _has_mark(text: str) -> bool:
    return text == _with_mark(text[:-_MARK_LENGTH])
