"""Citations of web pages: `annotations` of type `url_citation`, and the lists of pages that search servers send.

Strategy: the official form names page, title and a span of the message's text. Servers leave the span out or send
0 to 0; a list of pages beside the answer is read as citations without a span.
"""

from __future__ import annotations

from dragoman._ir.request import Citation
from dragoman._wire.json import JSON, JSONObject

# Where a chunk or an answer lists pages: the first has titles, the second may be mere URLs.
_LISTS = ("search_results", "citations")
_PAGE = {"url", "title"}


def url_citation(url: str, title: str | None, start: int | None, end: int | None) -> JSONObject:
    """The official form, in which all four members are required."""
    cited = {"url": url, "title": title or "", "start_index": start or 0, "end_index": end or 0}
    return {"type": "url_citation", "url_citation": cited}


def page_of(native: JSONObject) -> tuple[str | None, str | None, int | None, int | None]:
    """URL, title and span of an annotation, None for what it does not say."""
    cite = native.get("url_citation")
    if type(cite) is not dict:
        return None, None, None, None
    start, end = cite.get("start_index"), cite.get("end_index")
    spans = type(start) is int and type(end) is int and end > start  # 0 to 0 says nothing
    return _word(cite.get("url")), _word(cite.get("title")), start if spans else None, end if spans else None


def citations_of(annotations: list[JSON], *, spans: bool) -> tuple[Citation, ...]:
    """The web pages among the annotations of a message. spans: they are counted in the text at hand."""
    found: list[Citation] = []
    for native in annotations:
        url, title, start, end = page_of(native) if type(native) is dict else (None, None, None, None)
        if url is not None:
            found.append(Citation(url, title, start, end) if spans else Citation(url, title))
    return tuple(found)


def listed_pages(body: JSONObject) -> list[JSONObject]:
    """The pages that a chunk or answer lists beside its choices, in the form of annotations, each URL once."""
    found: dict[str, JSONObject] = {}
    for key in _LISTS:
        pages = body.get(key)
        for page in pages if type(pages) is list else ():
            url = _url(page)
            if url is not None and url not in found:
                title = _word(page.get("title")) if type(page) is dict else None
                found[url] = {"type": "url_citation", "url_citation": {"url": url, "title": title}}
    return list(found.values())


def fuller_lists(body: JSONObject) -> list[str]:
    """Those of the lists that say more of a page than URL and title, or that cannot be read."""
    return [key for key in _LISTS if body.get(key) is not None and not _is_plain(body[key])]


def _is_plain(pages: JSON) -> bool:
    if type(pages) is not list:
        return False
    return all(_url(page) is not None and (type(page) is str or page.keys() <= _PAGE) for page in pages)


def _url(page: JSON) -> str | None:
    return _word(page.get("url") if type(page) is dict else page)


def _word(value: JSON) -> str | None:
    return value if type(value) is str and value else None
