"""Fit calls to the APIs of clouds, as the table `CLOUD_APIS` says."""

import re

from msgspec.structs import replace

from dragoman import RemoteProtocolError, RequestHead, peek
from dragoman.codec import MODEL_IN_PATH, fill_path
from dragoman.jsontext import encode
from dragoman_server.capabilities.cloud_apis import (
    BETAS,
    EVENT_STREAM,
    VERSION,
    BodyChanges,
    CloudApi,
    Route,
    cloud_api_of,
)
from dragoman_server.hosts.aws import BEDROCK_STREAM, count_tokens_body
from dragoman_server.hosts.host import HostError, UpstreamCall
from dragoman_server.relayed.table import JSON
from dragoman_server.settings import UpstreamSettings
from dragoman_server.wire.headers import media_type

_IN_CHUNKS = ("x-amzn-bedrock-accept", "application/json")


def fit_cloud_call(call: UpstreamCall, upstream: UpstreamSettings) -> UpstreamCall:
    """Return a call of a protocol as the upstream's API takes it. Raises HostError."""
    api = cloud_api_of(upstream)
    assert api is not None  # its host has this function
    url, mark, query = call.url.partition("?")
    try:
        is_json = call.held and media_type(call.headers) == JSON
        head = peek(call.held) if is_json else RequestHead(call.model, False, {})
    except RemoteProtocolError as error:
        raise HostError(error.message) from None
    route = api.route(url, head.model)
    if route is None:
        return call
    path = route.stream_path if head.stream and route.stream_path is not None else route.path
    found, model = re.search(route.end, url), re.fullmatch(route.model, head.model)
    assert found is not None  # it is the route of both
    assert model is not None
    for name, value in {**found.groupdict(""), "api_version": upstream.api_version}.items():
        path = path.replace(f"{{{name}}}", value)
    if MODEL_IN_PATH in path:
        # A semicolon would hide the verb behind the name.
        path = fill_path(path, model[1]).replace(";", "%3B")
    if route.body is not None:
        # Clients mark betas there, and these services have no such parameter (anthropic 2.12.0, lib/vertex).
        mark = query = ""
    joint = "&" if mark and "?" in path else mark
    call = replace(call, url=f"{_base(upstream, api)}{path}{joint}{query}")
    if route.event_stream and head.stream:
        headers = [(name, EVENT_STREAM if name == "accept" else value) for name, value in call.headers]
        call = replace(call, headers=[*headers, _IN_CHUNKS], framing=BEDROCK_STREAM)
    return call if route.body is None else _with_body(call, route, route.body, head)


def _base(upstream: UpstreamSettings, api: CloudApi) -> str:
    """Return the base URL without what the paths of routes begin with."""
    base = upstream.base_url.rstrip("/")
    return base.removesuffix(next((end for end in api.base_ends if base.endswith(end)), ""))


def _with_body(call: UpstreamCall, route: Route, changes: BodyChanges, head: RequestHead) -> UpstreamCall:
    """Return the call with its headers moved into the body. The other members keep their bytes."""
    headers = dict(call.headers)
    members: dict[str, object] = {
        name: value for name, value in head.fields.items() if name not in changes.without
    }
    if (version := headers.pop(VERSION, None)) is not None:
        members["anthropic_version"] = changes.versions.get(version, version)
    for header, member in changes.from_headers.items():
        if (value := headers.pop(header, None)) is not None:
            members[member] = value.split(",") if header == BETAS else value
    content = count_tokens_body(members) if route.counts_in else encode(members)
    return replace(call, headers=list(headers.items()), content=content)
