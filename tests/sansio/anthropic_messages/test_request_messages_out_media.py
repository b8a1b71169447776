"""Images and files, written as blocks."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from core.passes import fit_and_write

from dragoman._ir.losses import Ledger
from dragoman._ir.request import Media, Message, Request
from dragoman._ir.tools import CacheMark
from dragoman._wire.exceptions import RequestRefused
from dragoman._wire.json import decode, encode
from dragoman.protocols.anthropic_messages import SPEC
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities as Capabilities


def write(part: Media) -> tuple[Any, Any]:
    """Return the block of a part in a user message, and the ledger as a list of (code, path)."""
    ledger = Ledger()
    request = Request("other", "m", (Message("user", (part,), "/u"),))
    body = decode(encode(fit_and_write(SPEC, request, Capabilities(), ledger)))
    return body["messages"][0]["content"][0], [(loss.code.value, loss.path) for loss in ledger]


PDF = b64encode(b"%PDF-1.7").decode()
NOTE = b64encode("Grüße".encode()).decode()


MEDIA: list[tuple[Media, Any, Any]] = [
    (
        Media("image", "base64", "AAAA", "image/JPG", detail="high", path="/i"),
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "AAAA"}},
        [("altered", "/i")],
    ),
    (
        Media("image", "base64", "iVBORw0KGgoAAA", detail="auto"),
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgoAAA"},
        },
        [],
    ),
    (
        Media("image", "url", "data:image/gif;base64,R0lGOD"),
        {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "R0lGOD"}},
        [],
    ),
    (
        Media("image", "url", "https://x/y.png", cache=CacheMark("/c")),
        {
            "type": "image",
            "source": {"type": "url", "url": "https://x/y.png"},
            "cache_control": {"type": "ephemeral"},
        },
        [],
    ),
    (
        Media("file", "base64", PDF, filename="a.pdf"),
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
            "title": "a.pdf",
        },
        [],
    ),
    (
        Media("file", "base64", f"data:application/pdf;base64,{PDF}"),
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}},
        [],
    ),
    (
        Media("file", "base64", NOTE, "text/plain", context="c", citations={"enabled": True}),
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "Grüße"},
            "context": "c",
            "citations": {"enabled": True},
        },
        [],
    ),
    (
        Media("file", "base64", NOTE, "text/csv", path="/f"),
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Grüße"}},
        [("altered", "/f")],
    ),
    (
        Media("file", "text", "plain"),
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "plain"}},
        [],
    ),
    (
        Media("file", "url", "https://x/y.pdf"),
        {"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}},
        [],
    ),
]


def test_media(subtests: pytest.Subtests) -> None:
    for part, block, losses in MEDIA:
        with subtests.test(part=part):
            assert write(part) == (block, losses)


REFUSED_MEDIA: list[tuple[Media, str]] = [
    (Media("audio", "base64", "AAAA", path="/x"), "does not accept audio"),
    (Media("image", "url", "ftp://x", path="/x"), "must begin with https"),
    (
        Media("image", "url", "data:image/png,AAAA", path="/x"),
        "must have the form data:<type>;base64,<data>",
    ),
    (Media("image", "base64", "AAAA", "image/bmp", path="/x"), "image/bmp is not one of"),
    (Media("image", "base64", "AAAA", path="/x"), r"\(none\) is not one of"),
    (Media("file", "base64", "AAAA", "application/zip", path="/x"), "neither PDF nor text"),
    (Media("file", "base64", "AAA", "text/plain", path="/x"), "not base64-encoded UTF-8 text"),
]


def test_media_that_the_api_would_refuse(subtests: pytest.Subtests) -> None:
    for part, message in REFUSED_MEDIA:
        with subtests.test(message=message):
            with pytest.raises(RequestRefused, match=message) as caught:
                write(part)
            assert (caught.value.status, caught.value.path, caught.value.code) == (
                400,
                "/x",
                "unsupported_value",
            )
