"""The configuration: GET /admin/configuration has each setting that has a value, POST /admin/reload loads it again."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import anyio.to_thread
import msgspec
from msgspec.structs import asdict
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from dragoman_server.config.reload import ReloadResult
from dragoman_server.config.show import SettingInForce, shown_settings
from dragoman_server.gateway import Gateway
from dragoman_server.http.admin.replies import audit_request, respond
from dragoman_server.http.auth import ADMIN_PATH
from dragoman_server.http.operations import AdminRoute, ApiOperation


class Configuration(msgspec.Struct):
    """Each setting that has a value."""

    settings: list[SettingInForce]


class ReloadOutcome(msgspec.Struct):
    """The outcome of a reload. All texts are single lines.

    With errors nothing has changed; what needs a restart is used from the next start on.
    """

    status: Literal["reloaded", "refused"]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    needs_restart: tuple[str, ...]
    changes: tuple[str, ...]


def configuration_routes(
    gateway: Gateway, reload: Callable[[], Awaitable[ReloadResult | None]]
) -> Sequence[BaseRoute]:
    """Return the routes of the configuration in force and of reloads. reload: see operator_routes()."""

    async def show(request: Request) -> Response:
        # In a thread, because with hundreds of keys or models it takes longer than a stream may wait.
        found = await anyio.to_thread.run_sync(lambda: Configuration([*shown_settings(gateway.settings)]))
        return respond(gateway, request, found)

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

    shown = ApiOperation(summary="Show the configuration in force", answers={200: (Configuration,)})
    reloaded = ApiOperation(
        summary="Load the configuration again",
        answers={200: (ReloadOutcome,), 422: (ReloadOutcome,)},
        errors=(404,),
    )
    return [
        AdminRoute(f"{ADMIN_PATH}/reload", reload_configuration, POST=reloaded),
        AdminRoute(f"{ADMIN_PATH}/configuration", show, GET=shown),
    ]
