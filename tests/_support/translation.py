"""Bytes of an upstream in, bytes for a client out, through the public core.

The client's request is made here by hand from what was recorded of the upstream's request: its tools, no more.
"""

import json
from typing import Any

from laws.clients import endpoint_of, spec_of
from oracle import CHAT, GEMINI, MESSAGES, RESPONSES

from dragoman import UPSTREAMS, Relay, RequestTranslator, ResponseTranslator, translate_error
from dragoman.codec import ResponseContext

MODEL = "the-model"
RESPONSE_ID = "0123456789abcdef"
NOW = 1_790_000_000


def translate_stream(
    upstream: str,
    client: str,
    stream: bytes,
    request: dict[str, Any] | None = None,
    *,
    include_usage: bool = True,
) -> bytes:
    """Return what a streaming client gets for an upstream's stream."""
    body = client_request(client, upstream, request, include_usage=include_usage)
    response = machine(upstream, client, translate_request(client, upstream, body))
    response.receive_data(stream)
    response.receive_eof()
    return response.data_to_send()


def translate_whole(upstream: str, client: str, body: bytes, request: dict[str, Any] | None = None) -> bytes:
    """What a client gets for a whole response that is no error. Raises AssertionError where it became one."""
    requested = client_request(client, upstream, request, stream=False)
    response = machine(
        upstream, client, translate_request(client, upstream, requested, streams=False), streams=False
    )
    response.receive_data(body)
    response.receive_eof()
    assert response.error is None, response.error
    return response.data_to_send()


def machine(
    upstream: str, client: str, context: ResponseContext, *, streams: bool = True
) -> Relay | ResponseTranslator:
    """Return the machine of a response. streams: the upstream's does."""
    if upstream == client:
        return Relay(protocol=UPSTREAMS[client], context=context, streams=streams)
    return ResponseTranslator(
        client=spec_of(client), upstream=UPSTREAMS[upstream], context=context, upstream_streams=streams
    )


def translate_error_of(upstream: str, client: str, status: int, body: bytes) -> tuple[int, bytes]:
    """Status and body that a client gets for an upstream's error response."""
    response = translate_error(status, body, upstream=UPSTREAMS[upstream], client=spec_of(client))
    return response[0], response[1]


def translate_request(
    client: str, upstream: str, body: dict[str, Any], *, streams: bool = True
) -> ResponseContext:
    """What a response's side knows of this request."""
    translator = RequestTranslator(
        client=spec_of(client),
        upstream=UPSTREAMS[upstream],
        endpoint=endpoint_of(client) if streams else None,
    )
    return translator.translate(json.dumps(body).encode()).response_context(id=RESPONSE_ID, now=NOW)


def client_request(
    client: str,
    upstream: str,
    recorded: dict[str, Any] | None,
    *,
    stream: bool = True,
    include_usage: bool = True,
) -> dict[str, Any]:
    """A plain request in the client's protocol, with the function tools of the recorded one."""
    if (
        client not in UPSTREAMS
    ):  # the simple API: it has no tools, and its endpoint decides whether it streams
        return {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
    if client == GEMINI:  # as the simple API, but with tools
        functions = [_gemini_tool(*tool) for tool in function_tools(upstream, recorded or {})]
        body = {"model": MODEL, "contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
        return body | ({"tools": [{"functionDeclarations": functions}]} if functions else {})
    tools = [_TOOL_FORMS[client](*tool) for tool in function_tools(upstream, recorded or {})]
    body = {"model": MODEL, "stream": stream} | ({"tools": tools} if tools else {})
    if client == CHAT and stream and include_usage:
        body["stream_options"] = {"include_usage": True}
    if client == MESSAGES:
        body["max_tokens"] = 4096
    if client == RESPONSES:
        return body | {"input": "Hi", "store": False, "include": ["reasoning.encrypted_content"]}
    return body | {"messages": [{"role": "user", "content": "Hi"}]}


def function_tools(protocol: str, request: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Name, description and schema of each function tool of a request."""
    found = []
    for tool in request.get("tools") or []:
        inner = tool.get("function") if protocol == CHAT else tool
        schema = (inner or {}).get("input_schema" if protocol == MESSAGES else "parameters")
        if isinstance(inner, dict) and isinstance(schema, dict) and inner.get("name"):
            found.append((inner["name"], inner.get("description") or "", schema))
    return found


def _chat_tool(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def _gemini_tool(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "description": description, "parametersJsonSchema": schema}


def _messages_tool(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "description": description, "input_schema": schema}


def _responses_tool(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "name": name,
        "description": description,
        "parameters": schema,
        "strict": False,
    }


_TOOL_FORMS = {CHAT: _chat_tool, MESSAGES: _messages_tool, RESPONSES: _responses_tool}
