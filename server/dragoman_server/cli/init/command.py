"""`dragoman init`: look at this machine, and write a commented configuration for it."""

import os
import shlex
import sys
from pathlib import Path

import anyio
import click

from dragoman_server.cli.clients import CLIENTS
from dragoman_server.cli.config_writer import ConfigEditError, replace_file
from dragoman_server.cli.options import (
    FAILURE,
    USAGE_ERROR,
    config_path,
    exit_with,
    load_or_exit,
    own_command,
)
from dragoman_server.config.loader import CONFIG_VARIABLE, DEFAULT_FILE

_options = [
    click.Option(
        ["--config", "config_file"],
        type=click.Path(),
        metavar="FILE",
        help=f"the file to write, if not {DEFAULT_FILE} in the working directory [{CONFIG_VARIABLE}]",
    ),
    click.Option(["--yes", "-y"], is_flag=True, help="write the file without a question"),
    click.Option(["--force"], is_flag=True, help="replace the file if it exists"),
]


@click.command(params=_options)
def init(config_file: str | None, yes: bool, force: bool) -> None:
    """Write a configuration from the keys and servers found.

    It looks for keys of providers in the environment, and for Ollama, vLLM, llama.cpp, LM Studio, SGLang, Jan and
    KoboldCpp on this machine, on their usual ports. The file has comments, and refers to keys by their variables.

    Exit codes: 0 if the file was written, 1 if not, 2 for a wrong command line or environment.
    """
    # The HTTP client takes a while to import.
    from dragoman_server.cli.init.initial_config import config_text, find_initial_config, found_lines

    path = config_path(config_file)
    if path.exists() and not force:
        exit_with(FAILURE, f"{path} exists already; add --force to replace it")
    loaded = load_or_exit(os.devnull, {})
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    config = anyio.run(find_initial_config, loaded, os.environ)
    command = own_command()
    flag = f" --config {shlex.quote(config_file)}" if config_file else ""
    for line in found_lines(config, f"{command} init{flag} --force"):
        click.echo(line)
    if not yes and not _confirmed(path):
        exit_with(FAILURE, "nothing was written")
    try:
        # Private, because people put keys into it later.
        replace_file(path, config_text(config).encode())
    except ConfigEditError as error:
        exit_with(FAILURE, str(error))
    click.echo(f"Wrote {path}. Next:")
    click.echo(f"  {command} doctor{flag}   # are the keys valid, do the models exist?")
    click.echo(f"  {command} serve{flag}")
    first, *others = CLIENTS
    click.echo(f"  {command} run{flag} -- {first}   # or {', '.join(others)}, any command")


def _confirmed(path: Path) -> bool:
    if not sys.stdin.isatty():
        exit_with(USAGE_ERROR, "stdin is not a terminal: add --yes to write the file")
    return click.confirm(f"Write {path}?", default=True, err=True)
