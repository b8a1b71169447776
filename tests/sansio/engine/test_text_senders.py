"""Arguments of tools that the client gets in another form: many deltas in one read give what one in each read gives."""

import json

import pytest

from dragoman import RequestTranslator, ResponseTranslator

PAIR = {"client": "openai_responses", "upstream": "openai_chat"}

# A tool of the client's request, and the arguments that the model writes for the function in its place. Those of the
# first are unwrapped as they come, beginning with nothing; the call of the second is written when it is complete.
CASES = {
    "a free-text tool": ({"type": "custom", "name": "run"}, "run", '{     "input": "ls -l"}'),
    "a tool that the client runs": (
        {"type": "apply_patch"},
        "apply_patch",
        '{"type": "delete_file", "path": "a"}',
    ),
}


def chunk(delta: dict[str, object], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    document = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def translated(tool: dict[str, object], reads: list[bytes]) -> bytes:
    request = json.dumps({"model": "m", "input": "Hi", "stream": True, "tools": [tool]}).encode()
    context = RequestTranslator(**PAIR).translate(request).response_context(id="a", now=1)
    machine = ResponseTranslator(**PAIR, context=context)
    for data in reads:
        machine.receive_data(data)
    machine.receive_eof()
    assert machine.error is None
    return machine.data_to_send()


@pytest.mark.parametrize(("tool", "name", "arguments"), CASES.values(), ids=CASES)
def test_many_deltas_in_one_read(tool: dict[str, object], name: str, arguments: str) -> None:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": ""}}
    deltas = [
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": character}}]}) for character in arguments
    ]
    start = chunk({"tool_calls": [call]})
    end = chunk({}, "tool_calls") + b"data: [DONE]\n\n"
    one_by_one = translated(tool, [start, *deltas, end])
    assert translated(tool, [start, b"".join(deltas[:5]), b"".join(deltas[5:]), end]) == one_by_one
    assert translated(tool, [b"".join([start, *deltas, end])]) == one_by_one
    assert b"response.completed" in one_by_one
