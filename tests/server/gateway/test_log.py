"""Log lines: a record in, one line out, whatever its content."""

import io
import json
import logging
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman_server.log import (
    MAX_REPEATS,
    REPEAT_WINDOW_S,
    REQUESTS,
    JSONFormatter,
    RequestRecord,
    TextFormatter,
    capture_foreign_logs,
    configure_logging,
    log_decision,
    log_request,
)
from dragoman_server.settings.secret import Mask


def record(path: str = "/v1/chat/completions", **more: object) -> RequestRecord:
    return RequestRecord(id="abc", protocol="openai_chat", path=path, **more)  # type: ignore[arg-type]


def configured(form: str, level: str = "info", mask: Mask | None = None) -> io.StringIO:
    """Configure logging, and return where its lines go."""
    out = io.StringIO()
    configure_logging(level, form, out, mask)
    return out


def line_of(form: str, written: RequestRecord, level: str = "info") -> str:
    out = configured(form, level)
    log_request(written)
    return out.getvalue()


# Of a request that a model has responded to.
SERVED: dict[str, Any] = {
    "method": "POST",
    "path": "/v1/messages",
    "model": "claude-x",
    "upstream": "local",
    "upstream_model": "qwen3",
    "outcome": "completed",
    "status": 200,
    "duration_s": 0.312,
}
FAILURE = {"account": "up/a", "model": "up/m", "status": 429, "cause": "slow down", "seconds": 0.123456}
NO_RESPONSE = {"account": "up/b", "model": "up/m", "cause": "cannot connect", "seconds": 61.04}
LINES = Path(__file__).with_name("log.txt")


def record_of(members: str) -> RequestRecord:
    """Return the record of a row of log.txt."""
    return record(**{**SERVED, **eval(f"dict({members})", globals())})


@pytest.mark.usefixtures("logger")
def test_a_request_as_text() -> None:
    def output_of(lines: list[str]) -> list[str]:
        clock, line = line_of("text", record_of(lines[0])).rstrip("\n").split(" ", 1)
        assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}", clock)
        return line.split("\n")

    rows.check(LINES, output_of)


@pytest.mark.usefixtures("logger")
@pytest.mark.parametrize("form", ["json", "text"])
def test_a_line_is_the_same_if_another_handler_gets_it_too(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 1_000_000_000.25)
    monkeypatch.setattr("time.time_ns", lambda: 1_000_000_000_250_000_000)  # what logging asks from 3.13 on
    other = logging.NullHandler()
    for members in LINES.read_text().splitlines():
        if members and not members.startswith(("#", " ")):
            direct = line_of(form, record_of(members))
            monkeypatch.setattr(REQUESTS, "handlers", [other])
            assert line_of(form, record_of(members)) == direct != ""
            monkeypatch.setattr(REQUESTS, "handlers", [])


@pytest.mark.usefixtures("logger")
@pytest.mark.parametrize("where", ["filters of the logger", "filters of ours", "level of ours"])
def test_a_line_is_left_out_where_the_configuration_wants_that(where: str) -> None:
    out = configured("json")
    (handler,) = logging.getLogger("dragoman").handlers
    target = REQUESTS if where == "filters of the logger" else handler
    if where == "level of ours":
        handler.setLevel(logging.WARNING)
    else:
        target.addFilter(reject)
    try:
        log_request(record(outcome="completed"))
    finally:
        target.removeFilter(reject)
    assert out.getvalue() == ""


def reject(line: logging.LogRecord) -> bool:
    return False


@pytest.mark.usefixtures("logger")
def test_a_line_of_text_that_is_no_request() -> None:
    out = configured("text")
    logging.getLogger("dragoman.server").warning("a %s", "word", extra={"dragoman": {"id": "a b"}})
    assert out.getvalue().split(" ", 1)[1] == 'warning a word id="a b"\n'


@pytest.mark.usefixtures("logger")
def test_milliseconds_are_those_of_the_record() -> None:
    out = configured("text")
    (handler,) = logging.getLogger("dragoman").handlers
    for created in (1_000_000_000.0074, 1_000_000_000.9996):
        line = logging.LogRecord("x", logging.ERROR, "", 0, "y", (), None)
        line.created = created
        handler.handle(line)
    assert [line.split()[0].rpartition(".")[2] for line in out.getvalue().splitlines()] == ["007", "999"]


@pytest.mark.usefixtures("logger")
def test_failed_attempts_are_rows_in_json() -> None:
    written = record(attempts=2, outcome="failed")
    written.note_failure("up/a", "up/m", 429, "rate_limit", "slow down", 0.123456)
    written.note_failure("up/b", "up/m", None, "server", "x" * 600, 2.0)
    assert json.loads(line_of("json", written))["failures"] == [
        {
            "account": "up/a",
            "model": "up/m",
            "status": 429,
            "kind": "rate_limit",
            "cause": "slow down",
            "seconds": 0.1235,
        },
        {"account": "up/b", "model": "up/m", "kind": "server", "cause": "x" * 500 + "...", "seconds": 2.0},
    ]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a terminal with colours."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


RED, GREEN, YELLOW = "\x1b[31m{}\x1b[0m", "\x1b[32m{}\x1b[0m", "\x1b[33m{}\x1b[0m"


# A record, or a level of a line that is no request, and what of its line has a colour.
COLOURS: list[tuple[dict[str, Any] | str, list[str]]] = [
    ({"outcome": "completed", "status": 200}, [GREEN.format(200)]),
    ({"outcome": "refused", "status": 404}, [YELLOW.format(404)]),
    ({"outcome": "websocket_refused", "status": 426}, []),
    ({"outcome": "client_left"}, [YELLOW.format("-")]),
    ({"outcome": "failed", "status": 502}, [RED.format(502)]),
    ({"outcome": "failed", "status": 200}, [RED.format(200)]),  # the response broke off
    ("info", []),
    ("warning", [YELLOW.format("warning")]),
    ("error", [RED.format("error")]),
]


@pytest.mark.usefixtures("logger", "terminal")
def test_what_has_a_colour_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(what: dict[str, Any] | str) -> None:
        if isinstance(what, str):
            getattr(logging.getLogger("dragoman.server"), what)("x")
        else:
            log_request(record("/x", **what))

    for what, expected in COLOURS:
        line = coloured_line(partial(write, what))
        assert re.findall(r"\x1b\[.*?m.*?\x1b\[0m", line) == expected, what
        for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
            with monkeypatch.context() as patched:
                patched.setenv(name, value)
                assert "\x1b" not in coloured_line(partial(write, what)), (what, name)


def coloured_line(write: Callable[[], object]) -> str:
    """Return what is written on a terminal."""
    out = Terminal()
    configure_logging("info", "auto", out)
    write()
    return out.getvalue()


@pytest.mark.usefixtures("logger")
def test_at_level_debug_the_lines_of_a_request_have_its_id() -> None:
    out = configured("text", "debug")
    log_decision("abc", "route: %s", "a")
    log_request(record("/x", outcome="completed", status=200))
    found = [line.split(" ", 1)[1] for line in out.getvalue().splitlines()]
    assert found == ["debug route: a id=abc", "/x 200 id=abc"]


def test_the_documentation_has_every_field() -> None:
    page = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text("utf-8")
    table = page.partition("### Logs")[2].partition("### Errors")[0]
    assert [name for name in RequestRecord.__struct_fields__ if f"`{name}`" not in table] == []


def check_lines(form: str, text: str) -> None:
    """One printable line, or in text form some that are indented below the first one."""
    first, *others = text.removesuffix("\n").split("\n")
    assert form == "text" or others == []
    assert all(line.startswith("    ") for line in others)
    assert all(line.isprintable() for line in (first, *others))
    text.encode("utf-8")


@pytest.mark.usefixtures("logger")
@pytest.mark.parametrize("name", ["method", "path", "model", "upstream_model", "error"])
def test_a_long_text_from_outside_is_cut(name: str) -> None:
    written = record(**{name: "x" * 100_000})
    assert json.loads(line_of("json", written))[name] == "x" * 500 + "..."
    assert len(line_of("text", written)) < 1000


@pytest.mark.promise("S12")
@pytest.mark.usefixtures("logger")
@pytest.mark.parametrize("form", ["json", "text"])
def test_an_exception_forges_no_line(form: str) -> None:
    out = configured(form)
    try:
        raise ValueError("bad\n10:00:00 info request id=forged\x1b[2J")
    except ValueError:
        logging.getLogger("dragoman.errors").exception("request %s failed", "abc\ndef")
    first, *others = out.getvalue().splitlines()
    assert "request abc\\ndef failed" in first
    assert "\x1b" not in out.getvalue()
    if form == "text":
        assert all(line.startswith("    ") for line in others)
        assert "    ValueError: bad" in others
    else:
        assert others == []
        assert "Traceback" in json.loads(first)["exception"]


@pytest.mark.usefixtures("logger")
def test_the_level_of_an_outcome() -> None:
    for outcome in ("completed", "client_left", "refused", "cancelled", "failed"):
        level = "warning" if outcome == "failed" else "info"
        assert json.loads(line_of("json", record(outcome=outcome)))["level"] == level
        quiet = line_of("json", record(outcome=outcome), level="warning")
        assert bool(quiet) is (level == "warning")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.usefixtures("logger")
def test_the_form_of_lines() -> None:
    for form, stream, formatter in (
        ("auto", Terminal(), TextFormatter),
        ("auto", io.StringIO(), JSONFormatter),
        ("json", Terminal(), JSONFormatter),
        ("text", io.StringIO(), TextFormatter),
    ):
        configure_logging("info", form, stream)
        (handler,) = logging.getLogger("dragoman").handlers
        assert type(handler.formatter) is formatter


# Any text in any field, with more dangerous characters than at random.
TEXTS = st.text(
    st.one_of(st.sampled_from('\r\n\t\x00\x1b\x85\u2028\u2029\u202e\ud800" =\\{}'), st.characters()),
    max_size=40,
)
TEXT_FIELDS = [name for name, hint in get_type_hints(RequestRecord).items() if hint in (str, str | None)]


@pytest.mark.promise("S12")
@pytest.mark.usefixtures("logger")
@pytest.mark.parametrize("form", ["json", "text"])
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture],
)
@given(st.fixed_dictionaries(dict.fromkeys(TEXT_FIELDS, TEXTS)), TEXTS)
def test_any_text_in_any_field_is_one_line(form: str, texts: dict[str, str], more: str) -> None:
    written = RequestRecord(**texts, losses=[more], hedge={"account": more})
    written.note_failure(more, more, None, more, more, 0.1)
    text = line_of(form, written, level="debug")
    check_lines(form, text)
    if form == "json":
        assert {name: json.loads(text)[name] for name in texts} == texts


# Secrets in lines, and lines of libraries.


SECRET = "sk-0123456789-0123456789"


@pytest.mark.promise("S3")
@pytest.mark.usefixtures("logger")
@pytest.mark.parametrize("form", ["json", "text"])
def test_a_secret_is_in_no_line_however_it_came_there(form: str) -> None:
    out = configured(form, mask=Mask([SECRET]))
    long = "x" * 490 + SECRET  # cut in the middle of it
    written = record(model=SECRET, error=f"no: {SECRET}", upstream=long, losses=[f"dropped /{SECRET}"])
    written.note_failure(SECRET, SECRET, None, SECRET, SECRET, 0.1)
    log_request(written)
    try:
        held = SECRET
        raise ValueError(f"no: {held}")
    except ValueError:
        logging.getLogger("dragoman.errors").exception("request %s failed", SECRET)
    assert SECRET[:8] not in out.getvalue()
    # As text, a request has the number of its losses only.
    assert out.getvalue().count("****") == (10 if form == "json" else 8)
    if form == "json":
        assert json.loads(out.getvalue().splitlines()[0])["losses"] == ["dropped /****"]


@pytest.fixture
def others(logger: logging.Logger) -> Callable[[str], Any]:
    """Return a function that configures logging, and returns one that reads its lines."""
    out = io.StringIO()

    def lines(form: str) -> list[Any]:
        text = out.getvalue().splitlines()
        return [json.loads(line) for line in text] if form == "json" else text

    def begin(form: str) -> Callable[[], list[Any]]:
        configure_logging("info", form, out, Mask([SECRET]))
        capture_foreign_logs()
        return lambda: lines(form)

    return begin


def fail() -> None:
    raise ValueError(f"no: {SECRET}")


class Unraisable:
    def __del__(self) -> None:
        fail()


def warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        logging.captureWarnings(True)  # inside the output that pytest catches
        warnings.warn(f"careful with {SECRET}", stacklevel=1)


def in_a_thread() -> None:
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()


def uncaught() -> None:
    try:
        fail()
    except ValueError as error:
        sys.excepthook(ValueError, error, error.__traceback__)


@pytest.mark.promise("S3", "S12")
@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (lambda: logging.getLogger("asyncio").error("socket.accept() of %s", SECRET), "socket.accept() of ****"),
        (lambda: logging.getLogger("trio.x").warning("no %s %s", "one"), "no %s %s"),
        (warn, "careful with ****"),
        (uncaught, "uncaught ValueError"),
        (in_a_thread, "uncaught ValueError"),
        (Unraisable, "uncaught ValueError"),
    ],
    ids=["asyncio", "trio", "a warning", "uncaught", "in a thread", "unraisable"],
)  # fmt: skip
def test_lines_of_libraries_are_formatted_like_ours(
    others: Callable[[str], Callable[[], list[Any]]], form: str, cause: Callable[[], object], expected: str
) -> None:
    read = others(form)
    cause()
    lines = read()
    assert SECRET not in repr(lines)
    if form == "json":
        assert len(lines) == 1
        assert expected in lines[0]["message"]
        assert ("no: ****" in lines[0].get("exception", "")) is ("caught" in expected)
    else:
        assert expected in lines[0]
        assert all(line.startswith("    ") for line in lines[1:])


def test_libraries_do_not_log_bytes_of_the_wire(
    others: Callable[[str], Callable[[], list[Any]]],
) -> None:
    read = others("json")
    configure_logging("debug", "json")
    logging.getLogger("hpack").debug("Decoded authorization")
    logging.getLogger("httpx2").info("HTTP Request")
    assert read() == []


def test_an_exit_on_purpose_is_not_logged(others: Callable[[str], Callable[[], list[Any]]]) -> None:
    read = others("json")
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert read() == []


def lines_at(
    handler: logging.Handler, times: list[float], name: str = "asyncio", text: str = "no %d"
) -> None:
    for number, created in enumerate(times):
        line = logging.LogRecord(name, logging.ERROR, "", 0, text, (number,), None)
        line.created = created
        handler.handle(line)


@pytest.mark.usefixtures("logger")
def test_repeated_lines_are_left_out_and_counted() -> None:
    out = configured("json")
    (handler,) = logging.getLogger("dragoman").handlers
    now = 1_000_000.0
    lines_at(handler, [now + number / 1000 for number in range(1000)])
    lines_at(handler, [now], text="something else")
    # Event loops write the differing parts into the text.
    for number in range(30):
        lines_at(handler, [now], text=f"Task-{number} at 0x7f{number:x}: no\nmore")
    assert len(out.getvalue().splitlines()) == MAX_REPEATS + 1 + MAX_REPEATS
    lines_at(handler, [now + REPEAT_WINDOW_S])
    *_, one, two, last = (json.loads(line) for line in out.getvalue().splitlines())
    assert one["message"] == f"lines left out: {1000 - MAX_REPEATS} more like: no %d"
    assert (one["logger"], one["level"]) == ("asyncio", "error")
    assert two["message"] == f"lines left out: {30 - MAX_REPEATS} more like: Task-0 at 0: no"
    assert last["message"] == "no 0"
    lines_at(handler, [now + REPEAT_WINDOW_S] * MAX_REPEATS)
    handler.close()
    assert "lines left out: 1 more like" in out.getvalue().splitlines()[-1]


@pytest.mark.usefixtures("logger")
def test_a_stream_that_fails_is_no_other_failure(capsys: pytest.CaptureFixture[str]) -> None:
    configured("json").close()
    log_request(record())
    assert capsys.readouterr().err == ""


# Output of a process beside its log, each in its own way, and at last its exception.
SCRIPT = f"""
import asyncio, gc, sys, threading, warnings
from dragoman_server.settings.secret import Secret
from dragoman_server.serving.run import _set_up_logging
from dragoman_server.settings import ServerSettings, Settings

_set_up_logging(Settings(server=ServerSettings(log_format="json", admin_key=Secret({SECRET!r}))))

def fail(*_):
    raise ValueError("no: {SECRET}")

class Unraisable:
    __del__ = fail

async def main():
    asyncio.get_running_loop().call_soon(fail)
    task = asyncio.create_task(asyncio.to_thread(fail))
    await asyncio.wait([task])
    del task
    gc.collect()

asyncio.run(main())
Unraisable()
warnings.warn("careful with {SECRET}")
thread = threading.Thread(target=fail)
thread.start()
thread.join()
for number in range(100):
    Unraisable()
fail()
"""


@pytest.mark.promise("S3", "S12")
def test_each_line_that_a_process_writes_is_one_object() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert SECRET not in done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    others = [
        each["message"].partition("\n")[0][:19] for each in lines if each["logger"] != "dragoman.errors"
    ]
    assert others == ["Exception in callba", "Task exception was ", "<string>:24: UserWa"]
    *repeated, last, left_out = (line for line in lines if line["logger"] == "dragoman.errors")
    assert [line["level"] for line in repeated] == ["error"] * MAX_REPEATS
    assert all("no: ****" in line["exception"] for line in [*repeated, last])
    assert last["level"] == "critical"
    assert left_out["message"] == "lines left out: 82 more like: uncaught %s"
