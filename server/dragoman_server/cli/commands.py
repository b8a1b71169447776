"""The `dragoman` command: the group of all commands, and those that serve or print the configuration."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

import click

from dragoman_server import __version__
from dragoman_server.cli.config_output import config_lines, json_schema
from dragoman_server.cli.options import (
    FAILURE,
    PROGRAM,
    SERVER_KEYS,
    exit_with,
    load_or_exit,
    loader,
    server_options,
)
from dragoman_server.cli.usage import with_usage_file
from dragoman_server.config.loader import LoadedConfig
from dragoman_server.settings import ServerSettings, Settings
from dragoman_server.settings.problems import CheckSeverity

if TYPE_CHECKING:
    from dragoman_server.serving.run import AppFactory
    from dragoman_server.serving.sockets import BoundAddress

# Commands that have a module, below dragoman_server.cli, with a function of the command's name.
_MODULES = {
    "completion": "completion",
    "doctor": "doctor.command",
    "explain": "explain.command",
    "init": "init.command",
    "keys": "keys.command",
    "lint": "lint.command",
    "reload": "reload",
    "replay": "replay.command",
    "run": "run.command",
    "top": "top.command",
    "translate": "translate",
    "usage": "usage",
}

_simulator_options = [
    click.Option([f"--{name}"], type=kind, default=default, show_default=True, help=SERVER_KEYS[name].help)
    for name, kind, default in (
        ("host", str, "127.0.0.1"),
        # Not the gateway's port, so that both can run at the same time.
        ("port", click.IntRange(0, 65_535), 8081),
        ("backend", click.Choice(SERVER_KEYS["backend"].choices), "asyncio"),
    )
]


def _run(
    settings: Settings,
    make_app: "AppFactory",
    on_ready: "Callable[[BoundAddress], None]",
    load: Callable[[], LoadedConfig] | None = None,
) -> None:
    # The server and the application take a while to import, and the other commands need neither.
    from dragoman_server.serving.run import serve
    from dragoman_server.serving.sockets import StartupError

    try:
        serve(settings, make_app, on_ready=on_ready, load=load)
    except StartupError as error:
        from dragoman_server.cli.listeners import startup_text

        exit_with(FAILURE, startup_text(error))


class _Commands(click.Group):
    """The group of all commands. A module of one is imported when it is called, or listed in the help: a start of the
    gateway needs none of them.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *_MODULES})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _MODULES:
            command: click.Command = getattr(
                import_module(f"dragoman_server.cli.{_MODULES[cmd_name]}"), cmd_name
            )
            return command
        return super().get_command(ctx, cmd_name)


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
def main() -> None:
    """A gateway that translates between LLM clients and upstreams of different protocols.

    Settings come from flags, environment variables (in brackets below each command), a TOML file, and
    defaults, in this order of precedence.
    """


@main.command(params=[*server_options])
def serve(config_file: str | None, **options: str | bool | None) -> None:
    """Start the gateway.

    Exit codes: 0 after a stop, 1 if it cannot start, 2 if the configuration or the command line is wrong.
    """
    _serve(config_file, options)


@main.command(
    params=[
        click.Argument(["record"], metavar="DIR"),
        *(option for option in server_options if option.name != "record"),
    ]
)
def record(config_file: str | None, **options: str | bool | None) -> None:
    """Start the gateway and record each request in DIR.

    It is `dragoman serve --record DIR`. The recordings are for `dragoman replay`; they have prompts and responses, and
    no keys. Exit codes are the same as for `serve`.
    """
    _serve(config_file, options)


def _serve(config_file: str | None, options: Mapping[str, str | bool | None]) -> None:
    loaded = with_usage_file(load_or_exit(config_file, options))
    load = loader(loaded.path, options)
    from dragoman_server.app import create_app
    from dragoman_server.cli.banner import print_banner
    from dragoman_server.cli.doctor.offline import offline_findings

    errors = [finding for finding in offline_findings(loaded) if finding.severity is CheckSeverity.ERROR]
    for error in errors:
        click.echo(f"{PROGRAM}: {error}", err=True)
    if errors:
        sys.exit(FAILURE)
    on_ready = partial(print_banner, loaded, __version__, os.environ)
    _run(loaded.settings, create_app, on_ready, lambda: with_usage_file(load()))


@main.command(params=[*_simulator_options])
def simulate(host: str, port: int, backend: str) -> None:
    """Serve only the simulator, an upstream that needs no key.

    It speaks all protocols; docs/simulator.md has its models.
    """
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
    """Check the configuration, and print every error.

    Each has its file, line and key. It needs no network; `dragoman doctor` also examines the upstreams.

    Exit codes: 0 if the gateway can start with it, 1 if something outside of it is missing, 2 if it is wrong.
    """
    from dragoman_server.cli.doctor.offline import offline_findings

    loaded = load_or_exit(config_file, options)
    findings = offline_findings(loaded)
    for finding in findings:
        click.echo(f"{finding.severity}: {finding}", err=True)
    if any(finding.severity is CheckSeverity.ERROR for finding in findings):
        sys.exit(FAILURE)
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
