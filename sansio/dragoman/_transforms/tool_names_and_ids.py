"""Names of tools and ids of their calls as an upstream or a client accepts them.

Every mapping is a function of the value only (a hash if something must be shortened): the same conversation gives the
same bytes each turn, and prompt caches and earlier turns stay valid. `tools.fit_tools` notes what it has sent in
`Undo.origins`, and `tool_calls.ToolCallStage` gives the client its own names back.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from dragoman.codec import ToolLimits

# All vendors allow the characters ^[a-zA-Z0-9_-]+$ in names (openai-python 3.54.0); Messages requires them in call ids
# too (maximhq/bifrost#5097, read 2026-11-22).
_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")
_NO_LETTER = re.compile(r"[^a-zA-Z_]")
# Mistral: "Tool call id was ... but must be a-z, A-Z, 0-9, with a length of 9." (anomalyco/opencode#1680, read
# 2026-11-22)
_ALNUM9 = re.compile(r"[a-zA-Z0-9]{9}")
_HASH_CHARS = 8
# The limit for call ids where a vendor documents none.
_LONG_ID = 256


def fit_name(name: str, namespace: str | None, limits: ToolLimits) -> str:
    """Return the name to send: unchanged if it is allowed, else cleaned, with a hash if that loses something."""
    full = name if namespace is None or limits.namespaces else f"{namespace}__{name}"
    begins_well = not limits.letter_first or _NO_LETTER.match(full) is None
    if begins_well and 0 < len(full) <= limits.max_name and _FORBIDDEN.search(full) is None:
        return full
    return hashed_name(full, full, limits)


def fits_names(names: Collection[str], limits: ToolLimits) -> bool:
    """True if `fit_name` changes none of some names (one or more) without a namespace."""
    if "" in names or max(map(len, names)) > limits.max_name or _FORBIDDEN.search("".join(names)) is not None:
        return False
    return not (limits.letter_first and any(map(_NO_LETTER.match, names)))


def hashed_name(name: str, exact: str, limits: ToolLimits) -> str:
    """Return the name, cleaned and with a hash of the exact text, which keeps two names distinct."""
    clean = _FORBIDDEN.sub("_", name)
    if limits.letter_first and _NO_LETTER.match(clean):
        clean = f"_{clean}"
    return _shorten(clean, exact, limits.max_name)


def fit_call_id(call_id: str, limits: ToolLimits, form: str = "any") -> str:
    """Return the call id to send, by the same rule for a call and for its result. form: Capabilities.call_ids."""
    if form == "alnum9":
        return call_id if _ALNUM9.fullmatch(call_id) else _to_alnum9(call_id)
    limit = limits.max_call_id or _LONG_ID
    if 0 < len(call_id) <= limit and not (limits.call_id_chars and _FORBIDDEN.search(call_id)):
        return call_id
    clean = _FORBIDDEN.sub("_", call_id) if limits.call_id_chars else call_id
    return _shorten(clean, call_id, limit)


def fits_call_ids(ids: Collection[str], limits: ToolLimits, form: str) -> bool:
    """True if `fit_call_id` changes none of some ids."""
    if not ids:
        return True
    if form == "alnum9":
        return all(map(_ALNUM9.fullmatch, ids))
    if "" in ids or max(map(len, ids)) > (limits.max_call_id or _LONG_ID):
        return False
    return not (limits.call_id_chars and _FORBIDDEN.search("".join(ids)))


def _to_alnum9(text: str) -> str:
    """Return nine letters and digits for a text: 36 ** 9 are enough to keep the calls of a conversation distinct."""
    import hashlib  # see _shorten

    number = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")
    out = ""
    for _ in range(9):
        number, digit = divmod(number, 36)
        out += "0123456789abcdefghijklmnopqrstuvwxyz"[digit]
    return out


def _shorten(clean: str, exact: str, limit: int) -> str:
    """Return at most `limit` characters. The hash of the exact text keeps two texts distinct."""
    import hashlib  # loads OpenSSL: slow to import, and names that need it are rare

    digest = hashlib.sha256(exact.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
    return f"{clean[: limit - _HASH_CHARS - 1]}_{digest}"
