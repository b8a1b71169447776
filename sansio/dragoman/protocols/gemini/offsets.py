"""Places in a text: this protocol counts bytes of UTF-8, the events count characters."""

from __future__ import annotations

from bisect import bisect_right

# Characters between two places whose bytes are known.
_STEP = 1024
# The bytes of a character behind its first one.
_FOLLOWING = bytes(range(0x80, 0xC0))


class Offsets:
    """The places in one text. Each is found without looking at the text from its start again.

    Args:
        text: it may have lone surrogates, which count three bytes, as encoders of UTF-8 that let them pass have it.
    """

    def __init__(self, text: str) -> None:
        self._pieces = [_bytes(text[at : at + _STEP]) for at in range(0, len(text), _STEP)]
        self._starts = [0]
        for piece in self._pieces:
            self._starts.append(self._starts[-1] + len(piece))
        self._text = text
        self.size = self._starts[-1]

    def to_bytes(self, characters: int) -> int:
        """Return how many bytes the first characters have. The text has at least so many."""
        number = characters // _STEP
        return self._starts[number] + len(_bytes(self._text[number * _STEP : characters]))

    def to_characters(self, size: int) -> int:
        """Return how many characters the first bytes have: whole ones. The text has at least so many."""
        number = bisect_right(self._starts, size) - 1
        if number == len(self._pieces):
            return len(self._text)
        piece, cut = self._pieces[number], size - self._starts[number]
        begun = len(piece[:cut].translate(None, _FOLLOWING))
        return number * _STEP + begun - (piece[cut] in _FOLLOWING)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
