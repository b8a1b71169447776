"""What a context window leaves for the output behind a prompt."""

import pytest

from dragoman.codec import Capabilities
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities

K = 1024


def test_those_of_another_protocol_are_refused() -> None:
    with pytest.raises(TypeError, match="max_tokens_field"):
        ChatCapabilities().as_type(MessagesCapabilities)


@pytest.mark.parametrize(
    ("window", "most", "tokens", "limit"),
    [
        (None, None, 10**6, None),
        (None, 9, 10**6, 9),
        # A tenth of the prompt is added to it, and the room is rounded down.
        (64 * K, None, 50_000, 8 * K),
        (64 * K, None, 0, 64 * K),
        (64 * K, None, 10, 60 * K),
        (100_000, None, 40_000, 53_248),
        # What the model accepts anyway stays.
        (64 * K, 16_384, 40_000, 16_384),
        (64 * K, 16_384, 50_000, 8 * K),
        # Room for too little changes nothing.
        (64 * K, 16_384, 55_854, 4 * K),
        (64 * K, 16_384, 55_856, 16_384),
        (64 * K, None, 10**6, None),
        # Of a small window, an eighth is enough.
        (8 * K, None, 5000, 2 * K),
        (8 * K, 4096, 6517, K),
        (8 * K, 4096, 6518, 4096),
        (1, None, 0, None),
    ],
)
def test_the_limit_behind_a_prompt(
    window: int | None, most: int | None, tokens: int, limit: int | None
) -> None:
    capabilities = Capabilities(context_window=window, max_output_tokens=most)
    found = capabilities.for_prompt(tokens)
    assert found.max_output_tokens == limit
    assert (found is capabilities) is (most == limit)
