"""Log lines: a record in, one line out, whatever stands in it."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from dragoman_server.log import JSONFormatter, RequestRecord, TextFormatter, configure, log_request

HOSTILE = [
    'm\n10:00:00 info request id="forged"',
    "m\r\nx",
    "m\x1b[2Jx",
    "m\u2028x",
    "m\u0085x",
    "m\x00x",
    "m\ud800x",
    'a "quoted" name',
    "m" * 100_000,
]


@pytest.fixture
def _logger() -> Iterator[None]:
    logger = logging.getLogger("dragoman")
    before = logger.handlers[:], logger.propagate, logger.level
    yield
    logger.handlers[:], logger.propagate, level = before
    logger.setLevel(level)


def record(path: str = "/v1/chat/completions", **more: object) -> RequestRecord:
    return RequestRecord(id="abc", protocol="openai_chat", path=path, **more)  # type: ignore[arg-type]


def line_of(form: str, written: RequestRecord, level: str = "info") -> str:
    out = io.StringIO()
    configure(level, form, out)
    log_request(written)
    return out.getvalue()


def test_only_what_is_known_is_said() -> None:
    assert record(status=200, duration_s=0.123456, losses=[]).as_dict() == {
        "id": "abc",
        "protocol": "openai_chat",
        "path": "/v1/chat/completions",
        "status": 200,
        "outcome": "open",
        "duration_s": 0.1235,
    }
    assert record(stream=False, input_tokens=0).as_dict()["stream"] is False
    assert record(stream=False, input_tokens=0).as_dict()["input_tokens"] == 0


@pytest.mark.usefixtures("_logger")
def test_a_line_of_json() -> None:
    text = line_of("json", record(model="m", outcome="completed", losses=["dropped /seed"]))
    assert text.endswith("\n")
    line = json.loads(text)
    assert line.pop("time")[10] == "T"
    assert line == {
        "level": "info",
        "logger": "dragoman.requests",
        "message": "request",
        "id": "abc",
        "protocol": "openai_chat",
        "path": "/v1/chat/completions",
        "model": "m",
        "outcome": "completed",
        "losses": ["dropped /seed"],
    }


@pytest.mark.usefixtures("_logger")
def test_a_line_of_text() -> None:
    text = line_of("text", record(model="my model", outcome="completed"))
    clock, rest = text.split(" ", 1)
    assert len(clock) == len("10:00:00")
    assert rest == (
        'info request id=abc protocol=openai_chat path=/v1/chat/completions model="my model" outcome=completed\n'
    )


@pytest.mark.usefixtures("_logger")
def test_failed_attempts_are_a_list_in_json_and_words_in_text() -> None:
    written = record(attempts=2, outcome="failed")
    written.note_failure("up/a", "up/m", 429, "slow down", 0.123456)
    written.note_failure("up/b", "up/m", None, "x" * 600, 2.0)
    assert json.loads(line_of("json", written))["failures"] == [
        {"account": "up/a", "model": "up/m", "status": 429, "cause": "slow down", "seconds": 0.1235},
        {"account": "up/b", "model": "up/m", "cause": "x" * 500 + "...", "seconds": 2.0},
    ]
    assert (
        'failures="account=up/a model=up/m status=429 cause=slow down seconds=0.1235, account=up/b'
        in line_of("text", written)
    )


def test_the_documentation_has_every_field() -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text("utf-8")
    table = page.partition("### Logs")[2].partition("### Errors")[0]
    assert [each.name for each in fields(RequestRecord) if f"`{each.name}`" not in table] == []


@pytest.mark.usefixtures("_logger")
@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.promise("S12")
def test_a_name_from_outside_forges_no_line(form: str, hostile: str) -> None:
    written = record(model=hostile, path=hostile, error=hostile, upstream_model=hostile)
    text = line_of(form, written)
    assert text.endswith("\n")
    assert len(text.splitlines()) == 1
    assert all(char.isprintable() for char in text[:-1])
    assert text.count("outcome") == 1
    assert len(text) < 5000
    text.encode("utf-8")
    if form == "json":
        assert json.loads(text)["model"] == (hostile if len(hostile) < 500 else hostile[:500] + "...")


@pytest.mark.usefixtures("_logger")
@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.promise("S12")
def test_an_exception_forges_no_line(form: str) -> None:
    out = io.StringIO()
    configure("info", form, out)
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


@pytest.mark.usefixtures("_logger")
@pytest.mark.parametrize(
    ("outcome", "level"),
    [
        ("completed", "info"),
        ("client_left", "info"),
        ("refused", "info"),
        ("cancelled", "info"),
        ("failed", "warning"),
    ],
)
def test_the_level_of_an_outcome(outcome: str, level: str) -> None:
    assert json.loads(line_of("json", record(outcome=outcome)))["level"] == level
    quiet = line_of("json", record(outcome=outcome), level="warning")
    assert bool(quiet) is (level == "warning")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.usefixtures("_logger")
@pytest.mark.parametrize(
    ("form", "stream", "formatter"),
    [
        ("auto", Terminal(), TextFormatter),
        ("auto", io.StringIO(), JSONFormatter),
        ("json", Terminal(), JSONFormatter),
        ("text", io.StringIO(), TextFormatter),
    ],
)
def test_the_form_of_lines(form: str, stream: io.StringIO, formatter: type[logging.Formatter]) -> None:
    configure("info", form, stream)
    (handler,) = logging.getLogger("dragoman").handlers
    assert type(handler.formatter) is formatter


@pytest.mark.usefixtures("_logger")
def test_lines_go_to_stderr_and_configuring_twice_writes_them_once() -> None:
    configure("info", "json")
    configure("debug", "json")
    (handler,) = logging.getLogger("dragoman").handlers
    assert isinstance(handler, logging.StreamHandler)
    assert handler.stream is sys.stderr


def test_a_library_says_nothing_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    """Unless its application wants to hear it: lines go where the application sends them."""
    with caplog.at_level(logging.INFO, logger="dragoman"):
        log_request(record())
    (heard,) = caplog.records
    assert heard.dragoman["id"] == "abc"  # type: ignore[attr-defined]
