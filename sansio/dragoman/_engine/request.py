"""Translate requests, from the client's bytes to the upstream's.

A request is decoded, read, changed by the passes and written. Each pass fits one thing to the capabilities of the
upstream, and records in Undo what the response has to undo.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dragoman._engine.tokens import estimate_tokens
from dragoman._ir.losses import Ledger, LossPolicy
from dragoman._ir.request import Request
from dragoman._ir.signatures import Signer
from dragoman._ir.undo import Undo
from dragoman._transforms.pass_context import CacheKeySource, PassContext, ReasoningLookup
from dragoman._transforms.pipeline import PASSES
from dragoman._transforms.signatures import drop_foreign_signatures
from dragoman._wire.exceptions import RequestRefused
from dragoman._wire.json import decode_object, encode, too_deep
from dragoman._wire.masking import Masker
from dragoman._wire.splice import RequestHead, peek, splice_model
from dragoman.codec import Capabilities, Endpoint, ProtocolSpec, ResponseContext, UpstreamSpec
from dragoman.protocols import client_spec, upstream_spec

# A token of English text or code is about four bytes of JSON. Only for figures that a protocol requires before
# the upstream reports the true ones.
_BYTES_PER_TOKEN = 4
# For a request of the upstream's own protocol: everything in it is accepted.
_ALL_CAPABILITIES = Capabilities(mid_system=True, developer_role=True, cache_marks="breakpoint")
# Bodies of this size mostly have images in them, whose bytes are no tokens.
_LARGE = 128 * 1024


class TranslatedRequest(msgspec.Struct, frozen=True):
    """A request, ready for the upstream.

    Attributes:
        body: The bytes to send.
        request: The client's request, as its protocol's reader returned it.
        losses: What the upstream does not get.
        undo: What was changed, for the way back.
        relayed: The protocols are the same, and the response is relayed. In the request only the model name was
            changed, and signatures that were wrapped for another upstream were dropped.
        prompt_tokens: A rough estimate of the prompt's size.
        upstream_model: The model that is requested from the upstream.
        fan_out: How many times to send the body, each for one of the choices that the client requested (see FanOut).
        endpoint: Where the request came in.
        headers: Names and values of the headers that the upstream's protocol requires beside this body, such as the
            version of its API. Empty for a relayed request, because the client has sent them.
        rewritten: The protocols are the same, but the request was fitted to the upstream's capabilities, and the
            response is written again (Capabilities.relay).
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

    def __repr__(self) -> str:
        way = "relayed" if self.relayed else "rewritten" if self.rewritten else "translated"
        return f"<TranslatedRequest {way}, {len(self.body)} bytes for {self.upstream_model}, {len(self.losses)} losses>"

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
        """Return the context of the response, for ResponseTranslator, Relay and FanOut.

        Args:
            id: letters and digits, unique to this response.
            now: seconds since the epoch.
            model: the name of the model that the client gets, by default the one that it requested, if any.
            signer: wraps reasoning signatures on their way to the client.
            clock: returns the seconds since the epoch when the response is complete. Without it `now` is reported.
            mask: removes secrets from errors of the upstream, see ResponseContext.
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
    r"""Translates requests of one client protocol for one upstream.

    >>> translator = RequestTranslator(client="openai_chat", upstream="anthropic_messages")
    >>> body = b'{"model":"m","seed":1,"messages":[{"role":"user","content":"Hi"}]}'
    >>> translated = translator.translate(body, model="claude-sonnet-4-6")
    >>> translated.body
    b'{"model":"claude-sonnet-4-6","max_tokens":32000,"messages":[{"role":"user","content":"Hi"}]}'
    >>> [loss.path for loss in translated.losses]
    ['/seed']

    Args:
        client: the client's protocol, by name or by spec.
        upstream: the upstream's protocol, by name or by spec.
        capabilities: what the upstream accepts beyond its protocol.
        policy: what to do about losses.
        signer: unwraps reasoning signatures that were wrapped on the way to the client.
        max_fan_out: how many requests the caller can send for one that requests several choices (`n`), if the upstream
            returns one at a time. By default such a request is refused.
        endpoint: the endpoint of the client's protocol that the requests come in at, by default its first.
    """

    def __init__(
        self,
        *,
        client: ProtocolSpec | str,
        upstream: UpstreamSpec | str,
        capabilities: Capabilities = Capabilities(),
        policy: LossPolicy = LossPolicy.RECORD,
        signer: Signer = Signer(),
        max_fan_out: int = 1,
        endpoint: Endpoint | None = None,
    ) -> None:
        self._client = client_spec(client)
        self._upstream = upstream_spec(upstream)
        self._capabilities = capabilities
        self._policy = policy
        self._signer = signer
        self._max_fan_out = max_fan_out
        self._endpoint = endpoint or self._client.endpoints[0]

    def __repr__(self) -> str:
        return f"<RequestTranslator {self._client.name} -> {self._upstream.name}>"

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
        """Translate one request body.

        Args:
            body: the client's body.
            model: the upstream's name for the model, by default the client's.
            request_head: from peek(body), if the caller has it already.
            reasoning_lookup: returns the cached reasoning (ResponseTranslator.cached_reasoning) for the call ids of a
                turn. Called for turns that the client sends without their reasoning.
            cache_key: returns a name of the conversation, for upstreams that cache prompts by one. Called if the client
                sent none.
            signed_reasoning: False drops reasoning with signatures or ciphertexts, because the upstream has refused
                those of an earlier attempt.

        Raises RemoteProtocolError for a body that breaks the client's protocol, and RequestRefused for one that
        requests what the upstream cannot do at all, or (policy REFUSE) that cannot be translated without a loss.
        Send either in the client's own form: `client.write_error(error.as_wire_error(), request_id)`.
        """
        upstream = self._upstream
        try:
            capabilities = self._capabilities
            if self._client.name != upstream.name or (
                capabilities.relay == "rewrite" and not capabilities.unwraps_signatures
            ):
                return self._translate(body, model, reasoning_lookup, cache_key, signed_reasoning)
            wrapped = not capabilities.unwraps_signatures and any(
                marker in body for marker in upstream.wrapped_markers
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
        received = self._client.read_request(decode_object(body, "the request body"), self._signer)
        streams = self._endpoint.streams_if(received.stream)
        if streams is not received.stream:
            received = msgspec.structs.replace(received, stream=streams)
        upstream, capabilities, ledger = self._upstream, self._capabilities, Ledger()
        context = PassContext(
            self._client,
            upstream,
            capabilities,
            ledger,
            received,
            rewritten=self._client.name == upstream.name,
            signed_reasoning=signed_reasoning,
            reasoning_lookup=reasoning_lookup,
            cache_key=cache_key,
            max_fan_out=self._max_fan_out,
        )
        request = received if model is None else msgspec.structs.replace(received, model=model)
        if not request.model:
            raise _no_model()
        for apply_pass in PASSES:
            request = apply_pass(request, context)
        out = upstream.write_request(request, capabilities, ledger)
        ledger.enforce(self._policy)
        tokens = len(body) // _BYTES_PER_TOKEN if len(body) < _LARGE else estimate_tokens(received)
        return TranslatedRequest(
            body=encode(out),
            request=received,
            losses=ledger,
            undo=context.undo,
            relayed=False,
            prompt_tokens=tokens,
            upstream_model=request.model,
            fan_out=context.fan_out,
            endpoint=self._endpoint,
            headers=tuple(upstream.request_headers(out)),
            rewritten=context.rewritten,
        )

    def _unwrapped(
        self, body: bytes, model: str | None, upstream: UpstreamSpec, signed_reasoning: bool
    ) -> TranslatedRequest:
        """Unwrap the signatures in a body of the upstream's own protocol, because it went through other upstreams.

        Those that this upstream made are restored, those of others are dropped.
        """
        received = upstream.read_request(decode_object(body, "the request body"), self._signer)
        ledger = Ledger()
        request = received if model is None else msgspec.structs.replace(received, model=model)
        if not request.model:
            raise _no_model()
        context = PassContext(
            self._client, upstream, _ALL_CAPABILITIES, ledger, received, signed_reasoning=signed_reasoning
        )
        request = drop_foreign_signatures(request, context)
        out = upstream.write_request(request, _ALL_CAPABILITIES, ledger)
        ledger.enforce(self._policy)
        return self._relayed_request(encode(out), received, ledger, len(body), request.model)

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
        return self._relayed_request(spliced, request, Ledger(), len(body), model or request_head.model)

    def _relayed_request(
        self, body: bytes, request: Request, ledger: Ledger, size: int, model: str
    ) -> TranslatedRequest:
        """Return a request whose response is relayed. size: of the client's body, in bytes."""
        return TranslatedRequest(
            body=body,
            request=request,
            losses=ledger,
            undo=Undo(),
            relayed=True,
            prompt_tokens=size // _BYTES_PER_TOKEN,
            upstream_model=model,
            endpoint=self._endpoint,
        )


def _no_model() -> RequestRefused:
    return RequestRefused("model is required", path="/model", code="missing_required_parameter")
