"""Who may use the gateway: client keys, and the secret that everything derives from.

Strategy: a key is 256 random bits that only its owner knows; the configuration has its keyed hash, which is worth
nothing without the secret. A presented key is hashed and compared with all hashes, each in constant time, whatever
the outcome. The secret itself keys nothing: every use has a key of its own, derived by its label.
"""

import hmac
import secrets
from functools import lru_cache

from dragoman import Signer
from dragoman_server.settings import ClientKey
from dragoman_server.settings.patterns import matches
from dragoman_server.settings.secret import CLIENT_KEY_PREFIX, Secret

# A new label makes everything that was made with the old one void.
_SEALS = b"dragoman: sealed reasoning, version 1"
_CLIENT_KEYS = b"dragoman: client keys, version 1"

_KEY_BYTES = 32


@lru_cache(maxsize=16)
def _subkey(secret: Secret, label: bytes) -> bytes:
    return hmac.digest(secret.reveal().encode(), label, "sha256")


def make_signer(secret: Secret | None) -> Signer:
    """Wraps and unwraps reasoning. Without a secret, anybody can make what looks like ours."""
    return Signer() if secret is None else Signer(_subkey(secret, _SEALS))


def new_key() -> str:
    """A client key."""
    return CLIENT_KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)


def hash_client_key(key: str, secret: Secret) -> str:
    """What is stored of a client key."""
    return hmac.digest(_subkey(secret, _CLIENT_KEYS), key.encode("utf-8", "surrogateescape"), "sha256").hex()


def may_use(key: ClientKey | None, model: str) -> bool:
    """Whether a client may use a model, by the name that it sends. key: the one that it came with, if any."""
    return key is None or not key.models or any(matches(model, pattern) for pattern in key.models)
