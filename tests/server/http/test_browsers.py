"""Requests of web pages, without client keys and with them: hosts and origins that are accepted, and the others, which
are refused before anything is done.
"""

import json
import re
import socket
from typing import Any

import pytest
from gateway.fakes import FakeClient, FakeUpstream, OneResponse, http_scope, websocket
from gateway.scripted import CHAT, MESSAGES, PATHS, RESPONSES, STREAMS, request_body
from oracle import check_error
from starlette.middleware.cors import CORSMiddleware
from starlette.types import Receive, Scope, Send
from virtual_time import REAL_BACKENDS

from dragoman_server.app import _for_pages, create_app
from dragoman_server.config.loader import load
from dragoman_server.http.browsers import LOOPBACK_ORIGIN_PATTERN
from dragoman_server.serving.sockets import StartupError, bind
from dragoman_server.settings import ClientKey, ServerSettings, Settings, UpstreamSettings
from dragoman_server.settings.client_keys import hash_client_key, new_key
from dragoman_server.settings.secret import Secret

READ_PATHS = [
    "/",
    "/healthz",
    "/readyz",
    "/api/hello",
    "/v1/models",
    "/nothing",
    "/admin/accounts",
]


pytestmark = [pytest.mark.anyio, pytest.mark.backends(REAL_BACKENDS[0]), pytest.mark.promise("S1", "S15")]

SECRET = Secret("0123456789abcdef" * 4)
ADMIN = Secret("fedcba9876543210" * 4)
KEY = new_key()
KEYS = (ClientKey(name="me", hash=hash_client_key(KEY, SECRET)),)
EVIL = "https://evil.example"
BODY = json.dumps(request_body(CHAT)).encode()


class Gateway:
    """A gateway with one upstream, for one request. body_read: True if the request's body was read."""

    def __init__(self, *, keys: bool = False, **server: Any) -> None:
        upstream = UpstreamSettings(name="up", protocol=CHAT, base_url="http://127.0.0.1:9/v1")
        upstreams = OneResponse(STREAMS[CHAT])
        self._app = create_app(
            Settings(
                server=ServerSettings(secret=SECRET, admin_key=ADMIN, **server),
                upstreams=(upstream,),
                client_keys=KEYS if keys else (),
            ),
            client=upstreams,
        )
        self._fake: FakeUpstream = upstreams.fake
        self.body_read = False

    async def request(
        self, headers: dict[str, str] | list[tuple[str, str]], path: str = PATHS[CHAT], method: str = "POST"
    ) -> FakeClient:
        client = FakeClient(BODY)
        scope = http_scope(path, method)
        pairs = headers.items() if isinstance(headers, dict) else headers
        names = {name for name, _ in pairs}
        scope["headers"] = [pair for pair in scope["headers"] if pair[0].decode() not in names]
        scope["headers"] += [(name.encode(), value.encode("latin-1")) for name, value in pairs]

        async def receive() -> Any:
            self.body_read = True
            return await client.receive()

        await self._app(scope, receive, client.send)
        assert client.finished
        if method != "OPTIONS":
            assert client.headers["cross-origin-resource-policy"] == "same-origin"
            assert client.headers["x-content-type-options"] == "nosniff"
        return client

    @property
    def upstream_called(self) -> bool:
        return self._fake.closed_at is not None


def check_refused_early(
    gateway: Gateway, client: FakeClient, status: int, request: object, protocol: str = CHAT
) -> None:
    """Check the response to a request that is refused before its body is read or an upstream is called."""
    assert client.status == status, request
    assert check_error(protocol, status, client.body) == [], request
    assert (gateway.body_read, gateway.upstream_called) == (False, False), request
    assert not [name for name in client.headers if name.startswith("access-control-")], request


# Hosts.

LOOPBACK = [
    "localhost",
    "localhost:8080",
    "LocalHost:1",
    "localhost.:8080",
    "localhost:",
    "dev.localhost:8080",
    "127.0.0.1",
    "127.0.0.1:65535",
    "127.9.8.7:80",
    "[::1]",
    "[::1]:8080",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]:8080",
]
NOT_LOOPBACK = [
    "rebind.evil.example",
    "rebind.evil.example:8080",
    "localhost.evil.example",
    "evil-localhost",
    "127.0.0.1.evil.example",
    "127.0.0.1@evil.example",
    "evil@dev.localhost",
    "evil.example/.localhost",
    "evil.example#.localhost",
    "127.1",
    "2130706433",
    "0x7f.1",
    "0.0.0.0:8080",
    "192.168.1.5:8080",
    "8.8.8.8",
    "[::]",
    "[fe80::1]",
    "[::1",
    "::1",
    "host.docker.internal:8080",
    "localhost, evil.example",
    "localhost:80:80",
    "localhost\u00e9",
    " ",
    "",
]
PUBLIC = {"host": "0.0.0.0", "allow_public_without_keys": True}


async def test_a_loopback_host_is_accepted() -> None:
    for host in LOOPBACK:
        gateway = Gateway()
        assert (await gateway.request({"host": host})).status == 200, host
        assert gateway.upstream_called, host


@pytest.mark.parametrize("origin", [None, "same"])
async def test_another_host_is_refused_before_anything_is_done(origin: str | None) -> None:
    for host in NOT_LOOPBACK:
        gateway = Gateway()
        headers = {"host": host} | ({"origin": f"http://{host}"} if origin else {})
        client = await gateway.request(headers)
        check_refused_early(gateway, client, 421, host)
        message = client.error["message"]
        assert "server.allowed_hosts (DRAGOMAN_ALLOWED_HOSTS, --allowed-hosts)" in message, host


HOST_LISTS: list[list[str]] = [
    [],
    ["localhost", "localhost"],
    ["localhost", "evil.example"],
    ["evil.example", "localhost"],
]


async def test_there_is_one_host() -> None:
    for hosts in HOST_LISTS:
        gateway = Gateway()
        # hypercorn gives an empty host for none.
        client = await gateway.request([("host", host) for host in hosts] or {"host": ""})
        check_refused_early(gateway, client, 421, hosts)


HOST_SETTINGS: list[tuple[dict[str, Any], str, int]] = [
    ({"allowed_hosts": ("gate.lan",)}, "gate.lan:8080", 200),
    ({"allowed_hosts": ("gate.lan",)}, "GATE.lan.", 200),
    ({"allowed_hosts": ("gate.lan",)}, "localhost", 200),
    ({"allowed_hosts": ("gate.lan",)}, "gate.lan.evil.example", 421),
    ({"allowed_hosts": ("gate.lan",)}, "x.gate.lan", 421),
    ({"allowed_hosts": ("*.gate.lan",)}, "x.gate.lan", 200),
    ({"allowed_hosts": ("*.gate.lan",)}, "gate.lan", 421),
    ({"allowed_hosts": ("10.1.2.3",)}, "10.1.2.3:80", 200),
    ({"allowed_hosts": ("fd00::1",)}, "[fd00::1]:80", 200),
    ({"allowed_hosts": ("*",)}, "evil.example", 200),
    ({"allowed_hosts": ("*",)}, "", 421),
    # On a public address, its own names are known: no page's name is an address.
    (PUBLIC, "192.168.1.5:8080", 200),
    (PUBLIC, "[2001:db8::1]:8080", 200),
    (PUBLIC, "127.0.0.1", 200),
    (PUBLIC, "rebind.evil.example", 421),
    ({**PUBLIC, "host": "Box.lan"}, "box.lan:8080", 200),
    ({**PUBLIC, "allowed_hosts": ("dragoman",)}, "dragoman:8080", 200),
    ({"keys": True}, "anything.example", 401),
    ({"keys": True, "allowed_hosts": ("gate.example",)}, "gate.example", 401),
    ({"keys": True, "allowed_hosts": ("gate.example",)}, "rebind.evil.example", 421),
    ({"keys": True, "allowed_hosts": ("gate.example",)}, "localhost", 401),
]


async def test_hosts_that_the_settings_accept() -> None:
    for settings, host, status in HOST_SETTINGS:
        assert (await Gateway(**settings).request({"host": host})).status == status, (settings, host)


# Origins.

LOOPBACK_PAGES = [
    "http://localhost",
    "http://localhost:3000",
    "https://localhost:8443",
    "http://dev.localhost:3000",
    "http://127.0.0.1:8080",
    "http://127.3.2.1",
    "http://[::1]:5173",
]
OTHER_PAGES = [
    EVIL,
    "null",
    "",
    "*",
    "loopback",
    "file://",
    "http://localhost.evil.example",
    "http://evil.example:80",
    "http://127.0.0.1.evil.example",
    "http://evil.example/http://localhost",
    "http://localhost:x",
    "http://localhost:80@evil.example",
    "http://localhost@evil.example",
    "http://localhost evil.example",
    "http://localhost http://evil.example",
    "ftp://localhost",
    "chrome-extension://abcdef",
    "http://192.168.1.5",
    "http://0.0.0.0:8080",
    "HTTP://LOCALHOST",
]


async def test_pages_of_this_machine_are_allowed_by_default() -> None:
    for origin in LOOPBACK_PAGES:
        client = await Gateway().request({"origin": origin, "content-type": "application/json"})
        assert client.status == 200, origin
        assert client.headers["access-control-allow-origin"] == origin, origin
        assert "access-control-allow-credentials" not in client.headers, origin


async def test_other_pages_are_refused() -> None:
    for origin in OTHER_PAGES:
        gateway = Gateway()
        client = await gateway.request({"origin": origin, "content-type": "text/plain"})
        check_refused_early(gateway, client, 403, origin)
        message = client.error["message"]
        assert "server.cors_origins (DRAGOMAN_CORS_ORIGINS, --cors-origins)" in message, origin
        assert client.headers["x-should-retry"] == "false", origin


OWN = [
    ("gate.example:8080", "http://gate.example:8080", 200),
    ("gate.example", "https://gate.example", 200),  # a proxy ends TLS
    ("gate.example:8080", "http://gate.example:9090", 403),
    ("gate.example:8080", "http://gate.example", 403),
    ("gate.example", "app://gate.example", 403),
    ("127.0.0.1", "http://gate.example", 403),
]


async def test_the_pages_of_this_gateway_are_allowed_at_each_of_its_names() -> None:
    for host, origin, status in OWN:
        gateway = Gateway(allowed_hosts=("gate.example",))
        client = await gateway.request({"host": host, "origin": origin, "content-type": "application/json"})
        assert client.status == status, (host, origin)
        key = {"authorization": f"Bearer {ADMIN.reveal()}"}
        change = {"host": host, "origin": origin, **key}
        client = await gateway.request(change, "/admin/accounts/up/default/disable")
        assert client.status == status, (host, origin)
        assert status == 200 or "own page at /ui" in client.error["message"]


ENDPOINTS: list[tuple[str, str, str]] = [
    (PATHS[MESSAGES], "POST", MESSAGES),
    (PATHS[RESPONSES], "POST", RESPONSES),
    ("/v1/messages/count_tokens", "POST", MESSAGES),
    ("/v1/models", "GET", CHAT),
    ("/v1/responses/resp_1", "GET", RESPONSES),
    ("/v1/responses/resp_1", "DELETE", RESPONSES),
    ("/", "GET", CHAT),
    ("/healthz", "GET", CHAT),
    ("/admin/accounts", "GET", CHAT),
    ("/admin/accounts/up/default/disable", "POST", CHAT),
    ("/nothing", "GET", CHAT),
]


async def test_every_endpoint_refuses_other_pages() -> None:
    for path, method, protocol in ENDPOINTS:
        keys = {"x-api-key": ADMIN.reveal()}
        for headers, status in (({"origin": EVIL}, 403), ({"host": "rebind.evil.example"}, 421)):
            gateway = Gateway()
            client = await gateway.request(headers | keys, path, method)
            check_refused_early(gateway, client, status, (method, path), protocol)
        gateway = Gateway()
        preflight = {"origin": EVIL, "access-control-request-method": method}
        client = await gateway.request(preflight, path, "OPTIONS")
        check_refused_early(gateway, client, 403, (method, path), protocol)


SITES = ["cross-site", "same-site", "same-origin", "none"]


async def test_a_cross_site_request_without_an_origin_is_refused() -> None:
    """Images, scripts, links. Those of the same machine are same-site, whatever their port."""
    for site in SITES:
        gateway = Gateway()
        client = await gateway.request({"sec-fetch-site": site}, "/v1/models", "GET")
        if site == "cross-site":
            check_refused_early(gateway, client, 403, site)
        assert client.status == (403 if site == "cross-site" else 200), site


FORMS = [
    "text/plain",
    "text/plain;charset=UTF-8",
    "Text/Plain ; charset=utf-8",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
]


@pytest.mark.parametrize("origins", [("loopback",), ("*",)])
async def test_forms_are_refused_from_any_page(origins: tuple[str, ...]) -> None:
    for kind in FORMS:
        gateway = Gateway(cors_origins=origins)
        client = await gateway.request({"origin": "http://localhost:3000", "content-type": kind})
        assert (client.status, gateway.body_read, gateway.upstream_called) == (415, False, False), kind
        assert check_error(CHAT, 415, client.body) == [], kind
        # The developer of the page can read why.
        assert client.headers["access-control-allow-origin"] in ("*", "http://localhost:3000"), kind


async def test_any_page_is_allowed_if_it_is_configured() -> None:
    gateway = Gateway(cors_origins=("*",))
    client = await gateway.request({"origin": EVIL, "content-type": "application/json"})
    assert (client.status, client.headers["access-control-allow-origin"]) == (200, "*")
    assert "access-control-allow-credentials" not in client.headers
    (warning,) = load(environ={"DRAGOMAN_CORS_ORIGINS": "*"}).warnings
    assert str(warning).startswith("server.cors_origins: any web page")


# With client keys: the key decides, and pages of the listed origins may read.


KEYED: list[tuple[dict[str, str], int, str | None]] = [
    ({"origin": EVIL}, 401, None),
    ({"origin": EVIL, "content-type": "text/plain"}, 401, None),
    ({"origin": EVIL, "x-api-key": KEY}, 200, None),
    ({"origin": "http://localhost:3000", "x-api-key": KEY}, 200, "http://localhost:3000"),
    ({"sec-fetch-site": "cross-site"}, 401, None),
    ({"host": "rebind.evil.example"}, 401, None),
]


async def test_with_client_keys_the_key_decides() -> None:
    for headers, status, allowed in KEYED:
        gateway = Gateway(keys=True)
        client = await gateway.request(headers)
        assert client.status == status, headers
        assert gateway.upstream_called == (status == 200), headers
        assert client.headers.get("access-control-allow-origin") == allowed, headers


@pytest.mark.parametrize("origins", [("loopback",), ("*",)])
async def test_a_preflight_has_no_body(origins: tuple[str, ...]) -> None:
    preflight = {"origin": "http://localhost:3000", "access-control-request-method": "POST"}
    client = await Gateway(keys=True, cors_origins=origins).request(preflight, method="OPTIONS")
    assert (client.status, client.body) == (204, b"")
    assert "content-type" not in client.headers
    assert "POST" in client.headers["access-control-allow-methods"]


# WebSocket handshakes: no preflight comes before them.


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://localhost:3000"}, 426),
        ({"origin": EVIL}, 403),
        ({"host": "rebind.evil.example", "origin": "http://rebind.evil.example"}, 421),
        ({"host": "gw.test", "origin": "http://gw.test"}, 426),  # the gateway's own page
        ({"host": "gw.test", "origin": "http://gw.test:81"}, 403),
    ],
)
async def test_a_websocket_handshake_is_refused_like_a_request(headers: dict[str, str], status: int) -> None:
    server = ServerSettings(websocket=False, allowed_hosts=("gw.test",))
    async with websocket(create_app(Settings(server=server)), headers=headers) as client:
        assert client.refused[0] == status


# The pattern of the setting, and the socket.


def test_the_pattern_of_pages_of_this_machine() -> None:
    pages = [*LOOPBACK_PAGES, *OTHER_PAGES]
    assert [page for page in pages if re.fullmatch(LOOPBACK_ORIGIN_PATTERN, page)] == LOOPBACK_PAGES


@pytest.mark.promise("S14")
def test_a_loopback_name_that_resolves_elsewhere_is_not_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    def lookup(host: str, port: int, **_: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.7", port))]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    with pytest.raises(StartupError, match=r"dev\.localhost: it resolves to 192\.0\.2\.7"):
        bind(ServerSettings(host="dev.localhost", port=0))


@pytest.mark.promise("S14")
def test_only_this_machine_can_connect_by_default() -> None:
    with bind(ServerSettings(port=0)) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


async def test_no_other_page_can_load_a_response() -> None:
    """By the headers that `Gateway.request` looks for in each."""
    for path in READ_PATHS:
        await Gateway().request({"x-api-key": ADMIN.reveal()}, path, "GET")


@pytest.mark.parametrize("vary", [(), (b"accept",), (b"accept", b"x-a")])
async def test_a_program_gets_the_headers_that_starlette_gives_it(vary: tuple[bytes, ...]) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"x-b", b"1"), *[(b"vary", value) for value in vary]]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"text"})

    cors = CORSMiddleware(app, allow_origins=["https://page.example"])
    passed_by, by_starlette = FakeClient(), FakeClient()
    await _for_pages(cors)(http_scope("/"), passed_by.receive, passed_by.send)
    await cors(http_scope("/"), by_starlette.receive, by_starlette.send)
    assert (passed_by.headers, passed_by.body) == (by_starlette.headers, by_starlette.body)
