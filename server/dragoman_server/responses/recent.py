"""The newest responses of one WebSocket connection, which it can continue although nothing has stored them."""

from collections import OrderedDict

import msgspec

from dragoman_server.responses.stores.base import StoredResponse

# "the most recent previous-response state" is what the Open Responses specification keeps (2026-04-24). A client that
# forks a conversation, or has several lanes, goes back by a few.
MAX_RESPONSES = 8
# As much as the largest request body. What responses share is counted for each, so these take less memory.
MAX_BYTES = 64 * 2**20


class _Kept(msgspec.Struct, frozen=True):
    response: StoredResponse
    size: int
    lane: str | None
    upstream: str | None


class RecentResponses:
    """Responses by their ids.

    Attributes:
        bytes: The sum of their sizes.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self.bytes = 0

    def get(self, id: str) -> StoredResponse | None:
        """Return a response, None if it is not among the newest."""
        kept = self._kept.get(id)
        return None if kept is None else kept.response

    def is_stored_at(self, id: str | None, upstream: str | None) -> bool:
        """True if the upstream of this name has stored a response, under this id.

        Then it has more of it than its items show, such as reasoning, and is to continue it as over HTTP.
        """
        kept = self._kept.get(id or "")
        return kept is not None and upstream is not None and kept.upstream == upstream

    def lane_of(self, id: str) -> str | None:
        """Return where a response was made, None for the default lane, and if it is not among the newest."""
        kept = self._kept.get(id)
        return None if kept is None else kept.lane

    def all(self) -> list[StoredResponse]:
        """Return all of them, the oldest first."""
        return [kept.response for kept in self._kept.values()]

    def keep(self, response: StoredResponse, size: int, lane: str | None, upstream: str | None) -> None:
        """Add the newest response.

        size: its bytes. lane: where it was made. upstream: the one that has stored it, None if none has.
        """
        self._drop(response.id)
        self._kept[response.id] = _Kept(response, size, lane, upstream)
        self.bytes += size
        while len(self._kept) > MAX_RESPONSES or self.bytes > MAX_BYTES:
            self._drop(next(iter(self._kept)))

    def forget(self, id: str, lane: str | None) -> None:
        """Drop a response whose continuation has failed. One that another lane has made stays for that lane."""
        if id in self._kept and self._kept[id].lane == lane:
            self._drop(id)

    def _drop(self, id: str) -> None:
        if (kept := self._kept.pop(id, None)) is not None:
            self.bytes -= kept.size


class Turn(msgspec.Struct, eq=False):
    """One request of a connection.

    Attributes:
        recent: What it may continue besides stored responses.
        generates: False for a request that only prepares later ones, and is not sent to an upstream.
        lane: Where the client has it, None for the default.
        completed: It has not failed.
    """

    recent: RecentResponses
    generates: bool = True
    lane: str | None = None
    completed: bool = False

    def keep(self, response: StoredResponse, size: int, upstream: str | None) -> None:
        """Keep its response, see RecentResponses.keep()."""
        self.recent.keep(response, size, self.lane, upstream)
