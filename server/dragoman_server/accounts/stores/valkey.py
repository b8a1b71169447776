"""An account store on a Valkey or Redis server, which many gateways share.

Each gateway has one connection (`valkey/`), which starts by reading everything. While there is none, every
call fails immediately, and `ResilientStore` decides. What must be atomic is a script on the server (lua.py).

Health is changed by compare-and-set: the gateway computes the transition from its view, and the server stores it if
that view was current; otherwise the server returns the current state, and the gateway computes again. Each change is
published, except the last use of an account, which every `reserve` returns for its candidates.

Needs the extra `dragoman[valkey]`.
"""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import msgspec
from coredis.connection import BaseConnection

from dragoman_server.accounts.stores.base import AccountStoreError, Operation
from dragoman_server.accounts.stores.lua import CHANGE, whole
from dragoman_server.accounts.stores.operations import with_last_use
from dragoman_server.accounts.stores.tables import MAX_CONVERSATIONS
from dragoman_server.policy.health import INITIAL_HEALTH, Health
from dragoman_server.valkey.connection import ValkeyConnection, evaluate

# The number is the version of the data: what another version wrote is not read.
_PREFIX = "dragoman:2:"

# Each failure of the comparison means that another gateway made progress, so this is never reached.
_MAX_CHANGE_TRIES = 20

_CHANNEL = _PREFIX + "changes"

_decode = msgspec.json.Decoder(Health).decode

_T = TypeVar("_T")


class ValkeyAccountStore:
    """See AccountStore.

    Args:
        url: see ValkeyConnection. Raises ValueError.
        max_conversations: stored on the server.
    """

    def __init__(self, url: str, *, max_conversations: int = MAX_CONVERSATIONS) -> None:
        self._connection = ValkeyConnection(url, "the account store", AccountStoreError)
        self._settings = max_conversations, _CHANNEL  # for the scripts
        self._health: dict[str, Health] = {}
        self._raw: dict[str, bytes] = {}  # the same as the server has it, without the last use

    def health(self) -> Mapping[str, Health]:
        return self._health

    async def apply(self, operation: Operation[_T]) -> _T:
        for _ in range(_MAX_CHANGE_TRIES):
            if not operation.needed(self._health):
                return operation.result(None)
            argument = operation.argument(self._health, self._raw)
            keys = operation.keys()
            response = await self._connection.evaluate(
                whole(operation.script), [_PREFIX + key for key in keys], argument, *self._settings
            )
            with self._connection.reading():
                found, healths, uses = response
                for account, raw in zip(healths[::2], healths[1::2], strict=True):
                    self._update(account.decode(), raw)
                for account, use in zip(uses[::2], uses[1::2], strict=True):
                    self._update_use(account.decode(), float(use))
                if found is not None:
                    return operation.result(found)
        raise AccountStoreError(f"{self._connection.name}: other gateways kept changing it")

    def running(self) -> AbstractAsyncContextManager[None]:
        """See AccountStore. Begins when the first attempt to connect has succeeded or failed."""
        return self._connection.running(self._load, self._receive)

    # The view.

    def _update(self, account: str, raw: bytes) -> None:
        """Put an account's health from the server into the view. raw: empty if the server has none."""
        if raw == self._raw.get(account, b""):
            return
        used = self._health.get(account, INITIAL_HEALTH).last_used
        if raw:
            self._raw[account] = raw
            self._health[account] = with_last_use(_decode(raw), used)
        else:
            self._raw.pop(account, None)
            self._health[account] = Health(last_used=used)

    def _update_use(self, account: str, used: float) -> None:
        health = self._health.get(account, INITIAL_HEALTH)
        if health.last_used != used:
            self._health[account] = with_last_use(health, used)

    # A new connection.

    def _receive(self, message: Any) -> None:
        match message:
            case [b"message", _, bytes(change)]:
                account, _, raw = change.rpartition(b"\n")
                self._update(account.decode(), raw)

    async def _load(self, connection: BaseConnection) -> None:
        """Read the view from the server, and restore what the server has lost, because its memory may be new."""
        # Before reading: changes in between arrive twice, and none is missed.
        connection.send_command(b"SUBSCRIBE", _CHANNEL)
        found: Any = await connection.create_request(b"HGETALL", _PREFIX + "health")
        used: Any = await connection.create_request(b"HGETALL", _PREFIX + "used")
        lost = [(name, "", raw.decode()) for name, raw in self._raw.items() if name.encode() not in found]
        for account, raw in found.items():
            self._update(account.decode(), raw)
        for account, use in used.items():
            self._update_use(account.decode(), float(use))
        if lost:
            await evaluate(
                connection, whole(CHANGE), [_PREFIX + "health"], msgspec.json.encode(lost), *self._settings
            )
