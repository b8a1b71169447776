"""One request, one task group: everything that a request started ends with it.

Strategy: four tasks under one cancel scope. The disconnect watcher cancels the scope when the client leaves,
from the moment when its request was read; the upstream reader owns the upstream response, so that cancelling
closes that connection at once; the ticker sends heartbeats into silence; the writer is the only one that calls
`send`. Reader, ticker and writer meet at a hand-off without a buffer: a client that reads slowly pauses the
upstream. Reader and ticker take turns: whoever has taken bytes for the client hands them over before the other
takes any, or they would change places. Expected failures are values (a Reply, or an error in the stream); only
bugs leave as exceptions.

Nothing is sent before there is content: until then a failed call can still be a plain HTTP error, which is
what clients retry on. Silence that calls for a heartbeat comes first, though.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

import anyio
from anyio.abc import ObjectReceiveStream, ObjectSendStream

from dragoman import (
    FanOut,
    Fault,
    FaultKind,
    Keepalive,
    Ledger,
    Outcome,
    Relay,
    ResponseTranslator,
    translate_fault,
)
from dragoman._json import JSONObject
from dragoman._recall import Keepsake

from ._secret import MASK
from .headers import ESTIMATES, JSON_HEADERS, STREAM_HEADERS, HeaderList, for_client, request_ids
from .log import RequestRecord
from .plan import Plan
from .replies import Reply, fault_of_upstream, fault_reply, loss_header
from .upstream import UpstreamError, UpstreamTimeouts

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
# Takes what is worth keeping of an answer's reasoning.
Remember = Callable[[Keepsake], None]
# Takes an answer as one document, and whether its client left before it was complete.
Keep = Callable[[JSONObject, bool], Awaitable[None]]

# Error bodies are read whole. Real ones are a few kilobytes; HTML error pages of proxies may be larger.
MAX_ERROR_BYTES = 1024 * 1024

# A whole answer is held until it is complete, so that a failure can still be told as one.
MAX_ANSWER_BYTES = 64 * 1024 * 1024

# How long an answer may take to be kept when its client has left: nobody waits for it any more.
KEEP_S = 5.0

# After the answer's own end, the end of the HTTP body usually comes in the same read. Waiting for it a moment
# lets the connection be used again.
DRAIN_S = 0.25


class ResponseLike(Protocol):
    """What the exchange needs of an upstream's response: see UpstreamResponse."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> list[tuple[str, str]]: ...

    async def receive(self) -> bytes: ...

    async def read_all(self, limit: int) -> bytes: ...


class Door(Protocol):
    """Where requests go out: UpstreamClient, or the simulator in its place."""

    def open(
        self,
        method: str,
        url: str,
        headers: list[tuple[str, str]],
        content: bytes | None,
        *,
        timeouts: UpstreamTimeouts | None = None,
        proxy: str | None = None,
    ) -> AbstractAsyncContextManager[ResponseLike]: ...


class Chunk(NamedTuple):
    """Bytes of the client's stream. last: nothing follows."""

    data: bytes
    last: bool


class ClientExchange:
    """One planned request on its way. Call run() once.

    keep: awaited with the whole answer, once it has ended and before the client is told so: what the client does
        next may rely on it. An answer that fails before the client knows of it is none. The plan must say that it
        is wanted.
    remember: called at the same time with the answer's reasoning, if the client is likely not to send it back.
    """

    def __init__(
        self,
        plan: Plan,
        door: Door,
        receive: Receive,
        send: Send,
        record: RequestRecord,
        *,
        keepalive_s: float,
        http1: bool,
        keep: Keep | None = None,
        remember: Remember | None = None,
    ) -> None:
        self._plan = plan
        self._door = door
        self._receive = receive
        self._send = send
        self._record = record
        self._http1 = http1
        self._keep = keep
        self._remember = remember
        self._begun = anyio.current_time()
        self._keepalive = Keepalive(keepalive_s, self._begun)
        self._answer: ResponseTranslator | Relay | FanOut | None = None
        self._upstream_headers: HeaderList = []
        self._started = False  # bytes of the response are out, or on their way
        self._last_words = False  # so are its last ones
        # Held from taking bytes (or from the decision for a plain error) to the end of the hand-off.
        self._turn = anyio.Lock(fast_acquire=True)
        self._helpers = anyio.CancelScope(), anyio.CancelScope()

    async def run(self) -> None:
        """Answer the client. Returns when it is answered or has left; a cancelled run leaves nothing behind."""
        outbox, inbox = anyio.create_memory_object_stream[Reply | Chunk](0)
        async with anyio.create_task_group() as tasks, inbox:
            tasks.start_soon(self._watch_disconnect, tasks.cancel_scope)
            if self._plan.streams:
                tasks.start_soon(self._tick, outbox.clone())
            tasks.start_soon(self._read_upstream, outbox)
            await self._write_client(inbox)
            for helper in self._helpers:
                helper.cancel()
        self._note_end()
        if self._record.outcome == "client_left":
            await self._keep_rest()

    async def _watch_disconnect(self, whole: anyio.CancelScope) -> None:
        with self._helpers[0]:
            while (await self._receive())["type"] != "http.disconnect":
                pass
            if self._last_words:
                return  # servers also say "disconnect" when a response is complete
            self._record.outcome = "client_left"
            whole.cancel()

    async def _tick(self, outbox: ObjectSendStream[Reply | Chunk]) -> None:
        with self._helpers[1]:
            async with outbox:
                while (deadline := self._keepalive.next_deadline()) is not None:
                    await anyio.sleep_until(deadline)
                    async with self._turn:
                        if not self._keepalive.due(anyio.current_time()):
                            continue
                        beat = self._heartbeat()
                        if not beat:
                            return
                        self._started = True
                        await outbox.send(Chunk(beat, last=False))
                        self._keepalive.sent(anyio.current_time())

    def _heartbeat(self) -> bytes:
        """A heartbeat behind whatever was held back for the first content."""
        if self._answer is None:
            return self._plan.endpoint.heartbeat
        beat = self._answer.heartbeat()
        return self._answer.data_to_send() + beat if beat else b""

    def _open(self) -> AbstractAsyncContextManager[ResponseLike]:
        plan = self._plan
        return self._door.open(
            "POST", plan.url, plan.headers, plan.translated.body, timeouts=plan.timeouts, proxy=plan.proxy
        )

    def _note_response(self, response: ResponseLike) -> None:
        self._record.upstream_status = response.status
        self._upstream_headers = for_client(response.headers)
        self._upstream_headers += request_ids(response.headers, self._plan.id)

    async def _read_upstream(self, outbox: ObjectSendStream[Reply | Chunk]) -> None:
        async with outbox:
            if self._plan.translated.answers > 1:
                await self._read_legs(self._plan.fan_out(), outbox)
                return
            try:
                async with self._open() as response:
                    self._note_response(response)
                    if not 200 <= response.status < 300:
                        body = await response.read_all(MAX_ERROR_BYTES)
                        async with self._turn:
                            refusal = self._refusal(response.status, body)
                            if self._answer is not None:
                                await self._keep_whole(self._answer)
                            await outbox.send(refusal)
                    else:
                        await self._read_answer(response, outbox)
            except UpstreamError as error:
                await self._fail(fault_of_upstream(error), outbox)

    async def _read_answer(self, response: ResponseLike, outbox: ObjectSendStream[Reply | Chunk]) -> None:
        data = await response.receive()
        answer = self._answer = self._plan.answer(upstream_streams=_is_stream(response.headers, data))
        size = 0
        while data:
            size += len(data)
            if size > MAX_ANSWER_BYTES and not self._plan.streams:
                await self._fail(Fault(FaultKind.SERVER, "the upstream's answer is too large"), outbox)
                return
            answer.receive_data(data)
            if answer.outcome is not Outcome.OPEN:
                break
            if self._plan.streams and (answer.committed or self._started):
                await self._keep_whole(answer)
                async with self._turn:
                    ready = answer.data_to_send()
                    if ready:
                        self._started = True
                        await outbox.send(Chunk(ready, last=False))
            data = await response.receive()
        else:
            answer.receive_eof()
        await self._keep_whole(answer)
        async with self._turn:
            await outbox.send(self._ending(answer))
        with anyio.move_on_after(DRAIN_S):
            while data:
                data = await response.receive()

    async def _read_legs(self, fan: FanOut, outbox: ObjectSendStream[Reply | Chunk]) -> None:
        """Several answers at once, put together. The first leg that fails ends all of them."""
        self._answer = fan
        refusals: list[Reply | Chunk] = []
        async with anyio.create_task_group() as legs:
            for number in range(self._plan.translated.answers):
                legs.start_soon(self._read_leg, fan, number, refusals, legs.cancel_scope, outbox)
        if not refusals:
            fan.receive_eof()
            await self._keep_whole(fan)
        async with self._turn:
            await outbox.send(refusals[0] if refusals else self._ending(fan))

    async def _read_leg(
        self,
        fan: FanOut,
        number: int,
        refusals: list[Reply | Chunk],
        legs: anyio.CancelScope,
        outbox: ObjectSendStream[Reply | Chunk],
    ) -> None:
        try:
            async with self._open() as response:
                self._note_response(response)
                if not 200 <= response.status < 300:
                    body = await response.read_all(MAX_ERROR_BYTES)
                    refusals.append(self._refusal(response.status, body))
                    legs.cancel()
                    return
                data = await response.receive()
                leg = fan.start(number, upstream_streams=_is_stream(response.headers, data))
                size = 0
                while data and leg.outcome is Outcome.OPEN:
                    size += len(data)
                    if size > MAX_ANSWER_BYTES:
                        leg.fail(Fault(FaultKind.SERVER, "the upstream's answer is too large"))
                        break
                    leg.receive_data(data)
                    await self._show(fan, outbox)
                    data = await response.receive()
                leg.receive_eof()
                await self._show(fan, outbox)
        except UpstreamError as error:
            fan.fail(fault_of_upstream(error))
        if fan.outcome is Outcome.FAILED:
            legs.cancel()

    async def _show(self, fan: FanOut, outbox: ObjectSendStream[Reply | Chunk]) -> None:
        fan.merge()
        if self._plan.streams and fan.outcome is Outcome.OPEN and (fan.committed or self._started):
            async with self._turn:
                ready = fan.data_to_send()
                if ready:
                    self._started = True
                    await outbox.send(Chunk(ready, last=False))

    async def _keep_whole(self, answer: ResponseTranslator | Relay | FanOut) -> None:
        """Hand the answer on as soon as it is whole. A relay shows the end before the connection ends."""
        if self._keep is None or self._is_refusal(answer):
            return
        body = answer.whole_body()
        if body is not None:
            await self._keep(body, False)
            self._keep = None

    async def _keep_rest(self) -> None:
        """Hand on what there is of an answer whose client has left in the middle, for the client knows its id."""
        answer = self._answer
        if self._keep is None or answer is None or not self._started:
            return
        left = Fault(FaultKind.TRUNCATED, "the client has left")
        answer.fail(left)
        body = answer.whole_body()
        if body is not None:
            with anyio.move_on_after(KEEP_S, shield=True):
                await self._keep(body, answer.fault is left)

    def _is_refusal(self, answer: ResponseTranslator | Relay | FanOut) -> bool:
        """Whether the answer failed so early that it can be told as a plain error."""
        return (
            answer.fault is not None and not self._started and not (self._plan.streams and answer.committed)
        )

    def _ending(self, answer: ResponseTranslator | Relay | FanOut) -> Reply | Chunk:
        """What tells the client that the answer has ended, well or not, in the form that is still open to it."""
        plan = self._plan
        self._remember_reasoning(answer)
        if answer.fault is not None and self._is_refusal(answer):
            return fault_reply(plan.client, answer.fault, plan.id, self._headers())
        if plan.streams:
            self._started = True
            return Chunk(answer.data_to_send(), last=True)
        headers = [*JSON_HEADERS, *self._headers(answer.losses)]
        return Reply(200, headers, answer.data_to_send())

    def _remember_reasoning(self, answer: ResponseTranslator | Relay | FanOut) -> None:
        """Before the client knows the whole answer, for its next request may come at once."""
        if self._remember is None or isinstance(answer, Relay) or answer.outcome is not Outcome.COMPLETED:
            return
        keepsake = answer.keepsake()
        if keepsake is not None:
            self._remember(keepsake)

    async def _fail(self, fault: Fault, outbox: ObjectSendStream[Reply | Chunk]) -> None:
        """The upstream cannot be called or cannot go on."""
        self._record.error = fault.message
        async with self._turn:
            if self._answer is None and not self._started:
                await outbox.send(fault_reply(self._plan.client, fault, self._plan.id, self._headers()))
                return
            # Where only heartbeats went out, the answer that never came ends as one that broke off.
            answer = self._answer = self._answer or self._plan.answer(upstream_streams=True)
            answer.fail(fault)
            await self._keep_whole(answer)
            await outbox.send(self._ending(answer))

    def _refusal(self, status: int, body: bytes) -> Reply | Chunk:
        """The upstream's error answer, in the client's form."""
        plan = self._plan
        if status < 400:
            status = 502  # a redirect is followed by nobody and is no answer
        if plan.settings.api_key:
            # Some servers repeat the key that they refuse. It is the gateway's, not the client's.
            body = body.replace(plan.settings.api_key.reveal().encode(), MASK.encode())
        status, body, fault = translate_fault(
            status, body, upstream=plan.upstream, client=plan.client, request_id=plan.id
        )
        self._record.error = fault.message
        if not self._started:
            return Reply(status, [*JSON_HEADERS, *self._headers()], body)
        answer = self._answer = plan.answer(upstream_streams=True)
        answer.fail(fault)
        return Chunk(answer.data_to_send(), last=True)

    async def _write_client(self, inbox: ObjectReceiveStream[Reply | Chunk]) -> None:
        send, keepalive = self._send, self._keepalive
        opened = False
        async for item in inbox:
            if isinstance(item, Reply):
                await self._send_reply(item)
                return
            if not opened:
                opened = True
                self._record.status = 200
                self._record.first_byte_s = anyio.current_time() - self._begun
                await send({"type": "http.response.start", "status": 200, "headers": self._stream_headers()})
            self._last_words = item.last
            await send({"type": "http.response.body", "body": item.data, "more_body": not item.last})
            if item.last:
                return
            keepalive.sent(anyio.current_time())

    async def _send_reply(self, reply: Reply) -> None:
        self._record.status = reply.status
        self._record.first_byte_s = anyio.current_time() - self._begun
        self._last_words = True
        await send_reply(self._send, reply)

    def _headers(self, of_answer: Ledger | None = None) -> HeaderList:
        """What goes with every answer: the upstream's limits and id, and what was lost."""
        return [
            *(self._upstream_headers or request_ids((), self._plan.id)),
            *loss_header(self._plan.translated.losses, of_answer),
        ]

    def _stream_headers(self) -> list[tuple[bytes, bytes]]:
        media_type = self._plan.endpoint.media_type
        headers = [("content-type", media_type), *STREAM_HEADERS, *self._headers()]
        if not self._plan.translated.relayed:
            # The client is told a figure before the upstream tells one; the true one follows at the end.
            headers += ESTIMATES.get(self._plan.client.name, [])
        if self._http1:  # RFC 9113, 8.2.2: HTTP/2 has no connection-specific header fields
            headers.append(("connection", "keep-alive"))
        return encode_headers(headers)

    def _note_end(self) -> None:
        record, answer = self._record, self._answer
        record.losses = [f"{loss.code.value} {loss.path}" for loss in self._plan.translated.losses]
        if answer is not None:
            record.losses += [f"{loss.code.value} answer:{loss.path}" for loss in answer.losses]
            record.input_tokens = answer.usage.input
            record.output_tokens = answer.usage.output
            record.cached_tokens = answer.usage.cached
            if answer.fault is not None:
                record.error = answer.fault.message
        if record.outcome == "open":
            failed = record.error is not None
            record.outcome = "failed" if failed else "completed"


async def send_reply(send: Send, reply: Reply) -> None:
    """A whole response. Its length is known, so nothing needs to be chunked."""
    headers = [*reply.headers, ("content-length", str(len(reply.body)))]
    await send({"type": "http.response.start", "status": reply.status, "headers": encode_headers(headers)})
    await send({"type": "http.response.body", "body": reply.body, "more_body": False})


def encode_headers(headers: HeaderList) -> list[tuple[bytes, bytes]]:
    """ASGI wants bytes. Values came through HTTP before, so latin-1 can hold them."""
    return [(name.encode("ascii"), value.encode("latin-1", "replace")) for name, value in headers]


def _is_stream(headers: list[tuple[str, str]], first: bytes) -> bool:
    """Whether a 200 answer is a stream of events. The first byte tells: content types are often wrong."""
    start = first.lstrip(b" \t\r\n")[:1]
    if start:
        return start not in (b"{", b"[")
    return any(name == "content-type" and "text/event-stream" in value for name, value in headers)
