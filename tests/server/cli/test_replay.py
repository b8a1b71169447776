"""`dragoman replay`: the first difference to what was recorded, and the small recording that still shows it."""

# ruff: noqa: E501 -- the tables are read by row

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import oracle
import pytest
from click.testing import Result
from command.cli import run as run_command
from oracle import samples

from dragoman_server.recordings.document import (
    Piece,
    RecordedAttempt,
    RecordedRequest,
    RecordedResponse,
    Recording,
    encode,
    joined,
    load,
)
from dragoman_server.recordings.replay import attempt_of, replay

REQUEST = {
    "model": "m",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "Hi"}],
    "metadata": {"user_id": "u1"},
}
Change = Callable[[Recording], Recording]


def recording_of(stream: bool = True, *, body: object = REQUEST, upstream: bytes | None = None) -> Recording:
    """Return what a gateway records for a Messages client of a Chat upstream, with what is sent today."""
    if upstream is None:
        whole = json.dumps(samples.WHOLE[oracle.CHAT]).encode()
        upstream = samples.render(oracle.CHAT, samples.chat()) if stream else whole
    request = {**body, "stream": stream} if isinstance(body, dict) else body
    recording = Recording(
        id="0123456789abcdef",
        time=7,
        dragoman="0",
        request=RecordedRequest(oracle.MESSAGES, "/v1/messages", body=json.dumps(request)),
        response=RecordedResponse(200),
        attempts=(
            RecordedAttempt(
                0.1, "local", oracle.CHAT, "qwen3", "http://up.test", (), "", {}, 200, (), (Piece(0.2, upstream.decode()),)
            ),
        ),
        model="m",
    )  # fmt: skip
    now = replay(recording)
    return with_body(with_response(recording, now.response), now.request)


def with_response(recording: Recording, data: bytes) -> Recording:
    response = msgspec.structs.replace(recording.response, pieces=(Piece(0.3, data.decode()),))
    return msgspec.structs.replace(recording, response=response)


def with_body(recording: Recording, body: bytes) -> Recording:
    attempt = msgspec.structs.replace(recording.attempts[0], body=body.decode())
    return msgspec.structs.replace(recording, attempts=(attempt,))


def replaced(old: str, new: str) -> Change:
    def change(recording: Recording) -> Recording:
        text = joined(recording.response.pieces).decode()
        assert old in text
        return with_response(recording, text.replace(old, new, 1).encode())

    return change


def run(tmp_path: Path, recording: Recording, *arguments: str) -> Result:
    place = tmp_path / "r.json"
    place.write_bytes(encode(recording))
    return run_command("replay", str(place), *arguments)


@pytest.mark.parametrize("stream", [True, False])
def test_what_has_not_changed(tmp_path: Path, stream: bool) -> None:
    result = run(tmp_path, recording_of(stream))
    place = tmp_path / "r.json"
    assert (result.exit_code, result.stdout) == (
        0,
        f"{place}: {oracle.MESSAGES} from {oracle.CHAT} at local/qwen3: as it was recorded\n",
    )


PING = 'event: ping\ndata: {"type":"ping"}\n\n'


@pytest.mark.parametrize(
    "change",
    [
        replaced("event: content_block_start", f"{PING}event: content_block_start"),
        replaced(PING, ""),
    ],
)
def test_heartbeats_do_not_count(tmp_path: Path, change: Change) -> None:
    assert run(tmp_path, change(recording_of())).exit_code == 0


def test_a_client_that_left_has_a_part(tmp_path: Path) -> None:
    recording = recording_of()
    cut = with_response(recording, joined(recording.response.pieces)[:700])
    left = msgspec.structs.replace(cut, response=msgspec.structs.replace(cut.response, completed=False))
    assert run(tmp_path, left).exit_code == 0


@pytest.mark.parametrize(
    ("stream", "change", "lines"),
    [
        (True, replaced('"text":"Let', '"text":"Set'), ["the response differs at event 6 /delta/text", '  recorded: "Set', '  now:      "Let']),
        (False, replaced('"tool_use"', '"tool_call"'), ["the response differs at /content/", '  recorded: "tool_call"', '  now:      "tool_use"']),
        (True, replaced('"stop_sequence":null', '"stop_sequence":null,"x":1'), ["the response differs at event 0 /message/x", "  recorded: 1", "  now:      nothing"]),
        (True, lambda recording: with_response(recording, b""), ["the response differs at event 0", "  recorded: nothing", "  now:      "]),
        (True, lambda recording: with_body(recording, recording.attempts[0].body.replace("Hi", "Ho").encode()), ["the request differs at /messages/0/content", '  recorded: "Ho"', '  now:      "Hi"']),
        (True, lambda recording: with_body(recording, b"no JSON"), ["the request differs", '  recorded: "no JSON"', "  now:      "]),
    ],
)  # fmt: skip
def test_the_first_difference(tmp_path: Path, stream: bool, change: Change, lines: list[str]) -> None:
    result = run(tmp_path, change(recording_of(stream)))
    assert result.exit_code == 1
    assert lines[0] in result.stdout.splitlines()[0]
    for line, expected in zip(result.stdout.splitlines()[1:], lines[1:], strict=True):
        assert line.startswith(expected)


def test_a_wrong_value_in_a_stream_is_shrunk(tmp_path: Path) -> None:
    recording = replaced('"text":"Let', '"text":"Set')(recording_of())
    result = run(tmp_path, recording, "--minimize")
    small = load(tmp_path / "r.min.json")
    before, kept = joined(recording.attempts[0].pieces), joined(small.attempts[0].pieces)
    assert (
        result.stdout.splitlines()[-1]
        == f"{tmp_path / 'r.min.json'}: {len(kept)} of the upstream's {len(before)} bytes show it"
    )
    assert len(kept) < 120
    assert b'"content":"Let' in kept
    assert "metadata" not in small.request.body
    again = run_command("replay", str(tmp_path / "r.min.json"))
    assert again.exit_code == 1
    assert "the response differs at event 0" in again.stdout


def test_a_wrong_value_in_a_document_is_shrunk(tmp_path: Path) -> None:
    recording = replaced('"name":"', '"name":"not_')(recording_of(stream=False))
    target = tmp_path / "small.json"
    assert run(tmp_path, recording, "--minimize", "--output", str(target)).exit_code == 1
    kept = json.loads(joined(attempt_of(load(target)).pieces))
    assert "usage" not in kept
    assert kept["choices"][0]["message"]["tool_calls"]


def test_a_value_that_is_missing_now_is_shrunk(tmp_path: Path) -> None:
    """The upstream sent it, so a translator could have passed it on."""
    chunks = samples.chat()
    assert isinstance(chunks[2], dict)
    chunks[2]["provider"] = "a-provider-nobody-knows"
    recording = recording_of(upstream=samples.render(oracle.CHAT, chunks))
    recording = replaced('"stop_sequence":null', '"stop_sequence":null,"provider":"a-provider-nobody-knows"')(
        recording
    )
    run(tmp_path, recording, "--minimize")
    kept = joined(load(tmp_path / "r.min.json").attempts[0].pieces)
    assert b"a-provider-nobody-knows" in kept
    assert len(kept) < 120


def test_a_response_that_fails_now_is_shrunk_with_its_error(tmp_path: Path) -> None:
    stream = samples.render(oracle.CHAT, samples.chat()[:4])
    recording = replaced("event: error", "event: ping")(recording_of(upstream=stream))
    result = run(tmp_path, recording, "--minimize")
    assert (
        "  now the response fails: the upstream's stream ended without a finish reason"
        in result.stdout.splitlines()
    )
    assert (
        replay(load(tmp_path / "r.min.json")).error == "the upstream's stream ended without a finish reason"
    )


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [('"content":"Hi"', '"content":"Ho"', '"Hi"'), ('"messages"', '"user":"u1","messages"', '"u1"')],
)
def test_a_difference_of_requests_is_shrunk(tmp_path: Path, old: str, new: str, kept: str) -> None:
    recording = recording_of()
    body = recording.attempts[0].body.replace('"user":"u1"', '"x":1').replace(old, new)
    run(tmp_path, with_body(recording, body.encode()), "--minimize")
    small = load(tmp_path / "r.min.json").request.body
    assert len(small) <= len(recording.request.body)
    assert kept in small or "messages" in small


def test_of_several_attempts_the_one_counts_that_was_read_last(tmp_path: Path) -> None:
    recording = recording_of()
    winner = recording.attempts[0]
    failed = msgspec.structs.replace(winner, status=503, pieces=())
    slower = msgspec.structs.replace(winner, pieces=(Piece(0.1, "data: {}\n\n"),))
    silent = msgspec.structs.replace(winner, pieces=())
    attempts = (failed, winner, slower, silent)
    assert run(tmp_path, msgspec.structs.replace(recording, attempts=attempts)).exit_code == 0


def test_a_recording_that_is_not_complete_has_a_note(tmp_path: Path) -> None:
    result = run(tmp_path, msgspec.structs.replace(recording_of(), complete=False))
    assert result.stderr.startswith("note: the recording is not complete")


def test_a_broken_connection_is_replayed(tmp_path: Path) -> None:
    recording = recording_of(upstream=samples.render(oracle.CHAT, samples.chat()[:4]))
    attempt = msgspec.structs.replace(recording.attempts[0], error="the connection broke")
    recording = msgspec.structs.replace(recording, attempts=(attempt,))
    assert run(tmp_path, with_response(recording, replay(recording).response)).exit_code == 0


def test_a_request_that_is_refused_now_is_a_difference(tmp_path: Path) -> None:
    recording = recording_of()
    request = msgspec.structs.replace(recording.request, body='{"model":"m"}')
    result = run(tmp_path, msgspec.structs.replace(recording, request=request))
    assert result.exit_code == 1
    assert "  now the response fails: the request is refused now: max_tokens: Field required" in result.stdout


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda recording: msgspec.structs.replace(recording, attempts=()), "no attempt had a response that was translated"),
        (lambda recording: msgspec.structs.replace(recording, request=msgspec.structs.replace(recording.request, protocol="x")), "unknown protocol: x or openai_chat"),
    ],
)  # fmt: skip
def test_what_cannot_be_replayed_exits_with_2(tmp_path: Path, change: Change, message: str) -> None:
    result = run(tmp_path, change(recording_of()))
    assert (result.exit_code, result.stderr) == (2, f"dragoman: {message}\n")


def test_a_fan_out_cannot_be_replayed(tmp_path: Path) -> None:
    recording = recording_of()
    chat = json.dumps({"model": "m", "n": 2, "messages": [{"role": "user", "content": "Hi"}]})
    attempt = msgspec.structs.replace(recording.attempts[0], protocol=oracle.MESSAGES)
    fan_out = msgspec.structs.replace(
        recording,
        request=RecordedRequest(oracle.CHAT, "/v1/chat/completions", body=chat),
        attempts=(attempt,),
    )
    result = run(tmp_path, fan_out)
    assert (result.exit_code, "once for each choice" in result.stderr) == (2, True)


def test_a_file_that_is_no_recording_exits_with_2(tmp_path: Path) -> None:
    place = tmp_path / "x.json"
    place.write_text("[]")
    result = run_command("replay", str(place))
    assert result.exit_code == 2
    assert "not a recording" in result.stderr
