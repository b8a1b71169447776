"""Probes for every chunk, delta and member that servers of Chat Completions stream."""

from __future__ import annotations

from typing import Any

from fidelity.probe import DATA, PICTURE, Body, Json, Probe, probe

_OURS = "the client is told the gateway's own"
_BOOKKEEPING = "the server's own bookkeeping"
_FULL = "follows from the other figures"
_FIRST = {"role": "assistant", "content": "", "refusal": None}
_USAGE = {"prompt_tokens": 90, "completion_tokens": 40, "total_tokens": 130}


def _chunk(choices: list[Body], **fields: Any) -> Body:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**head, "choices": choices, **fields}


def _choice(delta: Body, finish: str | None = None, **fields: Any) -> Body:
    return {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None, **fields}


_WORDS = _chunk([_choice({"content": "Well"})])


def _stream(*middle: Json, finish: Body | None = None, usage: Body | None = None, **head: Any) -> list[Json]:
    """Return the frames: the role, `middle` with the subject at 1, a word of text, the finish, the usage."""
    return [
        _chunk([_choice(_FIRST)], **head),
        *middle,
        _WORDS,
        _chunk([finish or _choice({}, "stop")]),
        _chunk([], usage=usage or _USAGE),
        "[DONE]",
    ]


_DELTA = "/1/choices/0/delta"


def _delta(name: str, called: str = "", **delta: Any) -> Probe:
    body = _stream(_chunk([_choice(delta)]))
    return probe("Deltas", called or f"`{name}`", body, f"{_DELTA}/{name}")


def _call(called: str, **call: Any) -> Probe:
    finish = _choice({}, "tool_calls")
    body = _stream(_chunk([_choice({"tool_calls": [{"index": 0, **call}]})]), finish=finish)
    return probe("Deltas", called, body, f"{_DELTA}/tool_calls")


def _entry(**entry: Any) -> Probe:
    called = f"`{entry['type']}` of `{entry['format']}` in `reasoning_details`"
    return _delta("reasoning_details", called, reasoning_details=[entry])


def _on_chunk(name: str, value: Any, *, nothing: str = "") -> Probe:
    body = _stream(**{name: value})
    return probe(
        "Chunks", f"`{name}`", body, f"/0/{name}", swap="other" if nothing else None, nothing=nothing
    )


def _on_choice(name: str, value: Any, *, nothing: str = "") -> Probe:
    body = _stream(finish=_choice({}, "stop", **{name: value}))
    return probe("Choices", f"`{name}`", body, f"/2/choices/0/{name}", nothing=nothing)


def _without_words(stream: list[Json]) -> list[Json]:
    """Drop the text, because an item that is cut reports that itself, before the response does."""
    return [each for each in stream if each != _WORDS]


def _finish(reason: str, called: str = "", **fields: Any) -> Probe:
    body = _without_words(_stream(finish=_choice({}, reason, **fields)))
    other = "length" if reason in ("stop", "eos", "end_turn") else "stop"
    return probe("Finish reasons", called or f"`{reason}`", body, "/1/choices/0/finish_reason", swap=other)


def _usage(path: str, value: int, *, of: Body = _USAGE, nothing: str = "", **more: Any) -> Probe:
    *way, last = path.split(".")
    whole = {**of, **more, way[0]: {last: value}} if way else {**of, **more, last: value}
    place = f"/3/usage/{path.replace('.', '/')}"
    body = _stream(usage=whole)
    swap = {"swap": 1} if last in of else {}
    return probe("Usage", f"`{path}`", body, place, nothing=nothing, **swap)


_TOKEN = {
    "token": "Zqtoken",
    "bytes": [87],
    "logprob": -0.5,
    "top_logprobs": [{"token": "Zqother", "bytes": [88], "logprob": -1.5}],
}
_CITATION = {
    "type": "url_citation",
    "url_citation": {
        "url": "https://example.com/Zqurl",
        "title": "Zqtitle",
        "start_index": 0,
        "end_index": 4,
    },
}
_FUNCTION = {"name": "Zqname", "arguments": '{"city":"Zqcity"}'}

CHUNKS = [
    probe(
        "Chunks",
        "`id`, `created`, `model`",
        [
            {**frame, "id": "Zqid", "model": "Zqmodel"} if isinstance(frame, dict) else frame
            for frame in _stream()
        ],
        "/0/id",
        swap="chatcmpl-1",
        nothing=_OURS,
    ),
    probe(
        "Chunks",
        "`choices` with an index above 0",
        _stream(_chunk([_choice({"content": "Zqother"}, "stop", index=1)])),
        "/1/choices/0",
        swap=_choice({}),
    ),
    _on_chunk("service_tier", "priority"),
    _on_chunk("system_fingerprint", "Zqprint", nothing=_BOOKKEEPING),
    _on_chunk("moderation", {"input": {"type": "error", "code": "c", "message": "Zqwhy"}, "output": None}),
    _on_chunk("obfuscation", "Zqpadding", nothing="padding against eavesdroppers"),
    _on_chunk("citations", ["https://example.com/Zqurl"]),
    _on_chunk("search_results", [{"title": "Zqtitle", "url": "https://example.com/Zqurl"}]),
    _on_chunk("provider", "Zqprovider", nothing=_BOOKKEEPING),
    _on_chunk("x_field", "Zqfield"),
    probe(
        "Chunks",
        "`error`",
        [
            *_stream()[:2],
            {"error": {"message": "Zqwhy", "type": "server_error", "code": None, "param": None}},
        ],
        "/2/error",
        needed=True,
    ),
]

DELTAS = [
    probe(
        "Deltas",
        "`role`",
        _stream(),
        "/0/choices/0/delta/role",
        nothing="has one value, assistant",
    ),
    _delta("content", content="Zqwords"),
    _delta("content", "`content` as a list", content=[{"type": "text", "text": "Zqwords"}]),
    _delta(
        "content",
        "`thinking` in a list of `content`",
        content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Zqthought"}], "closed": True}],
    ),
    _delta("refusal", refusal="Zqrefusal"),
    _call("`tool_calls`: `function`", id="Zqid", type="function", function=_FUNCTION),
    _call("`tool_calls`: `custom`", id="Zqid", type="custom", custom={"name": "Zqname", "input": "Zqinput"}),
    probe(
        "Deltas",
        "`function_call`",
        _stream(_chunk([_choice({"function_call": _FUNCTION})]), finish=_choice({}, "function_call")),
        f"{_DELTA}/function_call",
    ),
    _delta("audio", audio={"id": "Zqaudio", "data": DATA, "transcript": "Zqspoken", "expires_at": 9}),
    probe(
        "Deltas",
        "`annotations`",
        _stream(
            _chunk([_choice({"content": "Good "})]),
            _chunk([_choice({"annotations": [_CITATION]})]),
        ),
        "/2/choices/0/delta/annotations",
    ),
    _delta("reasoning_content", reasoning_content="Zqthought"),
    _delta("reasoning", reasoning="Zqthought"),
    _entry(type="reasoning.text", text="Zqthought", format="unknown", index=0),
    _entry(
        type="reasoning.text", text="Zqthought", signature="Zqsign", format="anthropic-claude-v1", index=0
    ),
    _entry(type="reasoning.summary", summary="Zqshort", format="openai-responses-v1", index=0),
    _entry(type="reasoning.encrypted", data="Zqcipher", id="Zqid", format="openai-responses-v1", index=0),
    _delta(
        "thinking_blocks",
        thinking_blocks=[
            {"type": "thinking", "thinking": "Zqthought", "signature": "Zqsign"},
            {"type": "redacted_thinking", "data": "Zqcipher"},
        ],
    ),
    _delta("images", images=[{"type": "image_url", "image_url": {"url": PICTURE}}]),
    _delta("x_field", x_field="Zqfield"),
]

CHOICES = [
    probe(
        "Choices",
        "`logprobs.content`",
        _stream(_chunk([_choice({"content": "Good "}, logprobs={"content": [_TOKEN]})])),
        "/1/choices/0/logprobs/content",
    ),
    probe(
        "Choices",
        "`logprobs.refusal`",
        _stream(_chunk([_choice({"refusal": "No "}, logprobs={"refusal": [_TOKEN]})])),
        "/1/choices/0/logprobs/refusal",
    ),
    _on_choice("stop_reason", "Zqstop"),
    _on_choice("native_finish_reason", "Zqnative", nothing=_BOOKKEEPING),
    _on_choice("content_filter_results", {"hate": {"filtered": False, "severity": "Zqmild"}}),
]

FINISHES = [
    _finish("stop"),
    _finish("length"),
    _finish("content_filter"),
    _finish("error"),
    _finish("eos"),
    _finish("end_turn"),
    probe(
        "Finish reasons",
        "`tool_calls`",
        _without_words(
            _stream(
                _chunk(
                    [
                        _choice(
                            {
                                "tool_calls": [
                                    {"index": 0, "id": "call_1", "type": "function", "function": _FUNCTION}
                                ]
                            }
                        )
                    ]
                ),
                finish=_choice({}, "tool_calls"),
            )
        ),
        "/2/choices/0/finish_reason",
        swap="length",
    ),
]

USAGES = [
    _usage("prompt_tokens", 91),
    _usage("completion_tokens", 41),
    _usage("total_tokens", 132, nothing=_FULL),
    _usage("prompt_tokens_details.cached_tokens", 20),
    _usage("prompt_tokens_details.cache_write_tokens", 10),
    _usage("prompt_tokens_details.audio_tokens", 3),
    _usage("prompt_tokens_details.image_tokens", 3),
    _usage("prompt_tokens_details.text_tokens", 3, nothing=_FULL),
    _usage("completion_tokens_details.reasoning_tokens", 30),
    _usage("completion_tokens_details.accepted_prediction_tokens", 3),
    _usage("completion_tokens_details.rejected_prediction_tokens", 3),
    _usage("completion_tokens_details.audio_tokens", 3),
    _usage("completion_tokens_details.text_tokens", 3, nothing=_FULL),
    _usage("prompt_cache_hit_tokens", 20),
    _usage("prompt_cache_miss_tokens", 70, prompt_cache_hit_tokens=20, nothing=_FULL),
    _usage("cache_read_input_tokens", 20),
    _usage("cache_creation_input_tokens", 10),
    _usage("cost", 7, nothing=_BOOKKEEPING),
]

ANSWERS: list[Probe] = [*CHUNKS, *DELTAS, *CHOICES, *FINISHES, *USAGES]
