"""Where settings come from and what is wrong with them, as values that print in one line each."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dragoman_server.config.values import show

KeyPath = tuple[str | int, ...]

# The sources that are no files.
ENVIRONMENT = "environment"
COMMAND_LINE = "command line"

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def dotted(path: Sequence[str | int]) -> str:
    """A key path as messages show it: `upstreams[0].headers.x-team`, `models."gpt-4.1"`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if _BARE_KEY.fullmatch(part) else show(part))
    return text


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault. `source` is a file, "environment" or "command line", `where` a key, variable or flag."""

    source: str
    line: int | None
    where: str
    text: str

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        return ": ".join(part for part in (place, self.where, self.text) if part)


class ConfigError(Exception):
    """The configuration is wrong. `str()` gives one line for each problem, in the order of their places."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from: `source`, `line` and `where` as in Problem, or "default".

    `references` are the variables and files put into it; `raw` is the text of an expanded URL before that.
    """

    source: str
    line: int | None = None
    where: str = ""
    references: tuple[str, ...] = ()
    raw: str | None = None

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        if self.source == COMMAND_LINE:
            place = self.where
        elif self.where:
            place = f"{place} {self.where}"
        return ", ".join((place, *self.references))


def by_place(problem: Problem) -> tuple[int, int]:
    """A sort key: files by line, then the environment, then the command line."""
    others = (ENVIRONMENT, COMMAND_LINE)
    return (others.index(problem.source) + 1 if problem.source in others else 0, problem.line or 0)
