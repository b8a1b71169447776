"""Bodies of clients, read into the neutral request."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman import LossPolicy, RequestTranslator, TranslatedRequest, peek
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Message, OpaquePart, ReasoningConfig, Request, ResponseFormat, Text
from dragoman._ir.signatures import Signer
from dragoman._ir.tools import CacheMark, FunctionTool
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import decode
from dragoman.protocols.anthropic_messages import SPEC
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities as Capabilities

NAME = "anthropic_messages"
HELLO = {"role": "user", "content": "Hello"}


def read(*messages: Any, **fields: Any) -> Request:
    """Read a body with a message of the user and `messages`. A field "absent" is left out."""
    body = {"model": "claude-x", "max_tokens": 9, "messages": [HELLO, *messages], **fields}
    return SPEC.read_request({key: value for key, value in body.items() if value != "absent"}, Signer(b"key"))


def test_the_smallest_request() -> None:
    request = read()
    assert request.protocol == NAME
    assert request.model == "claude-x"
    assert request.messages == (Message("user", (Text("Hello", path="/messages/0/content"),), "/messages/0"),)
    assert request.params == {"max_output_tokens": 9}
    assert request.param_paths["max_output_tokens"] == "/max_tokens"
    assert (request.stream, request.include_usage, request.extra) == (False, True, None)


@pytest.mark.parametrize(
    ("system", "parts"),
    [
        ("Be brief.", (Text("Be brief.", path="/system"),)),
        (
            [
                {"type": "text", "text": "One."},
                {"type": "text", "text": "Two.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
            ],
            (
                Text("One.", path="/system/0"),
                Text("Two.", CacheMark("/system/1/cache_control", "long"), path="/system/1"),
            ),
        ),
    ],
)
def test_system_is_the_first_message(system: Any, parts: tuple[Text, ...]) -> None:
    assert read(system=system).messages[0] == Message("system", parts, "/system")


LINE = "x-anthropic-billing-header: cc_version=2.1.329.01c; cc_entrypoint=cli; cch=36ee5;"


def header(block: Any, path: str = "/system/0") -> OpaquePart:
    return OpaquePart(NAME, "billing header", block, path, "")


@pytest.mark.parametrize(
    ("system", "parts"),
    [
        (
            [
                {"type": "text", "text": LINE, "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": "Be brief."},
            ],
            (
                header({"type": "text", "text": LINE, "cache_control": {"type": "ephemeral"}}),
                Text("Be brief.", path="/system/1"),
            ),
        ),
        (LINE, (header({"type": "text", "text": LINE}, "/system"),)),
        (
            f"{LINE}\n\nBe brief.",
            (header({"type": "text", "text": LINE}, "/system"), Text("Be brief.", path="/system")),
        ),
        (f"Say {LINE}", (Text(f"Say {LINE}", path="/system"),)),
    ],
)
def test_the_billing_header_is_no_system_text(system: Any, parts: tuple[Any, ...]) -> None:
    request = read(system=system)
    assert request.messages[0] == Message("system", parts, "/system")
    printed = SPEC.write_request(request, Capabilities(), Ledger())["system"]
    texts = [block["text"] for block in (printed if isinstance(printed, list) else [{"text": printed}])]
    assert "".join(texts).replace("\n", "") == "".join(
        [system] if isinstance(system, str) else [block["text"] for block in system]
    ).replace("\n", "")


BLOCK = '{"type":"text","text":"be brief"}'
QUOTED = LINE.replace('"', "")


@pytest.mark.promise("R14")
@pytest.mark.parametrize("relay", ["exact", "rewrite"])
@pytest.mark.parametrize(
    ("system", "left"),
    [
        (f'[{{"type": "text", "text": "{QUOTED}"}}, {BLOCK}]', f"[{BLOCK}]"),
        (f'[{{"text":"{QUOTED}\\n\\nbe","type":"text"}}]', '[{"text":"be","type":"text"}]'),
        (f'"{QUOTED}\\nbe brief"', '"be brief"'),
        (f'[{BLOCK},{{"type":"text","text":"{QUOTED}"}}]', None),
        (f'[ {{"type":"text","text":"not {QUOTED}"}} ]', None),
        (f'[{{"type":"image","x":"{QUOTED}"}}]', None),
        ("[]", None),
        (None, None),
    ],
)
def test_only_its_own_provider_gets_the_billing_header(
    relay: Any, system: str | None, left: str | None
) -> None:
    def sent(accepts: bool, policy: LossPolicy = LossPolicy.RECORD) -> TranslatedRequest:
        capabilities = Capabilities(billing_header=accepts, relay=relay)
        translator = RequestTranslator(client=NAME, upstream=NAME, capabilities=capabilities, policy=policy)
        return translator.translate(body.encode(), request_head=peek(body.encode()))

    member = "" if system is None else f'"system":{system}, '
    body = f'{{"model":"m", "max_tokens":9, {member}"messages":[{{"role":"user","content":"{QUOTED}"}}]}}'
    if relay == "rewrite" and "image" in (system or ""):
        return
    out = sent(False)
    lost = [(loss.code, loss.path) for loss in out.losses]
    assert lost == ([] if left is None else [(LossCode.DROPPED, "/system")])
    if relay == "exact":
        assert out.body.decode() == (body if system is None or left is None else body.replace(system, left))
        assert sent(True).body == sent(False, LossPolicy.REFUSE).body == body.encode()
    elif left is not None:
        assert QUOTED not in str(decode(out.body)["system"])


@pytest.mark.parametrize("system", ["", [], None])
def test_an_empty_system_is_no_message(system: Any) -> None:
    assert [message.role for message in read(system=system).messages] == ["user"]


def test_messages_stay_in_their_order() -> None:
    request = read(
        messages=[HELLO, HELLO, {"role": "system", "content": "Now.", "output_config": {"effort": "low"}}]
    )
    assert [message.role for message in request.messages] == ["user", "user", "system"]
    assert request.reasoning == ReasoningConfig(effort="low", path="/messages/2/output_config/effort")


def test_paths_of_many_messages() -> None:
    messages = [{"role": "user", "content": "a"}] * 600
    assert [message.path for message in read(messages=messages).messages] == [
        f"/messages/{n}" for n in range(600)
    ]


COMPACT = {"type": "compact_20260112"}
CLEAR = {"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 3}}
KEEP = {"type": "clear_thinking_20251015", "keep": "all"}


SETTINGS: list[tuple[Any, Any, Any]] = [
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
    # to keep all thinking is the default
    ({"context_management": {"edits": [KEEP]}}, {}, None),
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
]


def test_settings(subtests: pytest.Subtests) -> None:
    for fields, params, extra in SETTINGS:
        with subtests.test(fields=fields):
            request = read(**fields)
            assert request.params == {"max_output_tokens": 9, **params}
            assert request.extra == extra
            assert all(param in request.param_paths for param in params)


def test_paths_of_settings() -> None:
    paths = read(metadata={"user_id": "u"}, thread={}, cache_control={"type": "ephemeral"}).param_paths
    assert paths["user"] == "/metadata/user_id"
    assert paths["thread"] == "/thread"
    assert paths["prompt_cache_options"] == "/cache_control"


@pytest.mark.parametrize(
    ("fields", "compact", "texts"),
    [
        ({}, False, ["Hello"]),
        ({"compaction": {"type": "summarize"}}, True, ["Hello"]),
        (
            {"compaction": {"type": "summarize", "instructions": "Short.", "odd": 1}},
            True,
            ["Hello", "Short."],
        ),
    ],
)
def test_a_request_for_a_summary(fields: Any, compact: bool, texts: list[str]) -> None:
    request = read(**fields)
    assert request.compact is compact
    assert [part.text for message in request.messages for part in message.parts] == texts  # type: ignore[union-attr]
    assert request.extra == ({"compaction": {"odd": 1}} if len(texts) > 1 else None)


FORMAT = {"type": "json_schema", "schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("fields", "read_as"),
    [
        (
            {"output_config": {"format": {**FORMAT, "odd": 1}}},
            ResponseFormat({"type": "object"}, strict=True, extra={"odd": 1}, path="/output_config/format"),
        ),
        ({"output_format": FORMAT}, ResponseFormat({"type": "object"}, strict=True, path="/output_format")),
        (
            {"output_config": {"format": FORMAT}, "output_format": FORMAT},
            ResponseFormat({"type": "object"}, strict=True, path="/output_config/format"),
        ),
        ({"output_config": {}}, None),
    ],
)
def test_response_format(fields: Any, read_as: ResponseFormat | None) -> None:
    request = read(**fields)
    assert request.response_format == read_as
    assert request.extra == ({"output_format": FORMAT} if len(fields) == 2 else None)


def test_unknown_fields_are_extra_fields() -> None:
    request = read(
        new=1,
        nothing=None,
        metadata={"odd": 2},
        tool_choice={"type": "auto", "odd": 3},
        output_config={"task_budget": {"total": 9}},
    )
    assert request.extra == {
        "new": 1,
        "metadata": {"odd": 2},
        "tool_choice": {"odd": 3},
        "output_config": {"task_budget": {"total": 9}},
    }


def message(content: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}]}


REASONING: list[tuple[Any, ReasoningConfig | None]] = [
    ({}, None),
    ({"output_config": {"effort": "high"}}, ReasoningConfig(effort="high", path="/output_config/effort")),
    # C10 adaptive with an effort
    (
        {"thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "max"}},
        ReasoningConfig(
            "adaptive",
            "max",
            None,
            "omitted",
            path="/thinking",
            effort_path="/output_config/effort",
            display_path="/thinking/display",
        ),
    ),
    # C10 a budget and an effort
    (
        {"thinking": {"type": "enabled", "budget_tokens": 2048}, "output_config": {"effort": "low"}},
        ReasoningConfig("enabled", "low", 2048, path="/thinking", effort_path="/output_config/effort"),
    ),
    (
        {"thinking": {"type": "enabled", "budget_tokens": 2048, "display": "updates"}},
        ReasoningConfig(
            "enabled",
            None,
            2048,
            "summarized",
            extra={"display": "updates"},
            path="/thinking",
            display_path="/thinking/display",
        ),
    ),
    (
        {"thinking": {"type": "adaptive", "display": "odd"}},
        ReasoningConfig("adaptive", extra={"display": "odd"}, path="/thinking"),
    ),
    ({"thinking": {"type": "disabled"}}, ReasoningConfig("disabled", path="/thinking")),
    (
        {"thinking": {"type": "between_tools"}},
        ReasoningConfig("disabled", extra={"type": "between_tools"}, path="/thinking"),
    ),
    (
        {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}},
        ReasoningConfig(
            "adaptive",
            extra={"block_binding": {"prefix_mismatch_behavior": "error"}},
            path="/thinking",
        ),
    ),
]


def test_reasoning(subtests: pytest.Subtests) -> None:
    for fields, config in REASONING:
        with subtests.test(fields=fields):
            assert read(**fields).reasoning == config


def turn(effort: str | None, **fields: Any) -> dict[str, Any]:
    return {"role": "system", "content": "Now.", "output_config": {"effort": effort}, **fields}


def test_the_last_effort_in_mid_conversation_is_the_one_of_the_request() -> None:
    request = read(turn("low"), turn("max", clear_at="never"), turn(None), output_config={"effort": "high"})
    path = "/messages/2/output_config/effort"
    assert request.reasoning == ReasoningConfig(effort="max", path=path)
    assert [message.extra for message in request.messages[1:]] == [
        {"output_config": {"effort": "low"}},
        {"clear_at": "never"},
        {"output_config": {"effort": None}},
    ]
    assert request.extra == {"output_config": {"effort": "high"}}


def test_an_effort_in_mid_conversation_beside_thinking() -> None:
    request = read(
        turn("max"),
        thinking={"type": "adaptive"},
        output_config={"effort": "max", "task_budget": {"total": 1}},
    )
    path = "/messages/1/output_config/effort"
    assert request.reasoning == ReasoningConfig("adaptive", "max", path="/thinking", effort_path=path)
    assert request.extra == {"output_config": {"task_budget": {"total": 1}}}


def test_a_message_that_only_changes_the_effort() -> None:
    message = {"role": "system", "output_config": {"effort": "low", "odd": 1}}
    request = read(message)
    assert request.messages[1] == Message("system", (), "/messages/1", extra={"output_config": {"odd": 1}})
    assert request.reasoning == ReasoningConfig(effort="low", path="/messages/1/output_config/effort")


F = {"name": "f", "description": "d", "input_schema": {"type": "object"}, "strict": True}
DEFERRED = {**F, "defer_loading": True}


def found(name: Any) -> dict[str, Any]:
    content = [{"type": "tool_reference", "tool_name": name}]
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": content}]}


def system(*blocks: Any) -> dict[str, Any]:
    return {"role": "system", "content": list(blocks)}


def addition(tool: Any) -> dict[str, Any]:
    return {"type": "tool_addition", "tool": tool}


@pytest.mark.parametrize(
    ("message", "deferred"),
    [
        (HELLO, True),
        (found("other"), True),
        (found(["odd"]), True),
        pytest.param(found("f"), False, id="a tool search has found it"),
        (system(addition({"type": "tool_reference", "name": "f"})), False),
        (system(addition(None), {"type": "text", "text": "Now."}), True),
    ],
)
def test_a_deferred_tool_that_the_conversation_refers_to(message: Any, deferred: bool) -> None:
    tools = read(message, tools=[DEFERRED, {"type": "bash_20250124", "name": "bash"}]).tools
    assert tools[0].deferred is deferred  # type: ignore[union-attr]


def test_a_tool_that_the_conversation_defines() -> None:
    definition = {"type": "tool_definition", "definition": F}
    request = read(system(addition(definition)))
    path = "/messages/1/content/0/tool/definition"
    assert request.tools == (FunctionTool("f", "d", {"type": "object"}, True, path=path),)


ERRORS: list[tuple[Any, str]] = [
    ({"model": "absent"}, "model: Field required"),
    ({"model": 3}, "model: Input should be a valid string"),
    ({"max_tokens": "absent"}, "max_tokens: Field required"),
    ({"max_tokens": True}, "max_tokens: Input should be a valid integer"),
    ({"messages": "absent"}, "messages: Field required"),
    ({"messages": "hi"}, "messages: Input should be a valid list"),
    ({"messages": ["hi"]}, "messages.0: Input should be an object"),
    (
        {"messages": [{"role": ["tool"], "content": ""}]},
        "messages.0.role: Input should be 'user', 'assistant' or 'system'",
    ),
    ({"messages": [{"role": "user"}]}, "messages.0.content: Field required"),
    ({"messages": [{"role": "system"}]}, "messages.0.content: Field required"),
    (
        {"messages": [{"role": "system", "output_config": 1}]},
        "messages.0.output_config: Input should be an object",
    ),
    (
        {"messages": [{"role": "system", "output_config": {"effort": 1}}]},
        "messages.0.output_config.effort: Input should be a valid string",
    ),
    (message(7), "messages.0.content: Input should be a valid string or list"),
    (message(["x"]), "messages.0.content.0: Input should be an object"),
    (message([{"text": "x"}]), "messages.0.content.0.type: Field required"),
    (message([{"type": "text"}]), "messages.0.content.0.text: Field required"),
    (message([{"type": "image"}]), "messages.0.content.0.source: Field required"),
    (message([{"type": "image", "source": 1}]), "messages.0.content.0.source: Input should be an object"),
    (
        message([{"type": "tool_use", "id": "a", "name": "b", "input": []}]),
        "messages.0.content.0.input: Input should be a valid dictionary",
    ),
    (message([{"type": "tool_result"}]), "messages.0.content.0.tool_use_id: Field required"),
    (
        {"thinking": {"type": "hard"}},
        "thinking.type: Input should be 'adaptive', 'enabled', 'disabled' or 'between_tools'",
    ),
    (
        {"output_config": {"format": {"type": "xml"}}},
        "output_config.format.type: Input should be 'json_schema'",
    ),
    ({"output_format": {"type": "json_schema"}}, "output_format.schema: Field required"),
]


def test_errors_name_the_path(subtests: pytest.Subtests) -> None:
    for fields, error in ERRORS:
        with subtests.test(error=error):
            with pytest.raises(RemoteProtocolError) as caught:
                read(**fields)
            assert caught.value.message == error
            assert caught.value.status == 400
            assert caught.value.path == "/" + error.split(":")[0].replace(".", "/")


SETTINGS_ERRORS: list[tuple[Any, str]] = [
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
]


def test_errors_of_settings(subtests: pytest.Subtests) -> None:
    for fields, error in SETTINGS_ERRORS:
        with subtests.test(error=error):
            with pytest.raises(RemoteProtocolError) as caught:
                read(**fields)
            assert caught.value.message == error
            assert caught.value.path == "/" + error.split(":")[0].replace(".", "/")
