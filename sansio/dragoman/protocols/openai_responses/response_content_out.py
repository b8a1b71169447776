"""Write the output items of a response, with wrapped signatures in those for reasoning, and the Response object around
them.

The same functions write items for streams and for whole responses, so these cannot differ. Ids are the upstream's own
if it uses this protocol too, else they derive from the response's id and the item's index.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from dragoman._ir import events
from dragoman._ir.assembly import AssembledBlock
from dragoman._ir.events import BlockKind, ReasoningForm, Signature, ToolHead, ToolKind, Usage
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.wrapped_signatures import wrap_summary
from dragoman._wire.errors import WireError
from dragoman._wire.json import JSON, JSONObject, objects_in, text_or_none
from dragoman.codec import NOT_REPEATED, ResponseContext
from dragoman.protocols._openai.citations import write_url_citation
from dragoman.protocols._openai.settings import fit_tier
from dragoman.protocols.openai_responses.client_tools import CLIENT_TOOLS, parse_call_arguments
from dragoman.protocols.openai_responses.errors import response_error
from dragoman.protocols.openai_responses.tables import (
    DEFAULT_TIER,
    LOSSY_STOP_REASONS,
    NAME,
    SEARCH_ID_PREFIX,
    STOP_REASON_NAMES,
    STOP_REASONS,
    TIERS,
    TITLE,
)
from dragoman.protocols.openai_responses.usage import write_tool_usage, write_usage

AnyBlock = TypeVar("AnyBlock", events.BlockStarted, AssembledBlock)

TEXT_KINDS = (BlockKind.TEXT, BlockKind.REFUSAL)

# The status of these is never "in_progress" (openai-python 3.52.0).
_NEVER_IN_PROGRESS = frozenset(("apply_patch_call_output", "program_output"))

# Request fields that the response repeats, with their value if the client set none. Numbers are required here, though
# the request may have null (Open Responses, `ResponseResource`).
_ECHO: dict[str, JSON] = {
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "temperature": 1.0,
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}

_CUT_CUSTOM_CALL = (
    "a custom tool call that was cut off cannot be distinguished from a complete one in the final output"
)


def _prefix(block: events.BlockStarted | AssembledBlock) -> str:
    tool = block.tool
    if tool is None:
        return "rs" if block.kind is events.REASONING else "msg"
    if is_client_run(tool):
        return CLIENT_TOOLS[tool.hosted or ""].prefix
    return "ctc" if tool.kind is ToolKind.CUSTOM else "fc"


def is_client_run(tool: ToolHead) -> bool:
    """True if a call is written as an item of its tool's type, because a function replaced the client's tool."""
    return tool.hosted in CLIENT_TOOLS


def added_item(start: events.BlockStarted, item_id: str) -> JSONObject:
    """Return the item as it is announced: in progress, and empty where deltas follow."""
    if start.kind is events.REASONING:
        return {"id": item_id, "type": "reasoning", "summary": [], "status": "in_progress"}
    if start.tool is not None:
        return _write_call(start.tool, item_id, "", "in_progress")
    return _write_message(item_id, start.phase, [], "in_progress")


def as_function_call(block: AnyBlock) -> AnyBlock:
    """Return the same call as a call of the function that replaced the tool."""
    assert block.tool is not None
    return msgspec.structs.replace(block, tool=msgspec.structs.replace(block.tool, hosted=None))


def is_empty_text(block: AssembledBlock) -> bool:
    """True if a text block has neither text nor citations because the response failed before."""
    return block.kind in TEXT_KINDS and not (block.text or block.annotations or block.complete)


def _write_message(item_id: str, phase: str | None, content: list[JSON], status: str) -> JSONObject:
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


def _write_call(tool: ToolHead, item_id: str, text: str, status: str) -> JSONObject:
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


def _reasoning_item(block: AssembledBlock, item_id: str) -> JSONObject:
    summary: list[JSON] = []
    content: list[JSON] = []
    for part in block.reasoning:
        in_content = goes_into_content(block, part.form)
        (content if in_content else summary).append(reasoning_part(part.text, in_content))
    item: JSONObject = {"id": item_id, "type": "reasoning", "summary": summary}
    if content:
        item["content"] = content
    return item


def goes_into_content(block: events.BlockStarted | AssembledBlock, form: ReasoningForm) -> bool:
    """True if reasoning goes into the item's content, which only servers of this protocol have (they give their items
    ids). From others it goes into summaries, where clients look for it.
    """
    return form is ReasoningForm.FULL and block.item_id is not None


def reasoning_part(text: str, in_content: bool) -> JSONObject:
    return {"type": "reasoning_text" if in_content else "summary_text", "text": text}


def empty_part(kind: BlockKind) -> JSONObject:
    """Return a content part as it is announced."""
    if kind is events.REFUSAL:
        return {"type": "refusal", "refusal": ""}
    return {"type": "output_text", "text": "", "annotations": [], "logprobs": []}


def finished_part(block: AssembledBlock, ledger: Ledger) -> JSONObject:
    """Return the content part of a TEXT or REFUSAL block."""
    if block.kind is events.REFUSAL:
        if block.logprobs:
            ledger.dropped(f"/logprobs/{block.number}", "refusals have no log probabilities in Responses")
        return {"type": "refusal", "refusal": block.text}
    annotations = [write_citation(each, len(block.text), ledger) for each in block.annotations]
    return {
        "type": "output_text",
        "text": block.text,
        "annotations": [each for each in annotations if each is not None],
        "logprobs": [write_logprob(token, with_bytes=True) for token in block.logprobs],
    }


def write_citation(event: events.Annotation, length: int, ledger: Ledger) -> JSONObject | None:
    """Write an annotation, None if it has no counterpart. A span without an end runs to `length` of the text."""
    if event.origin == NAME:
        native: JSONObject = event.native
        return native
    url = event.cited_url(event.path or f"/annotations/{event.block}", ledger)
    if url is None:
        return None
    return {
        "type": "url_citation",
        **write_url_citation(url, event.title, event.start, event.end, length),
    }


def write_logprob(token: JSONObject, *, with_bytes: bool) -> JSONObject:
    """Return a log probability. In parts it has `bytes`, in events it does not.

    `bytes` and `top_logprobs` are required. Chat may have null there.
    """
    top = [_logprob(each, with_bytes) for each in objects_in(token.get("top_logprobs"))]
    return {**_logprob(token, with_bytes), "top_logprobs": top}


def _logprob(token: JSONObject, with_bytes: bool) -> JSONObject:
    out: JSONObject = {"token": token.get("token") or "", "logprob": token.get("logprob") or 0}
    if with_bytes:
        out["bytes"] = token.get("bytes") or []
    return out


def announced_item(item: JSONObject) -> JSONObject:
    """Return an item that came whole as it would have been announced."""
    if "status" in item and text_or_none(item.get("type")) not in _NEVER_IN_PROGRESS:
        return {**item, "status": "in_progress"}
    return item


class ResponseBuilder:
    """Builds the output items of one response, and the Response objects, which differ in a few fields at its start,
    end and failure.

    id: of the response.
    output: the finished items.
    index: the next item's.
    """

    __slots__ = ("_context", "_fixed_fields", "_item_ids", "_ledger", "id", "index", "output")

    def __init__(self, context: ResponseContext, ledger: Ledger) -> None:
        self._ledger = ledger
        self._context = context
        self._fixed_fields = _fixed_fields(context, ledger)
        self._item_ids: set[str] = set()
        self.id = context.response_id("resp_", "")
        self.output: list[JSON] = []
        self.index = 0

    # Items.

    def item_id(self, block: events.BlockStarted | AssembledBlock) -> str:
        """Return the id of a block's item. No id is used twice."""
        item_id = block.item_id or (block.tool.item_id if block.tool is not None else None)
        if item_id is None or item_id in self._item_ids:
            item_id = self._new_id(_prefix(block))
        self._item_ids.add(item_id)
        return item_id

    def _new_id(self, prefix: str) -> str:
        return f"{prefix}_{self._context.id}_{self.index}"

    def add(self, item: JSON) -> None:
        """Put the next item into the output. None is left out."""
        if item is not None:
            self.output.append(item)
        self.index += 1

    def whole_item(self, event: events.Opaque | events.Compacted) -> JSONObject:
        """Return an item that has no block: a summary that was made here, wrapped so that only this gateway can read
        it, another vendor's web search, or the vendor's own item.
        """
        if isinstance(event, events.Compacted):
            encrypted = wrap_summary(event.text, self._context.signer)
            return {"id": self._new_id("cmp"), "type": "compaction", "encrypted_content": encrypted}
        if event.origin == NAME:
            native: JSONObject = event.native
            return native
        search = event.search
        assert search is not None
        action: JSONObject = {
            "type": "search",
            "query": search.queries[0] if search.queries else "",
            "queries": list(search.queries),
            "sources": [{"type": "url", "url": source.url} for source in search.sources],
        }
        item_id = f"{SEARCH_ID_PREFIX}{self._context.id}_{self.index}"
        return {"id": item_id, "type": "web_search_call", "status": "completed", "action": action}

    def client_call(self, block: AssembledBlock, item_id: str) -> JSONObject | None:
        """Return the call of a tool that the client runs, None if the arguments do not have its form: then it stays a
        call of the function that replaced the tool.
        """
        tool = block.tool
        assert tool is not None
        assert tool.hosted is not None
        parsed = parse_call_arguments(tool.hosted, block.text)
        path = f"/output/{self.index}/arguments"
        if parsed is None:
            detail = f"the arguments do not have the form of a call of {tool.hosted}"
            self._ledger.add(LossCode.BREACH, path, detail)
            return None
        fields, has_unmapped = parsed
        if has_unmapped:
            self._ledger.altered(path, f"what a call of {tool.hosted} has no field for was left out")
        head = {"id": item_id, "type": CLIENT_TOOLS[tool.hosted].call, "call_id": tool.call_id}
        return {**head, **fields, "status": "completed"}

    def finished_item(self, block: AssembledBlock, item_id: str) -> JSONObject:
        """Return the completed output item, as sent in `response.output_item.done`."""
        status = "completed" if block.complete else "incomplete"
        if block.kind is events.REASONING:
            return {**self._signed(_reasoning_item(block, item_id), block.signature), "status": status}
        if block.tool is not None:
            return _write_call(block.tool, item_id, block.text, status)
        return _write_message(item_id, block.phase, [finished_part(block, self._ledger)], status)

    def _signed(self, item: JSONObject, signature: Signature | None) -> JSONObject:
        if signature is None:
            return item
        if signature.origin != NAME:
            return {**item, "encrypted_content": self._context.signer.wrap(signature)}
        native: JSONObject = signature.native
        # The server's own parts may have more members than their texts.
        own_parts = {name: native[name] for name in ("summary", "content") if native.get(name)}
        return {**native, **item, **own_parts}

    def unfinished_item(self, block: AssembledBlock, item_id: str) -> JSONObject | None:
        """Return an item that was cut by the output limit or a failure, for the final output.

        A custom tool call has no status, so a cut one would look complete: it is left out.
        """
        if block.tool is not None and block.tool.kind is ToolKind.CUSTOM:
            self._ledger.dropped(f"/output/{self.index}", _CUT_CUSTOM_CALL)
            return None
        return self.finished_item(block, item_id)

    # The response.

    def started(self, started: events.Started) -> None:
        """Take id and service tier from the upstream's first event."""
        self.id = self._context.response_id("resp_", started.id)
        self._note_tier(started.service_tier)

    def _note_tier(self, reported: str | None) -> None:
        tier = fit_tier(reported, "/service_tier", self._ledger, TITLE, TIERS)
        if tier is not None:
            self._fixed_fields["service_tier"] = tier

    def response(
        self,
        status: str,
        *,
        usage: Usage | None = None,
        error: JSONObject | None = None,
        incomplete: str | None = None,
    ) -> JSONObject:
        """Return a Response object. Nullable fields are included, because the vendor's server sends all of them."""
        figures = None if usage is None else write_usage(usage, self._ledger)
        tool_usage = None if usage is None else write_tool_usage(usage)
        if usage is not None:
            self._note_tier(usage.service_tier)
        completed_at = None
        if status == "completed":
            completed_at = self._context.now if self._context.clock is None else self._context.clock()
        response: JSONObject = {
            "id": self.id,
            "object": "response",
            "created_at": self._context.now,
            "status": status,
            "completed_at": completed_at,
            "error": error,
            "incomplete_details": None if incomplete is None else {"reason": incomplete},
            "model": self._context.model,
            "output": self.output,
            "usage": figures,
        }
        if tool_usage is not None:
            response["tool_usage"] = tool_usage
        response.update(self._fixed_fields)
        return response

    def ended(self, stop: events.Stopped, usage: Usage, explained: bool) -> JSONObject:
        """Return the final response, and record what it cannot express.

        explained: the explanation of a refusal is in the output.
        """
        # Reasons that only this protocol has keep their own names.
        native = stop.native if STOP_REASONS.get(stop.native or "") is stop.reason else None
        reason = native or STOP_REASON_NAMES.get(stop.reason)
        # A stop without a native reason is the gateway's own.
        if stop.reason in LOSSY_STOP_REASONS and stop.native and reason is None:
            detail = f"the upstream stopped for {stop.reason.value}, which is reported as completed"
            self._ledger.altered("/status", detail)
        if text_or_none(stop.sequence):
            detail = "Responses has no field for the stop sequence that matched"
            self._ledger.dropped("/stop_sequence", detail)
        if stop.explanation and not explained:
            detail = "the response has text; Responses has no field for the explanation"
            self._ledger.dropped("/stop_details/explanation", detail)
        status = "completed" if reason is None else "incomplete"
        return self.response(status, usage=usage, incomplete=reason)

    def failed(self, error: WireError, usage: Usage) -> JSONObject:
        known = usage.input is not None or usage.output is not None
        return self.response("failed", usage=usage if known else None, error=response_error(error))


ECHOED_MEMBERS = (*_ECHO, "prompt_cache_retention", "reasoning", "text", "tools")


def _fixed_fields(context: ResponseContext, ledger: Ledger) -> JSONObject:
    echo = {name: value for name, value in context.echo.items() if value is not None}
    for name in [name for name, value in echo.items() if value is NOT_REPEATED]:
        del echo[name]
        ledger.dropped(f"/{name}", "the request's value is too large to be repeated")
    out: JSONObject = {"access_programs": None, "background": False, "store": context.stored}
    out["service_tier"] = DEFAULT_TIER
    if "prompt_cache_retention" in echo:
        out["prompt_cache_retention"] = echo["prompt_cache_retention"]
    out.update(_ECHO)
    for name in echo.keys() & _ECHO.keys():  # each has its place already
        out[name] = echo[name]
    out["reasoning"] = {"effort": None, "summary": None, **echo.get("reasoning", {})}
    text = {name: value for name, value in echo.get("text", {}).items() if value is not None}
    out["text"] = {"format": {"type": "text"}, **text}
    out["tools"] = [_echo_tool(tool) for tool in echo.get("tools", ())]
    return out


def _echo_tool(tool: JSONObject) -> JSONObject:
    """Add `parameters` and `strict`, which are required in a response, though not in a request."""
    if tool.get("type") == "function":
        return {"parameters": None, **tool, "strict": tool.get("strict") or False}
    return tool
