"""The tables of the simple API: roles, settings, errors, and what an answer cannot say in it."""

from __future__ import annotations

from typing import Literal

from dragoman._ir.events import BlockKind
from dragoman._ir.parameters import param_paths
from dragoman._ir.request import Param
from dragoman._wire.errors import ErrorKind

NAME = "simple_chat"

SimpleRole = Literal["system", "user", "assistant"]
ROLES: dict[str, SimpleRole] = {"system": "system", "user": "user", "assistant": "assistant"}

PARAMS: dict[str, Param] = {"temperature": "temperature"}
PARAM_PATHS: dict[Param, str] = param_paths(PARAMS)

# Blocks whose text is the content. A refusal is what the model has to say, too.
TEXT_KINDS = frozenset({BlockKind.TEXT, BlockKind.REFUSAL})

# What an answer may say beside its text: the place under which it is entered in the ledger, and why it is lost.
LOST_BLOCKS: dict[BlockKind, tuple[str, str]] = {
    BlockKind.REASONING: ("/reasoning", "answers have no reasoning here"),
    BlockKind.TOOL_CALL: ("/tool_calls", "the client offers no tools, and answers have no calls here"),
}
NO_ANNOTATIONS = "text has no annotations here"
NO_LOGPROBS = "text has no log probabilities here"
NO_PHASE = "messages have no phase here"
NO_SERVICE_TIER = "answers do not tell the service tier here"
NO_STOP_REASON = "answers do not tell here why the model stopped"
NO_STOP_DETAILS = "answers tell no more here than that the model stopped"
NO_EXPLANATION = "there is text, and no place for an explanation beside it"
NO_USAGE = "answers have no usage here"
AS_TEXT = "told as the answer's text: nothing marks it here"

# kind -> (type, code) of the error object. A code that the sender gave comes before the table's.
ERRORS: dict[ErrorKind, tuple[str, str]] = {
    ErrorKind.INVALID_REQUEST: ("invalid_request_error", "invalid_request"),
    ErrorKind.CONTEXT_LENGTH: ("invalid_request_error", "context_length_exceeded"),
    ErrorKind.AUTHENTICATION: ("authentication_error", "invalid_api_key"),
    ErrorKind.BILLING: ("billing_error", "insufficient_quota"),
    ErrorKind.PERMISSION: ("permission_error", "permission_denied"),
    ErrorKind.NOT_FOUND: ("not_found_error", "not_found"),
    ErrorKind.METHOD: ("invalid_request_error", "method_not_allowed"),
    ErrorKind.TIMEOUT: ("timeout_error", "timeout"),
    ErrorKind.CONFLICT: ("conflict_error", "conflict"),
    ErrorKind.TOO_LARGE: ("invalid_request_error", "request_too_large"),
    ErrorKind.UNPROCESSABLE: ("invalid_request_error", "unprocessable"),
    ErrorKind.MEDIA_TYPE: ("invalid_request_error", "unsupported_media_type"),
    ErrorKind.RATE_LIMIT: ("rate_limit_error", "rate_limit_exceeded"),
    ErrorKind.OVERLOADED: ("overloaded_error", "overloaded"),
    ErrorKind.SERVER: ("server_error", "internal_error"),
    ErrorKind.UNREACHABLE: ("server_error", "upstream_unreachable"),
    ErrorKind.TRUNCATED: ("server_error", "upstream_truncated"),
    ErrorKind.UNREADABLE: ("server_error", "upstream_unreadable"),
    ErrorKind.MISCONFIGURED: ("server_error", "misconfigured"),
    ErrorKind.CANCELLED: ("server_error", "cancelled"),
}
# Kinds whose code clients act on: it is the same whoever the sender is.
FIXED_CODES = frozenset({ErrorKind.CONTEXT_LENGTH, ErrorKind.BILLING})

# Statuses of single vendors, by their plain twins.
STATUS_REPLACEMENTS = {529: 503}
