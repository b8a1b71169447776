"""The simple API as its clients see it: shapes, order and meaning of its three kinds of responses.

There is no SDK, so the shapes are written down here: members in this order, none missing, none more. A stream is
lines of JSON or server-sent events; both number their chunks, and both say in their own way that they are over.
"""

from typing import Any

from oracle.frames import Frame, as_object, lenient_frames, strict_frames, strict_json
from oracle.meaning import Failure, Kind, Meaning, Stop, grow

DONE = "[DONE]"


def check_lines(stream: bytes) -> list[str]:
    """Problems of a stream of lines."""
    try:
        text = stream.decode("utf-8")
    except UnicodeDecodeError as error:
        return [f"framing: not UTF-8 at byte {error.start}"]
    if not text.endswith("\n"):
        return ["framing: the last line is not closed"]
    *lines, last = text.removesuffix("\n").split("\n")
    problems: list[str] = []
    for number, line in enumerate(lines):
        problems += _chunk(f"line {number}", line, number, done=False)
    value = as_object(last)
    if value is not None and "error" in value:
        where = "the last line"
        problems += _shape(where, value, {"error": dict, "done": bool})
        problems += error_object(f"{where}: error", value["error"])
        return problems if value.get("done") is True else [*problems, f"{where}: not done"]
    return problems + _chunk("the last line", last, len(lines), done=True)


def check_events(stream: bytes) -> list[str]:
    """Problems of a stream of server-sent events."""
    frames, problems = strict_frames(stream)
    if not frames or frames[-1] != Frame(None, DONE):
        return [*problems, "order: the last event is not [DONE]"]
    chunks = frames[:-1]
    if chunks and chunks[-1].event is not None:
        failed = chunks.pop()
        if failed.event != "error":
            problems.append(f"order: an event {failed.event!r}")
        problems += error_object("the error", as_object(failed.data))
    for number, frame in enumerate(chunks):
        if frame.event is not None:
            problems.append(f"frame {number}: order: an event {frame.event!r} before the end")
        problems += _chunk(f"frame {number}", frame.data, number, done=False)
    return problems


def _chunk(where: str, text: str, number: int, *, done: bool) -> list[str]:
    try:
        value = strict_json(text)
    except ValueError as error:
        return [f"{where}: json: {error}"]
    problems = _shape(where, value, {"message": dict, "done": bool, "index": int})
    if problems:
        return problems
    problems = _message(f"{where}: message", value["message"])
    if value["index"] != number:
        problems.append(f"{where}: index {value['index']}, expected {number}")
    if value["done"] is not done:
        problems.append(f"{where}: done is {value['done']}")
    if not done and not value["message"].get("content"):
        problems.append(f"{where}: says nothing")
    return problems


def check_whole(body: bytes) -> list[str]:
    """Problems of a whole response."""
    try:
        value = strict_json(body)
    except ValueError as error:
        return [f"json: {error}"]
    kinds = {"id": str, "model": str, "created": int, "message": dict, "done": bool}
    problems = _shape("body", value, kinds)
    if problems:
        return problems
    if not (value["id"] and value["model"] and value["done"] is True):
        problems.append("body: empty id or model, or not done")
    return problems + _message("message", value["message"])


def _message(where: str, value: Any) -> list[str]:
    problems = _shape(where, value, {"role": str, "content": str})
    if not problems and value["role"] != "assistant":
        problems.append(f"{where}: role is {value['role']!r}")
    return problems


def check_error_body(body: bytes) -> list[str]:
    """Problems of an HTTP error body."""
    value = as_object(body)
    return _shape("body", value, {"error": dict}) or error_object("error", (value or {})["error"])


def error_object(where: str, value: Any) -> list[str]:
    problems = _shape(where, value, {"message": str, "type": str, "code": str})
    return problems or [f"{where}.{name}: empty" for name, member in value.items() if not member]


def _shape(where: str, value: Any, kinds: dict[str, type]) -> list[str]:
    if not isinstance(value, dict):
        return [f"{where}: no object"]
    if list(value) != list(kinds):
        return [f"{where}: members {list(value)}, expected {list(kinds)}"]
    return [
        f"{where}.{name}: no {kind.__name__}" for name, kind in kinds.items() if type(value[name]) is not kind
    ]


# --- meaning ------------------------------------------------------------------------------------------------


def read_stream(stream: bytes) -> Meaning:
    """The bytes that a client receives, of either form of a stream."""
    meaning = Meaning()
    if stream.lstrip()[:1] == b"{":
        for line in stream.splitlines():
            _receive(meaning, as_object(line) or {})
        return meaning
    for frame in lenient_frames(stream):
        if frame.data == DONE:
            meaning.stop = Stop.END if meaning.failure is None else Stop.ERROR
            return meaning
        value = as_object(frame.data) or {}
        _receive(meaning, {"error": value} if frame.event == "error" else value)
    return meaning


def read_whole(body: dict[str, Any]) -> Meaning:
    meaning = Meaning()
    _receive(meaning, body)
    return meaning


def _receive(meaning: Meaning, value: dict[str, Any]) -> None:
    if "error" in value:
        meaning.failure = failure_of(value)
        meaning.stop = Stop.ERROR
        return
    grow(meaning.blocks, Kind.TEXT, (value.get("message") or {}).get("content") or "")
    if value.get("done") is True:
        meaning.stop = Stop.END


def failure_of(body: dict[str, Any]) -> Failure:
    error = body.get("error") or {}
    return Failure(str(error.get("code") or ""), str(error.get("message") or ""))
