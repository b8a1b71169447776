"""The `dragoman` command.

Exit codes: 0 after a clean stop, 1 when the server cannot start, 2 when the configuration or the command
line is wrong.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dragoman_server.cli.completion import completion
from dragoman_server.cli.config_file import ConfigEditError, config_lines, json_schema, remove_client_key
from dragoman_server.cli.doctor import doctor
from dragoman_server.cli.explain import explain
from dragoman_server.cli.lint import lint
from dragoman_server.cli.options import (
    CANNOT_START,
    FOUND_ERRORS,
    SERVER_KEYS,
    WRONG_CONFIGURATION,
    config_option,
    exit_with,
    load_or_exit,
    server_options,
)
from dragoman_server.cli.replay import replay
from dragoman_server.cli.run import run
from dragoman_server.cli.translate import translate
from dragoman_server.config.problems import Severity
from dragoman_server.config.values import InvalidValue, check_value
from dragoman_server.keys import hash_client_key, new_key
from dragoman_server.settings import ClientKey, ServerSettings, Settings, keys_of
from dragoman_server.settings.server import ENV_PREFIX

if TYPE_CHECKING:
    from dragoman_server.serving.run import AppFactory
    from dragoman_server.serving.sockets import BoundAddress

# The key commands bind no address, so a public one in the configuration does not matter.
_ANY_HOST = "127.0.0.1"

_simulator_options = [
    click.Option([f"--{name}"], type=kind, default=default, show_default=True, help=SERVER_KEYS[name].help)
    for name, kind, default in (
        ("host", str, "127.0.0.1"),
        # Not the gateway's port, so that both can run at once.
        ("port", click.IntRange(0, 65_535), 8081),
        ("backend", click.Choice(SERVER_KEYS["backend"].choices), "asyncio"),
    )
]


def _run(settings: Settings, make_app: "AppFactory", on_ready: "Callable[[BoundAddress], None]") -> None:
    # The server and the application take a while to import, and the other commands need neither.
    from dragoman_server.serving.run import serve
    from dragoman_server.serving.sockets import StartupError

    try:
        serve(settings, make_app, on_ready=on_ready)
    except StartupError as error:
        from dragoman_server.diagnosis.listeners import startup_text

        exit_with(CANNOT_START, f"dragoman: {startup_text(error)}")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(version("dragoman"), prog_name="dragoman", message="%(prog)s %(version)s")
def main() -> None:
    """A gateway that translates between LLM clients and upstreams of different protocols.

    Settings come from flags, environment variables (in brackets below each command), a TOML file, and
    defaults, in this order of precedence.
    """


main.add_command(translate)
main.add_command(lint)
main.add_command(explain)
main.add_command(replay)


@main.command(params=[*server_options])
def serve(config_file: str | None, **options: str | bool | None) -> None:
    """Start the gateway."""
    loaded = load_or_exit(config_file, options)
    from dragoman_server.app import create_app
    from dragoman_server.cli.banner import print_banner

    _run(loaded.settings, create_app, partial(print_banner, loaded, version("dragoman"), os.environ))


main.add_command(run)


@main.command(params=[*_simulator_options])
def simulate(host: str, port: int, backend: str) -> None:
    """Serve only the simulator, as an upstream that speaks all protocols and needs no key."""
    from dragoman_server.simulator import create_simulator_app

    def on_ready(listening: "BoundAddress") -> None:
        click.echo(f"The simulator listens on {listening.url} ({listening.backend})", err=True)

    settings = Settings(server=ServerSettings(host=host, port=port, backend=backend))
    _run(settings, lambda _: create_simulator_app(), on_ready)


@main.group()
def config() -> None:
    """Check and show the configuration."""


@config.command(params=[*server_options])
def check(config_file: str | None, **options: str | bool | None) -> None:
    """Check the configuration; print every error with its file, line and key.

    It needs no network; `dragoman doctor` also examines the upstreams.

    Exit codes: 0 if the gateway can start with it, 1 if something outside of it is missing, 2 if it is wrong.
    """
    from dragoman_server.diagnosis.offline import offline_findings

    loaded = load_or_exit(config_file, options)
    findings = offline_findings(loaded)
    for finding in findings:
        click.echo(f"{finding.severity}: {finding}", err=True)
    if any(finding.severity is Severity.ERROR for finding in findings):
        sys.exit(FOUND_ERRORS)
    upstreams, models = len(loaded.settings.upstreams), len(loaded.settings.models)
    place = loaded.path or "no file, only the environment"
    click.echo(f"{place}: correct; upstreams: {upstreams}, models: {models}")


@config.command(
    params=[
        click.Option(["--origin"], is_flag=True, help="also print where each value came from"),
        *server_options,
    ]
)
def show(config_file: str | None, origin: bool, **options: str | bool | None) -> None:
    """Print the resolved settings, secrets masked."""
    for line in config_lines(load_or_exit(config_file, options), with_origin=origin):
        click.echo(line)


@config.command()
def schema() -> None:
    """Print the JSON Schema of the configuration file, for editors."""
    click.echo(json.dumps(json_schema(), indent=2))


@main.group()
def keys() -> None:
    """Make, list and revoke client keys.

    The configuration contains their hashes; a key is shown once, when it is made.
    """


@keys.command("add", params=[config_option])
@click.argument("name")
def add_key(name: str, config_file: str | None) -> None:
    """Make a key for NAME and print it, with the lines for the configuration."""
    settings = load_or_exit(config_file, {"host": _ANY_HOST}).settings
    secret = settings.server.secret
    if secret is None:
        exit_with(
            WRONG_CONFIGURATION,
            "dragoman: keys need server.secret, which their hashes are made with: put 32 or more random characters "
            f"into {ENV_PREFIX}SECRET, as from `openssl rand -hex 32`, and keep them",
        )
    if any(key.name == name for key in settings.client_keys):
        exit_with(WRONG_CONFIGURATION, f"dragoman: there is already a key named {name!a}")
    try:
        check_value(keys_of(ClientKey)["name"], name, name)
    except InvalidValue as error:
        exit_with(WRONG_CONFIGURATION, f"dragoman: {error}")
    key = new_key()
    click.echo("The key, which is shown only once:", err=True)
    click.echo(key)
    click.echo("Add these lines to the configuration, and restart the gateway:", err=True)
    click.echo(f'\n[[client_keys]]\nname = "{name}"\nhash = "{hash_client_key(key, secret)}"')


@keys.command("list", params=[config_option])
def list_keys(config_file: str | None) -> None:
    """Print the names of the keys, and what each may do."""
    for key in load_or_exit(config_file, {"host": _ANY_HOST}).settings.client_keys:
        click.echo(" ".join((key.name, *_permissions(key))))


def _permissions(key: ClientKey) -> Iterator[str]:
    """Yield the settings of a key except for its hash: `name=value`, or `name` for a switch that is on."""
    for name in keys_of(ClientKey):
        value = getattr(key, name)
        if name in ("name", "hash", "budget_period") or value is None or value is False or value == ():
            continue
        if name == "budget":
            yield f"budget={value:g}/{key.budget_period}"
        else:
            yield (
                name if value is True else f"{name}={','.join(value) if isinstance(value, tuple) else value}"
            )


@keys.command("revoke", params=[config_option])
@click.argument("name")
def revoke_key(name: str, config_file: str | None) -> None:
    """Remove the key of NAME from the configuration file."""
    loaded = load_or_exit(config_file, {"host": _ANY_HOST})
    index = next((i for i, key in enumerate(loaded.settings.client_keys) if key.name == name), None)
    if index is None or loaded.path is None:
        known = ", ".join(key.name for key in loaded.settings.client_keys) or "none"
        exit_with(WRONG_CONFIGURATION, f"dragoman: there is no key named {name!a}; there are {known}")
    try:
        lines = remove_client_key(Path(loaded.path), index)
    except ConfigEditError as error:
        exit_with(CANNOT_START, f"dragoman: {error}")
    click.echo(f"{loaded.path}: {lines} lines removed; the key is accepted until the gateway is restarted")


main.add_command(doctor)
main.add_command(completion)
