"""Requests, from the client's bytes to the upstream's, and errors, the other way.

Strategy: a request is decoded, read, led through the passes and written. Each pass changes one thing for the
target and notes in the book what the answer has to undo. The machine does not know which protocols it joins.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dragoman._engine.tokens import estimate_tokens
from dragoman._ir.errors import Fault, Mask, kind_of_status
from dragoman._ir.losses import Ledger, Policy
from dragoman._ir.request import Request
from dragoman._ir.signatures import Sealer
from dragoman._ir.undo import Book
from dragoman._transforms.compaction import ask_for_summary
from dragoman._transforms.extensions import leave_protocol, refuse_held
from dragoman._transforms.history import end_with_user, mend_history
from dragoman._transforms.json_output import JSON_TOOL, Way, fit_format
from dragoman._transforms.reasoning_cache import Recall, recall_thoughts
from dragoman._transforms.response_checks import unenforced
from dragoman._transforms.signatures import pin_seals
from dragoman._transforms.tools import fit_tools
from dragoman._transforms.unsupported import (
    Session,
    fit_demands,
    fit_marks,
    fit_media,
    fit_tool_demands,
    name_session,
)
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import decode_object, encode, too_deep
from dragoman._wire.splice import Peek, peek, splice_model
from dragoman.codec import Endpoint, Exchange, ProtocolSpec, Target, UpstreamSpec

# A token of English text or code is about four bytes of JSON. Only for figures that a protocol wants before
# the upstream tells the true ones.
_BYTES_PER_TOKEN = 4
# For a request of the upstream's own protocol: nothing in it is too new or too much.
_AS_IT_CAME = Target(mid_system=True, developer_role=True, cache_marks="breakpoint")
# "A client that receives a response with an invalid status code SHOULD process the response as if it had a 5xx
# (Server Error) status code" -- RFC 9110, 15.
_LAST_STATUS = 599
# Bodies of this size have pictures in them more often than not, whose bytes are no tokens.
_LARGE = 128 * 1024


class TranslatedRequest(msgspec.Struct, frozen=True):
    """A request, ready for the upstream.

    body: the bytes to send.
    request: what the client asked.
    losses: what could not be carried.
    book: what was changed, for the way back.
    upstream_model: the model that the upstream is asked for.
    relayed: the protocols are the same, and the answer passes as it comes. Of the request only the model name was
        changed, and what was wrapped for another upstream taken out.
    prompt_tokens: a rough estimate of the prompt's size.
    answers: how many times to send it, each for one of the alternatives that the client wants (see FanOut).
    endpoint: where the request came in.
    headers: names and values of what the upstream's protocol wants said beside this body, such as the version of
        its API. Of a relayed request the client has said them.
    mended: the protocols are the same, but the request was fitted to the target, and the answer is written anew.
    """

    body: bytes
    request: Request
    losses: Ledger
    book: Book
    relayed: bool
    prompt_tokens: int
    upstream_model: str = ""
    answers: int = 1
    endpoint: Endpoint | None = None
    headers: tuple[tuple[str, str], ...] = ()
    mended: bool = False

    def exchange(
        self,
        *,
        id: str,
        now: int,
        model: str | None = None,
        sealer: Sealer = Sealer(),
        clock: Callable[[], int] | None = None,
        mask: Mask | None = None,
    ) -> Exchange:
        """What the answer's side must know. id: letters and digits, unique. now: seconds since the epoch; clock: what
        tells them later, without which the answer is said to be complete at `now`.

        model is the name that the client is told, by default the one that it asked for, if any. mask: see Exchange.
        """
        return Exchange(
            request=self.request,
            id=id,
            now=now,
            model=model or self.request.model or self.upstream_model,
            sealer=sealer,
            prompt_tokens=self.prompt_tokens,
            upstream_model=self.upstream_model,
            book=self.book,
            endpoint=self.endpoint,
            clock=clock,
            mended=self.mended,
            mask=mask,
        )


class RequestTranslator:
    """Translates requests of one client protocol for one upstream.

    Args:
        client, upstream: the protocols, from REGISTRY and UPSTREAMS.
        target: what the upstream takes beyond its protocol.
        policy: what to do about losses.
        sealer: opens reasoning that was sealed on the way to the client.
        most_answers: how many requests the caller can send for one that wants several answers (`n`), where the
            upstream gives one each time. By default such a request is refused.
        endpoint: which one of the client protocol's the requests come in at, by default the first.
    """

    def __init__(
        self,
        client: ProtocolSpec,
        upstream: UpstreamSpec,
        *,
        target: Target = Target(),
        policy: Policy = Policy.RECORD,
        sealer: Sealer = Sealer(),
        most_answers: int = 1,
        endpoint: Endpoint | None = None,
    ) -> None:
        self._client = client
        self._upstream = upstream
        self._target = target
        self._policy = policy
        self._sealer = sealer
        self._most_answers = most_answers
        self._endpoint = endpoint or client.endpoints[0]

    def translate(
        self,
        body: bytes,
        *,
        model: str | None = None,
        peeked: Peek | None = None,
        recall: Recall | None = None,
        session: Session | None = None,
        signed_reasoning: bool = True,
    ) -> TranslatedRequest:
        """Translate one request body. model is the upstream's name for the model, by default the client's.

        peeked is what peek() gave for this body, for a caller who has looked already. recall gives the thoughts
        that were kept (ResponseTranslator.keepsake) for a turn's call ids; it is asked when the client did not send
        them. session gives a name for the conversation, for upstreams that keep the caches of prompts by one; it is
        asked when the client named none. signed_reasoning is False for a request whose signatures or ciphertexts the
        upstream has refused, see refuses_signed_reasoning(): the reasoning that has them is left out.

        Raises RemoteProtocolError for a body that breaks the client's protocol, that asks for what the
        upstream cannot do at all, or (policy REFUSE) that cannot be carried whole. Answer it in the client's
        own form:
        `client.write_fault(fault_of(error), ...)`.
        """
        upstream = self._upstream
        try:
            target = self._target
            if self._client.name != upstream.name or (target.relay == "mend" and not target.opens_seals):
                return self._translate(body, model, recall, session, signed_reasoning)
            wrapped = not target.opens_seals and any(carrier in body for carrier in upstream.carriers)
            if wrapped or not signed_reasoning:
                return self._unwrapped(body, model, upstream, signed_reasoning)
        except RecursionError:
            raise too_deep() from None
        return self._relay(body, model, peeked)

    def _translate(
        self,
        body: bytes,
        model: str | None,
        recall: Recall | None,
        session: Session | None,
        signed_reasoning: bool,
    ) -> TranslatedRequest:
        asked = self._client.read_request(decode_object(body, "the request body"), self._sealer)
        streams = self._endpoint.streams_if(asked.stream)
        if streams is not asked.stream:
            asked = msgspec.structs.replace(asked, stream=streams)
        ledger = Ledger()
        upstream, target = self._upstream, self._target
        mended = self._client.name == upstream.name
        # What the protocol itself defines stays when a request does not leave it.
        request = asked
        if not mended:
            refuse_held(asked, self._client.server_held)
            request = leave_protocol(asked, ledger)
        if recall is not None and self._client.forgets_seals:
            request = recall_thoughts(request, recall)
        compacts = asked.compact and not mended
        if compacts:
            request = ask_for_summary(request, ledger)
        if model is not None:
            request = msgspec.structs.replace(request, model=model)
        if not request.model:
            raise _no_model()
        request = end_with_user(mend_history(request, ledger), target, ledger)
        request = pin_seals(request, upstream, request.model, ledger, readable=signed_reasoning)
        request, way = fit_format(request, target, ledger)
        request = fit_media(fit_marks(request, target, ledger), target, ledger)
        request = fit_tool_demands(request, target, ledger)
        if not mended:
            request = name_session(request, target, session)
        request, book = fit_tools(request, upstream.tools, target, ledger, upstream.name)
        request, stops, answers = fit_demands(request, upstream, target, self._most_answers, ledger)
        form, choice = unenforced(asked, request, target)
        if way is not Way.NATIVE or stops or compacts or form is not None or choice is not None:
            book = msgspec.structs.replace(
                book,
                json_tool=JSON_TOOL if way is Way.TOOL else None,
                bare_json=way is not Way.NATIVE,
                stops=stops,
                compacts=compacts,
                form=form,
                choice=choice,
            )
        out = upstream.write_request(request, target, ledger)
        ledger.enforce(self._policy)
        tokens = len(body) // _BYTES_PER_TOKEN if len(body) < _LARGE else estimate_tokens(asked)
        return TranslatedRequest(
            encode(out),
            asked,
            ledger,
            book,
            False,
            tokens,
            request.model,
            answers,
            self._endpoint,
            tuple(upstream.request_headers(out)),
            mended,
        )

    def _unwrapped(
        self, body: bytes, model: str | None, upstream: UpstreamSpec, signed_reasoning: bool
    ) -> TranslatedRequest:
        """A conversation that went through other upstreams before, for one of the client's own protocol.

        The seals are opened: those of this upstream's own come back to it, the others it could not read.
        """
        asked = upstream.read_request(decode_object(body, "the request body"), self._sealer)
        ledger = Ledger()
        request = asked if model is None else msgspec.structs.replace(asked, model=model)
        if not request.model:
            raise _no_model()
        request = pin_seals(request, upstream, request.model, ledger, readable=signed_reasoning)
        out = upstream.write_request(request, _AS_IT_CAME, ledger)
        ledger.enforce(self._policy)
        return self._passed(encode(out), asked, ledger, len(body), request.model)

    def _relay(self, body: bytes, model: str | None, peeked: Peek | None) -> TranslatedRequest:
        peeked = peeked or peek(body)
        if not peeked.model:
            raise _no_model()
        request = Request(
            protocol=self._client.name, model=peeked.model, messages=(), raw={}, stream=peeked.stream
        )
        spliced = body if model is None else splice_model(body, peeked, model)
        return self._passed(spliced, request, Ledger(), len(body), model or peeked.model)

    def _passed(
        self, body: bytes, asked: Request, ledger: Ledger, size: int, model: str
    ) -> TranslatedRequest:
        """A request whose answer is relayed."""
        return TranslatedRequest(
            body, asked, ledger, Book(), True, size // _BYTES_PER_TOKEN, model, endpoint=self._endpoint
        )


def _no_model() -> RemoteProtocolError:
    return RemoteProtocolError("model is required", path="/model", code="missing_required_parameter")


def fault_of(error: RemoteProtocolError) -> Fault:
    """A reader's or translator's complaint about a request, as a fault for ProtocolSpec.write_fault."""
    return Fault(
        kind_of_status(error.status_hint),
        error.message,
        status=error.status_hint,
        code=error.code,
        param=error.param,
    )


def translate_fault(
    status: int, body: bytes, *, upstream: UpstreamSpec, client: ProtocolSpec, request_id: str | None = None
) -> tuple[int, bytes, Fault]:
    """An upstream's error answer in the client's form: status, body, and the fault for logs and retries.

    Between equal protocols the upstream's own bytes are kept, when a client of the protocol can read them.
    """
    if status > _LAST_STATUS:
        status = 502
    fault = upstream.read_fault(status, body)
    if upstream.name == client.name and upstream.is_fault(body):
        return status, body, fault
    status, body = client.write_fault(fault, request_id)
    return status, body, fault
