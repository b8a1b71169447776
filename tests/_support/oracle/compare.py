"""Comparison of the client's response with the upstream's by their meanings.

The rules of what may be lost are data where they can be: `ENDS` says which end a client may see for an
upstream's end. For Chat the order between text and calls is lost, so texts are compared joined and
calls as a list. What a provider ran by itself may be absent from another protocol's response. An error may
never look like a success.
"""

# ruff: noqa: E501 -- the tables are read by row

import json
import re
from decimal import Decimal
from typing import Any

from dragoman.events import Usage
from oracle.meaning import Block, Kind, Meaning, Stop
from oracle.types import CHAT, GEMINI, MESSAGES, RESPONSES

ENDS: dict[Stop, dict[str, set[Stop]]] = {
    Stop.END: {CHAT: {Stop.END}, MESSAGES: {Stop.END}, RESPONSES: {Stop.END}, GEMINI: {Stop.END}},
    Stop.TOOL: {CHAT: {Stop.TOOL}, MESSAGES: {Stop.TOOL}, RESPONSES: {Stop.TOOL}, GEMINI: {Stop.TOOL}},
    Stop.LENGTH: {CHAT: {Stop.LENGTH}, MESSAGES: {Stop.LENGTH}, RESPONSES: {Stop.LENGTH}, GEMINI: {Stop.LENGTH}},
    # A refusal with text may reach a Responses client as a completed response with a refusal part.
    Stop.FILTER: {CHAT: {Stop.FILTER}, MESSAGES: {Stop.FILTER}, RESPONSES: {Stop.FILTER, Stop.END}, GEMINI: {Stop.FILTER}},
    Stop.SEQUENCE: {CHAT: {Stop.SEQUENCE, Stop.END}, MESSAGES: {Stop.SEQUENCE}, RESPONSES: {Stop.END}, GEMINI: {Stop.END}},
    Stop.PAUSE: {CHAT: {Stop.END}, MESSAGES: {Stop.PAUSE}, RESPONSES: {Stop.END, Stop.PAUSE}, GEMINI: {Stop.END}},
    Stop.COMPACTION: {CHAT: {Stop.END}, MESSAGES: {Stop.COMPACTION}, RESPONSES: {Stop.END}, GEMINI: {Stop.END}},
    Stop.ERROR: {CHAT: {Stop.ERROR}, MESSAGES: {Stop.ERROR}, RESPONSES: {Stop.ERROR}, GEMINI: {Stop.ERROR}},
    Stop.CUT: {CHAT: {Stop.ERROR}, MESSAGES: {Stop.ERROR}, RESPONSES: {Stop.ERROR}, GEMINI: {Stop.ERROR}},
}  # fmt: skip
BROKEN = {Stop.ERROR, Stop.CUT}
# Protocols with refusals as plain text.
PLAIN_REFUSALS = {MESSAGES, GEMINI}
# Every provider accepts ids of this form, so there is no reason to change one.
PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def compare(
    upstream: Meaning, client: Meaning, client_protocol: str, *, include_usage: bool = True
) -> list[str]:
    """What the client's response lost or changed. include_usage: False for a Chat client that requested no usage."""
    problems = _ends(upstream, client, client_protocol)
    problems += _contents(upstream, client, client_protocol)
    if upstream.stop not in BROKEN and (include_usage or client_protocol != CHAT):
        problems += _costs(upstream.usage, client.usage, client_protocol)
    return problems


def _ends(upstream: Meaning, client: Meaning, protocol: str) -> list[str]:
    allowed = ENDS[upstream.stop][protocol]
    if upstream.stop in BROKEN:
        if client.stop is not Stop.ERROR:
            return [f"stop: the upstream's {upstream.stop} came out as {client.stop}"]
        message, received = upstream.failure or "", client.failure or ""
        if message not in received:
            return [f"error: the upstream's message {message!r} became {received!r}"]
        return [] if received else ["error: no message"]
    if Stop.END in allowed and client.calls:
        allowed = allowed | {Stop.TOOL}  # a turn that ends with calls waits for their results
    if protocol in PLAIN_REFUSALS and upstream.stop is Stop.END and upstream.text(Kind.REFUSAL):
        allowed = {Stop.FILTER}
    if client.stop not in allowed:
        return [f"stop: {upstream.stop} became {client.stop}, allowed {sorted(allowed)}"]
    if client.stop is Stop.SEQUENCE and client.stop_sequence != upstream.stop_sequence:
        return [f"stop_sequence: {upstream.stop_sequence!r} became {client.stop_sequence!r}"]
    return []


def _contents(upstream: Meaning, client: Meaning, protocol: str) -> list[str]:
    # A call of a hosted tool may be shown as a call of a function named like the tool.
    hosted = {name for block in upstream.hosted for name in (block.name, block.name.removesuffix("_call"))}
    sent = _merged(upstream.blocks, protocol)
    got = _merged([b for b in client.blocks if not (b.kind is Kind.CALL and b.name in hosted)], protocol)
    broken = upstream.stop in BROKEN
    if protocol == GEMINI and upstream.stop is Stop.LENGTH and sent and sent[-1].kind is Kind.CALL:
        # Its arguments are an object: it has no form for a call that was cut off. The text of a whole custom call is
        # a member of one.
        arrived = any(block.kind is Kind.CALL for block in got[len(sent) - 1 :])
        sent = sent if arrived or exact_json(sent[-1].text or "{}") is not None else sent[:-1]
    problems = _calls(
        [block for block in sent if block.kind is Kind.CALL],
        [block for block in got if block.kind is Kind.CALL],
        broken=broken,
    )
    problems += _texts(upstream, sent, got)
    if protocol != CHAT and not problems and not broken and upstream.stop is not Stop.FILTER:
        if [block.kind for block in sent] != [block.kind for block in got]:
            problems.append(f"order: {_kinds(sent)} became {_kinds(got)}")
        problems += [
            f"order: {one.kind} {one.text[:40]!r} became {other.text[:40]!r}"
            for one, other in zip(sent, got, strict=False)
            if one.kind is other.kind is not Kind.CALL and _squeezed(one) != _squeezed(other)
        ]
    if protocol == CHAT:
        for choice in sorted(set(upstream.choices) & set(client.choices) - {0}):
            one, other = (_joined(meaning.choices[choice], Kind.TEXT) for meaning in (upstream, client))
            if one != other:
                problems.append(f"text of choice {choice}: {one[:40]!r} became {other[:40]!r}")
    return problems


def _merged(blocks: list[Block], protocol: str) -> list[Block]:
    """Without hosted blocks, neighbours of one kind joined."""
    merged: list[Block] = []
    for block in blocks:
        kind = Kind.TEXT if protocol in PLAIN_REFUSALS and block.kind is Kind.REFUSAL else block.kind
        if kind is Kind.HOSTED:
            continue
        if merged and kind is not Kind.CALL and merged[-1].kind is kind:
            merged[-1].text += block.text
        else:
            merged.append(Block(kind, block.text, block.name, block.id, block.custom))
    return merged


def _kinds(blocks: list[Block]) -> str:
    return " ".join(block.kind for block in blocks) or "nothing"


def _joined(blocks: list[Block], *kinds: Kind) -> str:
    return "".join(block.text for block in blocks if block.kind in kinds)


def _squeezed(block: Block) -> str:
    # Parts of a summary may be joined with or without a blank line between them.
    return "".join(block.text.split()) if block.kind is Kind.REASONING else block.text


def _texts(upstream: Meaning, sent: list[Block], got: list[Block]) -> list[str]:
    problems = []
    one, other = ("".join(_joined(blocks, Kind.REASONING).split()) for blocks in (sent, got))
    if one != other:
        problems.append(f"reasoning: {_differ(one, other)}")
    if upstream.stop is Stop.FILTER or upstream.text(Kind.REFUSAL):
        # A refused response may become text or a refusal; its text may not be lost.
        one, other = (_joined(blocks, Kind.TEXT, Kind.REFUSAL) for blocks in (sent, got))
        explained = {one, upstream.explanation, one + upstream.explanation}
        if other not in explained or (one and one not in other):
            problems.append(f"refused text: {_differ(one, other)}")
        return problems
    one, other = (_joined(blocks, Kind.TEXT) for blocks in (sent, got))
    if one != other:
        problems.append(f"text: {_differ(one, other)}")
    if _joined(got, Kind.REFUSAL):
        problems.append("refusal: the upstream refused nothing")
    return problems


def _differ(one: str, other: str) -> str:
    """The first place where two texts part."""
    at = next((i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    at = min(len(one), len(other)) if at is None else at
    return f"at {at} of {len(one)}: {one[at : at + 40]!r} became {other[at : at + 40]!r}"


def _calls(sent: list[Block], got: list[Block], *, broken: bool) -> list[str]:
    problems = []
    if len(got) > len(sent) or (len(got) < len(sent) and not broken):
        problems.append(f"calls: {[b.name for b in sent]} became {[b.name for b in got]}")
    for number, (one, other) in enumerate(zip(sent, got, strict=False)):
        where = f"call {number} ({one.name})"
        if other.name != one.name and not other.name.endswith(f"__{one.name}"):
            problems.append(f"{where}: the name became {other.name!r}")
        unique = sum(1 for block in sent if block.id == one.id) == 1
        if PLAIN_ID.fullmatch(one.id) and unique and other.id != one.id:
            problems.append(f"{where}: the id {one.id!r} became {other.id!r}")
        if not same_input(one, other) and not (broken and one.text.startswith(other.text)):
            problems.append(f"{where}: the input {one.text[:80]!r} became {other.text[:80]!r}")
    return problems


def same_input(one: Block, other: Block) -> bool:
    """Do two calls carry the same input? Free text may travel as {"input": text}; empty text is {}."""
    if one.text == other.text:
        return True
    here, there = exact_json(one.text), exact_json(other.text)
    if one.custom and not other.custom:
        return isinstance(there, dict) and there.get("input") == one.text
    if other.custom and not one.custom:
        return isinstance(here, dict) and here.get("input") == other.text
    if here is None and one.text.strip():
        # Not JSON: a safe wrapping must hold the raw text.
        return isinstance(there, dict) and one.text in there.values()
    return (here if here is not None else {}) == (there if there is not None else {})


def exact_json(text: str) -> Any:
    """JSON with every digit of its numbers, or None."""
    try:
        return json.loads(text, parse_float=Decimal)
    except ValueError:
        return None


def _costs(sent: Usage, got: Usage, protocol: str) -> list[str]:
    problems = []
    for name in ("input", "cached", "cache_write", "output", "reasoning"):
        one, other = getattr(sent, name), getattr(got, name)
        if name == "cache_write" and protocol == GEMINI:  # which counts no tokens that are written to a cache
            continue
        whole = sent.output if name == "reasoning" else sent.input
        impossible = name not in ("input", "output") and one is not None and one > (whole or 0)
        if one is not None and not impossible and one != (other or 0):
            problems.append(f"usage.{name}: {one} became {other}")
    return problems
