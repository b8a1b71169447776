"""GET /admin/events: what happens to requests, as server-sent events, for as long as the operator reads them."""

from collections.abc import Collection
from contextlib import suppress
from time import time

import anyio
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from dragoman import RemoteProtocolError, RequestRefused
from dragoman.jsontext import JSON, encode_text
from dragoman_server import __version__
from dragoman_server.accounts.stored_keys import all_keys
from dragoman_server.feed.events import EVENT_TYPES, MAX_LABEL_LENGTH, EventBatch, EventFilter
from dragoman_server.feed.feed import Feed, OpenReader
from dragoman_server.feed.reader import FeedReader, UnknownEventId, parse_event_id, process_id
from dragoman_server.gateway import Gateway
from dragoman_server.http.admin.replies import log_completed
from dragoman_server.http.auth import ADMIN_PATH, Refuse
from dragoman_server.http.operations import AdminRoute, ApiOperation, MediaType
from dragoman_server.http.request import BOOLEAN, Parameter, Query, invalid_parameter
from dragoman_server.settings import SIMULATOR
from dragoman_server.wire.headers import OPERATOR_HEADERS, STREAM_HEADERS, encode_headers

EVENTS_PATH = f"{ADMIN_PATH}/events"

# Proxies often end a connection after a minute of silence.
HEARTBEAT_S = 15.0

# Milliseconds after which a browser's EventSource comes back.
_RETRY_MS = 1000

# Seconds for the last event, of a reader that has to end.
_END_S = 0.1

_HEADERS = [*{"content-type": "text/event-stream", **dict(STREAM_HEADERS), **dict(OPERATOR_HEADERS)}.items()]

# The parameters of the query, by the field of the filter.
_PARAMETERS = {
    "type": Parameter("type", "events of this type", choices=EVENT_TYPES, repeats=True),
    "request": Parameter("request", "events of the request with this id", repeats=True),
    "client_key": Parameter("key", "events of requests with the client key of this name", repeats=True),
    "model": Parameter("model", "events of requests for this model, as the client named it", repeats=True),
    "upstream": Parameter("upstream", "events of requests that go to this upstream", repeats=True),
}

_KEPT = Parameter(
    "kept", "begin with what is kept: the latest requests that have ended, and more", choices=BOOLEAN
)


def events_route(gateway: Gateway, refuse: Refuse) -> BaseRoute:
    """Return the route of the feed. refuse: see EventsEndpoint."""
    operation = ApiOperation(
        summary="What happens to requests, while it happens",
        answers={200: (MediaType("text/event-stream"),)},
        errors=(503,),
        parameters=(*_PARAMETERS.values(), _KEPT),
    )
    return AdminRoute(EVENTS_PATH, EventsEndpoint(gateway, refuse), GET=operation)


class EventsEndpoint:
    """The endpoint of the feed.

    Args:
        refuse: sends the error of a request that is refused.
    """

    def __init__(self, gateway: Gateway, refuse: Refuse) -> None:
        self._gateway = gateway
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gateway = self._gateway
        try:
            query = Query(scope["query_string"].decode("latin-1"), keeps_empty=True)
            after = _last_event_id(scope)
            if query.boolean(_KEPT) and after is None:
                after = {}
            response = _EventStream(gateway.telemetry.feed, parse_filter(query, gateway), after, send)
            await response.run(receive)
        except (RemoteProtocolError, RequestRefused) as error:
            await self._refuse(scope, error, send)
        else:
            log_completed(gateway, scope)


def parse_filter(query: Query, gateway: Gateway) -> EventFilter:
    """Return the filter of a query. A parameter may occur more than once: one of its values is enough.

    Raises RemoteProtocolError.
    """
    settings = gateway.settings
    fields = {parameter.name: name for name, parameter in _PARAMETERS.items()}
    known: dict[str, Collection[str]] = {
        "type": _PARAMETERS["type"].choices,
        "key": [key.name for key in all_keys(settings, gateway.stored_keys)],
        "upstream": [*(upstream.name for upstream in settings.upstreams), SIMULATOR],
    }
    values: dict[str, set[str]] = {}
    for parameter in [name for name in query.names() if name in fields]:
        for value in query.all(parameter):
            if parameter in known and value not in known[parameter]:
                expected = (
                    f"one of {', '.join(known[parameter])}" if known[parameter] else "left out: there is none"
                )
                raise invalid_parameter(parameter, f"{expected}, and {value[:100]!a} is not")
            if not value:
                raise invalid_parameter(parameter, "a name or an id")
            values.setdefault(fields[parameter], set()).add(value[:MAX_LABEL_LENGTH])
    return EventFilter(**{name: frozenset(wanted) for name, wanted in values.items()})


def _last_event_id(scope: Scope) -> dict[str, int] | None:
    """Return the id from which the reader goes on, None if it begins. Raises RemoteProtocolError."""
    sent = [value for name, value in scope["headers"] if name == b"last-event-id"]
    if not sent:
        return None
    try:
        return parse_event_id(b",".join(sent).decode("latin-1"))
    except UnknownEventId:
        raise _unknown_id() from None


def _unknown_id() -> RemoteProtocolError:
    return RemoteProtocolError(
        "Last-Event-ID names no event of this gateway, which may have started again since: leave it out",
        path="/last-event-id",
        code="invalid_value",
    )


class _EventStream:
    """The response to one reader."""

    def __init__(self, feed: Feed, wanted: EventFilter, after: dict[str, int] | None, send: Send) -> None:
        self._feed, self._wanted = feed, wanted
        self._reader = FeedReader(feed, wanted, after, self._take, self._send_change)
        self._send = send
        self._lock = anyio.Lock()
        self._sent_at = anyio.current_time()
        self._begun = False

    async def run(self, receive: Receive) -> None:
        """Respond until the reader leaves, or has to end. Raises RemoteProtocolError and RequestRefused."""
        unknown_id = False
        with self._feed.reader(self._wanted) as opened:
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_watch_disconnect, receive, tasks.cancel_scope)
                    try:
                        await self._reader.start(tasks)
                    except UnknownEventId:
                        unknown_id = True
                    else:
                        await self._begin()
                        tasks.start_soon(self._send_heartbeats)
                        await self._reader.go_on()
                    tasks.cancel_scope.cancel()
            except* OSError:  # the reader has left
                pass
        if unknown_id:
            raise _unknown_id()
        await self._end(opened)

    async def _begin(self) -> None:
        reader = self._reader
        hello: dict[str, JSON] = {
            "at": time(),
            "version": __version__,
            "workers": list(reader.workers),
            "resumed": reader.resumed,
        }
        self._begun = True
        await self._send({"type": "http.response.start", "status": 200, "headers": encode_headers(_HEADERS)})
        await self._write(f"retry: {_RETRY_MS}\n" + _event("hello", encode_text(hello), reader.id))

    async def _end(self, opened: OpenReader) -> None:
        """Say why the response ends, if its reader has not left."""
        if not opened.end_reason:
            return
        if not self._begun:
            raise RequestRefused("the gateway is stopping or reloading; try again", status=503)
        with anyio.move_on_after(_END_S, shield=True), suppress(OSError):
            text = _event("end", encode_text({"at": time(), "reason": opened.end_reason}))
            await self._send({"type": "http.response.body", "body": text.encode()})

    async def _write(self, text: str) -> None:
        async with self._lock:
            await self._send({"type": "http.response.body", "body": text.encode(), "more_body": True})
            self._sent_at = anyio.current_time()

    async def _take(self, worker: str, batch: EventBatch) -> None:
        """Send what there is of one worker."""
        reader, texts = self._reader, []
        if batch.lost:
            lost = {"at": time(), "worker": process_id(worker), "count": batch.lost}
            texts.append(_event("lost", encode_text(lost)))
        before, after = reader.id_around(worker)
        texts += [
            f"id: {before}{event.number}{after}\nevent: {event.type}\ndata: {event.data}\n\n"
            for event in batch.events
        ]
        reader.places[worker] = batch.last
        if texts:
            await self._write("".join(texts))

    async def _send_change(self, kind: str, worker: str) -> None:
        await self._write(_event(kind, encode_text({"at": time(), "worker": process_id(worker)})))

    async def _send_heartbeats(self) -> None:
        while True:
            silence = anyio.current_time() - self._sent_at
            if silence < HEARTBEAT_S:
                await anyio.sleep(HEARTBEAT_S - silence)
            else:
                # The id goes on also where the filter leaves out all events.
                await self._write(f": heartbeat\nid: {self._reader.id}\n\n")


async def _watch_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _event(kind: str, data: str, id: str | None = None) -> str:
    first = "" if id is None else f"id: {id}\n"
    return f"{first}event: {kind}\ndata: {data}\n\n"
