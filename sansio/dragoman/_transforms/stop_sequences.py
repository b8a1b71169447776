"""Stop sequences for upstreams that support none, or not so many.

Undo has the stop sequences that the upstream does not support, and a stage searches the text of the response for
them. A model writes token by token, so the sequence that is complete first ends the response, and of those that end at
the same character the longest; the text before it is the whole response, however the upstream cut it. Text that may be
the beginning of a sequence waits until that is certain; all other text passes immediately.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from dragoman._ir import events
from dragoman._ir.events import EVENTS, BlockKind, Event, StopReason
from dragoman._ir.losses import Ledger
from dragoman._wire.json import JSON
from dragoman._wire.limits import STOP_CHARACTERS, STOP_SEQUENCES

# Longer ones are not searched for, because that much text may have to wait.
MAX_STOP_CHARS = 1024


def split_stop_sequences(
    value: JSON, limit: int | None, path: str, ledger: Ledger
) -> tuple[JSON, tuple[str, ...]]:
    """Return the setting `stop` for an upstream that accepts `limit` sequences, and the sequences to search for.

    The setting is the value itself, or None if there is nothing for the upstream. Raises RemoteProtocolError (400) for
    too many.
    """
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(each, str) for each in stops):
        return value, ()
    if limit is not None:
        STOP_SEQUENCES.check(len(stops), path)
        STOP_CHARACTERS.check(sum(map(len, stops)), path)
    sent: list[JSON] = []
    to_search: list[str] = []
    for number, each in enumerate(stops):
        place = f"{path}/{number}" if stops is value else path
        if not each:
            # "stop_sequences: each stop sequence must be non-empty" (mcp-web-ui#5, read 2026-12-01)
            ledger.dropped(place, "an empty stop sequence was left out: it is refused, or ends no text")
        elif limit is None or len(sent) < limit:
            sent.append(each)
        elif len(each) <= MAX_STOP_CHARS:
            to_search.append(each)
        else:
            ledger.dropped(place, "a very long stop sequence is not searched for")
    return value if len(sent) == len(stops) > 0 else sent or None, tuple(to_search)


class _Search:
    """A search for several sequences together, which looks at each character of a text once (Aho and Corasick, 1975).

    A state is the longest end of the text so far that begins a sequence; 0 is the empty one.

    Attributes:
        length: The number of characters of each state.
        found: The longest sequence that ends in each state, None for none.
    """

    __slots__ = ("_next", "_shorter", "_start", "found", "length")

    def __init__(self, stops: Sequence[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self.length = [0]
        self.found: list[str | None] = [None]
        for stop in stops:
            state = 0
            for size, character in enumerate(stop, 1):
                following = self._next[state].setdefault(character, len(self._next))
                if following == len(self._next):
                    self._next.append({})
                    self.length.append(size)
                    self.found.append(None)
                state = following
            self.found[state] = stop
        # Each state's longest end that begins a sequence too. Shorter states come first.
        self._shorter = [0] * len(self._next)
        for state in sorted(range(len(self._next)), key=self.length.__getitem__):
            for character, following in self._next[state].items():
                self._shorter[following] = self._step(self._shorter[state], character) if state else 0
                self.found[following] = self.found[following] or self.found[self._shorter[following]]
        self._start = re.compile(f"[{''.join(map(re.escape, self._next[0]))}]")

    def _step(self, state: int, character: str) -> int:
        while state and character not in self._next[state]:
            state = self._shorter[state]
        return self._next[state].get(character, 0)

    def feed(self, state: int, text: str) -> tuple[int, int]:
        """Return the state at the end of the next text or of the first sequence, and the place behind that."""
        at = 0
        while at < len(text):
            if not state:
                start = self._start.search(text, at)
                if start is None:
                    return 0, len(text)
                at = start.start()
            state = self._step(state, text[at])
            at += 1
            if self.found[state] is not None:
                break
        return state, at


class _HeldText(msgspec.Struct):
    """An open block.

    searched: it is text.
    held: its text that may be the beginning of a stop sequence.
    state: of the search.
    """

    choice: int
    searched: bool
    held: str = ""
    state: int = 0


class StopSequenceStage:
    """Ends a choice at the first stop sequence in its text, and with the only choice the response.

    single_choice: the response has one choice. If it has several, it ends with the upstream's.
    """

    __slots__ = ("_done", "_open", "_single_choice", "_stops", "ended")

    needs_text = True  # see `_transforms.pipeline`
    kinds = EVENTS

    def __init__(self, stops: Sequence[str], *, single_choice: bool) -> None:
        self._stops = _Search(stops)
        self._single_choice = single_choice
        self._open: dict[int, _HeldText] = {}
        self._done: set[int] = set()  # choices that a sequence has ended
        self.ended = False

    def send(self, event: Event) -> Sequence[Event]:
        if self.ended:
            return ()
        if isinstance(event, events.BlockStarted):
            if event.choice in self._done:
                return ()
            self._open[event.block] = _HeldText(event.choice, event.kind is BlockKind.TEXT)
            return (event,)
        if isinstance(event, events.TextDelta):
            return self._search(event)
        if isinstance(event, events.BlockEnded):
            block = self._open.pop(event.block, None)
            if block is None:
                return ()
            return (events.TextDelta(event.block, block.held), event) if block.held else (event,)
        if isinstance(event, (events.Stopped, events.Opaque)):
            return () if event.choice in self._done else (event,)
        if isinstance(event, events.Failed):
            return (*[self._release(each) for each, block in self._open.items() if block.held], event)
        at = getattr(event, "block", None)
        if at is not None and at not in self._open:
            return ()
        if isinstance(event, events.Logprobs) and self._open[event.block].held:
            return (self._release(event.block), event)  # they are about text that comes after the held text
        return (event,)

    def _search(self, event: events.TextDelta) -> Sequence[Event]:
        block = self._open.get(event.block)
        if block is None:
            return ()
        if not block.searched:
            return (event,)
        text = block.held + event.text
        block.state, at = self._stops.feed(block.state, event.text)
        stop = self._stops.found[block.state]
        if stop is not None:
            return self._end(event.block, block.choice, text[: len(block.held) + at - len(stop)], stop)
        certain = len(text) - self._stops.length[block.state]
        block.held = text[certain:]
        return (events.TextDelta(event.block, text[:certain]),) if certain else ()

    def _release(self, number: int) -> events.TextDelta:
        block = self._open[number]
        held, block.held, block.state = block.held, "", 0
        return events.TextDelta(number, held)

    def _end(self, number: int, choice: int, text: str, stop: str) -> Sequence[Event]:
        out: list[Event] = [events.TextDelta(number, text)] if text else []
        for each in [each for each, block in self._open.items() if block.choice == choice]:
            block = self._open.pop(each)
            if each != number and block.held:
                out.append(events.TextDelta(each, block.held))
            out.append(events.BlockEnded(each))
        out.append(events.Stopped(StopReason.STOP_SEQUENCE, choice=choice, sequence=stop))
        self._done.add(choice)
        if self._single_choice:
            self.ended = True
            out.append(events.ENDED)
        return out
