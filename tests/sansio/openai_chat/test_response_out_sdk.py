"""The stream of chunks that is written for events, read by the types and the accumulator of the official SDK."""

from __future__ import annotations

import httpx2
import openai
from chat_client import TEXT, call, context, deltas, response, text, whole, write_stream

from dragoman._ir.events import Annotation, BlockEnded, BlockStarted, Event, TextDelta
from dragoman._ir.losses import Ledger


def cite(block: int, at: int) -> list[Event]:
    """A text with its own citation."""
    return [
        BlockStarted(block, TEXT),
        TextDelta(block, "ab"),
        Annotation(block, "x", 1, f"https://{at}", "T", at, 2),
        BlockEnded(block),
    ]


def test_citations_of_several_texts_reach_the_sdks_stream_helper_in_one_chunk() -> None:
    events = response(*cite(0, 0), *cite(1, 1), *text(2, "c"), *call(3, "c1", "f", "{", "}"))
    stream = write_stream(events, context(), Ledger())
    transport = httpx2.MockTransport(
        lambda _: httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=stream)
    )
    client = openai.OpenAI(
        api_key="k", base_url="http://gateway/v1", http_client=httpx2.Client(transport=transport)
    )
    with client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "?"}]) as helper:
        final = helper.get_final_completion()
    unsent = {"parsed": True, "tool_calls": {"__all__": {"index"}}}
    message = final.choices[0].message.model_dump(exclude_none=True, exclude=unsent)
    assert message | {"refusal": None} == whole(events)["choices"][0]["message"]
    assert [each["url_citation"]["url"] for each in message["annotations"]] == ["https://0", "https://1"]
    texts = [list(delta) for delta in deltas(events[1:-2]) if "tool_calls" not in delta]
    assert texts == [["content"]] * 3 + [["annotations"]]
