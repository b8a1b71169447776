"""Errors that cross the wire, in a form that belongs to no protocol, and the masking of secrets in them.

A spec's read_error makes a WireError of an upstream's response, its write_error makes a client's response of one.
"""

from dragoman._wire.errors import (
    STATUS_BY_KIND,
    ErrorKind,
    WireError,
    kind_from_message,
    kind_of_status,
    unreadable_error,
)
from dragoman._wire.exceptions import dotted_path
from dragoman._wire.masking import Masker, mask_document, mask_error, mask_value

__all__ = [
    "STATUS_BY_KIND",
    "ErrorKind",
    "Masker",
    "WireError",
    "dotted_path",
    "kind_from_message",
    "kind_of_status",
    "mask_document",
    "mask_error",
    "mask_value",
    "unreadable_error",
]
