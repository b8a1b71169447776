"""What requests at a path do, said where its route is made: GET /openapi.json shows it, and schemathesis tests it."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.routing import Match, Route, compile_path
from starlette.types import Receive, Scope, Send

from dragoman.codec import ProtocolSpec
from dragoman_server.http.request import Parameter, Query
from dragoman_server.proxying.client_request import path_below_mount


class MediaType(msgspec.Struct, frozen=True):
    """A body that no type describes, such as a stream: one of JSON is not always one JSON text."""

    name: str


# An object whose members a vendor documents: see ApiOperation.protocol.
VENDORS_OBJECT = dict[str, Any]

# Clients get the status that an upstream gave.
UPSTREAM_ERRORS = ("4XX", "5XX")


class ErrorDetail(msgspec.Struct):
    """What all protocols say about an error. Each has more members, such as a type or a status."""

    message: str


class ErrorBody(msgspec.Struct):
    """An error, in the form of the protocol that the path belongs to."""

    error: ErrorDetail


class ApiOperation(msgspec.Struct, frozen=True, kw_only=True):
    """What requests with one method do.

    Attributes:
        summary: In a few words.
        answers: The bodies by status, each the type of a JSON value, or something else; without any, there is none.
        errors: The statuses of the errors that not every path has.
        body: The type of the request's body, None if nothing reads one.
        body_types: The media types of that body.
        requires_body: A request without a body is an error.
        parameters: Those of the query, None if they are those of another path.
        place: What the name in braces in the path stands for.
        protocol: Its vendor documents the bodies.
        error_types: The forms of an error.
    """

    summary: str
    answers: Mapping[int, Sequence[Any]]
    errors: Sequence[int | str] = ()
    body: Any = None
    body_types: Sequence[str] = ("application/json",)
    requires_body: bool = True
    parameters: Sequence[Parameter] | None = ()
    place: str = ""
    protocol: ProtocolSpec | None = None
    error_types: Sequence[Any] = (ErrorBody,)

    def or_else(self, other: "ApiOperation") -> "ApiOperation":
        """Return what requests do that do the one or the other, by the value of a parameter; see Endpoint.query."""
        answers = {status: _unique(self.answers[status], other.answers[status]) for status in self.answers}
        return replace(
            self,
            answers=answers,
            error_types=_unique(self.error_types, other.error_types),
            parameters=[
                replace(mine, choices=mine.choices + theirs.choices)
                for mine, theirs in zip(self.parameters or (), other.parameters or (), strict=True)
            ],
        )


def _unique(these: Sequence[Any], those: Sequence[Any]) -> list[Any]:
    return [*these, *(each for each in those if each not in these)]


class DescribedRoute(Route):
    """A path with what requests do there, by their method. The endpoint is as Starlette's Route has it.

    The pattern of its path is compiled for the first request that may be meant for it: those of all paths take a tenth
    of a start.
    """

    def __init__(self, path: str, endpoint: Any, **operations: ApiOperation) -> None:
        super().__init__("/", endpoint, methods=list(operations))  # which has been compiled
        del self.path_regex, self.path_format, self.param_convertors
        self.path = path
        self.operations = operations
        self._start = path.partition("{")[0]

    def __getattr__(self, name: str) -> Any:
        if name not in ("path_regex", "path_format", "param_convertors"):
            raise AttributeError(name)
        self.path_regex, self.path_format, self.param_convertors = compile_path(self.path)
        return getattr(self, name)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if path_below_mount(scope).startswith(self._start):
            return super().matches(scope)
        return Match.NONE, {}


class AdminRoute(DescribedRoute):
    """A path below /admin, which has no clients that are newer than it: it refuses parameters that it does not know."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        operation = self.operations.get(scope["method"])
        if operation is not None and operation.parameters is not None:
            query = Query(scope["query_string"].decode("latin-1"), keeps_empty=True)
            query.check_names([parameter.name for parameter in operation.parameters])
        await super().handle(scope, receive, send)
