"""Translations for the law of conservation: what comes out, and the places that the ledger names."""

import json
import re
from itertools import count
from typing import Any

from laws.clients import spec_of
from laws.pairs import requested
from oracle import samples as s

from dragoman import (
    UPSTREAMS,
    Capabilities,
    RemoteProtocolError,
    RequestTranslator,
    ResponseTranslator,
    Signer,
)
from dragoman._ir.wrapped_signatures import LIST_PREFIX
from dragoman._wire.json import encode

Outcome = tuple[str, tuple[str, ...]]  # the output, and the places in the ledger
# The members of a Response that repeat the request.
ECHO = (
    "/(access_programs|background|conversation|image|instructions|max_output_tokens|max_tool_calls|metadata"
    "|parallel_tool_calls|previous_response_id|prompt|prompt_cache_key|prompt_cache_options"
    "|prompt_cache_retention|reasoning|safety_identifier|store|temperature|text|tool_choice|tools"
    "|top_logprobs|top_p|truncation|user)(/.*)?"
)

_numbers = count()


def token() -> str:
    return f"zq{next(_numbers):06d}"


def translated(client: str, upstream: str, body: Any) -> Outcome:
    if client == upstream:
        body = {**body, "Zq": "drg1."}  # looks like a wrapped signature, so the body is no relay of bytes
    return _request(RequestTranslator(client=spec_of(client), upstream=UPSTREAMS[upstream]), body)


def rewritten(protocol: str, body: Any) -> Outcome:
    """A request of the upstream's own protocol, fitted to one that takes no more than an unknown one does."""
    spec, rewrites = UPSTREAMS[protocol], Capabilities(relay="rewrite")
    translator = RequestTranslator(client=spec, upstream=spec, capabilities=rewrites, max_fan_out=16)
    return _request(translator, body)


def _request(translator: RequestTranslator, body: Any) -> Outcome:
    done = translator.translate(json.dumps(body).encode())
    # Stop sequences that the upstream does not take are looked for on the way back.
    stop_sequences = json.dumps(done.undo.stop_sequences, ensure_ascii=False)
    in_path = f"{done.upstream_model} {done.request.stream}" if '"model":' not in done.body.decode() else ""
    return done.body.decode() + stop_sequences + in_path, tuple(loss.path for loss in done.losses)


def translated_response(upstream: str, client: str, body: Any) -> Outcome:
    """A whole response translated. Raises RemoteProtocolError where it becomes an error."""
    return _response(upstream, client, json.dumps(body).encode(), streams=False)


def streamed(upstream: str, client: str, frames: list[Any]) -> Outcome:
    return _response(upstream, client, s.render(upstream, frames), streams=True)


def _response(upstream: str, client: str, data: bytes, *, streams: bool) -> Outcome:
    translator = ResponseTranslator(
        client=spec_of(client),
        upstream=UPSTREAMS[upstream],
        context=requested(client, streams=streams),
        upstream_streams=streams,
    )
    translator.receive_data(data)
    translator.receive_eof()
    if translator.error is not None:
        raise RemoteProtocolError(translator.error.message, path="/answer")
    out = translator.data_to_send().decode()
    return out + opened(out), tuple(loss.path for loss in translator.losses)


def opened(out: str) -> str:
    """What travels inside of wrapped reasoning."""
    signatures = [Signer().unwrap(text) for text in re.findall(r"drg1\.[A-Za-z0-9_-]+", out)]
    for text in re.findall(LIST_PREFIX + r"[A-Za-z0-9+/=]+", out):
        signatures += Signer().unwrap_list(text)
    return "".join(encode(signature.native).decode() for signature in signatures if signature is not None)


_ENDS = {"message_stop", "response.completed", "response.incomplete", "response.failed"}


def first_response(frames: list[Any]) -> list[Any]:
    """Some recordings hold several responses; what comes after the end of the first is not read."""
    for number, frame in enumerate(frames):
        if frame == "[DONE]" or (isinstance(frame, dict) and frame.get("type") in _ENDS):
            return frames[: number + 1]
    return frames
