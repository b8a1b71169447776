"""Whole responses that between them hold every field, block and item that the three protocols can respond with."""

from __future__ import annotations

from typing import Any

from oracle import CHAT, MESSAGES, RESPONSES

Body = dict[str, Any]

_TOKEN = {
    "token": "Hel",
    "bytes": [72, 101],
    "logprob": -0.25,
    "top_logprobs": [{"token": "Ho", "bytes": [72], "logprob": -2.5}],
}
_MODERATION = {
    "type": "moderation_results",
    "model": "mod-1",
    "results": [
        {
            "type": "moderation_result",
            "categories": {"spam": True},
            "category_applied_input_types": {"spam": ["text"]},
            "category_scores": {"spam": 0.5},
            "flagged": True,
            "model": "mod-1",
        }
    ],
}

CHAT_FULL: Body = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1_790_000_001,
    "model": "big-model",
    "service_tier": "priority",
    "system_fingerprint": "fp-1",
    "metadata": {"team": "blue"},
    "moderation": {"input": _MODERATION, "output": {"type": "error", "code": "c", "message": "m"}},
    "provider": "someone",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Hello there",
                "refusal": None,
                "reasoning_content": "A greeting.",
                "annotations": [
                    {
                        "type": "url_citation",
                        "url_citation": {
                            "url": "https://example.com/a",
                            "title": "A",
                            "start_index": 1,
                            "end_index": 4,
                        },
                    }
                ],
                "audio": {
                    "id": "audio-1",
                    "data": "YQ==",
                    "expires_at": 1_790_000_009,
                    "transcript": "Hello",
                },
                "images": [{"type": "image_url", "image_url": {"url": "https://example.com/i.png"}}],
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "weather", "arguments": '{"a":1}'},
                    },
                    {"id": "call_2", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}},
                ],
                "channel": "final",
            },
            "logprobs": {"content": [_TOKEN], "refusal": []},
            "finish_reason": "tool_calls",
            "native_finish_reason": "TOOLS",
            "content_filter_results": {"hate": {"filtered": False, "severity": "safe"}},
        }
    ],
    "usage": {
        "prompt_tokens": 100,
        "completion_tokens": 50,
        "total_tokens": 150,
        "prompt_tokens_details": {
            "cached_tokens": 20,
            "cache_write_tokens": 10,
            "audio_tokens": 5,
            "image_tokens": 6,
            "text_tokens": 7,
        },
        "completion_tokens_details": {
            "reasoning_tokens": 30,
            "audio_tokens": 5,
            "accepted_prediction_tokens": 3,
            "rejected_prediction_tokens": 4,
            "text_tokens": 8,
        },
        "cost": 0.25,
        "cost_details": {"upstream": 0.125},
    },
}


def _chat(message: Body, **choice: Any) -> Body:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_790_000_001,
        "model": "big-model",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", **message},
                "logprobs": None,
                "finish_reason": "stop",
                **choice,
            }
        ],
        "usage": {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9},
    }


CHAT_SMALL: dict[str, Body] = {
    "refused": _chat(
        {"content": None, "refusal": "I will not."}, logprobs={"content": None, "refusal": [_TOKEN]}
    ),
    "details": _chat(
        {
            "content": "Hm.",
            "reasoning_details": [
                {
                    "type": "reasoning.text",
                    "text": "So.",
                    "signature": "c2ln",
                    "format": "anthropic-claude-v1",
                    "id": "r1",
                    "index": 0,
                },
                {"type": "reasoning.encrypted", "data": "Y2k=", "format": "x", "index": 1},
            ],
        }
    ),
    "blocks": _chat(
        {"content": "Hm.", "thinking_blocks": [{"type": "thinking", "thinking": "So.", "signature": "c2ln"}]}
    ),
    "list": _chat(
        {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "So."}], "closed": True},
                {"type": "text", "text": "Hm.", "lang": "en"},
                {"type": "reference", "reference_ids": [1]},
            ]
        }
    ),
    "legacy": _chat({"content": None, "function_call": {"name": "weather", "arguments": '{"a":1}'}}),
    "stopped": _chat({"content": "one two"}, stop_reason="STOP"),
    "filtered": _chat({"content": ""}, finish_reason="content_filter"),
    "several": {
        **_chat({"content": "one"}),
        "choices": [
            {
                "index": n,
                "message": {"role": "assistant", "content": text},
                "logprobs": None,
                "finish_reason": "stop",
            }
            for n, text in enumerate(["one", "two"])
        ],
    },
    "others-usage": {
        **_chat({"content": "one"}),
        "usage": {
            "prompt_tokens": 9,
            "completion_tokens": 4,
            "total_tokens": 13,
            "prompt_cache_hit_tokens": 3,
            "prompt_cache_miss_tokens": 6,
            "cache_creation_input_tokens": 2,
        },
    },
}

MESSAGES_FULL: Body = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "big-model",
    "content": [
        {"type": "thinking", "thinking": "A greeting.", "signature": "c2lnbmF0dXJl"},
        {"type": "redacted_thinking", "data": "cmVkYWN0ZWQ="},
        {
            "type": "text",
            "text": "Hello there",
            "citations": [
                {
                    "type": "web_search_result_location",
                    "cited_text": "Hello",
                    "encrypted_index": "aW4=",
                    "title": "A",
                    "url": "https://example.com/a",
                },
                {
                    "type": "char_location",
                    "cited_text": "there",
                    "document_index": 1,
                    "document_title": "D",
                    "start_char_index": 2,
                    "end_char_index": 7,
                    "file_id": "file-1",
                },
                {
                    "type": "search_result_location",
                    "cited_text": "x",
                    "source": "https://example.com/s",
                    "search_result_index": 1,
                    "start_block_index": 2,
                    "end_block_index": 3,
                    "title": "S",
                },
            ],
        },
        {
            "type": "server_tool_use",
            "id": "srvtoolu_1",
            "name": "web_search",
            "input": {"query": "hi"},
            "caller": {"type": "direct"},
        },
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": [
                {
                    "type": "web_search_result",
                    "encrypted_content": "ZQ==",
                    "title": "T",
                    "url": "u",
                    "page_age": "1d",
                }
            ],
        },
        {"type": "compaction", "content": "All so far.", "encrypted_content": "ZQ=="},
        {"type": "container_upload", "file_id": "file-2"},
        {
            "type": "tool_use",
            "id": "toolu_1",
            "name": "weather",
            "input": {"city": "Oslo", "days": 3, "exact": True},
            "caller": {"type": "code_execution_20250825", "tool_id": "srvtoolu_2"},
            "toolset_name": "outdoors",
        },
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "stop_details": None,
    "container": {"id": "container-1", "expires_at": "2026-11-21T12:00:00Z", "skills": [{"skill_id": "pdf"}]},
    "context_management": {"applied_edits": [{"type": "clear_thinking_20251015", "cleared_input_tokens": 5}]},
    "diagnostics": {"cache_miss_reason": {"type": "model_changed"}},
    "input_transformations": [{"type": "thinking_dropped", "path": "p", "reason": "model_binding_mismatch"}],
    "usage": {
        "input_tokens": 70,
        "output_tokens": 50,
        "cache_creation_input_tokens": 10,
        "cache_read_input_tokens": 20,
        "cache_creation": {"ephemeral_1h_input_tokens": 4, "ephemeral_5m_input_tokens": 6},
        "output_tokens_details": {"thinking_tokens": 30},
        "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 2},
        "service_tier": "priority",
        "inference_geo": "eu",
        "speed": "fast",
        "fallback_credit": {"status": {"type": "redeemed"}},
        "iterations": [{"type": "message", "input_tokens": 70, "output_tokens": 50}],
    },
}


def _message(*content: Body, **fields: Any) -> Body:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "big-model",
        "content": list(content),
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 5, "output_tokens": 4, "service_tier": "batch"},
        **fields,
    }


MESSAGES_SMALL: dict[str, Body] = {
    "refused": _message(
        stop_reason="refusal",
        stop_details={
            "type": "refusal",
            "category": "cyber",
            "explanation": "Not that.",
            "recommended_model": "m",
        },
    ),
    "refused-with-text": _message(
        {"type": "text", "text": "Well, no."},
        stop_reason="refusal",
        stop_details={"type": "refusal", "category": "cyber", "explanation": "Not that."},
    ),
    "stopped": _message(
        {"type": "text", "text": "one two"}, stop_reason="stop_sequence", stop_sequence="STOP"
    ),
    "paused": _message({"type": "text", "text": "one"}, stop_reason="pause_turn"),
    "window": _message({"type": "text", "text": "one"}, stop_reason="model_context_window_exceeded"),
    "compacted": _message({"type": "text", "text": "one"}, stop_reason="compaction"),
}

_USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {
        "cached_tokens": 20,
        "cache_write_tokens": 10,
        "cache_write_tokens_details": {"ttl_12h_tokens": 4, "ttl_30m_tokens": 6},
    },
    "output_tokens": 50,
    "output_tokens_details": {"reasoning_tokens": 30, "odd_tokens": 3},
    "total_tokens": 150,
    "cost_in_usd_ticks": 7,
}

RESPONSES_FULL: Body = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1_790_000_001,
    "completed_at": 1_790_000_002,
    "model": "big-model",
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "service_tier": "priority",
    "moderation": {"input": _MODERATION, "output": _MODERATION},
    "prompt_cache_diagnostics": {"type": "cache_hit"},
    "input_transformations": [{"id": "rs_0", "action": "removed", "reason": "model_mismatch"}],
    "tool_usage": {"web_search": {"num_requests": 2}},
    "billing": {"payer": "developer"},
    "output": [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "In short."}],
            "content": [{"type": "reasoning_text", "text": "At length."}],
            "encrypted_content": "Y2lwaGVy",
            "status": "completed",
        },
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "phase": "commentary",
            "content": [
                {
                    "type": "output_text",
                    "text": "Hello there",
                    "annotations": [
                        {
                            "type": "url_citation",
                            "url": "https://example.com/a",
                            "title": "A",
                            "start_index": 1,
                            "end_index": 4,
                        },
                        {"type": "file_citation", "file_id": "file-1", "filename": "b.txt", "index": 2},
                    ],
                    "logprobs": [_TOKEN],
                },
                {"type": "refusal", "refusal": "But no more."},
            ],
        },
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "hi"},
        },
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "Y29tcA=="},
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": "weather",
            "namespace": "outdoors",
            "arguments": '{"a":1}',
            "status": "completed",
            "async": True,
            "caller": {"type": "program", "caller_id": "call_0"},
        },
        {
            "type": "custom_tool_call",
            "id": "ctc_1",
            "call_id": "call_2",
            "name": "patch",
            "input": "*** Begin",
            "async": True,
        },
    ],
    "usage": _USAGE,
    "output_text": "Hello there",
    # What repeats the request.
    "access_programs": None,
    "background": False,
    "conversation": {"id": "conv_1"},
    "instructions": "Be brief.",
    "max_output_tokens": 4321,
    "max_tool_calls": 6,
    "metadata": {"team": "blue"},
    "parallel_tool_calls": True,
    "previous_response_id": "resp_0",
    "prompt": {"id": "pmpt_1"},
    "prompt_cache_key": "key-1",
    "prompt_cache_options": {"mode": "explicit", "ttl": "30m"},
    "prompt_cache_retention": "24h",
    "reasoning": {"effort": "medium", "summary": "auto"},
    "safety_identifier": "user-9",
    "store": True,
    "temperature": 0.75,
    "text": {"format": {"type": "text"}, "verbosity": "low"},
    "tool_choice": "auto",
    "tools": [{"type": "web_search", "search_context_size": "low"}],
    "top_logprobs": 3,
    "top_p": 0.5,
    "truncation": "disabled",
    "user": "user-1",
    "image": {"context_compression": "auto"},
}


def _response(*output: Body, **fields: Any) -> Body:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_790_000_001,
        "model": "big-model",
        "status": "completed",
        "output": list(output),
        "usage": _USAGE,
        **fields,
    }


RESPONSES_SMALL: dict[str, Body] = {
    "cut": _response(
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "incomplete",
            "content": [{"type": "output_text", "text": "Hel", "annotations": []}],
        },
        status="incomplete",
        incomplete_details={"reason": "max_output_tokens"},
    ),
    "steered": _response(status="incomplete", incomplete_details={"reason": "steered"}),
}

WHOLE_RESPONSES: dict[str, dict[str, Body]] = {
    CHAT: {"full": CHAT_FULL, **CHAT_SMALL},
    MESSAGES: {"full": MESSAGES_FULL, **MESSAGES_SMALL},
    RESPONSES: {"full": RESPONSES_FULL, **RESPONSES_SMALL},
}
