"""Dimensions of the core: events of responses, and messages of requests, for each pair of protocols."""

import json
from functools import partial

from dragoman import UPSTREAMS, Ledger, Relay, RequestTranslator, ResponseTranslator, StopReason, Usage, peek
from dragoman.codec import ResponseContext
from dragoman.document import Request
from dragoman.events import BlockEnded, BlockKind, BlockStarted, Ended, Started, Stopped, TextDelta
from growth.cost import Dimension, Work


def _context(protocol: str) -> ResponseContext:
    request = Request(protocol=protocol, model="m", messages=(), stream=True)
    return ResponseContext(request=request, id="0123456789abcdef", now=1_700_000_000, model="m")


def stream(protocol: str, deltas: int) -> list[bytes]:
    """The frames of an upstream's response with so many deltas of text."""
    writer = UPSTREAMS[protocol].stream_writer(_context(protocol), Ledger())
    events = [
        Started("up_1", "m", 1_700_000_000),
        BlockStarted(0, BlockKind.TEXT),
        *[TextDelta(0, f" word{n % 10}") for n in range(deltas)],
        BlockEnded(0),
        Usage(input=10, output=deltas),
        Stopped(StopReason.END),
        Ended(),
    ]
    return [frame for event in events if (frame := writer.send(event))]


def _events(client: str, upstream: str, deltas: int) -> Work:
    frames = stream(upstream, deltas)

    def translate() -> None:
        machine: Relay | ResponseTranslator
        if client == upstream:
            machine = Relay(protocol=UPSTREAMS[client], context=_context(client))
        else:
            machine = ResponseTranslator(
                client=UPSTREAMS[client], upstream=UPSTREAMS[upstream], context=_context(client)
            )
        for frame in frames:
            machine.receive_data(frame)
            machine.data_to_send()
        machine.receive_eof()
        assert machine.error is None
        machine.data_to_send()

    return translate, deltas


def conversation(messages: int) -> bytes:
    """An agent's request in Chat Completions: user, call, result and response in turn."""
    chat: list[dict[str, object]] = []
    for n in range(messages // 4):
        function = {"name": "read", "arguments": f'{{"path":"src/{n}.py"}}'}
        called = {"id": f"call_{n}", "type": "function", "function": function}
        chat += [
            {"role": "user", "content": f"Look at file {n}."},
            {"role": "assistant", "content": "Let me look.", "tool_calls": [called]},
            {"role": "tool", "tool_call_id": f"call_{n}", "content": "def f(x):\n    return x\n"},
            {"role": "assistant", "content": "It returns its argument."},
        ]
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    tool = {"type": "function", "function": {"name": "read", "parameters": schema}}
    return json.dumps({"model": "m", "stream": True, "messages": chat, "tools": [tool]}).encode()


def _messages(client: str, upstream: str, messages: int) -> Work:
    body = conversation(messages)
    if client != "openai_chat":
        translator = RequestTranslator(client=UPSTREAMS["openai_chat"], upstream=UPSTREAMS[client])
        body = translator.translate(body).body
    translator = RequestTranslator(client=UPSTREAMS[client], upstream=UPSTREAMS[upstream])
    head = peek(body, "m") if UPSTREAMS[client].model_in_path else None
    # Another name, so that a relay is a rewrite.
    return partial(translator.translate, body, model="other", request_head=head), messages


DIMENSIONS = (
    *(
        Dimension(
            f"event, {upstream} > {client}", "the length of the response", (10, 100, 1000, 10_000), make
        )
        for upstream in UPSTREAMS
        for client in UPSTREAMS
        for make in (partial(_events, client, upstream),)
    ),
    *(
        Dimension(
            f"message, {client} > {upstream}", "the length of the history", (8, 32, 128, 512, 2048), make
        )
        for client in UPSTREAMS
        for upstream in UPSTREAMS
        for make in (partial(_messages, client, upstream),)
    ),
)
