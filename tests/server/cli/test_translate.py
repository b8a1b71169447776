"""`dragoman translate`: what it prints where, for each kind of document, and its exit codes."""

import io
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import oracle
import pytest
from command.cli import run as run_command
from oracle import samples

from dragoman.sse import FrameDecoder
from dragoman_server.cli import inputs
from dragoman_server.cli.inputs import begins_stream, read_pieces

REQUEST = {"model": "m", "seed": 1, "messages": [{"role": "user", "content": "Hi"}]}
SAMPLES = {"chat": samples.chat, "messages": samples.messages, "responses": samples.responses}
FULL = {"chat": oracle.CHAT, "messages": oracle.MESSAGES, "responses": oracle.RESPONSES}


run = partial(run_command, "translate")


@pytest.mark.parametrize("source", SAMPLES)
@pytest.mark.parametrize("target", SAMPLES)
def test_a_stream_is_recognized_and_translated(source: str, target: str) -> None:
    stream = samples.render(FULL[source], SAMPLES[source]())
    result = run("--from", source, "--to", target, body=stream)
    assert result.exit_code == 0, result.stderr
    assert oracle.check_stream(FULL[target], result.stdout_bytes, include_usage=True) == []


@pytest.mark.parametrize("source", SAMPLES)
@pytest.mark.parametrize("target", SAMPLES)
def test_a_whole_response_is_recognized_and_translated(source: str, target: str) -> None:
    body = samples.WHOLE[FULL[source]]
    result = run("--from", source, "--to", target, body=body)
    assert result.exit_code == 0, result.stderr
    assert oracle.check_whole(FULL[target], result.stdout_bytes) == []
    assert json.loads(result.stdout)["model"] == body["model"]


@pytest.mark.parametrize("kind", [(), ("--kind", "stream")])
def test_a_stream_that_is_an_array_is_translated(
    kind: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("--from", "gemini", "--to", "chat")
    array = b" " + json.dumps(samples.gemini(), indent=1).encode()
    events = run(*command, body=samples.render(oracle.GEMINI, samples.gemini()))
    result = run(*command, *kind, body=array)
    assert (result.exit_code, result.stdout) == (0, events.stdout), result.stderr
    assert "must be a JSON object, not an array" in run(*command, "--kind", "request", body=array).stderr
    monkeypatch.setattr(inputs, "FrameDecoder", partial(FrameDecoder, max_frame_bytes=9))
    result = run(*command, *kind, body=array[:-9])
    assert (result.exit_code, result.stderr) == (1, "dragoman: one frame has more than 9 bytes\n")


def test_a_response_to_a_blocked_prompt_is_no_error() -> None:
    result = run("--from", "gemini", "--to", "chat", body={"promptFeedback": {"blockReason": "SAFETY"}})
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["choices"][0]["finish_reason"] == "content_filter"


def test_a_request_for_the_same_protocol_ends_with_one_newline() -> None:
    body = b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"Hi"}]}\n'
    assert run("--from", "messages", "--to", "messages", body=body).stdout_bytes == body


def test_a_response_in_the_light_of_its_request(tmp_path: Path) -> None:
    """A custom tool is a function upstream: only the request has that."""
    tool = {"type": "custom", "name": "patch", "description": "Applies a patch"}
    place = tmp_path / "request.json"
    place.write_text(json.dumps({**REQUEST, "tools": [{"type": "custom", "custom": tool}]}))
    block = {"type": "tool_use", "id": "t1", "name": "patch", "input": {"input": "***"}}
    body = {**samples.WHOLE[oracle.MESSAGES], "content": [block], "stop_reason": "tool_use"}
    calls = []
    for more in ((), ("--request", str(place))):
        result = run("--from", "messages", "--to", "chat", "--model", "mine", *more, body=body)
        assert json.loads(result.stdout)["model"] == "mine"
        calls.append(json.loads(result.stdout)["choices"][0]["message"]["tool_calls"][0]["type"])
    assert calls == ["function", "custom"]


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"", None),
        (b"\xef\xbb\xbf \n", None),
        (b"da", None),
        (b"data: {", True),
        (b": ping\n", True),
        (b"\r\nevent: x\n", True),
        (b" [", True),
        (b"{", False),
        (b"data", None),
        (b"datum", False),
        (b"retry", None),
        (b'"data:"', False),
    ],
)
def test_the_first_bytes_show_a_stream(head: bytes, expected: bool | None) -> None:
    assert begins_stream(head) is expected


def test_pieces_of_what_is_not_buffered() -> None:
    assert list(read_pieces(io.BytesIO(b"abc"))) == [b"abc"]


@pytest.mark.process
def test_a_stream_is_printed_while_it_arrives() -> None:
    command = (sys.executable, "-m", "dragoman_server", "translate", "--from", "chat", "--to", "messages")
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"]},
    ) as process:
        assert process.stdin is not None
        for number in range(3):
            delta = {"choices": [{"index": 0, "delta": {"content": f"text {number}"}}]}
            process.stdin.write(b"data: " + json.dumps(delta).encode() + b"\n\n")
            process.stdin.flush()
            # Blocks until the text is there: the input is still open.
            while f"text {number}".encode() not in (line := process.stdout.readline()):
                assert line
        process.stdin.close()
        process.stdout.read()
