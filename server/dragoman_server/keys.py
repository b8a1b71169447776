"""Who may use the gateway: client keys, and the secret that everything derives from.

Strategy: a key is 256 random bits that only its owner knows; the configuration has its keyed hash, which is worth
nothing without the secret. A presented key is hashed and compared with all hashes, each in constant time, whatever
the outcome. The secret itself keys nothing: every use has a key of its own, derived by its label.
"""

import hmac
import secrets
from collections.abc import Iterable, Sequence
from functools import lru_cache

from dragoman import PROTOCOLS, RemoteProtocolError, Signer
from dragoman.codec import ProtocolSpec, UpstreamSpec
from dragoman_server.settings import ClientKey, Settings
from dragoman_server.settings.patterns import matches
from dragoman_server.settings.secret import CLIENT_KEY_PREFIX, Secret

# What a request's scope has under this name: the ClientKey that it came with, None where none are needed.
SCOPE_KEY = "dragoman.client_key"

# A new label makes everything that was made with the old one void.
_SEALS = b"dragoman: sealed reasoning, version 1"
_CLIENT_KEYS = b"dragoman: client keys, version 1"

# What keys look like, so that scanners of public code can find them.
CLIENT_KEY_PREFIX = CLIENT_KEY_PREFIX
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


def key_headers(protocols: Iterable[ProtocolSpec]) -> tuple[str, ...]:
    """Return the headers, beside authorization, in which clients of these protocols send their key."""
    names = (spec.auth_header for spec in protocols if isinstance(spec, UpstreamSpec))
    return tuple(dict.fromkeys(name for name in names if name != "authorization"))


KEY_HEADERS = key_headers(PROTOCOLS.values())


def presented_key(headers: Iterable[tuple[bytes, bytes]], names: Iterable[str] = KEY_HEADERS) -> str | None:
    """Return the key that a client sends. names: the headers for it, beside authorization.

    With both there, authorization does not count, as at Anthropic's own server. A header that is there twice has no one
    value, so it is none.
    """
    found: dict[bytes, list[str]] = {}
    for name, value in headers:
        found.setdefault(name.lower(), []).append(value.decode("latin-1").strip())
    for each in names:
        if each.encode("ascii") in found:
            return _only(found[each.encode("ascii")])
    scheme, _, rest = (_only(found.get(b"authorization", [])) or "").partition(" ")
    return rest.strip() if scheme.lower() == "bearer" else None


def _only(values: list[str]) -> str | None:
    return values[0] if len(values) == 1 else None


class Keyring:
    """The client keys of the configuration. names: the headers in which they may come, beside authorization."""

    def __init__(
        self, keys: Iterable[ClientKey], secret: Secret | None, names: Sequence[str] = KEY_HEADERS
    ) -> None:
        self._keys = [(key.hash.encode(), key) for key in keys]
        if self._keys and secret is None:
            raise ValueError("client keys need server.secret: their hashes are keyed with it")
        self._secret = secret
        self._names = names

    def __bool__(self) -> bool:
        return bool(self._keys)

    def authenticate(self, headers: Iterable[tuple[bytes, bytes]]) -> ClientKey | None:
        """The key that a request came with, None where no keys are configured.

        headers: as in an ASGI scope. Raises RemoteProtocolError (401) when none fits.
        """
        if self._secret is None or not self._keys:
            return None
        presented = presented_key(headers, self._names)
        if presented is None:
            raise _refusal(
                "this gateway needs a client key: send it as authorization: Bearer, or as "
                + ", ".join(self._names)
            )
        hashed = hash_client_key(presented, self._secret).encode()
        found = None
        for expected, key in self._keys:
            if hmac.compare_digest(hashed, expected):
                found = key
        if found is None:
            raise _refusal(
                "this gateway does not know the client key: send another, or have one made (dragoman keys add)"
            )
        return found


def may_use(key: ClientKey | None, model: str) -> bool:
    """Whether a client may use a model, by the name that it sends. key: the one that it came with, if any."""
    return key is None or not key.models or any(matches(model, pattern) for pattern in key.models)


def same_key(one: str, other: Secret) -> bool:
    """Compares in constant time, and tells not even the length."""
    fresh = secrets.token_bytes(32)
    digests = (
        hmac.digest(fresh, key.encode("utf-8", "surrogateescape"), "sha256") for key in (one, other.reveal())
    )
    return hmac.compare_digest(*digests)


def make_keyring(settings: Settings, protocols: Iterable[ProtocolSpec] = PROTOCOLS.values()) -> Keyring:
    return Keyring(settings.client_keys, settings.server.secret, key_headers(protocols))


def _refusal(message: str) -> RemoteProtocolError:
    return RemoteProtocolError(message, status=401, code="invalid_api_key")
