"""A gateway whose one upstream plays scripts, called as a server calls the application.

gateway = scripted(MESSAGES, whole({...}), whole({...}), keys={"red": {"requests_per_minute": 2}})
client = await gateway.call("/v1/chat/completions", {...}, key="red")
gateway.sent[-1].body
gateway.clock.now += 30
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gateway.fakes import FakeClient, FakeUpstreams, Script, Sent, call, http_scope, next_of
from laws.clients import endpoint_of, path_of
from oracle import CHAT, GEMINI, MESSAGES, PROTOCOL_NAMES, RESPONSES

from dragoman import PROTOCOLS, UPSTREAMS, peek
from dragoman_server.accounts.limits import ClientLimits
from dragoman_server.accounts.stores.base import AccountStore
from dragoman_server.app import Application
from dragoman_server.gateway import Gateway
from dragoman_server.proxying.plan import Plan, Planner
from dragoman_server.settings import ClientKey, Group, Price, ServerSettings, Settings, UpstreamSettings
from dragoman_server.settings.client_keys import hash_client_key
from dragoman_server.settings.secret import Secret

# Those of a request for a whole response; Gemini's has the model in it.
PATHS = {name: path_of(name, "up/m", stream=False) for name in PROTOCOL_NAMES}
SECRET = Secret("a-secret-of-some-length-0123456789")
# Noon of a day in the middle of a month.
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()


class Clock:
    """Seconds since the epoch, as the test says."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


def request_body(protocol: str, model: str = "up/m", streams: bool = False) -> dict[str, Any]:
    """A small request to the path of a protocol. Gemini's says the rest there: see path_of."""
    if protocol == GEMINI:
        return {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
    messages_field = "input" if protocol == RESPONSES else "messages"
    text: Any = "Hi" if protocol == RESPONSES else [{"role": "user", "content": "Hi"}]
    body = {"model": model, messages_field: text, "stream": streams}
    return body | {"max_tokens": 9} if protocol == MESSAGES else body


def plan_of(
    settings: Settings, client: str, body: Mapping[str, Any] | None = None, *, streams: bool = False
) -> Plan:
    """The plan of a request, by default of a small one."""
    sent = json.dumps(body or request_body(client, streams=streams)).encode()
    endpoint = endpoint_of(client, stream=streams)
    model = "up/m" if "{model}" in endpoint.path else ""
    return Planner(
        settings,
        PROTOCOLS[client],
        {},
        "",
        sent,
        peek(sent, model),
        id="0123456789ab",
        now=1_700_000_000,
        endpoint=endpoint,
    ).first()


@dataclass
class ScriptedGateway:
    """clock: of the limits of client keys. key: that of a request which names none."""

    app: Application
    gateway: Gateway
    upstreams: FakeUpstreams
    clock: Clock
    key: str | None = None

    @property
    def sent(self) -> list[Sent]:
        return self.upstreams.sent

    async def call(
        self,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        key: str | None = None,
        *,
        method: str = "POST",
        client: FakeClient | None = None,
    ) -> FakeClient:
        """client: who calls, if not one that stays until the end of the response."""
        key = key or self.key
        sent = {**(headers or {}), **({} if key is None else {"x-api-key": f"drk_{key}"})}
        if client is None:
            return await call(self.app, path, body, method, sent)
        await self.app(http_scope(path, method, sent), client.receive, client.send)
        return client

    async def request(
        self, protocol: str = CHAT, *, key: str | None = None, streams: bool = False, model: str = "up/m"
    ) -> FakeClient:
        path = path_of(protocol, model, stream=streams)
        return await self.call(path, request_body(protocol, model, streams), key=key)


def settings_with(
    protocol: str,
    *,
    upstream: Mapping[str, Any] | None = None,
    keys: Mapping[str, Mapping[str, Any]] | None = None,
    groups: Mapping[str, Mapping[str, Any]] | None = None,
    prices: Sequence[Price] = (),
    models: Mapping[str, str | tuple[str, ...]] | None = None,
    **server: Any,
) -> Settings:
    return Settings(
        server=ServerSettings(**{"secret": SECRET, **server}),
        upstreams=tuple(
            UpstreamSettings.of(
                name=name,
                protocol=protocol,
                base_url="http://up.test" + UPSTREAMS[protocol].base_path,
                **(upstream or {}),
            )
            for name in ("up", "two")
        ),
        models=models or {},
        groups=tuple(Group(name=name, **more) for name, more in (groups or {}).items()),
        client_keys=tuple(
            ClientKey(name=name, hash=hash_client_key(f"drk_{name}", SECRET), **more)
            for name, more in (keys or {}).items()
        ),
        prices=tuple(prices),
    )


def scripted(
    protocol: str,
    *scripts: Script,
    keys: Mapping[str, Mapping[str, Any]] | None = None,
    store: AccountStore | None = None,
    clock: Clock | None = None,
    **settings: Any,
) -> ScriptedGateway:
    """keys: name of a client key -> its settings. The upstreams' models are `up/...` and `two/...`.

    scripts: by default a response of a word. settings: see settings_with.
    """
    upstreams = FakeUpstreams(*(scripts or (WHOLE_RESPONSES[protocol],)))
    clock = clock or Clock()
    made = settings_with(protocol, keys=keys, **settings)
    gateway = Gateway(made, upstreams, accounts=store)
    gateway.limits = ClientLimits(made, gateway.accounts, clock, gateway.budget_alerts)
    return ScriptedGateway(Application(gateway), gateway, upstreams, clock, next(iter(keys or ()), None))


def whole(value: Any, status: int = 200) -> Script:
    """A response that is one JSON document."""
    return Script([json.dumps(value).encode()], status=status, headers=[("content-type", "application/json")])


def stream(*events: Mapping[str, Any], done: bool = False) -> Script:
    """A stream of these events, each in its own read. done: with the line that ends one of Chat Completions."""
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


def candidate(*parts: Mapping[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    """A chunk of Gemini, which a whole response is as well if it has a reason of its end."""
    found: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish is not None:
        found["finishReason"] = finish
        usage = {"promptTokenCount": 3, "candidatesTokenCount": 4, "totalTokenCount": 7}
        more = {"usageMetadata": usage, **more}
    return {"candidates": [found], "modelVersion": "m", "responseId": "r1", **more}


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


# The usage in the scripts' responses: 3 tokens in, 4 out.
TOKENS = 7
WHOLE_RESPONSES = {
    CHAT: whole(chat_response({"content": "Hello"})),
    MESSAGES: whole(messages_response([{"type": "text", "text": "Hello"}])),
    RESPONSES: whole(responses_response([])),
    GEMINI: whole(candidate({"text": "Hello"}, finish="STOP")),
}
STREAMS = {
    CHAT: stream(
        chunk({"role": "assistant", "content": "Hello"}),
        chunk({}, "stop"),
        chunk(usage={"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}),
        done=True,
    ),
    MESSAGES: stream(
        {"type": "message_start", "message": {**messages_response([]), "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 4},
        },
        {"type": "message_stop"},
    ),
    RESPONSES: stream(
        {"type": "response.created", "sequence_number": 0, "response": responses_response([])},
        {"type": "response.completed", "sequence_number": 1, "response": responses_response([])},
    ),
    GEMINI: stream(candidate({"text": "Hello"}), candidate(finish="STOP")),
}


# The reads of the stream of Chat: a word, the reason of its end, and the usage with the end mark.
HELLO, STOP, *_USAGE = (part for part in STREAMS[CHAT].body if isinstance(part, bytes))
USAGE = b"".join(_USAGE)


class ListingUpstreams(FakeUpstreams):
    """by_url: the responses of a URL without its query, one after the other; of any other URL a 404."""

    def __init__(self, by_url: dict[str, list[Script]]) -> None:
        super().__init__()
        self.by_url = by_url

    async def __aexit__(self, *error: object) -> None:
        # Whoever asks upstreams must have ended before the connections do.
        assert self.open_now == 0

    def script_for(self, url: str, headers: Mapping[str, str], content: bytes) -> Script:
        assert not content
        return next_of(self.by_url.get(url.partition("?")[0]) or [Script([b"{}"], status=404)])

    def requested_at(self, host: str) -> list[float]:
        """Return the times of the requests to this host."""
        return [each.at for each in self.sent if each.host == host]


def openai_list(*models: str | dict[str, Any], **more: Any) -> Script:
    """A list in OpenAI's form. Models are ids, or all that is said of one."""
    data = [{"id": each} if isinstance(each, str) else each for each in models]
    return Script([json.dumps({"object": "list", "data": data, **more}).encode()])


def anthropic_list(*models: str | dict[str, Any], has_more: bool = False) -> Script:
    """A list in Anthropic's form."""
    data = [{"type": "model", **({"id": each} if isinstance(each, str) else each)} for each in models]
    ids = [each["id"] for each in data] or [None]
    page = {"data": data, "first_id": ids[0], "last_id": ids[-1], "has_more": has_more}
    return Script([json.dumps(page).encode()])
