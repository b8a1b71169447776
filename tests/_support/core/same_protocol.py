"""Requests to an upstream of the same protocol."""

from typing import Any

import msgspec

from dragoman._ir.request import Request
from dragoman._ir.wrapped_signatures import Signer
from dragoman.codec import UpstreamSpec


def read_same_protocol(spec: UpstreamSpec, body: dict[str, Any], signer: Signer = Signer()) -> Request:
    """Read a body as RequestTranslator does if it fits it to such an upstream."""
    received = spec.read_request(body, signer)
    return msgspec.structs.replace(received, native=body, received=received)
