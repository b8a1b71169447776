"""Free text tools as functions: the schema out, the model's arguments back, in any fragments."""

import json
import time
from typing import Any

import pytest
from core.chop import PROPERTY, all_ways, cut_at, one_by_one, places
from hypothesis import given
from hypothesis import strategies as st

from dragoman._ir.tools import CacheMark, CustomTool, Grammar
from dragoman._transforms.freeform import InputUnwrapper, InputWrapper, custom_tool_as_function, wrap_input

# Text as models write it, and any other: lone surrogates included.
texts = st.text(st.characters(codec=None, categories=None, exclude_categories=()), max_size=12)

SHORT = {
    '"': '\\"',
    "\\": "\\\\",
    "/": "\\/",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}


def unwrapped(fragments: list[str]) -> tuple[str, bool]:
    unwrapper = InputUnwrapper()
    text = "".join([unwrapper.feed(fragment) for fragment in fragments])
    return text + unwrapper.finish(), unwrapper.exact


# The tool


def test_as_function() -> None:
    mark = CacheMark("/tools/0/cache_control")
    tool = CustomTool("patch", "Changes files.", Grammar("lark", "start: /x/"), None, mark, "/tools/0")
    function = custom_tool_as_function(tool, "patch_1")
    assert function.name == "patch_1"
    assert function.description == (
        "Changes files.\n\nPut the input of this tool, as plain text, into `input`.\n\n"
        "The input must match this lark grammar:\nstart: /x/"
    )
    assert function.parameters["required"] == ["input"]
    assert function.parameters["properties"]["input"]["type"] == "string"
    assert (function.cache, function.path) == (mark, "/tools/0")


def test_as_function_without_a_description() -> None:
    function = custom_tool_as_function(CustomTool("run"), "run")
    assert function.description == "Put the input of this tool, as plain text, into `input`."


@PROPERTY
@given(texts)
def test_wrap_input(text: str) -> None:
    assert json.loads(wrap_input(text)) == json.loads(json.dumps({"input": text}))
    assert wrap_input(text).startswith('{"input":"')


@PROPERTY
@given(st.lists(texts, max_size=4))
def test_wrapped_fragment_by_fragment(fragments: list[str]) -> None:
    wrapper = InputWrapper()
    out = "".join([wrapper.feed(fragment) for fragment in fragments]) + wrapper.finish()
    assert json.loads(out) == json.loads(wrap_input("".join(fragments)))
    assert wrapper.exact
    assert unwrapped([out]) == (json.loads(out)["input"], True)


# The agreed shape


def escape(character: str, style: str) -> str:
    code = ord(character)
    if style == "short" and character in SHORT:
        return SHORT[character]
    if style == "raw" and code >= 0x20 and character not in '"\\':
        return character
    if code < 0x10000:
        return f"\\u{code:04x}" if style == "lower" else f"\\u{code:04X}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04X}"


@st.composite
def spelled(draw: Any) -> tuple[str, str]:
    """JSON texts of {"input": text} in any spelling, with the value that the standard library reads."""
    text = draw(texts)
    styles = draw(
        st.lists(st.sampled_from(["short", "raw", "lower", "upper"]), min_size=len(text), max_size=12)
    )
    body = "".join(escape(character, style) for character, style in zip(text, styles, strict=False))
    blank = st.text(" \t\r\n", max_size=2)
    blanks = [draw(blank) for _ in range(6)]
    source = f'{blanks[0]}{{{blanks[1]}"input"{blanks[2]}:{blanks[3]}"{body}"{blanks[4]}}}{blanks[5]}'
    return source, json.loads(source)["input"]


@PROPERTY
@given(spelled(), places)
def test_any_spelling_in_any_fragments(case: tuple[str, str], cuts: list[int]) -> None:
    source, text = case
    assert unwrapped([source]) == (text, True)
    assert unwrapped(one_by_one(source)) == (text, True)
    assert unwrapped(cut_at(source, cuts)) == (text, True)


AGREED_SHAPES: list[tuple[str, str]] = [
    ('{"input":""}', ""),
    ('{"input":"a"}', "a"),
    ('\n{ "input" :\t"a" }\r\n', "a"),
    (r'{"input":"\"\\\/\b\f\n\r\t"}', '"\\/\b\f\n\r\t'),
    (r'{"input":"\u00e9\u00E9"}', "éé"),
    (r'{"input":"\ud83d\ude00"}', "😀"),
    (r'{"input":"\uD83D\uDE00\uD83D\uDE00"}', "😀😀"),
    (r'{"input":"\ud800\udc00\udbff\udfff"}', "\U00010000\U0010ffff"),  # the first and the last pair
    (r'{"input":"a\ud83d"}', "a\ud83d"),
    (r'{"input":"\ude00a"}', "\ude00a"),
    (r'{"input":"\ude00\ud83d"}', "\ude00\ud83d"),
    (r'{"input":"\ud83d\ud83d\ude00"}', "\ud83d😀"),
    (r'{"input":"\ud83d\n"}', "\ud83d\n"),
    (r'{"input":"\ud83d\u0041"}', "\ud83dA"),
    (r'{"input":"\ud83dA"}', "\ud83dA"),
    ('{"input":"\ud83d\ude00"}', "\ud83d\ude00"),  # two raw halves are two characters, in any fragments
    ('{"input":"a\nb"}', "a\nb"),  # raw control characters: the model's slip, and no doubt what it meant
    ('{"input":"*** Begin Patch\\n+{\\"a\\": 1}\\n"}', '*** Begin Patch\n+{"a": 1}\n'),
]


def test_agreed_shape(subtests: pytest.Subtests) -> None:
    for source, text in AGREED_SHAPES:
        with subtests.test(source=source, text=text):
            for fragments in all_ways(source):
                assert unwrapped(fragments) == (text, True)


def test_the_input_streams() -> None:
    unwrapper = InputUnwrapper()
    fragments = ['{"inp', 'ut": "ab', "c\\", "n", "\\u00", "e9\\ud83d", "\\ude", "00!", '"', "}"]
    found = [unwrapper.feed(fragment) for fragment in fragments]
    assert found == ["", "ab", "c", "\n", "", "é", "", "😀!", "", ""]
    assert (unwrapper.finish(), unwrapper.exact) == ("", True)


# Every other shape: the text, or the one string that can be meant


OTHER: dict[str, tuple[str, str]] = {
    "nothing": ("", ""),
    "blanks": (" \n ", " \n "),
    "no JSON": ("*** Begin Patch", "*** Begin Patch"),
    "a string": ('"a"', '"a"'),
    "an array": ('["a"]', '["a"]'),
    "an empty object": ("{}", "{}"),
    "another key": ('{"patch":"a\\nb"}', "a\nb"),
    "another key with a number": ('{"patch":1}', '{"patch":1}'),
    "input in second place": ('{"why":"b","input":"a"}', "a"),
    "input is no string": ('{"input":["a"]}', '{"input":["a"]}'),
    "input is null": ('{"input":null}', '{"input":null}'),
    "two other keys": ('{"a":"b","c":"d"}', '{"a":"b","c":"d"}'),
    "an escaped key": (r'{"\u0069nput":"a"}', "a"),
    "a longer key": ('{"input2":"a"}', "a"),
    "a key without its quotes": ('{input:"a"}', '{input:"a"}'),
    "single quotes": ("{'input':'a'}", "{'input':'a'}"),
    "text before": ('Sure: {"input":"a"}', 'Sure: {"input":"a"}'),
    "cut in the head": ('{"inp', '{"inp'),
    "cut before the string": ('{"input": ', '{"input": '),
    "a lone surrogate": ("\ud83d", "\ud83d"),
    "too deep": ("[" * 1000, "[" * 1000),
}

# It began as agreed; what follows is no input.
BROKEN_OFF: dict[str, tuple[str, str]] = {
    "a second key": ('{"input":"a","more":"b"}', "a"),
    "input again": ('{"input":"a","input":"b"}', "a"),
    "text after": ('{"input":"a"} done', "a"),
    "no brace": ('{"input":"a"', "a"),
    "a bracket for a brace": ('{"input":"a"]', "a"),
    "cut in the string": ('{"input":"ab', "ab"),
    "cut at once": ('{"input":"', ""),
    "cut in an escape": ('{"input":"ab\\', "ab"),
    "cut in a long escape": ('{"input":"ab\\u00e', "ab"),
    "cut in a pair": (r'{"input":"ab\ud83d', "ab\ud83d"),
    "cut in the second half of a pair": (r'{"input":"ab\ud83d\ude0', "ab\ud83d"),
}

# Escapes that JSON does not have are kept as they are.
WRONG_ESCAPES: dict[str, tuple[str, str]] = {
    "unknown letter": (r'{"input":"\d+\x41"}', r"\d+\x41"),
    "an escaped line end": ('{"input":"a\\\nb"}', "a\\\nb"),
    "no hex": (r'{"input":"\user"}', r"\user"),
    "too little hex": (r'{"input":"\u12"}', r"\u12"),
    "too little hex before an escape": (r'{"input":"\u1\n"}', "\\u1\n"),
    "a sign": (r'{"input":"\u+123"}', r"\u+123"),
    "a blank": (r'{"input":"\u 123"}', r"\u 123"),
    "an underscore": (r'{"input":"\u1_23"}', r"\u1_23"),
    "after half a pair": (r'{"input":"\ud83d\user"}', "\ud83d\\user"),
}


def test_other_shapes(subtests: pytest.Subtests) -> None:
    for case, (source, text) in (OTHER | BROKEN_OFF).items():
        with subtests.test(case=case):
            for fragments in all_ways(source) if len(source) < 100 else [[source], one_by_one(source)]:
                assert unwrapped(fragments) == (text, False)


def test_wrong_escapes(subtests: pytest.Subtests) -> None:
    for case, (source, text) in WRONG_ESCAPES.items():
        with subtests.test(case=case):
            for fragments in all_ways(source):
                assert unwrapped(fragments) == (text, True)


@PROPERTY
@given(st.text('{}" \\/:,inputa\nude0018', max_size=30), st.booleans(), places)
def test_fragments_never_matter(text: str, begins: bool, cuts: list[int]) -> None:
    source = '{"input":"' + text if begins else text
    whole = unwrapped([source])
    assert unwrapped(one_by_one(source)) == whole
    assert unwrapped(cut_at(source, cuts)) == whole


@pytest.mark.parametrize(
    "source",
    ['{"patch":"', '{"input":"a"', ' {"input":"', '{"input":"\\ud83d'],
    ids=["other", "tail", "string", "half"],
)
def test_long_arguments_in_small_fragments_stay_linear(source: str) -> None:
    """Quadratic work would take many seconds here."""
    unwrapper = InputUnwrapper()
    start = time.process_time()
    unwrapper.feed(source)
    for _ in range(200_000):
        unwrapper.feed("abcd")
    unwrapper.finish()
    assert time.process_time() - start < 2


def test_endless_blanks_before_the_string_stay_linear() -> None:
    unwrapper = InputUnwrapper()
    start = time.process_time()
    for _ in range(100_000):
        unwrapper.feed("    ")
    for fragment in one_by_one('{"input":"a"}'):
        unwrapper.feed(fragment)
    assert (unwrapper.finish(), unwrapper.exact) == ("", True)
    assert time.process_time() - start < 5
