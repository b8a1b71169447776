"""The lists of models, as the vendors' SDKs read them, of a gateway whose upstreams list theirs over HTTP."""

import json

import anthropic
import openai
import pytest
from oracle import CHAT, MESSAGES, RESPONSES
from sdk_clients.processes import ALIAS, SDK_PROTOCOLS, UPSTREAMS, Simulator
from sdk_clients.sdk import Sdk

pytestmark = pytest.mark.process

# In each upstream's own table; other models are requested from it.
CONFIGURED = ("echo", "tools")


@pytest.fixture(scope="session")
def listed(simulator: Simulator) -> list[str]:
    """All names, in order. The configured ones lead to the first upstream that has them."""
    simulated = [model["id"] for model in json.loads(simulator.get("/v1/models"))["data"]]
    requested = [name for name in simulated if name not in CONFIGURED]
    assert len(requested) > len(CONFIGURED)
    names = [ALIAS]
    for upstream in UPSTREAMS.values():
        for name in CONFIGURED:
            names += [name] * (upstream == UPSTREAMS[CHAT]) + [f"{upstream}/{name}"]
        names += [f"{upstream}/{name}" for name in requested]
    return names


@pytest.mark.parametrize("protocol", SDK_PROTOCOLS)
def test_the_models_are_listed(sdk: Sdk, protocol: str, listed: list[str]) -> None:
    assert sdk.models(protocol) == listed


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_the_sdk_turns_anthropics_pages(sdk: Sdk, listed: list[str], limit: int) -> None:
    client: anthropic.Anthropic = sdk.client(MESSAGES)
    assert [model.id for model in client.models.list(limit=limit)] == listed
    backwards = client.models.list(limit=limit, before_id=listed[-1])
    assert [model.id for model in backwards.data] == listed[:-1][-limit:]
    assert backwards.has_more == (limit < len(listed) - 1)


def test_a_model_is_shown_in_the_sdks_own_types(sdk: Sdk) -> None:
    one: openai.types.Model = sdk.client(CHAT).models.retrieve("messages/custom")
    assert (one.id, one.object, one.owned_by) == ("messages/custom", "model", "messages")
    other: anthropic.types.ModelInfo = sdk.client(MESSAGES).models.retrieve("messages/custom")
    assert (other.id, other.type, other.lifecycle) == ("messages/custom", "model", "active")
    assert int(other.created_at.timestamp()) == one.created > 0


@pytest.mark.parametrize("protocol", [CHAT, MESSAGES, RESPONSES])
def test_an_unknown_model_is_not_found(sdk: Sdk, protocol: str) -> None:
    errors = {MESSAGES: anthropic.NotFoundError}
    with pytest.raises(errors.get(protocol, openai.NotFoundError), match="nobody/echo"):
        sdk.client(protocol).models.retrieve("nobody/echo")
