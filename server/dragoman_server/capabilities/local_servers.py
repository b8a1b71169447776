"""The table of servers that people run themselves, by their usual ports: what they accept, and how `init` finds them.

The port alone shows which one it is. If another server has such a port, set what it needs.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from dragoman_server.capabilities.provider import CHAT, LOOKED_UP, MESSAGES, REFUSED, RESPONSES


class LocalServer(msgspec.Struct, frozen=True):
    """A program that serves models on this machine.

    Attributes:
        name: The upstream's name.
        title: Its name for people.
        base_url: Where it listens if nothing else is configured.
        key: The variable for its key, if it is started with one.
        source: Where that is documented.
        date: When that was read.
        by_protocol: Settings that differ from those of any local server, for each of its protocols.
        owner: The owner that it writes for its models, "" if that differs.
        details: The path of the server's native list, with the context windows of models.
        advice: A line for the configuration file.
        enlarge: The option for a context window of {tokens}, of servers with an owner.
    """

    name: str
    title: str
    base_url: str
    key: str
    source: str
    date: str = LOOKED_UP
    by_protocol: Mapping[str, Mapping[str, object]] = msgspec.field(default_factory=dict)
    owner: str = ""
    details: str = ""
    advice: str = ""
    enlarge: str = ""


# Codex declares its tools in namespaces, as free text and as hosted ones, which these servers skip or refuse: Ollama
# "Unsupported tool type" (#17618), vLLM "tool type namespace not supported" (#49493), LM Studio "Expected 'function' |
# 'mcp'" (lmstudio-bug-tracker#1383, #1810); llama.cpp and SGLang skip them (sglang#35216, #38359; all read 2026-12-01).
# And vLLM's content_index counts on across items.
_RESPONSES: Mapping[str, object] = {"custom_tools": False, "relay": "rewrite"}


def _at(
    port: int,
    name: str,
    title: str,
    key: str,
    source: str,
    by_protocol: Mapping[str, Mapping[str, object]] | None = None,
    **more: Any,
) -> LocalServer:
    rows = {**(by_protocol or {}), RESPONSES: {**_RESPONSES, **(by_protocol or {}).get(RESPONSES, {})}}
    return LocalServer(name, title, f"http://127.0.0.1:{port}/v1", key, source, by_protocol=rows, **more)


# What llama-server b11434 does (measured, and its server-chat.cpp, read 2026-12-01). It reads `tool_choice` as a text,
# so that the choice of one tool is none; in Messages that becomes a choice of any.
_NO_NAMED_TOOL = ("allowed_tools", "named_tool")
_LLAMA_CPP: Mapping[str, Any] = {
    "owner": "llamacpp",
    "enlarge": "-c {tokens}",
    "by_protocol": {
        CHAT: {"refuses": (*REFUSED, "named_tool")},
        # It ignores `output_config`, thinking other than by a budget, and documents.
        MESSAGES: {
            "refuses": (*_NO_NAMED_TOOL, "file"),
            "structured_output": "none",
            "thinking": "budget",
        },
        # Its events have no output_index and sequence_number (with openai-python 3.54.0). It ignores `text.format`, and
        # refuses `top_logprobs`, files, and items of other types than it knows.
        RESPONSES: {
            "refuses": (*_NO_NAMED_TOOL, "file", "logprobs", "top_logprobs"),
            "structured_output": "none",
        },
    },
}

_NO_MEDIA_URLS: Mapping[str, Mapping[str, object]] = {CHAT: {"refuses": (*REFUSED, "media_url")}}
_VIDEO = {"refuses": tuple([name for name in REFUSED if name != "video"])}

LOCAL_SERVERS = (
    _at(
        11434,
        "ollama",
        "Ollama",
        "OLLAMA_API_KEY",
        "docs.ollama.com: openai-compatibility; ollama#18241",
        # The loaded models, and what they were loaded with.
        details="/api/ps",
        # "image URLs are not currently supported, please use base64 encoded data instead"
        by_protocol=_NO_MEDIA_URLS,
        # "Tasks which require large context like web search, agents, and coding tools should be set to at least 64000
        # tokens." -- docs/context-length.mdx of ollama/ollama, read 2026-11-23
        advice="It cuts prompts above its context length. For agents start it with OLLAMA_CONTEXT_LENGTH=64000.",
    ),
    _at(
        8000,
        "vllm",
        "vLLM",
        "VLLM_API_KEY",
        "docs.vllm.ai; vllm#45742",
        owner="vllm",
        enlarge="--max-model-len {tokens}",
        by_protocol={CHAT: _VIDEO},
    ),
    _at(8080, "llamacpp", "llama.cpp", "LLAMA_API_KEY", "its README; llama.cpp#20733, #27367", **_LLAMA_CPP),
    # "server default port will be changed to :9931 in a future release" -- what llama-server logs at its start
    _at(
        9931,
        "llamacpp",
        "llama.cpp",
        "LLAMA_API_KEY",
        "ggml-org/llama.cpp#26508",
        date="2026-11-23",
        **_LLAMA_CPP,
    ),
    _at(
        1234,
        "lmstudio",
        "LM Studio",
        "LM_API_TOKEN",
        "lmstudio.ai/docs; lmstudio-bug-tracker#1120",
        details="/api/v0/models",
        # "'url' field must be a base64 encoded image."
        by_protocol=_NO_MEDIA_URLS,
    ),
    _at(
        30000,
        "sglang",
        "SGLang",
        "SGLANG_API_KEY",
        "docs.sglang.ai",
        owner="sglang",
        enlarge="--context-length {tokens}",
        by_protocol={MESSAGES: {"counts_tokens": True}, CHAT: _VIDEO},
    ),
    _at(1337, "jan", "Jan", "JAN_API_KEY", "jan.ai/docs/local-api", date="2026-11-29"),
    _at(
        5001,
        "koboldcpp",
        "KoboldCpp",
        "KOBOLDCPP_API_KEY",
        "its README",
        date="2026-11-29",
        owner="koboldcpp",
        enlarge="--contextsize {tokens}",
    ),
)
