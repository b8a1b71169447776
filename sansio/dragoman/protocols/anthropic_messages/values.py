"""Looking into a client's body: what is there, if it has the type that the protocol wants.

Strategy: one small function a question; what is wrong is told in the words of the vendor's own validator,
`messages.0.content: Field required`, with the place.
"""

from __future__ import annotations

from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, JSONObject


def invalid_request(path: str, message: str) -> RemoteProtocolError:
    """An error in the form of the vendor's validator."""
    return RemoteProtocolError(
        f"{path[1:].replace('/', '.')}: {message}", status=400, path=path, code="invalid_request"
    )


def required_field(value: JSONObject, name: str, path: str, kind: type, word: str) -> JSON:
    """A field that must be there. word: what the validator calls its type."""
    found = value.get(name)
    if type(found) is kind:
        return found
    raise invalid_request(
        f"{path}/{name}", "Field required" if found is None else f"Input should be a valid {word}"
    )


def optional_field(value: JSONObject, name: str, path: str, kind: type, word: str) -> JSON:
    """A field that may be absent or null: None then."""
    found = value.get(name)
    if found is None or type(found) is kind:
        return found
    raise invalid_request(f"{path}/{name}", f"Input should be a valid {word}")


def object_list(value: JSONObject, name: str, path: str) -> list[JSONObject]:
    """A list of objects; [] when it is absent."""
    found = value.get(name)
    if found is None:
        return []
    if type(found) is not list:
        raise invalid_request(f"{path}/{name}", "Input should be a valid list")
    for index, item in enumerate(found):
        if type(item) is not dict:
            raise invalid_request(f"{path}/{name}/{index}", "Input should be an object")
    return found


def optional_object(value: JSONObject, name: str, path: str) -> JSONObject:
    """An optional object; {} when it is absent."""
    found = value.get(name)
    if found is None:
        return {}
    if type(found) is not dict:
        raise invalid_request(f"{path}/{name}", "Input should be an object")
    return found


def text_or_empty(value: JSON) -> str:
    """A value to look up in a table: what is no string is in none of them."""
    return value if type(value) is str else ""


def collect_extra(left: JSONObject, name: str, extra: JSONObject | None) -> None:
    """Unknown fields of an object that has no place of its own in the document: kept under its name."""
    if extra:
        left[name] = {**left.get(name, {}), **extra}
