"""The recorded responses of providers, where they are at hand.

They lie beside the repository (or where DRAGOMAN_SHARED points) and are no part of it, so only the tests of this
folder read them. Everything here yields nothing where they are absent.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from oracle import CHAT, MESSAGES, RESPONSES

PLACE = Path(os.environ.get("DRAGOMAN_SHARED", Path(__file__).parents[4] / "shared"))
FOLDERS = {"chat": CHAT, "messages": MESSAGES, "responses": RESPONSES}
OFFICIAL_MODELS = {
    CHAT: ("gpt-3.5", "gpt-4", "gpt-5", "o1", "o3", "o4"),
    MESSAGES: ("claude-",),
    RESPONSES: ("gpt-", "o1", "o3", "o4"),
}
# Written by hand for other projects' tests, though they name a vendor's model.
HAND_MADE = {
    "messages/fallback_01",
    "messages/refusal_thinking_02",
    "messages/tool_no_args_tool_use_02",
    "responses/function_call_02",
}
# Sent by the vendor, and changed in the file: the last lines are lost, a value is shortened.
EDITED = {"messages/tool_use_max_tokens_02", "responses/image_generation_call_reasoning_01"}


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded stream. `request` is None where the request was not recorded."""

    name: str
    protocol: str
    path: Path
    request: dict[str, Any] | None
    features: frozenset[str]
    model: str
    exact: bool

    def read(self) -> bytes:
        return self.path.read_bytes()

    @property
    def official(self) -> bool:
        """Sent by the vendor of the protocol itself, its bytes kept as they came, but for those of EDITED."""
        is_official = self.model.startswith(OFFICIAL_MODELS[self.protocol])
        odd = self.name in HAND_MADE or self.features & {"derived", "azure_prompt_filter"}
        return is_official and self.exact and not odd


@dataclass(frozen=True, slots=True)
class WholeResponse:
    """A recorded response that was not streamed, or an error response, with its request where recorded."""

    name: str
    protocol: str
    status: int
    headers: dict[str, str]
    body: bytes
    request: dict[str, Any] | None


def root() -> Path | None:
    """The folder of recordings, or None."""
    streams = PLACE / "streams"
    return streams if (streams / "index.json").is_file() else None


def files(pattern: str) -> list[Path]:
    """The files whose paths match a pattern of shells, in their order."""
    streams = root()
    return sorted(streams.glob(pattern)) if streams is not None else []


@cache
def recordings() -> tuple[Recording, ...]:
    """All recorded streams."""
    streams = root()
    if streams is None:
        return ()
    found = []
    for entry in json.loads((streams / "index.json").read_text()):
        request = json.loads((streams / entry["request"]).read_text()) if entry["request"] else None
        found.append(
            Recording(
                name=entry["file"].removesuffix(".sse"),
                protocol=FOLDERS[entry["protocol"]],
                path=streams / entry["file"],
                request=request if isinstance(request, dict) else None,
                features=frozenset(entry["features"]),
                model=entry["model"] or "",
                exact=entry["framing"].startswith("exact"),
            )
        )
    return tuple(found)


@cache
def errors() -> tuple[WholeResponse, ...]:
    """Return all recorded error responses."""
    streams = root()
    if streams is None:
        return ()
    found = []
    for number, entry in enumerate(json.loads((streams / "errors.json").read_text())):
        path = entry["endpoint"].partition("?")[0]
        protocol = CHAT
        if path.endswith("/messages"):
            protocol = MESSAGES
        elif path.endswith("/responses"):
            protocol = RESPONSES
        host = path.partition("/")[0]
        name = f"{number:02}-{host}-{entry['status']}"
        body = entry["body"].encode()
        found.append(WholeResponse(name, protocol, entry["status"], entry["headers"], body, None))
    return tuple(found)


@cache
def equivalents() -> tuple[WholeResponse, ...]:
    """Return the whole responses to the requests that were put to several providers; errors among them."""
    streams = root()
    if streams is None:
        return ()
    found = []
    for path in sorted((streams / "equiv").glob("*/*.json")):
        short, _, kind = path.name.partition(".")
        if not kind.endswith(("response.json", "error.json")):
            continue
        request_path = path.with_name(
            path.name.replace("response.json", "request.json").replace("error", "request")
        )
        request = json.loads(request_path.read_text()) if request_path.is_file() else None
        status = 200 if kind.endswith("response.json") else 400
        name = f"{path.parent.name}/{path.name.removesuffix('.json')}"
        found.append(WholeResponse(name, FOLDERS[short], status, {}, path.read_bytes(), request))
    return tuple(found)
