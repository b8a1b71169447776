"""One attempt: a request is sent with one account, and its answer read.

Strategy: an attempt owns its upstream response and the machine of its answer, and begins with nothing of another's. It
sends nothing by itself: what is ready goes through the outlet, which belongs to the client. Until content has gone that
way, a failure is a value, and somebody else may try; after that it is the end of the client's stream.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import anyio
import msgspec

from dragoman import (
    ErrorKind,
    FanOut,
    LossCode,
    Outcome,
    Relay,
    RemoteProtocolError,
    RequestRefused,
    ResponseTranslator,
    WireError,
    translate_error,
)
from dragoman._wire.errors import unreadable_error
from dragoman._wire.masking import mask_document, mask_error
from dragoman_server.accounts.error_actions import refuses_signed_reasoning
from dragoman_server.accounts.retry_after import retry_after
from dragoman_server.headers import HeaderList, client_response_headers, request_id_headers
from dragoman_server.proxying.account_pool import AccountLease
from dragoman_server.proxying.plan import Plan
from dragoman_server.proxying.upstream_errors import (
    error_for_client,
    error_from_upstream,
    invalid_response_error,
    redirect_error,
)
from dragoman_server.upstream.client import (
    UpstreamError,
    UpstreamIdleClosed,
    UpstreamTimeout,
    UpstreamTimeoutPhase,
    UpstreamUnreachable,
)
from dragoman_server.upstream.sender import UpstreamResponseLike, UpstreamSender

ResponseMachine: TypeAlias = ResponseTranslator | Relay | FanOut

# Error bodies are read whole. Real ones are a few kilobytes; HTML error pages of proxies may be larger.
MAX_ERROR_BYTES = 1024 * 1024

# A whole answer is held until it is complete, so that a failure can still be told as one.
MAX_RESPONSE_BYTES = 64 * 1024 * 1024

# After the answer's own end, the end of the HTTP body usually comes in the same read. Waiting for it a moment
# lets the connection be used again.
DRAIN_S = 0.25

_TOO_LARGE = unreadable_error(f"it has more than {MAX_RESPONSE_BYTES} bytes")


@dataclass(frozen=True, slots=True)
class AttemptFailure:
    """An attempt of which the client has seen nothing.

    fault: by which its account is judged. told: as the client is told of it. cause: and the log.
    headers: what the client may be told of the upstream's.
    status, body: the upstream's error answer in the client's form, where that is what the client is told.
    after: seconds that the upstream wants to be left alone.
    connecting: there was no connection. idle_closed: a reused one was closed before the request arrived.
    """

    error: WireError
    reported: WireError
    cause: str
    headers: HeaderList
    status: int | None = None
    body: bytes = b""
    retry_after: float | None = None
    connecting: bool = False
    idle_closed: bool = False


class ResponseSink(Protocol):
    """The client's side."""

    async def send_ready(self, attempt: "Attempt") -> bool:
        """Send what is ready. False: another attempt was faster, and this one is to end."""

    async def finish(self, attempt: "Attempt") -> bool:
        """The answer has ended, well or not: send the rest. False as of show()."""


class Attempt:
    """Call run() once, and again where can_resend() says so.

    answer: the machine, once there is a response.
    shown: some of it went to the client.
    status: of the upstream's response.
    """

    def __init__(self, lease: AccountLease, sender: UpstreamSender, outlet: ResponseSink, now: float) -> None:
        self.lease = lease
        self.plan: Plan = lease.plan
        self.machine: ResponseMachine | None = None
        self.sent_to_client = False
        self.status: int | None = None
        self.headers: HeaderList = []
        self._door = sender
        self._outlet = outlet
        self._now = now
        self._raw_headers: Sequence[tuple[str, str]] = ()
        self._resent = False  # because an idle connection was closed

    @property
    def target(self) -> str:
        """What it asks, as `upstream/model`."""
        return f"{self.plan.settings.name}/{self.plan.upstream_model}"

    async def run(self) -> AttemptFailure | None:
        """Gives what went wrong, None when the client has the answer (or another attempt has the client)."""
        self.machine, self.status, self.headers, self._raw_headers = None, None, [], ()
        try:
            if self.plan.translated.fan_out > 1:
                return await self._read_legs(self.plan.fan_out())
            async with self._open() as response:
                begun = await self._begin(response)
                return (
                    begun if isinstance(begun, AttemptFailure) else await self._read_answer(response, begun)
                )
        except UpstreamError as error:
            failure = await self._broke(self._unreached(error))
            return failure and replace(
                failure,
                cause=str(error),
                connecting=is_connecting(error),
                idle_closed=isinstance(error, UpstreamIdleClosed),
            )

    def can_resend(self, failure: AttemptFailure) -> bool:
        """Whether to call run() again, with the same account. Prepares the request for it."""
        if failure.idle_closed:
            first, self._resent = not self._resent, True
            return first
        return self._without_signatures(failure)

    def _without_signatures(self, failure: AttemptFailure) -> bool:
        """Whether the upstream has refused signed reasoning, and the request can be sent without it.

        The conversation has changed accounts, and goes on without what this one cannot read.
        """
        plan = self.plan
        if plan.unsigned is None or not refuses_signed_reasoning(failure.error):
            return False
        try:
            unsigned = plan.unsigned().with_account(plan.account)
        except (RemoteProtocolError, RequestRefused):
            return False
        if _foreign(unsigned) <= _foreign(plan):
            return False
        self.plan = unsigned
        return True

    def _open(self) -> AbstractAsyncContextManager[UpstreamResponseLike]:
        plan = self.plan
        return self._door.open(
            "POST", plan.url, plan.headers, plan.translated.body, timeouts=plan.timeouts, proxy=plan.proxy
        )

    def _note(self, response: UpstreamResponseLike) -> None:
        self.status = response.status
        self._raw_headers = response.headers
        passed = [
            *client_response_headers(response.headers, self.plan.upstream),
            *request_id_headers(response.headers, self.plan.id),
        ]
        self.headers = [(name, self.plan.scrub(value)) for name, value in passed]

    async def _begin(self, response: UpstreamResponseLike) -> bytes | AttemptFailure:
        """The first bytes of an answer, if it is one."""
        self._note(response)
        if not 200 <= response.status < 300:
            return self._refused(response.status, await response.read_all(MAX_ERROR_BYTES))
        data = await response.receive()
        error = invalid_response_error(self.plan.settings, response.headers, data)
        return data if error is None else self._failure(error)

    async def _read_answer(self, response: UpstreamResponseLike, data: bytes) -> AttemptFailure | None:
        answer = self.machine = self.plan.response_machine(upstream_streams=is_stream(response.headers, data))
        size = 0
        while data:
            size += len(data)
            if size > MAX_RESPONSE_BYTES and not self.plan.streams:
                return self._failure(_TOO_LARGE)
            answer.receive_data(data)
            # After an error some servers leave the connection open, and say nothing more.
            if answer.outcome is not Outcome.OPEN or (answer.error is not None and not answer.committed):
                break
            if not await self._show(answer):
                return None
            data = await response.receive()
        else:
            answer.receive_eof()
        failure = await self._end(answer)
        if failure is None:
            with anyio.move_on_after(DRAIN_S), suppress(UpstreamError):
                while data:
                    data = await response.receive()
        return failure

    async def _show(self, answer: ResponseMachine) -> bool:
        """Whether to go on."""
        if not self.plan.streams or not answer.committed:
            return True
        self.sent_to_client = await self._outlet.send_ready(self)
        return self.sent_to_client

    async def _end(self, answer: ResponseMachine) -> AttemptFailure | None:
        if (
            answer.error is not None
            and not self.sent_to_client
            and not (self.plan.streams and answer.committed)
        ):
            return self._failure(answer.error)
        self.sent_to_client = await self._outlet.finish(self)
        return None

    async def _broke(self, error: WireError) -> AttemptFailure | None:
        """The upstream cannot be called or cannot go on."""
        if self.machine is None:
            return self._failure(error)
        self.machine.fail(error)
        return await self._end(self.machine)

    async def _read_legs(self, fan: FanOut) -> AttemptFailure | None:
        """Several answers at once, put together. The first leg that fails ends all of them."""
        self.machine = fan
        refusals: list[AttemptFailure] = []
        async with anyio.create_task_group() as legs:
            for number in range(self.plan.translated.fan_out):
                legs.start_soon(self._read_leg, fan, number, refusals, legs.cancel_scope)
        if refusals and not self.sent_to_client:
            return refusals[0]
        if refusals:
            fan.fail(refusals[0].reported)
        fan.receive_eof()
        return await self._end(fan)

    async def _read_leg(
        self, fan: FanOut, number: int, refusals: list[AttemptFailure], legs: anyio.CancelScope
    ) -> None:
        try:
            async with self._open() as response:
                data = await self._begin(response)
                if isinstance(data, AttemptFailure):
                    refusals.append(data)
                    legs.cancel()
                    return
                leg = fan.start(number, upstream_streams=is_stream(response.headers, data))
                size = 0
                while data and leg.outcome is Outcome.OPEN:
                    size += len(data)
                    if size > MAX_RESPONSE_BYTES:
                        leg.fail(_TOO_LARGE)
                        break
                    leg.receive_data(data)
                    if not await self._merge(fan):
                        legs.cancel()
                        return
                    data = await response.receive()
                leg.receive_eof()
                await self._merge(fan)
        except UpstreamError as error:
            fan.fail(self._unreached(error))
        if fan.outcome is Outcome.FAILED:
            legs.cancel()

    async def _merge(self, fan: FanOut) -> bool:
        fan.merge()
        return fan.outcome is not Outcome.OPEN or await self._show(fan)

    def _refused(self, status: int, body: bytes) -> AttemptFailure:
        """The upstream's error answer, in the client's form."""
        plan = self.plan
        if status < 400:
            failure = self._failure(redirect_error(plan.settings, status))
            place = _place_of(dict(self._raw_headers).get("location", "")).removesuffix(plan.upstream.path)
            cause = f"{failure.cause} {status} to {plan.scrub(place)}: put that into base_url"
            return replace(failure, cause=cause)
        body = mask_document(body, plan.context.mask)
        status, shown, error = translate_error(
            status, body, upstream=plan.upstream, client=plan.client, request_id=plan.id
        )
        failure = self._failure(error, body)
        return replace(failure, status=status, body=shown) if failure.reported is failure.error else failure

    def _failure(self, error: WireError, body: bytes = b"") -> AttemptFailure:
        """body: of an error answer."""
        plan = self.plan
        error = mask_error(error, plan.context.mask)
        shown = error_for_client(error, plan.settings, plan.account, list(self._raw_headers), body)
        shown = mask_error(shown, plan.context.mask)  # it may quote a header
        if shown is error and plan.advice and _is_about_model(error, plan.upstream_model):
            shown = msgspec.structs.replace(error, message=f"{error.message} ({plan.advice})")
        words = "" if error.message in shown.message else f": {error.message}"
        after = retry_after(self._raw_headers, self._now)
        headers = self.headers or request_id_headers((), plan.id)
        return AttemptFailure(error, shown, shown.message + words, headers, retry_after=after)

    def _unreached(self, error: UpstreamError) -> WireError:
        return error_from_upstream(error, self.plan.settings, self.plan.url)


def _place_of(location: str) -> str:
    """The URL of a redirect without its credentials and query, which may be secret."""
    try:
        parts = urlsplit(location)
    except ValueError:
        return ""
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _is_about_model(error: WireError, model: str) -> bool:
    """Whether a model that was guessed is not there. Some servers say 400 for that, and its name."""
    named = error.kind is ErrorKind.INVALID_REQUEST and model in error.message
    return named or error.kind is ErrorKind.NOT_FOUND


def _foreign(plan: Plan) -> int:
    return sum(loss.code is LossCode.FOREIGN_SEAL for loss in plan.translated.losses)


def is_connecting(error: UpstreamError) -> bool:
    """Whether the call failed before there was a connection."""
    if isinstance(error, UpstreamTimeout):
        return error.phase is UpstreamTimeoutPhase.CONNECT
    return isinstance(error, UpstreamUnreachable)


def is_stream(headers: Sequence[tuple[str, str]], first: bytes) -> bool:
    """Whether a 200 answer is a stream of events. The first byte tells: content types are often wrong."""
    start = first.lstrip(b" \t\r\n")[:1]
    if start:
        return start not in (b"{", b"[")
    return any(name == "content-type" and "text/event-stream" in value for name, value in headers)
