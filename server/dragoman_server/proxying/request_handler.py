"""Carry out a planned request in one cancel scope: everything that a request starts ends with it.

A client that leaves cancels the scope. The upstream reader owns the upstream response, so that cancelling it closes
that connection immediately. It passes the bytes of a stream to a ClientStream, and waits there if it is ahead of a slow
client. The reader of a whole response writes it. Expected failures are values (a Reply, or an error in the stream);
only bugs, and what the client's channel raises, are raised.

Nothing is sent before there is content, because until then a failure can still be a plain HTTP error, on which clients
retry. Only a heartbeat that is due may come first.

That the client leaves is noticed in `serving/connection.py`; `Attempt.run` closes the upstream's response then.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import msgspec

from dragoman import Keepalive, Ledger, Outcome, Relay, ResponseMachine
from dragoman.jsontext import JSONObject, encode
from dragoman_server.accounts.usage import estimate_input
from dragoman_server.platform.cancellation import RestOfTask, return_if_cancelled
from dragoman_server.platform.off_loop import off_loop
from dragoman_server.policy.error_actions import ErrorAction
from dragoman_server.proxying.attempt import LOST, NOW, WAIT, Attempt, Delivery
from dragoman_server.proxying.client_request import SCOPE_SENDERS, ClientRequest
from dragoman_server.proxying.client_stream import ClientStream
from dragoman_server.proxying.destinations import record_destination
from dragoman_server.proxying.plan import Plan
from dragoman_server.proxying.records import CLIENT_LEFT, note_failure, record_end
from dragoman_server.proxying.upstream_errors import AttemptFailure
from dragoman_server.wire import replies
from dragoman_server.wire.headers import (
    JSON_HEADERS,
    HeaderList,
    encode_headers,
    loss_header,
    request_id_headers,
)

if TYPE_CHECKING:
    from dragoman_server.gateway import Gateway

# Stores a response: its document, and true if its client left before it was complete. Returns false if it could not.
StoreResponse = Callable[[JSONObject, bool], Awaitable[bool]]

# Seconds for storing a response whose client has left.
STORE_TIMEOUT_S = 5.0

# Seconds for reporting a success to the account of a response whose client has left.
_REPORT_S = 1.0
# Shorter ones are left out of the log, as those of nearly all requests.
_NOTED_S = 0.001


class RequestHandler:
    """The tasks of one request: connects its ClientRequest with an Attempt for its Plan. Call run() once.

    Args:
        request: gets the response, its outcome, the usage and the losses.
        plan: the first one of the chain.
        gateway: serves the request.
        sends: false only returns the response, a whole one.
        store_response: awaited with the complete response before the client gets its end, because the client's next
            request may refer to it. Not called for one that fails while it can still be a plain error. Needs
            `Plan.store_response`.
        is_last: nothing that has to wait follows run() for this request, but what is shielded.
    """

    _scope: anyio.CancelScope | RestOfTask  # of everything, from run() on

    # What is there later.
    _reply: replies.Reply | None = None  # the response, if it is a whole one
    _first_content_s: float | None = None  # of the winner
    _machine: ResponseMachine | None = None
    _upstream_headers: Sequence[tuple[str, str]] = ()
    _end_sent = False  # the whole response has been handed to the server
    _started = False  # bytes of the response are out, or on their way

    def __init__(
        self,
        request: ClientRequest,
        plan: Plan,
        gateway: "Gateway",
        *,
        sends: bool = True,
        store_response: StoreResponse | None = None,
        is_last: bool = False,
    ) -> None:
        self._is_last, self._sends = is_last, sends
        self._request, self._record = request, request.record
        self._plan = request.plan = plan
        self._gateway = gateway
        listening = request.scope.get(SCOPE_SENDERS)
        self._listened = None if listening is None else listening(plan, request.record)
        self._attempts = gateway.pool.attempts(plan)
        self._holds_request = True
        self._store_response = store_response
        self._unstored: JSONObject | None = None  # the response, if it could not be stored
        self._telemetry = request.telemetry
        self._time = request.time
        self._started_at = self._time()
        if (planned := self._started_at - request.started) >= _NOTED_S:
            self._record.planned_s = planned
        self._winner: Attempt | None = None  # the client gets the response of this one
        self._failed: list[tuple[Attempt, AttemptFailure]] = []
        self._scopes: dict[str, anyio.CancelScope] = {}  # of attempts side by side, by account
        self._stream: ClientStream | None = None  # that the client gets, while this runs
        self._record.model, self._record.stream = plan.context.model or None, plan.streams
        record_destination(self._record, plan.destination)
        if request.telemetry is not None:
            request.telemetry.planned(stream=plan.streams, losses=plan.losses, session=plan.conversation)

    async def run(self) -> replies.Reply | None:
        """Send the response, and return it if it is a whole one. A cancelled run leaves nothing behind.

        It returns, too, when the client has left.
        """
        if self._plan.streams:
            async with anyio.create_task_group() as tasks:
                self._scope = tasks.cancel_scope
                keepalive = Keepalive(self._gateway.settings.server.keepalive_s, self._started_at)
                self._stream = ClientStream(self, self._request, tasks, keepalive)
                try:
                    await self._request.watch(self._read_upstream, self._client_has_left)
                finally:
                    self._request.unwatch()
                    self._stream.stop()
        else:
            rest_of_task = self._request.rest_of_task if self._is_last else None
            with anyio.CancelScope() if rest_of_task is None else rest_of_task() as self._scope:
                try:
                    await self._request.watch(self._read_upstream, self._client_has_left)
                finally:
                    self._request.unwatch()
        left = self._record.outcome == "client_left"
        if left and self._machine is not None:
            self._machine.fail(CLIENT_LEFT)  # if a thread has used it till now
        record_end(self._record, self._plan, self._machine, self._first_content_s)
        if left:
            await self._store_partial()
        # The group and its tasks form a reference cycle, which holds this object until a garbage collection.
        self._machine = self._winner = self._unstored = self._stream = None
        self._failed.clear()
        return self._reply

    def _client_has_left(self) -> None:
        if not (self._end_sent if self._stream is None else self._stream.end_sent):
            self._scope.cancel()  # whatever follows
            self._record.outcome = "completed" if self._end_for_disconnect() else "client_left"

    def _end_for_disconnect(self) -> bool:
        """End the response of a client that leaves. Return true if the client has got all of it.

        A relay may find out only here: some clients leave, and some servers end, at the finish reason.
        """
        machine = self._machine
        if machine is None or self.translating is not None:
            return False
        unsent = self._stream is not None and self._stream.outbox.unsent
        sent = not (unsent or machine.data_to_send())
        machine.fail(CLIENT_LEFT)
        return sent and machine.outcome is Outcome.COMPLETED

    # What a stream asks for, see StreamSource.

    @property
    def translating(self) -> anyio.Event | None:
        """See Attempt. Nothing but its thread uses the machine meanwhile."""
        return None if self._winner is None else self._winner.translating

    def heartbeat(self) -> bytes:
        """Return bytes to send between frames. Held-back events stay, because another attempt may start again."""
        if self._winner is None:
            heartbeat = self._plan.endpoint.heartbeat_for(self._plan.context)
            if heartbeat and self._plan.endpoint.heartbeat_event is not None:
                self._request.announced = True
        else:
            machine = self._winner.machine
            assert machine is not None
            heartbeat = machine.heartbeat()
            if heartbeat:
                heartbeat = machine.data_to_send() + heartbeat
        self._started = self._started or bool(heartbeat)
        return heartbeat

    def begin_stream(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        winner = self._winner
        status, headers = self._plan.stream_head(
            None if winner is None else winner.status, () if winner is None else winner.raw_headers
        )
        self._record_head(status)
        if winner is not None:
            winner.raw_headers = ()  # a stream may stay open for hours
        return status, encode_headers([*headers, *self._headers()])

    # The attempts.

    async def _read_upstream(self) -> None:
        try:
            while self._winner is None and (attempt := await self._attempts.next()) is not None:
                # Without a name for the plan, which is let go of before its response ends.
                repeatable = attempt.plan.is_repeatable
                hedge_s = attempt.plan.destination.settings.hedge_s if repeatable else 0.0
                if hedge_s > 0:
                    await self._hedged(attempt, hedge_s)
                else:
                    await self._attempt(attempt)
            if self._winner is None:
                await self._give_up()
        except anyio.get_cancelled_exc_class():
            if self._stream and self._started and not (self._scope.cancel_called or self.translating):
                self._stream.fail(self._machine or self._plan.response_machine(upstream_streams=True))
            raise
        finally:
            if self._stream is not None:
                self._stream.outbox.close()
            await self._attempts.close()
        if self._stream is not None:
            await self._stream.outbox.sent()

    async def _attempt(self, attempt: Attempt) -> AttemptFailure | None:
        """Make one attempt, and report its outcome to its account. None: the client gets this response, or another.

        It is made again where it may be resent. Each failed run is in the log.
        """
        if self._winner is None:
            self._follow(attempt)
        to = attempt.plan.destination
        sender = self._gateway.sender_for(to.settings.name)
        if self._listened is not None:
            sender = self._listened(to, attempt.account.id, sender)
        try:
            while True:
                number = self._record.attempts = self._attempts.machine.made
                self._record.skipped = self._attempts.skipped
                started = self._time()
                if (waited := started - self._started_at) >= _NOTED_S:
                    self._record.sent_s = attempt.sent_s = waited
                if (failure := await attempt.run(sender, self, self._telemetry)) is None:
                    break
                note_failure(self._record, attempt, failure, self._time() - started)
                if self._telemetry is not None:
                    self._telemetry.attempt_failed(number)
                if (
                    failure.final
                    or not await attempt.can_resend(failure)
                    or not self._attempts.resend(attempt)
                ):
                    break
        except (anyio.get_cancelled_exc_class(), OSError):
            machine = attempt.machine
            if attempt is self._winner and machine is not None and machine.outcome is Outcome.COMPLETED:
                with anyio.move_on_after(_REPORT_S, shield=True):
                    # The client has left, but the account did complete the response.
                    await self._attempts.ended(attempt)
            raise
        if failure is None:
            if attempt is self._winner:
                await self._attempts.ended(attempt)
            return None
        if self._winner is None:
            self._failed.append((attempt, failure))
            self._follow(attempt)
        action = await self._attempts.failed(attempt, failure)
        if action is ErrorAction.RETURN_TO_CLIENT and self._winner is None:
            self._cancel_others(attempt)
        return failure

    async def _hedged(self, first: Attempt, hedge_s: float) -> None:
        """Make an attempt, and a parallel one if `hedge_s` pass without content. The first content decides."""
        ended = anyio.Event()
        # By account, of attempts whose response the client does not get.
        outcomes: dict[str, dict[str, object]] = {}

        async def run(attempt: Attempt) -> None:
            account = attempt.account.id
            with self._scopes[account]:
                failure = await self._attempt(attempt)
                if failure is not None:
                    outcomes[account] = {"outcome": "failed"}
            if attempt is not self._winner and account not in outcomes:
                outcomes[account] = {"outcome": "cancelled", **attempt.usage_figures}
                await self._attempts.cancelled(attempt)
            del self._scopes[account]
            ended.set()
            await self._release_request()

        async with anyio.create_task_group() as attempts:
            self._scopes = {first.account.id: anyio.CancelScope()}
            attempts.start_soon(return_if_cancelled, run, first)
            with anyio.move_on_after(hedge_s):
                await ended.wait()
            second = None if ended.is_set() or self._winner is not None else await self._attempts.hedge()
            if second is not None:
                self._scopes[second.account.id] = anyio.CancelScope()
                attempts.start_soon(return_if_cancelled, run, second)
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
        for attempt, candidate in self._failed:
            if candidate.error is error:
                failure, error, plan = candidate, candidate.reported, attempt.plan
                self._follow(attempt)
        if failure is None and self._failed:
            # The pool made this error. The last attempt's error explains it.
            last = self._failed[-1][1].reported
            error = msgspec.structs.replace(error, message=f"{error.message} ({last.message})")
        elif failure is None and self._attempts.unsuitable is not None:
            record_destination(self._record, self._attempts.unsuitable)
        self._record.skipped = self._attempts.skipped
        self._record.error = error.message if failure is None else failure.cause
        self._record.error_kind = error.kind.value
        if (retry_at := self._attempts.retry_at) is not None:  # the upstream's own is about one account
            error = msgspec.structs.replace(error, retry_after_s=retry_at)
        if self._started:
            # Only heartbeats went out: end the stream as one that broke off.
            machine = self._machine = plan.response_machine(upstream_streams=True)
            machine.fail(error)
            await self._store_when_complete(machine)
            await self._end_stream(machine.data_to_send())
            return
        self._upstream_headers = () if failure is None else failure.headers
        headers = replies.with_retry_after(self._headers(), retry_at)
        if failure is None or failure.status is None:
            reply = replies.error_reply(plan.client, error, plan.id, headers)
        else:
            reply = replies.encoded_error_reply(error.kind, failure.status, failure.body, headers)
        await self._send_reply(reply)

    # What an attempt has for the client.

    def deliver(self, attempt: Attempt) -> Delivery:
        """Take what an attempt has for the client. See Recipient."""
        if self._winner is not attempt:
            return self._claim(attempt)
        machine, stream = attempt.machine, self._stream
        assert machine is not None
        if attempt.ended or stream is None:
            return WAIT
        ready = machine.data_to_send()
        if ready and stream.outbox.put(ready):
            stream.sent_at = self._time()
            return NOW
        return NOW if stream.outbox.has_room else WAIT

    def _claim(self, attempt: Attempt) -> Delivery:
        """The first attempt that has something wins; the others end.

        Bytes may arrive together with a cancel, which they do not undo.
        """
        scope = self._scopes.get(attempt.account.id)
        is_cancelled = self._scope.cancel_called or (scope is not None and scope.cancel_called)
        if self._winner is not None or is_cancelled:
            return LOST
        self._winner = attempt
        self._first_content_s = self._time() - self._started_at
        self._machine, self._upstream_headers = attempt.machine, attempt.headers
        self._failed.clear()
        self._follow(attempt)
        self._attempts.machine.committed()
        if self._scopes:
            self._cancel_others(attempt)
        return WAIT

    async def finish_delivery(self, attempt: Attempt) -> None:
        """Take the rest, and wait until there is room for more. See Recipient."""
        machine, stream = attempt.machine, self._stream
        assert machine is not None
        if attempt.ended or stream is None:
            if self._store_response is not None:
                await self._store_when_complete(machine)
            await self._release_request()
            if self._request.reasoning_key and machine.outcome is Outcome.COMPLETED:
                self._cache_reasoning_of(machine)
            body = machine.data_to_send()
            if stream is not None:
                self._started = True
                await self._end_stream(body)
                return
            if self._unstored is not None and not isinstance(machine, Relay):
                body = encode({**self._unstored, "store": False})
            headers = [*JSON_HEADERS, *self._headers(machine.losses)]
            await self._send_reply(replies.Reply(200, headers, body))
            return
        if ready := machine.data_to_send():
            self._started = True
            stream.outbox.put(ready)
        # A branch may be cancelled by another one, and no write may be.
        if stream.head_sent or attempt.plan.fan_out > 1:
            stream.start_writer()
        else:
            await stream.send()
        await self._release_request()  # behind the first bytes, because an estimate waits for a thread
        await stream.outbox.room()

    async def _release_request(self) -> None:
        """Let go of the request once no other attempt sends it: a stream or a slow client may last for hours."""
        winner = self._winner
        if not self._holds_request or winner is None or self._scopes.keys() - {winner.account.id}:
            return
        self._holds_request = False
        meter, machine = self._request.response.meter, winner.machine
        if meter is not None and machine is not None and machine.usage.input is None:
            meter.estimated_input = await off_loop(len(self._plan.body), estimate_input, self._plan)
        self._attempts.release_plans()
        self._request.release()
        self._plan = self._request.plan = winner.plan

    async def _end_stream(self, last: bytes) -> None:
        """Send the last bytes of the stream, completed or failed."""
        stream = self._stream
        assert stream is not None
        failed = self._machine is not None and self._machine.error is not None
        if failed and not self._plan.ends_with_errors:
            if last:
                stream.outbox.put(last)
            stream.outbox.close()  # without an end, so that the server cuts the response off
        else:
            stream.outbox.end(last)
        await stream.send()

    async def _send_reply(self, reply: replies.Reply) -> None:
        """Send the whole response."""
        if self._stream is not None:
            self._stream.outbox.close()
            self._stream.end_sent = True
        self._record_head(reply.status)
        self._end_sent, self._reply = True, reply
        if self._sends:
            await self._request.respond(reply)

    def _follow(self, attempt: Attempt) -> None:
        """Make this the attempt that the request's plan and log line are about."""
        self._record.account, self._record.upstream_status = attempt.account.id, attempt.status
        self._record.sent_s = attempt.sent_s
        if self._plan is not attempt.plan:
            self._plan = self._request.plan = attempt.plan
            record_destination(self._record, attempt.plan.destination)

    def _cancel_others(self, attempt: Attempt) -> None:
        for account, scope in self._scopes.items():
            if account != attempt.account.id:
                scope.cancel()

    async def _store_when_complete(self, machine: ResponseMachine) -> None:
        """Store the response before the client has its end."""
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
        committed = self._started or (self._plan.streams and machine.committed)
        return machine.error is not None and not committed

    def _cache_reasoning_of(self, machine: ResponseMachine) -> None:
        """Cache it before the client has the whole response, because its next request may come immediately.

        It belongs to a client that will probably not send it back.
        """
        store, cached = self._gateway.reasoning_store, machine.cached_reasoning()
        if store is not None and cached is not None:
            store.put(self._request.reasoning_key, *cached, anyio.current_time())

    def _record_head(self, status: int) -> None:
        self._record.status, self._record.first_byte_s = status, self._time() - self._started_at
        if self._telemetry is not None:
            self._telemetry.first_byte()

    def _headers(self, response_losses: Ledger | None = None) -> HeaderList:
        """Return the headers of every response: the upstream's limits and id, and the losses."""
        losses = loss_header(self._plan.losses, response_losses)
        scrubbed = [(name, self._plan.scrub(value)) for name, value in losses]
        return [*(self._upstream_headers or request_id_headers(self._plan.id)), *scrubbed]
