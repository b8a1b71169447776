"""Signatures in a request that is relayed to an upstream of the client's own protocol.

A conversation that went through upstreams of other protocols has their signatures in wrapped form. The decoded body is
edited in place: a signature that the upstream's vendor made is put back, and that of any other is dropped. Every other
value stays as the client sent it, so that the upstream's prompt cache still matches.
"""

from __future__ import annotations

from collections.abc import Iterable

from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.signatures import Signer
from dragoman._transforms.signatures import FORGED, unreadable_reason
from dragoman._wire.json import JSON, JSONObject
from dragoman.codec import UpstreamSpec


def restore_signatures(
    body: JSONObject, upstream: UpstreamSpec, signer: Signer, ledger: Ledger, *, readable: bool = True
) -> None:
    """Put back the signatures that this upstream's vendor made, and drop those of others. Every drop is recorded.

    body: names the model that is requested from the upstream.
    readable: False if the upstream has refused signatures. Then its own are dropped too.
    """
    places = upstream.signature_places
    conversation = body.get(places.conversation)
    if type(conversation) is not list or any(type(item) is not dict for item in conversation):
        return  # the upstream will refuse it
    restorer = _Restorer(upstream, signer, body["model"], ledger, readable)
    path = f"/{places.conversation}"
    if not places.members:
        conversation = restorer.restored(conversation, body, path)
    for index, message in enumerate(conversation if places.members else ()):
        for name in places.members:
            objects = message.get(name)
            if type(objects) is list and objects:
                message[name] = restorer.restored(objects, message, f"{path}/{index}/{name}")
                if not message[name]:
                    del message[name]
    # A message with nothing but a role had only what was dropped.
    body[places.conversation] = [item for item in conversation if item.keys() != {"role"}]
    places.finish(body, signer, ledger)


class _Restorer:
    __slots__ = ("_ledger", "_model", "_readable", "_signer", "_upstream")

    def __init__(
        self, upstream: UpstreamSpec, signer: Signer, model: str, ledger: Ledger, readable: bool
    ) -> None:
        self._upstream = upstream
        self._signer = signer
        self._model = model
        self._ledger = ledger
        self._readable = readable

    def restored(self, objects: list[JSON], message: JSONObject, path: str) -> list[JSON]:
        """Return the objects with their own signatures. message: holds them."""
        out: list[JSON] = []
        for index, found in enumerate(objects):
            if type(found) is dict:
                out += self._replaced(found, message, f"{path}/{index}")
            else:
                out.append(found)
        return out

    def _replaced(self, found: JSONObject, message: JSONObject, path: str) -> Iterable[JSON]:
        places = self._upstream.signature_places
        kind = found.get("type")
        value = found.get(places.fields.get(kind, "")) if type(kind) is str else None
        native: JSON = None
        if type(value) is str and value:
            reason, native = self._opened(value)
            if reason is not None:
                self._ledger.add(LossCode.FOREIGN_SEAL, path, reason)
                return ()
        return places.replace(found, native, message, path, self._ledger)

    def _opened(self, value: str) -> tuple[str | None, JSONObject | None]:
        """Return why the upstream cannot read a signature, None if it can, and what it wraps."""
        if not self._signer.is_wrapped(value):
            signed_by, native = "", None
        else:
            signature = self._signer.unwrap(value)
            if signature is None or type(signature.native) is not dict:
                return FORGED, None
            if signature.origin != self._upstream.name:
                return f"made by {signature.origin}, which alone can read it", None
            signed_by, native = signature.model, signature.native
        if not self._upstream.model_bound_signatures:
            return None, native
        return unreadable_reason(signed_by, self._model, self._readable), native
