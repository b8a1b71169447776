"""Patterns of model names: `*` stands for any text, and nothing else is special.

Names may have brackets, as in `claude-opus-4-8[1m]`, and so may patterns.
"""

ANY_TEXT = "*"


def matches(name: str, pattern: str) -> bool:
    """Whether the pattern fits the whole name. Case counts, as it does for providers."""
    return matched(name, pattern) is not None


def matched(name: str, pattern: str) -> tuple[str, ...] | None:
    """The text that each `*` of the pattern stands for, in order; None where the pattern does not fit.

    The last `*` takes as much as it can, the others as little. Takes linear time, for names come from outside.
    """
    first, *others = pattern.split(ANY_TEXT)
    if not others:
        return () if name == pattern else None
    *middle, last = others
    place, end = len(first), len(name) - len(last)
    if place > end or not name.startswith(first) or not name.endswith(last):
        return None
    texts = []
    for literal in middle:
        found = name.find(literal, place, end)
        if found < 0:
            return None
        texts.append(name[place:found])
        place = found + len(literal)
    return *texts, name[place:end]


def filled(target: str, texts: tuple[str, ...]) -> str:
    """The target with the texts in the places of its `*`, in order. There may be more texts than places."""
    first, *others = target.split(ANY_TEXT)
    return first + "".join(text + literal for text, literal in zip(texts, others, strict=False))
