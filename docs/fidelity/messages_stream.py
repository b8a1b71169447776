"""Probes for every event, block, delta and member that servers of Messages stream."""

from __future__ import annotations

from typing import Any

from fidelity.probe import Body, Json, Probe, probe

_OURS = "the client is told the gateway's own"
_DIRECT = {"type": "direct"}
_CALLER = {"type": "code_execution_20250825", "tool_id": "Zqcaller"}
_START_USAGE = {"input_tokens": 90, "output_tokens": 1}
_USAGE = {"input_tokens": 90, "output_tokens": 40}


def _start(**fields: Any) -> Body:
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    end = {"stop_reason": None, "stop_sequence": None, "usage": _START_USAGE}
    return {"type": "message_start", "message": {**head, **end, **fields}}


def _block(index: int, block: Body, *deltas: Body) -> list[Json]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def _text(index: int, text: str = "Well") -> list[Json]:
    return _block(index, {"type": "text", "text": ""}, {"type": "text_delta", "text": text})


def _stop(reason: str = "end_turn", usage: Body | None = None, **fields: Any) -> Body:
    delta = {"stop_reason": reason, "stop_sequence": None, **fields}
    return {"type": "message_delta", "delta": delta, "usage": usage or _USAGE}


# A text comes first, so the subject begins at this frame.
_AT = 4


def _stream(*middle: Json, start: Body | None = None, stop: Body | None = None) -> list[Json]:
    moved = [{**frame, "index": frame["index"] + 1} if "index" in frame else frame for frame in middle]
    return [start or _start(), *_text(0), *moved, stop or _stop(), {"type": "message_stop"}]


def _complete(called: str = "", **block: Any) -> Probe:
    """Return a row about a block that comes whole."""
    body = _stream(*_block(0, block))
    return _row(called or f"`{block['type']}`", body, "/content_block")


def _row(called: str, body: list[Json], place: str, at: int = 0) -> Probe:
    """Return a row about a block; the other stream lacks all of it. at: the event that is the subject."""
    return Probe("Content blocks", called, body, f"/{_AT + at}{place}", _stream(stop=body[-2]))


def _delta(called: str, block: Body, *deltas: Body, at: int = -1) -> Probe:
    """Return a row about one delta of a block, by default the last."""
    body = _stream(*_block(0, block, *deltas))
    return probe("Deltas", called, body, f"/{_AT + 1 + (at if at >= 0 else len(deltas) - 1)}")


def _on_start(name: str, value: Any, *, swap: Any = None, nothing: str = "") -> Probe:
    body = _stream(start=_start(**{name: value}))
    return probe("`message_start`", f"`{name}`", body, f"/0/message/{name}", swap=swap, nothing=nothing)


def _reason(reason: str, **fields: Any) -> Probe:
    body = _stream(stop=_stop(reason, **fields))
    other = "max_tokens" if reason == "end_turn" else "end_turn"
    return probe("Stop reasons", f"`{reason}`", body, "/4/delta/stop_reason", swap=other)


def _usage(name: str, value: Any, *, start: bool = False, nothing: str = "") -> Probe:
    """Return a row about a member of the usage. start: it comes in message_start only."""
    if start:
        body = _stream(start=_start(usage={**_START_USAGE, name: value}))
        place = f"/0/message/usage/{name}"
    else:
        body, place = _stream(stop=_stop(usage={**_USAGE, name: value})), f"/4/usage/{name}"
    swap = {"swap": _USAGE[name] + 1} if name in _USAGE else {}
    return probe("Usage", f"`{name}`", body, place, nothing=nothing, **swap)


_THINKING = {"type": "thinking", "thinking": "", "signature": ""}
_SIGNED = {"type": "signature_delta", "signature": "sig"}
_TEXT = {"type": "text", "text": "", "citations": None}
_WORDS = {"type": "text_delta", "text": "Good "}
_INPUT = {"type": "input_json_delta", "partial_json": '{"city":"Zqcity"}'}


def _call(**block: Any) -> list[Json]:
    return _block(0, {"type": "tool_use", "id": "toolu_1", "name": "see", "input": {}, **block}, _INPUT)


def _on_call(name: str, value: Any, *, nothing: str = "") -> Probe:
    body = _stream(*_call(**{name: value}), stop=_stop("tool_use"))
    return probe(
        "Content blocks", f"`{name}` of a call", body, f"/{_AT}/content_block/{name}", nothing=nothing
    )


def _citation(**citation: Any) -> Probe:
    body = _stream(*_block(0, _TEXT, _WORDS, {"type": "citations_delta", "citation": citation}))
    return probe("Citations", f"`{citation['type']}`", body, f"/{_AT + 2}")


_SPAN = {"cited_text": "Zqcited", "document_index": 0, "document_title": "Zqtitle", "file_id": "Zqfile"}
_RESULT = {"tool_use_id": "Zqid"}

EVENTS = [
    _on_start("id", "Zqid", swap="msg_1", nothing=_OURS),
    _on_start("model", "Zqmodel", swap="m", nothing=_OURS),
    _on_start("role", "assistant", nothing="has one value"),
    _on_start("container", {"id": "Zqbox", "expires_at": "2026-11-21T12:00:00Z"}),
    _on_start("diagnostics", {"cache_miss_reason": {"type": "model_changed"}}),
    _on_start(
        "input_transformations",
        [{"type": "thinking_dropped", "path": "Zqpath", "reason": "model_binding_mismatch"}],
    ),
    _on_start(
        "context_management",
        {
            "applied_edits": [
                {"type": "clear_thinking_20251015", "cleared_input_tokens": 5, "cleared_thinking_turns": 1}
            ]
        },
    ),
    _on_start("x_field", "Zqfield"),
    probe(
        "`message_delta`",
        "`stop_sequence`",
        _stream(stop=_stop("stop_sequence", stop_sequence="Zqstop")),
        "/4/delta/stop_sequence",
        swap=None,
    ),
    probe(
        "`message_delta`",
        "`stop_details`",
        _stream(
            stop=_stop(
                "refusal", stop_details={"type": "refusal", "category": "cyber", "explanation": "Zqwhy"}
            )
        ),
        "/4/delta/stop_details",
    ),
    probe(
        "`message_delta`",
        "`stop_details.recommended_model`",
        _stream(
            stop=_stop(
                "refusal",
                stop_details={
                    "type": "refusal",
                    "category": None,
                    "explanation": "No.",
                    "recommended_model": "Zqmodel",
                },
            )
        ),
        "/4/delta/stop_details/recommended_model",
    ),
    probe(
        "`message_delta`",
        "`container`",
        _stream(stop=_stop(container={"id": "Zqbox", "expires_at": "2026-11-21T12:00:00Z"})),
        "/4/delta/container",
    ),
    probe(
        "`message_delta`",
        "`context_management`",
        _stream(
            stop={
                **_stop(),
                "context_management": {
                    "applied_edits": [
                        {
                            "type": "clear_tool_uses_20250919",
                            "cleared_input_tokens": 5,
                            "cleared_tool_uses": 1,
                        }
                    ]
                },
            }
        ),
        "/4/context_management",
    ),
    probe("Other events", "`message_stop`", _stream(), "/5", nothing="that the answer ends is told anyway"),
    probe(
        "Other events", "`content_block_stop`", _stream(), "/3", nothing="that a block ends is told anyway"
    ),
    probe("Other events", "`ping`", _stream({"type": "ping"}), f"/{_AT}", nothing="a sign of life"),
    probe(
        "Other events",
        "`error`",
        [_start(), {"type": "error", "error": {"type": "overloaded_error", "message": "Zqwhy"}}],
        "/1",
        needed=True,
    ),
    probe(
        "Other events",
        "an event that nobody knows",
        _stream({"type": "x_event", "words": "Zqwords"}),
        f"/{_AT}",
    ),
]

BLOCKS = [
    _row("`text`", _stream(*_text(0, "Zqwords")), "", 1),
    _row(
        "`thinking`",
        _stream(*_block(0, _THINKING, {"type": "thinking_delta", "thinking": "Zqthought"}, _SIGNED)),
        "",
        1,
    ),
    _complete(type="redacted_thinking", data="Zqcipher"),
    _row(
        "`tool_use`",
        _stream(*_call(id="Zqid", name="Zqname"), stop=_stop("tool_use")),
        "",
    ),
    _on_call("caller", _CALLER),
    _on_call("toolset_name", "Zqset"),
    _row(
        "`server_tool_use`",
        _stream(
            *_block(
                0,
                {
                    "type": "server_tool_use",
                    "id": "Zqid",
                    "name": "web_search",
                    "input": {},
                    "caller": _DIRECT,
                },
                {"type": "input_json_delta", "partial_json": '{"query":"Zqquery"}'},
            )
        ),
        "",
    ),
    _complete(
        type="web_search_tool_result",
        **_RESULT,
        content=[
            {
                "type": "web_search_result",
                "encrypted_content": "Zqcipher",
                "title": "Zqtitle",
                "url": "https://example.com/Zqurl",
                "page_age": None,
            }
        ],
    ),
    _complete(
        type="web_fetch_tool_result",
        **_RESULT,
        content={
            "type": "web_fetch_result",
            "url": "https://example.com/Zqurl",
            "retrieved_at": None,
            "content": {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "Zqwords"},
                "title": "Zqtitle",
                "citations": None,
            },
        },
    ),
    _complete(
        type="advisor_tool_result",
        **_RESULT,
        content={"type": "advisor_result", "text": "Zqadvice", "stop_reason": "end_turn"},
    ),
    _complete(
        type="code_execution_tool_result",
        **_RESULT,
        content={
            "type": "code_execution_result",
            "stdout": "Zqout",
            "stderr": "Zqerr",
            "return_code": 3,
            "content": [],
        },
    ),
    _complete(
        type="bash_code_execution_tool_result",
        **_RESULT,
        content={
            "type": "bash_code_execution_result",
            "stdout": "Zqout",
            "stderr": "Zqerr",
            "return_code": 3,
            "content": [],
        },
    ),
    _complete(
        type="text_editor_code_execution_tool_result",
        **_RESULT,
        content={
            "type": "text_editor_code_execution_view_result",
            "content": "Zqwords",
            "file_type": "text",
            "num_lines": 2,
            "start_line": 1,
            "total_lines": 2,
        },
    ),
    _complete(
        type="tool_search_tool_result",
        **_RESULT,
        content={
            "type": "tool_search_tool_search_result",
            "tool_references": [{"type": "tool_reference", "tool_name": "Zqname"}],
        },
    ),
    _complete(
        type="mcp_tool_use", id="Zqid", name="Zqname", server_name="Zqserver", input={"city": "Zqcity"}
    ),
    _complete(
        type="mcp_tool_result", **_RESULT, content=[{"type": "text", "text": "Zqdone"}], is_error=False
    ),
    _complete(type="container_upload", file_id="Zqfile"),
    _row(
        "`compaction`",
        _stream(
            *_block(
                0,
                {"type": "compaction", "content": None, "encrypted_content": None},
                {"type": "compaction_delta", "content": "Zqsummary", "encrypted_content": "Zqcipher"},
            )
        ),
        "",
        1,
    ),
    _complete(
        type="fallback",
        **{"from": {"model": "Zqone"}},
        to={"model": "Zqother"},
        trigger={"type": "refusal", "category": "cyber"},
    ),
    _complete(
        type="mcp_tool_listing",
        mcp_server_name="Zqserver",
        tools=[{"name": "Zqname", "description": "Zqtext", "input_schema": {"type": "object"}}],
    ),
    _complete("a block that nobody knows", type="x_block", words="Zqwords"),
]

DELTAS = [
    _delta("`text_delta`", _TEXT, {"type": "text_delta", "text": "Zqwords"}),
    _delta("`thinking_delta`", _THINKING, {"type": "thinking_delta", "thinking": "Zqthought"}, _SIGNED, at=0),
    _delta(
        "`signature_delta`",
        _THINKING,
        {"type": "thinking_delta", "thinking": "Hm"},
        {"type": "signature_delta", "signature": "Zqsign"},
    ),
    probe(
        "Deltas",
        "`estimated_tokens` of a `thinking_delta`",
        _stream(
            *_block(
                0, _THINKING, {"type": "thinking_delta", "thinking": "Hm", "estimated_tokens": 7}, _SIGNED
            )
        ),
        f"/{_AT + 1}/delta/estimated_tokens",
        nothing="the figure comes with the usage",
    ),
    _delta(
        "`citations_delta`",
        _TEXT,
        _WORDS,
        {
            "type": "citations_delta",
            "citation": {
                "type": "web_search_result_location",
                "cited_text": "Good",
                "encrypted_index": "aW5kZXg=",
                "title": "Zqtitle",
                "url": "https://example.com/Zqurl",
            },
        },
    ),
    _delta("`input_json_delta`", {"type": "tool_use", "id": "toolu_1", "name": "see", "input": {}}, _INPUT),
    _delta(
        "`compaction_delta`",
        {"type": "compaction", "content": None, "encrypted_content": None},
        {"type": "compaction_delta", "content": "Zqsummary", "encrypted_content": "Zqcipher"},
    ),
    _delta("a delta that nobody knows", _TEXT, _WORDS, {"type": "x_delta", "words": "Zqwords"}),
]

CITATIONS = [
    _citation(type="char_location", **_SPAN, start_char_index=1, end_char_index=4),
    _citation(type="page_location", **_SPAN, start_page_number=1, end_page_number=2),
    _citation(type="content_block_location", **_SPAN, start_block_index=1, end_block_index=2),
    _citation(
        type="web_search_result_location",
        cited_text="Zqcited",
        encrypted_index="Zqcipher",
        title="Zqtitle",
        url="https://example.com/Zqurl",
    ),
    _citation(
        type="search_result_location",
        cited_text="Zqcited",
        search_result_index=0,
        source="https://example.com/Zqsource",
        title="Zqtitle",
        start_block_index=0,
        end_block_index=1,
    ),
]

REASONS = [
    _reason("end_turn"),
    _reason("max_tokens"),
    probe(
        "Stop reasons",
        "`stop_sequence`",
        _stream(stop=_stop("stop_sequence", stop_sequence="Zqstop")),
        "/4/delta",
        swap={"stop_reason": "end_turn", "stop_sequence": None},
    ),
    _reason("pause_turn"),
    _reason("refusal"),
    _reason("model_context_window_exceeded"),
    _reason("compaction"),
    probe(
        "Stop reasons",
        "`tool_use`",
        _stream(*_call(), stop=_stop("tool_use")),
        "/7/delta/stop_reason",
        swap="max_tokens",
    ),
]

USAGES = [
    _usage("input_tokens", 95),
    _usage("output_tokens", 42),
    _usage("cache_read_input_tokens", 20),
    _usage("cache_creation_input_tokens", 10),
    _usage("cache_creation", {"ephemeral_1h_input_tokens": 4, "ephemeral_5m_input_tokens": 6}, start=True),
    _usage("output_tokens_details", {"thinking_tokens": 30}),
    _usage("server_tool_use", {"web_search_requests": 2, "web_fetch_requests": 0}),
    _usage("service_tier", "priority", start=True),
    _usage("inference_geo", "eu", start=True, nothing="the server's own bookkeeping"),
    _usage("speed", "fast", start=True),
    _usage("fallback_credit", {"status": {"type": "redeemed"}}),
    _usage(
        "iterations",
        [{"type": kind, "input_tokens": 70, "output_tokens": 50} for kind in ("compaction", "message")],
    ),
]

ANSWERS: list[Probe] = [*EVENTS, *BLOCKS, *DELTAS, *CITATIONS, *REASONS, *USAGES]
