"""What a server's own search tool did, as Groq tells it in `executed_tools`."""

from __future__ import annotations

from dragoman._ir.events import Search, Source
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, decode


def put_together(executed: list[JSON]) -> list[JSON]:
    """The pieces of a stream in one: a tool is told when it starts and again, under its index, when it has ended."""
    out: list[JSON] = []
    at: dict[int, int] = {}
    for tool in executed:
        index = tool.get("index") if type(tool) is dict else None
        if type(index) is int and index in at:
            out[at[index]] = {**out[at[index]], **tool}
            continue
        if type(index) is int:
            at[index] = len(out)
        out.append(tool)
    return out


def search_of(executed: JSON) -> Search | None:
    """The web search that a list of executed tools tells of, None when none has found anything yet."""
    queries: list[str] = []
    sources: list[Source] = []
    for tool in executed if type(executed) is list else ():
        found = tool.get("search_results") if type(tool) is dict else None
        pages = found.get("results") if type(found) is dict else None
        if type(pages) is not list or not pages:
            continue
        queries += _queries(tool.get("arguments"))
        for page in pages:
            if type(page) is dict and type(page.get("url")) is str:
                title = page.get("title")
                sources.append(Source(page["url"], title if type(title) is str else None))
    return Search(tuple(queries), tuple(sources)) if sources else None


def _queries(arguments: JSON) -> list[str]:
    try:
        value = decode(arguments.encode("utf-8", "surrogatepass")) if type(arguments) is str else None
    except RemoteProtocolError:
        return []
    query = value.get("query") if type(value) is dict else None
    return [query] if type(query) is str else []
