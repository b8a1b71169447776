"""Make client keys and their hashes, and derive keys from the gateway's secret.

A client key is 256 random bits that only its owner has; the configuration has its keyed hash, which is useless without
the secret. The secret itself is never used as a key: every use derives its own, by a label.
"""

import hmac
import secrets
from functools import lru_cache

from dragoman import Signer
from dragoman_server.settings import ClientKey
from dragoman_server.settings.secret import CLIENT_KEY_PREFIX, Secret

# A new label invalidates everything that was made with the old one.
_SIGNATURES_LABEL = b"dragoman: sealed reasoning, version 1"
_CLIENT_KEYS_LABEL = b"dragoman: client keys, version 1"

_KEY_BYTES = 32


@lru_cache(maxsize=16)
def _subkey(secret: Secret, label: bytes) -> bytes:
    return hmac.digest(secret.reveal().encode(), label, "sha256")


def make_signer(secret: Secret | None) -> Signer:
    """Return what wraps and unwraps reasoning signatures. Without a secret, anybody can forge them."""
    return Signer() if secret is None else Signer(_subkey(secret, _SIGNATURES_LABEL))


def new_key() -> str:
    """Return a new client key."""
    return CLIENT_KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)


def hash_client_key(key: str, secret: Secret) -> str:
    """Return the hash by which a client key is configured."""
    return hmac.digest(
        _subkey(secret, _CLIENT_KEYS_LABEL), key.encode("utf-8", "surrogateescape"), "sha256"
    ).hex()


def may_use(key: ClientKey | None, model: str) -> bool:
    """True if a client may use a model by the name that it sends. key: the client's, None if none is needed."""
    return key is None or key.may_use(model)
