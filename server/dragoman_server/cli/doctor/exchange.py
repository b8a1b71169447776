"""Send requests as the gateway does, and record what came of the last one, for the findings about it."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from dragoman_server.hosts import UpstreamCall
from dragoman_server.upstream.client import UpstreamClient, UpstreamResponse, origin_of
from dragoman_server.upstream.errors import UpstreamError
from dragoman_server.upstream.transport import UpstreamTimeouts

_REDIRECTS = (301, 302, 307, 308)


@dataclass(slots=True)
class Exchange:
    """Sends requests as `client` does, and records what came of the last one."""

    client: UpstreamClient
    status: int | None = None
    error: UpstreamError | None = None
    # How far this machine's clock is ahead of the server's, in seconds.
    ahead_s: float | None = None
    redirected_to: str = ""

    @asynccontextmanager
    async def open(
        self, call: UpstreamCall, *, timeouts: UpstreamTimeouts | None = None, proxy: str | None = None
    ) -> AsyncIterator[UpstreamResponse]:
        try:
            async with self.client.open(call, timeouts=timeouts, proxy=proxy) as response:
                received = dict(response.headers)
                self.status = response.status
                if response.status in _REDIRECTS:
                    self.redirected_to, _ = origin_of(received.get("location", ""))
                try:
                    self.ahead_s = time.time() - parsedate_to_datetime(received["date"]).timestamp()
                except (KeyError, ValueError):
                    self.ahead_s = None
                yield response
        except UpstreamError as error:
            self.error = error
            raise
