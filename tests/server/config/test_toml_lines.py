"""The lines of the keys of a TOML document."""

import json
import tomllib

from hypothesis import given
from hypothesis import strategies as st

from dragoman_server.config.toml_lines import TomlLines

LINES = [
    # text, key path, line
    ("a = 1\nb = 2", ("b",), 2),
    ("a.b.c = 1", ("a", "b"), 1),
    ("\r\n\r\n[t]\r\nk = 1", ("t", "k"), 4),
    ("# [x]\n[t] # c\nk = 1", ("t", "k"), 3),
    ("[t.\"a.b\"]\n'k' = 1", ("t", "a.b", "k"), 2),
    ('"\\u0061\\tb" = 1', ("a\tb",), 1),
    ('"\\U0001F600" = 1', ("\U0001f600",), 1),
    ("[ a . b ]\nc . d = 1", ("a", "b", "c", "d"), 2),
    ("[[t]]\nk = 1\n[[t]]\nk = 2", ("t", 1, "k"), 4),
    ("[[t]]\n[t.s]\nk = 1\n[[t]]\n[t.s]\nk = 1", ("t", 1, "s", "k"), 6),
    ("[[t]]\n[[t.u]]\n[[t.u]]\nk = 1\n[[t]]\n[[t.u]]\nk = 1", ("t", 1, "u", 0, "k"), 7),
    ("t = { a = 1, b = { c = 2 } }", ("t", "b", "c"), 1),
    ("t = [ # ]\n 1, # ,\n 2,\n]\nk = 1", ("t", 1), 3),
    ("t = [[1], [\n2]]\nk = 1", ("t", 1, 0), 2),
    ("t = [{a = 1}, {a = 2,\n b = 3}]", ("t", 1, "a"), 1),
    ('s = """\nk = 0 \\""" "" """\nk = 1', ("k",), 3),
    ("s = '''\nk = 0\\''''\nk = 1", ("k",), 3),
    ('s = """"two"""""\nk = 1', ("k",), 2),
    ('s = "#\\"[t]"\nk = 1', ("k",), 2),
    ("s = '\\'\nk = 1", ("k",), 2),
    ("d = 2026-11-21 10:00:00Z # x\nk = inf", ("k",), 2),
    ("k=1#c", ("k",), 1),
    ("[t]\nk = 1", ("t", "absent"), 1),
    ("[t]\nk = 1", ("absent",), None),
]


def test_the_line_of_a_key() -> None:
    for text, path, line in LINES:
        try:
            tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            # Line ends in inline tables are new in TOML 1.1; the walk supports both versions.
            assert text == "t = [{a = 1}, {a = 2,\n b = 3}]", (text, path)
        assert TomlLines(text).line_of(path) == line, (text, path)


def paths_of(value: object, path: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    children: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))
    return {path}.union(*(paths_of(child, (*path, name)) for name, child in children)) - {()}


def toml_key(key: str) -> str:
    return '"' + "".join(f"\\U{ord(c):08x}" if c in '"\\' or not c.isprintable() else c for c in key) + '"'


def toml_value(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_key(k)} = {toml_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + "".join(f"\n  {toml_value(v)}, # ]}}" for v in value) + "\n]"
    if isinstance(value, str):
        return toml_key(value) if len(value) % 2 else '"""\n' + toml_key(value)[1:-1] + '"""'
    return json.dumps(value)


KEYS = st.text(st.characters(codec="utf-8"), max_size=6)
SCALARS = st.one_of(st.integers(-9, 9), st.booleans(), KEYS)
# An inline table must be in one line, so it has no arrays.
VALUES = st.recursive(
    st.one_of(SCALARS, st.dictionaries(KEYS, st.one_of(st.integers(0, 9), st.booleans()), max_size=3)),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)
TABLES = st.dictionaries(KEYS, VALUES, max_size=4)


@given(
    top=TABLES,
    tables=st.dictionaries(KEYS, st.one_of(TABLES, st.lists(TABLES, min_size=1, max_size=3)), max_size=3),
)
def test_every_key_of_any_document_has_its_line(top: dict[str, object], tables: dict[str, object]) -> None:
    lines: list[str] = []
    expected: dict[tuple[str | int, ...], int] = {}

    def add(path: tuple[str | int, ...], text: str) -> None:
        expected[path] = len(lines) + 1
        lines.extend(text.split("\n"))

    for key, value in top.items():
        add((key,), f"{toml_key(key)} = {toml_value(value)}")
    for name, table in tables.items():
        if name in top:
            continue
        for index, element in enumerate(table if isinstance(table, list) else [table]):
            double = isinstance(table, list)
            path: tuple[str | int, ...] = (name, index) if double else (name,)
            add(path, f"[[{toml_key(name)}]]" if double else f"[{toml_key(name)}]")
            for key, value in element.items():
                add((*path, key), f"{toml_key(key)} = {toml_value(value)}")
    text = "\n".join(lines)
    document = tomllib.loads(text)
    found = TomlLines(text)
    for path, line in expected.items():
        assert found.line_of(path) == line
    for path in paths_of(document):
        assert path in found.lines
