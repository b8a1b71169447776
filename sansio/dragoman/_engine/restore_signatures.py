"""Signatures in a request that is relayed to an upstream of the client's own protocol.

A conversation that went through upstreams of other protocols has their signatures in wrapped form. The decoded body is
edited in place: a signature that the upstream's vendor made is put back, and any other is dropped. Every other
message stays the same object, so that it can keep its bytes and the upstream's prompt cache still matches.
"""

from __future__ import annotations

from dragoman._ir.events import Signature
from dragoman._ir.losses import Ledger
from dragoman._ir.wrapped_signatures import SEPARATOR, Signer
from dragoman._transforms.signatures import FORGED, unreadable_reason
from dragoman._wire.json import JSON, JSONObject
from dragoman.codec import SignaturePlaces, UpstreamSpec


def restore_signatures(
    body: JSONObject,
    model: JSON,
    upstream: UpstreamSpec,
    signer: Signer,
    ledger: Ledger,
    signed_reasoning: bool,
    *,
    rewritten: bool = False,
) -> None:
    """Put back the signatures that this upstream's vendor made, and drop others. Every drop is recorded.

    model: that is requested from the upstream.
    signed_reasoning: False if the upstream has refused signatures. Then its own are dropped too.
    rewritten: The body is read and written afterwards, which makes all other changes.
    """
    places = upstream.signature_places
    conversation = body.get(places.conversation)
    if type(conversation) is not list or any(type(item) is not dict for item in conversation):
        return  # the upstream will refuse it
    places.prepare(conversation)

    def restored(objects: list[JSON], message: JSONObject, path: str) -> list[JSON]:
        out: list[JSON] = []
        for index, found in enumerate(objects):
            value = _signature_of(found, places, signed_reasoning)
            native: JSON = None
            # A server that signs nothing has an empty one. What has passed so far still has to pass next to others.
            if type(value) is str and (value or not signed_reasoning):
                reason, native = _read(value, model, upstream, signer, signed_reasoning)
                if reason is not None:
                    if reason:
                        ledger.foreign_signature(f"{path}/{index}", reason)
                    out += places.without(found)
                    continue
            if type(found) is not dict or (rewritten and native is None):
                out.append(found)
            else:
                out += places.replace(found, native, message, f"{path}/{index}", ledger)
        return out

    path = f"/{places.conversation}"
    if not places.members:
        conversation = restored(conversation, body, path)
    kept: list[JSON] = []
    for index, message in enumerate(conversation):
        is_emptied = False  # it had only dropped members
        for name in places.members:
            if message.get(name) and type(message[name]) is list:
                message[name] = restored(message[name], message, f"{path}/{index}/{name}")
                if not message[name]:
                    del message[name]
                    is_emptied = message.keys() == {"role"}
        if not is_emptied:
            kept.append(message)
    body[places.conversation] = kept
    if not rewritten:
        places.finish(body, signer, ledger)


def _signature_of(found: JSON, places: SignaturePlaces, signed_reasoning: bool) -> JSON:
    """Return the signature of an object, "" if it has none and the upstream has refused reasoning, None for others."""
    kind = found.get("type", "") if type(found) is dict else None
    field = places.fields.get(kind) if type(kind) is str else None
    value = None if field is None else found.get(field)
    return "" if value is None and field and kind and not signed_reasoning else value


def _read(
    value: str, model: JSON, upstream: UpstreamSpec, signer: Signer, signed_reasoning: bool
) -> tuple[str | None, JSON]:
    """Return why the upstream cannot read a signature, None if it can, and the vendor's object if that was wrapped.

    "" for one that nobody has to read.
    """
    if not signer.is_wrapped(value):
        return unreadable_reason(Signature(upstream.name, {}), upstream, model, signed_reasoning), None
    signature = signer.unwrap(value)
    if signature is None or type(signature.native) is not dict:
        return FORGED, None
    if signature == SEPARATOR:
        return "", None
    return unreadable_reason(signature, upstream, model, signed_reasoning), signature.native
