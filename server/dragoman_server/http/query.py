"""Query parameters of the endpoints that take some. Whatever is wrong with one is a 400 that names it."""

from collections.abc import Mapping
from urllib.parse import parse_qs

from dragoman import RemoteProtocolError

# Far more than any endpoint has.
_MOST_PARAMETERS = 100

Query = Mapping[str, list[str]]


def parameters(text: str) -> Query:
    """The values of each, in order. Names that nobody looks for are no error. Raises RemoteProtocolError."""
    try:
        return parse_qs(text, max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        message = f"the query has more than {_MOST_PARAMETERS} parameters"
        raise RemoteProtocolError(message, code="invalid_value") from None


def last(query: Query, name: str) -> str | None:
    """The last value, None where there is none."""
    return query[name][-1] if name in query else None


def switch(query: Query, name: str) -> bool:
    """Whether it is true; it need not be there. Raises RemoteProtocolError."""
    value = (last(query, name) or "false").lower()
    if value not in ("true", "false"):
        raise invalid(name, "true or false")
    return value == "true"


def number(query: Query, name: str, low: int, high: int) -> int | None:
    """An integer in these limits, None where there is none. Raises RemoteProtocolError."""
    text = last(query, name)
    if text is None:
        return None
    value = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else low - 1
    if not low <= value <= high:
        raise invalid(name, f"an integer from {low} to {high}")
    return value


def invalid(name: str, words: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"{name} must be {words}", path=f"/{name}", code="invalid_value")
