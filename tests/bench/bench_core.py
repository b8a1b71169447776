"""What the core costs: time per translated event and per translated request, beside bare JSON work.

The measure beside each figure is msgspec decoding and encoding the same bytes to plain objects, in the same run:
a machine's speed cancels out in the ratio. `make bench` runs it.

Aims: a text delta under 2.5 times the bare decode and encode, and under 9 us without the fast path; a request of 64
messages under 150 us.
"""

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from unittest.mock import patch

import msgspec
from agent_requests import MODEL, agent_request
from bench_figures import PAIRS, PROTOCOLS, Figure

from dragoman import UPSTREAMS, Ledger, Relay, RequestTranslator, ResponseTranslator, StopReason, Usage
from dragoman._ir.fast_path import FastPath
from dragoman._wire.frame_cutter import split_frames
from dragoman._wire.splice import RequestHead, peek
from dragoman.codec import ResponseContext
from dragoman.document import Request
from dragoman.events import (
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Ended,
    Event,
    ReasoningDelta,
    Started,
    Stopped,
    TextDelta,
    ToolHead,
)
from dragoman.sse import SSEParser

DELTAS = 2000
EVENTS_A_READ = 20  # about what a fast upstream puts into one socket read
DELTA_TEXTS = (
    "the",
    " quick",
    " brown",
    " fox",
    " jumps",
    " over",
    " the lazy",
    " dog",
    ",",
    " “naïve”",
    "\n",
    " 42",
)

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def context(protocol: str) -> ResponseContext:
    request = Request(protocol=protocol, model="m", messages=(), stream=True)
    return ResponseContext(request=request, id="0123456789abcdef", now=1_700_000_000, model="m")


def stream(protocol: str, kind: str) -> bytes:
    """An upstream's stream with DELTAS deltas of one kind, as our own writer of that protocol prints it."""
    writer = UPSTREAMS[protocol].stream_writer(context(protocol), Ledger())
    events: list[Event] = [Started("up_1", "m", 1_700_000_000)]
    if kind == "text":
        events.append(BlockStarted(0, BlockKind.TEXT))
        events += [TextDelta(0, DELTA_TEXTS[n % len(DELTA_TEXTS)]) for n in range(DELTAS)]
    elif kind == "reasoning":
        events.append(BlockStarted(0, BlockKind.REASONING))
        events += [ReasoningDelta(0, DELTA_TEXTS[n % len(DELTA_TEXTS)]) for n in range(DELTAS)]
    else:
        events.append(BlockStarted(0, BlockKind.TOOL_CALL, tool=ToolHead("call_1", "write")))
        events.append(ArgumentsDelta(0, '{"text":"'))
        events += [ArgumentsDelta(0, f"word{n % 10} ") for n in range(DELTAS)]
        events.append(ArgumentsDelta(0, '"}'))
    events.append(BlockEnded(0))
    events.append(Usage(input=10, output=DELTAS))
    events.append(Stopped(StopReason.TOOL_USE if kind == "arguments" else StopReason.END))
    events.append(Ended())
    return b"".join(writer.send(event) for event in events)


def reads_of(body: bytes) -> list[bytes]:
    """Return the body in chunks of some events each, cut at event ends as most socket reads are."""
    frames = split_frames(body)
    return [b"".join(frames[at : at + EVENTS_A_READ]) for at in range(0, len(frames), EVENTS_A_READ)]


def compare(run: Callable[[], object], bare: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Return the CPU seconds of a run and its ratio to the bare work beside it, the medians of some rounds."""
    gc.collect()
    taken, ratios = [], []
    for _ in range(rounds):
        begun = time.process_time()
        run()
        between = time.process_time()
        bare()
        taken.append(between - begun)
        ratios.append(taken[-1] / (time.process_time() - between))
    return statistics.median(taken), statistics.median(ratios)


def bench_streams(pairs: list[str], rounds: int, *, general: bool = False) -> list[Figure]:
    """Time each pair. general: without the fast path, as for frames that never look alike."""
    figures = []
    for kind in ("text", "reasoning", "arguments"):
        for pair in pairs:
            client, upstream = (PROTOCOLS[name] for name in pair.split(">"))
            if general and client == upstream:
                continue  # relayed: there is no fast path
            body = stream(upstream, kind)
            reads = reads_of(body)
            payloads = [frame.data for frame in SSEParser().receive_data(body) if frame.data != b"[DONE]"]

            def bare(payloads: list[bytes] = payloads) -> None:
                for payload in payloads:
                    _encode(_decode(payload))

            def translate(upstream: str = upstream, client: str = client, reads: list[bytes] = reads) -> None:
                if upstream == client:
                    machine: Relay | ResponseTranslator = Relay(
                        protocol=UPSTREAMS[client], context=context(client)
                    )
                else:
                    machine = ResponseTranslator(
                        client=UPSTREAMS[client], upstream=UPSTREAMS[upstream], context=context(client)
                    )
                for data in reads:
                    machine.receive_data(data)
                    machine.data_to_send()
                machine.receive_eof()
                assert machine.error is None, machine.error
                machine.data_to_send()

            seconds, ratio = compare(translate, bare, rounds)
            name = f"{kind}, general" if general else kind
            figures.append(Figure(name, pair, seconds / len(payloads) * 1e6, "us", ratio))
    return figures


def conversation(protocol: str, messages: int, *, tools: bool = True) -> bytes:
    """A client's request: turns of text, or an agent's with tools, calls and results (a quarter of it each)."""
    properties = {"path": {"type": "string"}, "limit": {"type": "integer"}}
    schema = {"type": "object", "properties": properties, "required": ["path"]}
    chat: list[dict[str, object]] = []
    for n in range(messages):
        kind = n % 4 if tools else 3 * (n % 2)
        if kind == 0:
            chat.append({"role": "user", "content": f"Look at file {n} and tell me what it does. " * 4})
        elif kind == 1:
            function = {"name": "read", "arguments": f'{{"path":"src/{n}.py"}}'}
            call = {"id": f"call_{n}", "type": "function", "function": function}
            chat.append({"role": "assistant", "content": "Let me look.", "tool_calls": [call]})
        elif kind == 2:
            result = "def f(x):\n    return x\n" * 20
            chat.append({"role": "tool", "tool_call_id": f"call_{n - 1}", "content": result})
        else:
            text = "It defines a function that gives its argument back. " * 3
            chat.append({"role": "assistant", "content": text})
    body: dict[str, object] = {
        "model": "m",
        "stream": True,
        "messages": [{"role": "system", "content": "You are a coding agent. " * 40}, *chat],
        "tools": [
            {
                "type": "function",
                "function": {"name": name, "description": f"{name} a file", "parameters": schema},
            }
            for name in ("read", "write", "edit", "list", "search")
        ],
    }
    as_chat = json.dumps(body).encode()
    if protocol == "openai_chat":
        return as_chat
    translator = RequestTranslator(client=UPSTREAMS["openai_chat"], upstream=UPSTREAMS[protocol])
    return translator.translate(as_chat).body


def bench_requests(pairs: list[str], rounds: int) -> list[Figure]:
    kinds: dict[str, Callable[[str, str], bytes]] = {  # others are too small to matter
        "64, text": lambda client, _: conversation(client, 64, tools=False),
        "64, tools": lambda client, _: conversation(client, 64),
        "400, tools": lambda client, _: conversation(client, 400),
        "64, agent": lambda client, upstream: agent_request(client, upstream, 32),
    }
    figures = []
    for kind, body_for in kinds.items():
        for pair in pairs:
            client, upstream = (PROTOCOLS[name] for name in pair.split(">"))
            body = body_for(client, upstream)
            translator = RequestTranslator(client=UPSTREAMS[client], upstream=UPSTREAMS[upstream])

            head = peek(body, "m") if UPSTREAMS[client].model_in_path else None

            def bare(body: bytes = body) -> None:
                _encode(_decode(body))

            def translate(
                translator: RequestTranslator = translator,
                body: bytes = body,
                head: RequestHead | None = head,
            ) -> None:
                translator.translate(body, model=MODEL, request_head=head)

            seconds, ratio = compare(translate, bare, rounds * 20)
            figures.append(Figure(f"request of {kind}", pair, seconds * 1e6, "us", ratio))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print a JSON array")
    parser.add_argument("--rounds", type=int, default=15, help="of each figure, which is a median")
    parser.add_argument("--pair", action="append", choices=PAIRS, help="default: all")
    args = parser.parse_args()
    pairs = args.pair or PAIRS
    figures = bench_streams(pairs, args.rounds) + bench_requests(pairs, args.rounds)
    with patch.object(FastPath, "should_learn", lambda _: False):
        figures += bench_streams(pairs, args.rounds, general=True)
    if args.json:
        sys.stdout.buffer.write(msgspec.json.encode(figures))
        return
    for figure in figures:
        print(figure.line())


if __name__ == "__main__":
    main()
