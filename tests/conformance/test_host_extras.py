"""Bookkeeping that hosts add to responses is no loss; an unknown member is one, with its path."""

import copy
import json
from typing import Any

import pytest
from laws.extras import EXTRAS
from laws.pairs import requested
from laws.plant import steps_of
from oracle import CHAT, MESSAGES, PROTOCOL_NAMES, RESPONSES
from oracle import samples as s

from dragoman import UPSTREAMS, ResponseTranslator

Body = dict[str, Any]

_TEXT = {"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}
PLAIN: dict[str, Body] = {
    CHAT: {
        **s.chunk(),
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9},
    },
    MESSAGES: s.message(
        content=[{"type": "text", "text": "Hi"}],
        stop_reason="end_turn",
        usage={"input_tokens": 5, "output_tokens": 4},
    ),
    RESPONSES: {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m",
        "output": [
            {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [_TEXT]}
        ],
        "usage": {"input_tokens": 5, "output_tokens": 4, "total_tokens": 9},
    },
}


def with_member(body: Body, path: str, value: Any) -> Body:
    body = copy.deepcopy(body)
    holder: Any = body
    *way, last = steps_of(path)
    for step in way:
        holder = holder[int(step)] if isinstance(holder, list) else holder.setdefault(step, {})
    holder[last] = value
    return body


def frames_of(protocol: str, body: Body) -> list[Any]:
    """The response as a stream."""
    if protocol == CHAT:
        choice = dict(body["choices"][0])
        choice["delta"] = choice.pop("message")
        ends = {**body, "choices": [{"index": 0, "delta": {}, "finish_reason": choice.pop("finish_reason")}]}
        return [{**body, "choices": [choice]}, ends, "[DONE]"]
    if protocol == MESSAGES:
        late = {name: body[name] for name in ("stop_reason", "stop_sequence", "stop_details")}
        return [
            {"type": "message_start", "message": {**body, "content": [], **dict.fromkeys(late)}},
            s.start(0, **body["content"][0]),
            s.stop(0),
            {"type": "message_delta", "delta": late, "usage": body["usage"]},
            {"type": "message_stop"},
        ]
    return [
        {"type": "response.created", "response": {**body, "status": "in_progress", "output": []}},
        {"type": "response.output_item.done", "output_index": 0, "item": body["output"][0]},
        {"type": "response.completed", "response": body},
    ]


def entered(upstream: str, client: str, body: Body, *, streams: bool) -> list[tuple[str, str]]:
    """Code and place of all that a response loses on its way to a client."""
    translator = ResponseTranslator(
        client=UPSTREAMS[client],
        upstream=UPSTREAMS[upstream],
        context=requested(client, streams=False),
        upstream_streams=streams,
    )
    data = s.render(upstream, frames_of(upstream, body)) if streams else json.dumps(body).encode()
    translator.receive_data(data)
    translator.receive_eof()
    assert translator.error is None
    return [(loss.code.value, loss.path) for loss in translator.losses]


FOREIGN = [(upstream, client) for upstream in EXTRAS for client in PROTOCOL_NAMES if client != upstream]


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("upstream", "client"), FOREIGN)
def test_bookkeeping_of_hosts_is_no_loss(upstream: str, client: str, streams: bool) -> None:
    found = {
        path: losses
        for path, value in EXTRAS[upstream]
        if (losses := entered(upstream, client, with_member(PLAIN[upstream], path, value), streams=streams))
    }
    assert found == {}


# Places of members of hosts, and known members with values that matter.
REPORTED: dict[str, list[tuple[str, Any, str]]] = {
    CHAT: [
        ("/odd", 0, "unknown_field"),
        ("/system_fingerprint", "fp_1", "dropped"),
        ("/usage/cost", 0.0012, "dropped"),
        ("/usage/cost_details", {"upstream_inference_cost": 0.001}, "dropped"),
        ("/usage/odd", 3, "unknown_field"),
        ("/usage/prompt_tokens_details/odd", 3, "unknown_field"),
        ("/choices/0/odd", "a", "unknown_field"),
        ("/choices/0/message/odd", [], "unknown_field"),
        ("/choices/0/message/provider_metadata/odd", {}, "unknown_field"),
        ("/choices/0/message/provider_metadata/google/groundingMetadata", {"chunks": [1]}, "dropped"),
        ("/choices/0/message/graph_data", {"sources": ["a"]}, "dropped"),
        ("/choices/0/message/provider_specific_fields", {"citations": ["a"]}, "dropped"),
        ("/choices/0/content_filter_results", {"hate": {"filtered": True, "severity": "safe"}}, "dropped"),
        ("/choices/0/content_filter_results", {"hate": {"filtered": False, "severity": "low"}}, "dropped"),
        ("/x_groq/odd", 1, "unknown_field"),
    ],
    MESSAGES: [
        ("/odd", 0, "unknown_field"),
        ("/system_fingerprint", "fp_1", "dropped"),
        ("/usage/cost", 0.0012, "dropped"),
        ("/usage/cost_details", {"upstream_inference_cost": 0.001}, "dropped"),
        ("/usage/odd", 3, "unknown_field"),
        ("/usage/inference_geo", "global", "dropped"),
        ("/usage/server_tool_use/odd", 3, "unknown_field"),
        ("/usage/server_tool_use/web_fetch_requests", 3, "dropped"),
        ("/usage/output_tokens_details/odd", 3, "unknown_field"),
        ("/container", {"id": "c"}, "dropped"),
        ("/context_management", {"applied_edits": [{"cleared_input_tokens": 3}]}, "dropped"),
        ("/content/0/odd", [], "unknown_field"),
    ],
    RESPONSES: [
        ("/odd", 0, "unknown_field"),
        ("/system_fingerprint", "fp_1", "dropped"),
        ("/usage/cost", 0.0012, "dropped"),
        ("/usage/cost_details", {"upstream_inference_cost": 0.001}, "dropped"),
        ("/usage/odd", 3, "unknown_field"),
        ("/usage/input_tokens_details/odd", 3, "unknown_field"),
        ("/output/0/odd", False, "unknown_field"),
        ("/output/0/content/0/odd", False, "unknown_field"),
        ("/tool_usage/image_gen", {"total_tokens": 3}, "dropped"),
        ("/content_filters", [{"blocked": True}], "dropped"),
    ],
}


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("upstream", "client"), FOREIGN)
def test_meaningful_extras_are_losses_at_their_path(upstream: str, client: str, streams: bool) -> None:
    wrong = {}
    for path, value, code in REPORTED[upstream]:
        losses = entered(upstream, client, with_member(PLAIN[upstream], path, value), streams=streams)
        inside = path + "/0/blocked" if path == "/content_filters" else path
        if losses != [(code, inside)]:
            wrong[path] = losses
    assert wrong == {}


# A response that is an error: all its content is in the error, and the host's own members are no loss either.
ERRORS: dict[str, tuple[Body, list[Any]]] = {
    CHAT: (
        {"error": {"message": "Busy.", "code": 502, "metadata": {"provider_name": "a"}}, "user_id": "u"},
        [
            s.chunk({"role": "assistant", "content": "Hi"}),
            {
                **s.chunk({"content": ""}, "error"),
                "provider": "Someone",
                "error": {"message": "Busy.", "code": 502},
            },
        ],
    ),
    MESSAGES: (
        {"type": "error", "error": {"type": "overloaded_error", "message": "Busy."}, "request_id": "req_1"},
        [
            {"type": "message_start", "message": s.message()},
            {"type": "error", "error": {"type": "overloaded_error", "message": "Busy."}, "request_id": "r"},
        ],
    ),
    RESPONSES: (
        {
            **PLAIN[RESPONSES],
            "status": "failed",
            "output": [],
            "billing": {"payer": "a"},
            "error": {"code": "server_error", "message": "Busy."},
        },
        [
            {
                "type": "error",
                "error": {"type": "t", "code": "server_error", "message": "Busy.", "param": None},
            }
        ],
    ),
}


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("upstream", "client"), FOREIGN)
def test_errors_record_no_loss(upstream: str, client: str, streams: bool) -> None:
    body, frames = ERRORS[upstream]
    translator = ResponseTranslator(
        client=UPSTREAMS[client],
        upstream=UPSTREAMS[upstream],
        context=requested(client, streams=False),
        upstream_streams=streams,
    )
    translator.receive_data(
        s.render(upstream, copy.deepcopy(frames)) if streams else json.dumps(body).encode()
    )
    translator.receive_eof()
    assert "Busy." in translator.error.message
    assert list(translator.losses) == []
