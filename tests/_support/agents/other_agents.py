"""Requests of opencode, pi, qwen and aider in each of their protocols: the third request of a task.

The values are made up; fields, messages, tools and headers are those of the real clients. Texts say where they
stand. The conversation is the same throughout: a system prompt, a question, a call and its result, another call and
its result.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

MARK = {"type": "ephemeral"}
SYSTEM = "You are an agent."
QUESTION = "Fix it."
ARGUMENTS = ('{"command":"ls"}', '{"command":"make"}')
INPUTS = ({"command": "ls"}, {"command": "make"})
RESULTS = ("a.c", "make: done")
IDS = ("call_1", "call_2")


def _schema(**bash: Any) -> dict[str, Json]:
    """The schemas of a few tools, with all that the client's schemas use."""
    plain = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    return {"bash": {"type": "object", "required": ["command"], **bash}, "edit": plain}


_COMMAND = {"type": "string", "description": "What to run."}
_OPENCODE = _schema(
    properties={
        "command": _COMMAND,
        "timeout": {"type": "number", "exclusiveMinimum": 0, "default": 5},
        "workdir": {"type": "string", "format": "uri", "pattern": "^/", "enum": ["/a", "/b"]},
        "lines": {"type": "integer", "minimum": 1},
    },
    **{"$schema": "https://json-schema.org/draft/2020-12/schema"},
)
_OPENCODE_STRICT = _schema(
    properties={
        "command": _COMMAND,
        "url": {"type": "string", "format": "uri", "pattern": "^h", "enum": ["h"]},
    }
)
_PI = _schema(properties={"command": _COMMAND}, additionalProperties=False)
_QWEN = _schema(
    properties={
        "command": {**_COMMAND, "minLength": 1, "pattern": "."},
        "timeout": {"oneOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "default": None},
        "mode": {"type": "string", "enum": ["a", "b"]},
    },
    additionalProperties=False,
)


def _chat_tools(schemas: dict[str, Json], **more: Any) -> list[Json]:
    return [
        {
            "type": "function",
            "function": {"name": name, "description": f"What {name} is for.", "parameters": schema, **more},
        }
        for name, schema in schemas.items()
    ]


def _messages_tools(schemas: dict[str, Json], **more: Any) -> list[Json]:
    return [
        {"name": name, "description": f"What {name} is for.", "input_schema": schema, **more}
        for name, schema in schemas.items()
    ]


def _responses_tools(schemas: dict[str, Json], **more: Any) -> list[Json]:
    return [
        {
            "type": "function",
            "name": name,
            "description": f"What {name} is for.",
            "parameters": schema,
            **more,
        }
        for name, schema in schemas.items()
    ]


# --- Chat Completions -------------------------------------------------------------------------------------------


def _chat_call(turn: int, **more: Any) -> Json:
    function = {"name": "bash", "arguments": ARGUMENTS[turn]}
    return {
        "role": "assistant",
        **more,
        "tool_calls": [{"id": IDS[turn], "type": "function", "function": function}],
    }


def _chat_result(turn: int, content: Any, **more: Any) -> Json:
    return {"role": "tool", "tool_call_id": IDS[turn], "content": content, **more}


def _opencode_chat(**mark: Json) -> Json:
    return {
        "model": "m",
        "max_tokens": 8000,
        "reasoning_effort": "low",
        "messages": [
            {"role": "system", "content": SYSTEM, **mark},
            {"role": "user", "content": QUESTION},
            _chat_call(0, content="I look."),
            _chat_result(0, RESULTS[0]),
            _chat_call(1, content="", **mark),
            _chat_result(1, RESULTS[1], **mark),
        ],
        "tools": _chat_tools(_OPENCODE),
        "tool_choice": "auto",
        "stream": True,
        "stream_options": {"include_usage": True},
    }


_PI_CHAT: Json = {
    "model": "m",
    "messages": [
        {"role": "developer", "content": SYSTEM},
        {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
        _chat_call(0, content=None, reasoning_content="I must look."),
        _chat_result(0, RESULTS[0]),
        _chat_call(1, content="I build.", reasoning_content="Then build."),
        _chat_result(1, RESULTS[1]),
    ],
    "stream": True,
    "stream_options": {"include_usage": True},
    "store": False,
    "max_completion_tokens": 8000,
    "tools": _chat_tools(_PI, strict=False),
    "reasoning_effort": "low",
}
_QWEN_CHAT: Json = {
    "model": "m",
    "messages": [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": [{"type": "text", "text": "A reminder."}, {"type": "text", "text": QUESTION}]},
        _chat_call(0, content=None),
        _chat_result(0, [{"type": "text", "text": RESULTS[0]}]),
        _chat_call(1, content="I build."),
        _chat_result(1, [{"type": "text", "text": RESULTS[1]}]),
    ],
    "stream": True,
    "stream_options": {"include_usage": True},
    "max_tokens": 64000,
    "tools": _chat_tools(_QWEN),
}  # fmt: skip
_AIDER_CHAT: Json = {
    "model": "m",
    "messages": [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "An example."},
        {"role": "assistant", "content": "So it looks."},
        {"role": "user", "content": QUESTION},
    ],
    "stream": True,
    "temperature": 0,
}

# --- Messages ---------------------------------------------------------------------------------------------------


def _turn(turn: int, *before: Json, **mark: Json) -> Json:
    call = {"type": "tool_use", "id": IDS[turn], "name": "bash", "input": INPUTS[turn], **mark}
    return {"role": "assistant", "content": [*before, call]}


def _result(turn: int, content: Any, **more: Any) -> Json:
    block = {"type": "tool_result", "tool_use_id": IDS[turn], "content": content, **more}
    return {"role": "user", "content": [block]}


def _thinking(number: int) -> Json:
    return {"type": "thinking", "thinking": f"Thought {number}.", "signature": f"EpQBsig{number}"}


_MARKED = {"cache_control": MARK}
_SYSTEM_BLOCKS = [{"type": "text", "text": SYSTEM, **_MARKED}]


def _opencode_messages(**more: Any) -> Json:
    return {
        "model": "m",
        "max_tokens": 8000,
        "system": _SYSTEM_BLOCKS,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
            _turn(0),
            _result(0, RESULTS[0]),
            _turn(1, **_MARKED),
            _result(1, RESULTS[1], **_MARKED),
        ],
        "tools": _messages_tools(_OPENCODE, **more),
        "tool_choice": {"type": "auto"},
        "stream": True,
        "thinking": {"type": "enabled", "budget_tokens": 3999},
    }


_PI_MESSAGES: Json = {
    "model": "m",
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
        _turn(0, _thinking(0)),
        _result(0, RESULTS[0], is_error=False),
        _turn(1, _thinking(1)),
        _result(1, RESULTS[1], is_error=True, **_MARKED),
    ],
    "max_tokens": 8000,
    "stream": True,
    "system": _SYSTEM_BLOCKS,
    "tools": _messages_tools(_PI, eager_input_streaming=True, **_MARKED),
    "thinking": {"type": "enabled", "budget_tokens": 2048, "display": "summarized"},
}
_QWEN_MESSAGES: Json = {
    "model": "m",
    "system": _SYSTEM_BLOCKS,
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
        _turn(0, _thinking(0)),
        _result(0, RESULTS[0]),
        _turn(1, _thinking(1)),
        _result(1, [{"type": "text", "text": RESULTS[1]}], **_MARKED),
    ],
    "tools": _messages_tools(_QWEN, **_MARKED),
    "max_tokens": 64000,
    "temperature": 1,
    "thinking": {"type": "enabled", "budget_tokens": 32000},
    "stream": True,
}
_AIDER_MESSAGES: Json = {
    "model": "m",
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "An example."}]},
        {"role": "assistant", "content": [{"type": "text", "text": "So it looks."}]},
        {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
    ],
    "temperature": 0,
    "system": [{"type": "text", "text": SYSTEM}],
    "max_tokens": 4096,
    "stream": True,
}

# --- Responses --------------------------------------------------------------------------------------------------


def _call(turn: int, **more: Any) -> Json:
    return {
        "type": "function_call",
        "call_id": IDS[turn],
        "name": "bash",
        "arguments": ARGUMENTS[turn],
        **more,
    }


def _output(turn: int) -> Json:
    return {"type": "function_call_output", "call_id": IDS[turn], "output": RESULTS[turn]}


def _reasoning(number: int, **more: Any) -> Json:
    summary = [{"type": "summary_text", "text": f"Thought {number}."}]
    return {
        "type": "reasoning",
        **more,
        "summary": summary,
        "encrypted_content": f"gAAAAreasoning{number}",
    }


_REQUESTED = {"role": "user", "content": [{"type": "input_text", "text": QUESTION}]}


def _opencode_responses(effort: str, tools: dict[str, Json], *reasoning_parts: Json, **more: Any) -> Json:
    first, second = reasoning_parts[:1], reasoning_parts[1:]
    return {
        "model": "m",
        "input": [
            {"role": "developer", "content": SYSTEM},
            _REQUESTED,
            *first,
            _call(0),
            _output(0),
            *second,
            _call(1),
            _output(1),
        ],
        "max_output_tokens": 8000,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": effort, "summary": "auto"},
        "stream": True,
        "prompt_cache_key": "ses_1",
        "tools": _responses_tools(tools, strict=False),
        "tool_choice": "auto",
        **more,
    }


_PI_RESPONSES: Json = {
    "model": "m",
    "input": [
        {"role": "developer", "content": SYSTEM},
        _REQUESTED,
        _reasoning(0, id="rs_0"),
        _call(0, id="fc_0"),
        _output(0),
        _reasoning(1, id="rs_1"),
        _call(1, id="fc_1"),
        _output(1),
    ],
    "stream": True,
    "prompt_cache_key": "ses_1",
    "store": False,
    "max_output_tokens": 8000,
    "tools": _responses_tools(_PI, strict=False),
    "reasoning": {"effort": "low", "summary": "auto"},
    "include": ["reasoning.encrypted_content"],
}
_QWEN_RESPONSES: Json = {
    "model": "m",
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": QUESTION}]},
        _call(0),
        _output(0),
        _call(1),
        _output(1),
    ],
    "instructions": SYSTEM,
    "tools": _responses_tools(_QWEN),
    "stream": True,
    "prompt_cache_key": "ses_1",
    "store": False,
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "max_output_tokens": 64000,
}

# --- all of them ------------------------------------------------------------------------------------------------

CHAT_BODIES: dict[str, Json] = {
    "opencode": _opencode_chat(),
    "opencode-marks": _opencode_chat(cache_control=MARK),
    "pi": _PI_CHAT,
    "qwen": _QWEN_CHAT,
    "aider": _AIDER_CHAT,
}
MESSAGES_BODIES: dict[str, Json] = {
    "opencode": _opencode_messages(),
    "opencode-eager": _opencode_messages(eager_input_streaming=True),
    "pi": _PI_MESSAGES,
    "qwen": _QWEN_MESSAGES,
    "aider": _AIDER_MESSAGES,
}
RESPONSES_BODIES: dict[str, Json] = {
    "opencode": _opencode_responses("low", _OPENCODE_STRICT),
    "opencode-reasoning": _opencode_responses(
        "medium", _OPENCODE_STRICT, _reasoning(0), _reasoning(1), text={"verbosity": "low"}
    ),
    "pi": _PI_RESPONSES,
    "qwen": _QWEN_RESPONSES,
}

_STAINLESS = {"x-stainless-lang": "js", "x-stainless-retry-count": "0", "x-stainless-runtime": "node"}
_OPENCODE_HEADERS = {
    "user-agent": "opencode/1.18.33 ai-sdk/provider-utils/4.0.23 runtime/bun/1.3",
    "x-session-affinity": "ses_1",
    "x-session-id": "ses_1",
}
_MESSAGES_HEADERS = {"anthropic-version": "2023-06-01"}

# By client and protocol, without the key.
HEADERS: dict[tuple[str, str], dict[str, str]] = {
    ("opencode", "openai_chat"): _OPENCODE_HEADERS,
    ("opencode", "openai_responses"): _OPENCODE_HEADERS,
    ("opencode", "anthropic_messages"): {
        **_OPENCODE_HEADERS,
        **_MESSAGES_HEADERS,
        "anthropic-beta": "structured-outputs-2025-11-13",
    },
    ("pi", "openai_chat"): {"user-agent": "OpenAI/JS 6.26.0", **_STAINLESS},
    ("pi", "openai_responses"): {
        "user-agent": "OpenAI/JS 6.26.0",
        "session_id": "ses_1",
        "x-client-request-id": "ses_1",
        **_STAINLESS,
    },
    ("pi", "anthropic_messages"): {
        "user-agent": "Anthropic/JS 0.91.1",
        "anthropic-dangerous-direct-browser-access": "true",
        "anthropic-beta": "interleaved-thinking-2025-05-14",
        **_MESSAGES_HEADERS,
        **_STAINLESS,
    },
    ("qwen", "openai_chat"): {"user-agent": "QwenCode/0.24.4 (linux; x64)", **_STAINLESS},
    ("qwen", "openai_responses"): {"user-agent": "QwenCode/0.24.4 (linux; x64)"},
    ("qwen", "anthropic_messages"): {
        "user-agent": "claude-cli/0.24.4 (external, cli)",
        "x-app": "cli",
        "anthropic-beta": "interleaved-thinking-2025-05-14",
        **_MESSAGES_HEADERS,
        **_STAINLESS,
    },
    ("aider", "openai_chat"): {"user-agent": "OpenAI/Python 2.20.0", "x-stainless-lang": "python"},
    ("aider", "anthropic_messages"): {"user-agent": "litellm/1.81.10", **_MESSAGES_HEADERS},
}
