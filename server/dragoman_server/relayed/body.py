"""Watch the bytes of a relayed response: is it complete, and what was used?

Nothing is parsed but the last kilobytes, because an answer may have many megabytes of vectors or images. The usage is
at its end.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from itertools import islice
from typing import Any

from dragoman import ErrorKind, Ledger, Outcome, ResponseMachine, Usage, WireError
from dragoman.jsontext import MAX_COUNT, JSONObject
from dragoman_server.relayed.table import JSON, SSE

# Bytes at the end of a body in which its usage is looked for.
TAIL_BYTES = 4096

# OpenAI and most others; Cohere; Google.
_USAGE = r'"(?:usage|billed_units|usageMetadata)"\s*:\s*(?={)'

# The neutral names of the counts that there are: OpenAI, Cohere, Google; Voyage and Jina have a total only.
_INPUT = ("prompt_tokens", "input_tokens", "promptTokenCount", "total_tokens")
_OUTPUT = ("completion_tokens", "output_tokens", "candidatesTokenCount")
# What is billed besides tokens: transcriptions, reranking.
UNITS = ("seconds", "search_units")

_decode = json.JSONDecoder().raw_decode


# Ids that vendors make, as the value of a member, or in a path: file-..., batch_..., msgbatch_...; cachedContents/...
# What follows the kind has a digit or a capital, and words such as vector_stores and file_search have neither.
ID_REST = r"[-_](?=[a-z_-]*[A-Z0-9])[A-Za-z0-9_-]{4,100}"
CACHE_NAME = "cachedContents/[A-Za-z0-9-]{1,100}"
_ID = rf"[a-z]{{2,24}}{ID_REST}"
_IDS = rf'"(?:(?:\w*_)?id"\s*:\s*"({_ID})|name"\s*:\s*"({CACHE_NAME}))"'.encode()
_ID_IN_PATH = rf"(?<=/)(?:{CACHE_NAME}|{_ID})(?=/|$)"
# Those of one body. An answer has a few that matter.
_MAX_IDS = 16


def ids_in(body: bytes) -> list[str]:
    """Return the ids of vendors' objects in a body of JSON."""
    found = dict.fromkeys((each[1] or each[2]).decode() for each in islice(re.finditer(_IDS, body), _MAX_IDS))
    return list(found)


def ids_in_path(path: str) -> list[str]:
    """Return the ids of vendors' objects in a path."""
    return re.findall(_ID_IN_PATH, path)[:_MAX_IDS]


# Bytes in which there may be the beginning of a member with a URL, up to the path.
_MAX_ORIGIN_BYTES = 320


class RelayedBody(ResponseMachine):
    """Relays one body. See ResponseMachine.

    Args:
        media_type: of the body.
        ends, has_ids, url_member: see RelayedPath.

    Attributes:
        units: What is billed besides tokens, by name.
    """

    def __init__(
        self,
        media_type: str,
        ends: tuple[bytes, ...] = (),
        *,
        has_ids: bool = False,
        url_member: str = "",
    ) -> None:
        self.losses = Ledger()
        self.outcome = Outcome.OPEN
        self.usage = Usage()
        self.units: dict[str, float] = {}
        self._is_readable = media_type in (JSON, SSE)
        self._ends = ends if media_type == SSE else ()
        self._out: list[bytes] = []
        self._tail = b""
        is_json = media_type == JSON
        self._origin = _origin_of(url_member) if url_member and is_json else None
        # The beginning of a body with ids. Its end is held, so that its client has no id before it is stored.
        self._head: bytes | None = b"" if has_ids and is_json else None

    def receive_data(self, data: bytes) -> None:
        """Take bytes of the upstream's body."""
        self.committed = True
        self._out.append(data)
        if self._head is not None and len(self._head) < TAIL_BYTES:
            self._head += data[: TAIL_BYTES - len(self._head)]
        self._tail = data[-TAIL_BYTES:] if len(data) >= TAIL_BYTES else (self._tail + data)[-TAIL_BYTES:]

    def receive_eof(self) -> None:
        if self._ends and not any(end in self._tail for end in self._ends):
            self.fail(WireError(ErrorKind.TRUNCATED, "the upstream's response ended without being complete"))
            return
        self.outcome = Outcome.COMPLETED
        self._read_usage()

    def fail(self, error: WireError) -> None:
        if self.outcome is Outcome.OPEN:
            self.outcome, self.error = Outcome.FAILED, error
            self._read_usage()

    def data_to_send(self) -> bytes:
        data = b"".join(self._out)
        self._out.clear()
        held = 1
        if self._origin is not None:
            data, held = self._origin.sub(rb"\1", data), _MAX_ORIGIN_BYTES
        if self._head is not None and self.outcome is Outcome.OPEN:
            self._out.append(data[-held:])
            return data[:-held]
        return data

    def heartbeat(self) -> bytes:
        return b""

    def whole_body(self) -> JSONObject | None:
        """Return the ids of a complete body, in a document; None if there are none."""
        ids = ids_in(self._head) if self._head and self.outcome is Outcome.COMPLETED else []
        return {"ids": [*ids]} if ids else None

    def _read_usage(self) -> None:
        counts = last_usage(self._tail) if self._is_readable else {}
        self.units = {name: counts[name] for name in UNITS if name in counts}
        found = [
            next((counts[name] for name in names if name in counts), None) for names in (_INPUT, _OUTPUT)
        ]
        if found[0] is not None or found[1] is not None:
            # A count that an endpoint does not have, such as that of embeddings' output, is 0.
            self.usage = Usage(input=int(found[0] or 0), output=int(found[1] or 0))
        elif self.units:
            self.usage = Usage(input=0, output=0)


@cache
def _origin_of(member: str) -> re.Pattern[bytes]:
    """Return a pattern for a member and the origin of the URL that it is. Its group is what stays of that."""
    return re.compile(rb'("%b"\s{0,8}:\s{0,8}")https?://[^"/\\]{1,255}(?=[/"])' % member.encode())


def last_usage(tail: bytes) -> Mapping[str, float]:
    """Return the counts of the last usage in the end of a body, none if there is none."""
    text = tail.decode("utf-8", "replace")
    for found in reversed([*re.finditer(_USAGE, text)]):
        try:
            value: dict[str, Any] = _decode(text, found.end())[0]
        except (ValueError, RecursionError):
            continue
        return {
            name: each
            for name, each in value.items()
            if type(each) in (int, float) and 0 <= each <= MAX_COUNT
        }
    return {}
