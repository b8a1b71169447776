"""The names by which OpenTelemetry calls what the gateway reports.

The names for HTTP, servers and errors are stable. The names for generative AI are not ("Status: Development"), and move
to their own conventions, which have had no release. The names here come from VERSION, which tools read today.
"""

from typing import Final

import msgspec

# https://opentelemetry.io/docs/specs/semconv/gen-ai/, read on 2026-11-23
VERSION: Final = "1.41.0"
SCHEMA_URL: Final = f"https://opentelemetry.io/schemas/{VERSION}"

ERROR_TYPE: Final = "error.type"
HTTP_METHOD: Final = "http.request.method"
HTTP_ROUTE: Final = "http.route"
HTTP_STATUS: Final = "http.response.status_code"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
URL_PATH: Final = "url.path"
URL_SCHEME: Final = "url.scheme"

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
TOKEN_TYPE: Final = "gen_ai.token.type"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"

# All that the gateway sends to upstreams for clients is a conversation: "chat" -- the table of gen_ai.operation.name
CHAT: Final = "chat"

# The fields of Usage.
USAGE: Final = {
    "input": "gen_ai.usage.input_tokens",
    "output": "gen_ai.usage.output_tokens",
    "cached": "gen_ai.usage.cache_read.input_tokens",
    "cache_write": "gen_ai.usage.cache_creation.input_tokens",
}

# The values of PROVIDER for names of capabilities/providers.py that the conventions call otherwise.
PROVIDER_NAMES: Final = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "foundry": "azure.ai.inference",
    "gemini": "gcp.gemini",
    "mantle": "aws.bedrock",
    "mistral": "mistral_ai",
    "vertex": "gcp.vertex_ai",
}

# Attributes of the gateway's own.
ACCOUNT: Final = "dragoman.account"
CLIENT_KEY: Final = "dragoman.client_key"
CLIENT_PROTOCOL: Final = "dragoman.client_protocol"
COST_USD: Final = "dragoman.cost_usd"
OUTCOME: Final = "dragoman.outcome"
REQUEST_ID: Final = "dragoman.request_id"
UPSTREAM: Final = "dragoman.upstream"
UPSTREAM_PROTOCOL: Final = "dragoman.upstream_protocol"
LOSS_EVENT: Final = "dragoman.loss"
LOSS_CODE: Final = "dragoman.loss.code"
LOSS_PATH: Final = "dragoman.loss.path"


class InstrumentSpec(msgspec.Struct, frozen=True):
    """One histogram, with the boundaries that the conventions recommend."""

    name: str
    unit: str
    help: str
    boundaries: tuple[float, ...]


_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
_OUTPUT_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_TOKENS = tuple(4.0**power for power in range(14))

# Measured for each attempt: the gateway is the upstream's client.
CLIENT_DURATION = InstrumentSpec(
    "gen_ai.client.operation.duration", "s", "Duration of a request to an upstream", _SECONDS
)
CLIENT_FIRST_CHUNK = InstrumentSpec(
    "gen_ai.client.operation.time_to_first_chunk",
    "s",
    "Time to the first content of a streamed response of an upstream",
    _SECONDS,
)
CLIENT_TOKENS = InstrumentSpec(
    "gen_ai.client.token.usage", "{token}", "Tokens that an upstream has reported", _TOKENS
)
# Measured for each request: the gateway is the client's server.
SERVER_DURATION = InstrumentSpec(
    "gen_ai.server.request.duration", "s", "Time from a request's head to the end of its response", _SECONDS
)
SERVER_FIRST_TOKEN = InstrumentSpec(
    "gen_ai.server.time_to_first_token",
    "s",
    "Time to the first content of a streamed response",
    _FIRST_TOKEN,
)
SERVER_OUTPUT_TOKEN = InstrumentSpec(
    "gen_ai.server.time_per_output_token",
    "s",
    "Time for each output token after the first, of streamed responses",
    _OUTPUT_TOKEN,
)

INSTRUMENTS = (
    CLIENT_DURATION, CLIENT_FIRST_CHUNK, CLIENT_TOKENS, SERVER_DURATION, SERVER_FIRST_TOKEN, SERVER_OUTPUT_TOKEN,
)  # fmt: skip
