"""Members of requests that upstreams have refused by name, so that they are left out of the next ones.

Servers that check bodies refuse a request for one setting that they do not have. What a host is known to refuse is in
its row (`capabilities.providers`); this is for the others. Such an error is recognized by its words, and only if it
names exactly one member that was sent. `Attempt.can_resend` then plans the refused request again without it, and the
same account gets it once more. A capability that a server does not have is remembered in the same way.
"""

import re
from collections.abc import Collection, Mapping

from dragoman import WireError

# Afterwards a member is sent again, because servers are updated.
REMEMBERED_S = 3600

# Members that are left out for one model. A host that refuses more needs a row or a setting.
MAX_LEFT_OUT = 4
# Characters of an error's text that are searched.
_MAX_TEXT = 2000

# Upstreams and models of which something is remembered. Clients choose model names, so there may be any number.
_MAX_MODELS = 1024

# FastAPI and others answer 422 for a body that does not fit their schema.
_STATUSES = (400, 422)
_CODES = frozenset(
    {"unsupported_parameter", "unknown_parameter", "unrecognized_parameter", "extra_forbidden"}
)

_PATTERNS = (
    # OpenAI: "Unsupported parameter: 'x' is not supported with this model." "Unknown parameter: 'x'."
    # "Unrecognized request argument supplied: x". Go: 'json: unknown field "x"'.
    r"(?:unsupported|unknown|unrecognized|unexpected|invalid) (?:request )?"
    r"(?:parameter|argument|field|property|key)(?:\(s\)|s)?(?: supplied| in object)?:? ['\"`]?([a-z_]+)\b(?![.\[])",
    # Groq: "property 'x' is unsupported".
    r"property ['\"`]([a-z_]+)['\"`] is (?:unsupported|not supported)",
    # Google: 'Unknown name "x": Cannot find field.'
    r"unknown name \"([a-z_]+)\": cannot find field",
    # Anthropic: "x: Extra inputs are not permitted". Pydantic: "{'type': 'extra_forbidden', 'loc': ('body', 'x')".
    r"(?:^|[\s'\"])([a-z_]+): extra inputs are not permitted",
    r"extra_forbidden['\"], ?['\"]loc['\"]: ?[\[(]['\"]body['\"], ?['\"]([a-z_]+)['\"][\])]",
)


def refused_member(error: WireError, sent: Collection[str]) -> str | None:
    """Return the member that an upstream has refused, None if the error names none, or several. sent: all members."""
    if error.status not in _STATUSES:
        return None
    text = error.message[:_MAX_TEXT]
    names = {match[1] for pattern in _PATTERNS for match in re.finditer(pattern, text, re.IGNORECASE)}
    if error.code in _CODES and error.param is not None:
        names.add(error.param)
    named = names.intersection(sent)
    return named.pop() if len(named) == 1 else None


def refused_capability(error: WireError, refusals: Mapping[str, re.Pattern[str]]) -> str | None:
    """Return the capability that an upstream does not have. refusals: UpstreamSpec.refusals."""
    text = f"{error.param or ''}: {error.message}"[:_MAX_TEXT] if error.status in _STATUSES else ""
    return next((name for name, pattern in refusals.items() if pattern.search(text)), None)


class RefusedMembers:
    """The members that each model of each upstream has refused, with the time until which that is remembered."""

    def __init__(self) -> None:
        self._until: dict[tuple[str, str], dict[str, float]] = {}

    def add(self, upstream: str, model: str, member: str, now: float) -> bool:
        """Remember that a member was refused. Return false if the model has refused too many. now: since the epoch."""
        if len(self._until) >= _MAX_MODELS:
            self._until.clear()
        members = self._until.setdefault((upstream, model), {})
        if member not in members and len(members) >= MAX_LEFT_OUT:
            return False
        members[member] = now + REMEMBERED_S
        return True

    def get(self, upstream: str, model: str, now: float) -> tuple[str, ...]:
        """Return the members that are left out at this time."""
        members = self._until.get((upstream, model))
        if not members:
            return ()
        for member in [each for each, until in members.items() if until <= now]:
            del members[member]
        return tuple(members)
