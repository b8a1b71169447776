"""Print the banner of `dragoman serve` once it accepts connections: the upstreams, and lines to copy for each client.

Pure functions make the text. It is coloured on a terminal; elsewhere, or if NO_COLOR is set, it is plain.
"""

import json
import shlex
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import click

from dragoman import PROTOCOLS
from dragoman_server.capabilities.provider import CHAT
from dragoman_server.capabilities.providers import PROVIDERS, provider_name
from dragoman_server.cli.clients import ANY_KEY, CLIENTS, SDKS, Client, ClientTarget
from dragoman_server.cli.model_lists import ModelLists, OfferedModels, fetch_lists
from dragoman_server.cli.options import own_command, print_lines
from dragoman_server.config.loader import DEFAULT_FILE, LoadedConfig
from dragoman_server.models.listing import can_list
from dragoman_server.serving.sockets import BoundAddress
from dragoman_server.settings import SIMULATOR, Settings
from dragoman_server.upstream.client import origin_of

# The gateway has only the hashes of client keys.
_KEY_PLACEHOLDER = "YOUR_KEY"
_UNKNOWN_MODEL = "MODEL"

# How many providers, upstreams, models and warnings are named: the banner fits on a screen of 24 lines of 80 columns.
_NAMED_PROVIDERS = 4
_NAMED_UPSTREAMS = 3
_NAMED_MODELS = 3
_NAMED_WARNINGS = 2

_DOCS = Path(__file__).parents[3] / "docs"


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
    models = OfferedModels(settings, lists)
    if names := models.names():
        named = ", ".join(_first(names, _NAMED_MODELS, f"{url}/v1/models lists them"))
        yield f"{_label('Models')}  {named}"
    model, context = models.example()
    if model is None:
        first = settings.upstreams[0]
        model = f"{first.name}/{_UNKNOWN_MODEL}"
        add = f', and add default_model = "{_UNKNOWN_MODEL}" below its [[upstreams]]'
        yield _warning(
            f"warning: {models.why_unknown()}: write one instead of {_UNKNOWN_MODEL}"
            f"{'' if first.variables else add}"
        )
    if settings.needs_keys:
        where = "--store" if settings.server.stored_keys else "--write"
        file = "" if loaded.path in (None, DEFAULT_FILE) else f" --config {shlex.quote(loaded.path)}"
        yield f"{_label(_KEY_PLACEHOLDER)}  {_command(f'{own_command()} keys add NAME {where}{file}')}"
    for title, command in commands(url, model, context, needs_key=settings.needs_keys).items():
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
        account, *others = settings.accounts_of(upstream)
        key = f"key {account.api_key}" if account.api_key is not None else "no key"
        key = f"{len(others) + 1} accounts" if others else key
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


def _first(items: Sequence[str], count: int, where: str) -> list[str]:
    """Return the first items; if there are more, the last one is how many. where: the place of the others."""
    if len(items) <= count:
        return list(items)
    return [*items[: count - 1], f"and {len(items) - count + 1} more; {where}"]


def commands(url: str, model: str, context: int | None = None, *, needs_key: bool = False) -> dict[str, str]:
    """Return a shell command for each kind of client. needs_key: with a placeholder for the user's key.

    SDKs have the address and the key from the environment; the model is an argument of each call.
    """
    target = ClientTarget(url, _KEY_PLACEHOLDER if needs_key else ANY_KEY, model, context=context)
    messages = [{"role": "user", "content": "Hello"}]
    body = ["-H", "content-type: application/json"]
    body += ["-H", f"authorization: Bearer {target.key}"] if needs_key else []
    body += ["-d", json.dumps({"model": model, "messages": messages})]
    # Without a subcommand -m does what `-c model=` does, and is shorter.
    provider = CLIENTS["codex"].arguments(replace(target, model=None, context=None))
    codex = shlex.join(["codex", *provider, "-m", model])
    return {
        "curl": shlex.join(["curl", url + PROTOCOLS[CHAT].endpoints[0].path, *body]),
        "Claude Code": f"{_variables(CLIENTS['claude'], target)} claude",
        "Codex": f"{_variables(CLIENTS['codex'], target)} {codex}".lstrip(),
        "OpenAI SDK": f"export {_variables(SDKS, target, 'OPENAI_')}",
        "Anthropic SDK": f"export {_variables(SDKS, target, 'ANTHROPIC_')}",
    }


def _variables(client: Client, target: ClientTarget, prefix: str = "") -> str:
    """Return the assignments of a client's needed variables."""
    values = {name: client.variables[name](target) for name in client.needed if name.startswith(prefix)}
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in values.items() if value is not None)


def print_banner(
    loaded: LoadedConfig, version: str, environ: Mapping[str, str], listening: BoundAddress
) -> None:
    """Print the banner to stderr: immediately, or within two seconds if lists of models have to be fetched first."""
    # The models of well-known hosts are in a table.
    to_fetch = [
        upstream
        for upstream in loaded.settings.upstreams
        if can_list(upstream) and provider_name(upstream.base_url) is None
    ]

    def show() -> None:
        lists = fetch_lists(loaded.settings, to_fetch)
        # A full disk, for one: the gateway serves nevertheless, as when a line of the log fails.
        with suppress(OSError):
            print_lines(banner(loaded, listening, version, lists), sys.stderr, environ)

    if to_fetch:
        # The caller serves clients already, and must not wait.
        threading.Thread(target=show, name="banner", daemon=True).start()
    else:
        show()
