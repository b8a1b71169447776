"""Hosts: what a server needs of a call besides its protocol, such as another path, a token or a signature.

A protocol makes the call. Its host fits it (a deployment in the path, a version in the query, the model taken out of
the body), and authorizes it for an account when its body is final, because a signature covers the body. Both are done
again for each retry (`upstream.account_request`), because signatures and tokens expire. Most hosts take any call as it
is, with a key in a header.
"""

from functools import partial

from dragoman_server.capabilities.cloud_apis import CLOUD_APIS, host_name
from dragoman_server.hosts.aws import meant_status
from dragoman_server.hosts.credentials import authorize_cloud_call, renew
from dragoman_server.hosts.fit import fit_cloud_call
from dragoman_server.hosts.host import Authorize, Host, HostError, StreamedContent, UpstreamCall, add_key
from dragoman_server.settings import UpstreamSettings
from dragoman_server.settings.upstreams import PLAIN_HOST

__all__ = ["HOSTS", "Authorize", "Host", "HostError", "StreamedContent", "UpstreamCall", "add_key", "host_of"]

_PLAIN = Host()

# By UpstreamSettings.host, besides AUTO_HOST.
HOSTS: dict[str, Host] = {
    PLAIN_HOST: _PLAIN,
    **{
        name: Host(
            fit_cloud_call if api.routes else None, authorize_cloud_call, renew, partial(meant_status, api)
        )
        for name, api in CLOUD_APIS.items()
    },
}


def host_of(upstream: UpstreamSettings) -> Host:
    """Return the host of an upstream."""
    return HOSTS.get(host_name(upstream), _PLAIN)
