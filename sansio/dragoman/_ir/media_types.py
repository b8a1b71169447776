"""What images, files, sounds and videos are: by their data, by their type, or by the name of their file."""

from __future__ import annotations

import re
from typing import Literal

# Start of base64 data -> its media type.
MAGIC = (
    ("/9j/", "image/jpeg"),
    ("iVBORw0KGgo", "image/png"),
    ("R0lGOD", "image/gif"),
    ("UklGR", "image/webp"),
    ("JVBERi", "application/pdf"),
)
# The end of a name -> its media type. Vertex AI refuses a file by URL without one: "it has an empty mimeType
# parameter in fileData" (GoogleCloudPlatform/generative-ai#1390, read 2026-12-01).
_TYPES_BY_END = {
    "gif": "image/gif",
    "heic": "image/heic",
    "heif": "image/heif",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "png": "image/png",
    "webp": "image/webp",
    "pdf": "application/pdf",
    "txt": "text/plain",
    "flac": "audio/flac",
    "mp3": "audio/mp3",
    "ogg": "audio/ogg",
    "wav": "audio/wav",
    "mov": "video/mov",
    "mp4": "video/mp4",
    "webm": "video/webm",
}
# How public URLs begin.
WEB = ("https://", "http://")
# Pages of videos, which Gemini reads as such.
_VIDEO_PAGE = re.compile(r"https?://(?:www\.|m\.)?(?:youtube\.com|youtu\.be)/")


def type_by_name(url: str, name: str | None) -> str | None:
    """Return the media type for the end of the URL's path, or of the file's name. None if both are unknown."""
    if _VIDEO_PAGE.match(url):
        return "video/mp4"
    path = url.partition("?")[0].partition("#")[0]
    ends = [each.rpartition(".")[2].lower() for each in (path, name or "")]
    return _TYPES_BY_END.get(ends[0]) or _TYPES_BY_END.get(ends[1])


def kind_of_file(media_type: str | None) -> Literal["file", "audio", "video"]:
    """Return what a file is: clients send sounds and videos as files, too."""
    kind = (media_type or "").partition("/")[0]
    return "audio" if kind == "audio" else "video" if kind == "video" else "file"


def split_data_uri(uri: str) -> tuple[str, str] | None:
    """Return media type ("" if it names none) and data of a `data:` URI in base64, None for any other text."""
    head, comma, data = uri.partition(",") if uri.startswith("data:") else ("", "", "")
    return (head[5:-7].partition(";")[0], data) if comma and head.endswith(";base64") else None
