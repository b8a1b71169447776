"""The law of prompt caches: if a client's request begins with its last one, so does what the upstream gets.

All messages or items but the last are the same bytes, and so is every other member, in the same order. Cache marks
move by design, and say nothing to the model: without them the bytes are the same.
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws.conversations import MODEL, SCRIPTS, SIGNER, Script, requests
from oracle import CHAT, MESSAGES, PROTOCOL_NAMES, RESPONSES

from dragoman import RequestRefused, RequestTranslator
from dragoman.codec import Capabilities

# Each is translated to three upstreams, relayed to its own, and rewritten.
CONVERSATIONS = int(os.environ.get("CONVERSATIONS", "60"))

CONVERSATION = {CHAT: "messages", MESSAGES: "messages", RESPONSES: "input"}
MARKS = {"cache_control", "prompt_cache_breakpoint"}


def one_of(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


CAPABILITIES = st.builds(
    Capabilities,
    custom_tools=one_of(None, True, False),
    text_content=one_of("string", "parts"),
    turn_order=one_of("any", "any", "no_user_after_tool", "alternate"),
    developer_role=st.booleans(),
    mid_system=st.booleans(),
    reasoning_field=one_of(None, "reasoning_content", "reasoning", "reasoning_details"),
    cache_marks=one_of("none", "breakpoint", "cache_control"),
    reasoning_back=one_of("never", "tool_loop", "always"),
    thought_signatures=st.booleans(),
    tool_images=st.booleans(),
    call_ids=one_of("any", "alnum9"),
    prefill=st.booleans(),
    thinking=one_of("adaptive", "none"),
    refuses=st.frozensets(
        one_of("image", "file", "cache_control", "message_name", "tool_strict"), max_size=3
    ),
)


def without_marks(value: Any) -> Any:
    """Return a value without its cache marks. A text that was a part because of its mark is a string again."""
    if type(value) is list:
        values = [without_marks(each) for each in value]
        only = values[0] if len(values) == 1 else None
        if type(only) is dict and only.keys() == {"type", "text"}:
            return only["text"]
        return values
    if type(value) is not dict:
        return value
    return {name: without_marks(each) for name, each in value.items() if name not in MARKS}


def members(body: bytes, protocol: str, marks: bool) -> tuple[dict[str, bytes], list[bytes]]:
    """Return the members of a body in their order, and the messages or items of its conversation.

    marks: the client marks messages, so they are spelled without marks.
    """

    def spelled(raw: msgspec.Raw) -> bytes:
        return msgspec.json.encode(without_marks(msgspec.json.decode(raw))) if marks else bytes(raw)

    decoded = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    conversation = msgspec.json.decode(decoded.pop(CONVERSATION[protocol]), type=list[msgspec.Raw])
    return {name: spelled(each) for name, each in decoded.items()}, [spelled(each) for each in conversation]


def check(bodies: list[bytes], protocol: str, marks: bool) -> None:
    for before, after in pairwise(bodies):
        head, sent = members(before, protocol, marks)
        new_head, new = members(after, protocol, marks)
        assert list(new_head.items()) == list(head.items())
        assert new[: len(sent) - 1] == sent[:-1]


@pytest.mark.promise("R14")
@pytest.mark.parametrize("relay", ["exact", "rewrite"])
@pytest.mark.parametrize("upstream", PROTOCOL_NAMES)
@pytest.mark.parametrize("client", PROTOCOL_NAMES)
@settings(max_examples=CONVERSATIONS, deadline=None, derandomize=True, database=None)
@given(SCRIPTS, CAPABILITIES, st.booleans())
def test_what_an_upstream_gets_begins_with_what_it_got(
    client: str, upstream: str, relay: str, script: Script, capabilities: Capabilities, signed: bool
) -> None:
    if relay == "rewrite" and client != upstream:
        return
    translator = RequestTranslator(
        client=client,
        upstream=upstream,
        capabilities=msgspec.structs.replace(capabilities, relay=relay),
        signer=SIGNER,
    )
    sent = []
    for body in requests(script, client):
        try:
            sent.append(translator.translate(body, model=MODEL, signed_reasoning=signed).body)
        except RequestRefused:
            return
    check(sent, upstream, script.marks and client == MESSAGES)
