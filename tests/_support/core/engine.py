"""Rows of the engine, between toy protocols.

`requests.txt` has bodies of a client, with the body for the upstream; `errors.txt` has a status and a body of an
upstream, with those for the client. `translations.txt`, `relays.txt` and `branches.txt` have responses of an upstream:
what each line brings the client, and what the machine then says of it.

    # its title
    ? stream=False, context={"prompt_tokens": 7}    the client does not stream; also other arguments of the machine
    TextDelta(0, 'a')                               an event in a frame; also a list of events, bytes, a body as a dict
    (1, [Started(...)])                             all events of a branch, and its number
    eof                                             also heartbeat, and WireError(...) with which the caller ends it
      =                                             the client gets the same bytes, or what stands here
      outcome=Outcome.COMPLETED                     what the machine says that is new, and that the client did not get
      ! dropped /thinking                           an entry of the ledger

The lines before the first that is no data are read in all ways of cutting them as well, with the same result.
"""

import re
from collections.abc import Mapping
from itertools import takewhile
from typing import Any, TypeAlias

import msgspec
from core.chop import all_ways, one_by_one
from core.toy_protocol import context_of, event_of, frame_of, stream_of, toy
from core.words import VOCABULARY, losses, of_error, shown

from dragoman import FanOut, Relay, RequestTranslator, ResponseTranslator, translate_error
from dragoman._ir.events import Event, Failed
from dragoman._ir.undo import Undo
from dragoman._wire.errors import WireError
from dragoman._wire.exceptions import RemoteProtocolError, RequestRefused
from dragoman._wire.json import decode, encode

# What a machine says, besides its losses.
SAID = ("outcome", "error", "usage", "stop_reason", "upstream_model", "upstream_id", "committed")
Machine: TypeAlias = ResponseTranslator | Relay | FanOut
EOF, HEARTBEAT = "eof", "heartbeat"


def machine_of(
    kind: str, *, stream: bool = True, context: Mapping[str, Any] | None = None, **options: Any
) -> Machine:
    made = msgspec.structs.replace(context_of(stream=stream), **(context or {}))
    if kind == "relays":
        return Relay(protocol=toy(), context=made, streams=stream, **options)
    usual = {"client": toy("client"), "upstream": toy("upstream"), "context": made}
    if kind == "branches":
        return FanOut(**{**usual, "upstream": toy("upstream", choices=False), "count": 2, **options})
    return ResponseTranslator(**usual | options)


def data_of(line: Any) -> Any:
    """The bytes that a line stands for, or else the line."""
    if isinstance(line, dict):
        return encode(line)
    if isinstance(line, list):
        return stream_of(line)
    return frame_of(line) if isinstance(line, Event) else line


def step(machine: Machine, each: Any) -> bytes:
    """Do what a line says, and return what the client gets."""
    if isinstance(each, bytes):
        assert not isinstance(machine, FanOut)
        machine.receive_data(each)
    elif isinstance(each, tuple):
        assert isinstance(machine, FanOut)
        number, events = each
        branch = machine.start(number, upstream_streams=True)
        for byte in one_by_one(stream_of(events)):
            branch.receive_data(byte)
        branch.receive_eof()
        machine.merge()
    elif isinstance(each, WireError):
        machine.fail(each)
    elif each == EOF:
        machine.receive_eof()
    else:
        assert each == HEARTBEAT, each
        return machine.heartbeat()
    return machine.data_to_send()


def said(machine: Machine) -> dict[str, Any]:
    out = {name: getattr(machine, name) for name in SAID}
    body = machine.whole_body()
    return out | {"body": body and encode(body), "cached_reasoning": machine.cached_reasoning()}


def sent_lines(sent: bytes, received: Any) -> list[str]:
    if sent and sent == received:
        return ["="]
    out = []
    for frame in re.findall(rb".+?\n\n|.+", sent, re.DOTALL):
        try:
            event = event_of(decode(frame.removeprefix(b"data: ")))
        except RemoteProtocolError:
            event = None
        out.append(shown(frame if event is None or frame_of(event) != frame else event))
    return out


def respond(kind: str, lines: list[str], options: Mapping[str, Any]) -> list[list[str]]:
    names = {**VOCABULARY, EOF: EOF, HEARTBEAT: HEARTBEAT}
    inputs = [data_of(eval(line, names)) for line in lines]
    machine = machine_of(kind, **options)
    out, everything = [], b""
    known, lost = said(machine), 0
    for each in inputs:
        sent = step(machine, each)
        now = said(machine)
        new = {name: value for name, value in now.items() if value != known[name]}
        if now["body"] == sent or (now["error"] and frame_of(Failed(now["error"])) in sent):
            new.pop("body", None), new.pop("error", None)
        state = [", ".join(f"{name}={shown(value)}" for name, value in new.items())] * bool(new)
        out.append([*sent_lines(sent, each), *state, *losses(machine.losses, lost)])
        everything, known, lost = everything + sent, now, len(machine.losses)
    first = list(takewhile(lambda each: isinstance(each, bytes), inputs))
    for chunks in all_ways(b"".join(first)) if first else ():
        other = machine_of(kind, **options)
        cut = b"".join([step(other, each) for each in [*chunks, *inputs[len(first) :]]])
        assert (cut, said(other), losses(other.losses)) == (everything, known, losses(machine.losses)), chunks
    return out


# What a request comes to besides its body, with what is usual.
USUAL: dict[str, Any] = {
    "undo": Undo(),
    "relayed": False,
    "rewritten": False,
    "fan_out": 1,
    "headers": (),
    "upstream_model": "m",
}
OF_TRANSLATOR = ("client", "upstream", "capabilities", "policy", "signer", "max_fan_out", "endpoint")


def translate(line: str, options: dict[str, Any]) -> list[str]:
    """The body for the upstream, "=" for the same, and what else is unusual."""
    made = {name: options.pop(name) for name in OF_TRANSLATOR if name in options}
    body = eval(line, VOCABULARY) if line.startswith("b'") else line.encode()
    translator = RequestTranslator(**{"client": toy("client"), "upstream": toy("upstream"), **made})
    try:
        out = translator.translate(body, **options)
    except (RemoteProtocolError, RequestRefused) as error:
        return [of_error(error)]
    assert (out.members, out.prompt_tokens) == (decode(out.body).keys(), len(body) // 4)
    unusual = [f"{name}: {shown(value)}" for name in USUAL if (value := getattr(out, name)) != USUAL[name]]
    return ["=" if out.body == body else out.body.decode(), *unusual, *losses(out.losses)]


def answer(line: str, options: dict[str, Any]) -> list[str]:
    """An error response for the client, "=" for the same, and what it is for logs and retries."""
    status, _, body = line.partition(" ")
    made = {"client": toy("client"), "upstream": toy("upstream"), **options}
    sent, for_client, error = translate_error(int(status), body.encode(), **made)
    answered = f"{sent} {for_client.decode()}"
    return ["=" if answered == line else answered, shown(error)]


def outputs(kind: str, lines: list[str], options: dict[str, Any]) -> list[list[str]]:
    if kind == "requests":
        return [translate(line, dict(options)) for line in lines]
    return [answer(line, options) for line in lines] if kind == "errors" else respond(kind, lines, options)
