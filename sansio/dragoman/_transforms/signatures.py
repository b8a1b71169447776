"""Signatures on their way through clients and back.

A signature belongs to the model that made it. So on the way to the client it is marked with the requested model. One
that comes back for another model is dropped, and so is one that looks wrapped but was not wrapped here. A block that
the client's protocol has no form for, such as a server tool's result, is wrapped in the same way: it travels as
reasoning without text, and the upstream that made it gets it back at its place. So does the phase of a message.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dragoman._ir.events import BlockEnded, BlockKind, BlockStarted, Event, Opaque, Signature, SignatureDelta
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.native import changed
from dragoman._ir.request import Reasoning, Request
from dragoman._ir.wrapped_signatures import phase_signature
from dragoman._transforms.pass_context import PassContext, map_parts
from dragoman._wire.json import JSON, encode
from dragoman.codec import ProtocolSpec, UpstreamSpec

# Clients send all blocks again with every turn, so large ones (images) are not wrapped.
MAX_WRAPPED_BYTES = 256 * 1024

# Numbers of blocks that are made here; readers count from 0 and never reach them.
_FIRST_BLOCK = 1 << 40


def drop_foreign_signatures(request: Request, context: PassContext) -> Request:
    """Drop reasoning signatures issued by a model other than the requested one. Forged ones are recorded as losses.

    If the upstream has refused signatures, its own are dropped too, whatever model made them.
    """

    dropped: set[int] = set()  # the ids of the objects
    for part in context.contents.reasoning:
        if part.forged:
            context.ledger.foreign_signature(part.path, FORGED)
        signature = part.signature
        if signature is None or signature.origin != context.upstream.name:
            continue
        reason = unreadable_reason(signature, context.upstream, request.model, context.signed_reasoning)
        if reason is not None and _is_signed(signature, context.upstream):
            context.ledger.foreign_signature(part.path, reason)
            dropped.add(id(part))
    if not dropped:
        return request  # as most are

    def without_signature(part: Reasoning) -> Reasoning:
        return changed(part, signature=None) if id(part) in dropped else part

    return map_parts(request, {Reasoning: without_signature})


def _is_signed(signature: Signature, upstream: UpstreamSpec) -> bool:
    """False for an object without its signature: reasoning items of Responses come without a ciphertext, too, and then
    some hold the whole text as their content.
    """
    native = signature.native
    field = (
        upstream.signature_places.fields.get(str(native.get("type", ""))) if type(native) is dict else None
    )
    return field is None or native.get(field) is not None or bool(native.get("content"))


FORGED = "a wrapped signature of another gateway, or one that was changed"


def unreadable_reason(
    signature: Signature, upstream: UpstreamSpec, model: JSON, signed_reasoning: bool
) -> str | None:
    """Return why the upstream cannot read a signature, None if it can.

    model: that is requested. signed_reasoning: False if the upstream has refused signatures.
    """
    if signature.origin != upstream.name:
        return "only its vendor can read this reasoning"
    if not upstream.model_bound_signatures:
        return None
    if signature.model and signature.model != model:
        return "made by another model, and only that model can read it"
    if not signed_reasoning:
        return "refused by the upstream: only the organization whose account made it can read it"
    return None


class SignatureStage(msgspec.Struct):
    """Marks signatures with the model that was requested, and wraps what the client has no form for.

    model: the upstream's name of it, "" if unknown: then signatures keep the model that their reader found.
    """

    _client: ProtocolSpec
    _model: str
    _ledger: Ledger
    _added: int = 0
    _phased: str | None = None  # the item whose phase was sent last

    needs_text = False  # see `_transforms.pipeline`
    kinds = frozenset({BlockStarted, SignatureDelta, Opaque})

    def send(self, event: Event) -> Sequence[Event]:
        if type(event) is BlockStarted and event.phase is not None:
            return self._phase(event, event.phase)
        if type(event) is SignatureDelta and self._model:
            return (SignatureDelta(event.block, self._marked(event.signature)),)
        if type(event) is Opaque and event.origin != self._client.name:
            return self._signature(event)
        return (event,)

    def _marked(self, signature: Signature) -> Signature:
        return Signature(signature.origin, signature.native, self._model) if self._model else signature

    def _signature(self, event: Opaque) -> Sequence[Event]:
        visible = (event,) if event.search is not None and self._client.shows_searches else ()
        if not event.round_trip or not self._client.returns_signatures:
            if visible:
                self._ledger.altered(event.path, "only the queries and the pages found were kept")
            else:
                self._ledger.unknown_kind(
                    event.path, f"the client's protocol has no counterpart of {event.kind}"
                )
            return visible
        if len(encode(event.native)) > MAX_WRAPPED_BYTES:
            self._ledger.dropped(event.path, f"{event.kind} is too large for a wrapped signature")
            return visible
        signature = self._marked(Signature(event.origin, event.native))
        return (*self._carrier(signature, event.kind, event.path, event.choice), *visible)

    def _phase(self, event: BlockStarted, phase: str) -> Sequence[Event]:
        """Return the start of a block without its phase, which goes before the first block of its message."""
        if "phase" in self._client.message_members:
            return (event,)
        plain = msgspec.structs.replace(event, phase=None)
        path = f"{event.path}/phase"
        if not self._client.returns_signatures:
            self._ledger.dropped(path, "the client's protocol has no message phases")
        elif event.item_id is None or event.item_id != self._phased:
            self._phased = event.item_id
            return (*self._carrier(phase_signature(phase), "phase", path, event.choice), plain)
        return (plain,)

    def _carrier(self, signature: Signature, what: str, path: str, choice: int) -> Sequence[Event]:
        """Return reasoning without text, with which the client sends a value back."""
        self._ledger.add(
            LossCode.WRAPPED,
            path,
            f"{what} has no counterpart: sent in a wrapped signature, for its own vendor",
        )
        block = _FIRST_BLOCK + self._added
        self._added += 1
        return (
            BlockStarted(block, BlockKind.REASONING, choice),
            SignatureDelta(block, signature),
            BlockEnded(block),
        )
