"""Rows of failures that have no test, each with the reason why it cannot apply."""

REASONS: dict[str, str] = {
    "H14": "The gateway serves no WebSocket: it refuses the handshake with 426, and clients go on over HTTP."
}
