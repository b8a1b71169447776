"""Requests as coding agents send them: what they got from the upstream comes back with each turn, as it came.

An agent's turn has reasoning with a signature, a text and two calls, whose results are blocks. Signatures that the
client's protocol has no form for are wrapped, as they are for its clients. Instructions, tools and cache marks are like
those of Claude Code.
"""

from typing import Any

import msgspec

from dragoman import UPSTREAMS, Ledger, RequestTranslator, StopReason, Usage
from dragoman._ir.assembly import Fold
from dragoman.codec import ResponseContext
from dragoman.document import Request
from dragoman.events import (
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Ended,
    ReasoningDelta,
    Signature,
    SignatureDelta,
    Started,
    Stopped,
    TextDelta,
    ToolHead,
)

Json = dict[str, Any]
MODEL = "other"  # the upstream's, which signatures are bound to

_THOUGHTS = "The file has a function that is called nowhere; I look where its name occurs. "
# What each upstream wants back.
_NATIVE: dict[str, Json] = {
    "anthropic_messages": {"type": "thinking", "thinking": _THOUGHTS, "signature": "EqoBCkgI" * 60},
    "openai_chat": {"reasoning_content": _THOUGHTS},
    "openai_responses": {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "encrypted_content": "gAAAAABo" * 90,
    },
    "gemini": {"of": "functionCall", "thoughtSignature": "CiQB0e2K" * 60},
}
_MARK = {"cache_control": {"type": "ephemeral"}}
_OPTION = {"type": "string", "description": "A regular expression, a path or a number of lines. " * 3}
_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {f"option_{number}": _OPTION for number in range(6)},
    "required": ["option_1"],
    "additionalProperties": False,
}
_HEAD: Json = {
    "model": "m",
    "max_tokens": 32000,
    "stream": True,
    "metadata": {"user_id": "user"},
    "system": [
        {"type": "text", "text": "You are a coding agent."},
        {"type": "text", "text": "Be brief and careful. " * 400, **_MARK},
    ],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "Remove what is not needed."}]}],
    "tools": [
        {"name": f"tool_{number}", "description": "Finds something. " * 40, "input_schema": _SCHEMA}
        for number in range(20)
    ],
}


def _turn(client: str, upstream: str, number: int) -> Json:
    """Return the response of one turn, as a client gets it from an upstream."""
    fold = Fold()
    fold.send(Started("up_1", "m", 1_700_000_000))
    signature = Signature(upstream, _NATIVE[upstream], MODEL)
    fold.send(BlockStarted(0, BlockKind.REASONING), ReasoningDelta(0, _THOUGHTS))
    fold.send(SignatureDelta(0, signature), BlockEnded(0))
    fold.send(BlockStarted(1, BlockKind.TEXT), TextDelta(1, "Let me look at both."), BlockEnded(1))
    for block in (2, 3):
        tool = ToolHead(f"call_{number}_{block}", f"tool_{block}")
        fold.send(BlockStarted(block, BlockKind.TOOL_CALL, tool=tool))
        fold.send(
            ArgumentsDelta(block, f'{{"option_1":"src/{number}.py","option_2":"def"}}'), BlockEnded(block)
        )
    fold.send(Usage(input=10, output=90), Stopped(StopReason.TOOL_USE), Ended())
    request = Request(protocol=client, model="m", messages=())
    context = ResponseContext(request=request, id=f"{number:016}", now=1_700_000_000, model="m")
    return UPSTREAMS[client].write_whole(fold.response(), context, Ledger())


def _history(client: str, upstream: str, number: int) -> list[Json]:
    """Return what one turn adds to the client's conversation."""
    whole = _turn(client, upstream, number)
    output = "def f(x):\n    return x\n" * 20
    calls = [(f"call_{number}_{block}", f"tool_{block}") for block in (2, 3)]
    if client == "anthropic_messages":
        text = [{"type": "text", "text": output}]
        results = [{"type": "tool_result", "tool_use_id": call, "content": text} for call, _ in calls]
        results[0] |= {"content": output, "is_error": False}
        return [{"role": "assistant", "content": whole["content"]}, {"role": "user", "content": results}]
    if client == "openai_chat":
        outputs = [{"role": "tool", "tool_call_id": call, "content": output} for call, _ in calls]
        return [whole["choices"][0]["message"], *outputs]
    if client == "openai_responses":
        text = [{"type": "input_text", "text": output}]
        return [
            *whole["output"],
            *[{"type": "function_call_output", "call_id": call, "output": text} for call, _ in calls],
        ]
    parts = [
        {"functionResponse": {"id": call, "name": name, "response": {"output": output}}}
        for call, name in calls
    ]
    return [whole["candidates"][0]["content"], {"role": "user", "parts": parts}]


def agent_request(client: str, upstream: str, turns: int) -> bytes:
    """Return a request of a client whose turns so far were answered by an upstream."""
    translator = RequestTranslator(client="anthropic_messages", upstream=client)
    body = msgspec.json.decode(translator.translate(msgspec.json.encode(_HEAD)).body)
    conversation: list[Json] = body[UPSTREAMS[client].signature_places.conversation]
    for number in range(turns):
        conversation += _history(client, upstream, number)
    if client == "anthropic_messages":
        for message in conversation[-1:-4:-2]:  # of the user: the last one and the one before
            message["content"][-1] |= _MARK
    return msgspec.json.encode(body)
