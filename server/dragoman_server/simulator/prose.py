"""Text without end, the same each time."""

from collections.abc import Iterator

_TEXT = (
    "a dragoman stood between two courts and spoke for each in the tongue of the other while scribes wrote down"
    " every word that was said so that nothing would be lost on the long road from city to palace where patient"
    " clerks compared both letters line by line"
)
_WORDS = _TEXT.split()
_SENTENCE = 12
_PARAGRAPH = 96


def prose(count: int) -> Iterator[str]:
    """So many words, as pieces that join to sentences and paragraphs."""
    for number in range(count):
        # A quadratic walk visits the words in an order that looks unordered and takes no memory.
        word = _WORDS[(number * number + 3 * number) // 2 % len(_WORDS)]
        if number % _SENTENCE == 0:
            word = word.capitalize()
        if number % _SENTENCE == _SENTENCE - 1 or number == count - 1:
            word += "."
        if number:
            word = ("\n\n" if number % _PARAGRAPH == 0 else " ") + word
        yield word
