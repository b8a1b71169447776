"""Attacks and errors at the edge, each against real `dragoman serve` processes. The rig is _support/edge.py."""

from collections.abc import Iterator

import pytest
from edge import BACKENDS, Gateways
from http_certificate import Certificate, make_certificate


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    assert isinstance(request.param, str)
    return request.param


@pytest.fixture(scope="session")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateways]:
    with Gateways(lambda: tmp_path_factory.mktemp("gateway")) as gateways:
        yield gateways


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="session")
def tls(certificate: Certificate) -> str:
    """Lines of [server] for a gateway with TLS."""
    return f'certfile = "{certificate.cert}"\nkeyfile = "{certificate.key}"'
