"""Every secret that a test makes is a canary: it is looked for in all that the test's gateway lets out.

That is every `Secret` of this process that looks like one (`looks_secret`), and for gateways in other processes
what their environment and their file have. It is looked for in the records of the log, in what clients get from an
application or from a process, in the output of processes and in the files of stores. conftest.py fails the test.
"""

import logging
import re
from collections.abc import Iterable, MutableMapping
from pathlib import Path
from typing import Any

from dragoman_server.settings.secret import MIN_SECRET_LENGTH, Secret

# Nearly no text has one of these, so looking costs next to nothing.
_MARKS = ("canary", "secret", "sk-", "hidden", "hunter2")
_QUOTED = re.compile(rf'"([^"\n]{{{MIN_SECRET_LENGTH},}})"')

_known: set[str] = set()
_found: list[str] = []


def looks_secret(text: str) -> bool:
    return len(text) >= MIN_SECRET_LENGTH and any(mark in text for mark in _MARKS)


def add(texts: Iterable[str]) -> None:
    _known.update(text for text in texts if looks_secret(text) and "${" not in text)


def add_from(path: Path) -> None:
    """What stands in quotes in a configuration file."""
    if path.is_file():
        add(_QUOTED.findall(path.read_text("utf-8", "replace")))


def look(where: str, data: object) -> None:
    """Look for all known ones in something that got out."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else str(data)
    if any(mark in text for mark in _MARKS):
        _found.extend(f"{where}: {secret}" for secret in _known if secret in text)


def look_at_message(message: MutableMapping[str, Any]) -> None:
    """What an application sends to its client by ASGI."""
    look("body", message.get("body", b""))
    if message["type"] == "http.response.start":
        look("headers", message["headers"])


def look_at_stores(directory: Path) -> None:
    """The SQLite files in a directory."""
    for file in directory.iterdir():
        data = file.read_bytes() if file.is_file() else b""
        if data.startswith(b"SQLite") or file.name.endswith("-wal"):
            look(file.name, data)


def found() -> list[str]:
    """What was found since the last time."""
    seen = sorted(set(_found))
    _found.clear()
    return seen


class Log(logging.Handler):
    """Looks at records before any formatter has taken something out of them."""

    def emit(self, record: logging.LogRecord) -> None:
        look(
            "log",
            f"{record.getMessage()} {record.__dict__.get('dragoman')} {record.exc_info and record.exc_info[1]!r}",
        )


def watch() -> None:
    """From now on each secret that is made is known."""
    make = Secret.__init__

    def make_and_add(self: Secret, value: str) -> None:
        make(self, value)
        add([value])

    Secret.__init__ = make_and_add  # type: ignore[method-assign]
    logging.getLogger().addHandler(Log())


def is_watching() -> bool:
    """Whether records of the log are still looked at."""
    return any(isinstance(each, Log) for each in logging.getLogger().handlers)
