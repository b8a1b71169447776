"""The official SDKs, called in one way whatever their protocol.

A request is the keyword arguments of the SDK's `create`; a response is the SDK's own object with what the oracle reads
from it. A stream is taken in two ways: by its raw events, put together in the plainest way a program would, and by the
SDK's own helper.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anthropic
import openai
import pytest
from laws.turns import ASSEMBLE, WHOLE
from oracle import CHAT, MESSAGES, RESPONSES, Meaning, meaning_of_stream, meaning_of_whole
from oracle import samples as s
from simulator_requests import request_body

Body = dict[str, Any]

# Bounds a hang; every test is far below.
TIMEOUT_S = 30.0

# The helper's method that returns the whole response.
_FINAL = {CHAT: "get_final_completion", MESSAGES: "get_final_message", RESPONSES: "get_final_response"}


class Way(enum.Enum):
    """How a response is requested."""

    WHOLE = "whole"
    EVENTS = "events"
    HELPER = "helper"


each_way = pytest.mark.parametrize("way", list(Way), ids=[way.value for way in Way])


@dataclass(frozen=True)
class SdkResponse:
    """One response. native: what a program appends to its conversation, as the SDK returned it. turn: it as JSON."""

    model: str
    native: Any
    turn: Any
    meaning: Meaning


def body_of(protocol: str, model: str, text: str, **more: Any) -> Body:
    """The keyword arguments of `create`. Strict tools, since the helpers take no others."""
    body = request_body(protocol, model, text, **more)
    del body["stream"]
    for tool in body.get("tools", []):
        if tool.get("type") == "function":
            tool.get("function", tool)["strict"] = True
    return body


def send(sdk: Sdk, protocol: str, way: Way, body: Body) -> SdkResponse:
    """Send a request in one of the three ways and return its response."""
    if way is Way.EVENTS:
        events: list[Any] = []
        sdk.events(protocol, body, events)
        return fold(protocol, [event.to_dict() for event in events])
    native = sdk.create(protocol, body) if way is Way.WHOLE else sdk.final(protocol, body)
    whole = native.to_dict()
    turn = {CHAT: lambda: native.choices[0].message, MESSAGES: lambda: native.content}.get(
        protocol, lambda: native.output
    )()
    meaning = meaning_of_whole(protocol, json.dumps(whole).encode())
    return SdkResponse(whole["model"], turn, WHOLE[protocol](whole), meaning)


def next_turn(protocol: str, body: Body, response: SdkResponse, results: list[str]) -> Body:
    """Return the request with the response and a result for each of its calls."""
    pairs = list(zip([call.id for call in response.meaning.calls], results, strict=True))
    if protocol == CHAT:
        outputs: list[Any] = [{"role": "tool", "tool_call_id": id, "content": text} for id, text in pairs]
        return {**body, "messages": [*body["messages"], response.native, *outputs]}
    if protocol == MESSAGES:
        outputs = [{"type": "tool_result", "tool_use_id": id, "content": text} for id, text in pairs]
        turns = [{"role": "assistant", "content": response.native}, {"role": "user", "content": outputs}]
        return {**body, "messages": [*body["messages"], *turns]}
    kinds = {call.id: "custom_tool_call_output" for call in response.meaning.calls if call.custom}
    outputs = [
        {"type": kinds.get(id, "function_call_output"), "call_id": id, "output": text} for id, text in pairs
    ]
    return {**body, "input": [*body["input"], *response.native, *outputs]}


def fold(protocol: str, events: list[Body]) -> SdkResponse:
    """Return the response that the events of a stream add up to, as a plain program puts it together."""
    stream = s.render(protocol, [*events, *(["[DONE]"] if protocol == CHAT else [])])
    turn = ASSEMBLE[protocol](stream)
    first, last = events[0], events[-1]
    if protocol == CHAT:
        model = first["model"]
    elif protocol == MESSAGES:
        model = first["message"]["model"]
        starts = [event["index"] for event in events if event["type"] == "content_block_start"]
        assert (starts, last["type"]) == (list(range(len(starts))), "message_stop")
    else:
        model = first["response"]["model"]
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert last["type"] in ("response.completed", "response.incomplete")
        assert last["response"]["output"] == turn
    return SdkResponse(model, turn, turn, meaning_of_stream(protocol, stream))


# The drivers.


def resource(client: Any, protocol: str) -> Any:
    """Where `create`, `stream` and `parse` are."""
    return {
        CHAT: lambda: client.chat.completions,
        MESSAGES: lambda: client.messages,
        RESPONSES: lambda: client.responses,
    }[protocol]()


def _streaming(protocol: str, body: Body) -> Body:
    return {**body, "stream_options": {"include_usage": True}} if protocol == CHAT else body


class Sdk:
    """Both vendors' SDKs at one gateway."""

    def __init__(self, openai_client: Any, anthropic_client: Any) -> None:
        self._clients = {CHAT: openai_client, MESSAGES: anthropic_client, RESPONSES: openai_client}

    def client(self, protocol: str) -> Any:
        """The SDK's client, for what is the same in all."""
        return self._clients[protocol]

    def create(self, protocol: str, body: Body, **options: Any) -> Any:
        return resource(self._clients[protocol], protocol).create(**body, **options)

    def events(self, protocol: str, body: Body, into: list[Any]) -> None:
        """`create` with a stream; the events go into the list, those before an error too."""
        with self.create(protocol, _streaming(protocol, body), stream=True) as stream:
            # One by one: an error leaves what came before it.
            for event in stream:
                into.append(event)

    def final(self, protocol: str, body: Body) -> Any:
        """What the stream helper gives at its end."""
        with resource(self._clients[protocol], protocol).stream(**_streaming(protocol, body)) as stream:
            return getattr(stream, _FINAL[protocol])()

    def parse(self, protocol: str, body: Body) -> Any:
        """The helper for typed responses."""
        return resource(self._clients[protocol], protocol).parse(**body)

    def models(self, protocol: str) -> list[str]:
        """The ids of the listed models."""
        return [model.id for model in self._clients[protocol].models.list()]


async def read_events(client: Any, protocol: str, body: Body, into: list[Any]) -> None:
    """A stream's events through an async client, into a list."""
    created = await resource(client, protocol).create(**_streaming(protocol, body), stream=True)
    async with created as stream:
        async for event in stream:
            into.append(event)


# No retries: every error shows.
_OPTIONS: Body = {"api_key": "any", "max_retries": 0, "timeout": TIMEOUT_S}


@contextmanager
def sync_sdk(url: str) -> Iterator[Sdk]:
    """Both sync clients at the gateway of this URL."""
    http, other_http = (
        openai.DefaultHttpxClient(trust_env=False),
        anthropic.DefaultHttpxClient(trust_env=False),
    )
    with (
        openai.OpenAI(base_url=url + "/v1", http_client=http, **_OPTIONS) as one,
        anthropic.Anthropic(base_url=url, http_client=other_http, **_OPTIONS) as other,
    ):
        yield Sdk(one, other)


def async_clients(url: str) -> tuple[openai.AsyncOpenAI, anthropic.AsyncAnthropic]:
    """Both async clients, as async context managers."""
    http = openai.DefaultAsyncHttpxClient(trust_env=False)
    other_http = anthropic.DefaultAsyncHttpxClient(trust_env=False)
    return (
        openai.AsyncOpenAI(base_url=url + "/v1", http_client=http, **_OPTIONS),
        anthropic.AsyncAnthropic(base_url=url, http_client=other_http, **_OPTIONS),
    )
