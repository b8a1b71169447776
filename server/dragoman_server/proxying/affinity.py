"""Which conversation a request belongs to, so that it can stay with its account.

Strategy: what a client says itself counts first (a header of its session, `prompt_cache_key`), for it is
cheap and exact. Of others the beginning of the conversation is taken, which is the same from turn to turn. The key is a
hash: nobody can read the conversation from it, and it is of no use elsewhere.
"""

import hashlib
from collections.abc import Iterator, Mapping

import msgspec

from dragoman import Peek

# Headers by which clients name their session: Claude Code, Codex, opencode, pi.
_HEADERS = (
    "x-claude-code-session-id",
    "session-id",
    "session_id",
    "x-session-id",
    "x-session-affinity",
    "thread-id",
)

# The member of the body that names a conversation.
_NAME = "prompt_cache_key"
# What a conversation begins with. The metadata alone would not do: they name the user in Messages, and anything at all
# in OpenAI's protocols.
_BEGINNINGS = ("metadata", "system", "instructions")
_MESSAGES = ("messages", "input")

# Of a beginning so many bytes count. A few kilobytes tell conversations apart.
_MOST_BYTES = 8192

_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


def conversation_of(owner: str, headers: Mapping[str, str], peeked: Peek) -> str | None:
    """A key for the request's conversation, None when it has no beginning. owner: whose it is."""
    signs = list(_signs(headers, peeked))
    if not signs:
        return None
    digest = hashlib.sha256(owner.encode("utf-8", "surrogatepass"))
    for sign in signs:
        digest.update(len(sign).to_bytes(8, "big") + sign)
    return digest.hexdigest()[:32]


def _signs(headers: Mapping[str, str], peeked: Peek) -> Iterator[bytes]:
    for name in _HEADERS:
        if headers.get(name):
            yield headers[name].encode("utf-8", "surrogateescape")
            return
    named = bytes(peeked.fields.get(_NAME, b""))
    if named not in (b"", b"null", b'""'):
        yield named[:_MOST_BYTES]
        return
    for name in _BEGINNINGS:
        if name in peeked.fields:
            yield bytes(peeked.fields[name])[:_MOST_BYTES]
    for name in _MESSAGES:
        if name in peeked.fields:
            yield _first(bytes(peeked.fields[name]))[:_MOST_BYTES]


def _first(messages: bytes) -> bytes:
    """The first message of a list, or the text that stands for one."""
    try:
        found = _decode_list(messages)
    except msgspec.DecodeError:
        return messages
    return bytes(found[0]) if found else b""
