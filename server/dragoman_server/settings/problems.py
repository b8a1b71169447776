"""The problems of a configuration, what checks have found, and the origins of values, each as one line of text."""

import enum
import re
from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec

# The sources that are not files.
ENVIRONMENT = "environment"
COMMAND_LINE = "command line"

_CREDENTIALS = re.compile(r"//[^@]*@")
# Some vendors take the key there.
_QUERY = re.compile(r"\A((?>.*?//)[^?#]*[?#]).+", re.DOTALL)
_MAX_QUOTED_LENGTH = 80
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


# difflib's default is 0.6; a little less also finds a protocol by its vendor's name, and "port" for "prot".
_CUTOFF = 0.55
# Comparing is quadratic in the length, and clients choose model names.
_MAX_LENGTH = 200
# The names that a name is compared with: twenty microseconds each.
_MAX_NAMES = 500


def quote_value(value: object) -> str:
    """Return a value as messages quote it: without credentials and queries of URLs."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # Without an @ to come, each // would have all the rest looked through: quadratic, and admins send values.
        before, at, rest = value.rpartition("@")
        visible = _QUERY.sub(r"\1****", _CREDENTIALS.sub("//****@", before + at) + rest)
        visible = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in visible)
        return (
            f'"{visible}"' if len(visible) <= _MAX_QUOTED_LENGTH else f'"{visible[:_MAX_QUOTED_LENGTH]}..."'
        )
    try:
        return str(value)
    except ValueError:  # CPython prints no integers of more than 4300 digits
        return "this integer"


def printable(text: str, instead: str | None = None) -> str:
    """Return a text from outside without characters that could control a terminal, or change or forge a line.

    instead: what each becomes, by default its escape.
    """
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() else ascii(c)[1:-1] if instead is None else instead for c in text])


_TYPE_NAMES = {
    bool: "a boolean",
    str: "a string",
    int: "an integer",
    float: "a float",
    list: "an array",
    dict: "a table",
}


def type_name(value: object) -> str:
    """Return the TOML name of a value's type."""
    return _TYPE_NAMES.get(type(value), "a date or time")


def nearest(word: str, valid: Iterable[str]) -> str | None:
    """Return the valid name that is most similar to `word`, or None if none is similar."""
    if len(word) > _MAX_LENGTH:
        return None
    import difflib  # not at the top, because nothing needs it before the first mistake

    by_folded = {name.casefold().replace("-", "_"): name for name in islice(valid, _MAX_NAMES)}
    close = difflib.get_close_matches(word.casefold().replace("-", "_"), by_folded, n=1, cutoff=_CUTOFF)
    return by_folded[close[0]] if close else None


def did_you_mean(word: str, valid: Iterable[str]) -> str:
    """Return `; did you mean "name"?` for the end of a message, or an empty string."""
    found = nearest(word, valid)
    return f'; did you mean "{found}"?' if found is not None else ""


def dotted(path: Sequence[str | int]) -> str:
    """Return a key path as text: `upstreams[0].headers.x-team`, `models."gpt-4.1"`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if _BARE_KEY.fullmatch(part) else quote_value(part))
    return text


class ValueOrigin(msgspec.Struct, frozen=True):
    """Where a value came from.

    Attributes:
        source: A file, "environment", "command line" or "default".
        line: None outside of files.
        where: The dotted key, the variable or the flag.
        references: The variables and files that were put into it.
        raw: The text of a URL before that.
    """

    source: str
    line: int | None = None
    where: str = ""
    references: tuple[str, ...] = ()
    raw: str | None = None

    @property
    def place(self) -> str:
        """The source, with the line in it."""
        return self.source if self.line is None else f"{self.source}:{self.line}"

    @property
    def changed_at(self) -> str:
        """Where to change the value: a variable, a file or a flag, or the line that has it."""
        if self.source in (ENVIRONMENT, COMMAND_LINE):
            return self.where
        if not self.references:
            return self.place
        return f"{' and '.join(each.removeprefix('file:') for each in self.references)} ({self.place})"

    def __str__(self) -> str:
        if self.source == COMMAND_LINE:
            return self.where
        named = f"{ENVIRONMENT} {self.where}" if self.source == ENVIRONMENT else self.place
        return ", ".join((named, *self.references))


class ConfigProblem(msgspec.Struct, frozen=True):
    """One thing that is wrong: with which value, and what."""

    origin: ValueOrigin
    text: str

    @property
    def order(self) -> tuple[int, int]:
        """Files come first, by line, then the environment, then the command line."""
        return {ENVIRONMENT: 1, COMMAND_LINE: 2}.get(self.origin.source, 0), self.origin.line or 0

    def __str__(self) -> str:
        return ": ".join(part for part in (self.origin.place, self.origin.where, self.text) if part)


class ConfigError(Exception):
    """The configuration is wrong. `str()` is one line for each problem, in the order of their places."""

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems = sorted(problems, key=lambda problem: problem.order)
        super().__init__("\n".join(map(str, self.problems)))


class CheckSeverity(enum.StrEnum):
    """How bad a finding is. ERROR: requests fail, or the gateway does not start."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


class CheckFinding(msgspec.Struct, frozen=True):
    """A result of a check.

    Attributes:
        check: Its name, which programs may rely on.
        subject: The thing that it is about: a setting, a variable, a file, an upstream.
        fix: The command or the line that fixes it, "" if there is nothing to fix.
    """

    severity: CheckSeverity
    check: str
    subject: str
    text: str
    fix: str = ""

    @classmethod
    def ok(cls, check: str, subject: str, text: str) -> "CheckFinding":
        return cls(CheckSeverity.OK, check, subject, text)

    @classmethod
    def note(cls, check: str, subject: str, text: str, fix: str = "") -> "CheckFinding":
        return cls(CheckSeverity.NOTE, check, subject, text, fix)

    @classmethod
    def warning(cls, check: str, subject: str, text: str, fix: str = "") -> "CheckFinding":
        return cls(CheckSeverity.WARNING, check, subject, text, fix)

    @classmethod
    def error(cls, check: str, subject: str, text: str, fix: str = "") -> "CheckFinding":
        return cls(CheckSeverity.ERROR, check, subject, text, fix)

    def __str__(self) -> str:
        return f"{self.subject}: {self.text}" + (self.fix and f"; {self.fix}")
