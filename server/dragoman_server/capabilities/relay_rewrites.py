"""Relays that need to be rewritten: the upstream sends what clients of its protocol cannot read, or refuses what they
send.

A local server is recognized by its default port. If another server has that port, set `relay`.
"""

from dataclasses import dataclass

from dragoman_server.capabilities.model_families import matches_any, normalized_model_name
from dragoman_server.capabilities.providers import (
    CHAT,
    LOOKED_UP,
    RESPONSES,
    address_of,
    is_local,
    provider_name,
)


@dataclass(frozen=True, slots=True)
class RelayRewrite:
    """A protocol at a server: a provider's, by its name in `providers`, or a local one, by its port.

    models: patterns of names, as normalized_model_name() spells them.
    why: what goes wrong without. source: where that is documented. date: when it was read.
    """

    protocol: str
    server: str
    why: str
    source: str
    date: str = LOOKED_UP
    port: int | None = None
    models: tuple[str, ...] = ("*",)


RELAY_REWRITES = (
    RelayRewrite(
        RESPONSES,
        "llama.cpp",
        "events without output_index and sequence_number",
        "openai-python 3.54.0 with llama.cpp's server",
        port=8080,
    ),
    RelayRewrite(RESPONSES, "vLLM", "content_index counts on across items", "vllm#45742", port=8000),
    RelayRewrite(
        CHAT,
        "openai",
        "an effort together with tools is refused",
        "itzcrazykns/vane#1173",
        models=("gpt-5-[4-6]", "gpt-5-[4-6]-*", "gpt-6*"),
    ),
    # Clients adapt to these hosts by their address. Here they have the gateway's, and send what OpenAI accepts.
    RelayRewrite(
        CHAT,
        "deepseek",
        "the role developer is refused, and so are turns without their reasoning",
        "9router#773; pi#3636; pi 0.73.1 and aider 0.86.2",
    ),
    RelayRewrite(
        CHAT,
        "mistral",
        "unknown members are refused, among them store and reasoning_content",
        "eca#231; crush#1590; pi 0.73.1, opencode 1.18.33",
    ),
    RelayRewrite(
        CHAT,
        "groq",
        "reasoning_content and unknown members are refused",
        "console.groq.com/docs/openai; opencode 1.18.33",
    ),
    RelayRewrite(
        CHAT,
        "moonshot",
        "other sampling than the model's own is refused, and so are tool calls without their reasoning",
        "VideoAdGuard#34; kimi-code#686; new-api#3121",
    ),
    RelayRewrite(
        CHAT,
        "minimax",
        "the thinking type enabled is refused, and so are functions without parameters",
        "cherry-studio#16431; qwen-code#11905",
    ),
    RelayRewrite(
        CHAT, "dashscope", "a forced tool call is refused while the model reasons", "cloudwego/eino#994"
    ),
    RelayRewrite(
        CHAT,
        "gemini",
        "tool calls without Google's signature and unknown members are refused",
        "paws#103; continue#8865; SkyrimNet-GamePlugin#77",
    ),
    RelayRewrite(
        CHAT,
        "cerebras",
        "penalties, logit_bias and parallel_tool_calls are refused",
        "req_llm's guide to Cerebras",
    ),
)


def needs_rewrite(url: str, protocol: str, model: str) -> bool:
    """True if the table has a row for relays of this protocol to this model at `url`."""
    name, provider = normalized_model_name(model), provider_name(url)
    port = address_of(url)[1] if is_local(url) else None
    return any(
        row.protocol == protocol
        and (row.server == provider if row.port is None else row.port == port)
        and matches_any(name, row.models)
        for row in RELAY_REWRITES
    )
