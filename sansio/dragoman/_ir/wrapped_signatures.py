"""Wrapped signatures: how reasoning that only its vendor can read travels through a client of another protocol.

A signature or ciphertext is never forged, emptied or changed. If it must pass through a client of another protocol,
the whole native block is put into that protocol's own opaque field as `PREFIX base64url(JSON)`, and taken out
unchanged when the conversation comes back. With a secret, a MAC follows, so that a client cannot insert blocks that it
made itself into a conversation. A field that has to be base64 gets a list of such blocks, whose text is encoded as a
whole.

Readers of requests unwrap them, and `_transforms.signatures` then drops those of other models. In requests that are
relayed `_engine.restore_signatures` does both.
"""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Sequence

import msgspec

from dragoman._ir.events import Signature
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, JSONObject, decode, encode, object_or_empty

# Version 1 of the form. Short, because it is repeated in every turn; not valid base64 of a vendor's own
# value, because of the dot.
WRAPPED_PREFIX = "drg1."

# Found in every body with a string that is a wrapped signature, or an id with `_drg_`, which blocks have that were made
# of one. One pattern that begins with what both have searches a large body in half the time of `in` for each.
WRAPPED_MARKER = re.compile(rb'drg(?:(?<="drg)1\.|(?<=_drg)_)')

# The start of a list in base64. The list itself is JSON, and so begins with "W" in base64.
LIST_PREFIX = b64encode(f"{WRAPPED_PREFIX}W".encode("ascii")).decode("ascii")
LIST_MARKER = re.compile(b'"' + LIST_PREFIX.encode("ascii"))

# 128 bits, half of the hash: enough against guessing.
_MAC_BYTES = 16


class Signer(msgspec.Struct, frozen=True):
    """Wraps and unwraps signatures.

    Attributes:
        secret: The key of the MAC, None for no MAC. With a secret, a wrapped signature needs a valid MAC. Clients can
            find a short one out; 32 random bytes are enough. An empty one raises ValueError.
    """

    secret: bytes | None = None

    def __post_init__(self) -> None:
        if self.secret == b"":
            raise ValueError("the secret is empty, so that anybody could make the MAC; None is for no MAC")

    def __repr__(self) -> str:
        return f"Signer(secret={'None' if self.secret is None else '...'})"

    def wrap(self, signature: Signature) -> str:
        """Return the text for a signature or ciphertext field."""
        return self._wrap(_fields(signature))

    def wrap_list(self, signatures: Sequence[Signature]) -> str:
        """Return the text for a field that has to be base64."""
        return b64encode(self._wrap(list(map(_fields, signatures))).encode("ascii")).decode("ascii")

    def _wrap(self, value: JSON) -> str:
        payload = urlsafe_b64encode(encode(value)).rstrip(b"=")
        text = WRAPPED_PREFIX + payload.decode("ascii")
        return text if self.secret is None else f"{text}.{self._mac(self.secret, payload)}"

    def unwrap(self, text: str) -> Signature | None:
        """Return the signature that `text` wraps, the first of a list, None for a vendor's own or a forged one."""
        return next(iter(self.unwrap_list(text)), None)

    def unwrap_list(self, text: str) -> Sequence[Signature]:
        """Return the signatures that `text` wraps, none for a vendor's own signature or a forged one."""
        if text.startswith(LIST_PREFIX):
            # Clients decode and encode it again, with either alphabet (google-genai 3.4.0: the one for URLs).
            text = _decoded(text).decode("ascii", "replace")
        if not text.startswith(WRAPPED_PREFIX):
            return ()
        payload, _, mac = text[len(WRAPPED_PREFIX) :].partition(".")
        if self.secret is not None:
            import hmac  # see _mac

            expected = self._mac(self.secret, payload.encode("ascii", "replace")).encode("ascii")
            if not hmac.compare_digest(mac.encode("ascii", "replace"), expected):
                return ()
        try:
            value = decode(_decoded(payload))
            return [
                Signature(each["o"], each["n"], each["m"])
                for each in (value if type(value) is list else (value,))
                if type(each["o"]) is str and type(each["m"]) is str
            ]
        except (RemoteProtocolError, KeyError, TypeError):
            return ()

    @staticmethod
    def is_wrapped(text: str) -> bool:
        """True if a text has the form of a wrapped signature, valid or not."""
        return text.startswith((WRAPPED_PREFIX, LIST_PREFIX))

    @staticmethod
    def _mac(secret: bytes, payload: bytes) -> str:
        import hmac  # loads OpenSSL, a sixth of the time of importing dragoman; few have a secret

        mac = hmac.digest(secret, payload, "sha256")[:_MAC_BYTES]
        return urlsafe_b64encode(mac).rstrip(b"=").decode("ascii")


def _fields(signature: Signature) -> JSONObject:
    return {"o": signature.origin, "m": signature.model, "n": signature.native}


def _decoded(text: str) -> bytes:
    """Return what base64 with or without padding, in either alphabet, stands for, b"" if it is none.

    msgspec takes a tenth of the time of the standard library, and requests of agents have one in each turn.
    """
    standard = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return msgspec.convert(standard + "=" * (-len(standard) % 4), bytes)
    except (msgspec.ValidationError, UnicodeEncodeError):
        return b""


# A value that was made here, and not by a vendor, travels like a signature of this origin.
_OWN_ORIGIN = "dragoman"
# Ends text that no signature is about, in a client's protocol that has signatures behind what they are about.
SEPARATOR = Signature(_OWN_ORIGIN, {})
_SUMMARY_PREFIX = "Summary of the conversation so far:\n"


def wrap_summary(text: str, signer: Signer) -> str:
    """Return the text for the ciphertext field of a compaction."""
    return signer.wrap(Signature(_OWN_ORIGIN, {"summary": text}))


def unwrap_summary(block: JSON, signer: Signer) -> str | None:
    """Return the summary in a block or item as the model gets it, None in any other, a vendor's compaction too."""
    found = object_or_empty(block)
    text = found.get("encrypted_content") if found.get("type") == "compaction" else None
    summary = _own_value(signer.unwrap(text) if type(text) is str else None, "summary")
    return _SUMMARY_PREFIX + summary if type(summary) is str and summary else None


def phase_signature(phase: str) -> Signature:
    """Return what carries the phase of a message through a client whose protocol has none."""
    return Signature(_OWN_ORIGIN, {"phase": phase})


def unwrap_phase(signature: Signature | None) -> str | None:
    """Return the phase that a signature carries, None if it is another one."""
    phase = _own_value(signature, "phase")
    return phase if type(phase) is str else None


def _own_value(signature: Signature | None, name: str) -> JSON:
    """Return a value that was made here, None if the signature carries another."""
    if signature is None or signature.origin != _OWN_ORIGIN:
        return None
    return object_or_empty(signature.native).get(name)
