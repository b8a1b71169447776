"""Probes for the content blocks that clients of Messages can send."""

from __future__ import annotations

from typing import Any

from fidelity.probe import DATA, Body, Filler, Probe, probe

_MARK = {"type": "ephemeral", "ttl": "1h"}
_DIRECT = {"type": "direct"}
_CALLER = {"type": "code_execution_20250825", "tool_id": "Zqcaller"}


def _body(*messages: Body) -> Body:
    hi, go = {"role": "user", "content": "Hi"}, {"role": "user", "content": "Go on"}
    return {"model": "m", "max_tokens": 99, "messages": [hi, *messages, go]}


def _user(block: Body) -> tuple[Body, str]:
    said = {"role": "user", "content": [{"type": "text", "text": "Look"}, block]}
    return {"model": "m", "max_tokens": 99, "messages": [said]}, "/messages/0/content/1"


def _assistant(block: Body, *before: Body) -> tuple[Body, str]:
    said = {"role": "assistant", "content": [*before, block, {"type": "text", "text": "Well"}]}
    return _body(said), f"/messages/1/content/{len(before)}"


def _system(block: Body) -> tuple[Body, str]:
    said = {"role": "system", "content": [{"type": "text", "text": "Rule"}, block]}
    return _body(said), "/messages/1/content/1"


def _called(**call: Any) -> tuple[Body, str]:
    """Return a document with a call and its result, and the place of the call."""
    call = {
        "type": "tool_use",
        "id": "Zqid",
        "name": "Zqname",
        "input": {"city": "Zqcity", "days": 3},
        **call,
    }
    result = {"type": "tool_result", "tool_use_id": "Zqid", "content": "done"}
    said = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return _body(*said), "/messages/1/content/0"


def _result(**result: Any) -> tuple[Body, str]:
    """Return a document with a call and its result, and the place of the result."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "see", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Zqdone", **result}
    said = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return _body(*said), "/messages/2/content/0"


def _inside(block: Body) -> tuple[Body, str]:
    body, place = _result(content=[{"type": "text", "text": "done"}, block])
    return body, f"{place}/content/1"


def _server(name: str, given: Any) -> Filler:
    """Return a filler for the result of a server tool's call."""
    call = {"type": "server_tool_use", "id": "srvtoolu_1", "name": name, "input": given}
    return lambda block: _assistant(block, call)


def _member(name: str, made: tuple[Body, str], member: str) -> Probe:
    body, place = made
    return probe("Content blocks", name, body, f"{place}/{member}")


def _block(fill: Filler, *, called: str = "", **block: Any) -> Probe:
    return probe("Content blocks", called or f"`{block['type']}`", *fill(block))


_TEXT = {"type": "text", "text": "more"}
_IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}
_PAPER = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": DATA}}


def _document(called: str, **source: Any) -> Probe:
    return _block(_user, called=called, type="document", source=source)


def _citation(**citation: Any) -> Probe:
    body, place = _assistant({"type": "text", "text": "Well", "citations": [citation]})
    return probe("Citations of a text", f"`{citation['type']}`", body, f"{place}/citations/0")


_SPAN = {"cited_text": "Zqcited", "document_index": 0, "document_title": "Zqtitle"}

BLOCKS: list[Probe] = [
    _block(_user, type="text", text="Zqtext"),
    _member("`cache_control` of a text", _user({**_TEXT, "cache_control": _MARK}), "cache_control"),
    _block(_user, called="`image` of base64", **_IMAGE),
    _block(
        _user,
        called="`image` of a URL",
        type="image",
        source={"type": "url", "url": "https://example.com/Zqcat.png"},
    ),
    _block(_user, called="`image` of a file", type="image", source={"type": "file", "file_id": "Zqfile"}),
    _member("`cache_control` of an image", _user({**_IMAGE, "cache_control": _MARK}), "cache_control"),
    _member(
        "`transformations` of an image",
        _user({**_IMAGE, "transformations": {"oversized_image": "error"}}),
        "transformations",
    ),
    _block(_user, called="`document` of base64", **_PAPER),
    _document("`document` of text", type="text", media_type="text/plain", data="Zqwords"),
    _document("`document` of content", type="content", content=[{"type": "text", "text": "Zqwords"}, _IMAGE]),
    _document("`document` of a URL", type="url", url="https://example.com/Zqpaper.pdf"),
    _document("`document` of a file", type="file", file_id="Zqfile"),
    _member("`title` of a document", _user({**_PAPER, "title": "Zqtitle"}), "title"),
    _member("`context` of a document", _user({**_PAPER, "context": "Zqcontext"}), "context"),
    _member("`citations` of a document", _user({**_PAPER, "citations": {"enabled": True}}), "citations"),
    _member("`cache_control` of a document", _user({**_PAPER, "cache_control": _MARK}), "cache_control"),
    _block(
        _user,
        type="search_result",
        source="https://example.com/Zqsource",
        title="Zqtitle",
        content=[{"type": "text", "text": "Zqfound"}],
        citations={"enabled": True},
        cache_control=_MARK,
    ),
    _block(
        _assistant, called="`thinking`, signed", type="thinking", thinking="Zqthought", signature="Zqsign"
    ),
    _block(_assistant, called="`thinking`, unsigned", type="thinking", thinking="Zqthought"),
    _block(_assistant, type="redacted_thinking", data="Zqcipher"),
    probe("Content blocks", "`tool_use`", *_called()),
    _member("`caller` of a call", _called(caller=_CALLER), "caller"),
    _member("`toolset_name` of a call", _called(toolset_name="Zqset"), "toolset_name"),
    _member("`cache_control` of a call", _called(cache_control=_MARK), "cache_control"),
    probe("Content blocks", "`tool_result` as a string", *_result()),
    _member("`is_error`", _result(is_error=True), "is_error"),
    _member("`toolset_name` of a result", _result(toolset_name="Zqset"), "toolset_name"),
    _member("`cache_control` of a result", _result(cache_control=_MARK), "cache_control"),
    _block(_inside, called="result: `text`", type="text", text="Zqtext"),
    _block(_inside, called="result: `image`", **_IMAGE),
    _block(_inside, called="result: `document`", **_PAPER),
    _block(
        _inside,
        called="result: `search_result`",
        type="search_result",
        source="https://example.com/Zqsource",
        title="Zqtitle",
        content=[{"type": "text", "text": "Zqfound"}],
    ),
    _block(_inside, called="result: `tool_reference`", type="tool_reference", tool_name="Zqname"),
    _block(
        _inside,
        called="result: `browser_state`",
        type="browser_state",
        tabs=[{"tab_id": "Zqtab", "title": "Zqtitle", "url": "https://example.com/Zqurl", "active": True}],
        state_changes=[{"type": "tab_opened", "tab_id": "Zqtab"}],
    ),
    _block(
        _assistant,
        type="server_tool_use",
        id="Zqid",
        name="web_search",
        input={"query": "Zqquery"},
        caller=_DIRECT,
    ),
    _block(
        _server("web_search", {"query": "cats"}),
        type="web_search_tool_result",
        tool_use_id="srvtoolu_1",
        content=[
            {
                "type": "web_search_result",
                "encrypted_content": "Zqcipher",
                "title": "Zqtitle",
                "url": "https://example.com/Zqurl",
                "page_age": "Zqage",
            }
        ],
        caller=_DIRECT,
    ),
    _block(
        _server("web_search", {"query": "cats"}),
        called="`web_search_tool_result` with an error",
        type="web_search_tool_result",
        tool_use_id="srvtoolu_1",
        content={"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"},
    ),
    _block(
        _server("web_fetch", {"url": "https://example.com"}),
        type="web_fetch_tool_result",
        tool_use_id="srvtoolu_1",
        content={
            "type": "web_fetch_result",
            "url": "https://example.com/Zqurl",
            "retrieved_at": "Zqtime",
            "content": {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "Zqwords"},
                "title": "Zqtitle",
            },
        },
    ),
    _block(
        _server("advisor", {}),
        type="advisor_tool_result",
        tool_use_id="srvtoolu_1",
        content={"type": "advisor_result", "text": "Zqadvice", "stop_reason": "end_turn"},
    ),
    _block(
        _server("code_execution", {"code": "1+1"}),
        type="code_execution_tool_result",
        tool_use_id="srvtoolu_1",
        content={
            "type": "code_execution_result",
            "stdout": "Zqout",
            "stderr": "Zqerr",
            "return_code": 3,
            "content": [{"type": "code_execution_output", "file_id": "Zqfile"}],
        },
    ),
    _block(
        _server("bash_code_execution", {"command": "ls"}),
        type="bash_code_execution_tool_result",
        tool_use_id="srvtoolu_1",
        content={
            "type": "bash_code_execution_result",
            "stdout": "Zqout",
            "stderr": "Zqerr",
            "return_code": 3,
            "content": [{"type": "bash_code_execution_output", "file_id": "Zqfile"}],
        },
    ),
    _block(
        _server("text_editor_code_execution", {"command": "view", "path": "a"}),
        type="text_editor_code_execution_tool_result",
        tool_use_id="srvtoolu_1",
        content={
            "type": "text_editor_code_execution_view_result",
            "content": "Zqwords",
            "file_type": "text",
            "num_lines": 2,
            "start_line": 1,
            "total_lines": 2,
        },
    ),
    _block(
        _server("tool_search_tool_regex", {"pattern": "w"}),
        type="tool_search_tool_result",
        tool_use_id="srvtoolu_1",
        content={
            "type": "tool_search_tool_search_result",
            "tool_references": [{"type": "tool_reference", "tool_name": "Zqname"}],
        },
    ),
    _block(
        _assistant,
        type="mcp_tool_use",
        id="Zqid",
        name="Zqname",
        server_name="Zqserver",
        input={"city": "Zqcity"},
    ),
    probe(
        "Content blocks",
        "`mcp_tool_result`",
        *_assistant(
            {
                "type": "mcp_tool_result",
                "tool_use_id": "mcptoolu_1",
                "content": [{"type": "text", "text": "Zqdone"}],
                "is_error": True,
            },
            {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "l", "server_name": "s", "input": {}},
        ),
    ),
    _block(_user, type="container_upload", file_id="Zqfile"),
    _block(
        _assistant,
        type="compaction",
        content="Zqsummary",
        encrypted_content="Zqcipher",
        signature="Zqsign",
        cache_control=_MARK,
    ),
    _block(_system, type="tool_addition", tool={"type": "tool_reference", "name": "Zqname"}),
    _block(_system, type="tool_removal", tool={"type": "tool_reference", "name": "Zqname"}),
    _block(
        _assistant,
        type="mcp_tool_listing",
        mcp_server_name="Zqserver",
        tools=[{"name": "Zqname", "description": "Zqtext", "input_schema": {"type": "object"}}],
    ),
    probe(
        "Content blocks",
        "`fallback`",
        *_assistant(
            {
                "type": "fallback",
                "from": {"model": "Zqone"},
                "to": {"model": "Zqother"},
                "trigger": {"type": "refusal", "category": "cyber"},
            }
        ),
    ),
    _block(_user, called="a block that nobody knows", type="x_block", words="Zqwords"),
    _citation(type="char_location", **_SPAN, start_char_index=1, end_char_index=4),
    _citation(type="page_location", **_SPAN, start_page_number=1, end_page_number=2),
    _citation(type="content_block_location", **_SPAN, start_block_index=1, end_block_index=2),
    _citation(
        type="web_search_result_location",
        cited_text="Zqcited",
        encrypted_index="Zqcipher",
        title="Zqtitle",
        url="https://example.com/Zqurl",
    ),
    _citation(
        type="search_result_location",
        cited_text="Zqcited",
        search_result_index=0,
        source="https://example.com/Zqsource",
        title="Zqtitle",
        start_block_index=0,
        end_block_index=1,
    ),
]
