"""Translate error responses of upstreams. Errors within a stream are events, which ResponseTranslator translates."""

from __future__ import annotations

import msgspec

from dragoman._wire.errors import KIND_BY_STATUS, STATUS_BY_KIND, ErrorKind, WireError
from dragoman.codec import ProtocolSpec, UpstreamSpec
from dragoman.protocols import client_spec, upstream_spec

# "A client that receives a response with an invalid status code SHOULD process the response as if it had a 5xx
# (Server Error) status code" -- RFC 9110, 15.
_LAST_STATUS = 599


def translate_error(
    status: int,
    body: bytes,
    *,
    client: ProtocolSpec | str,
    upstream: UpstreamSpec | str,
    request_id: str | None = None,
    retry_after_s: float | None = None,
) -> tuple[int, bytes, WireError]:
    """Translate an upstream's error response for the client.

    Returns the status and the body for the client, and the error for logs and retries. Between equal protocols the
    upstream's own bytes are kept, if a client of the protocol can read them and the status, which Gemini's repeat, is
    valid. They are not kept if they say in other words than the vendor's that the prompt is too long.

    Args:
        status: of the upstream's response.
        body: of the upstream's response.
        client: the client's protocol, by name or by spec.
        upstream: the upstream's protocol, by name or by spec.
        request_id: an id that the client's body gets where its protocol has a place for it.
        retry_after_s: the seconds after which the response's headers permit another request, None if they have none.
            The client's body gets them where its protocol has a place for it.
    """
    client, upstream = client_spec(client), upstream_spec(upstream)
    valid = status <= _LAST_STATUS
    error = upstream.read_error(status, body)
    if not valid:
        # Whatever the body says, so that each protocol's client gets the same.
        status = 502
        error = msgspec.structs.replace(error, kind=KIND_BY_STATUS[status], status=status)
    if retry_after_s is not None:
        error = msgspec.structs.replace(error, retry_after_s=retry_after_s)
    if valid and upstream.name == client.name and upstream.is_native_error(body):
        markers = upstream.overflow_markers
        # Servers have their own words for it, and agents compact the conversation only at their vendor's.
        if error.kind is not ErrorKind.CONTEXT_LENGTH or not markers or any(map(body.__contains__, markers)):
            return status, body, error
    # SDKs send a request again after a 500, and the upstream has refused this one for what is in it.
    refused = status == 500 and STATUS_BY_KIND[error.kind] < 500
    written = msgspec.structs.replace(error, status=None) if refused else error
    status, body = client.write_error(written, request_id)
    return status, body, error
