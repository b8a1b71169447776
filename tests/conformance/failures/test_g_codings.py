"""G. Content codings: bodies that a client or an upstream compresses, and that neither gets the other's coding."""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from failures.gateway import KEY, UpstreamResponse, gateway, path_of, received_at, request_for
from failures.responses import Text, frames, stream
from failures.translate import each, every_pair
from gateway.fakes import FakeClient, Sleep
from oracle import (
    CHAT,
    CLIENTS,
    MESSAGES,
    PROTOCOL_NAMES,
    RESPONSES,
    check_error,
    check_whole,
    meaning_of_client_stream,
    meaning_of_whole,
)
from oracle import samples as s
from oracle.meaning import Kind

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

pytestmark = [pytest.mark.anyio, pytest.mark.each_protocol]

Json = dict[str, Any]


CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "zstd": zstd.compress,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
}
each_coding = pytest.mark.parametrize("coding", CODINGS)


def packed(coding: str, body: Json) -> tuple[bytes, dict[str, str]]:
    """A body as a client packs it, with the headers that it sends then."""
    data = CODINGS[coding](json.dumps(body).encode())
    return data, {
        "content-encoding": coding,
        "content-length": str(len(data)),
        "content-type": "application/json",
        "accept-encoding": "zstd, br",
    }


@every_pair()
@each_coding
async def test_G10_a_compressed_request_is_read(client: str, upstream: str, coding: str) -> None:
    """It is sent on decoded, without its old coding and length."""
    play = UpstreamResponse([stream(upstream, Text("Hello"))])
    body = request_for(client, upstream, messages=[{"role": "user", "content": "Grüße " * 500}])
    if client == RESPONSES:
        body["input"] = body.pop("messages")
    async with gateway(upstream, play) as up:
        plain = await up.call(path_of(client), body)
        data, headers = packed(coding, body)
        assert len(data) < len(json.dumps(body)) // 10
        received = await up.call(path_of(client), data, headers=headers)
    assert (plain.status, received.status) == (200, 200), received.body
    assert meaning_of_client_stream(client, received.body).text(Kind.TEXT) == "Hello"
    first, second = up.network.requests
    assert json.loads(second.content) == json.loads(first.content)
    assert second.headers["content-length"] == str(len(second.content))
    assert "content-encoding" not in second.headers


@each("client", CLIENTS)
@pytest.mark.parametrize("coding", ["br", "compress", "gzip, br", "snappy"])
async def test_G10_other_content_codings_are_refused_by_name(client: str, coding: str) -> None:
    """Not taken for JSON that is not valid."""
    async with gateway(CHAT) as up:
        body = json.dumps(request_for(client, CHAT)).encode()
        received = await up.call(path_of(client), body, headers={"content-encoding": coding})
    check_refusal(client, received, 415)
    assert received.headers["accept-encoding"] == "gzip, deflate, zstd"
    assert not up.network.requests


def check_refusal(client: str, received: FakeClient, status: int) -> str:
    """The message of a refusal in the client's form."""
    assert received.status == status, received.body
    if client in PROTOCOL_NAMES:
        assert check_error(client, status, received.body) == []
    message: str = json.loads(received.body)["error"]["message"]
    return message


@each("client", CLIENTS)
@pytest.mark.parametrize("cut", [True, False], ids=["cut", "plain"])
@each_coding
async def test_G10_a_body_that_does_not_match_its_content_encoding_is_refused(
    client: str, coding: str, cut: bool
) -> None:
    body = json.dumps(request_for(client, CHAT)).encode()
    data = CODINGS[coding](body)[:-5] if cut else body
    async with gateway(CHAT) as up:
        received = await up.call(path_of(client), data, headers={"content-encoding": coding})
    assert "unpacked" in check_refusal(client, received, 400)
    assert not up.network.requests


@each_coding
async def test_G12_a_small_body_that_expands_beyond_the_limit_is_refused(coding: str) -> None:
    """The limit is for the decoded body, and there is one by default; nothing of the body reaches the upstream."""
    limits: list[tuple[str, int, Json]] = [(client, 2**16, {"max_body_bytes": 2**16}) for client in CLIENTS]
    for client, limit, server in [*limits, (MESSAGES, 64 * 2**20, {})]:
        bomb = CODINGS[coding](b'{"model": "up/m", "x": "' + b" " * max(limit, 2**17))
        assert len(bomb) < 2**17
        async with gateway(CHAT, **server) as up:
            received = await up.call(path_of(client), bomb, headers={"content-encoding": coding})
        assert not up.network.requests
        assert str(limit) in check_refusal(client, received, 413)


def headers_of(coding: str, data: bytes, kind: str) -> tuple[tuple[str, str], ...]:
    return (
        ("content-encoding", coding),
        ("content-length", str(len(data))),
        ("content-type", kind),
        ("vary", "accept-encoding"),
    )


def check_plain(received: FakeClient) -> None:
    """The headers do not name a coding that the body no longer has."""
    assert received.status == 200, received.body
    assert "content-encoding" not in received.headers
    length = received.headers.get("content-length")
    assert length in (None, str(len(received.body)))


@every_pair()
@each_coding
async def test_G11_a_decoded_stream_has_no_content_encoding(client: str, upstream: str, coding: str) -> None:
    data = CODINGS[coding](stream(upstream, Text("Hello")))
    play = UpstreamResponse([data[:9], data[9:]], headers=headers_of(coding, data, "text/event-stream"))
    async with gateway(upstream, play) as up:
        received = await up.call(path_of(client), request_for(client, upstream))
    check_plain(received)
    assert "content-length" not in received.headers
    assert meaning_of_client_stream(client, received.body).text(Kind.TEXT) == "Hello"


@every_pair(PROTOCOL_NAMES)
@each_coding
async def test_G11_a_decoded_whole_response_has_no_content_encoding(
    client: str, upstream: str, coding: str
) -> None:
    data = CODINGS[coding](json.dumps(s.WHOLE[upstream]).encode())
    play = UpstreamResponse([data], headers=headers_of(coding, data, "application/json"))
    async with gateway(upstream, play) as up:
        received = await up.call(path_of(client), request_for(client, upstream, stream=False))
    check_plain(received)
    assert received.headers["content-length"] == str(len(received.body))
    assert check_whole(client, received.body) == []
    assert [call.name for call in meaning_of_whole(client, received.body).calls] == ["f"]


BUSY: dict[str, Json] = {
    CHAT: {"error": {"message": "slow down", "type": "tokens", "param": None, "code": "rate_limit_exceeded"}},
    MESSAGES: {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}},
    RESPONSES: {"error": {"message": "slow down", "type": "tokens", "param": None, "code": "rate_limit_exceeded"}},
}  # fmt: skip


@every_pair()
@each_coding
async def test_G11_a_decoded_error_has_no_content_encoding(client: str, upstream: str, coding: str) -> None:
    data = CODINGS[coding](json.dumps(BUSY[upstream]).encode())
    play = UpstreamResponse([data], status=429, headers=headers_of(coding, data, "application/json"))
    async with gateway(upstream, play) as up:
        received = await up.call(path_of(client), request_for(client, upstream))
    assert "content-encoding" not in received.headers
    assert received.headers["content-length"] == str(len(received.body))
    assert "slow down" in check_refusal(client, received, 429)


@each("client", CLIENTS)
async def test_G11_compressed_events_are_sent_one_by_one(client: str) -> None:
    """To unpack does not mean to wait for the end."""
    packer = zlib.compressobj(wbits=31)
    steps: list[bytes | Sleep] = []
    for frame in frames(stream(CHAT, Text("one-"), Text("two-"))):
        steps += [packer.compress(frame) + packer.flush(zlib.Z_SYNC_FLUSH), Sleep(1)]
    play = UpstreamResponse([*steps, packer.flush()], headers=(("content-encoding", "gzip"),))
    async with gateway(CHAT, play) as up:
        received = await up.call(path_of(client), request_for(client, CHAT))
    times = [received_at(received, lambda data, word=word: word in data) for word in (b"one-", b"two-")]  # type: ignore[misc]
    assert times == [1, 2]


@every_pair()
@pytest.mark.parametrize("accept_encoding", ["br", "zstd, br;q=0.9", "*", "compress"])
async def test_G13_the_clients_accept_encoding_is_not_forwarded(
    client: str, upstream: str, accept_encoding: str
) -> None:
    """The gateway requests codings that it can read, whoever the client is."""
    async with gateway(upstream, UpstreamResponse([stream(upstream, Text("Hello"))])) as up:
        received = await up.call(
            path_of(client), request_for(client, upstream), headers={"accept-encoding": accept_encoding}
        )
        await up.call(path_of(client), request_for(client, upstream))
    assert received.status == 200
    assert [each.headers["accept-encoding"] for each in up.network.requests] == ["identity", "identity"]


@each("client", CLIENTS)
@each("upstream")
async def test_G13_a_response_in_another_coding_is_an_error(client: str, upstream: str) -> None:
    """Some upstreams pack all the same: nothing that cannot be read is passed on."""
    play = UpstreamResponse([b"\x8b\x02\x80Hello\x03"], headers=(("content-encoding", "br"),))
    async with gateway(upstream, play) as up:
        received = await up.call(path_of(client), request_for(client, upstream))
    assert "'br'" in check_refusal(client, received, 502)
    assert KEY.encode() not in received.body
