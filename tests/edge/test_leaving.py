"""A client that leaves closes its upstream at once, wherever its request is and however it leaves."""

from collections.abc import Iterator

import pytest
from edge import BACKENDS, CHAT_PATH, MESSAGES_PATH, RESPONSES_PATH
from http_certificate import make_certificate
from leaving import World
from trials import trials

pytestmark = pytest.mark.process

MAX_S = 0.25
# Pairs: each phase with some way of leaving and some protocol of the client.
CASES = [
    ("connecting", "fin", CHAT_PATH),
    ("connecting", "reset", MESSAGES_PATH),
    ("in the TLS handshake", "rst", CHAT_PATH),
    ("in the TLS handshake", "close", CHAT_PATH),
    ("before the first byte", "rst", RESPONSES_PATH),
    ("before the first byte", "close", CHAT_PATH),
    ("mid-stream", "fin", MESSAGES_PATH),
    ("mid-stream", "rst", CHAT_PATH),
    ("mid-stream", "reset", RESPONSES_PATH),
    ("mid-stream", "goaway", MESSAGES_PATH),
    ("in a whole response", "fin", RESPONSES_PATH),
    ("in a whole response", "reset", CHAT_PATH),
    ("waiting for an account", "rst", CHAT_PATH),
    ("in a fallback", "fin", CHAT_PATH),
    ("in a hedged attempt", "close", MESSAGES_PATH),
    ("with an empty line behind", "fin", CHAT_PATH),
    ("with a request behind", "rst", MESSAGES_PATH),
    ("not reading", "rst", CHAT_PATH),
    ("not reading", "goaway", RESPONSES_PATH),
    ("not reading", "reset", MESSAGES_PATH),
    ("sending the body", "fin", CHAT_PATH),
    ("sending the body", "close", RESPONSES_PATH),
]


@pytest.fixture(scope="module", params=BACKENDS)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("leaving")
    with World(directory, request.param, make_certificate(directory)) as world:
        yield world


@pytest.mark.promise("R1")
@pytest.mark.parametrize(("phase", "way", "path"), CASES)
def test_the_upstream_is_closed_at_once(world: World, phase: str, way: str, path: str) -> None:
    for trial in trials():
        with trial:
            assert world.leaves(phase, way, path) < MAX_S
