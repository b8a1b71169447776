"""Tables of readers and writers: what goes in, one line each, and indented below each line what comes out of it.

`response_in.txt` of a protocol's folder has frames of its streams and whole bodies, with the events that are read from
them; `request_in.txt` has bodies of its clients, with what differs from the request of the first row; `request_out.txt`
has requests, with the body for the upstream; `rewritten.txt` has bodies that stay in their protocol, with the body for
the upstream; `restored.txt` has bodies that are relayed, in which the text `Signature(...)` stands for a wrapped one,
with the body for the upstream; `response_out.txt` has events, with the frames of the client's stream and the whole
body; `relayed.txt` has frames, with what the observer of a relayed stream then knows; `errors.txt` has errors of an
upstream and for a client. In the folder of the transforms, `passes.txt` has requests, with what a pass changes, and
`stages.txt` events, with what a stage makes of them; `*_schema.txt` has values, with the keyword of a `schema` that
they break, and schemas, with what becomes of them. In the folders of lint and of the oracle, each file has changes of
its protocol's good stream or whole response, with what they find: lint the rule, the event and the member. In the
folder of the engine toy protocols meet (core/engine.py). A row looks like this:

    # its title
    ? prompt_tokens=3                       how the context (the signer, the capabilities) differs from the usual one
    {"type":"message_start",...}            the data of a frame, or the body of a request
    event: error oops                       the data of a frame whose event line is not its type
    whole {"id":...}                        a whole response
    $NAME                                   what the head of the file defines: `NAME = {"type":...}`
      TextDelta(0, 'Hello')                 what came out, without fields that have their default
      =                                     the same as went in
      ! dropped /thinking                   an entry of the ledger: code, place
      error 502: JSON is malformed          the exception; nothing follows it

`make golden` writes what comes out again, and prints what changed. Below the last line of a stream stands what its end
brings. Each stream is read with and without its event lines, its events have to be in a legal order, and nothing may
follow the end. The oracle judges stream and body of each response that is written; their contents are the same.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import oracle
from core import engine, passes
from core.same_protocol import read_same_protocol
from core.words import VOCABULARY, losses, of_error, shown
from oracle import changes, samples

from dragoman import PROTOCOLS, UPSTREAMS, RequestTranslator, lint, peek
from dragoman._ir import event_order, events, request
from dragoman._ir.assembly import Fold
from dragoman._ir.losses import Ledger
from dragoman._ir.undo import Undo
from dragoman._ir.wrapped_signatures import Signer
from dragoman._transforms.pass_context import Pass
from dragoman._transforms.pipeline import Stage
from dragoman._transforms.tool_schemas import plain_schema
from dragoman._wire import json_schema
from dragoman._wire.exceptions import RemoteProtocolError, RequestRefused
from dragoman._wire.framing import reframe
from dragoman._wire.json import decode, encode
from dragoman._wire.sse import Frame, with_lf
from dragoman.codec import NDJSON, RelayObserver, ResponseContext
from dragoman.protocols.anthropic_messages.tools import fit_schema

TESTS = Path(__file__).resolve().parents[2]
FILES = sorted([*TESTS.glob("sansio/*/*.txt"), *TESTS.glob("conformance/*/*.txt")])
CONTEXT = ResponseContext(
    request.Request("other", "asked", (), params={"max_output_tokens": 64}), "x1", 1, "alias"
)


def frame_of(line: str, named: bool) -> Frame:
    name, _, data = (
        line.removeprefix("event: ").partition(" ") if line.startswith("event: ") else ("", "", line)
    )
    if not name and named:
        found = re.match(r'\{"type":"([^"]+)"', data)
        name = found[1] if found else ""
    return Frame(name.encode(), data.encode())


def read_response(
    protocol: str, lines: list[str], options: dict[str, Any], *, named: bool = True
) -> list[list[str]]:
    """What each line brings, and the end."""
    ledger, checker = Ledger(), event_order.EventOrderChecker()
    context = msgspec.structs.replace(CONTEXT, **options)
    spec = UPSTREAMS[protocol]
    reader = spec.stream_reader(context, ledger)
    out: list[list[str]] = []
    entries = 0
    ended = False
    whole = any(line.startswith("whole ") for line in lines)
    for line in [*lines, None]:
        out.append([])
        try:
            if line is None:
                found = () if whole else reader.eof()
            elif line.startswith("whole "):
                found = spec.read_whole(decode(line.removeprefix("whole ").encode()), context, ledger)
            else:
                found = reader.read(frame_of(line, named))
        except RemoteProtocolError as error:
            out[-1].append(of_error(error))
            break
        for event in found:
            assert not ended, line
            checker.check(event)
            ended = isinstance(event, events.Ended | events.Failed)
            out[-1].append(shown(event))
        out[-1] += losses(ledger, entries)
        entries = len(ledger)
    if ended and not whole:
        assert not any(reader.read(frame_of(line, named)) for line in lines), "nothing comes after the end"
    return out


class Written(NamedTuple):
    """A response for a client. lines: of each event, in a file. stream, body: as bytes; body: of one that has ended."""

    lines: list[list[str]]
    stream: bytes
    body: bytes


def write_response(protocol: str, lines: list[str], options: dict[str, Any]) -> Written:
    """The frames of each event, and the whole body of a response that has ended."""
    spec = PROTOCOLS[protocol]
    usual: dict[str, Any] = {
        "request": request.Request(protocol, "alias", (), include_usage=protocol != "openai_chat"),
        "signer": Signer(b"key"),
        "prompt_tokens": 11,
    }
    endpoints = {endpoint.path: endpoint for endpoint in spec.endpoints}
    endpoint = endpoints[options.get("path", spec.endpoints[0].path)]
    usual |= {"endpoint": endpoint, **options}
    usual.pop("path", None)
    context = msgspec.structs.replace(CONTEXT, **usual)
    end = "\n" if endpoint.framing is NDJSON else "\n\n"
    fold, checker = Fold(), event_order.EventOrderChecker()
    ledger, of_whole = Ledger(), Ledger()
    writer = spec.stream_writer(context, ledger)
    framed = endpoint.framing.writer and endpoint.framing.writer()
    response: list[Any] = [eval(line, VOCABULARY) for line in lines]
    out, sent, body = [], b"", b""
    for event in response:
        checker.check(event)
        fold.send(event)
        entries, written = len(ledger), writer.send(event)
        written = written if framed is None else reframe(framed, written)
        sent += written
        frames = with_lf(written).decode().split(end)[:-1]
        out.append([text_of(frame) for frame in frames] + losses(ledger, entries))
    ended = checker.state is event_order.ResponseState.ENDED
    judged = protocol in oracle.PROTOCOL_NAMES
    problems = (
        oracle.check_stream(protocol, sent, include_usage=context.request.include_usage)
        if ended and judged
        else []
    )
    if ended or (spec.failed_bodies and len(response) > 1 and isinstance(event, events.Failed)):
        body = encode(spec.write_whole(fold.response(), context, of_whole))
        if judged:
            problems += oracle.check_whole(protocol, body)
        out[-1].append("whole: as in the last frame" if body in sent else f"whole {body.decode()}")
        if sorted(losses(ledger)) != sorted(losses(of_whole)):
            out[-1] += [f"{loss} (whole)" for loss in losses(of_whole)]
    out[-1] += ["the oracle objects"] * bool(problems)
    return Written(out, sent, body)


def responses_of(protocol: str) -> Iterator[tuple[Row, Written]]:
    """The rows of this protocol in response_out.txt, and what is written for them."""
    for row in rows_of(TESTS / "sansio" / protocol / "response_out.txt"):
        if row.heads:
            yield row, write_response(protocol, row.inputs, row.options)


def text_of(frame: str) -> str:
    """A frame in one line: only its data, if its event line is the type of that."""
    found = re.fullmatch(r'event: (.+)\ndata: (\{"type":"\1".*)', frame)
    return found[2] if found else frame.replace("\n", "⏎")


def write_request(protocol: str, line: str, options: dict[str, Any]) -> list[str]:
    """The body for an upstream with these capabilities, "=" if it is the one that was read."""
    ledger, spec = Ledger(), UPSTREAMS[protocol]
    rewritten = line.startswith("{")
    asked = read_same_protocol(spec, decode(line.encode())) if rewritten else eval(line, VOCABULARY)
    try:
        body = encode(passes.fit_and_write(spec, asked, spec.capabilities(**options), ledger)).decode()
    except RequestRefused as error:
        return [of_error(error)]
    return ["=" if rewritten and body == line else body, *losses(ledger)]


def restore(protocol: str, line: str, options: dict[str, Any]) -> list[str]:
    """The body for an upstream of the client's protocol."""
    signer = Signer(b"key")

    def wrapped(found: re.Match[str]) -> str:
        signature = eval(found[1], VOCABULARY)
        # Gemini's fields hold bytes.
        return f'"{signer.wrap_list([signature]) if protocol == "gemini" else signer.wrap(signature)}"'

    body = re.sub(r'"(Signature\(.*?\))"', wrapped, line).encode()
    made = {name: options.pop(name) for name in ("capabilities",) if name in options}
    translator = RequestTranslator(client=protocol, upstream=protocol, signer=signer, **made)
    head = peek(body, "m" if protocol == "gemini" else "")  # in whose requests the path has it
    sent = translator.translate(body, model="m", request_head=head, **options)
    assert sent.members == decode(sent.body).keys()
    return ["=" if sent.body == body else sent.body.decode(), *losses(sent.losses)]


def read_request(protocol: str, line: str, options: dict[str, Any]) -> request.Request | RemoteProtocolError:
    try:
        return PROTOCOLS[protocol].read_request(decode(line.encode()), Signer(options.get("signer")))
    except RemoteProtocolError as error:
        return error


def parts_of(found: request.Request | RemoteProtocolError, first: request.Request) -> list[str]:
    """The fields that differ from those of the first request, a line for each message and tool."""
    if isinstance(found, RemoteProtocolError):
        return [of_error(found)]
    out = []
    for field in msgspec.structs.fields(found):
        value = getattr(found, field.name)
        if field.name not in ("native", "received") and (
            found is first or value != getattr(first, field.name)
        ):
            values = value if value and isinstance(value, tuple) else [value]
            out += [f"{field.name}: {shown(each)}" for each in values]
    return out


def read_error(protocol: str, line: str) -> list[str]:
    """An error of an upstream, a status and a body; or a WireError, with status and body for the client."""
    spec = UPSTREAMS.get(protocol) or PROTOCOLS[protocol]
    if line.startswith("WireError("):
        status, body = spec.write_error(eval(line, VOCABULARY), "req_1")
        return [f"{status} {body.decode()}"]
    code, _, text = line.partition(" ")
    sent = text.encode("utf-8", "surrogateescape")
    official = UPSTREAMS[protocol].is_native_error(sent)
    return [shown(UPSTREAMS[protocol].read_error(int(code), sent)), *["official"] * official]


def relay(protocol: str, lines: list[str], options: dict[str, Any], *, named: bool = True) -> list[list[str]]:
    """What the observer of a relayed stream knows after each frame that it did not know before."""
    spec = UPSTREAMS[protocol]
    observer = spec.observer(msgspec.structs.replace(CONTEXT, **options))

    def state() -> dict[str, str]:
        return {name: shown(getattr(observer, name)) for name in RelayObserver.__annotations__}

    known = state()
    out = []
    for line in lines:
        frame = frame_of(line, named)
        observer.observe(frame)
        now = state()
        out.append([f"{name}: {value}" for name, value in now.items() if known[name] != value])
        known = now
        sent = b"event: %b\ndata: %b" % (frame.event, frame.data)
        if named and observer.stream_finished and observer.error is None:
            assert any(mark in sent for mark in spec.end_markers), line
    return out


def run_pass(line: str, run: Pass, **options: Any) -> list[str]:
    """The fields that a pass has changed, "=" for the request itself; what the response has to undo; the losses."""
    before = eval(line, VOCABULARY)
    context = passes.pass_context(before, **options)
    try:
        after = run(before, context)
        out = ["="] if after is before else parts_of(after, before)
    except RequestRefused as error:
        out = [of_error(error)]
    undone = [f"undo: {shown(context.undo)}"] if context.undo != Undo() else []
    more = [f"requests: {context.fan_out}"] if context.fan_out > 1 else []
    return [*out, *undone, *more, *details(context.ledger)]


def run_stage(lines: list[str], stage: Callable[[Ledger], Stage]) -> list[list[str]]:
    """The events that take the place of each event, "=" for itself, and the losses."""
    ledger = Ledger()
    made = stage(ledger)
    out = []
    for event in (eval(line, VOCABULARY) for line in lines):
        entries, found = len(ledger), list(made.send(event))
        out.append((["="] if found == [event] else [*map(shown, found)]) + details(ledger)[entries:])
    return out


def details(ledger: Ledger) -> list[str]:
    return [f"! {loss.code.value} {loss.path}: {loss.detail}" for loss in ledger]


def changed(protocol: str, change: str, whole: bool) -> list[Any]:
    """The payloads of a good stream, or a good whole response, with this change."""
    payloads = [copy.deepcopy(samples.WHOLE[protocol])] if whole else changes.GOOD[protocol]()
    eval(change, {**vars(changes)})(payloads)
    return payloads


def findings(protocol: str, change: str, whole: bool = False, **asked: bool) -> list[str]:
    """What `lint` finds there."""
    payloads = changed(protocol, change, whole)
    if whole:
        report = lint.check_whole(protocol, encode(payloads[0]))
    else:
        stream = samples.render(protocol, payloads)
        report = lint.check_stream(protocol, stream, **{"usage_requested": True, **asked})
    return [
        f"{each.rule.id} {'' if each.frame is None else each.frame}{each.pointer}: {each.detail}"
        for each in report.findings
    ]


def objections(protocol: str, change: str, whole: bool = False) -> list[str]:
    """What the oracle of the tests objects to there, without what `lint` finds."""
    payloads = changed(protocol, change, whole)
    if whole:
        found = oracle.check_whole(protocol, encode(payloads[0]))
    else:
        stream = samples.render(protocol, payloads)
        found = oracle.check_stream(protocol, stream, include_usage=True)
    return [each for each in found if not each.startswith("byte ")]


def of_schema(kind: str, line: str, **options: Any) -> list[str]:
    """What is said of a value by a `schema`, or what becomes of a schema, with the places that are altered."""
    value, altered = decode(line.encode()), list[str]()
    if kind == "json_schema":
        try:
            return [json_schema.find_broken_keyword(options["schema"], value) or "valid"]
        except json_schema.SchemaUndecided as error:
            return [f"undecided: {error}"]
    if kind == "strict_schema":
        return ["strict" if json_schema.is_strict(value) else "not strict"]

    def note(place: str, detail: str) -> None:
        altered.append(f"! {place}: {detail}")

    if kind == "fit_schema":
        changed = fit_schema(value, note)
    else:
        change = plain_schema if kind == "plain_schema" else json_schema.inline_references
        changed = change(value, "/x", note)
    return ["=" if changed == value else encode(changed).decode(), *altered]


class Row(NamedTuple):
    """heads: title and options, none if the lines are definitions. inputs: the lines in full."""

    heads: list[str]
    lines: list[str]
    inputs: list[str]
    options: dict[str, Any]


def rows_of(path: Path, named: dict[str, str] | None = None) -> Iterator[Row]:
    """The rows of a file; what it defines is put into `named`."""
    named = {} if named is None else named

    def full(line: str) -> str:
        return re.sub(r"\$([A-Z]+)", lambda found: named[found[1]], line)

    for block in path.read_text("utf-8").strip("\n").split("\n\n"):
        heads = [line for line in block.split("\n") if line.startswith(("#", "?"))]
        lines = [line for line in block.split("\n") if not line.startswith(("#", "?", "  "))]
        differs = "".join(line[2:] for line in heads if line.startswith("? "))
        options = eval(f"dict({full(differs)})", VOCABULARY)
        for name, _, text in (line.partition(" = ") for line in lines if not heads):
            named[name] = full(text)
        yield Row(heads, lines, [full(line) for line in lines], options)


def written(path: Path) -> str:
    """The file, with what comes out today."""
    return "\n".join(blocks(path))


def blocks(path: Path) -> Iterator[str]:
    protocol, kind = path.parent.name, path.stem
    named: dict[str, str] = {}
    first: Any = None
    for heads, lines, inputs, options in rows_of(path, named):
        out: list[list[str]] = []
        if kind.startswith("response_out") and heads:
            found = write_response(protocol, inputs, options)
            out = [[short(each, named) for each in of_event] for of_event in found.lines]
        elif kind.startswith("response_in") and heads:
            out = read_response(protocol, inputs, options)
            assert read_response(protocol, inputs, options, named=False) == out, inputs
        elif kind.startswith("relayed") and heads:
            out = relay(protocol, inputs, options)
            assert relay(protocol, inputs, options, named=False) == out, inputs
        elif protocol == "engine" and heads:
            found = engine.outputs(kind, inputs, options)
            out = [[short(each, named) for each in of_line] for of_line in found]
        elif protocol == "lint" and heads:
            out = [findings(kind, line, **options) for line in inputs]
        elif protocol == "oracle" and heads:
            out = [objections(kind, line, **options) for line in inputs]
        elif kind == "passes" and heads:
            out = [run_pass(line, **options) for line in inputs]
        elif kind == "stages" and heads:
            out = run_stage(inputs, **options)
        elif kind.endswith("_schema") and heads:
            out = [of_schema(kind, line, **options) for line in inputs]
        elif kind.startswith("errors") and heads:
            out = [read_error(protocol, line) for line in inputs]
        elif kind in ("request_out", "rewritten") and heads:
            out = [[short(each, named) for each in write_request(protocol, line, options)] for line in inputs]
        elif kind == "restored" and heads:
            out = [[short(each, named) for each in restore(protocol, line, dict(options))] for line in inputs]
        elif heads:
            requests = [read_request(protocol, body, options) for body in inputs]
            first = first or requests[0]
            out = [parts_of(each, first) for each in requests]
        both: Iterable[tuple[list[str], list[str]]] = zip_longest(
            ([line] for line in lines), out, fillvalue=[]
        )
        found = [each for line, of_line in both for each in (*line, *(f"  {each}" for each in of_line))]
        yield "".join(f"{line}\n" for line in (*heads, *found))


def short(line: str, named: dict[str, str]) -> str:
    """A line with the names of what is defined, the longest first."""
    for name, text in sorted(named.items(), key=lambda each: -len(each[1])):
        line = line.replace(text, f"${name}")
    return line
