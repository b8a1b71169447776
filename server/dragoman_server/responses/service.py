"""The response store as requests see it: what they refer to is put in, and their answers are kept.

Strategy: what the gateway has is put in, so that the request says everything. What it does not know goes on
untouched to an upstream that speaks Responses, for that one may know; nobody else can, so there it is an error.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dragoman import RemoteProtocolError, RequestHead
from dragoman.jsontext import JSONObject
from dragoman_server.responses import conversation as chain
from dragoman_server.responses.stores.base import (
    ResponseStore,
    ResponseStoreError,
    StoredItem,
    StoredResponse,
)

if TYPE_CHECKING:
    from dragoman_server.proxying.plan import Destination

ERRORS = logging.getLogger("dragoman.errors")

HOW_TO_ENABLE = "set server.response_store to memory or sqlite"


@dataclass(frozen=True, slots=True)
class ExpandedRequest:
    """A request that says everything.

    body: what to plan with.
    previous: the stored response that it goes on from, if its conversation was put in.
    conversation: that so far so far, if the answer is to be kept.
    unknown: what is wrong with the request, unless the upstream knows what it refers to.
    """

    body: bytes
    previous: str | None = None
    conversation: tuple[StoredItem, ...] | None = None
    unresolved: RemoteProtocolError | None = None


class StoredResponseService:
    """store: None when nothing is kept.

    owner, everywhere: who asks, and so whose answers are looked at. Nobody sees those of others.
    """

    def __init__(self, store: ResponseStore | None) -> None:
        self._store = store

    @property
    def enabled(self) -> bool:
        return self._store is not None

    def applies_to(self, request_head: RequestHead) -> bool:
        """Whether a request has to be looked at more closely. Raises RemoteProtocolError."""
        if self.enabled:
            return True
        asked = chain.read_state_params(request_head)
        return asked.previous is not None or asked.may_refer

    async def expand(
        self,
        body: bytes,
        request_head: RequestHead,
        goal: Destination,
        *,
        store_response: bool,
        now: int,
        owner: str,
    ) -> ExpandedRequest:
        """store_response: the answer to such a request may be kept. now: seconds since the epoch.

        Raises RemoteProtocolError for a reference that leads nowhere.
        """
        relayed = goal.upstream.stored_responses
        asked = chain.read_state_params(request_head)
        store_response = store_response and asked.store and self._store is not None
        if relayed and goal.settings.stores_responses:
            store_response = False
        if not (asked.previous or asked.may_refer or store_response):
            return ExpandedRequest(body)
        items = chain.input_items(request_head)
        references = chain.find_references(items) if asked.may_refer else []
        if self._store is None:
            if asked.previous or references:
                return _passed_on(body, relayed, _off(asked.previous, references))
            return ExpandedRequest(body)
        before: tuple[StoredItem, ...] = ()
        if asked.previous:
            previous = await self.get(asked.previous, now, owner)
            if previous is None:
                return _passed_on(body, relayed, chain.previous_not_found(asked.previous))
            before = chain.history(previous)
        referred: dict[int, StoredItem] = {}
        unknown = None
        for reference in references:
            found = await self._item(reference.id, now, owner)
            if found is not None:
                referred[reference.index] = found
            else:
                unknown = unknown or chain.item_not_found(reference.index, reference.id)
        if unknown is not None:
            if not relayed:
                raise unknown
            store_response = False  # the upstream alone knows the whole conversation
        entries = chain.build_conversation(before, items, referred)
        # An upstream that cannot store is not asked to, so that nobody takes it for a loss.
        done_here = frozenset(("store",)) if store_response and not relayed else frozenset[str]()
        if asked.previous or referred or not done_here.isdisjoint(request_head.fields):
            body = chain.replace_input(request_head, chain.write_items(entries, relayed), without=done_here)
        whole = tuple([entry.item for entry in entries]) if store_response else None
        return ExpandedRequest(body, asked.previous, whole, unknown)

    async def store(self, body: JSONObject, expanded: ExpandedRequest, now: int, owner: str) -> bool:
        """Store an answer that has ended, to a request that was expanded for it. Returns False if it was not stored.

        Never raises: the answer is good, whether it can be kept or not.
        """
        assert self._store is not None
        assert expanded.conversation is not None
        response = chain.to_stored_response(
            body, expanded.conversation, expanded.previous, owner=owner, now=now
        )
        if response is None:
            return True  # there is nothing that could be asked for
        try:
            if await self._store.put(response):
                return True
            ERRORS.warning("response %s is too large for the response store", response.id)
        except ResponseStoreError as error:
            ERRORS.error("response %s was not kept: %s", response.id, error)
        return False

    async def get(self, id: str, now: int, owner: str) -> StoredResponse | None:
        """Raises RemoteProtocolError when the store does not work."""
        if self._store is None or not chain.is_id(id):
            return None
        try:
            return await self._store.get(owner, id, now)
        except ResponseStoreError as error:
            raise _broken(error) from error

    async def delete(self, id: str, owner: str) -> bool:
        """False when there was none. Raises RemoteProtocolError when the store does not work."""
        if self._store is None or not chain.is_id(id):
            return False
        try:
            return await self._store.delete(owner, id)
        except ResponseStoreError as error:
            raise _broken(error) from error

    async def _item(self, id: str, now: int, owner: str) -> StoredItem | None:
        if self._store is None or not chain.is_id(id):
            return None
        try:
            return await self._store.item(owner, id, now)
        except ResponseStoreError as error:
            raise _broken(error) from error


def _passed_on(body: bytes, relayed: bool, unknown: RemoteProtocolError) -> ExpandedRequest:
    """A request that refers to what only an upstream can know, and only one that speaks Responses."""
    if not relayed:
        raise unknown
    return ExpandedRequest(body, unresolved=unknown)


def _off(previous: str | None, references: list[chain.ItemReference]) -> RemoteProtocolError:
    path = "/previous_response_id" if previous else f"/input/{references[0].index}"
    what = "previous_response_id" if previous else "an item_reference"
    return RemoteProtocolError(
        f"{what} needs answers that are kept, and this gateway keeps none: send the whole conversation as input, "
        f"or {HOW_TO_ENABLE} in its configuration",
        path=path,
        code="unsupported_parameter",
    )


def _broken(error: ResponseStoreError) -> RemoteProtocolError:
    """The log says what is wrong; a client needs to know no more than that it is not at fault."""
    ERRORS.error("%s", error)
    return RemoteProtocolError(
        "the gateway's response store does not work at the moment; try again later", status=503
    )
