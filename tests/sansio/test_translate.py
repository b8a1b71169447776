"""Requests one way, answers the other way, between toy protocols of different habits."""

import json
from typing import Any

import msgspec
import pytest
from core_chop import PROPERTY, all_ways, cut_at, one_by_one, places
from core_events import FAULT, SEAL, STARTED, answers, start_of
from core_toy import (
    HEARTBEAT,
    ToyReader,
    events_of,
    exchange_of,
    frame_of,
    plain,
    stream_of,
    toy,
)
from hypothesis import given
from hypothesis import strategies as st

from dragoman import _sse, _translate
from dragoman._errors import RemoteProtocolError
from dragoman._events import (
    ENDED,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    Failed,
    Opaque,
    ReasoningDelta,
    SealDelta,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    ToolHead,
    ToolKind,
    Usage,
)
from dragoman._fault import Fault, FaultKind
from dragoman._fold import Answer, Fold
from dragoman._grammar import Checker, Phase
from dragoman._json import decode, encode
from dragoman._loss import Ledger, LossCode, Policy
from dragoman._request import Request
from dragoman._seal import Sealer
from dragoman._spec import ProtocolSpec, Target, ToolRule
from dragoman._tools import Origin, ToolBook
from dragoman._translate import (
    Outcome,
    RequestTranslator,
    ResponseTranslator,
    TranslatedRequest,
    fault_of,
    translate_fault,
)

UPSTREAM = toy("upstream")
CLIENT = toy("client")  # has choices and parallel blocks
NARROW = toy("narrow", sequential=True, choices=False)  # has neither

STOP = Stopped(StopReason.END)
TEXT: list[Event] = [start_of(BlockKind.TEXT), TextDelta(0, "hé"), TextDelta(0, "llo"), BlockEnded(0)]
HELLO: list[Event] = [STARTED, *TEXT, STOP, Usage(input=3, output=4), ENDED]


# Requests


def request_body(**fields: Any) -> bytes:
    return encode({"model": "alias", "messages": [], **fields})


def translated(
    body: bytes, *, upstream: ProtocolSpec = UPSTREAM, **options: Any
) -> tuple[dict[str, Any], Any]:
    out = RequestTranslator(CLIENT, upstream, **options).translate(body, model="wire-model")
    return decode(out.body), out


def losses_of(ledger: Ledger) -> list[tuple[LossCode, str]]:
    return [(loss.code, loss.path) for loss in ledger]


def test_a_request() -> None:
    body = request_body(
        stream=True,
        heat=0.5,
        messages=[{"role": "user", "parts": [{"t": "text", "text": "hi"}]}],
        tools=[{"t": "function", "name": "look"}],
    )
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


def test_the_clients_model_name_stays_by_default() -> None:
    out = RequestTranslator(CLIENT, UPSTREAM).translate(request_body())
    assert decode(out.body)["model"] == "alias"


def test_the_exchange_of_a_request() -> None:
    out = RequestTranslator(CLIENT, UPSTREAM).translate(request_body())
    sealer = Sealer(b"k")
    exchange = out.exchange(id="x1", now=7, sealer=sealer)
    assert (exchange.request, exchange.id, exchange.now) == (out.request, "x1", 7)
    assert (exchange.model, exchange.sealer, exchange.prompt_tokens) == ("alias", sealer, out.prompt_tokens)
    assert out.exchange(id="x1", now=7, model="told").model == "told"


def test_losses_of_a_request() -> None:
    body = request_body(
        who="user-1",
        new_field={"deep": 1},
        messages=[
            {
                "role": "assistant",
                "name": "x",
                "parts": [
                    {"t": "thought", "text": "hm", "seal": {"origin": "elsewhere", "native": {}}},
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
        (LossCode.FOREIGN_SEAL, "/messages/0/parts/0/seal"),
        (LossCode.UNKNOWN_KIND, "/messages/0/parts/1"),
        (LossCode.DROPPED, "/who"),
    ]
    assert out["messages"] == [
        {"role": "assistant", "parts": [{"t": "thought", "text": "hm"}, {"t": "text", "text": "a"}]}
    ]


def test_policy_refuse() -> None:
    translator = RequestTranslator(CLIENT, UPSTREAM, policy=Policy.REFUSE)
    assert translator.translate(request_body(heat=1)).losses is not None
    with pytest.raises(RemoteProtocolError, match="/new_field cannot be carried") as caught:
        translator.translate(request_body(new_field=1))
    assert (caught.value.status_hint, caught.value.path) == (400, "/new_field")


def test_target_and_tools_are_obeyed() -> None:
    body = request_body(tools=[{"t": "custom", "name": "a.b"}])
    out, whole = translated(body, target=Target(custom_tools=True))
    assert out["tools"][0]["t"] == "custom"
    assert [origin.wrapped for origin in whole.tools.origins.values()] == [False]
    out, whole = translated(body, target=Target(custom_tools=False))
    assert out["tools"][0]["t"] == "function"
    assert [origin.wrapped for origin in whole.tools.origins.values()] == [True]


def test_the_sealer_reaches_the_reader() -> None:
    seen: list[Sealer] = []

    def read(body: dict[str, Any], sealer: Sealer) -> Request:
        seen.append(sealer)
        return CLIENT.read_request(body, sealer)

    client = msgspec.structs.replace(CLIENT, read_request=read)
    RequestTranslator(client, UPSTREAM, sealer=Sealer(b"k")).translate(request_body())
    assert seen == [Sealer(b"k")]


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
        RequestTranslator(CLIENT, UPSTREAM).translate(body)


def exhausted(*arguments: object) -> Any:
    """As encoding does with a value that is nested deeper than the stack allows."""
    raise RecursionError


def test_a_request_that_is_nested_too_deep() -> None:
    with pytest.raises(RemoteProtocolError, match="nested too deep"):
        translated(request_body(new_field=1)[:-2] + b"[" * 5000)
    upstream = msgspec.structs.replace(UPSTREAM, write_request=exhausted)
    with pytest.raises(RemoteProtocolError, match="nested too deep"):
        translated(request_body(), upstream=upstream)


# Requests that are relayed


def test_between_equals_the_bytes_stay() -> None:
    body = b'{ "new_field": 1.50, "model" : "alias", "stream":true }'
    out = RequestTranslator(CLIENT, toy("client"), policy=Policy.REFUSE).translate(body, model="wire")
    assert out.body == body.replace(b"alias", b"wire")
    assert (out.relayed, len(out.losses), out.tools) == (True, 0, ToolBook())
    assert (out.request.model, out.request.stream, out.request.protocol) == ("alias", True, "client")
    assert out.prompt_tokens == len(body) // 4


def test_between_equals_without_another_model() -> None:
    body = b'{"model":"alias"}'
    assert RequestTranslator(CLIENT, CLIENT).translate(body).body is body


@pytest.mark.parametrize("body", [b"{}", b'{"model":null}', b'{"model":""}'])
def test_a_relay_wants_a_model_too(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="model is required") as caught:
        RequestTranslator(CLIENT, CLIENT).translate(body, model="wire")
    assert (caught.value.path, caught.value.code) == ("/model", "missing_required_parameter")


# Answers


def machine(
    client: ProtocolSpec = CLIENT,
    *,
    upstream: ProtocolSpec = UPSTREAM,
    upstream_streams: bool = True,
    client_streams: bool = True,
    tools: ToolBook = ToolBook(),
) -> ResponseTranslator:
    return ResponseTranslator(
        upstream,
        client,
        exchange_of(stream=client_streams),
        tools=tools,
        upstream_streams=upstream_streams,
    )


def run(translator: ResponseTranslator, pieces: list[bytes]) -> bytes:
    """What the client got, taken after every piece and after the end."""
    out = b""
    for piece in pieces:
        translator.receive_data(piece)
        out += translator.data_to_send()
    translator.receive_eof()
    return out + translator.data_to_send()


def folded(events: list[Event]) -> Answer:
    fold = Fold()
    for event in events:
        fold.send(event)
    return fold.answer()


def whole_of(events: list[Event]) -> bytes:
    return encode(UPSTREAM.write_whole(folded(events), exchange_of(), Ledger()))


def test_a_stream() -> None:
    for pieces in all_ways(stream_of(HELLO)):
        translator = machine()
        assert events_of(run(translator, pieces)) == HELLO
        assert (translator.outcome, translator.fault) == (Outcome.COMPLETED, None)
        assert translator.stop_reason is StopReason.END
        assert translator.usage == Usage(input=3, output=4)
        assert (translator.upstream_model, translator.upstream_id) == (STARTED.model, STARTED.id)
        assert translator.committed
        assert len(translator.losses) == 0


def test_frames_of_no_events_and_of_several() -> None:
    several = b"data: [" + b",".join(encode(plain(event)) for event in HELLO[1:4]) + b"]\n\n"
    data = frame_of(STARTED) + b": ping\n\ndata: []\n\n" + several + b"id: 7\n\n" + stream_of(HELLO[4:])
    for pieces in ([data], one_by_one(data)):
        assert events_of(run(machine(), pieces)) == HELLO


def test_a_reader_without_a_fast_lane() -> None:
    class Slow(ToyReader):
        def lane(self, delta: object) -> None:
            return None

    upstream = msgspec.structs.replace(UPSTREAM, stream_reader=lambda exchange, ledger: Slow())
    assert events_of(run(machine(upstream=upstream), [stream_of(HELLO)])) == HELLO


def test_events_go_out_one_by_one() -> None:
    translator = machine()
    for event in HELLO:
        assert translator.data_to_send() == b""
        translator.receive_data(frame_of(event))
        assert translator.data_to_send() == frame_of(event)


def test_committed_with_the_first_content() -> None:
    translator = machine()
    translator.receive_data(frame_of(STARTED) + frame_of(Usage(input=1)))
    assert not translator.committed
    translator.receive_data(frame_of(TEXT[0]))
    assert translator.committed


def test_a_failure_is_no_content() -> None:
    translator = machine()
    translator.receive_data(stream_of([STARTED, Failed(FAULT)]))
    assert not translator.committed


def test_usage_is_shown_whole_and_consistent() -> None:
    translator = machine()
    events = [STARTED, Usage(input=3), Usage(output=2, reasoning=9), STOP, ENDED]
    out = events_of(run(translator, [stream_of(events)]))
    assert [event for event in out if isinstance(event, Usage)] == [
        Usage(input=3),
        Usage(input=3, output=2, reasoning=2),
    ]


@PROPERTY
@given(answers(choices=2, origin="client"), places)
def test_any_pieces_give_the_same_bytes(answer: list[Event], cuts: list[int]) -> None:
    data = stream_of(answer)
    whole = run(machine(), [data])
    assert run(machine(), cut_at(data, cuts)) == whole
    assert run(machine(), one_by_one(data)) == whole
    narrow = run(machine(NARROW), [data])
    assert run(machine(NARROW), cut_at(data, cuts)) == narrow


@PROPERTY
@given(answers(choices=3, origin="client"), st.sampled_from([CLIENT, NARROW]))
def test_what_the_client_gets_is_legal(answer: list[Event], client: ProtocolSpec) -> None:
    translator = machine(client)
    checker = Checker()
    for event in events_of(run(translator, [stream_of(answer)])):
        checker.check(event)
        assert not client.sequential or len(checker.open_blocks) <= 1
        assert client.choices or getattr(event, "choice", 0) == 0
    assert checker.phase is Phase.ENDED
    assert translator.outcome is Outcome.COMPLETED


@PROPERTY
@given(answers(choices=2, origin="client"), st.sampled_from([CLIENT, NARROW]))
def test_streamed_and_whole_are_the_same(answer: list[Event], client: ProtocolSpec) -> None:
    """All four mixtures of a streaming and a whole upstream and client tell the same answer."""
    stream, whole = stream_of(answer), whole_of(answer)
    as_whole = run(machine(client, client_streams=False), [stream])
    assert run(machine(client, client_streams=False, upstream_streams=False), [whole]) == as_whole
    for data, streams in ((stream, True), (whole, False)):
        events = events_of(run(machine(client, upstream_streams=streams), [data]))
        assert encode(client.write_whole(folded(events), exchange_of(), Ledger())) == as_whole


def test_a_whole_answer_for_the_client_comes_at_the_end() -> None:
    translator = machine(client_streams=False)
    translator.receive_data(stream_of(HELLO[:-1]))
    assert (translator.data_to_send(), translator.heartbeat()) == (b"", b"")
    translator.receive_data(frame_of(ENDED))
    body = decode(translator.data_to_send())
    assert body["blocks"][0]["block"]["text"] == "héllo"
    assert translator.data_to_send() == b""


def test_the_request_decides_whether_the_client_streams() -> None:
    as_asked = ResponseTranslator(UPSTREAM, CLIENT, exchange_of(stream=False))
    assert run(as_asked, [stream_of(HELLO)]).startswith(b"{")
    told = ResponseTranslator(UPSTREAM, CLIENT, exchange_of(stream=False), client_streams=True)
    assert run(told, [stream_of(HELLO)]).startswith(b"data: ")


def test_heartbeats_while_it_is_open() -> None:
    translator = machine()
    assert translator.heartbeat() == HEARTBEAT
    translator.receive_data(stream_of(HELLO[:-1]) + b"data: ha")
    assert translator.heartbeat() == HEARTBEAT
    translator.receive_data(b"lf\n\n")
    assert translator.outcome is Outcome.FAILED
    assert translator.heartbeat() == b""


# The end, and nothing after it


@pytest.mark.parametrize("end", [ENDED, Failed(FAULT)])
def test_nothing_comes_after_the_end(end: Event) -> None:
    data = stream_of([STARTED, STOP, end, end, STARTED]) + b"data: no json\n\n"
    for pieces in ([data], one_by_one(data)):
        translator = machine()
        out = run(translator, pieces)
        translator.receive_data(b"data: {}\n\n")
        translator.fail(Fault(FaultKind.TIMEOUT, "late"))
        translator.receive_eof()
        assert out + translator.data_to_send() == stream_of([STARTED, STOP, end])
        assert translator.outcome is (Outcome.COMPLETED if end is ENDED else Outcome.FAILED)
        assert translator.fault == (None if end is ENDED else FAULT)


def test_a_last_frame_without_its_blank_line() -> None:
    for tail in (b"", b"\n"):
        translator = machine()
        data = stream_of(HELLO).removesuffix(b"\n\n") + tail
        assert events_of(run(translator, [data])) == HELLO
        assert translator.outcome is Outcome.COMPLETED


def test_the_reader_may_end_the_answer_at_eof() -> None:
    translator = machine()
    assert events_of(run(translator, [stream_of(HELLO[:-1])])) == HELLO
    assert translator.outcome is Outcome.COMPLETED


# Failures


def failed(translator: ResponseTranslator, out: bytes, *before: Event) -> Fault:
    """The client got these events and then the error, and nobody was told of a success."""
    assert translator.outcome is Outcome.FAILED
    assert translator.fault is not None
    assert events_of(out) == [*before, Failed(translator.fault)]
    return translator.fault


def test_cut_at_every_place_before_the_stop() -> None:
    data = stream_of(HELLO)
    for at in range(data.index(frame_of(STOP)) + 1):
        translator = machine()
        out = run(translator, [data[:at]])
        given_events = HELLO[: len(events_of(out)) - 1]
        fault = failed(translator, out, *given_events)
        assert fault.kind is FaultKind.TRUNCATED


def test_cut_before_anything() -> None:
    translator = machine()
    assert failed(translator, run(translator, [])).kind is FaultKind.TRUNCATED
    assert not translator.committed


def test_a_reader_that_says_nothing_of_the_end() -> None:
    class Mute(ToyReader):
        def eof(self) -> list[Event]:
            return []

    upstream = msgspec.structs.replace(UPSTREAM, stream_reader=lambda exchange, ledger: Mute())
    translator = machine(upstream=upstream)
    fault = failed(translator, run(translator, [frame_of(STARTED)]), STARTED)
    assert fault == Fault(FaultKind.TRUNCATED, "the upstream's answer ended before it was complete")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"data: no json\n\n", "the upstream's answer cannot be read: JSON is malformed"),
        (b'data: {"e":"?"}\n\n', "the upstream's answer cannot be read: no toy event"),
        (frame_of(TextDelta(9, "a")), "cannot be read: TextDelta for block 9, which is not open"),
        (frame_of(STARTED), "cannot be read: Started may not come while the answer is active"),
    ],
)
def test_what_was_good_comes_before_the_error(bad: bytes, message: str) -> None:
    data = stream_of(HELLO[:3]) + bad + stream_of(HELLO[3:])
    for pieces in ([data], one_by_one(data)):
        translator = machine()
        fault = failed(translator, run(translator, pieces), *HELLO[:3])
        assert message in fault.message
        assert fault.kind is FaultKind.SERVER


def test_a_last_frame_that_breaks_the_order() -> None:
    translator = machine()
    out = run(translator, [frame_of(STARTED) + frame_of(ENDED).strip()])
    assert "choice 0 has not stopped" in failed(translator, out, STARTED).message


def test_an_error_of_the_upstream_passes_in_the_clients_form() -> None:
    translator = machine()
    assert failed(translator, run(translator, [stream_of([STARTED, Failed(FAULT)])]), STARTED) == FAULT


def test_the_driver_fails_it_before_and_after_the_start() -> None:
    for before in ([], HELLO[:1], HELLO[:3]):
        translator = machine()
        translator.receive_data(stream_of(before))
        translator.fail(Fault(FaultKind.TIMEOUT, "no bytes for a minute"))
        fault = failed(translator, translator.data_to_send(), *before)
        assert fault.kind is FaultKind.TIMEOUT


def test_blocks_that_wait_are_dropped_by_a_failure() -> None:
    events: list[Event] = [STARTED, TEXT[0], start_of(BlockKind.TEXT, 1), TextDelta(1, "b"), Failed(FAULT)]
    translator = machine(NARROW)
    assert failed(translator, run(translator, [stream_of(events)]), STARTED, TEXT[0]) == FAULT


@pytest.mark.parametrize("tail", [b"", b"\n\n"])
def test_an_event_that_is_too_large(tail: bytes) -> None:
    data = frame_of(STARTED) + b"data: " + b"x" * 595 + tail
    for pieces in (*all_ways(data),) if tail else ([data], one_by_one(data)):
        translator = machine()
        translator._sse = _sse.SSEParser(max_event_bytes=600)
        fault = failed(translator, run(translator, pieces), STARTED)
        assert "one server-sent event has more than 600 bytes" in fault.message


def test_a_failed_answer_gives_a_whole_client_nothing() -> None:
    translator = machine(client_streams=False)
    assert run(translator, [stream_of(HELLO[:3])]) == b""
    assert translator.outcome is Outcome.FAILED
    assert translator.fault is not None
    assert translator.fault.kind is FaultKind.TRUNCATED


def test_an_answer_that_is_nested_too_deep() -> None:
    class Deep(ToyReader):
        def read(self, frame: _sse.Frame) -> Any:
            return exhausted() if b"deep" in frame.data else super().read(frame)

    upstream = msgspec.structs.replace(UPSTREAM, stream_reader=lambda exchange, ledger: Deep())
    for end in (b"", b"\n\n"):
        translator = machine(upstream=upstream)
        out = run(translator, [frame_of(STARTED) + b'data: "deep"' + end])
        assert "nested too deep" in failed(translator, out, STARTED).message


# Whole answers of the upstream


def test_a_whole_answer() -> None:
    for pieces in all_ways(whole_of(HELLO)):
        translator = machine(upstream_streams=False)
        out = events_of(run(translator, pieces))
        assert folded(out) == folded(HELLO)
        assert translator.outcome is Outcome.COMPLETED


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (b"", FaultKind.SERVER, "the upstream's answer is not valid JSON"),
        (b"<html>", FaultKind.SERVER, "the upstream's answer is not valid JSON"),
        (b"[]", FaultKind.SERVER, "must be a JSON object, not an array"),
        (b"{}", FaultKind.SERVER, "no toy answer"),
        (whole_of(HELLO)[:-9], FaultKind.SERVER, "the upstream's answer is not valid JSON"),
    ],
)
def test_a_bad_whole_answer(body: bytes, kind: FaultKind, message: str) -> None:
    for streams in (True, False):
        translator = machine(upstream_streams=False, client_streams=streams)
        out = run(translator, [body])
        assert bool(out) is streams
        assert translator.fault is not None
        assert (translator.outcome, translator.fault.kind) == (Outcome.FAILED, kind)
        assert message in translator.fault.message


def test_a_whole_answer_without_its_end() -> None:
    translator = machine(upstream_streams=False)
    body = encode({"started": {"id": "i", "model": "m"}})
    fault = failed(translator, run(translator, [body]), Started("i", "m"), Usage())
    assert fault == Fault(FaultKind.TRUNCATED, "the upstream's answer is not complete")


def test_a_whole_answer_in_a_wrong_order() -> None:
    upstream = msgspec.structs.replace(UPSTREAM, read_whole=lambda *_: [STARTED, ENDED])
    translator = machine(upstream=upstream, upstream_streams=False)
    assert "choice 0 has not stopped" in failed(translator, run(translator, [b"{}"]), STARTED).message


def test_a_whole_answer_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    data = whole_of(HELLO)
    monkeypatch.setattr(_translate, "MAX_DOCUMENT_BYTES", len(data) - 1)
    for pieces in ([data], one_by_one(data)):
        translator = machine(upstream_streams=False)
        fault = failed(translator, run(translator, pieces))
        assert f"more than {len(data) - 1} bytes" in fault.message
        assert translator._body == []
    monkeypatch.setattr(_translate, "MAX_DOCUMENT_BYTES", len(data))
    translator = machine(upstream_streams=False)
    run(translator, [data])
    assert translator.outcome is Outcome.COMPLETED


# Stages


def test_choices_that_the_client_cannot_show() -> None:
    other: list[Event] = [
        start_of(BlockKind.TEXT, 1, 1),
        start_of(BlockKind.REASONING, 2, 1),
        start_of(BlockKind.TOOL_CALL, 3, 2),
        Opaque("narrow", "thing", {}, choice=1),
        TextDelta(1, "x"),
        ReasoningDelta(2, "x"),
        ArgumentsDelta(3, "x"),
        BlockEnded(1),
        BlockEnded(2),
        BlockEnded(3),
        Stopped(StopReason.MAX_TOKENS, choice=1),
        Stopped(StopReason.END, choice=2),
    ]
    mine: list[Event] = [*TEXT[:2], Opaque("narrow", "mine", {}), *TEXT[2:]]
    translator = machine(msgspec.structs.replace(NARROW, sequential=False))
    events: list[Event] = [STARTED, mine[0], *other, *mine[1:], STOP, ENDED]
    assert events_of(run(translator, [stream_of(events)])) == [STARTED, *mine, STOP, ENDED]
    assert translator.stop_reason is StopReason.END
    assert losses_of(translator.losses) == [
        (LossCode.DROPPED, "/choices/1"),
        (LossCode.DROPPED, "/choices/2"),
    ]


def test_choices_that_the_client_can_show() -> None:
    events: list[Event] = [
        STARTED,
        start_of(BlockKind.TEXT, 1, 1),
        TextDelta(1, "x"),
        BlockEnded(1),
        Stopped(StopReason.MAX_TOKENS, choice=1),
        STOP,
        ENDED,
    ]
    translator = machine()
    assert events_of(run(translator, [stream_of(events)])) == events
    assert translator.stop_reason is StopReason.END


def test_opaque_blocks_of_foreign_origin_are_losses() -> None:
    foreign = Opaque("upstream", "web_search", {"x": 1}, "/content/2")
    own = Opaque("client", "web_search", {"x": 1}, "/content/3")
    translator = machine()
    events: list[Event] = [STARTED, foreign, own, foreign, STOP, ENDED]
    assert events_of(run(translator, [stream_of(events)])) == [STARTED, own, STOP, ENDED]
    assert losses_of(translator.losses) == [(LossCode.UNKNOWN_KIND, "/content/2")]


def test_tool_calls_come_back_as_the_client_knows_them() -> None:
    book = ToolBook({"p_1": Origin("pa.tch", None, ToolKind.CUSTOM, wrapped=True)}, frozenset({"c"}))
    events: list[Event] = [
        STARTED,
        BlockStarted(0, BlockKind.TOOL_CALL, tool=ToolHead("c", "p_1")),
        ArgumentsDelta(0, '{"input":"a'),
        ArgumentsDelta(0, '\\n"}'),
        BlockEnded(0),
        Stopped(StopReason.TOOL_USE),
        ENDED,
    ]
    out = events_of(run(machine(tools=book), [stream_of(events)]))
    assert out == [
        STARTED,
        BlockStarted(0, BlockKind.TOOL_CALL, tool=ToolHead("c_abc123", "pa.tch", ToolKind.CUSTOM)),
        ArgumentsDelta(0, "a"),
        ArgumentsDelta(0, "\n"),
        BlockEnded(0),
        Stopped(StopReason.TOOL_USE),
        ENDED,
    ]


def test_a_client_without_custom_tools() -> None:
    client = toy("client", tools=ToolRule(custom=False))
    events: list[Event] = [
        STARTED,
        BlockStarted(0, BlockKind.TOOL_CALL, tool=ToolHead("c", "run", ToolKind.CUSTOM)),
        ArgumentsDelta(0, "ls"),
        BlockEnded(0),
        Stopped(StopReason.TOOL_USE),
        ENDED,
    ]
    out = folded(events_of(run(machine(client), [stream_of(events)])))
    assert json.loads(out.blocks[0].text) == {"input": "ls"}  # type: ignore[union-attr]


def test_seals_pass() -> None:
    events: list[Event] = [
        STARTED,
        start_of(BlockKind.REASONING),
        ReasoningDelta(0, "hm"),
        SealDelta(0, SEAL),
        BlockEnded(0),
        STOP,
        ENDED,
    ]
    assert events_of(run(machine(NARROW), [stream_of(events)])) == events


# Errors


def test_fault_of_an_error() -> None:
    error = RemoteProtocolError("no", status_hint=413, path="/messages/3", code="too_long")
    assert fault_of(error) == Fault(
        FaultKind.TOO_LARGE, "no", status=413, code="too_long", param="messages[3]"
    )


OOPS = b'{"oops":{"kind":"rate_limit","message":"slow down"}}'


def test_an_error_answer_in_the_clients_form() -> None:
    status, body, fault = translate_fault(429, OOPS, upstream=UPSTREAM, client=CLIENT, request_id="r1")
    assert (status, fault) == (429, Fault(FaultKind.RATE_LIMIT, "slow down", 429))
    assert decode(body)["oops"] == {"kind": "rate_limit", "message": "slow down", "param": None, "id": "r1"}


def test_between_equals_an_error_keeps_its_bytes() -> None:
    assert translate_fault(429, OOPS, upstream=CLIENT, client=CLIENT) == (
        429,
        OOPS,
        Fault(FaultKind.RATE_LIMIT, "slow down", 429),
    )


def test_between_equals_an_error_that_no_client_reads_is_written_anew() -> None:
    status, body, fault = translate_fault(502, b"<html>", upstream=CLIENT, client=CLIENT)
    assert (status, fault.kind) == (502, FaultKind.UNREACHABLE)
    assert decode(body)["oops"]["message"] == "the upstream answered 502"


class _Bottomless:
    """A reader that any value is too deep for."""

    def read(self, *args: Any) -> Any:
        raise RecursionError

    eof = whole = read


def test_a_value_that_is_too_deep_for_the_stack_is_an_error() -> None:
    bottomless = _Bottomless()
    spec = msgspec.structs.replace(
        toy(),
        name="bottomless",
        read_request=bottomless.read,
        stream_reader=lambda exchange, ledger: bottomless,
    )
    with pytest.raises(RemoteProtocolError, match="nested too deep"):
        RequestTranslator(spec, toy()).translate(b"{}")
    for data in (b"data: {}\n\n", b""):
        machine = ResponseTranslator(spec, toy(), exchange_of(), client_streams=True)
        machine.receive_data(data)
        machine.receive_eof()
        assert machine.fault is not None
        assert "nested too deep" in machine.fault.message
