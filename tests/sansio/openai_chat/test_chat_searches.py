"""Searches of the web: the setting that asks for one, and what answers tell of it."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.assembly import Fold
from dragoman._ir.events import (
    ENDED,
    Annotation,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    Opaque,
    Search,
    Source,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    Usage,
)
from dragoman._ir.losses import Ledger
from dragoman._ir.request import (
    Citation,
    FunctionTool,
    HostedTool,
    Request,
    Text,
    ToolChoice,
    ToolRef,
    WebSearch,
)
from dragoman._ir.signatures import Sealer
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import decode, encode
from dragoman._wire.sse import Frame, SSEParser
from dragoman.codec import Exchange, Target
from dragoman.protocols.openai_chat import SPEC

CHAT = "openai_chat"


def read(**body: Any) -> Request:
    return SPEC.read_request({"model": "m", "messages": [], **body}, Sealer())


def write(request: Request, target: Target) -> tuple[dict[str, Any], list[Any]]:
    ledger = Ledger()
    body = SPEC.write_request(request, target, ledger)
    return body, [(loss.code.value, loss.path) for loss in ledger]


# -- asking ------------------------------------------------------------------------------------------------

OSLO = {"city": "Oslo", "country": "NO"}
LOCATION = {"type": "approximate", "approximate": OSLO}
OPTIONS = {"search_context_size": "low", "user_location": LOCATION}


@pytest.mark.parametrize(
    ("options", "use", "extra"),
    [
        ({}, WebSearch(), None),
        (OPTIONS, WebSearch(location={"type": "approximate", **OSLO}, context_size="low"), None),
        ({"user_location": None}, WebSearch(), None),
        ({"x": 1}, WebSearch(), {"x": 1}),
        (
            {"user_location": {**LOCATION, "x": 1, "approximate": {**OSLO, "y": 2}}},
            WebSearch(location={"type": "approximate", **OSLO}),
            {"user_location": {"x": 1, "approximate": {"y": 2}}},
        ),
        (
            {"user_location": {"type": "exact", "approximate": "here"}},
            WebSearch(),
            {"user_location": {"type": "exact", "approximate": "here"}},
        ),
        ({"user_location": {"type": "approximate"}}, WebSearch(), None),
        ({"user_location": "here"}, WebSearch(), {"user_location": "here"}),
    ],
)
def test_web_search_options_are_a_tool_of_the_provider(options: Any, use: WebSearch, extra: Any) -> None:
    request = read(web_search_options=options)
    path = "/web_search_options"
    assert request.tools == (HostedTool(CHAT, "web_search_options", options, path, use),)
    assert request.extra == (extra and {"web_search_options": extra})
    body, losses = write(request, Target())
    assert (body["web_search_options"], losses) == (options, [])


def test_web_search_options_of_a_wrong_type() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read(web_search_options=True)
    assert caught.value.path == "/web_search_options"


SEARCHES = Target(hosted=frozenset({"web_search"}))
NATIVE = {
    "type": "web_search_20250305",
    "name": "web_search",
    "allowed_domains": ["a.example"],
    "max_uses": 4,
    "user_location": {"type": "approximate", "city": "Oslo", "region": None},
    "cache_control": {"type": "ephemeral"},
    "nothing": {},
}
USE = WebSearch(
    allowed_domains=("a.example",),
    max_uses=4,
    location={"type": "approximate", "city": "Oslo", "region": None},
)
TOOL = HostedTool("anthropic_messages", "web_search_20250305", NATIVE, "/tools/0", USE)
FUNCTION = FunctionTool("f", parameters={}, path="/tools/1")


def asked(*tools: Any, **fields: Any) -> Request:
    return Request("other", "m", (), {}, tools=tools, **fields)


def test_a_web_search_of_another_protocol_becomes_web_search_options() -> None:
    body, losses = write(asked(TOOL), SEARCHES)
    assert body == {
        "model": "m",
        "messages": [],
        "web_search_options": {
            "user_location": {"type": "approximate", "approximate": {"city": "Oslo"}},
        },
    }
    # Domains, uses and marks have no twin.
    assert losses == [
        ("dropped", "/tools/0/allowed_domains"),
        ("dropped", "/tools/0/max_uses"),
        ("dropped", "/tools/0/cache_control"),
        ("dropped", "/tools/0/nothing"),
    ]


def test_a_web_search_that_is_told_whole_costs_nothing() -> None:
    native = {"type": "web_search", "search_context_size": "high", "filters": None}
    tool = HostedTool("openai_responses", "web_search", native, "/tools/0", WebSearch(context_size="high"))
    body, losses = write(asked(tool), SEARCHES)
    assert body["web_search_options"] == {"search_context_size": "high"}
    assert losses == []


def test_there_is_one_web_search() -> None:
    bare = HostedTool("x", "web_search", None, "/tools/1", WebSearch())
    body, losses = write(asked(bare, TOOL), SEARCHES)
    assert body["web_search_options"] == {}
    assert losses == [("dropped", "/tools/0")]


@pytest.mark.parametrize(
    "tool", [TOOL, HostedTool("x", "code_execution", {}, "/tools/0")], ids=lambda tool: tool.kind
)
def test_h6_tools_that_the_upstream_does_not_run_are_left_out(tool: HostedTool) -> None:
    target = SEARCHES if tool is not TOOL else Target()
    body, losses = write(asked(tool, FUNCTION), target)
    assert [each["type"] for each in body["tools"]] == ["function"]
    assert losses == [("dropped" if tool is TOOL else "unknown_kind", "/tools/0")]


F_REF = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("choice", "expected", "losses"),
    [
        (ToolChoice("named", path="/c", hosted="web_search"), None, [("dropped", "/c")]),
        (ToolChoice("named", "server", path="/c", hosted="mcp"), None, [("dropped", "/c")]),
        (
            ToolChoice("allowed", allowed=(ToolRef("f"), ToolRef("", hosted="web_search")), path="/c"),
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [F_REF]}},
            [("altered", "/c")],
        ),
        (
            ToolChoice("allowed", allowed=(ToolRef("", hosted="web_search"),), path="/c"),
            "none",
            [("altered", "/c")],
        ),
    ],
)
def test_what_the_provider_runs_cannot_be_chosen(choice: ToolChoice, expected: Any, losses: Any) -> None:
    body, found = write(asked(FUNCTION, tool_choice=choice), Target())
    assert body.get("tool_choice") == expected
    assert found == losses


def test_a_choice_of_a_servers_own_tool() -> None:
    own = {"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}
    request = read(**own)
    assert request.tool_choice == ToolChoice("named", path="/tool_choice", hosted="web_search")
    body, losses = write(request, Target())
    assert ({key: body[key] for key in own}, losses) == (own, [])


# -- what answers cite -------------------------------------------------------------------------------------

EXCHANGE = Exchange(Request("other", "m", (), {}), "x1", 1, "alias")


def events(*chunks: Any, whole: bool = False) -> tuple[list[Event], list[Any]]:
    ledger = Ledger()
    out: list[Event] = []
    if whole:
        out = list(SPEC.read_whole(chunks[0], EXCHANGE, ledger))
    else:
        reader = SPEC.stream_reader(EXCHANGE, ledger)
        for each in chunks:
            out += reader.read(Frame(b"", encode(each)))
        out += reader.read(Frame(b"", b"[DONE]"))
    return out, [(loss.code.value, loss.path) for loss in ledger]


def chunk(delta: Any, **fields: Any) -> dict[str, Any]:
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
        # The list with titles comes first, whatever the order.
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
def test_pages_beside_an_answer_are_citations(fields: Any, expected: Any, losses: Any) -> None:
    # In every chunk, as Perplexity sends them; they count once.
    chunks = [chunk({"role": "assistant", "content": ""}, **fields), chunk({"content": "Hi"}, **fields)]
    found, entered = events(*chunks, chunk({"content": "!"}, **fields))
    assert [event for event in found if isinstance(event, Annotation)] == expected
    assert entered == [("altered", path) for path in losses]
    body = {"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}], **fields}
    found, entered = events(body, whole=True)
    assert [event for event in found if isinstance(event, Annotation)] == expected


def test_pages_that_were_cited_are_not_cited_again() -> None:
    cite = {"type": "url_citation", "url_citation": {"url": "https://a", "title": "A"}}
    found, _ = events(chunk({"content": "Hi", "annotations": [cite]}, citations=["https://a"]))
    assert [event for event in found if isinstance(event, Annotation)] == [
        Annotation(0, CHAT, cite, "https://a", "A", path="/choices/0/message/annotations")
    ]


def test_pages_before_any_answer_are_a_loss() -> None:
    early = {"id": "c", "choices": [], "citations": ["https://a"]}
    _, losses = events(early, chunk({"content": "Hi"}))
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
def test_what_the_servers_search_found_is_told_before_the_text(deltas: Any, search: Any) -> None:
    chunks = [chunk({"reasoning": "hm"}), *map(chunk, deltas), chunk({"content": "Hi"})]
    found, losses = events(*chunks)
    [told] = [event for event in found if isinstance(event, Opaque)]
    assert (told.kind, told.path, told.carried, told.search) == ("executed_tools", PATH, False, search)
    text = next(n for n, event in enumerate(found) if getattr(event, "kind", None) is BlockKind.TEXT)
    assert found.index(told) < text
    assert losses == ([("altered", PATH)] if search else [])


def test_pieces_of_one_tool_are_put_together() -> None:
    found, _ = events(chunk(executed()), chunk(executed(output="o")), chunk({"content": "Hi"}))
    [told] = [event for event in found if isinstance(event, Opaque)]
    assert told.native == executed(output="o")["executed_tools"]


def test_executed_tools_that_are_no_list() -> None:
    _, losses = events(chunk({"content": "Hi", "executed_tools": 5}))
    assert losses == [("unknown_field", PATH)]


def test_searches_are_counted_where_openrouter_counts_them() -> None:
    usage = {
        "prompt_tokens": 1,
        "completion_tokens": 2,
        "server_tool_use_details": {"web_search_requests": 3},
    }
    found, losses = events(chunk({"content": "Hi"}, usage=usage))
    assert [event for event in found if isinstance(event, Usage)] == [Usage(1, 2, searches=3)]
    assert losses == []
    body, _ = printed(Usage(1, 2, searches=3))
    assert body["usage"]["server_tool_use_details"] == {"web_search_requests": 3}


# -- what clients are told ---------------------------------------------------------------------------------


def printed(*inner: Event) -> tuple[dict[str, Any], list[Any]]:
    """The whole answer with these events, and the annotations of its stream, which stand in one chunk if any."""
    asked = Exchange(Request(CHAT, "m", (), {}, stream=True), "x1", 1, "alias")
    answer = [Started("i", "m"), *inner, Stopped(StopReason.END), ENDED]
    writer, fold = SPEC.stream_writer(asked, Ledger()), Fold()
    stream = b""
    for event in answer:
        stream += writer.send(event)
        fold.send(event)
    deltas = [
        choice["delta"]
        for frame in SSEParser().receive_data(stream)[:-1]
        for choice in decode(frame.data)["choices"]
    ]
    [streamed] = [delta["annotations"] for delta in deltas if "annotations" in delta] or [[]]
    return SPEC.write_whole(fold.answer(), asked, Ledger()), streamed


def text(block: int, *inner: Event) -> list[Event]:
    return [BlockStarted(block, BlockKind.TEXT), *inner, BlockEnded(block)]


def cited(url: str, start: int, end: int, title: str = "") -> dict[str, Any]:
    members = {"url": url, "title": title, "start_index": start, "end_index": end}
    return {"type": "url_citation", "url_citation": members}


def test_spans_count_in_the_whole_message() -> None:
    body, streamed = printed(
        *text(0, TextDelta(0, "αβ"), TextDelta(0, "c")),
        *text(
            1,
            Annotation(1, "x", {}, "https://all", "T"),  # before the text: its end is not known yet
            TextDelta(1, "de"),
            Annotation(1, "x", {}, "https://part", None, 1, 2),
        ),
    )
    assert streamed == [cited("https://all", 3, 5, "T"), cited("https://part", 4, 5)]
    assert body["choices"][0]["message"]["annotations"] == streamed


def test_own_citations_get_the_members_that_clients_demand() -> None:
    native = {"type": "url_citation", "url_citation": {"url": "https://a", "x": 1}}
    body, streamed = printed(*text(0, TextDelta(0, "ab"), Annotation(0, CHAT, native, "https://a")))
    full = {"url": "https://a", "title": "", "start_index": 0, "end_index": 2, "x": 1}
    assert streamed == [{"type": "url_citation", "url_citation": full}]
    assert body["choices"][0]["message"]["annotations"] == streamed


# -- what clients bring back -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("abc", [Text("abc", None, ["cites"], None, "/messages/0/content", (Citation("https://a", "A", 1, 2),))]),
        (
            [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            [
                Text("a", path="/messages/0/content/0"),
                Text("b", None, ["cites"], None, "/messages/0/content/1", (Citation("https://a", "A"),)),
            ],
        ),
    ],
)  # fmt: skip
def test_annotations_of_the_history_are_sources_of_its_last_text(content: Any, expected: Any) -> None:
    cites = [cited("https://a", 1, 2, "A"), {"type": "file"}, 5, {"type": "x", "url_citation": {"url": ""}}]
    message = {"role": "assistant", "content": content, "annotations": cites}
    request = read(messages=[message])
    assert request.messages[0].parts == tuple(
        [Text(part.text, None, part.citations and cites, None, part.path, part.sources) for part in expected]
    )
    body, losses = write(request, Target())
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
def test_annotations_of_nothing_are_kept_beside_the_message(message: Any) -> None:
    request = read(messages=[message])
    told = message["annotations"] if message["annotations"] else None
    assert request.messages[0].extra == (told and {"annotations": told})
    body, losses = write(request, Target())
    assert (body["messages"], losses) == ([message], [])


def test_sources_of_another_protocol_are_a_loss() -> None:
    from dragoman._ir.request import Message

    said = Message("assistant", (Text("a", None, [{}], None, "/m/0", (Citation("https://a"),)),), "/m")
    body, losses = write(Request("other", "m", (said,), {}), Target())
    assert body["messages"] == [{"role": "assistant", "content": "a"}]
    assert losses == [("altered", "/m/0")]
