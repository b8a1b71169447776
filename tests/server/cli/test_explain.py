"""`dragoman explain`: the route, the sources, the request as it would be sent, the losses, and no secret."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from command.cli import run as run_command

KEY, OTHER_KEY, TEAM = (
    "sk-explain-0123456789-abcdef",
    "sk-explain-9876543210-fedcba",
    "team-explain-0123456789",
)
CONFIG = f"""\
[[upstreams]]
name = "local"
protocol = "openai_chat"
base_url = "http://127.0.0.1:9000/v1"
api_key = "{KEY}"
headers = {{x-team = "{TEAM}"}}

[[upstreams]]
name = "claude"
protocol = "anthropic_messages"
base_url = "https://api.anthropic.com"

[[accounts]]
upstream = "claude"
name = "a"
api_key = "{OTHER_KEY}"

[[accounts]]
upstream = "claude"
name = "b"
api_key = "{OTHER_KEY}2"

[[capabilities]]
model = "qwen*"
prefill = false

[models]
"claude-*" = ["local/qwen3", "claude/claude-sonnet-4-6"]
"""
MARKED = {"type": "text", "text": "Be kind", "cache_control": {"type": "ephemeral"}}
REQUEST = {
    "model": "claude-x",
    "max_tokens": 9,
    "system": [MARKED],
    "messages": [{"role": "user", "content": "Hi"}],
}


@pytest.fixture(autouse=True)
def _configured() -> None:
    Path("dragoman.toml").write_text(CONFIG)


def run(*arguments: str, body: Any = REQUEST) -> Result:
    result = run_command("explain", *arguments, body=body)
    for secret in (KEY, OTHER_KEY, TEAM):
        assert secret not in result.output
    return result


def explained(*arguments: str, body: Any = REQUEST) -> Any:
    return json.loads(run("--json", *arguments, body=body).stdout)


def test_the_chain_is_explained_in_its_order() -> None:
    first, second = explained()["upstreams"]
    assert [(step["target"], step["rule"], step["protocol"], step["mode"]) for step in (first, second)] == [
        ("local/qwen3", "models.claude-*", "openai_chat", "translated"),
        ("claude/claude-sonnet-4-6", "models.claude-*", "anthropic_messages", "relayed"),
    ]
    assert (first["accounts"], second["accounts"]) == (["local/default"], ["claude/a", "claude/b"])


def test_the_request_is_as_it_would_be_sent() -> None:
    first, second = explained()["upstreams"]
    assert first["url"] == "http://127.0.0.1:9000/v1/chat/completions"
    assert ["x-team", "****"] in first["headers"]
    assert [name for name, value in first["headers"] if value.startswith("Bearer ****")] == ["authorization"]
    assert first["body"] == {
        "model": "qwen3",
        "messages": [{"role": "system", "content": "Be kind"}, {"role": "user", "content": "Hi"}],
        "max_tokens": 9,
    }
    assert first["losses"] == [
        ["dropped", "/system/0/cache_control", "the upstream does not accept cache marks"]
    ]
    assert second["body"] == {**REQUEST, "model": "claude-sonnet-4-6"}
    assert [value for name, value in second["headers"] if name == "x-api-key"] == [f"****{OTHER_KEY[-4:]}"]


def test_each_capability_has_its_source() -> None:
    first, second = explained()["upstreams"]
    sources = {each["name"]: (each["value"], each["source"]) for each in first["capabilities"]}
    assert sources["prefill"] == (False, "[[capabilities]] qwen*")
    assert list(sources) == sorted(sources)
    assert sources["max_tokens_field"] == ("max_tokens", "a host on a private network")
    assert {each["source"] for each in second["capabilities"]} >= {
        "the host of anthropic",
        "the model family claude-*",
    }


def test_the_text() -> None:
    lines = run().stdout.splitlines()
    assert lines[:4] == [
        "model claude-x, requested in anthropic_messages",
        "goes to local/qwen3 (models.claude-*)",
        "  translated to openai_chat",
        "  accounts (least_recently_used): local/default",
    ]
    for line in (
        "    prefill = false    ([[capabilities]] qwen*)",
        "POST http://127.0.0.1:9000/v1/chat/completions",
        "  dropped /system/0/cache_control: the upstream does not accept cache marks",
        "if that fails, goes to claude/claude-sonnet-4-6 (models.claude-*)",
        "  known about the model, which a relayed request is not fitted to:",
        "lost: nothing",
    ):
        assert line in lines


def test_long_strings_are_cut_in_the_text_only() -> None:
    body = {**REQUEST, "messages": [{"role": "user", "content": "x" * 2000}]}
    assert f'"content": "{"x" * 500}... (1500 more characters)"' in run(body=body).stdout
    assert explained(body=body)["upstreams"][0]["body"]["messages"][1]["content"] == "x" * 2000


def test_headers_and_path_of_the_client() -> None:
    body = {"model": "claude/claude-opus-4-8", "max_tokens": 9, "messages": []}
    arguments = ("--path", "/v1/messages?beta=true", "--header", "Anthropic-Beta: x-2026")
    [step] = explained(*arguments, body=body)["upstreams"]
    assert step["url"] == "https://api.anthropic.com/v1/messages?beta=true"
    assert ["anthropic-beta", "x-2026"] in step["headers"]
    responses = {"model": "local/qwen3", "input": "Hi"}
    assert explained("--path", "/v1/responses", body=responses)["protocol"] == "openai_responses"


def test_several_choices_are_several_requests() -> None:
    body = {"model": "claude/claude-opus-4-8", "n": 3, "messages": [{"role": "user", "content": "Hi"}]}
    assert (
        "  it is sent 3 times, once for each choice"
        in run("--path", "/v1/chat/completions", body=body).stdout
    )


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ({"model": "gpt"}, 'the gateway refuses it: status 404: the model "gpt" is not known here; '),
        ([], "the gateway refuses it: status 400: the request body must be a JSON object, not an array"),
        ({"model": "local/x"}, "local/x cannot take it: status 400: max_tokens: Field required (at /max_tokens)"),
    ],
)  # fmt: skip
def test_a_request_that_would_be_refused_exits_with_1(body: Any, line: str) -> None:
    result = run(body=body)
    assert result.exit_code == 1
    assert line in result.stdout
    assert json.loads(run("--json", body=body).stdout)["upstreams"][0]["status"] in (400, 404)


def test_a_fallback_may_take_what_the_first_upstream_cannot() -> None:
    result = run(body={"model": "claude-x"})
    assert result.exit_code == 0
    assert "local/qwen3 cannot take it" in result.stdout


def test_a_model_that_a_list_may_decide_has_a_note() -> None:
    Path("dragoman.toml").write_text(
        '[[upstreams]]\nname = "local"\nprotocol = "openai_chat"\nbase_url = "http://127.0.0.1:9000/v1"\n'
    )
    notes = explained()["notes"]
    assert notes[0].startswith("the gateway looks into the models that local lists")
    assert notes[1].startswith("add to dragoman.toml, below [models]")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--path", "/x"), "dragoman: no model is requested at '/x': write one of /v1/chat/completions, /v1/messages"),
        (("--header", "x"), "Invalid value for --header: write NAME: VALUE"),
        (("--config", "missing.toml"), "missing.toml"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_exits_with_2(arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
