"""Carry out a planned request in one task group: everything that a request starts ends with it.

Four tasks: the disconnect watcher cancels reading and writing when the client leaves; the upstream reader owns the
upstream response, so that cancelling it closes that connection at once; the ticker sends heartbeats during silence;
the writer is the only one that calls `send`, so that nothing that ends a reader cuts a write. Reader and ticker pass it
their bytes by an Outbox, where a reader waits that is ahead of a slow client. A response without a stream needs no
ticker, and its reader writes it: one task is both. Expected failures are values (a Reply, or an error in the stream);
only bugs, and what `send` raises, are raised.

Nothing is sent before there is content, because until then a failure can still be a plain HTTP error, on which clients
retry. Only a heartbeat that is due may come first.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import msgspec
from starlette.types import Receive, Send

from dragoman import Keepalive, Ledger, Outcome, Relay, ResponseMachine
from dragoman.document import CachedReasoning
from dragoman.jsontext import JSONObject, encode
from dragoman_server.accounts.error_actions import ErrorAction
from dragoman_server.cancellation import return_if_cancelled
from dragoman_server.clock import event_loop_clock
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
from dragoman_server.proxying.account_pool import AccountLease, AccountPool
from dragoman_server.proxying.attempt import Attempt, AttemptFailure
from dragoman_server.proxying.destinations import record_destination
from dragoman_server.proxying.outbox import Outbox
from dragoman_server.proxying.plan import Plan
from dragoman_server.proxying.records import CLIENT_LEFT, note_failure, record_end
from dragoman_server.replies import (
    Reply,
    encoded_error_reply,
    error_reply,
    loss_header,
    send_reply,
    with_retry_after,
)
from dragoman_server.streams.byte_stream import WriteNow
from dragoman_server.upstream.sender import UpstreamSender

if TYPE_CHECKING:
    from dragoman_server.telemetry.tracing import RequestTrace

# Caches the reasoning of a response.
CacheReasoning = Callable[[CachedReasoning], None]
# Stores a response: its document, and true if its client left before it was complete. Returns false if it could not.
StoreResponse = Callable[[JSONObject, bool], Awaitable[bool]]

# Seconds for storing a response whose client has left.
STORE_TIMEOUT_S = 5.0

# Seconds for reporting a success to the account of a response whose client has left.
_REPORT_S = 1.0


class RequestHandler:
    """The tasks of one request: its attempts, its client's receive and send, and what was sent so far. Call run() once.

    reply: the whole response, if it was one.

    Args:
        plan: the first plan of the chain.
        sender_for: returns what sends requests to the upstream of a name.
        receive, send: the client's, as in ASGI. Without `send`, a whole reply is left in `reply` instead.
        write_now: passes bytes of the body past `send`, see Outbox.
        record: gets the outcome, the usage and the losses.
        pool: chooses the accounts.
        keepalive_s: seconds of silence after which a heartbeat is sent, 0 for none.
        needs_usage: estimate the tokens of the prompt before the request is released, if they are not reported by then.
        store_response: awaited with the complete response before the client gets its end, because the client's next
            request may refer to it. Not called for one that fails while it can still be a plain error. Needs
            `Plan.store_response`.
        cache_reasoning: called at the same time with the response's reasoning, if the client will probably not send it
            back.
        trace: gets the attempts.
    """

    def __init__(
        self,
        plan: Plan,
        sender_for: Callable[[str], UpstreamSender],
        receive: Receive,
        send: Send | None,
        record: RequestRecord,
        *,
        pool: AccountPool,
        keepalive_s: float,
        needs_usage: bool = False,
        write_now: WriteNow | None = None,
        store_response: StoreResponse | None = None,
        cache_reasoning: CacheReasoning | None = None,
        trace: "RequestTrace | None" = None,
    ) -> None:
        self.reply: Reply | None = None
        self._plan = plan
        self._sender_for, self._clock = sender_for, pool.clock
        self._attempts = pool.attempts(plan)
        self._receive, self._send = receive, send
        self._record = record
        self._needs_usage, self._holds_request = needs_usage, True
        self._store_response = store_response
        self._unstored: JSONObject | None = None  # the response, if it could not be stored
        self._cache_reasoning, self._trace = cache_reasoning, trace
        self._time = event_loop_clock()
        self._started_at = self._time()
        self._keepalive = Keepalive(keepalive_s, self._started_at)
        self._winner: Attempt | None = None  # the client gets the response of this one
        self._failed: list[tuple[Attempt, AttemptFailure]] = []
        self._scopes: dict[str, anyio.CancelScope] = {}  # of attempts side by side, by account
        self._machine: ResponseMachine | None = None
        self._upstream_headers: HeaderList = []
        self._started = False  # bytes of the response are out, or on their way
        self._end_sent = False  # the final body message has been handed to the server
        # Whatever takes bytes from a machine puts them here before its next await, so they stay in order.
        self._outbox = Outbox(write_now)
        # Each task is cancelled by itself, see return_if_cancelled().
        self._writing = anyio.CancelScope()
        self._reading: anyio.TaskHandle[None] | None = None  # without a stream it is a part of writing

    async def run(self) -> None:
        """Send the response. Return when it is sent or the client has left; a cancelled run leaves nothing behind."""
        async with anyio.create_task_group() as tasks:
            beside = [tasks.start_soon(self._watch_disconnect, name="watch")]
            with self._writing:
                # A client that has left already costs no request. Two, because in trio tasks that become ready together
                # run in any order.
                for _ in range(2):
                    await anyio.lowlevel.checkpoint()
                if self._plan.streams:
                    self._reading = tasks.start_soon(return_if_cancelled, self._read_upstream, name="read")
                    beside.append(tasks.start_soon(self._tick, name="tick"))
                    await self._write_client()
                else:
                    await self._read_upstream()
            for task in beside:
                task.cancel()
        left = self._record.outcome == "client_left"
        if left and self._machine is not None:
            self._machine.fail(CLIENT_LEFT)  # if a thread has used it till now
        record_end(self._record, self._plan, self._machine, self._winner, self._started_at)
        if left:
            await self._store_partial()
        # The group and its tasks form a reference cycle, which holds this object until a garbage collection.
        self._machine = self._winner = self._unstored = None
        self._failed.clear()

    async def _watch_disconnect(self) -> None:
        try:
            while (await self._receive())["type"] != "http.disconnect":
                pass
        except anyio.get_cancelled_exc_class():
            return
        if self._end_sent:
            return  # servers also send "disconnect" when a response is complete
        self._record.outcome = "completed" if self._end_for_disconnect() else "client_left"
        if self._reading is not None:
            self._reading.cancel()
        self._writing.cancel()

    def _end_for_disconnect(self) -> bool:
        """End the response of a client that leaves. Return true if the client has got all of it.

        A relay may find out only here: some clients leave, and some servers end, at the finish reason.
        """
        machine = self._machine
        if machine is None or self._translating is not None:
            return False
        sent = not (self._outbox.unsent or machine.data_to_send())
        machine.fail(CLIENT_LEFT)
        return sent and machine.outcome is Outcome.COMPLETED

    async def _tick(self) -> None:
        try:
            while (deadline := self._keepalive.next_deadline()) is not None:
                await anyio.sleep(max(0.0, deadline - self._time()))
                await self._outbox.sent()  # bytes on their way are as good as a heartbeat
                if not self._keepalive.due(self._time()):
                    continue
                if (translating := self._translating) is not None:
                    await translating.wait()
                    continue
                heartbeat = self._heartbeat()
                if not heartbeat:
                    return
                self._put(heartbeat)
        except anyio.get_cancelled_exc_class():
            return

    @property
    def _translating(self) -> anyio.Event | None:
        """See Attempt. Nothing but its thread uses the machine meanwhile."""
        return None if self._winner is None else self._winner.translating

    def _put(self, data: bytes) -> bool:
        """Put bytes of the stream into the outbox. Return true if the client's connection has them."""
        self._started = True
        passed = self._outbox.put(data)
        if passed:
            self._keepalive.sent(self._time())
        return passed

    def _heartbeat(self) -> bytes:
        """Return bytes to send between frames. Held-back events stay, because another attempt may start again."""
        if self._winner is None:
            return self._plan.endpoint.heartbeat
        machine = self._winner.machine
        assert machine is not None
        heartbeat = machine.heartbeat()
        return machine.data_to_send() + heartbeat if heartbeat else b""

    # The attempts.

    async def _read_upstream(self) -> None:
        try:
            try:
                while self._winner is None and (lease := await self._attempts.next()) is not None:
                    hedge_s = lease.plan.destination.settings.hedge_s
                    if hedge_s > 0:
                        await self._hedged(lease, hedge_s)
                    else:
                        await self._attempt(self._attempt_with(lease))
                if self._winner is None:
                    await self._give_up()
            finally:
                await self._attempts.close()
        finally:
            self._outbox.close()

    def _attempt_with(self, lease: AccountLease) -> Attempt:
        self._plan = lease.plan
        sender = self._sender_for(lease.plan.destination.settings.name)
        # The store waits until the response is complete, which the machine knows only after a read.
        put = self._put_ready if self._store_response is None else None
        attempt = Attempt(lease, sender, self._take_ready, put, self._clock())
        if self._winner is None:
            self._record_attempt(attempt)
        return attempt

    async def _attempt(self, attempt: Attempt) -> AttemptFailure | None:
        """Make one attempt, and report its outcome to its account. None: the client gets this response, or another."""
        try:
            failure = await self._run_and_resend(attempt)
        except anyio.get_cancelled_exc_class():
            machine = attempt.machine
            if attempt is self._winner and machine is not None and machine.outcome is Outcome.COMPLETED:
                with anyio.move_on_after(_REPORT_S, shield=True):
                    # The client has left, but the account did complete the response.
                    await self._report_end(attempt)
            raise
        if failure is None:
            if attempt is self._winner:
                await self._report_end(attempt)
            return None
        self._failed.append((attempt, failure))
        if self._winner is None:
            self._record_attempt(attempt)
        action = await self._attempts.failed(
            attempt.lease, failure.error, failure.retry_after, connecting=failure.connecting
        )
        if action is ErrorAction.RETURN_TO_CLIENT and self._winner is None:
            self._cancel_others(attempt)
        return failure

    async def _run_and_resend(self, attempt: Attempt) -> AttemptFailure | None:
        """Run the attempt, and run it again where it may be resent. Each failed run is in the log."""
        while True:
            self._record.attempts = self._attempts.made
            started = self._time()
            failure = await (attempt.run() if self._trace is None else attempt.run_traced(self._trace))
            if failure is None:
                return None
            note_failure(self._record, attempt, failure, self._time() - started)
            if not (await attempt.can_resend(failure) and self._attempts.resend(attempt.lease)):
                return failure

    async def _report_end(self, attempt: Attempt) -> None:
        """Report to the account how the response that the client gets has ended."""
        share = remaining_share(attempt.headers, attempt.plan.destination.upstream)
        await self._attempts.ended(attempt.lease, attempt.error, attempt.tokens, share)

    async def _hedged(self, first: AccountLease, hedge_s: float) -> None:
        """Make an attempt, and a second one beside it if `hedge_s` pass without content. The first content decides."""
        ended = anyio.Event()
        # By account, of attempts whose response the client does not get.
        outcomes: dict[str, dict[str, object]] = {}

        async def run(attempt: Attempt) -> None:
            account = attempt.lease.account.id
            with self._scopes[account]:
                failure = await self._attempt(attempt)
                if failure is not None:
                    outcomes[account] = {"outcome": "failed"}
            if attempt is not self._winner and account not in outcomes:
                outcomes[account] = {"outcome": "cancelled", **attempt.usage_figures}
                await self._attempts.cancelled(attempt.lease, attempt.tokens)
            del self._scopes[account]
            ended.set()
            await self._release_request()

        async with anyio.create_task_group() as attempts:
            self._scopes = {first.account.id: anyio.CancelScope()}
            attempts.start_soon(return_if_cancelled, run, self._attempt_with(first))
            with anyio.move_on_after(hedge_s):
                await ended.wait()
            second = None if ended.is_set() or self._winner is not None else await self._attempts.hedge()
            if second is not None:
                self._scopes[second.account.id] = anyio.CancelScope()
                attempts.start_soon(return_if_cancelled, run, self._attempt_with(second))
        await anyio.lowlevel.checkpoint_if_cancelled()  # see return_if_cancelled()
        if second is not None:
            ids = [first.account.id, second.account.id]
            other = ids[0] if self._record.account == ids[1] else ids[1]
            self._record.hedge = {"account": other, **outcomes[other]}

    async def _give_up(self) -> None:
        """Send the client an error in its own form, with the time after which a retry makes sense."""
        plan, error = self._plan, self._attempts.error
        assert error is not None
        failure = None
        for attempt, each in self._failed:
            if each.error is error:
                failure, error = each, each.reported
                plan = self._plan = attempt.plan
                self._record_attempt(attempt)
        if failure is None and self._failed:
            # The pool made this error. The last attempt's error explains it.
            last = self._failed[-1][1].reported
            error = msgspec.structs.replace(error, message=f"{error.message} ({last.message})")
        elif failure is None and self._attempts.unsuitable is not None:
            record_destination(self._record, self._attempts.unsuitable)
        self._record.error = error.message if failure is None else failure.cause
        self._record.error_kind = error.kind.value
        if self._started:
            # Only heartbeats went out: end the stream as one that broke off.
            machine = self._machine = plan.response_machine(upstream_streams=True)
            machine.fail(error)
            await self._store_when_complete(machine)
            await self._end(machine.data_to_send())
            return
        self._upstream_headers = [] if failure is None else failure.headers
        headers = with_retry_after(self._headers(), self._attempts.retry_at)
        if failure is None or failure.status is None:
            reply = error_reply(plan.client, error, plan.id, headers)
        else:
            reply = encoded_error_reply(error.kind, failure.status, failure.body, headers)
        await self._end(reply)

    async def _take_ready(self, attempt: Attempt) -> bool:
        """Take what an attempt has for the client. False: another attempt was faster, so this one must end."""
        machine = attempt.machine
        assert machine is not None
        if not self._claim(attempt):
            return False
        await self._store_when_complete(machine)
        if attempt.ended:
            await self._release_request()
            await self._end(self._end_of(machine))
        elif ready := machine.data_to_send():
            self._put(ready)
            await self._release_request()
            await self._outbox.room()
        return True

    async def _release_request(self) -> None:
        """Let go of the request once no other attempt sends it: a stream or a slow client may last for hours."""
        winner, machine = self._winner, self._machine
        if winner is None or machine is None or self._scopes.keys() - {winner.lease.account.id}:
            return
        if self._holds_request:
            self._holds_request = False
            estimate = self._needs_usage and machine.usage.input is None
            await self._attempts.release_requests(winner.plan, estimate=estimate)

    async def _end(self, last: bytes | Reply) -> None:
        """Put the end of the response into the outbox. Without a stream, this task writes it."""
        self._outbox.end(last)
        if self._reading is None:
            await self._write_client()

    def _put_ready(self, attempt: Attempt) -> bool:
        """Take what the winner has for the client. False: its reader must wait for room."""
        assert attempt.machine is not None
        ready = attempt.machine.data_to_send()
        return not ready or self._put(ready) or self._outbox.has_room

    def _claim(self, attempt: Attempt) -> bool:
        """True if the client gets this attempt's response. The first attempt that calls this wins; the others end."""
        if self._winner is None:
            self._winner = attempt
            self._machine, self._plan = attempt.machine, attempt.plan
            self._upstream_headers = attempt.headers
            self._record_attempt(attempt)
            self._attempts.committed()
            self._cancel_others(attempt)
        return self._winner is attempt

    def _record_attempt(self, attempt: Attempt) -> None:
        """Make this the attempt that the log line is about."""
        self._record.account, self._record.upstream_status = attempt.lease.account.id, attempt.status
        record_destination(self._record, attempt.plan.destination)

    def _cancel_others(self, attempt: Attempt) -> None:
        for account, scope in self._scopes.items():
            if account != attempt.lease.account.id:
                scope.cancel()

    async def _store_when_complete(self, machine: ResponseMachine) -> None:
        """Store the response as soon as it is complete. A relay has its end before the connection ends."""
        if self._store_response is None or self._is_plain_error(machine):
            return
        body = machine.whole_body()
        if body is not None:
            if not await self._store_response(body, False):
                self._unstored = body
                machine.losses.dropped("/store", "the gateway's store could not store the response")
            self._store_response = None

    async def _store_partial(self) -> None:
        """Store what there is of a response whose client left in the middle, because the client has its id."""
        machine = self._machine
        if self._store_response is None or machine is None or not self._started:
            return
        body = machine.whole_body()
        if body is not None:
            with anyio.move_on_after(STORE_TIMEOUT_S, shield=True):
                await self._store_response(body, machine.error is CLIENT_LEFT)

    def _is_plain_error(self, machine: ResponseMachine) -> bool:
        """True if the response failed so early that it can be a plain HTTP error."""
        committed = self._plan.streams and machine.committed
        return machine.error is not None and not self._started and not committed

    def _end_of(self, machine: ResponseMachine) -> bytes | Reply:
        """Return the last bytes of the stream, completed or failed, or the whole response."""
        self._cache_reasoning_of(machine)
        body = machine.data_to_send()
        if self._plan.streams:
            self._started = True
            return body
        if self._unstored is not None and not isinstance(machine, Relay):
            body = encode({**self._unstored, "store": False})
        return Reply(200, [*JSON_HEADERS, *self._headers(machine.losses)], body)

    def _cache_reasoning_of(self, machine: ResponseMachine) -> None:
        """Cache it before the client has the whole response, because its next request may come at once."""
        if self._cache_reasoning is None or machine.outcome is not Outcome.COMPLETED:
            return
        if (cached_reasoning := machine.cached_reasoning()) is not None:
            self._cache_reasoning(cached_reasoning)

    async def _write_client(self) -> None:
        head_sent = False
        while (item := await self._outbox.take()) is not None:
            if isinstance(item, Reply):
                self._record_head(item.status)
                self._end_sent = True
                self.reply = item
                if self._send is not None:
                    await send_reply(self._send, item)
                return
            assert self._send is not None  # only plans that do not stream go without
            if not head_sent:
                head_sent = True
                self._record_head(200)
                await self._send(
                    {"type": "http.response.start", "status": 200, "headers": self._stream_headers()}
                )
            self._end_sent = item.last
            await self._send({"type": "http.response.body", "body": item.data, "more_body": not item.last})
            if item.last:
                return
            self._keepalive.sent(self._time())
            del item  # its bytes are not needed while the next ones are awaited

    def _record_head(self, status: int) -> None:
        self._record.status = status
        self._record.first_byte_s = self._time() - self._started_at

    def _headers(self, response_losses: Ledger | None = None) -> HeaderList:
        """Return the headers of every response: the upstream's limits and id, and what was lost."""
        losses = loss_header(self._plan.losses, response_losses)
        return [
            *(self._upstream_headers or request_id_headers(self._plan.id)),
            *((name, self._plan.scrub(value)) for name, value in losses),
        ]

    def _stream_headers(self) -> list[tuple[bytes, bytes]]:
        media_type = self._plan.endpoint.media_type
        headers = [("content-type", media_type), *STREAM_HEADERS, *self._headers()]
        if self._plan.client.usage_at_start and not self._plan.relayed:
            # The client gets a figure before the upstream has sent one; the true one follows at the end.
            headers += ESTIMATE_AT_START
        return encode_headers(headers)
