"""No request makes the core fail but with a RemoteProtocolError: each value of each fixture, in another type.

A client's request may be any JSON. The commonest error is to hash or to join a value that is taken for text. The
upstreams take turns, so that each of them gets some of the wrong values of every member.
"""

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest
from laws.fixtures import REQUESTS
from laws.runs import rewritten, translated
from oracle import PROTOCOL_NAMES

from dragoman import RemoteProtocolError, RequestRefused

# One of most types, and lists and objects with what a reader looks for first.
OTHERS: tuple[Any, ...] = ({}, None, 1, "", [{}], {"type": {}})
# Below a schema and the like nothing is read but by the checks of responses.
DEEPEST = 6


def confused(value: Any, depth: int = 0) -> Iterator[Any]:
    """The document with one value at a time replaced."""
    members = value.items() if type(value) is dict else enumerate(value) if type(value) is list else ()
    for key, member in members if depth < DEEPEST else ():
        for other in (*OTHERS, *confused(member, depth + 1)):
            copy = value.copy()
            copy[key] = other
            yield copy


def errors(translate: Any, body: Any) -> set[str]:
    found = set()
    for each in confused(body):
        try:
            translate(each)
        except (RemoteProtocolError, RequestRefused):
            pass
        except Exception as error:
            trace = error.__traceback__
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            found.add(f"{type(error).__name__} at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}")
    return found


@pytest.mark.promise("S7")
@pytest.mark.parametrize("client", REQUESTS)
def test_a_value_of_another_type_is_refused_or_read(client: str) -> None:
    body = max(REQUESTS[client].values(), key=lambda each: len(str(each)))
    upstreams = cycle((*PROTOCOL_NAMES, *PROTOCOL_NAMES[:1]))  # five, because a member has six other values
    assert errors(lambda each: translated(client, next(upstreams), each), body) == set()


@pytest.mark.promise("S7")
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_a_value_of_another_type_in_a_relay_that_is_rewritten(protocol: str) -> None:
    for name in ("full", *SMALL.get(protocol, ())):
        assert errors(lambda each: rewritten(protocol, each), REQUESTS[protocol][name]) == set()


# What only a small fixture reaches.
SMALL = {"openai_chat": ("tool-image",)}
