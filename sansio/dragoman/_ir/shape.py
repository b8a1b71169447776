"""The members that objects of a protocol have, as tables that look like the JSON itself.

A protocol lists them once. The table of a request says which members are plain settings and of which JSON type they
are; a reader takes those with `read_members`, which finds at the same time what has no place in the document, as
`extra_members` does for other objects. The table of a response says what its reader takes, and why it drops the rest:
`note_unread` records the losses, each at its own place. So a reader has no bookkeeping, and a plain setting is one row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import filterfalse
from typing import TypeAlias

import msgspec

from dragoman._ir.losses import Ledger, LossCode, child
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, JSONObject

# The neutral name of a plain setting, OpenAI's where it has one. The shape of a protocol's requests maps members to
# them, a writer's table maps them to its own members; one without a row there goes into the ledger.
Param: TypeAlias = str


class JSONType(msgspec.Struct, frozen=True):
    """A type of JSON values. They are compared by identity, because isinstance() counts a boolean as a number.

    Attributes:
        types: In Python.
        name: As an error says it, "a string".
        convert: Returns the value of the type that another one stands for, or that one as it is.
    """

    types: tuple[type, ...]
    name: str
    convert: Callable[[JSON], JSON] = lambda value: value

    def checked(self, value: JSON, path: str, wrong_type: WrongType) -> JSON:
        """Return the value of the type that a value at a path stands for. Raises the error of `wrong_type`."""
        value = self.convert(value)
        if type(value) not in self.types:
            raise wrong_type(path, self.name, value)
        return value


STRING = JSONType((str,), "a string")
BOOLEAN = JSONType((bool,), "a boolean")
INTEGER = JSONType((int,), "an integer")
NUMBER = JSONType((int, float), "a number")
ARRAY = JSONType((list,), "an array")
OBJECT = JSONType((dict,), "an object")


class Setting(msgspec.Struct, frozen=True):
    """A plain setting of a request.

    Attributes:
        param: Its neutral name. None: only this protocol has it, so it stays among the members without a place in the
            document, and is dropped for upstreams of others.
        type: The type of its value, None for any.
        implied: The value that a request without it has, too.
    """

    param: Param | None
    type: JSONType | None = None
    implied: JSON = None


class ByType(msgspec.Struct, frozen=True):
    """An object whose `type` selects its shape. The reader takes other types whole."""

    shapes: Mapping[str, Shape]


class OneOf(msgspec.Struct, frozen=True):
    """A member of a request of which the reader takes only these values."""

    values: tuple[JSON, ...]


class TakenIf(msgspec.Struct, frozen=True):
    """A member of a request that the reader takes only if others of its object have one of these values.

    Of members with the same content it takes one, and the others are losses unless they are empty.
    """

    others: Mapping[str, tuple[JSON, ...]]


# Why such a member is lost. Names of other objects' members may be the same, of which this is true as well.
RULED_OUT = "not read next to the other members of its object"
# Of what is read, but not as a whole.
READ_IN_PART = "read only in part: it has unknown members, or a newer setting next to it"


class Counters(msgspec.Struct, frozen=True):
    """An object of figures. One that is not in the table matters only if it is not zero."""

    shapes: dict[str, Shape]


class Members(dict[str, "Shape"]):
    """The members of an object of a response. None is added once it is made.

    taken: the names of those that the reader takes: an object with no others, as nearly all are, is not looked through.
    counters: it has figures, see Counters.
    """

    __slots__ = ("counters", "taken")

    def __init__(self, rows: Mapping[str, Shape], *, counters: bool = False) -> None:
        super().__init__({name: response_shape(row) for name, row in rows.items()})
        self.taken = taken_members(rows)
        self.counters = counters


def response_shape(shape: Shape) -> Shape:
    """Return the shape with Members in the place of each mapping, for note_unread()."""
    if type(shape) is dict:
        return Members(shape)
    if type(shape) is Counters:
        return Members(shape.shapes, counters=True)
    if type(shape) is ByType:
        return ByType({kind: response_shape(inner) for kind, inner in shape.shapes.items()})
    return [response_shape(shape[0])] if type(shape) is list else shape


class DroppedUnless(msgspec.Struct, frozen=True):
    """The reason for dropping a value, and the strings and numbers in it that mean nothing."""

    reason: str
    ignorable: frozenset[str | int]


# In requests and responses:
# None: the reader takes the value, or no client of another protocol could use it: what repeats the request, padding,
# and the server's own bookkeeping (its ids, times, prices).
# A string: the reason why it is dropped. It is a loss if the value has any content.
# A mapping: an object with these members. A list of one: an array of such values.
# In requests only, a JSONType or a OneOf: the reader takes the value, which has to be of this type or one of these.
# A TakenIf: it takes the value, unless it has taken another member in its place.
Shape: TypeAlias = "str | _Row | dict[str, Shape] | list[Shape] | None"
_Row: TypeAlias = DroppedUnless | ByType | OneOf | TakenIf | Counters | Setting | JSONType


def members(names: str, row: Shape = None) -> dict[str, Shape]:
    """Return a row for each of some members, by default that of members which the reader takes.

    names: of the members, with spaces between them.
    """
    return dict.fromkeys(names.split(), row)


def taken_members(shape: Mapping[str, Shape]) -> frozenset[str]:
    """Return the names of the members that the reader takes, whatever their values are."""
    return frozenset([name for name, row in shape.items() if row is None])


# What hosts add to responses of any protocol for their own bookkeeping (seen in recorded responses, November 2026).
HOST_BOOKKEEPING = members(
    "copilot_usage "  # GitHub
    "kv_transfer_params "  # vLLM
    "native_finish_reason openrouter_metadata provider "  # OpenRouter; the first as the model's vendor names it
    "request_id "
    "timings"  # llama.cpp
)


# Returns the error for the value at a path that has to be of a type (by its name), in the words of the client's
# protocol. A value that is None is missing.
WrongType: TypeAlias = Callable[[str, str, JSON], RemoteProtocolError]


def read_members(
    value: JSONObject, shape: Mapping[str, Shape], wrong_type: WrongType, path: str = ""
) -> tuple[dict[Param, JSON], JSONObject]:
    """Return the settings of a request by their neutral names, in the order of the shape, and its `extra_members`.

    The types are checked, and a value that stands for another one is replaced in place. null means absent in all
    protocols. If two members have one neutral name, the later one in the shape wins.
    Raises the error of `wrong_type`.
    """
    settings: dict[str, dict[Param, JSON]] = {}  # by the names of their members
    extra: JSONObject = {}
    for name, member in value.items():
        row = shape.get(name, _NATIVE)
        if row is None or member is None:
            continue
        if type(row) is JSONType:
            if type(member) not in row.types:
                value[name] = row.checked(member, f"{path}/{name}", wrong_type)
        elif type(row) is Setting:
            if row.type is not None and type(member) not in row.type.types:
                member = value[name] = row.type.checked(member, f"{path}/{name}", wrong_type)
            if row.param is not None:
                settings[name] = {row.param: member}
            elif member != row.implied:
                extra[name] = member
        elif type(row) is dict:
            if type(member) is not dict:
                raise wrong_type(f"{path}/{name}", OBJECT.name, member)
            inner, left = read_members(member, row, wrong_type, f"{path}/{name}")
            if inner:
                settings[name] = inner
            if left:
                extra[name] = left
        elif not _is_read(value, member, row):
            extra[name] = member
    names = sorted(settings, key=list(shape).index) if len(settings) > 1 else settings
    return {param: member for name in names for param, member in settings[name].items()}, extra


def setting_paths(shape: Mapping[str, Shape], path: str = "") -> dict[Param, str]:
    """Return the path of each setting of a shape, for Request.param_paths. Compute it once per shape."""
    paths: dict[Param, str] = {}
    for name, row in shape.items():
        if type(row) is Setting and row.param is not None:
            paths[row.param] = f"{path}/{name}"
        elif type(row) is dict:
            paths.update(setting_paths(row, f"{path}/{name}"))
    return paths


def defined_members(*shapes: Mapping[str, Shape]) -> dict[str, bool | str]:
    """Return names for Request.defined: of members that can be lost, and of objects with other members."""
    defined: dict[str, bool | str] = {}
    for shape in shapes:
        for name, row in shape.items():
            if type(row) is Setting and row.param is None:
                defined[name] = True
            elif type(row) is TakenIf:
                defined[name] = RULED_OUT
            elif type(row) is dict:
                for inner, reason in {**defined_members(row), name: False}.items():
                    defined[inner] = reason or defined.get(inner, False)
    return defined


def extra_members(value: JSONObject, shape: Mapping[str, Shape]) -> JSONObject | None:
    """Return the members of an object that have no place in the document, nested as they came; None without any.

    They are not in the shape, or only this protocol has them. A member that is null counts as absent. One that
    is no object where the shape has one is the reader's to take or refuse.
    """
    extra: JSONObject = {}
    for name, member in value.items():
        row = shape.get(name, _NATIVE)
        if row is None or member is None or type(row) is JSONType:
            continue
        if type(row) is dict and type(member) is dict:
            inner = extra_members(member, row)
            if inner is not None:
                extra[name] = inner
        elif type(row) is Setting:
            if row.param is None and member != row.implied:
                extra[name] = member
        elif not _is_read(value, member, row):
            extra[name] = member
    return extra or None


def _is_read(value: JSONObject, member: JSON, row: Shape) -> bool:
    """True if the reader takes a member of an object, and leaves none of its own members."""
    if type(row) is OneOf:
        return member in row.values
    if type(row) is TakenIf:
        return not has_content(member) or all(
            value.get(name) in values for name, values in row.others.items()
        )
    if type(row) is ByType:
        kind = member.get("type") if type(member) is dict else None
        shape = row.shapes.get(kind) if type(kind) is str else None
        return type(shape) is dict and extra_members(member, shape) is None
    if type(row) is list and type(member) is list:
        [inner] = row
        return all(
            extra_members(item, inner) is None
            for item in member
            if type(item) is dict and type(inner) is dict
        )
    return True


# The row of a member that is not in a shape.
_NATIVE = Setting(None)


def has_content(value: JSON, nothing: frozenset[str | int] = frozenset()) -> bool:
    """True if a value has more in it than null, false, zero, empty values and those of `nothing`."""
    if type(value) is dict:
        return any(has_content(member, nothing) for member in value.values())
    if type(value) is list:
        return any(has_content(member, nothing) for member in value)
    return bool(value) and value not in nothing


def note_unread(
    value: JSON, shape: Shape, path: str, ledger: Ledger, inside: tuple[str | int, ...] = ()
) -> None:
    """Record what `value` has beyond its shape. It is at `inside` in the value at `path`. null is no loss.

    shape: from response_shape(). The path is built only for a record, because nearly every frame has nothing to record.
    """
    if type(shape) is Members:
        if type(value) is not dict or value.keys() <= shape.taken:
            return
        for key in filterfalse(shape.taken.__contains__, value):
            member, row = value[key], shape.get(key, _NATIVE)
            if member is None:
                continue
            if row is not _NATIVE:
                if member:  # nothing is lost with an empty value
                    note_unread(member, row, path, ledger, (*inside, key))
            elif not shape.counters or has_content(member):
                place = pointer(path, (*inside, key))
                ledger.add(LossCode.UNKNOWN_FIELD, place, "not a field of this protocol version")
    elif type(shape) is str:
        if has_content(value):
            ledger.dropped(pointer(path, inside), shape)
    elif type(shape) is DroppedUnless:
        if has_content(value, shape.ignorable):
            ledger.dropped(pointer(path, inside), shape.reason)
    elif type(shape) is list and type(value) is list:
        for index, item in enumerate(value):
            note_unread(item, shape[0], path, ledger, (*inside, index))
    elif type(shape) is ByType and type(value) is dict:
        name = value.get("type")
        note_unread(value, shape.shapes.get(name) if type(name) is str else None, path, ledger, inside)
    else:
        assert type(shape) is not dict  # see response_shape()


def pointer(path: str, inside: tuple[str | int, ...]) -> str:
    """Return the JSON Pointer to what is inside of the value at a path."""
    for key in inside:
        path = child(path, key)
    return path
