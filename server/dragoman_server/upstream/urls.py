"""Parse the URLs of requests, and find the proxies of the environment.

Plain ones, as nearly all are, are parsed here, because httpx2 takes a tenth of the gateway's start to import. All
others are up to httpx2: names with other letters, addresses in brackets, escapes, and every refusal.
"""

import os
import re
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    import httpx2

_NUMBER = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
# Nothing in it has another spelling: no default port, no segments of dots, no user. A host of digits is an address.
_PLAIN = re.compile(
    rf"(?:(http)|(https))://((?:{_NUMBER}\.){{3}}{_NUMBER}|(?![\d.]+[:/?]|[\d.]+\Z|[a-z\d.-]*xn--)[a-z\d](?:[a-z\d.-]*[a-z\d])?)"
    r"(?::(?!80\b|443\b)([1-9]\d{0,3}|[1-5]\d{4}))?"
    r"((?:/(?!\.)[\w.~:@!$&()*+,;=-]*)*(?:\?[\w.~:@/=&-]+)?)",
    re.ASCII,
)


class PlainURL(msgspec.Struct, frozen=True):
    """A URL. See `httpx2.URL`."""

    scheme: str
    netloc: bytes
    host: str
    raw_host: bytes
    port: int | None
    raw_path: bytes

    def __str__(self) -> str:
        return f"{self.scheme}://{(self.netloc + self.raw_path).decode()}"


URL: TypeAlias = "PlainURL | httpx2.URL"


def plain_url(url: str) -> PlainURL | None:
    """Return a plain URL, None for what is none."""
    match = _PLAIN.fullmatch(url)
    if match is None:
        return None
    host, port, path = match[3], match[4], match[5]
    netloc = host if port is None else f"{host}:{port}"
    return PlainURL(
        match[1] or match[2],
        netloc.encode(),
        host,
        host.encode(),
        None if port is None else int(port),
        (path if path.startswith("/") else f"/{path}").encode(),
    )


# A gateway sends to a few URLs over and over, and parsing one costs as much as writing a request head.
@lru_cache(maxsize=256)
def parse_url(url: str) -> URL:
    """Return the parts of a URL. Raises ValueError for one that is not valid."""
    plain = plain_url(url)
    if plain is not None:
        return plain
    import httpx2

    try:
        return httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise ValueError(str(error)) from None


def environment_proxies() -> dict[str, str]:
    """Return what urllib finds, by scheme. Where only variables can name one, it is not imported if none does."""
    if sys.platform in ("darwin", "win32") or any(name.lower().endswith("_proxy") for name in os.environ):
        import urllib.request

        return urllib.request.getproxies()
    return {}
