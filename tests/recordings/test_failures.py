"""Failures of tests/conformance/failures/README.md, as real servers brought them about."""

from __future__ import annotations

from typing import Any

import corpus
import pytest
from failures.translate import check_failed, each, receive, same_meaning
from oracle import CHAT, MESSAGES, RESPONSES
from oracle.meaning import Kind

OTHERS = (MESSAGES, RESPONSES)


def recorded(name: str = "", *features: str) -> list[Any]:
    """Recorded streams by their name's beginning or their features."""
    return [
        pytest.param(each, id=each.name)
        for each in corpus.recordings()
        if each.name.startswith(name) and each.features.issuperset(features)
    ]


@each("client", OTHERS)
@pytest.mark.parametrize("recording", recorded("chat/parallel_tools"))
def test_A13_as_recorded(client: str, recording: corpus.Recording) -> None:
    """Parallel calls, as servers of many makers send them."""
    received = receive(CHAT, client, recording.read())
    assert same_meaning(CHAT, recording.read(), received) == []
    assert len(received.meaning.calls) > 1


@each("client", OTHERS)
@pytest.mark.parametrize("recording", recorded("chat/tool_no_index"))
def test_A14_as_recorded(client: str, recording: corpus.Recording) -> None:
    received = receive(CHAT, client, recording.read())
    assert same_meaning(CHAT, recording.read(), received) == []
    assert len(received.meaning.calls) == 1


@each("client", OTHERS)
@pytest.mark.parametrize("recording", [*recorded("", "reasoning_content"), *recorded("", "reasoning_field")])
def test_C6_as_recorded(client: str, recording: corpus.Recording) -> None:
    received = receive(CHAT, client, recording.read())
    assert same_meaning(CHAT, recording.read(), received) == []
    assert received.meaning.text(Kind.REASONING)


@each("client", (CHAT, MESSAGES))
@pytest.mark.parametrize("recording", recorded("responses/incomplete"))
def test_D8_as_recorded(client: str, recording: corpus.Recording) -> None:
    received = receive(RESPONSES, client, recording.read())
    assert same_meaning(RESPONSES, recording.read(), received) == []
    assert received.usage


@each("client")
@pytest.mark.parametrize(
    "recording", [case for kind in corpus.FOLDERS for case in recorded(f"{kind}/derived_eof")]
)
def test_E1_as_recorded(client: str, recording: corpus.Recording) -> None:
    upstream = recording.protocol
    received = receive(upstream, client, recording.read())
    check_failed(received)
    if client != upstream:
        assert same_meaning(upstream, recording.read(), received) == []


@each("client")
@pytest.mark.parametrize("recording", recorded("chat/error_midstream"))
def test_E11_as_recorded(client: str, recording: corpus.Recording) -> None:
    received = receive(CHAT, client, recording.read(), translates=True)
    check_failed(received)
    assert same_meaning(CHAT, recording.read(), received) == []
