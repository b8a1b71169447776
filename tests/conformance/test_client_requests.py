"""Requests of Claude Code, Codex, opencode, aider, pi and qwen, for an upstream of every protocol.

What becomes of each of them, byte by byte and entry by entry, is in the golden file, with the capabilities of the
vendors' own hosts, too. Here is what must hold whatever it becomes: no value is lost silently, and the upstream's
rules are kept.
"""

import re
from functools import partial
from itertools import pairwise
from typing import Any

import golden
import msgspec
import pytest
from agents.requests import CASES, MODELS, TARGETS, Case, vendor_target
from failures.rules import refused
from failures.translate import UpstreamRequest, translate_request
from laws.losses import MEANINGLESS_IN_REQUESTS, lost_in
from oracle import CHAT, GEMINI, PROTOCOL_NAMES

from dragoman import UPSTREAMS

Json = dict[str, Any]


def others(case: Case) -> list[str]:
    return [upstream for upstream in PROTOCOL_NAMES if upstream != case.protocol]


def translated_case(case: Case, upstream: str) -> UpstreamRequest:
    return translate_request(
        case.protocol, upstream, case.body, capabilities=TARGETS[upstream], model=MODELS[upstream]
    )


def sent_and_lost(client: str, upstream: str, body: Json) -> tuple[str, tuple[str, ...]]:
    sent = translate_request(client, upstream, body, capabilities=TARGETS[upstream])
    return sent.translated.body.decode(), tuple(sent.losses)


# A search has found the tool, so it is there without this.
FOUND_TOOL = re.compile(r"/(tools/9|input/16/tools/0/tools/0)/defer_loading .*")
# What is in the path of a request to Gemini.
IN_PATH = re.compile(r"/(model|stream) .*")


@pytest.mark.promise("R13")
def test_no_value_is_lost_silently(subtests: pytest.Subtests) -> None:
    for case in CASES:
        for upstream in others(case):
            with subtests.test(case=case.name, protocol=case.protocol, upstream=upstream):
                run = partial(sent_and_lost, case.protocol, upstream)
                lost = lost_in(case.body, case.protocol, MEANINGLESS_IN_REQUESTS, run, set())
                lost = [each for each in lost if upstream != GEMINI or not IN_PATH.fullmatch(each)]
                assert [each for each in lost if not FOUND_TOOL.fullmatch(each)] == []


def test_the_golden_file_has_the_capabilities_of_the_vendors_hosts() -> None:
    for name, protocol in golden.VENDORS.items():
        known = msgspec.convert(golden.CAPABILITIES[name], UPSTREAMS[protocol].capabilities)
        assert known == TARGETS[protocol], name


def test_the_vendors_rules_are_kept(subtests: pytest.Subtests) -> None:
    for case in CASES:
        with subtests.test(case=case.name, protocol=case.protocol):
            for upstream in others(case):
                assert refused(upstream, translated_case(case, upstream).body) == [], upstream


# Of Chat Completions, as far as these requests could have them.
_TAKEN = {"deepseek": {"thinking"}, "mistral": {"reasoning_effort"}}
_TAKEN_BY_ALL = {
    "max_tokens",
    "messages",
    "model",
    "reasoning_effort",
    "response_format",
    "stop",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_p",
}


@pytest.mark.parametrize(
    ("host", "model"), [("deepseek", "deepseek-v4-pro"), ("mistral", "devstral-medium-latest")]
)
def test_strict_hosts_accept_the_bodies(subtests: pytest.Subtests, host: str, model: str) -> None:
    for case in (case for case in CASES if case.protocol != CHAT):
        with subtests.test(case=case.name, protocol=case.protocol):
            sent = translate_request(
                case.protocol, CHAT, case.body, capabilities=vendor_target(host, CHAT, model), model=model
            ).body
            assert sent.keys() <= _TAKEN_BY_ALL | _TAKEN[host]
            roles = [message["role"] for message in sent["messages"]]
            assert set(roles) == {"system", "user", "assistant", "tool"} or case.client == "aider"
            assert ("tool", "user") not in pairwise(roles) or host != "mistral"
            assert ("user", "user") not in pairwise(roles)
            for message in sent["messages"]:
                # "invalid type: sequence, expected a string";
                # "body.messages.31.assistant.reasoning_content: extra_forbidden"
                images = isinstance(message["content"], list) and message["content"][0]["type"] == "image_url"
                assert message["content"] is None or isinstance(message["content"], str) or images
                assert host != "mistral" or message.keys() <= {
                    "role",
                    "content",
                    "tool_calls",
                    "tool_call_id",
                }
