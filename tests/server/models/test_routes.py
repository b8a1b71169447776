"""Routing: a table of settings and names in, routes out."""

# ruff: noqa: E501 -- the tables are read by row

from dataclasses import replace

import pytest

from dragoman import UPSTREAMS
from dragoman_server.capabilities.providers import PROVIDERS
from dragoman_server.models.routes import (
    SIMULATOR_DEFAULT_MODEL,
    ModelRoute,
    UnknownModel,
    deciding_upstream,
    default_model,
    model_ids,
    resolve,
)
from dragoman_server.settings import ServerSettings, Settings, UpstreamSettings
from dragoman_server.settings.upstreams import UPSTREAM_PROTOCOLS
from dragoman_server.simulator import MODELS

SIMULATED = tuple(f"sim/{name}" for name in MODELS)

C, M, R = "openai_chat", "anthropic_messages", "openai_responses"


def upstream(name: str, *protocols: str, models: tuple[str, ...] = ()) -> UpstreamSettings:
    return UpstreamSettings(
        name=name, protocol=protocols[0], protocols=protocols, base_url=f"http://{name}/v1", models=models
    )


OPENAI = upstream("openai", R, C)
ANTHROPIC = upstream("anthropic", M)
LOCAL = upstream("local", C, models=("qwen3", "org/llama"))
PROXY = upstream("proxy", C, M)

NOTHING = Settings()
ONE = Settings(upstreams=(LOCAL,))
TWO = Settings(upstreams=(OPENAI, ANTHROPIC))
NO_CLAUDE = Settings(upstreams=(LOCAL, OPENAI))
MANY = Settings(
    upstreams=(LOCAL, PROXY, OPENAI),
    models={
        "fast": "local/qwen3",
        "claude-haiku-4-5": "openai/gpt-5-mini",
        "claude-haiku-*": "local/qwen3",
        "local/old": "openai/new",
        "made-*-up": "sim/echo",
        "a/b": "proxy/c/d",
        "family-*": ("proxy/maker/*", "local/qwen3"),
        "*@*": "proxy/*-of-*",
        "just-*": "proxy/*",
    },
)

ROUTES = [
    # Only the simulator: every requested model works.
    (NOTHING, C, "gpt-4.1", ModelRoute("sim", "echo", C)),
    (NOTHING, M, "claude-opus-4-8[1m]", ModelRoute("sim", "echo", M)),
    (NOTHING, R, "any/thing", ModelRoute("sim", "echo", R)),
    (NOTHING, M, "sim/slow", ModelRoute("sim", "slow", M)),
    (NOTHING, "simple_chat", "x", ModelRoute("sim", "echo", C)),
    # An alias comes first, exact before patterns, and may hide an upstream's prefix.
    (MANY, C, "fast", ModelRoute("local", "qwen3", C)),
    (MANY, M, "claude-haiku-4-5", ModelRoute("openai", "gpt-5-mini", R)),
    (MANY, M, "claude-haiku-4-5-20251001", ModelRoute("local", "qwen3", C)),
    (MANY, C, "local/old", ModelRoute("openai", "new", C)),
    (MANY, C, "made-it-up", ModelRoute("sim", "echo", C)),
    (MANY, C, "a/b", ModelRoute("proxy", "c/d", C)),
    # A * of the target is the text that the * of the pattern matched, in order.
    (MANY, M, "family-big-1.5", ModelRoute("proxy", "maker/big-1.5", M)),
    (MANY, C, "one@two@three", ModelRoute("proxy", "one-of-two@three", C)),
    (MANY, C, "family-*", ModelRoute("proxy", "maker/*", C)),
    # A prefix; the remainder may have its own slashes.
    (MANY, C, "local/never-heard-of", ModelRoute("local", "never-heard-of", C)),
    (MANY, C, "proxy/org/llama", ModelRoute("proxy", "org/llama", C)),
    (MANY, M, "sim/echo", ModelRoute("sim", "echo", M)),
    # An upstream's own list, also for names with slashes.
    (MANY, C, "qwen3", ModelRoute("local", "qwen3", C)),
    (MANY, C, "org/llama", ModelRoute("local", "org/llama", C)),
    # Families: the upstream of that name, else the first one that has the protocol.
    (TWO, M, "claude-sonnet-4-6", ModelRoute("anthropic", "claude-sonnet-4-6", M)),
    (TWO, C, "claude-sonnet-4-6", ModelRoute("anthropic", "claude-sonnet-4-6", M)),
    (MANY, C, "claude-sonnet-4-6", ModelRoute("proxy", "claude-sonnet-4-6", C)),
    (MANY, M, "claude-sonnet-4-6", ModelRoute("proxy", "claude-sonnet-4-6", M)),
    (TWO, C, "gpt-5", ModelRoute("openai", "gpt-5", C)),
    (TWO, R, "o3-mini", ModelRoute("openai", "o3-mini", R)),
    (TWO, M, "codex-mini", ModelRoute("openai", "codex-mini", R)),
    # The only upstream gets every name that no table has.
    (ONE, C, "x/y", ModelRoute("local", "x/y", C)),
    (ONE, C, "sim/echo", ModelRoute("sim", "echo", C)),
]


def test_a_model_name_resolves_to_a_route() -> None:
    for settings, protocol, model, route in ROUTES:
        assert resolve(settings, protocol, model) == route, (protocol, model)


OLLAMA = ("qwen3", "gpt-oss:20b", "nomic-embed-text")
CLAUDE = upstream("claude", M)


def at(url: str, default: str | None = None, *protocols: str) -> UpstreamSettings:
    return replace(upstream("only", *(protocols or (C,))), base_url=url, default_model=default)


ANYWHERE = at("http://127.0.0.1:9000/v1")
SET = replace(ANYWHERE, default_model="qwen3")
AT_OPENAI = at("https://api.openai.com/v1", "gpt-5.6", R, C)
AT_ANTHROPIC = at("https://api.anthropic.com", "claude-sonnet-5-5", M)

# An only upstream, what it lists, the name that an agent sends, the model that is requested there.
AGENTS = [
    # A default of the user or of a preset replaces models that the upstream does not have.
    (SET, (), "claude-opus-5-5", "qwen3"),
    (SET, OLLAMA, "gpt-5.6", "qwen3"),
    (SET, OLLAMA, "codex-mini", "qwen3"),
    (SET, OLLAMA, "gpt-oss:20b", "gpt-oss:20b"),
    (replace(SET, models=("gpt-oss",)), (), "gpt-oss", "gpt-oss"),
    (AT_OPENAI, (), "claude-opus-5-5", "gpt-5.6"),
    (replace(ANYWHERE, protocol=M, protocols=(M,), default_model="qwen3"), (), "claude-opus-5-5", "qwen3"),
    # The vendor itself has its own names.
    (AT_OPENAI, (), "gpt-7", "gpt-7"),
    (AT_ANTHROPIC, ("claude-sonnet-5-5",), "claude-haiku-9", "claude-haiku-9"),
    (AT_ANTHROPIC, (), "gpt-5.6", "claude-sonnet-5-5"),
    # Without one, the only model that can be talked to.
    (ANYWHERE, ("qwen3",), "claude-opus-5-5", "qwen3"),
    (ANYWHERE, ("text-embedding-nomic", "qwen3"), "claude-opus-5-5", "qwen3"),
    (replace(ANYWHERE, models=("qwen3",)), (), "claude-opus-5-5", "qwen3"),
    # Unknown here: the upstream may have it, so it is requested there.
    (ANYWHERE, (), "claude-opus-5-5", "claude-opus-5-5"),
    (ANYWHERE, OLLAMA, "claude-opus-5-5", "claude-opus-5-5"),
    # Names that no agent sends by itself are chosen by its user.
    (SET, ("qwen3",), "qwen4", "qwen4"),
    (SET, ("qwen3",), "only/claude-opus-5-5", "claude-opus-5-5"),
]


def test_model_names_of_agents_are_routed_to_an_existing_model() -> None:
    for only, listed, name, model in AGENTS:
        route = resolve(Settings(upstreams=(only,)), M, name, {"only": listed} if listed else {})
        assert isinstance(route, ModelRoute), (name, listed)
        assert route.upstream_model == model, (name, listed)


@pytest.mark.parametrize(
    ("only", "listed", "name", "advice"),
    [
        (ANYWHERE, (), "claude-opus-5-5", 'add to dragoman.toml, below [models]: "claude-*" = "only/MODEL"'),
        (ANYWHERE, OLLAMA, "gpt-5.6", 'add to dragoman.toml, below [models]: "gpt-*" = "only/qwen3"'),
        (AT_OPENAI, (), "gpt-7", ""),
        (ANYWHERE, OLLAMA, "qwen4", ""),
        (SET, (), "claude-opus-5-5", ""),
    ],
)
def test_a_guess_that_may_be_wrong_has_the_line_to_add(
    only: UpstreamSettings, listed: tuple[str, ...], name: str, advice: str
) -> None:
    route = resolve(Settings(upstreams=(only,)), M, name, {"only": listed})
    assert isinstance(route, ModelRoute)
    assert route.advice == advice


DECIDING: list[tuple[tuple[UpstreamSettings, ...], dict[str, str], str, UpstreamSettings | None]] = [
    ((ANYWHERE,), {}, "claude-opus-5-5", ANYWHERE),
    ((OPENAI, CLAUDE), {}, "claude-opus-5-5", CLAUDE),
    # Nothing depends on a list.
    ((ANYWHERE,), {"claude-*": "only/x"}, "claude-opus-5-5", None),
    ((ANYWHERE,), {}, "only/claude-opus-5-5", None),
    ((ANYWHERE,), {}, "qwen3", None),
    ((AT_OPENAI,), {}, "gpt-5.6", None),
    ((LOCAL, OPENAI), {}, "claude-opus-5-5", None),
    ((), {}, "claude-opus-5-5", None),
]


def test_the_model_list_that_decides_a_guess() -> None:
    for upstreams, models, name, requested in DECIDING:
        assert deciding_upstream(Settings(upstreams=upstreams, models=models), name) is requested, (
            name,
            models,
        )


ADVICE = 'write "upstream/model" with one of the upstreams {}'
LINE = ', or add to dragoman.toml, below [models]: "{}" = "{}"'

UNKNOWN = [
    (TWO, "", "the request names no model", None),
    (NOTHING, "", "the request names no model", None),
    (TWO, "zzz", 'the model "zzz" is not known here; ' + ADVICE.format("openai, anthropic") + LINE.format("zzz", "openai/MODEL"), None),
    # A prefix needs a model after it.
    (TWO, "openai/", 'the model "openai/" is not known here; ' + ADVICE.format("openai, anthropic") + LINE.format("openai/", "openai/MODEL"), None),
    (TWO, "opnai/gpt-5", 'the model "opnai/gpt-5" is not known here; did you mean "openai/gpt-5"? ' + ADVICE.format("openai, anthropic"), "openai/gpt-5"),
    (MANY, "fasst", 'the model "fasst" is not known here; did you mean "fast"? ' + ADVICE.format("local, proxy, openai"), "fast"),
    (MANY, "just-", 'the model "just-" is routed to no model of the upstream "proxy"', None),
    (TWO, "qq/x", 'the model "qq/x" is not known here; ' + ADVICE.format("openai, anthropic") + LINE.format("qq/x", "openai/MODEL"), None),
    # Default models of agents get one line for all of them, with an existing model.
    (NO_CLAUDE, "claude-opus-5-5", 'the model "claude-opus-5-5" is not known here; ' + ADVICE.format("local, openai") + LINE.format("claude-*", "local/qwen3"), None),
    (
        TWO,
        "\x1b[31m" + "x" * 200,
        'the model "?[31m'
        + "x" * 95
        + '..." is not known here; '
        + ADVICE.format("openai, anthropic")
        + LINE.format("?[31m" + "x" * 95 + "...", "openai/MODEL"),
        None,
    ),
]  # fmt: skip


def test_an_unknown_name_gets_advice() -> None:
    for settings, model, message, suggestion in UNKNOWN:
        assert resolve(settings, C, model) == UnknownModel(model, message, suggestion), model


def test_a_suggestion_has_a_route() -> None:
    for settings, model, _, suggestion in UNKNOWN:
        if suggestion is not None:
            assert isinstance(resolve(settings, C, model), UnknownModel)
            assert isinstance(resolve(settings, C, suggestion), ModelRoute)


def test_without_the_simulator_its_names_are_unknown() -> None:
    settings = Settings(server=ServerSettings(simulator=False), upstreams=(OPENAI, ANTHROPIC))
    assert isinstance(resolve(settings, C, "sim/echo"), UnknownModel)
    assert model_ids(settings) == ()


def test_an_alias_to_nowhere_is_no_crash() -> None:
    unknown = resolve(Settings(models={"a": "gone/x"}), C, "a")
    assert unknown == UnknownModel("a", 'the model "a" is routed to the unknown upstream "gone"')


def test_the_listed_ids_are_known_names_with_a_route() -> None:
    ids = model_ids(MANY)
    assert ids == (
        "fast",
        "claude-haiku-4-5",
        "local/old",
        "a/b",
        "local/qwen3",
        "local/org/llama",
        *SIMULATED,
    )
    for name in ids:
        assert isinstance(resolve(MANY, C, name), ModelRoute)
    assert model_ids(NOTHING) == SIMULATED


def test_the_default_model_is_one_of_the_simulators() -> None:
    assert SIMULATOR_DEFAULT_MODEL in SIMULATED


def test_the_default_model() -> None:
    assert default_model(NOTHING) == SIMULATOR_DEFAULT_MODEL  # so that any client works at the first try
    assert default_model(TWO) is None
    assert default_model(Settings(server=ServerSettings(simulator=False))) is None
    for settings in (NOTHING, TWO):
        chosen = replace(settings, server=ServerSettings(default_model="openai/gpt-5"))
        assert default_model(chosen) == "openai/gpt-5"


def test_upstream_protocols_are_those_of_the_core() -> None:
    assert set(UPSTREAM_PROTOCOLS) == set(UPSTREAMS)


@pytest.mark.parametrize("server", [OPENAI, ANTHROPIC, LOCAL, PROXY], ids=lambda server: server.name)
def test_a_request_is_relayed_if_the_upstream_has_its_protocol(server: UpstreamSettings) -> None:
    for client in [*UPSTREAM_PROTOCOLS, "simple_chat"]:
        route = resolve(Settings(upstreams=(server,)), client, f"{server.name}/x")
        assert isinstance(route, ModelRoute), (server.name, client)
        assert route.upstream_protocol == (client if client in server.protocols else server.protocol), (
            server.name,
            client,
        )


def test_each_family_is_routed_to_its_vendors_upstream() -> None:
    for provider in PROVIDERS:
        settings = Settings(upstreams=(upstream("other", M, C), upstream(provider.name, C)))
        for model in (pattern.replace("*", "x") for pattern in provider.models):
            assert resolve(settings, C, model) == ModelRoute(provider.name, model, C), model
