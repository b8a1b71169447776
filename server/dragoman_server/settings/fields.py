"""Describe settings by the annotations of their fields, and collect the settings of a class with `settings_of`.

Besides its type, the annotation of a setting has its limits if it has any, as msgspec writes them; the choices, as a
tuple if not as the type; and last the help text:

    port: Annotated[int, Meta(ge=0, le=65_535), RESTART, "port to bind; 0 chooses a free one"] = 8080
"""

import enum
from collections.abc import Mapping
from datetime import datetime
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Meta, structs

from dragoman_server.settings.secret import Secret

DAY_S = 86_400


class SettingKind(enum.Enum):
    """How a value is written and checked. Outside of TOML, lists are comma-separated.

    Attributes:
        label: Its name in the documentation.
        base: The type of the value, or of each element of a list.
        expected: The name of this type in errors.
    """

    TEXT = "text"
    NAME = "name"
    HOST = "host"
    INTEGER = "integer", int, "an integer"
    SECONDS = "seconds", float, "a number of seconds"
    DOLLARS = "US dollars", float, "a number of US dollars"
    SWITCH = "true or false", bool, "true or false"
    TIME = "time", datetime, "a date such as 2026-12-31 without quotes, or a time with its offset from UTC"
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

# The kind of a setting whose annotation has none, by its type: of one value, and of several.
_KINDS: Mapping[object, tuple[SettingKind, ...]] = {
    str: (SettingKind.TEXT, SettingKind.NAMES),
    int: (SettingKind.INTEGER, SettingKind.STATUSES),
    bool: (SettingKind.SWITCH,),
    datetime: (SettingKind.TIME,),
    Secret: (SettingKind.SECRET,),
    Mapping[str, Secret]: (SettingKind.HEADERS,),
}
_KINDS_OF_CHOICES = (SettingKind.CHOICE, SettingKind.CHOICES)


class SettingSpec(msgspec.Struct, frozen=True):
    """One setting.

    Attributes:
        type: The type of the value, or of each element if there may be `many`, as msgspec checks it.
        limits: The limits of a number, or of the length of a secret.
        choices: The valid values of CHOICE and CHOICES.
        default: None for no value.
        applied_by: The step that makes a changed value take effect.
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


# The choice of a setting that a Struct has no value for.
NONE = "none"


_settings: dict[type[Any], dict[str, SettingSpec]] = {}


def settings_of(cls: type[Any]) -> dict[str, SettingSpec]:
    """Return the settings of a class by name: its own, then the inherited ones, each in the order of the fields.

    Only `Annotated` fields can be set. The class is a Struct.
    """
    if cls not in _settings:
        own_first = sorted(structs.fields(cls), key=lambda field: field.name not in cls.__annotations__)
        _settings[cls] = {
            field.name: _spec(field) for field in own_first if get_origin(field.type) is Annotated
        }
    return _settings[cls]


def _spec(field: structs.FieldInfo) -> SettingSpec:
    annotated, metadata = _unwrap(field.type)
    many = get_origin(annotated) in (tuple, frozenset)
    element = get_args(annotated)[0] if many else annotated
    by_type: dict[type, Any] = {type(value): value for value in metadata}
    limits = by_type.get(Meta)
    choices = by_type.get(tuple, ())
    if get_origin(element) is Literal:
        choices, element = (*get_args(element), *([NONE] if is_optional(field.type) else ())), str
    kind = by_type.get(SettingKind) or (_KINDS_OF_CHOICES if choices else _KINDS[element])[many]
    made = field.default is NODEFAULT  # by a factory, so it is empty
    default = None if made else field.default
    return SettingSpec(
        name=field.name,
        kind=kind,
        help=by_type[str],
        type=Annotated[kind.base, limits] if limits and limits.le else kind.base,
        many=many,
        limits=limits or Meta(),
        choices=choices,
        default=tuple(default) if isinstance(default, frozenset) else default,
        required=field.required,
        applied_by=by_type.get(AppliedBy, AppliedBy.RELOAD),
    )


def is_optional(hint: Any) -> bool:
    """True if an annotated type includes None."""
    return NoneType in get_args(hint.__origin__ if get_origin(hint) is Annotated else hint)


def _unwrap(hint: Any) -> tuple[Any, tuple[object, ...]]:
    """Return the type without None, and all metadata of its annotations."""
    if get_origin(hint) is Annotated:
        inner, metadata = _unwrap(hint.__origin__)
        return inner, (*metadata, *hint.__metadata__)
    return _unwrap(get_args(hint)[0]) if is_optional(hint) else (hint, ())
