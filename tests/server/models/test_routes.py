"""Names of models: which there are, and where they lead, as rows of names.txt."""

import json
from pathlib import Path
from typing import Any

import pytest
import rows
from msgspec.structs import replace

from dragoman import UPSTREAMS
from dragoman_server.capabilities.providers import PROVIDERS
from dragoman_server.models.catalog import build_entries
from dragoman_server.models.info import ModelInfo, read_models
from dragoman_server.models.routes import (
    SIMULATOR_DEFAULT_MODEL,
    ModelRoute,
    UnknownModel,
    deciding_upstream,
    default_model,
    model_ids,
    resolve,
)
from dragoman_server.proxying.destinations import Destination, find_destinations
from dragoman_server.settings import ServerSettings, Settings, UpstreamSettings
from dragoman_server.settings.upstreams import UPSTREAM_PROTOCOLS
from dragoman_server.simulator import MODELS

SIMULATED = tuple(f"sim/{name}" for name in MODELS)
PROTOCOLS = {"chat": "openai_chat", "messages": "anthropic_messages", "responses": "openai_responses"}
C, M, R = PROTOCOLS.values()


def upstream(name: str, *protocols: str, models: tuple[str, ...] = (), **more: Any) -> UpstreamSettings:
    url = more.pop("base_url", f"http://{name}/v1")
    return UpstreamSettings(
        name=name, protocol=protocols[0], protocols=protocols, base_url=url, models=models, **more
    )


def names_of(lines: list[str]) -> list[str]:
    settings, lists = Settings(), dict[str, tuple[ModelInfo, ...]]()
    out: list[str] = []
    for line in lines:
        word, *rest = line.replace("\\x1b", "\x1b").split(" ")
        match word:
            case "upstream":
                more: dict[str, Any] = dict(each.split("=") for each in rest[2:])
                more["models"] = tuple(more["models"].split(",")) if "models" in more else ()
                more = {
                    {"default": "default_model", "url": "base_url"}.get(name, name): more[name]
                    for name in more
                }
                found = upstream(rest[0], *[PROTOCOLS[name] for name in rest[1].split("+")], **more)
                settings = replace(settings, upstreams=(*settings.upstreams, found))
            case "name":
                models: Any = {**settings.models, rest[0]: rest[1] if len(rest) == 2 else tuple(rest[1:])}
                settings = replace(settings, models=models)
            case "server":
                name, _, value = rest[0].partition("=")
                settings = replace(settings, server=replace(settings.server, **{name: json.loads(value)}))
            case "lists":
                lists[rest[0]] = read_models(" ".join(rest[1:]).encode()).models
            case _ if rest == ["names"]:
                out += entries(settings, lists)
            case _:
                out.append(route(settings, lists, PROTOCOLS.get(rest[0], rest[0]), rest[1]))
    return out


def entries(settings: Settings, lists: dict[str, tuple[ModelInfo, ...]]) -> list[str]:
    found = build_entries(settings, lists)
    simulated = {name: entry for name, entry in found.items() if name in SIMULATED}
    assert list(simulated) in ([], list(found)[-len(SIMULATED) :]), "they come last"
    out = [
        f"{name if entry.listed else f'({name})'}: {entry.display_name}, {entry.owner}, {limits_of(entry.info)}"
        for name, entry in found.items()
        if name not in simulated
    ]
    listed = {entry.listed for entry in simulated.values()}
    return out + [f"the simulator's, listed: {each}" for each in listed] or ["none"]


def limits_of(info: ModelInfo) -> str:
    known = {"context": info.context, "output": info.output, "since": info.created, "is": info.lifecycle}
    return " ".join([info.id or "no model", *(f"{name} {value}" for name, value in known.items() if value)])


def route(settings: Settings, lists: dict[str, tuple[ModelInfo, ...]], protocol: str, model: str) -> str:
    infos = {name: {info.id: info for info in models} for name, models in lists.items()}
    found = resolve(settings, protocol, model, infos)
    decides = deciding_upstream(settings, model)
    listed = "" if decides is None else f"; the list of {decides.name} decides"
    if isinstance(found, UnknownModel):
        if found.suggestion is not None:
            assert isinstance(resolve(settings, protocol, found.suggestion), ModelRoute)
        return f"unknown: {found.message} [{found.suggestion}]{listed}"
    advice = f"; {found.advice}" if found.advice else ""
    return (
        f"{found.upstream}/{found.upstream_model} in {found.upstream_protocol} ({found.rule}){advice}{listed}"
    )


def test_the_names_of_models_and_where_they_lead() -> None:
    rows.check(Path(__file__).with_name("names.txt"), names_of)


MANY = Settings(
    upstreams=(
        upstream("local", C, models=("qwen3", "org/llama")),
        upstream("proxy", C, M),
        upstream("openai", R, C),
    ),
    models={"fast": "local/qwen3", "made-*-up": "sim/echo", "local/old": "openai/new"},
)


def test_destinations_are_found_once_for_a_name_until_a_list_changes() -> None:
    settings = Settings(upstreams=(upstream("only", C),))
    messages, lists = UPSTREAMS[M], {"only": {"qwen3": ModelInfo("qwen3")}}

    def find() -> tuple[Destination, ...]:
        return find_destinations(settings, messages, "claude-x", listed=lists)

    first = find()
    assert [to.target for to in first] == ["only/qwen3"]
    assert find() is first
    lists["only"] = {"qwen4": ModelInfo("qwen4")}
    assert [to.target for to in find()] == ["only/qwen4"]


def test_without_a_name_a_request_is_refused_and_without_the_simulator_its_names_are_not_listed() -> None:
    assert resolve(MANY, C, "") == UnknownModel("the request names no model")
    assert model_ids(Settings(server=ServerSettings(simulator=False))) == ()


def test_the_listed_ids_are_known_names_with_a_route() -> None:
    ids = model_ids(MANY)
    expected = ("fast", "local/old", "local/qwen3", "local/org/llama", *SIMULATED)
    assert ids == expected
    for name in ids:
        assert isinstance(resolve(MANY, C, name), ModelRoute)
    assert model_ids(Settings()) == SIMULATED


def test_the_default_model_is_one_of_the_simulators() -> None:
    assert SIMULATOR_DEFAULT_MODEL in SIMULATED


def test_the_default_model() -> None:
    assert default_model(Settings()) == SIMULATOR_DEFAULT_MODEL  # so that any client works at the first try
    assert default_model(MANY) is None
    assert default_model(Settings(server=ServerSettings(simulator=False))) is None
    for settings in (Settings(), MANY):
        chosen = replace(settings, server=ServerSettings(default_model="openai/gpt-5"))
        assert default_model(chosen) == "openai/gpt-5"


def test_upstream_protocols_are_those_of_the_core() -> None:
    assert set(UPSTREAM_PROTOCOLS) == set(UPSTREAMS)


@pytest.mark.parametrize("server", MANY.upstreams, ids=lambda server: server.name)
def test_a_request_is_relayed_if_the_upstream_has_its_protocol(server: UpstreamSettings) -> None:
    for client in [*UPSTREAM_PROTOCOLS, "simple_chat"]:
        route = resolve(Settings(upstreams=(server,)), client, f"{server.name}/x")
        assert isinstance(route, ModelRoute), (server.name, client)
        expected = client if client in server.protocols else server.protocol
        assert route.upstream_protocol == expected, (server.name, client)


def test_each_family_is_routed_to_its_vendors_upstream() -> None:
    for provider in PROVIDERS:
        settings = Settings(upstreams=(upstream("other", M, C), upstream(provider.name, C)))
        for model in (pattern.replace("*", "x") for pattern in provider.models):
            assert resolve(settings, C, model) == ModelRoute(provider.name, model, C), model
