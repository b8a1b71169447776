"""HTTP error responses: they have the client's form and keep the upstream's message."""

import re
from dataclasses import dataclass

from dragoman import lint
from oracle.frames import as_object
from oracle.types import (
    CHAT,
    GEMINI,
    MESSAGES,
    RESPONSES,
    check_error_body,
)

# Upstream status -> statuses the client may see, for a Messages client, for an OpenAI one, and for a Gemini one.
STATUSES: dict[int, tuple[set[int], set[int], set[int]]] = {
    402: ({402}, {402, 429}, {429}),
    408: ({408, 504}, {408}, {408, 504}),
    413: ({413}, {413}, {400}),
    415: ({415}, {415}, {400}),
    422: ({400, 422}, {400, 422}, {400}),
    429: ({429, 402}, {429}, {429}),
    502: ({500, 502}, {502, 503}, {502, 503}),
    503: ({500, 503, 529}, {502, 503}, {503}),
    529: ({529}, {503, 529}, {503}),
}
# What an OpenAI client looks for in `code` when the upstream, being no OpenAI one, had none to give.
CODES = {
    401: {"invalid_api_key"},
    404: {"model_not_found"},
    413: {"request_too_large"},
    429: {"rate_limit_exceeded", "insufficient_quota"},
}
# Agents compact the conversation when they find this: a code of OpenAI's protocols, a message of Messages.
TOO_LONG = "prompt is too long"
OVERFLOW = re.compile(
    r"prompt (is )?too long|context (length|window)|length of all messages is too long", re.I
)
# Some servers return 400 for an unknown key; clients expect 401.
WRONG_KEY = re.compile(r"incorrect api key|api key not valid|api_key_invalid", re.I)
# Where a protocol has the kind of an error, the first that is there.
KINDS = {CHAT: ("code", "type"), MESSAGES: ("type",), RESPONSES: ("code", "type"), GEMINI: ("status",)}

# HTTP status -> names of google.rpc (googleapis, google/rpc/code.proto). None is about a prompt that is too long.
GOOGLE_CODES = {
    400: {"INVALID_ARGUMENT", "FAILED_PRECONDITION"},
    401: {"UNAUTHENTICATED"},
    403: {"PERMISSION_DENIED"},
    404: {"NOT_FOUND"},
    429: {"RESOURCE_EXHAUSTED"},
    500: {"INTERNAL"},
    503: {"UNAVAILABLE"},
    504: {"DEADLINE_EXCEEDED"},
}


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """An HTTP error as somebody sent it."""

    protocol: str
    status: int
    kind: str
    message: str

    @property
    def too_long(self) -> bool:
        return self.kind == "context_length_exceeded" or OVERFLOW.search(self.message) is not None


def read_error(protocol: str, status: int, body: bytes) -> ErrorResponse:
    """Any error response, in whatever form a provider chose."""
    payload = as_object(body)
    if payload is None:
        return ErrorResponse(protocol, status, "", "")
    error = payload.get("error")
    holder = error if isinstance(error, dict) else payload
    kinds = [str(holder[name]) for name in KINDS[protocol] if holder.get(name)]
    message = holder.get("message") or holder.get("detail") or (error if isinstance(error, str) else "")
    return ErrorResponse(protocol, status, kinds[0] if kinds else "", str(message))


def check_error(protocol: str, status: int, body: bytes) -> list[str]:
    """Problems of an error response sent to a client of this protocol."""
    findings = lint.check_error(protocol, status, body).findings
    return [*check_error_body(protocol, body), *map(str, findings)]


def compare_error(upstream: ErrorResponse, client: ErrorResponse) -> list[str]:
    """What the client's error lost of the upstream's."""
    problems = []
    keep = {upstream.status}
    messages, openai, gemini = STATUSES.get(upstream.status, (keep, keep, keep))
    if upstream.status == 400 and WRONG_KEY.search(upstream.message):
        messages = openai = gemini = {401}
    allowed = {MESSAGES: messages, GEMINI: gemini}.get(client.protocol, openai)
    if client.protocol == upstream.protocol == GEMINI:  # an error in its form is relayed
        allowed = allowed | keep
    if client.status not in allowed:
        problems.append(f"status: {upstream.status} became {client.status}, allowed {sorted(allowed)}")
    if upstream.message not in client.message:
        problems.append(f"message: {upstream.message[:80]!r} became {client.message[:80]!r}")
    if not client.message:
        problems.append("message: empty")
    if client.protocol == MESSAGES:
        if upstream.too_long and TOO_LONG not in client.message.lower():
            problems.append(f"message: a context overflow does not say {TOO_LONG!r}")
    elif client.protocol == GEMINI:
        if client.kind not in GOOGLE_CODES.get(client.status, {client.kind}):
            problems.append(f"code: {client.kind!r} with status {client.status}")
    elif upstream.too_long and client.kind != "context_length_exceeded":
        problems.append(f"code: a context overflow came out as {client.kind!r}")
    elif upstream.protocol == MESSAGES and client.kind not in CODES.get(client.status, {client.kind}):
        problems.append(f"code: {client.kind!r} with status {client.status}")
    return problems
