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

from dragoman import lint
from dragoman_server.recordings.document import (
    RecordedAttempt,
    RecordedRequest,
    RecordedResponse,
    Recording,
    encode,
)

SAMPLES = {"chat": samples.chat, "messages": samples.messages, "responses": samples.responses}
FULL = {"chat": oracle.CHAT, "messages": oracle.MESSAGES, "responses": oracle.RESPONSES}
ERROR = {"error": {"message": "gone", "type": "x", "code": None, "param": None}}


run = partial(run_command, "lint")


@pytest.mark.parametrize("protocol", SAMPLES)
def test_good_documents_have_no_findings(protocol: str) -> None:
    stream = samples.render(FULL[protocol], SAMPLES[protocol]())
    for body in (stream, samples.WHOLE[FULL[protocol]]):
        result = run("--protocol", protocol, body=body)
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", "-: no findings\n")


def test_a_finding_is_printed_with_its_place_its_fix_and_its_source(tmp_path: Path) -> None:
    stream = samples.render(oracle.CHAT, samples.chat()[:-3])
    place = tmp_path / "stream.sse"
    place.write_bytes(stream)
    result = run("--protocol", "chat", str(place))
    rule = lint.RULES["chat-end"]
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"error chat-end in {place}",
        f"  byte {len(stream)}: the stream ends without a finish_reason, [DONE] or an error",
        f"  {rule.fix}",
        f"  {rule.source}",
    ]
    assert result.stderr == f"{place}: 1 error\n"


TWICE = samples.render(oracle.CHAT, samples.chat()).replace(
    b'"id": "chatcmpl-1"', b'"x": 1, "id": "chatcmpl-1"', 2
)


def test_a_rule_is_printed_once() -> None:
    lines = run("--protocol", "chat", body=TWICE).stdout.splitlines()
    assert len(lines) == 5
    assert lines[1:3] == [
        "  byte 12, event 0 /x: 'x' is not a member here",
        "  and 1 more (--all prints them)",
    ]
    assert len(run("--protocol", "chat", "--all", body=TWICE).stdout.splitlines()) == 5


@pytest.mark.parametrize(("arguments", "code"), [((), 0), (("--strict",), 1)])
def test_warnings_are_an_error_only_if_strict(arguments: tuple[str, ...], code: int) -> None:
    result = run("--protocol", "chat", *arguments, body=TWICE)
    assert (result.exit_code, result.stderr) == (code, "-: 2 warnings\n")


def test_findings_as_json() -> None:
    first, _ = run("--protocol", "chat", "--json", body=TWICE).stdout.splitlines()
    rule = lint.RULES["chat-unknown-member"]
    assert json.loads(first) == {
        "in": "-",
        "rule": rule.id,
        "severity": "warning",
        "offset": 12,
        "event": 0,
        "pointer": "/x",
        "detail": "'x' is not a member here",
        "fix": rule.fix,
        "source": rule.source,
    }


def test_findings_that_are_too_many_are_counted() -> None:
    result = run("--protocol", "chat", body=b"data: {}\n\n" * 1000)
    assert result.stdout.splitlines()[-1].endswith(" more findings in - are not listed")


@pytest.mark.parametrize(
    ("arguments", "body", "rules"),
    [
        (("--protocol", "chat"), ERROR, ""),
        (("--protocol", "openai_chat", "--kind", "error", "--status", "200"), ERROR, "http-status"),
        (("--protocol", "messages", "--kind", "error", "--status", "429"), ERROR, "messages-error-type"),
        (("--protocol", "chat", "--kind", "response"), ERROR, "chat-required"),
        (("--protocol", "chat", "--kind", "stream"), b"{}", "sse-field"),
        (("--protocol", "responses"), b"", "sse-empty"),
    ],
)
def test_the_kind_of_a_file(arguments: tuple[str, ...], body: Any, rules: str) -> None:
    result = run(*arguments, body=body)
    assert rules in result.stdout
    assert (result.exit_code == 0) == (not rules)


@pytest.mark.process
def test_an_endpoint() -> None:
    with Simulator("--port", "0").ready() as simulator:
        result = run(
            "--protocol", "messages", f"http://127.0.0.1:{simulator.port}", LINT_API_KEY="sk-lint-0123456789"
        )
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"http://127.0.0.1:{simulator.port}: no findings\n"


def test_an_endpoint_that_cannot_be_reached() -> None:
    result = run("--protocol", "chat", "--model", "m", "http://127.0.0.1:1")
    assert result.exit_code == 1
    assert result.stderr.startswith("dragoman: a whole response: cannot connect to http://127.0.0.1:1")


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
    result = lint_cache(
        tmp_path, recording(1, [HI]), recording(2, [HI, YO, MORE], upstream="b"), options=("--json",)
    )
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
