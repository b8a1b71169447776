"""Only its path decides where a request goes and if it needs a key: no spelling and no header changes that."""

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest
from command.process import DEADLINE_S
from edge import EdgeGateway, Upstream

from dragoman_server.settings.client_keys import hash_client_key
from dragoman_server.settings.secret import CLIENT_KEY_PREFIX, Secret

pytestmark = pytest.mark.process

SECRET = "s" * 32
KEY = CLIENT_KEY_PREFIX + "0" * 64
MORE = f'[[client_keys]]\nname = "one"\nhash = "{hash_client_key(KEY, Secret(SECRET))}"\n'
SERVER = f'secret = "{SECRET}"\nadmin_key = "{"a" * 32}"'

FORGED = {
    "x-forwarded-for": "127.0.0.1",
    "x-forwarded-host": "healthz",
    "x-forwarded-path": "/healthz",
    "x-forwarded-prefix": "/healthz",
    "x-forwarded-proto": "https",
    "x-forwarded-uri": "/healthz",
    "x-http-method-override": "OPTIONS",
    "x-original-url": "/healthz",
    "x-real-ip": "127.0.0.1",
    "x-rewrite-url": "/healthz",
    "forwarded": "for=127.0.0.1;host=healthz;proto=https",
    "dragoman-request-id": "x",
}

# Target -> status without a key, and with a client's key.
TARGETS = {
    "/healthz": (200, 200),
    "/%68ealthz": (200, 200),
    "/healthz?/v1/models": (200, 200),
    "http://other/healthz": (200, 200),
    "http://localhost/healthz": (200, 200),
    "/v1/models": (401, 200),
    "/v1%2fmodels": (401, 200),
    "/v1/models?/healthz": (401, 200),
    "http://healthz/v1/models": (401, 200),
    "/v1/models%23/healthz": (401, 404),
    "/v1/models%3f/healthz": (401, 404),
    "//healthz": (401, 404),
    "/healthz/": (401, 404),
    "/HEALTHZ": (401, 404),
    "/healthz%00": (401, 404),
    "/healthz;/v1/models": (401, 404),
    "/healthz/../v1/models": (401, 404),
    "/healthz%2f..%2fv1%2fmodels": (401, 404),
    "/%252568ealthz": (401, 404),
    "/./healthz": (401, 404),
    "/healthz%20": (401, 404),
    "/admin/accounts": (401, 401),
    "/%61dmin/accounts": (401, 401),
    "/admin%2faccounts": (401, 401),
    "http://healthz/admin/accounts": (401, 401),
    "//admin/accounts": (401, 404),
    "/healthz/../admin/accounts": (401, 404),
    "/ADMIN/accounts": (401, 404),
}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    directory: Path = tmp_path_factory.mktemp("routing")
    with (
        Upstream() as upstream,
        EdgeGateway(directory, upstream, backend="asyncio", server=SERVER, more=MORE).ready() as gateway,
    ):
        yield gateway.port


@pytest.mark.promise("S1", "S16")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_only_the_path_decides(port: int, host: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    found = {}
    for capabilities in TARGETS:
        statuses = []
        for key in ({}, {"authorization": f"Bearer {KEY}"}):
            for forged in ({}, FORGED):
                connection.putrequest("GET", capabilities, skip_host=True)
                for name, value in {"host": host, **key, **forged}.items():
                    connection.putheader(name, value)
                connection.endheaders()
                response = connection.getresponse()
                response.read()
                statuses.append(response.status)
        assert statuses[0] == statuses[1], f"{capabilities}: the headers changed what is open"
        assert statuses[2] == statuses[3], f"{capabilities}: the headers changed where it went"
        found[capabilities] = statuses[0], statuses[2]
    connection.close()
    assert found == TARGETS
