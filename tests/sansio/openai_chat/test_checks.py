"""Annotations of the history: citations of its texts, or members of its messages."""

from typing import Any

import pytest
from chat_requests import write_request
from core.natives import with_unknown_members
from core.same_protocol import read_same_protocol

from dragoman._ir.native import unknown_members
from dragoman._ir.request import Citation, Request, Text
from dragoman.protocols.openai_chat import SPEC
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities as Capabilities


def read(**body: Any) -> Request:
    return read_same_protocol(SPEC, {"model": "m", "messages": [], **body})


def cited(url: str, start: int, end: int, title: str = "") -> dict[str, Any]:
    members = {"url": url, "title": title, "start_index": start, "end_index": end}
    return {"type": "url_citation", "url_citation": members}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("abc", [Text("abc", None, ["cites"], "/messages/0/content", (Citation("https://a", "A", 1, 2),))]),
        (
            [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            [
                Text("a", path="/messages/0/content/0"),
                Text("b", None, ["cites"], "/messages/0/content/1", (Citation("https://a", "A"),)),
            ],
        ),
    ],
)  # fmt: skip
def test_annotations_are_citations_of_the_last_text(content: Any, expected: Any) -> None:
    cites = [cited("https://a", 1, 2, "A"), {"type": "file"}, 5, {"type": "x", "url_citation": {"url": ""}}]
    message = {"role": "assistant", "content": content, "annotations": cites}
    request = read(messages=[message])
    assert with_unknown_members(SPEC, request.messages[0].parts) == tuple(
        [Text(part.text, None, part.citations and cites, part.path, part.sources) for part in expected]
    )
    body, losses = write_request(request, Capabilities(text_content="parts"))
    assert (body["messages"], losses) == ([message], [])


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "annotations": [1]},
        {"role": "assistant", "content": "a", "annotations": {}},
        {"role": "assistant", "content": "a", "annotations": []},
        {"role": "assistant", "content": "a", "annotations": {"x": 1}},
    ],
)
def test_annotations_without_a_text_are_unknown_members(message: Any) -> None:
    request = read(messages=[message])
    annotations = message["annotations"] if message["annotations"] else None
    assert unknown_members(request.messages[0]) == (annotations and {"annotations": annotations})
    body, losses = write_request(request, Capabilities())
    assert (body["messages"], losses) == ([{**message, "content": message["content"] or ""}], [])
