"""The recorded responses of providers, where they are at hand.

They lie beside the repository (or where DRAGOMAN_SHARED points) and are no part of it, so only the tests of this
folder read them. Everything here yields nothing where they are absent.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from equiv import GEMINI_MODEL
from oracle import CHAT, GEMINI, MESSAGES, RESPONSES

PLACE = Path(os.environ.get("DRAGOMAN_SHARED", Path(__file__).parents[4] / "shared"))
FOLDERS = {"chat": CHAT, "messages": MESSAGES, "responses": RESPONSES, "gemini": GEMINI}
OFFICIAL_MODELS = {
    CHAT: ("gpt-3.5", "gpt-4", "gpt-5", "o1", "o3", "o4"),
    MESSAGES: ("claude-",),
    RESPONSES: ("gpt-", "o1", "o3", "o4"),
    GEMINI: ("gemini-",),
}
# Written by hand for other projects' tests, though they name a vendor's model.
HAND_MADE = {
    "messages/fallback_01",
    "messages/refusal_thinking_02",
    "messages/tool_no_args_tool_use_02",
    "responses/function_call_02",
}
# Whole responses that become errors, which is as it should be.
FAILURES = {
    "gemini/unexpected_tool_call_one_call_sig_call_vertex_01": "the model called a function that was not declared"
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
        """Return the stream. A recorded JSON array is returned as the events that alt=sse would have asked for."""
        data = self.path.read_bytes()
        if self.path.suffix != ".json":
            return data
        return b"".join(b"data: %b\r\n\r\n" % json.dumps(each).encode() for each in json.loads(data))

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


def read_request(protocol: str, path: Path) -> dict[str, Any] | None:
    """Return a recorded request. Gemini's model is in its path, and is a member where the core reads it."""
    request = json.loads(path.read_text()) if path.is_file() else None
    if not isinstance(request, dict):
        return None
    return {"model": GEMINI_MODEL, **request} if protocol == GEMINI else request


def _entries() -> Iterator[tuple[dict[str, Any], Path]]:
    """Give the entries of the indexes, with the folders of their files."""
    streams = root()
    for folder in (streams, streams / "gemini") if streams is not None else ():
        for entry in json.loads((folder / "index.json").read_text()):
            yield entry, folder


@cache
def recordings() -> tuple[Recording, ...]:
    """All recorded streams."""
    found = []
    for entry, folder in _entries():
        protocol, path = FOLDERS[entry["protocol"]], folder / entry["file"]
        if path.suffix == ".sse" or "json_array" in entry["features"]:
            found.append(
                Recording(
                    name=f"{entry['protocol']}/{path.name.partition('.')[0]}",
                    protocol=protocol,
                    path=path,
                    request=read_request(protocol, folder / (entry["request"] or "")),
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
    entries = json.loads((streams / "errors.json").read_text())
    entries += [
        {**entry, "body": (folder / entry["file"]).read_text()}
        for entry, folder in _entries()
        if entry.get("status", 200) != 200
    ]
    found = []
    for number, entry in enumerate(entries):
        path = entry["endpoint"].partition("?")[0]
        protocol = FOLDERS.get(entry.get("protocol") or path.rpartition("/")[2], CHAT)
        host = path.partition("/")[0]
        name = f"{number:02}-{host}-{entry['status']}"
        body = entry["body"].encode()
        found.append(WholeResponse(name, protocol, entry["status"], entry["headers"], body, None))
    return tuple(found)


@cache
def equivalents() -> tuple[WholeResponse, ...]:
    """Return whole responses, most of them to requests that were put to several providers; errors among them."""
    found = []
    for path in (*files("equiv/*/*.json"), *files("gemini/equiv/*/*.json")):
        short, _, kind = path.name.partition(".")
        if not kind.endswith(("response.json", "error.json")):
            continue
        protocol = FOLDERS.get(short, GEMINI)
        request_path = path.with_name(
            path.name.replace("response.json", "request.json").replace("error", "request")
        )
        status = 200 if kind.endswith("response.json") else 400
        name = f"{path.parent.name}/{path.name.removesuffix('.json')}"
        request = read_request(protocol, request_path)
        found.append(WholeResponse(name, protocol, status, {}, path.read_bytes(), request))
    for entry, folder in _entries():
        if (
            entry.get("endpoint", "").partition("?")[0].endswith(":generateContent")
            and entry["status"] == 200
        ):
            path, request = folder / entry["file"], read_request(GEMINI, folder / (entry["request"] or ""))
            name = f"gemini/{path.name.partition('.')[0]}"
            found.append(WholeResponse(name, GEMINI, 200, {}, path.read_bytes(), request))
    return tuple(found)
