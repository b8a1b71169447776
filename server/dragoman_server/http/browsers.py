"""Refuse requests of web pages that may not use the gateway.

A browser runs anybody's pages, and they can send requests to loopback addresses. Without client keys nothing else
protects the upstreams' keys from a page, so these headers of the browser are checked before anything else:

- `Host` must be a known name of this gateway. If a page's own name resolves to this machine (DNS rebinding), the
  browser takes the gateway for the page's server, and lets the page send anything and read all responses.
- `Origin` must be one of `cors_origins`, or this gateway's own, for the operator's page. Other pages could not read a
  response, but could send what a form can send, without a preflight, and so spend money.
- The content types of forms are refused from all origins (`refuse_form_content_type`), because they need no preflight.

With client keys only the origins of preflights and of WebSocket handshakes, which have none, are checked: a page has no
key, and cannot send one without a preflight.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache

from dragoman import RequestRefused
from dragoman_server.settings import ServerSettings
from dragoman_server.settings.patterns import matches
from dragoman_server.settings.values import is_address, is_loopback

# For CORSMiddleware: the origins that the setting LOOPBACK_ORIGINS means.
LOOPBACK_ORIGIN_PATTERN = (
    r"https?://(localhost|([a-z0-9_-]+\.)+localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]+)?"
)

# RFC 9110, 7.2: Host = uri-host [ ":" port ]
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]*)?")

# "A CORS-safelisted request-header value" of Content-Type -- the Fetch standard, 2.2.2
_FORM_TYPES = frozenset({"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})

# Only a browser sends it, in the request with which it asks if a page may send another one (the Fetch standard, 4.8).
_PREFLIGHT = b"access-control-request-method"
# What says that a page of another origin has sent a request.
_OF_PAGES = frozenset({b"origin", b"sec-fetch-site"})
_NAMES = frozenset({b"host", b"origin", b"sec-fetch-site", b"content-type", _PREFLIGHT})

# Host names whose check is cached: clients use one or two.
_MAX_CACHED_HOSTS = 64

# As in an ASGI scope.
_Headers = Collection[tuple[bytes, bytes]]


class BrowserProtection:
    """Refuse requests of pages that may not use the gateway, by their headers.

    Args:
        keyless: no client keys are configured.
        allows_origin: returns true if pages of an origin may use the gateway.
    """

    def __init__(
        self, server: ServerSettings, *, keyless: bool, allows_origin: Callable[[str], bool]
    ) -> None:
        self._server = server
        self._keyless = keyless
        self._allows_origin = allows_origin
        # If other machines can connect, any IP address is accepted as a host, because no page's own name is one.
        self._accepts_addresses = not is_loopback(server.host)
        self._is_known_host = lru_cache(maxsize=_MAX_CACHED_HOSTS)(self._check_host_name)

    def check(
        self, headers: _Headers, scheme: str, *, for_operator: bool = False, handshake: bool = False
    ) -> bool:
        """Return true if the request names the origin of a page.

        Raises RequestRefused: 421 for an unknown host, 403 for a page that is not allowed.

        scheme: of the URL. handshake: of a WebSocket, which a page may open anywhere without a preflight.
        """
        fields = dict(headers)
        if self._keyless or self._server.allowed_hosts:
            repeated = len(fields) < len(headers) and sum(name == b"host" for name, _ in headers) > 1
            if repeated or b"host" not in fields or not self._is_known_host(fields[b"host"]):
                raise _unknown_host([_text(value) for name, value in headers if name == b"host"])
        if _OF_PAGES.isdisjoint(fields):
            return False  # a program, or a page of this gateway
        values = _relevant(headers)
        if self._keyless or handshake or _PREFLIGHT in values:
            # A proxy may have ended TLS.
            for origin in _origins(values):
                own = _own_origins(values, scheme.replace("ws", "http"), "https")
                if origin not in own and not self._allows_origin(origin):
                    raise (
                        _other_origin()
                        if for_operator
                        else _refused_origin(
                            f"web pages of the origin {_quote(origin)} may not use this gateway: to allow them, add "
                            "the origin to server.cors_origins (DRAGOMAN_CORS_ORIGINS, --cors-origins)"
                        )
                    )
        return b"origin" in fields

    def _check_host_name(self, value: bytes) -> bool:
        host = _host_name(_text(value).lower())
        return host is not None and (
            is_loopback(host)
            or host == self._server.host.lower()
            or (self._accepts_addresses and is_address(host))
            or any(matches(host, pattern) for pattern in self._server.allowed_hosts)
        )


def _unknown_host(values: Sequence[str]) -> RequestRefused:
    # The name as allowed_hosts takes it: without the port.
    host = (_host_name(values[0].lower()) if len(values) == 1 else None) or ", ".join(values)
    return RequestRefused(
        f"this gateway does not serve the host {_quote(host)}: use 127.0.0.1 or localhost in the base URL, or, "
        "if that name is right, add it to server.allowed_hosts (DRAGOMAN_ALLOWED_HOSTS, --allowed-hosts)",
        status=421,
        code="host_not_allowed",
    )


def refuse_other_origins(headers: _Headers, scheme: str) -> None:
    """Raise RequestRefused (403) for a request of a page that this gateway has not served. scheme: of its URL."""
    values = _relevant(headers)
    own = _own_origins(values, scheme)
    sites = values.get(b"sec-fetch-site", ())
    if any(origin not in own for origin in values.get(b"origin", ())) or any(
        site not in ("same-origin", "none") for site in sites
    ):
        raise _other_origin()


def _other_origin() -> RequestRefused:
    return _refused_origin(
        "web pages of other origins may not use what is for the operator, whatever server.cors_origins is: use this "
        "gateway's own page at /ui, or a program that is no browser"
    )


def _refused_origin(message: str) -> RequestRefused:
    return RequestRefused(message, status=403, code="origin_not_allowed")


def refuse_form_content_type(headers: _Headers) -> None:
    """Raise RequestRefused (415) for a body that a page sends with a form's content type. headers: with its origin."""
    values = _relevant(headers)
    for value in values.get(b"content-type", ()):
        if value.partition(";")[0].strip().lower() in _FORM_TYPES:
            raise RequestRefused(
                "a web page must send its body with content-type: application/json; browsers send plain text and "
                "forms for any page, without a preflight",
                status=415,
            )


def _host_name(value: str) -> str | None:
    match = _HOST.fullmatch(value)
    return match and (match[1] or match[2].removesuffix("."))


def _relevant(headers: _Headers) -> dict[bytes, list[str]]:
    """Return the values of each header that is checked here."""
    values: dict[bytes, list[str]] = {}
    for name, value in headers:
        if name in _NAMES:
            values.setdefault(name, []).append(_text(value))
    return values


def _origins(values: Mapping[bytes, Sequence[str]]) -> Sequence[str]:
    """Return the origins of the page that sent the request, "null" if the browser hides it; none for other clients."""
    origins = values.get(b"origin", ())
    if not origins and "cross-site" in values.get(b"sec-fetch-site", ()):
        # Requests for images, scripts and links, and those whose response the page cannot read (mode "no-cors").
        return ("null",)
    return origins


def _own_origins(values: Mapping[bytes, Sequence[str]], *schemes: str) -> list[str]:
    """Return the origins of pages that this gateway has served. schemes: of their URLs."""
    return [f"{each}://{host}" for each in schemes for host in values.get(b"host", ())]


def _text(value: bytes) -> str:
    return value.decode("latin-1").strip()


def _quote(text: str) -> str:
    return ascii(text[:100])
