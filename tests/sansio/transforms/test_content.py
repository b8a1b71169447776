"""Cache marks, media and names that an upstream does not take."""

from typing import Any

import msgspec
import pytest
from core.passes import pass_context
from core.toy_protocol import toy

from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import (
    Media,
    Message,
    OpaquePart,
    Param,
    Part,
    Reasoning,
    Refusal,
    Request,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman._ir.tools import CacheMark, FunctionTool, HostedTool, Tool
from dragoman._transforms.content import fit_cache_marks, fit_media
from dragoman._wire.exceptions import RequestRefused
from dragoman.codec import UpstreamSpec
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities as Capabilities

# Cache marks

NO_MARKS = Capabilities(refuses=frozenset({"cache_control"}))


def marked(path: str) -> CacheMark:
    return CacheMark(f"{path}/cache_control")


def test_cache_marks_stay_where_they_are_accepted() -> None:
    request = Request("toy", "m", (Message("user", (Text("a", marked("/p")),)),))
    assert fit_cache_marks(request, pass_context(request)) is request


@pytest.mark.parametrize(
    ("part", "left", "lost"),
    [
        (Text("a"), Text("a"), []),
        (Text("a", marked("/p")), Text("a"), ["/p"]),
        (
            Text("a", marked("/p"), native={"cache_control": {"scope": "x"}, "more": 1}),
            Text("a", before={"more": 1}),
            ["/p"],
        ),
        (ToolCall("c", "f", "{}", cache=marked("/p")), ToolCall("c", "f", "{}"), ["/p"]),
        (
            ToolResult("c", (Text("a", marked("/p/0")),), cache=marked("/p")),
            ToolResult("c", (Text("a"),)),
            ["/p/0", "/p"],
        ),
        (
            OpaquePart("another", "k", {"a": 1, "cache_control": {}}, "/p"),
            OpaquePart("another", "k", {"a": 1}, "/p"),
            ["/p"],
        ),
        (OpaquePart("another", "k", {"a": 1}), OpaquePart("another", "k", {"a": 1}), []),
        (OpaquePart("another", "k", [1]), OpaquePart("another", "k", [1]), []),
        # It is not sent.
        (OpaquePart("toy", "k", {"cache_control": {}}), OpaquePart("toy", "k", {"cache_control": {}}), []),
        (Refusal("no"), Refusal("no"), []),
        (Reasoning("so"), Reasoning("so"), []),
    ],
)
def test_refused_cache_marks_are_removed(part: Part, left: Part, lost: list[str]) -> None:
    ledger = Ledger()
    request = Request("toy", "m", (Message("user", (part,)),))
    out = fit_cache_marks(request, pass_context(request, ledger, NO_MARKS))
    assert out.messages[0].parts == (left,)
    assert [(loss.code, loss.path) for loss in ledger] == [
        (LossCode.DROPPED, f"{path}/cache_control") for path in lost
    ]


def test_marks_of_tools_and_of_the_whole_request() -> None:
    tools: tuple[Tool, ...] = (
        FunctionTool("f", cache=marked("/tools/0")),
        HostedTool("another", "h", {"type": "h", "cache_control": {}}, "/tools/1"),
    )
    params: dict[Param, Any] = {"prompt_cache_options": {"mode": "implicit"}, "seed": 1}
    request = Request(
        "toy", "m", (), tools=tools, params=params, param_paths={"prompt_cache_options": "/all"}
    )
    ledger = Ledger()
    out = fit_cache_marks(request, pass_context(request, ledger, NO_MARKS))
    assert out.tools == (FunctionTool("f"), HostedTool("another", "h", {"type": "h"}, "/tools/1"))
    assert out.params == {"seed": 1}
    assert [loss.path for loss in ledger] == ["/all", "/tools/0/cache_control", "/tools/1/cache_control"]


@pytest.mark.parametrize(
    ("fields", "capabilities", "options", "lost"),
    [
        # Tools, system, messages; a part's marks before its own. The last ones cover the longest prefixes.
        ({}, {}, None, ["/tool", "/system", "/text"]),
        ({"max_cache_marks": 6}, {}, None, ["/tool"]),
        ({"max_cache_marks": 7}, {}, None, []),
        ({}, {}, {"mode": "implicit"}, ["/tool", "/system", "/text", "/image"]),
        ({}, {}, {"mode": "explicit"}, ["/tool", "/system", "/text"]),
        ({}, {}, "implicit", ["/tool", "/system", "/text"]),
        # Only content can have marks there, and the one of the whole request is another thing.
        (
            {"cache_mark_forms": {"breakpoint": "prompt_cache_breakpoint"}},
            {"cache_marks": "breakpoint"},
            {"mode": "implicit"},
            ["/tool", "/system", "/text"],
        ),
        (
            {"cache_mark_forms": {"breakpoint": "prompt_cache_breakpoint"}},
            {"cache_marks": "cache_control"},
            {"mode": "implicit"},
            ["/tool", "/system", "/text", "/image", "/call", "/inner", "/result"],
        ),
    ],
)
def test_which_marks_are_dropped(
    fields: dict[str, Any], capabilities: Any, options: Any, lost: list[str]
) -> None:
    messages = (
        Message("system", (Text("s", CacheMark("/system")),)),
        Message(
            "user", (Text("t", CacheMark("/text")), Media("image", "url", "u", cache=CacheMark("/image")))
        ),
        Message("assistant", (ToolCall("1", "f", "{}", cache=CacheMark("/call")),)),
        Message("user", (ToolResult("1", (Text("r", CacheMark("/inner")),), cache=CacheMark("/result")),)),
    )
    params: dict[Param, Any] = {} if options is None else {"prompt_cache_options": options}
    request = Request(
        "toy", "m", messages, tools=(FunctionTool("f", cache=CacheMark("/tool")),), params=params
    )
    ledger = Ledger()
    context = pass_context(request, ledger, Capabilities(**capabilities), upstream=toy("another", **fields))
    out = fit_cache_marks(request, context)
    assert [(loss.code, loss.path) for loss in ledger] == [(LossCode.DROPPED, path) for path in lost]
    assert out.params == params
    # Passing once more finds nothing to drop.
    assert fit_cache_marks(out, context) is out


# Images, files and sounds

IMAGE = Media("image", "base64", "AAAA", "image/png", cache=marked("/p/1"), path="/p/1")
PLACEHOLDER = Text("[image: left out, you cannot see images]", marked("/p/1"), path="/p/1", rendered=True)


@pytest.mark.parametrize(
    ("part", "left"),
    [
        (Text("a"), Text("a")),
        (IMAGE, PLACEHOLDER),
        (ToolResult("c", (Text("a"), IMAGE)), ToolResult("c", (Text("a"), PLACEHOLDER))),
        (Media("file", "text", "AAAA"), Media("file", "text", "AAAA")),
        (
            Media("file", "base64", "AAAA", path="/p/1"),
            Text("[file: left out, you cannot see files]", path="/p/1", rendered=True),
        ),
        (Media("audio", "base64", "AAAA"), Media("audio", "base64", "AAAA")),  # its protocol has it
    ],
)
def test_images_and_files_that_are_refused_become_text(part: Part, left: Part) -> None:
    ledger = Ledger()
    request = Request("toy", "m", (Message("user", (part,)),))
    refusing = Capabilities(refuses=frozenset({"image", "file"}))
    out = fit_media(request, pass_context(request, ledger, refusing))
    assert out.messages[0].parts == (left,)
    assert [(loss.code, loss.path) for loss in ledger] == (
        [] if part == left else [(LossCode.DROPPED, "/p/1")]
    )
    assert fit_media(request, pass_context(request, ledger)) is request


FILE = Media("file", "file_id", "f-1", filename="a.pdf", path="/p")
PICTURE = Media("image", "file_id", "f-1", path="/p")
VENDOR, OTHER = toy(file_store="vendor"), toy("another", file_store="other")
FILES = toy("another", file_store="vendor", file_id_media=frozenset(("file",)))


@pytest.mark.parametrize(
    ("media", "upstream", "reason"),
    [
        (FILE, FILES, None),
        (FILE, OTHER, "a file id is valid only at the vendor"),
        (PICTURE, OTHER, "a file id is valid only at the vendor"),
        (PICTURE, FILES, "no images by file id"),
        (msgspec.structs.replace(FILE, source="url"), OTHER, None),
    ],
)
def test_a_file_id_that_the_upstream_does_not_know_becomes_text(
    media: Media, upstream: UpstreamSpec, reason: str | None
) -> None:
    request = Request("toy", "m", (Message("user", (media, ToolResult("c", (media,)))),))
    ledger = Ledger()
    out = fit_media(request, pass_context(request, ledger, client=VENDOR, upstream=upstream))
    if reason is None:
        assert (out, list(ledger)) == (request, [])
        return
    text = f"[{media.kind}: left out, you cannot see it, because only another service has it]"
    left = Text(text, path="/p", rendered=True)
    assert out.messages[0].parts == (left, ToolResult("c", (left,)))
    [loss] = ledger
    assert (loss.code, loss.path) == (LossCode.DROPPED, "/p")
    assert reason in loss.detail


def test_a_sound_is_refused_where_the_protocol_has_none() -> None:
    sound = Media("audio", "base64", "AAAA", path="/messages/0/content/1")
    request = Request("toy", "m", (Message("user", (sound,)),))
    deaf = toy("another", media=frozenset(("image", "file")))
    with pytest.raises(RequestRefused, match=r"messages\[0\]\.content\[1\]: .* send a transcript") as caught:
        fit_media(request, pass_context(request, upstream=deaf))
    assert (caught.value.status, caught.value.path, caught.value.code) == (
        400,
        sound.path,
        "unsupported_value",
    )


def test_longer_marks_come_first() -> None:
    short, long = CacheMark("/0/cache_control", "short"), CacheMark("/2/cache_control", "long")
    own = {"type": "h", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    tools: tuple[Tool, ...] = (FunctionTool("f", cache=short), HostedTool("another", "h", own, "/1"))
    parts = (Text("a", long, native={"cache_control": {"ttl": "1h"}, "more": 1}),)
    request = Request("toy", "m", (Message("user", parts),), tools=tools)
    ledger = Ledger()
    out = fit_cache_marks(request, pass_context(request, ledger))
    assert out.tools == (
        tools[0],
        HostedTool("another", "h", {"type": "h", "cache_control": {"type": "ephemeral"}}, "/1"),
    )
    assert out.messages[0].parts == (Text("a", CacheMark("/2/cache_control", "short"), before={"more": 1}),)
    assert [(loss.code, loss.path) for loss in ledger] == [
        (LossCode.ALTERED, "/1/cache_control"),
        (LossCode.ALTERED, "/2/cache_control"),
    ]


def test_a_mark_in_another_form_than_the_upstreams_is_written_again() -> None:
    mark = CacheMark("/0/cache_control", "short")
    request = Request(
        "toy", "m", (Message("user", (Text("a", mark, native={"cache_control": {}, "x": 1}),)),)
    )
    forms = {"breakpoint": "prompt_cache_breakpoint", "cache_control": "cache_control"}
    for form, left in (
        ("cache_control", request.messages[0].parts[0]),
        ("breakpoint", Text("a", mark, before={"x": 1})),
    ):
        context = pass_context(
            request,
            capabilities=Capabilities(cache_marks=form),  # type: ignore[arg-type]
            upstream=toy("another", cache_mark_forms=forms),
            rewritten=True,
        )
        assert fit_cache_marks(request, context).messages[0].parts == (left,)
