"""The vendors' own clients for clouds, and botocore, at a gateway with keys: each as it is made for its cloud."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import anthropic
import botocore.session  # type: ignore[import-untyped]
import openai
import pytest
from anthropic.lib.aws import AnthropicAWS
from anthropic.lib.google_cloud import AnthropicGoogleCloud
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import ClientError, EventStreamError  # type: ignore[import-untyped]
from command.process import GatewayProcess
from openai.providers.bedrock import bedrock
from openai.providers.vertex import vertex
from oracle import CHAT, MESSAGES, RESPONSES
from sdk_clients.processes import KEEPALIVE_S, Simulator
from sdk_clients.sdk import TIMEOUT_S, body_of

from dragoman_server.settings.client_keys import hash_client_key, new_key
from dragoman_server.settings.secret import Secret

pytestmark = pytest.mark.process

SECRET, KEY = "a-secret-of-some-length-0123456789", new_key()
KEY_ID, SECRET_KEY = "AKIDEXAMPLE", "the-secret-access-key-of-it"
# The upstream speaks the client's protocol, or another one, as the beginning of the model's name says.
CONFIG = f"""
[server]
keepalive_s = {KEEPALIVE_S}
secret = "{SECRET}"
[[upstreams]]
name = "messages"
protocol = "{MESSAGES}"
base_url = "http://127.0.0.1:PORT"
[[upstreams]]
name = "chat"
protocol = "{CHAT}"
base_url = "http://127.0.0.1:PORT/v1"
[models]
"us.anthropic.m-*-v1:0" = "messages/*"
"us.anthropic.c-*-v1:0" = "chat/*"
"m-*@20261129" = "messages/*"
"c-*@20261129" = "chat/*"
"m-*" = "messages/*"
"c-*" = "chat/*"
[[client_keys]]
name = "ci"
hash = "{hash_client_key(KEY, Secret(SECRET))}"
[[aws_keys]]
access_key_id = "{KEY_ID}"
secret_access_key = "{SECRET_KEY}"
client_key = "ci"
"""

AWS: Any = {"aws_access_key": KEY_ID, "aws_secret_key": SECRET_KEY, "aws_region": "us-east-1"}
REGION = {"aws_region": "us-east-1"}
SIGNED: Any = {"access_key_id": KEY_ID, "secret_access_key": SECRET_KEY, "region": "us-east-1"}
OF_PROJECT: Any = {"project_id": "p", "region": "us-east5", "access_token": KEY}
# The client, its path in the gateway's URL, and the form of its cloud's names of models.
ANTHROPIC: dict[str, tuple[Callable[..., Any], str, str]] = {
    "bedrock": (partial(anthropic.AnthropicBedrock, api_key=KEY, **REGION), "", "us.anthropic.{}-v1:0"),
    "bedrock, signed": (partial(anthropic.AnthropicBedrock, **AWS), "", "us.anthropic.{}-v1:0"),
    "bedrock, session": (partial(anthropic.AnthropicBedrock, aws_session_token="t", **AWS), "", "{}"),
    "mantle": (partial(anthropic.AnthropicBedrockMantle, api_key=KEY), "/anthropic", "{}"),
    "mantle, signed": (partial(anthropic.AnthropicBedrockMantle, **AWS), "/anthropic", "{}"),
    "vertex": (partial(anthropic.AnthropicVertex, **OF_PROJECT), "/v1", "{}@20261129"),
    "foundry": (partial(anthropic.AnthropicFoundry, api_key=KEY), "/anthropic", "{}"),
    "on aws": (partial(AnthropicAWS, api_key=KEY, workspace_id="w"), "", "{}"),
    "on aws, signed": (partial(AnthropicAWS, workspace_id="w", **AWS), "", "{}"),
    "on google": (
        partial(AnthropicGoogleCloud, token_provider=lambda: KEY),
        "/v1/projects/p/locations/global/workspaces/w/invoke",
        "{}",
    ),
}


def azure(url: str, **options: Any) -> Any:
    return openai.AzureOpenAI(azure_endpoint=url, api_version="2024-10-21", api_key=KEY, **options)


def of_provider(make: Callable[[str], Any]) -> Callable[..., Any]:
    return lambda url, **options: openai.OpenAI(provider=make(url), **options)


BOTH = CHAT, RESPONSES
ON_VERTEX = "/v1/projects/p/locations/l/publishers/openai/v1"
# The client of a URL, and its protocols.
OPENAI: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "azure": (lambda url, **o: openai.OpenAI(base_url=url + "/openai/v1", api_key=KEY, **o), BOTH),
    "azure, dated": (azure, BOTH),
    "mantle": (of_provider(lambda url: bedrock(base_url=url + "/openai/v1", api_key=KEY)), BOTH),
    **{
        f"{where}, signed": (
            of_provider(lambda url, where=where: bedrock(base_url=url + "/openai/v1", endpoint=where, **SIGNED)), BOTH
        )
        for where in ("mantle", "runtime")
    },
    "vertex": (of_provider(lambda url: vertex(base_url=url + ON_VERTEX, token_provider=lambda: KEY)), (RESPONSES,)),
}  # fmt: skip


@pytest.fixture(scope="module")
def url(simulator: Simulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file: Path = tmp_path_factory.mktemp("clouds") / "dragoman.toml"
    file.write_text(CONFIG.replace("PORT", str(simulator.port)))
    with GatewayProcess("--config", str(file)).ready() as gateway:
        yield gateway.url


@pytest.fixture(params=["m", "c"], ids=["relayed", "translated"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def client_of(url: str) -> Iterator[Callable[[str], Any]]:
    """Makes a client of Anthropic, once: making one costs more than a request."""
    with ExitStack() as stack:

        @cache
        def make(name: str) -> Any:
            made, path, _ = ANTHROPIC[name]
            return stack.enter_context(made(base_url=url + path, max_retries=0, timeout=TIMEOUT_S))

        yield make


def named(name: str, kind: str, model: str) -> str:
    """The name of a model as a client's cloud has it."""
    return ANTHROPIC[name][2].format(f"{kind}-{model}")


def ask(client: Any, model: str, **more: Any) -> Any:
    return client.messages.create(**body_of(MESSAGES, model, "Hello"), **more)


@pytest.mark.parametrize("name", ANTHROPIC)
def test_a_client_of_anthropic(name: str, client_of: Callable[[str], Any], kind: str) -> None:
    client, model = client_of(name), named(name, kind, "echo")
    assert ask(client, model).content[0].text == "Hello"
    with client.messages.stream(**body_of(MESSAGES, model, "Hello")) as stream:
        assert stream.get_final_message().content[0].text == "Hello"


@pytest.mark.parametrize("name", ["bedrock", "vertex"])
def test_no_client_takes_a_heartbeat_for_an_event(
    name: str, client_of: Callable[[str], Any], kind: str
) -> None:
    kinds = [event.type for event in ask(client_of(name), named(name, kind, "silent@1"), stream=True)]
    assert (kinds[0], kinds[-1], "ping" in kinds) == ("message_start", "message_stop", False)


# The model, and the error that its response is.
ERRORS: dict[str, type[Exception]] = {
    "error-400": anthropic.BadRequestError,
    "error-404": anthropic.NotFoundError,
    "error-429@7": anthropic.RateLimitError,
    "error-500": anthropic.InternalServerError,
    "error-529": anthropic.InternalServerError,
}


@pytest.mark.parametrize("name", ANTHROPIC)
def test_an_error_for_a_client_of_anthropic(name: str, client_of: Callable[[str], Any], kind: str) -> None:
    client = client_of(name)
    for broken, expected in ERRORS.items():
        with pytest.raises(expected, match="the simulator"):
            ask(client, named(name, kind, broken))
    for broken, text in (("error-mid", "failed in the middle"), ("cut", "connection ended")):
        events: list[Any] = []
        with pytest.raises(anthropic.APIError, match=text):
            events.extend(ask(client, named(name, kind, broken), stream=True))
        assert "message_stop" not in {event.type for event in events}


@pytest.mark.parametrize("name", ANTHROPIC)
def test_a_wrong_key_of_a_client_of_anthropic(name: str, url: str) -> None:
    make, path, _ = ANTHROPIC[name]
    wrong: dict[str, Any] = {"api_key": "drk_wrong", "aws_secret_key": "wrong", "access_token": "wrong"}
    wrong |= {"token_provider": lambda: "wrong"}
    given = {key: value for key, value in wrong.items() if key in make.keywords}
    with (
        make(base_url=url + path, max_retries=0, **given) as client,
        pytest.raises(anthropic.AuthenticationError, match=r"client key|AWS signature"),
    ):
        ask(client, "m-echo")


@pytest.mark.parametrize("name", OPENAI)
def test_a_client_of_openai(name: str, url: str) -> None:
    make, protocols = OPENAI[name]
    with make(url, max_retries=0, timeout=TIMEOUT_S) as client:
        for protocol, kind in product(protocols, ("m", "c")):
            say_hello(client, protocol, kind)


def say_hello(client: Any, protocol: str, kind: str) -> None:
    body = body_of(protocol, f"{kind}-echo", "Hello")
    if protocol == CHAT:
        assert client.chat.completions.create(**body).choices[0].message.content == "Hello"
        chunks = client.chat.completions.create(**body, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello"
    else:
        assert client.responses.create(**body).output_text == "Hello"
        *_, last = client.responses.create(**body, stream=True)
        assert last.response.output_text == "Hello"


# botocore, which is all of boto3 but its resources.


@pytest.fixture
def runtime(url: str) -> Iterator[Any]:
    made = botocore.session.Session().create_client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=SECRET_KEY,
        config=Config(retries={"total_max_attempts": 1}, read_timeout=TIMEOUT_S),
    )
    yield made
    made.close()


def invoke_body() -> bytes:
    body = body_of(MESSAGES, "", "Hello")
    del body["model"]
    return json.dumps({"anthropic_version": "bedrock-2023-05-31", **body}).encode()


def test_botocore(runtime: Any, kind: str) -> None:
    model = f"us.anthropic.{kind}-echo-v1:0"
    response = runtime.invoke_model(modelId=model, body=invoke_body())
    assert json.loads(response["body"].read())["content"][0]["text"] == "Hello"
    assert response["ResponseMetadata"]["RequestId"]
    silent = f"us.anthropic.{kind}-silent@1-v1:0"
    events = runtime.invoke_model_with_response_stream(modelId=silent, body=invoke_body())["body"]
    kinds = [json.loads(event["chunk"]["bytes"])["type"] for event in events]
    assert (kinds[0], kinds[-1], "ping" in kinds) == ("message_start", "message_stop", False)
    counted = runtime.count_tokens(modelId=model, input={"invokeModel": {"body": invoke_body()}})
    assert counted["inputTokens"] > 0


@pytest.mark.parametrize(
    ("model", "code", "status"),
    [
        ("error-400", "ValidationException", 400),
        ("error-403", "AccessDeniedException", 403),
        ("error-404", "ResourceNotFoundException", 404),
        ("error-429@7", "ThrottlingException", 429),
        ("error-500", "InternalServerException", 500),
        ("error-529", "ServiceUnavailableException", 503),
    ],
)
def test_an_error_for_botocore(runtime: Any, kind: str, model: str, code: str, status: int) -> None:
    with pytest.raises(ClientError) as raised:
        runtime.invoke_model(modelId=f"us.anthropic.{kind}-{model}-v1:0", body=invoke_body())
    assert raised.value.response["Error"]["Code"] == code
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    assert "Unknown" not in str(raised.value)


def test_an_error_in_a_stream_for_botocore(runtime: Any, kind: str) -> None:
    for model, code in (("error-mid", "serviceUnavailableException"), ("cut", "internalServerException")):
        events = runtime.invoke_model_with_response_stream(
            modelId=f"us.anthropic.{kind}-{model}-v1:0", body=invoke_body()
        )["body"]
        with closing(events), pytest.raises(EventStreamError) as raised:
            list(events)
        assert raised.value.response["Error"]["Code"] == code


def test_what_is_not_served_is_an_error_for_botocore(runtime: Any) -> None:
    with pytest.raises(ClientError, match="a client of Converse has to use one of these"):
        runtime.converse(modelId="m-echo", messages=[{"role": "user", "content": [{"text": "Hello"}]}])
