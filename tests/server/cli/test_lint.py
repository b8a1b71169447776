"""`dragoman lint`: what it prints for streams, responses, errors and endpoints, and its exit codes."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import oracle
import pytest
from click.testing import Result
from command.cli import run as run_command
from oracle import samples
from sdk_clients.processes import Simulator

from dragoman_server.recordings.document import (
    RecordedAttempt,
    RecordedRequest,
    RecordedResponse,
    Recording,
    encode,
)

SAMPLES = {"chat": samples.chat, "messages": samples.messages, "responses": samples.responses}
FULL = {"chat": oracle.CHAT, "messages": oracle.MESSAGES, "responses": oracle.RESPONSES}


run = partial(run_command, "lint")


@pytest.mark.parametrize("protocol", SAMPLES)
def test_good_documents_have_no_findings(protocol: str) -> None:
    stream = samples.render(FULL[protocol], SAMPLES[protocol]())
    for body in (stream, samples.WHOLE[FULL[protocol]]):
        result = run("--protocol", protocol, body=body)
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", "-: no findings\n")


def test_findings_that_are_too_many_are_counted() -> None:
    result = run("--protocol", "chat", body=b"data: {}\n\n" * 1000)
    assert result.stdout.splitlines()[-1].endswith(" more findings in - are not listed")


@pytest.mark.process
def test_an_endpoint() -> None:
    with Simulator("--port", "0").ready() as simulator:
        result = run(
            "--protocol", "messages", f"http://127.0.0.1:{simulator.port}", LINT_API_KEY="sk-lint-0123456789"
        )
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"http://127.0.0.1:{simulator.port}: no findings\n"


# dragoman lint --cache


def recording(
    time: int, turns: list[Any], sent: list[Any] | None = None, upstream: str = "up", **members: Any
) -> Recording:
    """Return a request of a Messages client, and what a Chat upstream got."""
    path = members.pop("path", "/v1/messages")
    body = {"model": "m", "max_tokens": 9, "messages": turns, **members}
    to = json.dumps(
        {"model": "m2", "messages": turns if sent is None else sent, "tools": members.get("tools")}
    )
    attempt = RecordedAttempt(0.1, upstream, oracle.CHAT, "m2", "http://up.test", (), to, {}, 200)
    request = RecordedRequest(oracle.MESSAGES, path, body=json.dumps(body))
    return Recording(
        id=str(time),
        time=time,
        dragoman="0",
        request=request,
        response=RecordedResponse(200),
        attempts=(attempt,),
    )


def lint_cache(folder: Path, *recordings: Recording | bytes, options: tuple[str, ...] = ()) -> Result:
    files = []
    for number, each in enumerate(recordings):
        files.append(folder / f"{number}.json")
        files[-1].write_bytes(each if isinstance(each, bytes) else encode(each))
    return run("--cache", *options, *map(str, reversed(files)))


def say(role: str, text: Any) -> dict[str, Any]:
    return {"role": role, "content": text}


HI, YO, MORE = say("user", "hi"), say("assistant", "yo"), say("user", "more")
MARKED = say("user", [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}])


@pytest.mark.promise("R14")
def test_prefixes_that_last_have_no_findings(tmp_path: Path) -> None:
    other = say("user", "a title for this?")
    result = lint_cache(
        tmp_path,
        recording(1, [MARKED]),
        recording(2, [other]),  # at the side of the conversation
        recording(3, [HI, YO, MORE], [HI, YO, MORE]),
        recording(3, [HI, YO, MORE, YO, HI]),
        recording(4, [HI]),  # it goes back
        recording(5, [], path="/v1/messages/count_tokens"),
        recording(
            6, [HI, YO], [HI, YO], system="x-anthropic-billing-header: 1"
        ),  # what the upstream never gets
        recording(7, [HI, YO, MORE, YO], [HI, YO, MORE, YO], system="x-anthropic-billing-header: 2"),
        msgspec.structs.replace(recording(6, [HI]), attempts=()),
        msgspec.structs.replace(
            recording(7, [HI]), request=RecordedRequest(oracle.MESSAGES, "/v1/messages", body="[")
        ),
    )
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "7 requests in 3 sessions: no findings\n"


def test_a_prefix_that_the_gateway_changed_is_an_error(tmp_path: Path) -> None:
    turns = [HI, YO, MORE]
    late = recording(2, [*turns, YO, MORE], [HI, {**YO, "reasoning": "hm"}, MORE, YO, MORE])
    result = lint_cache(tmp_path, recording(1, turns), late)
    first, second = tmp_path / "0.json", tmp_path / "1.json"
    assert (result.exit_code, result.stdout.splitlines()) == (
        1,
        [
            f"error cache-prefix in {second}",
            f"  /messages/1/reasoning: not as in {first}; changed by the gateway",
            "  35 of 65 bytes of the cached prompt were lost",
        ],
    )
    assert result.stderr == "2 requests in 1 session: 1 error\n"


def test_another_upstream_has_another_cache(tmp_path: Path) -> None:
    turns = [HI, YO, MORE]
    result = lint_cache(tmp_path, recording(1, [HI]), recording(2, turns, upstream="b"), options=("--json",))
    found = json.loads(result.stdout)
    assert (result.exit_code, found["severity"], found["by"], found["pointer"]) == (1, "error", "gateway", "")


def test_a_prefix_that_the_client_changed_is_a_warning(tmp_path: Path) -> None:
    one, two = [{"name": "f", "description": "at 9:00"}], [{"name": "f", "description": "at 9:01"}]
    requests = (recording(1, [HI], tools=one), recording(2, [HI, YO, MORE], tools=two))
    result = lint_cache(tmp_path, *requests, options=("--json",))
    assert json.loads(result.stdout) == {
        "in": str(tmp_path / "1.json"),
        "rule": "cache-prefix",
        "severity": "warning",
        "before": str(tmp_path / "0.json"),
        "by": "client",
        "pointer": "/tools/0/description",
        "lost_bytes": 36,
        "prompt_bytes": 36,
    }
    assert (result.exit_code, lint_cache(tmp_path, *requests, options=("--strict",)).exit_code) == (0, 1)


def test_a_file_that_is_no_recording(tmp_path: Path) -> None:
    result = lint_cache(tmp_path, b"{}")
    assert (result.exit_code, "not a recording" in result.stderr) == (2, True)
