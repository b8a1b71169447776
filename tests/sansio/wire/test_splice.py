"""One value changed, every other byte kept."""

import json
import time
from typing import Any

import pytest
from core.chop import PROPERTY
from hypothesis import given
from hypothesis import strategies as st

from dragoman._wire import splice as _splice
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import decode
from dragoman._wire.splice import all_members, peek, splice_items, splice_model

NEW = "new/model"


def spliced(body: bytes, model: str = NEW) -> bytes:
    return splice_model(body, peek(body), model)


# What is looked at


PEEK: list[tuple[bytes, str, bool]] = [
    (b'{"model":"m","stream":true}', "m", True),
    (b'{"stream":false,"model":"m"}', "m", False),
    (b"{}", "", False),
    (b'{"model":null,"stream":null}', "", False),
    (b'{"model":"","messages":[{"model":"x","stream":true}]}', "", False),
    (rb'{"mod\u0065l":"\u006d"}', "m", False),
    (b'{"model":"a","model":"b"}', "b", False),
    (rb'{"x":"\ud83d","model":"m","stream":true}', "m", True),
    (rb'{"model":"\ud83d"}', "\ud83d", False),
    (rb'{"\ud83d":1,"model":"m"}', "m", False),
]


def test_peek(subtests: pytest.Subtests) -> None:
    for body, model, stream in PEEK:
        with subtests.test(body=body, model=model):
            found = peek(body)
            assert (found.model, found.stream) == (model, stream)


@pytest.mark.parametrize("extra", [b"", rb',"x":"\ud83d"'], ids=["usual", "with a lone surrogate"])
def test_fields_are_exact_bytes(extra: bytes) -> None:
    body = (
        b'{ "model" : "m" , "n": 1.50e+1 ,"o":{"a" : [1, {"b":","}]}, "e":"\\u00e9", "z":[] ' + extra + b"}"
    )
    fields = {key: bytes(raw).strip() for key, raw in peek(body).fields.items()}
    fields.pop("x", None)
    o = b'{"a" : [1, {"b":","}]}'
    assert fields == {"model": b'"m"', "n": b"1.50e+1", "o": o, "e": b'"\\u00e9"', "z": b"[]"}


REFUSED: dict[str, tuple[bytes, str, str]] = {
    "nothing": (b"", "is not valid JSON", ""),
    "cut": (b'{"model":"hush', "is not valid JSON", ""),
    "a bare word": (b'{"model":hush}', "is not valid JSON", ""),
    "an array": (b'["hush"]', "must be a JSON object, not an array", ""),
    "a string": (b'"hush"', "must be a JSON object, not a string", ""),
    "a key that is no UTF-8": (b'{"hush\xff":1}', r"not UTF-8 \(byte 6\)", ""),
    "a model that is no UTF-8": (
        b'{"model":"hush\xff"}',
        "model is not valid JSON: the text is not UTF-8",
        "/model",
    ),
    "too deep": (b'{"model":' + b"[" * 100_000, "nested too deep", ""),
    "an array cut by a lone surrogate": (rb'["\ud83d', "is not valid JSON", ""),
    "a lone surrogate in an array": (rb'["\ud83d"]', "must be a JSON object, not an array", ""),
    "model is a number": (b'{"model":7}', "model must be a string, not a number", "/model"),
    "model is an object": (b'{"model":{"hush":1}}', "model must be a string, not an object", "/model"),
    "stream is a string": (b'{"stream":"hush"}', "stream must be a boolean, not a string", "/stream"),
    "stream is a number": (b'{"stream":1}', "stream must be a boolean, not a number", "/stream"),
}


def test_refused(subtests: pytest.Subtests) -> None:
    for case, (body, message, path) in REFUSED.items():
        with subtests.test(case=case):
            with pytest.raises(RemoteProtocolError, match=message) as caught:
                peek(body)
            assert (caught.value.status, caught.value.path) == (400, path)
            assert "hush" not in caught.value.message


def test_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_splice, "MAX_DOCUMENT_BYTES", 12)
    assert peek(b'{"model":""}').model == ""
    with pytest.raises(RemoteProtocolError, match="more than 12 bytes") as caught:
        peek(b'{"model":"m"}')
    assert caught.value.status == 413


# What is changed


def marked(text: bytes) -> tuple[bytes, bytes]:
    """Return a body, and what comes out, of a text with <> around the value that is replaced."""
    before, _, rest = text.partition(b"<")
    old, _, after = rest.partition(b">")
    return before + old + after, before + b'"new/model"' + after


CASES = {
    "alone": marked(b'{"model":<"m">}'),
    "first": marked(b'{"model":<"m">,"a":1}'),
    "last": marked(b'{"a":1,"model":<"m">}'),
    "odd blanks": marked(b'\n{ "a"\t:1 ,\r\n "model" :  <"m">\t}\n'),
    "null": marked(b'{"model":<null>,"a":1}'),
    "absent": (b'{"a":1}', b'{"model":"new/model","a":1}'),
    "absent, blanks": (b' { "a":1}', b' {"model":"new/model", "a":1}'),
    "empty": (b"{ }", b'{"model":"new/model" }'),
    "nested ones stay": marked(b'{"a":{"model":"m"},"b":["model"],"model":<"m">,"c":{"model":"m"}}'),
    "model as a value": marked(b'{"a":"model","model":<"model">}'),
    "a similar key": marked(b'{"a\\"model":"x","model":<"m">}'),
    "escaped key": marked(rb'{"mod\u0065l":<"m">}'),
    "escaped value": marked(rb'{"model":<"\"m\\">,"a":1}'),
    "twice": marked(b'{"model":"a","x":1,"model":<"b">}'),
    "twice the same": marked(b'{"model":"a","x":1,"model":<"a">}'),
    "twice, one is escaped": marked(rb'{"mod\u0065l":"a","model":"a","mod\u0065l":<"a">}'),
    "twice, the first is an object": marked(b'{"model":{"model":"x"},"model":<"b">}'),
    "twice, the last is null": marked(b'{"model":"b","model":<null> }'),
    "another key twice": marked(b'{"x":12,"model":<"m">,"x":1}'),
    "another key twice the same": marked(b'{"x":1,"model":<"m">,"x":1}'),
    "numbers keep their spelling": marked(b'{"t":1.0,"u":1E+2,"model":<"m">,"v":-0.0}'),
    "brackets in strings": marked(b'{"x":"}]{[\\"","model":<"m">,"x":"}"}'),
    "a lone surrogate": marked(rb'{"x":"\ud83d","model":<"m">}'),
    "bytes that are no UTF-8": marked(b'{"x":"\xff","model":<"m">}'),
}


def test_splice(subtests: pytest.Subtests) -> None:
    for case, (body, expected) in CASES.items():
        with subtests.test(case=case):
            assert spliced(body) == expected


def test_members_that_a_later_one_replaces_are_given_too(subtests: pytest.Subtests) -> None:
    def pairs(text: bytes) -> Any:
        return json.loads(text.decode(errors="surrogateescape"), object_pairs_hook=list)

    for case, (body, _) in CASES.items():
        with subtests.test(case=case):
            found = [[name, pairs(text)] for name, text in all_members(body, peek(body))]
            assert found == [list(pair) for pair in pairs(body)]
    assert list(all_members(b"{ }", peek(b"{ }"))) == []


def test_the_name_is_escaped() -> None:
    assert spliced(b'{"model":"m"}', 'a"b\n') == b'{"model":"a\\"b\\n"}'


def test_the_same_name_changes_nothing() -> None:
    body = b'{ "model" : "m" }'
    assert spliced(body, "m") is body


def test_the_caller_may_name_a_model_for_none() -> None:
    assert spliced(b'{"model":""}', "") == b'{"model":""}'
    assert spliced(b"{}", "") == b"{}"
    head = peek(b'{"a": 1}', "m")
    assert splice_model(b'{"a": 1}', head, "m") == b'{"model":"m","a": 1}'


# Any object


blanks = st.text(" \t\r\n", max_size=2)
keys = st.sampled_from(
    [r"model", r"mod\u0065l", r"\u006dodel", "stream_", "a", "é", r"\"", "models", r"\ud83d"]
)
scalars = st.sampled_from(
    ["null", "true", "1.50", "-0", "1e3", '""', '"model"', r'"\"model\":"', '"😀"', '"}"']
)


@st.composite
def values(draw: Any, depth: int = 2) -> str:
    kind = draw(st.sampled_from(["scalar", "scalar", "array", "object"])) if depth else "scalar"
    if kind == "scalar":
        return draw(scalars)
    if kind == "object":
        return draw(objects(depth - 1))[0]
    inner = [draw(blanks) + draw(values(depth - 1)) + draw(blanks) for _ in range(draw(st.integers(0, 3)))]
    return "[" + ",".join(inner) + "]"


@st.composite
def objects(draw: Any, depth: int = 2, top: bool = False) -> tuple[str, list[tuple[str, str]]]:
    """An object as text, and its members; at the top, `model` is a string or null."""
    members, texts = [], []
    for _ in range(draw(st.integers(0, 5))):
        key = draw(keys)
        is_model = top and json.loads(f'"{key}"') == "model"
        value = (
            draw(st.sampled_from(['"m"', '"n"', '"m2"', "null", '""'])) if is_model else draw(values(depth))
        )
        members.append((key, value))
        texts.append(f'{draw(blanks)}"{key}"{draw(blanks)}:{draw(blanks)}{value}{draw(blanks)}')
    return "{" + (",".join(texts) or draw(blanks)) + "}", members


@pytest.mark.promise("R12")
@PROPERTY
@given(objects(top=True), blanks, blanks)
def test_any_object(case: tuple[str, list[tuple[str, str]]], before: str, after: str) -> None:
    text, members = case
    body = (before + text + after).encode("utf-8")
    out = spliced(body)

    old, new = json.loads(body), json.loads(out)
    assert new.pop("model") == NEW
    had = old.pop("model", "absent")
    assert new == old
    assert decode(out)["model"] == NEW

    # Everything but the one value is the same, byte by byte.
    wire = json.dumps(NEW).encode()
    if had == "absent":
        start = len(before) + 1
        comma = b"," if members else b""
        assert out == body[:start] + b'"model":' + wire + comma + body[start:]
    else:
        value = json.dumps(had).encode()
        [place] = [
            at
            for at in range(len(out))
            if out[at:].startswith(wire) and out[:at] + value + out[at + len(wire) :] == body
        ]
        assert place > 0


def test_a_large_body_is_read_fast_and_in_little_memory() -> None:
    """A key twice makes the walk give up; the scan then passes over a string of megabytes in one step."""
    image = b"x" * 5_000_000
    body = b'{"a":1,"i":"' + image + b'","model":"m","j":"' + image.replace(b"xx", b"\\n") + b'","a":1}'
    start = time.process_time()
    out = spliced(body)
    assert time.process_time() - start < 2
    assert out == body.replace(b'"model":"m"', b'"model":"new/model"')


# Items of an array.


def test_items_that_are_left_keep_their_bytes_and_what_is_between_them() -> None:
    text = b'[ {"a": 1.50} ,\n{"b":"\\u00e9"}, {"c": 3} ]'
    before = decode(text)
    a, b, c = before
    assert splice_items(text, [a, b, c], before) == text
    assert splice_items(text, [b, c], before) == b'[ {"b":"\\u00e9"}, {"c": 3} ]'
    assert splice_items(text, [a, {"new": 1}, c], before) == b'[ {"a": 1.50},{"new":1}, {"c": 3} ]'
    assert splice_items(text, [{"new": 1}, a, b], before) == b'[ {"new":1},{"a": 1.50} ,\n{"b":"\\u00e9"} ]'
    b["b"] = "x"
    assert splice_items(text, before, before) == b'[ {"a": 1.50} ,\n{"b":"x"}, {"c": 3} ]'
    assert splice_items(text, [], before) == b"[]"


def test_items_with_half_a_character_are_written_again() -> None:
    text = b'[ {"a": "\\ud83d"} ]'
    assert splice_items(text, before := decode(text), before) == b'[{"a":"\\ud83d"}]'
