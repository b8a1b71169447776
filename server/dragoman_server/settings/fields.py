"""How one setting is described: its kind, its limits, its help text."""

import enum
from dataclasses import dataclass


class Kind(enum.Enum):
    """How a value is written and checked. Outside TOML, lists are comma-separated."""

    TEXT = "text"
    NAME = "name"
    HOST = "host"
    INTEGER = "integer"
    SECONDS = "seconds"
    DOLLARS = "US dollars"
    SWITCH = "true or false"
    CHOICE = "choice"
    CHOICES = "list of choices"
    NAMES = "list of names"
    STATUSES = "list of HTTP statuses"
    HOSTS = "list of host names"
    ORIGINS = "list of origins"
    PATH = "path"
    URL = "url"
    PROXY = "proxy url"
    SECRET = "secret"
    HASH = "hash"
    HEADERS = "table of headers"


@dataclass(frozen=True, slots=True)
class Key:
    """One setting's kind and limits; `low` and `high` are inclusive.

    `name` and `required` are filled in from the field, and so is `default` (None: no value) where the field has one.
    """

    kind: Kind
    help: str
    low: float = 0
    high: float = 0
    choices: tuple[str, ...] = ()
    name: str = ""
    default: object = None
    required: bool = False


def integer(help_: str, low: int, high: int) -> Key:
    return Key(Kind.INTEGER, help_, low, high)


def seconds(help_: str, low: float, high: float) -> Key:
    return Key(Kind.SECONDS, help_, low, high)


def dollars(help_: str, most: float) -> Key:
    return Key(Kind.DOLLARS, help_, 0, most)


def choice(help_: str, *choices: str, default: str | None = None) -> Key:
    return Key(Kind.CHOICE, help_, choices=choices, default=default)
