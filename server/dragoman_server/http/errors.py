"""Make the errors of paths where no endpoint responds, in the form of the protocol that the path belongs to."""

import uuid
from collections.abc import Iterable, Mapping

from msgspec.structs import replace
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Scope, Send

from dragoman import ErrorKind, RemoteProtocolError, RequestRefused, WireError
from dragoman.codec import ProtocolSpec, find_endpoint
from dragoman_server.gateway import Gateway
from dragoman_server.http.auth import is_admin_path
from dragoman_server.proxying.client_request import path_below_mount
from dragoman_server.relayed.table import why_not_served
from dragoman_server.wire.headers import BROWSER_HEADERS, request_id_headers
from dragoman_server.wire.replies import Reply, error_reply, protocol_for_path, send_reply, suggest_base_url

_UPGRADE_REQUIRED = 426
# Paths in a message.
_MAX_NAMES = 20

INTERNAL_ERROR = WireError(ErrorKind.SERVER, "internal error of the gateway; see its log", status=500)


class FallbackErrors:
    """Errors for paths where no endpoint responds."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._protocols = gateway.protocols

    async def http_error(self, request: Request, error: Exception) -> Response:
        """Return the response to a request that Starlette cannot route: 404, 405 and similar ones."""
        assert isinstance(error, HTTPException)
        headers, status, message = dict(error.headers or {}), error.status_code, error.detail
        if status == 405 and request.method == "POST" and ":" in request.url.path.rpartition("/")[2]:
            # A verb that is not served, behind the name of a model.
            headers, status, message = {}, 404, "Not Found"
        # Without a code, Chat clients would get the code for a model that does not exist.
        code = "unknown_url" if status == 404 else None
        if message == "Not Found":
            reason = why_not_served(path_below_mount(request.scope))
            message = reason or f"there is nothing at this path; {self._hint(request)}"
        elif status == 405:
            headers["Allow"] = ", ".join(allowed_methods(request.app.routes, request.scope))
            message = f"{request.method[:20]} is not allowed here; allowed: {headers['Allow']}"
        refusal = RequestRefused(message, status=status, code=code)
        return as_starlette(self.refusal(request.scope, refusal), headers)

    def _hint(self, request: Request) -> str:
        """Return a text that names the right path for a request to a wrong one."""
        path = path_below_mount(request.scope)
        suggestion = suggest_base_url(path, self._protocols)
        if suggestion is None:
            names = endpoint_names(request.app.routes)
            begin = f" /{path[1:].partition('/')[0]}/"
            names = [name for name in names if begin in name] or names
            more = ", ...; GET / lists all" if len(names) > _MAX_NAMES else ""
            return f"this gateway serves {', '.join(names[:_MAX_NAMES])}{more}"
        base, added = suggestion
        url = request.base_url  # from the Host header, so it is the address that the client uses
        root = f"{url.scheme}://{url.netloc}{request.scope.get('root_path', '')}"
        return f"the base URL for a client that adds {added} is {ascii(root)[1:-1][:200]}{base}"

    async def refused(self, request: Request, error: Exception) -> Response:
        """Return the response to a request that an endpoint refuses."""
        assert isinstance(error, RemoteProtocolError | RequestRefused)
        return as_starlette(self.refusal(request.scope, error), {})

    async def client_left(self, request: Request, error: Exception) -> Response:
        """Return a response that nobody gets."""
        return Response()

    async def internal_error(self, request: Request, error: Exception) -> Response:
        """Return the response after a bug outside of the endpoints. Starlette raises the error again, for the log."""
        request_id = uuid.uuid4().hex
        spec = self._protocol(request.scope)
        return as_starlette(error_reply(spec, INTERNAL_ERROR, request_id, request_id_headers(request_id)), {})

    async def refuse(self, scope: Scope, error: RemoteProtocolError | RequestRefused, send: Send) -> None:
        """Respond to a request that no endpoint receives, and log it."""
        reply = self.refusal(scope, error)
        if error.status == 401:
            # "The server generating a 401 response MUST send a WWW-Authenticate header field" -- RFC 9110, 15.5.2
            reply = replace(reply, headers=[*reply.headers, ("www-authenticate", "Bearer")])
        if scope["type"] != "websocket":
            await send_reply(send, reply)
        elif "websocket.http.response" in scope.get("extensions", {}):
            await send_reply(send, reply, message="websocket.http.response")
        else:
            # Before an accept, so the server responds with 403.
            await send({"type": "websocket.close", "code": 1008})

    def refusal(self, scope: Scope, error: RemoteProtocolError | RequestRefused) -> Reply:
        """Return the response to a refused request, and log it."""
        status = error.status
        spec = self._protocol(scope)
        path, query = path_below_mount(scope), scope["query_string"].decode("latin-1")
        record = self._gateway.request_began(scope, "admin" if is_admin_path(path) else spec.name)
        refusal = error.as_wire_error()
        reply = error_reply(spec, refusal, record.id, request_id_headers(record.id))
        found = find_endpoint([spec], path, query)
        body = reply.body if found is None else found[1].framing.error_body(reply.body)
        record.status = status
        if status == _UPGRADE_REQUIRED:
            record.outcome = "websocket_refused"  # no error: the client goes on over HTTP
        else:
            record.outcome, record.error = "refused", error.message
            record.error_kind = refusal.kind.value
        self._gateway.request_ended(record)
        # Here the status is about HTTP itself, so a protocol's own table of statuses does not apply.
        return replace(reply, status=status, body=body)

    def _protocol(self, scope: Scope) -> ProtocolSpec:
        path, query = path_below_mount(scope), scope["query_string"].decode("latin-1")
        if is_admin_path(path):  # `key` is a parameter here, not a sign of a protocol
            return next(iter(self._protocols.values()))
        return protocol_for_path(path, query, Headers(scope=scope), self._protocols)


def as_starlette(reply: Reply, headers: Mapping[str, str]) -> Response:
    """Return the reply as Starlette's handlers return it. headers: more of them."""
    return Response(reply.body, reply.status, {**dict(reply.headers), **dict(BROWSER_HEADERS), **headers})


def allowed_methods(routes: Iterable[BaseRoute], scope: Scope) -> list[str]:
    """Return the methods that there are at the path of a request: those of all routes with the path that matches first.

    Starlette knows those of the first route only.
    """
    here = [route for route in routes if isinstance(route, Route) and route.matches(scope)[0].value]
    return sorted(set().union(*(route.methods or () for route in here if route.path == here[0].path)))


def endpoint_names(routes: Iterable[BaseRoute]) -> list[str]:
    """Return where requests may go, for people: `POST /v1/messages`, ..."""
    names = [
        f"{' and '.join(sorted((route.methods or set()) - {'HEAD'}))} {route.path_format}"  # each GET has HEAD
        for route in routes
        if isinstance(route, Route)
    ]
    return list(dict.fromkeys(names))
