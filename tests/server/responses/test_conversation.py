"""Requests that refer to stored responses and items, and their expansion: bytes in, bytes out."""

import json
import re
from pathlib import Path
from typing import Any

import rows

from dragoman import RemoteProtocolError, peek
from dragoman_server.responses import conversation
from dragoman_server.responses.stores.base import StoredItem, StoredResponse

USER = b'{"role":"user","content":"x"}'


ITEMS = Path(__file__).with_name("items.txt")


def output_of(lines: list[str]) -> list[str]:
    """What comes out of a request or of items: a line for each."""
    what, *items = [line.encode() for line in lines]
    match what:
        case b"state":
            return [str(conversation.read_state_params(peek(items[0])))]
        case b"input":
            return [item.decode() for item in conversation.input_items(peek(items[0]))] or ["none"]
        case b"listed":
            return [json.dumps(conversation.item_for_list(StoredItem("made", items[0])))]
        case b"relayed":
            stored = (StoredItem("x", items[0]),)
            made = conversation.history(StoredResponse("resp_1", "", 0, b"{}", (), stored))
            return [item.decode() for item in conversation.write_items(made, relayed=True)] or ["nothing"]
    try:
        return [str(conversation.find_references(items))]
    except RemoteProtocolError as error:
        return [f"error: {error}"]


def test_requests_and_items() -> None:
    rows.check(ITEMS, output_of)


def relayed_items() -> list[bytes]:
    items = re.findall(rb"^relayed\n(.*)", ITEMS.read_bytes(), re.MULTILINE)
    assert items
    return items


def test_every_other_value_of_a_request_keeps_its_bytes() -> None:
    body = b'{"a": 1.50, "input": "x", "model":"m", "previous_response_id":"resp_1", "z":{"k" : "\\u00e9"}}'
    expected = b'{"a":1.50,"z":{"k" : "\\u00e9"},"input":[' + USER + b"," + USER + b"]}"
    assert conversation.replace_input(peek(body), [USER, USER], without={"model"}) == expected
    assert conversation.replace_input(peek(b'{"input":[]}'), []) == b'{"input":[]}'


IDS = {
    "resp_1": True,
    "a-B_9": True,
    "": False,
    "a b": False,
    "é": False,
    "a\n": False,
    "x" * 201: False,
    None: False,
}


def test_valid_ids() -> None:
    for id in IDS:
        assert conversation.is_id(id) is IDS[id], id  # type: ignore[index]


def ids(items: list[bytes], before: tuple[StoredItem, ...] = ()) -> list[str]:
    return [entry.id for entry in conversation.build_conversation(before, items, {})]


def test_items_without_an_id_get_one() -> None:
    kinds = [
        b'{"role":"user"}',
        b'{"type":"message"}',
        b'{"type":"function_call"}',
        b'{"type":"web_search_call"}',
        b'{"type":5}',
        b'{"type":"message","id":"not an id"}',
        b'{"type":"message","id":"msg_mine"}',
    ]
    found = ids(kinds)
    assert [id.split("_")[0] for id in found] == ["msg", "msg", "fc", "item", "item", "msg", "msg"]
    assert found[-1] == "msg_mine"
    assert len(set(found)) == len(found)
    assert all(conversation.is_id(id) for id in found)


def test_generated_ids_are_stable() -> None:
    """A conversation that a client sends whole every time is stored once."""
    first = ids([USER, USER])
    assert first[0] != first[1]
    assert ids([USER, USER, USER])[:2] == first
    assert ids([USER], tuple(conversation.build_conversation((), [USER], {}))) == first


def test_references_are_put_in_once() -> None:
    known, other = StoredItem("a", b'{"a":1}'), StoredItem("b", b'{"b":1}')
    entries = conversation.build_conversation((known,), [USER, b"1", b"2", b"3"], {1: known, 2: other})
    assert [entry.data for entry in entries] == [b'{"a":1}', USER, b'{"b":1}', b"3"]


# A stored item, as it is sent to a Responses server that does not have it.
def test_b9_stored_items_for_a_server_that_has_not_stored_them() -> None:
    """The case: "Item with id 'rs_...' not found. Items are not persisted when `store` is set to false." """
    for item in relayed_items():
        stored = StoredItem("x", item)
        made = conversation.history(StoredResponse("resp_1", "", 0, b"{}", (), (stored,)))
        (referred,) = conversation.build_conversation((), [b"{}"], {0: stored})
        assert made == (referred,)
        # What the model made is no different in the turns after the next.
        assert conversation.history(StoredResponse("resp_2", "", 0, b"{}", made, ())) == made
        assert len(conversation.write_items(made, relayed=False)) == 1, item
        new = conversation.build_conversation((), [stored.data], {})
        if b'"id"' in item:  # what the client sent is the client's, in all later turns
            again = conversation.history(StoredResponse("resp_1", "", 0, b"{}", tuple(new), ()))
            assert conversation.write_items(again, relayed=True) == [stored.data], item


def test_a_compaction_item_replaces_all_before_it() -> None:
    old, message = StoredItem("a", USER), StoredItem("b", b'{"type":"message"}')
    first, second = StoredItem("c", b'{"type":"compaction"}'), StoredItem("d", b'{"type":"compaction"}')

    def history(*output: StoredItem) -> tuple[StoredItem, ...]:
        return conversation.history(StoredResponse("resp_1", "", 0, b"{}", (old,), output))

    assert history() == (old,)
    assert history(message) == (old, message)
    assert history(first) == (first,)
    assert history(StoredItem("c", b'{"id":"c","type":"compaction"}')) == (first,)
    assert history(message, first, message) == (first, message)
    assert history(first, message, second) == (second,)


BODY: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "model": "m",
    "output": [],
}
# Responses of odd servers, and True if they are stored.
STORED_CASES: dict[str, tuple[dict[str, Any], bool]] = {
    "completed": (BODY, True),
    "incomplete": ({**BODY, "status": "incomplete"}, True),
    "without a status": ({name: value for name, value in BODY.items() if name != "status"}, True),
    "failed": ({**BODY, "status": "failed"}, True),
    "cancelled": ({**BODY, "status": "cancelled"}, True),
    "queued": ({**BODY, "status": "queued"}, False),
    "in progress": ({**BODY, "status": "in_progress"}, False),
    "an odd status": ({**BODY, "status": ["completed"]}, False),
    "without an id": ({**BODY, "id": None}, False),
    "an odd id": ({**BODY, "id": "resp/../1"}, False),
    "no output": ({**BODY, "output": None}, False),
    "an odd item": ({**BODY, "output": ["text"]}, True),
}


def test_the_responses_that_are_stored() -> None:
    for name, (body, stored) in STORED_CASES.items():
        response = conversation.to_stored_response(
            body, (StoredItem("a", USER),), "resp_0", owner="me", now=5
        )
        assert (response is not None) is stored, name
        if response is not None:
            expected = ("me", 5, (StoredItem("a", USER),))
            assert (response.owner, response.created, response.input) == expected, name
            whole = json.loads(
                json.dumps(conversation.response_body(response), default=lambda raw: json.loads(bytes(raw)))
            )
            assert whole == {**body, "store": True, "previous_response_id": "resp_0"}, name
