"""What the core costs: time per translated event and per translated request, beside bare JSON work.

The measure beside each figure is msgspec decoding and encoding the same bytes to plain objects, in the same run:
a machine's speed cancels out in the ratio. Run it with `make bench`, or with `--json` for one object.

Aims: a text delta under 2.5 times the bare decode and encode, and under 9 us without the fast path; a request of 64
messages under 150 us.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable
from unittest.mock import patch

import msgspec

from dragoman import UPSTREAMS, Relay, RequestTranslator, ResponseTranslator, StopReason, Usage
from dragoman._ir.fast_path import FastPath
from dragoman.codec import ResponseContext
from dragoman.document import Request
from dragoman.events import (
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Ended,
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
    from dragoman import Ledger

    writer = UPSTREAMS[protocol].stream_writer(context(protocol), Ledger())
    events = [Started("up_1", "m", 1_700_000_000)]
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
    frames = [frame + b"\n\n" for frame in body.split(b"\n\n") if frame]
    return [b"".join(frames[at : at + EVENTS_A_READ]) for at in range(0, len(frames), EVENTS_A_READ)]


def best(run: Callable[[], object], rounds: int) -> float:
    """Seconds of the fastest of some rounds: the one with the least of everybody else's work in it."""
    gc.collect()
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return min(times)


def bench_streams(rounds: int, *, general: bool = False) -> list[dict[str, object]]:
    """Time each pair. general: without the fast path, as for frames that never look alike."""
    rows: list[dict[str, object]] = []
    for kind in ("text", "reasoning", "arguments"):
        for upstream in UPSTREAMS:
            body = stream(upstream, kind)
            reads = reads_of(body)
            payloads = [frame.data for frame in SSEParser().receive_data(body) if frame.data != b"[DONE]"]

            def bare(payloads: list[bytes] = payloads) -> None:
                for payload in payloads:
                    _encode(_decode(payload))

            for client in UPSTREAMS:
                if general and client == upstream:
                    continue  # relayed: there is no fast path

                def translate(
                    upstream: str = upstream, client: str = client, reads: list[bytes] = reads
                ) -> None:
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

                ours, other = best(translate, rounds), best(bare, rounds)
                rows.append(
                    {
                        "what": f"{kind}, general" if general else kind,
                        "pair": f"{upstream} > {client}",
                        "us_per_event": round(ours / len(payloads) * 1e6, 2),
                        "bare_us": round(other / len(payloads) * 1e6, 2),
                        "ratio": round(ours / other, 2),
                    }
                )
    return rows


def conversation(protocol: str, messages: int, *, tools: bool = True) -> bytes:
    """A client's request: turns of text, or an agent's with tools, calls and results (a quarter of it each)."""
    schema = {
        "type": "object",
        "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["path"],
    }
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


def bench_requests(rounds: int) -> list[dict[str, object]]:
    rows = []
    for messages, tools in ((64, False), (64, True), (400, True)):
        for client in UPSTREAMS:  # others are too small to matter
            body = conversation(client, messages, tools=tools)

            def bare(body: bytes = body) -> None:
                _encode(_decode(body))

            for upstream in UPSTREAMS:
                translator = RequestTranslator(client=UPSTREAMS[client], upstream=UPSTREAMS[upstream])

                def translate(translator: RequestTranslator = translator, body: bytes = body) -> None:
                    translator.translate(body, model="other")

                ours, other = best(translate, rounds * 20), best(bare, rounds * 20)
                rows.append(
                    {
                        "what": f"{messages} messages, {'tools' if tools else 'text'}, {len(body) // 1024} KiB",
                        "pair": f"{client} > {upstream}",
                        "us": round(ours * 1e6, 1),
                        "bare_us": round(other * 1e6, 1),
                        "ratio": round(ours / other, 2),
                    }
                )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=15, help="rounds, of which the fastest counts")
    args = parser.parse_args()
    streams, requests = bench_streams(args.rounds), bench_requests(args.rounds)
    with patch.object(FastPath, "should_learn", lambda _: False):
        streams += bench_streams(args.rounds, general=True)
    if args.json:
        print(json.dumps({"streams": streams, "requests": requests}))
        return
    print(f"{'what':<20}{'upstream > client':<42}{'us/event':>10}{'bare':>8}{'ratio':>8}")
    for row in streams:
        print(
            f"{row['what']:<20}{row['pair']:<42}{row['us_per_event']:>10}{row['bare_us']:>8}{row['ratio']:>8}"
        )
    print(f"\n{'what':<34}{'client > upstream':<42}{'us':>9}{'bare':>8}{'ratio':>8}")
    for row in requests:
        print(f"{row['what']:<34}{row['pair']:<42}{row['us']:>9}{row['bare_us']:>8}{row['ratio']:>8}")


if __name__ == "__main__":
    main()
