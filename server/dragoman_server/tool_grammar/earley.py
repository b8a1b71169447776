"""Decide whether a text is in the language of a context-free grammar: Earley's algorithm, with a limit on its steps.

As in Lark's dynamic lexer, which the vendor of grammar tools names as its model, a terminal is matched where the parser
needs it, and takes the longest match. No tree is built, so an item is a slot (a production and a dot in it) and the
place where the production began. Every step counts, because clients choose both grammar and text.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

# A symbol of a production: a nonterminal's number, or ~n for the n-th terminal.
Symbol = int

# A match of an unbounded expression counts one more step per this many bytes; a step takes half a microsecond.
_BYTES_PER_STEP = 2048


class Terminal(Protocol):
    """A terminal symbol. unbounded: a match may have to read any number of bytes."""

    @property
    def unbounded(self) -> bool: ...

    def end(self, text: bytes, place: int) -> int | None:
        """Return the end of the longest match that begins at `place`, or None if there is none."""


@dataclass(frozen=True, slots=True)
class LiteralTerminal:
    """A terminal that is always the same bytes."""

    value: bytes
    unbounded: bool = False

    def end(self, text: bytes, place: int) -> int | None:
        return place + len(self.value) if text.startswith(self.value, place) else None


class StepLimitExceeded(Exception):
    """The check would take more steps than allowed."""


@dataclass(frozen=True, slots=True)
class GrammarMismatch:
    """A text is not in the language. offset: in bytes, where nothing could follow. at_end: at the end of the text."""

    offset: int
    at_end: bool


@dataclass(slots=True)
class CFG:
    """A compiled grammar.

    productions: for each nonterminal its alternatives. Nonterminal 0 is the start; nothing refers to it.
    terminals: `~n` is the n-th of them.
    ignored: terminals that may occur between any two others.
    """

    productions: Sequence[Sequence[Sequence[Symbol]]]
    terminals: Sequence[Terminal]
    ignored: Sequence[Terminal] = ()
    # By slot: the symbol after the dot (None at the end), and the nonterminal of the production.
    _next: list[Symbol | None] = field(default_factory=list)
    _owner: list[int] = field(default_factory=list)
    # By nonterminal: the slots that its alternatives begin with.
    _first: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number, alternatives in enumerate(self.productions):
            self._first.append([])
            for symbols in alternatives:
                self._first[number].append(len(self._next))
                self._next += [*symbols, None]
                self._owner += [number] * (len(symbols) + 1)

    def check(self, text: bytes, max_steps: int) -> GrammarMismatch | None:
        """Return None if `text` is in the language, else where it leaves it. Raises StepLimitExceeded."""
        return _Run(self, text, max_steps).result()


_Item = tuple[int, int]  # slot, origin


class _Run:
    """The check of one text."""

    def __init__(self, grammar: CFG, text: bytes, max_steps: int) -> None:
        self._grammar = grammar
        self._text = text
        self._left = max_steps
        # By place: the items to visit there; and by nonterminal, the items that wait for one that began there.
        self._coming: dict[int, set[_Item]] = {0: {(slot, 0) for slot in grammar._first[0]}}
        self._waiting: dict[int, dict[int, list[_Item]]] = {}
        self._places = [0]

    def result(self) -> GrammarMismatch | None:
        place = 0
        while self._places:
            place = heapq.heappop(self._places)
            if self._visit(place) and place == len(self._text):
                return None
        return GrammarMismatch(place, place == len(self._text))

    def _visit(self, place: int) -> bool:
        """Follow all items of a place. Return True if the text up to here is in the language."""
        following, owner = self._grammar._next, self._grammar._owner
        agenda = list(self._coming.pop(place))
        seen = set(agenda)
        waiting = self._waiting.setdefault(place, {})
        empty: set[int] = set()  # nonterminals that match the empty text here
        ends: dict[int, int | None] = {}  # by terminal: where its match here ends
        after_ignored: set[_Item] = set()  # items that continue after an ignored terminal
        whole = False
        while agenda:
            item = agenda.pop()
            slot, origin = item
            symbol = following[slot]
            new: Sequence[_Item] = ()
            if symbol is None:
                done = owner[slot]
                if done == 0:
                    whole = True
                    after_ignored.add(item)
                elif origin == place:
                    new = self._advanced(waiting.get(done, ())) if done not in empty else ()
                    empty.add(done)
                else:
                    new = self._advanced(self._waiting[origin][done])
            elif symbol >= 0:
                new = self._predicted(symbol, item, place, waiting, symbol in empty)
            else:
                after_ignored.add(item)
                end = ends[symbol] if symbol in ends else self._match(symbol, place, ends)
                if end == place:
                    new = ((slot + 1, origin),)
                elif end is not None:
                    self._send((slot + 1, origin), end)
            self._spend(1 + len(new))
            for each in new:
                if each not in seen:
                    seen.add(each)
                    agenda.append(each)
        self._skip_ignored(place, after_ignored)
        return whole

    @staticmethod
    def _advanced(items: Iterable[_Item]) -> list[_Item]:
        return [(slot + 1, origin) for slot, origin in items]

    def _predicted(
        self, symbol: int, item: _Item, place: int, waiting: dict[int, list[_Item]], is_empty: bool
    ) -> list[_Item]:
        new = [] if symbol in waiting else [(slot, place) for slot in self._grammar._first[symbol]]
        waiting.setdefault(symbol, []).append(item)
        if is_empty:
            new.append((item[0] + 1, item[1]))
        return new

    def _match(self, symbol: Symbol, place: int, ends: dict[int, int | None]) -> int | None:
        end = ends[symbol] = self._end(self._grammar.terminals[~symbol], place)
        return end

    def _end(self, terminal: Terminal, place: int) -> int | None:
        if terminal.unbounded:
            self._spend((len(self._text) - place) // _BYTES_PER_STEP)
        return terminal.end(self._text, place)

    def _skip_ignored(self, place: int, items: Iterable[_Item]) -> None:
        for terminal in self._grammar.ignored:
            self._spend(1)
            end = self._end(terminal, place)
            if end is not None and end > place:
                for item in items:
                    self._send(item, end)

    def _send(self, item: _Item, place: int) -> None:
        if place not in self._coming:
            self._coming[place] = set()
            heapq.heappush(self._places, place)
        self._coming[place].add(item)

    def _spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise StepLimitExceeded
