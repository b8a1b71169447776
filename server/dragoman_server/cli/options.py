"""What several commands share: options, exit codes, loading the configuration, and coloured lines.

`load_or_exit` is the one way from a command line to settings, so that all commands report the same errors.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NoReturn, TextIO

import click

from dragoman_server.config.loader import CONFIG_VARIABLE, DEFAULT_FILE, LoadedConfig, load
from dragoman_server.platform.log_stream import is_coloured
from dragoman_server.settings import ServerSettings, settings_of
from dragoman_server.settings.fields import SettingKind, SettingSpec
from dragoman_server.settings.problems import ConfigError
from dragoman_server.settings.server import ENV_PREFIX

PROGRAM = "dragoman"

# Exit codes: something is wrong, or it could not be done; and the configuration or the command line is wrong, as click
# has it.
FAILURE = 1
USAGE_ERROR = 2

SERVER_KEYS = settings_of(ServerSettings)

config_option = click.Option(
    ["--config", "config_file"],
    type=click.Path(),
    metavar="FILE",
    help=f"configuration file; {DEFAULT_FILE} in the working directory if there is one [{CONFIG_VARIABLE}]",
)


def setting_option(key: SettingSpec, prefix: str | None = ENV_PREFIX) -> click.Option:
    """Return the flag of a setting. Its value stays text, so that it is checked like all others.

    prefix: of the variable that sets it as well, None if there is none.
    """
    variable = "" if prefix is None else f" [{prefix}{key.name.upper()}]"
    flag, help_ = key.name.replace("_", "-"), key.help + variable
    if key.kind is SettingKind.SWITCH:
        return click.Option([f"--{flag}/--no-{flag}", key.name], default=None, help=help_)

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        return [choice for choice in key.choices if choice.startswith(incomplete)]

    metavar = "|".join(key.choices) if key.kind is SettingKind.CHOICE else key.kind.name
    return click.Option([f"--{flag}", key.name], metavar=metavar, help=help_, shell_complete=complete)


# Without secrets, because all users of a machine can read the command lines of its processes.
server_options = [
    config_option,
    *(setting_option(key) for key in SERVER_KEYS.values() if key.kind is not SettingKind.SECRET),
]


# For commands that bind no address, so that a public one in the configuration does not matter.
UNBOUND = {"host": "127.0.0.1"}


def config_path(config_file: str | None) -> Path:
    """Return the configuration file to write. config_file: as in the command line."""
    return Path(config_file or os.environ.get(CONFIG_VARIABLE) or DEFAULT_FILE)


def load_or_exit(
    config_file: str | None, options: Mapping[str, str | bool | None], *, of_gateway: bool = False
) -> LoadedConfig:
    """Load the configuration, or print its problems and exit.

    of_gateway: the command is about one that runs with a configuration, so it says if there is no file.
    """
    try:
        loaded = loader(config_file, options)()
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(USAGE_ERROR)
    if of_gateway and loaded.path is None:
        text = f"there is no {DEFAULT_FILE} in {Path.cwd()}: --config or {CONFIG_VARIABLE} names another file"
        click.echo(text, err=True)
    return loaded


def loader(config_file: str | None, options: Mapping[str, str | bool | None]) -> Callable[[], LoadedConfig]:
    """Return what loads the configuration, now and for each reload. options: flags of the command line."""
    flags = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in options.items()
        if value is not None
    }
    return partial(load, path=config_file, flags=flags, environ=os.environ)


def exit_with(code: int, message: str) -> NoReturn:
    """Print an error, with the name of the program before it, and exit."""
    click.echo(f"{PROGRAM}: {message}", err=True)
    sys.exit(code)


def own_command() -> str:
    """Return what a shell starts this program by: its name, or its path if the name is not in PATH."""
    path = Path(sys.argv[0])
    if path.name != PROGRAM:
        return PROGRAM  # in another program, or as `python -m`
    found = shutil.which(PROGRAM)
    return (
        PROGRAM if found is not None and path.exists() and path.samefile(found) else shlex.quote(sys.argv[0])
    )


def print_lines(lines: Iterable[str], stream: TextIO, environ: Mapping[str, str]) -> None:
    """Print to `stream`: in colours on a terminal, plain elsewhere or if NO_COLOR is set."""
    coloured = is_coloured(stream, environ)
    for line in lines:
        click.echo(line, file=stream, color=coloured)
