"""One choice of a response: its deltas, annotations, log probabilities, and searches."""

from __future__ import annotations

from typing import Any

import pytest
from chat_upstream import (
    CHAT,
    DONE,
    REASONING,
    REFUSAL,
    TEXT,
    chunk,
    content,
    delta,
    events,
    signature,
    started,
    stream_of,
)

from dragoman._ir.events import (
    Annotation,
    BlockEnded,
    BlockKind,
    Event,
    Logprobs,
    Opaque,
    ReasoningDelta,
    Search,
    SignatureDelta,
    Source,
    TextDelta,
)
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Request
from dragoman._wire.json import encode
from dragoman._wire.sse import Frame
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_chat import SPEC

# -- text, refusals, reasoning ----------------------------------------------------------------------------


FIRST = {"role": "assistant", "content": "", "refusal": None}


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ([FIRST, {"content": "Hel"}, {"content": ""}, {"content": "lo"}],
         [started(0, TEXT), TextDelta(0, "Hel"), TextDelta(0, "lo"), BlockEnded(0)]),
        # The role in every delta, null everywhere.
        ([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b", "tool_calls": None},
          {"role": "assistant", "content": "c"}],
         [started(0, TEXT), TextDelta(0, "a"), TextDelta(0, "b"), TextDelta(0, "c"), BlockEnded(0)]),
        ([FIRST, {"content": None}, {}], []),
        ([{"refusal": "I "}, {"refusal": "won't"}],
         [started(0, REFUSAL), TextDelta(0, "I "), TextDelta(0, "won't"), BlockEnded(0)]),
        # A new block each time the kind changes.
        ([{"content": None, "reasoning_content": "hm"}, {"reasoning_content": "!"}, {"content": "a"},
          {"reasoning_content": "so"}, {"content": "b"}],
         [started(0, REASONING), ReasoningDelta(0, "hm"), ReasoningDelta(0, "!"),
          SignatureDelta(0, signature(reasoning_content="hm!")), BlockEnded(0),
          started(1, TEXT), TextDelta(1, "a"), BlockEnded(1),
          started(2, REASONING), ReasoningDelta(2, "so"),
          SignatureDelta(2, signature(reasoning_content="so")), BlockEnded(2),
          started(3, TEXT), TextDelta(3, "b"), BlockEnded(3)]),
        # The same text under two names, a repeated piece, and only the other name.
        ([{"reasoning": "ha", "reasoning_content": "ha"}, {"reasoning": "ha", "reasoning_content": "ha"}],
         [started(0, REASONING), ReasoningDelta(0, "ha"), ReasoningDelta(0, "ha"),
          SignatureDelta(0, signature(reasoning_content="haha", reasoning="haha")), BlockEnded(0)]),
        ([{"reasoning": "a"}, {"reasoning": "b"}, {"reasoning": ""}, {"reasoning_content": "c"}],
         [started(0, REASONING), ReasoningDelta(0, "a"), ReasoningDelta(0, "b"), ReasoningDelta(0, "c"),
          SignatureDelta(0, signature(reasoning="ab", reasoning_content="c")), BlockEnded(0)]),
        # Entries are joined by index; the signature comes last, here beside the first text.
        ([{"reasoning": "a", "reasoning_details": [{"type": "reasoning.text", "text": "a", "index": 0}]},
          {"reasoning": "b",
           "reasoning_details": [{"type": "reasoning.text", "text": "b", "index": 0, "format": None}]},
          {"content": "x",
           "reasoning_details": [{"type": "reasoning.text", "text": None, "signature": "S", "index": 0}]}],
         [started(0, REASONING), ReasoningDelta(0, "a"), ReasoningDelta(0, "b"),
          SignatureDelta(0, signature(reasoning="ab", reasoning_details=[
              {"type": "reasoning.text", "text": "ab", "index": 0, "format": None, "signature": "S"}])),
          BlockEnded(0), started(1, TEXT), TextDelta(1, "x"), BlockEnded(1)]),
        # Text only in the entries; a ciphertext of the same index; an unknown item in the list.
        ([{"reasoning_details": [{"type": "reasoning.summary", "summary": "s", "index": 0}]},
          {"reasoning_details": [{"type": "reasoning.encrypted", "data": "E", "index": 0, "id": "r"}, 5]}],
         [started(0, REASONING), ReasoningDelta(0, "s"),
          SignatureDelta(0, signature(reasoning_details=[
              {"type": "reasoning.summary", "summary": "s", "index": 0},
              {"type": "reasoning.encrypted", "data": "E", "index": 0, "id": "r"}])), BlockEnded(0)]),
        ([{"reasoning_details": [{"type": "reasoning.encrypted", "data": "E"}]}, {"content": "x"}],
         [started(0, REASONING),
          SignatureDelta(0, signature(reasoning_details=[{"type": "reasoning.encrypted", "data": "E"}])),
          BlockEnded(0), started(1, TEXT), TextDelta(1, "x"), BlockEnded(1)]),
        # The whole text is repeated with the signature.
        ([{"reasoning_content": "a"}, {"reasoning_content": "b"},
          {"thinking_blocks": [{"type": "thinking", "thinking": "ab", "signature": "S"}]}],
         [started(0, REASONING), ReasoningDelta(0, "a"), ReasoningDelta(0, "b"),
          SignatureDelta(0, signature(reasoning_content="ab",
                            thinking_blocks=[{"type": "thinking", "thinking": "ab", "signature": "S"}])),
          BlockEnded(0)]),
        # Content as a list, text and reasoning in one delta.
        ([{"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "h"}]}]},
          {"content": [{"type": "thinking", "thinking": "m", "closed": True}, {"type": "text", "text": "1"}]},
          {"content": "2"}, {"content": [{"type": "text", "text": ""}]}],
         [started(0, REASONING), ReasoningDelta(0, "h"), ReasoningDelta(0, "m"),
          SignatureDelta(0, signature(content=[
              {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}], "closed": True}])),
          BlockEnded(0), started(1, TEXT), TextDelta(1, "1"), TextDelta(1, "2"), BlockEnded(1)]),
        ([{"content": [{"type": "reference", "ids": [1]}]}],
         [Opaque(CHAT, "reference", {"type": "reference", "ids": [1]},
                 "/choices/0/message/content", round_trip=False)]),
        ([{"audio": {"id": "a", "data": "QQ=="}}, {"images": []}],
         [Opaque(CHAT, "audio", {"id": "a", "data": "QQ=="}, "/choices/0/message/audio", round_trip=False)]),
    ],
)  # fmt: skip
def test_deltas(deltas: list[dict[str, Any]], expected: list[Event]) -> None:
    assert content(stream_of(*deltas)) == expected


def test_unknown_members_of_a_delta_are_recorded_once() -> None:
    ledger = Ledger()
    stream = stream_of(
        {"content": "a", "odd": "x"}, {"content": "b", "odd": "x", "odd/key": 1, "nothing": None}
    )
    events(stream, ledger=ledger)
    assert sorted(loss.path for loss in ledger) == [
        "/choices/0/message/odd",
        "/choices/0/message/odd~1key",
    ]


@pytest.mark.parametrize("member", ["content", "refusal", "reasoning_content"])
@pytest.mark.parametrize(
    ("finish", "complete"), [("stop", True), ("length", False), ("content_filter", False)]
)
def test_a_text_that_was_cut_off_is_not_complete(member: str, finish: str, complete: bool) -> None:
    stream = chunk(delta(**{member: "x"})) + chunk(delta(finish=finish)) + DONE
    assert content(stream)[-1] == BlockEnded(0, complete)


# -- annotations and log probabilities --------------------------------------------------------------------


CITE = {
    "type": "url_citation",
    "url_citation": {"url": "https://u", "title": "T", "start_index": 0, "end_index": 0},
}

SPAN = {"type": "url_citation", "url_citation": {"url": "https://u", "start_index": 1, "end_index": 3}}
ANNOTATIONS = "/choices/0/message/annotations"


def test_annotations_wait_for_their_text() -> None:
    ledger = Ledger()
    stream = stream_of(
        {"content": "", "annotations": [CITE, 5]},
        {"content": "abc"},
        {"annotations": [SPAN, {"type": "file"}]},
        {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]},
        {"annotations": [CITE]},
    )
    assert content(stream, ledger=ledger)[:6] == [
        started(0, TEXT),
        Annotation(0, CHAT, CITE, "https://u", "T", path=ANNOTATIONS),
        TextDelta(0, "abc"),
        Annotation(0, CHAT, SPAN, "https://u", None, 1, 3, ANNOTATIONS),
        Annotation(0, CHAT, {"type": "file"}, path=ANNOTATIONS),
        BlockEnded(0),
    ]
    assert [loss.path for loss in ledger] == [ANNOTATIONS]


def test_unknown_members_of_annotations_are_recorded_with_their_paths() -> None:
    """They are numbered over all deltas, as they are in the whole message."""
    ledger = Ledger()
    odd = {"type": "url_citation", "x": {}, "url_citation": {"url": "https://u", "y": 1, "title": None}}
    content(stream_of({"content": "a", "annotations": [CITE]}, {"annotations": [odd]}), ledger=ledger)
    assert [(loss.code, loss.path) for loss in ledger] == [
        (LossCode.UNKNOWN_FIELD, f"{ANNOTATIONS}/1/x"),
        (LossCode.UNKNOWN_FIELD, f"{ANNOTATIONS}/1/url_citation/y"),
    ]


TOKEN = {"token": "a", "logprob": -1, "bytes": [97], "top_logprobs": []}


def test_logprobs_come_before_their_text_and_have_all_members() -> None:
    ledger = Ledger()
    stream = (
        chunk({**delta(content="a"), "logprobs": {"content": [TOKEN, 5], "refusal": None}})
        + chunk({**delta(content="b"), "logprobs": {"content": [{"token": "b", "logprob": -2}]}})
        + chunk({**delta(refusal="n"), "logprobs": {"refusal": [TOKEN], "content": []}})
        + chunk({**delta(), "logprobs": {"refusal": [TOKEN]}})
        + chunk({**delta(reasoning="x"), "logprobs": {"content": [TOKEN]}})
        + chunk(delta(finish="stop"))
        + DONE
    )
    assert content(stream, ledger=ledger)[:8] == [
        started(0, TEXT),
        Logprobs(0, [TOKEN]),
        TextDelta(0, "a"),
        Logprobs(0, [{"bytes": None, "token": "b", "logprob": -2, "top_logprobs": []}]),
        TextDelta(0, "b"),
        BlockEnded(0),
        started(1, REFUSAL),
        Logprobs(1, [TOKEN]),
    ]
    assert [loss.path for loss in ledger] == ["/choices/0/logprobs/content"]


# -- pages and searches of the upstream -------------------------------------------------------------------


CONTEXT = ResponseContext(Request("other", "m", ()), "x1", 1, "alias")


def read_chunks(*chunks: Any, whole: bool = False) -> tuple[list[Event], list[Any]]:
    ledger = Ledger()
    out: list[Event] = []
    if whole:
        out = list(SPEC.read_whole(chunks[0], CONTEXT, ledger))
    else:
        reader = SPEC.stream_reader(CONTEXT, ledger)
        for each in (*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}):
            out += reader.read(Frame(b"", encode(each)))
        out += reader.read(Frame(b"", b"[DONE]"))
    return out, [(loss.code.value, loss.path) for loss in ledger]


def body_chunk(delta: Any, **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return {"id": "c", "model": "m", "choices": [choice], **fields}


def listed(url: str, title: str | None = None) -> Annotation:
    native = {"type": "url_citation", "url_citation": {"url": url, "title": title}}
    return Annotation(0, CHAT, native, url, title)


PAGES = [{"url": "https://a", "title": "A"}, {"url": "https://b"}]


@pytest.mark.parametrize(
    ("fields", "expected", "losses"),
    [
        ({"citations": ["https://a", "https://a"]}, [listed("https://a")], []),
        # The list with titles is read first, in either order.
        (
            {"citations": ["https://a", "https://c"], "search_results": PAGES},
            [listed("https://a", "A"), listed("https://b"), listed("https://c")],
            [],
        ),
        ({"search_results": [{**PAGES[0], "date": "now"}]}, [listed("https://a", "A")], ["/search_results"]),
        ({"citations": "none", "search_results": None}, [], ["/citations"]),
        ({"citations": [5]}, [], ["/citations"]),
        ({"citations": []}, [], []),
    ],
)
def test_pages_beside_the_choices_are_citations(fields: Any, expected: Any, losses: Any) -> None:
    # Perplexity sends them in every chunk; they count once.
    chunks = [
        body_chunk({"role": "assistant", "content": ""}, **fields),
        body_chunk({"content": "Hi"}, **fields),
    ]
    found, recorded = read_chunks(*chunks, body_chunk({"content": "!"}, **fields))
    assert [event for event in found if isinstance(event, Annotation)] == expected
    assert recorded == [("altered", path) for path in losses]
    body = {"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}], **fields}
    found, recorded = read_chunks(body, whole=True)
    assert [event for event in found if isinstance(event, Annotation)] == expected


def test_pages_that_were_cited_are_not_cited_again() -> None:
    cite = {"type": "url_citation", "url_citation": {"url": "https://a", "title": "A"}}
    found, _ = read_chunks(body_chunk({"content": "Hi", "annotations": [cite]}, citations=["https://a"]))
    assert [event for event in found if isinstance(event, Annotation)] == [
        Annotation(0, CHAT, cite, "https://a", "A", path="/choices/0/message/annotations")
    ]


def test_pages_before_any_choice_are_a_loss() -> None:
    early = {"id": "c", "choices": [], "citations": ["https://a"]}
    _, losses = read_chunks(early, body_chunk({"content": "Hi"}))
    assert losses == [("dropped", "/citations")]


def executed(**members: Any) -> dict[str, Any]:
    return {"executed_tools": [{"index": 0, "type": "search", "arguments": '{"query":"q"}', **members}]}


RESULTS = {"results": [{"url": "https://a", "title": "A", "score": 1}, {"url": "https://b"}, {"title": 5}, 5]}
PATH = "/choices/0/message/executed_tools"


@pytest.mark.parametrize(
    ("deltas", "search"),
    [
        (
            [executed(), executed(output="...", search_results=RESULTS)],
            Search(("q",), (Source("https://a", "A"), Source("https://b"))),
        ),
        ([executed(search_results=RESULTS, arguments="{")], Search((), (Source("https://a", "A"), Source("https://b")))),
        ([executed(search_results=RESULTS, arguments='{"query":1}')], Search((), (Source("https://a", "A"), Source("https://b")))),
        ([executed(search_results=RESULTS, arguments=None)], Search((), (Source("https://a", "A"), Source("https://b")))),
        ([executed(search_results={"results": []})], None),
        ([executed(search_results=5)], None),
        ([executed(index=None, type="python"), {"executed_tools": [5]}], None),
    ],
)  # fmt: skip
def test_the_results_of_a_servers_search_come_before_the_text(deltas: Any, search: Any) -> None:
    chunks = [body_chunk({"reasoning": "hm"}), *map(body_chunk, deltas), body_chunk({"content": "Hi"})]
    found, losses = read_chunks(*chunks)
    [opaque] = [event for event in found if isinstance(event, Opaque)]
    assert (opaque.kind, opaque.path, opaque.round_trip, opaque.search) == (
        "executed_tools",
        PATH,
        False,
        search,
    )
    text = next(n for n, event in enumerate(found) if getattr(event, "kind", None) is BlockKind.TEXT)
    assert found.index(opaque) < text
    assert losses == ([("altered", PATH)] if search else [])


def test_entries_of_one_executed_tool_are_merged() -> None:
    found, _ = read_chunks(
        body_chunk(executed()), body_chunk(executed(output="o")), body_chunk({"content": "Hi"})
    )
    [opaque] = [event for event in found if isinstance(event, Opaque)]
    assert opaque.native == executed(output="o")["executed_tools"]


def test_executed_tools_that_are_no_list() -> None:
    found, losses = read_chunks(body_chunk({"content": "Hi", "executed_tools": 5}))
    assert [event.native for event in found if isinstance(event, Opaque)] == [[5]]
    assert losses == []
