"""Read the body of a simple request.

A value of a wrong type is a 400 with its path. Members that the API does not define are kept, so that they are recorded
as losses.
"""

from __future__ import annotations

from dragoman._ir.parameters import read_params
from dragoman._ir.request import Message, Request, Text
from dragoman._ir.signatures import Signer
from dragoman._wire.exceptions import RemoteProtocolError, dotted_path
from dragoman._wire.json import JSON, JSONObject, wrong_type
from dragoman.protocols.simple_chat.tables import NAME, PARAM_PATHS, PARAMS, ROLES

# `model` may be left out: the server has a default then.
KNOWN_BODY = frozenset(("model", "messages", "temperature"))
KNOWN_MESSAGE = frozenset(("role", "content"))


# Compared by identity, because isinstance() counts a boolean as an int.
_NUMBERS = (int, float)


def read_request(body: JSONObject, signer: Signer) -> Request:
    """Read a decoded body. Its endpoint decides whether the response is a stream.

    Raises RemoteProtocolError (400) with the path of the wrong member.
    """
    model = body.get("model")
    if model is not None and type(model) is not str:
        raise wrong_type("/model", "a string", model)
    temperature = body.get("temperature")
    if temperature is not None and type(temperature) not in _NUMBERS:
        raise wrong_type("/temperature", "a number", temperature)
    return Request(
        protocol=NAME,
        model=model or "",
        messages=_messages(body.get("messages")),
        include_usage=False,  # responses have no field for it
        params=read_params(body, PARAMS),
        param_paths=PARAM_PATHS,
        extra=extra_fields(body, KNOWN_BODY),
    )


def _messages(items: JSON) -> tuple[Message, ...]:
    if type(items) is not list:
        raise wrong_type("/messages", "an array of messages", items)
    if not items:
        raise RemoteProtocolError(
            "messages must contain at least one message", path="/messages", code="invalid_value"
        )
    return tuple([_message(item, f"/messages/{index}") for index, item in enumerate(items)])


def _message(item: JSON, path: str) -> Message:
    if type(item) is not dict:
        raise wrong_type(path, "a message", item)
    name = item.get("role")
    role = ROLES.get(name) if type(name) is str else None
    if role is None:
        raise RemoteProtocolError(
            f"{dotted_path(path)}.role must be one of {', '.join(ROLES)}",
            path=f"{path}/role",
            code="invalid_value",
        )
    content = item.get("content")
    if type(content) is not str:
        raise wrong_type(f"{path}/content", "a string", content)
    extra = None if len(item) == 2 else extra_fields(item, KNOWN_MESSAGE)
    return Message(role, (Text(content, path=f"{path}/content"),), path, extra=extra)


def extra_fields(value: JSONObject, known: frozenset[str]) -> JSONObject | None:
    """Return the members of `value` outside of `known`, None if there are none."""
    return {key: member for key, member in value.items() if key not in known} or None
