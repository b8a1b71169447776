"""Requests from the client's bytes to the upstream's, and errors the other way, between toy protocols."""

from typing import Any

import msgspec
import pytest
from core.toy_protocol import toy

from dragoman._engine.errors import translate_error
from dragoman._engine.request import RequestTranslator
from dragoman._ir.losses import Ledger, LossCode, LossPolicy
from dragoman._ir.request import Request
from dragoman._ir.undo import Undo
from dragoman._ir.wrapped_signatures import Signer
from dragoman._wire.errors import ErrorKind
from dragoman._wire.exceptions import RemoteProtocolError, RequestRefused
from dragoman._wire.json import decode, encode
from dragoman._wire.splice import peek
from dragoman.codec import Capabilities, Endpoint, ProtocolSpec, UpstreamSpec
from dragoman.protocols import UPSTREAMS

UPSTREAM = toy("upstream")
CLIENT = toy("client")  # has choices and parallel blocks


def request_body(**fields: Any) -> bytes:
    return encode({"model": "alias", "messages": [], **fields})


def translated(
    body: bytes, *, upstream: ProtocolSpec = UPSTREAM, **options: Any
) -> tuple[dict[str, Any], Any]:
    out = RequestTranslator(client=CLIENT, upstream=upstream, **options).translate(body, model="wire-model")
    return decode(out.body), out


def losses_of(ledger: Ledger) -> list[tuple[LossCode, str]]:
    return [(loss.code, loss.path) for loss in ledger]


@pytest.mark.parametrize("client", [CLIENT, UPSTREAM])  # translated, relayed
def test_members_that_the_upstream_has_refused_are_left_out(client: ProtocolSpec) -> None:
    body = b'{"model": "m", "heat": 0.50, "messages": [], "until": null}'
    translator = RequestTranslator(client=client, upstream=UPSTREAM)
    whole = translator.translate(body, left_out=("gone", "messages"))
    assert whole.body == translator.translate(body).body  # content is sent, whatever was refused
    out = translator.translate(body, left_out=("heat",))
    assert decode(out.body) == {k: v for k, v in decode(whole.body).items() if k != "heat"}
    assert (whole.members, out.members) == (decode(whole.body).keys(), decode(out.body).keys())
    assert losses_of(out.losses)[-1:] == [(LossCode.DROPPED, "/heat")]
    strict = RequestTranslator(client=client, upstream=UPSTREAM, policy=LossPolicy.REFUSE)
    with pytest.raises(RequestRefused, match="heat"):
        strict.translate(b'{"model": "m", "heat": 0.5, "messages": []}', left_out=("heat",))


def test_the_response_context_of_a_request() -> None:
    signer = Signer(b"k")
    rewrite = Capabilities(relay="rewrite")
    for upstream in (UPSTREAM, CLIENT):
        translator = RequestTranslator(client=CLIENT, upstream=upstream, capabilities=rewrite)
        out = translator.translate(request_body(compact=True), model="wire-model")
        context = out.response_context(id="x1", now=7, signer=signer)
        assert (context.request.model, context.id, context.now) == ("alias", "x1", 7)
        assert (context.model, context.signer, context.prompt_tokens) == ("alias", signer, out.prompt_tokens)
        assert (context.undo, context.rewritten) == (out.undo, upstream is CLIENT)
        assert context.upstream_model == "wire-model"
        assert out.response_context(id="x1", now=7, model="told").model == "told"


def test_the_response_context_does_not_hold_the_conversation() -> None:
    """A stream may stay open for hours, with a prompt of megabytes."""
    messages = [{"role": "user", "parts": [{"t": "text", "text": "hi"}]}]
    body = request_body(heat=0.5, messages=messages, tools=[{"t": "function", "name": "look"}])
    out = RequestTranslator(client=CLIENT, upstream=UPSTREAM).translate(body)
    assert out.request.messages
    assert out.request.tools
    request = out.response_context(id="x1", now=7).request
    assert (request.messages, request.tools, request.namespaces) == ((), (), ())
    assert request.params == out.request.params != {}


def test_the_signer_reaches_the_reader() -> None:
    seen: list[Signer] = []

    def read(body: dict[str, Any], signer: Signer) -> Request:
        seen.append(signer)
        return CLIENT.read_request(body, signer)

    client = msgspec.structs.replace(CLIENT, read_request=read)
    RequestTranslator(client=client, upstream=UPSTREAM, signer=Signer(b"k")).translate(request_body())
    assert seen == [Signer(b"k")]


def exhausted(*arguments: object) -> Any:
    """As encoding does with a value that is nested deeper than the stack allows."""
    raise RecursionError


@pytest.mark.promise("S9")
def test_a_request_that_is_nested_too_deep() -> None:
    with pytest.raises(RemoteProtocolError, match="nested too deep"):
        translated(request_body(new_field=1)[:-2] + b"[" * 100_000)  # how deep is too deep differs by version
    reader = msgspec.structs.replace(CLIENT, read_request=exhausted)
    writer = msgspec.structs.replace(UPSTREAM, write_request=exhausted)
    for client, upstream in ((reader, UPSTREAM), (CLIENT, writer)):
        with pytest.raises(RemoteProtocolError, match="nested too deep"):
            RequestTranslator(client=client, upstream=upstream).translate(request_body())


@pytest.mark.promise("R12")
def test_a_relay_keeps_the_bytes() -> None:
    body = b'{ "new_field": 1.50, "model" : "alias", "stream":true }'
    out = RequestTranslator(client=CLIENT, upstream=toy("client"), policy=LossPolicy.REFUSE).translate(
        body, model="wire"
    )
    assert out.body == body.replace(b"alias", b"wire")
    assert (out.relayed, len(out.losses), out.undo) == (True, 0, Undo())
    assert (out.request.model, out.request.stream, out.request.protocol) == ("alias", True, "client")
    assert out.prompt_tokens == len(body) // 4


def test_a_relay_without_another_model() -> None:
    body = b'{"model":"alias"}'
    assert RequestTranslator(client=CLIENT, upstream=CLIENT).translate(body).body is body


@pytest.mark.parametrize(
    ("protocol", "capabilities", "in_body", "sent"),
    [
        ("openai_chat", Capabilities(), "other", "m"),
        ("openai_chat", Capabilities(), "m", "m"),
        ("gemini", Capabilities(), "models/other", "models/m"),
        ("gemini", Capabilities(), "other", "models/m"),
        ("gemini", Capabilities(), "models/m", "models/m"),
        ("gemini", Capabilities(), "m", "m"),
        ("gemini", Capabilities(relay="rewrite"), "models/other", None),
    ],
)
@pytest.mark.parametrize("model", ["m", None])
@pytest.mark.parametrize("signed", [True, False])
def test_an_upstream_gets_no_model_but_that_of_the_path(
    protocol: str, capabilities: Capabilities, in_body: str, sent: str | None, model: str | None, signed: bool
) -> None:
    body = b'{ "model" : "%b" ,"messages":[],"contents":{"parts":{"text":"Hi"}}}' % in_body.encode()
    translator = RequestTranslator(client=protocol, upstream=protocol, capabilities=capabilities)
    out = translator.translate(body, model=model, request_head=peek(body, "m"), signed_reasoning=signed)
    assert decode(out.body).get("model") == sent
    assert out.upstream_model == "m"
    if signed and in_body == sent:
        assert out.body == body


@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_a_request_that_cannot_succeed_is_no_fault_of_the_server(upstream: str) -> None:
    """SDKs send it again with every status of a server, whatever the error is."""
    body = encode({"error": {"message": "image input is not supported - hint: ..."}})
    for client in UPSTREAMS.keys() - {upstream}:
        status, _, error = translate_error(500, body, upstream=upstream, client=client)
        assert (status, error.kind, error.status) == (400, ErrorKind.INVALID_REQUEST, 500), client


OOPS = b'{"oops":{"kind":"rate_limit","message":"slow down"}}'


@pytest.mark.promise("S18")
@pytest.mark.parametrize("status", [600, 999])
@pytest.mark.parametrize("upstream", [UPSTREAM, CLIENT], ids=["another", "the same"])
def test_a_status_that_http_does_not_have_is_sent_as_502(status: int, upstream: UpstreamSpec) -> None:
    reported, body, error = translate_error(status, OOPS, upstream=upstream, client=CLIENT)
    assert (reported, error.status) == (502, 502)
    assert body != OOPS, "an error may repeat its status"
    _, _, error = translate_error(status, b"", upstream=upstream, client=CLIENT)
    assert str(status) in error.message
    reported, _, _ = translate_error(599, OOPS, upstream=upstream, client=CLIENT)
    assert reported == 599


@pytest.mark.promise("S18")
@pytest.mark.parametrize("client", UPSTREAMS)
@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("code", ["server_error", "rate_limit_exceeded", "x"])
def test_such_a_status_means_the_same_in_every_protocol(client: str, upstream: str, code: str) -> None:
    body = encode({"error": {"message": "m", "type": code, "code": code}})
    status, _, error = translate_error(600, body, upstream=upstream, client=client)
    assert (status, error.kind) == (502, ErrorKind.UNREACHABLE)


def test_the_endpoint_decides_on_the_stream() -> None:
    always = Endpoint("/s", streams="always")
    whole = RequestTranslator(client=CLIENT, upstream=UPSTREAM, endpoint=always).translate(request_body())
    assert (whole.request.stream, decode(whole.body)["stream"]) == (True, True)
    assert whole.response_context(id="x", now=1).endpoint is always


def test_images_are_not_counted_by_their_bytes() -> None:
    image = {"t": "media", "kind": "image", "source": "base64", "data": "A" * 400_000}
    body = request_body(messages=[{"role": "user", "parts": [image]}])
    assert translated(body)[1].prompt_tokens < 5_000


def test_a_model_that_the_path_names_is_not_put_into_the_body() -> None:
    read = UPSTREAMS["anthropic_messages"].read_request
    spec = msgspec.structs.replace(
        UPSTREAMS["anthropic_messages"],
        path="/models/{model}:go",
        read_request=lambda body, signer: msgspec.structs.replace(
            read({"model": "m", **body}, signer), model=""
        ),
    )
    body = encode({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]})
    head = peek(body, "kite")
    for signed in (True, False):
        relay = RequestTranslator(client=spec, upstream=spec)
        relayed = relay.translate(body, model="kite-2", request_head=head, signed_reasoning=signed)
        assert (relayed.body, relayed.upstream_model) == (body, "kite-2")
    translated = RequestTranslator(client=spec, upstream="openai_chat").translate(body, request_head=head)
    assert decode(translated.body)["model"] == translated.request.model == "kite"
