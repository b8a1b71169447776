"""Whether the model kept to the grammar of a free-text tool, where its upstream could not make it.

Strategy: a grammar comes with the request, so from outside, and it is checked while the answer is on its way.
Therefore everything is bounded beforehand: definition, text and work. The engine is RE2, whose time is linear
in the text whatever the expression is, and whose syntax is that of the vendor's (Rust's). Only a breach that is
certain is called one; what cannot be checked within the bounds is told as unchecked.

Needs the extra `dragoman[grammar]`.
"""

from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dragoman.codec import CheckInput, Unchecked
from dragoman.document import Grammar

if TYPE_CHECKING:
    from dragoman_server.tool_grammar.earley import CFG

# Codex's grammar has a kilobyte. A definition of this size takes Lark some tens of milliseconds, once.
MAX_DEFINITION = 16 * 1024
# Larger patches than this are rare, and the check of one of this size must not hold up other requests.
MAX_TEXT = 256 * 1024
# Steps of the parser, half a microsecond each. A line of a patch takes some sixty.
MAX_STEPS = 150_000
# Every request of an agent brings the same grammars.
_KEPT = 64


def available() -> bool:
    """Whether the extra is installed."""
    return find_spec("lark") is not None and find_spec("re2") is not None


def checker() -> CheckInput | None:
    """check_input, None where the extra is not installed."""
    return check_input if available() else None


def check_input(grammar: Grammar, text: str) -> str | None:
    """Why `text` breaks the grammar, with its line and column, None when it does not.

    The reason holds nothing of the text. Raises Unchecked when it cannot be told, ImportError without the extra.
    """
    check = _CHECKS.get(grammar.syntax)
    if check is None:
        raise Unchecked("the syntax of the grammar is unknown")
    if len(grammar.definition) > MAX_DEFINITION:
        raise Unchecked(f"the grammar has more than {MAX_DEFINITION} characters")
    if len(text) > MAX_TEXT:
        raise Unchecked(f"it has more than {MAX_TEXT} characters")
    return check(grammar, text.encode("utf-8", "replace"))


def _check_regex(grammar: Grammar, text: bytes) -> str | None:
    from dragoman_server.tool_grammar.lark_syntax import Unsupported

    try:
        matched = _expression(grammar.definition).fullmatch(text) is not None
    except Unsupported as reason:
        raise _cannot_be_read(reason) from None
    return None if matched else "the text does not match the regular expression"


def _check_lark(grammar: Grammar, text: bytes) -> str | None:
    from dragoman_server.tool_grammar.earley import Undecided
    from dragoman_server.tool_grammar.lark_syntax import Unsupported

    try:
        miss = _rules(grammar.definition).check(text, MAX_STEPS)
    except Unsupported as reason:
        raise _cannot_be_read(reason) from None
    except Undecided:
        raise Unchecked("to check it would take too long") from None
    if miss is None:
        return None
    before = text[: miss.at].decode("utf-8", "replace")
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    what = "the text ends where more must follow" if miss.at_end else "the text leaves the grammar"
    return f"{what}, line {line}, column {column}"


_CHECKS: dict[str, Callable[[Grammar, bytes], str | None]] = {"lark": _check_lark, "regex": _check_regex}


def _cannot_be_read(reason: Exception) -> Unchecked:
    return Unchecked(f"the grammar is not one that can be checked: {reason}")


# Failures are not kept, but a definition that fails does so early.


@lru_cache(maxsize=_KEPT)
def _rules(definition: str) -> "CFG":
    from dragoman_server.tool_grammar.lark_syntax import compile_grammar

    return compile_grammar(definition)


@lru_cache(maxsize=_KEPT)
def _expression(definition: str) -> Any:
    from dragoman_server.tool_grammar.lark_syntax import compile_expression

    return compile_expression(definition)
