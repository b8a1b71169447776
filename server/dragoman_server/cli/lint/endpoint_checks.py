"""Send a few small requests to an endpoint, and judge what comes back: status, headers, and body.

The requests are a table. Each is written for the endpoint's protocol by the core, so it has only documented members.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Literal

import anyio
import msgspec

from dragoman import UPSTREAMS, RequestTranslator, lint
from dragoman.codec import SSE, UpstreamSpec
from dragoman_server.capabilities.provider import CHAT
from dragoman_server.hosts import UpstreamCall
from dragoman_server.models.listing import ModelListError, can_list, fetch_models
from dragoman_server.settings import UpstreamSettings
from dragoman_server.settings.problems import printable
from dragoman_server.settings.secret import Secret
from dragoman_server.settings.values import API_VERSION, endpoints_of, without_endpoint
from dragoman_server.upstream.account_request import account_request
from dragoman_server.upstream.errors import UpstreamBroken, UpstreamError
from dragoman_server.upstream.sender import UpstreamResponseLike, UpstreamSender
from dragoman_server.wire.headers import media_type, upstream_request_headers

# The limit of one response: the requests ask for a few words.
MAX_RESPONSE_BYTES = 4 * 1024 * 1024
# For one request, with a model that has to be loaded first.
_PROBE_TIMEOUT_S = 120.0
# A reasoning model may think for this many tokens before it says a word.
_MAX_TOKENS = 2048

# Statuses that are no judgement of the request, and what to do about them.
_NOT_ADMITTED = {
    401: "; put a valid key into LINT_API_KEY",
    403: "; use a key that may do this",
    404: "; name a model that it has with --model, and look at the URL",
}

_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Returns the weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
_FORCED_TOOL = {"type": "function", "function": {"name": "get_weather"}}

ProbeKind = Literal["response", "stream", "error"]


class EndpointError(Exception):
    """An endpoint that cannot be checked. Its text has no secret."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One request.

    Attributes:
        name: Its name for people.
        kind: The kind of the response that has to come.
        members: Members of a Chat request, besides model and messages. The other protocols get a translation.
        raw: The body, instead of a translation, with %s for the model as JSON.
    """

    name: str
    kind: ProbeKind
    members: Mapping[str, Any] = field(default_factory=dict)
    raw: bytes | None = None


PROBES = (
    Probe("a whole response", "response"),
    Probe("a stream", "stream", {"stream": True}),
    Probe("a stream with usage", "stream", {"stream": True, "stream_options": {"include_usage": True}}),
    Probe("a tool call", "response", {"tools": [_TOOL], "tool_choice": _FORCED_TOOL}),
    Probe("a tool call in a stream", "stream", {"tools": [_TOOL], "tool_choice": _FORCED_TOOL, "stream": True}),
    Probe("a body that is not JSON", "error", raw=b'{"model": %s'),
    Probe("a body that is not an object", "error", raw=b"[]"),
    Probe("a body without messages", "error", raw=b'{"model": %s, "max_tokens": 16}'),
)  # fmt: skip


class EndpointChecks:
    """The checks of one endpoint.

    Args:
        url: the base URL, with or without /v1, or the endpoint's own URL.
        model: for the requests; None for the first one that the endpoint lists.
    """

    def __init__(
        self, sender: UpstreamSender, protocol: str, url: str, key: str | None, model: str | None
    ) -> None:
        self._sender = sender
        self._spec = UPSTREAMS[protocol]
        self._upstream = UpstreamSettings(
            name="endpoint",
            protocol=protocol,
            base_url=base_url_of(url, self._spec),
            api_key=Secret(key) if key else None,
            read_s=_PROBE_TIMEOUT_S,
        )
        self._account = self._upstream.default_account
        self._model = model

    async def run(self, probes: Sequence[Probe] = PROBES) -> dict[str, lint.Report]:
        """Send the requests, one after the other. Return the findings by their names. Raises EndpointError."""
        model = self._model or await self._first_model()
        return {probe.name: await self._check(probe, model) for probe in probes}

    async def _first_model(self) -> str:
        if not can_list(self._upstream):
            raise EndpointError("name a model with --model")
        try:
            with anyio.fail_after(_PROBE_TIMEOUT_S):
                models = await fetch_models(self._sender, self._upstream, [self._account])
        except (ModelListError, TimeoutError) as error:
            raise EndpointError(f"the models cannot be listed ({error}): name one with --model") from None
        if not models:
            raise EndpointError("the endpoint lists no models: name one with --model")
        return models[0].id

    async def _check(self, probe: Probe, model: str) -> lint.Report:
        spec, streams = self._spec, probe.kind == "stream"
        call = UpstreamCall(
            "POST",
            self._upstream.base_url_for(spec.name) + spec.path_for(model, stream=streams),
            upstream_request_headers(self._upstream, spec, None, {}, stream=streams),
            _body(probe, model, spec),
            spec.framing if streams else SSE,
        )
        try:
            with anyio.fail_after(_PROBE_TIMEOUT_S):
                async with await account_request(
                    self._sender, self._upstream, spec, self._account, call
                ) as response:
                    return await _judge(probe, response, spec.name)
        except TimeoutError:
            raise EndpointError(f"{probe.name}: no complete response within {_PROBE_TIMEOUT_S:g} s") from None
        except UpstreamBroken as error:  # a fault of this response: the others may be right
            report = lint.Report()
            report.at_byte("http-broken", 0, str(error))
            return report
        except UpstreamError as error:
            raise EndpointError(f"{probe.name}: {error}") from None


def base_url_of(url: str, spec: UpstreamSpec) -> str:
    """Return the base URL that belongs to a URL as people write it: with the path of the endpoint, or no version."""
    base = reduce(without_endpoint, endpoints_of(spec), url.rstrip("/"))
    if spec.base_path:
        return base if base.endswith(spec.base_path) else base + spec.base_path
    return re.sub(f"{API_VERSION}$", "", base)


def _body(probe: Probe, model: str, spec: UpstreamSpec) -> bytes:
    if probe.raw is not None:
        return probe.raw.replace(b"%s", msgspec.json.encode(model))
    request = {
        "model": model,
        "max_tokens": _MAX_TOKENS,
        "messages": [{"role": "user", "content": "What is the weather in Paris? Answer in one sentence."}],
        **probe.members,
    }
    translator = RequestTranslator(client=CHAT, upstream=spec)
    return translator.translate(msgspec.json.encode(request)).body


async def _judge(probe: Probe, response: UpstreamResponseLike, protocol: str) -> lint.Report:
    body = await response.read_all(MAX_RESPONSE_BYTES)
    status, content_type = response.status, dict(response.headers).get("content-type", "")
    streams = media_type(response.headers) == SSE.media_type or body.startswith((b"data:", b"event:", b":"))
    if probe.kind == "error" and status < 400:
        report = lint.Report()
        report.at_byte("http-error", 0, f"status {status} for {probe.name}")
        return report
    if probe.kind == "error":
        report = lint.check_error(protocol, status, body)
    elif status in _NOT_ADMITTED:
        raise EndpointError(f"{probe.name}: status {status}: {_short(body)}{_NOT_ADMITTED[status]}")
    elif status != 200:
        report = lint.Report()
        report.at_byte("http-refused", 0, f"status {status}: {_short(body)}")
    else:
        forced = "tool_choice" in probe.members
        if streams:
            requested = "stream_options" in probe.members
            report = lint.check_stream(protocol, body, usage_requested=requested, call_forced=forced)
        else:
            report = lint.check_whole(protocol, body, call_forced=forced)
    if status == 200 and probe.kind != "error" and streams != (probe.kind == "stream"):
        report.at_byte("http-stream", 0, "a stream" if streams else "no stream")
    expected = SSE.media_type if streams else "application/json"
    if media_type(response.headers) != expected:
        report.at_byte("http-content-type", 0, f"{content_type[:60]!a}, expected {expected}")
    return report


def _short(body: bytes) -> str:
    return printable(body[:200].decode("utf-8", "replace"), " ")
