"""What answers of other protocols tell that this one has blocks for: web searches, and summaries.

Strategy: a search is shown by the two blocks that the vendor's own would have. They are a picture only: the search
itself travels sealed beside them, so their ids are marked and the reader of requests drops what comes back of them.
A summary is sealed into the field where the vendor has its ciphertext, and read from there.
"""

from __future__ import annotations

from dragoman._ir.events import Seal, Search
from dragoman._ir.signatures import Sealer
from dragoman._wire.json import JSONObject
from dragoman.protocols.anthropic_messages.tables import (
    SHOWN_CONTENT,
    SHOWN_SEARCH,
    SUMMARY_ORIGIN,
)


def search_blocks(search: Search, answer_id: str, index: int) -> tuple[JSONObject, JSONObject]:
    """The blocks of a search that stands at `index` of the answer."""
    use_id = f"{SHOWN_SEARCH}{answer_id}_{index}"
    use: JSONObject = {
        "type": "server_tool_use",
        "id": use_id,
        "name": "web_search",
        "input": {"query": "\n".join(search.queries)},
        "caller": {"type": "direct"},
    }
    found = [
        {
            "type": "web_search_result",
            "url": source.url,
            "title": source.title or source.url,
            "encrypted_content": SHOWN_CONTENT,
            "page_age": None,
        }
        for source in search.sources
    ]
    result: JSONObject = {
        "type": "web_search_tool_result",
        "tool_use_id": use_id,
        "content": found,
        "caller": {"type": "direct"},
    }
    return use, result


def compaction_block(text: str, sealer: Sealer) -> JSONObject:
    """The block that takes the place of the conversation."""
    carrier = sealer.wrap(Seal(SUMMARY_ORIGIN, {"summary": text}))
    return {"type": "compaction", "content": text, "encrypted_content": carrier}
