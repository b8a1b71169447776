"""No input within the limits holds the event loop: hostile bodies of a MiB, from clients and from upstreams, and bodies
from the shapes of all protocols.

The measure is the CPU time of the loop's own thread between two of its turns, so neither other processes nor other
threads count.
"""

# ruff: noqa: E501 -- the tables are read by row

import gc
import gzip
import json
import random
import socket
import string
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import canaries
import pytest
from fuzz import SECONDS
from gateway.fakes import FakeClient, OneResponse, Script, http_scope
from growth import shapes
from laws.clients import path_of
from msgspec.structs import replace
from virtual_time import REAL_BACKENDS, UVLOOP

from dragoman import UPSTREAMS
from dragoman_server.app import Application, create_app
from dragoman_server.proxying import tool_grammar
from dragoman_server.serving.run import _Worker
from dragoman_server.serving.signals import SignalMeanings
from dragoman_server.settings import ClientKey, Price, ServerSettings, Settings, UpstreamSettings
from dragoman_server.settings.secret import Secret

# A thread knows nothing of virtual time. And the tracer of coverage would take two thirds of what is measured.
pytestmark = [pytest.mark.anyio, pytest.mark.backends(*REAL_BACKENDS, UVLOOP), pytest.mark.no_cover]

SIZE = 1024 * 1024
# Of a terminal whose expression takes long to compile.
PAIRS = "|".join([f"{letter}a" for letter in string.ascii_letters])
# Of CPU, and of a call of the grammar's parser, which is not ours.
LIMIT_S, PARSER_S = 0.035, 0.1
TRIES = 3

PATHS = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
    "gemini": "/v1beta/up/m:generateContent",
    "gemini streams": "/v1beta/up/m:streamGenerateContent?alt=sse",
}
# A read of the transport, see _TURN_BYTES.
READ = 32 * 1024

WHOLE = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


def many(unit: str, before: str = "", after: str = "") -> str:
    """Return a MiB of one thing, with commas between."""
    return before + ",".join([unit] * (SIZE // (len(unit) + 1))) + after


HI = '{"role":"user","content":"Hi"}'
# Members of requests, by the client's protocol and by what there is much of.
REQUESTS = {
    ("messages", "messages"): many(HI, '"messages":[', "]"),
    ("messages", "parts"): many('{"type":"text","text":"x"}', '"messages":[{"role":"user","content":[', "]}]"),
    ("messages", "tools"): many('{"name":"f","input_schema":{}}', f'"messages":[{HI}],"tools":[', "]"),
    ("messages", "stop sequences"): many('"abc"', f'"messages":[{HI}],"stop_sequences":[', "]"),
    ("messages", "nesting"): f'"messages":[{HI}],"u":' + "[" * (SIZE // 2) + "]" * (SIZE // 2),
    ("messages", "escapes"): '"messages":[{"role":"user","content":"' + "\\u00e9" * (SIZE // 6) + '"}]',
    ("messages", "digits"): f'"messages":[{HI}],"temperature":' + "1" * SIZE,
    ("chat", "messages"): many(HI, '"messages":[', "]"),
    ("chat", "calls"): many('{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}', f'"messages":[{HI},{{"role":"assistant","tool_calls":[', "]}]"),
    ("chat", "unknown members"): f'"messages":[{HI}],' + ",".join([f'"u{number}":1' for number in range(SIZE // 11)]),
    ("responses", "items"): many(HI, '"input":[', "]"),
    ("responses", "references"): many('{"type":"item_reference","id":"msg_1"}', '"input":[', "]"),
    ("responses", "most references"): '"input":[' + ",".join(['{"type":"item_reference","id":"msg_1"}'] * 99_000) + "]",
    ("responses", "a grammar"): f'"input":[{HI}],"tools":[{{"type":"custom","name":"f","format":{{"type":"grammar","syntax":"lark","definition":"start: T\\nX: /({PAIRS})*/\\nT: ' + "X " * 700 + '"}}]',
    ("gemini", "parts"): many('{"text":"x"}', '"contents":[{"parts":[', "]}]"),
    ("gemini", "results"): many('{"functionResponse":{"name":"f","response":{}}}', '"contents":[{"parts":[', "]}]"),
    ("responses", "empty arrays"): many("[]", f'"input":[{HI}],"u":[', "]"),
}  # fmt: skip


def event(delta: str) -> bytes:
    text = (
        f'{{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{{"index":0,"delta":{delta}}}]}}'
    )
    return f"data: {text}\n\n".encode()


CALL = '{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}'
EVENTS = {
    "calls": event(many(CALL, '{"tool_calls":[', "]}")),
    "choices": many("{}", 'data: {"id":"c","choices":[', "]}\n\n").encode(),
    "reasoning": event(many('{"type":"reasoning.text","text":"t"}', '{"reasoning_details":[', "]}")),
    "text": event('{"content":"' + "\\u00e9x" * (SIZE // 7) + '"}'),
    "unknown members": event(many('{"a":1}', '{"u":[', "]}")),
    "small events": event('{"content":"x"}') * (SIZE // 100),
}
WHOLES = {
    "calls": many(CALL, '{"choices":[{"index":0,"message":{"tool_calls":[', "]}}]}"),
    "empty arrays": many("[]", '{"u":[', "]," + json.dumps(WHOLE)[1:]),
    "an error": many('{"a":1}', '{"error":{"message":"no","u":[', "]}}"),
}


def app_of(
    data: bytes,
    *,
    status: int = 200,
    stream: bool = False,
    upstream: str = "openai_chat",
    model_list: bool = False,
    prices: tuple[Price, ...] = (),
    **server: Any,
) -> Application:
    reads = [data[start : start + READ] for start in range(0, len(data), READ)]
    media_type = "text/event-stream" if stream else "application/json"
    script = Script(reads, status=status, headers=[("content-type", media_type)])
    base_url = "http://up.test/v1"
    settings = UpstreamSettings(name="up", protocol=upstream, base_url=base_url, model_list=model_list)
    return create_app(
        Settings(
            server=ServerSettings(**{"response_store": "memory", **server}),
            upstreams=(settings,),
            prices=prices,
        ),
        client=OneResponse(script),
    )


@asynccontextmanager
async def turns() -> AsyncIterator[list[float]]:
    """Note the seconds of CPU that each turn of the loop takes inside of the block."""
    seconds: list[float] = []
    gc.freeze()  # as a worker when it starts: its collections do not look at what a test run has in memory
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            last = time.thread_time()
            while True:
                await anyio.lowlevel.checkpoint()
                now = time.thread_time()
                seconds.append(now - last)
                last = now

        tasks.start_soon(watch)
        await anyio.lowlevel.checkpoint()
        yield seconds
        for _ in range(2):  # the last turn counts too
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    gc.unfreeze()


async def longest_turn(app: Application, path: str, body: bytes, coding: str = "", key: str = "") -> float:
    """Return the seconds of CPU that the longest turn of the loop has taken while a request was served."""
    async with app.lifespan(), turns() as seconds:
        if coding == WEBSOCKET:
            await turn_of(app, path, body.decode())
        else:
            client = FakeClient(body)
            headers = {"content-encoding": coding} if coding else {}
            headers |= {"authorization": f"Bearer {key}"} if key else {}
            method = "POST" if body else "GET"
            await app(http_scope(path, method, headers), client.receive, client.send)
            assert client.status is not None
    return max(seconds)


# In the place of a coding: the body is a message.
WEBSOCKET = "websocket"
TURN_ENDS = ('{"type":"response.completed"', '{"type":"response.failed"', '{"type":"error"')


async def turn_of(app: Application, path: str, text: str) -> None:
    """Send a message, and wait for the end of its response. Nothing of it is read, which would take time."""
    messages = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": text}]
    ended = anyio.Event()

    async def receive() -> Any:
        if not messages:
            await ended.wait()
            return {"type": "websocket.disconnect", "code": 1006}
        return messages.pop(0)

    async def send(message: Any) -> None:
        await anyio.lowlevel.checkpoint()
        if message.get("text", "").startswith(TURN_ENDS):
            ended.set()

    await app({**http_scope(path), "type": "websocket", "scheme": "ws"}, receive, send)
    assert ended.is_set()


async def check(
    make_app: Callable[[], Application],
    path: str,
    body: bytes,
    coding: str = "",
    limit_s: float = LIMIT_S,
    key: str = "",
) -> None:
    for _ in range(TRIES):
        if limit_s == LIMIT_S:
            tool_grammar._compiled.clear()  # or else only the first try compiles
        seconds = await longest_turn(make_app(), path, body, coding, key)
        if seconds <= limit_s:
            return
    raise AssertionError(f"the loop was held for {seconds:.3f} s of CPU")


@pytest.mark.parametrize(("client", "name"), REQUESTS)
async def test_no_request_holds_the_loop(client: str, name: str) -> None:
    body = b'{"model":"up/m","max_tokens":9,' + REQUESTS[client, name].encode() + b"}"
    # Of another protocol, because a relay does not read its request.
    upstream = "anthropic_messages" if client == "chat" else "openai_chat"
    await check(lambda: app_of(json.dumps(WHOLE).encode(), upstream=upstream), PATHS[client], body)


MESSAGES_OF_SOCKETS = {
    name: members for (client, name), members in REQUESTS.items() if client == "responses"
} | {"a large one": '"input":"Hi","instructions":"' + "i" * 48 * SIZE + '"'}


@pytest.mark.parametrize("name", MESSAGES_OF_SOCKETS)
async def test_no_message_holds_the_loop(name: str) -> None:
    body = f'{{"type":"response.create","model":"up/m",{MESSAGES_OF_SOCKETS[name]}}}'.encode()
    data = event('{"content":"Hello"}') + b"data: [DONE]\n\n"
    await check(lambda: app_of(data, stream=True), PATHS["responses"], body, WEBSOCKET)


def small_request(*, stream: bool) -> bytes:
    messages = [{"role": "user", "content": "Hi"}]
    each = {"messages": messages, "input": "Hi", "contents": [{"parts": [{"text": "Hi"}]}]}
    return json.dumps({"model": "up/m", "max_tokens": 9, "stream": stream, **each}).encode()


@pytest.mark.parametrize("path", ["messages", "responses", "gemini streams"])
@pytest.mark.parametrize("name", EVENTS)
async def test_no_event_holds_the_loop(path: str, name: str) -> None:
    data = event('{"content":"Hello"}') + EVENTS[name] + b"data: [DONE]\n\n"
    await check(lambda: app_of(data, stream=True), PATHS[path], small_request(stream=True))


@pytest.mark.parametrize("name", EVENTS)
async def test_no_event_of_a_websocket_holds_the_loop(name: str) -> None:
    data = event('{"content":"Hello"}') + EVENTS[name] + b"data: [DONE]\n\n"
    body = b'{"type":"response.create","model":"up/m","input":"Hi"}'
    await check(lambda: app_of(data, stream=True), PATHS["responses"], body, WEBSOCKET)


@pytest.mark.parametrize("path", ["messages", "responses", "gemini"])
@pytest.mark.parametrize("name", WHOLES)
async def test_no_whole_response_holds_the_loop(path: str, name: str) -> None:
    status = 400 if name == "an error" else 200
    await check(
        lambda: app_of(WHOLES[name].encode(), status=status), PATHS[path], small_request(stream=False)
    )


def message(text: str, model: str = "up/m", *, more: str = "") -> bytes:
    return f'{{"model":"{model}","max_tokens":9,"messages":[{{"role":"user","content":"{text}"}}]{more}}}'.encode()


NO_USAGE = json.dumps({name: value for name, value in WHOLE.items() if name != "usage"})
PRICED = {"prices": (Price(model="*", input=1.0, output=1.0),)}
REDACTED = {"record_texts": False}
MODELS = ",".join([f'{{"id":"m{number}","created":1,"owned_by":"x"}}' for number in range(60_000)])
FUNCTION = '"function":{"name":"f","parameters":{}}'
TOOLS = f'"messages":[{HI}],"tools":[' + ",".join([f'{{"type":"function",{FUNCTION}}}'] * 40_000) + "]"
# As many values as are accepted.
MESSAGES = ",".join([HI] * 95_000)
TEXTS = ",".join(['{"type":"output_text","text":"x","annotations":[]}'] * 55_000)
AMBIGUOUS = json.dumps(
    {"type": "custom", "name": "f", "format": {"type": "grammar", "syntax": "lark", "definition": 'start: start start | "a"'}}
)  # fmt: skip
CHECKED_CALLS = [
    {
        "id": f"c{number}",
        "type": "function",
        "function": {"name": "f", "arguments": f'{{"input":"{"a" * 2000}"}}'},
    }
    for number in range(40)
]
# Other work than that of requests and responses: the upstream's response, the settings, path and body of the request.
OTHERS: dict[str, tuple[str, dict[str, Any], str, bytes]] = {
    "a list of models": (f'{{"data":[{MODELS}]}}', {"model_list": True}, "/v1/models", b""),
    "the estimate of a relay": (NO_USAGE, PRICED, PATHS["chat"], f'{{"model":"up/m",{TOOLS}}}'.encode()),
    "the estimate of a relayed prompt": ("", {"stream": True, **PRICED}, PATHS["chat"], f'{{"model":"up/m","stream":true,"messages":[{MESSAGES}]}}'.encode()),
    "a compressed request": (
        json.dumps(WHOLE),
        {},
        PATHS["messages"],
        gzip.compress(b'{"model":"up/m","max_tokens":9,' + REQUESTS["messages", "messages"].encode() + b"}"),
    ),
    "a stored response": (
        '{"id":"resp_1","object":"response","status":"completed","model":"m","output":'
        f'[{{"type":"message","id":"msg_1","role":"assistant","content":[{TEXTS}]}}]}}',
        {"upstream": "openai_responses"},
        PATHS["responses"],
        small_request(stream=False),
    ),
    "a recording": (json.dumps(WHOLE), REDACTED, PATHS["chat"], message("word " * (SIZE // 5))),
    "a recording of a string without an end": ('{"' + '\\"' * (SIZE // 2), REDACTED, PATHS["chat"], small_request(stream=False)),
    "the simulator": ("", {}, PATHS["chat"], f'{{"model":"sim/tools",{TOOLS}}}'.encode()),
    "calls of the simulator": ("", {}, PATHS["messages"], message("call f " * SIZE, "sim/tools")),
    "checks of a grammar": (
        json.dumps({"choices": [{"message": {"tool_calls": CHECKED_CALLS}, "finish_reason": "tool_calls"}]}),
        {},
        PATHS["responses"],
        f'{{"model":"up/m","input":"Hi","tools":[{AMBIGUOUS}]}}'.encode(),
    ),
    "a model's name": ("", {"stream": True}, PATHS["responses"], b'{"model":"up/' + b"m" * 60 * SIZE + b'","stream":true,"input":"Hi"}'),
    "a member's name": (json.dumps(WHOLE), {}, PATHS["messages"], message("Hi", more=f',"{"é" * 16 * SIZE}":1')),
    "what a response repeats": ("", {"stream": True}, PATHS["responses"], b'{"model":"up/m","stream":true,"input":"Hi","instructions":"' + b"i" * 32 * SIZE + b'"}'),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.usefixtures("logger")
async def test_nothing_beside_holds_the_loop(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, settings, path, body = OTHERS[name]
    if settings is REDACTED:
        settings = {**settings, "record": str(tmp_path)}
    if settings.get("stream"):
        data = (event('{"content":"Hello"}') + b"data: [DONE]\n\n").decode()
    monkeypatch.setattr(
        canaries, "look_at_message", lambda message: None
    )  # it takes as long as what is measured
    coding = "gzip" if body.startswith(b"\x1f\x8b") else ""
    limit_s = PARSER_S if name == "checks of a grammar" else LIMIT_S
    await check(lambda: app_of(data.encode(), **settings), path, body, coding, limit_s)


ADMIN_KEY = "an admin key of a length that is long enough"
MANY_KEYS = Settings(
    server=ServerSettings(admin_key=Secret(ADMIN_KEY), secret=Secret("s" * 32)),
    client_keys=tuple(
        [ClientKey(name=f"k{number}", hash=f"{number:064}", budget=5.0) for number in range(5000)]
    ),
    prices=PRICED["prices"],
)


async def test_a_list_of_client_keys_does_not_hold_the_loop() -> None:
    await check(lambda: create_app(MANY_KEYS), "/admin/keys", b"", key=ADMIN_KEY)


@pytest.mark.usefixtures("logger")
async def test_a_reload_of_client_keys_does_not_hold_the_loop() -> None:
    app = create_app(MANY_KEYS)
    with socket.socket() as listener:
        worker = _Worker(MANY_KEYS, app, listener, lambda: None, SignalMeanings(()), lambda _: None)
        async with app.lifespan(), turns() as seconds:
            for _ in range(TRIES):
                await worker._use(replace(MANY_KEYS))
                await anyio.lowlevel.checkpoint()
    assert sorted(seconds)[-TRIES] <= LIMIT_S


# So many of the shapes on each loop; `make fuzz` draws from all of them.
SHAPES = 8


def cases() -> list[shapes.Case]:
    return [
        case
        for case in shapes.cases()
        if case.other in UPSTREAMS and (case.kind != "request" or case.protocol in UPSTREAMS)
    ]


async def check_shape(case: shapes.Case) -> None:
    data = shapes.reads(case, shapes.LARGE)
    if case.kind == "request":
        body = json.loads(data[0])
        if isinstance(body.get("model"), str):
            body["model"] = "up/m"
        whole = json.dumps(WHOLE).encode()
        await check(
            lambda: app_of(whole, upstream=case.other),
            path_of(case.protocol, "up/m", stream=False),
            json.dumps(body).encode(),
        )
        return
    streams = case.kind == "stream"
    status = 400 if case.kind == "error" else 200
    await check(
        lambda: app_of(b"".join(data), status=status, stream=streams, upstream=case.protocol),
        path_of(case.other, "up/m", stream=streams),
        small_request(stream=streams),
    )


@pytest.mark.fuzz
@pytest.mark.promise("S7")
async def test_no_shape_of_a_protocol_holds_the_loop() -> None:
    deadline = time.monotonic() + SECONDS
    every = cases()
    drawn = random.sample(every, len(every)) if SECONDS else random.Random(SHAPES).sample(every, SHAPES)
    problems = []
    for case in drawn:
        if SECONDS and time.monotonic() > deadline:
            break
        try:
            await check_shape(case)
        except AssertionError as error:
            problems.append(f"{case}: {error}")
    assert not problems, "\n".join(problems)
