"""The defaults of targets and tool rules, and that a protocol needs every field but no more."""

import json
from typing import Any

import msgspec
import pytest
from core.toy_protocol import context_of, toy

from dragoman import UPSTREAMS, RequestRefused
from dragoman.codec import (
    JSON_ARRAY,
    NDJSON,
    SSE,
    Capabilities,
    Endpoint,
    Framing,
    ProtocolSpec,
    RateLimitHeaders,
    TokenCount,
    ToolLimits,
    find_endpoint,
)
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities


def test_defaults_suit_the_widest_range() -> None:
    capabilities = ChatCapabilities()
    found = (capabilities.custom_tools, capabilities.developer_role, capabilities.mid_system)
    assert found == (None, False, False)
    rule = ToolLimits()
    assert (rule.max_name, rule.max_call_id, rule.namespaces) == (64, 64, False)


def test_a_spec_is_checked_when_it_is_made() -> None:
    with pytest.raises(TypeError, match="name"):
        ProtocolSpec()  # type: ignore[call-arg]
    spec = toy()
    absent = {field for field in spec.__struct_fields__ if getattr(spec, field) is None}
    assert absent == {
        "auth_query",
        "billing_header",
        "cache_mark_form",
        "feedback_member",
        "max_stop_sequences",
        "model_list",
        "prefix_member",
        "rate_limit_headers",
        "request_type",
        "response_type",
        "stored_responses",
        "stream_path",
        "token_count",
        "version_header",
        "websocket",
    }


def test_most_bodies_require_no_headers() -> None:
    assert toy().request_headers({"model": "m"}) == ()


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        (RateLimitHeaders("x-limit-"), "x-limit-remaining-tokens"),
        (RateLimitHeaders("x-limit-", "{limit}-{what}"), "x-limit-tokens-remaining"),
    ],
)
def test_names_of_rate_limit_headers(headers: RateLimitHeaders, name: str) -> None:
    assert headers.header("tokens", "remaining") == name


def test_which_bodies_are_responses() -> None:
    spec = UPSTREAMS["gemini"]
    assert spec.is_response({"candidates": []})
    assert spec.is_response({"promptFeedback": {"blockReason": "SAFETY"}})
    assert not spec.is_response({"error": {}})


@pytest.mark.parametrize(
    ("framing", "body"), [(SSE, b'{"a":1}'), (NDJSON, b'{"a":1}'), (JSON_ARRAY, b'[{"a":1}]')]
)
def test_an_error_instead_of_a_stream_is_a_document_as_the_stream_is(framing: Framing, body: bytes) -> None:
    assert json.loads(framing.error_body(b'{"a":1}')) == json.loads(body)


def test_the_default_signer_has_no_secret() -> None:
    assert context_of().signer.secret is None


@pytest.mark.parametrize(
    ("rewritten", "stored", "upstream", "reported"),
    [
        (False, False, "up_1", "a_abc123"),
        (True, False, "up_1", "up_1"),
        (True, False, "", "a_abc123"),
        (True, True, "up_1", "a_abc123"),  # somebody here keeps it, under our id
    ],
)
def test_the_id_of_a_response(rewritten: bool, stored: bool, upstream: str, reported: str) -> None:
    context = msgspec.structs.replace(context_of(), rewritten=rewritten, stored=stored)
    assert context.response_id("a_", upstream) == reported


@pytest.mark.parametrize(
    ("streams", "requested", "does"),
    [("requested", True, True), ("requested", False, False), ("always", False, True), ("never", True, False)],
)
def test_which_endpoints_stream(streams: Any, requested: bool, does: bool) -> None:
    assert Endpoint("/x", streams=streams).streams_if(requested) is does


def test_a_path_may_have_something_before_the_models_name() -> None:
    endpoint = Endpoint("/v1/{model}:go", model_prefix="(?:old/([^/]+/))?models/")
    for path, model in (
        ("models/kite", "kite"),
        ("old/kite", "old/kite"),
        ("old/b/models/kite", "b/kite"),
        ("models/", None),
        ("old/b/models/", None),
    ):
        assert endpoint.match(f"/v1/{path}:go") == model


@pytest.mark.parametrize(
    ("template", "path", "model"),
    [
        ("/v1/x", "/v1/x", ""),
        ("/v1/x", "/v1/xx", None),
        ("/v1/{model}:go", "/v1/kite:go", "kite"),
        ("/v1/{model}:go", "/v1/old/kite:go:go", "old/kite:go"),
        ("/v1/{model}:go", "/v1/:go", None),
        ("/v1/{model}:go", "/v1/kite:stop", None),
    ],
)
def test_which_paths_are_an_endpoints(template: str, path: str, model: str | None) -> None:
    assert Endpoint(template).match(path) == model


def test_an_endpoint_is_found_by_its_path() -> None:
    first, second = toy(), toy(endpoints=(Endpoint("/v2/{model}:go"), Endpoint("/v2/go")))
    assert find_endpoint((first, second), "/v2/a:go") == (second, second.endpoints[0], "a")
    assert find_endpoint((first, second), "/v2/go") == (second, second.endpoints[1], "")
    assert find_endpoint((first, second), "/v3") is None


WRAPPED = TokenCount((Endpoint("/weigh"),), "/weigh", frozenset({"in"}), {"max": 1}, wrapper="parcel")
BARE = TokenCount((Endpoint("/weigh"),), "/weigh", frozenset({"in", "model"}), {"max": 1})


@pytest.mark.parametrize(
    ("count", "sent", "read", "written"),
    [
        (BARE, {"in": "a"}, {"in": "a", "max": 1}, {"in": "a"}),
        (BARE, {"in": "a", "max": 2, "model": "m"}, {"in": "a", "max": 2, "model": "m"}, {"in": "a", "model": "m"}),
        (BARE, {"parcel": {"in": "a"}}, {"parcel": {"in": "a"}, "max": 1}, {}),
        (WRAPPED, {"in": "a"}, {"in": "a", "max": 1}, {"parcel": {"model": "m/x", "in": "a"}}),
        (WRAPPED, {"parcel": {"in": "a"}}, {"in": "a", "max": 1}, {"parcel": {"model": "m/x", "in": "a"}}),
    ],
)  # fmt: skip
def test_a_request_for_a_count(
    count: TokenCount, sent: dict[str, Any], read: dict[str, Any], written: dict[str, Any]
) -> None:
    assert count.read(sent) == read
    assert count.write(read, "m/x") == written


def test_an_endpoint_may_be_found_by_its_query() -> None:
    spec = toy(endpoints=(Endpoint("/v2/go", query="as=events"), Endpoint("/v2/go")))
    for query, place in (("", 1), ("as=events", 0), ("b=c&as=events", 0), ("as=event", 1), ("bas=events", 1)):
        assert find_endpoint((spec,), "/v2/go", query) == (spec, spec.endpoints[place], "")


def test_a_model_in_the_path_of_an_upstream_stays_in_its_segment() -> None:
    spec = toy(path="/{model}:go", stream_path="/{model}:flow?as=lines")
    assert spec.path_for("kite", stream=False) == "/kite:go"
    assert spec.path_for("../é?#", stream=True) == "/..%2F%C3%A9%3F%23:flow?as=lines"
    assert toy(path="/{model}:go").path_for("a@b", stream=True) == "/a@b:go"
    assert toy(path="/go").path_for("..", stream=False) == "/go"
    for name in ("", ".", ".."):
        with pytest.raises(RequestRefused):
            spec.path_for(name, stream=False)


@pytest.mark.parametrize(
    ("capabilities", "can"),
    [
        (Capabilities(), True),
        (Capabilities(forced_tools="no"), False),
        (Capabilities(forced_tools="not_thinking"), True),
        (Capabilities(forced_tools="not_thinking", efforts=("none", "low")), True),
        (Capabilities(forced_tools="not_thinking", efforts=("low",)), False),
        (ChatCapabilities(forced_tools="not_thinking", reasoning_setting=None), False),
        (ChatCapabilities(forced_tools="not_thinking", efforts=(), reasoning_setting=None), True),
    ],
)
def test_can_force_a_call(capabilities: Capabilities, can: bool) -> None:
    assert capabilities.can_force_tools is can
