"""`dragoman run`: its options and its help. `launch` has what it does."""

import os
import sys

import click

from dragoman_server.cli.clients import CLIENTS, client_of
from dragoman_server.cli.options import FAILURE, config_option, exit_with
from dragoman_server.cli.run.child import CannotRun, find_program


@click.command(
    context_settings={"allow_interspersed_args": False},
    params=[
        config_option,
        click.Option(["--gateway"], metavar="URL", help="use a running gateway instead of starting one"),
        click.Option(["--model"], metavar="NAME", help="model of the gateway for COMMAND; unset: see above"),
        click.Option(
            ["--small-model"],
            metavar="NAME",
            help="model for titles and summaries; unset: the same as --model",
        ),
        click.Option(
            ["--client"],
            type=click.Choice(["sdk", *CLIENTS]),
            help="the client that COMMAND is, if its name does not show it; sdk: a program that uses SDKs",
        ),
        click.Option(
            ["--log", "log_file"],
            type=click.Path(dir_okay=False),
            metavar="FILE",
            help="append the gateway's log to this file; unset: its warnings and errors go to a temporary file, "
            "whose name is printed at the end if there are any",
        ),
        click.Option(
            ["--print-env"],
            is_flag=True,
            help="start nothing; print the variables for a gateway that runs, as lines for a shell",
        ),
    ],
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def run(
    command: tuple[str, ...],
    gateway: str | None,
    model: str | None,
    small_model: str | None,
    client: str | None,
    log_file: str | None,
    print_env: bool,
    config_file: str | None,
) -> None:
    """Start a gateway and a command that uses it, such as claude.

    COMMAND is a client that --client knows, or any program with an SDK. The gateway has the configuration of `dragoman
    serve`, a free port of this machine, and a key that only COMMAND gets. COMMAND gets this environment and what it
    needs to use the gateway; its files are not touched. Write -- before it, as in: dragoman run -- claude -p "Hello"

    Without --model, COMMAND requests the models that it always does if the gateway routes their names. Otherwise it
    gets the first model that the configuration names or an upstream lists.

    The client key for --gateway and --print-env is taken from DRAGOMAN_KEY. Load the variables into a shell with:
    eval "$(dragoman run --print-env -- claude)"

    Exit codes: COMMAND's own, or 128 + n if signal n ended it; 127 if it is not found and 126 if it cannot be
    executed; 1 if the gateway cannot start or does not respond, or if no upstream of COMMAND's models can be
    reached; 2 if the configuration or the command line is wrong.
    """
    if not command and not print_env:
        raise click.UsageError("name the command to run, as in: dragoman run -- claude")
    if gateway is not None and (config_file or log_file):
        raise click.UsageError("--gateway uses a running gateway: leave out --config and --log")
    words = command or ("sdk",)
    try:
        program = "" if print_env else find_program(words[0])
        # What a gateway needs takes a while to import.
        from dragoman_server.cli.run.launch import Launch
        from dragoman_server.serving.sockets import StartupError

        launch = Launch(client_of(client or words[0]), gateway, config_file, model, small_model)
        try:
            if print_env:
                for line in launch.shell_lines(words[0], os.environ):
                    click.echo(line)
            else:
                sys.exit(launch.run(program, words, log_file))
        except StartupError as error:
            exit_with(FAILURE, str(error))
    except CannotRun as error:
        exit_with(error.status, str(error))
