"""Conversations that a client refers to instead of sending them: pure, from bytes to bytes.

Strategy: a Responses request that names a stored response or a stored item becomes one that says everything, so
that every protocol behind the gateway gets the whole conversation. Values are passed on as the bytes that they
came in. Which response is stored where is not known here.
"""

import hashlib
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from dragoman import RemoteProtocolError, RequestHead, Signer
from dragoman.jsontext import JSON, JSONObject, decode, encode, kind_of
from dragoman_server.responses.stores.base import StoredItem, StoredResponse

# What ids look like: letters, digits, underscores and dashes. OpenAI's have some 60 of them.
_ID = re.compile(r"[A-Za-z0-9_-]{1,200}\Z")

# The beginnings of ids, as OpenAI's server gives them to items that came without.
_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "compaction": "cmp",
}
_OTHER_PREFIX = "item"

# How a request that may refer to items is told without decoding it. The id alone is a reference as well.
_NULL_TYPE = rb'"type"\s*+:\s*+null\s*+'
_REFERENCE = re.compile(
    rb'"item_reference"|\{\s*+(?:%b,\s*+)?+"id"\s*+:\s*+"[^"]*+"\s*+(?:,\s*+%b)?+\}'
    % (_NULL_TYPE, _NULL_TYPE)
)

# Answers that have ended, and those of them that a conversation can go on from. None: some servers do not say.
_WHOLE = ("completed", "incomplete", None)
_ENDED = (*_WHOLE, "failed", "cancelled")


def is_id(value: object) -> bool:
    """Whether a value can be the id of something stored."""
    return isinstance(value, str) and _ID.match(value) is not None


@dataclass(frozen=True, slots=True)
class ItemReference:
    """An item of the input that stands for a stored one. at: its place in the input."""

    index: int
    id: str


@dataclass(frozen=True, slots=True)
class StateParams:
    """What a request says about state.

    previous: the response that it goes on from.
    store: whether the answer shall be kept; that is so when the client says nothing.
    may_refer: items of the input may stand for stored ones.
    """

    previous: str | None
    store: bool
    may_refer: bool


def read_state_params(request_head: RequestHead) -> StateParams:
    """Raises RemoteProtocolError for a `previous_response_id` that is no string."""
    previous = _field(request_head, "previous_response_id")
    if previous is not None and type(previous) is not str:
        raise RemoteProtocolError(
            f"previous_response_id must be a string, not {kind_of(previous)}",
            path="/previous_response_id",
            code="invalid_type",
        )
    given = bytes(request_head.fields.get("input", b""))
    may_refer = _REFERENCE.search(given) is not None
    return StateParams(previous or None, _field(request_head, "store") is not False, may_refer)


def _field(request_head: RequestHead, name: str) -> JSON:
    raw = request_head.fields.get(name)
    return None if raw is None else decode(bytes(raw))


def input_items(request_head: RequestHead) -> list[bytes]:
    """The items of `input`, each as its bytes; text alone as the message that it means.

    Raises RemoteProtocolError for what is no item.
    """
    raw = bytes(request_head.fields.get("input", b"null")).strip()
    if raw == b"null":
        return []
    if raw.startswith(b'"'):
        return [b'{"type":"message","role":"user","content":%b}' % raw]
    if not raw.startswith(b"["):
        raise RemoteProtocolError("input must be a string or an array", path="/input", code="invalid_type")
    items = _elements(raw)
    for place, item in enumerate(items):
        if not item.startswith(b"{"):
            kind = kind_of(decode(item))
            raise RemoteProtocolError(
                f"input[{place}] must be an object, not {kind}", path=f"/input/{place}", code="invalid_type"
            )
    return items


def _elements(raw: bytes) -> list[bytes]:
    """The elements of an array, as their bytes."""
    try:
        return [bytes(element).strip() for element in msgspec.json.decode(raw, type=list[msgspec.Raw])]
    except (msgspec.DecodeError, UnicodeDecodeError):
        # msgspec takes no lone surrogate. What is no array has no elements.
        value = decode(raw)
        return [encode(element) for element in value] if type(value) is list else []


def _decoded(item: bytes) -> JSONObject:
    value = decode(item)
    return value if type(value) is dict else {}


def find_references(items: Iterable[bytes]) -> list[ItemReference]:
    """Those items that stand for stored ones. Raises RemoteProtocolError for one without an id."""
    found = []
    for place, raw in enumerate(items):
        item = decode(raw)
        if _is_reference(item):
            id = item.get("id")
            if type(id) is not str or not id:
                path = f"/input/{place}/id"
                raise RemoteProtocolError(
                    f"input[{place}].id is required", path=path, code="missing_required_parameter"
                )
            found.append(ItemReference(place, id))
    return found


def _is_reference(item: JSONObject) -> bool:
    kind = item.get("type")
    return kind == "item_reference" or (kind is None and item.keys() - {"type"} == {"id"})


def printable_id(id: str) -> str:
    """An id from outside, made fit for a message."""
    return id[:100].encode("ascii", "replace").decode("ascii")


def item_not_found(place: int, id: str) -> RemoteProtocolError:
    """An item that nobody knows, in the words of OpenAI's server, for clients look for them."""
    return RemoteProtocolError(
        f"Item with id '{printable_id(id)}' not found. Items are not persisted when `store` is set to false. "
        "Try again with `store` set to true, or remove this item from your input.",
        status=404,
        path=f"/input/{place}/id",
        code="item_not_found",
    )


def previous_not_found(id: str) -> RemoteProtocolError:
    """In the words of OpenAI's server."""
    return RemoteProtocolError(
        f"Previous response with id '{printable_id(id)}' not found.",
        path="/previous_response_id",
        code="previous_response_not_found",
    )


def history(previous: StoredResponse) -> tuple[StoredItem, ...]:
    """What the model was told and what it said, up to the end of `previous`.

    A compaction item stands for all that was before it. Raises RemoteProtocolError for an answer that broke off:
    nobody can tell what the model would have said.
    """
    status = _decoded(previous.body).get("status")
    if status not in _WHOLE:
        raise RemoteProtocolError(
            f"Previous response with id '{previous.id}' cannot be gone on from: it is {status}. "
            "Go on from the one before it.",
            path="/previous_response_id",
            code="previous_response_not_found",
        )
    for place, item in reversed(list(enumerate(previous.output))):
        if _decoded(item.data).get("type") == "compaction":
            return previous.output[place:]
    return (*previous.input, *previous.output)


@dataclass(frozen=True, slots=True)
class ConversationEntry:
    """One item of a whole conversation. stored: it is not in the request itself."""

    item: StoredItem
    stored: bool


def build_conversation(
    before: Sequence[StoredItem], items: Sequence[bytes], referred: Mapping[int, StoredItem]
) -> list[ConversationEntry]:
    """The whole conversation: what was before, then the new items.

    referred: by their places, the stored items that new ones stand for. One that the conversation has already
    is left out: OpenAI's server takes no item twice.
    """
    known = {item.id for item in before}
    whole = [ConversationEntry(item, True) for item in before]
    for place, raw in enumerate(items):
        item = referred.get(place)
        if item is None:
            whole.append(ConversationEntry(_named(raw, len(whole)), False))
        elif item.id not in known:
            whole.append(ConversationEntry(item, True))
    return whole


def write_items(entries: Iterable[ConversationEntry], relayed: bool) -> list[bytes]:
    """The items of a conversation as a request has them. relayed: the request goes to a Responses server."""
    out = []
    for entry in entries:
        data = _for_relay(entry.item) if relayed and entry.stored else entry.item.data
        if data is not None:
            out.append(data)
    return out


def _named(raw: bytes, place: int) -> StoredItem:
    """An item with its id. One that came without gets one made of what it says and where: the same conversation
    sent again has the same items, and is kept once.
    """
    item = _decoded(raw)
    if is_id(item.get("id")):
        return StoredItem(item["id"], raw)
    kind = item.get("type") or "message"
    prefix = _PREFIXES.get(kind, _OTHER_PREFIX) if type(kind) is str else _OTHER_PREFIX
    digest = hashlib.blake2b(b"%d\n%b" % (place, raw), digest_size=16).hexdigest()
    return StoredItem(f"{prefix}_{digest}", raw)


def replace_input(
    request_head: RequestHead, items: Iterable[bytes], *, without: Container[str] = ()
) -> bytes:
    """The request with another input and without a reference to an earlier response. Every other value stays.

    without: the names of others that go.
    """
    members = [
        b"%b:%b" % (encode(name), bytes(raw))
        for name, raw in request_head.fields.items()
        if name not in ("previous_response_id", "input") and name not in without
    ]
    members.append(b'"input":[%b]' % b",".join(items))
    return b"{%b}" % b",".join(members)


def _for_relay(kept: StoredItem) -> bytes | None:
    """An item of an earlier turn for a Responses server that does not know it, None when it says nothing there.

    "Item with id 'rs_...' not found. Items are not persisted when `store` is set to false": an id leads nowhere
    there, so the content goes without. Reasoning that has no content, or one that only we can open, says nothing.
    """
    item = _decoded(kept.data)
    if item.get("type") == "reasoning":
        sealed = item.get("encrypted_content")
        if type(sealed) is str and Signer.is_wrapped(sealed):
            sealed = item["encrypted_content"] = None
        if not sealed and not item.get("content"):
            return None
    if "id" not in item or item.get("type") in _NEED_IDS:
        return kept.data
    del item["id"]
    return encode(item)


# Items whose id names something beside themselves.
_NEED_IDS = frozenset(("mcp_approval_request", "mcp_list_tools"))


def to_stored_response(
    body: JSONObject, whole: tuple[StoredItem, ...], previous: str | None, *, owner: str, now: int
) -> StoredResponse | None:
    """An answer as it is kept; None when it has not ended, or has no id to find it by."""
    id, output = body.get("id"), body.get("output")
    if not is_id(id) or body.get("status") not in _ENDED or not isinstance(output, list):
        return None
    said = [_named(encode(item), len(whole) + place) for place, item in enumerate(output)]
    kept = {**body, "output": [], "store": True, "previous_response_id": previous}
    return StoredResponse(str(id), owner, now, encode(kept), whole, tuple(said))


def mark_cancelled(body: JSONObject) -> JSONObject:
    """An answer whose client did not wait for its end: "To cancel a synchronous response, terminate the
    connection."
    """
    return {**body, "status": "cancelled", "error": None, "incomplete_details": None}


def response_body(response: StoredResponse) -> JSONObject:
    """The Response object as it was answered."""
    body: JSONObject = decode(response.body)
    body["output"] = [msgspec.Raw(item.data) for item in response.output]
    return body


def item_for_list(item: StoredItem) -> JSONObject:
    """An item of the input, in the full form that lists have: with an id, and content in parts."""
    value = _decoded(item.data)
    out: JSONObject = {"id": item.id, "type": "message", **value}
    if not is_id(value.get("id")):
        out["id"] = item.id
    if out["type"] == "message":
        if isinstance(out.get("content"), str):
            out["content"] = [_text_part(out.get("role"), out["content"])]
        out.setdefault("status", "completed")
    return out


def build_compaction(whole: JSONObject, items: list[bytes]) -> JSONObject:
    """ "A list of all user messages, followed by a single compaction item": an answer that sums up these items."""
    summary = [item for item in whole["output"] if item.get("type") == "compaction"]
    messages = [item_for_list(entry.item) for entry in build_conversation((), items, {})]
    return {
        "id": whole["id"],
        "object": "response.compaction",
        "created_at": whole["created_at"],
        "output": [item for item in messages if item.get("role") == "user"] + summary,
        "usage": whole["usage"],
    }


def _text_part(role: JSON, text: str) -> JSONObject:
    if role == "assistant":
        return {"type": "output_text", "text": text, "annotations": []}
    return {"type": "input_text", "text": text}
