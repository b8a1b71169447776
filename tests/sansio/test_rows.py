"""What readers and writers make of the rows in the protocols' folders is what stands there: see core/rows.py."""

import re
from pathlib import Path

import pytest
import rows
from core.fast_path import both_ways
from core.rows import FILES, TESTS, frame_of, rows_of, written

from dragoman import UPSTREAMS
from dragoman._wire.sse import encode_frame


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
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
