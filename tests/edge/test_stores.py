"""A response store whose file another process holds: no request waits for it longer than a quarter of a second."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path

import pytest
from edge import (
    CHAT_WHOLE,
    LOOPS,
    RESPONSES_PATH,
    Conversation,
    EdgeGateway,
    Upstream,
    post,
    read_response,
    whole,
)

pytestmark = [pytest.mark.process, pytest.mark.promise("R11")]


def responses(conversation: Conversation) -> None:
    while conversation.read() is not None:
        conversation.send(whole(CHAT_WHOLE))


@pytest.mark.parametrize("backend", LOOPS)
def test_a_locked_file_delays_no_response_and_is_reported(tmp_path: Path, backend: str) -> None:
    file = tmp_path / "responses.db"
    store = f'response_store = "sqlite"\nresponse_store_path = "{file}"'
    with (
        Upstream(responses) as upstream,
        EdgeGateway(tmp_path, upstream, backend=backend, server=store) as gateway,
    ):
        gateway.ready()

        def request() -> tuple[bool, float]:
            """Return if the response reports that it is stored, and how long that took."""
            begun = time.monotonic()
            with gateway.connect() as client:
                client.sendall(post(RESPONSES_PATH, {"model": "up/m", "input": "Hi"}))
                response = read_response(client)
            assert response.startswith(b"HTTP/1.1 200"), response
            return json.loads(response.partition(b"\r\n\r\n")[2])["store"], time.monotonic() - begun

        def until_stored() -> None:
            """The machine may be busy."""
            deadline = time.monotonic() + 20
            while not request()[0]:
                assert time.monotonic() < deadline

        until_stored()
        holder = sqlite3.connect(file, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        found = [request() for _ in range(3)]
        assert [stored for stored, _ in found] == [False] * 3
        # The machine may be busy with one of them.
        assert 0.2 < min(seconds for _, seconds in found) < 1.5  # it was 2 s and more
        holder.execute("ROLLBACK")
        holder.close()
        until_stored()
