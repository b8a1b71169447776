"""Decoding and encoding of JSON: accepted texts, refused ones, and their error messages."""

import json
import time
import timeit

import msgspec
import pytest
from core.chop import PROPERTY
from hypothesis import given
from hypothesis import strategies as st

from dragoman import peek
from dragoman._wire import json as _json
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import (
    JSON,
    MAX_COUNT,
    MAX_DOCUMENT_BYTES,
    ObjectEnd,
    decode,
    decode_object,
    encode,
    encode_lines,
    encode_long,
    encode_text,
    is_object_text,
    kind_of,
    read_count,
    size_up_to,
    text_or_none,
    too_deep,
    wrong_type,
)

BIG = 10**40

TAKEN: dict[str, tuple[bytes, object]] = {
    "object": (b'{"b":1,"a":[true,null]}', {"b": 1, "a": [True, None]}),
    "spaces": (b' \t\r\n{ "a" : 1 }\n', {"a": 1}),
    "scalar": (b"7", 7),
    "the last of two keys": (b'{"a":1,"a":2}', {"a": 2}),
    "big integer": (b"%d" % BIG, BIG),
    "float": (b"1.5e3", 1500.0),
    "escapes": (rb'"\u00e9\/\n"', "é/\n"),
    "surrogate pair": (rb'"\ud83d\ude00"', "😀"),
    "lone high surrogate": (rb'"a\ud83d"', "a\ud83d"),
    "lone low surrogate": (rb'{"a":"\ude00b"}', {"a": "\ude00b"}),
    "lone surrogate as a key": (rb'{"\ud83d":1}', {"\ud83d": 1}),
    "surrogates the wrong way round": (rb'"\ude00\ud83d"', "\ude00\ud83d"),
    "lone surrogate beside numbers": (rb'["\ud83d",1.5,-2e-3,10000000000000000000000]', None),
}


def test_accepted(subtests: pytest.Subtests) -> None:
    for case, (text, value) in TAKEN.items():
        with subtests.test(case=case):
            assert decode(text) == (json.loads(text) if value is None else value)


def test_a_line_of_each_value() -> None:
    values: list[JSON] = [decode(text) for text, _ in TAKEN.values()]
    for some in ([], ["a\n", 1], values):
        lines = encode_lines(some).split(b"\n")
        assert ([decode(line) for line in lines[:-1]], lines[-1]) == (some, b"")


# Refused texts with their error messages, which may not quote the text.
REFUSED: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "truncated"),
    "cut": (b'{"hush":"hush', "truncated"),
    "a bare word": (b'{"a":hush}', r"byte 5"),
    "NaN": (b"NaN", r"byte 0"),
    "Infinity": (b'{"hush":Infinity}', r"byte 8"),
    "NaN beside a lone surrogate": (rb'["\ud83dhush",NaN]', "surrogate"),
    "Infinity beside a lone surrogate": (rb'["\ud83dhush",-Infinity]', "surrogate"),
    "out of range": (b"1e999", "out of range"),
    "out of range beside a lone surrogate": (rb'["\ud83dhush",1e999]', "surrogate"),
    "negative, out of range, beside a lone surrogate": (rb'["\ud83dhush",-1e999]', "surrogate"),
    "too many digits": (b"9" * 5000, "out of range"),
    "too many digits beside a lone surrogate": (rb'["\ud83dhush",' + b"9" * 5000 + b"]", "surrogate"),
    "trailing text": (b"1 hush", r"trailing characters"),
    "trailing comma": (b'["hush",]', r"byte 8"),
    "single quotes": (b"'hush'", r"byte 0"),
    "control character": (b'"hush\n"', r"byte 5"),
    "wrong escape": (rb'"hush\x"', r"invalid escape"),
    "wrong escape beside a lone surrogate": (rb'"\ud83d\xhush"', "surrogate"),
    "wrong hex": (rb'"\u00zzhush"', r"byte"),
    "BOM": (b'\xef\xbb\xbf{"hush":1}', r"byte 0"),
    "BOM before a lone surrogate": (b'\xef\xbb\xbf"hush\\ud83d"', r"byte 0"),
    "UTF-16": ('"畜hush"'.encode("utf-16-le"), r"byte 1"),
    "bytes that are no UTF-8": (b'{"hush":"\xff"}', r"not UTF-8 \(byte 9\)"),
    "a key that is no UTF-8": (b'{"hush":1,"\xc3":2}', r"not UTF-8 \(byte 11\)"),
    "a surrogate in UTF-8": (b'"hush\xed\xa0\xbd"', r"not UTF-8 \(byte 5\)"),
    "no UTF-8 beside a lone surrogate": (b'["\\ud83d","\xff"]', "surrogate"),
}


def test_refused(subtests: pytest.Subtests) -> None:
    for case, (text, message) in REFUSED.items():
        with subtests.test(case=case):
            with pytest.raises(RemoteProtocolError, match=message) as caught:
                decode(text)
            assert caught.value.status == 400
            assert "hush" not in caught.value.message
            assert len(caught.value.message) < 300


def test_byte_of_bad_utf8_is_that_of_the_strict_decoder() -> None:
    assert _json._first_bad_byte(b"ab\xff") == 2
    assert _json._first_bad_byte(b"ab") == 2


@pytest.mark.promise("S7")
def test_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_json, "MAX_DOCUMENT_BYTES", 8)
    assert decode(b'"123456"') == "123456"
    with pytest.raises(RemoteProtocolError, match="has 9 bytes; at most 8") as caught:
        decode(b'"1234567"')
    assert caught.value.status == 413
    with pytest.raises(RemoteProtocolError, match=r"the body is not valid JSON: .* at most 8") as caught:
        decode_object(b'{"a":"12"}', "the body")
    assert caught.value.status == 413


def test_the_size_limit_holds_for_every_vendors_bodies() -> None:
    assert MAX_DOCUMENT_BYTES > 50_000_000


def nested(depth: int, open_: bytes = b"[", close: bytes = b"]") -> bytes:
    return open_ * depth + b"1" + close * depth


@pytest.mark.parametrize("prefix", [b"", rb'"\ud83d",'])
def test_normal_nesting_is_accepted(prefix: bytes) -> None:
    """The deepest schemas of the field have some thirty levels."""
    text = b"[" + prefix + nested(120, b'{"a":', b"}") + b"]"
    assert decode(text) == json.loads(text)
    assert json.loads(encode(decode(text))) == json.loads(text)


def test_brackets_in_strings_do_not_count_as_depth() -> None:
    flat = [[]] * 5000 + ["[" * 5000]
    assert decode(encode(flat)) == flat
    assert decode(encode(flat[-1])) == flat[-1]


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        nested(100_000),
        nested(100_000, b'{"a":', b"}"),
        b'["\\ud83d",' + nested(100_000) + b"]",
        b"[" + nested(100_000) + b',"\\ud83d"]',
    ],
    ids=["open", "arrays", "objects", "after a lone surrogate", "before a lone surrogate"],
)
@pytest.mark.promise("S9")
def test_deep_nesting_is_an_error(text: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(text)
    # Where a lone surrogate comes first, the decoder has not looked further.
    assert (
        "surrogate" if b"ud83d" in text[:20] else "the JSON text is nested too deep"
    ) in caught.value.message


@pytest.mark.promise("S9")
@pytest.mark.parametrize("text", [b"[" * 100_000, nested(100_000), nested(100_000, b'{"a":', b"}")])
def test_deep_nesting_is_refused_within_10_ms(text: bytes) -> None:
    def refuse() -> None:
        with pytest.raises(RemoteProtocolError):
            decode(text)

    # The best of some: the machine may have other work.
    assert min(timeit.repeat(refuse, number=1, repeat=20)) < 0.01


def test_too_deep_is_the_same_error_wherever_it_is_met() -> None:
    assert (too_deep().message, too_deep().status) == ("the JSON text is nested too deep", 400)


def test_object() -> None:
    assert decode_object(b'{"a":1}', "the body") == {"a": 1}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"null", "null"),
        (b"true", "a boolean"),
        (b"1", "a number"),
        (b"1.5", "a number"),
        (b'"hush"', "a string"),
        (b'["hush"]', "an array"),
    ],
)
def test_no_object(text: bytes, kind: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode_object(text, "the body")
    assert caught.value.message == f"the body must be a JSON object, not {kind}"
    assert caught.value.code == "invalid_json"


def test_no_json_at_all() -> None:
    with pytest.raises(RemoteProtocolError, match=r"the body is not valid JSON: .*byte 5") as caught:
        decode_object(b'{"a":hush}', "the body")
    assert (caught.value.code, caught.value.status) == ("invalid_json", 400)


def test_kinds() -> None:
    assert kind_of({}) == "an object"
    assert kind_of("") == "an empty string"
    assert kind_of(b"") == "bytes"


def test_a_value_of_a_wrong_type() -> None:
    error = wrong_type("/messages/0/role", "a string", 7)
    assert error.message == "messages[0].role must be a string, not a number"
    assert (error.path, error.code, error.status) == ("/messages/0/role", "invalid_type", 400)


@pytest.mark.parametrize(("value", "text"), [("a", "a"), ("", None), (None, None), (1, None), (["a"], None)])
def test_text_or_none(value: JSON, text: str | None) -> None:
    assert text_or_none(value) == text


# Encoding


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (0, 0),
        (7.0, 7),
        ("8", 8),
        (MAX_COUNT, MAX_COUNT),
        (MAX_COUNT + 1, None),
        (1e300, None),
        (-1, None),
        (True, None),
    ],
)
def test_a_count(value: JSON, count: int | None) -> None:
    assert read_count({"a": {"b": value}}, "a", "b") == count


def test_compact_and_in_order() -> None:
    value = {"b": "é", "a": [1, 2.5, None]}
    assert encode(value) == '{"b":"é","a":[1,2.5,null]}'.encode()
    assert encode_text(value) == '{"b":"é","a":[1,2.5,null]}'


def test_lone_surrogates_keep_their_escapes() -> None:
    value = {"a\ud83d": ["é\ude00", msgspec.Raw(b'{"x": [1]}')]}
    assert encode(value) == b'{"a\\ud83d":["\\u00e9\\ude00",{"x":[1]}]}'
    assert encode_text("\ud83d") == '"\\ud83d"'
    assert decode(encode(value)) == {"a\ud83d": ["é\ude00", {"x": [1]}]}


documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
# Any code points, lone surrogates included.
ragged = st.text(st.characters(codec=None, categories=None, exclude_categories=()), max_size=5)


@PROPERTY
@given(documents, ragged)
def test_long_strings_are_encoded_in_parts(document: JSON, text: str) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_json, "LONG_TEXT", 2)
        assert decode(encode_long([document, {"a": text}])) == [document, {"a": text}]


def test_the_size_of_a_value_is_counted_as_far_as_it_matters() -> None:
    value: JSON = {"abc": ["defg", 1, None, msgspec.Raw(b'"x"')], "h": {}}
    assert size_up_to(100, value) == 25
    assert 10 < size_up_to(10, value) < 25
    assert size_up_to(100, [[]] * 10**6) < 110


@PROPERTY
@given(documents, ragged)
def test_round_trip(value: object, text: str) -> None:
    assert decode(encode(value)) == value
    assert json.loads(encode([value, text])) == json.loads(json.dumps([value, text]))


@PROPERTY
@given(
    st.binary(max_size=40) | st.text('{}[]",:\\ud83eE+-.0123456789\n truefalsn', max_size=30).map(str.encode)
)
def test_never_another_exception(data: bytes) -> None:
    try:
        value = decode(data)
    except RemoteProtocolError:
        return
    assert value == json.loads(data)
    assert decode(encode(value)) == value


# Objects as text


OBJECT_TEXT: list[tuple[str, bool]] = [
    ("{}", True),
    (' {"a": {"b": [1]}} ', True),
    ('{"a":"\\ud83d"}', True),
    ("", False),
    ('{"a":', False),
    ('{"a":1}}', False),
    ("[]", False),
    ('"{}"', False),
    ('{"a":"\ud83d"}', False),
    ("[" * 100_000, False),
]


def test_is_object_text(subtests: pytest.Subtests) -> None:
    for text, whole in OBJECT_TEXT:
        with subtests.test(text=text, whole=whole):
            assert is_object_text(text) is whole


# The end of an object that comes in pieces

OBJECTS = [
    ("", False),
    ("  ", False),
    ("{", False),
    ("{}", True),
    (' {"a": [1, {"b": "}\\"{"}]} \n', True),
    ('{"a": "\\\\"}', True),
    ('{"a": "\\ud83d"}', True),
    ("{} {}", False),
    ("{a}", False),
    ("[{}]", False),
    ("]{}", False),
    ('"{}"', False),
    ("7", False),
]


@pytest.mark.parametrize(("text", "is_complete"), OBJECTS)
def test_the_end_of_an_object_is_found_however_it_is_cut(text: str, is_complete: bool) -> None:
    assert is_object_text(text) is is_complete
    for size in (1, 2, 3, 100):
        end = ObjectEnd()
        for at in range(0, len(text), size):
            end.feed(text[at : at + size])
            assert end.reached is is_object_text(text[: at + size])
        assert end.reached is is_complete


class _Named(msgspec.Struct):
    name: str


def test_a_struct_may_have_lone_surrogates() -> None:
    assert encode([_Named("a\ud83d")]) == rb'[{"name":"a\ud83d"}]'


@pytest.mark.parametrize("number", ["1e308", "1e-310", "2.2250738585072011e-308", "1.7976931348623157e308"])
def test_numbers_at_the_ends_of_their_range_take_no_longer_than_others(number: str) -> None:
    """While they are decoded nothing else runs. msgspec by itself takes 1.8 s for the first of these."""
    text = f"[[{','.join([number] * 50_000)}],[{','.join([number] * 50_000)}]]".encode()
    body = b'{"model":%b}' % text
    start = time.process_time()
    assert decode(text)[1][-1] == float(number)
    with pytest.raises(RemoteProtocolError, match="model must be a string"):
        peek(body)
    assert time.process_time() - start < 0.6
