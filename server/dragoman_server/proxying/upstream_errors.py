"""Failures of upstreams, as clients are told of them: whose they are, and what to do.

Strategy: an upstream's key, its money and the way to it are the operator's business, not the client's. A failure that
is about them is told in words of our own, by the names in the configuration. Everything else is told in the upstream's
own words, scrubbed: without secrets, which some servers repeat, its address, and the name of the customer.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from dragoman import ErrorKind, WireError
from dragoman_server.capabilities.providers import provider_name
from dragoman_server.headers import HeaderList
from dragoman_server.settings import DEFAULT_ACCOUNT, SIMULATOR, AccountSettings, UpstreamSettings
from dragoman_server.settings.secret import MASK, Mask
from dragoman_server.upstream.client import origin_of
from dragoman_server.upstream.errors import UpstreamError, UpstreamErrorKind

# How a failed call to an upstream is told: its class, and so its status.
_KIND_OF: dict[UpstreamErrorKind, ErrorKind] = {
    UpstreamErrorKind.UNREACHABLE: ErrorKind.UNREACHABLE,
    UpstreamErrorKind.TIMEOUT: ErrorKind.TIMEOUT,
    UpstreamErrorKind.BROKEN: ErrorKind.UNREACHABLE,
    UpstreamErrorKind.TOO_LARGE: ErrorKind.UNREADABLE,
    UpstreamErrorKind.INVALID_REQUEST: ErrorKind.MISCONFIGURED,
}

_PROXY_REFUSES = 407

# How errors of vendors identify their customer: "in organization org-...", "for your organization (0a1b...)".
_CUSTOMER = re.compile(
    r"\b(org|proj)[-_][A-Za-z0-9]{16,} | (?<=organization\ \() [0-9a-f-]{36} (?=\))", re.VERBOSE
)

# A byte order mark and white space.
_BLANK = b"\xef\xbb\xbf \t\r\n"

# What a line of server-sent events begins with. llama.cpp has a field of its own for errors.
_STREAM_FIELDS = (b":", b"data", b"event", b"id", b"retry", b"error")

# Kinds of error answers that a wrong base_url gives.
_WRONG_PATH = frozenset({ErrorKind.NOT_FOUND, ErrorKind.METHOD})

# What servers say of a path that they do not have, where they say it in words: OpenAI, Groq, FastAPI, Go, llama.cpp,
# Azure, Fastify, Kong. Whatever else is not found is the model, or what a request refers to.
_NO_SUCH_PATH = re.compile(
    r"""invalid\ url\b.* | (unrecognized|unknown)\ request\ url\b.* | no\ route\ matched\b.* | route\ .*\ not\ found
    | method\ not\ allowed\.? | (404:?\ )? ((page|file|path|resource|endpoint|url)\ )? not\ found\.?""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Scrub:
    """A function from an upstream's text to what clients and the log may show of it."""

    mask: Mask
    upstream: UpstreamSettings

    def __call__(self, text: str) -> str:
        text = _CUSTOMER.sub(MASK, self.mask(text))
        return _without_address(text, self.upstream, *_private_address(self.upstream.base_url))


@lru_cache(maxsize=256)  # each answer asks, and only the settings have such URLs
def _private_address(base_url: str) -> tuple[str, str]:
    """The origin and the host of an upstream, as far as they are nobody else's business."""
    if provider_name(base_url) is not None:
        return "", ""  # the address is public
    origin, host = origin_of(base_url)
    # A host of one word may occur with another meaning.
    return origin, host if "." in host or ":" in host else ""


def error_from_upstream(error: UpstreamError, upstream: UpstreamSettings, url: str) -> WireError:
    """A failed call as a fault that a client may see. url: where the request went."""
    name = _called(upstream)
    # An error of TLS names the host without the scheme.
    text = _without_address(str(error), upstream, *origin_of(url))
    return WireError(_KIND_OF[error.kind], text if name in text else f"{name}: {text}")


def redirect_error(upstream: UpstreamSettings, status: int) -> WireError:
    """The upstream answered with a redirect, which nobody follows."""
    return WireError(
        ErrorKind.MISCONFIGURED, f"{_called(upstream)} redirects ({status}): {_base_url(upstream)}"
    )


def invalid_response_error(upstream: UpstreamSettings, headers: HeaderList, first: bytes) -> WireError | None:
    """What is wrong with a body that is no protocol's, None where that cannot be told yet. first: its first bytes."""
    if not first:
        return WireError(ErrorKind.UNREADABLE, f"{_called(upstream)} sent an empty body")
    if _is_markup(first):
        what = _media_type(headers)
    elif _may_begin_an_answer(headers, first):
        return None
    else:
        what = f"a body that is no answer ({_content_type(headers) or 'without a content-type'})"
    return WireError(ErrorKind.UNREADABLE, f"{_called(upstream)} sent {what}: {_base_url(upstream)}")


def error_for_client(
    error: WireError,
    upstream: UpstreamSettings,
    account: AccountSettings,
    headers: HeaderList,
    body: bytes = b"",
) -> WireError:
    """What a client is told of an upstream's fault: the fault itself, but for what is the operator's business.

    headers, body: of the upstream's error answer, if it was one.
    """
    if upstream.name == SIMULATOR:
        return error  # it has no settings, and says that it is one
    name = _called(upstream)
    status = "" if error.status is None else f" ({error.status})"
    if error.kind is ErrorKind.AUTHENTICATION:
        key, place = _key_of(upstream, account)
        return WireError(error.kind, f"{name} refused {key}{status}: {place}")
    if error.status == _PROXY_REFUSES:
        place = "proxy of [[accounts]] " + account.name if account.proxy else _place(upstream, "proxy")
        place = place if account.proxy or upstream.proxy else "HTTP_PROXY"
        return WireError(
            ErrorKind.MISCONFIGURED, f"the proxy of {name} refused its credentials{status}: check {place}"
        )
    if error.kind is ErrorKind.BILLING:
        whose = name if account.name == DEFAULT_ACCOUNT else f'account "{account.name}" of {name}'
        return WireError(error.kind, f"the money or quota of {whose} is used up{status}: {error.message}")
    if error.status is not None and _is_about_path(error, body):
        said = f"does not serve this path ({error.status})"
        if not body or _is_markup(body):
            said = f"answered {error.status} with {_media_type(headers) if body else 'an empty body'}"
        message = f"{name} {said}: {_base_url(upstream)}"
        return msgspec.structs.replace(error, message=message, code="unknown_url")
    return error


def _without_address(text: str, upstream: UpstreamSettings, origin: str, host: str) -> str:
    if origin and origin in text:
        text = text.replace(origin, _called(upstream))
    if host and host in text:
        text = re.sub(rf"(?<![\w.-]){re.escape(host)}(:\d+)?(?![\w-])", "its host", text)
    return text


def _called(upstream: UpstreamSettings) -> str:
    return f'upstream "{upstream.name}"'


def _base_url(upstream: UpstreamSettings) -> str:
    return f"is {_place(upstream, 'base_url')} right?"


def _place(upstream: UpstreamSettings, setting: str) -> str:
    """Where a setting of the upstream is set."""
    return upstream.variables.get(setting, f"{setting} of [[upstreams]] {upstream.name}")


def _key_of(upstream: UpstreamSettings, account: AccountSettings) -> tuple[str, str]:
    """What a key is called, and where it stands."""
    if account.name != DEFAULT_ACCOUNT:
        return f'the key of account "{account.name}"', f"check api_key of [[accounts]] {account.name}"
    place = _place(upstream, "api_key")
    if account.api_key is None:
        return "a request without a key", f"set {place}"
    return "its key", f"check {place}"


def _is_about_path(error: WireError, body: bytes) -> bool:
    """Whether the upstream has nothing at the path of the request, which a wrong base_url gives."""
    if error.kind not in _WRONG_PATH:
        return False
    return not body or _is_markup(body) or _NO_SUCH_PATH.fullmatch(error.message) is not None


def _may_begin_an_answer(headers: HeaderList, first: bytes) -> bool:
    """Whether there is more to come, a document in JSON or a stream of events, whatever it is called."""
    start = first.lstrip(_BLANK)
    if "event-stream" in _content_type(headers) or start.startswith((*_STREAM_FIELDS, b"{", b"[")):
        return True
    return any(field.startswith(start) for field in _STREAM_FIELDS)


def _is_markup(body: bytes) -> bool:
    return body.lstrip(_BLANK)[:1] == b"<"


def _media_type(headers: HeaderList) -> str:
    """Of a body that is markup. What others say of such a body is wrong."""
    found = _content_type(headers)
    return found if "html" in found or "xml" in found else "markup"


def _content_type(headers: HeaderList) -> str:
    return dict(headers).get("content-type", "").partition(";")[0].strip().lower()
