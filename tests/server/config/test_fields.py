"""A setting is one annotated field: its kind, limits, choices, default and schema follow from it."""

from collections.abc import Mapping
from typing import Annotated

import pytest
from msgspec import Meta, Struct, field

from dragoman_server.settings import settings_of
from dragoman_server.settings.fields import Name, Proxy, Seconds, SettingKind, Wait
from dragoman_server.settings.secret import Secret
from dragoman_server.settings.values import InvalidValue, check_value


class Base(Struct, frozen=True, kw_only=True):
    color: Annotated[str | None, ("blue", "red"), "its color"] = None


class Toy(Base, frozen=True, kw_only=True):
    name: Annotated[Name, "its name"]
    size: Annotated[int | None, Meta(ge=1, le=9), "its size"] = None
    wait_s: Annotated[Wait, "how long it waits"] = 2.0
    run_s: Annotated[Seconds, Meta(ge=0.5, le=4), "how long it runs"] = 1.0
    loud: Annotated[bool, "makes a noise"] = False
    key: Annotated[Secret | None, Meta(min_length=8), "its key"] = None
    proxy: Annotated[Proxy | None, "its proxy"] = None
    parts: Annotated[tuple[str, ...], "its parts"] = ()
    tones: Annotated[tuple[str, ...] | None, ("low", "high"), "its tones"] = None
    hosts: Annotated[tuple[str, ...], SettingKind.HOSTS, "its hosts"] = ()
    codes: Annotated[tuple[int, ...], "its codes"] = ()
    headers: Annotated[Mapping[str, Secret], "its headers"] = field(default_factory=dict)
    internal: int = 0


KINDS = {
    "name": SettingKind.NAME,
    "size": SettingKind.INTEGER,
    "wait_s": SettingKind.SECONDS,
    "run_s": SettingKind.SECONDS,
    "loud": SettingKind.SWITCH,
    "key": SettingKind.SECRET,
    "proxy": SettingKind.PROXY,
    "parts": SettingKind.NAMES,
    "tones": SettingKind.CHOICES,
    "hosts": SettingKind.HOSTS,
    "codes": SettingKind.STATUSES,
    "headers": SettingKind.HEADERS,
    "color": SettingKind.CHOICE,
}


def test_own_settings_are_first_and_the_kind_follows_from_the_annotation() -> None:
    assert [(name, key.kind) for name, key in settings_of(Toy).items()] == list(KINDS.items())
    expected = {"parts", "tones", "hosts", "codes"}
    assert {name for name, key in settings_of(Toy).items() if key.many} == expected
    assert [name for name, key in settings_of(Toy).items() if key.required] == ["name"]


def test_defaults_and_help() -> None:
    keys = settings_of(Toy)
    assert (keys["wait_s"].default, keys["loud"].default, keys["size"].default) == (2.0, False, None)
    assert (keys["color"].default, keys["color"].help) == (None, "its color")


def checked(name: str, value: object) -> object:
    """Return the value for the settings, or the error."""
    try:
        return check_value(settings_of(Toy)[name], value, value)
    except InvalidValue as error:
        return str(error)


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("size", 9, 9),
        ("size", 10, "10 is out of range: from 1 to 9"),
        ("size", 1.0, "expected an integer, found a float"),
        ("wait_s", 3600, 3600.0),
        ("wait_s", 3601, "3601 is out of range: from 0 to 3600 seconds"),
        ("run_s", 0.25, "0.25 is out of range: from 0.5 to 4 seconds"),
        ("run_s", 10**400, f"{10**400} is out of range: from 0.5 to 4 seconds"),
        ("loud", "", "expected true or false, found a string"),
        ("size", "", "expected an integer, found a string"),
        ("name", "", "is empty"),
        ("key", "x" * 8, Secret("x" * 8)),
        ("key", "x" * 7, "is too short: at least 8 characters are required, as from `openssl rand -hex 32`"),
        ("color", "blu", 'unknown color "blu"; did you mean "blue"?'),
        ("tones", ["low", "high"], ("low", "high")),
        ("tones", ["low", "lo"], 'unknown tone "lo"; did you mean "low"?'),
        ("codes", [400, 400], (400, 400)),
        ("parts", ["{}"], ("{}",)),
    ],
)
def test_a_value_is_checked_by_its_annotation(name: str, value: object, found: object) -> None:
    assert checked(name, value) == found
