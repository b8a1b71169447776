"""Whole responses: their headers, errors in the form of the client's protocol, and the protocol of a path."""

import re
import time
from collections.abc import Mapping

import msgspec
from starlette.types import Send

from dragoman import PROTOCOLS, ErrorKind, WireError
from dragoman.codec import ProtocolSpec, UpstreamSpec
from dragoman_server.policy.error_actions import retry_after
from dragoman_server.wire.headers import (
    BROWSER_HEADERS,
    JSON_HEADERS,
    HeaderList,
    encode_headers,
    retry_headers,
)

# Errors for which a retry would fail again. SDKs retry some of these by default, Claude Code a 401 for three minutes.
_NOT_RETRYABLE_KINDS = frozenset(
    {ErrorKind.AUTHENTICATION, ErrorKind.PERMISSION, ErrorKind.BILLING, ErrorKind.MISCONFIGURED}
)
_NOT_RETRYABLE_STATUSES = frozenset({401, 403})
_SHOULD_RETRY = "x-should-retry"
_FOR_BROWSERS = encode_headers(BROWSER_HEADERS)


class Reply(msgspec.Struct, frozen=True):
    """A whole response."""

    status: int
    headers: HeaderList
    body: bytes

    def encoded_headers(self) -> list[tuple[bytes, bytes]]:
        """Return all headers for ASGI, with the length of the body, so that it is not chunked."""
        return [*encode_headers(self.headers), *_FOR_BROWSERS, (b"content-length", b"%d" % len(self.body))]


async def send_reply(send: Send, reply: Reply, *, message: str = "http.response") -> None:
    """Send a whole response. message: the prefix of its ASGI message types."""
    start = {"type": f"{message}.start", "status": reply.status, "headers": reply.encoded_headers()}
    await send(start)
    await send({"type": f"{message}.body", "body": reply.body, "more_body": False})


def error_reply(client: ProtocolSpec, error: WireError, request_id: str, headers: HeaderList) -> Reply:
    """Return an error in the form of the client's protocol, with the time of `retry-after` where it has one."""
    error = msgspec.structs.replace(error, retry_after_s=retry_after(headers, time.time(), error))
    return encoded_error_reply(error.kind, *client.write_error(error, request_id), headers)


def encoded_error_reply(kind: ErrorKind, status: int, body: bytes, headers: HeaderList) -> Reply:
    """Return an error response with this body, with `x-should-retry: false` if a retry cannot help."""
    if kind in _NOT_RETRYABLE_KINDS or status in _NOT_RETRYABLE_STATUSES:
        headers = [*(pair for pair in headers if pair[0] != _SHOULD_RETRY), (_SHOULD_RETRY, "false")]
    return Reply(status, [*JSON_HEADERS, *headers], body)


def with_retry_after(headers: HeaderList, retry_at: float | None) -> HeaderList:
    """Put the seconds until the first account is usable again into the headers, if they are known.

    They replace an upstream's, which are about one account. Else its own stay, in seconds and within a month: clients
    sleep by them, and some wait for no time at all if they cannot read them.
    """
    replaced = ["retry-after", "retry-after-ms"]
    if retry_at is None:
        retry_at = retry_after(headers, time.time())
    else:
        replaced.append(_SHOULD_RETRY)
    others = [pair for pair in headers if pair[0] not in replaced]
    return others if retry_at is None else [*others, *retry_headers(retry_at)]


def protocol_for_path(
    path: str, query: str, headers: Mapping[str, str], protocols: Mapping[str, ProtocolSpec] = PROTOCOLS
) -> ProtocolSpec:
    """Return the protocol whose clients use this path, for errors where no endpoint responds.

    path: without what the application is mounted under. If it belongs to no protocol, protocol_of_client() decides.
    """
    for spec in protocols.values():
        for endpoint in spec.endpoints:
            if endpoint.match(path) is not None or path.startswith(endpoint.path + "/"):
                return spec
        if any(path.startswith(prefix + "/") for prefix in spec.path_prefixes):
            return spec
    return protocol_of_client(query, headers, protocols)


def protocol_of_client(
    query: str, headers: Mapping[str, str], protocols: Mapping[str, ProtocolSpec] = PROTOCOLS
) -> ProtocolSpec:
    """Return the protocol whose clients alone send one of these headers or parameters, else the first protocol."""
    parameters = {parameter.partition("=")[0] for parameter in query.split("&")}
    for spec in protocols.values():
        if (
            (spec.version_header is not None and spec.version_header[0] in headers)
            or any(name in headers for name in spec.client_headers)
            or (isinstance(spec, UpstreamSpec) and spec.auth_query in parameters)
        ):
            return spec
    return next(iter(protocols.values()))


def suggest_base_url(path: str, protocols: Mapping[str, ProtocolSpec] = PROTOCOLS) -> tuple[str, str] | None:
    """Return the path of the right base URL for a path that is not served because of a wrong one, and what the client
    adds to it. None if the path is wrong for another reason.

    Vendors' SDKs add UpstreamSpec.path, other clients add it with or without the version.
    """
    served = [(endpoint.path, spec) for spec in protocols.values() for endpoint in spec.endpoints]
    for right, spec in [*served, (MODELS_PATH, None)]:
        shorter = right.removeprefix(_VERSION)
        if (head := _before(path, right)) is not None:
            if not head:
                return None
            added = spec.path if isinstance(spec, UpstreamSpec) else shorter
            base = "" if head.endswith(_VERSION) else right.removesuffix(added)
        elif _before(path, shorter) is not None:
            base = right.removesuffix(shorter)
        else:
            continue
        return base, right.removeprefix(base)
    return None


_VERSION = "/v1"
MODELS_PATH = f"{_VERSION}/models"

# The paths of base URLs at other servers, or twice by mistake.
_BASE = re.compile(r"(/v1|/api|/openai|/anthropic)*")


def _before(path: str, end: str) -> str | None:
    """Return the part of a base URL before an endpoint's path, or a path below it. None if it is not a base URL."""
    head, found, below = path.rpartition(end)
    return head if found and below[:1] in ("", "/") and _BASE.fullmatch(head) else None
