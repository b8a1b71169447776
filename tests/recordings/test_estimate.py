"""The estimate comes near to what providers counted."""

import json
import re
from collections.abc import Iterator
from typing import Any

import corpus

from dragoman import PROTOCOLS, Signer
from dragoman._engine.tokens import estimate_tokens
from dragoman.document import HostedTool

USAGE = {
    "chat": r'"prompt_tokens" ?: ?(\d+)',
    "responses": r'"input_tokens" ?: ?(\d+)',
    "gemini": r'"promptTokenCount" ?: ?(\d+)',
}

# These providers put their own system prompt in front: thousands of tokens before "hello".
HIDDEN_PROMPTS = {"compound-beta", "grok-4-fast"}


def total(usage: dict[str, Any]) -> int:
    """All input tokens of a usage object. Messages counts the cached ones beside the others."""
    if "prompt_tokens" in usage:
        return int(usage["prompt_tokens"])
    parts = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum(usage.get(name) or 0 for name in parts)


def counted(folder: str, stream: str) -> int | None:
    if folder != "messages":
        found = re.findall(USAGE[folder], stream)
        return int(found[-1]) if found else None
    for line in re.findall(r"^data: ?(.*message_start.*)$", stream, re.MULTILINE):
        return total(json.loads(line)["message"]["usage"])
    return None


def recorded() -> Iterator[tuple[str, dict[str, Any], int]]:
    """(protocol, request, input tokens) of all recordings that have all three."""
    for folder, protocol in corpus.FOLDERS.items():
        for path in corpus.files(f"{folder}/*.request.json"):
            stream = path.with_name(path.name.replace(".request.json", ".sse"))
            tokens = counted(folder, stream.read_text("utf-8", "replace")) if stream.exists() else None
            if tokens is not None:
                yield protocol, corpus.read_request(protocol, path) or {}, tokens
    for path in corpus.files("equiv/*/*request.json"):
        response = path.with_name(path.name.replace("request.json", "response.json"))
        if response.exists() and (usage := json.loads(response.read_bytes()).get("usage")):
            yield corpus.FOLDERS[path.name.split(".")[0]], json.loads(path.read_bytes()), total(usage)


def test_it_comes_near_to_what_providers_counted() -> None:
    factors, large = [], []
    for protocol, body, tokens in recorded():
        request = PROTOCOLS[protocol].read_request(body, Signer())
        hosted = any(isinstance(tool, HostedTool) for tool in request.tools)
        if tokens <= 100 or hosted or body["model"] in HIDDEN_PROMPTS:
            continue
        factor = max(estimate_tokens(request) / tokens, tokens / estimate_tokens(request))
        factors.append(factor)
        if tokens > 1000:
            large.append(factor)
    assert len(factors) > 30
    assert max(factors) < 3
    assert sorted(factors)[len(factors) // 2] < 1.6
    assert max(large) < 1.3
