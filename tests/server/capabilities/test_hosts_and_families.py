"""The tables of hosts and model families: a client's request in, the upstream's out, as rows of sent.txt.

Every row of the tables decides a request there, so a row without an effect fails here.
"""

import json
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import rows
from msgspec.structs import replace

from dragoman import UPSTREAMS, RequestRefused, RequestTranslator
from dragoman_server.accounts import prices as _prices
from dragoman_server.capabilities import model_families as _model_families
from dragoman_server.capabilities import providers as _providers
from dragoman_server.capabilities.cloud_apis import CLOUD_APIS, CloudApi
from dragoman_server.capabilities.local_servers import LOCAL_SERVERS, LocalServer
from dragoman_server.capabilities.model_families import MODEL_FAMILIES, ModelFamily, families_of
from dragoman_server.capabilities.provider import Provider
from dragoman_server.capabilities.providers import PROVIDERS, host_capabilities, provider_at
from dragoman_server.capabilities.resolve import capabilities_for
from dragoman_server.settings import Settings, UpstreamSettings

SENT = Path(__file__).with_name("sent.txt")
PROTOCOLS = {name.rpartition("_")[2]: name for name in UPSTREAMS}
HOSTS = {"unknown": "https://llm.example/v1"} | {
    provider.name: provider.base_url.replace("${AZURE_OPENAI_ENDPOINT}", "https://example.openai.azure.com")
    for provider in PROVIDERS
}
SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
HI = [{"role": "user", "content": "Hi"}]
BODIES = {
    # Something of all that hosts differ in.
    "$CONVERSATION": {
        "max_tokens": 4000,
        "system": [
            {"type": "text", "text": "Be brief."},
            {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": "there"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": ""},
                    {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"},
                    {"type": "text", "text": "Note."},
                ],
            },
        ],
        "tools": [{"name": "f", "input_schema": SCHEMA, "strict": True}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "metadata": {"user_id": "u" * 150},
        "temperature": 0.5,
        "top_k": 5,
        "stop_sequences": ["END"],
    },
    # What a Responses client can set only at OpenAI.
    "$OPENAI_SETTINGS": {
        "input": [{"role": "developer", "content": "Be brief."}, *HI],
        "metadata": {"k": "v"},
        "prompt_cache_key": "k",
        "prompt_cache_retention": "24h",
        "safety_identifier": "s",
        "service_tier": "flex",
        "store": True,
        "text": {"verbosity": "low"},
        "user": "u",
        "top_logprobs": 2,
    },
}


def sent(url: str, model: str, client: str, upstream: str, body: str) -> dict[str, Any]:
    """Return the members of the upstream's request, and the losses under the name of each place."""
    settings = UpstreamSettings(name="up", protocol=PROTOCOLS[upstream], base_url=url)
    translator = RequestTranslator(
        client=UPSTREAMS[PROTOCOLS[client]],
        upstream=UPSTREAMS[PROTOCOLS[upstream]],
        capabilities=capabilities_for(Settings(), settings, model),
    )
    usual = {"input": HI} if client == "responses" else {"messages": HI, "max_tokens": 9000}
    requested = {**usual, **(BODIES.get(body) or json.loads(body)), "model": model}
    try:
        request = translator.translate(json.dumps(requested).encode())
    except RequestRefused as error:
        return {"refused": error.message}
    return json.loads(request.body) | {f"! {loss.path}": loss.code.value for loss in request.losses}


def changed(lines: list[str]) -> list[str]:
    """What is sent beyond "Hi"; for one of BODIES, what differs from the request for an unknown server."""
    head, body = lines
    host, model, client, upstream = head.split()
    found = sent(HOSTS.get(host, host), model, client, upstream, body)
    usual_body = body if body in BODIES and host != "unknown" else "{}"
    usual = sent(HOSTS["unknown"], "some-model", client, upstream, usual_body)
    differs = [name for name in {**usual, **found} if name != "model" and usual.get(name) != found.get(name)]
    return [line for name in differs for line in change(name, usual.get(name), found.get(name))] or ["="]


def change(name: str, usual: Any, found: Any) -> list[str]:
    if isinstance(usual, list) and isinstance(found, list) and len(usual) == len(found):
        pairs = enumerate(zip(usual, found, strict=True))
        return [f"{name}/{place}: {json.dumps(after)}" for place, (before, after) in pairs if before != after]
    return [f"{name}: {'-' if found is None else json.dumps(found)}"]


def test_the_requests_for_hosts_and_models() -> None:
    rows.check(SENT, changed)


@cache
def requests() -> list[tuple[list[str], dict[str, Any]]]:
    """Head and body of each row of the file, and what is sent today."""
    lines = [line for line in SENT.read_text().splitlines() if line and not line.startswith(("# ", "  "))]
    heads = [line.split() for line in lines[::2]]
    arguments = [
        [HOSTS.get(host, host), *more, body] for (host, *more), body in zip(heads, lines[1::2], strict=True)
    ]
    return [(each, sent(*each)) for each in arguments]


# Hosts that get what any public host does. Their rows have these settings.
OF_UPSTREAMS: dict[str, tuple[str, dict[str, object]]] = {
    "ollama": ("anthropic_messages", {"auth": "bearer"}),
    "github": ("openai_chat", {"model_list": False}),
}


def test_each_host_decides_a_request_or_a_setting() -> None:
    for provider in PROVIDERS:
        if provider.name in OF_UPSTREAMS:
            protocol, settings = OF_UPSTREAMS[provider.name]
            for url in (HOSTS[provider.name], HOSTS["unknown"]):
                found = host_capabilities(url, protocol)
                known = {name: found[name] for name in settings if name in found}
                assert known == (settings if url == HOSTS[provider.name] else {}), url
            continue
        of_host = [row for row in requests() if row[0][0] == HOSTS[provider.name]]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_providers, "PROVIDERS", tuple(each for each in PROVIDERS if each is not provider))
            forget_hosts()
            assert any(sent(*arguments) != today for arguments, today in of_host), provider.name
        forget_hosts()


def forget_hosts() -> None:
    for cached in (host_capabilities, provider_at):
        cached.cache_clear()


def without_one(family: ModelFamily, pattern: str) -> tuple[ModelFamily, ...]:
    """Return the table without one of its patterns."""
    left = replace(family, patterns=tuple(each for each in family.patterns if each != pattern))
    return tuple(left if each is family else each for each in MODEL_FAMILIES)


def test_each_pattern_of_a_family_decides_a_request() -> None:
    for family in MODEL_FAMILIES:
        of_family = [
            (arguments, today)
            for arguments, today in requests()
            if family
            in families_of(arguments[1], next(iter(family.providers), None), PROTOCOLS[arguments[3]])
        ]
        for pattern in family.patterns:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(_model_families, "MODEL_FAMILIES", without_one(family, pattern))
                assert any(sent(*arguments) != today for arguments, today in of_family), (family, pattern)


def test_other_hosts_of_a_provider_get_the_same_request() -> None:
    for provider in PROVIDERS:
        for host in provider.hosts:
            for upstream in ("chat", "messages"):
                found = [
                    sent(url, "m", "messages", upstream, "$CONVERSATION")
                    for url in (f"https://{host}/v1", HOSTS[provider.name])
                ]
                assert found[0] == found[1], host


def test_every_row_has_a_source_and_a_date() -> None:
    """Those of prices as well, and each of them is about a host that has a row."""
    table: list[Provider | ModelFamily | LocalServer | CloudApi] = [
        *PROVIDERS,
        *MODEL_FAMILIES,
        *LOCAL_SERVERS,
        *CLOUD_APIS.values(),
    ]
    prices = tomllib.loads(Path(_prices.__file__).with_name("prices.toml").read_text("utf-8"))["providers"]
    found = [(row, row.source, row.date) for row in table]
    found += [(row["base_url"], row["source"], str(row["date"])) for row in prices]
    for row, source, date in found:
        assert source, row
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", date), row
    assert all(provider_at(row["base_url"]) for row in prices)
