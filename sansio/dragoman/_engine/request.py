"""Translate requests, from the client's bytes to the upstream's.

A request is decoded, read, changed by the passes and written. Each pass fits one thing to the capabilities of the
upstream, and records in Undo what the response has to undo.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec

from dragoman._engine.restore_signatures import restore_signatures
from dragoman._engine.tokens import estimate_tokens
from dragoman._ir.losses import Ledger, LossPolicy
from dragoman._ir.request import Request
from dragoman._ir.undo import Undo
from dragoman._ir.wrapped_signatures import Signer
from dragoman._transforms.pass_context import CacheKeySource, PassContext, ReasoningLookup, find_contents
from dragoman._transforms.pipeline import Passes
from dragoman._wire.exceptions import RequestRefused
from dragoman._wire.json import LONG_TEXT, JSONObject, decode, decode_object, encode, encode_long, too_deep
from dragoman._wire.limits import MODEL_CHARACTERS, search
from dragoman._wire.masking import Masker
from dragoman._wire.splice import RequestHead, peek, splice_items, splice_member, splice_model
from dragoman.codec import NOT_REPEATED, Capabilities, Endpoint, ProtocolSpec, ResponseContext, UpstreamSpec
from dragoman.protocols import client_spec, upstream_spec

# A token of English text or code is about four bytes of JSON. Only for figures that a protocol requires before
# the upstream reports the true ones, and for what a context window leaves.
_BYTES_PER_TOKEN = 4
# Bodies of this size mostly have images in them, whose bytes are no tokens.
_LARGE = 128 * 1024

# Bytes of a member that a response repeats: ten times the tools of an agent. A stream repeats it three times, with
# its first event and with its last, however small those are.
MAX_ECHO = 256 * 1024


class TranslatedRequest(msgspec.Struct, frozen=True):
    """A request, ready for the upstream.

    Attributes:
        body: The bytes to send.
        request: The client's request, as its protocol's reader returned it.
        losses: What the upstream does not get.
        undo: The changes, for the way back.
        relayed: The protocols are the same, and the response is relayed. In the request only the model name was
            changed, and wrapped signatures were restored or dropped.
        prompt_tokens: A rough estimate of the prompt's size.
        upstream_model: The model that is requested from the upstream.
        members: The names of the body's members.
        fan_out: How many times to send the body, each for one of the choices that the client requested (see FanOut).
        endpoint: Where the request came in.
        headers: Names and values of the headers that the upstream's protocol requires besides this body, such as the
            version of its API. Empty for a relayed request, because the client has sent them.
        echo: Members of the client's body that the response repeats (ProtocolSpec.echoed_members), NOT_REPEATED for
            one with more than MAX_ECHO bytes.
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
    members: frozenset[str] = frozenset()
    fan_out: int = 1
    endpoint: Endpoint | None = None
    headers: tuple[tuple[str, str], ...] = ()
    echo: JSONObject = {}
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
            # A stream may stay open for hours.
            request=msgspec.structs.replace(self.request, messages=(), tools=(), namespaces=()),
            id=id,
            now=now,
            model=model or self.request.model or self.upstream_model,
            signer=signer,
            prompt_tokens=self.prompt_tokens,
            upstream_model=self.upstream_model,
            undo=self.undo,
            endpoint=self.endpoint,
            echo=self.echo,
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
        capabilities: what the upstream accepts beyond its protocol, of the type in its spec; plain `Capabilities` too.
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
        self._capabilities = capabilities.as_type(self._upstream.capabilities)
        self._passes = Passes(self._client, self._capabilities)
        self._is_rewritten = self._client.name == self._upstream.name
        self._is_relayed = self._is_rewritten and (
            capabilities.relay == "exact" or capabilities.unwraps_signatures
        )
        self._policy = policy
        self._signer = signer
        self._max_fan_out = max_fan_out
        # Of a model's name in a body, maybe.
        self._name_prefix = "" if self._upstream.model_list is None else self._upstream.model_list.name_prefix
        self._endpoint = endpoint or self._client.endpoints[0]
        # The line that the upstream must not get. Where losses are refused it stays, because it can be sent.
        keeps_billing = capabilities.billing_header or capabilities.unwraps_signatures
        self._foreign_billing = (
            None if keeps_billing or policy is LossPolicy.REFUSE else self._upstream.billing_header
        )

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
        left_out: Sequence[str] = (),
    ) -> TranslatedRequest:
        """Translate one request body.

        Args:
            body: the client's body.
            model: the upstream's name for the model, by default the client's.
            request_head: from peek(body), if the caller has it already; with the model, if the path has it
                (Endpoint.match).
            reasoning_lookup: returns the cached reasoning (ResponseTranslator.cached_reasoning) for the call ids of a
                turn. Called for turns that the client sends without their reasoning.
            cache_key: returns a name of the conversation, for upstreams that cache prompts by one. Called if the client
                sent none.
            signed_reasoning: False drops reasoning with signatures or ciphertexts, because the upstream has refused
                them in an earlier attempt.
            left_out: members of the upstream's request that are not sent, because the upstream has refused them
                before. Those in UpstreamSpec.content_members are sent all the same.

        Raises RemoteProtocolError for a body that breaks the client's protocol, and RequestRefused for one that
        requests what the upstream cannot do at all, or (policy REFUSE) that cannot be translated without a loss.
        Send either in the client's own form: `client.write_error(error.as_wire_error(), request_id)`.
        """
        try:
            ledger = Ledger()
            if self._is_relayed:
                head = request_head or peek(body)
                return self._relay(body, model, head, signed_reasoning, ledger, left_out)
            return self._translate(
                body, model, request_head, reasoning_lookup, cache_key, signed_reasoning, ledger, left_out
            )
        except RecursionError:
            raise too_deep() from None

    def _translate(
        self,
        body: bytes,
        model: str | None,
        head: RequestHead | None,
        reasoning_lookup: ReasoningLookup | None,
        cache_key: CacheKeySource | None,
        signed_reasoning: bool,
        ledger: Ledger,
        left_out: Sequence[str],
    ) -> TranslatedRequest:
        decoded = decode_object(body, "the request body")
        upstream, rewritten = self._upstream, self._is_rewritten
        if rewritten:
            self._drop_foreign(decoded, body, model, signed_reasoning, ledger)
        received = self._read(decoded, head)
        upstream_model = received.model if model is None else model
        if not upstream_model:
            raise _no_model()
        tokens = _count(body, received, self._capabilities.context_window)
        capabilities = self._capabilities.for_prompt(tokens)
        context = PassContext(
            self._client,
            upstream,
            capabilities,
            ledger,
            received,
            find_contents(received.messages),
            rewritten=rewritten,
            signed_reasoning=signed_reasoning,
            reasoning_lookup=reasoning_lookup,
            cache_key=cache_key,
            max_fan_out=self._max_fan_out,
        )
        is_same = upstream_model == received.model
        request = received if is_same else msgspec.structs.replace(received, model=upstream_model)
        if rewritten:
            request = msgspec.structs.replace(request, native=decoded, received=received)
        request = self._passes.apply(request, context)
        out = upstream.write_request(request, capabilities, ledger)
        if [] in out.values() and received.messages and not rewritten:
            _check_conversation(out, upstream, received)
        for name in self._refused(out, left_out, ledger) if left_out else ():
            del out[name]
        ledger.enforce(self._policy)
        return TranslatedRequest(
            body=encode_long(out) if len(body) > LONG_TEXT else encode(out),
            request=received,
            losses=ledger,
            undo=context.undo,
            relayed=False,
            prompt_tokens=tokens,
            upstream_model=request.model,
            members=frozenset(out),
            fan_out=context.fan_out,
            endpoint=self._endpoint,
            headers=tuple(upstream.request_headers(out)),
            echo=self._echo(body, head, decoded) if self._client.echoed_members else {},
            rewritten=rewritten,
        )

    def _drop_foreign(
        self, decoded: JSONObject, body: bytes, model: str | None, signed_reasoning: bool, ledger: Ledger
    ) -> None:
        """Take what the upstream must not get out of a request that is rewritten. model: see translate()."""
        billing = self._foreign_billing
        if billing is not None and billing.member in decoded:
            decoded[billing.member] = billing.drop(decoded[billing.member], ledger)
        if self._restores(body, signed_reasoning):
            named = decoded.get("model") if model is None else model
            restore_signatures(
                decoded, named, self._upstream, self._signer, ledger, signed_reasoning, rewritten=True
            )

    def _restores(self, body: bytes, signed_reasoning: bool) -> bool:
        """True if the upstream must not get the signatures of a body of its protocol as they are."""
        return not signed_reasoning or (
            not self._capabilities.unwraps_signatures and any(search(self._upstream.wrapped_marker, body))
        )

    def _read(self, decoded: JSONObject, head: RequestHead | None) -> Request:
        """Return the client's request, with the model that its path names and the stream that its endpoint requires."""
        received = self._client.read_request(decoded, self._signer)
        model, stream = received.model, self._endpoint.streams_if(received.stream)
        if head is None:
            # peek() does it for all others, but would cost a twentieth of a translation here.
            MODEL_CHARACTERS.check(len(model), "/model")
        else:
            model = head.model or model  # the path's wins
        if (model, stream) == (received.model, received.stream):
            return received
        return msgspec.structs.replace(received, model=model, stream=stream)

    def _echo(self, body: bytes, head: RequestHead | None, decoded: JSONObject) -> JSONObject:
        echo = {name: decoded[name] for name in filter(decoded.__contains__, self._client.echoed_members)}
        if len(body) > MAX_ECHO:
            fields = (head or peek(body)).fields
            large = [name for name in echo if name in fields and len(memoryview(fields[name])) > MAX_ECHO]
            echo |= dict.fromkeys(large, NOT_REPEATED)
        return echo

    def _refused(self, members: Collection[str], left_out: Sequence[str], ledger: Ledger) -> list[str]:
        """Return which members are not sent, because the upstream has refused them. Each is recorded."""
        refused = [
            name for name in left_out if name in members and name not in self._upstream.content_members
        ]
        for name in refused:
            ledger.dropped(f"/{name}", "the upstream has refused it: it was left out")
        return refused

    def _relay(
        self,
        body: bytes,
        model: str | None,
        head: RequestHead,
        signed_reasoning: bool,
        ledger: Ledger,
        left_out: Sequence[str],
    ) -> TranslatedRequest:
        """Return the body with the upstream's model, and without what the upstream must not get."""
        billing = self._foreign_billing
        if billing is not None and billing.marker in bytes(head.fields.get(billing.member, b"")):
            value = decode(bytes(head.fields[billing.member]))
            stripped = billing.drop(value, ledger)
            if stripped is not value:
                body = splice_member(body, head, billing.member, stripped)
                head = peek(body)
        if not head.model:
            raise _no_model()
        upstream_model = model or head.model
        named, in_body = upstream_model, not self._upstream.model_in_path
        if not in_body and "model" in head.fields:  # the path's counts, and the upstream gets no other one
            named = self._name_prefix + named.removeprefix(self._name_prefix)
            in_body = peek(body).model not in (named, named.removeprefix(self._name_prefix))
        members = frozenset(head.fields)
        if self._restores(body, signed_reasoning):
            decoded = decode_object(body, "the request body")
            name = self._upstream.signature_places.conversation
            before = decoded.get(name)
            restore_signatures(
                decoded, upstream_model, self._upstream, self._signer, ledger, signed_reasoning
            )
            now = decoded.get(name)
            if decoded.keys() == members and type(before) is list and type(now) is list:
                # The rest keeps its bytes, which the upstream may have got before anything in it was wrapped.
                items = splice_items(bytes(head.fields[name]).strip(), now, before)
                out = splice_member(body, head, name, msgspec.Raw(items))
                if in_body:
                    out = splice_model(out, peek(out), named)
            else:
                members = frozenset(decoded)
                out = encode({**decoded, "model": named} if in_body else decoded)
        else:
            out = splice_model(body, head, named) if in_body else body
        if left_out and (refused := self._refused(members, left_out, ledger)):  # others keep their bytes
            out = encode({name: raw for name, raw in peek(out).fields.items() if name not in refused})
            members = members.difference(refused)
        ledger.enforce(self._policy)
        stream = self._endpoint.streams_if(head.stream)
        return TranslatedRequest(
            body=out,
            request=Request(self._client.name, head.model, messages=(), stream=stream),
            losses=ledger,
            undo=Undo(),
            relayed=True,
            prompt_tokens=len(body) // _BYTES_PER_TOKEN,
            upstream_model=upstream_model,
            members=members,
            endpoint=self._endpoint,
        )


def _count(body: bytes, received: Request, window: int | None) -> int:
    """Return about how many tokens the prompt has: roughly if it is small, and takes little of the context window."""
    tokens = len(body) // _BYTES_PER_TOKEN
    is_small = len(body) < _LARGE and (window is None or tokens <= window // 4)
    return tokens if is_small else estimate_tokens(received)


def _check_conversation(out: JSONObject, upstream: UpstreamSpec, received: Request) -> None:
    """Raise RequestRefused (400) if nothing of the client's conversation is left in the upstream's request."""
    if [] in map(out.get, upstream.content_members):
        raise RequestRefused(
            "nothing of the conversation can be sent to this upstream: it is empty, or has no form in other protocols",
            path=received.messages[0].path,
            code="unsupported_value",
        )


def _no_model() -> RequestRefused:
    return RequestRefused("model is required", path="/model", code="missing_required_parameter")
