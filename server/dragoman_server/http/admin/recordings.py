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
from starlette.routing import BaseRoute, Route

from dragoman.jsontext import JSONObject
from dragoman_server.gateway import Gateway
from dragoman_server.http.admin.replies import respond
from dragoman_server.http.auth import ADMIN_PATH
from dragoman_server.http.request import Query
from dragoman_server.log import log_request
from dragoman_server.recordings.document import RecordingError, load
from dragoman_server.recordings.listing import find_recordings, recording_path
from dragoman_server.recordings.replay import attempt_of, first_difference, replay
from dragoman_server.wire.headers import OPERATOR_HEADERS

_PATH = f"{ADMIN_PATH}/recordings"
_DEFAULT_LIMIT, _MAX_LIMIT = 50, 200

_Result = TypeVar("_Result")


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
        cursor, model, text = (query.get(name) for name in ("cursor", "model", "q"))
        limit = query.integer("limit", 1, _MAX_LIMIT) or _DEFAULT_LIMIT
        found = await in_thread(
            lambda path: find_recordings(path, cursor=cursor, limit=limit, model=model, text=text)
        )
        rows = [msgspec.to_builtins(each) for each in found.recordings]
        return respond(gateway, request, {"recordings": rows, "cursor": found.cursor})

    async def path_of(request: Request) -> Path:
        id = request.path_params["id"]
        found = await in_thread(lambda path: recording_path(path, id))
        if found is None:
            raise HTTPException(404, f"there is no recording {id[:100]!a}; GET {_PATH} lists them")
        return found

    async def send_recording(request: Request) -> Response:
        path = await path_of(request)
        record = gateway.request_began(request.scope, "admin")
        record.status, record.outcome = 200, "completed"
        log_request(record)
        return FileResponse(path, headers=dict(OPERATOR_HEADERS), media_type="application/json")

    async def replay_recording(request: Request) -> Response:
        path = await path_of(request)
        try:
            return respond(gateway, request, await in_thread(lambda _: replayed_json(path)))
        except RecordingError as error:
            raise HTTPException(422, f"it cannot be replayed: {error}") from None

    return [
        Route(_PATH, list_recordings, methods=["GET"]),
        Route(f"{_PATH}/{{id}}", send_recording, methods=["GET"]),
        # Nothing changes, and nothing is sent anywhere.
        Route(f"{_PATH}/{{id}}/replay", replay_recording, methods=["GET"]),
    ]


def replayed_json(path: Path) -> JSONObject:
    """Translate a recording again, and return where the result first differs. Raises RecordingError."""
    recording = load(path)
    attempt, now = attempt_of(recording), replay(recording)
    difference = first_difference(recording, now)
    return {
        "from": f"{attempt.upstream}/{attempt.model}",
        "upstream_protocol": attempt.protocol,
        "complete": recording.complete,
        "error": now.error,
        "difference": None if difference is None else msgspec.to_builtins(difference),
    }
