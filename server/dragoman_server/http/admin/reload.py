"""Reloads of the configuration."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import msgspec
from msgspec.structs import asdict
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from dragoman_server.config.reload import ReloadResult
from dragoman_server.gateway import Gateway
from dragoman_server.http.admin.replies import audit_request, respond
from dragoman_server.http.auth import ADMIN_PATH
from dragoman_server.http.operations import AdminRoute, ApiOperation


class ReloadOutcome(msgspec.Struct):
    """The outcome of a reload. All texts are single lines.

    With errors nothing has changed; what needs a restart is used from the next start on.
    """

    status: Literal["reloaded", "refused"]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    needs_restart: tuple[str, ...]
    changes: tuple[str, ...]


def reload_routes(
    gateway: Gateway, reload: Callable[[], Awaitable[ReloadResult | None]]
) -> Sequence[BaseRoute]:
    """Return the route of /admin/reload. reload: see operator_routes()."""

    async def reload_configuration(request: Request) -> Response:
        result = await reload()
        if result is None:
            raise HTTPException(
                404, "this gateway was made without a configuration that could be loaded again"
            )
        await audit_request(
            gateway, request, "reload", "configuration", changes=result.changes, errors=result.errors
        )
        refused = bool(result.errors)
        outcome = ReloadOutcome("refused" if refused else "reloaded", **asdict(result))
        return respond(gateway, request, outcome, 422 if refused else 200)

    operation = ApiOperation(
        summary="Load the configuration again",
        answers={200: (ReloadOutcome,), 422: (ReloadOutcome,)},
        errors=(404,),
    )
    return [AdminRoute(f"{ADMIN_PATH}/reload", reload_configuration, POST=operation)]
