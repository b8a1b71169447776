"""The tables of hosts and model families, row by row: a client's request in, the upstream's out.

Every row has a case, and each case fails without its row, so a row without an effect fails here.
"""

import json
import re
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import pytest

from dragoman import UPSTREAMS, RequestRefused, RequestTranslator
from dragoman_server.capabilities import model_families as _model_families
from dragoman_server.capabilities import providers as _providers
from dragoman_server.capabilities.model_families import MODEL_FAMILIES, ModelFamily, families_of
from dragoman_server.capabilities.providers import PROVIDERS, Provider
from dragoman_server.capabilities.resolve import capabilities_for
from dragoman_server.settings import Settings, UpstreamSettings

CHAT, MESSAGES, RESPONSES = "openai_chat", "anthropic_messages", "openai_responses"
Json = dict[str, Any]

URLS = {provider.name: provider.base_url for provider in PROVIDERS}
UNKNOWN, LOCAL = "https://llm.example/v1", "http://127.0.0.1:8000/v1"


def sent(url: str, client: str, upstream: str, model: str, body: Json) -> Json:
    """Return the request that the upstream gets for a client's request."""
    settings = UpstreamSettings(name="up", protocol=upstream, base_url=url)
    capabilities = capabilities_for(Settings(), settings, model)
    translator = RequestTranslator(
        client=UPSTREAMS[client], upstream=UPSTREAMS[upstream], capabilities=capabilities
    )
    found: Json = json.loads(translator.translate(json.dumps({"model": model, **body}).encode()).body)
    return found


# Hosts. All get one conversation of a Messages client, which has something of all that hosts differ in.

SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
MARK = {"type": "ephemeral"}
USER = "u" * 150
HASH = sha256(USER.encode()).hexdigest()
REQUEST: Json = {
    "max_tokens": 4000,
    "system": [
        {"type": "text", "text": "Be brief."},
        {"type": "text", "text": "Be kind.", "cache_control": MARK},
    ],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": "there"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": ""},
                {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"},
                {"type": "text", "text": "Note."},
            ],
        },
    ],
    "tools": [{"name": "f", "input_schema": SCHEMA, "strict": True}],
    "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
    "metadata": {"user_id": USER},
    "temperature": 0.5,
    "top_k": 5,
    "stop_sequences": ["END"],
}


def call(call_id: str = "toolu_1", **more: Any) -> Json:
    return {**more, "id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}}


def tool(**more: Any) -> Json:
    return {"type": "function", "function": {"name": "f", "parameters": SCHEMA, **more}}


SYSTEM = {"role": "system", "content": "Be brief.\n\nBe kind."}
MARKED = {
    "role": "system",
    "content": [
        {"type": "text", "text": "Be brief."},
        {"type": "text", "text": "Be kind.", "cache_control": MARK},
    ],
}
HI = {"role": "user", "content": "Hi\n\nthere"}
# Where a text may get a cache mark, texts are never joined: what was cached stays as it was.
HI_IN_PARTS = {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": "there"}]}
TOOL_CALL: Json = {"role": "assistant", "content": None, "tool_calls": [call()]}
TOOL_RESULT = {"role": "tool", "tool_call_id": "toolu_1", "content": "done"}
NOTE = {"role": "user", "content": "Note."}
# An unknown server.
PLAIN: Json = {
    "model": "some-model",
    "messages": [SYSTEM, HI, {**TOOL_CALL, "reasoning_content": "Hm."}, TOOL_RESULT, NOTE],
    "tools": [tool()],
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "max_tokens": 4000,
    "temperature": 0.5,
    "stop": ["END"],
}
NEWER_LIMIT: Json = {"max_tokens": None, "max_completion_tokens": 4000}
IN_REASONING: Json = {"messages": [SYSTEM, HI, {**TOOL_CALL, "reasoning": "Hm."}, TOOL_RESULT, NOTE]}
SIGNATURE = {"google": {"thought_signature": "skip_thought_signature_validator"}}

# name -> members that differ from the request for an unknown server; None for what is left out.
HOSTS: dict[str, Json] = {
    "openai": {
        **NEWER_LIMIT,
        "messages": [SYSTEM, HI, TOOL_CALL, TOOL_RESULT, NOTE],
        "tools": [tool(strict=True)],
        "user": HASH,
    },
    # "Thinking mode does not support this tool_choice"
    "deepseek": {"thinking": {"type": "disabled"}},
    "openrouter": {
        "messages": [MARKED, HI_IN_PARTS, *IN_REASONING["messages"][2:]],
        "top_k": 5,
        "user": HASH,
    },
    "groq": IN_REASONING,
    "cerebras": {
        **NEWER_LIMIT,
        **IN_REASONING,
        "tools": [tool(strict=True)],
        "tool_choice": None,
        "parallel_tool_calls": None,
    },
    "mistral": {
        # "Unexpected role 'user' after role 'tool'"; "Tool call id must be a-z, A-Z, 0-9, with a length of 9."
        "messages": [
            SYSTEM,
            HI,
            {**TOOL_CALL, "tool_calls": [call("dtsmvwhki")]},
            {**TOOL_RESULT, "tool_call_id": "dtsmvwhki", "content": "done\n\n<user>\nNote.\n</user>"},
        ],
        "tools": [tool(strict=True)],
    },
    "together": {"top_k": 5},
    "fireworks": {"top_k": 5},
    "moonshot": {**NEWER_LIMIT, "tool_choice": None},
    "zai": {"tool_choice": None},
    "minimax": NEWER_LIMIT,
    "dashscope": {"enable_thinking": False},
    # "Function call is missing a thought_signature in functionCall parts."
    "gemini": {
        "messages": [
            SYSTEM,
            HI,
            {**TOOL_CALL, "tool_calls": [call(extra_content=SIGNATURE)]},
            TOOL_RESULT,
            NOTE,
        ]
    },
}


def test_the_chat_request_for_each_host() -> None:
    for name in HOSTS:
        expected = {key: value for key, value in {**PLAIN, **HOSTS[name]}.items() if value is not None}
        assert sent(URLS[name], MESSAGES, CHAT, "some-model", REQUEST) == expected, name


UNKNOWN_HOSTS: list[tuple[str, Json]] = [
    (UNKNOWN, {}),
    # People's own servers take it.
    (LOCAL, {"top_k": 5}),
    ("http://[::1]:8000/v1", {"top_k": 5}),
    ("http://10.0.0.7/v1", {"top_k": 5}),
    ("http://vllm:8000/v1", {"top_k": 5}),
    ("http://gpu.local/v1", {"top_k": 5}),
    ("https://api.openai.com.evil.example/v1", {}),
]


def test_the_chat_request_for_an_unknown_host() -> None:
    for url, more in UNKNOWN_HOSTS:
        assert sent(url, MESSAGES, CHAT, "some-model", REQUEST) == {**PLAIN, **more}, url


@pytest.mark.parametrize(
    ("name", "model", "effort", "expected"),
    [
        # "minimal goes to low, medium to high": DeepSeek converts them itself.
        ("deepseek", "deepseek-v4-pro", "medium", {"thinking": {"type": "enabled"}, "reasoning_effort": "medium"}),
        ("openrouter", "qwen/qwen3.8-max", "max", {"reasoning": {"effort": "max"}}),
        # OpenAI accepts no tools beside `reasoning_effort`.
        ("openrouter", "openai/gpt-5.6", "high", {"reasoning": {"effort": "high"}}),
        ("openai", "gpt-5.6", "high", {"reasoning_effort": "none"}),
    ],
)  # fmt: skip
def test_the_reasoning_setting_of_a_host(name: str, model: str, effort: str, expected: Json) -> None:
    requested = {**REQUEST, "tool_choice": {"type": "auto"}, "output_config": {"effort": effort}}
    found = sent(URLS[name], MESSAGES, CHAT, model, requested)
    assert {
        key: found[key] for key in found.keys() & {"thinking", "reasoning", "reasoning_effort"}
    } == expected


def test_claude_models_get_later_system_text_in_a_user_message_in_chat() -> None:
    found = sent(UNKNOWN, RESPONSES, CHAT, "anthropic/claude-opus-5-5", {"input": CORRECTED["messages"]})
    assert found["messages"][-1] == {"role": "user", "content": "<system>\nBe kind.\n</system>\n\nAnd?"}


# Settings of a Responses client that only OpenAI has.
OPENAI_SETTINGS: Json = {
    "input": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    "metadata": {"k": "v"},
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
    "safety_identifier": "s",
    "service_tier": "flex",
    "store": True,
    "text": {"verbosity": "low"},
    "user": "u",
    "top_logprobs": 2,
}
WITHOUT_OPENAI_SETTINGS: Json = {
    "model": "some-model",
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    "logprobs": True,
    "top_logprobs": 2,
}
DEVELOPER = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
NO_LOGPROBS: Json = {"logprobs": None, "top_logprobs": None}
OPENAI_MEMBERS: dict[str, Json] = {
    "openai": {
        "messages": DEVELOPER,
        "verbosity": "low",
        **{name: OPENAI_SETTINGS[name] for name in OPENAI_SETTINGS.keys() - {"input", "text"}},
    },
    "openrouter": {"messages": DEVELOPER, "verbosity": "low", "user": "u"},
    "xai": {"messages": DEVELOPER},
    "deepseek": NO_LOGPROBS,
    "groq": NO_LOGPROBS,
    "mistral": NO_LOGPROBS,
    "zai": NO_LOGPROBS,
}


def test_settings_that_only_openai_has_are_sent_only_there() -> None:
    for provider in PROVIDERS:
        if provider.protocols[0] != CHAT:
            continue
        name = provider.name
        expected = {
            key: value
            for key, value in {**WITHOUT_OPENAI_SETTINGS, **OPENAI_MEMBERS.get(name, {})}.items()
            if value is not None
        }
        assert sent(URLS[name], RESPONSES, CHAT, "some-model", OPENAI_SETTINGS) == expected, name


def test_a_list_of_allowed_tools_is_sent_only_to_openai() -> None:
    tools = [{"type": "function", "name": name, "parameters": SCHEMA} for name in "fg"]
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]}
    requested = {"input": "Hi", "tools": tools, "tool_choice": allowed}
    elsewhere = sent(UNKNOWN, RESPONSES, CHAT, "some-model", requested)
    assert (elsewhere["tools"], elsewhere["tool_choice"]) == ([tool()], "required")
    found = sent(URLS["openai"], RESPONSES, CHAT, "gpt-4.1", requested)
    assert (len(found["tools"]), found["tool_choice"]["type"]) == (2, "allowed_tools")


def test_only_anthropic_gets_hosted_tools_in_messages() -> None:
    function = {"type": "function", "name": "f", "parameters": SCHEMA}
    requested = {"input": "Hi", "tools": [{"type": "web_search"}, function]}

    def names(url: str) -> list[str]:
        return [each["name"] for each in sent(url, RESPONSES, MESSAGES, "some-model", requested)["tools"]]

    assert (names(URLS["anthropic"]), names(UNKNOWN)) == (["web_search", "f"], ["f"])


def test_openai_searches_the_web_only_in_responses() -> None:
    # "Unknown parameter: 'web_search_options'."
    function = {"name": "f", "input_schema": SCHEMA}
    requested = {**REQUEST, "tools": [{"type": "web_search_20250305", "name": "web_search"}, function]}
    chat = sent(URLS["openai"], MESSAGES, CHAT, "gpt-5.6", requested)
    assert ("web_search_options" in chat, len(chat["tools"])) == (False, 1)
    assert len(sent(URLS["openai"], MESSAGES, RESPONSES, "gpt-5.6", requested)["tools"]) == 2
    with pytest.raises(RequestRefused, match="does not run"):
        sent(URLS["openai"], MESSAGES, CHAT, "gpt-5.6", {**requested, "tools": requested["tools"][:1]})


def test_openai_gets_all_its_own_settings() -> None:
    expected = {**WITHOUT_OPENAI_SETTINGS, **OPENAI_MEMBERS["openai"]}
    assert sent(URLS["openai"], RESPONSES, CHAT, "some-model", OPENAI_SETTINGS) == expected


def test_every_host_has_a_case() -> None:
    assert {provider.name for provider in PROVIDERS} == {*HOSTS, *OPENAI_MEMBERS, "anthropic"}


CHAT_HOSTS = [provider for provider in PROVIDERS if CHAT in provider.protocols]


def both_requests(url: str) -> list[Json]:
    return [sent(url, MESSAGES, CHAT, "m", REQUEST), sent(url, RESPONSES, CHAT, "m", OPENAI_SETTINGS)]


def test_each_row_of_a_host_decides_a_request() -> None:
    for provider in CHAT_HOSTS:
        before = both_requests(provider.base_url)
        others = tuple(each for each in PROVIDERS if each is not provider)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_providers, "PROVIDERS", others)
            assert both_requests(provider.base_url) != before, provider.name


def test_other_hosts_of_a_provider_get_the_same_request() -> None:
    for provider in CHAT_HOSTS:
        at_its_host = sent(provider.base_url, MESSAGES, CHAT, "m", REQUEST)
        for host in provider.hosts:
            assert sent(f"https://{host}/v1", MESSAGES, CHAT, "m", REQUEST) == at_its_host, host


def test_deepseek_gets_no_images() -> None:
    # "unknown variant `image_url`, expected `text`", in every turn after the one that had it.
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [image]}
    requested = {
        **REQUEST,
        "messages": [*REQUEST["messages"][:2], {"role": "user", "content": [result, image]}],
    }
    text = "[image: left out, you cannot see images]"
    found = sent(URLS["deepseek"], MESSAGES, CHAT, "some-model", requested)["messages"][-2:]
    assert found == [{**TOOL_RESULT, "content": text}, {"role": "user", "content": text}]


def test_refused_chat_parameters_are_sent_in_other_protocols() -> None:
    requested = {"messages": [HI], "user": "u", "max_tokens": 9}
    found = sent("https://api.deepseek.com/anthropic", CHAT, MESSAGES, "some-model", requested)
    assert found["metadata"] == {"user_id": "u"}


# Families.


@dataclass(frozen=True)
class Case:
    """A model of the family, members of the client's request, and members of the upstream's (None: left out)."""

    model: str
    requested: Json
    sent: Json
    client: str = MESSAGES
    upstream: str = CHAT
    url: str = field(default=UNKNOWN)


FORMAT: Json = {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}
SCHEMA_UNCHANGED: Json = {
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "response", "schema": SCHEMA, "strict": True},
    }
}
JSON_MODE: Json = {"response_format": {"type": "json_object"}}
OFF: Json = {"thinking": {"type": "disabled"}}
TEMPERATURE: Json = {"temperature": 0.5}
NO_TEMPERATURE: Json = {"temperature": None}
STOP: Json = {"stop_sequences": ["END"]}
STOPS: Json = {"stop": ["END"]}
ONE_CALL: Json = {
    "tools": [{"name": "f", "input_schema": SCHEMA}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
}
ASSISTANT_FIRST: Json = {
    "messages": [{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Hi"}]
}
WITH_TOOLS: Json = {"tools": [{"name": "f", "input_schema": SCHEMA}], "output_config": {"effort": "low"}}
CACHED: Json = {"system": [{"type": "text", "text": "S", "cache_control": MARK}]}
POINT = {"type": "text", "text": "S", "prompt_cache_breakpoint": {"mode": "explicit"}}
BREAKPOINT: Json = {"messages": [{"role": "system", "content": [POINT]}, {"role": "user", "content": "Hi"}]}


def effort(value: str) -> Json:
    return {"output_config": {"effort": value}}


def reasoning_effort(value: str | None) -> Json:
    return {"reasoning_effort": value}


def claude(model: str, requested: Json, sent: Json) -> Case:
    return Case(model, requested, sent, CHAT, MESSAGES, URLS["anthropic"])


def gpt(model: str, requested: Json, sent: Json) -> Case:
    return Case(model, requested, sent, url=URLS["openai"])


def rewritten(model: str) -> Case:
    return Case(model, TEMPERATURE, NO_TEMPERATURE, CHAT, CHAT, URLS["openai"])


def at(name: str, model: str, requested: Json, sent: Json) -> Case:
    return Case(model, requested, sent, url=URLS[name])


PAIR: Json = {"temperature": 0.2, "top_p": 0.9}
HIGH: Json = {"reasoning_effort": "high"}
STRICT: Json = {
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}
}
LIMIT: Json = {"max_tokens": 200_000}
# The largest step below 8192 less the prompt.
WINDOW = {"max_completion_tokens": 7168}
BUDGET: Json = {"thinking": {"type": "enabled", "budget_tokens": 6750}}
CORRECTED: Json = {
    "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Ho"},
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "And?"},
    ]
}

# By pattern, provider and, where a family has one, its protocol.
CASES: dict[tuple[str | None, ...], Case] = {
    ("claude-*", "anthropic"): claude("claude-opus-5-5", CORRECTED, CORRECTED),
    ("claude-*", None): claude("claude-opus-5-5", TEMPERATURE, NO_TEMPERATURE),
    ("claude-fable-*", None): claude(
        "claude-fable-5-1", reasoning_effort("none"), {"thinking": None, "output_config": {"effort": "low"}}
    ),
    ("claude-mythos-*", None): claude(
        "claude-mythos-1", reasoning_effort("none"), {"thinking": None, "output_config": {"effort": "low"}}
    ),
    ("claude-opus-4-7*", None): claude(
        "claude-opus-4-7",
        CORRECTED,
        {
            "messages": [
                *CORRECTED["messages"][:2],
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "<system>\nBe kind.\n</system>"},
                        {"type": "text", "text": "And?"},
                    ],
                },
            ]
        },
    ),
    ("claude-*-4-6*", None): claude("claude-sonnet-4-6", PAIR, {"temperature": 0.2, "top_p": None}),
    ("claude-*-4-5*", None): claude("claude-haiku-4-5-20251001", HIGH, BUDGET),
    ("claude-*-4-1*", None): claude("claude-opus-4-1-20250805", STRICT, {"output_config": None}),
    ("claude-*-4-0*", None): claude("claude-sonnet-4-0", PAIR, PAIR),
    ("claude-*-4", None): claude("claude-sonnet-4", PAIR, PAIR),
    ("claude-*-4-20*", None): claude("claude-sonnet-4-20250514", PAIR, PAIR),
    ("claude-*-4@*", None): claude("claude-sonnet-4@20250514", PAIR, PAIR),
    ("claude-3*", None): claude("claude-3-5-haiku-20241022", HIGH, {"thinking": None}),
    ("claude-2*", None): claude("claude-2.1", HIGH, {"thinking": None}),
    ("claude-instant*", None): claude("claude-instant-1.2", HIGH, {"thinking": None}),
    ("claude-3-5-*", None): claude("claude-3-5-haiku-20241022", LIMIT, {"max_tokens": 8192}),
    ("claude-3-7-*", None): claude("claude-3-7-sonnet-latest", HIGH, BUDGET),
    ("claude-opus-4-[01]*", None): claude("claude-opus-4-1", LIMIT, {"max_tokens": 32_000}),
    ("claude-opus-4", None): claude("claude-opus-4", LIMIT, {"max_tokens": 32_000}),
    ("claude-opus-4-20*", None): claude("claude-opus-4-20250514", LIMIT, {"max_tokens": 32_000}),
    ("gpt-3*", None): gpt("gpt-3.5-turbo", FORMAT, JSON_MODE),
    ("gpt-4*", None): gpt("gpt-4-turbo", FORMAT, JSON_MODE),
    ("chatgpt-*", None): gpt("chatgpt-4o-latest", FORMAT, JSON_MODE),
    ("gpt-4", None): gpt("gpt-4", LIMIT, WINDOW),
    ("gpt-4-0613", None): gpt("gpt-4-0613", LIMIT, WINDOW),
    ("gpt-4o*", None): gpt("gpt-4o-mini", FORMAT, SCHEMA_UNCHANGED),
    ("gpt-4-5*", None): gpt("gpt-4.5-preview", FORMAT, SCHEMA_UNCHANGED),
    ("gpt-4-1", None): gpt("gpt-4.1", FORMAT, SCHEMA_UNCHANGED),
    ("gpt-4-1-*", None): gpt("gpt-4.1-nano", FORMAT, SCHEMA_UNCHANGED),
    ("chatgpt-4o*", None): gpt("chatgpt-4o-latest", LIMIT, {"max_completion_tokens": 16_384}),
    ("o3*", None): gpt("o3", TEMPERATURE, NO_TEMPERATURE),
    ("o4*", None): gpt("o4-mini", TEMPERATURE, NO_TEMPERATURE),
    ("o1*", None): gpt("o1", ONE_CALL, {"parallel_tool_calls": None}),
    ("o3-mini*", None): gpt("o3-mini", ONE_CALL, {"parallel_tool_calls": None}),
    ("gpt-5*", None): gpt("gpt-5.5", TEMPERATURE, NO_TEMPERATURE),
    ("gpt-5", None): gpt("gpt-5", effort("max"), reasoning_effort("high")),
    ("gpt-5-20*", None): gpt("gpt-5-2025-08-07", effort("max"), reasoning_effort("high")),
    ("gpt-5-mini*", None): gpt("gpt-5-mini", effort("max"), reasoning_effort("high")),
    ("gpt-5-nano*", None): gpt("gpt-5-nano", effort("max"), reasoning_effort("high")),
    ("gpt-5-codex*", None): gpt("gpt-5-codex", effort("max"), reasoning_effort("high")),
    ("gpt-5-pro*", None): gpt("gpt-5-pro", effort("low"), reasoning_effort("high")),
    ("gpt-5-1*", None): gpt("gpt-5.1", effort("max"), reasoning_effort("high")),
    ("gpt-5-1-codex*", None): gpt("gpt-5.1-codex-mini", OFF, reasoning_effort("low")),
    ("gpt-5-1-codex-max*", None): gpt("gpt-5.1-codex-max", effort("max"), reasoning_effort("xhigh")),
    ("gpt-5-6*", None): gpt("gpt-5.6", effort("max"), reasoning_effort("max")),
    ("gpt-5-[1-4]", None): gpt("gpt-5.2", TEMPERATURE, TEMPERATURE),
    ("gpt-5-[1-4]-*", None): gpt("gpt-5.2-2025-12-11", TEMPERATURE, TEMPERATURE),
    ("gpt-5-[1-4]-codex*", None): gpt("gpt-5.2-codex", TEMPERATURE, NO_TEMPERATURE),
    ("gpt-5-[1-4]-pro*", None): gpt("gpt-5.4-pro", TEMPERATURE, NO_TEMPERATURE),
    ("gpt-5-[4-6]", None): gpt("gpt-5.6", WITH_TOOLS, reasoning_effort("none")),
    ("gpt-5-[4-6]-*", None): gpt("gpt-5.6-luna", WITH_TOOLS, reasoning_effort("none")),
    ("gpt-6*", None): gpt("gpt-6-sol", TEMPERATURE, NO_TEMPERATURE),
    ("gpt-5-[4-6]", "openai", CHAT): rewritten("gpt-5.6"),
    ("gpt-5-[4-6]-*", "openai", CHAT): rewritten("gpt-5.6-luna"),
    ("gpt-6*", "openai", CHAT): rewritten("gpt-6-sol"),
    ("gpt-5-[6-9]*", "openai"): gpt("gpt-5.6", CACHED, BREAKPOINT),
    ("gpt-6*", "openai"): gpt("gpt-6-sol", CACHED, BREAKPOINT),
    ("gpt-5*chat*", None): gpt("gpt-5.5-chat-latest", TEMPERATURE, TEMPERATURE),
    ("grok-*", None): at("xai", "grok-4.5", STOP, {"stop": None}),
    ("grok-4-3*", None): at("xai", "grok-4.3", OFF, reasoning_effort("none")),
    ("grok-2*", None): at("xai", "grok-2-1212", STOP, STOPS),
    ("grok-3*", None): at("xai", "grok-3", STOP, STOPS),
    ("grok-3-mini*", None): at("xai", "grok-3-mini", effort("medium"), reasoning_effort("low")),
    ("grok-4", None): at("xai", "grok-4", effort("high"), reasoning_effort(None)),
    ("grok-4-0*", None): at("xai", "grok-4-0709", effort("high"), reasoning_effort(None)),
    ("grok-4-1*", None): at("xai", "grok-4.1", effort("high"), reasoning_effort(None)),
    ("grok-4-20*", None): at("xai", "grok-4.20-beta", effort("high"), reasoning_effort(None)),
    ("grok-4-fast*", None): at("xai", "grok-4-fast", effort("high"), reasoning_effort(None)),
    ("grok-code*", None): at("xai", "grok-code-fast-1", effort("high"), reasoning_effort(None)),
    ("grok-*non-reasoning*", None): at("xai", "grok-4-1-fast-non-reasoning", STOP, STOPS),
    ("*[sx]tral-*", None): Case(
        "mistralai/Mistral-Small-3.2-24B-Instruct-2506",
        {"messages": REQUEST["messages"]},
        {
            "messages": [
                HI,
                {**TOOL_CALL, "reasoning_content": "Hm."},
                {**TOOL_RESULT, "content": "done\n\n<user>\nNote.\n</user>"},
            ]
        },
    ),
    ("devstral-*", None): Case(
        "Devstral-Small-2507",
        ASSISTANT_FIRST,
        {"messages": [{"role": "user", "content": "(The assistant speaks first.)"}, *ASSISTANT_FIRST["messages"]]},
    ),
    ("mistral-small-latest", "mistral"): at(
        "mistral", "mistral-small-latest", effort("max"), reasoning_effort("high")
    ),
    ("mistral-small-26*", "mistral"): at(
        "mistral", "mistral-small-2603", effort("max"), reasoning_effort("high")
    ),
    ("mistral-medium-3-5*", "mistral"): at(
        "mistral", "mistral-medium-3.5", effort("max"), reasoning_effort("high")
    ),
    ("mistral-large-4*", "mistral"): at("mistral", "mistral-large-4", effort("low"), reasoning_effort("low")),
    ("gpt-oss*", "groq"): at("groq", "openai/gpt-oss-20b", effort("max"), reasoning_effort("high")),
    ("kimi-k2*", "groq"): at("groq", "moonshotai/kimi-k2-instruct", FORMAT, SCHEMA_UNCHANGED),
    ("llama-4*", "groq"): at("groq", "meta-llama/llama-4-scout", FORMAT, SCHEMA_UNCHANGED),
    ("kimi-*", "moonshot"): at("moonshot", "kimi-k3", TEMPERATURE, NO_TEMPERATURE),
    ("kimi-k2*", "moonshot"): at("moonshot", "kimi-k2.6", OFF, OFF),
    ("kimi-for-coding*", "moonshot"): at("moonshot", "kimi-for-coding", OFF, OFF),
    ("moonshot-v1*", "moonshot"): at("moonshot", "moonshot-v1-8k", effort("high"), reasoning_effort(None)),
    ("glm-5-[2-9]*", "zai"): at("zai", "glm-5.2", effort("low"), reasoning_effort("low")),
    # It cannot stop to think: to switch that off has no effect or is refused.
    ("glm-5-3*", "zai"): at("zai", "glm-5.3", OFF, {"thinking": None, **reasoning_effort("low")}),
    ("qwen3-8-max*", "dashscope"): at("dashscope", "qwen3.8-max", FORMAT, SCHEMA_UNCHANGED),
    ("gemini-2-5-flash*", "gemini"): at("gemini", "gemini-2.5-flash", OFF, reasoning_effort("none")),
}  # fmt: skip


def request_members(case: Case) -> Json:
    """Return the members of the upstream's request that the case is about."""
    body = {"max_tokens": 9000, "messages": [{"role": "user", "content": "Hi"}], **case.requested}
    found = sent(case.url, case.client, case.upstream, case.model, body)
    return {name: found.get(name) for name in case.sent}


def row_of(family: ModelFamily, pattern: str) -> tuple[str | None, ...]:
    return (pattern, family.provider, *filter(None, [family.protocol]))


def without(family: ModelFamily, row: tuple[str | None, ...]) -> ModelFamily:
    """Return a row of the table, without its pattern if that is the one of this case."""
    return replace(family, patterns=tuple(each for each in family.patterns if row_of(family, each) != row))


def test_each_row_of_a_family_decides_the_request() -> None:
    for row, case in CASES.items():
        assert request_members(case) == case.sent, row
        others = tuple(without(family, row) for family in MODEL_FAMILIES)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_model_families, "MODEL_FAMILIES", others)
            assert request_members(case) != case.sent, row


def test_every_family_has_a_case_of_a_model_of_its_own() -> None:
    assert [row_of(family, each) for family in MODEL_FAMILIES for each in family.patterns] == list(CASES)
    for row, case in CASES.items():
        fits = families_of(case.model, row[1], case.upstream)
        assert any(row == row_of(family, each) for family in fits for each in family.patterns)


# The source of each row, and the date it was read.


def test_every_row_has_a_source_and_a_date() -> None:
    rows: list[Provider | ModelFamily] = [*PROVIDERS, *MODEL_FAMILIES]
    for row in rows:
        assert row.source, row
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", row.date), row
