"""Capabilities of a model at an upstream: hosts, families and configuration, each overriding the one before."""

import dataclasses
from typing import Any, get_type_hints

import pytest

from dragoman import UPSTREAMS
from dragoman_server.capabilities import resolve
from dragoman_server.capabilities.model_families import MODEL_FAMILIES, normalized_model_name
from dragoman_server.capabilities.providers import PROVIDERS
from dragoman_server.capabilities.resolve import capabilities_for
from dragoman_server.settings import (
    ModelCapabilitySettings,
    ServerSettings,
    Settings,
    UpstreamSettings,
    capability_keys,
    keys_of,
)
from dragoman_server.settings.upstreams import SIMULATOR_UPSTREAM
from dragoman_server.settings.values import check_value

ANTHROPIC, OPENAI = "https://api.anthropic.com", "https://api.openai.com/v1"
UNKNOWN_HOST = "http://127.0.0.1:9000/v1"
KEYS = keys_of(UpstreamSettings) | capability_keys(UPSTREAMS.values())
SAMPLING = frozenset({"temperature", "top_p", "presence_penalty", "frequency_penalty", "logprobs"})


def upstream(url: str = UNKNOWN_HOST, **configured: Any) -> UpstreamSettings:
    protocol = "anthropic_messages" if url == ANTHROPIC else "openai_chat"
    return UpstreamSettings.of(name="up", protocol=protocol, base_url=url, **configured)


def capabilities(
    model: str = "some-model",
    url: str = UNKNOWN_HOST,
    rows: tuple[ModelCapabilitySettings, ...] = (),
    **configured: Any,
) -> Any:
    settings = upstream(url, **configured)
    return capabilities_for(Settings(upstreams=(settings,), capabilities=rows), settings, model)


def test_every_choice_and_default_is_valid_in_the_core() -> None:
    for spec in UPSTREAMS.values():
        for name, key in capability_keys([spec]).items():
            assert name not in keys_of(UpstreamSettings).keys() | keys_of(ModelCapabilitySettings).keys()
            values = [(choice,) for choice in key.choices] if key.many else [*key.choices]
            for value in [*values, key.default] if key.default is not None else values:
                one = UpstreamSettings.of(
                    name="up", protocol=spec.name, base_url=UNKNOWN_HOST, **{name: value}
                )
                found = getattr(capabilities_for(Settings(), one, "m"), name)
                # The core has no string for an upstream without such a member or setting.
                unset = value == "none" and name in ("reasoning_field", "reasoning_setting")
                assert (tuple(found) if key.many else found) == (None if unset else value), name


def test_a_name_means_the_same_in_all_protocols() -> None:
    hints: dict[str, Any] = {}
    for spec in UPSTREAMS.values():
        for name, hint in get_type_hints(spec.capabilities, include_extras=True).items():
            assert hints.setdefault(name, hint) == hint, (spec.name, name)


def test_capabilities_of_hosts_are_valid_settings() -> None:
    for provider in PROVIDERS:
        for name, value in provider.capabilities.items():
            if value is not None:
                value_read = list(value) if isinstance(value, tuple) else value
                assert check_value(KEYS[name], value_read, value_read) == value, provider.name


def test_capabilities_of_families_are_valid_settings() -> None:
    for family in MODEL_FAMILIES:
        assert family.provider in (None, *(provider.name for provider in PROVIDERS))
        assert all(pattern == normalized_model_name(pattern) for pattern in family.patterns)
        for name, value in family.capabilities.items():
            if value is not None:
                value_read: Any = list(value) if isinstance(value, tuple) else value
                assert check_value(KEYS[name], value_read, value_read) == value, family.patterns


# Hosts.

COMPATIBLE = {"max_tokens_field": "max_tokens", "efforts": ("low", "medium", "high")}
HOSTED = frozenset({"web_search", "code_execution", "mcp"})
HOSTS: dict[str, dict[str, Any]] = {
    UNKNOWN_HOST: {**COMPATIBLE, "hosted_tools": frozenset(), "reasoning_setting": "reasoning_effort"},
    "https://api.openai.com.evil.example/v1": COMPATIBLE,
    "https://api.x.ai/v1": COMPATIBLE,
    OPENAI: {
        "max_tokens_field": "max_completion_tokens",
        "reasoning_field": None,
        "custom_tools": True,
        "developer_role": True,
        "mid_system": True,
        "cache_marks": "none",
        # Not in Chat Completions: "Unknown parameter: 'web_search_options'."
        "hosted_tools": HOSTED - {"web_search"},
        "efforts": None,
    },
    "https://eu.api.openai.com/v1": {"hosted_tools": HOSTED - {"web_search"}, "developer_role": True},
    ANTHROPIC: {"hosted_tools": HOSTED, "thinking": "adaptive", "efforts": None},
    "https://api.deepseek.com/v1": {
        "max_tokens_field": "max_tokens",
        "reasoning_setting": "thinking",
        "efforts": ("none", "minimal", "low", "medium", "high", "max"),
        "structured_output": "object",
    },
    "https://openrouter.ai/api/v1": {"reasoning_setting": "reasoning", "reasoning_field": "reasoning"},
    "https://api.groq.com/openai/v1": {
        "reasoning_field": "reasoning",
        "reasoning_setting": None,
        "structured_output": "object",
    },
    "https://api.mistral.ai/v1": {"call_ids": "alnum9", "reasoning_field": None, "reasoning_setting": None},
}


def test_capabilities_of_a_host() -> None:
    for url in HOSTS:
        found = capabilities(url=url)
        assert {name: getattr(found, name) for name in HOSTS[url]} == HOSTS[url], url


def test_the_simulator_accepts_all_parameters_of_chat() -> None:
    found = capabilities_for(Settings(), SIMULATOR_UPSTREAM, "echo")
    assert found.max_tokens_field == "max_completion_tokens"
    assert found.efforts == ("none", "minimal", "low", "medium", "high", "xhigh", "max")


# Families.

NEWEST = ("none", "low", "medium", "high", "xhigh", "max")
CLAUDE: dict[str, dict[str, Any]] = {
    "claude-opus-5": {
        "thinking": "adaptive",
        "sampling": False,
        "mid_system": True,
        "efforts": NEWEST,
        "forced_tools": "not_thinking",
        "prefill": False,
    },
    "claude-opus-5-5": {"thinking": "adaptive", "sampling": False, "mid_system": True},
    "claude-sonnet-7": {"thinking": "adaptive", "sampling": False, "mid_system": True},
    "claude-opus-4-8": {"thinking": "adaptive", "sampling": False, "mid_system": True},
    "claude-fable-5": {"thinking": "adaptive", "efforts": ("low", "medium", "high", "xhigh", "max")},
    "claude-opus-4-7": {"thinking": "adaptive", "sampling": False, "mid_system": False, "efforts": NEWEST},
    "claude-opus-4-6": {
        "thinking": "adaptive",
        "sampling": True,
        "sampling_pair": False,
        "mid_system": False,
        "forced_tools": "not_thinking",
        "prefill": False,
    },
    "claude-sonnet-4-6": {"efforts": ("none", "low", "medium", "high", "max"), "structured_output": "schema"},
    "claude-haiku-4-5-20251001": {"thinking": "budget", "sampling": True, "structured_output": "schema"},
    "claude-opus-4-5@20251101": {"thinking": "budget", "mid_system": False, "sampling_pair": False},
    "us.anthropic.claude-sonnet-4-5-20250929-v1:0": {"thinking": "budget"},
    "anthropic/claude-haiku-4.5": {"thinking": "budget", "prefill": True, "forced_tools": "not_thinking"},
    "claude-opus-4-1-20250805": {"thinking": "budget", "structured_output": "none", "sampling_pair": False},
    "claude-sonnet-4-20250514": {"thinking": "budget", "structured_output": "none", "sampling_pair": True},
    "claude-sonnet-4@20250514": {"thinking": "budget"},
    "claude-opus-4-0": {"thinking": "budget"},
    "claude-3-7-sonnet-latest": {"thinking": "budget", "structured_output": "none"},
    "claude-3-5-haiku-20241022": {"thinking": "none", "structured_output": "none", "sampling": True},
    "claude-3-opus-20240229": {"thinking": "none"},
}
REFUSED = SAMPLING | {"top_logprobs", "logit_bias", "stop"}
GPT: dict[str, dict[str, Any]] = {
    "gpt-5": {
        "efforts": ("minimal", "low", "medium", "high"),
        "refuses": REFUSED,
        "sampling_at_none": False,
        "tools_with_effort": True,
    },
    "gpt-5-2025-08-07": {"efforts": ("minimal", "low", "medium", "high"), "sampling_at_none": False},
    "gpt-5-mini": {"efforts": ("minimal", "low", "medium", "high"), "refuses": REFUSED},
    "gpt-5-pro": {"efforts": ("high",)},
    "gpt-5.1": {
        "efforts": ("none", "low", "medium", "high"),
        "refuses": REFUSED,
        "sampling_at_none": True,
        "tools_with_effort": True,
    },
    "gpt-5.1-codex": {"sampling_at_none": False},
    "gpt-5.2": {
        "efforts": ("none", "low", "medium", "high", "xhigh"),
        "custom_tools": True,
        "sampling_at_none": True,
    },
    "gpt-5.2-pro": {"sampling_at_none": False},
    "gpt-5.4-mini": {"sampling_at_none": True, "tools_with_effort": False},
    "gpt-5.6-terra": {
        "efforts": ("none", "low", "medium", "high", "xhigh", "max"),
        "refuses": REFUSED,
        "sampling_at_none": False,
        "tools_with_effort": False,
    },
    "openai/gpt-5.2-2025-12-11": {"efforts": ("none", "low", "medium", "high", "xhigh")},
    "gpt-5-chat-latest": {"reasoning_setting": None, "refuses": frozenset()},
    "gpt-5.3-chat-latest": {"reasoning_setting": None},
    "o1": {"efforts": ("low", "medium", "high"), "refuses": REFUSED | {"verbosity", "parallel_tool_calls"}},
    "o3-mini": {"efforts": ("low", "medium", "high"), "custom_tools": False},
    "o4-mini-2025-04-16": {"refuses": REFUSED | {"verbosity"}},
    "gpt-4.1": {"reasoning_setting": None, "efforts": (), "structured_output": "schema"},
    "gpt-4.1-nano": {"structured_output": "schema"},
    "gpt-4o-mini": {
        "reasoning_setting": None,
        "structured_output": "schema",
        "refuses": frozenset({"verbosity"}),
    },
    "gpt-4": {"structured_output": "object"},
    "gpt-4-1106-preview": {"structured_output": "object"},
    "gpt-4-turbo": {"structured_output": "object"},
    "gpt-3.5-turbo": {"structured_output": "object"},
    "gpt-6": {
        "efforts": ("low", "medium", "high", "xhigh"),
        "refuses": REFUSED,
        "sampling_at_none": False,
        "tools_with_effort": False,
    },
    "openai/gpt-5.2:nitro": {"sampling_at_none": True},
    "openai.gpt-5.6": {"refuses": REFUSED, "tools_with_effort": False},
    "gpt-6-astra": {"refuses": REFUSED, "tools_with_effort": False},
    "gpt-oss-120b": {"efforts": None},
}
OTHERS: dict[tuple[str, str], dict[str, Any]] = {
    (OPENAI, "gpt-5.5"): {"cache_marks": "none"},
    (OPENAI, "gpt-5.6-luna"): {"cache_marks": "breakpoint"},
    (OPENAI, "gpt-6"): {"cache_marks": "breakpoint"},
    (UNKNOWN_HOST, "gpt-6"): {"cache_marks": "none"},
    ("https://api.x.ai/v1", "grok-4.5"): {"efforts": ("low", "medium", "high")},
    ("https://api.x.ai/v1", "grok-4.3"): {"efforts": ("none", "low", "medium", "high")},
    ("https://api.x.ai/v1", "grok-4"): {
        "reasoning_setting": None,
        "refuses": frozenset({"presence_penalty", "frequency_penalty", "stop"}),
    },
    ("https://api.x.ai/v1", "grok-4-1-fast-non-reasoning"): {
        "reasoning_setting": None,
        "refuses": frozenset(),
    },
    ("https://api.x.ai/v1", "grok-3-mini"): {"efforts": ("low", "high")},
    ("https://api.mistral.ai/v1", "mistral-small-latest"): {
        "efforts": ("none", "high"),
        "reasoning_setting": "reasoning_effort",
        "call_ids": "alnum9",
    },
    ("https://api.mistral.ai/v1", "magistral-medium-latest"): {"reasoning_setting": None},
    (UNKNOWN_HOST, "mistral-small-latest"): {"efforts": ("low", "medium", "high")},
    ("https://api.groq.com/openai/v1", "openai/gpt-oss-20b"): {
        "efforts": ("low", "medium", "high"),
        "reasoning_setting": "reasoning_effort",
        "structured_output": "schema",
    },
    (UNKNOWN_HOST, "devstral:24b"): {"turn_order": "alternate"},
    (UNKNOWN_HOST, "mixtral:8x7b"): {"turn_order": "no_user_after_tool"},
    (UNKNOWN_HOST, "qwen3-30b"): {"efforts": ("low", "medium", "high"), "refuses": frozenset()},
}
FAMILIES = {
    **{(ANTHROPIC, model): takes for model, takes in CLAUDE.items()},
    **{(OPENAI, model): takes for model, takes in GPT.items()},
    **OTHERS,
}


def test_capabilities_of_a_model_family() -> None:
    for url, model in FAMILIES:
        expected = FAMILIES[url, model]
        found = capabilities(model, url)
        assert {name: getattr(found, name) for name in expected if name != "refuses"} == {
            name: value for name, value in expected.items() if name != "refuses"
        }, (url, model)
        if "refuses" in expected:
            # The host's own refusals are added.
            assert found.refuses == expected["refuses"] | capabilities("some-model", url).refuses, (
                url,
                model,
            )


# The configuration.


def test_later_sources_override_earlier_ones() -> None:
    model = "claude-haiku-4-5"
    assert capabilities(model, ANTHROPIC).thinking == "budget"
    assert capabilities(model, ANTHROPIC, thinking="adaptive").thinking == "adaptive"
    rows = (
        ModelCapabilitySettings.of(model="claude-*", thinking="none", mid_system=True),
        ModelCapabilitySettings.of(model="claude-haiku-*", thinking="budget"),
        ModelCapabilitySettings.of(model="claude-haiku-*", upstream="other", thinking="none"),
        ModelCapabilitySettings.of(model="gpt-*", thinking="none"),
    )
    found = capabilities(model, ANTHROPIC, rows, thinking="adaptive", call_ids="alnum9")
    assert (found.thinking, found.mid_system, found.call_ids) == ("budget", True, "alnum9")


def test_a_row_can_set_an_empty_list() -> None:
    row = ModelCapabilitySettings.of(model="gpt-5*", refuses=(), efforts=("low",))
    found = capabilities("gpt-5.2", OPENAI, (row,))
    assert (found.refuses, found.efforts) == (frozenset(), ("low",))


def test_no_efforts_is_no_reasoning() -> None:
    found = capabilities(efforts=(), reasoning_setting="reasoning")
    assert (found.efforts, found.reasoning_setting) == ((), None)
    assert capabilities(url=ANTHROPIC, efforts=(), thinking="adaptive").thinking == "none"


@pytest.mark.parametrize(("upstream_limit", "limit"), [(None, 700), (300, 300)])
def test_max_tokens_is_the_upstreams_else_the_servers(upstream_limit: int | None, limit: int) -> None:
    one = upstream(ANTHROPIC, max_tokens=upstream_limit)
    settings = Settings(server=ServerSettings(default_max_tokens=700), upstreams=(one,))
    assert capabilities_for(settings, one, "m").max_tokens == limit


SAMPLING_BY_VERSION: list[tuple[str, str, bool | None, bool]] = [
    ("auto", "claude-opus-4-6", None, True),
    ("auto", "claude-opus-4-7", None, False),
    ("auto", "claude-opus-4-7", True, True),
    ("auto", "other", None, True),
    ("2023-06-01", "claude-opus-4-6", None, True),
    ("2023-06-01", "claude-opus-5", None, False),
    ("vertex-2023-10-16", "claude-opus-4-6", None, True),
    ("2026-10-21", "claude-opus-4-6", None, False),
    ("2027-01-01", "other", None, False),
    ("2026-10-21", "claude-opus-4-6", True, True),
    ("2023-06-01", "claude-opus-4-6", False, False),
]


def test_sampling_depends_on_api_version_and_model() -> None:
    for version, model, configured, takes in SAMPLING_BY_VERSION:
        assert (
            capabilities(model, ANTHROPIC, anthropic_version=version, sampling=configured).sampling is takes
        ), (
            version,
            model,
            configured,
        )


def test_resolved_capabilities_are_cached_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    one = upstream()
    settings = Settings(upstreams=(one,))
    assert capabilities_for(settings, one, "m") is capabilities_for(settings, one, "m")
    assert dataclasses.replace(settings, upstreams=()).resolved_capabilities == {}
    monkeypatch.setattr(resolve, "_MAX_CACHED", 3)
    for number in range(10):
        capabilities_for(settings, one, f"m{number}")
        assert len(settings.resolved_capabilities) <= 3
    long = "claude-" + "x" * 1_000_000
    assert capabilities_for(settings, one, long) == capabilities_for(settings, one, "claude-x")
    assert all(len(model) < 20 for _, model, _ in settings.resolved_capabilities)
