"""Read the rows of the matrix from `rows/*.txt`.

A row is a piece of JSON in a template that makes a whole request or stream of it:

    # Requests              or Streams
    $NAME = JSON            `$NAME` stands for it in all lines below
    ## Section
    in JSON | NAME | WHY    the template of the rows below, which stand at its `...`
    JSON | NAME | WHY       a row

A row is about what it adds to its template, or about the value in `«...»` if it has that. `«a → b»` is compared with
the document that has `a` there, `«? → b»` with none, because none is valid. A row of a stream with the name of an event
is about that event. A row without a name is named by the member or by the type of what it is about; `*` stands for that
in a template's name. WHY is the reason why there is nothing to carry. If members share a name, the last counts. A line
that begins with two spaces continues the one before, one with `//` is a comment.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from fidelity.probe import Json, Probe, probe, steps_of, subjects
from fidelity.streams import PIECES, SUBJECT

_FOLDER = Path(__file__).with_name("rows")
_CONSTANT = re.compile(r"\$([A-Z0-9_]+)")
_MEMBER = re.compile(r'("\w+": )(.*)')


def read(protocol: str) -> tuple[list[Probe], list[Probe]]:
    """Return the rows of a protocol's requests and of its streams."""
    files = [_FOLDER / f"{name}.txt" for name in ("constants", protocol)]
    found = rows_of("".join(file.read_text("utf-8") for file in files))
    return found["Requests"], found["Streams"]


def rows_of(text: str) -> dict[str, list[Probe]]:
    """Return the rows below each heading of the first level."""
    found: dict[str, list[Probe]] = {}
    constants: dict[str, str] = {}
    for line in text.replace("\n  ", " ").splitlines():
        word, _, rest = line.partition(" ")
        if word.startswith("$") and rest.startswith("= "):
            constants[word[1:]] = _filled(rest[2:], constants)
        elif word == "#":
            rows = found.setdefault(rest, [])
        elif word == "##":
            section = rest
        elif word == "in":
            template = _columns(_filled(rest, constants))
        elif word not in ("", "//"):
            rows.append(_row(section, template, _columns(_filled(line, constants))))
    return found


def _filled(text: str, constants: dict[str, str]) -> str:
    return _CONSTANT.sub(lambda match: constants[match[1]], text)


def _columns(line: str) -> list[str]:
    return [*map(str.strip, line.split("|")), "", ""][:3]


def _row(section: str, template: list[str], row: list[str]) -> Probe:
    text, name, why = row
    whole, names, reason = template
    member = _MEMBER.match(text)
    marked = text
    if SUBJECT not in whole + text:
        marked = f"{member[1]}«{member[2]}»" if member else f"«{text}»"
    if not name:
        name = (names or "`*`").replace("*", _name(_parsed(f"{{{marked}}}" if member else f"[{marked}]")))
    event = name.strip("`") if marked != text else ""
    return probe(section, name, _parsed(whole.replace("...", marked)), why or reason, event)


def _parsed(text: str) -> Json:
    """Return the JSON with its subject. Raises ValueError with the text if it is none."""
    for sign, meaning in (("«?", '«"?"'), ("«", f'{{"{SUBJECT}": ['), ("→", ","), ("»", "]}")):
        text = text.replace(sign, meaning)
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{error}: {text}") from error


def _name(row: Json) -> str:
    """Return the path of the subject in a row, or its type if it is all of it."""
    place, values = next(subjects(row))
    way = [step for step in steps_of(place) if not step.isdigit() and step not in PIECES]
    if way:
        return ".".join(way)
    whole = values[-1]
    if not isinstance(whole, dict):
        return str(whole)
    whole = next((whole[piece] for piece in PIECES if piece in whole), whole)
    return str(whole.get("type") or whole["role"])
