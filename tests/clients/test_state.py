"""Stored responses and counts through the official SDKs, against real processes.

The gateway has two workers that share one file, so a conversation goes on wherever its next request arrives.
Behind it is another gateway, which stands in for an upstream that counts tokens itself.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from command.process import GatewayProcess
from oracle import GEMINI, MESSAGES, RESPONSES
from sdk_clients.processes import UPSTREAMS, Gateway, Simulator
from sdk_clients.sdk import TIMEOUT_S, sync_sdk

from dragoman import UPSTREAMS as SPECS

pytestmark = pytest.mark.process

LONG = "some words of instruction " * 100
TOOL: dict[str, Any] = {"type": "object", "properties": {}}
# The protocols of upstreams that count.
COUNTING = (MESSAGES, RESPONSES, GEMINI)


class StatefulGateway(GatewayProcess):
    """A running `dragoman serve` with a response store, in front of a simulator and of another gateway."""

    def __init__(
        self, directory: Path, simulator: Simulator, behind: Gateway, backend: str, workers: int = 2
    ) -> None:
        file = directory / "dragoman.toml"
        lines = [
            "[server]",
            "simulator = false",
            'log_level = "warning"',
            'response_store = "sqlite"',
            'response_store_path = "responses.db"',
            'secret = "a-secret-of-some-length-0123456789"',
        ]
        for name, protocol, port, more in (
            *((name, protocol, simulator.port, "") for protocol, name in UPSTREAMS.items()),
            *(
                (f"counting-{UPSTREAMS[each]}", each, behind.port, "counts_tokens = true")
                for each in COUNTING
            ),
        ):
            base = f"http://127.0.0.1:{port}" + SPECS[protocol].base_path
            lines += [
                "[[upstreams]]",
                f'name = "{name}"',
                f'protocol = "{protocol}"',
                f'base_url = "{base}"',
                more,
            ]
        file.write_text("\n".join(lines))
        super().__init__("--config", str(file), "--backend", backend, "--workers", str(workers))


@pytest.fixture(scope="module")
def stateful_on(
    simulator: Simulator, gateway_on: Callable[[str], Gateway], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], StatefulGateway]]:
    """Starts the gateway on a backend, once. At the end none of them may have logged a traceback."""
    started: list[StatefulGateway] = []
    with ExitStack() as stack:

        @cache
        def start(backend: str) -> StatefulGateway:
            folder = tmp_path_factory.mktemp(backend)
            # What workers share is a file, so they are several on one event loop.
            workers = 2 if backend == "asyncio" else 1
            stateful = StatefulGateway(folder, simulator, gateway_on("asyncio"), backend, workers)
            stack.enter_context(stateful)
            started.append(stateful)
            stateful.ready()
            return stateful

        yield start
    for stateful in started:
        text = "\n".join(stateful.output)
        assert "Traceback" not in text, text


@pytest.fixture
def url(backend: str, stateful_on: Callable[[str], StatefulGateway]) -> str:
    return stateful_on(backend).url


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with sync_sdk(url) as sdk:
        yield sdk.client(RESPONSES)


@pytest.fixture
def claude(url: str) -> Iterator[anthropic.Anthropic]:
    with sync_sdk(url) as sdk:
        yield sdk.client(MESSAGES)


each_upstream = pytest.mark.parametrize("upstream", UPSTREAMS.values())
each_upstream_and_backend = pytest.mark.parametrize(
    ("upstream", "backend"), [*zip(UPSTREAMS.values(), ["asyncio", "trio"] * 2, strict=True)]
)


# Stored responses.


@each_upstream_and_backend
def test_a_conversation_goes_on(client: openai.OpenAI, upstream: str) -> None:
    previous, word_count = None, 0
    # Often enough to meet both workers.
    for turn in range(6):
        response = client.responses.create(
            model=f"{upstream}/echo", input=f"turn {turn}", previous_response_id=previous or openai.omit
        )
        assert response.output_text == f"turn {turn}"
        assert response.usage.input_tokens == word_count + 2
        word_count += 4
        previous = response.id


@each_upstream
def test_a_streamed_conversation_goes_on(client: openai.OpenAI, upstream: str) -> None:
    previous = None
    for turn in range(3):
        with client.responses.stream(
            model=f"{upstream}/echo", input=f"turn {turn}", previous_response_id=previous or openai.omit
        ) as stream:
            # The end of the body is not waited for: the next request starts at the last event.
            for event in stream:
                if event.type == "response.completed":
                    previous = event.response.id
                    assert event.response.usage.input_tokens == 4 * turn + 2
                    break


@pytest.mark.parametrize("upstream", ["chat", "messages"])
def test_a_response_is_retrieved_and_deleted(client: openai.OpenAI, upstream: str) -> None:
    first = client.responses.create(model=f"{upstream}/echo", input="one two")
    second = client.responses.create(
        model=f"{upstream}/echo",
        input=[{"role": "user", "content": "three"}],
        previous_response_id=first.id,
        metadata={"topic": "numbers"},
    )
    assert second.previous_response_id == first.id
    found = client.responses.retrieve(second.id)
    assert (found.output, found.usage, found.metadata) == (second.output, second.usage, {"topic": "numbers"})
    assert found.previous_response_id == first.id

    client.responses.delete(first.id)
    for call in (client.responses.retrieve, client.responses.delete, client.responses.cancel):
        with pytest.raises(openai.NotFoundError):
            call(first.id)
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model=f"{upstream}/echo", input="x", previous_response_id=first.id)
    assert refused.value.code == "previous_response_not_found"
    assert refused.value.param == "previous_response_id"
    with pytest.raises(openai.BadRequestError, match="Cannot cancel"):
        client.responses.cancel(second.id)
    model = f"{upstream}/echo"
    third = client.responses.create(model=model, input="four", previous_response_id=second.id, store=False)
    assert third.usage.input_tokens == 2 + 2 + 1 + 1 + 1
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(third.id)


@each_upstream_and_backend
def test_a_stream_in_the_background_survives_its_client(client: openai.OpenAI, upstream: str) -> None:
    words = "one two three four five six"
    model = f"{upstream}/echo@20"
    with client.responses.create(model=model, input=words, background=True, stream=True) as stream:
        seen = [next(stream) for _ in range(5)]
    assert seen[0].type == "response.created"
    id = seen[0].response.id
    with client.responses.retrieve(id, stream=True, starting_after=4) as stream:
        events = [*seen, *stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    last = events[-1]
    assert (last.type, last.response.output_text) == ("response.completed", words)
    # This one reads from the beginning, and leaves out what its caller has.
    with client.responses.stream(response_id=id, starting_after=4) as helper:
        assert [event.sequence_number for event in helper] == list(range(5, len(events)))
        assert helper.get_final_response().output_text == words


@each_upstream_and_backend
def test_a_response_in_the_background_is_polled_or_cancelled(client: openai.OpenAI, upstream: str) -> None:
    polled = client.responses.create(model=f"{upstream}/echo", input="one", background=True)
    running = client.responses.create(model=f"{upstream}/pause@30", input="two", background=True)
    assert (polled.status, running.status) == ("in_progress", "in_progress")
    deadline = time.monotonic() + TIMEOUT_S
    while polled.status == "in_progress":
        assert time.monotonic() < deadline
        time.sleep(0.02)
        polled = client.responses.retrieve(polled.id)
    assert (polled.status, polled.output_text) == ("completed", "one")
    assert client.responses.cancel(running.id).status == "cancelled"
    assert client.responses.cancel(running.id).status == "cancelled"
    with pytest.raises(openai.BadRequestError, match="Cannot cancel a completed response"):
        client.responses.cancel(polled.id)


@each_upstream_and_backend
def test_an_abandoned_response_is_cancelled(client: openai.OpenAI, upstream: str) -> None:
    with client.responses.create(model=f"{upstream}/pause@30", input="one", stream=True) as stream:
        for event in stream:
            if event.type == "response.created":
                id = event.response.id
            if event.type == "response.output_text.delta":
                break
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            found = client.responses.retrieve(id)
            break
        except openai.NotFoundError:  # the gateway has not noticed yet
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert found.status == "cancelled"
    with pytest.raises(openai.BadRequestError, match="its status is cancelled"):
        client.responses.create(model=f"{upstream}/echo", input="x", previous_response_id=id)


def test_input_items_are_listed_page_by_page(client: openai.OpenAI) -> None:
    first = client.responses.create(model="chat/echo", input="one")
    second = client.responses.create(
        model="chat/echo",
        input=[{"role": "user", "content": f"word{number}"} for number in range(8)],
        previous_response_id=first.id,
    )
    # The SDK requests the next page until there is none.
    items = list(client.responses.input_items.list(second.id, limit=3, order="asc"))
    texts = [item.to_dict()["content"][0]["text"] for item in items]  # type: ignore[index]
    assert texts == ["one", "one", *(f"word{number}" for number in range(8))]
    newest = client.responses.input_items.list(second.id, limit=3)
    assert [item.id for item in newest.data] == [item.id for item in reversed(items[-3:])]


def test_an_item_reference(client: openai.OpenAI) -> None:
    first = client.responses.create(model="chat/echo", input="one two three")
    reference: Any = {"type": "item_reference", "id": first.output[0].id}
    model = "messages/echo"
    second = client.responses.create(model=model, input=[reference, {"role": "user", "content": "end"}])
    assert second.usage.input_tokens == 4
    reference["id"] = "msg_unknown"
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="messages/echo", input=[reference])


def test_a_conversation_is_compacted(client: openai.OpenAI) -> None:
    first = client.responses.create(model="messages/echo", input="Build a ship")
    compacted = client.responses.compact(model="messages/echo", previous_response_id=first.id)
    assert [item.type for item in compacted.output] == ["message", "compaction"]
    assert compacted.usage.total_tokens > 0
    # The SDK types all messages of an output as the assistant's, and warns of the user's.
    output: Any = [item.to_dict(warnings=False) for item in compacted.output]
    model = "messages/reasoning"
    response = client.responses.create(model=model, input=[*output, {"role": "user", "content": "Go on"}])
    # One turn of the user, which the model repeats in full.
    assert "Summary of the conversation so far" in response.output_text
    assert response.output_text.endswith("Go on")


def test_a_killed_process_has_lost_nothing(simulator: Simulator, gateway: Gateway, tmp_path: Path) -> None:
    with StatefulGateway(tmp_path, simulator, gateway, "asyncio", workers=1) as running:
        running.ready()
        with sync_sdk(running.url) as sdk:
            first = sdk.client(RESPONSES).responses.create(model="chat/echo", input="one two")
    with StatefulGateway(tmp_path, simulator, gateway, "trio", workers=1) as running:
        running.ready()
        with sync_sdk(running.url) as sdk:
            client = sdk.client(RESPONSES)
            assert client.responses.retrieve(first.id).output == first.output
            model = "messages/echo"
            second = client.responses.create(model=model, input="three", previous_response_id=first.id)
            assert second.usage.input_tokens == 5


# Counts.


# The second gateway has the models under its upstreams' names.
each_counted = pytest.mark.parametrize(
    "name",
    [
        *(f"{upstream}/echo" for upstream in UPSTREAMS.values()),
        *(f"counting-{UPSTREAMS[each]}/{UPSTREAMS[each]}/echo" for each in COUNTING),
    ],
)


@each_counted
@pytest.mark.parametrize("beta", [False, True])
@pytest.mark.each_choice
def test_tokens_of_messages(claude: anthropic.Anthropic, name: str, beta: bool) -> None:
    count = claude.beta.messages.count_tokens if beta else claude.messages.count_tokens
    messages: Any = [{"role": "user", "content": "Hello there"}]
    few = count(model=name, messages=messages).input_tokens
    assert 3 < few < 20
    many = count(
        model=name,
        messages=messages,
        system=LONG,
        tools=[{"name": "look", "description": LONG, "input_schema": TOOL}],  # type: ignore[arg-type]
    ).input_tokens
    assert many > few + 1200


@each_counted
def test_tokens_of_responses(client: openai.OpenAI, name: str) -> None:
    counted = client.responses.input_tokens.count(model=name, input="Hello there")
    assert counted.object == "response.input_tokens"
    assert 3 < counted.input_tokens < 20
    first = client.responses.create(model="chat/echo", input=LONG)
    whole = client.responses.input_tokens.count(model=name, input="now", previous_response_id=first.id)
    assert whole.input_tokens > 1200
