"""The law of prompt caches: if a client's request begins with its last one, so does what the upstream gets.

All messages or items but the last are the same bytes, and so is every other member, in the same order. Cache marks
move by design, and say nothing to the model: without them the bytes are the same. And whatever the conversation is, it
keeps the rules of the upstream's vendor.
"""

import json
import os
from typing import Any

import pytest
from failures.rules import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from laws.conversations import MODEL, SCRIPTS, SIGNER, Script, check_prefixes, requests
from oracle import MESSAGES, PROTOCOL_NAMES

from dragoman import UPSTREAMS, RequestRefused, RequestTranslator
from dragoman.codec import Capabilities

# Of each pair of protocols.
CONVERSATIONS = int(os.environ.get("CONVERSATIONS", "30"))


def one_of(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "custom_tools": one_of(None, True, False),
    "text_content": one_of("string", "parts"),
    "turn_order": one_of("any", "any", "no_user_after_tool", "alternate"),
    "developer_role": st.booleans(),
    "mid_system": st.booleans(),
    "reasoning_field": one_of(None, "reasoning_content", "reasoning", "reasoning_details"),
    "cache_marks": one_of("none", "breakpoint", "cache_control"),
    "reasoning_back": one_of("never", "tool_loop", "always"),
    "thought_signatures": st.booleans(),
    "tool_images": st.booleans(),
    "call_ids": one_of("any", "alnum9"),
    "prefill": st.booleans(),
    "thinking": one_of("adaptive", "none"),
    "thinking_by": one_of("level", "budget", "none"),
    "function_ids": st.booleans(),
    "context_window": one_of(None, 3000, 9000),
    "relay": one_of("exact", "rewrite"),
    "refuses": st.frozensets(
        one_of("image", "file", "cache_control", "message_name", "tool_strict"), max_size=3
    ),
}


def capabilities_of(upstream: str) -> st.SearchStrategy[Capabilities]:
    made = UPSTREAMS[upstream].capabilities
    return st.builds(made, **{name: FIELDS[name] for name in made.__struct_fields__ if name in FIELDS})


@pytest.mark.promise("R14")
@pytest.mark.parametrize("upstream", PROTOCOL_NAMES)
@pytest.mark.parametrize("client", PROTOCOL_NAMES)
@settings(max_examples=CONVERSATIONS, deadline=None, derandomize=True, database=None)
@given(SCRIPTS, st.data(), st.booleans())
def test_g8_what_an_upstream_gets_begins_with_what_it_got(
    client: str, upstream: str, script: Script, data: st.DataObject, signed: bool
) -> None:
    capabilities = data.draw(capabilities_of(upstream))
    translator = RequestTranslator(client=client, upstream=upstream, capabilities=capabilities, signer=SIGNER)
    sent = []
    for body in requests(script, client):
        try:
            sent.append(translator.translate(body, model=MODEL, signed_reasoning=signed).body)
        except RequestRefused:
            return
    check_prefixes(sent, upstream, script.marks and client == MESSAGES)
    if client != upstream:
        assert [problem for body in sent for problem in refused(upstream, json.loads(body))] == []
