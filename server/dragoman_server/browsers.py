"""Which web pages may use the gateway.

Strategy: a browser on this machine runs pages of anybody, and reaches loopback addresses. Without client keys nothing
else stands between a page and the upstreams' keys, so what the browser says of the page is looked at before anything
else of a request:

- `Host` must be a name that is known to lead here. A page whose own name is made to lead here (DNS rebinding) counts
  as this gateway's for its browser: it may send anything, and read all answers.
- `Origin` must be one of `cors_origins`. Without permission a page cannot read an answer, but it may send, without a
  preflight, what a form may send, and has spent what the answer costs.
- The content types of forms are refused with any origin (`check_form`): they are what needs no preflight.

With client keys none of this is needed: a page does not know the key, and cannot send one without a preflight.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator

from dragoman import RemoteProtocolError

from ._listen import is_loopback
from ._patterns import matches
from .settings import ServerSettings

# For CORSMiddleware: the pages that LOOPBACK_ORIGINS stands for, on any port.
LOOPBACK_ORIGIN = r"https?://(localhost|([a-z0-9_-]+\.)+localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]+)?"

# RFC 9110, 7.2: Host = uri-host [ ":" port ]
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]*)?")

# "A CORS-safelisted request-header value" of Content-Type -- the Fetch standard, 2.2.2
_FORM_TYPES = frozenset({"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})

# As in an ASGI scope.
_Headers = Iterable[tuple[bytes, bytes]]


class BrowserGate:
    """Refuses what a page may not do, by the headers of its request.

    keyless: nobody needs a client key. allows: whether pages of an origin may use the gateway.
    """

    def __init__(self, server: ServerSettings, *, keyless: bool, allows: Callable[[str], bool]) -> None:
        self._server = server
        self._keyless = keyless
        self._allows = allows
        # Names cannot be known where nothing is said of them; addresses can: no page makes its own into another.
        self._takes_addresses = not is_loopback(server.host)

    def check(self, headers: _Headers) -> None:
        """Raises RemoteProtocolError: 421 for a host that is not known, 403 for a page that is not allowed."""
        if self._keyless or self._server.allowed_hosts:
            self._check_host(_values(headers, b"host"))
        if self._keyless:
            for origin in _origins(headers):
                if not self._allows(origin):
                    raise RemoteProtocolError(_no_origin(origin), status_hint=403, code="origin_not_allowed")

    def _check_host(self, found: Iterator[str]) -> None:
        values = list(found)
        host = _host_name(values[0]) if len(values) == 1 else None
        if host is None or not self._is_known(host):
            # The name as allowed_hosts takes it: without the port.
            message = _no_host(host or ", ".join(values))
            raise RemoteProtocolError(message, status_hint=421, code="host_not_allowed")

    def _is_known(self, host: str) -> bool:
        return (
            is_loopback(host)
            or host == self._server.host.lower()
            or (self._takes_addresses and _is_address(host))
            or any(matches(host, pattern) for pattern in self._server.allowed_hosts)
        )


def check_form(headers: _Headers) -> None:
    """Raises RemoteProtocolError (415) for a body that a page sends with a form's content type."""
    if not any(True for _ in _values(headers, b"origin")):
        return
    for value in _values(headers, b"content-type"):
        if value.partition(";")[0].strip().lower() in _FORM_TYPES:
            raise RemoteProtocolError(
                "a web page must send its body as application/json: plain text and forms are what browsers send for "
                "any page, without asking",
                status_hint=415,
            )


def _host_name(value: str) -> str | None:
    match = _HOST.fullmatch(value.lower())
    return match and (match[1] or match[2].removesuffix("."))


def _values(headers: _Headers, name: bytes) -> Iterator[str]:
    return (value.decode("latin-1").strip() for each, value in headers if each == name)


def _origins(headers: _Headers) -> Iterator[str]:
    """The origin of the page that made the browser send this, "null" where it is not told; none for other clients."""
    origins = list(_values(headers, b"origin"))
    if not origins and "cross-site" in _values(headers, b"sec-fetch-site"):
        # What images, scripts and links load, and GET requests whose answer the page does not ask to read.
        return iter(("null",))
    return iter(origins)


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
        f"this gateway is not known as {_shown(host)}: if that name is meant to lead here, list it in "
        "server.allowed_hosts (DRAGOMAN_ALLOWED_HOSTS, --allowed-hosts); else call it by 127.0.0.1 or localhost"
    )


def _no_origin(origin: str) -> str:
    return (
        f"web pages of the origin {_shown(origin)} may not use this gateway: if this one is meant to, list its origin "
        "in server.cors_origins (DRAGOMAN_CORS_ORIGINS, --cors-origins)"
    )
