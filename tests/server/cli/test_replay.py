"""`dragoman replay`: the first difference to what was recorded, and the small recording that still shows it."""

# ruff: noqa: E501 -- the tables are read by row

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import oracle
import pytest
import rows
from click.testing import Result
from command.cli import run as run_command
from msgspec.structs import replace as with_
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
    response = with_(recording.response, pieces=(Piece(0.3, data.decode()),))
    return with_(recording, response=response)


def with_body(recording: Recording, body: bytes) -> Recording:
    return with_(recording, attempts=(with_(recording.attempts[0], body=body.decode()),))


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


def attempts(change: Callable[[RecordedAttempt], list[RecordedAttempt]]) -> Change:
    return lambda recording: with_(recording, attempts=tuple(change(recording.attempts[0])))


def requested(**members: Any) -> Change:
    return lambda recording: with_(recording, request=with_(recording.request, **members))


def left(recording: Recording) -> Recording:
    cut = with_response(recording, joined(recording.response.pieces)[:700])
    return with_(cut, response=with_(cut.response, completed=False))


def broken(recording: Recording) -> Recording:
    cut = recording_of(upstream=samples.render(oracle.CHAT, samples.chat()[:4]))
    cut = with_(cut, attempts=(with_(cut.attempts[0], error="the connection broke"),))
    return with_response(cut, replay(cut).response)


def fan_out(recording: Recording) -> Recording:
    chat = json.dumps({"model": "m", "n": 2, "messages": [{"role": "user", "content": "Hi"}]})
    request = RecordedRequest(oracle.CHAT, "/v1/chat/completions", body=chat)
    attempt = with_(recording.attempts[0], protocol=oracle.MESSAGES)
    return with_(recording, request=request, attempts=(attempt,))


PING = 'event: ping\ndata: {"type":"ping"}\n\n'
# Changes of a recorded stream; of a whole response if the name says so.
CHANGES: dict[str, Change] = {
    "nothing": lambda recording: recording,
    "nothing of a whole response": lambda recording: recording,
    "another heartbeat": replaced("event: content_block_start", f"{PING}event: content_block_start"),
    "no heartbeat": replaced(PING, ""),
    "a client that left": left,
    "a broken connection": broken,
    "other attempts, of which this one was read last": attempts(
        lambda winner: [
            with_(winner, status=503, pieces=()),
            winner,
            with_(winner, pieces=(Piece(0.1, "data: {}\n\n"),)),
            with_(winner, pieces=()),
        ]
    ),
    "a text": replaced('"text":"Let', '"text":"Set'),
    "a type of a whole response": replaced('"tool_use"', '"tool_call"'),
    "a new member": replaced('"stop_sequence":null', '"stop_sequence":null,"x":1'),
    "no response": lambda recording: with_response(recording, b""),
    "the request": attempts(lambda attempt: [with_(attempt, body=attempt.body.replace("Hi", "Ho"))]),
    "a request that is no JSON": attempts(lambda attempt: [with_(attempt, body="no JSON")]),
    "a request that is refused now": requested(body='{"model":"m"}'),
    "it is not complete": lambda recording: with_(recording, complete=False),
    "no attempt": attempts(lambda attempt: []),
    "an unknown protocol": requested(protocol="x"),
    "a fan-out": fan_out,
}


def test_the_first_difference(tmp_path: Path) -> None:
    def output_of(lines: list[str]) -> list[str]:
        recording = CHANGES[lines[0]](recording_of("whole response" not in lines[0]))
        result = run(tmp_path, recording)
        printed = [*result.stdout.splitlines(), *(f"! {line}" for line in result.stderr.splitlines())]
        status = [f"exit {result.exit_code}"] if result.exit_code else []
        return [line.replace(f"{tmp_path}/", "") for line in printed] + status

    rows.check(Path(__file__).with_name("replay.txt"), output_of)


def test_a_file_that_is_no_recording_exits_with_2(tmp_path: Path) -> None:
    place = tmp_path / "x.json"
    place.write_text("[]")
    result = run_command("replay", str(place))
    assert (result.exit_code, "not a recording" in result.stderr) == (2, True)


def test_a_wrong_value_in_a_stream_is_shrunk(tmp_path: Path) -> None:
    recording = replaced('"text":"Let', '"text":"Set')(recording_of())
    result = run(tmp_path, recording, "--minimize")
    small = load(tmp_path / "r.min.json")
    before, kept = joined(recording.attempts[0].pieces), joined(small.attempts[0].pieces)
    found = result.stdout.splitlines()[-1]
    assert found == f"{tmp_path / 'r.min.json'}: {len(kept)} of the upstream's {len(before)} bytes show it"
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
    new = '"stop_sequence":null,"provider":"a-provider-nobody-knows"'
    recording = replaced('"stop_sequence":null', new)(recording)
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
    found = replay(load(tmp_path / "r.min.json")).error
    assert found == "the upstream's stream ended without a finish reason"


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        ('"content":"Hi"', '"content":"Ho"', {"messages": [{"role": "user", "content": "Hi"}]}),
        # The client sent it, so a translator could have passed it on.
        ('"messages"', '"note":"user_id","messages"', {"messages": [], "metadata": {"user_id": "u1"}}),
    ],
)
def test_a_difference_of_requests_is_shrunk(
    tmp_path: Path, old: str, new: str, kept: dict[str, object]
) -> None:
    recording = recording_of()
    body = recording.attempts[0].body.replace(old, new)
    run(tmp_path, with_body(recording, body.encode()), "--minimize")
    small = load(tmp_path / "r.min.json").request.body
    assert json.loads(small) == {"model": "m", "max_tokens": 9, **kept}
