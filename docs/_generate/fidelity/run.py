"""Run the translators on the documents of probes: what they send, what the gateway does itself, the ledger."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache

from dragoman import (
    UPSTREAMS,
    Capabilities,
    Loss,
    RemoteProtocolError,
    RequestTranslator,
    ResponseTranslator,
    Signer,
)
from dragoman.codec import ResponseContext
from dragoman.document import Request
from dragoman.jsontext import encode
from dragoman_server.capabilities.provider import CHAT, GEMINI, MESSAGES, RESPONSES
from dragoman_server.capabilities.providers import PROVIDERS
from dragoman_server.capabilities.resolve import capabilities_for
from dragoman_server.proxying.plan import MAX_FAN_OUT
from dragoman_server.settings import Settings, UpstreamSettings
from fidelity.probe import Json

PROTOCOL_NAMES = (CHAT, MESSAGES, RESPONSES, GEMINI)


@dataclass(frozen=True, slots=True)
class Output:
    """wire: what is sent. wrapped: what wrapped signatures contain. here: what the gateway does itself."""

    wire: str
    wrapped: str
    here: str
    losses: tuple[Loss, ...]


# The vendors' own hosts, each with a current model.
VENDORS = {CHAT: "openai", RESPONSES: "openai", MESSAGES: "anthropic", GEMINI: "gemini"}
_MODELS = {
    CHAT: "some-model",
    RESPONSES: "some-model",
    MESSAGES: "claude-opus-5",
    GEMINI: "gemini-3.8-flash",
}
# At the beginning of a wrapped signature, and of the Base64 of several.
_WRAPPED = re.compile(r"(?:drg1\.|ZHJnMS)[A-Za-z0-9_+/=-]+")


@cache
def capabilities_of(protocol: str) -> tuple[Capabilities, Capabilities]:
    """Return the capabilities of an unknown compatible server, and of the vendor's own host."""
    provider = next(each for each in PROVIDERS if each.name == VENDORS[protocol])
    upstream = UpstreamSettings(name="vendor", protocol=protocol, base_url=provider.base_url)
    return UPSTREAMS[protocol].capabilities(), capabilities_for(Settings(), upstream, _MODELS[protocol])


def request_output(client: str, upstream: str, capabilities: Capabilities, body: Json) -> Output:
    """Translate a request. Raises what the translator raises for a refused one."""
    translator = RequestTranslator(
        client=UPSTREAMS[client],
        upstream=UPSTREAMS[upstream],
        capabilities=capabilities,
        max_fan_out=MAX_FAN_OUT,
    )
    done = translator.translate(json.dumps(body).encode(), model=body.get("model", "m"))
    wire = json.loads(done.body)
    if UPSTREAMS[upstream].model_in_path:
        wire["path"] = UPSTREAMS[upstream].path_for(done.request.model, stream=done.request.stream)
    here = {
        "answers": done.fan_out,
        "stops": done.undo.stop_sequences,
        "include_usage": done.request.include_usage,
        "compacts": done.undo.compacts,
    }
    return Output(json.dumps(wire), "", json.dumps(here), tuple(done.losses))


def answer_output(upstream: str, client: str, frames: list[Json]) -> Output:
    """Translate a stream. Raises RemoteProtocolError if it became an error, unless the upstream sent that error."""
    request = Request(protocol=client, model="alias", messages=(), stream=True, params={"stop": ["Zqstop"]})
    context = ResponseContext(request=request, id="0123456789abcdef", now=1, model="alias", prompt_tokens=7)
    translator = ResponseTranslator(client=UPSTREAMS[client], upstream=UPSTREAMS[upstream], context=context)
    translator.receive_data(b"".join(_frame(frame) for frame in frames))
    translator.receive_eof()
    wire = translator.data_to_send().decode()
    if translator.error is not None and "Zq" not in translator.error.message:
        raise RemoteProtocolError(translator.error.message)
    return Output(wire, _unwrapped(wire), "", tuple(translator.losses))


def _frame(frame: Json) -> bytes:
    """Return one frame of an upstream's stream, with an event line if it has a type."""
    if isinstance(frame, str):
        return f"data: {frame}\n\n".encode()
    head = f"event: {frame['type']}\n" if "type" in frame else ""
    return f"{head}data: {json.dumps(frame)}\n\n".encode()


def _unwrapped(wire: str) -> str:
    """Return the contents of wrapped signatures."""
    found = [each for text in _WRAPPED.findall(wire) for each in Signer().unwrap_list(text)]
    return "".join(encode(each.native).decode() for each in found)
