"""Members that hosts add to responses for bookkeeping, or to repeat the request; clients do not need them.

extras.txt has a line for each member of a whole response: where it stands, and a value as its host sends it, below the
protocols of such hosts.
"""

import json
import re
from pathlib import Path
from typing import Any

from oracle import CHAT, MESSAGES, RESPONSES

Extra = tuple[str, Any]

EXTRAS: dict[str, list[Extra]] = {CHAT: [], MESSAGES: [], RESPONSES: []}
_protocols: list[str] = []
for _line in filter(None, Path(__file__).with_suffix(".txt").read_text("utf-8").splitlines()):
    if _line.startswith("["):
        _protocols = _line.strip("[]").split()
    else:
        _path, _, _value = _line.partition(" ")
        for _protocol in _protocols:
            EXTRAS[_protocol].append((_path, json.loads(_value)))

# Members without meaning only as long as their value is one of those above.
_BY_VALUE = re.compile(
    r".*/(base_resp|content_filter_results|content_filters|context_management|graph_data|image_tokens|images"
    r"|iterations|matched_stop|odd_\w+|prompt_filter_results|provider_metadata|provider_specific_fields"
    r"|related_questions|server_tool_use\w*|stop_reason|tool_usage|vertex_ai_\w+|\w+_sensitive)"
)


def _pattern(path: str) -> str:
    """The place in whole responses and in frames, with all that it holds."""
    path = re.sub(r"/0(?=/)", "/[^/]+", re.escape(path)).replace("/message/", "/(message|delta)/")
    return f"(/response|/message)?{path}(/.*)?"


# Places at which nothing that is planted is missed.
BOOKKEEPING: dict[str, str] = {
    protocol: "|".join(
        [
            *sorted({_pattern(path) for path, _ in rows if not _BY_VALUE.fullmatch(path)}),
            r".*/provider_metadata/(gateway|google/usageMetadata)(/.*)?",
            r".*/content_filters/[^/]+/content_filter_offsets(/.*)?",
        ]
    )
    for protocol, rows in EXTRAS.items()
}
