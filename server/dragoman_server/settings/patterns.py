"""Patterns of model names: `*` stands for any text, and nothing else is special.

Names may have brackets, as in `claude-opus-4-8[1m]`, and so may patterns.
"""

WILDCARD = "*"


def matches(name: str, pattern: str) -> bool:
    """True if the pattern matches the whole name. Case matters, as it does at upstreams."""
    return captures(name, pattern) is not None


def captures(name: str, pattern: str) -> tuple[str, ...] | None:
    """Return the text that each `*` of the pattern stands for, in order; None if the pattern does not match.

    The last `*` takes as much as it can, the others as little. It takes linear time, because clients choose the names.
    """
    first, *others = pattern.split(WILDCARD)
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


def substitute(target: str, texts: tuple[str, ...]) -> str:
    """Return the target with its `*` replaced by the texts, in order. There may be more texts than `*`."""
    first, *others = target.split(WILDCARD)
    return first + "".join(text + literal for text, literal in zip(texts, others, strict=False))
