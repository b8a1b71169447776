"""Read token counts as OpenAI's protocols and servers like theirs have them."""

from __future__ import annotations

from collections.abc import Mapping

from dragoman._wire.json import JSON, JSONObject


def read_counts(usage: JSONObject, places: Mapping[str, tuple[tuple[str, ...], ...]]) -> dict[str, JSON]:
    """Return the counts by their field of Usage. places: the members that lead to each, the official ones first."""
    counts: dict[str, JSON] = {}
    for field, paths in places.items():
        count = None
        for path in paths:
            if path[0] in usage and (count := read_count(usage, *path)) is not None:
                break
        counts[field] = count
    return counts


def read_count(value: JSON, *path: str) -> int | None:
    """Return the count at a path of members: an integer from 0, or a float that equals one. None if there is none."""
    for name in path:
        value = value.get(name) if type(value) is dict else None
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and value >= 0 else None
