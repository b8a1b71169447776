"""Removal of secrets from errors and documents of a peer, before clients or logs get them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from dragoman._wire.errors import WireError
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, decode, encode

# Returns a text without what its reader may not see.
Masker: TypeAlias = Callable[[str], str]


def mask_error(error: WireError, mask: Masker | None) -> WireError:
    """Apply the mask to all texts of an error, because a peer may repeat a secret in any of them."""
    if mask is None:
        return error
    texts = {name: text for name in _TEXTS if (text := getattr(error, name)) is not None}
    masked = {name: mask(text) for name, text in texts.items()}
    return error if masked == texts else msgspec.structs.replace(error, **masked)


_TEXTS = ("message", "code", "type", "param", "request_id")


def mask_document(data: bytes, mask: Masker | None) -> bytes:
    """Apply the mask to an error document, JSON or not. Returns the same bytes if it changes nothing.

    Strings of JSON are decoded first, because any character may be written as an escape.
    """
    if mask is None:
        return data
    try:
        value = decode(data)
        masked = mask_value(value, mask)
    except (RemoteProtocolError, RecursionError):
        return mask(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    return data if masked == value else encode(masked)


def mask_value(value: JSON, mask: Masker) -> JSON:
    """Apply the mask to all strings of a JSON value, names of members included."""
    if type(value) is str:
        return mask(value)
    if type(value) is list:
        return [mask_value(each, mask) for each in value]
    if type(value) is dict:
        return {mask(name): mask_value(each, mask) for name, each in value.items()}
    return value
