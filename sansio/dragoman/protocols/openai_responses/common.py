"""Small helpers of the readers: what is extra, what is a text, and the commonest complaints."""

from __future__ import annotations

from dragoman._wire.exceptions import RemoteProtocolError, dotted
from dragoman._wire.json import JSON, JSONObject, kind_of


def extra_of(value: JSONObject, known: frozenset[str]) -> JSONObject | None:
    """The fields of `value` that are not known, None when there are none."""
    if value.keys() <= known:
        return None
    return {name: field for name, field in value.items() if name not in known}


def text_of(value: JSON) -> str | None:
    """A text that is not empty, None for everything else: servers send null, "" and worse."""
    return value if type(value) is str and value else None


def objects_of(value: JSON) -> list[JSONObject]:
    """The objects of a list; nothing when it is none."""
    return [each for each in value if type(each) is dict] if type(value) is list else []


def required(item: JSONObject, path: str, name: str) -> str:
    """A text that must be there and not be empty. Raises RemoteProtocolError."""
    value = item.get(name)
    if type(value) is str and value:
        return value
    raise missing(f"{path}/{name}") if not value else wrong_type(f"{path}/{name}", "a string", value)


def optional(item: JSONObject, path: str, name: str) -> str | None:
    """A text that may be absent, null or empty: None then. Raises RemoteProtocolError for other types."""
    value = item.get(name)
    if value is None or type(value) is str:
        return value or None
    raise wrong_type(f"{path}/{name}", "a string", value)


def missing(path: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"{dotted(path)} is required", path=path, code="missing_required_parameter")


def wrong_type(path: str, words: str, value: object) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"{dotted(path)} must be {words}, not {kind_of(value)}", path=path, code="invalid_type"
    )


def invalid(path: str, words: str) -> RemoteProtocolError:
    """`words` says what the value must be."""
    return RemoteProtocolError(f"{dotted(path)} must be {words}", path=path, code="invalid_value")
