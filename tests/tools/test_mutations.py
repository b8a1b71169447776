"""Where mutants.py changes code, and where it does not."""

import pytest
from mutations import choose, differs, mutations, same

PATH = "sansio/dragoman/_some.py"


def changed(body: str, operator: str) -> list[str]:
    """The changes of a function's last line."""
    text = f"def f(a, b, *, c=None):\n    {body}\n".encode()
    return [each.after for each in mutations(PATH, text) if each.operator == operator and differs(text, each)]


@pytest.mark.parametrize(
    ("body", "operator", "after"),
    [
        ("return a < b", "comparison", ["return a <= b"]),
        ("return (a) not in b is c", "comparison", ["return (a) in b is c", "return (a) not in b is not c"]),
        ("return a + b % 2", "arithmetic", ["return a - b % 2", "return a + b * 2"]),
        ("a += b", "arithmetic", ["a -= b"]),
        ("return a and (b or c)", "and/or", ["return a or (b or c)", "return a and (b and c)"]),
        ("return not (a or b)", "not", ["return (a or b)"]),
        ("return a if b else c", "condition", ["return a if True else c", "return a if False else c"]),
        ("while a: f(b)", "condition", ["while False: f(b)"]),
        ("return [a for a in b if a]", "condition", ["return [a for a in b if True]"]),
        ('f(True, 1, "ü", b"")', "constant", [
            'f(False, 1, "ü", b"")', 'f(True, 2, "ü", b"")', 'f(True, 1, "", b"")', 'f(True, 1, "ü", b"x")',
        ]),
        ("return a", "return None", ["return None"]),
        ("return None", "return None", []),
        ("a.c = b  # a comment", "no statement", ["pass"]),
        ("a = b", "no statement", []),
        ("return f(a, b, c=1)", "no argument", ["return f(a, c=1)", "return f(a, b)"]),
        ("return f(c=1)", "no argument", ["return f()"]),
        ("return max(a, b)", "other call", ["return min(a, b)"]),
    ],
)  # fmt: skip
def test_operators(body: str, operator: str, after: list[str]) -> None:
    assert changed(body, operator) == after


@pytest.mark.parametrize(
    "text",
    [
        "LIMIT = 1 + 2",
        "class A:\n    size: int = 3",
        'def f(a: "int | None" = 1) -> "int | str":\n    "A docstring."',
        "def __repr__(self):\n    return a < b",
        "def f():\n    assert a < b",
        'def f():\n    a = f"{b + 1}"',
        "def f():\n    a: b[1]",
        "@overload\ndef f(a):\n    return 1",
        "if TYPE_CHECKING:\n    def f(a):\n        return 1",
    ],
)
def test_what_no_test_can_see_is_not_changed(text: str) -> None:
    assert mutations(PATH, text.encode()) == []


def test_the_text_of_a_log_line_is_not_changed() -> None:
    assert changed('log.info("text %s", 1)', "constant") == []
    assert changed('log.info("text %s", 1)', "no statement") == ["pass"]


def test_the_same_code_is_no_mutant() -> None:
    assert changed("return 1 * 1", "arithmetic") == []


def test_a_change_is_found_again_in_another_file() -> None:
    old = mutations(PATH, b"def f(book):\n    return book.size + 1\n")[0]
    moved = mutations("other.py", b"def g(a):\n    return a + 1\n\ndef f(book):\n    return book.size + 1\n")
    assert same(old.as_dict(), moved).qualname == "f"
    assert same(old.as_dict(), mutations(PATH, b"def f(book):\n    return book.size\n")) is None


def test_the_choice_depends_on_the_seed_and_takes_one_of_a_function() -> None:
    texts = {PATH: b"".join(b"def f%d(a):\n    return a + %d\n" % (n, n) for n in range(40))}
    found = mutations(PATH, texts[PATH])
    one, same, other = (choose(found, texts, seed, 9) for seed in (1, 1, 2))
    assert one == same != other
    assert len({each.qualname for each in one}) == 9
    assert {each.operator for each in one} == {"arithmetic", "constant", "return None"}
