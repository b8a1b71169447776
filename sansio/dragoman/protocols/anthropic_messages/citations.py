"""Citations: those of the vendor's answers and requests as sources, those of others as the vendor's.

Strategy: of all kinds of citations the web page is the one that the other protocols have; the rest is kept as it came.
"""

from __future__ import annotations

from typing import cast

from dragoman._ir.events import Annotation
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Citation
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols.anthropic_messages.tables import NAME


def page_of(citation: JSONObject) -> str | None:
    """The web page that a citation is of: a search result of the client's own may have one, too."""
    url = citation.get("url")
    if type(url) is str:
        return url
    source = citation.get("source")
    return source if type(source) is str and source.startswith(("https://", "http://")) else None


def title_of(citation: JSONObject) -> str | None:
    """The title of what is cited."""
    title = citation.get("title", citation.get("document_title"))
    return title if type(title) is str else None


def sources_of(citations: JSON) -> tuple[Citation, ...]:
    """Those of a text's citations that are web pages. They are about the whole block."""
    found: list[Citation] = []
    for citation in citations if type(citations) is list else ():
        if type(citation) is dict:
            url = page_of(citation)
            if url is not None:
                found.append(Citation(url, title_of(citation)))
    return tuple(found)


def citation_of(event: Annotation, block: str, ledger: Ledger) -> JSONObject | None:
    """The citation for an annotation, None when it is no citation of a web page. block: the path of its block."""
    if event.origin == NAME:
        return cast(JSONObject, event.native)
    path = event.path or f"{block}/citations"
    if event.url is None:
        ledger.dropped(path, "an annotation that names no web page")
        return None
    if event.start is not None or event.end is not None or event.says_more():
        ledger.altered(path, "only URL and title of the citation were carried")
    return {
        "type": "web_search_result_location",
        "url": event.url,
        "title": event.title,
        "cited_text": "",
        "encrypted_index": "",
    }
