"""Find recordings in their folder, the newest first.

Only files with the name of a recording are seen, so an id leads to no other file. A search reads as much as
MAX_READ_BYTES at a time, and says where it goes on.
"""

import json
import os
import re
from pathlib import Path

import msgspec

from dragoman_server.recordings.document import Recording, RecordingError, parse, read

# Bytes of files that one search reads; a recording has 16 MiB at most, and the first one is always read.
MAX_READ_BYTES = 32 * 1024 * 1024

_NAME = r"\d{8}T\d{6}Z-([0-9a-f]{32})\.json"


class RecordingSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a list has of a recording.

    Attributes:
        size: Of its file, in bytes.
        upstreams: `upstream/model` of each attempt.
        duration_s: Until the last bytes for the client.
        others: As in Recording and its parts.
    """

    id: str
    time: int
    size: int
    protocol: str
    method: str
    path: str
    model: str
    upstreams: tuple[str, ...]
    status: int | None
    duration_s: float | None
    completed: bool
    complete: bool


class RecordingList(msgspec.Struct, frozen=True):
    """Recordings, the newest first. cursor: where the next list begins, null at the end."""

    recordings: list[RecordingSummary]
    cursor: str | None


def find_recordings(
    folder: Path, *, cursor: str | None, limit: int, model: str | None, text: str | None
) -> RecordingList:
    """Return the recordings that come after the cursor. Files that are no recordings are left out.

    model: the name that the client sent. text: is in the file, in upper or lower case. Raises OSError.
    """
    needle = None if text is None else json.dumps(text)[1:-1].encode().lower()
    names = sorted((name for name in _names(folder) if cursor is None or name < cursor), reverse=True)
    found: list[RecordingSummary] = []
    size = 0
    for name in names:
        path = folder / name
        try:
            size += path.stat().st_size
            data = read(path)
            if needle is None or needle in data.lower():
                recording = parse(path, data)
                if model in (None, recording.model):
                    found.append(_summary(recording, len(data)))
        except (OSError, RecordingError):
            pass  # it may have been removed meanwhile, because it is too old
        if len(found) == limit or size >= MAX_READ_BYTES:
            return RecordingList(found, None if name == names[-1] else name)
    return RecordingList(found, None)


def is_cursor(text: str) -> bool:
    """True if a list of recordings may have had this cursor: the file that it names may be too old by now."""
    return re.fullmatch(_NAME, text) is not None


def recording_path(folder: Path, id: str) -> Path | None:
    """Return the file of the recording of a request, None if there is none. Raises OSError."""
    for name in _names(folder):
        match = re.fullmatch(_NAME, name)
        if match is not None and match[1] == id:
            return folder / name
    return None


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [
                each.name
                for each in entries
                if re.fullmatch(_NAME, each.name) and each.is_file(follow_symlinks=False)
            ]
    except FileNotFoundError:
        return []  # the first recording makes the folder


def _summary(recording: Recording, size: int) -> RecordingSummary:
    response = recording.response
    last = response.pieces[-1] if response.pieces else response.file
    return RecordingSummary(
        id=recording.id,
        time=recording.time,
        size=size,
        protocol=recording.request.protocol,
        method=recording.request.method,
        path=recording.request.path,
        model=recording.model,
        upstreams=tuple(f"{each.upstream}/{each.model}" for each in recording.attempts),
        status=response.status,
        duration_s=None if last is None else last.at_s,
        completed=response.completed,
        complete=recording.complete,
    )
