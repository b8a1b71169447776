"""Probes for every event, item, part and member of the response that servers of Responses stream."""

from __future__ import annotations

from typing import Any

from fidelity.probe import DATA, Body, Probe, probe
from fidelity.responses_events import (
    AGAIN,
    AT,
    CODE,
    COMPACTED,
    ECHO,
    FILES,
    IMAGE,
    LIST,
    MCP,
    OURS,
    PROGRAM,
    SEARCH,
    SHELL,
    SHELL_DONE,
    SHOT,
    TEXT,
    TOKEN,
    annotation,
    called,
    declined,
    ended,
    event,
    figure,
    freely,
    item_events,
    of,
    on_call,
    on_end,
    opaque,
    progress,
    response,
    row,
    spoken,
    stream,
    summed,
    thought,
)


def _delta(called: str, *events: Body, at: int) -> Probe:
    """Return a row about one event of an item."""
    return row(f"`response.{called}`", *events, at=at, section="Deltas")


def _again(kind: str, *events: Body, at: int) -> Probe:
    """Return a row about an event that repeats others; the other stream lacks it."""
    body = stream(*events)
    return probe("Events of an item", f"`response.{kind}`", body, f"/{AT + at}", nothing=AGAIN)


def _gone(called: str, value: Body, nothing: str = "") -> Probe:
    """Return a row about an event outside of all items."""
    return probe("Events", called, stream(value), f"/{AT}", nothing=nothing)


EVENTS = [
    probe("Events", "`response.created`", stream(), "/0", nothing="that the answer begins is told anyway"),
    probe("Events", "`response.in_progress`", stream(), "/1", nothing="a sign of life"),
    _gone("`response.queued`", event("queued", response=response("queued", [])), "a sign of life"),
    _gone("`keepalive`", {"type": "keepalive"}, "a sign of life"),
    _gone("`response.audio.delta`", event("audio.delta", delta=DATA)),
    _gone("`response.audio.done`", event("audio.done")),
    _gone("`response.audio.transcript.delta`", event("audio.transcript.delta", delta="Zqspoken")),
    _gone("`response.audio.transcript.done`", event("audio.transcript.done")),
    probe(
        "Events",
        "`error`",
        [
            *stream()[:2],
            {"type": "error", "error": {"type": "server_error", "code": "server_error", "message": "Zqwhy"}},
        ],
        "/2",
        needed=True,
    ),
    _gone("an event that nobody knows", event("x_event", words="Zqwords")),
]

ITEMS = [
    row("`message`", *spoken(0, {**TEXT, "text": "Zqwords"}), at=2, place="/delta"),
    row("`message` that refuses", *declined(), at=2, place="/delta"),
    Probe(
        "Items",
        "`phase` of a message",
        stream(*spoken(0, phase="commentary")),
        f"/{AT + 5}/item/phase",
        stream(*spoken(0)),
    ),
    row("`function_call`", *called(call_id="Zqid", name="Zqname", arguments='{"city":"Zqcity"}'), at=3),
    on_call("namespace", "Zqspace"),
    on_call("async", True),
    on_call("caller", PROGRAM),
    row("`custom_tool_call`", *freely(call_id="Zqid", name="Zqname", input="Zqinput"), at=3),
    row("`reasoning` with a summary and ciphertext", *summed(), at=5, place="/item"),
    row("`reasoning` in the open", *thought(), at=5, place="/item"),
    *(
        opaque(**each)
        for each in (
            {**FILES, "queries": ["Zqquery"]},
            {
                **SEARCH,
                "action": {
                    "type": "search",
                    "query": "Zqquery",
                    "sources": [{"type": "url", "url": "https://example.com/Zqurl"}],
                },
            },
            {
                "id": "item_0",
                "type": "computer_call",
                "call_id": "Zqid",
                "pending_safety_checks": [],
                "status": "completed",
                "actions": [{"type": "type", "text": "Zqtyped"}],
            },
            {
                "id": "item_0",
                "type": "computer_call_output",
                "call_id": "Zqid",
                "output": SHOT,
                "status": "completed",
            },
            {
                "id": "item_0",
                "type": "function_call_output",
                "call_id": "Zqid",
                "output": "Zqout",
                "status": "completed",
            },
            {
                "id": "item_0",
                "type": "program",
                "call_id": "Zqid",
                "code": "Zqcode",
                "fingerprint": "Zqprint",
            },
            {
                "id": "item_0",
                "type": "program_output",
                "call_id": "Zqid",
                "result": "Zqresult",
                "status": "completed",
            },
            {
                "id": "item_0",
                "type": "tool_search_call",
                "call_id": "Zqid",
                "execution": "server",
                "arguments": {"query": "Zqquery"},
                "status": "completed",
            },
            {
                "id": "item_0",
                "type": "tool_search_output",
                "call_id": "Zqid",
                "execution": "server",
                "tools": [{"type": "function", "name": "Zqname", "parameters": {}, "strict": False}],
                "status": "completed",
            },
            {
                "id": "item_0",
                "type": "additional_tools",
                "role": "developer",
                "tools": [{"type": "function", "name": "Zqname", "parameters": {}, "strict": False}],
            },
            {**COMPACTED, "encrypted_content": "Zqcipher"},
            {**IMAGE, "result": DATA, "revised_prompt": "Zqprompt"},
            {**CODE, "code": "Zqcode", "outputs": [{"type": "logs", "logs": "Zqlogs"}]},
            {
                "id": "item_0",
                "type": "local_shell_call",
                "call_id": "Zqid",
                "action": {"type": "exec", "command": ["Zqcommand"], "env": {}},
                "status": "completed",
            },
            {"id": "item_0", "type": "local_shell_call_output", "output": "Zqout", "status": "completed"},
            {**SHELL, "call_id": "Zqid", "action": {"commands": ["Zqcommand"]}},
            {**SHELL_DONE, "call_id": "Zqid"},
            {
                "id": "item_0",
                "type": "apply_patch_call",
                "call_id": "Zqid",
                "operation": {"type": "update_file", "diff": "Zqdiff", "path": "Zqpath"},
                "status": "completed",
            },
            {
                "id": "item_0",
                "type": "apply_patch_call_output",
                "call_id": "Zqid",
                "output": "Zqout",
                "status": "completed",
            },
            {**MCP, "name": "Zqname", "server_label": "Zqserver", "output": "Zqout"},
            {**LIST, "server_label": "Zqserver"},
            {
                "id": "item_0",
                "type": "mcp_approval_request",
                "arguments": "{}",
                "name": "Zqname",
                "server_label": "Zqserver",
            },
            {"id": "item_0", "type": "mcp_approval_response", "approval_request_id": "Zqid", "approve": True},
            {
                "id": "item_0",
                "type": "custom_tool_call_output",
                "call_id": "Zqid",
                "output": "Zqout",
                "status": "completed",
            },
        )
    ),
    row(
        "an item that nobody knows",
        *item_events(0, {"id": "i", "type": "x_item", "words": "Zqwords"}),
        at=1,
        place="/item",
    ),
]

DELTAS = [
    _delta("output_text.delta", *spoken(0, {**TEXT, "text": "Zqwords"}), at=2),
    Probe(
        "Deltas",
        "`logprobs` of a text",
        stream(*spoken(0, {**TEXT, "logprobs": [TOKEN]})),
        f"/{AT + 2}/logprobs",
        stream(*spoken(0)),
    ),
    _delta("refusal.delta", *declined(), at=2),
    _delta("reasoning_summary_text.delta", *summed(), at=2),
    _delta("reasoning_text.delta", *thought(), at=2),
    _delta("function_call_arguments.delta", *called(arguments='{"city":"Zqcity"}'), at=1),
    _delta("custom_tool_call_input.delta", *freely(input="Zqinput"), at=1),
    annotation(
        type="url_citation", url="https://example.com/Zqurl", title="Zqtitle", start_index=0, end_index=4
    ),
    annotation(type="file_citation", file_id="Zqfile", filename="Zqwords.txt", index=2),
    annotation(
        type="container_file_citation",
        container_id="Zqbox",
        file_id="Zqfile",
        filename="Zqwords.txt",
        start_index=0,
        end_index=4,
    ),
    annotation(type="file_path", file_id="Zqfile", index=2),
]

_CITED = {"type": "file_path", "file_id": "f", "index": 2}
_ADDED = of("output_text.annotation.added", 0, content_index=0, annotation_index=0, annotation=_CITED)

PROGRESS = [
    _again("output_item.added", *spoken(0), at=0),
    _again("content_part.added", *spoken(0), at=1),
    _again("output_text.done", *spoken(0), at=3),
    _again("output_text.annotation.added", *spoken(0, {**TEXT, "annotations": [_CITED]}, _ADDED), at=3),
    _again("content_part.done", *spoken(0), at=4),
    _again("refusal.done", *declined(), at=3),
    _again("reasoning_summary_part.added", *summed(), at=1),
    _again("reasoning_summary_text.done", *summed(), at=3),
    _again("reasoning_summary_part.done", *summed(), at=4),
    _again("reasoning_text.done", *thought(), at=3),
    _again("function_call_arguments.done", *called(), at=2),
    _again("custom_tool_call_input.done", *freely(), at=2),
    *(progress(f"web_search_call.{state}", SEARCH) for state in ("in_progress", "searching", "completed")),
    *(progress(f"file_search_call.{state}", FILES) for state in ("in_progress", "searching", "completed")),
    *(
        progress(f"code_interpreter_call.{state}", CODE)
        for state in ("in_progress", "interpreting", "completed")
    ),
    progress("code_interpreter_call_code.delta", CODE, delta="1+1"),
    progress("code_interpreter_call_code.done", CODE, code="1+1"),
    *(
        progress(f"image_generation_call.{state}", IMAGE)
        for state in ("in_progress", "generating", "completed")
    ),
    probe(
        "Events of an item",
        "`response.image_generation_call.partial_image`",
        stream(
            *item_events(
                0,
                IMAGE,
                of("image_generation_call.partial_image", 0, partial_image_b64=DATA, partial_image_index=0),
            )
        ),
        f"/{AT + 1}",
    ),
    *(progress(f"mcp_call.{state}", MCP) for state in ("in_progress", "completed", "failed")),
    progress("mcp_call_arguments.delta", MCP, delta="{}"),
    progress("mcp_call_arguments.done", MCP, arguments="{}"),
    *(progress(f"mcp_list_tools.{state}", LIST) for state in ("in_progress", "completed", "failed")),
    progress("shell_call_command.added", SHELL, command="ls", command_index=0),
    progress("shell_call_command.delta", SHELL, delta="ls", command_index=0),
    progress("shell_call_command.done", SHELL, command="ls", command_index=0),
    progress("shell_call_output_content.delta", SHELL_DONE, delta={"stdout": "a"}, command_index=0),
    progress("shell_call_output_content.done", SHELL_DONE, output=SHELL_DONE["output"], command_index=0),
    progress("compaction.compacting", COMPACTED),
]

_DONE = event("completed", response=response("completed", []))


def _cut(reason: str) -> Probe:
    return ended(
        f"`incomplete`: `{reason}`",
        "incomplete",
        _DONE,
        incomplete_details={"reason": reason},
    )


_FAULT = {"code": "server_error", "message": "Zqwhy"}


def _broken(status: str, called: str) -> Probe:
    body = [*stream()[:2], event(status, response=response(status, [], error=_FAULT))]
    return probe("Statuses", called, body, "/2/response/error", needed=True)


STATUSES = [
    ended("`completed`", "completed", event("incomplete", response=response("incomplete", []))),
    *(_cut(reason) for reason in ("max_output_tokens", "max_messages", "content_filter", "steered")),
    _broken("failed", "`response.failed`"),
]

_ECHOED: dict[str, Any] = {
    "access_programs": {"cyber": "standard"},
    "background": False,
    "conversation": {"id": "Zqtalk"},
    "image": {"context_compression": "auto"},
    "instructions": "Zqrule",
    "max_output_tokens": 4321,
    "max_tool_calls": 6,
    "metadata": {"team": "Zqteam"},
    "parallel_tool_calls": True,
    "previous_response_id": "Zqbefore",
    "prompt": {"id": "Zqprompt"},
    "prompt_cache_key": "Zqkey",
    "prompt_cache_options": {"mode": "explicit", "ttl": "30m"},
    "prompt_cache_retention": "24h",
    "reasoning": {"effort": "low"},
    "safety_identifier": "Zqwho",
    "temperature": 0.5,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [{"type": "custom", "name": "Zqname"}],
    "top_logprobs": 3,
    "top_p": 0.97,
    "truncation": "auto",
    "user": "Zqwho",
}

RESPONSE = [
    on_end("id", "Zqid", swap="resp_1", nothing=OURS),
    on_end("model", "Zqmodel", swap="m", nothing=OURS),
    on_end("created_at", 5, swap=1, nothing=OURS),
    on_end("completed_at", 5, nothing=OURS),
    on_end("moderation", {"input": {"type": "error", "code": "c", "message": "Zqwhy"}, "output": None}),
    on_end("input_transformations", [{"id": "Zqid", "action": "removed", "reason": "model_mismatch"}]),
    on_end("prompt_cache_diagnostics", {"type": "cache_hit"}),
    probe(
        "Response",
        "`service_tier`",
        [
            {**frame, "response": {**frame["response"], "service_tier": "priority"}}
            if "response" in frame
            else frame
            for frame in stream()
        ],
        "/0/response/service_tier",
    ),
    probe(
        "Response",
        "`service_tier`, another one at the end",
        stream(service_tier="priority"),
        f"/{AT}/response/service_tier",
    ),
    on_end("tool_usage", {"web_search": {"num_requests": 2}, "image_gen": None}),
    on_end("x_field", "Zqfield"),
    *(on_end(name, value, nothing=ECHO) for name, value in _ECHOED.items()),
]

USAGES = [
    figure("input_tokens", 95),
    figure("output_tokens", 45),
    figure("total_tokens", 999, nothing="follows from the other figures"),
    figure("input_tokens_details.cached_tokens", 20),
    figure("input_tokens_details.cache_write_tokens", 10),
    figure("input_tokens_details.cache_write_tokens_details", {"ttl_12h_tokens": 4, "ttl_30m_tokens": 6}),
    figure("output_tokens_details.reasoning_tokens", 30),
    figure("cost_in_usd_ticks", 7, nothing="the server's own bookkeeping"),
]

ANSWERS: list[Probe] = [*EVENTS, *ITEMS, *DELTAS, *PROGRESS, *STATUSES, *RESPONSE, *USAGES]
