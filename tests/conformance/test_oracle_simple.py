"""The oracle for the simple API: good responses pass, and each rule has a broken one that it must catch."""

import pytest
from oracle import (
    SIMPLE,
    SIMPLE_EVENTS,
    SIMPLE_LINES,
    Stop,
    check_error,
    check_stream,
    check_whole,
    compare,
    meaning_of_client_stream,
    meaning_of_whole,
)
from oracle.meaning import Block, Failure, Kind, Meaning

ONE = '{"message":{"role":"assistant","content":"I am "},"done":false,"index":0}'
TWO = '{"message":{"role":"assistant","content":"well."},"done":false,"index":1}'
END = '{"message":{"role":"assistant","content":""},"done":true,"index":2}'
WRONG = '{"error":{"message":"m","type":"t","code":"c"},"done":true}'
BARE = '{"message":"m","type":"t","code":"c"}'


def lines(*texts: str) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


def events(*texts: str) -> bytes:
    framed = (text if text.startswith("event:") else f"data: {text}" for text in texts)
    return "".join(f"{text}\n\n" for text in framed).encode()


GOOD = [
    (SIMPLE_LINES, lines(ONE, TWO, END), "I am well.", Stop.END),
    (SIMPLE_LINES, lines(f"  {ONE}", TWO, f" {END}"), "I am well.", Stop.END),  # after heartbeats
    (SIMPLE_LINES, lines(END.replace("2", "0")), "", Stop.END),
    (SIMPLE_LINES, lines(ONE, WRONG), "I am ", Stop.ERROR),
    (SIMPLE_LINES, lines(WRONG), "", Stop.ERROR),
    (SIMPLE_EVENTS, events(ONE, TWO, "[DONE]"), "I am well.", Stop.END),
    (SIMPLE_EVENTS, b": keepalive\n\n" + events(ONE, "[DONE]"), "I am ", Stop.END),
    (SIMPLE_EVENTS, events("[DONE]"), "", Stop.END),
    (SIMPLE_EVENTS, events(ONE, f"event: error\ndata: {BARE}", "[DONE]"), "I am ", Stop.ERROR),
]


def test_good_streams(subtests: pytest.Subtests) -> None:
    for form, stream, text, stop in GOOD:
        with subtests.test(form=form, stream=stream):
            assert check_stream(form, stream) == []
            received = meaning_of_client_stream(form, stream)
            assert (received.text(Kind.TEXT), received.stop) == (text, stop)
            assert received.failure == (Failure("c", "m") if stop is Stop.ERROR else None)


BROKEN = [
    (SIMPLE_LINES, b"\xff\n", "not UTF-8"),
    (SIMPLE_LINES, lines(ONE, TWO, END)[:-1], "the last line is not closed"),
    (SIMPLE_LINES, lines(ONE, TWO), "the last line: done is False"),
    (SIMPLE_LINES, lines(ONE, "", END), "line 1: json"),  # an empty line is no JSON text
    (SIMPLE_LINES, lines(TWO, END), "line 0: index 1, expected 0"),
    (SIMPLE_LINES, lines(END.replace("2", "0"), END.replace("2", "1")), "line 0: done is True"),
    (SIMPLE_LINES, lines(ONE.replace("I am ", ""), END.replace("2", "1")), "line 0: says nothing"),
    (SIMPLE_LINES, lines(ONE.replace("assistant", "user"), END.replace("2", "1")), "message: role is 'user'"),
    (SIMPLE_LINES, lines(ONE.replace('"index":0', '"index":"0"'), END.replace("2", "1")), "index: no int"),
    (SIMPLE_LINES, lines(ONE.replace(',"index":0', ""), END.replace("2", "1")), "members"),
    (SIMPLE_LINES, lines('"text"', END.replace("2", "1")), "no object"),
    (SIMPLE_LINES, lines(WRONG.replace("true", "false")), "not done"),
    (SIMPLE_LINES, lines(WRONG.replace('"t"', "null")), "error.type: no str"),
    (SIMPLE_LINES, lines(WRONG.replace('"c"', '""')), "error.code: empty"),
    (SIMPLE_EVENTS, events(ONE, TWO), "the last event is not [DONE]"),
    (SIMPLE_EVENTS, events(ONE, END.replace("2", "1"), "[DONE]"), "frame 1: done is True"),
    (SIMPLE_EVENTS, events(ONE, f"event: fault\ndata: {BARE}", "[DONE]"), "an event 'fault'"),
    (SIMPLE_EVENTS, events(f"event: error\ndata: {WRONG}", "[DONE]"), "the error: members"),
    (SIMPLE_EVENTS, events(f"event: error\ndata: {ONE}", TWO, "[DONE]"), "before the end"),
    (SIMPLE_EVENTS, events(ONE).replace(b"\n\n", b"\r\n\r\n") + events("[DONE]"), "carriage return"),
]


def test_broken_streams(subtests: pytest.Subtests) -> None:
    for form, stream, problem in BROKEN:
        with subtests.test(form=form, stream=stream):
            assert any(problem in each for each in check_stream(form, stream)), check_stream(form, stream)


@pytest.mark.parametrize("form", SIMPLE)
def test_a_stream_without_an_end_is_cut(form: str) -> None:
    for stream in (b"", lines(ONE) if form == SIMPLE_LINES else events(ONE)):
        assert meaning_of_client_stream(form, stream).stop is Stop.CUT


BODY = '{"id":"cmpl-1","model":"m","created":1,"message":{"role":"assistant","content":"Hi"},"done":true}'


def test_whole_responses() -> None:
    form = SIMPLE_LINES
    assert check_whole(form, BODY.encode()) == []
    assert meaning_of_whole(form, BODY.encode()).text(Kind.TEXT) == "Hi"
    for old, new, problem in (
        ('"created":1', '"created":1.5', "body.created: no int"),
        ('"cmpl-1"', '""', "empty id or model"),
        ("true}", "false}", "not done"),
        ('"model":"m",', "", "members"),
        ('"Hi"', "null", "message.content: no str"),
        ("{", "", "json"),
    ):
        assert any(problem in each for each in check_whole(form, BODY.replace(old, new, 1).encode()))


def test_error_bodies() -> None:
    body = b'{"error":{"message":"m","type":"t","code":"c"}}'
    assert check_error(SIMPLE_LINES, 400, body) == []
    assert check_error(SIMPLE_LINES, 200, body) == ["status: 200 is no error"]
    for broken in (WRONG.encode(), BARE.encode(), b"[]", b'{"error":{"message":"m","type":"t","code":""}}'):
        assert check_error(SIMPLE_LINES, 400, broken)


def meaning(*blocks: tuple[Kind, str], stop: Stop = Stop.END, explanation: str = "") -> Meaning:
    meaning = Meaning(stop=stop, explanation=explanation)
    meaning.blocks.extend(Block(kind, text) for kind, text in blocks)
    return meaning


COMPARED = [
    (meaning((Kind.REASONING, "Hm."), (Kind.TEXT, "a"), (Kind.CALL, "{}"), (Kind.TEXT, "b")), "ab", True),
    (meaning((Kind.TEXT, "a"), (Kind.REFUSAL, "No.")), "aNo.", True),
    (meaning((Kind.TEXT, "a"), stop=Stop.LENGTH), "a", True),
    (meaning(stop=Stop.FILTER, explanation="Not that."), "Not that.", True),
    (meaning((Kind.TEXT, "a"), stop=Stop.FILTER, explanation="Not that."), "a", True),
    (meaning((Kind.TEXT, "a")), "ab", False),
    (meaning((Kind.TEXT, "a"), (Kind.REFUSAL, "No.")), "a", False),
    (meaning((Kind.REASONING, "Hm.")), "Hm.", False),
]


def test_the_texts_are_compared(subtests: pytest.Subtests) -> None:
    for upstream_meaning, received, passes in COMPARED:
        with subtests.test(received=received, passes=passes):
            problems = compare(upstream_meaning, meaning((Kind.TEXT, received)), SIMPLE_EVENTS)
            assert (problems == []) is passes


def test_a_failure_is_never_a_success() -> None:
    broken = meaning((Kind.TEXT, "a"), stop=Stop.CUT)
    assert compare(broken, meaning((Kind.TEXT, "a")), SIMPLE_LINES) != []
    failed = meaning((Kind.TEXT, "a"), stop=Stop.ERROR)
    failed.failure = Failure("c", "broke off")
    assert compare(broken, failed, SIMPLE_LINES) == []
