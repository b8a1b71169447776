"""The doors of clouds: a client's request in, the cloud's out, as rows of sent.txt; and what its answers mean."""

import json
from pathlib import Path
from typing import Any

import anyio
import httpx2
import rows
from gateway.fakes import call

from dragoman import UPSTREAMS
from dragoman.codec import find_endpoint
from dragoman_server.app import create_app
from dragoman_server.capabilities.doors import BETAS_BY_DOOR, DOORS
from dragoman_server.capabilities.providers import MESSAGES, PROVIDERS
from dragoman_server.proxying.explanation import ExplainedRequest, explain
from dragoman_server.settings import Settings, UpstreamSettings
from dragoman_server.settings.secret import Secret
from dragoman_server.settings.upstreams import AUTO_HOST, HOST_NAMES, PLAIN_HOST
from dragoman_server.upstream.client import UpstreamClient

SENT = Path(__file__).with_name("sent.txt")
SHOWN = ("authorization", "x-api-key", "api-key", "accept", "anthropic-version", "anthropic-beta")
HI = [{"role": "user", "content": "Hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/messages": {"max_tokens": 9, "messages": HI},
    "/v1/messages/count_tokens": {"messages": HI},
    "/v1/chat/completions": {"messages": HI},
    "/v1/responses": {"input": "Hi"},
}
GEMINI = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}


def sent(lines: list[str]) -> list[str]:
    """What the door gets, and what the client is told of it."""
    base_url, host, target, model = lines[0].split(" ", 3)
    path, _, query = target.partition("?")
    headers, end = json.JSONDecoder().raw_decode(lines[1])
    members = json.loads(lines[1][end:])
    found = find_endpoint(UPSTREAMS.values(), path, query)
    upstream = UpstreamSettings(
        name="up",
        protocol=MESSAGES if found is None else found[0].name,
        protocols=tuple(UPSTREAMS),
        base_url=base_url,
        host=host,
        api_key=Secret("the-key-of-the-cloud"),
        counts_tokens=True,
    )
    requests: list[httpx2.Request] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        return httpx2.Response(400, json={"error": {"message": "no"}})

    settings = Settings(upstreams=(upstream,))
    body = BODIES.get(path, GEMINI) | members
    if "/models/" not in path:
        body = {"model": f"up/{model}", **body}

    async def ask() -> None:
        client = UpstreamClient(transport=httpx2.MockTransport(respond))
        app = create_app(settings, client=client)
        async with app.lifespan():
            await call(app, target, body, headers=headers)

    anyio.run(ask)
    [request] = requests
    shown = [f"{name}: {request.headers[name]}" for name in SHOWN if name in request.headers]
    losses = []
    if "count" not in path:
        [step] = explain(settings, path, query, headers, json.dumps(body).encode()).steps
        assert isinstance(step, ExplainedRequest)
        assert (step.url, step.body) == (str(request.url), request.content)
        losses = [f"{code}: {place}" for code, place, _ in step.losses]
    return [f"{request.method} {request.url}", *shown, request.content.decode(), *losses]


def test_what_the_doors_get() -> None:
    rows.check(SENT, sent)


def test_each_door_can_be_set_and_has_a_provider() -> None:
    assert {AUTO_HOST, PLAIN_HOST, *DOORS} == set(HOST_NAMES)
    assert {door.provider or name for name, door in DOORS.items()} <= {each.name for each in PROVIDERS}
    assert {door.betas for door in DOORS.values()} == {"", *BETAS_BY_DOOR}
