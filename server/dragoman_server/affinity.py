"""Which conversation a request belongs to, so that it can stay with its account.

Strategy: what a client says itself counts first (a header of its session, `prompt_cache_key`, the user's id), for it is
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

# Members of the body that name a conversation, or the user where nothing else does.
_NAMES = ("prompt_cache_key", "metadata")
# What a conversation begins with.
_BEGINNINGS = ("system", "instructions")
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
    for name in _NAMES:
        value = bytes(peeked.fields.get(name, b""))
        # "metadata" is the user's in Messages, and any small object in OpenAI's protocols.
        if value not in (b"", b"null", b"{}", b'""'):
            yield value[:_MOST_BYTES]
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
