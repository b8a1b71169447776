"""The laws that hold for every pair of protocols (tests/_support/laws/pairs.py), over hand-written responses."""

import hashlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from laws.clients import spec_of
from laws.events import EVENTS, scripted
from laws.pairs import LAWS, Law, Source, requested, translated_response
from oracle import CHAT, GEMINI, MESSAGES, PROTOCOL_NAMES, RESPONSES
from oracle import samples as s

from dragoman import UPSTREAMS, Outcome, ResponseTranslator
from dragoman.testing import chop

SAMPLES = {CHAT: s.chat, MESSAGES: s.messages, RESPONSES: s.responses, GEMINI: s.gemini}


@cache
def sources() -> list[Source]:
    """Streams of real protocols: samples, and hand-written events in each protocol."""
    found = [Source(f"sample-{name}", name, s.render(name, SAMPLES[name]())) for name in PROTOCOL_NAMES]
    for label, events in EVENTS.items():
        spec, script = scripted(events)
        for name in PROTOCOL_NAMES:
            stream = translated_response(Source(label, "scripted", script, spec), name)
            found.append(Source(f"{label}-{name}", name, stream))
    return found


@pytest.mark.promise("R4", "R12", "R3")
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_law_holds(law: Law, subtests: pytest.Subtests) -> None:
    for source in sources():
        for client in PROTOCOL_NAMES:
            if LAWS[law](source, client):
                with subtests.test(source=source.name, client=client):
                    law(source, client)


# Chunk boundaries. The law `the_network_may_cut_anywhere` has every stream byte by byte, in chunks of some sizes and in
# two at some places, for all clients; this is in two at every third place. Who reads it does not matter here.


@pytest.mark.promise("R4")
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_g1_a_stream_may_be_cut_in_two_anywhere(protocol: str) -> None:
    source = Source("sample", protocol, s.render(protocol, SAMPLES[protocol]()))
    client = CHAT if protocol == MESSAGES else MESSAGES
    sent = translated_response(source, client)
    for at in range(0, len(source.stream) + 1, 3):
        chunks = [source.stream[:at], source.stream[at:]]
        assert translated_response(source, client, chunks) == sent, at


def with_all_sse_syntax(stream: bytes, ending: bytes) -> bytes:
    """Return the stream with a byte order mark, comments, other fields, values of several lines and these line ends."""
    lines = []
    for line in (b"\xef\xbb\xbf" + stream).split(b"\n"):
        if line.startswith(b"data: {"):
            lines += [b"retry: 5", b": a comment", b":", b"data:{", b"data: " + line.removeprefix(b"data: {")]
        else:
            lines.append(line)
    return ending.join(lines)


@pytest.mark.promise("R4")
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_g7_a_stream_may_use_all_of_the_sse_syntax(protocol: str) -> None:
    plain = Source("sample", protocol, s.render(protocol, SAMPLES[protocol]()))
    client = CHAT if protocol == MESSAGES else MESSAGES
    sent = translated_response(plain, client)
    for ending in (b"\n", b"\r\n", b"\r"):
        other = Source("rewritten", protocol, with_all_sse_syntax(plain.stream, ending))
        for chunks in chop(other.stream, places=40):
            assert translated_response(other, client, chunks) == sent, ending


def digest() -> str:
    """Return the hash of all hand-written responses in all protocols, each streamed or whole."""
    seen = hashlib.sha256()
    for source in sources():
        for client in PROTOCOL_NAMES:
            seen.update(translated_response(source, client, streams=client == CHAT))
    return seen.hexdigest()


def test_another_process_writes_the_same_bytes() -> None:
    """Sets of strings have another order in each process; no output may depend on it."""
    support = Path(__file__).parents[1] / "_support"
    code = "import test_laws; print(test_laws.digest())"
    env = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": f"{support}:{Path(__file__).parent}"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest()


def test_a_truncated_whole_response_is_a_failure() -> None:
    for upstream in PROTOCOL_NAMES:
        for client in PROTOCOL_NAMES:
            source = Source("sample", upstream, s.render(upstream, SAMPLES[upstream]()))
            body = translated_response(source, upstream, streams=False)
            machine = ResponseTranslator(
                client=spec_of(client),
                upstream=UPSTREAMS[upstream],
                context=requested(client, streams=False),
                upstream_streams=False,
            )
            machine.receive_data(body[:-1])
            machine.receive_eof()
            assert (machine.outcome, machine.data_to_send()) == (Outcome.FAILED, b"")
