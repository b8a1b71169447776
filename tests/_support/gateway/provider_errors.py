"""How providers say that something is wrong, in their own forms, and what each of them has to mean for a pool."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from gateway.provider import InBand, Plays, RawResponse
from oracle import CHAT, GEMINI, MESSAGES, PROTOCOL_NAMES, RESPONSES

from dragoman_server.policy.error_actions import ErrorAction
from dragoman_server.upstream.errors import (
    UpstreamBroken,
    UpstreamTimeout,
    UpstreamTimeoutPhase,
    UpstreamUnreachable,
)

Json = dict[str, Any]
OPENAI = (CHAT, RESPONSES)
# HTTP status -> name of google.rpc (googleapis, google/rpc/code.proto).
GOOGLE_NAMES = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class Case(NamedTuple):
    """One way to fail. message: a piece of what the client is told if it is told."""

    name: str
    protocol: str
    action: ErrorAction
    play: Plays
    message: str


def anthropic(kind: str, message: str, **more: Any) -> Json:
    return {"type": "error", "error": {"type": kind, "message": message, **more}, "request_id": "req_1"}


def openai(message: str, kind: str | None = None, code: str | int | None = None, **more: Any) -> Json:
    return {"error": {"message": message, "type": kind, "param": None, "code": code, **more}}


def google(message: str, status: int, **details: Json) -> Json:
    """details: by their types."""
    name = GOOGLE_NAMES.get(status) or ("INVALID_ARGUMENT" if status < 500 else "INTERNAL")
    listed = [{"@type": f"type.googleapis.com/google.rpc.{kind}", **each} for kind, each in details.items()]
    return {"error": {"code": status, "message": message, "status": name, "details": listed}}


def server_error(protocol: str, message: str) -> Json:
    """The error of a server that fails."""
    if protocol == MESSAGES:
        return anthropic("api_error", message)
    return google(message, 500) if protocol == GEMINI else openai(message, "server_error", "server_error")


def error_response(status: int, body: object, *headers: tuple[str, str]) -> RawResponse:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    kind = "text/html" if data.startswith(b"<") else "application/json"
    return RawResponse([data], status, (("content-type", kind), *headers))


def refusal(protocol: str, status: int, message: str, kind: str = "permission_error") -> RawResponse:
    """An error with this message, in the form of the protocol's vendor."""
    if protocol == GEMINI:
        return error_response(status, google(message, status))
    body = anthropic(kind, message) if protocol == MESSAGES else openai(message, "invalid_request_error")
    return error_response(status, body)


def limited(protocol: str, *headers: tuple[str, str]) -> RawResponse:
    """A rate limit."""
    return error_response(429, LIMITS[protocol], *headers)


def broken(protocol: str) -> RawResponse:
    """A server that fails."""
    return error_response(500, server_error(protocol, "Internal server error"))


def invalid(protocol: str) -> RawResponse:
    """A request that no account could serve."""
    return refusal(protocol, 400, "tools.0.name: is too long", "invalid_request_error")


def unauthorized(protocol: str) -> RawResponse:
    return error_response(400 if protocol == GEMINI else 401, _KEYS[protocol])


_ANTHROPIC_LIMIT = (
    "This request would exceed your organization's rate limit of 30,000 input tokens per minute."
)
_OPENAI_LIMIT = "Rate limit reached for gpt-5 in organization org-1 on tokens per min (TPM): Limit 30000."
_GOOGLE_LIMIT = "You exceeded your current quota. * Quota exceeded for metric: x, limit: 10, model: y"
_GOOGLE_NO_QUOTA = "You exceeded your current quota. * Quota exceeded for metric: x, limit: 0, model: y"
_GOOGLE_TOO_LONG = "The input token count (12) exceeds the maximum number of tokens allowed (8)."
LIMITS = {
    MESSAGES: anthropic("rate_limit_error", _ANTHROPIC_LIMIT),
    CHAT: openai(_OPENAI_LIMIT, "tokens", "rate_limit_exceeded"),
    RESPONSES: openai(_OPENAI_LIMIT, "tokens", "rate_limit_exceeded"),
    GEMINI: google(
        _GOOGLE_LIMIT, 429, QuotaFailure={"violations": [{"quotaId": "RequestsPerMinutePerModel"}]}
    ),
}
_KEYS = {
    MESSAGES: anthropic("authentication_error", "invalid x-api-key"),
    CHAT: openai("Incorrect API key provided.", "invalid_request_error", "invalid_api_key"),
    RESPONSES: openai("Incorrect API key provided.", "invalid_request_error", "invalid_api_key"),
    GEMINI: google(
        "API key not valid. Please pass a valid API key.",
        400,
        ErrorInfo={"reason": "API_KEY_INVALID", "domain": "googleapis.com"},
    ),
}
_HTML = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"


def _too_large() -> Iterator[Case]:
    for protocol in PROTOCOL_NAMES:
        message = "The estimated cost of this request (812 credits) exceeds the limit of any account."
        yield Case(
            "estimated cost", protocol, ErrorAction.RETURN_TO_CLIENT, refusal(protocol, 403, message), message
        )
    message = "prompt is too long: 212000 tokens > 200000 maximum"
    body = anthropic("invalid_request_error", message)
    yield Case("prompt too long", MESSAGES, ErrorAction.RETURN_TO_CLIENT, error_response(400, body), message)
    message = "Request exceeds the maximum size"
    yield Case(
        "413",
        MESSAGES,
        ErrorAction.RETURN_TO_CLIENT,
        error_response(413, anthropic("request_too_large", message)),
        message,
    )
    message = "Your input exceeds the context window of this model. Please adjust your input and try again."
    body = openai(message, "invalid_request_error", "context_length_exceeded")
    for protocol in OPENAI:
        yield Case("context", protocol, ErrorAction.RETURN_TO_CLIENT, error_response(400, body), message)
    play = error_response(400, google(_GOOGLE_TOO_LONG, 400))
    yield Case("input token count", GEMINI, ErrorAction.RETURN_TO_CLIENT, play, _GOOGLE_TOO_LONG)


def _insufficient() -> Iterator[Case]:
    for message in ("Insufficient tokens left", "Please upgrade your plan", "Daily limit reached"):
        for protocol in PROTOCOL_NAMES:
            yield Case(
                message.lower(), protocol, ErrorAction.TRY_NEXT, refusal(protocol, 403, message), message
            )


def _limits() -> Iterator[Case]:
    for protocol in PROTOCOL_NAMES:
        message = LIMITS[protocol]["error"]["message"]
        yield Case("429", protocol, ErrorAction.COOL_DOWN, limited(protocol), message)
    message = "Provider returned error"
    error = {"message": message, "code": 429, "metadata": {"raw": "is temporarily rate-limited"}}
    body: Json = {"error": error}
    yield Case("429 of openrouter", CHAT, ErrorAction.COOL_DOWN, error_response(429, body), message)
    message = "Your requests in westeurope have exceeded rate limit."
    body = {"error": {"code": "RateLimitReached", "message": message, "details": message}}
    yield Case("429 of azure", CHAT, ErrorAction.COOL_DOWN, error_response(429, body), message)
    body = google(_GOOGLE_LIMIT, 429, QuotaFailure={"violations": [{"quotaId": "RequestsPerDayPerModel"}]})
    yield Case("429 for a day", GEMINI, ErrorAction.COOL_DOWN, error_response(429, body), _GOOGLE_LIMIT)


def _used_up() -> Iterator[Case]:
    def disables(name: str, protocol: str, status: int, body: Json, message: str) -> Case:
        return Case(name, protocol, ErrorAction.DISABLE, error_response(status, body), message)

    message = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing."
    yield disables("credit", MESSAGES, 400, anthropic("invalid_request_error", message), message)
    yield disables("402", MESSAGES, 402, anthropic("billing_error", message), message)
    message = "You have reached your spend limit."
    details = {"error_code": "contract_spend_limit_reached"}
    yield disables("spend", MESSAGES, 429, anthropic("rate_limit_error", message, details=details), message)
    for protocol in OPENAI:
        message = "You exceeded your current quota, please check your plan and billing details."
        yield disables(
            "quota", protocol, 429, openai(message, "insufficient_quota", "insufficient_quota"), message
        )
        message = "Insufficient Balance"
        body = openai(message, "unknown_error", "invalid_request_error")
        yield disables("402 of deepseek", protocol, 402, body, message)
    yield disables("no quota", GEMINI, 429, google(_GOOGLE_NO_QUOTA, 429), _GOOGLE_NO_QUOTA)


def _refused_keys() -> Iterator[Case]:
    def disables(name: str, protocol: str, status: int, body: object, message: str) -> Case:
        return Case(name, protocol, ErrorAction.DISABLE, error_response(status, body), message)

    for protocol in PROTOCOL_NAMES:
        yield Case(
            "the key",
            protocol,
            ErrorAction.DISABLE,
            unauthorized(protocol),
            _KEYS[protocol]["error"]["message"],
        )
    for protocol in OPENAI:
        message = "Authentication Fails, Your api key: ****-key is invalid"
        body = openai(message, "authentication_error", "invalid_request_error")
        yield disables("401 of deepseek", protocol, 401, body, message)
        message = "Incorrect API key provided. You can obtain an API key from https://console.x.ai."
        yield disables("400 of xai", protocol, 400, {"code": "invalid-argument", "error": message}, message)
    yield disables("401 of mistral", CHAT, 401, {"detail": "Invalid API Key"}, "Invalid API Key")
    message = _KEYS[GEMINI]["error"]["message"]
    yield disables("400 of google", CHAT, 400, [google(message, 400)], message)
    yield disables("401 of a proxy", GEMINI, 401, google(message, 401), message)


def _server_errors() -> Iterator[Case]:
    for protocol in PROTOCOL_NAMES:
        for status in (408, 500, 502, 503, 504, 520, 524, 529):
            message = f"Something went wrong ({status})"
            body = {
                MESSAGES: anthropic(
                    {504: "timeout_error", 529: "overloaded_error"}.get(status, "api_error"), message
                ),
                GEMINI: google(message, status),
            }.get(protocol, openai(message, "server_error"))
            yield Case(str(status), protocol, ErrorAction.RETRY_LATER, error_response(status, body), message)
        yield Case("502 of nginx", protocol, ErrorAction.RETRY_LATER, error_response(502, _HTML), "502")


def _connections() -> Iterator[Case]:
    failures = {
        "no connection": UpstreamUnreachable("cannot connect to http://up.test"),
        "no time": UpstreamTimeout("http://up.test: read timeout", UpstreamTimeoutPhase.READ),
        "broken": UpstreamBroken("http://up.test: the connection broke"),
    }
    for protocol in PROTOCOL_NAMES:
        for name, error in failures.items():
            yield Case(name, protocol, ErrorAction.RETRY_LATER, RawResponse(before=[error]), str(error))
        for name in ("no time", "broken"):
            error = failures[name]
            yield Case(
                f"{name} behind the head", protocol, ErrorAction.RETRY_LATER, RawResponse([error]), str(error)
            )
        yield Case("an empty body", protocol, ErrorAction.RETRY_LATER, RawResponse(), "")
        half = {
            CHAT: b'{"id":"x","choices":[',
            MESSAGES: b'{"type":"mess',
            RESPONSES: b'{"id":"resp_1",',
            GEMINI: b'{"candidates":[',
        }
        yield Case("half a body", protocol, ErrorAction.RETRY_LATER, RawResponse([half[protocol]]), "")
        cut = RawResponse([half[protocol], failures["broken"]])
        yield Case("half a body and broken", protocol, ErrorAction.RETRY_LATER, cut, str(failures["broken"]))


def _others() -> Iterator[Case]:
    for protocol in PROTOCOL_NAMES:
        for status in (400, 404, 405, 409, 415, 422, 451):
            kinds = {404: "not_found_error", 409: "conflict_error"}
            play = refusal(protocol, status, f"no ({status})", kinds.get(status, "invalid_request_error"))
            yield Case(str(status), protocol, ErrorAction.RETURN_TO_CLIENT, play, f"no ({status})")
        message = "Your key may not use this model."
        yield Case("403", protocol, ErrorAction.RETURN_TO_CLIENT, refusal(protocol, 403, message), message)


def _in_band() -> Iterator[Case]:
    """Errors in the body of a response with status 200."""
    actions = (
        ErrorAction.RETRY_LATER,
        ErrorAction.COOL_DOWN,
        ErrorAction.DISABLE,
        ErrorAction.TRY_NEXT,
        ErrorAction.RETURN_TO_CLIENT,
    )
    retry_later, cool_down, disable, try_next, return_to_client = actions
    errors: dict[str, list[tuple[str, ErrorAction, Json]]] = {
        MESSAGES: [
            ("overloaded", retry_later, anthropic("overloaded_error", "Overloaded")),
            ("broken", retry_later, anthropic("api_error", "Internal server error")),
            ("limit", cool_down, anthropic("rate_limit_error", _ANTHROPIC_LIMIT)),
            ("credit", disable, anthropic("billing_error", "Your credit balance is too low")),
            ("key", disable, anthropic("authentication_error", "invalid x-api-key")),
            ("insufficient", try_next, anthropic("permission_error", "Insufficient tokens")),
            ("cost", return_to_client, anthropic("permission_error", "Estimated cost is too high")),
            ("too long", return_to_client, anthropic("invalid_request_error", "prompt is too long: 9 > 8")),
        ],
        CHAT: [
            ("broken", retry_later, openai("The server had an error", "server_error")),
            ("openrouter", retry_later, {"error": {"code": 502, "message": "Provider returned error"}}),
            ("limit", cool_down, openai(_OPENAI_LIMIT, "tokens", "rate_limit_exceeded")),
            ("number", cool_down, {"error": {"code": 429, "message": "Provider returned error"}}),
            ("quota", disable, openai("You exceeded your quota", "insufficient_quota", "insufficient_quota")),
            ("key", disable, openai("Incorrect API key", "invalid_request_error", "invalid_api_key")),
            ("insufficient", try_next, {"error": {"code": 403, "message": "Insufficient tokens"}}),
            ("plan", try_next, openai("Please upgrade your plan", "permission_error")),
            ("cost", return_to_client, {"error": {"code": 403, "message": "Estimated cost is too high"}}),
            ("too long", return_to_client, openai("too long", "invalid_request_error", "context_length_exceeded")),
        ],
        RESPONSES: [
            ("broken", retry_later, openai("The server had an error", "server_error", "server_error")),
            ("overloaded", retry_later, openai("Slow down", "server_error", "server_is_overloaded")),
            ("limit", cool_down, openai(_OPENAI_LIMIT, "tokens", "rate_limit_exceeded")),
            ("quota", disable, openai("You exceeded your quota", "insufficient_quota", "insufficient_quota")),
            ("too long", return_to_client, openai("too long", "invalid_request_error", "context_length_exceeded")),
            ("prompt", return_to_client, openai("Invalid prompt", "invalid_request_error", "invalid_prompt")),
        ],
        GEMINI: [
            ("broken", retry_later, google("An internal error has occurred.", 500)),
            ("overloaded", retry_later, google("The model is overloaded. Please try again later.", 503)),
            ("limit", cool_down, LIMITS[GEMINI]),
            ("quota", disable, google(_GOOGLE_NO_QUOTA, 429)),
            ("key", disable, _KEYS[GEMINI]),
            ("insufficient", try_next, google("Insufficient tokens", 403)),
            ("cost", return_to_client, google("Estimated cost is too high", 403)),
            ("too long", return_to_client, google(_GOOGLE_TOO_LONG, 400)),
        ],
    }  # fmt: skip
    for protocol, rows in errors.items():
        for name, action, error in rows:
            for bare in (False, True):
                full = f"{name} in the body{' alone' if bare else ''}"
                yield Case(full, protocol, action, InBand(error, bare), error["error"]["message"])


PLAIN = tuple(
    case
    for rows in (
        _too_large,
        _insufficient,
        _limits,
        _used_up,
        _refused_keys,
        _server_errors,
        _connections,
        _others,
    )
    for case in rows()
)
INSIDE = tuple(_in_band())


def cases(*actions: ErrorAction) -> list[Case]:
    return [case for case in (*PLAIN, *INSIDE) if case.action in actions]
