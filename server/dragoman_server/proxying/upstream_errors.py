"""Turn failures of upstreams into errors that clients may see.

An upstream's key, its money and the way to it are the operator's business, not the client's, so a failure of these gets
our own text with the names in the configuration. Every other error keeps the upstream's text, without secrets
(which some servers repeat), its address, and the name of the customer. Only texts are changed here: the core gives an
error the form of the client's protocol (`translate_error`, or Failed in a stream).
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import urlsplit, urlunsplit

import msgspec

from dragoman import ErrorKind, WireError
from dragoman_server.capabilities.cloud_apis import cloud_api_name_at, cloud_api_of
from dragoman_server.capabilities.providers import provider_name
from dragoman_server.hosts.credentials import cloud_credential
from dragoman_server.proxying.destinations import Destination
from dragoman_server.settings import SIMULATOR, AccountSettings, UpstreamSettings
from dragoman_server.settings.secret import MASK, Mask
from dragoman_server.settings.upstreams import DEFAULT_ACCOUNT
from dragoman_server.upstream import errors
from dragoman_server.upstream.client import origin_of
from dragoman_server.wire.headers import HeaderList, media_type

_PROXY_AUTHENTICATION_REQUIRED = 407

# How errors of vendors identify their customer: "in organization org-...", "for your organization (0a1b...)".
_CUSTOMER = re.compile(r"(?x)\b(org|proj)[-_][A-Za-z0-9]{16,} | (?<=organization\ \() [0-9a-f-]{36} (?=\))")

# A byte order mark and white space.
_BLANK = b"\xef\xbb\xbf \t\r\n"

# The beginnings of lines of server-sent events. llama.cpp has its own field for errors.
_STREAM_FIELDS = (b":", b"data", b"event", b"id", b"retry", b"error")

# Kinds of error responses that a wrong base_url causes.
_WRONG_PATH_KINDS = frozenset({ErrorKind.NOT_FOUND, ErrorKind.METHOD})

# Messages for a path that a server does not have: OpenAI, Groq, FastAPI, Go, llama.cpp, Azure, Fastify, Kong. With any
# other message it is the model that was not found, or what a request refers to.
_NO_SUCH_PATH = r"""(?isx)
    invalid\ url\b.* | (unrecognized|unknown)\ request\ url\b.* | no\ route\ matched\b.* | route\ .*\ not\ found
    | method\ not\ allowed\.? | (404:?\ )? ((page|file|path|resource|endpoint|url)\ )? not\ found\.?"""


class AttemptFailure(msgspec.Struct, frozen=True):
    """A failed attempt of which nothing was sent to the client.

    Attributes:
        error: Decides what happens to its account.
        reported: The error as the client may see it.
        cause: The error for the log.
        headers: The upstream's headers that the client may see.
        status, body: The upstream's own error response, if the client gets that.
        upstream_status: The status of the upstream's response, if there was one.
        retry_after: The seconds for which the upstream accepts no request.
        connecting, idle_closed: There was no connection; a reused one was closed before the request arrived.
        final: The request must not be sent again, see Plan.is_repeatable and Plan.is_spent.
        of_gateway: See UpstreamError.
    """

    error: WireError
    reported: WireError
    cause: str
    headers: Sequence[tuple[str, str]]
    status: int | None = None
    body: bytes = b""
    upstream_status: int | None = None
    retry_after: float | None = None
    connecting: bool = False
    idle_closed: bool = False
    final: bool = False
    of_gateway: bool = False


class Scrub(msgspec.Struct, frozen=True):
    """Remove from an upstream's text what neither clients nor the log may have."""

    mask: Mask
    upstream: UpstreamSettings
    accounts: tuple[AccountSettings, ...] = ()

    def __call__(self, text: str) -> str:
        text = _CUSTOMER.sub(MASK, self.mask(text))
        for account in self.accounts:
            credential = cloud_credential(self.upstream, account)
            text = text if credential is None else credential.mask(text)
        return _without_address(text, self.upstream, *_private_address(self.upstream.base_url))

    def each(self, texts: list[str]) -> list[str]:
        """Return the texts without that. Few have some of it, and it costs less to look at them all at once."""
        if not self._may_change("\n".join(texts)):
            return texts
        return [self(text) for text in texts]

    def _may_change(self, text: str) -> bool:
        origin, host = _private_address(self.upstream.base_url)
        return (
            self.mask.may_change(text)
            or _CUSTOMER.search(text) is not None
            or (origin != "" and origin in text)
            or (host != "" and host in text)
            or cloud_api_of(self.upstream) is not None
        )


@lru_cache(maxsize=256)  # each response needs it, and only the settings have such URLs
def _private_address(base_url: str) -> tuple[str, str]:
    """Return the origin and the host of an upstream, "" where they are public."""
    if provider_name(base_url) is not None and not cloud_api_name_at(base_url):
        return "", ""  # the address is public; a cloud's may name the customer
    origin, host = origin_of(base_url)
    # A host of one word may occur with another meaning.
    return origin, host if "." in host or ":" in host else ""


def error_from_upstream(error: errors.UpstreamError, upstream: UpstreamSettings, url: str) -> WireError:
    """Return the error of a failed call as clients may see it. url: where the request went."""
    if isinstance(error, errors.ContentFailed):
        return error.error
    name = _name_of(upstream)
    # An error of TLS names the host without the scheme.
    text = _without_address(str(error), upstream, *origin_of(url))
    return WireError(error.kind, text if name in text else f"{name}: {text}")


def redirect_error(upstream: UpstreamSettings, status: int) -> WireError:
    """Return the error for a redirect, which the gateway does not follow."""
    return WireError(
        ErrorKind.MISCONFIGURED, f"{_name_of(upstream)} redirects ({status}): {_base_url_hint(upstream)}"
    )


def invalid_response_error(
    upstream: UpstreamSettings, headers: HeaderList, first: bytes, *, any_bytes: bool = False
) -> WireError | None:
    """Return the error for a body that no protocol has, None while it may be one. first: its first bytes.

    any_bytes: it may have any but a page of HTML, or none.
    """
    if first[:1] == b"{":
        return None  # as most begin
    if any_bytes and media_type(headers) != "text/html":
        return None
    if not first:
        return WireError(ErrorKind.UNREADABLE, f"{_name_of(upstream)} sent an empty body")
    if _is_markup(first):
        what = _markup_type(headers)
    elif _may_begin_a_response(headers, first):
        return None
    else:
        what = f"a body that is not a response ({media_type(headers) or 'without a content-type'})"
    return WireError(ErrorKind.UNREADABLE, f"{_name_of(upstream)} sent {what}: {_base_url_hint(upstream)}")


def error_for_client(
    error: WireError,
    upstream: UpstreamSettings,
    account: AccountSettings,
    headers: HeaderList,
    body: bytes = b"",
) -> WireError:
    """Return an upstream's error as the client may see it: unchanged, unless it is the operator's business.

    headers, body: of the upstream's error response, if there was one.
    """
    if upstream.name == SIMULATOR:
        return error  # it has no settings, and its errors name it
    name = _name_of(upstream)
    status = "" if error.status is None else f" ({error.status})"
    if error.kind is ErrorKind.AUTHENTICATION:
        key, place = _key_of(upstream, account)
        return WireError(error.kind, f"{name} refused {key}{status}: {place}")
    if error.status == _PROXY_AUTHENTICATION_REQUIRED:
        place = (
            "proxy of [[accounts]] " + account.name if account.proxy else _setting_place(upstream, "proxy")
        )
        place = place if account.proxy or upstream.proxy else "HTTP_PROXY"
        return WireError(
            ErrorKind.MISCONFIGURED, f"the proxy of {name} refused its credentials{status}: check {place}"
        )
    if error.kind is ErrorKind.BILLING:
        whose = name if account.name == DEFAULT_ACCOUNT else f'account "{account.name}" of {name}'
        return WireError(error.kind, f"the balance or quota of {whose} is used up{status}: {error.message}")
    if error.status is not None and _is_about_path(error, body):
        problem = f"does not serve this path ({error.status})"
        if not body or _is_markup(body):
            problem = f"returned {error.status} with {_markup_type(headers) if body else 'an empty body'}"
        message = f"{name} {problem}: {_base_url_hint(upstream)}"
        return msgspec.structs.replace(error, message=message, code="unknown_url")
    return error


def model_note(error: WireError, reported: WireError, to: Destination, body: bytes) -> str:
    """Return what the configuration has to do with an error, "" for nothing. reported: as the client may see it."""
    # Some servers send a 400 for a model that they do not have, with its name.
    by_name = error.kind is ErrorKind.INVALID_REQUEST and to.upstream_model in error.message
    about_model = reported is error and (by_name or error.kind is ErrorKind.NOT_FOUND)
    # The body of an error that does not name the model reaches the client as it is.
    named = not body or about_model or to.upstream_model in reported.message
    return (to.advice if about_model else "") or (to.renaming if named else "")


def without_secrets(location: str) -> str:
    """Return the URL of a redirect without its credentials and query, which may be secret."""
    try:
        parts = urlsplit(location)
    except ValueError:
        return ""
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def is_connecting(error: errors.UpstreamError) -> bool:
    """True if the call failed before there was a connection."""
    if isinstance(error, errors.UpstreamTimeout):
        return error.phase is errors.UpstreamTimeoutPhase.CONNECT
    return isinstance(error, errors.UpstreamUnreachable)


def _without_address(text: str, upstream: UpstreamSettings, origin: str, host: str) -> str:
    if origin and origin in text:
        text = text.replace(origin, _name_of(upstream))
    if host and host in text:
        text = re.sub(rf"(?<![\w.-]){re.escape(host)}(:\d+)?(?![\w-])", "its host", text)
    return text


def _name_of(upstream: UpstreamSettings) -> str:
    return f'upstream "{upstream.name}"'


def _base_url_hint(upstream: UpstreamSettings) -> str:
    return f"is {_setting_place(upstream, 'base_url')} right?"


def _setting_place(upstream: UpstreamSettings, setting: str) -> str:
    """Return the variable or the place in the file where a setting of the upstream is set."""
    return upstream.variables.get(setting, f"{setting} of [[upstreams]] {upstream.name}")


def _key_of(upstream: UpstreamSettings, account: AccountSettings) -> tuple[str, str]:
    """Return the name of a key in words, and the place where it is set."""
    if cloud_credential(upstream, account) is not None:
        whose = "its credentials" if account.name == DEFAULT_ACCOUNT else f"those of account {account.name}"
        return whose, "`dragoman doctor` shows where they come from"
    if account.name != DEFAULT_ACCOUNT:
        return f'the key of account "{account.name}"', f"check api_key of [[accounts]] {account.name}"
    place = _setting_place(upstream, "api_key")
    if account.api_key is None:
        return "a request without a key", f"set {place}"
    return "its key", f"check {place}"


def _is_about_path(error: WireError, body: bytes) -> bool:
    """True if the upstream has nothing at the path of the request, which a wrong base_url causes."""
    if error.kind not in _WRONG_PATH_KINDS:
        return False
    return not body or _is_markup(body) or re.fullmatch(_NO_SUCH_PATH, error.message) is not None


def _may_begin_a_response(headers: HeaderList, first: bytes) -> bool:
    """True if this may become a JSON document or a stream of events, whatever its content type is."""
    start = first.lstrip(_BLANK)
    if "event-stream" in media_type(headers) or start.startswith((*_STREAM_FIELDS, b"{", b"[")):
        return True
    return any(field.startswith(start) for field in _STREAM_FIELDS)


def _is_markup(body: bytes) -> bool:
    return body.lstrip(_BLANK)[:1] == b"<"


def _markup_type(headers: HeaderList) -> str:
    """Return the content type of a body that is markup. One that names something else is wrong."""
    found = media_type(headers)
    return found if "html" in found or "xml" in found else "markup"
