"""Check what a model has written for a free-text tool against the tool's grammar, if its upstream cannot enforce it.

The check is llguidance's, which enforces such grammars in inference servers. Clients send the grammars, so the
definition, the text and the work are bounded: grammars are compiled in a thread, one after the other, and texts are
checked in the event loop. Only a certain breach is reported; what cannot be checked within the bounds raises Unchecked.

Needs the extra `dragoman[grammar]`.
"""

import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

import anyio

from dragoman.codec import Unchecked, Undo
from dragoman.document import Grammar
from dragoman_server.platform.off_loop import in_threads

if TYPE_CHECKING:
    from llguidance import LLMatcher

# Codex's grammar has a kilobyte.
MAX_DEFINITION = 16 * 1024
# Larger patches are rare.
MAX_TEXT = 256 * 1024
# Seconds of this thread for all texts of a response, two microseconds a byte, because other requests wait.
MAX_CHECK_S = 0.05
# Seconds for all grammars of a request, after which no further one is compiled. Codex's takes 2 ms.
_MAX_COMPILE_S = 0.2
# Seconds for one of them. One that takes longer is not used, because it has 20 MB for each tenth of a second.
_MAX_ONE_S = 0.1
# Seconds for which a request waits for them, and for those of others. What is ready later, the next request has.
_MAX_WAIT_S = 1.0
# Bytes between readings of the clock.
_STEP = 16
# Limits on the parser's items for one step. A line of a patch takes some tens; an ambiguous grammar takes about 25 ms
# for _STEP bytes until it reaches them.
_MAX_ITEMS = 1000
_MAX_ITEMS_IN_ROW = 500
# States and expressions of the lexer, for counts of counts and the like. Codex's grammar needs some hundreds.
_MAX_LEXER_STATES = 20_000
_LEXER_FUEL = 100_000
# The same for the expressions of a grammar. Codex's needs 300, each one in a row of them two, and a class of Unicode,
# such as \w, 13,000. If each in a row may be empty, the memory for it grows with the square of its length: 100 MB at
# this limit.
_INITIAL_FUEL = 2000
# Every request of an agent has the same grammars.
_MAX_COMPILED = 16

# Ignored text may also come first, as in Lark itself.
_AS_IN_LARK = '%llguidance {"allow_initial_skip": true}\n'

# What was compiled last. Only the thread that compiles changes it.
_compiled: "dict[Grammar, LLMatcher | str]" = {}

_TOO_LONG = "checking it would take too long"
_UNREADABLE = "the grammar cannot be checked"


class InputChecker:
    """Checks the texts of one response, as CheckInput, after prepare(). A response may have thousands, which share
    MAX_CHECK_S.
    """

    __slots__ = ("_left_s", "_matchers")

    def __init__(self) -> None:
        self._left_s = MAX_CHECK_S
        self._matchers: dict[Grammar, LLMatcher | str] = {}  # the latter: why it has no matcher

    async def prepare(self, undo: Undo) -> None:
        """Compile the grammars of a request's tools, if they were not compiled lately."""
        grammars = {origin.grammar for origin in undo.origins.values() if origin.grammar is not None}
        found = {grammar: _compiled.get(grammar, _TOO_LONG) for grammar in grammars}
        if not all(map(_compiled.__contains__, grammars)):
            with anyio.move_on_after(_MAX_WAIT_S):
                found = await in_threads(_thread(), _compile_all, grammars)
        self._matchers |= found  # attempts side by side share it

    def __call__(self, grammar: Grammar, text: str) -> str | None:
        """Return why `text` breaks the grammar, with line and column, or None if it does not.

        The reason quotes nothing of the text. Raises Unchecked if it cannot be checked.
        """
        matcher = self._matchers[grammar]
        if isinstance(matcher, str):
            raise Unchecked(matcher)
        if len(text) > MAX_TEXT:
            raise Unchecked(f"it has more than {MAX_TEXT} characters")
        begun = time.thread_time()
        try:
            return _check(matcher, grammar, text, begun + self._left_s)
        finally:
            self._left_s -= time.thread_time() - begun


def grammar_checker() -> Callable[[], InputChecker] | None:
    """Return what makes the checker of a response, or None if the extra is not installed."""
    return InputChecker if find_spec("llguidance") is not None else None


def _check(matcher: "LLMatcher", grammar: Grammar, text: str, deadline: float) -> str | None:
    """See InputChecker. deadline: of the check, in seconds of this thread."""
    if time.thread_time() >= deadline:
        raise Unchecked(_TOO_LONG)
    matcher, data = matcher.deep_copy(), text.encode("utf-8", "replace")
    accepted = _consume(matcher, data, deadline)
    if accepted == len(data) and matcher.is_accepting():
        return None
    if matcher.is_stopped() and matcher.is_accepting() and "%ignore" in grammar.definition:
        # The matcher stops where nothing but ignored text can follow, which is blank in nearly all grammars.
        if data[accepted:].isspace():
            return None
        raise Unchecked("it continues after its end, maybe with text that the grammar ignores")
    if grammar.syntax == "regex":
        return "the text does not match the regular expression"
    before = data[:accepted].decode("utf-8", "replace")
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    at_end = accepted == len(data)
    what = "the text ends where more must follow" if at_end else "the text does not match the grammar"
    return f"{what}, line {line}, column {column}"


def _consume(matcher: "LLMatcher", data: bytes, deadline: float) -> int:
    """Return how many bytes the grammar accepts. Raises Unchecked if that takes too long."""
    for start in range(0, len(data), _STEP):
        step = data[start : start + _STEP]
        accepted: int = matcher.try_consume_tokens(list(step))
        if matcher.is_error() or time.thread_time() > deadline:
            raise Unchecked(_TOO_LONG)
        if accepted < len(step):
            return start + accepted
    return len(data)


@cache
def _thread() -> ThreadPoolExecutor:
    # Not one of off_loop(), or slow grammars would stop all large requests.
    return ThreadPoolExecutor(1, "dragoman-grammars")


def _compile_all(grammars: Collection[Grammar]) -> "dict[Grammar, LLMatcher | str]":
    found: dict[Grammar, LLMatcher | str] = {}
    # Not in the time of the first grammar, which may take less than this does without bytecode, as in a container.
    import_module("llguidance")
    deadline = time.thread_time() + _MAX_COMPILE_S
    for grammar in grammars:
        if grammar in _compiled:  # for another request, while this one waited
            found[grammar] = _compiled[grammar]
        elif time.thread_time() > deadline:
            found[grammar] = _TOO_LONG  # not kept, because a request with fewer grammars has the time
        else:
            begun, matcher = time.thread_time(), _compile(grammar)
            took_s = time.thread_time() - begun
            found[grammar] = _compiled[grammar] = _TOO_LONG if took_s > _MAX_ONE_S else matcher
    for grammar in list(_compiled)[:-_MAX_COMPILED]:
        del _compiled[grammar]
    return found


def _compile(grammar: Grammar) -> "LLMatcher | str":
    """Return the matcher at the beginning of a text, or why there is none.

    That is no exception, because one that is raised again and again keeps the frames of each time.
    """
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer

    definition, is_lark = grammar.definition, grammar.syntax == "lark"
    if not is_lark and grammar.syntax != "regex":
        return "the syntax of the grammar is unknown"
    if len(definition) > MAX_DEFINITION:
        return f"the grammar has more than {MAX_DEFINITION} characters"
    if "%json" in definition:
        # llguidance's, not Lark's. No limit holds for it: {"multipleOf": 999983} takes 9 s and 400 MB.
        return "the grammar may have a JSON Schema in it"
    try:
        compiled = (
            LLMatcher.grammar_from_lark(_AS_IN_LARK + definition)
            if is_lark
            else LLMatcher.grammar_from_regex(definition)
        )
    except UnicodeEncodeError:  # half a surrogate pair, which JSON allows
        return _UNREADABLE
    limits = LLParserLimits(
        initial_lexer_fuel=_INITIAL_FUEL,
        step_lexer_fuel=_LEXER_FUEL,
        step_max_items=_MAX_ITEMS,
        max_items_in_row=_MAX_ITEMS_IN_ROW,
        max_lexer_states=_MAX_LEXER_STATES,
    )
    matcher = LLMatcher(LLTokenizer("byte"), compiled, log_level=0, limits=limits)
    return _UNREADABLE if matcher.is_error() else matcher
