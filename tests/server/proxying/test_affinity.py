"""Which requests are one conversation, by the session that a client names, else by its beginning, and what requests
refer to: rows of affinity.txt."""

import json
from pathlib import Path
from typing import Any

import pytest
import rows
from msgspec import Raw

from dragoman import RequestHead, peek
from dragoman_server.proxying.affinity import conversation_key, reasoning_key, referred_ids

Json = dict[str, Any]


def turns(*texts: str) -> list[Json]:
    roles = ("user", "assistant")
    return [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]


def key(body: Json, headers: dict[str, str] | None = None, owner: str = "") -> str | None:
    return conversation_key(owner, headers or {}, peek(json.dumps({"model": "m", **body}).encode()))


def output_of(lines: list[str]) -> list[str]:
    """Equal letters for equal keys, or the ids that a request refers to."""
    if lines[0].startswith("ids "):
        return [", ".join(referred_ids(json.dumps(eval(lines[0][4:])).encode())) or "none"]
    found: list[str | None] = []
    for line in lines:
        words = line[: line.index("{")].split()
        headers = dict(each.split("=", 1) for each in words if "=" in each)
        body, owner = eval(line[line.index("{") :], {"turns": turns}), headers.pop("owner", "")
        if "reasoning" in words:
            found.append(reasoning_key(owner, headers, peek(json.dumps({"model": "m", **body}).encode())))
        else:
            found.append(key(body, headers, owner))
        assert "session" not in (found[-1] or ""), "a name is not readable either"
    known = list(dict.fromkeys(each for each in found if each is not None))
    return [" ".join("none" if each is None else "abcdefgh"[known.index(each)] for each in found)]


@pytest.mark.promise("R14")
def test_which_requests_are_one_conversation() -> None:
    rows.check(Path(__file__).with_name("affinity.txt"), output_of)


def test_a_header_need_not_be_text() -> None:
    assert key({}, {"x-session-id": "\udcff"}) != key({}, {"x-session-id": "\udcfe"})


@pytest.mark.parametrize("first", ['"\\ud83d"', "[" * 5000 + "]" * 5000, '{"image":"\\ud83d"}', "3"])
def test_a_beginning_that_is_no_message(first: str) -> None:
    head = RequestHead("m", False, {"messages": Raw(f"[{first}]".encode())})
    assert conversation_key("", {}, head) == conversation_key("", {}, head) != key({"messages": turns("hi")})
    assert reasoning_key("", {}, head) == reasoning_key("", {}, head)
