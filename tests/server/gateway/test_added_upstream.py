"""An upstream protocol that the configuration file adds: its spec is all that the gateway needs."""

import json
import tokenize
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx2
import pytest
from core.toy_protocol import read_request, toy
from gateway.fakes import call
from gateway.mocked import mocked

import dragoman_server
from dragoman import PROTOCOLS, UPSTREAMS, Ledger
from dragoman.codec import Capabilities, Endpoint, ModelList, RateLimitHeaders, TokenCount
from dragoman.document import Request
from dragoman_server import simulator
from dragoman_server.app import create_app
from dragoman_server.capabilities import cloud_providers, model_families, provider, providers
from dragoman_server.cli import clients
from dragoman_server.config.loader import load
from dragoman_server.settings import Settings
from dragoman_server.settings.client_keys import hash_client_key
from dragoman_server.settings.problems import ConfigError
from dragoman_server.settings.secret import Secret
from dragoman_server.telemetry import semconv

pytestmark = pytest.mark.anyio

TOY = toy(
    base_path="/toys",
    auth_header="x-toy-key",
    auth_query="toy_key",
    version_header=("toy-version", "7"),
    forwarded_headers=frozenset({"toy-version", "toy-switches", "toy-color"}),
    list_headers=frozenset({"toy-switches"}),
    response_headers=frozenset({"toy-weather"}),
    rate_limit_headers=RateLimitHeaders("toy-limit-", "{limit}-{what}", reset="time"),
    model_list=ModelList("/box", {"size": "2"}, "behind", "toys/"),
    model_list_form="google",
    path_prefixes=("/v1toy",),
    client_headers=frozenset({"x-toy-client"}),
    token_count=TokenCount(
        (Endpoint("/v1/toy/weigh"),),
        "/toy/weigh",
        frozenset({"model", "messages"}),
        constant={"unit": "token"},
    ),
    usage_at_start=True,
)
PROTOCOLS = {**PROTOCOLS, "toy": TOY}
CONFIGURATION = """
[[upstreams]]
name = "up"
protocol = "toy"
base_url = "http://127.0.0.1:9/toys"
api_key = "k"
counts_tokens = true
headers = { "toy-switches" = "c" }
"""
RESPONSE = {"started": {"id": "t", "model": "m"}, "blocks": [], "stops": [{"reason": "end"}]}
REQUEST = {"model": "up/m", "messages": [{"role": "user", "parts": [{"t": "text", "text": "Hi"}]}]}
CHAT_REQUEST = {"model": "up/m", "messages": [{"role": "user", "content": "Hi"}]}


class Toys:
    """Servers of the toy protocol: their responses, and the requests that they got."""

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        self.headers = headers or {}
        self.requests: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if request.url.path == "/toys/box":
            names = ["ball", "kite"] if "behind" not in request.url.params else ["yoyo"]
            page = {
                "data": [{"id": f"toys/{name}"} for name in names],
                "has_more": len(names) == 2,
                "last_id": names[-1],
            }
            return httpx2.Response(200, json=page)
        if request.url.path == "/toys/toy/weigh":
            return httpx2.Response(200, json={"unit": "token", "input_tokens": 42})
        return httpx2.Response(200, json=RESPONSE, headers=self.headers)

    @property
    def last(self) -> httpx2.Request:
        return self.requests[-1]


def settings_of(directory: Path, more: str = "") -> Settings:
    """Load a file with the toy upstream, and `more` before it."""
    file = directory / "dragoman.toml"
    file.write_text(more + CONFIGURATION)
    return load(environ={}, path=str(file), protocols=PROTOCOLS).settings


async def test_its_requests_have_its_key_its_version_and_the_headers_of_its_clients(tmp_path: Path) -> None:
    toys = Toys()
    sent = {"toy-switches": "a,c", "toy-color": "red", "openai-beta": "x", "anthropic-version": "y"}
    async with mocked(settings_of(tmp_path), toys, protocols=PROTOCOLS) as app:
        assert (await call(app, "/v1/toy", REQUEST, headers=sent)).status == 200
        headers = toys.last.headers
        assert (headers["x-toy-key"], headers["toy-version"], headers["toy-color"]) == ("k", "7", "red")
        assert headers["toy-switches"] == "a,c"
        assert not {"authorization", "openai-beta", "anthropic-version"} & headers.keys()

        await call(app, "/v1/toy", REQUEST, headers={"toy-version": "8"})
        assert toys.last.headers["toy-version"] == "8"
        await call(
            app, "/v1/chat/completions", CHAT_REQUEST, headers={"toy-version": "8", "toy-color": "red"}
        )
        assert toys.last.headers["toy-version"] == "7"
        assert "toy-color" not in toys.last.headers


async def test_its_models_are_listed(tmp_path: Path) -> None:
    toys = Toys()
    async with mocked(settings_of(tmp_path), toys, protocols=PROTOCOLS) as app:
        client = await call(app, "/v1/models", {}, method="GET")
    names = [model["id"] for model in json.loads(client.body)["data"]]
    assert {"up/ball", "up/kite", "up/yoyo"} <= set(names)
    expected = ["http://127.0.0.1:9/toys/box?size=2", "http://127.0.0.1:9/toys/box?size=2&behind=kite"]
    assert [str(request.url) for request in toys.requests] == expected
    assert {request.headers["x-toy-key"] for request in toys.requests} == {"k"}


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/v1toy/models", {}), ("/v1/models", {"x-toy-client": "1"}), ("/v1/models?toy_key=k", {})],
)
async def test_its_clients_get_a_list_in_its_form(tmp_path: Path, path: str, headers: dict[str, str]) -> None:
    async with mocked(settings_of(tmp_path), Toys(), protocols=PROTOCOLS) as app:
        client = await call(app, path, {}, method="GET", headers=headers)
        one = await call(app, "/v1toy/models/up/ball", {}, method="GET")
        sign = "&" if "?" in path else "?"
        page = await call(app, f"{path}{sign}pageSize=1", {}, method="GET", headers=headers)
        token = json.loads(page.body)["nextPageToken"]
        rest = await call(app, f"{path}{sign}pageToken={token}", {}, method="GET", headers=headers)
        wrong = await call(app, f"{path}{sign}pageToken=nothing", {}, method="GET", headers=headers)
    name = "models/up/ball"
    supportedGenerationMethods = ["generateContent", "countTokens"]
    ball = {"name": name, "displayName": "up/ball", "supportedGenerationMethods": supportedGenerationMethods}
    assert json.loads(one.body) == ball
    listed = json.loads(client.body)["models"]
    assert ball in listed
    assert [*json.loads(page.body)["models"], *json.loads(rest.body)["models"]] == listed
    assert json.loads(rest.body).keys() == {"models"}
    assert (wrong.status, json.loads(wrong.body).keys()) == (400, {"oops"})


async def test_its_tokens_are_counted(tmp_path: Path) -> None:
    toys = Toys()
    async with mocked(settings_of(tmp_path), toys, protocols=PROTOCOLS) as app:
        client = await call(app, "/v1/toy/weigh", REQUEST)
        assert json.loads(client.body) == {"unit": "token", "input_tokens": 42}
        client = await call(app, "/v1/messages/count_tokens", CHAT_REQUEST)
        assert json.loads(client.body) == {"input_tokens": 42}
    assert str(toys.last.url) == "http://127.0.0.1:9/toys/toy/weigh"
    assert json.loads(toys.last.content).keys() == {"model", "messages"}


async def test_its_model_may_be_in_the_path(tmp_path: Path) -> None:
    """The path has another verb for streams, and the count has a path and a member like no other protocol's."""
    spec = toy(
        name="toy",
        base_path="/toys",
        path="/{model}:play",
        stream_path="/{model}:playAlong?as=frames",
        endpoints=(
            Endpoint("/v1/{model}:play", streams="never"),
            Endpoint("/v1/{model}:playAlong", streams="always"),
        ),
        token_count=TokenCount(
            (Endpoint("/v1/{model}:weigh", model_prefix="toys/"),),
            "/{model}:weigh",
            frozenset({"messages"}),
            member="grams",
            wrapper="parcel",
        ),
        model_list=ModelList(name_prefix="toys/"),
        read_request=lambda body, signer: read_request({"model": "", **body}, signer, name="toy"),
    )
    protocols = {**PROTOCOLS, "toy": spec}
    requests: list[httpx2.Request] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        return httpx2.Response(200, json={"grams": 7} if request.url.path.endswith("weigh") else RESPONSE)

    body = {"messages": REQUEST["messages"]}
    async with mocked(settings_of(tmp_path), respond, protocols=protocols) as app:
        assert (await call(app, "/v1/up/old/kite 2:play", body)).status == 200
        parcel = {"parcel": {"model": "toys/up/kite", **body, "seed": 1}}
        for weighed in (body, parcel, CHAT_REQUEST):
            path = "/v1/messages/count_tokens" if weighed is CHAT_REQUEST else "/v1/toys/up/kite:weigh"
            assert list(json.loads((await call(app, path, weighed)).body).values()) == [7]
        assert (await call(app, "/v1/up/kite:playAlong", body)).status == 200
        assert (await call(app, "/v1/chat/completions", {**CHAT_REQUEST, "stream": True})).status == 200
        refused = await call(app, "/v1/up/..:play", body)
    assert [request.url.raw_path for request in requests] == [
        b"/toys/old%2Fkite%202:play",
        b"/toys/kite:weigh",
        b"/toys/kite:weigh",
        b"/toys/m:weigh",
        b"/toys/kite:playAlong?as=frames",
        b"/toys/m:playAlong?as=frames",
    ]
    sent = [json.loads(request.content) for request in requests]
    assert sent[0] == sent[1] == body  # relayed: the model is put nowhere else
    assert (sent[2], sent[3]["parcel"]["model"]) == ({"parcel": {"model": "toys/kite", **body}}, "toys/m")
    assert refused.status == 400


async def test_the_headers_of_its_responses_reach_the_client(tmp_path: Path) -> None:
    toys = Toys({"toy-limit-requests-remaining": "3", "toy-weather": "sun", "toy-secret": "s"})
    async with mocked(settings_of(tmp_path), toys, protocols=PROTOCOLS) as app:
        client = await call(app, "/v1/toy", REQUEST)
    assert (client.headers["toy-limit-requests-remaining"], client.headers["toy-weather"]) == ("3", "sun")
    assert "toy-secret" not in client.headers


async def test_a_used_up_client_key_is_reported_in_its_headers(tmp_path: Path) -> None:
    secret = "a-secret-of-some-length-0123456789"
    key = "dgm_" + "k" * 43
    lines = f"""
[server]
secret = "{secret}"
[[client_keys]]
name = "red"
hash = "{hash_client_key(key, Secret(secret))}"
requests_per_minute = 1
"""
    async with mocked(settings_of(tmp_path, lines), Toys(), protocols=PROTOCOLS) as app:
        assert (await call(app, "/v1/toy", REQUEST)).status == 401
        many = await call(app, f"/v1/toy?{'a=b&' * 101}toy_key={key}", REQUEST)
        assert (many.status, json.loads(many.body).keys()) == (400, {"oops"})
        assert (await call(app, f"/v1/toy?toy_key={key}", REQUEST)).status == 200
        client = await call(app, "/v1/toy", REQUEST, headers={"x-toy-key": key})
    assert (client.status, client.headers["toy-limit-requests-limit"]) == (429, "1")
    assert client.headers["toy-limit-requests-remaining"] == "0"
    assert client.headers["toy-limit-requests-reset"].endswith("Z")


async def test_streams_that_begin_with_usage_mark_it_as_an_estimate(tmp_path: Path) -> None:
    async with mocked(settings_of(tmp_path), Toys(), protocols=PROTOCOLS) as app:
        client = await call(app, "/v1/toy", {**REQUEST, "model": "sim/echo", "stream": True})
    assert client.headers["dragoman-estimate"] == "input_tokens"


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/v1/toy/elsewhere", {}),
        ("/v1toy/elsewhere", {}),
        ("/nowhere", {"toy-version": "7"}),
        ("/nowhere", {"x-toy-client": "1"}),
        ("/nowhere?toy_key=k", {}),
        ("/v1/toy/weigh", {}),
    ],
)
async def test_errors_have_its_form(tmp_path: Path, path: str, headers: dict[str, str]) -> None:
    async with mocked(settings_of(tmp_path), Toys(), protocols=PROTOCOLS) as app:
        client = await call(app, path, {}, headers=headers)
    assert client.status in (400, 404)
    assert json.loads(client.body).keys() == {"oops"}


class ToyCapabilities(Capabilities, frozen=True):
    """What only servers of this protocol accept: the one place where that is said."""

    volume: Annotated[Literal["low", "high"] | None, "how loud it plays"] = None
    colors: Annotated[frozenset[Literal["red", "blue"]], "colors that it has"] = frozenset({"red"})


def write_toys(request: Request, capabilities: ToyCapabilities, ledger: Ledger) -> dict[str, Any]:
    return {"volume": capabilities.volume, "colors": sorted(capabilities.colors)}


async def test_its_capabilities_are_settings_of_its_upstreams(tmp_path: Path) -> None:
    spec = toy(base_path="/toys", capabilities=ToyCapabilities, write_request=write_toys)
    protocols = {**PROTOCOLS, "toy": spec}
    file = tmp_path / "dragoman.toml"

    async def sent(more: str) -> Any:
        file.write_text(CONFIGURATION.replace("[[upstreams]]", "[[upstreams]]\n" + more))
        settings = load(environ={}, path=str(file), protocols=protocols).settings
        toys = Toys()
        async with mocked(settings, toys, protocols=protocols) as app:
            await call(app, "/v1/chat/completions", CHAT_REQUEST)
        return json.loads(toys.last.content)

    assert await sent("") == {"volume": None, "colors": ["red"]}
    assert await sent('volume = "high"\ncolors = ["blue"]') == {"volume": "high", "colors": ["blue"]}
    assert await sent('volume = "none"\ncolors = []') == {"volume": None, "colors": []}
    with pytest.raises(ConfigError, match='unknown volume "5"; valid values are "low", "high", "none"'):
        await sent('volume = "5"')


async def test_a_file_may_name_only_registered_protocols(tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text(CONFIGURATION.replace('"toy"', '"toys"'))
    with pytest.raises(ConfigError, match='did you mean "toy"'):
        load(environ={}, path=str(file), protocols=PROTOCOLS)
    file.write_text(CONFIGURATION)
    with pytest.raises(ConfigError, match="toy"):
        load(environ={}, path=str(file))


async def test_an_application_refuses_settings_with_an_unknown_protocol(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="upstream up speaks toy"):
        create_app(settings_of(tmp_path))


# No other code names a protocol.

SERVER = Path(dragoman_server.__file__).parent
# The simulator plays servers of each protocol, and tables have the protocols and names of known hosts and clients.
NAMING = {
    *(
        Path(table.__file__)
        for table in (clients, cloud_providers, model_families, provider, providers, semconv)
    ),
    *Path(simulator.__file__).parent.rglob("*.py"),
}


def test_the_server_names_no_protocol() -> None:
    for name in PROTOCOLS:
        found = []
        for file in sorted(set(SERVER.rglob("*.py")) - NAMING):
            with tokenize.open(file) as source:
                found += [
                    f"{file.name}:{number}" for number, line in enumerate(source, 1) if name in line.lower()
                ]
        assert found == [], name


def test_the_tables_of_hosts_name_protocols_that_exist() -> None:
    named = {name for row in providers.PROVIDERS for name in (*row.protocols, row.compatible) if name}
    assert named == set(UPSTREAMS)
