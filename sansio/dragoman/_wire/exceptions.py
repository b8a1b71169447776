"""Who broke the protocol.

Strategy: two exceptions, as in h11. LocalProtocolError means that our caller broke the rules (a bug on this
side); RemoteProtocolError means that a peer sent something that the protocol forbids, and carries what a
server needs to answer it. Readers raise only Remote, writers only Local.
"""

from __future__ import annotations


class ProtocolError(Exception):
    """The base of both. Never raised itself."""


class LocalProtocolError(ProtocolError):
    """The caller used the library against its rules, e.g. sent a delta for a block that is not open.

    There is nothing to tell the peer. Fix the caller.
    """


class RemoteProtocolError(ProtocolError):
    """A peer's bytes break its protocol, or ask for what cannot be done.

    Args:
        message: what was wrong and what to do, fit to be shown to the client. Holds no secret.
        status_hint: the HTTP status that answers it best when the peer is a client.
        path: a JSON Pointer (RFC 6901) to the value at fault, "" when unknown.
        code: a short machine-readable name such as `unsupported_value`, or None.
    """

    def __init__(
        self, message: str, *, status_hint: int = 400, path: str = "", code: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status_hint = status_hint
        self.path = path
        self.code = code

    @property
    def param(self) -> str | None:
        """The path in the dotted form of OpenAI's `param`, e.g. `messages[3].content`."""
        return dotted(self.path) or None


def dotted(pointer: str) -> str:
    """A JSON Pointer in OpenAI's notation for `param`: `/messages/3/role` -> `messages[3].role`."""
    text = ""
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        text += f"[{step}]" if step.isdigit() else f".{step}" if text else step
    return text
