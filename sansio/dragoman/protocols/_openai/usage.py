"""Token counts as OpenAI's protocols and servers like theirs have them, and what hosts put next to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from dragoman._ir.shape import members
from dragoman._wire.json import JSON, MAX_COUNT, JSONObject, read_count

# What hosts add to usage for their own bookkeeping: times, details, the same figures once more (seen in recorded
# responses, November 2026).
USAGE_BOOKKEEPING = members(
    "is_byok "  # OpenRouter, Vercel
    "context_details num_server_side_tools_used num_sources_used server_side_tool_usage_details "  # xAI
    "completion_time prompt_time queue_time total_time "  # Groq
    "draft_tokens draft_tokens_acceptance prompt_tokens_per_second time_per_output_token_ms "  # GPUStack
    "time_to_first_token_ms tokens_per_second "
    "latency_checkpoint "  # Azure
    "acceptance_rate completion_tokens_after_first_per_sec completion_tokens_after_first_per_sec_first_ten "
    "completion_tokens_after_first_per_sec_graph completion_tokens_per_sec end_time is_last_response "  # SambaNova
    "start_time stop_reason time_to_first_token time_to_first_token_graph total_latency total_tokens_per_sec "
    "service_tier "  # Mistral
    "citation_tokens search_context_size "  # Perplexity
    "total_characters "  # MiniMax
    "x_details"  # Qwen
)


# Member of a usage object -> the field of Usage that it has, or the same of the members of an object.
UsageFields: TypeAlias = "Mapping[str, str | UsageFields]"


def read_counts(usage: JSONObject, counters: UsageFields) -> dict[str, JSON]:
    """Return the known counts by their field of Usage. Of two members with one field, the first is taken."""
    counts: dict[str, JSON] = {}
    for name, value in usage.items():
        counter = counters.get(name)
        if counter is None:
            continue
        if not isinstance(counter, str):
            if type(value) is dict:
                counts.update(read_counts(value, counter))
        elif (
            count := value if type(value) is int and 0 <= value <= MAX_COUNT else read_count(value)
        ) is not None:
            counts.setdefault(counter, count)
    return counts
