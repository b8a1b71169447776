"""What a failed request to an upstream means, and what fixes it. Pure: an exception or a status in, a cause out."""

import socket
import ssl
from collections.abc import Iterator
from functools import partial

import msgspec

from dragoman_server.settings.problems import CheckSeverity
from dragoman_server.upstream.errors import (
    UpstreamBroken,
    UpstreamError,
    UpstreamTimeout,
    UpstreamTimeoutPhase,
)


class Cause(msgspec.Struct, frozen=True):
    """The cause of a failure.

    Attributes:
        check, severity: As in CheckFinding.
        text: The message, with {host} and {origin} of the upstream; "" for the failure's own.
        fix: Also with {place}, where the base URL is configured, and {key}, where the key is.
        needs_key: The account has a wrong key, or none.
        unreachable: No connection can be made, so every request fails.
    """

    check: str
    text: str
    fix: str
    severity: CheckSeverity = CheckSeverity.ERROR
    needs_key: bool = False
    unreachable: bool = False


_BASE_URL = "correct the base URL: {place}"
_unreachable = partial(Cause, unreachable=True)

# By X509_V_ERR_... of OpenSSL, include/openssl/x509_vfy.h.
NOT_YET_VALID, EXPIRED, _OTHER_NAME, _OTHER_ADDRESS = 9, 10, 62, 64
_UNKNOWN_AUTHORITY = _unreachable(
    "tls",
    "its certificate is from an authority that this machine does not trust",
    "if you trust it: export SSL_CERT_FILE=/path/to/authority.pem, where the gateway is started",
)
_CERTIFICATES = {
    EXPIRED: _unreachable(
        "tls", "its certificate has expired", "renew the certificate of {host}, or set this machine's clock"
    ),
    NOT_YET_VALID: _unreachable(
        "tls", "its certificate is not valid yet", "set this machine's clock: sudo timedatectl set-ntp true"
    ),
    _OTHER_NAME: _unreachable(
        "tls", "its certificate is for another name than {host}", "write the name in the certificate: {place}"
    ),
}
_CERTIFICATES[_OTHER_ADDRESS] = _CERTIFICATES[_OTHER_NAME]

_NO_TLS = _unreachable(
    "tls", "it does not speak TLS", "write http:// instead of https:// in the base URL: {place}"
)
_TLS = _unreachable("tls", "", "check that {host} speaks TLS 1.2 or newer at that port: {place}")
_DNS = _unreachable(
    "dns", "the name {host} cannot be resolved", "check the network and DNS of this machine, or " + _BASE_URL
)
_REFUSED = _unreachable("connect", "nothing listens at {origin}", "start that server, or " + _BASE_URL)
_NO_CONNECTION = _unreachable("connect", "", "check the network and its firewalls, or " + _BASE_URL)
_PROXY = _unreachable(
    "proxy", "", "correct `proxy`, https_proxy, http_proxy or all_proxy, or add {host} to no_proxy"
)
SILENT = Cause("connect", "", "look at the log of {origin}: it accepts connections, but sends no response")
WRONG_MODEL = Cause(
    "response", "", "correct the model's name or its capabilities, or look at the log of {origin}"
)
_BROKEN = Cause(
    "connect", "", "check that an HTTP server is at {origin}, and that it needs no https://; " + _BASE_URL
)

# What OpenSSL reports if the other side's first bytes are not TLS.
_NO_TLS_REASONS = frozenset(
    {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"}
)


def cause_of(error: UpstreamError, *, by_proxy: bool) -> Cause:
    """Return the cause of an exception. by_proxy: the request was sent by a proxy."""
    for cause in _chain(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _CERTIFICATES.get(cause.verify_code, _UNKNOWN_AUTHORITY)
        if isinstance(cause, ssl.SSLError):
            return _NO_TLS if cause.reason in _NO_TLS_REASONS else _TLS
    if by_proxy:
        return _PROXY
    for cause in _chain(error):
        if isinstance(cause, socket.gaierror):
            return _DNS
        if isinstance(cause, ConnectionRefusedError):
            return _REFUSED
    if isinstance(error, UpstreamTimeout) and error.phase is UpstreamTimeoutPhase.READ:
        return SILENT
    return _BROKEN if isinstance(error, UpstreamBroken) else _NO_CONNECTION


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception and what has caused it. Upstream errors do not print their causes, but keep them."""
    each: BaseException | None = error
    while each is not None:
        yield each
        each = each.__cause__ or each.__context__


_KEY = "check that this key is valid, or change it: {key}"

# By the status of a response to a request for the list of models, or for a response.
_STATUSES = {
    # As of a server of TLS that gets plain HTTP.
    400: Cause(
        "base_url", "it returned status 400", _BASE_URL + "; write https:// if that server speaks TLS"
    ),
    401: Cause("key", "its key is refused (status 401)", _KEY, needs_key=True),
    402: Cause("key", "its account has no money left", "pay, or use another key: {key}"),
    403: Cause("key", "its key may not be used for this (status 403)", _KEY, needs_key=True),
    407: Cause("proxy", "the proxy requires credentials (status 407)", "write them into the proxy's URL"),
    429: Cause(
        "key", "its account is at its limit (status 429)", "wait, or add [[accounts]]", CheckSeverity.WARNING
    ),
}


def cause_of_status(status: int) -> Cause:
    """Return the cause of an error status."""
    if status in _STATUSES:
        return _STATUSES[status]
    if status >= 500:
        return Cause("connect", f"it fails itself (status {status})", "look at the log of {origin}")
    return Cause("base_url", f"it returned status {status}", _BASE_URL)
