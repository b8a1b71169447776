"""The client's address: what the socket has, or what trusted proxies have added to X-Forwarded-For."""

import pytest
from gateway.fakes import http_scope

from dragoman_server.wire.client_address import ClientAddresses

CLIENT, PROXY, OUTER_PROXY, FORGED = "192.0.2.7", "10.0.0.1", "10.9.9.9", "198.51.100.1"
TRUSTED = ("10.0.0.0/8", "fd00::/8")


def address(connected: str, *forwarded: str, trusted: tuple[str, ...] = TRUSTED) -> str | None:
    scope = http_scope("/", client=(connected, 50000))
    scope["headers"] += [(b"x-forwarded-for", value.encode("latin-1")) for value in forwarded]
    return ClientAddresses(trusted).address_of(scope)


@pytest.mark.parametrize(
    ("connected", "forwarded", "expected"),
    [
        (CLIENT, [], CLIENT),
        # Anybody can send the header.
        (CLIENT, [FORGED], CLIENT),
        (PROXY, [], PROXY),
        (PROXY, [CLIENT], CLIENT),
        # The client has sent one to the proxy.
        (PROXY, [f"{FORGED}, {CLIENT}"], CLIENT),
        (PROXY, [FORGED, CLIENT], CLIENT),
        (PROXY, [f"{CLIENT}, {OUTER_PROXY}"], CLIENT),
        # The client is in the proxies' own network.
        (PROXY, [f"10.1.1.1,{OUTER_PROXY}"], "10.1.1.1"),
        (PROXY, [f"{CLIENT}:4711"], CLIENT),
        (PROXY, ["[2001:db8::7]:4711"], "2001:db8::7"),
        (PROXY, ["2001:db8::7"], "2001:db8::7"),
        ("fd00::1", [CLIENT], CLIENT),
        # A socket for both versions.
        (f"::ffff:{PROXY}", [CLIENT], CLIENT),
        (PROXY, [f"::ffff:{CLIENT}"], CLIENT),
        # Nothing behind what is no address is the client's.
        (PROXY, [f"{CLIENT}, unknown"], PROXY),
        (PROXY, [f"{CLIENT}, unknown, {OUTER_PROXY}"], OUTER_PROXY),
        (PROXY, [""], PROXY),
        (PROXY, ["\xa0\x00, ,"], PROXY),
        (PROXY, [", ".join([CLIENT] + [OUTER_PROXY] * 5000)], OUTER_PROXY),
    ],
)
def test_the_address(connected: str, forwarded: list[str], expected: str) -> None:
    assert address(connected, *forwarded) == expected


def test_without_trusted_proxies_the_header_is_not_read() -> None:
    assert address(PROXY, CLIENT, trusted=()) == PROXY


def test_a_server_without_addresses_has_none() -> None:
    assert ClientAddresses(TRUSTED).address_of(http_scope("/", client=None)) is None
