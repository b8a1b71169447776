"""Dragoman: a sans-IO translator between the wire protocols of large language models.

It takes bytes and returns bytes and events. It opens no socket, reads no clock, draws no random number, logs nothing
and uses no event loop, so it works under asyncio, trio, threads and plain functions. Start with RequestTranslator and
ResponseTranslator. PROTOCOLS has all protocols by name, UPSTREAMS those that upstreams speak as well.

It has more lines than its budget (`make lines`), because most of them are protocols of vendors: each is read and
written, requests and responses, streams and whole bodies, as its documents have it and as compatible servers send it.

    dragoman.events     the events of a response
    dragoman.document   the parts of a request
    dragoman.errors     errors that cross the wire, and their masking
    dragoman.protocols  the protocols by name
    dragoman.codec      what a protocol consists of, for those who add one
    dragoman.sse        server-sent events
    dragoman.jsontext   JSON with limits
    dragoman.lint       checks of what any server sends
    dragoman.testing    helpers for tests
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman._api import *  # noqa: F403 - its __all__ is the list


def __getattr__(name: str) -> object:
    # The readers and writers of all protocols take longer to load than msgspec does. A program pays for them when it
    # uses a name of this package, and not when it only imports it. The next time it finds the name without this.
    import dragoman._api

    try:
        value = globals()[name] = getattr(dragoman._api, name)
        return value
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    from dragoman._api import __all__

    return list({*globals(), *__all__})
