"""Describe settings by the annotations of their fields, and collect those of a class with `keys_of`.

Besides its type, the annotation of a setting has its limits if it has any, as msgspec writes them; the choices, as a
tuple; and last the help text:

    port: Annotated[int, Meta(ge=0, le=65_535), RESTART, "port to bind; 0 chooses a free one"] = 8080
"""

import enum
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from datetime import datetime
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from msgspec import Meta

from dragoman_server.settings.secret import Secret

DAY_S = 86_400


class SettingKind(enum.Enum):
    """How a value is written and checked. Outside of TOML, lists are comma-separated.

    label: its name in the documentation. base: the type of the value, or of each element of a list.
    expected: the name of this type in errors.
    """

    TEXT = "text"
    NAME = "name"
    HOST = "host"
    INTEGER = "integer", int, "an integer"
    SECONDS = "seconds", float, "a number of seconds"
    DOLLARS = "US dollars", float, "a number of US dollars"
    SWITCH = "true or false", bool, "true or false"
    TIME = "time", datetime, "a date, or a time with its offset from UTC"
    CHOICE = "choice"
    CHOICES = "list of choices"
    NAMES = "list of names"
    STATUSES = "list of HTTP statuses", Annotated[int, Meta(ge=100, le=599)]
    HOSTS = "list of host names"
    ORIGINS = "list of origins"
    NETWORKS = "list of networks"
    PATH = "path"
    URL = "url"
    PROXY = "proxy url"
    SECRET = "secret"
    HASH = "hash"
    HEADERS = "table of headers"

    def __init__(self, label: str, base: Any = str, expected: str = "a string") -> None:
        self.label, self.base, self.expected = label, base, expected


class AppliedBy(enum.Enum):
    """What makes a changed value take effect."""

    RELOAD = enum.auto()
    RESTART = enum.auto()


# For the annotation of a setting that cannot change while the gateway runs.
RESTART = AppliedBy.RESTART

Name = Annotated[str, SettingKind.NAME]
FilePath = Annotated[str, SettingKind.PATH]
Seconds = Annotated[float, SettingKind.SECONDS]
Wait = Annotated[Seconds, Meta(ge=0, le=3600)]
Dollars = Annotated[float, SettingKind.DOLLARS]
Proxy = Annotated[Secret, SettingKind.PROXY]

# The kind of a setting whose annotation has none, with and without choices.
_KINDS: Mapping[object, SettingKind] = {
    str: SettingKind.TEXT,
    int: SettingKind.INTEGER,
    bool: SettingKind.SWITCH,
    datetime: SettingKind.TIME,
    Secret: SettingKind.SECRET,
    tuple[str, ...]: SettingKind.NAMES,
    tuple[int, ...]: SettingKind.STATUSES,
    Mapping[str, Secret]: SettingKind.HEADERS,
}
_KINDS_OF_CHOICES = {str: SettingKind.CHOICE, tuple[str, ...]: SettingKind.CHOICES}


@dataclass(frozen=True, slots=True)
class SettingSpec:
    """One setting.

    type: of the value, or of each element if there may be `many`, as msgspec checks it.
    limits: of a number, or of the length of a secret.
    choices: the valid values of CHOICE and CHOICES.
    default: None for no value.
    applied_by: what makes a changed value take effect.
    """

    name: str
    kind: SettingKind
    help: str
    type: Any
    many: bool
    limits: Meta
    choices: tuple[str, ...]
    default: object
    required: bool
    applied_by: AppliedBy


_keys: dict[type[Any], dict[str, SettingSpec]] = {}


def keys_of(cls: type[Any]) -> dict[str, SettingSpec]:
    """Return the settings of a class by name: its own, then the inherited ones, each in the order of the fields.

    Only `Annotated` fields can be set. `UNSET` of the class has what applies where a field's default is None.
    """
    if cls not in _keys:
        hints = get_type_hints(cls, include_extras=True)
        own_first = sorted(fields(cls), key=lambda each: each.name not in cls.__annotations__)
        unset = getattr(cls, "UNSET", {})
        _keys[cls] = {
            each.name: _spec(each, hints[each.name], unset.get(each.name))
            for each in own_first
            if get_origin(hints[each.name]) is Annotated
        }
    return _keys[cls]


def _spec(field: Field[Any], hint: Any, unset: object) -> SettingSpec:
    annotated, metadata = _unwrap(hint)
    by_type: dict[type, Any] = {type(each): each for each in metadata}
    choices, limits = by_type.get(tuple, ()), by_type.get(Meta)
    kind = by_type.get(SettingKind) or (_KINDS_OF_CHOICES if choices else _KINDS)[annotated]
    made = field.default is MISSING  # by a factory, so it is empty
    return SettingSpec(
        name=field.name,
        kind=kind,
        help=by_type[str],
        type=Annotated[kind.base, limits] if limits and limits.le else kind.base,
        many=get_origin(annotated) is tuple,
        limits=limits or Meta(),
        choices=choices,
        default=unset if made or field.default is None else field.default,
        required=made and field.default_factory is MISSING,
        applied_by=by_type.get(AppliedBy, AppliedBy.RELOAD),
    )


def _unwrap(hint: Any) -> tuple[Any, tuple[object, ...]]:
    """Return the type without None, and all metadata of its annotations."""
    if get_origin(hint) is Annotated:
        inner, metadata = _unwrap(hint.__origin__)
        return inner, (*metadata, *hint.__metadata__)
    arguments = get_args(hint)
    return _unwrap(arguments[0]) if NoneType in arguments else (hint, ())
