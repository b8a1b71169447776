"""Make one attempt: send a request with one account, and read the response.

An attempt owns its upstream response and the machine that translates it, and shares nothing with other attempts. What
is ready for the client is handed to whoever made it. Until content has been sent, a failure is returned as a value, and
another attempt may follow; after that it ends the client's stream.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

import anyio
import anyio.lowlevel
import msgspec
from msgspec.structs import replace

import dragoman
from dragoman.errors import mask_document, mask_error, unreadable_error
from dragoman_server.accounts.stores.base import Candidate, Reservation
from dragoman_server.hosts import host_of
from dragoman_server.platform.cancellation import Arguments, return_if_cancelled
from dragoman_server.platform.off_loop import INLINE_BYTES, off_loop
from dragoman_server.policy.attempts import Account
from dragoman_server.policy.error_actions import ErrorRule, refuses_signed_reasoning, retry_after
from dragoman_server.proxying import upstream_errors
from dragoman_server.proxying.plan import BodyMachine, Plan
from dragoman_server.proxying.response_reads import UnreadBytes, is_stream, receive_and_merge
from dragoman_server.proxying.upstream_errors import AttemptFailure
from dragoman_server.settings import AccountSettings
from dragoman_server.streams.byte_stream import Take
from dragoman_server.upstream.account_request import account_request
from dragoman_server.upstream.errors import UpstreamError, UpstreamIdleClosed
from dragoman_server.upstream.sender import UpstreamResponseLike, UpstreamSender
from dragoman_server.wire.headers import (
    client_response_headers,
    request_id_headers,
)

if TYPE_CHECKING:
    from dragoman_server.telemetry.requests import RequestTelemetry
    from dragoman_server.telemetry.tracing import AttemptTrace

# Error bodies are read whole. Real ones are a few kilobytes; HTML error pages of proxies may be larger.
MAX_ERROR_BYTES = 1024 * 1024

# A response without a stream is held until it is complete, so that a failure can still be a plain HTTP error.
MAX_RESPONSE_BYTES = 64 * 1024 * 1024

# After the end of the response, the end of the HTTP body usually comes in the same read. A short wait for it lets the
# connection be used again.
DRAIN_S = 0.25

# For each read: CPython 3.11 takes as long to look up a member of an enum as for several calls.
_OPEN = dragoman.Outcome.OPEN

_TOO_LARGE = unreadable_error(f"it has more than {MAX_RESPONSE_BYTES} bytes")


class Delivery(Enum):
    """What became of what an attempt has for the client."""

    NOW = auto()  # the recipient has it, and takes more
    WAIT = auto()  # await finish_delivery() before the next read
    LOST = auto()  # another attempt was faster, or this one is cancelled: it must end


# CPython 3.11 takes as long to look up a member as for several calls.
NOW, WAIT, LOST = Delivery.NOW, Delivery.WAIT, Delivery.LOST


class Recipient(Protocol):
    """Gets what attempts have for the client."""

    def deliver(self, attempt: "Attempt") -> Delivery:
        """Take it, without waiting. The first attempt that has something wins."""

    async def finish_delivery(self, attempt: "Attempt") -> None:
        """Take what deliver() could not, and wait until there is room for more."""


class PooledAccount(Account, frozen=True, kw_only=True):
    """An account with what follows from its settings.

    Attributes:
        settings: The account's settings.
        candidate: The account with its limits, for the store.
        proxy: The name of its proxy in the store, "" for none.
        rules: Its upstream's rules for errors.
    """

    settings: AccountSettings
    candidate: Candidate
    proxy: str
    rules: tuple[ErrorRule, ...]


class Attempt:
    """The upstream side of one attempt: its account, the upstream's response, and the machine that translates it.

    Call run() once, and again if can_resend() returns true.

    Args:
        now: seconds since the epoch.

    Attributes:
        plan: The request, for an upstream of the account: as it was passed, without refused members, or released.
        account: The account with which it is sent.
        reservation: Its reservation of the account, in the store.
        machine: Translates the response, None until there is one.
        ended: The response has completed or failed, so the next delivery is the last one.
        sent_to_client: Part of the response was sent to the client.
        status: The response's status, None until there is one.
        headers, raw_headers: The upstream's headers: those that the client may see, and all.
        sent_s: See RequestRecord.
        trace: Its span, None where there are none.
        translating: Set when the thread ends that uses the machine, None while none does. Others wait for it.
    """

    _sender: UpstreamSender
    _recipient: Recipient

    # What is there later, or in few attempts.
    headers: Sequence[tuple[str, str]] = ()
    raw_headers: Sequence[tuple[str, str]] = ()
    sent_s: float | None = None
    _resent = False  # because an idle connection was closed
    _renewed = False  # the token, because it was refused

    def __init__(self, plan: Plan, account: PooledAccount, reservation: Reservation, now: float) -> None:
        self.plan = plan
        self.account = account
        self.reservation = reservation
        self.machine: dragoman.ResponseMachine | None = None
        self.status: int | None = None
        self.ended = False
        self.sent_to_client = False
        self.trace: AttemptTrace | None = None
        self.translating: anyio.Event | None = None
        self._now = now

    @property
    def error(self) -> dragoman.WireError | None:
        """The error by which the response ended, if it did."""
        return None if self.machine is None else self.machine.error

    @property
    def tokens(self) -> float:
        """All tokens that were used, if the upstream has reported them."""
        usage = dragoman.Usage() if self.machine is None else self.machine.usage
        return (usage.input or 0) + (usage.output or 0)

    @property
    def usage_figures(self) -> dict[str, object]:
        """The known tokens, for the log: upstreams charge for cancelled attempts as well."""
        usage = dragoman.Usage() if self.machine is None else self.machine.usage
        figures = {"input_tokens": usage.input, "output_tokens": usage.output}
        return {name: figure for name, figure in figures.items() if figure is not None}

    def run(
        self, sender: UpstreamSender, recipient: Recipient, telemetry: "RequestTelemetry | None"
    ) -> Awaitable[AttemptFailure | None]:
        """Return, when awaited, what went wrong, None if the client has got this response (or gets another attempt's).

        sender: sends the request. telemetry: of the request.
        """
        self._sender, self._recipient = sender, recipient
        if self.status is not None or self.machine is not None:  # of the run before
            self.machine = self.status = None
            self.headers = self.raw_headers = ()
        if telemetry is not None:
            to = self.plan.destination
            self.trace = telemetry.attempt(
                to.settings, to.upstream.name, to.upstream_model, self.account.id, stream=self.plan.streams
            )
        return self._run() if self.trace is None else self._run_traced(self.trace)

    async def _run_traced(self, span: "AttemptTrace") -> AttemptFailure | None:
        error: dragoman.ErrorKind | None = dragoman.ErrorKind.CANCELLED
        try:
            failure = await self._run()
            ended_by = self.error if failure is None else failure.error
            error = None if ended_by is None else ended_by.kind
            return failure
        finally:
            usage = None if self.machine is None else self.machine.usage
            span.end(self.status, None if error is None else error.value, usage)

    async def _run(self) -> AttemptFailure | None:
        try:
            if self.plan.check_input is not None:
                await self.plan.check_input.prepare(self.plan.context.undo)
            if self.plan.fan_out > 1:
                return await self._read_branches(self.plan.fan_out_machine())
            async with await self._open() as response:
                first = await self._begin(response)
                if isinstance(first, AttemptFailure):
                    return first
                return await self._read_response(response, first)
        except UpstreamError as error:
            failure = await self._end_with(self._as_wire_error(error))
            return failure and self._with_cause(failure, error)

    async def can_resend(self, failure: AttemptFailure) -> bool:
        """True if run() is to be called again, with the same account. Prepares the request for that."""
        if failure.idle_closed:
            first, self._resent = not self._resent, True
            return first
        if failure.error.kind is dragoman.ErrorKind.AUTHENTICATION and not self._renewed:
            self._renewed = True
            settings = self.plan.destination.settings
            forget = host_of(settings).renew
            if forget is not None and forget(settings, self.account.settings, self._now):
                return True
        return await self._plan_again(failure)

    async def _plan_again(self, failure: AttemptFailure) -> bool:
        """Plan without what the upstream has refused. Return false if it has refused nothing that can be left out.

        That is one member by its name, or signed reasoning: the conversation has changed accounts, and continues
        without what this account cannot read.
        """
        plan, planner = self.plan, self.plan.planner
        signed = not refuses_signed_reasoning(failure.error)
        if planner is None or (signed and not planner.learn_refused_member(plan, failure.error)):
            return False
        try:
            again = await planner.plan_off_loop(plan.destination, signed_reasoning=signed)
        except (dragoman.RemoteProtocolError, dragoman.RequestRefused):
            return False
        if not signed and _foreign_signatures(again) <= _foreign_signatures(plan):
            return False
        self.plan = again
        return True

    def _open(self) -> Awaitable[AbstractAsyncContextManager[UpstreamResponseLike]]:
        call, to = self.plan.call, self.plan.destination
        if self.trace is not None:
            call = replace(call, headers=[*call.headers, *self.trace.headers])
        return account_request(self._sender, to.settings, to.upstream, self.account.settings, call)

    def _record_head(self, response: UpstreamResponseLike) -> None:
        self.status = response.status
        self.raw_headers = response.headers
        plan = self.plan
        self.headers = client_response_headers(
            response.headers, plan.destination.upstream, plan.id, plan.scrub.each
        )

    async def _begin(self, response: UpstreamResponseLike) -> bytes | AttemptFailure:
        """Return the first bytes of a success response, else the failure."""
        self._record_head(response)
        if not 200 <= response.status < 300:
            body = await response.read_all(MAX_ERROR_BYTES)
            self._record_head(response)  # again, because another branch may have begun meanwhile
            return await off_loop(len(body), self._refusal, response.status, body)
        data = await response.receive()
        settings, any_bytes = self.plan.destination.settings, self.plan.takes_any_bytes
        error = upstream_errors.invalid_response_error(settings, response.headers, data, any_bytes=any_bytes)
        if error is not None:
            self._record_head(response)
            return self._failure(error)
        return data

    async def _read_response(self, response: UpstreamResponseLike, data: bytes) -> AttemptFailure | None:
        streams = is_stream(response.headers, data)
        machine = self.machine = self.plan.response_machine(response.headers, upstream_streams=streams)
        unread = UnreadBytes(machine) if streams else None
        size, at_end = 0, False
        while data:
            size += len(data)
            if size > MAX_RESPONSE_BYTES and not self.plan.streams:
                return self._failure(_TOO_LARGE)
            if unread is None:
                machine.receive_data(data)  # which keeps it until the end
            else:
                await self._translate(unread.count_again(data), machine.receive_data, data)
            if _has_ended(machine):
                break
            if self.plan.streams and not await self._send_ready(machine):
                return None
            if self.sent_to_client and unread is not None:
                data = b""  # not needed while the next ones are awaited
                await response.receive_each(self._taker(machine, unread))
                if _has_ended(machine):
                    break
                if not await self._send_ready(machine):
                    return None
                data, unread.left = unread.left, b""
                if data:
                    continue
            data = await response.receive()
        else:
            at_end = True
            await self._translate(machine.held_bytes, machine.receive_eof)
        failure = await self._end(machine)
        if failure is None and not at_end and not response.ended:
            with anyio.move_on_after(DRAIN_S), suppress(UpstreamError):
                while await response.receive():
                    pass
        return failure

    def _taker(self, machine: BodyMachine, unread: UnreadBytes) -> Take:
        """Return what takes reads of a stream where they arrive, until one has to wait."""
        deliver = self._recipient.deliver

        def take(data: bytes) -> bool:
            unread.bytes += len(data)
            if unread.bytes > INLINE_BYTES and unread.count_again(data) > INLINE_BYTES:
                unread.left = data
                return False
            machine.receive_data(data)
            return machine.outcome is _OPEN and deliver(self) is NOW

        return take

    async def _translate(
        self, size: int, function: Callable[[*Arguments], None], *arguments: *Arguments
    ) -> None:
        """Call a function of a machine, off the loop if its input is large. size: of that, in bytes."""
        while self.translating is not None:  # for another branch
            await self.translating.wait()
        if size <= INLINE_BYTES:
            function(*arguments)
            return
        self.translating = ended = anyio.Event()
        try:
            await off_loop(size, function, *arguments, abandon=False)
        finally:
            self.translating = None
            ended.set()

    async def _send_ready(self, machine: dragoman.ResponseMachine) -> bool:
        """Send the ready bytes, if they may be sent. Return false if the attempt must end."""
        if not self.plan.streams or not machine.committed:
            return True
        return await self._deliver()

    async def _deliver(self) -> bool:
        """Pass on the ready bytes. Return false if the attempt must end."""
        if self.trace is not None and not self.sent_to_client:
            self.trace.first_content()
        delivery = self._recipient.deliver(self)
        self.sent_to_client = delivery is not LOST
        if delivery is WAIT:
            await self._recipient.finish_delivery(self)
        elif delivery is LOST:
            await anyio.lowlevel.checkpoint_if_cancelled()
        return self.sent_to_client

    async def _end(self, machine: dragoman.ResponseMachine) -> AttemptFailure | None:
        """Send the rest of the response, or return its error if nothing was sent yet."""
        sent = self.sent_to_client or (self.plan.streams and machine.committed)
        if machine.error is not None and not sent:
            return self._failure(machine.error)
        self.ended = True
        await self._deliver()
        return None

    async def _end_with(self, error: dragoman.WireError) -> AttemptFailure | None:
        """End the attempt with an error of the connection."""
        if self.machine is None:
            return self._failure(error)
        self.machine.fail(error)
        return await self._end(self.machine)

    async def _read_branches(self, fan_out: dragoman.FanOut) -> AttemptFailure | None:
        """Read several responses concurrently and merge them. The first branch that fails ends all of them."""
        self.machine = fan_out
        refusals: list[AttemptFailure] = []

        async def read(number: int) -> None:
            if not await self._read_branch(fan_out, number, refusals):
                branches.cancel_scope.cancel()

        async with anyio.create_task_group() as branches:
            for number in range(self.plan.fan_out):
                branches.start_soon(return_if_cancelled, read, number)
        await anyio.lowlevel.checkpoint_if_cancelled()  # see return_if_cancelled()
        if refusals and not self.sent_to_client:
            self.status = refusals[0].upstream_status
            return refusals[0]
        if refusals:
            fan_out.fail(refusals[0].reported)
        fan_out.receive_eof()
        return await self._end(fan_out)

    async def _read_branch(
        self, fan_out: dragoman.FanOut, number: int, refusals: list[AttemptFailure]
    ) -> bool:
        """Read one response. Return false if the others must end."""
        try:
            async with await self._open() as response:
                data = await self._begin(response)
                if isinstance(data, AttemptFailure):
                    refusals.append(data)
                    return False
                streams = is_stream(response.headers, data)
                branch = fan_out.start(number, upstream_streams=streams)
                unread = UnreadBytes(branch)
                size = 0
                while data and branch.outcome is dragoman.Outcome.OPEN:
                    size += len(data)
                    if size > MAX_RESPONSE_BYTES:
                        branch.fail(_TOO_LARGE)
                        break
                    large = unread.count_again(data) if streams else 0
                    await self._translate(large, receive_and_merge, fan_out, branch, data)
                    if fan_out.outcome is dragoman.Outcome.OPEN and not await self._send_ready(fan_out):
                        return False
                    data = await response.receive()
                await self._translate(branch.held_bytes, receive_and_merge, fan_out, branch, b"")
                if fan_out.outcome is dragoman.Outcome.OPEN:
                    await self._send_ready(fan_out)
        except UpstreamError as error:
            wire_error = self._as_wire_error(error)
            if not self.sent_to_client:
                refusals.append(self._with_cause(self._failure(wire_error), error))
                return False
            await self._translate(0, fan_out.fail, wire_error)
        return fan_out.outcome is not dragoman.Outcome.FAILED

    def _refusal(self, status: int, body: bytes) -> AttemptFailure:
        """Return the upstream's error response in the client's form."""
        plan, upstream = self.plan, self.plan.destination.upstream
        if status < 400:
            failure = self._failure(upstream_errors.redirect_error(plan.destination.settings, status))
            target = upstream_errors.without_secrets(dict(self.raw_headers).get("location", ""))
            base_url = plan.scrub(target.removesuffix(plan.path.partition("?")[0]))
            return replace(failure, cause=f"{failure.cause} {status} to {base_url}: put that into base_url")
        meant_status = host_of(plan.destination.settings).meant_status
        if meant_status is not None:
            status = meant_status(status, self.raw_headers, body)
        body = mask_document(body, plan.context.mask)
        status, translated, error = dragoman.translate_error(
            status,
            body,
            upstream=upstream,
            client=plan.client,
            request_id=plan.id,
            retry_after_s=retry_after(self.raw_headers, self._now),
        )
        failure = self._failure(error, body)
        if failure.reported is not failure.error:
            return failure
        if translated is body:
            return replace(failure, status=status, body=body)
        return replace(failure, reported=msgspec.structs.replace(error, status=status))

    def _failure(self, error: dragoman.WireError, body: bytes = b"") -> AttemptFailure:
        """Return the failure for an error. body: of an error response."""
        plan, to = self.plan, self.plan.destination
        error = mask_error(error, plan.context.mask)
        account = self.account.settings
        reported = upstream_errors.error_for_client(error, to.settings, account, list(self.raw_headers), body)
        if note := upstream_errors.model_note(error, reported, to, body):
            reported = msgspec.structs.replace(reported, message=f"{reported.message} ({note})")
        # It may quote a header, or the client's name of a model.
        reported = mask_error(reported, plan.context.mask)
        details = "" if error.message in reported.message else f": {error.message}"
        seconds = retry_after(self.raw_headers, self._now, error)
        headers = self.headers or request_id_headers(plan.id)
        return AttemptFailure(
            error,
            reported,
            reported.message + details,
            headers,
            upstream_status=self.status,
            retry_after=seconds,
            final=plan.is_spent,
        )

    def _as_wire_error(self, error: UpstreamError) -> dragoman.WireError:
        return upstream_errors.error_from_upstream(error, self.plan.destination.settings, self.plan.url)

    def _with_cause(self, failure: AttemptFailure, error: UpstreamError) -> AttemptFailure:
        return replace(
            failure,
            cause=str(error),
            connecting=upstream_errors.is_connecting(error),
            idle_closed=isinstance(error, UpstreamIdleClosed),
            final=failure.final or (error.sent and not self.plan.is_repeatable),
            of_gateway=error.of_gateway,
        )


def _foreign_signatures(plan: Plan) -> int:
    return sum(loss.code is dragoman.LossCode.FOREIGN_SIGNATURE for loss in plan.losses)


def _has_ended(machine: dragoman.ResponseMachine) -> bool:
    """True if nothing more is read. After an error some servers leave the connection open, and send nothing more."""
    return machine.outcome is not _OPEN or (machine.error is not None and not machine.committed)
