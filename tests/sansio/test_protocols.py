"""Protocols are given by name or by spec."""

from importlib import import_module
from importlib.util import find_spec

import pytest

from dragoman.document import REFUSABLE_MEMBERS
from dragoman.protocols import PROTOCOLS, UPSTREAMS, client_spec, upstream_spec


def test_a_name_is_accepted_in_place_of_its_spec() -> None:
    assert client_spec("simple_chat") is PROTOCOLS["simple_chat"]
    assert upstream_spec("openai_chat") is UPSTREAMS["openai_chat"]


def test_a_spec_need_not_be_in_the_table() -> None:
    toy = UPSTREAMS["openai_chat"]
    assert client_spec(toy) is upstream_spec(toy) is toy


def test_an_unknown_name() -> None:
    with pytest.raises(ValueError, match="unknown protocol 'chat': expected one of openai_chat, "):
        client_spec("chat")


def test_a_protocol_without_upstreams() -> None:
    with pytest.raises(ValueError, match="no upstream speaks simple_chat: expected one of openai_chat, "):
        upstream_spec("simple_chat")


def test_the_names_in_tables_of_settings_are_settings() -> None:
    """mypy does not check them, because the names are those that the shapes of requests have."""
    known = {*REFUSABLE_MEMBERS, *(name for spec in PROTOCOLS.values() for name in spec.settings)}
    tables = {
        f"{spec.name} {attribute}": table
        for spec in UPSTREAMS.values()
        for module in ("tables", "request_out", "request_settings")
        if find_spec(f"dragoman.protocols.{spec.name}.{module}") is not None
        for attribute, table in vars(import_module(f"dragoman.protocols.{spec.name}.{module}")).items()
        if attribute
        in ("CONVERTERS", "NO_OP_VALUES", "REJECTED_PARAMS", "SAMPLING_PARAMS", "_NATIVE_CONVERTERS")
    }
    assert len(tables) >= 9
    for name, table in tables.items():
        assert known.issuperset(table), name
