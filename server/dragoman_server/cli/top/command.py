"""The command `dragoman top`."""

import os
import signal
import sys
import time
from functools import partial

import anyio
import click

from dragoman_server.cli.admin import AdminUnavailable, request_admin
from dragoman_server.cli.options import FAILURE, config_option, exit_with, load_or_exit
from dragoman_server.platform.extras import missing_extra
from dragoman_server.settings import ServerSettings


@click.command(
    params=[
        config_option,
        click.Option(
            ["--plain"], is_flag=True, help="print a line for each event, as if it were no terminal"
        ),
    ]
)
def top(config_file: str | None, plain: bool) -> None:
    """Show the requests, accounts and rates of the running gateway.

    The gateway is the one at the address in the configuration. It needs server.admin_key, unless the gateway has no
    keys at all, and the extra `top`. Keys: `?` lists them. If stdout is no terminal, each event is a line, and no extra
    is needed. Exit codes: 0 when it was left, 1 when the gateway cannot be reached, does not accept the key, or the
    extra is missing, 2 when the configuration is wrong.
    """
    server = load_or_exit(config_file, {}).settings.server
    plain = plain or not _on_terminal()
    if not plain and (missing := missing_extra("top")) is not None:
        exit_with(FAILURE, f"top {missing}; --plain does without")
    try:
        anyio.run(_print_events if plain else _show, server)
    except AdminUnavailable as error:
        exit_with(FAILURE, str(error))
    except KeyboardInterrupt:
        pass


async def _show(server: ServerSettings) -> None:
    # They take a while to import, and the other commands do without.
    from dragoman_server.cli.top.app import TopApp
    from dragoman_server.cli.top.follow import follow_accounts, follow_feed
    from dragoman_server.cli.top.state import TopState

    state = TopState(time.time())
    state.receive_accounts((await request_admin(server, "GET", "accounts"))["accounts"])
    app = TopApp(state, blocks=_has_blocks())
    ended = False

    async def watch_signals() -> None:
        nonlocal ended
        with anyio.open_signal_receiver(signal.SIGTERM) as signals:
            async for _ in signals:
                ended = True
                app.exit()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(follow_feed, server, state.receive, state.disconnected, kept=True))
        tasks.start_soon(follow_accounts, server, state.receive_accounts, app.shows_accounts)
        tasks.start_soon(watch_signals)
        await app.run_async()
        tasks.cancel_scope.cancel()
    if ended:  # with the terminal as it was before
        signal.raise_signal(signal.SIGTERM)


async def _print_events(server: ServerSettings) -> None:
    from dragoman_server.cli.top.follow import follow_feed
    from dragoman_server.cli.top.tables import event_line

    await request_admin(server, "GET", "accounts")
    await follow_feed(
        server, lambda kind, data: click.echo(event_line(kind, data)), partial(click.echo, err=True)
    )


def _on_terminal() -> bool:
    # Keys come by stdin, and the screens go to stderr.
    return all(each.isatty() for each in (sys.stdin, sys.stdout, sys.stderr))


def _has_blocks() -> bool:
    """True if the terminal's character set is said to have block elements."""
    locale = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "")
    return "utf" in locale.lower()
