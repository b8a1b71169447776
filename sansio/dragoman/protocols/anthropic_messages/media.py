"""Images and documents.

Strategy: what a source is, is settled first (base64 with a media type, text, URL, file id), whether it came
in parts or as a `data:` URI; then one function an output form. What the API would refuse is refused here,
with the place in the client's own body: a picture that silently disappears is worse than an error.
"""

from __future__ import annotations

import binascii
from base64 import b64decode

from dragoman._ir.losses import Ledger
from dragoman._ir.request import Media
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSONObject
from dragoman.protocols.anthropic_messages.tables import IMAGE_TYPES, MAGIC

# Types that are text under another name: they go as plain text.
_TEXT_TYPES = frozenset(
    {"application/json", "application/xml", "application/x-yaml", "application/javascript"}
)


def write_media(part: Media, same_protocol: bool, ledger: Ledger) -> JSONObject:
    """The block for an image or a file, without mark and extra fields. Raises RemoteProtocolError (400)."""
    if part.detail not in (None, "auto"):
        ledger.altered(part.path, "sent without its detail: Messages has no such setting")
    if part.kind == "audio":
        raise _refused(part, "the upstream takes no audio; send a transcript as text")
    if part.source == "file_id":
        if not same_protocol:
            raise _refused(
                part, "a file id is known only to the vendor that gave it; send the file's data or URL"
            )
        source: JSONObject = {"type": "file", "file_id": part.data}
    elif part.source == "url" and not part.data.startswith("data:"):
        if not part.data.startswith(("https://", "http://")):
            raise _refused(part, "the URL must begin with https:// or be a data: URI")
        source = {"type": "url", "url": part.data}
    elif part.source == "text":
        source = {"type": "text", "media_type": "text/plain", "data": part.data}
    else:
        media_type, data = _typed(part)
        source = _image_source(part, media_type, data) if part.kind == "image" else {}
        source = source or _document_source(part, media_type, data, ledger)
    if part.kind == "image":
        return {"type": "image", "source": source}
    block: JSONObject = {"type": "document", "source": source}
    for key, value in (("title", part.filename), ("context", part.context), ("citations", part.citations)):
        if value is not None:
            block[key] = value
    return block


def _typed(part: Media) -> tuple[str, str]:
    """Media type and base64 text, from a data: URI, from what was said, or from the first bytes."""
    media_type = part.media_type or ""
    data = part.data
    if data.startswith("data:"):
        head, comma, data = data[5:].partition(",")
        media_type, _, coding = head.partition(";")
        if not comma or not coding.endswith("base64"):
            raise _refused(part, "a data: URI must have the form data:<type>;base64,<data>")
    if not media_type or media_type == "application/octet-stream":
        media_type = next((found for magic, found in MAGIC if data.startswith(magic)), media_type)
    return media_type.lower(), data


def _image_source(part: Media, media_type: str, data: str) -> JSONObject:
    known = IMAGE_TYPES.get(media_type)
    if known is None:
        raise _refused(part, f"the image type {media_type or '(none)'} is not one of jpeg, png, gif and webp")
    return {"type": "base64", "media_type": known, "data": data}


def _document_source(part: Media, media_type: str, data: str, ledger: Ledger) -> JSONObject:
    if media_type == "application/pdf":
        return {"type": "base64", "media_type": media_type, "data": data}
    if not media_type.startswith("text/") and media_type not in _TEXT_TYPES:
        raise _refused(part, f"the file type {media_type or '(none)'} is neither PDF nor text")
    try:
        text = b64decode(data, validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        raise _refused(part, "the file is not base64 of UTF-8 text, as its type says") from None
    if media_type != "text/plain":
        ledger.altered(part.path, f"sent as text/plain: the upstream has no {media_type}")
    return {"type": "text", "media_type": "text/plain", "data": text}


def _refused(part: Media, message: str) -> RemoteProtocolError:
    return RemoteProtocolError(message, status=400, path=part.path, code="unsupported_value")
