"""The first configuration file: the upstreams found on this machine, and the text that is made from them.

Found are keys of providers in the environment, and servers of models on their usual ports. The text refers to keys by
`${VARIABLE}`, so there is no secret in it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from dragoman import UPSTREAMS
from dragoman_server.capabilities.cloud_apis import CLOUD_APIS
from dragoman_server.capabilities.local_servers import LOCAL_SERVERS
from dragoman_server.capabilities.provider import CHAT
from dragoman_server.capabilities.providers import PROVIDERS, address_of
from dragoman_server.cli.listeners import find_listener, free_port
from dragoman_server.cli.local_servers import FoundServer, find_local_servers
from dragoman_server.config.loader import LoadedConfig
from dragoman_server.models.info import ModelInfo
from dragoman_server.models.routes import (
    AGENT_MODELS,
    UnknownModel,
    default_model_of,
    filter_chat_models,
    resolve,
)
from dragoman_server.platform.extras import install_command, missing_extra
from dragoman_server.serving.sockets import AddressInUse, StartupError, bind
from dragoman_server.settings import Settings, UpstreamSettings, settings_of
from dragoman_server.settings.patterns import WILDCARD
from dragoman_server.settings.secret import Secret
from dragoman_server.settings.values import InvalidValue, check_value, is_loopback
from dragoman_server.upstream.client import origin_of

# How many models of a server are named in the comment above it.
_MODELS_NAMED = 5


@dataclass(frozen=True, slots=True)
class Entry:
    """An upstream for the file.

    Attributes:
        settings: Its `variables` are written as references.
        title, summary: Describe it.
        comment: More lines above it.
        active: False for one that cannot be used yet, which becomes a comment.
        default_model: To write into the file, None if it has a default already or none is known.
    """

    settings: UpstreamSettings
    title: str
    summary: str
    comment: tuple[str, ...] = ()
    active: bool = True
    default_model: str | None = None


@dataclass(frozen=True, slots=True)
class InitialConfig:
    """What was found, and the port to use.

    Attributes:
        port_reason: Why it is not the usual one, else "".
    """

    entries: tuple[Entry, ...]
    port: int
    port_reason: str = ""


async def find_initial_config(loaded: LoadedConfig, environ: Mapping[str, str]) -> InitialConfig:
    """Look for everything that the file may name. loaded: what the environment alone configures."""
    found = await find_local_servers(environ)
    entries = (
        *_entries_of_providers(loaded, environ),
        *_entries_of_clouds(loaded, environ),
        *_entries_of_servers(loaded, environ, found),
    )
    port, reason = await _port(loaded)
    return InitialConfig(entries, port, reason)


def _entries_of_providers(loaded: LoadedConfig, environ: Mapping[str, str]) -> Iterator[Entry]:
    for upstream in loaded.settings.upstreams:
        # A base URL of one's own may be private; the provider's is written out.
        variables = {name: variable for name, variable in upstream.variables.items() if environ.get(variable)}
        default = upstream.default_model
        comment = (
            () if default is None else (f"Agents get {default}, unless default_model names another one.",)
        )
        yield Entry(
            replace(upstream, variables=variables), upstream.name, f"key in {variables['api_key']}", comment
        )


def _entries_of_clouds(loaded: LoadedConfig, environ: Mapping[str, str]) -> Iterator[Entry]:
    """Yield the clouds that variables show and that are no upstreams by a key. Nothing looks for credentials here."""
    for provider in PROVIDERS:
        shown = next((name for name in provider.set_by if environ.get(name)), None)
        url, api = provider.base_url_in(environ), CLOUD_APIS.get(provider.name)
        known = loaded.settings.upstream(provider.name) is not None
        if known or shown is None or url is None or api is None:
            continue
        if is_loopback(address_of(url)[0]):  # clients that are set for a cloud find the gateway there
            continue
        upstream = UpstreamSettings(
            name=provider.name,
            protocol=provider.protocols[0],
            protocols=tuple(sorted(provider.protocols)),
            base_url=url,
            headers={header: Secret("") for header, _ in provider.headers},
            variables=dict(provider.headers),
        )
        missing = missing_extra(api.extra) is not None
        comment = (
            f"Without api_key it gets the credentials that dragoman[{api.extra}] finds; `dragoman doctor` says which.",
            *((f"Install that, and remove the # below: {install_command(api.extra)}",) if missing else ()),
        )
        yield Entry(upstream, provider.name, f"a cloud, by {shown}", comment, active=not missing)


def _entries_of_servers(
    loaded: LoadedConfig, environ: Mapping[str, str], found: Sequence[FoundServer]
) -> Iterator[Entry]:
    """Yield the servers that are not upstreams already, by a base URL in the environment."""
    known = {_loopback_port(upstream.base_url) for upstream in loaded.settings.upstreams}
    for found_server in found:
        server = found_server.server
        if _loopback_port(server.base_url) in known:
            continue
        variables = {"api_key": server.key} if found_server.models is None or environ.get(server.key) else {}
        upstream = UpstreamSettings(
            name=server.name, protocol=CHAT, base_url=server.base_url, variables=variables
        )
        at, advice = f"at {origin_of(server.base_url)[0]}", (server.advice,) if server.advice else ()
        if found_server.models is None:
            summary = f"{at}, requires a key: set {server.key}"
            comment = (*advice, f"Set {server.key}, and remove the # below.")
            yield Entry(upstream, server.title, summary, comment, active=False)
            continue
        usable = {model.id: model for model in found_server.models if _can_be_written(model.id)}
        summary = f"{at}, models: {_model_names(list(usable.values()))}"
        default = default_model_of(upstream, usable) or next(filter_chat_models(usable), None)
        yield Entry(upstream, server.title, summary, advice, default_model=default)


def _loopback_port(url: str) -> int | None:
    host, port = address_of(url)
    return port if is_loopback(host) else None


def _can_be_written(model: str) -> bool:
    try:
        check_value(settings_of(UpstreamSettings)["default_model"], model, model)
    except InvalidValue:
        return False
    return WILDCARD not in model


def _model_names(models: Sequence[ModelInfo]) -> str:
    names = [
        model.id if model.context is None else f"{model.id} ({model.context} tokens)"
        for model in models[:_MODELS_NAMED]
    ]
    if len(models) > _MODELS_NAMED:
        names.append(f"and {len(models) - _MODELS_NAMED} more")
    return ", ".join(names) or "none yet"


def found_lines(config: InitialConfig, again: str) -> Iterator[str]:
    """Yield what was found, for the terminal. again: the command that looks again and replaces the file."""
    if not config.entries:
        titles = ", ".join(dict.fromkeys(server.title for server in LOCAL_SERVERS))
        variable = PROVIDERS[0].keys[0][0]
        yield "Found no key of a provider in the environment, and no server of models on this machine"
        yield f"(looked for {titles} on their usual ports)."
        yield "Without them the built-in simulator responds, as sim/echo, so any client can be tried."
        yield f"For a real model set a key such as {variable}, or start a server; then: {again}"
        return
    yield "Found:"
    for entry in config.entries:
        yield f"  {entry.title}: {entry.summary}"


async def _port(loaded: LoadedConfig) -> tuple[int, str]:
    """Return a port that is free, and why it is not the default one."""
    server = loaded.settings.server
    try:
        bind(server).close()
    except AddressInUse as error:
        listener = await find_listener(error.address)
        other = free_port(error.address)
        if other is not None and listener.url is None:
            return other, f"{server.port} was in use when this file was made."
    except StartupError:
        pass  # reported at the start
    return server.port, ""


# The file.


def config_text(config: InitialConfig) -> str:
    """Return the text of the file."""
    parts = (_server_lines(config), _upstream_lines(config.entries), _model_lines(config.entries))
    return "".join(f"{line}\n" for part in parts for line in part)


def _server_lines(config: InitialConfig) -> Iterator[str]:
    yield "# Configuration of Dragoman, made by `dragoman init`. docs/configuration.md has every setting."
    yield "# After a change: `dragoman config check`; `dragoman doctor` also examines the upstreams."
    yield ""
    yield "[server]"
    yield "# Only this machine can connect. For other machines make client keys first: `dragoman keys add NAME`."
    yield 'host = "127.0.0.1"'
    if config.port_reason:
        yield f"# {config.port_reason}"
    yield f"port = {config.port}"
    yield "# Signs reasoning and hashes client keys; the same on every gateway, as from `openssl rand -hex 32`."
    yield '# secret = "${DRAGOMAN_SECRET}"'
    target = _first_target(config.entries)
    if target is not None:
        yield "# For requests that name no model, as the simple API allows."
        yield f"default_model = {_toml(target)}"
    if not any(entry.active for entry in config.entries):
        yield "# The built-in model, which needs no key, is listed as long as there is no upstream."
        yield "# simulator = true"


def _upstream_lines(entries: Sequence[Entry]) -> Iterator[str]:
    for entry in entries:
        upstream, mark = entry.settings, "" if entry.active else "# "
        yield ""
        yield from (f"# {line}" for line in (f"{entry.title}: {entry.summary}", *entry.comment))
        yield f"{mark}[[upstreams]]"
        yield f"{mark}name = {_toml(upstream.name)}"
        yield f"{mark}protocol = {_toml(upstream.protocol)}"
        if len(upstream.protocols) > 1:
            yield f"{mark}protocols = {json.dumps(upstream.protocols)}"
        references = {name: f"${{{variable}}}" for name, variable in upstream.variables.items()}
        yield f'{mark}base_url = "{references.get("base_url", upstream.base_url)}"'
        if "api_key" in references:
            yield f'{mark}api_key = "{references["api_key"]}"'
        for name in upstream.headers:
            yield f'{mark}headers.{name} = "{references[name]}"'
        header = UPSTREAMS[upstream.protocol].auth_header
        if upstream.auth not in ("auto", "bearer" if header == "authorization" else header):
            yield f"{mark}auth = {_toml(upstream.auth)}"
        if entry.default_model is not None:
            yield "# For the names of models that agents request by themselves, such as claude-* and gpt-*."
            yield f"{mark}default_model = {_toml(entry.default_model)}"
    if not entries:
        yield ""
        yield "# [[upstreams]]"
        yield '# name = "local"'
        yield f'# protocol = "{CHAT}"          # or {", ".join(name for name in UPSTREAMS if name != CHAT)}'
        yield '# base_url = "http://127.0.0.1:9000/v1"  # as the SDK of that protocol takes it'
        yield '# api_key = "${LOCAL_KEY}"'


def _model_lines(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield `[models]`: the agents' own names, where they would lead nowhere, to the first upstream."""
    upstreams = tuple(
        replace(entry.settings, default_model=entry.default_model or entry.settings.default_model)
        for entry in entries
        if entry.active
    )
    settings, target = Settings(upstreams=upstreams), _first_target(entries)
    yield ""
    yield "# The names that clients send, * for any text, and the upstream/model that they mean, or a list of those,"
    yield '# the best first: "claude-*" = ["first/model", "second/model"]'
    yield "[models]"
    for pattern in AGENT_MODELS if target is not None else ():
        leads_nowhere = isinstance(resolve(settings, None, pattern.replace(WILDCARD, "x")), UnknownModel)
        yield f"{'' if leads_nowhere else '# '}{json.dumps(pattern)} = {_toml(target)}"


def _first_target(entries: Sequence[Entry]) -> str | None:
    """Return `upstream/model` of the first upstream with a known model."""
    for entry in entries:
        model = entry.default_model or entry.settings.default_model
        if entry.active and model is not None:
            return f"{entry.settings.name}/{model}"
    return None


def _toml(text: str | None) -> str:
    """Return a string of TOML, in which a dollar sign is no reference."""
    return json.dumps((text or "").replace("$", "$$"))
