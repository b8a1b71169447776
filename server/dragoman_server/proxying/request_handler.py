"""One request, one task group: everything that a request started ends with it.

Strategy: four tasks in one group. The disconnect watcher cancels reading and writing when the client leaves,
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
from typing import Any, NamedTuple

import anyio
import msgspec
from anyio.abc import ObjectReceiveStream, ObjectSendStream

from dragoman import ErrorKind, Keepalive, Ledger, LossCode, Outcome, Relay, WireError
from dragoman._transforms.reasoning_cache import CachedReasoning
from dragoman.jsontext import JSONObject, encode
from dragoman_server.accounts.error_actions import ErrorAction
from dragoman_server.headers import (
    ESTIMATE_AT_START,
    JSON_HEADERS,
    STREAM_HEADERS,
    HeaderList,
    encode_headers,
    remaining_share,
    request_id_headers,
)
from dragoman_server.log import RequestRecord
from dragoman_server.proxying.account_pool import AccountLease, AccountPool, RequestAttempts
from dragoman_server.proxying.attempt import Attempt, AttemptFailure, ResponseMachine
from dragoman_server.proxying.plan import Plan
from dragoman_server.replies import (
    Reply,
    encoded_error_reply,
    error_reply,
    loss_header,
    send_reply,
    with_retry_after,
)
from dragoman_server.upstream.sender import UpstreamSender

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
# Takes what is worth keeping of an answer's reasoning.
CacheReasoning = Callable[[CachedReasoning], None]
# Stores an answer. Arguments: one document, and whether its client left before it was complete. Returns whether it was
# stored.
StoreResponse = Callable[[JSONObject, bool], Awaitable[bool]]

# How long an answer may take to be kept when its client has left: nobody waits for it any more.
STORE_TIMEOUT_S = 5.0

# How long the account of an answer may take to be told that it ended well, when its client has left.
_SETTLE_S = 1.0

_LEFT = WireError(ErrorKind.TRUNCATED, "the client has left")


class Chunk(NamedTuple):
    """Bytes of the client's stream. last: nothing follows."""

    data: bytes
    last: bool


class RequestHandler:
    """One planned request on its way. Call run() once.

    doors: where requests to the upstream of a name go out.
    keep: awaited with the whole answer, once it has ended and before the client is told so: what the client does
        next may rely on it. An answer that fails before the client knows of it is none. The plan must say that it
        is wanted.
    remember: called at the same time with the answer's reasoning, if the client is likely not to send it back.
    """

    def __init__(
        self,
        plan: Plan,
        sender_for: Callable[[str], UpstreamSender],
        receive: Receive,
        send: Send,
        record: RequestRecord,
        *,
        pool: AccountPool,
        keepalive_s: float,
        http1: bool,
        store_response: StoreResponse | None = None,
        cache_reasoning: CacheReasoning | None = None,
    ) -> None:
        self._plan = plan
        self._doors = sender_for
        self._pool = pool
        self._receive = receive
        self._send = send
        self._record = record
        self._http1 = http1
        self._keep = store_response
        self._unkept: JSONObject | None = None  # the answer, if the store did not take it
        self._remember = cache_reasoning
        self._begun = anyio.current_time()
        self._keepalive = Keepalive(keepalive_s, self._begun)
        self._winner: Attempt | None = None  # whose answer the client gets
        self._failed: list[tuple[Attempt, AttemptFailure]] = []
        self._scopes: dict[str, anyio.CancelScope] = {}  # of attempts side by side, by account
        self._answer: ResponseMachine | None = None
        self._upstream_headers: HeaderList = []
        self._started = False  # bytes of the response are out, or on their way
        self._last_words = False  # so are its last ones
        self._unsent = 0  # chunks on their way to `send`
        # Held from taking bytes (or from the decision for a plain error) to the end of the hand-off.
        self._turn = anyio.Lock(fast_acquire=True)
        # Scopes inside of the tasks: on asyncio, a task that its group cancels keeps all that it refers to, the request
        # with its body, until the collector comes.
        self._helpers = anyio.CancelScope(), anyio.CancelScope()
        self._reading, self._writing = anyio.CancelScope(), anyio.CancelScope()

    async def run(self) -> None:
        """Answer the client. Returns when it is answered or has left; a cancelled run leaves nothing behind."""
        outbox, inbox = anyio.create_memory_object_stream[Reply | Chunk](0)
        async with anyio.create_task_group() as tasks, inbox:
            tasks.start_soon(self._watch_disconnect)
            if self._plan.streams:
                tasks.start_soon(self._tick, outbox.clone())
            tasks.start_soon(self._read_upstream, outbox)
            with self._writing:
                await self._write_client(inbox)
            for helper in self._helpers:
                helper.cancel()
        self._note_end()
        if self._record.outcome == "client_left":
            await self._keep_rest()
        # The group's tasks and streams form a reference cycle, which keeps this object until a garbage collection.
        self._answer = self._winner = self._unkept = None
        self._failed.clear()

    async def _watch_disconnect(self) -> None:
        with self._helpers[0]:
            while (await self._receive())["type"] != "http.disconnect":
                pass
            if self._last_words:
                return  # servers also say "disconnect" when a response is complete
            self._record.outcome = "completed" if self._has_end() else "client_left"
            self._reading.cancel()
            self._writing.cancel()

    def _has_end(self) -> bool:
        """Settle the answer of a client that leaves, and tell whether it was sent its end.

        A relay may know so only now: there are clients that leave, and servers that end, with a finish reason.
        """
        answer = self._answer
        if answer is None:
            return False
        sent = not (self._unsent or answer.data_to_send())
        answer.fail(_LEFT)
        return sent and answer.outcome is Outcome.COMPLETED

    async def _hand_over(self, item: Reply | Chunk, outbox: ObjectSendStream[Reply | Chunk]) -> None:
        self._unsent += 1
        await outbox.send(item)

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
                        await self._hand_over(Chunk(beat, last=False), outbox)
                        self._keepalive.sent(anyio.current_time())

    def _heartbeat(self) -> bytes:
        """Between frames. What is held back for the first content stays: another attempt may begin anew."""
        if self._winner is None:
            return self._plan.endpoint.heartbeat
        answer = self._winner.machine
        assert answer is not None
        beat = answer.heartbeat()
        return answer.data_to_send() + beat if beat else b""

    # The attempts.

    async def _read_upstream(self, outbox: ObjectSendStream[Reply | Chunk]) -> None:
        self._outbox = outbox
        with self._reading:
            async with outbox, self._pool.attempts(self._plan) as attempts:
                self._attempts = attempts
                while self._winner is None and (lease := await attempts.next()) is not None:
                    await self._try(lease)
                if self._winner is None:
                    await self._give_up(attempts)

    async def _try(self, lease: AccountLease) -> None:
        hedge_s = lease.plan.settings.hedge_s
        if hedge_s > 0:
            await self._hedged(lease, hedge_s)
        else:
            await self._attempt(self._attempt_with(lease))

    def _attempt_with(self, lease: AccountLease) -> Attempt:
        self._plan = lease.plan
        attempt = Attempt(lease, self._doors(lease.plan.settings.name), self, self._pool.clock())
        if self._winner is None:
            self._note(attempt)
        return attempt

    async def _attempt(self, attempt: Attempt) -> AttemptFailure | None:
        """One attempt, and what it says of its account. None: it had the client, or somebody else has."""
        try:
            failure = await self._sent(attempt)
        except anyio.get_cancelled_exc_class():
            answer = attempt.machine
            if attempt is self._winner and answer is not None and answer.outcome is Outcome.COMPLETED:
                with anyio.move_on_after(_SETTLE_S, shield=True):
                    await self._settle(attempt)  # the client has left, but its account has done its work
            raise
        if failure is None:
            if attempt is self._winner:
                await self._settle(attempt)
            return None
        self._failed.append((attempt, failure))
        if self._winner is None:
            self._note(attempt)
        action = await self._attempts.failed(
            attempt.lease, failure.error, failure.retry_after, connecting=failure.connecting
        )
        if action is ErrorAction.RETURN_TO_CLIENT:
            self._cancel_others(attempt)
        return failure

    async def _sent(self, attempt: Attempt) -> AttemptFailure | None:
        """Run the attempt, and again where it may be resent. Each failed run is in the log."""
        record = self._record
        while True:
            record.attempts = self._attempts.made
            begun = anyio.current_time()
            failure = await attempt.run()
            if failure is None:
                return None
            seconds = anyio.current_time() - begun
            record.note_failure(attempt.lease.account, attempt.target, attempt.status, failure.cause, seconds)
            if not (attempt.can_resend(failure) and self._attempts.resend(attempt.lease)):
                return failure

    async def _settle(self, attempt: Attempt) -> None:
        """Tell the account how the answer that the client gets has ended."""
        await self._attempts.ended(
            attempt.lease,
            _fault_of(attempt),
            _tokens_of(attempt),
            remaining_share(attempt.headers, attempt.plan.upstream),
        )

    async def _hedged(self, first: AccountLease, hedge_s: float) -> None:
        """An attempt, and a second one beside it if it gives nothing for a time. The first content decides."""
        ended = anyio.Event()
        outcomes: dict[str, dict[str, object]] = {}  # of those whose answer nobody has seen, by account

        async def run(attempt: Attempt) -> None:
            account = attempt.lease.account
            with self._scopes[account]:
                failure = await self._attempt(attempt)
                if failure is not None:
                    outcomes[account] = {"outcome": "failed"}
            if attempt is not self._winner and account not in outcomes:
                outcomes[account] = {"outcome": "cancelled", **_figures(attempt)}
                await self._attempts.cancelled(attempt.lease, _tokens_of(attempt))
            ended.set()

        async with anyio.create_task_group() as legs:
            self._scopes = {first.account: anyio.CancelScope()}
            legs.start_soon(run, self._attempt_with(first))
            with anyio.move_on_after(hedge_s):
                await ended.wait()
            second = None if ended.is_set() or self._winner is not None else await self._attempts.hedge()
            if second is not None:
                self._scopes[second.account] = anyio.CancelScope()
                legs.start_soon(run, self._attempt_with(second))
        if second is not None:
            other = first.account if self._record.account == second.account else second.account
            self._record.hedge = {"account": other, **outcomes[other]}

    async def _give_up(self, attempts: RequestAttempts) -> None:
        """Tell the client in its own form what went wrong, and when it is worth trying again."""
        plan, error = self._plan, attempts.error
        assert error is not None
        failure = None
        for attempt, each in self._failed:
            if each.error is error:
                failure, error = each, each.reported
                self._note(attempt)
        if failure is None and self._failed:
            # The pool's word. The last attempt says how it came to that.
            last = self._failed[-1][1].reported
            error = msgspec.structs.replace(error, message=f"{error.message} ({last.message})")
        self._record.error = error.message if failure is None else failure.cause
        async with self._turn:
            if self._started:
                # Only heartbeats went out: the answer that never came ends as one that broke off.
                answer = self._answer = plan.response_machine(upstream_streams=True)
                answer.fail(error)
                await self._keep_whole(answer)
                await self._hand_over(Chunk(answer.data_to_send(), last=True), self._outbox)
                return
            self._upstream_headers = [] if failure is None else failure.headers
            headers = with_retry_after(self._headers(), attempts.retry_at)
            if failure is None or failure.status is None:
                reply = error_reply(plan.client, error, plan.id, headers)
            else:
                reply = encoded_error_reply(error.kind, failure.status, failure.body, headers)
            await self._hand_over(reply, self._outbox)

    # What attempts do with the client: see Outlet.

    async def send_ready(self, attempt: Attempt) -> bool:
        if not self._claim(attempt):
            return False
        answer = attempt.machine
        assert answer is not None
        await self._keep_whole(answer)
        async with self._turn:
            ready = answer.data_to_send()
            if ready:
                self._started = True
                await self._hand_over(Chunk(ready, last=False), self._outbox)
        return True

    async def finish(self, attempt: Attempt) -> bool:
        if not self._claim(attempt):
            return False
        answer = attempt.machine
        assert answer is not None
        await self._keep_whole(answer)
        async with self._turn:
            await self._hand_over(self._ending(answer), self._outbox)
        return True

    def _claim(self, attempt: Attempt) -> bool:
        """Whether the client gets this attempt's answer. The first one that asks does, and the others end."""
        if self._winner is None:
            self._winner = attempt
            self._answer, self._plan = attempt.machine, attempt.plan
            self._upstream_headers = attempt.headers
            self._note(attempt)
            self._attempts.committed()
            self._cancel_others(attempt)
        return self._winner is attempt

    def _note(self, attempt: Attempt) -> None:
        """The log says of this attempt what it says of one."""
        record, plan = self._record, attempt.plan
        record.account, record.upstream_status = attempt.lease.account, attempt.status
        record.upstream, record.upstream_protocol = plan.settings.name, plan.upstream.name
        record.upstream_model = plan.upstream_model

    def _cancel_others(self, attempt: Attempt) -> None:
        for account, scope in self._scopes.items():
            if account != attempt.lease.account:
                scope.cancel()

    async def _keep_whole(self, answer: ResponseMachine) -> None:
        """Hand the answer on as soon as it is whole. A relay shows the end before the connection ends."""
        if self._keep is None or self._is_refusal(answer):
            return
        body = answer.whole_body()
        if body is not None:
            if not await self._keep(body, False):
                self._unkept = body
                answer.losses.dropped("/store", "the gateway's store could not keep the answer")
            self._keep = None

    async def _keep_rest(self) -> None:
        """Hand on what there is of an answer whose client has left in the middle, for the client knows its id."""
        answer = self._answer
        if self._keep is None or answer is None or not self._started:
            return
        body = answer.whole_body()
        if body is not None:
            with anyio.move_on_after(STORE_TIMEOUT_S, shield=True):
                await self._keep(body, answer.error is _LEFT)

    def _is_refusal(self, answer: ResponseMachine) -> bool:
        """Whether the answer failed so early that it can be told as a plain error."""
        return (
            answer.error is not None and not self._started and not (self._plan.streams and answer.committed)
        )

    def _ending(self, answer: ResponseMachine) -> Reply | Chunk:
        """What tells the client that the answer has ended, well or not."""
        self._remember_reasoning(answer)
        if self._plan.streams:
            self._started = True
            return Chunk(answer.data_to_send(), last=True)
        headers = [*JSON_HEADERS, *self._headers(answer.losses)]
        body = answer.data_to_send()
        if self._unkept is not None and not isinstance(answer, Relay):
            body = encode({**self._unkept, "store": False})
        return Reply(200, headers, body)

    def _remember_reasoning(self, answer: ResponseMachine) -> None:
        """Before the client knows the whole answer, for its next request may come at once."""
        if self._remember is None or isinstance(answer, Relay) or answer.outcome is not Outcome.COMPLETED:
            return
        cached_reasoning = answer.cached_reasoning()
        if cached_reasoning is not None:
            self._remember(cached_reasoning)

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
            self._unsent -= 1
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
        losses = loss_header(self._plan.translated.losses, of_answer)
        return [
            *(self._upstream_headers or request_id_headers((), self._plan.id)),
            *((name, self._plan.scrub(value)) for name, value in losses),
        ]

    def _stream_headers(self) -> list[tuple[bytes, bytes]]:
        media_type = self._plan.endpoint.media_type
        headers = [("content-type", media_type), *STREAM_HEADERS, *self._headers()]
        if self._plan.client.usage_at_start and not self._plan.translated.relayed:
            # The client is told a figure before the upstream tells one; the true one follows at the end.
            headers += ESTIMATE_AT_START
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
            record.cache_write_tokens = answer.usage.cache_write
            if any(loss.code is LossCode.ESTIMATED for loss in answer.losses):
                record.estimated = True
            if answer.error is not None and answer.error is not _LEFT and record.error is None:
                record.error = answer.error.message
            if record.outcome == "client_left" and answer.outcome is Outcome.COMPLETED:
                record.upstream_completed = True
        if record.outcome == "open":
            failed = record.error is not None
            record.outcome = "failed" if failed else "completed"


def _fault_of(attempt: Attempt) -> WireError | None:
    return None if attempt.machine is None else attempt.machine.error


def _tokens_of(attempt: Attempt) -> float:
    """All that it used, as far as the upstream has said so."""
    if attempt.machine is None:
        return 0
    usage = attempt.machine.usage
    return (usage.input or 0) + (usage.output or 0)


def _figures(attempt: Attempt) -> dict[str, object]:
    """What an attempt cost, for the log: upstreams count it as far as they got."""
    if attempt.machine is None:
        return {}
    usage = attempt.machine.usage
    figures = {"input_tokens": usage.input, "output_tokens": usage.output}
    return {name: figure for name, figure in figures.items() if figure is not None}
