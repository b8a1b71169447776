"""Capabilities of a model at an upstream: hosts, families and configuration, each overriding the one before."""

from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest
import rows
from msgspec import structs

from dragoman import UPSTREAMS, Capabilities
from dragoman_server.capabilities.model_families import MODEL_FAMILIES, normalized_model_name
from dragoman_server.capabilities.providers import PROVIDERS
from dragoman_server.capabilities.resolve import capabilities_for
from dragoman_server.settings import (
    ModelCapabilitySettings,
    ServerSettings,
    Settings,
    UpstreamSettings,
    capability_settings,
    server,
    settings_of,
)
from dragoman_server.settings.upstreams import SIMULATOR_UPSTREAM
from dragoman_server.settings.values import check_value

ANTHROPIC, OPENAI = "https://api.anthropic.com", "https://api.openai.com/v1"
UNKNOWN_HOST = "http://127.0.0.1:9000/v1"
KEYS = settings_of(UpstreamSettings) | capability_settings(UPSTREAMS.values())


def upstream(url: str = UNKNOWN_HOST, **configured: Any) -> UpstreamSettings:
    protocol = "anthropic_messages" if url == ANTHROPIC else "openai_chat"
    return UpstreamSettings.of(name="up", protocol=protocol, base_url=url, **configured)


def capabilities(
    model: str = "some-model",
    url: str = UNKNOWN_HOST,
    configured_rows: tuple[ModelCapabilitySettings, ...] = (),
    **configured: Any,
) -> Any:
    settings = upstream(url, **configured)
    return capabilities_for(Settings(upstreams=(settings,), capabilities=configured_rows), settings, model)


def test_every_choice_and_default_is_valid_in_the_core() -> None:
    for spec in UPSTREAMS.values():
        for name, key in capability_settings([spec]).items():
            assert (
                name not in settings_of(UpstreamSettings).keys() | settings_of(ModelCapabilitySettings).keys()
            )
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
        assert {*family.providers} <= {provider.name for provider in PROVIDERS}
        assert all(pattern == normalized_model_name(pattern) for pattern in family.patterns)
        for name, value in family.capabilities.items():
            if value is not None:
                value_read: Any = list(value) if isinstance(value, tuple) else value
                assert check_value(KEYS[name], value_read, value_read) == value, family.patterns


# Hosts and families.

BASE_URLS = {"local": UNKNOWN_HOST} | {provider.name: provider.base_url for provider in PROVIDERS}
PROTOCOLS = {"chat": "openai_chat", "messages": "anthropic_messages", "responses": "openai_responses"}


def different(lines: list[str]) -> list[str]:
    host, model, protocol = lines[0].split()

    def at(url: str, model: str) -> dict[str, Any]:
        one = UpstreamSettings.of(name="up", protocol=PROTOCOLS[protocol], base_url=url)
        return shown(capabilities_for(Settings(), one, model))

    url = BASE_URLS.get(host, host)
    if model != "some-model":
        usual = at(url, "some-model")
    elif host != "local":
        usual = at(UNKNOWN_HOST, "some-model")
    else:
        usual = shown(UPSTREAMS[PROTOCOLS[protocol]].capabilities())
    return [f"{name}: {value}" for name, value in at(url, model).items() if value != usual[name]] or ["="]


def shown(capabilities: Capabilities) -> dict[str, Any]:
    found = msgspec.structs.asdict(capabilities)
    return {name: sorted(value) if isinstance(value, frozenset) else value for name, value in found.items()}


def test_capabilities_of_hosts_and_families() -> None:
    rows.check(Path(__file__).with_name("resolved.txt"), different)


def test_the_simulator_accepts_all_parameters_of_chat() -> None:
    found = capabilities_for(Settings(), SIMULATOR_UPSTREAM, "echo")
    assert found.max_tokens_field == "max_completion_tokens"
    assert found.efforts == ("none", "minimal", "low", "medium", "high", "xhigh", "max")


# The configuration.


def test_later_sources_override_earlier_ones() -> None:
    model = "claude-haiku-4-5"
    assert capabilities(model, ANTHROPIC).thinking == "budget"
    assert capabilities(model, ANTHROPIC, thinking="adaptive").thinking == "adaptive"
    configured = (
        ModelCapabilitySettings.of(model="claude-*", thinking="none", mid_system=True),
        ModelCapabilitySettings.of(model="claude-haiku-*", thinking="budget"),
        ModelCapabilitySettings.of(model="claude-haiku-*", upstream="other", thinking="none"),
        ModelCapabilitySettings.of(model="gpt-*", thinking="none"),
    )
    found = capabilities(model, ANTHROPIC, configured, thinking="adaptive", call_ids="alnum9")
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
    assert structs.replace(settings, upstreams=()).resolved == {}
    monkeypatch.setattr(server, "_MAX_RESOLVED", 3)
    for number in range(10):
        capabilities_for(settings, one, f"m{number}")
        assert len(settings.resolved) <= 3
    long = "claude-" + "x" * 1_000_000
    assert capabilities_for(settings, one, long) == capabilities_for(settings, one, "claude-x")
    assert all(len(model) < 20 for _, _, model, _ in settings.resolved)
