"""Parse the URL of a Valkey server.

The URL may contain a password, so no error quotes it.
"""

from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from dragoman_server.settings.secret import Secret

# The accepted schemes; true for TLS.
_SCHEMES = {"valkey": False, "redis": False, "valkeys": True, "rediss": True, "unix": False}

_DEFAULT_PORT = 6379


class ValkeyURL(msgspec.Struct, frozen=True):
    """The parts of a URL.

    Attributes:
        host, port: The address of a TCP connection.
        path: The path of a Unix socket, which has neither.
        tls: The connection is encrypted.
        db: The number of the database.
    """

    host: str = ""
    port: int = _DEFAULT_PORT
    path: str = ""
    tls: bool = False
    username: str | None = None
    password: Secret | None = None
    db: int = 0

    @property
    def where(self) -> str:
        """The name of the server in the log."""
        return self.path or f"{self.host}:{self.port}"


def parse_valkey_url(url: str) -> ValkeyURL:
    """Parse a URL. Raises ValueError, whose text lists the accepted forms."""
    try:
        return _parsed(url.strip())
    except ValueError:
        raise ValueError("is not of the form valkey://host:port/db, valkeys://... or unix:///path") from None


def _parsed(url: str) -> ValkeyURL:
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    unix = parts.scheme == "unix"
    path = unquote(parts.path)
    db = query.pop("db", "0") if unix else query.pop("db", path.strip("/") or "0")
    valid = parts.scheme in _SCHEMES and not query and (path if unix else parts.hostname) and db.isdecimal()
    if not valid:
        raise ValueError
    return ValkeyURL(
        host="" if unix else parts.hostname or "",
        port=parts.port or _DEFAULT_PORT,
        path=path if unix else "",
        tls=_SCHEMES[parts.scheme],
        username=unquote(parts.username) if parts.username else None,
        password=Secret(unquote(parts.password)) if parts.password else None,
        db=int(db),
    )
