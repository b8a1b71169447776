"""The description of the API: it has all routes, needs a key where there are keys, and its page loads nothing."""

import base64
import hashlib
import json
import re
from typing import Any

import pytest
from gateway.fakes import FakeClient, http_scope
from gateway.scripted import SECRET
from starlette.routing import BaseRoute, Route

from dragoman_server.app import Application, _routes
from dragoman_server.gateway import Gateway
from dragoman_server.http.admin.app import operator_routes
from dragoman_server.http.admin.page import page_routes
from dragoman_server.http.description_page import page
from dragoman_server.http.openapi import openapi_document
from dragoman_server.settings import ClientKey, ServerSettings, Settings
from dragoman_server.settings.client_keys import hash_client_key

pytestmark = pytest.mark.anyio

KEY = "drk_canary-client"
KEYED = Settings(
    server=ServerSettings(secret=SECRET),
    client_keys=(ClientKey(name="red", hash=hash_client_key(KEY, SECRET)),),
)


async def get(path: str, settings: Settings | None = None, key: str = KEY, **scope: Any) -> FakeClient:
    client = FakeClient()
    headers = {"authorization": f"Bearer {key}"}
    app = Application(Gateway(settings or Settings()))
    await app(http_scope(path, "GET", headers, **scope), client.receive, client.send)
    return client


async def document(settings: Settings | None = None, **scope: Any) -> Any:
    return json.loads((await get("/openapi.json", settings, **scope)).body)


# Files for a browser, which are no API.
PAGE_ROUTES = page_routes()


def all_routes() -> list[BaseRoute]:
    gateway = Gateway(Settings())
    operator = operator_routes(gateway, lambda: None, lambda: None)  # type: ignore[arg-type, return-value]
    return [*_routes(gateway, lambda: None, operator), *operator]  # type: ignore[arg-type, return-value]


async def test_the_description_has_all_routes_and_no_others() -> None:
    described = {
        (method.upper(), path) for path, methods in (await document())["paths"].items() for method in methods
    }
    served, page_paths = set(), {route.path_format for route in PAGE_ROUTES if isinstance(route, Route)}
    for route in all_routes():
        assert isinstance(route, Route)
        if route.path_format in page_paths:
            continue
        served |= {(method, route.path_format) for method in route.methods or () if method != "HEAD"}
    advice = "make the route a DescribedRoute, with an ApiOperation for each method (http/operations.py)"
    assert served - described == set(), f"not in /openapi.json: {advice}"
    assert described - served == set(), "nothing is served there"


async def test_names_and_references_are_sound() -> None:
    found = await document()
    operations = [operation for methods in found["paths"].values() for operation in methods.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids) > 50
    for name in re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(found)):
        assert name in found["components"]["schemas"]
    tags = {tag["name"] for tag in found["tags"]}
    for operation in operations:
        assert tags >= set(operation["tags"])
        assert operation["summary"]
        assert all(each["description"] for each in operation["parameters"])


async def test_vendors_bodies_are_links_and_ours_are_types() -> None:
    paths = (await document())["paths"]
    messages, simple = paths["/v1/messages"]["post"], paths["/chat/json"]["post"]
    assert messages["externalDocs"]["url"].startswith("https://platform.claude.com/docs/")
    assert messages["responses"]["200"]["content"].keys() == {"application/json", "text/event-stream"}
    assert "externalDocs" not in simple
    body = simple["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/SimpleRequest"}
    # Two routes with one path, which the query tells apart.
    stream = paths["/v1beta/{model}:streamGenerateContent"]["post"]
    assert stream["responses"]["200"]["content"].keys() == {"application/json", "text/event-stream"}
    assert [each["name"] for each in stream["parameters"]] == ["model", "alt"]
    assert stream["parameters"][1]["schema"]["enum"] == ["sse", "json"]
    error = {"$ref": "#/components/schemas/ErrorBody"}
    forms = stream["responses"]["4XX"]["content"]["application/json"]["schema"]
    assert forms == {"anyOf": [error, {"type": "array", "items": error}]}


async def test_what_is_wrong_with_a_body_is_described_and_if_there_has_to_be_one() -> None:
    paths = (await document())["paths"]
    made, rotated = paths["/admin/keys"]["post"], paths["/admin/keys/{name}/rotate"]["post"]
    assert " ".join(made["responses"]) == "201 400 401 403 404 408 409 413 415 421 503"
    assert (made["requestBody"]["required"], rotated["requestBody"]["required"]) == (True, False)


async def test_a_parameter_is_what_its_endpoint_checks() -> None:
    parameters = (await document())["paths"]["/v1beta/models"]["get"]["parameters"]
    [size] = [each["schema"] for each in parameters if each["name"] == "pageSize"]
    assert size == {"type": "integer", "minimum": 1, "maximum": 1000}
    for value, status in (
        (size["minimum"], 200),
        (size["maximum"], 200),
        (size["maximum"] + 1, 400),
        (0, 400),
    ):
        client = await get("/v1beta/models", query_string=f"pageSize={value}".encode())
        assert client.status == status, value


@pytest.mark.parametrize("path", ["/openapi.json", "/docs"])
async def test_where_there_are_keys_it_needs_one(path: str) -> None:
    assert (await get(path, KEYED, key="drk_wrong")).status == 401
    assert (await get(path, KEYED)).status == 200
    assert (await get(path, key="")).status == 200


async def test_keys_are_described_where_they_are_needed() -> None:
    for settings, expected in ((None, []), (KEYED, [{"client": []}])):
        paths = (await document(settings))["paths"]
        assert paths["/v1/models"]["get"]["security"] == expected
        assert ("401" in paths["/v1/models"]["get"]["responses"]) is bool(expected)
        assert paths["/healthz"]["get"]["security"] == []
        assert paths["/admin/keys"]["post"]["security"] == [{"operator": []}]


@pytest.mark.parametrize(("root_path", "url"), [("", "/"), ("/llm", "/llm")])
async def test_paths_are_below_the_mount(root_path: str, url: str) -> None:
    found = json.loads((await get(f"{root_path}/openapi.json", root_path=root_path)).body)
    assert found["servers"] == [{"url": url}]


async def test_the_page_shows_every_path_and_loads_nothing() -> None:
    client = await get("/docs")
    text = client.body.decode()
    for path, methods in (await document())["paths"].items():
        assert f"<code>{path}</code>" in text
        assert all(f'id="{operation["operationId"]}"' in text for operation in methods.values())
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(re.findall(r'id="([^"]+)"', text))
    assert not re.search(r"<script|<img|<link|<iframe|url\(|@import|style=|\son\w+=", text)
    [style] = re.findall(r"<style>(.*)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = client.headers["content-security-policy"]
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}';")
    assert client.headers["referrer-policy"] == "no-referrer"


def test_what_is_described_is_shown_as_text() -> None:
    found = openapi_document(all_routes(), needs_keys=False)
    found["paths"]["/v1/models"]["get"]["summary"] = "<b>&"
    assert "<span>&lt;b&gt;&amp;</span>" in page(found)
