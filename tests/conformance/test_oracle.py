"""The oracle itself: good streams pass. What it objects to in broken ones is in the text files in conformance/oracle,
as far as the vendors' types catch it; tests/sansio/lint has rows about order and framing. See core/rows.py.
"""

import json

import pytest
from oracle import CHAT, MESSAGES, PROTOCOL_NAMES, check_models, check_stream, check_whole
from oracle import samples as s
from oracle.changes import GOOD, VARIANTS


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_good_streams_pass(protocol: str) -> None:
    for name, change in VARIANTS[protocol]:
        payloads = GOOD[protocol]()
        change(payloads)
        assert check_stream(protocol, s.render(protocol, payloads), include_usage=True) == [], name


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_good_whole_responses_pass(protocol: str) -> None:
    assert check_whole(protocol, json.dumps(s.WHOLE[protocol]).encode()) == []


MODEL = {"id": "m", "object": "model", "created": 1, "owned_by": "o"}
MODEL_INFO = {
    "id": "m",
    "type": "model",
    "display_name": "M",
    "created_at": "2026-01-01T00:00:00Z",
    "lifecycle": "active",
}


def test_model_lists() -> None:
    assert check_models(CHAT, json.dumps({"object": "list", "data": [MODEL]}).encode()) == []
    page = {"data": [MODEL_INFO], "first_id": "m", "last_id": "m", "has_more": False}
    assert check_models(MESSAGES, json.dumps(page).encode()) == []
    assert check_models(CHAT, b'{"data": []}') == ["object: absent", "object: must be 'list'"]
    assert check_models(MESSAGES, json.dumps({**page, "data": [MODEL]}).encode()) != []
