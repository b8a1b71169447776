"""The events that servers of Responses stream, and rows made from them."""

from __future__ import annotations

from typing import Any

from fidelity.probe import Body, Json, Probe, probe

OURS = "the client is told the gateway's own"
ECHO = "repeats the request"
AGAIN = "repeats what other events say"
PROGRESS = "tells how an item gets on; what comes of it is in the finished item"
PROGRAM = {"type": "program", "caller_id": "Zqcaller"}
USAGE = {
    "input_tokens": 90,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 40,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 130,
}
TEXT = {"type": "output_text", "text": "Well", "annotations": [], "logprobs": []}


def response(status: str, output: list[Body], **fields: Any) -> Body:
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m"}
    usage = None if status == "in_progress" else USAGE
    return {**head, "status": status, "output": output, "usage": usage, **fields}


def event(kind: str, **fields: Any) -> Body:
    return {"type": f"response.{kind}", **fields}


def of(kind: str, index: int, **fields: Any) -> Body:
    return event(kind, output_index=index, item_id=f"item_{index}", **fields)


def item_events(index: int, item: Body, *between: Body, opened: Body | None = None) -> list[Body]:
    """Return the events of one item. opened: the item at its beginning, if that differs."""
    started = {**item, **(opened or {})}
    if "status" in item:
        started["status"] = "in_progress"
    return [
        event("output_item.added", output_index=index, item=started),
        *between,
        event("output_item.done", output_index=index, item=item),
    ]


def message(index: int, *content: Body, **fields: Any) -> Body:
    head = {"id": f"item_{index}", "type": "message", "role": "assistant", "status": "completed"}
    return {**head, "content": list(content), **fields}


def spoken(index: int, part: Body = TEXT, *between: Body, **fields: Any) -> list[Body]:
    """Return the events of a message with one text."""
    at = {"content_index": 0}
    empty = {**part, "text": "", "annotations": []}
    return item_events(
        index,
        message(index, part, **fields),
        of("content_part.added", index, **at, part=empty),
        of("output_text.delta", index, **at, delta=part["text"], logprobs=part.get("logprobs", [])),
        *between,
        of("output_text.done", index, **at, text=part["text"], logprobs=part.get("logprobs", [])),
        of("content_part.done", index, **at, part=part),
        opened={"content": []},
    )


# A message comes first, so the subject begins at this frame.
AT = 8


def stream(*middle: Body, status: str = "completed", **fields: Any) -> list[Json]:
    said = [{**frame, "output_index": 0} for frame in spoken(9)]
    moved = [
        {**frame, "output_index": frame["output_index"] + 1} if "output_index" in frame else frame
        for frame in middle
    ]
    frames = [*said, *moved]
    output = [frame["item"] for frame in frames if frame["type"] == "response.output_item.done"]
    return [
        event("created", response=response("in_progress", [])),
        event("in_progress", response=response("in_progress", [])),
        *frames,
        event(status, response=response(status, output, **fields)),
    ]


def row(called: str, *events: Body, at: int = 0, place: str = "", section: str = "Items") -> Probe:
    """Return a row about an item; the other stream lacks all of these events. at: the one that is the subject."""
    return Probe(section, called, stream(*events), f"/{AT + at}{place}", stream())


def opaque(**item: Any) -> Probe:
    """Return a row about an item that comes whole."""
    return row(f"`{item['type']}`", *item_events(0, item), at=1, place="/item")


def on_end(name: str, value: Any, *, section: str = "Response", swap: Any = None, nothing: str = "") -> Probe:
    body = stream(**{name: value})
    place = f"/{len(body) - 1}/response/{name}"
    return probe(section, f"`{name}`", body, place, swap=swap, nothing=nothing)


def ended(called: str, status: str, swap: Body, **fields: Any) -> Probe:
    body = stream(status=status, **fields)
    return probe("Statuses", called, body, f"/{len(body) - 1}", swap=swap)


def figure(path: str, value: Any, *, nothing: str = "") -> Probe:
    *way, last = path.split(".")
    usage = {**USAGE, way[0]: {**USAGE[way[0]], last: value}} if way else {**USAGE, last: value}
    body = stream(usage=usage)
    place = f"/{len(body) - 1}/response/usage/{path.replace('.', '/')}"
    was = USAGE[way[0]].get(last) if way else USAGE.get(last)
    return probe("Usage", f"`{path}`", body, place, nothing=nothing, **({} if was is None else {"swap": was}))


def progress(kind: str, item: Body, **fields: Any) -> Probe:
    """Return a row about an event between the beginning and the end of an item."""
    body = stream(*item_events(0, item, of(kind, 0, **fields)))
    return probe("Events of an item", f"`response.{kind}`", body, f"/{AT + 1}", nothing=PROGRESS)


CALL = {
    "id": "item_0",
    "type": "function_call",
    "call_id": "call_1",
    "name": "see",
    "arguments": "{}",
    "status": "completed",
}
FREE = {"id": "item_0", "type": "custom_tool_call", "call_id": "call_1", "name": "patch", "input": "x"}


def called(**fields: Any) -> list[Body]:
    call = {**CALL, **fields}
    return item_events(
        0,
        call,
        of("function_call_arguments.delta", 0, delta=call["arguments"]),
        of("function_call_arguments.done", 0, arguments=call["arguments"]),
        opened={"arguments": ""},
    )


def freely(**fields: Any) -> list[Body]:
    call = {**FREE, **fields}
    return item_events(
        0,
        call,
        of("custom_tool_call_input.delta", 0, delta=call["input"]),
        of("custom_tool_call_input.done", 0, input=call["input"]),
        opened={"input": ""},
    )


def on_call(name: str, value: Any) -> Probe:
    return Probe(
        "Items",
        f"`{name}` of a call",
        stream(*called(**{name: value})),
        f"/{AT + 3}/item/{name}",
        stream(*called()),
    )


SUMMARY = {"type": "summary_text", "text": "Zqshort"}
OPEN = {"type": "reasoning_text", "text": "Zqthought"}
REASONING = {"id": "item_0", "type": "reasoning", "summary": []}


def summed() -> list[Body]:
    at = {"summary_index": 0}
    return item_events(
        0,
        {**REASONING, "summary": [SUMMARY], "encrypted_content": "Zqcipher"},
        of("reasoning_summary_part.added", 0, **at, part={**SUMMARY, "text": ""}),
        of("reasoning_summary_text.delta", 0, **at, delta="Zqshort"),
        of("reasoning_summary_text.done", 0, **at, text="Zqshort"),
        of("reasoning_summary_part.done", 0, **at, part=SUMMARY),
        opened={"summary": [], "encrypted_content": ""},
    )


def thought() -> list[Body]:
    at = {"content_index": 0}
    return item_events(
        0,
        {**REASONING, "content": [OPEN]},
        of("content_part.added", 0, **at, part={**OPEN, "text": ""}),
        of("reasoning_text.delta", 0, **at, delta="Zqthought"),
        of("reasoning_text.done", 0, **at, text="Zqthought"),
        of("content_part.done", 0, **at, part=OPEN),
        opened={"content": []},
    )


def declined() -> list[Body]:
    at = {"content_index": 0}
    part = {"type": "refusal", "refusal": "Zqrefusal"}
    return item_events(
        0,
        message(0, part),
        of("content_part.added", 0, **at, part={**part, "refusal": ""}),
        of("refusal.delta", 0, **at, delta="Zqrefusal"),
        of("refusal.done", 0, **at, refusal="Zqrefusal"),
        of("content_part.done", 0, **at, part=part),
        opened={"content": []},
    )


TOKEN = {
    "token": "Zqtoken",
    "bytes": [87],
    "logprob": -0.5,
    "top_logprobs": [{"token": "Zqother", "bytes": [88], "logprob": -1.5}],
}


def annotation(**annotation: Any) -> Probe:
    part = {**TEXT, "annotations": [annotation]}
    added = of("output_text.annotation.added", 0, content_index=0, annotation_index=0, annotation=annotation)
    body, without = stream(*spoken(0, part, added)), stream(*spoken(0))
    return Probe("Annotations", f"`{annotation['type']}`", body, f"/{AT + 3}/annotation", without)


SHOT = {"type": "computer_screenshot", "image_url": "https://example.com/Zqshot.png"}
SEARCH = {
    "id": "item_0",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "cats", "sources": []},
}
FILES = {
    "id": "item_0",
    "type": "file_search_call",
    "queries": ["cats"],
    "status": "completed",
    "results": [],
}
CODE = {
    "id": "item_0",
    "type": "code_interpreter_call",
    "code": "1+1",
    "container_id": "cntr_1",
    "outputs": [],
    "status": "completed",
}
IMAGE = {"id": "item_0", "type": "image_generation_call", "result": "aW1n", "status": "completed"}
MCP = {
    "id": "item_0",
    "type": "mcp_call",
    "arguments": "{}",
    "name": "l",
    "server_label": "s",
    "output": "x",
    "status": "completed",
}
LIST = {"id": "item_0", "type": "mcp_list_tools", "server_label": "s", "tools": []}
SHELL = {
    "id": "item_0",
    "type": "shell_call",
    "call_id": "call_1",
    "action": {"commands": ["ls"], "max_output_length": None, "timeout_ms": None},
    "environment": None,
    "status": "completed",
}
SHELL_DONE = {
    "id": "item_0",
    "type": "shell_call_output",
    "call_id": "call_1",
    "max_output_length": None,
    "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
    "status": "completed",
}
COMPACTED = {"id": "item_0", "type": "compaction", "encrypted_content": "Y29tcA=="}
