"""The clients of the laws, by the oracle's names: each protocol, and each kind of stream of the simple API."""

from dragoman import PROTOCOLS
from dragoman.codec import Endpoint, ProtocolSpec


def spec_of(client: str) -> ProtocolSpec:
    """`openai_chat`, or `simple_chat/chat/stream` with the path of an endpoint behind the protocol."""
    return PROTOCOLS[client.partition("/")[0]]


def endpoint_of(client: str, *, stream: bool = True) -> Endpoint:
    spec = spec_of(client)
    path = client.removeprefix(spec.name)
    named = [endpoint for endpoint in spec.endpoints if endpoint.path == path]
    return (named or [endpoint for endpoint in spec.endpoints if endpoint.streams_if(stream) is stream])[0]


def path_of(client: str, model: str, *, stream: bool = True) -> str:
    """The path of a request, with the query that it needs."""
    endpoint = endpoint_of(client, stream=stream)
    return endpoint.path.replace("{model}", model) + (endpoint.query and f"?{endpoint.query}")
