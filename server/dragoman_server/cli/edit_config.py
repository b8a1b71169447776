"""Changes to the configuration file: the one place where Dragoman writes it.

Strategy: lines are taken out of the text, so that comments and order stay as they are. The result is parsed and
compared with what it must mean before it takes the file's place, in one step.
"""

import codecs
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from dragoman_server.config.toml_lines import TomlLines

_BOM = codecs.BOM_UTF8


class EditError(Exception):
    """The file cannot be changed; the text says why and what to do by hand."""


def remove_client_key(path: Path, index: int) -> int:
    """Take the `[[client_keys]]` table with this index out of a file. Returns the number of lines. Raises EditError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise EditError(f"cannot read {path}: {error.strerror}") from None
    mark = _BOM if data.startswith(_BOM) else b""
    text = data.removeprefix(mark).decode()
    # TOML's own line ends alone: strings and comments may hold what Python takes for one.
    lines = text.split("\n")
    first, last = _lines_of(text, lines, index)
    shorter = "\n".join(lines[:first] + lines[last:])
    if _parsed(shorter) != _without(tomllib.loads(text), index):
        raise EditError(f"{path} is written in an unusual way: take the key out by hand, line {first + 1}")
    _replace(path, mark + shorter.encode())
    return last - first


def _lines_of(text: str, lines: list[str], index: int) -> tuple[int, int]:
    """From its header to the next one, counted from 0: the first line, and the one behind the last."""
    first = (TomlLines(text).line_of(("client_keys", index)) or 1) - 1
    last = first + 1
    while last < len(lines) and not lines[last].lstrip().startswith("["):
        last += 1
    # Blank lines and comments in front of the next header are about that one.
    while last > first + 1 and (not lines[last - 1].strip() or lines[last - 1].lstrip().startswith("#")):
        last -= 1
    return first, last


def _without(document: dict[str, Any], index: int) -> dict[str, Any]:
    keys = list(document["client_keys"])
    del keys[index]
    rest = {name: value for name, value in document.items() if name != "client_keys"}
    return {**rest, "client_keys": keys} if keys else rest


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _replace(path: Path, data: bytes) -> None:
    """In one step, and for the same readers as before: a half-written file would keep the gateway from starting."""
    path = path.resolve()
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            written = Path(file.name)
            try:
                file.write(data)
                file.flush()
                written.chmod(path.stat().st_mode)
                written.replace(path)
            finally:
                written.unlink(missing_ok=True)
    except OSError as error:
        raise EditError(f"cannot write {path}: {error.strerror}") from None
