"""Requests that refer to stored responses and items, and their expansion: bytes in, bytes out."""

# ruff: noqa: E501 -- the tables are read by row

import json
from typing import Any

import pytest

from dragoman import RemoteProtocolError, Signer, peek
from dragoman.events import Signature
from dragoman_server.responses import conversation
from dragoman_server.responses.stores.base import StoredItem, StoredResponse

USER = b'{"role":"user","content":"x"}'


def requested(**body: Any) -> conversation.StateParams:
    return conversation.read_state_params(peek(json.dumps({"model": "m", **body}).encode()))


REQUESTS: dict[str, tuple[dict[str, Any], conversation.StateParams]] = {
    "nothing": ({}, conversation.StateParams(None, True, False)),
    "nulls": ({"previous_response_id": None, "store": None, "input": None}, conversation.StateParams(None, True, False)),
    "an empty id": ({"previous_response_id": ""}, conversation.StateParams(None, True, False)),
    "all": ({"previous_response_id": "resp_1", "store": False, "input": [{"type": "item_reference", "id": "x"}]}, conversation.StateParams("resp_1", False, True)),
    "a bare reference": ({"input": [{"id": "x"}]}, conversation.StateParams(None, True, True)),
    "of the type null": ({"input": [{"id": "x", "type": None}]}, conversation.StateParams(None, True, True)),
    "of the type null, first": ({"input": [{"type": None, "id": "x"}]}, conversation.StateParams(None, True, True)),
    "an item with an id": ({"input": [{"id": "x", "role": "user"}]}, conversation.StateParams(None, True, False)),
}  # fmt: skip


def test_the_state_that_a_request_requires() -> None:
    for name, (body, found) in REQUESTS.items():
        assert requested(**body) == found, name


INPUTS: dict[str, tuple[bytes, list[bytes]]] = {
    "none": (b'{"model":"m"}', []),
    "null": (b'{"model":"m","input": null }', []),
    "an empty array": (b'{"model":"m","input":[]}', []),
    "text": (
        b'{"model":"m","input": "h\\u00e9 \\"x\\"" }',
        [b'{"type":"message","role":"user","content":"h\\u00e9 \\"x\\""}'],
    ),
    "items keep their bytes": (
        b'{"model":"m","input":[ {"b" : 1.50,"a":1e3} , {"c":"\\u00e9"}\n]}',
        [b'{"b" : 1.50,"a":1e3}', b'{"c":"\\u00e9"}'],
    ),
    "a lone surrogate": (b'{"model":"m","input":[{"c":"\\ud83d"}]}', [b'{"c":"\\ud83d"}']),
}


def test_the_items_of_an_input() -> None:
    for name, (body, items) in INPUTS.items():
        assert conversation.input_items(peek(body)) == items, name


def test_every_other_value_of_a_request_keeps_its_bytes() -> None:
    body = b'{"a": 1.50, "input": "x", "model":"m", "previous_response_id":"resp_1", "z":{"k" : "\\u00e9"}}'
    expected = b'{"a":1.50,"z":{"k" : "\\u00e9"},"input":[' + USER + b"," + USER + b"]}"
    assert conversation.replace_input(peek(body), [USER, USER], without={"model"}) == expected
    assert conversation.replace_input(peek(b'{"input":[]}'), []) == b'{"input":[]}'


REFERENCES: dict[str, tuple[list[bytes], dict[int, str]]] = {
    "typed": ([USER, b'{"type":"item_reference","id":"a"}'], {1: "a"}),
    "bare": ([b'{"id":"a"}', USER], {0: "a"}),
    "of the type null": ([b'{"id":"a","type":null}'], {0: "a"}),
    "none": ([b'{"id":"a","role":"user"}', b'{"type":"compaction_trigger"}', b"{}", b'{"type":null}'], {}),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_references(name: str) -> None:
    items, found = REFERENCES[name]
    assert conversation.find_references(items) == found


@pytest.mark.parametrize("id", [b"", b',"id":""', b',"id":5', b',"id":null'])
def test_a_reference_needs_an_id(id: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match=r"input\[0\].id is required"):
        conversation.find_references([b'{"type":"item_reference"%b}' % id])


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
    before = tuple(conversation.build_conversation((), [USER], {}))
    assert ids([USER], before) == first


def test_references_are_put_in_once() -> None:
    known, other = StoredItem("a", b'{"a":1}'), StoredItem("b", b'{"b":1}')
    entries = conversation.build_conversation((known,), [USER, b"1", b"2", b"3"], {1: known, 2: other})
    assert [entry.data for entry in entries] == [b'{"a":1}', USER, b'{"b":1}', b"3"]


SIGNED = Signer().wrap(Signature("anthropic_messages", {"type": "thinking"}))
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}

# A stored item, as it is sent to a Responses server that does not have it.
RELAYED: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "a message": ({"type": "message", "id": "msg_1", "role": "user"}, {"type": "message", "role": "user"}),
    "without an id": ({"role": "user"}, {"role": "user"}),
    "empty reasoning": (REASONING, None),
    "reasoning signed there": (
        {**REASONING, "encrypted_content": "gAAAA"},
        {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"},
    ),
    "reasoning signed here": ({**REASONING, "encrypted_content": SIGNED}, None),
    "reasoning signed here, as text": (
        {**REASONING, "encrypted_content": SIGNED, "content": [{"type": "reasoning_text", "text": "hm"}]},
        {
            "type": "reasoning",
            "summary": [],
            "encrypted_content": None,
            "content": [{"type": "reasoning_text", "text": "hm"}],
        },
    ),
    "an approval that is given by its id": (
        {"type": "mcp_approval_request", "id": "mcpr_1"},
        {"type": "mcp_approval_request", "id": "mcpr_1"},
    ),
}


def test_b9_stored_items_for_a_server_that_has_not_stored_them() -> None:
    """The case: "Item with id 'rs_...' not found. Items are not persisted when `store` is set to false." """
    for name, (item, found) in RELAYED.items():
        stored = StoredItem("x", json.dumps(item).encode())
        made = conversation.history(StoredResponse("resp_1", "", 0, b"{}", (), (stored,)))
        (referred,) = conversation.build_conversation((), [b"{}"], {0: stored})
        assert made == (referred,)
        sent = [json.loads(each) for each in conversation.write_items(made, relayed=True)]
        assert sent == ([] if found is None else [found]), name
        # What the model made is no different in the turns after the next.
        assert conversation.history(StoredResponse("resp_2", "", 0, b"{}", made, ())) == made
        assert len(conversation.write_items(made, relayed=False)) == 1, name
        new = conversation.build_conversation((), [stored.data], {})
        if "id" in item:  # what the client sent is the client's, in all later turns
            again = conversation.history(StoredResponse("resp_1", "", 0, b"{}", tuple(new), ()))
            assert conversation.write_items(again, relayed=True) == [stored.data], name


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


LISTED: dict[str, tuple[bytes, dict[str, Any]]] = {
    "text of a user": (
        b'{"role":"user","content":"x"}',
        {
            "id": "made",
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "x"}],
            "status": "completed",
        },
    ),
    "text of an assistant": (
        b'{"role":"assistant","content":"x","status":"incomplete","id":null}',
        {
            "id": "made",
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "x", "annotations": []}],
            "status": "incomplete",
        },
    ),
    "another item": (
        b'{"type":"compaction","encrypted_content":"x"}',
        {"id": "made", "type": "compaction", "encrypted_content": "x"},
    ),
    "no object": (b'"text"', {"id": "made", "type": "message", "status": "completed"}),
}


@pytest.mark.parametrize("name", LISTED)
def test_items_in_lists_have_their_full_form(name: str) -> None:
    data, found = LISTED[name]
    assert conversation.item_for_list(StoredItem("made", data)) == found
