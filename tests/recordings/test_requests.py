"""Recorded requests that are read and written again for an upstream of the same protocol."""

from pathlib import Path

import pytest
from corpus import FOLDERS, files

from dragoman import UPSTREAMS, RequestTranslator
from dragoman._wire.json import decode, decode_object, encode

REQUESTS = [*files("messages/*.request.json"), *files("responses/*.request.json")]


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_requests_come_back_whole(path: Path) -> None:
    body = decode_object(path.read_bytes(), "the recorded request")
    # It looks like a wrapped signature, so the body is no relay of bytes.
    body = {**body.get("body", body), "wrapped": "drg1."}  # type: ignore[dict-item]
    spec = UPSTREAMS[FOLDERS[path.parent.name]]
    out = RequestTranslator(client=spec, upstream=spec).translate(encode(body))
    assert (decode(out.body), len(out.losses)) == (body, 0)
