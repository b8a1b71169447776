"""The nearest valid name, for error messages that help."""

import difflib
from collections.abc import Iterable

# difflib's own default is 0.6; a little less also finds a protocol by its vendor's name, and "prot" in "port".
_CUTOFF = 0.55
# Comparing is quadratic in the length, and a model name comes from outside.
_MAX_LENGTH = 200


def nearest(word: str, valid: Iterable[str]) -> str | None:
    """The valid name that looks most like `word`, or None when nothing looks like it."""
    if len(word) > _MAX_LENGTH:
        return None
    by_folded = {name.casefold().replace("-", "_"): name for name in valid}
    close = difflib.get_close_matches(word.casefold().replace("-", "_"), by_folded, n=1, cutoff=_CUTOFF)
    return by_folded[close[0]] if close else None


def did_you_mean(word: str, valid: Iterable[str]) -> str:
    """`; did you mean "name"?`, or an empty string: made to be put at the end of a message."""
    found = nearest(word, valid)
    return f'; did you mean "{found}"?' if found is not None else ""
