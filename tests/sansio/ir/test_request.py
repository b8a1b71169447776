"""The request document: frozen, without shared mutable defaults."""

from itertools import islice
from typing import get_args

import pytest

from dragoman._ir.losses import LossCode
from dragoman._ir.media_types import split_data_uri
from dragoman._ir.request import (
    Message,
    MessagePaths,
    Param,
    Part,
    ReasoningConfig,
    Request,
    Text,
)
from dragoman._ir.tools import HostedTool, McpServer, Tool, WebSearch


def test_frozen() -> None:
    request = Request(protocol="toy", model="m", messages=())
    with pytest.raises(AttributeError):
        request.model = "other"  # type: ignore[misc]


def test_defaults_are_not_shared() -> None:
    first, second = (Request(protocol="toy", model="m", messages=()) for _ in range(2))
    first.params["seed"] = 1
    first.param_paths["seed"] = "/seed"
    assert (second.params, second.param_paths) == ({}, {})


def test_equal_documents_are_equal() -> None:
    assert Message("user", (Text("a"),)) == Message("user", (Text("a"),))
    assert Message("user", (Text("a"),)) != Message("user", (Text("a", path="/x"),))


def test_every_part_has_its_path(subtests: pytest.Subtests) -> None:
    for kind in [*get_args(Part), *get_args(Tool)]:
        with subtests.test(kind=kind):
            assert "path" in kind.__struct_fields__


def test_paths_of_messages_are_the_same_each_time() -> None:
    paths = MessagePaths("messages", parts="tool_calls")
    messages = [f"/messages/{number}" for number in range(1000)]
    expected = [
        (path, f"{path}/content", tuple([f"{path}/tool_calls/{number}" for number in range(4)]))
        for path in messages
    ]
    assert list(islice(paths, 1000)) == list(islice(paths, 1000)) == expected


def test_a_hosted_tool_of_other_protocols_is_not_unknown() -> None:
    assert HostedTool("vendor", "odd_tool", {}).loss_code is LossCode.UNKNOWN_KIND
    assert HostedTool("vendor", "web_search", {}, use=WebSearch()).loss_code is LossCode.DROPPED


def test_neutral_names_are_unique_and_sorted() -> None:
    names = get_args(Param)
    assert list(names) == sorted(set(names))


def test_no_secret_is_in_an_error() -> None:
    server = McpServer("files", "https://secret.example/?key=1", "token", ("read",))
    assert repr(server) == "McpServer(label='files', url=..., authorization=..., allowed_tools=('read',))"


@pytest.mark.parametrize(
    ("config", "requests_reasoning"),
    [
        (ReasoningConfig(), False),
        (ReasoningConfig(display="omitted"), False),
        (ReasoningConfig(effort="none"), False),
        (ReasoningConfig(mode="disabled", effort="low"), False),
        (ReasoningConfig(effort="low"), True),
        (ReasoningConfig(mode="adaptive"), True),
        (ReasoningConfig(mode="enabled", budget=2000), True),
    ],
)
def test_which_settings_enable_thinking(config: ReasoningConfig, requests_reasoning: bool) -> None:
    assert config.requests_reasoning is requests_reasoning


@pytest.mark.parametrize(
    ("uri", "found"),
    [
        ("data:image/png;base64,AA==", ("image/png", "AA==")),
        ("data:text/plain;charset=utf-8;base64,AA,A", ("text/plain", "AA,A")),
        ("data:;base64,AA==", ("", "AA==")),
        ("data:text/plain,AA==", None),
        ("data:image/png;base64", None),
        ("https://example.com/a;base64,AA==", None),
    ],
)
def test_data_uris(uri: str, found: tuple[str, str] | None) -> None:
    assert split_data_uri(uri) == found
