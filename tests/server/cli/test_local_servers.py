"""Servers of models on this machine: which are found, by their ports and by what they list."""

# ruff: noqa: E501 -- the tables are read by row

import json
from collections.abc import Mapping

import pytest
from http_server import DeafServer, Peer, ScriptedServer
from msgspec.structs import replace
from virtual_time import REAL_BACKENDS

from dragoman_server.capabilities.local_servers import LOCAL_SERVERS, LocalServer
from dragoman_server.cli import local_servers
from dragoman_server.cli.doctor.context_windows import small_window
from dragoman_server.cli.local_servers import FoundServer, find_local_servers
from dragoman_server.models.info import ModelInfo

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*REAL_BACKENDS)]

BY_NAME = {server.name: server for server in LOCAL_SERVERS}


def serving(responses: Mapping[str, object], key: str = "") -> ScriptedServer:
    """A server with these JSON responses by path. key: the one that it requires."""

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            path = request.split(b" ")[1].decode()
            status = 200 if path in responses else 404
            if key and f"bearer {key}" not in request.decode().lower():
                status = 401
            body = json.dumps(responses.get(path, {})).encode()
            await peer.send(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body))

    return ScriptedServer(*[script] * 6)


async def found(server: LocalServer, url: str, **environ: str) -> list[FoundServer]:
    return await find_local_servers(environ, [replace(server, base_url=url + "v1")])


LISTS = [
    # As each of them responds, with the context window where it reports it.
    (
        "ollama",
        {
            "/v1/models": {
                "object": "list",
                "data": [{"id": "qwen3:8b", "owned_by": "library"}, {"id": "llama"}],
            },
            "/api/ps": {"models": [{"name": "qwen3:8b", "model": "qwen3:8b", "context_length": 4096}]},
        },
        [("qwen3:8b", 4096), ("llama", None)],
    ),
    ("vllm", {"/v1/models": {"data": [{"id": "q", "owned_by": "vllm", "max_model_len": 8192}]}}, [("q", 8192)]),
    ("llamacpp", {"/v1/models": {"data": [{"id": "q.gguf", "owned_by": "llamacpp", "meta": {"n_ctx": 16_384}}]}}, [("q.gguf", 16_384)]),
    ("lmstudio", {"/v1/models": {"data": [{"id": "q"}]}, "/api/v0/models": {"data": [{"id": "q", "max_context_length": 9000, "loaded_context_length": 5000}]}}, [("q", 5000)]),
    ("lmstudio", {"/v1/models": {"data": [{"id": "q"}]}}, [("q", None)]),
    ("lmstudio", {"/v1/models": {"data": [{"id": "q"}]}, "/api/v0/models": "no list"}, [("q", None)]),
    ("sglang", {"/v1/models": {"data": [{"id": "q", "owned_by": "sglang", "max_model_len": 8192}]}}, [("q", 8192)]),
    ("jan", {"/v1/models": {"data": []}}, []),
    ("koboldcpp", {"/v1/models": {"data": [{"id": "k", "owned_by": "koboldcpp"}]}}, [("k", None)]),
]  # fmt: skip


async def test_each_server_is_found_with_its_models_and_their_context_windows() -> None:
    for name, responses, models in LISTS:
        async with serving(responses) as server:
            (one,) = await found(BY_NAME[name], server.url)
        assert one.server.name == name
        assert one.models is not None
        assert [(model.id, model.context) for model in one.models] == models, name


async def test_the_owner_of_the_models_decides_and_not_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving({"/v1/models": {"data": [{"id": "q", "owned_by": "llamacpp"}]}}) as server:
        (one,) = await found(BY_NAME["vllm"], server.url)
        assert (one.server.name, one.server.key) == ("llamacpp", "LLAMA_API_KEY")
        assert one.server.base_url == server.url + "v1"
    async with serving({"/v1/models": {"data": [{"id": "q", "owned_by": "me"}]}}) as server:
        monkeypatch.setattr(local_servers, "_COMMON_PORTS", {server.port})
        (one,) = await found(BY_NAME["vllm"], server.url)
        assert (one.server.name, one.server.title) == (f"local-{server.port}", "A server")


@pytest.mark.parametrize("port_of", ["llamacpp", "vllm"])
async def test_two_servers_of_one_kind_have_different_names(port_of: str) -> None:
    """Also on two ports that are usual for it."""
    models = {"/v1/models": {"data": [{"id": "q", "owned_by": "vllm"}]}}
    async with serving(models) as one, serving(models) as other:
        servers = [
            replace(BY_NAME["vllm"], base_url=one.url + "v1"),
            replace(BY_NAME[port_of], base_url=other.url + "v1"),
        ]
        names = [each.server.name for each in await find_local_servers({}, servers)]
    assert names == [f"local-{one.port}", f"local-{other.port}"]


async def test_a_server_with_a_key() -> None:
    async with serving({"/v1/models": {"data": [{"id": "q"}]}}, key="right") as server:
        for environ, models in (({}, None), ({"JAN_API_KEY": "wrong"}, None), ({"JAN_API_KEY": "right"}, 1)):
            (one,) = await found(BY_NAME["jan"], server.url, **environ)
            assert (one.models and len(one.models)) == models


@pytest.mark.parametrize(
    "responses",
    [
        {},
        {"/v1/models": "hello"},
        # This gateway lists models too.
        {"/v1/models": {"data": [{"id": "q"}]}, "/healthz": {"status": "ok", "name": "dragoman"}},
    ],
    ids=["404", "no list", "a Dragoman"],
)
async def test_other_servers_are_left_out(responses: dict[str, object]) -> None:
    async with serving(responses) as server:
        assert await found(BY_NAME["vllm"], server.url) == []


async def test_a_server_that_sends_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_servers, "_TIMEOUT_S", 0.1)
    with DeafServer() as server:
        assert await found(BY_NAME["vllm"], server.url) == []


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with serving({"/v1/models": {"data": [{"id": "q"}]}}) as server:
        assert len(await found(BY_NAME["jan"], server.url)) == 1


WINDOWS = [
    (None, "vllm", None),
    (2_000, "vllm", None),
    (1_999, "vllm", "start vLLM with --max-model-len 65536"),
    (1_999, "llamacpp", "start llama.cpp with -c 65536"),
    (1_999, "sglang", "start SGLang with --context-length 65536"),
    (1_999, "koboldcpp", "start KoboldCpp with --contextsize 65536"),
    (1_999, None, "load the model with a larger context window, or use another model"),
    (1_999, "me", "load the model with a larger context window, or use another model"),
]


@pytest.mark.parametrize(("context", "owner", "fix"), WINDOWS)
def test_how_a_server_gets_a_larger_window(context: int | None, owner: str | None, fix: str | None) -> None:
    found = small_window("it", ModelInfo("m", context=context, owned_by=owner), {"agent": 1_000})
    assert (found and found.fix) == fix
