"""The rig itself: a request goes through and comes back, on each backend."""

from __future__ import annotations

from pathlib import Path

import pytest
from edge import CHAT_PATH, EdgeGateway, Upstream, chat, post, read_response, waits

pytestmark = pytest.mark.process


def test_a_stream_comes_through(tmp_path: Path, backend: str) -> None:
    with Upstream() as upstream, EdgeGateway(tmp_path, upstream, backend=backend).ready() as gateway:
        with gateway.connect() as client:
            client.sendall(post(CHAT_PATH, chat()))
            answer = read_response(client)
        assert b'"content":"Hello"' in answer.replace(b" ", b"")
        assert b"[DONE]" in answer
        (conversation,) = upstream.conversations
        assert len(conversation.requests) == 1


@pytest.mark.promise("R1")
def test_a_client_that_leaves_a_stream_closes_the_upstream(tmp_path: Path, backend: str) -> None:
    with Upstream(waits) as upstream, EdgeGateway(tmp_path, upstream, backend=backend).ready() as gateway:
        with gateway.connect() as client:
            client.sendall(post(CHAT_PATH, chat()))
            while b"Hello" not in client.recv(65536):
                pass
        upstream.wait_closed(upstream.conversations[0], within_s=0.25)
