"""Requests that between them hold every field, part, item and tool of the three protocols.

One large body a protocol has everything that every other protocol translates or drops; small bodies have all that
some upstream refuses (a refusal is not silent). Numbers differ from their defaults, so that a lost one is found.
"""

from __future__ import annotations

from typing import Any

from oracle import CHAT, MESSAGES, RESPONSES

Body = dict[str, Any]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PDF = "JVBERi0xLjQKJeLjz9MK"
TEXT = "cGxhaW4gd29yZHM="  # "plain words"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

# --- Chat Completions ---------------------------------------------------------------------------------------

_POINT = {"mode": "explicit", "ttl": "30m"}

_CHAT_MESSAGES = [
    {"role": "system", "content": "You are terse.", "name": "rules"},
    {
        "role": "developer",
        "content": [{"type": "text", "text": "Use tools.", "prompt_cache_breakpoint": _POINT}],
    },
    {
        "role": "user",
        "name": "ada",
        "content": [
            {"type": "text", "text": "Look at these.", "prompt_cache_breakpoint": _POINT},
            {
                "type": "image_url",
                "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "high"},
                "prompt_cache_breakpoint": _POINT,
            },
            {"type": "image_url", "image_url": {"url": "https://example.com/cat.png", "detail": "low"}},
            {
                "type": "file",
                "file": {"file_data": f"data:application/pdf;base64,{PDF}", "filename": "paper.pdf"},
                "prompt_cache_breakpoint": _POINT,
            },
            {
                "type": "file",
                "file": {"file_data": f"data:text/plain;base64,{TEXT}", "filename": "words.txt"},
            },
        ],
    },
    {
        "role": "assistant",
        "name": "bot",
        "content": [{"type": "text", "text": "Let me see."}, {"type": "refusal", "refusal": "Not that one."}],
        "reasoning_content": "The cat is on the mat.",
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city":"Oslo"}'},
            },
            {"id": "call_2", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}},
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "4 degrees", "name": "weather"},
    {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "done"}]},
    {"role": "assistant", "content": None, "refusal": "I will not."},
    {"role": "system", "content": "Be kind now.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
    {"role": "user", "content": "And now?"},
]

CHAT_FULL: Body = {
    "model": "some-model",
    "messages": _CHAT_MESSAGES,
    "frequency_penalty": 0.25,
    "presence_penalty": 0.5,
    "logit_bias": {"1234": 7},
    "logprobs": True,
    "top_logprobs": 3,
    "max_completion_tokens": 4321,
    "metadata": {"team": "blue"},
    "moderation": {"model": "mod-1", "policy": {"input": {"mode": "score"}, "output": {"mode": "block"}}},
    "parallel_tool_calls": False,
    "prediction": {"type": "content", "content": [{"type": "text", "text": "likely text"}]},
    "prompt_cache_key": "key-1",
    "prompt_cache_options": {"mode": "explicit", "ttl": "30m"},
    "prompt_cache_retention": "24h",
    "reasoning_effort": "medium",
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "answer", "description": "An answer.", "schema": SCHEMA, "strict": True},
    },
    "safety_identifier": "user-9",
    "seed": 11,
    "service_tier": "priority",
    "stop": ["END", "STOP"],
    "store": True,
    "stream": True,
    "stream_options": {"include_usage": True, "include_obfuscation": False},
    "temperature": 0.75,
    "top_p": 0.5,
    "top_k": 40,
    "tool_choice": {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "required",
            "tools": [
                {"type": "function", "function": {"name": "weather"}},
                {"type": "custom", "custom": {"name": "patch"}},
            ],
        },
    },
    "tools": [
        {
            "type": "function",
            "function": {"name": "weather", "description": "Tells it.", "parameters": SCHEMA, "strict": True},
        },
        {
            "type": "custom",
            "custom": {
                "name": "patch",
                "description": "Changes files.",
                "format": {"type": "grammar", "grammar": {"definition": "start: WORD", "syntax": "lark"}},
            },
        },
        {"type": "custom", "custom": {"name": "note", "format": {"type": "text"}}},
        {
            "type": "function",
            "function": {"name": "marked"},
            "cache_control": {"type": "ephemeral", "ttl": "5m"},
        },
    ],
    "user": "user-1",
    "verbosity": "low",
    "web_search_options": {
        "search_context_size": "low",
        "user_location": {
            "type": "approximate",
            "approximate": {"city": "Oslo", "country": "NO", "region": "Oslo", "timezone": "Europe/Oslo"},
        },
    },
}


def _chat(**fields: Any) -> Body:
    return {"model": "some-model", "messages": [{"role": "user", "content": "Hi"}], **fields}


def _chat_history(message: Body, *more: Body) -> Body:
    return _chat(
        messages=[{"role": "user", "content": "Hi"}, message, *more, {"role": "user", "content": "Go on"}]
    )


_FUNCTION = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}

CHAT_SMALL: dict[str, Body] = {
    "many": _chat(n=2),
    "audio": _chat(modalities=["text", "audio"], audio={"format": "wav", "voice": {"id": "voice-1"}}),
    "sound": _chat(
        messages=[
            {
                "role": "user",
                "content": [
                    {
                        "type": "input_audio",
                        "input_audio": {"data": TEXT, "format": "wav"},
                        "prompt_cache_breakpoint": _POINT,
                    }
                ],
            }
        ]
    ),
    "file-id": _chat(
        messages=[
            {
                "role": "user",
                "content": [{"type": "file", "file": {"file_id": "file-1", "filename": "a.pdf"}}],
            }
        ]
    ),
    "old-sound": _chat_history({"role": "assistant", "audio": {"id": "audio-1"}}),
    "old-limit": _chat(max_tokens=77, prompt_cache_options={"mode": "implicit"}, stop="END", store=False),
    "both-limits": _chat(max_tokens=77, max_completion_tokens=78),
    "legacy": _chat(
        messages=[
            {"role": "user", "content": "Hi"},
            {
                "role": "assistant",
                "content": None,
                "function_call": {"name": "weather", "arguments": '{"city":"Oslo"}'},
            },
            {"role": "function", "name": "weather", "content": "4 degrees"},
        ],
        functions=[{"name": "weather", "description": "Tells it.", "parameters": SCHEMA}],
        function_call={"name": "weather"},
    ),
    "named": _chat(tools=[_FUNCTION], tool_choice={"type": "function", "function": {"name": "weather"}}),
    "named-custom": _chat(
        tools=[{"type": "custom", "custom": {"name": "patch"}}],
        tool_choice={"type": "custom", "custom": {"name": "patch"}},
    ),
    "forced": _chat(tools=[_FUNCTION], tool_choice="required", parallel_tool_calls=True),
    "forced-nothing": _chat(tool_choice="none", parallel_tool_calls=False),
    "strange-tool": _chat(tools=[{"type": "web_search", "filters": {"only": "this"}}]),
    "json-object": _chat(response_format={"type": "json_object"}),
    "plain-format": _chat(response_format={"type": "text"}),
    "grammar-format": _chat(response_format={"type": "grammar", "grammar": "root ::= x"}),
    "thinking": _chat(thinking={"type": "enabled", "budget_tokens": 5000}),
    "thinking-off": _chat(thinking={"type": "disabled"}),
    "reasoning": _chat(reasoning={"effort": "low", "max_tokens": 3000, "exclude": True, "enabled": True}),
    "reasoning-off": _chat(reasoning={"enabled": False}),
    "reasoning-both": _chat(
        reasoning_effort="high", reasoning={"effort": "low"}, thinking={"type": "adaptive"}
    ),
    "no-effort": _chat(reasoning_effort="none"),
    "odd-part": _chat(
        messages=[{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "u"}}]}]
    ),
    "odd-image": _chat(
        messages=[
            {"role": "user", "content": [{"type": "image_url", "image_url": "https://example.com/b.png"}]}
        ]
    ),
    "details": _chat_history(
        {
            "role": "assistant",
            "content": "Hm.",
            "reasoning": "Thought so.",
            "reasoning_details": [
                {
                    "type": "reasoning.text",
                    "text": "Thought so.",
                    "signature": "c2ln",
                    "format": "anthropic-claude-v1",
                    "index": 0,
                },
                {
                    "type": "reasoning.summary",
                    "summary": "In short.",
                    "format": "openai-responses-v1",
                    "index": 1,
                },
                {
                    "type": "reasoning.encrypted",
                    "data": "Y2lwaGVy",
                    "id": "rs_1",
                    "format": "openai-responses-v1",
                    "index": 2,
                },
                {"type": "reasoning.text", "text": "Unsigned.", "format": "unknown", "index": 3},
            ],
        }
    ),
    "thinking-blocks": _chat_history(
        {
            "role": "assistant",
            "content": "Hm.",
            "thinking_blocks": [
                {"type": "thinking", "thinking": "So.", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "Y2lwaGVy"},
            ],
        }
    ),
    "thinking-part": _chat_history(
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "So."}], "closed": True},
                {"type": "text", "text": "Hm."},
            ],
        }
    ),
    "marked-image": _chat(
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral", "ttl": "5m"}}
                ],
            }
        ]
    ),
    "tool-image": _chat(
        messages=[
            {"role": "user", "content": "Hi"},
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "see", "arguments": "{}"}}
                ],
            },
            {
                "role": "tool",
                "tool_call_id": "call_1",
                "content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}],
                "cache_control": {"type": "ephemeral"},
            },
        ]
    ),
    "tool-refusal": _chat(
        messages=[
            {"role": "user", "content": "Hi"},
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "see", "arguments": "x"}}
                ],
            },
            {
                "role": "tool",
                "tool_call_id": "call_1",
                "content": [
                    {"type": "refusal", "refusal": "Would not."},
                    {"type": "thinking", "thinking": "Hm."},
                ],
            },
        ]
    ),
}

# --- Messages -----------------------------------------------------------------------------------------------

_MARK = {"type": "ephemeral", "ttl": "5m"}
_IMAGE = {"type": "base64", "media_type": "image/png", "data": PNG}

MESSAGES_FULL: Body = {
    "model": "some-model",
    "max_tokens": 4321,
    "system": [
        {"type": "text", "text": "You are terse.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {"type": "text", "text": "Use tools."},
    ],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look at these.", "cache_control": _MARK},
                {
                    "type": "image",
                    "source": _IMAGE,
                    "cache_control": _MARK,
                    "transformations": {"oversized_image": "error"},
                },
                {"type": "image", "source": {"type": "url", "url": "https://example.com/cat.png"}},
                {
                    "type": "document",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
                    "title": "A paper",
                    "context": "From the archive.",
                    "citations": {"enabled": True},
                    "cache_control": _MARK,
                },
                {
                    "type": "document",
                    "source": {"type": "text", "media_type": "text/plain", "data": "plain words"},
                    "title": "Words",
                },
                {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
                {
                    "type": "document",
                    "source": {
                        "type": "content",
                        "content": [
                            {"type": "text", "text": "A chunk."},
                            {"type": "image", "source": _IMAGE},
                        ],
                    },
                    "title": "Chunks",
                },
                {
                    "type": "search_result",
                    "source": "https://example.com/found",
                    "title": "Found",
                    "content": [{"type": "text", "text": "A finding."}],
                    "citations": {"enabled": True},
                    "cache_control": _MARK,
                },
                {"type": "container_upload", "file_id": "file-1"},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "The cat is on the mat.", "signature": "c2lnbmF0dXJl"},
                {"type": "redacted_thinking", "data": "cmVkYWN0ZWQ="},
                {
                    "type": "text",
                    "text": "Let me see.",
                    "citations": [
                        {
                            "type": "char_location",
                            "cited_text": "plain",
                            "document_index": 1,
                            "document_title": "Words",
                            "start_char_index": 0,
                            "end_char_index": 5,
                        },
                        {
                            "type": "web_search_result_location",
                            "cited_text": "A finding.",
                            "encrypted_index": "aW5kZXg=",
                            "title": "Found",
                            "url": "https://example.com/found",
                        },
                    ],
                },
                {
                    "type": "server_tool_use",
                    "id": "srvtoolu_1",
                    "name": "web_search",
                    "input": {"query": "cats"},
                    "caller": {"type": "direct"},
                },
                {
                    "type": "web_search_tool_result",
                    "tool_use_id": "srvtoolu_1",
                    "content": [
                        {
                            "type": "web_search_result",
                            "encrypted_content": "ZW5j",
                            "title": "Cats",
                            "url": "https://example.com/cats",
                            "page_age": "1 day",
                        }
                    ],
                },
                {
                    "type": "mcp_tool_use",
                    "id": "mcptoolu_1",
                    "input": {"a": 1},
                    "name": "list",
                    "server_name": "files",
                },
                {
                    "type": "mcp_tool_result",
                    "tool_use_id": "mcptoolu_1",
                    "content": [{"type": "text", "text": "a, b"}],
                    "is_error": True,
                },
                {
                    "type": "tool_use",
                    "id": "toolu_1",
                    "name": "weather",
                    "input": {"city": "Oslo", "days": 3, "exact": True},
                    "cache_control": _MARK,
                    "caller": {"type": "code_execution_20250825", "tool_id": "srvtoolu_2"},
                    "toolset_name": "outdoors",
                },
                {"type": "tool_use", "id": "toolu_2", "name": "see", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": [
                        {"type": "text", "text": "4 degrees", "cache_control": _MARK},
                        {"type": "image", "source": _IMAGE},
                        {
                            "type": "document",
                            "source": {"type": "text", "media_type": "text/plain", "data": "more words"},
                        },
                        {
                            "type": "search_result",
                            "source": "https://example.com/s",
                            "title": "S",
                            "content": [{"type": "text", "text": "s"}],
                        },
                        {"type": "tool_reference", "tool_name": "see"},
                        {
                            "type": "browser_state",
                            "tabs": [{"tab_id": "t", "title": "T", "url": "u", "active": True}],
                        },
                    ],
                    "is_error": True,
                    "cache_control": _MARK,
                    "toolset_name": "outdoors",
                },
                {"type": "tool_result", "tool_use_id": "toolu_2", "content": "a cat", "is_error": False},
                {"type": "text", "text": "And now?"},
            ],
        },
        {
            "role": "system",
            "content": [{"type": "text", "text": "Be kind now."}],
            "clear_at": "never",
            "output_config": {"effort": "low"},
        },
        {
            "role": "assistant",
            "content": [{"type": "compaction", "content": "All so far.", "encrypted_content": "ZQ=="}],
        },
        {"role": "user", "content": "Go on."},
    ],
    "stream": True,
    "temperature": 0.75,
    "top_p": 0.97,
    "top_k": 40,
    "stop_sequences": ["END", "STOP"],
    "service_tier": "standard_only",
    "speed": "fast",
    "container": {
        "id": "container-1",
        "skills": [{"skill_id": "pdf", "type": "anthropic", "version": "latest"}],
    },
    "context_management": {
        "edits": [{"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 30000}}]
    },
    "mcp_servers": [
        {
            "type": "url",
            "name": "files",
            "url": "https://example.com/mcp",
            "authorization_token": "token-1",
            "tool_configuration": {"allowed_tools": ["list"], "enabled": True},
        }
    ],
    "inference_geo": "eu",
    "cache_control": _MARK,
    "diagnostics": {"previous_message_id": "msg_0"},
    "metadata": {"user_id": "user-1"},
    "output_config": {
        "effort": "medium",
        "format": {"type": "json_schema", "schema": SCHEMA},
        "task_budget": {"type": "tokens", "total": 9000, "remaining": 100},
    },
    "thinking": {
        "type": "adaptive",
        "display": "summarized",
        "block_binding": {"prefix_mismatch_behavior": "error"},
    },
    "tool_choice": {"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
    "tools": [
        {
            "type": "custom",
            "name": "weather",
            "description": "Tells it.",
            "input_schema": SCHEMA,
            "strict": True,
            "input_examples": [{"city": "Oslo"}],
            "eager_input_streaming": True,
            "defer_loading": True,
            "allowed_callers": ["direct"],
            "cache_control": _MARK,
        },
        {"name": "see", "input_schema": {"type": "object"}},
        {"type": "bash_20250124", "name": "bash", "cache_control": _MARK},
        {
            "type": "web_search_20250305",
            "name": "web_search",
            "allowed_domains": ["example.com"],
            "max_uses": 4,
            "user_location": {"type": "approximate", "city": "Oslo"},
        },
        {"type": "computer_20250124", "name": "computer", "display_height_px": 600, "display_width_px": 800},
    ],
    "user_profile_id": "profile-1",
    "workspace_id": "workspace-1",
    "billing_policy": {"type": "billing_policy", "bill_to": "self"},
    "compaction": {"type": "summarize", "instructions": "In short."},
    "fallbacks": [{"model": "other-model", "max_tokens": 5}],
    "fallback_credit_token": "credit-1",
    "betas": ["files-api-2025-04-14"],
}


def _messages(**fields: Any) -> Body:
    return {
        "model": "some-model",
        "max_tokens": 99,
        "messages": [{"role": "user", "content": "Hi"}],
        **fields,
    }


def _requested(*content: Body) -> Body:
    return _messages(messages=[{"role": "user", "content": list(content)}])


MESSAGES_SMALL: dict[str, Body] = {
    "thread": _messages(thread={"type": "create"}),
    "budget": _messages(thinking={"type": "enabled", "budget_tokens": 5000, "display": "omitted"}),
    "between": _messages(thinking={"type": "between_tools", "display": "updates"}),
    "off": _messages(thinking={"type": "disabled"}),
    "effort": _messages(output_config={"effort": "max"}),
    "auto": _messages(
        tools=[{"name": "see", "input_schema": {}}],
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
    ),
    "any": _messages(
        tools=[{"name": "see", "input_schema": {"type": "object"}}],
        tool_choice={"type": "any", "disable_parallel_tool_use": False},
    ),
    "none": _messages(
        tools=[{"name": "see", "input_schema": {"type": "object"}}], tool_choice={"type": "none"}
    ),
    "toolless": _messages(tool_choice={"type": "auto", "disable_parallel_tool_use": True}),
    "old-format": _messages(output_format={"type": "json_schema", "schema": SCHEMA}),
    "image-file": _requested({"type": "image", "source": {"type": "file", "file_id": "file-1"}}),
    "document-file": _requested(
        {"type": "document", "source": {"type": "file", "file_id": "file-1"}, "title": "T"}
    ),
    "slow": _messages(speed="standard", service_tier="auto", container="container-1"),
    "odd-ttl": _messages(
        system=[{"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": "9h"}}]
    ),
    "toolset": _messages(
        tools=[{"type": "browser_toolset_20260801", "configs": {"navigate": {"enabled": True}}}],
    ),
    "named-system": _messages(system="You are terse."),
    "content-in-assistant": _messages(
        messages=[
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": [{"type": "image", "source": _IMAGE}]},
            {"role": "user", "content": "Go on"},
        ]
    ),
    "marked-thinking": _messages(
        messages=[
            {"role": "user", "content": "Hi"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "So.", "signature": "c2ln", "cache_control": _MARK},
                    {"type": "thinking", "thinking": "Unsigned."},
                    {"type": "text", "text": "Hm."},
                ],
            },
            {"role": "user", "content": "Go on"},
        ]
    ),
    "system-media": _messages(
        messages=[
            {"role": "user", "content": "Hi"},
            {
                "role": "system",
                "content": [{"type": "image", "source": _IMAGE}, {"type": "text", "text": "x"}],
            },
        ]
    ),
    "late-results": _messages(
        messages=[
            {"role": "user", "content": "Hi"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "toolu_1", "name": "see", "input": {}}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1"},
                    {"type": "tool_result", "tool_use_id": "toolu_9", "content": "whose?"},
                ],
            },
        ]
    ),
}

# --- Responses ----------------------------------------------------------------------------------------------

_RESPONSES_ITEMS: list[Body] = [
    {"type": "message", "role": "system", "content": "You are terse."},
    {
        "type": "message",
        "role": "developer",
        "content": [{"type": "input_text", "text": "Use tools.", "prompt_cache_breakpoint": _POINT}],
        "status": "completed",
    },
    {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "Look at these."},
            {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "high"},
            {
                "type": "input_image",
                "image_url": "https://example.com/cat.png",
                "detail": "low",
                "prompt_cache_breakpoint": _POINT,
            },
            {
                "type": "input_file",
                "file_data": f"data:application/pdf;base64,{PDF}",
                "filename": "paper.pdf",
                "detail": "high",
                "prompt_cache_breakpoint": _POINT,
            },
            {"type": "input_file", "file_url": "https://example.com/a.pdf"},
        ],
    },
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
                "text": "Let me see.",
                "annotations": [
                    {
                        "type": "url_citation",
                        "url": "https://example.com/found",
                        "title": "Found",
                        "start_index": 1,
                        "end_index": 4,
                    },
                    {"type": "file_citation", "file_id": "file-2", "filename": "b.txt", "index": 2},
                ],
                "logprobs": [
                    {
                        "token": "Let",
                        "bytes": [76],
                        "logprob": -0.5,
                        "top_logprobs": [{"token": "Lo", "bytes": [76], "logprob": -1.5}],
                    }
                ],
            },
            {"type": "refusal", "refusal": "Not that one."},
        ],
    },
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "weather",
        "namespace": "outdoors",
        "arguments": '{"city":"Oslo"}',
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
        "caller": {"type": "program", "caller_id": "call_0"},
    },
    {
        "type": "function_call_output",
        "id": "fco_1",
        "call_id": "call_1",
        "name": "weather",
        "namespace": "outdoors",
        "status": "completed",
        "caller": {"type": "program", "caller_id": "call_0"},
        "output": [
            {"type": "input_text", "text": "4 degrees", "prompt_cache_breakpoint": _POINT},
            {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "high"},
            {"type": "input_file", "file_data": f"data:text/plain;base64,{TEXT}", "filename": "words.txt"},
        ],
    },
    {"type": "custom_tool_call_output", "id": "ctco_1", "call_id": "call_2", "output": "done"},
    {
        "type": "file_search_call",
        "id": "fs_1",
        "queries": ["cats"],
        "status": "completed",
        "results": [{"text": "c"}],
    },
    {
        "type": "computer_call",
        "id": "cu_1",
        "call_id": "call_3",
        "pending_safety_checks": [{"id": "sc_1", "code": "c", "message": "m"}],
        "status": "completed",
        "action": {"type": "click", "button": "left", "x": 3, "y": 4},
    },
    {
        "type": "computer_call_output",
        "call_id": "call_3",
        "output": {"type": "computer_screenshot", "image_url": "https://example.com/s.png"},
    },
    {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {
            "type": "search",
            "query": "cats",
            "sources": [{"type": "url", "url": "https://example.com"}],
        },
    },
    {"type": "tool_search_call", "arguments": {"query": "w"}, "execution": "client", "call_id": "call_4"},
    {
        "type": "tool_search_output",
        "call_id": "call_4",
        "tools": [{"type": "apply_patch"}],
        "execution": "client",
    },
    {
        "type": "additional_tools",
        "role": "developer",
        "tools": [{"type": "function", "name": "later", "parameters": SCHEMA, "strict": False}],
    },
    {"type": "configuration_update", "reasoning": {"effort": "low"}},
    {"type": "compaction", "id": "cmp_1", "encrypted_content": "Y29tcA=="},
    {"type": "image_generation_call", "id": "ig_1", "result": "aW1n", "status": "completed"},
    {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "code": "1+1",
        "container_id": "cntr_1",
        "status": "completed",
    },
    {
        "type": "local_shell_call",
        "id": "lsh_1",
        "call_id": "call_5",
        "status": "completed",
        "action": {"type": "exec", "command": ["ls"], "env": {"A": "b"}},
    },
    {"type": "local_shell_call_output", "id": "call_5", "output": "a b"},
    {"type": "shell_call", "call_id": "call_6", "action": {"commands": ["ls"], "timeout_ms": 5}},
    {
        "type": "shell_call_output",
        "call_id": "call_6",
        "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 3}}],
    },
    {
        "type": "apply_patch_call",
        "call_id": "call_7",
        "status": "completed",
        "operation": {"type": "create_file", "diff": "+a", "path": "a.txt"},
    },
    {"type": "apply_patch_call_output", "call_id": "call_7", "status": "completed", "output": "ok"},
    {
        "type": "mcp_list_tools",
        "id": "mcpl_1",
        "server_label": "files",
        "tools": [{"name": "l", "input_schema": {}}],
    },
    {"type": "mcp_approval_request", "id": "mcpr_1", "arguments": "{}", "name": "l", "server_label": "files"},
    {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True, "reason": "fine"},
    {
        "type": "mcp_call",
        "id": "mcp_1",
        "arguments": "{}",
        "name": "l",
        "server_label": "files",
        "output": "x",
    },
    {"type": "compaction_trigger"},
    {"type": "item_reference", "id": "msg_0"},
    {"type": "program", "id": "prog_1", "call_id": "call_8", "code": "x", "fingerprint": "f"},
    {"type": "program_output", "id": "po_1", "call_id": "call_8", "result": "y", "status": "completed"},
    {"role": "user", "content": "And now?"},
]

RESPONSES_FULL: Body = {
    "model": "some-model",
    "instructions": "Be brief.",
    "input": _RESPONSES_ITEMS,
    "access_programs": {"cyber": "standard"},
    "client_metadata": {"session": "s-1"},
    "context_management": [{"type": "compaction", "compact_threshold": 9000}],
    "image": {"context_compression": "disabled"},
    "include": [
        "reasoning.encrypted_content",
        "web_search_call.action.sources",
        "message.output_text.logprobs",
    ],
    "max_output_tokens": 4321,
    "max_tool_calls": 6,
    "metadata": {"team": "blue"},
    "moderation": {"model": "mod-1"},
    "parallel_tool_calls": False,
    "prompt_cache_key": "key-1",
    "prompt_cache_options": {
        "mode": "explicit",
        "ttl": "12h",
        "prewarm": True,
        "comparison_response_id": "resp_0",
    },
    "prompt_cache_retention": "24h",
    "reasoning": {"effort": "medium", "summary": "concise", "context": "all_turns", "mode": "pro"},
    "safety_identifier": "user-9",
    "service_tier": "priority",
    "store": True,
    "stream": True,
    "stream_options": {"include_obfuscation": False},
    "temperature": 0.75,
    "text": {
        "format": {
            "type": "json_schema",
            "name": "answer",
            "description": "An answer.",
            "schema": SCHEMA,
            "strict": True,
        },
        "verbosity": "low",
    },
    "tool_choice": {"type": "function", "name": "weather"},
    "tools": [
        {
            "type": "function",
            "name": "weather",
            "description": "Tells it.",
            "parameters": SCHEMA,
            "strict": True,
            "async": True,
            "allowed_callers": ["direct"],
            "defer_loading": True,
            "output_schema": {"type": "object"},
        },
        {
            "type": "custom",
            "name": "patch",
            "description": "Changes files.",
            "format": {"type": "grammar", "definition": "start: WORD", "syntax": "lark"},
            "defer_loading": True,
        },
        {"type": "custom", "name": "note", "format": {"type": "text"}},
        {
            "type": "namespace",
            "name": "outdoors",
            "description": "What is outside.",
            "tools": [
                {
                    "type": "function",
                    "name": "weather",
                    "description": "Also.",
                    "parameters": SCHEMA,
                    "strict": False,
                },
                {"type": "custom", "name": "shout"},
            ],
        },
        {
            "type": "namespace",
            "name": "hosted",
            "description": "Theirs.",
            "tools": [{"type": "mcp", "server_label": "x"}],
        },
        {"type": "web_search", "search_context_size": "low", "filters": {"allowed_domains": ["example.com"]}},
        {
            "type": "mcp",
            "server_label": "files",
            "server_url": "https://example.com/mcp",
            "require_approval": "never",
        },
        {"type": "shell", "environment": {"type": "local"}},
        {"type": "tool_search", "description": "Finds.", "parameters": SCHEMA},
    ],
    "top_logprobs": 3,
    "top_p": 0.97,
    "truncation": "auto",
    "user": "user-1",
}


def _responses(**fields: Any) -> Body:
    return {"model": "some-model", "input": "Hi", **fields}


_FLAT = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}

RESPONSES_SMALL: dict[str, Body] = {
    "stored": _responses(previous_response_id="resp_1"),
    "conversation": _responses(conversation={"id": "conv_1"}),
    "prompt": _responses(prompt={"id": "pmpt_1", "version": "2", "variables": {"city": "Oslo"}}),
    "background": _responses(background=True),
    "nothing": _responses(store=False, truncation="disabled", background=False, metadata={}, top_logprobs=0),
    "file-ids": _responses(
        input=[
            {
                "role": "user",
                "content": [
                    {"type": "input_image", "file_id": "file-1", "detail": "auto"},
                    {"type": "input_file", "file_id": "file-2", "filename": "a.pdf"},
                ],
            }
        ]
    ),
    "allowed": _responses(
        tools=[_FLAT, {"type": "custom", "name": "patch"}],
        tool_choice={
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "weather"}, {"type": "custom", "name": "patch"}],
        },
    ),
    "allowed-hosted": _responses(
        tools=[_FLAT, {"type": "web_search"}],
        tool_choice={
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "weather"}, {"type": "web_search"}],
        },
    ),
    "hosted-choice": _responses(
        tools=[{"type": "mcp", "server_label": "x"}], tool_choice={"type": "mcp", "server_label": "x"}
    ),
    "custom-choice": _responses(
        tools=[{"type": "custom", "name": "patch"}], tool_choice={"type": "custom", "name": "patch"}
    ),
    "namespace-choice": _responses(
        tools=[{"type": "namespace", "name": "outdoors", "description": "d", "tools": [_FLAT]}],
        tool_choice={"type": "function", "name": "weather", "namespace": "outdoors"},
    ),
    "forced": _responses(tools=[_FLAT], tool_choice="required", parallel_tool_calls=True),
    "toolless": _responses(tool_choice="none", parallel_tool_calls=False),
    "json-object": _responses(text={"format": {"type": "json_object"}}),
    "plain-format": _responses(text={"format": {"type": "text"}, "verbosity": "high"}),
    "old-summary": _responses(reasoning={"generate_summary": "auto", "effort": "minimal"}),
    "summary-alone": _responses(reasoning={"summary": "detailed"}),
    "no-effort": _responses(reasoning={"effort": "none"}),
    "strange-tier": _responses(
        service_tier="ultrafast", prompt_cache_options={"mode": "implicit", "ttl": "30m"}
    ),
    "bare-reasoning": _responses(
        input=[
            {"role": "user", "content": "Hi"},
            {"type": "reasoning", "id": "rs_9", "summary": [{"type": "summary_text", "text": "s"}]},
            {"type": "message", "role": "assistant", "content": "Hm."},
            {"type": "function_call", "call_id": "call_1", "name": "see", "arguments": "not json"},
            {"type": "function_call_output", "call_id": "call_1", "output": ""},
        ]
    ),
    "odd-part": _responses(input=[{"role": "user", "content": [{"type": "input_video", "url": "u"}]}]),
}

# --- the simple API -------------------------------------------------------------------------------------------

SIMPLE = "simple_chat"  # only for clients, so the oracle has names for its streams, not for its requests

SIMPLE_ALL: dict[str, Body] = {
    "full": {
        "model": "some-model",
        "messages": [
            {"role": "system", "content": "You are terse."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello."},
            {"role": "system", "content": "Be kind now."},
            {"role": "user", "content": "And now?"},
        ],
        "temperature": 0.75,
    },
    "more": {
        "model": "some-model",
        "messages": [{"role": "user", "content": "Hi", "name": "ada"}],
        "stream": True,
        "max_tokens": 77,
    },
}


FIXTURES: dict[str, dict[str, Body]] = {
    CHAT: {"full": CHAT_FULL, **CHAT_SMALL},
    MESSAGES: {"full": MESSAGES_FULL, **MESSAGES_SMALL},
    RESPONSES: {"full": RESPONSES_FULL, **RESPONSES_SMALL},
    SIMPLE: SIMPLE_ALL,
}
