"""The laws that hold for every pair of protocols (tests/_support/laws.py), over hand-written answers."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from law_clients import spec_of
from law_events import EVENTS, scripted
from laws import Law, Source, answered, asked, cases
from oracle import CHAT, CLIENTS, MESSAGES, PROTOCOLS, RESPONSES, check_stream
from oracle import samples as s

from dragoman import UPSTREAMS, Outcome, ResponseTranslator

SAMPLES = {CHAT: s.chat, MESSAGES: s.messages, RESPONSES: s.responses}


@cache
def sources() -> list[Source]:
    """Streams of real protocols: samples, and hand-written events in each protocol."""
    found = [Source(f"sample-{name}", name, s.render(name, SAMPLES[name]())) for name in PROTOCOLS]
    for label, events in EVENTS.items():
        spec, script = scripted(events)
        for name in PROTOCOLS:
            stream = answered(Source(label, "scripted", script, spec), name)
            found.append(Source(f"{label}-{name}", name, stream))
    return found


@pytest.mark.parametrize(("law", "source", "client"), cases(sources()))
@pytest.mark.promise("R3", "R4")
def test_a_law_holds(law: Law, source: Source, client: str) -> None:
    law(source, client)


def digest() -> str:
    """Of all hand-written answers in all protocols, streamed and whole."""
    seen = hashlib.sha256()
    for source in sources():
        for client in CLIENTS:
            seen.update(answered(source, client) + answered(source, client, streams=False))
    return seen.hexdigest()


def test_another_process_writes_the_same_bytes() -> None:
    """Sets of strings have another order in each process; no output may depend on it."""
    support = Path(__file__).parents[1] / "_support"
    code = "import test_laws; print(test_laws.digest())"
    env = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": f"{support}:{Path(__file__).parent}"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest()


@pytest.mark.parametrize("source", sources(), ids=repr)
def test_a_protocol_written_anew_is_as_its_vendor_has_it(source: Source) -> None:
    """Crossings are judged elsewhere; this is the reader and the writer of one protocol, without the relay."""
    sent = answered(source, source.protocol)
    assert check_stream(source.protocol, sent, include_usage=True) == []


def test_a_whole_answer_that_broke_off_is_a_failure() -> None:
    for upstream in PROTOCOLS:
        for client in CLIENTS:
            source = Source("sample", upstream, s.render(upstream, SAMPLES[upstream]()))
            body = answered(source, upstream, streams=False)
            specs = UPSTREAMS[upstream], spec_of(client)
            machine = ResponseTranslator(*specs, asked(client, streams=False), upstream_streams=False)
            machine.receive_data(body[:-1])
            machine.receive_eof()
            assert (machine.outcome, machine.data_to_send()) == (Outcome.FAILED, b"")
