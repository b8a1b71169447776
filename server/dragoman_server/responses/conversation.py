"""Rewrite requests that refer to stored conversations. Pure, from bytes to bytes.

A Responses request that names a stored response or a stored item becomes one with the whole conversation, so that
upstreams of every protocol get it. Values are passed on as their original bytes. The stores are not used here.
"""

import hashlib
import math
import re
from collections.abc import Container, Iterable, Mapping, Sequence

import msgspec

from dragoman import RemoteProtocolError, RequestHead, RequestRefused, Signer
from dragoman.jsontext import JSON, JSONObject, decode, encode, encode_long, kind_of, search
from dragoman_server.responses.stores.base import StoredItem, StoredResponse

# Ids have letters, digits, underscores and dashes. OpenAI's have some 60 characters.
_ID = r"[A-Za-z0-9_-]{1,200}\Z"

# The prefixes of ids that OpenAI's server gives to items without one.
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

# Finds requests that may refer to items without decoding them. An object with only an id is a reference as well.
_NULL_TYPE = rb'"type"\s*+:\s*+null\s*+'
_REFERENCE = rb'"item_reference"|\{\s*+(?:%b,\s*+)?+"id"\s*+:\s*+"[^"]*+"\s*+(?:,\s*+%b)?+\}' % (
    _NULL_TYPE,
    _NULL_TYPE,
)

# The statuses from which a conversation can continue, and all statuses of responses that have ended. Some servers send
# none.
_CONTINUABLE = ("completed", "incomplete", None)
_ENDED = (*_CONTINUABLE, "failed", "cancelled")


def is_id(value: object) -> bool:
    """True if a value can be the id of a stored response or item."""
    return isinstance(value, str) and re.match(_ID, value) is not None


class StateParams(msgspec.Struct, frozen=True):
    """The parameters of a request about stored state.

    Attributes:
        previous: The id of the response that it continues.
        store: The response is to be stored, which is the default.
        may_refer: Items of the input may refer to stored ones.
    """

    previous: str | None
    store: bool
    may_refer: bool


def read_state_params(request_head: RequestHead) -> StateParams:
    """Read the parameters. Raises RemoteProtocolError for a `previous_response_id` that is not a string."""
    previous = _field(request_head, "previous_response_id")
    if previous is not None and type(previous) is not str:
        raise RemoteProtocolError(
            f"previous_response_id must be a string, not {kind_of(previous)}",
            path="/previous_response_id",
            code="invalid_type",
        )
    received = bytes(request_head.fields.get("input", b""))
    may_refer = any(search(re.compile(_REFERENCE), received))
    return StateParams(previous or None, _field(request_head, "store") is not False, may_refer)


def read_background(request_head: RequestHead) -> JSONObject | None:
    """Return the `background_options` of a request for a response in the background, None for any other.

    Raises RemoteProtocolError for wrong values, and RequestRefused for what cannot be combined: "Background sampling
    requires store=true; stateless requests are rejected" -- OpenAI's guide "Background mode", limits
    """
    background, options = _field(request_head, "background"), _field(request_head, "background_options")
    if background is None or background is False:
        return None
    options = {} if options is None else options
    for name, value, kind in (("background", background, bool), ("background_options", options, dict)):
        if type(value) is not kind:
            expected = "a boolean" if kind is bool else "an object"
            raise RemoteProtocolError(
                f"{name} must be {expected}, not {kind_of(value)}", path=f"/{name}", code="invalid_type"
            )
    if _field(request_head, "store") is False:
        raise RequestRefused("background needs store to be true: leave store out", path="/background")
    assert type(options) is dict
    if request_head.stream and options.get("completion_window", _SOONEST) != _SOONEST:
        # openai 3.54.0, types/responses/response_create_params.py, BackgroundOptions
        raise RequestRefused(
            "the completion windows 2h and 8h need stream to be false",
            path="/background_options/completion_window",
        )
    return options


_SOONEST = "soonest"


def have_effect(background_options: JSONObject) -> bool:
    """True if options would make a difference, where responses are not made as soon as possible."""
    return any(value not in (None, _SOONEST) for value in background_options.values())


def _field(request_head: RequestHead, name: str) -> JSON:
    raw = request_head.fields.get(name)
    return None if raw is None else decode(bytes(raw))


def input_items(request_head: RequestHead) -> list[bytes]:
    """Return the items of `input`, each as its bytes. Plain text becomes a user message.

    Raises RemoteProtocolError for an item that is not an object.
    """
    raw = bytes(request_head.fields.get("input", b"null")).strip()
    if raw == b"null":
        return []
    if raw.startswith(b'"'):
        return [b'{"type":"message","role":"user","content":%b}' % raw]
    if not raw.startswith(b"["):
        raise RemoteProtocolError("input must be a string or an array", path="/input", code="invalid_type")
    items = _elements(raw)
    for index, item in enumerate(items):
        if not item.startswith(b"{"):
            kind = kind_of(decode(item))
            raise RemoteProtocolError(
                f"input[{index}] must be an object, not {kind}", path=f"/input/{index}", code="invalid_type"
            )
    return items


def _elements(raw: bytes) -> list[bytes]:
    """Return the elements of an array, as their bytes."""
    try:
        return [bytes(element).strip() for element in msgspec.json.decode(raw, type=list[msgspec.Raw])]
    except (msgspec.DecodeError, UnicodeDecodeError):
        # msgspec refuses lone surrogates. Another value than an array has no elements.
        value = decode(raw)
        return [encode(element) for element in value] if type(value) is list else []


def _decoded(item: bytes) -> JSONObject:
    value = decode(item)
    return value if type(value) is dict else {}


def find_references(items: Iterable[bytes]) -> dict[int, str]:
    """Return the ids of stored items that items refer to, by the place of these.

    Raises RemoteProtocolError for an item without an id.
    """
    references = {}
    for index, raw in enumerate(items):
        item = decode(raw)
        if _is_reference(item):
            id = item.get("id")
            if type(id) is not str or not id:
                path = f"/input/{index}/id"
                raise RemoteProtocolError(
                    f"input[{index}].id is required", path=path, code="missing_required_parameter"
                )
            references[index] = id
    return references


def _is_reference(item: JSONObject) -> bool:
    kind = item.get("type")
    return kind == "item_reference" or (kind is None and item.keys() - {"type"} == {"id"})


def printable_id(id: str) -> str:
    """Return an id from outside so that it can be in a message."""
    return id[:100].encode("ascii", "replace").decode("ascii")


def item_not_found(index: int, id: str) -> RequestRefused:
    """Return the error for an unknown item, in the words of OpenAI's server, because clients match them."""
    return RequestRefused(
        f"Item with id '{printable_id(id)}' not found. Items are not persisted when `store` is set to false. "
        "Try again with `store` set to true, or remove this item from your input.",
        status=404,
        path=f"/input/{index}/id",
        code="item_not_found",
    )


def previous_not_found(id: str) -> RequestRefused:
    """Return the error for an unknown response, in the words of OpenAI's server."""
    return RequestRefused(
        f"Previous response with id '{printable_id(id)}' not found.",
        path="/previous_response_id",
        code="previous_response_not_found",
    )


def history(previous: StoredResponse) -> tuple[StoredItem, ...]:
    """Return the items of the conversation up to the end of `previous`.

    A compaction item replaces all items before it. Raises RequestRefused for a response that failed or was cancelled,
    because its end is unknown.
    """
    status = _decoded(previous.body).get("status")
    if status not in _CONTINUABLE:
        raise RequestRefused(
            f"Previous response with id '{previous.id}' cannot be continued: its status is {status}. "
            "Continue from the one before it.",
            path="/previous_response_id",
            code="previous_response_not_found",
        )
    for index, item in reversed(list(enumerate(previous.output))):
        if _decoded(item.data).get("type") == "compaction":
            return tuple([_without_id(item) for item in previous.output[index:]])
    return (*previous.input, *[_without_id(item) for item in previous.output])


def check_outputs(before: Iterable[StoredItem], items: Sequence[bytes]) -> None:
    """Raise RequestRefused for the result of a call that neither the conversation nor the new items have.

    In the words of OpenAI's server.
    """
    outputs: list[tuple[int, str]] = []
    calls: set[str] = set()
    for index, raw in enumerate(items):
        if b'"call_id"' in raw:
            item = _decoded(raw)
            call_id, kind = item.get("call_id"), item.get("type")
            if type(call_id) is str and type(kind) is str:
                if kind.endswith("_output"):
                    outputs.append((index, call_id))
                else:
                    calls.add(call_id)
    if all(call_id in calls for _, call_id in outputs):
        return
    calls.update([str(_decoded(item.data).get("call_id")) for item in before if b'"call_id"' in item.data])
    for index, call_id in outputs:
        if call_id not in calls:
            raise RequestRefused(
                f"No tool call found for function call output with call_id {printable_id(call_id)}.",
                path=f"/input/{index}/call_id",
            )


def build_conversation(
    before: Sequence[StoredItem],
    items: Sequence[bytes],
    referred: Mapping[int, StoredItem],
    max_bytes: float = math.inf,
) -> list[StoredItem]:
    """Return the whole conversation: the earlier items, then the new ones.

    referred: by their places, the stored items that new ones refer to. One that the conversation already has is left
    out, because OpenAI's server accepts no item twice: "Duplicate item found with id".

    Raises RequestRefused (413) at the first item beyond `max_bytes`.
    """
    known = {item.id for item in before}
    out = list(before)
    size = sum([len(item.data) for item in before])
    if size > max_bytes:
        raise _too_large("/previous_response_id", max_bytes)
    for index, raw in enumerate(items):
        item = referred.get(index)
        if item is None:
            item = _with_id(raw, len(out))
        elif item.id in known:
            continue
        else:
            item = _without_id(item)
        size += len(item.data)
        if size > max_bytes:
            raise _too_large(f"/input/{index}", max_bytes)
        known.add(item.id)
        out.append(item)
    return out


def _too_large(path: str, max_bytes: float) -> RequestRefused:
    return RequestRefused(
        f"the request has more than {max_bytes:.0f} bytes with the stored items that it refers to",
        status=413,
        path=path,
    )


def write_items(items: Iterable[StoredItem], relayed: bool) -> list[bytes]:
    """Return the items of a conversation for a request. relayed: the request goes to a Responses server."""
    written = [_for_relay(item.data) if relayed else item.data for item in items]
    return [data for data in written if data is not None]


def _for_relay(data: bytes) -> bytes | None:
    """Return an item for a Responses server, None if it is of no use there.

    That is reasoning of the model, see _without_id(), which has no content, or content that only this gateway can
    unwrap. What the client sent is the client's.
    """
    item = _decoded(data) if b'"reasoning"' in data else {}
    if item.get("type") != "reasoning" or "id" in item:
        return data
    signature = item.get("encrypted_content")
    if type(signature) is not str or not Signer.is_wrapped(signature):
        return data if signature or item.get("content") else None
    return encode({**item, "encrypted_content": None}) if item.get("content") else None


def _with_id(raw: bytes, index: int) -> StoredItem:
    """Return an item with an id. One without gets a hash of its content and index, so that a conversation that is sent
    again has the same items and is stored once.
    """
    item = _decoded(raw)
    if is_id(item.get("id")):
        return StoredItem(item["id"], raw)
    kind = item.get("type") or "message"
    prefix = _PREFIXES.get(kind, _OTHER_PREFIX) if type(kind) is str else _OTHER_PREFIX
    digest = hashlib.blake2b(b"%d\n%b" % (index, raw), digest_size=16).hexdigest()
    return StoredItem(f"{prefix}_{digest}", raw)


def _without_id(stored: StoredItem) -> StoredItem:
    """Return an item as it is inserted into requests, and stays from then on, so that prompt caches match.

    The server that gets it has not stored it, and OpenAI's server looks up its id: "Item with id 'rs_...' not found.
    Items are not persisted when `store` is set to false".
    """
    item = _decoded(stored.data)
    if "id" not in item or item.get("type") in _NEED_IDS:
        return stored
    del item["id"]
    return StoredItem(stored.id, encode(item))


# Items whose id is used by others.
_NEED_IDS = frozenset(("mcp_approval_request", "mcp_list_tools"))


def replace_input(
    request_head: RequestHead, items: Iterable[bytes], *, without: Container[str] = ()
) -> bytes:
    """Replace the input of a request and drop its reference to an earlier response. Every other value stays.

    without: the names of more members to drop.
    """
    members = [
        b"%b:%b" % (encode(name), bytes(raw))
        for name, raw in request_head.fields.items()
        if name not in ("previous_response_id", "input") and name not in without
    ]
    members.append(b'"input":[%b]' % b",".join(items))
    return b"{%b}" % b",".join(members)


def to_stored_response(
    body: JSONObject, conversation: tuple[StoredItem, ...], previous: str | None, *, owner: str, now: int
) -> StoredResponse | None:
    """Return a response for the store, None if it has not ended or has no id."""
    id, output = body.get("id"), body.get("output")
    if not is_id(id) or not is_final(body) or type(output) is not list:
        return None
    start = len(conversation)
    items = [_with_id(encode_long(item), start + index) for index, item in enumerate(output)]
    stored = {**body, "output": [], "store": True, "previous_response_id": previous}
    return StoredResponse(str(id), owner, now, encode(stored), conversation, tuple(items))


def is_final(body: JSONObject) -> bool:
    """True if a response has ended and has an output."""
    return body.get("status") in _ENDED and type(body.get("output")) is list


def opening_body(body: JSONObject, members: JSONObject) -> JSONObject:
    """Return a response as it is when it begins. members: see StoredEventWriter."""
    unknown: JSONObject = {"status": "in_progress", "completed_at": None, "output": [], "usage": None}
    return {**body, **unknown, "error": None, "incomplete_details": None, **members}


def failed_body(body: JSONObject, code: str, message: str) -> JSONObject:
    """Return a response that has failed before its upstream has ended it."""
    return {**body, "status": "failed", "error": {"code": code, "message": message}}


def mark_cancelled(body: JSONObject) -> JSONObject:
    """Return a response whose client left early.

    "To cancel a synchronous response, terminate the connection" -- OpenAI's guide "Background mode", limits
    """
    return {**body, "status": "cancelled", "error": None, "incomplete_details": None}


def is_continuable(body: JSONObject) -> bool:
    """True if a later request can continue a response that has ended."""
    return body.get("status") in _CONTINUABLE


def response_body(response: StoredResponse) -> JSONObject:
    """Return the Response object as the client got it."""
    body: JSONObject = decode(response.body)
    body["output"] = [msgspec.Raw(item.data) for item in response.output]
    return body


def item_for_list(item: StoredItem) -> JSONObject:
    """Return an item of the input in the full form of lists: with an id, and content in parts."""
    value = _decoded(item.data)
    out: JSONObject = {"id": item.id, "type": "message", **value}
    if not is_id(value.get("id")):
        out["id"] = item.id
    if out["type"] == "message":
        if isinstance(out.get("content"), str):
            is_output = out.get("role") == "assistant"
            part = {"type": "output_text" if is_output else "input_text", "text": out["content"]}
            out["content"] = [part | ({"annotations": []} if is_output else {})]
        out.setdefault("status", "completed")
    return out


def build_compaction(response: JSONObject, items: list[bytes]) -> JSONObject:
    """Return the compaction of these items.

    "This is a list of all user messages, followed by a single compaction item" -- `output` in openai 3.54.0,
    types/responses/compacted_response.py

    response: the one with the compaction item.
    """
    summary = [item for item in response["output"] if item.get("type") == "compaction"]
    messages = [item_for_list(item) for item in build_conversation((), items, {})]
    return {
        "id": response["id"],
        "object": "response.compaction",
        "created_at": response["created_at"],
        "output": [item for item in messages if item.get("role") == "user"] + summary,
        "usage": response["usage"],
    }
