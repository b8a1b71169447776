"""`dragoman translate`: what it prints where, for each kind of document, and its exit codes."""

import io
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import oracle
import pytest
from command.cli import run as run_command
from oracle import samples

from dragoman_server.cli.inputs import begins_stream, read_pieces

REQUEST = {"model": "m", "seed": 1, "messages": [{"role": "user", "content": "Hi"}]}
LOST_SEED = "loss: dropped /seed: the upstream's protocol has no such setting\n"
ERROR = {"error": {"message": "gone", "type": "x", "code": None, "param": None}}
SAMPLES = {"chat": samples.chat, "messages": samples.messages, "responses": samples.responses}
FULL = {"chat": oracle.CHAT, "messages": oracle.MESSAGES, "responses": oracle.RESPONSES}


run = partial(run_command, "translate")


def test_a_request_goes_to_stdout_and_its_losses_to_stderr() -> None:
    result = run("--from", "chat", "--to", "messages", body=REQUEST)
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "model": "m",
        "max_tokens": 32000,
        "messages": [{"role": "user", "content": "Hi"}],
    }
    assert result.stderr == LOST_SEED


def test_losses_as_json() -> None:
    result = run("--from", "chat", "--to", "messages", "--json", body=REQUEST)
    [line] = result.stderr.splitlines()
    assert json.loads(line) == {
        "code": "dropped",
        "path": "/seed",
        "detail": "the upstream's protocol has no such setting",
    }


@pytest.mark.parametrize(("name", "code"), [("openai_chat", 0), ("messages", 1)])
def test_strict_exits_with_1_if_something_was_lost(name: str, code: int) -> None:
    result = run("--from", "chat", "--to", name, "--strict", body=REQUEST)
    assert (result.exit_code, bool(result.stdout)) == (code, True)


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


def test_an_error_response() -> None:
    result = run("--from", "chat", "--to", "messages", "--status", "429", body=ERROR)
    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"] == {"type": "rate_limit_error", "message": "gone"}
    assert result.stderr == "dragoman: the response failed: gone\n"


def test_a_stream_that_was_cut_fails_in_the_clients_form() -> None:
    stream = b'data: {"choices":[{"index":0,"delta":{"content":"Hello"}}]}\n\n'
    result = run("--from", "chat", "--to", "messages", body=stream)
    assert result.exit_code == 1
    assert "event: error\n" in result.stdout
    assert (
        result.stderr
        == "dragoman: the response failed: the upstream's stream ended without a finish reason\n"
    )


def test_a_request_for_the_same_protocol_ends_with_one_newline() -> None:
    body = b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"Hi"}]}\n'
    assert run("--from", "messages", "--to", "messages", body=body).stdout_bytes == body


@pytest.mark.parametrize(
    ("arguments", "body", "message"),
    [
        (("--from", "chat", "--to", "messages"), b"{", "dragoman: the request body is not valid JSON"),
        (("--from", "chat", "--to", "messages"), {"model": "m"}, "messages"),
        (("--from", "chat", "--to", "messages", "--kind", "stream"), b"", "dragoman: the response failed"),
        (("--from", "chat", "--to", "messages", "--kind", "stream"), b"data: 1\n\n", "dragoman: the response failed"),
    ],
)  # fmt: skip
def test_what_cannot_be_translated_exits_with_1(arguments: tuple[str, ...], body: Any, message: str) -> None:
    result = run(*arguments, body=body)
    assert result.exit_code == 1
    assert message in result.stderr


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


def test_several_choices_are_several_requests() -> None:
    result = run("--from", "chat", "--to", "messages", body={**REQUEST, "n": 3})
    assert result.exit_code == 0
    assert "note: the gateway sends this 3 times, once for each choice\n" in result.stderr


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"", None),
        (b"\xef\xbb\xbf \n", None),
        (b"da", None),
        (b"data: {", True),
        (b": ping\n", True),
        (b"\r\nevent: x\n", True),
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
        assert process.stdout is not None
        for number in range(3):
            delta = {"choices": [{"index": 0, "delta": {"content": f"text {number}"}}]}
            process.stdin.write(b"data: " + json.dumps(delta).encode() + b"\n\n")
            process.stdin.flush()
            # Blocks until the text is there: the input is still open.
            while f"text {number}".encode() not in (line := process.stdout.readline()):
                assert line
        process.stdin.close()
        process.stdout.read()
