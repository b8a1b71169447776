"""Requests, from the client's bytes to the upstream's, and errors, the other way.

Strategy: a request is decoded, read, led through the passes and written. Each pass changes one thing for the
target and notes in the book what the answer has to undo. The machine does not know which protocols it joins.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dragoman._engine.tokens import estimate_tokens
from dragoman._ir.losses import Ledger, LossPolicy
from dragoman._ir.request import Request
from dragoman._ir.signatures import Signer
from dragoman._ir.undo import Undo
from dragoman._transforms.compaction import ask_for_summary
from dragoman._transforms.extensions import refuse_server_state, strip_extensions
from dragoman._transforms.history import end_with_user, repair_history
from dragoman._transforms.json_output import JSON_TOOL, StructuredOutputMode, fit_format
from dragoman._transforms.reasoning_cache import ReasoningLookup, restore_reasoning
from dragoman._transforms.response_checks import find_unenforced
from dragoman._transforms.signatures import drop_foreign_signatures
from dragoman._transforms.tools import fit_tools
from dragoman._transforms.unsupported import (
    CacheKeySource,
    add_cache_key,
    drop_unsupported,
    fit_cache_marks,
    fit_media,
    fit_tool_settings,
)
from dragoman._wire.errors import WireError
from dragoman._wire.exceptions import RequestRefused
from dragoman._wire.json import decode_object, encode, too_deep
from dragoman._wire.masking import Masker
from dragoman._wire.splice import RequestHead, peek, splice_model
from dragoman.codec import Capabilities, Endpoint, ProtocolSpec, ResponseContext, UpstreamSpec

# A token of English text or code is about four bytes of JSON. Only for figures that a protocol wants before
# the upstream tells the true ones.
_BYTES_PER_TOKEN = 4
# For a request of the upstream's own protocol: nothing in it is too new or too much.
_AS_IT_CAME = Capabilities(mid_system=True, developer_role=True, cache_marks="breakpoint")
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
    undo: Undo
    relayed: bool
    prompt_tokens: int
    upstream_model: str = ""
    fan_out: int = 1
    endpoint: Endpoint | None = None
    headers: tuple[tuple[str, str], ...] = ()
    rewritten: bool = False

    def response_context(
        self,
        *,
        id: str,
        now: int,
        model: str | None = None,
        signer: Signer = Signer(),
        clock: Callable[[], int] | None = None,
        mask: Masker | None = None,
    ) -> ResponseContext:
        """What the answer's side must know. id: letters and digits, unique. now: seconds since the epoch; clock: what
        tells them later, without which the answer is said to be complete at `now`.

        model is the name that the client is told, by default the one that it asked for, if any. mask: see Exchange.
        """
        return ResponseContext(
            request=self.request,
            id=id,
            now=now,
            model=model or self.request.model or self.upstream_model,
            signer=signer,
            prompt_tokens=self.prompt_tokens,
            upstream_model=self.upstream_model,
            undo=self.undo,
            endpoint=self.endpoint,
            clock=clock,
            rewritten=self.rewritten,
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
        capabilities: Capabilities = Capabilities(),
        policy: LossPolicy = LossPolicy.RECORD,
        signer: Signer = Signer(),
        max_fan_out: int = 1,
        endpoint: Endpoint | None = None,
    ) -> None:
        self._client = client
        self._upstream = upstream
        self._target = capabilities
        self._policy = policy
        self._sealer = signer
        self._most_answers = max_fan_out
        self._endpoint = endpoint or client.endpoints[0]

    def translate(
        self,
        body: bytes,
        *,
        model: str | None = None,
        request_head: RequestHead | None = None,
        reasoning_lookup: ReasoningLookup | None = None,
        cache_key: CacheKeySource | None = None,
        signed_reasoning: bool = True,
    ) -> TranslatedRequest:
        """Translate one request body. model is the upstream's name for the model, by default the client's.

        peeked is what peek() gave for this body, for a caller who has looked already. recall gives the thoughts
        that were kept (ResponseTranslator.keepsake) for a turn's call ids; it is asked when the client did not send
        them. session gives a name for the conversation, for upstreams that keep the caches of prompts by one; it is
        asked when the client named none. signed_reasoning is False for a request whose signatures or ciphertexts the
        upstream has refused, see refuses_signed_reasoning(): the reasoning that has them is left out.

        Raises RemoteProtocolError for a body that breaks the client's protocol, and RequestRefused for one that
        requests what the upstream cannot do at all, or (policy REFUSE) that cannot be translated without a loss.
        Send either in the client's own form: `client.write_error(error.as_wire_error(), request_id)`.
        """
        upstream = self._upstream
        try:
            capabilities = self._target
            if self._client.name != upstream.name or (
                capabilities.relay == "rewrite" and not capabilities.unwraps_signatures
            ):
                return self._translate(body, model, reasoning_lookup, cache_key, signed_reasoning)
            wrapped = not capabilities.unwraps_signatures and any(
                carrier in body for carrier in upstream.wrapped_markers
            )
            if wrapped or not signed_reasoning:
                return self._unwrapped(body, model, upstream, signed_reasoning)
        except RecursionError:
            raise too_deep() from None
        return self._relay(body, model, request_head)

    def _translate(
        self,
        body: bytes,
        model: str | None,
        reasoning_lookup: ReasoningLookup | None,
        cache_key: CacheKeySource | None,
        signed_reasoning: bool,
    ) -> TranslatedRequest:
        asked = self._client.read_request(decode_object(body, "the request body"), self._sealer)
        streams = self._endpoint.streams_if(asked.stream)
        if streams is not asked.stream:
            asked = msgspec.structs.replace(asked, stream=streams)
        ledger = Ledger()
        upstream, capabilities = self._upstream, self._target
        rewritten = self._client.name == upstream.name
        # What the protocol itself defines stays when a request does not leave it.
        request = asked
        if not rewritten:
            refuse_server_state(asked, self._client.server_state_params)
            request = strip_extensions(asked, ledger)
        if reasoning_lookup is not None and self._client.clients_drop_signatures:
            request = restore_reasoning(request, reasoning_lookup)
        compacts = asked.compact and not rewritten
        if compacts:
            request = ask_for_summary(request, ledger)
        if model is not None:
            request = msgspec.structs.replace(request, model=model)
        if not request.model:
            raise _no_model()
        request = end_with_user(repair_history(request, ledger), capabilities, ledger)
        request = drop_foreign_signatures(request, upstream, request.model, ledger, readable=signed_reasoning)
        request, way = fit_format(request, capabilities, ledger)
        request = fit_media(fit_cache_marks(request, capabilities, ledger), capabilities, ledger)
        request = fit_tool_settings(request, capabilities, ledger)
        if not rewritten:
            request = add_cache_key(request, capabilities, cache_key)
        request, undo = fit_tools(request, upstream.tool_limits, capabilities, ledger, upstream.name)
        request, stops, answers = drop_unsupported(
            request, upstream, capabilities, self._most_answers, ledger
        )
        form, choice = find_unenforced(asked, request, capabilities)
        if (
            way is not StructuredOutputMode.NATIVE
            or stops
            or compacts
            or form is not None
            or choice is not None
        ):
            undo = msgspec.structs.replace(
                undo,
                json_tool=JSON_TOOL if way is StructuredOutputMode.TOOL else None,
                strip_code_fence=way is not StructuredOutputMode.NATIVE,
                stop_sequences=stops,
                compacts=compacts,
                unenforced_format=form,
                unenforced_choice=choice,
            )
        out = upstream.write_request(request, capabilities, ledger)
        ledger.enforce(self._policy)
        tokens = len(body) // _BYTES_PER_TOKEN if len(body) < _LARGE else estimate_tokens(asked)
        return TranslatedRequest(
            encode(out),
            asked,
            ledger,
            undo,
            False,
            tokens,
            request.model,
            answers,
            self._endpoint,
            tuple(upstream.request_headers(out)),
            rewritten,
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
        request = drop_foreign_signatures(request, upstream, request.model, ledger, readable=signed_reasoning)
        out = upstream.write_request(request, _AS_IT_CAME, ledger)
        ledger.enforce(self._policy)
        return self._passed(encode(out), asked, ledger, len(body), request.model)

    def _relay(self, body: bytes, model: str | None, request_head: RequestHead | None) -> TranslatedRequest:
        request_head = request_head or peek(body)
        if not request_head.model:
            raise _no_model()
        request = Request(
            protocol=self._client.name,
            model=request_head.model,
            messages=(),
            raw={},
            stream=request_head.stream,
        )
        spliced = body if model is None else splice_model(body, request_head, model)
        return self._passed(spliced, request, Ledger(), len(body), model or request_head.model)

    def _passed(
        self, body: bytes, asked: Request, ledger: Ledger, size: int, model: str
    ) -> TranslatedRequest:
        """A request whose answer is relayed."""
        return TranslatedRequest(
            body, asked, ledger, Undo(), True, size // _BYTES_PER_TOKEN, model, endpoint=self._endpoint
        )


def _no_model() -> RequestRefused:
    return RequestRefused("model is required", path="/model", code="missing_required_parameter")


def translate_error(
    status: int, body: bytes, *, upstream: UpstreamSpec, client: ProtocolSpec, request_id: str | None = None
) -> tuple[int, bytes, WireError]:
    """An upstream's error answer in the client's form: status, body, and the fault for logs and retries.

    Between equal protocols the upstream's own bytes are kept, when a client of the protocol can read them.
    """
    if status > _LAST_STATUS:
        status = 502
    error = upstream.read_error(status, body)
    if upstream.name == client.name and upstream.is_native_error(body):
        return status, body, error
    status, body = client.write_error(error, request_id)
    return status, body, error
