"""Find what ties a request to an account: the conversation that it belongs to, and the files that it refers to.

A conversation has a key, by which it stays with its account. The upstream gets it as `prompt_cache_key` where the
client sends none (`_transforms.cache_key`).

The client's own name for its session is used first (a header, `prompt_cache_key`), because it is cheap and exact.
Otherwise the beginning of the conversation is used, which is the same from turn to turn. The key is a hash, so the
conversation cannot be read from it.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from dragoman import UPSTREAMS, RemoteProtocolError, RequestHead
from dragoman.jsontext import decode, encode_text, search
from dragoman_server.relayed.body import CACHE_NAME, ID_REST

# Headers by which clients name their session: Claude Code, Codex, opencode, pi.
_SESSION_HEADERS = (
    "x-claude-code-session-id",
    "session-id",
    "session_id",
    "x-session-id",
    "x-session-affinity",
    "thread-id",
)

# The member of the body that names a conversation.
_CACHE_KEY_FIELD = "prompt_cache_key"
# The beginning of a conversation. The metadata is not enough: it names the user in Messages, and anything in
# OpenAI's protocols.
INSTRUCTIONS_FIELDS = ("system", "instructions", "systemInstruction", "system_instruction")
MESSAGE_FIELDS = ("messages", "input", "contents")
# Members of parts that say nothing of a conversation.
CACHE_MARKS = frozenset({"cache_control", "prompt_cache_breakpoint"})
_BILLING = tuple([spec.billing_header for spec in UPSTREAMS.values() if spec.billing_header is not None])

# The bytes of a beginning that count. A few kilobytes are enough to distinguish conversations.
_MAX_BYTES = 8192

# Ids of objects that belong to the account that made them, as a whole string of JSON: files, vector stores, containers
# (OpenAI's, Anthropic's), conversations, skills, assistants, threads, videos; Google's caches.
_REFERENCE = re.compile(
    rf'"((?:file|vs|cntr|container|conv|skill|asst|thread|video){ID_REST}|{CACHE_NAME})"'.encode()
)
# Those that are looked up, the first ones.
_MAX_REFERENCES = 16

_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def conversation_key(owner: str, headers: Mapping[str, str], request_head: RequestHead) -> str | None:
    """Return a key for the request's conversation, None if it has no beginning. owner: the client key's name."""
    parts = list(_identifying_parts(headers, request_head))
    return _hash(owner, parts) if parts else None


def referred_ids(body: bytes) -> list[str]:
    """Return the ids of vendors' objects that a request refers to, such as that of a file in a message."""
    found = dict.fromkeys(each[1].decode() for each in islice(search(_REFERENCE, body), _MAX_REFERENCES))
    return list(found)


def reasoning_key(owner: str, headers: Mapping[str, str], request_head: RequestHead) -> str:
    """Return a key for the kept state of a conversation. The ids of tool calls are not enough: some servers count them.

    It stays when a client changes its instructions, because the model still needs that state.
    """
    parts = [_session(headers)]
    for name in MESSAGE_FIELDS:
        if name in request_head.fields:
            parts.append(_text_of(name, _first(bytes(request_head.fields[name]), of_user=True)))
    return _hash(owner, parts)


def _hash(owner: str, parts: Sequence[bytes]) -> str:
    digest = hashlib.sha256(owner.encode("utf-8", "surrogatepass"))
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:32]


def _session(headers: Mapping[str, str]) -> bytes:
    """Return the client's name for its session, b"" if it has none."""
    if headers.keys().isdisjoint(_SESSION_HEADERS):
        return b""
    found = next((headers[name] for name in _SESSION_HEADERS if headers.get(name)), "")
    return found.encode("utf-8", "surrogateescape")


def _identifying_parts(headers: Mapping[str, str], request_head: RequestHead) -> Iterator[bytes]:
    session = _session(headers)
    if session:
        yield session
        return
    cache_key = bytes(request_head.fields.get(_CACHE_KEY_FIELD, b""))
    if cache_key not in (b"", b"null", b'""'):
        yield cache_key[:_MAX_BYTES]
        return
    if "metadata" in request_head.fields:
        yield bytes(request_head.fields["metadata"])[:_MAX_BYTES]
    for name in INSTRUCTIONS_FIELDS:
        if name in request_head.fields:
            yield _text_of(name, bytes(request_head.fields[name]))
    for name in MESSAGE_FIELDS:
        if name in request_head.fields:
            yield _text_of(name, _first(bytes(request_head.fields[name])))


def _first(messages: bytes, *, of_user: bool = False) -> bytes:
    """Return the first message of a list, or the text in the place of a list. of_user: the first of a user."""
    try:
        decoded = _decode_list(messages)
        first = next((message for message in decoded if not of_user or _is_of_user(message)), b"")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return messages
    return bytes(first)


def _is_of_user(message: msgspec.Raw) -> bool:
    members = _decode_members(message)
    # Some protocols let the user's role be left out; items that are no message have other members.
    return bytes(members.get("role", b"")) == b'"user"' or members.keys() == {"parts"}


def _text_of(field: str, raw: bytes) -> bytes:
    """Return the text of instructions or of a message, the bytes themselves if they cannot be read.

    The rest is not the same in each turn: clients move cache marks, billing lines are new, and a text that was a string
    comes back from the response store as an item.
    """
    try:
        value = decode(raw)
        for billing in _BILLING:
            if billing.member == field:
                value = billing.strip(value)
        text = _plain(value)
    except (RemoteProtocolError, RecursionError):
        return raw[:_MAX_BYTES]
    return text[:_MAX_BYTES].encode("utf-8", "surrogatepass")[:_MAX_BYTES]


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join([_plain(part) for part in value])
    if not isinstance(value, dict):
        return ""
    for name in ("content", "text", "parts"):
        if name in value:
            return _plain(value[name])
    # An image or a file, say.
    named = {name: member for name, member in value.items() if name not in CACHE_MARKS}
    return encode_text(named)
