"""Protocols are given by name or by spec."""

import pytest

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
