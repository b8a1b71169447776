"""A reader that says of no message and no result that it is plain leads to the same request, with the same losses."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from laws.conversations import MODEL, SCRIPTS, SIGNER, Script, requests
from laws.fixtures import REQUESTS
from oracle import PROTOCOL_NAMES

from dragoman import UPSTREAMS, Loss, RequestRefused, RequestTranslator
from dragoman._ir.native import Node
from dragoman._wire.json import encode
from dragoman._wire.splice import peek
from dragoman.codec import Capabilities, UpstreamSpec

REWRITES = Capabilities(relay="rewrite")


def not_plain(node: Any) -> Any:
    if isinstance(node, tuple):
        return tuple([not_plain(each) for each in node])
    if not isinstance(node, Node):
        return node
    content = {"content": not_plain(getattr(node, "parts", ()))} if hasattr(node, "parts") else {}
    return msgspec.structs.replace(node, plain_text="", **content)


def translated(client: UpstreamSpec, upstream: str, body: bytes) -> tuple[bytes, list[Loss]] | str:
    translator = RequestTranslator(client=client, upstream=upstream, capabilities=REWRITES, signer=SIGNER)
    head = peek(body, MODEL) if client.model_in_path else None
    try:
        out = translator.translate(body, model=MODEL, request_head=head)
    except RequestRefused as error:
        return error.message
    return out.body, list(out.losses)


def check(client: str, body: bytes) -> None:
    def read(*args: Any) -> Any:
        request = UPSTREAMS[client].read_request(*args)
        return msgspec.structs.replace(request, messages=not_plain(request.messages))

    reads_none = msgspec.structs.replace(UPSTREAMS[client], read_request=read)
    for upstream in PROTOCOL_NAMES:
        found = translated(UPSTREAMS[client], upstream, body)
        assert found == translated(reads_none, upstream, body), upstream


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
def test_fixtures(client: str) -> None:
    for body in REQUESTS[client].values():
        check(client, encode(body))


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(SCRIPTS)
def test_conversations(client: str, script: Script) -> None:
    for body in requests(script, client)[-1:]:
        check(client, body)
