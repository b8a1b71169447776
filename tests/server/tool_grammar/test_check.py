"""The grammar check: grammar and text in, a reason or nothing out, in bounded time."""

import importlib.util
import itertools
import time
from contextlib import suppress

import pytest

from dragoman.codec import Unchecked
from dragoman.document import Grammar
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


def check(definition: str, text: str, syntax: str = "lark") -> str | None:
    return InputChecker()(Grammar(syntax, definition), text)


@pytest.mark.parametrize("text", [GOOD_PATCH, GOOD_PATCH.removesuffix("\n")], ids=["whole", "no line end"])
def test_a_patch_that_keeps_to_its_grammar(text: str) -> None:
    assert check(PATCH, text) is None


PATCHES: list[tuple[str, str | None]] = [
    (GOOD_PATCH.replace("+Text", "Text"), "the text does not match the grammar, line 5, column 1"),
    (GOOD_PATCH.replace("+# Größe", "+# Größe\r"), None),  # a dot takes a carriage return
    (GOOD_PATCH.replace("*** End Patch\n", ""), "the text ends where more must follow, line 16, column 1"),
    (f"```\n{GOOD_PATCH}```", "the text does not match the grammar, line 1, column 1"),
    (GOOD_PATCH + "Done.", "the text does not match the grammar, line 17, column 1"),
    (
        "*** Begin Patch\n*** End Patch\n",
        "the text does not match the grammar, line 2, column 5",
    ),  # of "*** Add File: "
    ("*** Begin Patch\n*** Add File: \n+x\n*** End Patch", "the text does not match the grammar, line 2, column 15"),
    ("*** Begin Patch\n*** Add File: ä LF", "the text ends where more must follow, line 2, column 19"),
    ("", "the text ends where more must follow, line 1, column 1"),
]  # fmt: skip


def test_a_patch_that_does_not_fit_is_reported_with_its_place() -> None:
    for text, reason in PATCHES:
        assert check(PATCH, text) == reason, text


def test_a_reason_quotes_nothing_of_the_text() -> None:
    reason = check(PATCH, "canary-7291")
    assert reason is not None
    assert "canary" not in reason


JSON = r"""
?start: value
?value: object | list | ESCAPED_STRING | SIGNED_NUMBER | "true" | "false" | "null"
list: "[" [value ("," value)*] "]"
object: "{" [pair ("," pair)*] "}"
pair: ESCAPED_STRING ":" value
%import common (ESCAPED_STRING, SIGNED_NUMBER, WS)
%ignore WS
"""

SUM = 'start: start "+" product | product\nproduct: product "*" atom | atom\natom: /[0-9]+/ | "(" start ")"\n'

ACCEPTED_AND_NOT: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "recursion": (
        JSON,
        ("{}", ' {"a": [1, -2.5e3, "x\\"y", null], "b": {"c": true}} ', "[" * 50 + "]" * 50),
        ("", '{"a": [1,]}', '{"a" 1}', "[", "nul", '"a'),
    ),
    "left recursion": (SUM, ("1", "1+2*(3+4)", "((1))"), ("1+", "(1", "1++2", "1)")),
    "alternatives that may be empty": (
        'start: a b a\na: "x"?\nb: a | "y" |',
        ("", "x", "xx", "xxx", "xyx", "y"),
        ("xxxx", "yx y"),
    ),
    "a nonterminal of itself": ('start: start | "a"', ("a",), ("", "aa")),
    "terminals that may be empty": (
        'start: A B "!"\nA: /a*/\nB: "b"*',
        ("!", "aa!", "b!", "aabb!"),
        ("ba!",),
    ),
    "rules that stand for nothing": ('start: (a*)* "!"\na: "a"?', ("!", "aaa!"), ("b!", "a")),
    "the longest match counts": ('start: /[a-z]+/ "b"', (), ("ab", "b")),
    "operators": ('start: "a"? "b"* "c"+', ("c", "abbcc"), ("ab", "aac")),
    "counted": ('start: "a"~2 "b"~1..3', ("aab", "aabbb"), ("ab", "aa", "aabbbb", "aaab")),
    "counts of counts": ('start: (("a"~2)~2 "b")~1..2', ("aaaab", "aaaabaaaab"), ("aab", "aaaa")),
    "counted in terminals": ("start: A\nA: /[0-9]/~2..3", ("12", "123"), ("1", "1234")),
    "optional group": ('start: ["a" "b"] "c"', ("c", "abc"), ("ac",)),
    "group": ('start: ("a" | "b" -> named)+', ("a", "ab", "bba"), ("", "c")),
    "range": ('start: "a".."f"+', ("a", "fade"), ("g", "")),
    "a range in a terminal": ('start: A\nA: ("a".."f" | DIGIT)+\nDIGIT: "0".."9"', ("a1", "0"), ("g",)),
    "without regard to case": ('start: "sElect"i /from/i', ("SELECTfrom", "selectFROM"), ("selectfro",)),
    "escapes in strings": (r'start: "\n\t\"\\\x41\u00e9" "é"', ('\n\t"\\Aéé',), ("n", "")),
    "characters that mean something elsewhere": (
        r'start: "a.b*(c)[d]^$|{2}"',
        ("a.b*(c)[d]^$|{2}",),
        ("aab",),
    ),
    "expressions": (r"start: /a\/b[^\/]\d\s\p{L}/", ("a/bx1 é",), ("a/b/1 é",)),
    "flags": ("start: /a.b/is /c d/x", ("A\nBcd",), ("ab", "a.bc d")),
    "a large count": ('start: "a"~100000', (), ("a",)),
    "large counts together": ('start: "a"~15000 "b"~15000', (), ("a",)),
    "a large count in a terminal": ("start: A\nA: (/[a-z]/~1000)~1000", (), ("a",)),
    "a large expression": (
        "start: A0\n" + "".join(f"A{n}: A{n + 1} A{n + 1}\n" for n in range(14)) + 'A14: "a"',
        ("a" * 2**14,),
        ("a",),
    ),
    "names of trees": ('?start: a _b\n!a: "x"\n_b: "y" -> z', ("xy",), ("x",)),
    "names of terminals": ("start: _SP X\n_SP: / +/\nX: /x/", ("  x",), ("x",)),
    "an import under another name": ("%import common.INT -> N\nstart: N", ("42",), ("4.2", "")),
    "comments": ('// one\nstart: "a" // two\n# three\n', ("a",), ("b",)),
    "C comments end where they end": (
        "%import common.C_COMMENT\n%ignore C_COMMENT\nstart: (/[a-z]/)+",
        ("a/* x */b/** y **/c",),
        ("a/* x */ b",),
    ),
    "ignored text": ('%ignore / /\n%ignore "#"\nstart: "a" "b"', ("ab", " a # b  "), ("a-b",)),
    "characters of several bytes": ('start: /[à-ü]+/ "→" /./', ("éü→𝄞",), ("éü→", "e→x")),
}


def test_texts_that_a_grammar_accepts_and_rejects() -> None:
    for name, (definition, accepted, refused) in ACCEPTED_AND_NOT.items():
        assert [check(definition, text) for text in accepted] == [None] * len(accepted), name
        assert [check(definition, text) is None for text in refused] == [False] * len(refused), name


EXPRESSIONS: list[tuple[str, str, str]] = [
    (r"[a-z]+\d{2}", "abc12", "abc1"),
    (r"^(foo|foobar)$", "foobar", "fooba"),
    (r"a.c", "abc", "a\nc"),
    (r"(?P<year>\d{4})-(?:0[1-9]|1[0-2])", "2026-11", "2026-13"),
    (r"\p{Lu}\pL*", "Äpfel", "äpfel"),
    (r"", "", "a"),
    (r"(?x) a", "a", " a"),
]


def test_texts_that_a_regular_expression_accepts_and_rejects() -> None:
    for expression, accepted, refused in EXPRESSIONS:
        assert check(expression, accepted, "regex") is None, expression
        assert check(expression, refused, "regex") == "the text does not match the regular expression", (
            expression
        )


# A grammar that cannot be checked is no breach.
UNCHECKED = {
    "no grammar": "start: (",
    "no start": 'begin: "a"',
    "a rule that is not defined": "start: a",
    "a terminal that is not defined": "start: A",
    "a terminal of itself": 'start: A\nA: "a" A?',
    "a rule in a terminal": 'start: A\nA: b\nb: "x"',
    "templates": 'start: list{"a"}\nlist{x}: x ("," x)*',
    "templates that are not there": 'start: a{"x"}\na: "y"',
    "templates in a terminal": 'start: A\nA: B{"x"}\nB: "y"',
    "an import of a part of a terminal": '%import common.A.B\nstart: "a"',
    "an import of a file": "%import .other.A\nstart: A",
    "an import of another grammar": "%import python.NAME\nstart: NAME",
    "an import of something unknown": "%import common.NOTHING\nstart: NOTHING",
    "an import of everything": "%import common\nstart: common",
    "declared terminals": "%declare A\nstart: A",
    "overridden rules": "%override start: A",
    "looking behind": "start: /(?<!a)b/",
    "a back reference": r"start: /(a)\1/",
    "an unknown flag": "start: /a b/q",
    "an unknown escape": r'start: "\d"',
    "priorities": 'start: a | b\na.2: "x"\nb.-1: "x" "y"',
    "a range of words": 'start: "aa".."b"',
    "a range backwards": 'start: "b".."a"',
    "a surrogate": r'start: "\ud800"',
    "no character": r'start: "\UFFFFFFFF"',
    "a count backwards": 'start: "a"~3..2',
    "terminals that double": "start: A0\n"
    + "".join(f"A{n}: A{n + 1} A{n + 1}\n" for n in range(40))
    + 'A40: "a"',
    "deep optional groups": "start: " + "[" * 70 + '"a"' + "]" * 70,
}


def reason_unchecked(definition: str, text: str, syntax: str = "lark") -> str:
    try:
        check(definition, text, syntax)
    except Unchecked as error:
        return str(error)
    return ""


def test_a_grammar_that_cannot_be_checked_is_reported() -> None:
    for name, definition in UNCHECKED.items():
        reason = reason_unchecked(definition, "some text that fits nothing")
        assert "the grammar cannot be checked" in reason, name


def test_an_expression_that_cannot_be_checked_is_reported() -> None:
    for expression in (r"(?<=a)b", r"(a)\1", "(", "(?q) a"):
        assert "the grammar cannot be checked" in reason_unchecked(expression, "c", "regex"), expression


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


def test_all_checks_of_a_response_share_one_bound() -> None:
    """It may have thousands of calls, each of which would take as long as it may."""
    check_one, (syntax, definition, text) = InputChecker(), HOSTILE["long matches everywhere"]
    begun = time.thread_time()
    for _ in range(1000):
        with pytest.raises(Unchecked, match="would take too long"):
            check_one(Grammar(syntax, definition), text)
    assert time.thread_time() - begun < 1
    with pytest.raises(Unchecked, match="would take too long"):
        check_one(Grammar("lark", PATCH), GOOD_PATCH)


def test_ignored_text_after_the_end_is_no_breach() -> None:
    definition = '%ignore / /\n%ignore "#"\nstart: "a" "b"'
    assert check(definition, "ab  ") is None
    for grammar, text in ((definition, "ab #"), (JSON, "[]]")):
        with pytest.raises(Unchecked, match="after its end"):
            check(grammar, text)
    assert check(definition, "ac ") == "the text does not match the grammar, line 1, column 2"
    assert check('start: "a" "b"', "ab ") == "the text does not match the grammar, line 1, column 3"


def test_a_grammar_of_many_rules_is_no_deep_recursion() -> None:
    names = ["start", *(f"r{number:x}" for number in range(1500))]
    rules = "".join(f"{name}:{after}\n" for name, after in itertools.pairwise(names))
    assert check(rules + f'{names[-1]}:"x"', "x") is None
    assert check(rules + f'{names[-1]}:"x"', "y") is not None


def test_a_long_patch_is_within_the_bound() -> None:
    lines = "".join(f"+line {number} of a long file, as such lines are\n" for number in range(900))
    text = f"*** Begin Patch\n*** Add File: a\n{lines}*** End Patch"
    assert check(PATCH, text) is None
    assert (
        check(PATCH, text.replace("+line 777", "line 777"))
        == "the text does not match the grammar, line 780, column 1"
    )


def test_without_the_extra_nothing_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert grammar_checker() is InputChecker
    found = importlib.util.find_spec
    monkeypatch.setattr(
        grammar_module, "find_spec", lambda name: None if name == "llguidance" else found(name)
    )
    assert grammar_checker() is None
