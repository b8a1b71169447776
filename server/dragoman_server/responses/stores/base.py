"""The interface of response stores.

A stored response has the whole conversation that led to it, so that any of them can be deleted or evicted without
breaking later ones. The items of a conversation are the same from turn to turn, so a store holds and counts each of
them once, however many responses share it. An item of the model has its id in its response, and none in the input of
later ones, because it is sent without.

Only the owner of a response can see it. Times are arguments, in seconds since the epoch.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

import msgspec

# About the bytes that a store needs for each of its rows and for each place of an item in a response, besides the data.
# Without them a limit in bytes would be no limit for many small responses.
ROW_BYTES = 128
LINK_BYTES = 16


class ResponseStoreError(Exception):
    """The store cannot be read or written. `str()` of it is for the log: it may name a file."""


# Not for the garbage collector, because a store holds a million, and a full collection would stop all requests for a
# second. Nothing in them can refer to them.
class StoredItem(msgspec.Struct, frozen=True, gc=False):
    """One item of a conversation.

    Attributes:
        data: Its JSON as the client or the model sent it, with or without the id.
    """

    id: str
    data: bytes

    @property
    def size(self) -> int:
        """The bytes that it takes in a store."""
        return ROW_BYTES + len(self.id) + len(self.data)


class StoredResponse(msgspec.Struct, frozen=True, gc=False):
    """A response that has ended, with the whole input of the model.

    Attributes:
        owner: The name of the client key that may see it.
        created: When it was stored.
        body: The Response object as JSON, its `output` empty.
        input: The conversation before the response, from its start.
        output: The items of the response.
    """

    id: str
    owner: str
    created: int
    body: bytes
    input: tuple[StoredItem, ...]
    output: tuple[StoredItem, ...]

    @property
    def size_without_items(self) -> int:
        """The bytes that it takes without its items."""
        return ROW_BYTES + len(self.id) + len(self.body) + LINK_BYTES * (len(self.input) + len(self.output))

    @property
    def size(self) -> int:
        """The bytes that it takes if no other response shares its items."""
        return self.size_without_items + sum(item.size for item in {*self.input, *self.output})


@dataclass(frozen=True, slots=True)
class ResponseStoreLimits:
    """The limits of a store, in bytes and in seconds. The oldest responses are dropped first."""

    max_bytes: int
    max_age_s: int


def find_items(
    ids: Iterable[str], limit: int, find: Callable[[str], StoredItem | None]
) -> dict[str, StoredItem]:
    """Return what a store's items() does. find: returns the item of an id."""
    found: dict[str, StoredItem] = {}
    for id in ids:
        if limit < 0:
            break
        item = find(id)
        if item is not None:
            found[id] = item
            limit -= len(item.data)
    return found


class ResponseStore(Protocol):
    """Stored responses by owner and id.

    All methods may raise ResponseStoreError.
    """

    def running(self) -> AbstractAsyncContextManager[None]:
        """Use the store inside of this block."""

    async def put(self, response: StoredResponse) -> bool:
        """Store a response, replacing one with the same owner and id. Return false if it is larger than the limit."""

    async def get(self, owner: str, id: str, now: int) -> StoredResponse | None:
        """Return a response, None if there is none or it has expired."""

    async def items(self, owner: str, ids: Collection[str], now: int, limit: int) -> dict[str, StoredItem]:
        """Return the items of these ids in any of the owner's responses, the latest one if there are several.

        Those behind the first that have more than `limit` bytes together are left out.
        """

    async def delete(self, owner: str, id: str) -> bool:
        """Delete a response. Return false if there was none."""
