"""Members that hosts add to responses for bookkeeping, or to repeat the request; clients do not need them.

Each row is one member of a whole response: where it stands, and a value as its host sends it.
"""

import re
from typing import Any

from oracle import CHAT, MESSAGES, RESPONSES

Extra = tuple[str, Any]

_SAFE = {"hate": {"filtered": False, "severity": "safe"}, "jailbreak": {"filtered": False, "detected": False}}
_OPENROUTER_USAGE = [("/usage/is_byok", False)]
_XAI_USAGE = [
    ("/usage/context_details", {"input_tokens": 7, "output_tokens": 2}),
    ("/usage/num_server_side_tools_used", 2),
    ("/usage/num_sources_used", 3),
    ("/usage/server_side_tool_usage_details", {"web_search_calls": 2}),
]
_GROQ_TIMES = ("completion_time", "prompt_time", "queue_time", "total_time")
_ROUTED = [
    ("/provider", "Someone"),
    ("/native_finish_reason", "STOP"),
    ("/openrouter_metadata", {"strategy": "direct"}),
    ("/request_id", "req_1"),
    ("/timings", {"prompt_n": 36, "prompt_ms": 79.853}),
    ("/kv_transfer_params", {"remote": "a"}),
    ("/copilot_usage", {"total_nano_aiu": 5}),
]

EXTRAS: dict[str, list[Extra]] = {
    CHAT: [
        *[row for row in _ROUTED if row[0] != "/native_finish_reason"],
        ("/metadata", {"team": "blue"}),
        ("/prompt", [{"text": "Hi"}]),
        ("/obfuscation", "abcdef"),
        ("/p", "abcdef"),
        ("/generationId", "gen_1"),
        ("/latency_checkpoint", {"engine_ttft_ms": 33}),
        ("/model_info", {"arch": "llama"}),
        ("/runtime", {"name": "llama.cpp"}),
        ("/stats", {"tokens_per_second": 50}),
        ("/prompt_progress", {"total": 9, "processed": 4}),
        ("/base_resp", {"status_code": 0, "status_msg": "success"}),
        ("/input_sensitive", False),
        ("/output_sensitive", False),
        ("/images", []),
        ("/related_questions", []),
        ("/type", "end_of_stream"),
        ("/status", "COMPLETED"),
        ("/vertex_ai_citation_metadata", []),
        ("/vertex_ai_grounding_metadata", []),
        ("/vertex_ai_safety_results", []),
        ("/vertex_ai_url_context_metadata", []),
        ("/perf_metrics", {"server-time-to-first-token": 0.1}),
        ("/time_info", {"queue_time": 0.1}),
        ("/trace_details", {"trace_id": "t"}),
        ("/usage_breakdown", {"models": [{"model": "a", "usage": {"prompt_tokens": 5}}]}),
        ("/weight_version", "default"),
        ("/__verbose", {"content": "Hi"}),
        ("/prompt_filter_results", [{"prompt_index": 0, "content_filter_results": _SAFE}]),
        ("/x_groq", {"id": "req_1", "seed": 7, "usage_breakdown": {"models": [{"model": "a"}]}}),
        ("/choices/0/content_filter_results", _SAFE),
        ("/choices/0/content_filter_results", {}),
        ("/choices/0/content_filter_offsets", {"start_offset": 1}),
        ("/choices/0/matched_stop", 163586),
        ("/choices/0/stop_reason", 163586),
        ("/choices/0/native_finish_reason", "STOP"),
        ("/choices/0/provider_specific_fields", {"refusal": None}),
        ("/choices/0/seed", 7),
        ("/choices/0/text", "Hi"),
        ("/choices/0/token_ids", [1, 2]),
        ("/choices/0/message/channel", "analysis"),
        ("/choices/0/message/graph_data", {"sources": None, "status": None}),
        ("/choices/0/message/name", "MiniMax AI"),
        ("/choices/0/message/padding", "abc"),
        ("/choices/0/message/token_id", 40),
        ("/choices/0/message/provider_metadata", {"gateway": {"cost": "0.1", "routing": {"a": 1}}}),
        ("/choices/0/message/provider_metadata", {"openai": {"responseId": "r", "serviceTier": "default"}}),
        ("/choices/0/message/provider_metadata", {"google": {"groundingMetadata": None, "usageMetadata": 1}}),
        ("/choices/0/message/provider_specific_fields", {"citations": None}),
        *_OPENROUTER_USAGE,
        *_XAI_USAGE,
        *[(f"/usage/{name}", 0.07) for name in _GROQ_TIMES],
        ("/usage/draft_tokens", 4),
        ("/usage/draft_tokens_acceptance", 0.5),
        ("/usage/tokens_per_second", 50.5),
        ("/usage/prompt_tokens_per_second", 50.5),
        ("/usage/time_to_first_token_ms", 50.5),
        ("/usage/time_per_output_token_ms", 50.5),
        ("/usage/acceptance_rate", 0.5),
        ("/usage/completion_tokens_per_sec", 50.5),
        ("/usage/total_tokens_per_sec", 50.5),
        ("/usage/total_latency", 0.5),
        ("/usage/start_time", 1.5),
        ("/usage/end_time", 2.5),
        ("/usage/time_to_first_token", 0.5),
        ("/usage/is_last_response", True),
        ("/usage/stop_reason", "stop"),
        ("/usage/service_tier", "standard"),
        ("/usage/citation_tokens", 4),
        ("/usage/search_context_size", "low"),
        ("/usage/total_characters", 0),
        ("/usage/x_details", [{"x_billing_type": "response_api"}]),
        ("/usage/odd_counter", 0),
        ("/usage/prompt_tokens_details/text_tokens", 7),
        ("/usage/prompt_tokens_details/odd_tokens", 0),
        ("/usage/completion_tokens_details/text_tokens", 7),
        ("/usage/completion_tokens_details/image_tokens", 0),
        ("/usage/server_tool_use_details", {"tool_calls_requested": 1, "tool_calls_executed": 1}),
    ],
    MESSAGES: [
        *_ROUTED,
        *_OPENROUTER_USAGE,
        ("/base_resp", {"status_code": 0, "status_msg": "success"}),
        ("/context_management", {"applied_edits": []}),
        ("/usage/inference_geo", "not_available"),
        ("/usage/iterations", [{"type": "message", "input_tokens": 5, "output_tokens": 4}]),
        ("/usage/server_tool_use", {"web_search_requests": 0, "web_fetch_requests": 0}),
        ("/usage/odd_counter", 0),
    ],
    RESPONSES: [
        *_ROUTED,
        *_OPENROUTER_USAGE,
        *_XAI_USAGE,
        *[(f"/usage/{name}", 0.07) for name in _GROQ_TIMES],
        ("/billing", {"payer": "developer"}),
        ("/frequency_penalty", 0.5),
        ("/presence_penalty", 0.5),
        ("/session_id", "s"),
        ("/x_groq", {"id": "req_1"}),
        (
            "/content_filters",
            [
                {
                    "blocked": False,
                    "source_type": "completion",
                    "content_filter_raw": [],
                    "content_filter_results": _SAFE,
                    "content_filter_offsets": {"start_offset": 0, "end_offset": 9},
                }
            ],
        ),
        ("/output/0/created_by", "someone"),
        ("/usage/x_details", [{"x_billing_type": "response_api"}]),
        ("/usage/odd_counter", 0),
        ("/usage/input_tokens_details/text_tokens", 7),
        ("/usage/input_tokens_details/input_tokens_per_turn", [7]),
        ("/usage/input_tokens_details/cached_tokens_per_turn", [7]),
        ("/usage/output_tokens_details/output_tokens_per_turn", [7]),
        ("/usage/output_tokens_details/text_tokens", 7),
        ("/usage/output_tokens_details/tool_output_tokens", 7),
        ("/usage/output_tokens_details/tool_output_tokens_per_turn", [7]),
        ("/tool_usage", {"image_gen": {"total_tokens": 0}, "web_search": {"num_requests": 0}}),
    ],
}

# Members without meaning only as long as their value is one of those above.
_BY_VALUE = re.compile(
    r".*/(base_resp|content_filter_results|content_filters|context_management|graph_data|image_tokens|images"
    r"|iterations|matched_stop|odd_\w+|prompt_filter_results|provider_metadata|provider_specific_fields"
    r"|related_questions|server_tool_use\w*|stop_reason|tool_usage|vertex_ai_\w+|\w+_sensitive)"
)


def _pattern(path: str) -> str:
    """The place in whole responses and in frames, with all that it holds."""
    path = re.sub(r"/0(?=/)", "/[^/]+", re.escape(path)).replace("/message/", "/(message|delta)/")
    return f"(/response|/message)?{path}(/.*)?"


# Places at which nothing that is planted is missed.
BOOKKEEPING: dict[str, str] = {
    protocol: "|".join(
        [
            *sorted({_pattern(path) for path, _ in rows if not _BY_VALUE.fullmatch(path)}),
            r".*/provider_metadata/(gateway|google/usageMetadata)(/.*)?",
            r".*/content_filters/[^/]+/content_filter_offsets(/.*)?",
        ]
    )
    for protocol, rows in EXTRAS.items()
}
