"""Citations in the conversation: `url_citation` annotations and their neutral form.

Strategy: an annotation is kept as it came for the same protocol; those of web pages are also read into the form
that every protocol can print. The other kinds name files in the vendor's store, which nobody else can open.
"""

from __future__ import annotations

from dragoman._ir.request import Citation, Text
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols.openai_responses.common import objects_of, text_of


def sources_of(annotations: JSON) -> tuple[Citation, ...]:
    """The web pages that annotations cite."""
    found = []
    for each in objects_of(annotations):
        url = text_of(each.get("url"))
        if url is not None:
            start, end = each.get("start_index"), each.get("end_index")
            found.append(
                Citation(
                    url,
                    text_of(each.get("title")),
                    start if type(start) is int else None,
                    end if type(end) is int else None,
                )
            )
    return tuple(found)


def url_citation(url: str, title: str | None, start: int | None, end: int | None, length: int) -> JSONObject:
    """An annotation. All its fields are required; `length` of the text ends a span that is not told."""
    return {
        "type": "url_citation",
        "url": url,
        "title": title or url,
        "start_index": start or 0,
        "end_index": length if end is None else end,
    }


def annotations_of(part: Text) -> list[JSON]:
    """The annotations of a text of another protocol."""
    return [url_citation(each.url, each.title, each.start, each.end, len(part.text)) for each in part.sources]


def says_more(part: Text) -> bool:
    """Whether the citations that the text came with say anything beside its sources."""
    told: set[JSON] = {None, *(value for each in part.sources for value in (each.url, each.title))}
    told.update(value for each in part.sources for value in (each.start, each.end))
    left: list[JSON] = [part.citations]
    while left:
        value = left.pop()
        if type(value) is dict:
            left += [member for key, member in value.items() if key != "type"]
        elif type(value) is list:
            left += value
        elif value not in told:
            return True
    return False
