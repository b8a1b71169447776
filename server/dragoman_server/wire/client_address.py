"""Find the address of a client, also behind proxies that the operator trusts.

A proxy adds the address that it saw to the header X-Forwarded-For, behind the entries that it finds. Anybody can send
the header, so it is read from its end, and only the entries that trusted proxies have written.
"""

import ipaddress
import re
from collections.abc import Iterable

from starlette.types import Scope

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

# More proxies than are ever behind one another. A head may have thousands of addresses.
_MAX_PROXIES = 20

# Some load balancers add the port: 192.0.2.1:4711, [2001:db8::1]:4711.
_WITH_PORT = r"\[([^\]]*)\](?::\d+)?|(\d+\.\d+\.\d+\.\d+):\d+"


class ClientAddresses:
    """Finds the addresses of clients.

    Args:
        trusted_proxies: IP addresses and networks, see ServerSettings.
    """

    def __init__(self, trusted_proxies: Iterable[str] = ()) -> None:
        self._trusted: list[IPNetwork] = [ipaddress.ip_network(network) for network in trusted_proxies]

    def address_of(self, scope: Scope) -> str | None:
        """Return the IP address that a request came from, None if its server has none, as for a Unix socket."""
        connected: str | None = (scope.get("client") or (None,))[0]
        if not self._trusted or connected is None or not self._is_trusted(address := _parse(connected)):
            return connected
        sent = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")
        for text in reversed(sent.decode("latin-1").rsplit(",", _MAX_PROXIES)[-_MAX_PROXIES:]):
            before = _parse(text.strip())
            if before is None:
                break
            address = before
            if not self._is_trusted(address):
                break
        return str(address)

    def _is_trusted(self, address: IPAddress | None) -> bool:
        return address is not None and any(address in network for network in self._trusted)


def _parse(text: str) -> IPAddress | None:
    match = re.fullmatch(_WITH_PORT, text)
    try:
        address = ipaddress.ip_address(match[1] or match[2] if match else text)
    except ValueError:
        return None
    # A socket for both versions has IPv4 clients as ::ffff:192.0.2.1.
    return getattr(address, "ipv4_mapped", None) or address
