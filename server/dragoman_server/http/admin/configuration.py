"""GET /admin/configuration: each setting that has a value, and where that came from."""

from collections.abc import Sequence

import anyio.to_thread
import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from dragoman_server.config.show import shown_settings
from dragoman_server.gateway import Gateway
from dragoman_server.http.admin.replies import respond
from dragoman_server.http.auth import ADMIN_PATH
from dragoman_server.http.operations import AdminRoute, ApiOperation
from dragoman_server.settings import Settings


class SettingInForce(msgspec.Struct):
    """A setting by its dotted key, with its value in TOML and where that came from. Secrets are masked."""

    key: str
    value: str
    origin: str


class Configuration(msgspec.Struct):
    """Each setting that has a value."""

    settings: list[SettingInForce]


def configuration_routes(gateway: Gateway) -> Sequence[BaseRoute]:
    """Return the route of the configuration in force."""

    async def show(request: Request) -> Response:
        # In a thread, because with hundreds of keys or models it takes longer than a stream may wait.
        return respond(gateway, request, await anyio.to_thread.run_sync(_in_force, gateway.settings))

    operation = ApiOperation(summary="Show the configuration in force", answers={200: (Configuration,)})
    return [AdminRoute(f"{ADMIN_PATH}/configuration", show, GET=operation)]


def _in_force(settings: Settings) -> Configuration:
    shown = shown_settings(settings)
    return Configuration([SettingInForce(each.key, each.value, str(each.origin)) for each in shown])
