"""The responses of response_out.txt as the types and the accumulator of the official SDK read them."""

from typing import Any

import httpx2
import openai
import pytest
from core.rows import responses_of
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from dragoman._wire.sse import SSEParser

# The SDK has no types for these, or its parser of JSON refuses them.
UNKNOWN = ("# custom calls", "# moderation has", "# half a surrogate")
# Its helper raises its own error for them.
RAISES = (b'"finish_reason":"length"', b'"finish_reason":"content_filter"')
UNSENT = {"parsed": True, "tool_calls": {"__all__": {"index"}}}


def accumulated(stream: bytes) -> ChatCompletion:
    transport = httpx2.MockTransport(
        lambda _: httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=stream)
    )
    http_client = httpx2.Client(transport=transport)
    client = openai.OpenAI(api_key="k", base_url="http://gateway/v1", http_client=http_client)
    with client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "?"}]) as helper:
        return helper.get_final_completion()


def choices_of(completion: ChatCompletion) -> list[Any]:
    messages = [each.message.model_dump(exclude_none=True, exclude=UNSENT) for each in completion.choices]
    for message in messages:
        message["content"] = message.get("content") or None  # a stream begins with an empty text
    return [(each.finish_reason, message) for each, message in zip(completion.choices, messages, strict=True)]


def test_the_sdk_reads_stream_and_complete_response_alike(subtests: pytest.Subtests) -> None:
    compared = 0
    for row, response in responses_of("openai_chat"):
        if response.body and not row.heads[0].startswith(UNKNOWN):
            *chunks, done = SSEParser().receive_data(response.stream)
            assert done.data == b"[DONE]"
            for chunk in chunks:
                ChatCompletionChunk.model_validate_json(chunk.data, strict=True)
            whole = ChatCompletion.model_validate_json(response.body, strict=True)
            if not any(reason in response.stream for reason in RAISES):
                compared += 1
                with subtests.test(row.heads[0]):
                    assert choices_of(accumulated(response.stream)) == choices_of(whole)
    assert compared > 40
