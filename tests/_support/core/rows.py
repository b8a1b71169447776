"""Tables of readers: what goes in, one line each, and indented below each line what comes out of it.

`response_in*.txt` of a protocol's folder has frames of its streams and whole bodies, with the events that are read from
them; `request_in*.txt` has bodies of its clients, with what differs from the request of the first row.
A row looks like this:

    # its title
    ? prompt_tokens=3                       how the context (or the signer) differs from the usual one, where it does
    {"type":"message_start",...}            the data of a frame, or the body of a request
    event: error oops                       the data of a frame whose event line is not its type
    whole {"id":...}                        a whole response
    $NAME                                   what the head of the file defines: `NAME = {"type":...}`
      TextDelta(0, 'Hello')                 what came out, without fields that have their default
      ! dropped /thinking                   an entry of the ledger: code, place
      error 502: JSON is malformed          the exception; nothing follows it

`make golden` (or `python tests/_support/core/rows.py`) writes what comes out again, and prints what changed. Below the
last line of a stream stands what its end brings. Each stream is read with and without its event lines, its events have
to be in a legal order, and nothing may follow the end.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from enum import Enum
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

from dragoman import PROTOCOLS, UPSTREAMS
from dragoman._ir import event_order, events, request, tools
from dragoman._ir.losses import Ledger
from dragoman._ir.signatures import Signer
from dragoman._wire import errors
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import decode
from dragoman._wire.sse import Frame
from dragoman.codec import ResponseContext

SANSIO = Path(__file__).resolve().parents[2] / "sansio"
FILES = sorted(SANSIO.glob("*/*_in*.txt"))
CONTEXT = ResponseContext(request.Request("other", "asked", ()), "x1", 1, "alias")
VOCABULARY = {**vars(events), **vars(request), **vars(tools), **vars(errors)}


def usual(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def shown(value: Any) -> str:
    """The constructor call of a value."""
    if isinstance(value, msgspec.Struct):
        parts = []
        for field in msgspec.structs.fields(value):
            inner = getattr(value, field.name)
            if field.required:
                parts.append(shown(inner))
            elif field.name != "native" and inner != usual(field):
                parts.append(f"{field.name}={shown(inner)}")
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, Enum):
        return str(value)
    if isinstance(value, tuple):
        return f"({''.join(f'{shown(each)}, ' for each in value).removesuffix(' ' if len(value) == 1 else ', ')})"
    return repr(sorted(value)) if isinstance(value, frozenset) else repr(value)


def of_error(error: RemoteProtocolError) -> str:
    return (
        "error " + " ".join(filter(None, (str(error.status), error.path, error.code))) + f": {error.message}"
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
        out[-1] += [f"! {loss.code.value} {loss.path}" for loss in list(ledger)[entries:]]
        entries = len(ledger)
    if ended and not whole:
        assert not any(reader.read(frame_of(line, named)) for line in lines), "nothing comes after the end"
    return out


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
        if field.name != "native" and (found is first or value != getattr(first, field.name)):
            values = value if value and isinstance(value, tuple) else [value]
            out += [f"{field.name}: {shown(each)}" for each in values]
    return out


def written(path: Path) -> str:
    """The file, with what comes out today."""
    return "\n".join(blocks(path))


def blocks(path: Path) -> Iterator[str]:
    named: dict[str, str] = {}
    first: Any = None

    def full(line: str) -> str:
        return re.sub(r"\$([A-Z]+)", lambda found: named[found[1]], line)

    for block in path.read_text("utf-8").removesuffix("\n").split("\n\n"):
        heads = [line for line in block.split("\n") if line.startswith(("#", "?"))]
        lines = [line for line in block.split("\n") if not line.startswith(("#", "?", "  "))]
        if not heads:
            for line in lines:
                name, _, text = line.partition(" = ")
                named[name] = full(text)
            yield block + "\n"
            continue
        options = eval(f"dict({''.join(line[2:] for line in heads if line.startswith('? '))})", VOCABULARY)
        inputs = [full(line) for line in lines]
        if path.name.startswith("response"):
            out = read_response(path.parent.name, inputs, options)
            assert read_response(path.parent.name, inputs, options, named=False) == out, inputs
        else:
            requests = [read_request(path.parent.name, body, options) for body in inputs]
            first = first or requests[0]
            out = [parts_of(each, first) for each in requests]
        both = zip_longest(([line] for line in lines), out, fillvalue=[])
        found = [each for line, of_line in both for each in (*line, *(f"  {each}" for each in of_line))]
        yield "".join(f"{line}\n" for line in (*heads, *found))


def differences(path: Path) -> list[str]:
    there, today = path.read_text("utf-8").split("\n"), written(path).split("\n")
    name = path.relative_to(SANSIO).as_posix()
    return list(difflib.unified_diff(there, today, name, "today", n=9, lineterm=""))


def main() -> None:
    """Write the files again, and print what changed."""
    for path in FILES:
        print(*differences(path), sep="\n", end="")
        path.write_text(written(path), "utf-8")


if __name__ == "__main__":
    main()
