"""A gateway whose one upstream plays scripts, called as a server calls the application.

gateway = scripted(MESSAGES, whole({...}), whole({...}), secret=SECRET)
client = await gateway.call("/v1/chat/completions", {...})
gateway.sent[-1].body
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.fakes import FakeClient, FakeUpstream, FakeUpstreams, Script, call

from dragoman_server.app import Application, create_app
from dragoman_server.hosts import UpstreamCall
from dragoman_server.keys import hash_client_key
from dragoman_server.settings import ClientKey, ServerSettings, Settings, UpstreamSettings
from dragoman_server.settings.secret import Secret

CHAT, MESSAGES, RESPONSES = PROTOCOL_NAMES = ("openai_chat", "anthropic_messages", "openai_responses")
PATHS = {CHAT: "/v1/chat/completions", MESSAGES: "/v1/messages", RESPONSES: "/v1/responses"}
SECRET = Secret("a-secret-of-some-length-0123456789")


@dataclass
class Sent:
    """One request to the upstream."""

    url: str
    headers: dict[str, str]
    body: dict[str, Any]

    @classmethod
    def of(cls, call: UpstreamCall) -> Sent:
        return cls(call.url, dict(call.headers), json.loads(call.content or b"{}"))


class ScriptedUpstreams(FakeUpstreams):
    """One script for each request, in their order; the last one again and again."""

    def __init__(self, scripts: Sequence[Script]) -> None:
        self.sent: list[Sent] = []
        self.fakes: list[FakeUpstream] = []
        self._scripts = list(scripts)

    def open(self, call: UpstreamCall, **way: Any) -> Any:
        self.sent.append(Sent.of(call))
        script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        self.fakes.append(FakeUpstream(script))
        return self.fakes[-1].open(call)


@dataclass
class ScriptedGateway:
    app: Application
    upstreams: ScriptedUpstreams
    keys: dict[str, str] = field(default_factory=dict)

    @property
    def sent(self) -> list[Sent]:
        return self.upstreams.sent

    async def call(
        self,
        path: str,
        body: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> FakeClient:
        """key: the name of the client key to send."""
        sent = {**(headers or {}), **({} if key is None else {"x-api-key": self.keys[key]})}
        return await call(self.app, path, body, headers=sent)


def scripted(
    protocol: str,
    *scripts: Script,
    upstream: Mapping[str, Any] | None = None,
    keys: Mapping[str, Mapping[str, Any]] | None = None,
    **server: Any,
) -> ScriptedGateway:
    """keys: name of a client key -> its settings. server: settings. The upstream's models are `up/...`."""
    base = "http://up.test" if protocol == MESSAGES else "http://up.test/v1"
    known = {name: f"drk_{name}" for name in keys or {}}
    settings = Settings(
        server=ServerSettings(**{"secret": SECRET, **server}),
        upstreams=(UpstreamSettings.of(name="up", protocol=protocol, base_url=base, **(upstream or {})),),
        client_keys=tuple(
            ClientKey(name=name, hash=hash_client_key(known[name], SECRET), **more)
            for name, more in (keys or {}).items()
        ),
    )
    upstreams = ScriptedUpstreams(scripts)
    return ScriptedGateway(create_app(settings, client=upstreams), upstreams, known)


def whole(value: Any, status: int = 200) -> Script:
    """A response that is one JSON document."""
    return Script([json.dumps(value).encode()], status=status, headers=[("content-type", "application/json")])


def stream(*events: Mapping[str, Any], done: bool = False) -> Script:
    """A stream of these events, each in a read of its own. done: with the line that ends one of Chat Completions."""
    frames = [
        (f"event: {each['type']}\n" if "type" in each else "") + f"data: {json.dumps(each)}\n\n"
        for each in events
    ]
    frames += ["data: [DONE]\n\n"] if done else []
    return Script([frame.encode() for frame in frames], headers=[("content-type", "text/event-stream")])


def chunk(delta: Mapping[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """A frame of Chat Completions."""
    choices = [] if delta is None else [{"index": 0, "delta": dict(delta), "finish_reason": finish}]
    return {
        "id": "x",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": choices,
        **more,
    }


def events_in(body: bytes) -> list[dict[str, Any]]:
    """The JSON of a stream's events."""
    lines = [line[6:] for line in body.decode().splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def chat_response(message: Mapping[str, Any], finish: str = "stop", **more: Any) -> dict[str, Any]:
    """A whole response of Chat Completions."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": None, **message},
        "finish_reason": finish,
    }
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    } | more


def messages_response(content: Sequence[Mapping[str, Any]], stop: str = "end_turn") -> dict[str, Any]:
    """A whole response of Messages."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": list(content),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }


def responses_response(output: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A whole response of Responses."""
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m",
        "output": list(output),
        "usage": usage,
    }
