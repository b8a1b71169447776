"""Find where the prompt of a recorded request no longer begins with the previous prompt, and who changed it.

Providers build a prompt from tools, instructions and messages, in this order, and cache it from its start: see
docs/prompt-caches.md. The last message of a request may change, and cache marks do not count.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Literal

from dragoman import PROTOCOLS, peek
from dragoman.jsontext import JSONObject
from dragoman_server.proxying.affinity import (
    CACHE_MARKS,
    INSTRUCTIONS_FIELDS,
    MESSAGE_FIELDS,
    conversation_key,
)
from dragoman_server.recordings.document import RecordedAttempt, Recording, RecordingError, as_bytes
from dragoman_server.recordings.replay import attempt_of, decoded, first_unequal


@dataclass(frozen=True, slots=True)
class BrokenPrefix:
    """A request whose prompt does not begin with the previous request's prompt.

    Attributes:
        name, before: The names of both recordings.
        by: Who changed it.
        pointer: The first place that differs, in the client's body or in the upstream's.
        lost_bytes: The size of the previous prompt behind that place, without its last message.
        prompt_bytes: The size of all of it.
    """

    name: str
    before: str
    by: Literal["client", "gateway"]
    pointer: str
    lost_bytes: int
    prompt_bytes: int


@dataclass(slots=True)
class _Prompt:
    """The parts of a prompt in their order, each as JSON.

    Attributes:
        first: The number of parts before the conversation.
    """

    pointers: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    first: int = 0

    def add(self, pointer: str, value: Any) -> None:
        self.pointers.append(pointer)
        self.texts.append(json.dumps(_without_marks(value), ensure_ascii=False, separators=(",", ":")))


@dataclass(slots=True)
class _Seen:
    """The newest request of a conversation."""

    name: str
    client: _Prompt
    attempt: RecordedAttempt
    upstream: _Prompt


@dataclass(slots=True)
class PrefixReport:
    """The numbers of requests, of requests that continue another one, of sessions; the broken prefixes."""

    requests: int = 0
    continued: int = 0
    sessions: int = 0
    broken: list[BrokenPrefix] = field(default_factory=list)


def check_prefixes(recordings: Iterable[tuple[str, Recording]]) -> PrefixReport:
    """Compare each request with the one that it continues. recordings: with their names, in any order."""
    report = PrefixReport()
    sessions: dict[object, list[_Seen]] = {}
    # Times are whole seconds, and conversations grow.
    for name, recording in sorted(recordings, key=lambda named: (named[1].time, len(named[1].request.body))):
        request = recording.request
        endpoints = PROTOCOLS[request.protocol].endpoints if request.protocol in PROTOCOLS else ()
        if all(endpoint.match(request.path, request.query) is None for endpoint in endpoints):
            continue
        try:
            attempt = attempt_of(recording)
        except RecordingError:
            continue  # nothing was cached
        body, sent = decoded(as_bytes(request.body)), decoded(as_bytes(attempt.body))
        if not isinstance(body, dict) or not isinstance(sent, dict):
            continue
        report.requests += 1
        key = conversation_key("", dict(request.headers), peek(as_bytes(request.body)))
        seen = sessions.setdefault((request.protocol, body.get("model"), key), [])
        new = _Seen(name, _prompt(body), attempt, _prompt(sent))
        before = _continued(seen, new)
        if before is not None:
            seen.remove(before)
            report.continued += 1
            broken = _compare(before, new)
            report.broken += [] if broken is None else [broken]
        seen.append(new)
    report.sessions = len(sessions)
    return report


def _prompt(body: JSONObject) -> _Prompt:
    prompt = _Prompt()
    for name in ("tools", *INSTRUCTIONS_FIELDS, *MESSAGE_FIELDS):
        value = body.get(name)
        if name == MESSAGE_FIELDS[0]:
            prompt.first = len(prompt.texts)
        if isinstance(value, list):
            for index, element in enumerate(value):
                prompt.add(f"/{name}/{index}", element)
        elif value is not None:
            prompt.add(f"/{name}", value)
    return prompt


def _without_marks(value: Any) -> Any:
    """Return a value without cache marks. A text that was a part because of its mark is a string."""
    if isinstance(value, list):
        values = [_without_marks(element) for element in value]
        only = values[0] if len(values) == 1 else None
        is_text = isinstance(only, dict) and only.keys() == {"type", "text"}
        return only["text"] if is_text and only is not None else values
    if not isinstance(value, dict):
        return value
    return {name: _without_marks(member) for name, member in value.items() if name not in CACHE_MARKS}


def _continued(seen: list[_Seen], new: _Seen) -> _Seen | None:
    """Return the request that a new one continues: of those with the same first message the most similar one."""
    now = new.client.texts
    begun = [
        request
        for request in seen
        if now[new.client.first :][:1] == request.client.texts[request.client.first :][:1]
        # One that adds nothing begins another conversation, or goes back in this one.
        and len(now) - new.client.first > len(request.client.texts) - request.client.first
    ]
    return max(reversed(begun), key=lambda request: _shared(request.client, new.client), default=None)


def _shared(before: _Prompt, now: _Prompt) -> int:
    """Return the number of parts at the start that are equal."""
    return sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before.texts, now.texts, strict=False))
    )


def _compare(before: _Seen, new: _Seen) -> BrokenPrefix | None:
    """Return where the prefix that the upstream got before broke, None if it did not."""
    old = before.upstream
    at, end = _shared(old, new.upstream), len(old.texts) - 1
    pointer: str | None = None
    if (before.attempt.upstream, before.attempt.model) != (new.attempt.upstream, new.attempt.model):
        at, pointer = 0, ""  # it has its own cache
    elif at >= end:
        return None
    client_at = _shared(before.client, new.client)
    by_client = pointer is None and client_at < len(before.client.texts) - 1
    if by_client:
        pointer = _pointer(before.client, new.client, client_at)
    elif pointer is None:
        pointer = _pointer(old, new.upstream, at)
    lost, total = (
        sum(len(text.encode("utf-8", "surrogatepass")) for text in old.texts[start:end]) for start in (at, 0)
    )
    return BrokenPrefix(new.name, before.name, "client" if by_client else "gateway", pointer, lost, total)


def _pointer(old: _Prompt, now: _Prompt, at: int) -> str:
    """Return the place of the first difference, which is in the part `at` of the old prompt."""
    pointer = old.pointers[at]
    if at < len(now.texts) and now.pointers[at] == pointer:
        pointer += first_unequal(json.loads(old.texts[at]), json.loads(now.texts[at]))[0]
    return pointer
