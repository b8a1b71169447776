"""Expand the references of requests to stored responses, and store new responses.

Stored items are inserted, so that the request has the whole conversation. An unresolved reference is passed on
unchanged to an upstream that speaks Responses, because that upstream may have it; for all others it is an error.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from dragoman import RequestHead, RequestRefused
from dragoman.codec import StoredEventWriter
from dragoman.jsontext import JSONObject, decode, encode, size_up_to
from dragoman_server.platform.off_loop import INLINE_BYTES, OffLoop, off_loop
from dragoman_server.responses import conversation
from dragoman_server.responses.recent import Turn
from dragoman_server.responses.stores.base import (
    EventPage,
    ResponseEvents,
    ResponseKey,
    ResponseStore,
    ResponseStoreError,
    StoredItem,
    StoredResponse,
)

if TYPE_CHECKING:
    from dragoman_server.proxying.destinations import Destination

_T = TypeVar("_T")

ERRORS = logging.getLogger("dragoman.errors")

_BACKGROUND_PARAMS = ("background", "background_options")

# Of the shortest reference in a request.
_REFERENCE_BYTES = 35

# Attempts to end a response that is made elsewhere. Each failure means that it has come further meanwhile.
_MAX_END_TRIES = 20

# A number behind all events.
_NO_EVENTS = 2**53

_OWNER_IS_GONE = (
    "the gateway that made this response has ended before the response was complete; send the request again"
)

HOW_TO_ENABLE = "set server.response_store to memory, sqlite or valkey"


class ExpandedRequest(msgspec.Struct, frozen=True):
    """A request with its conversation.

    Attributes:
        body: The request to plan.
        previous: The id of the stored response that it continues, if its conversation was inserted.
        conversation: The items before the response, if the response is to be stored or kept; None otherwise.
        stored: It is to be stored.
        upstream: The upstream that stores it as well, None if none does.
        unresolved: The error for a reference that only the upstream may resolve, None if there is none.
    """

    body: bytes
    previous: str | None = None
    conversation: tuple[StoredItem, ...] | None = None
    unresolved: RequestRefused | None = None
    stored: bool = False
    upstream: str | None = None


class StoredResponseService:
    """The response store for the endpoints.

    owner, in all methods: the client key's name. Responses of other owners are not visible.

    Attributes:
        store: None if nothing is stored.
        event_writer: See ProtocolSpec.stored_responses.
        made_here: The responses that this process is making. It lives, even if its clock has jumped past their leases.
    """

    def __init__(
        self, store: ResponseStore | None, event_writer: Callable[[JSONObject, int], StoredEventWriter]
    ) -> None:
        self.store = store
        self.event_writer = event_writer
        self.made_here: Container[ResponseKey] = ()

    def applies_to(self, request_head: RequestHead) -> bool:
        """True if a request has to be expanded. Raises RemoteProtocolError."""
        if self.store is not None:
            return True
        params = conversation.read_state_params(request_head)
        return params.previous is not None or params.may_refer

    async def expand(
        self,
        body: bytes,
        request_head: RequestHead,
        destination: "Destination",
        *,
        store_response: bool,
        background: bool = False,
        now: int,
        owner: str,
        max_bytes: int,
        off_loop: OffLoop = off_loop,
        turn: Turn | None = None,
    ) -> ExpandedRequest:
        """Insert what the request refers to.

        store_response: the endpoint's responses may be stored. background: this one is made and stored here, and its
        upstream is not told of that. now: seconds since the epoch. max_bytes: of the request with all of that. turn:
        of the request, if its connection keeps responses.

        Raises RemoteProtocolError for wrong parameters, RequestRefused for unknown references and too much (413).
        """
        relayed = destination.upstream.stored_responses is not None
        may_pass_on = relayed and not background  # what only the upstream has cannot be stored here
        stores_itself = may_pass_on and destination.settings.stores_responses
        may_store = store_response and self.store is not None and not stores_itself
        keeps = turn is not None
        params, items, references = await off_loop(len(body), _read_input, request_head, may_store, keeps)
        store_response = may_store and params.store
        upstream = destination.settings.name if stores_itself and params.store else None
        has_none = self.store is None and not keeps
        if has_none and (params.previous or references):
            return _pass_on(body, relayed, _not_enabled_error(params.previous, references))
        if has_none or not (params.previous or params.may_refer or store_response or keeps):
            return ExpandedRequest(body)
        before = await self._history(params.previous, now, owner, turn)
        if before is None:
            # The Open Responses specification (2026-04-24) requires the error if the request says `store: false`.
            may_pass = may_pass_on and (params.store or not keeps)
            return _pass_on(body, may_pass, conversation.previous_not_found(params.previous or ""))
        referred, unresolved = await self._find(references, now, owner, max_bytes, turn)
        if unresolved is not None:
            if not may_pass_on:
                raise unresolved
            store_response = keeps = False  # only the upstream has the whole conversation
        # An upstream that cannot store gets no `store`, which would be recorded as a loss.
        of_store = ("store",) if store_response and not relayed else ()
        handled_here = {*of_store, *(_BACKGROUND_PARAMS if background else ())}
        size = len(body) + sum([len(item.data) for item in (*before, *referred.values())])
        whole, written = await off_loop(
            size, _conversation, params.previous, before, items, referred, max_bytes, relayed
        )
        passes = turn is not None and turn.recent.is_stored_at(params.previous, upstream)
        changes = written != items or params.previous or not handled_here.isdisjoint(request_head.fields)
        if changes and not passes:
            body = await off_loop(
                size, partial(conversation.replace_input, request_head, written, without=handled_here)
            )
        kept = whole if store_response or keeps else None
        return ExpandedRequest(body, params.previous, kept, unresolved, store_response, upstream)

    async def _history(
        self, id: str | None, now: int, owner: str, turn: Turn | None
    ) -> Sequence[StoredItem] | None:
        """Return the items of the conversation up to the end of a response, None if there is no such response."""
        if id is None:
            return ()
        previous = None if turn is None else turn.recent.get(id)
        previous = previous or await self.get(id, now, owner)
        return None if previous is None else await off_loop(previous.size, conversation.history, previous)

    async def _find(
        self, references: Mapping[int, str], now: int, owner: str, max_bytes: int, turn: Turn | None
    ) -> tuple[dict[int, StoredItem], RequestRefused | None]:
        """Return the items that are referred to, by the places of the references, and the error for one that is not
        stored.
        """
        size = _REFERENCE_BYTES * len(references)
        ids = await off_loop(size, _ids_of, references)
        found = (
            await self._call(lambda store: store.items(owner, ids, now, max_bytes)) if ids else None
        ) or {}
        if turn is not None and len(found) < len(ids):
            found |= await off_loop(turn.recent.bytes, _items_in, turn.recent.all(), ids.keys() - found)
        referred, missing = await off_loop(size, _resolved, references, found)
        # The store leaves out items beyond the limit, for which build_conversation() refuses the request.
        if missing is None or sum([len(item.data) for item in found.values()]) > max_bytes:
            return referred, None
        return referred, conversation.item_not_found(missing, references[missing])

    async def put(
        self,
        body: JSONObject,
        expanded: ExpandedRequest,
        now: int,
        owner: str,
        *,
        turn: Turn | None = None,
    ) -> bool:
        """Store a response that has ended, to a request from expand(). Return false if it was not stored.

        turn: keeps it too.

        Never raises for the store, because the client gets its response in any case.
        """
        assert expanded.conversation is not None
        before = expanded.conversation

        def build() -> StoredResponse | None:
            return conversation.to_stored_response(body, before, expanded.previous, owner=owner, now=now)

        response = await off_loop(size_up_to(INLINE_BYTES, body), build)
        if response is None:
            return True  # there is nothing to store
        if turn is not None and conversation.is_continuable(body):
            size = await off_loop(response.size_without_items, lambda: response.size)
            turn.keep(response, size, expanded.upstream if turn.generates else None)
        if not expanded.stored:
            return True
        assert self.store is not None
        try:
            if await self.store.put(response):
                return True
            ERRORS.warning("response %s is too large for the response store", response.id)
        except ResponseStoreError as error:
            ERRORS.error("response %s was not stored: %s", response.id, error)
        return False

    async def get(self, id: str, now: int, owner: str) -> StoredResponse | None:
        """Return a stored response, None if there is none. Raises RequestRefused (503) if the store does not work.

        One whose gateway has died has failed, which is found out here.
        """
        if not conversation.is_id(id):
            return None
        found = await self._call(lambda store: store.get(owner, id, now))
        if found is None or not self._is_abandoned(found.key, found.lease, now):
            return found
        body = conversation.failed_body(decode(found.body), "server_error", _OWNER_IS_GONE)
        await self.end(found, body, now, lease=found.lease)
        return await self._call(lambda store: store.get(owner, id, now))

    def _is_abandoned(self, key: ResponseKey, lease: float, now: int) -> bool:
        return 0 < lease < now and key not in self.made_here

    async def end(
        self, found: StoredResponse, body: JSONObject, now: int, *, lease: float | None = None
    ) -> bool:
        """End a response that is being made, wherever that is, unless it has ended meanwhile. The first one wins.

        lease: end it only if nobody has renewed this one. Raises RequestRefused (503) as get().
        """
        response = msgspec.structs.replace(found, created=now, body=encode({**body, "output": []}), lease=0.0)

        async def end_once(store: ResponseStore) -> bool | None:
            page = await store.read_events(found.key, _NO_EVENTS, now)
            if page is None or not page.log.lease or page.log.lease != (lease or page.log.lease):
                return False
            writer = self.event_writer({}, page.log.next)
            frames = [writer.end(body)] if page.log.next else []  # it has no stream
            last = ResponseEvents.before(writer.next, frames)
            return True if await store.close(response, last, page.log.lease) else None

        for _ in range(_MAX_END_TRIES):
            if (ended := await self._call(end_once)) is not None:
                return ended
        return False

    async def open(self, response: StoredResponse, events: ResponseEvents | None) -> None:
        """Store a response that begins. events: the first of its stream, None without one. Raises RequestRefused."""

        async def open_with_events(store: ResponseStore) -> bool:
            if not await store.open(response):
                return False
            return events is None or await store.append(response.key, events, response.created)

        if not await self._call(open_with_events):
            raise RequestRefused("the conversation is too large for the gateway's response store", status=413)

    async def read_events(self, key: ResponseKey, after: int, now: int) -> EventPage | None:
        """Return events behind a number, see ResponseStore. Raises RequestRefused (503) as get()."""
        page = await self._call(lambda store: store.read_events(key, after, now))
        if page is None or not self._is_abandoned(key, page.log.lease, now):
            return page
        owner, id = key
        await self.get(id, now, owner)  # which makes it a failed one
        return await self._call(lambda store: store.read_events(key, after, now))

    async def delete(self, id: str, owner: str) -> bool:
        """Delete a stored response. Return false if there was none. Raises RequestRefused (503) as get()."""
        return conversation.is_id(id) and bool(await self._call(lambda store: store.delete(owner, id)))

    async def _call(self, call: Callable[[ResponseStore], Awaitable[_T]]) -> _T | None:
        if self.store is None:
            return None
        try:
            return await call(self.store)
        except ResponseStoreError as error:
            ERRORS.error("%s", error)  # its details are not for the client
            raise RequestRefused(
                "the gateway's response store does not work at the moment; try again later", status=503
            ) from error


def _read_input(
    request_head: RequestHead, may_store: bool, keeps: bool
) -> tuple[conversation.StateParams, list[bytes], dict[int, str]]:
    """Return the parameters about stored state, the items of the input, and the references among them.

    Without items if nothing is inserted or stored.
    """
    params = conversation.read_state_params(request_head)
    if not (params.previous or params.may_refer or (may_store and params.store) or keeps):
        return params, [], {}
    items = conversation.input_items(request_head)
    return params, items, conversation.find_references(items) if params.may_refer else {}


def _conversation(
    previous: str | None,
    before: Sequence[StoredItem],
    items: Sequence[bytes],
    referred: Mapping[int, StoredItem],
    max_bytes: int,
    relayed: bool,
) -> tuple[tuple[StoredItem, ...], list[bytes]]:
    """Return the whole conversation, and its items as they are sent. See conversation.build_conversation()."""
    if previous:
        conversation.check_outputs(before, items)
    whole = conversation.build_conversation(before, items, referred, max_bytes)
    return tuple(whole), conversation.write_items(whole, relayed)


def _ids_of(references: Mapping[int, str]) -> dict[str, None]:
    return dict.fromkeys([id for id in references.values() if conversation.is_id(id)])


def _resolved(
    references: Mapping[int, str], found: Mapping[str, StoredItem]
) -> tuple[dict[int, StoredItem], int | None]:
    """Return the items that are referred to, by the places of the references, and the place of the first other one."""
    referred = {index: found[id] for index, id in references.items() if id in found}
    return referred, next((index for index in references if index not in referred), None)


def _items_in(responses: Iterable[StoredResponse], ids: Collection[str]) -> dict[str, StoredItem]:
    """Return the items of these ids in the responses, the last one if there are several."""
    items = (item for response in responses for item in (*response.input, *response.output))
    return {item.id: item for item in items if item.id in ids}


def _pass_on(body: bytes, relayed: bool, unresolved: RequestRefused) -> ExpandedRequest:
    """Return a request whose reference only a Responses upstream may resolve. Raise the error for other upstreams."""
    if not relayed:
        raise unresolved
    return ExpandedRequest(body, unresolved=unresolved)


def _not_enabled_error(previous: str | None, references: Mapping[int, str]) -> RequestRefused:
    path = "/previous_response_id" if previous else f"/input/{next(iter(references))}"
    what = "previous_response_id" if previous else "an item_reference"
    return RequestRefused(
        f"{what} needs stored responses, and this gateway stores none: send the whole conversation as input, or "
        f"{HOW_TO_ENABLE} in its configuration",
        path=path,
        code="unsupported_parameter",
    )
