"""Patterns of model names: `*` stands for any text, and nothing else is special.

Names may have brackets, as in `claude-opus-4-8[1m]`, and so may patterns.
"""

from fnmatch import fnmatchcase


def matches(name: str, pattern: str) -> bool:
    """Whether the pattern fits the whole name. Case counts, as it does for providers."""
    return fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]"))
