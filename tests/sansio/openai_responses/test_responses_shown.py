"""What other vendors' answers have that a Responses client is shown in its own form: searches and summaries."""

from __future__ import annotations

from typing import Any

import pytest
from responses_client import FOREIGN, ORIGIN, SEALER, answer, kinds, output, text, thought

from dragoman._ir.events import (
    Compacted,
    Opaque,
    Search,
    Signature,
    SignatureDelta,
    Source,
    Stopped,
    StopReason,
)
from dragoman._ir.request import Message, Text
from dragoman.protocols.openai_responses import SPEC

MESSAGES = "anthropic_messages"


def search(*queries: str, sources: tuple[Source, ...] = (), carried: bool = True) -> Opaque:
    found = Search(queries, sources)
    return Opaque(MESSAGES, "web_search_tool_result", {}, "/content/1", round_trip=carried, search=found)


SOURCES = (Source("https://x", "X"), Source("https://y"))
SHOWN: list[tuple[Opaque, dict[str, Any]]] = [
    (
        search("cats", "dogs", sources=SOURCES),
        {
            "type": "search",
            "query": "cats",
            "queries": ["cats", "dogs"],
            "sources": [{"type": "url", "url": "https://x"}, {"type": "url", "url": "https://y"}],
        },
    ),
    (search(), {"type": "search", "query": "", "queries": [], "sources": []}),
]


@pytest.mark.parametrize(("event", "action"), SHOWN)
def test_a_search_is_an_item_with_its_progress(event: Opaque, action: dict[str, Any]) -> None:
    payloads = answer(*text(0), event)
    item = {"id": "ws_x1_1", "type": "web_search_call", "status": "completed", "action": action}
    assert output(payloads)[1] == item
    assert kinds(payloads)[-6:-1] == [
        "output_item.added",
        "web_search_call.in_progress",
        "web_search_call.searching",
        "web_search_call.completed",
        "output_item.done",
    ]
    assert payloads[-6]["item"] == {**item, "status": "in_progress"}
    assert [(each["item_id"], each["output_index"]) for each in payloads[-5:-2]] == [("ws_x1_1", 1)] * 3


def test_what_cannot_come_back_to_its_maker_is_named() -> None:
    answer(search("cats", carried=False), lost=("/content/1",))


def test_a_search_follows_its_sealed_form() -> None:
    seal = Signature(MESSAGES, {"type": "web_search_tool_result"}, "c")
    items = output(answer(*thought(SignatureDelta(0, seal)), search("cats")))
    assert [each["id"] for each in items] == ["rs_x1_0", "ws_x1_1"]
    request = SPEC.read_request({"model": "m", "input": items}, SEALER)
    assert len(request.messages) == 1


def test_a_summary_is_one_compaction_item_and_nothing_else() -> None:
    payloads = answer(Compacted("all of it"), stop=Stopped(StopReason.COMPACTION))
    sealed = SEALER.wrap(Signature("dragoman", {"summary": "all of it"}))
    item = {"id": "cmp_x1_0", "type": "compaction", "encrypted_content": sealed}
    assert output(payloads) == [item]
    assert kinds(payloads)[2:] == ["output_item.added", "output_item.done", "completed"]
    [message] = SPEC.read_request({"model": "m", "input": [item]}, SEALER).messages
    assert message == Message(
        "user",
        (Text("Summary of the conversation so far:\nall of it", path="/input/0/encrypted_content"),),
        "/input/0",
    )


def test_a_compaction_of_this_vendor_stays_as_it_is() -> None:
    native = {"id": "cmp_up", "type": "compaction", "encrypted_content": "gAAA"}
    assert output(answer(Opaque(ORIGIN, "compaction", native, "/output/0"), context=FOREIGN)) == [native]
