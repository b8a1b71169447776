"""`dragoman reload`: have the running gateway load its configuration again."""

import sys

import click

from dragoman_server.cli.admin import RELOAD_TIMEOUT_S, AdminUnavailable, admin_request
from dragoman_server.cli.options import FAILURE, USAGE_ERROR, config_option, exit_with, load_or_exit


@click.command(params=[config_option])
def reload(config_file: str | None) -> None:
    """Tell the running gateway to reload its configuration.

    The gateway is the one at the address in the configuration; server.admin_key must be set. Without one, send it
    SIGHUP. Exit codes: 0 when it uses the new configuration, 1 when it cannot be reached, 2 when the
    configuration is wrong, and nothing has changed.
    """
    server = load_or_exit(config_file, {}, of_gateway=True).settings.server
    try:
        result = admin_request(server, "POST", "reload", RELOAD_TIMEOUT_S)
    except AdminUnavailable as error:
        exit_with(FAILURE, f"{error}; without a request, SIGHUP does the same: kill -HUP PID")
    for warning in result["warnings"]:
        click.echo(f"warning: {warning}", err=True)
    if result["errors"]:
        click.echo("\n".join(result["errors"]), err=True)
        sys.exit(USAGE_ERROR)
    if result["needs_restart"]:
        click.echo(
            f"warning: changed, but used from the next start on: {', '.join(result['needs_restart'])}",
            err=True,
        )
    click.echo("the configuration was reloaded")
    for change in result["changes"]:
        click.echo(change)
