"""JSON texts with the limits that bytes from outside need, and errors that name the wrong byte.

decode() and encode() keep what JSON can hold: unknown members, the order of members, lone surrogates.
"""

from dragoman._wire.json import (
    JSON,
    MAX_COUNT,
    MAX_DOCUMENT_BYTES,
    JSONObject,
    decode,
    decode_object,
    encode,
    encode_lines,
    encode_long,
    encode_text,
    kind_of,
    read_count,
    size_up_to,
)
from dragoman._wire.limits import search
from dragoman._wire.splice import all_members, splice_model

__all__ = [
    "JSON",
    "MAX_COUNT",
    "MAX_DOCUMENT_BYTES",
    "JSONObject",
    "all_members",
    "decode",
    "decode_object",
    "encode",
    "encode_lines",
    "encode_long",
    "encode_text",
    "kind_of",
    "read_count",
    "search",
    "size_up_to",
    "splice_model",
]
