"""Plain settings: how clients of this protocol say them, and what upstreams are told."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from dragoman._ir.losses import Ledger
from dragoman._ir.request import Message, Request, Text
from dragoman._ir.signatures import Signer
from dragoman._wire.exceptions import RemoteProtocolError, RequestRefused
from dragoman._wire.json import decode, encode
from dragoman.codec import Capabilities
from dragoman.protocols.anthropic_messages import SPEC

USER = Message("user", (Text("Hi"),), "/m/0")


def write(**fields: Any) -> tuple[Any, Any]:
    ledger = Ledger()
    body = SPEC.write_request(Request("other", "m", (USER,), {}, **fields), Capabilities(), ledger)
    return decode(encode(body)), [(loss.code.value, loss.path) for loss in ledger]


def edits(*values: int) -> dict[str, Any]:
    return {
        "context_management": {
            "edits": [
                {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": value}}
                for value in values
            ]
        }
    }


HASH = sha256(b"ann@example.com").hexdigest()


@pytest.mark.parametrize(
    ("params", "written", "losses"),
    [
        ({"max_output_tokens": 0}, {"max_tokens": 0}, []),
        ({"temperature": 0}, {"temperature": 0}, []),
        ({"temperature": 1.7}, {"temperature": 1}, [("altered", "/temperature")]),
        ({"temperature": "hot"}, {"temperature": "hot"}, []),
        ({"top_p": 0.5, "top_k": 3}, {"top_p": 0.5, "top_k": 3}, []),
        ({"stop": "END"}, {"stop_sequences": ["END"]}, []),
        ({"stop": ["END", "\n"]}, {"stop_sequences": ["END"]}, [("dropped", "/stop")]),
        ({"stop": ["\n"]}, {}, [("dropped", "/stop")]),
        ({"user": "u"}, {"metadata": {"user_id": "u"}}, []),
        ({"safety_identifier": "s"}, {"metadata": {"user_id": "s"}}, []),
        ({"user": "s", "safety_identifier": "s"}, {"metadata": {"user_id": "s"}}, []),
        ({"user": "u", "safety_identifier": "s"}, {"metadata": {"user_id": "s"}}, [("dropped", "/user")]),
        ({"user": "ann@example.com"}, {"metadata": {"user_id": HASH}}, [("altered", "/user")]),
        ({"user": 7}, {"metadata": {"user_id": 7}}, []),
        ({"metadata": {"a": "b"}}, {}, [("dropped", "/metadata")]),
        ({"metadata": {}, "store": False, "background": False, "frequency_penalty": 0.0}, {}, []),
        ({"store": True, "seed": 7}, {}, [("dropped", "/store"), ("dropped", "/seed")]),
        ({"include": ["reasoning.encrypted_content", "web_search_call.action.sources"]}, {}, []),
        ({"include": ["message.output_text.logprobs"]}, {}, [("dropped", "/include")]),
        ({"include": "odd"}, {}, [("dropped", "/include")]),
        ({"service_tier": "auto"}, {"service_tier": "auto"}, []),
        ({"service_tier": "default"}, {"service_tier": "standard_only"}, []),
        ({"service_tier": "priority"}, {"service_tier": "auto"}, []),
        ({"service_tier": "fast"}, {"speed": "fast"}, []),
        ({"service_tier": "flex"}, {}, [("dropped", "/service_tier")]),
        ({"context_management": [{"type": "compaction", "compact_threshold": 9000}]}, edits(9000), []),
        ({"context_management": [{"type": "compaction"}]}, edits(150_000), []),
        (
            {"context_management": [{"type": "compaction", "compact_threshold": None, "odd": 1}]},
            edits(150_000),
            [("dropped", "/context_management/0/odd")],
        ),
        (
            {"context_management": [{"type": "odd"}, 7]},
            {},
            [
                ("dropped", "/context_management/0"),
                ("dropped", "/context_management/1"),
            ],
        ),
        ({"context_management": {"type": "odd"}}, {}, [("dropped", "/context_management/0")]),
        ({"prompt_cache_options": {"mode": "implicit"}}, {"cache_control": {"type": "ephemeral"}}, []),
        (
            {"prompt_cache_options": {"mode": "implicit", "ttl": "12h", "prewarm": True}},
            {"cache_control": {"type": "ephemeral", "ttl": "1h"}},
            [("dropped", "/prompt_cache_options/prewarm")],
        ),
        (
            {"prompt_cache_options": {"mode": "implicit", "ttl": "9d"}},
            {"cache_control": {"type": "ephemeral"}},
            [("dropped", "/prompt_cache_options/ttl")],
        ),
        ({"prompt_cache_options": {"mode": "explicit", "ttl": None}}, {}, []),
        (
            {"prompt_cache_options": {"ttl": "30m"}},
            {},
            [("dropped", "/prompt_cache_options/ttl")],
        ),
        ({"prompt_cache_options": {"mode": "odd"}}, {}, [("dropped", "/prompt_cache_options")]),
        ({"prompt_cache_options": 7}, {}, [("dropped", "/prompt_cache_options")]),
    ],
)
def test_upstreams(params: Any, written: Any, losses: Any) -> None:
    body, entered = write(params=params)
    plain = write()[0]
    assert body == {**plain, **written}
    assert entered == losses


@pytest.mark.parametrize(
    "params",
    [
        {"previous_response_id": "resp_1"},
        {"conversation": "conv_1"},
        {"prompt": {"id": "p"}},
        {"background": True},
        {"modalities": ["text", "audio"]},
    ],
)
def test_what_may_not_be_left_out_is_refused(params: Any) -> None:
    with pytest.raises(RequestRefused, match="cannot be carried to this upstream") as caught:
        write(params=params)
    assert caught.value.code == "unsupported_parameter"
    assert caught.value.path == f"/{next(iter(params))}"


def test_a_limit_must_be_a_number() -> None:
    with pytest.raises(RequestRefused, match="max_tokens must be an integer"):
        write(params={"max_output_tokens": "many"})


def test_stream() -> None:
    assert write(stream=True)[0]["stream"] is True


# --- as clients say it


def read(**fields: Any) -> Request:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], **fields}
    return SPEC.read_request(body, Signer())


COMPACT = {"type": "compact_20260112"}
CLEAR = {"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 3}}
KEEP = {"type": "clear_thinking_20251015", "keep": "all"}


@pytest.mark.parametrize(
    ("fields", "params", "left"),
    [
        ({"temperature": 0, "top_p": 0.5, "top_k": 3}, {"temperature": 0, "top_p": 0.5, "top_k": 3}, None),
        ({"stop_sequences": ["END"]}, {"stop": ["END"]}, None),
        ({"metadata": {"user_id": "u", "odd": 1}}, {"user": "u"}, {"metadata": {"odd": 1}}),
        ({"metadata": {}}, {}, None),
        ({"service_tier": "auto"}, {"service_tier": "auto"}, None),
        ({"service_tier": "standard_only"}, {"service_tier": "default"}, None),
        ({"speed": "fast"}, {"speed": "fast"}, None),
        ({"cache_control": {"type": "ephemeral"}}, {"prompt_cache_options": {"mode": "implicit"}}, None),
        (
            {"cache_control": {"type": "ephemeral", "ttl": "1h", "odd": 1}},
            {"prompt_cache_options": {"mode": "implicit", "ttl": "12h"}},
            {"cache_control": {"odd": 1}},
        ),
        (
            {"cache_control": {"type": "new", "ttl": "9d"}},
            {"prompt_cache_options": {"mode": "implicit"}},
            {"cache_control": {"ttl": "9d", "type": "new"}},
        ),
        pytest.param(
            {"context_management": {"edits": [KEEP]}}, {}, None, id="to keep all thinking asks for nothing"
        ),
        (
            {"context_management": {"edits": [COMPACT]}},
            {"context_management": [{"type": "compaction", "compact_threshold": 150_000}]},
            None,
        ),
        (
            {
                "context_management": {
                    "edits": [
                        KEEP,
                        {**COMPACT, "trigger": {"type": "input_tokens", "value": 9000}},
                        {**COMPACT, "trigger": {"type": "odd", "value": 1, "new": 1}, "instructions": "i"},
                        CLEAR,
                    ],
                    "odd": 1,
                }
            },
            {
                "context_management": [
                    {"type": "compaction", "compact_threshold": 9000},
                    {"type": "compaction", "compact_threshold": 1},
                ]
            },
            {
                "context_management": {
                    "odd": 1,
                    "edits": [{"instructions": "i", "trigger": {"new": 1, "type": "odd"}}, CLEAR],
                }
            },
        ),
        *[
            ({name: value}, {name: value}, None)
            for name, value in (
                ("thread", {"type": "create"}),
                ("thread", {"type": "continue", "previous_message_id": "msg_1", "odd": 1}),
                ("container", {"id": "c", "skills": []}),
                ("inference_geo", "eu"),
                ("diagnostics", {"previous_message_id": "msg_1"}),
                ("fallbacks", "default"),
                ("fallback_credit_token", "t"),
                ("billing_policy", {"type": "billing_policy"}),
                ("user_profile_id", "p"),
                ("workspace_id", "w"),
                ("betas", ["b"]),
            )
        ],
        ({"new": 1, "nothing": None}, {}, {"new": 1}),
    ],
)
def test_clients(fields: Any, params: Any, left: Any) -> None:
    request = read(**fields)
    assert request.params == {"max_output_tokens": 9, **params}
    assert request.extra == left
    assert all(param in request.param_paths for param in params)


def test_where_settings_stood() -> None:
    paths = read().param_paths
    assert paths["user"] == "/metadata/user_id"
    assert paths["thread"] == "/thread"
    assert paths["prompt_cache_options"] == "/cache_control"


@pytest.mark.parametrize(
    ("fields", "compact", "asked"),
    [
        ({}, False, ["Hi"]),
        ({"compaction": {"type": "summarize"}}, True, ["Hi"]),
        ({"compaction": {"type": "summarize", "instructions": "Short.", "odd": 1}}, True, ["Hi", "Short."]),
    ],
)
def test_the_conversation_summed_up(fields: Any, compact: bool, asked: list[str]) -> None:
    request = read(**fields)
    assert request.compact is compact
    assert [part.text for message in request.messages for part in message.parts] == asked  # type: ignore[union-attr]
    assert request.extra == ({"compaction": {"odd": 1}} if len(asked) > 1 else None)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"temperature": "hot"}, "temperature: Input should be a valid number"),
        ({"speed": 1}, "speed: Input should be a valid string"),
        ({"stop_sequences": ["a", 1]}, "stop_sequences.1: Input should be a valid string"),
        ({"metadata": "me"}, "metadata: Input should be an object"),
        ({"metadata": {"user_id": 1}}, "metadata.user_id: Input should be a valid string"),
        ({"cache_control": "on"}, "cache_control: Input should be an object"),
        ({"context_management": []}, "context_management: Input should be an object"),
        ({"context_management": {"edits": 1}}, "context_management.edits: Input should be a valid list"),
        ({"context_management": {"edits": [1]}}, "context_management.edits.0: Input should be an object"),
        (
            {"context_management": {"edits": [{**COMPACT, "trigger": 1}]}},
            "context_management.edits.0.trigger: Input should be an object",
        ),
        ({"compaction": {"type": "odd"}}, "compaction.type: Input should be 'summarize'"),
    ],
)
def test_errors_name_the_place(fields: Any, error: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read(**fields)
    assert caught.value.message == error
    assert caught.value.path == "/" + error.split(":")[0].replace(".", "/")
