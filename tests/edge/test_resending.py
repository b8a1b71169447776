"""A request is sent again only if no server has read the first one, and that is counted (RFC 9110, 9.2.2)."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from edge import (
    CHAT_PATH,
    CHAT_WHOLE,
    LOOPS,
    Conversation,
    EdgeGateway,
    Upstream,
    chat,
    post,
    read_response,
    reset_at_close,
    wait_until,
    whole,
)
from trials import trials

pytestmark = [pytest.mark.process, pytest.mark.promise("R6")]

KEY_A = b"authorization: bearer key-a"
ACCOUNTS = "".join(
    f'[[accounts]]\nupstream = "up"\nname = "{name}"\napi_key = "key-{name}"\n' for name in ("a", "b")
)


@pytest.fixture(scope="module", params=LOOPS)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Upstream, EdgeGateway]]:
    with (
        Upstream() as upstream,
        EdgeGateway(
            tmp_path_factory.mktemp("resending"), upstream, backend=request.param, more=ACCOUNTS
        ) as gateway,
    ):
        yield upstream, gateway.ready()


def send(gateway: EdgeGateway, conversation: str) -> dict[str, Any]:
    """Return the log line of a successful request. The requests of a conversation stay with one account."""
    before = len(lines(gateway))
    with gateway.connect() as client:
        messages = [{"role": "user", "content": conversation}]
        client.sendall(post(CHAT_PATH, {**chat(stream=False), "messages": messages}))
        response = read_response(client)
    assert response.startswith(b"HTTP/1.1 200"), response
    wait_until(lambda: len(lines(gateway)) > before)
    return lines(gateway)[-1]


def lines(gateway: EdgeGateway) -> list[dict[str, Any]]:
    return [line for line in gateway.log() if line["logger"] == "dragoman.requests"]


def requests(upstream: Upstream) -> list[bytes]:
    return [request.lower() for each in upstream.conversations for request in each.requests]


def test_a_request_that_was_read_is_not_sent_to_the_same_account_again(
    running: tuple[Upstream, EdgeGateway],
) -> None:
    """The upstream reads the request on a reused connection, works for a second, and closes without a byte."""
    upstream, gateway = running
    before = len(upstream.conversations)

    def works_and_closes(conversation: Conversation) -> None:
        while conversation.read() is not None:
            if len(conversation.requests) > 1 and conversation is upstream.conversations[before]:
                time.sleep(1)
                return
            conversation.send(whole(CHAT_WHOLE))

    upstream.script = works_and_closes
    first = send(gateway, "work")["account"]
    line = send(gateway, "work")
    assert [len(each.requests) for each in upstream.conversations[before:]] == [2, 1]
    keys = [KEY_A in request for request in requests(upstream)[-3:]]
    assert keys[0] == keys[1] != keys[2]
    assert line["account"] != first
    assert line["attempts"] == 2
    (failure,) = line["failures"]
    assert failure["account"] == first
    assert "without a response" in failure["cause"]
    assert failure["seconds"] >= 1


@pytest.mark.parametrize("resetting", [True, False], ids=["RST", "FIN"])
def test_a_request_that_was_not_read_is_sent_again_and_counted(
    running: tuple[Upstream, EdgeGateway], resetting: bool
) -> None:
    """The upstream closes an idle connection at the moment when the request arrives."""
    upstream, gateway = running

    def closes_on_second_request(conversation: Conversation) -> None:
        if conversation.read() is None:
            return
        conversation.send(whole(CHAT_WHOLE))
        if not conversation.socket.recv(1, socket.MSG_PEEK):
            return
        if resetting:
            reset_at_close(conversation.socket)
        else:
            conversation.socket.shutdown(socket.SHUT_WR)
            conversation.until_closed()

    upstream.script = closes_on_second_request
    for trial in trials():
        for each in upstream.conversations:
            each.close()
        before, conversation = len(requests(upstream)), f"race {resetting}"
        account = send(gateway, conversation)["account"]
        line = send(gateway, conversation)
        assert len(requests(upstream)) == before + 2  # beside the one that was never read
        assert (line["account"], line["attempts"]) == (account, 2)
        (failure,) = line["failures"]
        assert failure["account"] == account
        assert "the idle connection was closed" in failure["cause"]
        with trial:
            assert failure["seconds"] < 0.5
