"""Citations of web pages. Chat Completions has their members under `url_citation`, Responses next to the type."""

from __future__ import annotations

from dragoman._ir.request import Citation
from dragoman._wire.json import JSON, JSONObject, text_or_none


def read_url_citation(value: JSON) -> tuple[str | None, str | None, int | None, int | None]:
    """Return URL, title, start and end from the members of a citation, None for each that it lacks."""
    if type(value) is not dict:
        return None, None, None, None
    start, end = value.get("start_index"), value.get("end_index")
    if type(start) is not int or type(end) is not int or end <= start:
        start = end = None  # servers without spans send 0 to 0
    return text_or_none(value.get("url")), text_or_none(value.get("title")), start, end


def read_citations(annotations: list[JSON], *, spans: bool = True) -> tuple[Citation, ...]:
    """Return the web pages that members of citations are about. Other kinds name files in the vendor's store.

    spans: keep the spans.
    """
    found = []
    for value in annotations:
        url, title, start, end = read_url_citation(value)
        if url is not None:
            found.append(Citation(url, title, start, end) if spans else Citation(url, title))
    return tuple(found)


def write_url_citation(
    url: str, title: str | None, start: int | None, end: int | None, length: int
) -> JSONObject:
    """Return the members of a citation. All are required, so one without a span cites a text of `length` characters."""
    return {
        "url": url,
        "title": title or url,
        "start_index": start or 0,
        "end_index": length if end is None else end,
    }
