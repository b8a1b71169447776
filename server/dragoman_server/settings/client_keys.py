"""Make client keys and their hashes, and derive keys from the gateway's secret.

A client key is 256 random bits that only its owner has; the configuration has its keyed hash, which is useless without
the secret. The secret itself is never used as a key: every use derives its own, by a label.

Commands and the operator's endpoints make and rotate keys by the same functions, and a key is the same table in a file
and in the account store.
"""

import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

from msgspec.structs import replace

from dragoman import Signer
from dragoman_server.platform.clock import utc_text
from dragoman_server.settings import ClientKey, Settings, settings_of
from dragoman_server.settings.problems import did_you_mean
from dragoman_server.settings.secret import CLIENT_KEY_PREFIX, Secret
from dragoman_server.settings.server import ENV_PREFIX
from dragoman_server.settings.values import InvalidValue, check_value

SETTINGS = settings_of(ClientKey)
# Whoever makes a key does not choose them.
NOT_CHOSEN = ("hash", "disabled", "previous_hash", "previous_expires")

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_MAX_DURATION_S = 100 * 365 * 86_400
_DURATION = re.compile(r"(\d{1,6})([smhdw])")
WHEN = "30d, 12h, 45m, a date, or a time such as 2026-12-31T18:00:00Z"

# A new label invalidates everything that was made with the old one.
_SIGNATURES_LABEL = b"dragoman: sealed reasoning, version 1"
_CLIENT_KEYS_LABEL = b"dragoman: client keys, version 1"

_KEY_BYTES = 32

# What a change has made: a new key if it has, and the settings of the key, None if there is none any more.
Changed = TypeVar("Changed", bound=tuple[str | None, ClientKey | None])
# It may be called several times. Raises InvalidValue.
KeyChange: TypeAlias = Callable[[ClientKey, Settings], Changed]


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


# Tables.


def checked_table(table: Mapping[str, object]) -> dict[str, Any]:
    """Return the settings that a table of a client key has. None counts as missing. Raises InvalidValue."""
    found = dict[str, Any]()
    for name, value in table.items():
        if name not in SETTINGS:
            hint = did_you_mean(name, SETTINGS) or "; there are " + ", ".join(SETTINGS)
            raise InvalidValue(f"is unknown{hint}", name)
        try:
            if value is not None:
                found[name] = check_value(SETTINGS[name], value, value)
        except InvalidValue as error:
            raise InvalidValue(str(error), name, *error.at) from None
    return found


def table_of(key: ClientKey) -> dict[str, object]:
    """Return the table of a client key, without defaults."""
    values = {name: getattr(key, name) for name in SETTINGS}
    return {name: value for name, value in values.items() if value != SETTINGS[name].default}


def public_table(key: ClientKey) -> dict[str, Any]:
    """Return the table without its hashes, times as text."""
    return {
        name: utc_text(value) if isinstance(value, datetime) else value
        for name, value in table_of(key).items()
        if not name.endswith("hash")
    }


def _secret_of(settings: Settings) -> Secret:
    """Return the secret that hashes of keys are made with. Raises InvalidValue if there is none."""
    if settings.server.secret is None:
        raise InvalidValue(
            "keys need server.secret, which their hashes are made with: put 32 or more random characters into "
            f"{ENV_PREFIX}SECRET, as from `openssl rand -hex 32`, and keep them"
        )
    return settings.server.secret


def make_key(values: Mapping[str, object], settings: Settings, now: datetime) -> tuple[str, ClientKey]:
    """Make a key with these settings, of which `expires` is as parse_when() reads it. Raises InvalidValue."""
    if values.get("name") is None:
        raise InvalidValue("is missing", "name")
    for name in NOT_CHOSEN:
        if name in values:
            raise InvalidValue("cannot be chosen", name)
    made, expires = checked_table({**values, "expires": None}), values.get("expires")
    key = new_key()
    ends = None if expires is None else parse_when(expires, now)
    return key, ClientKey(**made, hash=hash_client_key(key, _secret_of(settings)), expires=ends)


def rotated_key(
    old: ClientKey, settings: Settings, now: datetime, *, overlap: object = "24h", expires: object = None
) -> tuple[str, ClientKey]:
    """Make a new key that has all that the old one has. Raises InvalidValue.

    overlap: how long the old one stays valid. expires: of the new one, "never" or as parse_when() reads it; None: as
    the old one.
    """
    now = now.replace(microsecond=0)
    ends = now + parse_duration(overlap)
    new_end = old.expires
    if expires is not None:
        new_end = None if expires == "never" else parse_when(expires, now)
    if new_end is not None and new_end <= now:
        raise InvalidValue(f"{old.name} has expired: write how long the new key is valid, as 90d", "expires")
    before = old.previous_expires
    if before is not None and before > now and ends > now:
        raise InvalidValue(
            f"{old.name} has two keys already, and the older one is valid until {utc_text(before)}: rotate it "
            "after that, or end both now with an overlap of 0",
            "overlap",
        )
    keeps_old = ends > now and (old.expires is None or old.expires > now)
    key = new_key()
    return key, replace(
        old,
        hash=hash_client_key(key, _secret_of(settings)),
        expires=new_end,
        previous_hash=old.hash if keeps_old else None,
        previous_expires=ends if keeps_old else None,
    )


# Times.


def parse_when(text: object, now: datetime) -> datetime:
    """Return the time that a text means: a duration from now, a date, or a time. Raises InvalidValue."""
    if isinstance(text, str) and _DURATION.fullmatch(text):
        return (now + parse_duration(text)).replace(microsecond=0)
    try:
        when = check_value(SETTINGS["expires"], text, text)
    except InvalidValue:
        raise InvalidValue(f"{_quoted(text)} is not a time: write {WHEN}", "expires") from None
    assert isinstance(when, datetime)
    if when <= now:
        raise InvalidValue(f"{text} is in the past", "expires")
    return when


def parse_duration(text: object) -> timedelta:
    """Return the duration that a text means: 30d, 12h, 45m, 90s, 2w, or 0. Raises InvalidValue."""
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None and (text not in ("0", 0) or text is False):
        raise InvalidValue(f"{_quoted(text)} is not a duration: write 30d, 12h, 45m, or 0", "overlap")
    seconds = int(match[1]) * _UNITS[match[2]] if match else 0
    if seconds > _MAX_DURATION_S:
        raise InvalidValue(f"{text} is more than 100 years", "overlap")
    return timedelta(seconds=seconds)


def _quoted(value: object) -> str:
    return ascii(value)[:100]
