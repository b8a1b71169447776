"""Print the banner of `dragoman serve` once it accepts connections: the upstreams, and lines to copy for each client.

Pure functions make the text. It is coloured on a terminal; elsewhere, or if NO_COLOR is set, it is plain.
"""

import json
import shlex
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import anyio
import click

from dragoman_server.capabilities.providers import PROVIDERS, provider_name
from dragoman_server.cli.options import own_command, print_lines
from dragoman_server.config.loader import LoadedConfig
from dragoman_server.models.info import ModelInfo
from dragoman_server.models.listing import can_list, fetch_all
from dragoman_server.models.routes import (
    SIMULATOR_DEFAULT_MODEL,
    ListedModels,
    ModelRoute,
    default_model_of,
    filter_chat_models,
    model_ids,
    resolve,
)
from dragoman_server.serving.sockets import BoundAddress
from dragoman_server.settings import SIMULATOR, Settings
from dragoman_server.settings.patterns import WILDCARD
from dragoman_server.settings.server import KEY_VARIABLE
from dragoman_server.upstream.client import UpstreamClient, origin_of

# The vendors' clients require a key even if the gateway needs none.
_ANY_KEY = "any"
# The gateway has only the hashes of client keys.
_KEY_PLACEHOLDER = "YOUR_KEY"
_UNKNOWN_MODEL = "MODEL"

# How many providers, upstreams, models and warnings are named: the banner fits on a screen of 24 lines of 80 columns.
_NAMED_PROVIDERS = 4
_NAMED_UPSTREAMS = 3
_NAMED_MODELS = 3
_NAMED_WARNINGS = 2

_DOCS = Path(__file__).parents[3] / "docs"

# How long the banner waits for lists of models.
LISTS_TIMEOUT_S = 2.0

# The models of each upstream by its name, or why it has returned no list.
ModelLists: TypeAlias = Mapping[str, tuple[ModelInfo, ...] | str]


# The roles of lines. Commands are never wrapped, so that they can be copied.
_title = partial(click.style, bold=True)
_label = partial(click.style, fg="cyan", bold=True)
_command = partial(click.style, fg="green")
_warning = partial(click.style, fg="yellow")


def banner(
    loaded: LoadedConfig, listening: BoundAddress, version: str, lists: ModelLists = MappingProxyType({})
) -> Iterator[str]:
    """Yield all lines in colours, the last one `Dragoman listens on URL (BACKEND)`. lists: what the upstreams list."""
    settings = loaded.settings
    url = listening.local_url
    yield _title(f"Dragoman {version}, configured by {loaded.path or 'the environment'}")
    for warning in _first(
        [*map(str, loaded.warnings)], _NAMED_WARNINGS, "`dragoman config check` prints them"
    ):
        yield _warning(f"warning: {warning}")
    yield from _upstream_lines(settings)
    models = _known_models(settings, lists)
    if models:
        named = ", ".join(_first(models, _NAMED_MODELS, f"{url}/v1/models lists them"))
        yield f"{_label('Models')}  {named}"
    model, context = example_model(settings, lists)
    if model is None:
        first = settings.upstreams[0]
        model = f"{first.name}/{_UNKNOWN_MODEL}"
        reason = lists.get(first.name, "its list was not requested")
        reported = reason if isinstance(reason, str) else "its list is empty"
        add = f', and add default_model = "{_UNKNOWN_MODEL}" below its [[upstreams]]'
        yield _warning(
            f"warning: the models of {first.name} are unknown ({reported}): write one in place of "
            f"{_UNKNOWN_MODEL}{'' if first.variables else add}"
        )
    for title, command in commands(url, model, context, needs_key=bool(settings.client_keys)).items():
        yield _label(title)
        yield _command("  " + command)
    page = _DOCS / "using.md"
    yield f"Documentation: {page if page.is_file() else 'docs/using.md'}"
    yield _title(f"Dragoman listens on {listening.url} ({listening.backend})")


def _upstream_lines(settings: Settings) -> Iterator[str]:
    lines = []
    for upstream in settings.upstreams:
        # Only the host, because a path may contain the name of an account or a key.
        origin, _ = origin_of(upstream.base_url)
        key = f"key {upstream.api_key}" if upstream.api_key is not None else "no key"
        lines.append(f"{upstream.name}: {origin}, {', '.join(upstream.protocols)}, {key}")
    if settings.lists_simulator:
        lines.append(f"{SIMULATOR}: built in, needs no key")
    yield _label("Upstreams")
    for line in _first(lines, _NAMED_UPSTREAMS, "`dragoman config show` prints them"):
        yield f"  {line}"
    if not settings.upstreams:
        variables = ", ".join(provider.keys[0][0] for provider in PROVIDERS[:_NAMED_PROVIDERS])
        yield f"  for a real model set {variables} or another provider's key,"
        yield f"  or write a configuration with `{own_command()} init`, and restart the gateway"


def _known_models(settings: Settings, lists: ModelLists) -> list[str]:
    """Return the names of models that are known now, without the simulator's where there is an upstream."""
    hidden = f"{SIMULATOR}/" if not settings.lists_simulator else None
    names = [name for name in model_ids(settings) if hidden is None or not name.startswith(hidden)]
    for upstream in settings.upstreams:
        listed = lists.get(upstream.name, ())
        found = [] if isinstance(listed, str) else [model.id for model in listed]
        default = [] if upstream.default_model is None else [upstream.default_model]
        names += [f"{upstream.name}/{model}" for model in (*default, *filter_chat_models(found))]
    return list(dict.fromkeys(names))


def _first(items: Sequence[str], count: int, where: str) -> list[str]:
    """Return the first items; if there are more, the last one is how many. where: the place of the others."""
    if len(items) <= count:
        return list(items)
    return [*items[: count - 1], f"and {len(items) - count + 1} more; {where}"]


def example_model(
    settings: Settings, lists: ModelLists = MappingProxyType({})
) -> tuple[str | None, int | None]:
    """Return a model that should work: one that the configuration names, else one that an upstream lists; or None.

    The second value is the size of its context window in tokens, if its upstream reports it.
    """
    infos = {
        name: {model.id: model for model in models}
        for name, models in lists.items()
        if not isinstance(models, str)
    }
    name = next(_candidates(settings, infos), None)
    route = None if name is None else resolve(settings, None, name, infos)
    info = infos.get(route.upstream, {}).get(route.upstream_model) if isinstance(route, ModelRoute) else None
    return name, None if info is None else info.context


def _candidates(settings: Settings, listed: ListedModels) -> Iterator[str]:
    if settings.server.default_model is not None:
        yield settings.server.default_model
    yield from (alias for alias in settings.models if WILDCARD not in alias)
    for chain in settings.models.values():
        target = chain if isinstance(chain, str) else chain[0]
        if WILDCARD not in target:
            yield target
    for upstream in settings.upstreams:
        models = listed.get(upstream.name, ())
        default = default_model_of(upstream, models)
        for model in [*([default] if default else ()), *filter_chat_models([*upstream.models, *models])]:
            yield f"{upstream.name}/{model}"
    if not settings.upstreams:
        yield SIMULATOR_DEFAULT_MODEL


def commands(url: str, model: str, context: int | None = None, *, needs_key: bool = False) -> dict[str, str]:
    """Return a shell command for each kind of client. needs_key: with a placeholder for the user's key.

    SDKs have the address and the key from the environment; the model is an argument of each call.
    """
    client_key = _KEY_PLACEHOLDER if needs_key else _ANY_KEY
    messages = [{"role": "user", "content": "Hello"}]
    body = ["-H", "content-type: application/json"]
    body += ["-H", f"authorization: Bearer {client_key}"] if needs_key else []
    body += ["-d", json.dumps({"model": model, "messages": messages})]
    codex_key = ',env_key="' + KEY_VARIABLE + '"' if needs_key else ""
    provider = f'{{name="dragoman",base_url="{url}/v1",wire_api="responses"{codex_key}}}'
    claude = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": client_key, "ANTHROPIC_MODEL": model}
    if context is not None:
        # Without it, Claude Code assumes 200,000 tokens for every model.
        claude["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(context)
    options = ["-c", "model_provider=dragoman", "-c", f"model_providers.dragoman={provider}", "-m", model]
    return {
        "curl": shlex.join(["curl", f"{url}/v1/chat/completions", *body]),
        "Claude Code": " ".join(f"{each}={shlex.quote(value)}" for each, value in claude.items()) + " claude",
        "Codex": (f"{KEY_VARIABLE}={client_key} " if needs_key else "") + shlex.join(["codex", *options]),
        "OpenAI SDK": f"export OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY={client_key}",
        "Anthropic SDK": f"export ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY={client_key}",
    }


def print_banner(
    loaded: LoadedConfig, version: str, environ: Mapping[str, str], listening: BoundAddress
) -> None:
    """Print the banner to stderr: at once, or within LISTS_TIMEOUT_S if lists of models have to be fetched first."""
    # The models of well-known hosts are in a table.
    to_fetch = [
        upstream
        for upstream in loaded.settings.upstreams
        if can_list(upstream) and provider_name(upstream.base_url) is None
    ]

    async def fetch() -> ModelLists:
        async with UpstreamClient(expects_tls=False) as client:
            return await fetch_all(client, loaded.settings, to_fetch, LISTS_TIMEOUT_S)

    def show() -> None:
        lists = anyio.run(fetch) if to_fetch else {}
        print_lines(banner(loaded, listening, version, lists), sys.stderr, environ)

    if to_fetch:
        # The caller serves clients already, and must not wait.
        threading.Thread(target=show, name="banner", daemon=True).start()
    else:
        show()
