"""Check what a model has written for a free-text tool against the tool's grammar, if its upstream cannot enforce it.

Clients send the grammars, and the check runs while the response is on its way, so the definition, the text and the work
are bounded. Expressions run on RE2, which takes linear time whatever the expression is, and whose syntax is that of the
vendor's (Rust's). Only a certain breach is reported; what cannot be checked within the bounds raises Unchecked.

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

# Codex's grammar has a kilobyte. Lark takes some tens of milliseconds for a definition of this size, once.
MAX_DEFINITION = 16 * 1024
# Larger patches are rare, and the check must not delay other requests.
MAX_TEXT = 256 * 1024
# Steps of the parser, half a microsecond each. A line of a patch takes some sixty.
MAX_STEPS = 150_000
# Every request of an agent has the same grammars.
_MAX_CACHED = 64


def grammar_check_available() -> bool:
    """True if the extra is installed."""
    return find_spec("lark") is not None and find_spec("re2") is not None


def grammar_checker() -> CheckInput | None:
    """Return check_input(), or None if the extra is not installed."""
    return check_input if grammar_check_available() else None


def check_input(grammar: Grammar, text: str) -> str | None:
    """Return why `text` breaks the grammar, with line and column, or None if it does not.

    The reason quotes nothing of the text. Raises Unchecked if it cannot be checked, ImportError without the extra.
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
    from dragoman_server.tool_grammar.lark_syntax import UnsupportedGrammar

    try:
        matched = _expression(grammar.definition).fullmatch(text) is not None
    except UnsupportedGrammar as reason:
        raise _cannot_be_read(reason) from None
    return None if matched else "the text does not match the regular expression"


def _check_lark(grammar: Grammar, text: bytes) -> str | None:
    from dragoman_server.tool_grammar.earley import StepLimitExceeded
    from dragoman_server.tool_grammar.lark_syntax import UnsupportedGrammar

    try:
        mismatch = _rules(grammar.definition).check(text, MAX_STEPS)
    except UnsupportedGrammar as reason:
        raise _cannot_be_read(reason) from None
    except StepLimitExceeded:
        raise Unchecked("checking it would take too long") from None
    if mismatch is None:
        return None
    before = text[: mismatch.offset].decode("utf-8", "replace")
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    what = (
        "the text ends where more must follow" if mismatch.at_end else "the text does not match the grammar"
    )
    return f"{what}, line {line}, column {column}"


_CHECKS: dict[str, Callable[[Grammar, bytes], str | None]] = {"lark": _check_lark, "regex": _check_regex}


def _cannot_be_read(reason: Exception) -> Unchecked:
    return Unchecked(f"the grammar cannot be checked: {reason}")


# Failures are not cached, but a definition that fails does so early.


@lru_cache(maxsize=_MAX_CACHED)
def _rules(definition: str) -> "CFG":
    from dragoman_server.tool_grammar.lark_syntax import compile_grammar

    return compile_grammar(definition)


@lru_cache(maxsize=_MAX_CACHED)
def _expression(definition: str) -> Any:
    from dragoman_server.tool_grammar.lark_syntax import compile_expression

    return compile_expression(definition)
