"""GET /openapi.json: all paths in OpenAPI 3.1, made from the routes; GET /docs: a page that shows it.

What a route does is said where it is made, see ApiOperation. Schemas come from the types that make the bodies; those
that a vendor documents are objects with a link. Both need a client key where there are keys, as the list of paths at /.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from itertools import chain
from typing import Any

import anyio.to_thread
import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from dragoman.jsontext import JSONObject, encode
from dragoman_server import __version__
from dragoman_server.http.auth import KEY_PLACES, OPEN_PATHS, is_admin_path
from dragoman_server.http.description_page import PAGE_HEADERS, page
from dragoman_server.http.operations import UPSTREAM_ERRORS, ApiOperation, DescribedRoute, MediaType
from dragoman_server.http.request import Parameter
from dragoman_server.settings import Settings
from dragoman_server.wire.headers import BROWSER_HEADERS, JSON_HEADERS

OPENAPI_PATH = "/openapi.json"
PAGE_PATH = "/docs"

_REFERENCE = "#/components/schemas/{name}"

# What can be wrong with each request: its query or key, the page that it comes from, the Host header.
_COMMON_ERRORS = (400, 403, 421)
# What a missing key can be: unknown; and for the operator's paths, no key is configured.
_KEY_ERRORS: Mapping[str, Sequence[int]] = {"client": (401, 503), "operator": (401, 404)}
_BODY_ERRORS = (408, 413, 415)

_TAGS = {
    "protocols": "Requests for responses, in the form of a vendor.",
    "gateway": "The gateway itself.",
    "operator": "For the operator, with the admin key. Metrics accept the metrics key as well.",
}


def description_routes(settings: Settings, routes: Callable[[], Sequence[BaseRoute]]) -> list[BaseRoute]:
    """Return the routes of the description and of its page. routes: returns all routes, these included."""

    @cache
    def described() -> tuple[JSONObject, str]:
        document = openapi_document(routes(), needs_keys=settings.needs_keys)
        return document, page(document)

    async def openapi(request: Request) -> Response:
        document, _ = await anyio.to_thread.run_sync(described)
        # Without it, the paths would be those of the application that has mounted this one.
        served = {**document, "servers": [{"url": request.scope.get("root_path") or "/"}]}
        return Response(encode(served), headers=dict([*JSON_HEADERS, *BROWSER_HEADERS]))

    async def docs(request: Request) -> Response:
        _, text = await anyio.to_thread.run_sync(described)
        return Response(text, headers=dict([*PAGE_HEADERS, *BROWSER_HEADERS]))

    object_ = ApiOperation(summary="This description, in OpenAPI 3.1", answers={200: (dict[str, Any],)})
    shown = ApiOperation(summary="This description, as a page", answers={200: (MediaType("text/html"),)})
    return [DescribedRoute(OPENAPI_PATH, openapi, GET=object_), DescribedRoute(PAGE_PATH, docs, GET=shown)]


def openapi_document(routes: Iterable[BaseRoute], *, needs_keys: bool) -> JSONObject:
    """Return the description of these routes. needs_keys: client keys are configured."""
    found: dict[str, dict[str, ApiOperation]] = {}
    for route in routes:
        if isinstance(route, DescribedRoute):
            here = found.setdefault(route.path_format, {})
            for method, operation in route.operations.items():
                # The same path has two routes where the query tells requests apart: see Endpoint.query.
                here[method] = here[method].or_else(operation) if method in here else operation
    types = dict.fromkeys(each for here in found.values() for each in chain(*map(_types_of, here.values())))
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    for component in components.values():
        # Docstrings go on with notes for readers of the code.
        component["description"] = component.get("description", "").partition("\n\n    Attributes:")[0]
    schema_of = dict(zip(types, schemas, strict=True))
    bearer = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Dragoman",
            "version": __version__,
            "summary": "A gateway between LLM protocols",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": {
            path: {
                method.lower(): _operation(path, method, operation, schema_of, needs_keys=needs_keys)
                for method, operation in here.items()
            }
            for path, here in found.items()
        },
        "components": {
            "schemas": components,
            "securitySchemes": {
                "client": {
                    **bearer,
                    "description": f"A client key; or as {' or '.join(KEY_PLACES.headers)}.",
                },
                "operator": {**bearer, "description": "The admin key; for metrics the metrics key, too."},
            },
        },
    }


def _types_of(operation: ApiOperation) -> Iterator[Any]:
    for answers in (operation.error_types, *operation.answers.values()):
        yield from (each for each in answers if not isinstance(each, MediaType))
    if operation.body is not None:
        yield operation.body


def _operation(
    path: str, method: str, operation: ApiOperation, schema_of: Mapping[Any, JSONObject], *, needs_keys: bool
) -> JSONObject:
    kind = "operator" if is_admin_path(path) else "client"
    is_open = path in OPEN_PATHS or (kind == "client" and not needs_keys)
    described: JSONObject = {
        "operationId": "_".join([method.lower(), *re.findall(r"\w+", path)]),
        "summary": operation.summary,
        "tags": ["protocols" if operation.protocol else "operator" if kind == "operator" else "gateway"],
        "security": [] if is_open else [{kind: []}],
        "parameters": [
            *(
                _parameter("path", Parameter(name, operation.place), required=True)
                for name in re.findall(r"{(\w+)}", path)
            ),
            # Query reads an empty value as a parameter that is missing.
            *(
                _parameter("query", each, allowEmptyValue=not each.repeats)
                for each in operation.parameters or ()
            ),
        ],
        "responses": {
            str(status): _response(status, answers, schema_of)
            for status, answers in operation.answers.items()
        },
    }
    errors = {*_COMMON_ERRORS, *operation.errors, *(() if is_open else _KEY_ERRORS[kind])}
    if operation.body is not None:
        described["requestBody"] = {
            "required": operation.requires_body,
            "content": {name: {"schema": schema_of[operation.body]} for name in operation.body_types},
        }
        errors.update(_BODY_ERRORS)
    if operation.errors == UPSTREAM_ERRORS:
        errors = {*UPSTREAM_ERRORS}  # all others are among them
    for status in sorted(errors - operation.answers.keys(), key=str):
        described["responses"][str(status)] = _response(status, operation.error_types, schema_of)
    if operation.protocol is not None and operation.protocol.reference:
        described["externalDocs"] = {
            "url": operation.protocol.reference,
            "description": f"The vendor's reference of {operation.protocol.name}",
        }
    return described


def _parameter(place: str, parameter: Parameter, **more: bool) -> JSONObject:
    named = {"name": parameter.name, "in": place, "description": parameter.about}
    return {**named, "schema": parameter.schema, **more}


def _response(status: int | str, answers: Sequence[Any], schema_of: Mapping[Any, JSONObject]) -> JSONObject:
    content: dict[str, list[Mapping[str, Any]]] = {}
    for each in answers:
        if isinstance(each, MediaType):
            content.setdefault(each.name.partition(";")[0], []).append({})
        else:
            content.setdefault("application/json", []).append(schema_of[each])
    return {
        "description": HTTPStatus(status).phrase
        if isinstance(status, int)
        else "An error, perhaps an upstream's",
        "content": {
            name: {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}
            for name, schemas in content.items()
        },
    }
