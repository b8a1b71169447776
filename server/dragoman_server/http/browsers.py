"""Which web pages may use the gateway.

Strategy: a browser runs pages of anybody, and they can send requests to loopback addresses. Without client keys nothing
else protects the upstreams' keys from a page, so these headers of the browser are checked before anything else:

- `Host` must be a known name of this gateway. If a page's own name resolves to this machine (DNS rebinding), the
  browser takes the gateway for the page's server, and lets the page send anything and read all answers.
- `Origin` must be one of `cors_origins`. Other pages could not read an answer, but could send what a form can send,
  without a preflight, and so spend money.
- The content types of forms are refused from all origins (`check_form`), because they need no preflight.

With client keys these checks are not needed: a page does not know a key, and cannot send one without a preflight.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from dragoman import RemoteProtocolError
from dragoman_server.config.values import is_loopback
from dragoman_server.settings import ServerSettings
from dragoman_server.settings.patterns import matches

# For CORSMiddleware: the origins that the setting LOOPBACK_ORIGINS means.
LOOPBACK_ORIGIN_PATTERN = (
    r"https?://(localhost|([a-z0-9_-]+\.)+localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]+)?"
)

# RFC 9110, 7.2: Host = uri-host [ ":" port ]
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]*)?")

# "A CORS-safelisted request-header value" of Content-Type -- the Fetch standard, 2.2.2
_FORM_TYPES = frozenset({"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})

_NAMES = frozenset({b"host", b"origin", b"sec-fetch-site", b"content-type"})

# Names that it is remembered of whether they are known: clients call the gateway by one or two.
_HOSTS = 64

# As in an ASGI scope.
_Headers = Iterable[tuple[bytes, bytes]]


class BrowserProtection:
    """Refuses requests of pages that may not use the gateway, by their headers.

    keyless: no client keys are configured. allows: whether pages of an origin may use the gateway.
    """

    def __init__(
        self, server: ServerSettings, *, keyless: bool, allows_origin: Callable[[str], bool]
    ) -> None:
        self._server = server
        self._keyless = keyless
        self._allows = allows_origin
        # Where other machines can connect, any address is a good host: no page's own name is one.
        self._takes_addresses = not is_loopback(server.host)
        self._knows = lru_cache(maxsize=_HOSTS)(self._is_known)

    def check(self, headers: _Headers) -> None:
        """Raise RemoteProtocolError: 421 for an unknown host, 403 for a page that is not allowed."""
        said = _said(headers)
        if self._keyless or self._server.allowed_hosts:
            self._check_host(said.get(b"host", []))
        if self._keyless:
            for origin in _origins(said):
                if not self._allows(origin):
                    raise RemoteProtocolError(_no_origin(origin), status=403, code="origin_not_allowed")

    def _check_host(self, values: Sequence[str]) -> None:
        if len(values) != 1 or not self._knows(values[0].lower()):
            # The name as allowed_hosts takes it: without the port.
            host = (_host_name(values[0].lower()) if len(values) == 1 else None) or ", ".join(values)
            raise RemoteProtocolError(_no_host(host), status=421, code="host_not_allowed")

    def _is_known(self, value: str) -> bool:
        host = _host_name(value)
        return host is not None and (
            is_loopback(host)
            or host == self._server.host.lower()
            or (self._takes_addresses and _is_address(host))
            or any(matches(host, pattern) for pattern in self._server.allowed_hosts)
        )


def refuse_form_content_type(headers: _Headers) -> None:
    """Raise RemoteProtocolError (415) for a body that a page sends with a form's content type."""
    said = _said(headers)
    if b"origin" not in said:
        return
    for value in said.get(b"content-type", ()):
        if value.partition(";")[0].strip().lower() in _FORM_TYPES:
            raise RemoteProtocolError(
                "a web page must send its body with content-type: application/json; browsers send plain text and "
                "forms for any page, without a preflight",
                status=415,
            )


def _host_name(value: str) -> str | None:
    match = _HOST.fullmatch(value)
    return match and (match[1] or match[2].removesuffix("."))


def _said(headers: _Headers) -> dict[bytes, list[str]]:
    """The values of each header that is of interest here."""
    said: dict[bytes, list[str]] = {}
    for name, value in headers:
        if name in _NAMES:
            said.setdefault(name, []).append(value.decode("latin-1").strip())
    return said


def _origins(said: Mapping[bytes, Sequence[str]]) -> Sequence[str]:
    """The origins of the page that sent this, "null" if the browser hides it; none for other clients."""
    origins = said.get(b"origin", ())
    if not origins and "cross-site" in said.get(b"sec-fetch-site", ()):
        # Requests for images, scripts and links, and those whose answer the page cannot read (mode "no-cors").
        return ("null",)
    return origins


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _shown(text: str) -> str:
    return ascii(text[:100])


def _no_host(host: str) -> str:
    return (
        f"this gateway does not serve the host {_shown(host)}: use 127.0.0.1 or localhost in the base URL, or, if that "
        "name is right, add it to server.allowed_hosts (DRAGOMAN_ALLOWED_HOSTS, --allowed-hosts)"
    )


def _no_origin(origin: str) -> str:
    return (
        f"web pages of the origin {_shown(origin)} may not use this gateway: to allow them, add the origin to "
        "server.cors_origins (DRAGOMAN_CORS_ORIGINS, --cors-origins)"
    )
