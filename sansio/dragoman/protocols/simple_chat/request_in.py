"""Read the body of a simple request.

A value of a wrong type is a 400 with its path. Members that the API does not define are kept, so that they are recorded
as losses.
"""

from __future__ import annotations

from dragoman._ir.request import Message, Request, Text
from dragoman._ir.shape import read_members
from dragoman._ir.wrapped_signatures import Signer
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, JSONObject, invalid_value, wrong_type
from dragoman.protocols.simple_chat.tables import MESSAGE_SHAPE, NAME, REQUEST_SHAPE, ROLES, SETTING_PATHS


def read_request(body: JSONObject, signer: Signer) -> Request:
    """Read a decoded body. Its endpoint decides whether the response is a stream.

    Raises RemoteProtocolError (400) with the path of the wrong member.
    """
    settings, extra = read_members(body, REQUEST_SHAPE, wrong_type)
    return Request(
        protocol=NAME,
        model=body.get("model") or "",
        messages=_messages(body.get("messages")),
        include_usage=False,  # responses have no field for it
        params=settings,
        param_paths=SETTING_PATHS,
        extra=extra or None,
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
        raise invalid_value(f"{path}/role", f"one of {', '.join(ROLES)}")
    content = item.get("content")
    if type(content) is not str:
        raise wrong_type(f"{path}/content", "a string", content)
    text = Text(content, path=f"{path}/content")
    return Message(role, (text,), path, native=item, shape=MESSAGE_SHAPE)
