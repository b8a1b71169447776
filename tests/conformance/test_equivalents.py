"""The comparison of requests: equal documents have no difference, and others have one."""

import pytest
from equiv import EquivalentRequests, differences, translated
from oracle import CHAT, MESSAGES, RESPONSES

HI = {"role": "user", "content": "Hi"}
REQUEST = {"model": "m", "messages": [HI], "temperature": 0.5}
TWIN = {
    "model": "m",
    "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
    "temperature": 0.5,
    "store": False,
}


COMPARISONS: list[tuple[dict[str, object], set[tuple[str, str]]]] = [
    ({}, set()),
    ({"input": [HI], "top_p": None}, set()),
    ({"temperature": 0.25}, {("temperature", "other")}),
    ({"temperature": None}, {("temperature", "added")}),
    ({"top_p": 0.5}, {("top_p", "missing")}),
    ({"input": [{**HI, "content": "Ho"}]}, {("input[user].content[input_text].text", "other")}),
    ({"input": [{"role": "system", "content": "No."}, HI]}, {("input[system]", "missing")}),
    ({"reasoning": {"effort": "low", "summary": "auto"}}, {("reasoning", "missing")}),
]


def test_the_comparison(subtests: pytest.Subtests) -> None:
    for change, expected in COMPARISONS:
        with subtests.test(change=change):
            bodies = {CHAT: REQUEST, RESPONSES: {**TWIN, **change}}
            equivalents = EquivalentRequests("case", "request", bodies)
            found = {(each.place, each.side) for each in differences(equivalents) if each.target == RESPONSES}
            assert found == expected


def test_the_requested_model_is_sent() -> None:
    assert translated(CHAT, MESSAGES, REQUEST, "claude-opus-5")["model"] == "claude-opus-5"
