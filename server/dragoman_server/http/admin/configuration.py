"""GET /admin/configuration: each setting that has a value, and where that came from."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dragoman_server.config.show import shown_settings
from dragoman_server.gateway import Gateway
from dragoman_server.http.admin.replies import respond
from dragoman_server.http.auth import ADMIN_PATH


def configuration_routes(gateway: Gateway) -> Sequence[BaseRoute]:
    """Return the route of the configuration in force."""

    async def show(request: Request) -> Response:
        settings = [
            {"key": each.key, "value": each.value, "origin": str(each.origin)}
            for each in shown_settings(gateway.settings)
        ]
        return respond(gateway, request, {"settings": settings})

    return [Route(f"{ADMIN_PATH}/configuration", show, methods=["GET"])]
