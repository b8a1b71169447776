"""The members of the objects of requests and responses, see `_ir.shape`. Data only.

Members of requests are in the types of openai-python 3.52.0 (types.responses). A member of a request that is not here
is unknown: another Responses server gets it again, and it is a loss for any other protocol.

A new setting that is only a name and a value is a row of REQUEST_SHAPE; CONTRIBUTING.md has the other steps.
"""

from __future__ import annotations

from dragoman._ir.request import Param
from dragoman._ir.shape import (
    ARRAY,
    BOOLEAN,
    HOST_BOOKKEEPING,
    INTEGER,
    NUMBER,
    OBJECT,
    READ_IN_PART,
    STRING,
    ByType,
    Counters,
    DroppedUnless,
    OneOf,
    Setting,
    Shape,
    TakenIf,
    defined_members,
    members,
    setting_paths,
)
from dragoman.protocols._openai.settings import CACHE_TTLS
from dragoman.protocols._openai.usage import USAGE_BOOKKEEPING

# Requests.

_NATIVE = Setting(None)
_CALLER = Setting(None, implied={"type": "direct"})  # the model itself
_NO_CHECKS = Setting(None, implied=[])
_AUTO = Setting(None, implied="auto")

REQUEST_SHAPE: dict[str, Shape] = {
    "model": STRING,
    "input": None,
    "instructions": STRING,
    "access_programs": _NATIVE,
    "background": Setting("background", BOOLEAN),
    "background_options": _NATIVE,
    "client_metadata": Setting("client_metadata"),
    "context_management": Setting("context_management"),
    "conversation": Setting("conversation"),
    "image": _NATIVE,
    "include": ARRAY,
    "max_output_tokens": Setting("max_output_tokens", INTEGER),
    "max_tool_calls": Setting("max_tool_calls", INTEGER),
    "metadata": Setting("metadata", OBJECT),
    "moderation": Setting("moderation"),
    "parallel_tool_calls": BOOLEAN,
    "previous_response_id": Setting("previous_response_id", STRING),
    "prompt": Setting("prompt"),
    "prompt_cache_key": Setting("prompt_cache_key", STRING),
    "prompt_cache_options": Setting("prompt_cache_options"),
    "prompt_cache_retention": Setting("prompt_cache_retention"),
    "reasoning": OBJECT,
    "safety_identifier": Setting("safety_identifier", STRING),
    "service_tier": Setting("service_tier", STRING),
    "store": Setting("store", BOOLEAN),
    "stream": BOOLEAN,
    "stream_options": {"include_obfuscation": Setting(None, implied=False)},  # padding is never added here
    "temperature": Setting("temperature", NUMBER),
    "text": {"format": None, "verbosity": Setting("verbosity")},
    "tool_choice": None,
    "tools": ARRAY,
    "top_logprobs": Setting("top_logprobs", INTEGER),
    "top_p": Setting("top_p", NUMBER),
    "truncation": Setting("truncation", STRING),
    "user": Setting("user", STRING),
}
# A path to each setting, and to two that a function reads from one member.
SETTING_PATHS: dict[Param, str] = {
    **setting_paths(REQUEST_SHAPE),
    "include": "/include",
    "logprobs": "/include",
}
# Summaries are either requested or not in the document; their length is only in these members.
REASONING_SHAPE: dict[str, Shape] = {
    "effort": None,
    "summary": _AUTO,
    "generate_summary": _AUTO,  # its old name
    **members("context mode", _NATIVE),
}
# `text.format`: flat, unlike in Chat.
FORMAT_SHAPE = members("type name schema description strict")

# Tools, by their type. Most functions have no other members than these, flat, unlike in Chat.
FUNCTION_MEMBERS = members("type name description parameters strict defer_loading")
_CALLERS = Setting(None, implied=["direct"])
TOOL_SHAPES: dict[str, dict[str, Shape]] = {
    "function": {**FUNCTION_MEMBERS, "allowed_callers": _CALLERS, "output_schema": _NATIVE},
    "custom": {
        **members("type name description"),
        "allowed_callers": _CALLERS,
        "format": ByType({"text": members("type"), "grammar": members("type syntax definition")}),
        "defer_loading": _NATIVE,
    },
    "namespace": members("type name description tools"),
}
CHOICE_SHAPE = members("type mode tools")
# References to tools. In a list of allowed tools they have no namespace.
REFERENCE_SHAPE = members("type name namespace")
HOSTED_REFERENCE_SHAPE = members("type server_label")

# What Codex notes on each item for itself, as `client_metadata` on the request.
ITEM_METADATA = "internal_chat_message_metadata_passthrough"

# Input items, by their type. `id` is the item's id, `call_id` the call's. Custom calls have no status.
# `parsed_arguments` and `parsed` are what the parser of OpenAI's SDK adds to a response, from which clients send items
# back.
_CALL_ITEM: dict[str, Shape] = {
    **members("type call_id name id namespace status parsed_arguments"),
    "async": _NATIVE,
    "caller": _CALLER,
}
_CALL_OUTPUT: dict[str, Shape] = {
    **members("type call_id output id name namespace status"),
    "caller": _CALLER,
}
# Calls and results of tools that the client runs and whose form the vendor defines, of any kind.
_CLIENT_CALL: dict[str, Shape] = {
    **members("type id call_id action actions arguments operation status"),
    "caller": _CALLER,
    "pending_safety_checks": _NO_CHECKS,
    "environment": Setting(None, implied={"type": "local"}),
    "execution": Setting(None, implied="client"),
}
_CLIENT_OUTPUT: dict[str, Shape] = {
    **members("type id call_id output tools status"),
    "acknowledged_safety_checks": _NO_CHECKS,
    "execution": Setting(None, implied="client"),
    "caller": _CALLER,
    "max_output_length": _NATIVE,
}
_COMPACTION = members("type id encrypted_content")
_ITEMS: dict[str, dict[str, Shape]] = {
    "message": members("type role content id status phase"),
    "function_call": {**_CALL_ITEM, "arguments": None},
    "custom_tool_call": {**_CALL_ITEM, "input": None},
    "function_call_output": _CALL_OUTPUT,
    "custom_tool_call_output": _CALL_OUTPUT,
    # Summaries for people, content where the server shows it, ciphertext for the model.
    "reasoning": members("type id summary content encrypted_content status"),
    **dict.fromkeys(
        ("apply_patch_call", "computer_call", "local_shell_call", "shell_call", "tool_search_call"),
        _CLIENT_CALL,
    ),
    **dict.fromkeys(
        (
            "apply_patch_call_output",
            "computer_call_output",
            "local_shell_call_output",
            "tool_search_output",
        ),
        _CLIENT_OUTPUT,
    ),
    "shell_call_output": {
        **_CLIENT_OUTPUT,
        "output": [{**members("stdout stderr"), "outcome": members("type exit_code")}],
    },
    "compaction": _COMPACTION,
    "compaction_trigger": _COMPACTION,
    "configuration_update": {
        **members("type id"),
        "reasoning": members("effort"),
        "text": members("format"),
    },
    "additional_tools": members("type role tools id"),
}
INPUT_SHAPES = {kind: {**shape, ITEM_METADATA: None} for kind, shape in _ITEMS.items()}

# Content parts, by their type. A mark with other members than its ttl is not read.
_MARK: dict[str, Shape] = {
    "prompt_cache_breakpoint": OneOf(
        ({"mode": "explicit"}, *[{"mode": "explicit", "ttl": ttl} for ttl in CACHE_TTLS.values()])
    )
}
_NO_IMAGE_URL = TakenIf({"image_url": (None,)})
_TEXT_PART: dict[str, Shape] = {
    **members("type text annotations parsed"),
    "logprobs": Setting(None, implied=[]),
    **_MARK,
}
PART_SHAPES: dict[str, dict[str, Shape]] = {
    "output_text": _TEXT_PART,
    "refusal": members("type refusal"),
    "input_image": {**members("type image_url detail"), "file_id": _NO_IMAGE_URL, **_MARK},
    "input_file": {
        **members("type file_data filename detail"),
        "file_url": TakenIf({"file_data": (None,)}),
        "file_id": TakenIf({"file_data": (None,), "file_url": (None,)}),
        **_MARK,
    },
}
# The output of a computer.
SCREEN_SHAPE: dict[str, Shape] = {
    "type": OneOf(("computer_screenshot",)),
    "image_url": None,
    "file_id": _NO_IMAGE_URL,
}

DEFINED_MEMBERS = {
    **defined_members(
        REQUEST_SHAPE,
        REASONING_SHAPE,
        *TOOL_SHAPES.values(),
        *INPUT_SHAPES.values(),
        *PART_SHAPES.values(),
    ),
    "tool_choice": READ_IN_PART,
}

# Responses.

_NO_FIELD = "other protocols have no field for it"
_TOP = members("token bytes logprob")
_TOKEN: Shape = {**_TOP, "top_logprobs": [_TOP]}
_TEXT: Shape = {**members("type text annotations"), "logprobs": [_TOKEN]}
# Web pages have the first members, files the others.
ANNOTATION_SHAPE = members("type url title start_index end_index file_id filename index container_id")
_CALL: dict[str, Shape] = {
    **members("type id call_id name namespace status caller created_by"),
    "async": _NO_FIELD,
}
# Items of other types travel whole, and so does reasoning, in its signature.
ITEM_SHAPE: Shape = ByType(
    {
        "message": {
            **members("type id role status phase created_by"),
            "content": [ByType({"output_text": _TEXT, "refusal": members("type refusal")})],
        },
        "function_call": {**_CALL, "arguments": None},
        "custom_tool_call": {**_CALL, "input": None},
    }
)
_FILTERED = "other protocols report only that a response was stopped, not what was found in it"
RESPONSE_SHAPE: dict[str, Shape] = {
    # Echo of the request, and two settings of Chat.
    **dict.fromkeys((*REQUEST_SHAPE, "frequency_penalty", "presence_penalty")),
    # The server's own bookkeeping: OpenAI's, OpenRouter's and Groq's.
    **members("billing session_id x_groq"),
    **HOST_BOOKKEEPING,
    **members("completed_at created_at id model object output service_tier status"),
    "output_text": None,  # the SDK's own, all texts joined
    **members("input_transformations moderation prompt_cache_diagnostics system_fingerprint", _NO_FIELD),
    "content_filters": [  # Azure
        {
            **members("content_filter_offsets content_filter_raw source_type"),
            "blocked": _FILTERED,
            "content_filter_results": DroppedUnless(_FILTERED, frozenset(("safe",))),
        }
    ],
    "error": {**members("code message param"), "misalignment": _NO_FIELD},
    "incomplete_details": members("reason"),
    # Zeros if no images were made.
    "tool_usage": {
        "image_gen": "other protocols have no such counters",
        "web_search": members("num_requests"),
    },
    "usage": Counters(
        {
            **members("input_tokens output_tokens total_tokens"),
            "input_tokens_details": Counters(
                members(
                    "cached_tokens cache_write_tokens cache_write_tokens_details "
                    "cached_tokens_per_turn input_tokens_per_turn "  # vLLM: of each turn, and their sum without tools
                    "text_tokens"  # xAI, Qwen: the remainder of the total
                )
            ),
            "output_tokens_details": Counters(
                members(
                    "reasoning_tokens text_tokens "
                    "output_tokens_per_turn tool_output_tokens tool_output_tokens_per_turn"  # vLLM
                )
            ),
            # OpenRouter; xAI.
            **members("cost cost_details cost_in_nano_usd cost_in_usd_ticks", _NO_FIELD),
            **USAGE_BOOKKEEPING,
        }
    ),
}
# The members of the stream's events. Those about an item or part are repeated in the finished one.
EVENT_SHAPE = HOST_BOOKKEEPING | members(
    "annotation annotation_index arguments code content_index delta input item item_id logprobs name obfuscation "
    "output_index part refusal response sequence_number status summary_index text type"
)
