"""The estimate counts all that the model is shown."""

from typing import Any

import pytest

from dragoman._engine.tokens import estimate_tokens
from dragoman._ir.request import Part
from dragoman._ir.tools import Namespace
from dragoman.document import (
    CustomTool,
    FunctionTool,
    Grammar,
    HostedTool,
    Media,
    Message,
    OpaquePart,
    Reasoning,
    Refusal,
    Request,
    ResponseFormat,
    Text,
    ToolCall,
    ToolResult,
    WebSearch,
)
from dragoman.events import Signature

SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "description": "a city " * 20}}}
LONG = "some words " * 100


def request(*parts: Part, **more: Any) -> Request:
    messages = (Message("user", parts),) if parts else ()
    return Request(protocol="p", model="m", messages=messages, **more)


def cost(part: Part) -> int:
    """Return the tokens that a part adds to a message of one word."""
    return estimate_tokens(request(Text("word"), part)) - estimate_tokens(request(Text("word")))


def test_absent_counts_are_not_zero() -> None:
    assert estimate_tokens(request()) > 0


# (text, the fewest and the most tokens that the tokenizers of today make of it)
TEXTS = {
    "English": ("The quick brown fox jumps over the lazy dog, and it is not the first time. " * 10, 150, 230),
    "code": ("for (let i = 0; i < items.length; i++) { total += items[i].price; }\n" * 10, 150, 260),
    "French": ("Où êtes-vous allé l'été passé, à la mer ou à la forêt ? " * 10, 120, 250),
    "Russian": ("Быстрая коричневая лиса прыгает через ленивую собаку. " * 10, 110, 330),
    "Chinese": ("敏捷的棕色狐狸跳过了懒狗。" * 10, 90, 190),
    "Japanese": ("素早い茶色の狐がのろまな犬を飛び越える。" * 10, 120, 270),
    "emoji": ("🐉🦊🎉" * 10, 30, 100),
    "a lone surrogate": ("\ud800" * 10, 5, 40),
    "empty": ("", 0, 0),
}


def test_text_is_counted_by_its_characters(subtests: pytest.Subtests) -> None:
    for name in TEXTS:
        with subtests.test(name=name):
            text, minimum, maximum = TEXTS[name]
            assert minimum <= cost(Text(text)) <= maximum


def test_text_of_rare_scripts_is_denser() -> None:
    figures = [cost(Text(character * 300)) for character in "aé語🐉"]
    assert figures == sorted(figures)
    assert figures[0] < figures[1] < figures[2] < figures[3]


def test_short_texts_are_not_rounded_one_by_one() -> None:
    parts = request(*[Text("ab")] * 100)
    assert abs(estimate_tokens(parts) - estimate_tokens(request(Text("ab" * 100)))) <= 1


def media(kind: Any = "image", source: Any = "base64", data: str = "", **more: Any) -> Media:
    return Media(kind, source, data, **more)


# What each part costs, in tokens.
PARTS: dict[str, tuple[Part, int]] = {
    "refusal": (Refusal("x" * 400), 100),
    "thought": (Reasoning("x" * 400), 100),
    "thought with text and seal": (Reasoning("x" * 400, Signature("p", "y" * 9000)), 100),
    "sealed thought": (Reasoning("", Signature("p", "y" * 1198)), 100),
    "empty thought": (Reasoning(""), 0),
    "call": (ToolCall("id", "name", "x" * 396), 12 + 100),
    "result": (ToolResult("id", (Text("x" * 400), media(detail="low"))), 12 + 100 + 85),
    "opaque part with words": (OpaquePart("p", "k", {"data": "y" * 9000}, text="x" * 400), 100),
    "opaque part": (OpaquePart("p", "k", "x" * 998), 220),
    "small image": (media(data="A" * 16_000), 250),
    "middle image": (media(data="A" * 16_001), 800),
    "large image": (media(data="A" * 130_001), 1300),
    "largest image": (media(data="A" * 1_300_001), 1600),
    "image of low detail": (media(data="A" * 1_300_001, detail="low"), 85),
    "image elsewhere": (media(source="url", data="https://x.example/a.png"), 1000),
    "image as a file": (media(source="file_id", data="f"), 1000),
    "sound": (media("audio", data="A" * 300_000), 100),
    "short sound": (media("audio", data="A"), 50),
    "document": (media("file", data="A" * 50_000, media_type="application/pdf"), 2000),
    "small document": (media("file", data="A" * 100), 500),
    "huge document": (media("file", data="A" * 6_000_000), 200_000),
    "document elsewhere": (media("file", "url", "https://x.example/a.pdf"), 4000),
    "text document": (media("file", "text", "x" * 400), 100),
    "text document in base64": (media("file", data="A" * 1600, media_type="text/plain"), 300),
}


def test_parts(subtests: pytest.Subtests) -> None:
    for name in PARTS:
        with subtests.test(name=name):
            part, tokens = PARTS[name]
            assert cost(part) == tokens


def test_each_message_has_a_frame() -> None:
    one = request(Text("ab"), Text("cd"))
    messages = (Message("user", (Text("ab"),)), Message("user", (Text("cd"),)))
    two = Request(protocol="p", model="m", messages=messages)
    assert estimate_tokens(two) - estimate_tokens(one) == 4


GRAMMAR = Grammar("lark", "start: WORD\n" * 50)
TOOLS = {
    "function": FunctionTool("get_weather", LONG, SCHEMA),
    "function without a word": FunctionTool("get_weather"),
    "function with examples": FunctionTool("get_weather", None, SCHEMA, examples=[{"city": "x" * 500}]),
    "custom": CustomTool("apply_patch", LONG, GRAMMAR),
    "custom without a grammar": CustomTool("apply_patch"),
    "hosted": HostedTool("p", "shell", {"type": "shell"}),
    "hosted search": HostedTool("p", "web_search", {"type": "web_search"}, use=WebSearch()),
}


def test_a_tool_counts(subtests: pytest.Subtests) -> None:
    for name in TOOLS:
        with subtests.test(name=name):
            assert estimate_tokens(request(Text("Hi"), tools=(TOOLS[name],))) > 100


def test_i11_system_tools_and_images_count() -> None:
    """The case: 48 tokens were reported where there were 728, because only the text of messages was counted."""
    text = request(Text("What is in this picture?"))
    system = Message("system", (Text(LONG),))
    full = Request(
        protocol="p",
        model="m",
        messages=(system, Message("user", (Text("What is in this picture?"), media(data="A" * 9000)))),
        tools=(TOOLS["function"],),
    )
    assert estimate_tokens(text) < 20
    # 1100 characters of instructions and as many of description, a small image, a tool.
    assert 275 + 275 + 250 + 100 < estimate_tokens(full) < 1100


def test_longer_input_costs_more() -> None:
    bare = estimate_tokens(request(tools=(TOOLS["function without a word"],)))
    assert estimate_tokens(request(tools=(TOOLS["function"],))) > bare + 275
    custom = estimate_tokens(request(tools=(TOOLS["custom without a grammar"],)))
    assert estimate_tokens(request(tools=(TOOLS["custom"],))) > custom + 275 + 140
    with_examples = estimate_tokens(request(tools=(TOOLS["function with examples"],)))
    assert with_examples > estimate_tokens(request(tools=(FunctionTool("get_weather", None, SCHEMA),))) + 100
    hosted = estimate_tokens(request(tools=(TOOLS["hosted"],)))
    assert estimate_tokens(request(tools=(TOOLS["hosted search"],))) > hosted + 300


def test_a_deferred_tool_is_no_more_than_its_name() -> None:
    shown = estimate_tokens(request(tools=(FunctionTool("get_weather", LONG, SCHEMA),)))
    deferred = estimate_tokens(request(tools=(FunctionTool("get_weather", LONG, SCHEMA, deferred=True),)))
    assert deferred < shown - 300


def test_namespaces_and_formats_count() -> None:
    tools = (TOOLS["function"],)
    plain = estimate_tokens(request(tools=tools))
    spaces = (Namespace("x" * 400), Namespace())
    assert estimate_tokens(request(tools=tools, namespaces=spaces)) == plain + 100
    bare = estimate_tokens(request(response_format=ResponseFormat()))
    assert bare == estimate_tokens(request()) + 30
    full = ResponseFormat(schema=SCHEMA, description="x" * 400)
    assert estimate_tokens(request(response_format=full)) > bare + 100


def test_it_is_deterministic() -> None:
    many = Request(
        protocol="p",
        model="m",
        messages=tuple(Message("user", (Text("hello world " * 60),)) for _ in range(64)),
    )
    assert len({estimate_tokens(many) for _ in range(50)}) == 1
