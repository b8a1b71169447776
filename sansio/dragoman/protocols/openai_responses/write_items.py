"""Finished blocks -> output items.

Strategy: one function makes an item from a block, for streams and whole answers alike, so that they cannot
differ. Ids are the upstream's own where it speaks Responses too, else they derive from the exchange and the
item's place.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from dragoman._ir.assembly import Block, ReasoningPart
from dragoman._ir.events import (
    Annotation,
    BlockKind,
    BlockStarted,
    Compacted,
    Opaque,
    ReasoningForm,
    Seal,
    ToolHead,
    ToolKind,
)
from dragoman._ir.losses import Ledger, LossCode
from dragoman._wire.json import JSON, JSONObject
from dragoman.codec import Exchange
from dragoman.protocols.openai_responses.citations import url_citation
from dragoman.protocols.openai_responses.client_tools import (
    CLIENT_TOOLS,
    announced,
    fields_of,
    says_more,
)
from dragoman.protocols.openai_responses.common import objects_of
from dragoman.protocols.openai_responses.tables import SUMMARY_ORIGIN
from dragoman.protocols.openai_responses.wire import ORIGIN

Started = TypeVar("Started", BlockStarted, Block)

SPEECH = (BlockKind.TEXT, BlockKind.REFUSAL)
_PREFIXES = {BlockKind.TEXT: "msg", BlockKind.REFUSAL: "msg", BlockKind.REASONING: "rs"}

# The vendor's types allow no "in_progress" on these.
_NEVER_IN_PROGRESS = frozenset(("apply_patch_call_output", "program_output"))


CUT_CUSTOM = "a custom tool call that was cut off cannot be told from a whole one in the final output"


class ItemIds:
    """Gives each item of one answer its id. An id is never given twice."""

    __slots__ = ("_token", "_used")

    def __init__(self, exchange: Exchange) -> None:
        self._token = exchange.id
        self._used: set[str] = set()

    def of(self, block: BlockStarted | Block, index: int) -> str:
        item_id = block.item_id or (block.tool.item_id if block.tool is not None else None)
        if item_id is None or item_id in self._used:
            prefix = _PREFIXES.get(block.kind)
            if prefix is None:
                assert block.tool is not None
                prefix = _call_prefix(block.tool)
            item_id = f"{prefix}_{self._token}_{index}"
        self._used.add(item_id)
        return item_id

    def made(self, prefix: str, index: int) -> str:
        """The id of an item that stands for no block."""
        return f"{prefix}_{self._token}_{index}"


def _call_prefix(tool: ToolHead) -> str:
    if is_client_run(tool):
        return CLIENT_TOOLS[tool.hosted or ""].prefix
    return "ctc" if tool.kind is ToolKind.CUSTOM else "fc"


def is_client_run(tool: ToolHead) -> bool:
    """Whether a call is told as an item of its own kind: a function stood in for the tool of the client's."""
    return tool.hosted in CLIENT_TOOLS


def added_item(start: BlockStarted, item_id: str) -> JSONObject:
    """The item as it is announced: in progress, and empty where it will be filled."""
    if start.kind is BlockKind.REASONING:
        return {"id": item_id, "type": "reasoning", "summary": [], "status": "in_progress"}
    if start.tool is not None:
        return _call(start.tool, item_id, "", "in_progress")
    return _message(item_id, start.phase, [], "in_progress")


def client_call(block: Block, item_id: str, index: int, ledger: Ledger) -> JSONObject | None:
    """The item of a call of a tool that the client runs. None when the arguments do not have its form: then only a
    call of the function that stood in can tell what the model wrote. It has `index` in the output.
    """
    tool = block.tool
    assert tool is not None
    assert tool.hosted is not None
    fields = fields_of(tool.hosted, block.text)
    path = f"/output/{index}/arguments"
    if fields is None:
        ledger.add(LossCode.BREACH, path, f"the arguments do not have the form of a call of {tool.hosted}")
        return None
    if says_more(block.text, fields):
        ledger.altered(path, f"what a call of {tool.hosted} has no place for was left out")
    head = {"id": item_id, "type": CLIENT_TOOLS[tool.hosted].call, "call_id": tool.call_id}
    return {**head, **fields, "status": "completed"}


def as_function(block: Started) -> Started:
    """The same call as one of the function that stood in."""
    assert block.tool is not None
    return msgspec.structs.replace(block, tool=msgspec.structs.replace(block.tool, hosted=None))


def added_client_call(tool: ToolHead, item: JSONObject) -> JSONObject:
    """The same item as it is announced."""
    return {**announced(tool.hosted or "", item), "status": "in_progress"}


def search_call(event: Opaque, item_id: str, ledger: Ledger) -> JSONObject:
    """A web search of another vendor's."""
    search = event.search
    assert search is not None
    if not event.carried:
        ledger.altered(event.path, "only what was looked for and found was carried")
    action: JSONObject = {
        "type": "search",
        "query": search.queries[0] if search.queries else "",
        "queries": list(search.queries),
        "sources": [{"type": "url", "url": source.url} for source in search.sources],
    }
    return {"id": item_id, "type": "web_search_call", "status": "completed", "action": action}


def compaction(event: Compacted, item_id: str, exchange: Exchange) -> JSONObject:
    """A summary that was made here, in the form that only its maker can read."""
    sealed = exchange.sealer.wrap(Seal(SUMMARY_ORIGIN, {"summary": event.text}))
    return {"id": item_id, "type": "compaction", "encrypted_content": sealed}


def finished_item(block: Block, item_id: str, exchange: Exchange, ledger: Ledger) -> JSONObject:
    """The item with all that it came to hold."""
    status = "completed" if block.complete else "incomplete"
    if block.kind is BlockKind.REASONING:
        return _reasoning(block, item_id, exchange, status)
    if block.tool is not None:
        return _call(block.tool, item_id, block.text, status)
    return _message(item_id, block.phase, [finished_part(block, ledger)], status)


def unfinished_item(
    block: Block, item_id: str, index: int, exchange: Exchange, ledger: Ledger
) -> JSONObject | None:
    """What was cut by the output limit or by a failure, as the final output shows it.

    A custom tool call has no status, so it could not be told from a whole one: None, it is left out.
    """
    if block.tool is not None and block.tool.kind is ToolKind.CUSTOM:
        ledger.dropped(f"/output/{index}", CUT_CUSTOM)
        return None
    return finished_item(block, item_id, exchange, ledger)


def is_bare(block: Block) -> bool:
    """Whether it is a text of which nothing came before the answer failed."""
    return block.kind in SPEECH and not block.text and not block.complete


def _message(item_id: str, phase: str | None, content: list[JSON], status: str) -> JSONObject:
    item: JSONObject = {
        "id": item_id,
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": content,
    }
    if phase is not None:
        item["phase"] = phase
    return item


def _call(tool: ToolHead, item_id: str, text: str, status: str) -> JSONObject:
    item: JSONObject = {"id": item_id, "call_id": tool.call_id, "name": tool.name}
    if tool.kind is ToolKind.CUSTOM:
        item["type"] = "custom_tool_call"
        item["input"] = text
    else:
        item["type"] = "function_call"
        item["arguments"] = text
        item["status"] = status
    if tool.namespace is not None:
        item["namespace"] = tool.namespace
    return item


def _reasoning(block: Block, item_id: str, exchange: Exchange, status: str) -> JSONObject:
    summary = [_summary_part(part.text) for part in block.reasoning if not is_open(block, part.form)]
    content = [_content_part(part.text) for part in block.reasoning if is_open(block, part.form)]
    item: JSONObject = {"id": item_id, "type": "reasoning", "summary": summary}
    seal = block.seal
    if seal is not None:
        if seal.origin == ORIGIN:
            item = {**seal.native, **item}
        else:
            item["encrypted_content"] = exchange.sealer.wrap(seal)
    if content:
        item["content"] = content
    if seal is not None and seal.origin == ORIGIN:
        # The server's own parts may say more than their texts.
        item.update({name: seal.native[name] for name in ("summary", "content") if seal.native.get(name)})
    item["status"] = status
    return item


def is_open(block: BlockStarted | Block, form: ReasoningForm) -> bool:
    """Whether reasoning goes into the item's content. Only servers of this protocol have such a thing (and ids
    for their items); from others it goes into summaries, which is where clients look.
    """
    return form is ReasoningForm.FULL and block.item_id is not None


def _summary_part(text: str) -> JSONObject:
    return {"type": "summary_text", "text": text}


def _content_part(text: str) -> JSONObject:
    return {"type": "reasoning_text", "text": text}


def reasoning_part(part: ReasoningPart, open_text: bool) -> JSONObject:
    return _content_part(part.text) if open_text else _summary_part(part.text)


def empty_part(kind: BlockKind) -> JSONObject:
    """A content part as it is announced."""
    if kind is BlockKind.REFUSAL:
        return {"type": "refusal", "refusal": ""}
    return {"type": "output_text", "text": "", "annotations": [], "logprobs": []}


def finished_part(block: Block, ledger: Ledger) -> JSONObject:
    """The content part of a TEXT or REFUSAL block."""
    if block.kind is BlockKind.REFUSAL:
        if block.logprobs:
            ledger.dropped(f"/logprobs/{block.number}", "refusals have no log probabilities in Responses")
        return {"type": "refusal", "refusal": block.text}
    annotations = [annotation_of(each, len(block.text), ledger) for each in block.annotations]
    return {
        "type": "output_text",
        "text": block.text,
        "annotations": [each for each in annotations if each is not None],
        "logprobs": [full_logprob(token) for token in block.logprobs],
    }


def annotation_of(event: Annotation, length: int, ledger: Ledger) -> JSONObject | None:
    """An annotation, None when it has no counterpart. `length` of the text ends a span without end."""
    if event.origin == ORIGIN:
        native: JSONObject = event.native
        return native
    path = event.path or f"/annotations/{event.block}"
    if event.url is None:
        ledger.dropped(path, "only citations of web pages have a counterpart")
        return None
    if event.says_more():
        ledger.altered(path, "only source and span of the citation were carried")
    return url_citation(event.url, event.title, event.start, event.end, length)


def full_logprob(token: JSONObject) -> JSONObject:
    """In parts, `bytes` and `top_logprobs` are required; Chat may have null there."""
    return {
        **_logprob(token),
        "bytes": token.get("bytes") or [],
        "top_logprobs": [
            {**_logprob(top), "bytes": top.get("bytes") or []}
            for top in objects_of(token.get("top_logprobs"))
        ],
    }


def slim_logprob(token: JSONObject) -> JSONObject:
    """In events, there are no `bytes`."""
    return {
        **_logprob(token),
        "top_logprobs": [_logprob(top) for top in objects_of(token.get("top_logprobs"))],
    }


def _logprob(token: JSONObject) -> JSONObject:
    return {"token": token.get("token") or "", "logprob": token.get("logprob") or 0}


def added_opaque(event: Opaque) -> JSONObject:
    """An item that came whole, as if it were just announced."""
    item: JSONObject = event.native
    if "status" in item and event.kind not in _NEVER_IN_PROGRESS:
        return {**item, "status": "in_progress"}
    return item


def refusal_block(number: int, explanation: str) -> Block:
    """What a refused answer without any text says instead."""
    return Block(number=number, kind=BlockKind.REFUSAL, text=explanation)
