"""Answers that are not streams: bodies, headers and errors, in the dialect of the path that was asked."""

from collections.abc import Mapping
from dataclasses import dataclass

from dragoman import REGISTRY, Fault, FaultKind, Ledger, ProtocolSpec

from .headers import JSON_HEADERS, HeaderList
from .settings import ANTHROPIC_MESSAGES, OPENAI_CHAT
from .upstream import UpstreamError, UpstreamErrorKind

# How a failed call to an upstream is told: its class, and so its status.
_KIND_OF: dict[UpstreamErrorKind, FaultKind] = {
    UpstreamErrorKind.UNREACHABLE: FaultKind.UNREACHABLE,
    UpstreamErrorKind.TIMEOUT: FaultKind.TIMEOUT,
    UpstreamErrorKind.BROKEN: FaultKind.UNREACHABLE,
    UpstreamErrorKind.TOO_LARGE: FaultKind.SERVER,
    UpstreamErrorKind.INVALID_REQUEST: FaultKind.SERVER,
}

# Header lines have limits (8 KiB in common servers), and a ledger may have a thousand entries.
_LOSS_HEADER_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole response."""

    status: int
    headers: HeaderList
    body: bytes


def fault_reply(client: ProtocolSpec, fault: Fault, request_id: str, headers: HeaderList) -> Reply:
    """An error in the client's dialect."""
    status, body = client.write_fault(fault, request_id)
    return Reply(status, [*JSON_HEADERS, *headers], body)


def fault_of_upstream(error: UpstreamError) -> Fault:
    """A failed call as a fault. Its text names the host and what failed, never a key."""
    return Fault(_KIND_OF[error.kind], f"upstream: {error}")


def dialect_of(
    path: str, headers: Mapping[str, str], protocols: Mapping[str, ProtocolSpec] = REGISTRY
) -> ProtocolSpec:
    """The protocol whose clients ask for this path, for errors where no endpoint answers.

    path: as the application sees it, without what it is mounted under. Where it belongs to no protocol, the
    headers tell; Chat is the default.
    """
    for spec in protocols.values():
        for endpoint in spec.endpoints:
            if path == endpoint.path or path.startswith(endpoint.path + "/"):
                return spec
    return REGISTRY[ANTHROPIC_MESSAGES if wants_anthropic(headers) else OPENAI_CHAT]


def wants_anthropic(headers: Mapping[str, str]) -> bool:
    """Whether this is one of Anthropic's clients: they always send their version, others never do."""
    return "anthropic-version" in headers


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
