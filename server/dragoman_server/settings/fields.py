"""Describe one setting: its kind, its limits, its help text. `keys_of` collects the settings of a dataclass."""

import enum
from dataclasses import MISSING, dataclass, fields, replace
from typing import Annotated, Any, get_origin, get_type_hints

DAY_S = 86_400


class SettingKind(enum.Enum):
    """How a value is written and checked. Outside of TOML, lists are comma-separated."""

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
class SettingSpec:
    """One setting.

    low, high: limits of a number, both inclusive.
    choices: the valid values of CHOICE and CHOICES.
    name, required: set by keys_of() from the field.
    default: None for no value; set by keys_of() if the field has a default.
    """

    kind: SettingKind
    help: str
    low: float = 0
    high: float = 0
    choices: tuple[str, ...] = ()
    name: str = ""
    default: object = None
    required: bool = False


def integer(help_: str, low: int, high: int) -> SettingSpec:
    return SettingSpec(SettingKind.INTEGER, help_, low, high)


def seconds(help_: str, low: float, high: float) -> SettingSpec:
    return SettingSpec(SettingKind.SECONDS, help_, low, high)


def dollars(help_: str, high: float) -> SettingSpec:
    return SettingSpec(SettingKind.DOLLARS, help_, 0, high)


def choice(help_: str, *choices: str, default: str | None = None) -> SettingSpec:
    return SettingSpec(SettingKind.CHOICE, help_, choices=choices, default=default)


def keys_of(cls: type[Any]) -> dict[str, SettingSpec]:
    """Return the keys of a settings class by name, in the order of its fields. Only `Annotated` fields can be set."""
    hints: dict[str, Any] = get_type_hints(cls, include_extras=True)
    keys = {}
    for each in fields(cls):
        if get_origin(hints[each.name]) is not Annotated:
            continue
        key: SettingSpec = hints[each.name].__metadata__[0]
        made = each.default is MISSING  # by a factory, so it is empty
        default = key.default if made or each.default is None else each.default
        required = made and each.default_factory is MISSING
        keys[each.name] = replace(key, name=each.name, default=default, required=required)
    return keys
