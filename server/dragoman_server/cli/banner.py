"""What `dragoman serve` prints when it accepts connections: upstreams, and lines to copy for each client.

The text is made by pure functions. It is coloured on a terminal; elsewhere, or where NO_COLOR is set, it is plain.
"""

import enum
import json
import shlex
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TextIO, TypeAlias

import anyio
import click

from dragoman_server.capabilities.providers import PROVIDERS, provider_name
from dragoman_server.config.loader import DEFAULT_FILE, Loaded
from dragoman_server.models.info import ModelInfo
from dragoman_server.models.listing import can_list, fetch_all
from dragoman_server.models.routes import (
    DEFAULT_MODEL,
    Listed,
    Route,
    conversational,
    default_model_of,
    resolve,
)
from dragoman_server.serving.sockets import Listening
from dragoman_server.settings import SIMULATOR, Settings, UpstreamSettings
from dragoman_server.settings.patterns import ANY_TEXT
from dragoman_server.upstream.client import UpstreamClient, origin_of

# The vendors' clients insist on some key, also where none is needed.
_ANY_KEY = "any"
# The gateway itself does not know the keys that it takes.
_OWN_KEY = "YOUR_KEY"
_UNKNOWN_MODEL = "MODEL"

# Of the providers so many are named.
_EXAMPLES = 4

# How long the banner waits for lists of models.
LISTS_S = 2.0

# By upstream: its models, or why it has told none.
Lists: TypeAlias = Mapping[str, tuple[ModelInfo, ...] | str]


class Style(enum.Enum):
    """The role of a line, and how it looks: its colour, and True for bold."""

    TITLE = (None, True)
    LABEL = ("cyan", True)
    TEXT = (None, None)
    COMMAND = ("green", None)
    WARNING = ("yellow", None)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the banner. Commands are never wrapped, so that they can be copied."""

    style: Style
    text: str


@dataclass(frozen=True, slots=True)
class Example:
    """A model to try. context: what it reads, in tokens, if its upstream has told."""

    model: str
    context: int | None = None


def banner(
    loaded: Loaded, listening: Listening, version: str, lists: Lists = MappingProxyType({})
) -> Iterator[Line]:
    """All lines, the last one being `Dragoman listens on URL (BACKEND)`. lists: what the upstreams list."""
    settings = loaded.settings
    yield Line(Style.TITLE, f"Dragoman {version}, configured by {loaded.path or 'the environment'}")
    for warning in loaded.warnings:
        yield Line(Style.WARNING, f"warning: {warning}")
    yield Line(Style.LABEL, "Upstreams")
    for upstream in settings.upstreams:
        yield Line(Style.TEXT, "  " + _upstream(upstream))
    if settings.lists_simulator:
        yield Line(Style.TEXT, f"  {SIMULATOR}: built in, needs no key")
    if not settings.upstreams:
        variables = ", ".join(provider.keys[0][0] for provider in PROVIDERS[:_EXAMPLES])
        yield Line(Style.TEXT, f"  for a real model set {variables} or another provider's key,")
        yield Line(
            Style.TEXT, f"  or name a server in {DEFAULT_FILE} (see docs/configuration.md), and start again"
        )
    example = example_of(settings, lists)
    if example is None:
        first = settings.upstreams[0]
        example = Example(f"{first.name}/{_UNKNOWN_MODEL}")
        reason = lists.get(first.name, "it was not asked")
        told = reason if isinstance(reason, str) else "its list is empty"
        add = f', and add default_model = "{_UNKNOWN_MODEL}" below its [[upstreams]]'
        yield Line(
            Style.WARNING,
            f"warning: the models of {first.name} are not known ({told}): write one in place of "
            f"{_UNKNOWN_MODEL}{'' if first.variables else add}",
        )
    for title, command in commands(
        _reachable(listening), example, needs_key=bool(settings.client_keys)
    ).items():
        yield Line(Style.LABEL, title)
        yield Line(Style.COMMAND, "  " + command)
    yield Line(Style.TITLE, f"Dragoman listens on {listening.url} ({listening.backend})")


def example_of(settings: Settings, lists: Lists = MappingProxyType({})) -> Example | None:
    """A model that works, as far as we know: what people have named comes first, then what upstreams list."""
    infos = {
        name: {model.id: model for model in models}
        for name, models in lists.items()
        if not isinstance(models, str)
    }
    name = next(_candidates(settings, infos), None)
    if name is None:
        return None
    route = resolve(settings, None, name, infos)
    info = infos.get(route.upstream, {}).get(route.upstream_model) if isinstance(route, Route) else None
    return Example(name, None if info is None else info.context)


def _candidates(settings: Settings, listed: Listed) -> Iterator[str]:
    if settings.server.default_model is not None:
        yield settings.server.default_model
    yield from (alias for alias in settings.models if ANY_TEXT not in alias)
    for chain in settings.models.values():
        target = chain if isinstance(chain, str) else chain[0]
        if ANY_TEXT not in target:
            yield target
    for upstream in settings.upstreams:
        there = listed.get(upstream.name, ())
        default = default_model_of(upstream, there)
        for model in [*([default] if default else ()), *conversational([*upstream.models, *there])]:
            yield f"{upstream.name}/{model}"
    if not settings.upstreams:
        yield DEFAULT_MODEL


def commands(url: str, example: Example, *, needs_key: bool = False) -> dict[str, str]:
    """A shell command for each kind of client, ready to be pasted. needs_key: with a place for the user's own key."""
    model = example.model
    own_key = _OWN_KEY if needs_key else _ANY_KEY
    headers = ["-H", "content-type: application/json"]
    headers += ["-H", f"authorization: Bearer {own_key}"] if needs_key else []
    chat = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
    codex_key = ',env_key="DRAGOMAN_KEY"' if needs_key else ""
    provider = f'{{name="dragoman",base_url="{url}/v1",wire_api="responses"{codex_key}}}'
    # JSON's strings are Python's too, and their double quotes need no escape in the shell's single ones.
    name, base, key = json.dumps(model), json.dumps(url), json.dumps(own_key)
    openai = (
        f"from openai import OpenAI; client = OpenAI(base_url={json.dumps(url + '/v1')}, api_key={key}); "
        f'print(client.responses.create(model={name}, input="Hello").output_text)'
    )
    anthropic = (
        f"from anthropic import Anthropic; client = Anthropic(base_url={base}, api_key={key}); "
        f"print(client.messages.create(model={name}, max_tokens=1024, "
        f"messages={json.dumps(chat['messages'])}).content[0].text)"
    )
    claude = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": own_key, "ANTHROPIC_MODEL": model}
    if example.context is not None:
        # It takes every model for one with 200,000 tokens.
        claude["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(example.context)
    return {
        "curl": _shell(
            "curl",
            f"{url}/v1/chat/completions",
            *headers,
            "-d",
            json.dumps(chat),
        ),
        "simple API": _shell("curl", "-N", f"{url}/chat/stream", *headers, "-d", json.dumps(chat)),
        "OpenAI SDK": _shell("python", "-c", openai),
        "Anthropic SDK": _shell("python", "-c", anthropic),
        "Claude Code": _environment(claude) + " claude",
        "Codex": ("DRAGOMAN_KEY=YOUR_KEY " if needs_key else "")
        + _shell(
            "codex",
            "-c",
            "model_provider=dragoman",
            "-c",
            f"model_providers.dragoman={provider}",
            "-m",
            model,
        ),
    }


def print_lines(lines: Iterable[Line], stream: TextIO, environ: Mapping[str, str]) -> None:
    """Print to `stream`: in colours on a terminal, plain elsewhere and where NO_COLOR is set."""
    coloured = stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    for line in lines:
        colour, bold = line.style.value
        click.echo(click.style(line.text, fg=colour, bold=bold), file=stream, color=coloured)


def print_banner(loaded: Loaded, version: str, environ: Mapping[str, str], listening: Listening) -> None:
    """Print the banner to stderr: at once, or within LISTS_S where upstreams are to be asked for their models first."""
    # What well-known hosts have is known.
    asked = [
        upstream
        for upstream in loaded.settings.upstreams
        if can_list(upstream) and provider_name(upstream.base_url) is None
    ]

    def show() -> None:
        lists = anyio.run(_ask, loaded.settings, asked) if asked else {}
        print_lines(banner(loaded, listening, version, lists), sys.stderr, environ)

    if asked:
        # The caller serves already, and must not wait.
        threading.Thread(target=show, name="banner", daemon=True).start()
    else:
        show()


async def _ask(settings: Settings, upstreams: Sequence[UpstreamSettings]) -> Lists:
    async with UpstreamClient() as client:
        return await fetch_all(client, settings, upstreams, LISTS_S)


def _upstream(upstream: UpstreamSettings) -> str:
    # Only the host: a path may hold the name of an account, or worse.
    origin, _ = origin_of(upstream.base_url)
    key = f"key {upstream.api_key}" if upstream.api_key is not None else "no key"
    return f"{upstream.name}: {origin}, {', '.join(upstream.protocols)}, {key}"


def _reachable(listening: Listening) -> str:
    """The URL for a client on this machine: an address that means "all of them" is none to call."""
    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    host = local.get(listening.host, listening.host)
    return Listening(listening.scheme, host, listening.port, listening.backend).url


def _shell(*words: str) -> str:
    return " ".join(map(shlex.quote, words))


def _environment(variables: Mapping[str, str]) -> str:
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
