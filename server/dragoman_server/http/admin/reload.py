"""Reloads of the configuration."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dragoman_server.config.reload import ReloadResult
from dragoman_server.gateway import Gateway
from dragoman_server.http.admin.replies import audit_request, respond
from dragoman_server.http.auth import ADMIN_PATH


def reload_routes(
    gateway: Gateway, reload: Callable[[], Awaitable[ReloadResult | None]]
) -> Sequence[BaseRoute]:
    """Return the route of /admin/reload. reload: see admin_app()."""

    async def reload_configuration(request: Request) -> Response:
        result = await reload()
        if result is None:
            raise HTTPException(
                404, "this gateway was made without a configuration that could be loaded again"
            )
        await audit_request(
            gateway, request, "reload", "configuration", changes=result.changes, errors=result.errors
        )
        status = "refused" if result.errors else "reloaded"
        return respond(gateway, request, {"status": status, **asdict(result)}, 422 if result.errors else 200)

    return [Route(f"{ADMIN_PATH}/reload", reload_configuration, methods=["POST"])]
