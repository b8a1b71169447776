"""Recordings, where the setting `record` has a folder: their list, single ones, and what becomes of one now."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute

from dragoman_server.gateway import Gateway
from dragoman_server.http.admin.replies import log_completed, respond
from dragoman_server.http.auth import ADMIN_PATH
from dragoman_server.http.operations import AdminRoute, ApiOperation
from dragoman_server.http.request import Parameter, Query, invalid_parameter
from dragoman_server.recordings.document import Recording, RecordingError, load
from dragoman_server.recordings.listing import RecordingList, find_recordings, is_cursor, recording_path
from dragoman_server.recordings.replay import Difference, attempt_of, first_difference, replay
from dragoman_server.wire.headers import OPERATOR_HEADERS

_PATH = f"{ADMIN_PATH}/recordings"
_PLACE = "the id of a recorded request"
_DEFAULT_LIMIT, _MAX_LIMIT = 50, 200

_LIMIT = Parameter("limit", f"how many recordings; {_DEFAULT_LIMIT} by default", (1, _MAX_LIMIT))
_CURSOR = Parameter("cursor", "cursor of the list before")
_MODEL = Parameter("model", "requests for this model, as the client named it")
_TEXT = Parameter("q", "recordings with this text in them, in upper or lower case")

_Result = TypeVar("_Result")


class ReplayedRecording(msgspec.Struct, kw_only=True):
    """What becomes of a recording now, and the first place where that differs from what was recorded."""

    origin: str = msgspec.field(name="from")
    upstream_protocol: str
    complete: bool
    error: str | None
    difference: Difference | None


_LIST = ApiOperation(
    summary="List the recordings",
    answers={200: (RecordingList,)},
    errors=(404, 503),
    parameters=(_CURSOR, _MODEL, _TEXT, _LIMIT),
)
_SHOW = ApiOperation(
    summary="Return a recording", answers={200: (Recording,)}, errors=(404, 503), place=_PLACE
)
_REPLAY = ApiOperation(
    summary="Translate a recording again",
    answers={200: (ReplayedRecording,)},
    errors=(404, 422, 503),
    place=_PLACE,
)


def recording_routes(gateway: Gateway) -> Sequence[BaseRoute]:
    """Return the routes below /admin/recordings."""
    folder = gateway.settings.server.record
    # Each takes memory, and time of the processor that Python gives to one thread.
    one_at_a_time = anyio.CapacityLimiter(1)

    async def in_thread(function: Callable[[Path], _Result]) -> _Result:
        if folder is None:
            raise HTTPException(404, "this gateway records nothing: set server.record to a folder")
        path = Path(folder)
        try:
            return await anyio.to_thread.run_sync(
                function, path, limiter=one_at_a_time, abandon_on_cancel=True
            )
        except OSError as error:
            raise HTTPException(503, f"the recordings cannot be read: {error.strerror}") from None

    async def list_recordings(request: Request) -> Response:
        query = Query(request.url.query)
        cursor, model, text = (query.get(each.name) for each in (_CURSOR, _MODEL, _TEXT))
        limit = query.integer(_LIMIT) or _DEFAULT_LIMIT
        if cursor is not None and not is_cursor(cursor):
            raise invalid_parameter(_CURSOR.name, "that of a list of recordings")
        found = await in_thread(
            lambda path: find_recordings(path, cursor=cursor, limit=limit, model=model, text=text)
        )
        return respond(gateway, request, found)

    async def path_of(request: Request) -> Path:
        id = request.path_params["id"]
        found = await in_thread(lambda path: recording_path(path, id))
        if found is None:
            raise HTTPException(
                404,
                f"there is no recording {id[:100]!a}; GET {_PATH} lists them, and the log has a line for each request",
            )
        return found

    async def send_recording(request: Request) -> Response:
        path = await path_of(request)
        log_completed(gateway, request.scope)
        return FileResponse(path, headers=dict(OPERATOR_HEADERS), media_type="application/json")

    async def replay_recording(request: Request) -> Response:
        path = await path_of(request)
        try:
            return respond(gateway, request, await in_thread(lambda _: replayed_json(path)))
        except RecordingError as error:
            raise HTTPException(422, f"it cannot be replayed: {error}") from None

    return [
        AdminRoute(_PATH, list_recordings, GET=_LIST),
        AdminRoute(f"{_PATH}/{{id}}", send_recording, GET=_SHOW),
        # Nothing changes, and nothing is sent anywhere.
        AdminRoute(f"{_PATH}/{{id}}/replay", replay_recording, GET=_REPLAY),
    ]


def replayed_json(path: Path) -> ReplayedRecording:
    """Translate a recording again, and return where the result first differs. Raises RecordingError."""
    recording = load(path)
    attempt, now = attempt_of(recording), replay(recording)
    difference = first_difference(recording, now)
    return ReplayedRecording(
        origin=f"{attempt.upstream}/{attempt.model}",
        upstream_protocol=attempt.protocol,
        complete=recording.complete,
        error=now.error,
        difference=difference,
    )
