"""Upstreams that list models, as scripts, and short ways to write their lists."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
from gateway.fakes import FakeUpstream, FakeUpstreams, Script

from dragoman_server.hosts import UpstreamCall


@dataclass
class ListRequest:
    """One request to an upstream. at: seconds of the loop's clock."""

    url: str
    query: dict[str, str]
    headers: dict[str, str]
    proxy: str | None
    at: float


@dataclass
class ListingUpstreams(FakeUpstreams):
    """Stands in for the application's client.

    scripts: by a URL without its query, the responses one after the other; the last one stays. For a URL without any
    it is 404.
    """

    scripts: dict[str, list[Script]]
    requests: list[ListRequest] = field(default_factory=list)
    fakes: list[FakeUpstream] = field(default_factory=list)

    async def __aexit__(self, *error: object) -> None:
        # Whoever asks upstreams must have ended before the connections do.
        assert self.open_now == 0

    def open(self, call: UpstreamCall, *, proxy: str | None = None, **way: Any) -> Any:
        assert (call.method, call.content) == ("GET", None)
        bare, _, query = call.url.partition("?")
        parameters = {name: values[-1] for name, values in parse_qs(query).items()}
        self.requests.append(ListRequest(bare, parameters, dict(call.headers), proxy, anyio.current_time()))
        scripts = self.scripts.get(bare) or [Script([b"{}"], status=404)]
        script = scripts.pop(0) if len(scripts) > 1 else scripts[0]
        self.fakes.append(FakeUpstream(script))
        return self.fakes[-1]

    @property
    def open_now(self) -> int:
        return sum(fake.open_count for fake in self.fakes)

    def requested_at(self, host: str) -> list[float]:
        """Return the times of the requests to this host."""
        return [each.at for each in self.requests if urlsplit(each.url).hostname == host]


def openai_list(*models: str | dict[str, Any], **more: Any) -> Script:
    """A list in OpenAI's form. Models are ids, or all that is said of one."""
    data = [{"id": each} if isinstance(each, str) else each for each in models]
    return Script([json.dumps({"object": "list", "data": data, **more}).encode()])


def anthropic_list(*models: str | dict[str, Any], has_more: bool = False) -> Script:
    """A list in Anthropic's form."""
    data = [{"type": "model", **({"id": each} if isinstance(each, str) else each)} for each in models]
    ids = [each["id"] for each in data] or [None]
    page = {"data": data, "first_id": ids[0], "last_id": ids[-1], "has_more": has_more}
    return Script([json.dumps(page).encode()])
