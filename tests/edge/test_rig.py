"""The rig itself: a request goes through and comes back, on each backend."""

from __future__ import annotations

import pytest
from edge import CHAT_PATH, Gateways, Stopwatch, chat, post, read_response, waits
from trials import trials

pytestmark = pytest.mark.process


def test_a_stream_comes_through(gateways: Gateways, backend: str) -> None:
    with gateways.lend(backend) as (upstream, gateway):
        with gateway.connect() as client:
            client.sendall(post(CHAT_PATH, chat()))
            response = read_response(client)
        assert b'"content":"Hello"' in response.replace(b" ", b"")
        assert b"[DONE]" in response
        (conversation,) = upstream.conversations
        assert len(conversation.requests) == 1


@pytest.mark.promise("R1")
def test_a_client_that_leaves_a_stream_closes_the_upstream(gateways: Gateways, backend: str) -> None:
    with gateways.lend(backend, waits) as (upstream, gateway):
        for trial in trials():
            with trial:
                with gateway.connect() as client:
                    client.sendall(post(CHAT_PATH, chat()))
                    while b"Hello" not in client.recv(65536):
                        pass
                    watch = Stopwatch(gateway)
                assert watch.seconds(upstream.wait_closed(upstream.conversations[-1])) < 0.25
