"""Stored responses: what is kept, and what a store of them has to do.

Strategy: a response keeps the whole conversation that led to it, so that any one of them can be deleted or
evicted without breaking those that came after. The items of a conversation are the same from turn to turn, so a
store holds each of them once, however many responses share it, and counts it once.

Whoever made a response is its owner, and nobody else can see it. Times are arguments, in seconds since the epoch.
"""

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

# What a store needs beside the bytes themselves, about, for each of its rows and for each place of an item in a
# response. Without it, a limit in bytes would be no limit for many small responses.
ROW_BYTES = 128
LINK_BYTES = 16


class StoreError(Exception):
    """The store cannot be read or written. `str()` of it is for the log: it may name a file."""


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a conversation. data: its JSON as the client or the model gave it, with or without the id."""

    id: str
    data: bytes

    @property
    def size(self) -> int:
        return ROW_BYTES + len(self.id) + len(self.data)


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A complete answer, with all that the model was given for it.

    owner: who may see it.
    created: when it was stored.
    body: the Response object as JSON, its `output` empty.
    input: the conversation before the answer, from its start.
    """

    id: str
    owner: str
    created: int
    body: bytes
    input: tuple[Item, ...]
    output: tuple[Item, ...]

    @property
    def own_size(self) -> int:
        """Its bytes without its items."""
        return ROW_BYTES + len(self.id) + len(self.body) + LINK_BYTES * (len(self.input) + len(self.output))

    @property
    def size(self) -> int:
        """Its bytes if no other response shares its items."""
        return self.own_size + sum(item.size for item in {*self.input, *self.output})


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is kept, in bytes and in seconds. What is over is dropped, the oldest first."""

    max_bytes: int
    max_age_s: int


class ResponseStore(Protocol):
    """An async context manager: it can be used inside its block. All methods may raise StoreError."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    async def put(self, response: StoredResponse) -> bool:
        """Keep it, in the place of one with the same owner and id. False when it alone is over the limit."""

    async def get(self, owner: str, id: str, now: int) -> StoredResponse | None:
        """The response, None when there is none (any more)."""

    async def item(self, owner: str, id: str, now: int) -> Item | None:
        """The item of this id in any of the owner's responses, the latest when there are several."""

    async def delete(self, owner: str, id: str) -> bool:
        """Forget it. False when there was none."""
