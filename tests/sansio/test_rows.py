"""What readers and writers make of the rows in the protocols' folders is what stands there: see core/rows.py."""

import re
from pathlib import Path
from typing import Any

import pytest
import rows
from core.fast_path import both_ways
from core.rows import FILES, TESTS, frame_of, read_request, rows_of, written
from core.words import shown
from laws.plant import objects, planted

from dragoman import UPSTREAMS
from dragoman._wire.json import decode, encode
from dragoman._wire.sse import encode_frame

# Tables that tests of their own read.
OTHERS = {"histories", "shapes"}


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if path.stem not in OTHERS],
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_rows(path: Path) -> None:
    rows.compare(path, written(path))


@pytest.mark.parametrize("protocol", UPSTREAMS)
def test_the_fast_path_reads_each_stream_alike(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A title has the number of frames that the fast path reads at least."""
    for row in rows_of(TESTS / "sansio" / protocol / "response_in.txt"):
        found = re.match(r"# fast path, (\d+) frames", "".join(row.heads))
        frames = [frame_of(line, named=True) for line in row.inputs if not line.startswith("whole ")]
        stream = b"".join(encode_frame(frame.data, frame.event) for frame in frames) if row.heads else b""
        for client in UPSTREAMS.keys() - {protocol}:
            taken = both_ways(protocol, client, stream, monkeypatch)
            assert found is None or taken >= int(found[1]), row.heads


of_agents = pytest.mark.parametrize("protocol", ["anthropic_messages", "openai_chat", "openai_responses"])


@of_agents
def test_common_shapes_are_read_as_by_the_general_code(protocol: str) -> None:
    """With an unknown member, each is read by the general code."""
    for row in rows_of(TESTS / "sansio" / protocol / "request_in.txt"):
        for line in row.inputs if "# common shapes, which are read by code of their own" in row.heads else ():
            body = decode(line.encode())
            for place in objects(body):
                # Not at the top, and not in what is kept whole.
                if re.fullmatch(r"/\w+(/\d+)(?!/content/\d+/input|.*/annotations/\d).*/xPlanted", place.path):
                    changed = encode(planted(body, place, "odd")[0]).decode()
                    requests: Any = [read_request(protocol, each, {}) for each in (line, changed)]
                    short, long = (shown(each.messages) for each in requests)
                    assert re.sub(r", unknown=\{.*?'odd'\}+", "", long) == short != long


@of_agents
def test_paths_go_on_beyond_those_made_beforehand(protocol: str) -> None:
    turns = [{"role": "user", "content": "a"}] * 600
    member = "input" if protocol == "openai_responses" else "messages"
    request: Any = read_request(protocol, encode({"model": "m", "max_tokens": 9, member: turns}).decode(), {})
    assert [message.path for message in request.messages] == [f"/{member}/{n}" for n in range(600)]
