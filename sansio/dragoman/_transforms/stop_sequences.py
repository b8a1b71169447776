"""Stop sequences for upstreams that support none, or not so many.

Undo has the stop sequences that the upstream does not support, and a stage searches the text of the response for
them, as the upstream would: what is before the first match is the whole response. Text that may be the beginning of a
sequence waits until that is certain; all other text passes at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dragoman._ir.events import (
    ENDED,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    Failed,
    Logprobs,
    Opaque,
    Stopped,
    StopReason,
    TextDelta,
)
from dragoman._ir.losses import Ledger
from dragoman._wire.json import JSON

# Longer ones are not searched for, because that much text may have to wait.
MAX_STOP_CHARS = 1024


def split_stop_sequences(
    value: JSON, limit: int | None, path: str, ledger: Ledger
) -> tuple[JSON, tuple[str, ...]]:
    """Return the setting `stop` for an upstream that accepts `limit` sequences, and the sequences to search for.

    The setting is the value itself, or None if there is nothing for the upstream.
    """
    stops = [value] if isinstance(value, str) else value
    if limit is None or not isinstance(stops, list) or not all(isinstance(each, str) for each in stops):
        return value, ()
    if len(stops) <= limit:
        return value, ()
    to_search: list[str] = []
    for number, each in enumerate(stops[limit:], limit):
        if each and len(each) <= MAX_STOP_CHARS:
            to_search.append(each)
        else:
            ledger.dropped(
                f"{path}/{number}" if stops is value else path,
                "an empty or very long stop sequence is not searched for",
            )
    return stops[:limit] or None, tuple(to_search)


class _HeldText(msgspec.Struct):
    """An open block. searched: it is text; held: its text that may be the beginning of a stop sequence."""

    choice: int
    searched: bool
    held: str = ""


class StopSequenceStage:
    """Ends a choice at the first stop sequence in its text, and with the only choice the response.

    single_choice: the response has one choice. If it has several, it ends with the upstream's.
    """

    __slots__ = ("_done", "_open", "_single_choice", "_stops", "ended")

    needs_text = True  # see `_transforms.pipeline`

    def __init__(self, stops: Sequence[str], *, single_choice: bool) -> None:
        self._stops = tuple(stops)
        self._single_choice = single_choice
        self._open: dict[int, _HeldText] = {}
        self._done: set[int] = set()  # choices that a sequence has ended
        self.ended = False

    def send(self, event: Event) -> Sequence[Event]:
        if self.ended:
            return ()
        if isinstance(event, BlockStarted):
            if event.choice in self._done:
                return ()
            self._open[event.block] = _HeldText(event.choice, event.kind is BlockKind.TEXT)
            return (event,)
        if isinstance(event, TextDelta):
            return self._search(event)
        if isinstance(event, BlockEnded):
            block = self._open.pop(event.block, None)
            if block is None:
                return ()
            return (TextDelta(event.block, block.held), event) if block.held else (event,)
        if isinstance(event, (Stopped, Opaque)):
            return () if event.choice in self._done else (event,)
        if isinstance(event, Failed):
            return (*[self._release(each) for each, block in self._open.items() if block.held], event)
        at = getattr(event, "block", None)
        if at is not None and at not in self._open:
            return ()
        if isinstance(event, Logprobs) and self._open[event.block].held:
            return (self._release(event.block), event)  # they are about text that comes after the held text
        return (event,)

    def _search(self, event: TextDelta) -> Sequence[Event]:
        block = self._open.get(event.block)
        if block is None:
            return ()
        if not block.searched:
            return (event,)
        text = block.held + event.text
        found = [(at, each) for each in self._stops if (at := text.find(each)) >= 0]
        if found:
            at, stop = min(found)
            return self._end(event.block, block.choice, text[:at], stop)
        undecided = self._undecided(text)
        block.held = text[len(text) - undecided :]
        certain = text[: len(text) - undecided]
        return (TextDelta(event.block, certain),) if certain else ()

    def _undecided(self, text: str) -> int:
        """Return how many characters at the end of the text may be the beginning of a stop sequence."""
        longest = 0
        for stop in self._stops:
            for size in range(min(len(stop) - 1, len(text)), longest, -1):
                if text.endswith(stop[:size]):
                    longest = size
                    break
        return longest

    def _release(self, number: int) -> TextDelta:
        block = self._open[number]
        held, block.held = block.held, ""
        return TextDelta(number, held)

    def _end(self, number: int, choice: int, text: str, stop: str) -> Sequence[Event]:
        out: list[Event] = [TextDelta(number, text)] if text else []
        for each in [each for each, block in self._open.items() if block.choice == choice]:
            block = self._open.pop(each)
            if each != number and block.held:
                out.append(TextDelta(each, block.held))
            out.append(BlockEnded(each))
        out.append(Stopped(StopReason.STOP_SEQUENCE, choice=choice, sequence=stop))
        self._done.add(choice)
        if self._single_choice:
            self.ended = True
            out.append(ENDED)
        return out
