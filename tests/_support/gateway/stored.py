"""Conversations that continue at a gateway which stores responses.

All upstreams are the simulator: it repeats the user's last text, and counts the words of the conversation as input
tokens, which shows how much arrived.
"""

import json
from typing import Any

import pytest
from gateway.simulated import Gateway, frames
from oracle import RESPONSES, check_error

PATH = "/v1/responses"
ON = {"response_store": "memory"}

# Upstreams that store nothing: two that are translated to, one that is relayed to.
STATELESS = ["messages", "chat", "stateless"]

each_stateless = pytest.mark.parametrize("upstream", STATELESS)
each_translated = pytest.mark.parametrize("upstream", ["messages", "chat"])
each_mode = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])

USER = {"type": "message", "role": "user", "content": "again"}


async def create_response(
    up: Gateway, upstream: str, text: Any, *, stream: bool = False, **more: Any
) -> dict[str, Any]:
    """Return the Response object that a client gets in the end."""
    client = await up.call(PATH, {"model": f"{upstream}/echo", "input": text, "stream": stream, **more})
    assert client.status == 200, client.body
    if not stream:
        whole: dict[str, Any] = json.loads(client.body)
        return whole
    last = frames(client.body)[-1]
    assert last["type"] == "response.completed"
    response: dict[str, Any] = last["response"]
    return response


def text_of(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] for part in item["content"])


async def refused(up: Gateway, status: int, body: dict[str, Any], path: str = PATH) -> dict[str, Any]:
    client = await up.call(path, body)
    assert client.status == status, client.body
    assert check_error(RESPONSES, status, client.body) == []
    error: dict[str, Any] = json.loads(client.body)["error"]
    return error
