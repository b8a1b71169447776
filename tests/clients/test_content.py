"""Typed responses, images, refusals and early ends through the official SDKs, over all pairs of protocols."""

from typing import Any

import openai
import pytest
from oracle import CHAT, GEMINI, MESSAGES, RESPONSES, Kind, Stop
from pydantic import BaseModel
from sdk_clients.processes import Pair
from sdk_clients.sdk import Sdk, Way, body_of, send

from dragoman_server.simulator.scripts import REFUSAL_TEXT

pytestmark = pytest.mark.process


class Stage(BaseModel):
    start: str
    days: int


class Journey(BaseModel):
    city: str
    stages: list[Stage]


JOURNEY = Journey(city="some city", stages=[Stage(start="some start", days=1)])

# The name under which each SDK's helpers take a type.
TYPED = {CHAT: "response_format", MESSAGES: "output_format", RESPONSES: "text_format"}


def parsed(protocol: str, response: Any) -> Any:
    if protocol == CHAT:
        return response.choices[0].message.parsed
    return response.parsed_output if protocol == MESSAGES else response.output_parsed


def test_a_typed_response(pair: Pair, sdk: Sdk) -> None:
    body = body_of(pair.client, pair.model("json"), "Plan it") | {TYPED[pair.client]: Journey}
    for helper in (sdk.parse, sdk.final):
        assert parsed(pair.client, helper(pair.client, body)) == JOURNEY


@pytest.mark.parametrize("way", [Way.WHOLE, Way.EVENTS], ids=["whole", "events"])
def test_a_refusal(pair: Pair, sdk: Sdk, way: Way) -> None:
    """OpenAI's protocols have a place for it; in the others the stop reason makes a refusal of the text."""
    response = send(sdk, pair.client, way, body_of(pair.client, pair.model("refusal"), "Help me"))
    meaning = response.meaning
    if MESSAGES in pair or GEMINI in pair:
        assert meaning.text(Kind.TEXT) == REFUSAL_TEXT
        assert meaning.stop is Stop.FILTER
    else:
        assert meaning.text(Kind.REFUSAL) == REFUSAL_TEXT
        assert meaning.stop is Stop.END


@pytest.mark.parametrize("way", [Way.WHOLE, Way.EVENTS], ids=["whole", "events"])
def test_a_response_that_ends_early(pair: Pair, sdk: Sdk, way: Way) -> None:
    for model, stop, output in (("length", Stop.LENGTH, 50), ("filter", Stop.FILTER, 20)):
        response = send(sdk, pair.client, way, body_of(pair.client, pair.model(model), "Tell me all"))
        assert response.meaning.stop is stop
        assert response.meaning.text(Kind.TEXT).startswith("A stood court")
        assert response.meaning.usage.output == output


HELPERS_ERROR: dict[str, type[Exception]] = {CHAT: openai.LengthFinishReasonError, RESPONSES: RuntimeError}


def test_the_stream_helper_sees_the_limit(pair: Pair, sdk: Sdk) -> None:
    """OpenAI's helpers raise their own errors for it, Anthropic's returns the response."""
    body = body_of(pair.client, pair.model("length"), "Tell me all")
    if pair.client == MESSAGES:
        assert sdk.final(pair.client, body).stop_reason == "max_tokens"
        return
    with pytest.raises(HELPERS_ERROR[pair.client], match=r"length limit|response\.completed"):
        sdk.final(pair.client, body)
