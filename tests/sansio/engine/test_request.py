"""Requests from the client's bytes to the upstream's, and errors the other way, between toy protocols."""

from typing import Any

import msgspec
import pytest
from core.toy_protocol import toy

from dragoman._engine.errors import translate_error
from dragoman._engine.request import RequestTranslator, TranslatedRequest
from dragoman._ir.events import (
    Signature,
)
from dragoman._ir.losses import Ledger, LossCode, LossPolicy
from dragoman._ir.request import Reasoning, Request
from dragoman._ir.undo import Undo
from dragoman._ir.wrapped_signatures import Signer
from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.exceptions import RemoteProtocolError, RequestRefused
from dragoman._wire.json import decode, encode
from dragoman._wire.splice import peek
from dragoman.codec import Capabilities, Endpoint, ProtocolSpec, UpstreamSpec
from dragoman.protocols import UPSTREAMS

UPSTREAM = toy("upstream")
CLIENT = toy("client")  # has choices and parallel blocks


# Requests


def request_body(**fields: Any) -> bytes:
    return encode({"model": "alias", "messages": [], **fields})


def translated(
    body: bytes, *, upstream: ProtocolSpec = UPSTREAM, **options: Any
) -> tuple[dict[str, Any], Any]:
    out = RequestTranslator(client=CLIENT, upstream=upstream, **options).translate(body, model="wire-model")
    return decode(out.body), out


def losses_of(ledger: Ledger) -> list[tuple[LossCode, str]]:
    return [(loss.code, loss.path) for loss in ledger]


def test_a_request() -> None:
    messages = [{"role": "user", "parts": [{"t": "text", "text": "hi"}]}]
    body = request_body(stream=True, heat=0.5, messages=messages, tools=[{"t": "function", "name": "look"}])
    out, whole = translated(body)
    assert out == {
        "model": "wire-model",
        "stream": True,
        "heat": 0.5,
        "messages": [{"role": "user", "parts": [{"t": "text", "text": "hi"}]}],
        "tools": [{"t": "function", "name": "look"}],
    }
    assert isinstance(whole, TranslatedRequest)
    assert (whole.request.model, whole.relayed, len(whole.losses)) == ("alias", False, 0)
    assert whole.prompt_tokens == len(body) // 4


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


def test_the_upstreams_protocol_decides_which_headers_a_body_requires() -> None:
    upstream = toy("there", request_headers=lambda body: [("model-too", body["model"])])
    body = request_body()
    out = RequestTranslator(client=CLIENT, upstream=upstream).translate(body, model="wire-model")
    assert out.headers == (("model-too", "wire-model"),)
    assert translated(body)[1].headers == ()
    # Those of a relayed request are the client's.
    assert RequestTranslator(client=upstream, upstream=upstream).translate(body).headers == ()


def test_the_clients_model_name_stays_by_default() -> None:
    out = RequestTranslator(client=CLIENT, upstream=UPSTREAM).translate(request_body())
    assert decode(out.body)["model"] == "alias"


def test_the_response_context_of_a_request() -> None:
    out = RequestTranslator(client=CLIENT, upstream=UPSTREAM).translate(request_body())
    signer = Signer(b"k")
    context = out.response_context(id="x1", now=7, signer=signer)
    assert (context.request.model, context.id, context.now) == ("alias", "x1", 7)
    assert (context.model, context.signer, context.prompt_tokens) == ("alias", signer, out.prompt_tokens)
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


def test_losses_of_a_request() -> None:
    body = request_body(
        who="user-1",
        new_field={"deep": 1},
        messages=[
            {
                "role": "assistant",
                "name": "x",
                "parts": [
                    {"t": "thought", "text": "hm", "signature": {"origin": "elsewhere", "native": {}}},
                    {"t": "opaque", "kind": "blob", "native": {}},
                    {"t": "text", "text": "a", "odd/key": 1},
                ],
            }
        ],
        tools=[{"t": "custom", "name": "run", "grammar": {"syntax": "lark", "definition": "x"}}],
    )
    out, whole = translated(body)
    assert losses_of(whole.losses) == [
        (LossCode.UNKNOWN_FIELD, "/new_field"),
        (LossCode.UNKNOWN_FIELD, "/messages/0/name"),
        (LossCode.UNKNOWN_FIELD, "/messages/0/parts/2/odd~1key"),
        (LossCode.ALTERED, "/tools/0/format"),
        (LossCode.FOREIGN_SIGNATURE, "/messages/0/parts/0/signature"),
        (LossCode.UNKNOWN_KIND, "/messages/0/parts/1"),
        (LossCode.DROPPED, "/who"),
    ]
    expected = [{"role": "assistant", "parts": [{"t": "thought", "text": "hm"}, {"t": "text", "text": "a"}]}]
    assert out["messages"] == expected


def test_policy_refuse() -> None:
    translator = RequestTranslator(client=CLIENT, upstream=UPSTREAM, policy=LossPolicy.REFUSE)
    assert translator.translate(request_body(heat=1)).losses is not None
    with pytest.raises(RequestRefused, match="/new_field cannot be sent") as caught:
        translator.translate(request_body(new_field=1))
    assert (caught.value.status, caught.value.path) == (400, "/new_field")


def test_capabilities_and_tools_are_respected() -> None:
    body = request_body(tools=[{"t": "custom", "name": "a.b"}])
    out, whole = translated(body, capabilities=Capabilities(custom_tools=True))
    assert out["tools"][0]["t"] == "custom"
    assert [origin.wrapped for origin in whole.undo.origins.values()] == [False]
    out, whole = translated(body, capabilities=Capabilities(custom_tools=False))
    assert out["tools"][0]["t"] == "function"
    assert [origin.wrapped for origin in whole.undo.origins.values()] == [True]


def test_the_signer_reaches_the_reader() -> None:
    seen: list[Signer] = []

    def read(body: dict[str, Any], signer: Signer) -> Request:
        seen.append(signer)
        return CLIENT.read_request(body, signer)

    client = msgspec.structs.replace(CLIENT, read_request=read)
    RequestTranslator(client=client, upstream=UPSTREAM, signer=Signer(b"k")).translate(request_body())
    assert seen == [Signer(b"k")]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the request body is not valid JSON"),
        (b"[]", "the request body must be a JSON object, not an array"),
        (b"{}", "model is required"),
        (b'{"model":"m","messages":[{"role":"user","parts":[{"t":"?"}]}]}', "no toy text or"),
    ],
)
def test_bad_requests(body: bytes, message: str) -> None:
    with pytest.raises(RemoteProtocolError, match=message):
        RequestTranslator(client=CLIENT, upstream=UPSTREAM).translate(body)


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


# Requests that are relayed


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


@pytest.mark.parametrize("body", [b"{}", b'{"model":null}', b'{"model":""}'])
def test_a_relay_requires_a_model(body: bytes) -> None:
    with pytest.raises(RequestRefused, match="model is required") as caught:
        RequestTranslator(client=CLIENT, upstream=CLIENT).translate(body, model="wire")
    assert (caught.value.path, caught.value.code) == ("/model", "missing_required_parameter")


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


@pytest.mark.parametrize("model", [None, "m", "models/m"])
def test_the_list_name_of_a_model_in_a_body_has_its_prefix_once(model: str | None) -> None:
    """The path may name none: only the gateway reads it."""
    body = b'{"model":"models/m","contents":[]}'
    assert RequestTranslator(client="gemini", upstream="gemini").translate(body, model=model).body == body


# Requests of the upstream's own protocol that are fitted to it all the same

REWRITE = Capabilities(relay="rewrite", refuses=frozenset({"seed"}))


def test_a_repaired_request_goes_through_the_passes() -> None:
    messages = [
        {"role": "assistant", "parts": [{"t": "call", "call_id": "c", "name": "f", "input": "{}"}]},
        {"role": "user", "parts": [{"t": "text", "text": "Go on."}]},
    ]
    body = request_body(heat=0.5, dice=7, messages=messages)
    out = RequestTranslator(client=CLIENT, upstream=toy("client"), capabilities=REWRITE).translate(
        body, model="wire"
    )
    sent = decode(out.body)
    assert (sent["model"], sent["heat"], "dice" in sent) == ("wire", 0.5, False)
    assert [part["t"] for part in sent["messages"][1]["parts"]] == ["result"]
    assert losses_of(out.losses) == [(LossCode.REPAIRED, "/messages/0/parts/0"), (LossCode.DROPPED, "/dice")]
    assert (out.relayed, out.rewritten, out.response_context(id="x1", now=7).rewritten) == (False, True, True)
    assert out.request.protocol == "client"


def test_a_repaired_request_stays_in_its_protocol() -> None:
    """Unknown fields that the protocol may define are written again."""
    out = RequestTranslator(client=CLIENT, upstream=CLIENT, capabilities=REWRITE).translate(
        request_body(new_field=1, compact=True)
    )
    assert (losses_of(out.losses), out.undo.compacts, out.request.extra) == ([], False, {"new_field": 1})


def test_a_translation_ignores_the_relay_setting() -> None:
    body = request_body(new_field=1)
    capabilities = Capabilities(relay="rewrite")
    out = RequestTranslator(client=CLIENT, upstream=UPSTREAM, capabilities=capabilities).translate(body)
    found = (out.relayed, out.rewritten, losses_of(out.losses))
    assert found == (False, False, [(LossCode.UNKNOWN_FIELD, "/new_field")])


def test_reasoning_that_was_refused_is_left_out_of_a_translation() -> None:
    with_signature = {"origin": "upstream", "native": 1, "model": "wire"}
    reasoning = {"t": "thought", "text": "hm", "signature": with_signature}
    body = request_body(messages=[{"role": "assistant", "parts": [reasoning]}])
    for signed, codes in ((True, []), (False, [LossCode.FOREIGN_SIGNATURE])):
        out = RequestTranslator(client=CLIENT, upstream=UPSTREAM).translate(
            body, model="wire", signed_reasoning=signed
        )
        assert ("signature" in decode(out.body)["messages"][0]["parts"][0]) is signed
        assert [loss.code for loss in out.losses] == codes


# Errors


OOPS = b'{"oops":{"kind":"rate_limit","message":"slow down"}}'


def test_an_error_response_in_the_clients_form() -> None:
    status, body, error = translate_error(429, OOPS, upstream=UPSTREAM, client=CLIENT, request_id="r1")
    assert (status, error) == (429, WireError(ErrorKind.RATE_LIMIT, "slow down", 429))
    assert decode(body)["oops"] == {"kind": "rate_limit", "message": "slow down", "param": None, "id": "r1"}
    _, _, error = translate_error(429, OOPS, upstream=UPSTREAM, client=CLIENT, retry_after_s=7.0)
    assert error.retry_after_s == 7.0


def test_a_relayed_error_keeps_its_bytes() -> None:
    found = translate_error(429, OOPS, upstream=CLIENT, client=CLIENT)
    assert found == (429, OOPS, WireError(ErrorKind.RATE_LIMIT, "slow down", 429))


def test_a_relayed_error_that_no_client_reads_is_rewritten() -> None:
    status, body, error = translate_error(502, b"<html>", upstream=CLIENT, client=CLIENT)
    assert (status, error.kind) == (502, ErrorKind.UNREACHABLE)
    assert decode(body)["oops"]["message"] == "the upstream answered 502"


LLAMA_CPP = b'{"error":{"code":400,"message":"exceeds the available context size","type":"exceed_x"}}'
VLLM = b'{"type":"error","error":{"type":"invalid_request_error","message":"maximum context length is 9"}}'
OPENAI = b'{"error":{"message":"context length","code":"context_length_exceeded","extra":1}}'
ANTHROPIC = (
    b'{"type":"error","error":{"type":"invalid_request_error","message":"`max_tokens` exceed context limit"}}'
)


@pytest.mark.parametrize(
    ("protocol", "sent", "text"),
    [
        ("openai_chat", LLAMA_CPP, LLAMA_CPP),
        ("openai_responses", LLAMA_CPP, b'"code":"context_length_exceeded"'),
        ("anthropic_messages", VLLM, b'"prompt is too long: maximum context'),
        ("openai_chat", OPENAI, OPENAI),
        ("anthropic_messages", ANTHROPIC, ANTHROPIC),
        ("gemini", b'{"error":{"code":400,"message":"input token count"}}', b"input token count"),
    ],
)
def test_agents_notice_that_a_prompt_is_too_long_from_any_server(
    protocol: str, sent: bytes, text: bytes
) -> None:
    status, body, error = translate_error(400, sent, upstream=protocol, client=protocol)
    assert (status, error.kind) == (400, ErrorKind.CONTEXT_LENGTH)
    assert text in body


@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_a_request_that_cannot_succeed_is_no_fault_of_the_server(upstream: str) -> None:
    """SDKs send it again with every status of a server, whatever the error is."""
    body = encode({"error": {"message": "image input is not supported - hint: ..."}})
    for client in UPSTREAMS.keys() - {upstream}:
        status, _, error = translate_error(500, body, upstream=upstream, client=client)
        assert (status, error.kind, error.status) == (400, ErrorKind.INVALID_REQUEST, 500), client


@pytest.mark.promise("S18")
@pytest.mark.parametrize("status", [600, 999])
@pytest.mark.parametrize("upstream", [UPSTREAM, CLIENT], ids=["another", "the same"])
def test_a_status_that_http_does_not_have_is_sent_as_502(status: int, upstream: UpstreamSpec) -> None:
    reported, body, error = translate_error(status, OOPS, upstream=upstream, client=CLIENT)
    assert (reported, error.status) == (502, 502)
    assert body != OOPS, "an error may repeat its status"
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


# The passes


def test_every_pass_runs() -> None:
    """Other tests are about what each pass does; this one is about which passes run, and in which order."""
    body = request_body(
        response_format={"schema": {"type": "object"}},
        stop=["a", "b"],
        n=3,
        heat=1,
        messages=[
            {"role": "assistant", "parts": [{"t": "call", "call_id": "c", "name": "f", "input": "{}"}]},
            {
                "role": "assistant",
                "parts": [
                    {"t": "thought", "text": "", "signature": {"origin": "narrow", "native": 1, "model": "x"}}
                ],
            },
        ],
    )
    upstream = toy("narrow", choices=False, max_stop_sequences=1)
    capabilities = Capabilities(structured_output="none", refuses=frozenset({"temperature"}))
    out, whole = translated(body, upstream=upstream, capabilities=capabilities, max_fan_out=3)
    assert [each["parts"][0]["t"] for each in out["messages"]] == ["call", "thought", "result"]
    assert "signature" not in out["messages"][1]["parts"][0]
    assert [tool["name"] for tool in out["tools"]] == ["json_response"]
    assert out["tool_choice"]["name"] == "json_response"
    assert (out["stop"], "n" in out, "heat" in out) == (["a"], False, False)
    undo = whole.undo
    assert (undo.json_tool, undo.strip_code_fence, undo.stop_sequences, undo.compacts) == (
        "json_response",
        True,  # a model that does not call the tool may write it as text
        ("b",),
        False,
    )
    assert whole.fan_out == 3
    assert losses_of(whole.losses) == [
        (LossCode.REPAIRED, "/messages/0/parts/0"),
        (LossCode.FOREIGN_SIGNATURE, "/messages/1/parts/0"),
        (LossCode.ALTERED, "/response_format"),
        (LossCode.DROPPED, "/heat"),
    ]
    context = whole.response_context(id="x", now=1)
    assert (context.undo, context.upstream_model) == (undo, "wire-model")


def test_a_summary_is_requested() -> None:
    out, whole = translated(request_body(compact=True, tools=[{"t": "function", "name": "f"}]))
    assert out["tool_choice"]["mode"] == "none"
    assert "summary" in out["messages"][-1]["parts"][0]["text"]
    assert whole.undo.compacts


@pytest.mark.parametrize("structured", ["object", "none"])
def test_bare_json_is_requested(structured: Any) -> None:
    body = request_body(response_format={"schema": {"type": "array"}})
    _, whole = translated(body, capabilities=Capabilities(structured_output=structured))
    assert (whole.undo.json_tool, whole.undo.strip_code_fence) == (None, True)


SCHEMA = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


@pytest.mark.parametrize(
    ("enforces", "checked"), [(frozenset(), True), (frozenset({"schema", "tool_choice"}), False)]
)
def test_required_calls_are_checked_unless_the_upstream_enforces_them(enforces: Any, checked: bool) -> None:
    response_format = {"schema": SCHEMA, "strict": True}
    tools = [{"t": "function", "name": "f"}]
    body = request_body(response_format=response_format, tools=tools, tool_choice={"mode": "required"})
    _, whole = translated(body, capabilities=Capabilities(enforces=enforces))
    found = (whole.undo.unenforced_format is not None, whole.undo.unenforced_choice is not None)
    assert found == (checked, checked)


@pytest.mark.parametrize("forgets", [True, False])
def test_cached_reasoning_is_restored_for_clients_that_drop_it(forgets: bool) -> None:
    client = toy("client", clients_drop_signatures=forgets)
    call = {"t": "call", "call_id": "c", "name": "f", "input": "{}"}
    result = {"t": "result", "call_id": "c", "parts": []}
    messages = [{"role": "assistant", "parts": [call]}, {"role": "user", "parts": [result]}]
    signature = Signature("upstream", {"x": 1}, "m")
    translator = RequestTranslator(client=client, upstream=UPSTREAM)
    body = request_body(messages=messages)
    out = decode(
        translator.translate(body, model="m", reasoning_lookup=lambda calls: [Reasoning("", signature)]).body
    )
    parts = [part["t"] for part in out["messages"][0]["parts"]]
    assert parts == (["thought", "call"] if forgets else ["call"])
    assert len(decode(translator.translate(body).body)["messages"][0]["parts"]) == 1


def test_the_tool_of_another_provider_is_missed_unless_the_request_stays_in_its_protocol() -> None:
    body = request_body(tools=[{"t": "hosted", "origin": "client", "kind": "search", "native": {}}])
    with pytest.raises(RequestRefused, match="the upstream does not run search"):
        translated(body)
    out, whole = translated(body, upstream=CLIENT, capabilities=Capabilities(relay="rewrite"))
    assert [tool["kind"] for tool in out["tools"]] == ["search"]
    assert whole.rewritten


def test_a_session_is_sent_to_upstreams_with_caches_by_session() -> None:
    def losses(**capabilities: Any) -> list[tuple[LossCode, str]]:
        translator = RequestTranslator(
            client=CLIENT, upstream=UPSTREAM, capabilities=Capabilities(**capabilities)
        )
        return losses_of(translator.translate(request_body(), cache_key=lambda: "s").losses)

    assert losses(cache_keys=True) == [
        (LossCode.DROPPED, "/prompt_cache_key")
    ]  # this protocol has no such member
    assert losses() == []


def test_the_endpoint_decides_on_the_stream() -> None:
    always = Endpoint("/s", streams="always")
    whole = RequestTranslator(client=CLIENT, upstream=UPSTREAM, endpoint=always).translate(request_body())
    assert (whole.request.stream, decode(whole.body)["stream"]) == (True, True)
    assert whole.response_context(id="x", now=1).endpoint is always


def test_a_model_is_needed() -> None:
    spec = msgspec.structs.replace(CLIENT, read_request=lambda body, signer: Request("client", "", ()))
    with pytest.raises(RequestRefused, match="model is required"):
        RequestTranslator(client=spec, upstream=UPSTREAM).translate(b"{}")
    assert (
        decode(RequestTranslator(client=spec, upstream=UPSTREAM).translate(b"{}", model="m").body)["model"]
        == "m"
    )


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
