"""Sealed reasoning: how a carrier that only its maker can read travels through a client of another protocol.

Strategy: a signature or ciphertext is never forged, emptied or changed. When it must pass through a client of
another protocol, the whole native block is put into that protocol's own opaque field as
`PREFIX base64url(JSON)`, and taken out unchanged when the conversation comes back. With a secret, a MAC
follows, so that a client cannot slip blocks of its own making into a conversation.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, urlsafe_b64encode

import msgspec

from dragoman._ir.events import Seal
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import decode, encode

# Version 1 of the form. Short, because it is repeated in every turn; not valid base64 of a vendor's own
# value, because of the dot.
PREFIX = "drg1."

# How a wrapped seal looks in a body: it is the whole of a JSON string.
CARRIER = b'"' + PREFIX.encode("ascii")

# 128 bits: as long as anyone can need against guessing, half of what the hash gives.
_MAC_BYTES = 16


class Sealer(msgspec.Struct, frozen=True):
    """Wraps and unwraps seals.

    secret: key of the MAC, None for no MAC. With a secret, a wrapped seal without a valid MAC is not ours.
    """

    secret: bytes | None = None

    def __repr__(self) -> str:
        return f"Sealer(secret={'None' if self.secret is None else '...'})"

    def wrap(self, seal: Seal) -> str:
        """The text to put into a signature or ciphertext field."""
        value = {"o": seal.origin, "m": seal.model, "n": seal.native}
        payload = urlsafe_b64encode(encode(value)).rstrip(b"=")
        text = PREFIX + payload.decode("ascii")
        return text if self.secret is None else f"{text}.{self._mac(self.secret, payload)}"

    def unwrap(self, text: str) -> Seal | None:
        """The seal that `text` carries, None when it was not wrapped here (a real signature, or forged)."""
        if not text.startswith(PREFIX):
            return None
        payload, _, mac = text[len(PREFIX) :].partition(".")
        raw = payload.encode("ascii", "replace")
        if self.secret is not None:
            import hmac  # see _mac

            expected = self._mac(self.secret, raw).encode("ascii")
            if not hmac.compare_digest(mac.encode("ascii", "replace"), expected):
                return None
        try:
            value = decode(b64decode(raw + b"=" * (-len(raw) % 4), altchars=b"-_", validate=True))
            return msgspec.convert({"origin": value["o"], "model": value["m"], "native": value["n"]}, Seal)
        except (binascii.Error, RemoteProtocolError, msgspec.ValidationError, KeyError, TypeError):
            return None

    @staticmethod
    def is_wrapped(text: str) -> bool:
        """Whether a text has our form, whatever it holds."""
        return text.startswith(PREFIX)

    @staticmethod
    def _mac(secret: bytes, payload: bytes) -> str:
        import hmac  # loads OpenSSL, a sixth of the time of importing dragoman; few have a secret

        mac = hmac.digest(secret, payload, "sha256")[:_MAC_BYTES]
        return urlsafe_b64encode(mac).rstrip(b"=").decode("ascii")
