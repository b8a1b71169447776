"""Every entry over all recordings is a true loss: something that a client of the other protocol could have used.

Each response goes to clients of both other protocols. What is recorded, by code and place, is in the list below with
the reason why it is a loss, and everything in the list is recorded somewhere.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

import corpus
import pytest
from oracle import CHAT, GEMINI, MESSAGES, PROTOCOL_NAMES, RESPONSES
from translation import client_request, translate_request

from dragoman import UPSTREAMS, ResponseTranslator

# (upstream, code, place) -> what is lost. `*` stands for a number.
TRUE_LOSSES: dict[tuple[str, str, str], str] = {
    # What a provider did on its own side: a client of another protocol carries it, but cannot read it.
    (MESSAGES, "wrapped", "/content/*"): "the blocks of the provider's own tools",
    (RESPONSES, "wrapped", "/output/*"): "the items of the provider's own tools",
    (GEMINI, "wrapped", "/candidates/*/content/parts/*"): "the parts of the provider's own tools",
    (GEMINI, "unknown_kind", "/candidates/*/urlContextMetadata"): "which pages were fetched",
    (GEMINI, "unknown_kind", "/candidates/*/groundingMetadata"): "what was searched, where nothing is cited",
    (CHAT, "altered", "/choices/*/message/executed_tools"): "what the tools gave back; searches are told",
    (RESPONSES, "dropped", "/output/*/partial_images"): "pictures that are not finished",
    (MESSAGES, "dropped", "/container"): "the container, which a later request could use again",
    # Citations.
    (MESSAGES, "altered", "/content/*/citations"): "the cited words",
    (CHAT, "altered", "/choices/*/message/annotations"): "the words of the page; where in the text they stand",
    (RESPONSES, "altered", "/output/*/content/*/annotations"): "where in the text the citation stands",
    (RESPONSES, "dropped", "/output/*/content/*/annotations"): "a citation of a file",
    (GEMINI, "altered", "/candidates/*/groundingMetadata/groundingSupports"): "how sure the source is",
    # What only the one protocol can express of a response.
    (CHAT, "dropped", "/choices/*"): "the other alternatives",
    (CHAT, "dropped", "/content/*/logprobs"): "log probabilities, which were asked for",
    (CHAT, "altered", "/logprobs"): "the bytes of the tokens",
    (MESSAGES, "dropped", "/candidates/*/content/parts/*"): "a call that was cut off",
    (MESSAGES, "dropped", "/content/*/caller"): "the call came from a program, which waits for its result",
    (RESPONSES, "dropped", "/output/*/caller"): "the call came from a program, which waits for its result",
    (RESPONSES, "wrapped", "/phase"): "whether it is a comment or the answer; wanted back",
    # How it ended.
    (MESSAGES, "altered", "/choices/*/finish_reason"): "that the model paused and is to be asked again",
    (MESSAGES, "altered", "/candidates/*/finishReason"): "that the model paused and is to be asked again",
    (MESSAGES, "altered", "/status"): "that the model paused and is to be asked again",
    (MESSAGES, "dropped", "/stop_sequence"): "which stop sequence matched",
    (MESSAGES, "dropped", "/stop_details/category"): "why it was refused",
    (MESSAGES, "dropped", "/stop_details/recommended_model"): "which model would answer",
    (MESSAGES, "dropped", "/stop_details/fallback_credit_token"): "is worth money in a later request",
    (MESSAGES, "dropped", "/stop_details/fallback_has_prefill_claim"): "belongs to the token",
    (GEMINI, "dropped", "/promptFeedback/blockReason"): "why it was refused",
    # What it cost.
    (MESSAGES, "altered", "/usage/*_tokens"): "another figure than the upstream's: the sum over its iterations",
    (MESSAGES, "dropped", "/usage/iterations"): "the figures of each iteration, and its model",
    (MESSAGES, "dropped", "/usage/cache_creation"): "how long the written cache lives, which has its price",
    (MESSAGES, "dropped", "/usage/server_tool_use/web_fetch_requests"): "fetches, which have their price",
    (MESSAGES, "dropped", "/usage/cache_write"): "what was written to a cache, which has its price",
    (MESSAGES, "dropped", "/usage/searches"): "searches, which have their price",
    (CHAT, "dropped", "/usage/searches"): "searches, which have their price",
    (GEMINI, "dropped", "/usageMetadata/promptTokensDetails/*/modality"): "modalities have their prices",
    (GEMINI, "dropped", "/usageMetadata/cacheTokensDetails/*/modality"): "modalities have their prices",
    (CHAT, "estimated", "/usage"): "the upstream told none",
    (GEMINI, "estimated", "/usage"): "the upstream told none",
    (CHAT, "altered", "/choices/*/finish_reason"): "the server ended its response without one",
    (CHAT, "altered", "/usage"): "reasoning was counted beside the output, and is lowered to it",
    (CHAT, "dropped", "/usage/cost"): "its price",
    (CHAT, "dropped", "/usage/cost_details"): "what the price consists of",
    (CHAT, "dropped", "/usage/cost_in_usd_ticks"): "its price",
    (CHAT, "dropped", "/usage/market_cost"): "its price elsewhere",
    # Where and by what it was made.
    (MESSAGES, "dropped", "/usage/inference_geo"): "the region, which a client may have to know",
    (CHAT, "dropped", "/system_fingerprint"): "the configuration, on which repeatable results depend",
}  # fmt: skip

Entered = dict[tuple[str, str, str], list[str]]


def translators() -> Iterator[tuple[str, str, bytes, ResponseTranslator]]:
    """Give name, upstream and bytes of each response, with its translator, once for each foreign client."""
    responses: list[tuple[Any, bytes, bool]] = [(each, each.read(), True) for each in corpus.recordings()]
    responses += [(each, each.body, False) for each in corpus.equivalents() if each.status == 200]
    # An error may come with status 200, or in the place of a stream.
    responses += [(each, each.body, False) for each in corpus.errors()]
    for response, data, streams in responses:
        for client in PROTOCOL_NAMES:
            if client != response.protocol:
                body = client_request(client, response.protocol, response.request, stream=streams)
                context = translate_request(client, response.protocol, body, streams=streams)
                translator = ResponseTranslator(
                    client=UPSTREAMS[client],
                    upstream=UPSTREAMS[response.protocol],
                    context=context,
                    upstream_streams=streams,
                )
                yield f"{response.name} to {client}", response.protocol, data, translator


@cache
def entered() -> Entered:
    """Return the names of the responses that record each place."""
    found: Entered = defaultdict(list)
    for name, upstream, data, translator in translators():
        translator.receive_data(data)
        translator.receive_eof()
        for loss in translator.losses:
            place = re.sub(r"/\d+(?=/|$)", "/*", loss.path)
            place = re.sub(r"/usage/\w+_tokens$", "/usage/*_tokens", place)
            found[upstream, loss.code.value, place].append(name)
    return dict(found)


def test_no_entry_is_false() -> None:
    false = {key: names for key, names in entered().items() if key not in TRUE_LOSSES}
    assert false == {}


@pytest.mark.parametrize("loss", TRUE_LOSSES, ids=lambda loss: "-".join(loss))
def test_every_true_loss_is_entered(loss: tuple[str, str, str]) -> None:
    assert entered().get(loss)
