"""Findings, and the place in the bytes that each is about."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from json.decoder import scanstring  # type: ignore[attr-defined]

import msgspec

from dragoman._wire.json import JSON, JSONObject
from dragoman.lint.rules import RULES, Rule
from dragoman.lint.shapes import Mismatch

# More findings than this are only counted: a wrong stream may have one in every frame.
MAX_FINDINGS = 1000

# How many characters are read again to find the bytes of findings. When they are used up, which takes a large document
# with many findings, a finding has the first byte of its document or event.
SCAN_BUDGET = 200_000_000

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


class LintFinding(msgspec.Struct, frozen=True):
    """A rule that the bytes break.

    Attributes:
        rule: Its id, severity, fix and source.
        detail: What is wrong. May quote short values, such as an id.
        offset: The position of the byte that it is about; of the object, if a member is missing.
        frame: The number of the event in a stream, from 0; None in a document, and for what no event has.
        pointer: JSON Pointer into the document, or into the data of the event.
    """

    rule: Rule
    detail: str
    offset: int
    frame: int | None = None
    pointer: str = ""

    def __str__(self) -> str:
        event = "" if self.frame is None else f", event {self.frame}"
        place = f" {self.pointer}" if self.pointer else ""
        return f"byte {self.offset}{event}{place}: {self.rule.severity.value} {self.rule.id}: {self.detail}"


class Report:
    """Collects the findings of one stream or document.

    Attributes:
        findings: In the order in which they were found.
        overflow: The number of findings beyond MAX_FINDINGS. They are counted only.
    """

    def __init__(self) -> None:
        self.findings: list[LintFinding] = []
        self.overflow = 0
        self._text = ""
        self._offset = 0
        self._frame: int | None = None
        self._budget = SCAN_BUDGET

    def enter(self, text: str, offset: int = 0, frame: int | None = None) -> None:
        """Findings are about this JSON text from now on, which begins at an offset."""
        self._text, self._offset, self._frame = text, offset, frame

    def add(self, rule: str, detail: str, pointer: str = "") -> None:
        """Record a finding about the text."""
        offset = self._offset
        if self._budget > 0 and len(self.findings) < MAX_FINDINGS:
            self._budget -= len(self._text)
            offset += byte_offset(self._text, pointer)
        self._append(LintFinding(RULES[rule], detail, offset, self._frame, pointer))

    def at_byte(self, rule: str, offset: int, detail: str) -> None:
        """Record a finding about a byte of the stream."""
        self._append(LintFinding(RULES[rule], detail, offset))

    def held(self, check: Callable[[Report], None]) -> list[LintFinding]:
        """Return the findings of a check about the text, without recording them: see again()."""
        other = Report()
        other.enter(self._text, self._offset, self._frame)
        check(other)
        return other.findings

    def again(self, findings: Iterable[LintFinding]) -> None:
        """Record findings that were held back."""
        for finding in findings:
            self._append(finding)

    def _append(self, finding: LintFinding) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(finding)
        else:
            self.overflow += 1

    def read_object(self) -> JSONObject | None:
        """Return the text as an object, as RFC 8259 has it. None if it is none, which is a finding."""
        twice = constant = False

        def read_members(pairs: list[tuple[str, JSON]]) -> JSONObject:
            nonlocal twice
            members = dict(pairs)
            twice = twice or len(members) != len(pairs)
            return members

        def read_constant(name: str) -> None:
            nonlocal constant
            constant = True

        try:
            value = json.loads(self._text, object_pairs_hook=read_members, parse_constant=read_constant)
        except json.JSONDecodeError as error:
            offset = self._offset + len(self._text[: error.pos].encode("utf-8", "replace"))
            self._append(LintFinding(RULES["json-syntax"], error.msg, offset, self._frame))
            return None
        except (RecursionError, ValueError):
            self.add("json-syntax", "nested too deep, or a number with too many digits")
            return None
        if twice:
            self.add("json-duplicate", "a name is given twice in one object")
        if constant:
            self.add("json-syntax", "NaN and Infinity are not JSON")
        if type(value) is not dict:
            self.add("json-object", "not an object")
            return None
        return value


def add_mismatches(report: Report, protocol: str, mismatches: Iterable[Mismatch]) -> None:
    """Record in what a value differs from its shape. protocol: of the rules."""
    for each in mismatches:
        report.add(f"{protocol}-{each.kind}", each.detail, each.pointer)


def byte_offset(text: str, pointer: str) -> int:
    """Return where in a JSON text the value at a pointer begins, or what it would be in if it is missing.

    The text is valid up to there, or the pointer is empty.
    """
    at = _skip(text, 0)
    for step in pointer.split("/")[1:]:
        inner = _member(text, at, step.replace("~1", "/").replace("~0", "~"))
        if inner is None:
            break
        at = inner
    return len(text[:at].encode("utf-8", "replace"))


def _member(text: str, at: int, step: str) -> int | None:
    opening, number = text[at], 0
    if opening not in "{[":
        return None
    at = _skip(text, at + 1)
    while text[at] not in "}]":
        name = str(number)
        if opening == "{":
            name, at = scanstring(text, at + 1)
            at = _skip(text, _skip(text, at) + 1)
        if name == step:
            return at
        _, at = _DECODER.raw_decode(text, at)
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
        number += 1
    return None


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def arguments_problem(text: str) -> str | None:
    """Return why the text of a tool's arguments is not a JSON object, None if it is one."""
    if not text:
        return "empty text, not even {}"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return "not JSON: cut short, or with a syntax error"
    return None if type(value) is dict else "not a JSON object"


def objects(value: JSON) -> list[tuple[int, JSONObject]]:
    """Return the objects of a list with their places, none if it is no list."""
    entries = enumerate(value) if type(value) is list else ()
    return [(number, entry) for number, entry in entries if type(entry) is dict]


def members(value: JSON) -> JSONObject:
    """Return an object, an empty one for anything else."""
    return value if type(value) is dict else {}


def string(value: JSON) -> str:
    """Return a string, an empty one for anything else."""
    return value if type(value) is str else ""


def count(value: JSON) -> int:
    """Return an integer, 0 for anything else."""
    return value if type(value) is int else 0
