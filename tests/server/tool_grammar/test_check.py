"""The grammar check: grammar and text in, a reason or nothing out, in bounded time."""

import importlib.util
import itertools
import json
import string
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest
import rows

from dragoman.codec import ToolOrigin, Unchecked, Undo
from dragoman.document import Grammar
from dragoman.events import ToolKind
from dragoman_server.proxying import tool_grammar as grammar_module
from dragoman_server.proxying.tool_grammar import MAX_DEFINITION, MAX_TEXT, InputChecker, grammar_checker

needs_extra = pytest.mark.skipif(
    grammar_checker() is None, reason="the extra dragoman[grammar] is not installed"
)
pytestmark = needs_extra

# In the manner of the patch tools of coding agents: lines of any text, terminals that may be empty.
PATCH = r"""
start: head hunk+ tail
head: "*** Begin Patch" LF
tail: "*** End Patch" LF?

hunk: add | drop | update
add: "*** Add File: " path LF added+
drop: "*** Delete File: " path LF
update: "*** Update File: " path LF moved? change?

path: /(.+)/
added: "+" /(.*)/ LF -> line
moved: "*** Move to: " path LF
change: (anchor | changed)+ end_of_file?
anchor: ("@@" | "@@ " /(.+)/) LF
changed: ("+" | "-" | " ") /(.*)/ LF
end_of_file: "*** End of File" LF

%import common.LF
"""

GOOD_PATCH = """*** Begin Patch
*** Add File: docs/größe.md
+# Größe
+
+Text
*** Delete File: old.txt
*** Update File: a.py
*** Move to: b.py
@@ def f():
 same
-old
+new
@@
+more
*** End of File
*** End Patch
"""


def prepared(*grammars: Grammar) -> InputChecker:
    """Return the checker of a response whose request had tools with these grammars."""
    tools = [ToolOrigin("t", None, ToolKind.CUSTOM, wrapped=True, grammar=grammar) for grammar in grammars]
    checker = InputChecker()
    anyio.run(checker.prepare, Undo({str(number): tool for number, tool in enumerate(tools)}))
    return checker


def check(definition: str, text: str, syntax: str = "lark") -> str | None:
    grammar = Grammar(syntax, definition)
    return prepared(grammar)(grammar, text)


def in_a_row(count: int, expression: str) -> str:
    """Return a grammar of some hundred characters for a terminal of so many of these, a power of 2."""
    doubled = "".join(
        f"A{size * 2}: A{size} A{size}\n" for size in (2**n for n in range(count.bit_length() - 1))
    )
    return f"start: A{count}\n{doubled}A1: /{expression}/"


def reasons(lines: list[str]) -> list[str]:
    definition = "\n".join(line.removeprefix(".") for line in lines if not line.startswith("> "))
    syntax = "regex" if definition.startswith("regex ") else "lark"
    out = []
    for text in (json.loads(line[2:]) for line in lines if line.startswith("> ")):
        try:
            out.append(check(definition.removeprefix("regex "), text, syntax) or "ok")
        except Unchecked as error:
            out.append(f"unchecked: {' '.join(str(error).split())}")
    return out


def test_texts_that_a_grammar_accepts_and_rejects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_module, "MAX_CHECK_S", 10.0)  # what a busy machine takes is no part of it
    rows.check(Path(__file__).with_name("grammars.txt"), reasons)


def test_a_large_expression() -> None:
    definition = in_a_row(2**9, "a")
    assert check(definition, "a" * 2**9) is None
    assert check(definition, "a") is not None


def test_a_reason_quotes_nothing_of_the_text() -> None:
    reason = check(PATCH, "canary-7291")
    assert reason is not None
    assert "canary" not in reason


@pytest.mark.parametrize(
    ("syntax", "definition", "text", "reason"),
    [
        ("gbnf", "start: A", "b", "syntax of the grammar is unknown"),
        ("lark", "start: /b/", "a" * (MAX_TEXT + 1), f"it has more than {MAX_TEXT} characters"),
        ("regex", "b" * (MAX_DEFINITION + 1), "a", f"the grammar has more than {MAX_DEFINITION} characters"),
    ],
    ids=["syntax", "text", "definition"],
)
def test_an_unknown_syntax_and_great_lengths(syntax: str, definition: str, text: str, reason: str) -> None:
    with pytest.raises(Unchecked, match=reason):
        check(definition, text, syntax)


def test_a_text_at_the_limit_is_checked() -> None:
    assert check("start: /b/", "a" * MAX_TEXT) is not None
    assert check("b" * MAX_DEFINITION, "a", "regex") is not None


# Bounds on the work.

HOSTILE = {
    "nested repetition": ("regex", "(a+)+$", "a" * 100_000 + "b"),
    "overlapping alternatives": ("lark", 'start: (/a+/ | /a*/ | /aa/)* "b"', "a" * 100_000),
    "ambiguity": ("lark", 'start: start start | "a"', "a" * 2000),
    "alternatives multiplied": ("lark", "start: " + '("a" | "b") ' * 200, "ab" * 100),
    "long matches everywhere": ("lark", "start: (/a/ /[a-z]*x/?)*", "a" * 200_000),
    "empty matches for ever": ("lark", "start: (/a*/ /b*/)* /c/", "d"),
    "empty rules": ("lark", 'start: a a a a\na: a a | "x" |', "x" * 400),
    "counts of counts": ("regex", "((a{1000}){1000}){1000}", "a" * 10_000),
    "optional counts": ("regex", "(?:a?){500}" * 20 + "a{500}", "a" * 10_000),
    "positions to remember": ("lark", r"start: /(.|\n)*a(.|\n){14}b/", "ab" * 10_000),
    "deep groups": ("lark", "start: " + "(" * 8000 + '"a"' + ")" * 8000, "a"),
    "deep expressions": ("regex", "(" * 8000 + "a" + ")" * 8000, "a"),
    "an intersection": ("lark", "start: A\nA: /.*a.*/ & /.*b.*/ & ~/.*c.*/ & /(.*d){50}/ & /.{1,500}/", "a"),
    "a chain of terminals": (
        "lark",
        "start: T0\n" + "".join(f"T{n}: T{n + 1}\n" for n in range(1200)) + 'T1200: "x"',
        "x",
    ),
}


def test_work_has_a_bound() -> None:
    for name, (syntax, definition, text) in HOSTILE.items():
        begun = time.process_time()
        with suppress(Unchecked):
            check(definition, text, syntax)
        assert time.process_time() - begun < 1, name  # it takes a tenth of a second; a machine may be busy


def test_an_undecided_check_is_no_breach(monkeypatch: pytest.MonkeyPatch) -> None:
    text = GOOD_PATCH.replace("+Text", "Text")
    assert check(PATCH, text) is not None
    monkeypatch.setattr(grammar_module, "MAX_CHECK_S", 0.0)
    with pytest.raises(Unchecked, match="would take too long"):
        check(PATCH, text)


# Alternatives that begin with different letters, each of which has its own state behind it.
PAIRS = "|".join(f"{letter}a" for letter in string.ascii_letters)


@pytest.mark.parametrize(
    "definition",
    [in_a_row(2**14, r"\p{L}*"), in_a_row(2**14, "a*"), in_a_row(2**10, f"({PAIRS})*")],
    ids=["unicode", "one letter", "letters"],
)
def test_a_short_grammar_that_would_take_much_memory_is_not_checked(definition: str) -> None:
    """2^12 of the first one took a gigabyte, and time and memory grow with the square."""
    assert len(definition) < 500
    with pytest.raises(Unchecked, match="cannot be checked"):
        check(definition, "b")


def test_a_grammar_that_takes_long_to_compile_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_module, "_MAX_ONE_S", 0.0)
    grammar = Grammar("lark", "start: /slow/")
    with pytest.raises(Unchecked, match="would take too long"):
        prepared(grammar)(grammar, "slow")
    assert isinstance(grammar_module._compiled[grammar], str)
    # It is known, and so nothing that has it waits for the grammars of others.
    monkeypatch.setattr(grammar_module, "_thread", None)
    with pytest.raises(Unchecked, match="would take too long"):
        prepared(grammar)(grammar, "slow")


def test_the_time_of_the_first_grammar_is_without_that_of_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the grammar of all requests of an agent would not be checked, as in a container without bytecode."""
    monkeypatch.delitem(sys.modules, "llguidance")
    clock = SimpleNamespace(thread_time=lambda: float("llguidance" in sys.modules))
    monkeypatch.setattr(grammar_module, "time", clock)
    grammar = Grammar("regex", "first")
    assert prepared(grammar)(grammar, "first") is None


def test_all_grammars_of_a_request_share_one_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have thousands of tools. The event loop goes on meanwhile."""
    monkeypatch.setattr(grammar_module, "_MAX_COMPILE_S", 0.05)
    monkeypatch.setattr(grammar_module, "_MAX_ONE_S", 10.0)
    grammars = [Grammar("lark", in_a_row(256, f"({PAIRS}|{number})*")) for number in range(200)]
    begun = time.process_time()
    checker = prepared(*grammars)
    assert time.process_time() - begun < 3  # all of them take 8 s
    undecided = 0
    for grammar in grammars:
        try:
            assert checker(grammar, "b") is not None
        except Unchecked:
            undecided += 1
    assert undecided > 100
    for grammar in grammars[::50]:  # another request has time for each
        assert prepared(grammar)(grammar, "b") is not None


def test_a_grammar_that_cannot_be_read_keeps_nothing_of_its_checks() -> None:
    """It is kept for all requests. An error that is raised again has the frames of each time."""
    grammar = Grammar("lark", "start: missing")
    text = "-".join(["a"] * 50)
    before = sys.getrefcount(text)
    checker = prepared(grammar)
    for _ in range(3):
        with pytest.raises(Unchecked, match="cannot be checked"):
            checker(grammar, text)
    assert sys.getrefcount(text) == before


def test_a_request_does_not_wait_for_the_slow_grammars_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_module, "_MAX_WAIT_S", 0.05)
    ended, grammar = threading.Event(), Grammar("regex", "waits")
    grammar_module._thread().submit(ended.wait, 10)  # if this test fails, its process still ends
    with pytest.raises(Unchecked, match="would take too long"):
        prepared(grammar)(grammar, "waits")
    ended.set()
    monkeypatch.undo()
    assert prepared(grammar)(grammar, "waits") is None, "and that is not kept"


def test_all_checks_of_a_response_share_one_bound() -> None:
    """It may have thousands of calls, each of which would take as long as it may."""
    syntax, definition, text = HOSTILE["long matches everywhere"]
    check_one = prepared(Grammar(syntax, definition), Grammar("lark", PATCH))
    begun = time.thread_time()
    for _ in range(1000):
        with pytest.raises(Unchecked, match="would take too long"):
            check_one(Grammar(syntax, definition), text)
    assert time.thread_time() - begun < 1
    with pytest.raises(Unchecked, match="would take too long"):
        check_one(Grammar("lark", PATCH), GOOD_PATCH)


def test_a_grammar_of_many_rules_is_no_deep_recursion() -> None:
    names = ["start", *(f"r{number:x}" for number in range(1500))]
    rules = "".join(f"{name}:{after}\n" for name, after in itertools.pairwise(names))
    assert check(rules + f'{names[-1]}:"x"', "x") is None
    assert check(rules + f'{names[-1]}:"x"', "y") is not None


def test_a_long_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_module, "MAX_CHECK_S", 10.0)  # it takes 20 to 60 ms, by the machine
    lines = "".join(f"+line {number} of a long file, as such lines are\n" for number in range(900))
    text = f"*** Begin Patch\n*** Add File: a\n{lines}*** End Patch"
    assert check(PATCH, text) is None
    expected = "the text does not match the grammar, line 780, column 1"
    assert check(PATCH, text.replace("+line 777", "line 777")) == expected


def test_without_the_extra_nothing_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert grammar_checker() is InputChecker
    found = importlib.util.find_spec
    monkeypatch.setattr(
        grammar_module, "find_spec", lambda name: None if name == "llguidance" else found(name)
    )
    assert grammar_checker() is None
