"""What `dragoman serve` prints when it accepts connections: upstreams, and lines to copy for each client.

The text is made by pure functions. Rich colours it on a terminal; elsewhere, or where NO_COLOR is set, it
is plain.
"""

import enum
import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TextIO
from urllib.parse import urlsplit

from ._listen import Listening
from .config import Loaded
from .routes import DEFAULT_MODEL
from .settings import SIMULATOR, Settings, UpstreamSettings

# The vendors' clients insist on some key, also where none is needed.
_ANY_KEY = "any"
# The gateway itself does not know the keys that it takes.
_OWN_KEY = "YOUR_KEY"


class Style(enum.Enum):
    """The role of a line, with rich's name for how it looks."""

    TITLE = "bold"
    LABEL = "bold cyan"
    TEXT = ""
    COMMAND = "green"
    WARNING = "yellow"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the banner. Commands are never wrapped, so that they can be copied."""

    style: Style
    text: str


def banner(loaded: Loaded, listening: Listening, version: str) -> Iterator[Line]:
    """All lines, the last one being `Dragoman listens on URL (BACKEND)`."""
    settings = loaded.settings
    yield Line(Style.TITLE, f"Dragoman {version}, configured by {loaded.path or 'the environment'}")
    for warning in loaded.warnings:
        yield Line(Style.WARNING, f"warning: {warning}")
    yield Line(Style.LABEL, "Upstreams")
    for upstream in settings.upstreams:
        yield Line(Style.TEXT, "  " + _upstream(upstream))
    if settings.server.simulator:
        yield Line(Style.TEXT, f"  {SIMULATOR}: built in, needs no key")
    for title, command in commands(
        _reachable(listening), example_model(settings), needs_key=bool(settings.client_keys)
    ).items():
        yield Line(Style.LABEL, title)
        yield Line(Style.COMMAND, "  " + command)
    yield Line(Style.TITLE, f"Dragoman listens on {listening.url} ({listening.backend})")


def example_model(settings: Settings) -> str:
    """A model name that works, as far as we know: an alias, an upstream's own list, the simulator."""
    for alias in settings.models:
        if "*" not in alias:
            return alias
    for upstream in settings.upstreams:
        for model in upstream.models:
            return f"{upstream.name}/{model}"
    if settings.server.simulator:
        return DEFAULT_MODEL
    return f"{settings.upstreams[0].name}/MODEL"


def commands(url: str, model: str, *, needs_key: bool = False) -> dict[str, str]:
    """A shell command for each kind of client, ready to be pasted. needs_key: with a place for the user's own key."""
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
    """Print to `stream`: with rich on a terminal, plain elsewhere and where NO_COLOR is set."""
    if not stream.isatty() or environ.get("NO_COLOR"):
        stream.writelines(line.text + "\n" for line in lines)
        stream.flush()
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream)
    for line in lines:
        # soft_wrap: a command that rich has wrapped could not be copied.
        console.print(Text(line.text, style=line.style.value), soft_wrap=True)


def print_banner(loaded: Loaded, version: str, environ: Mapping[str, str], listening: Listening) -> None:
    """Print the banner to stderr."""
    print_lines(banner(loaded, listening, version), sys.stderr, environ)


def _upstream(upstream: UpstreamSettings) -> str:
    url = urlsplit(upstream.base_url)
    # Only the host: a path may hold the name of an account, or worse.
    key = f"key {upstream.api_key}" if upstream.api_key is not None else "no key"
    return f"{upstream.name}: {url.scheme}://{url.netloc}, {', '.join(upstream.protocols)}, {key}"


def _reachable(listening: Listening) -> str:
    """The URL for a client on this machine: an address that means "all of them" is none to call."""
    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    host = local.get(listening.host, listening.host)
    return Listening(listening.scheme, host, listening.port, listening.backend).url


def _shell(*words: str) -> str:
    return " ".join(map(shlex.quote, words))


def _environment(variables: Mapping[str, str]) -> str:
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
