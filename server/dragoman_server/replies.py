"""Answers that are not streams: bodies, headers and errors, in the dialect of the path that was asked."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.types import Send

from dragoman import REGISTRY, Fault, FaultKind, Ledger
from dragoman.codec import ProtocolSpec, UpstreamSpec
from dragoman_server.headers import BROWSER_HEADERS, JSON_HEADERS, HeaderList, encode_headers

# The same request would fail again. SDKs try some of these again by themselves, Claude Code a 401 for three minutes.
_LASTING_KINDS = frozenset(
    {FaultKind.AUTHENTICATION, FaultKind.PERMISSION, FaultKind.BILLING, FaultKind.MISCONFIGURED}
)
_LASTING_STATUSES = frozenset({401, 403})
_SHOULD_RETRY = "x-should-retry"

# Header lines have limits (8 KiB in common servers), and a ledger may have a thousand entries.
_LOSS_HEADER_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole response."""

    status: int
    headers: HeaderList
    body: bytes

    def encoded_headers(self) -> list[tuple[bytes, bytes]]:
        """All headers, as ASGI has them. The length of the body is among them, so nothing needs to be chunked."""
        return encode_headers([*self.headers, *BROWSER_HEADERS, ("content-length", str(len(self.body)))])


async def send_reply(send: Send, reply: Reply, *, message: str = "http.response") -> None:
    """Send a whole response. message: what the types of its ASGI messages begin with."""
    start = {"type": f"{message}.start", "status": reply.status, "headers": reply.encoded_headers()}
    await send(start)
    await send({"type": f"{message}.body", "body": reply.body, "more_body": False})


def fault_reply(client: ProtocolSpec, fault: Fault, request_id: str, headers: HeaderList) -> Reply:
    """An error in the client's dialect."""
    return error_reply(fault.kind, *client.write_fault(fault, request_id), headers)


def error_reply(kind: FaultKind, status: int, body: bytes, headers: HeaderList) -> Reply:
    """An error answer with this body, which says when trying again cannot help. headers: may say so themselves."""
    if kind in _LASTING_KINDS or status in _LASTING_STATUSES:
        headers = [*(pair for pair in headers if pair[0] != _SHOULD_RETRY), (_SHOULD_RETRY, "false")]
    return Reply(status, [*JSON_HEADERS, *headers], body)


def with_retry_after(headers: HeaderList, soonest: float | None) -> HeaderList:
    """The headers with the seconds until the first account is back, if the pool knows them.

    Then an upstream's own word, which is about one account, does not count.
    """
    if soonest is None:
        return headers
    own = [("retry-after", str(math.ceil(soonest))), ("retry-after-ms", str(math.ceil(soonest * 1000)))]
    others = (pair for pair in headers if not pair[0].startswith("retry-after") and pair[0] != _SHOULD_RETRY)
    return [*others, *own]


def dialect_of(
    path: str, headers: Mapping[str, str], protocols: Mapping[str, ProtocolSpec] = REGISTRY
) -> ProtocolSpec:
    """Return the protocol whose clients ask for this path, for errors where no endpoint answers.

    path: as the application sees it, without what it is mounted under. Where it belongs to no protocol, the
    headers decide, see protocol_by_version().
    """
    for spec in protocols.values():
        for endpoint in spec.endpoints:
            if path == endpoint.path or path.startswith(endpoint.path + "/"):
                return spec
    return protocol_by_version(headers, protocols)


def protocol_by_version(
    headers: Mapping[str, str], protocols: Mapping[str, ProtocolSpec] = REGISTRY
) -> ProtocolSpec:
    """Return the protocol whose version header is among these headers, else the first protocol.

    Clients of a protocol that has such a header always send it, others never do.
    """
    for spec in protocols.values():
        if spec.version_header is not None and spec.version_header[0] in headers:
            return spec
    return next(iter(protocols.values()))


def base_and_rest(path: str, protocols: Mapping[str, ProtocolSpec] = REGISTRY) -> tuple[str, str] | None:
    """For a path that nobody serves because a client's base URL is wrong: the path of the right one, and what the
    client adds to it. None where it is wrong for another reason.

    Vendors' SDKs add what UpstreamSpec.path says, other clients with or without the version.
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

# What base URLs have behind the host, at other servers or twice by mistake.
_BASE = re.compile(r"(/v1|/api|/openai|/anthropic)*")


def _before(path: str, end: str) -> str | None:
    """What of a base URL stands before an endpoint's path, or before what lies below that one. None: no base URL."""
    head, found, below = path.rpartition(end)
    return head if found and below[:1] in ("", "/") and _BASE.fullmatch(head) else None


def loss_header(of_request: Ledger, of_answer: Ledger | None = None) -> HeaderList:
    """`dragoman-loss: N; code=path, ...`: how much was lost and, as far as there is room, what.

    Paths are places in the client's body, or behind `answer:` in the upstream's answer.
    """
    entries = [f"{loss.code.value}={ascii(loss.path)[1:-1]}" for loss in of_request]
    entries += [f"{loss.code.value}=answer:{ascii(loss.path)[1:-1]}" for loss in of_answer or ()]
    if not entries:
        return []
    text = f"{len(of_request) + len(of_answer or ())}"
    for number, entry in enumerate(entries):
        more = f"{', ' if number else '; '}{entry}"
        if len(text) + len(more) > _LOSS_HEADER_BYTES:
            text += ", ..."
            break
        text += more
    return [("dragoman-loss", text)]
