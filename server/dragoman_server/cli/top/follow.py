"""Reads the feed of a gateway until cancelled. It reconnects by itself, and goes on where it was."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio

from dragoman.jsontext import decode
from dragoman.sse import SSEParser
from dragoman_server.cli.admin import AdminUnavailable, open_admin, request_admin
from dragoman_server.settings import ServerSettings

# Twice the time after which the gateway breaks its silence.
_SILENCE_S = 30.0
_RETRY_S = 1.0
_ACCOUNTS_S = 2.0

# Takes the type of an event and its data.
Take = Callable[[str, Any], None]


async def follow_feed(
    server: ServerSettings, take: Take, disconnected: Callable[[str], None], *, kept: bool = False
) -> None:
    """Pass on each event of the feed. disconnected: gets the reason whenever there is no connection.

    kept: begin with the requests that have ended before.
    """
    last_id, path = "", "events?kept=true" if kept else "events"

    def take_event(raw_event: bytes) -> None:
        nonlocal last_id
        fields = dict([line.partition(": ")[::2] for line in raw_event.decode().split("\n")])
        last_id = fields.get("id", last_id)
        if "data" in fields:
            take(fields["event"], decode(fields["data"].encode()))

    while True:
        reason = "the feed has ended"
        headers = [("last-event-id", last_id)] if last_id else []
        try:
            async with open_admin(server, "GET", path, headers, silence_s=_SILENCE_S) as response:
                parser = SSEParser()
                while parser.error is None and (data := await response.receive()):
                    for raw_event in parser.receive_raw_events(data):
                        take_event(raw_event)
        except AdminUnavailable as error:
            reason = str(error)
            if error.status == 400 and last_id:
                last_id = ""  # the gateway has started again, and does not know it
                continue
        disconnected(reason)
        await anyio.sleep(_RETRY_S)


async def follow_accounts(
    server: ServerSettings, take: Callable[[list[Any]], None], wanted: Callable[[], bool]
) -> None:
    """Pass on the list of accounts every two seconds, while it is wanted: a request is a line in the gateway's log."""
    while True:
        if not wanted():
            await anyio.sleep(0.1)
            continue
        with suppress(AdminUnavailable):  # the feed says why
            take((await request_admin(server, "GET", "accounts"))["accounts"])
        await anyio.sleep(_ACCOUNTS_S)
