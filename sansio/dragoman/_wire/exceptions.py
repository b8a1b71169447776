"""The exceptions of the library.

Two are h11's: LocalProtocolError for a caller that breaks the rules (a bug on this side), RemoteProtocolError
for a peer whose bytes break its protocol. Neither is for a correct request that cannot be served: that is
RequestRefused.
"""

from __future__ import annotations

from dragoman._wire.errors import WireError, kind_of_status


class ProtocolError(Exception):
    """Base of LocalProtocolError and RemoteProtocolError. Never raised itself."""


class LocalProtocolError(ProtocolError):
    """The caller used the library against its rules, e.g. sent a delta for a block that is not open.

    There is nothing to send to the peer. Fix the caller.
    """


class _HTTPError(Exception):
    """An exception that has an HTTP response."""

    def __init__(self, message: str, *, status: int = 400, code: str | None = None, path: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.path = path

    @property
    def param(self) -> str | None:
        """The path in the dotted form of OpenAI's `param`, e.g. `messages[3].content`; None without a path."""
        return dotted_path(self.path) or None

    def as_wire_error(self) -> WireError:
        """Return the error for ProtocolSpec.write_error(), which makes a client's response of it."""
        kind = kind_of_status(self.status)
        return WireError(kind, self.message, status=self.status, code=self.code, param=self.param)


class RemoteProtocolError(_HTTPError, ProtocolError):
    """A peer's bytes break its protocol. The peer of a request is the client, of a response the upstream.

    Attributes:
        message: What is wrong and what to do, fit for the client. Holds no secret.
        status: The HTTP status of a response to the client: 4xx for its own bytes, 502 for the upstream's.
        code: A short machine-readable name such as `invalid_json`, or None.
        path: A JSON Pointer (RFC 6901) to the wrong value, "" if unknown.
    """


class RequestRefused(_HTTPError):
    """A request that is understood and cannot be served: the upstream cannot do it, or the gateway's rules forbid it.

    Attributes:
        message: Why, and what to do instead, fit for the client. Holds no secret.
        status: The HTTP status of the response.
        code: A short machine-readable name such as `unsupported_value`, or None.
        path: A JSON Pointer (RFC 6901) to the refused value, "" if it is none of them.
    """


def unreadable_response(message: str) -> RemoteProtocolError:
    """Return the error (502) for a response that cannot be read."""
    return RemoteProtocolError(message, status=502)


# Names may have megabytes, and paths are in errors, headers and the log, and repeated for each member below them.
MAX_PATH = 1000


def child(path: str, key: str | int) -> str:
    """Return the JSON Pointer of a member. "~" becomes "~0", "/" becomes "~1" (RFC 6901, 3). A long one is cut."""
    pointer = f"{path}/{str(key)[:MAX_PATH].replace('~', '~0').replace('/', '~1')}"
    return pointer if len(pointer) <= MAX_PATH else pointer[:MAX_PATH] + "..."


def dotted_path(pointer: str) -> str:
    """Return a JSON Pointer in OpenAI's notation for `param`: `/messages/3/role` -> `messages[3].role`."""
    text = ""
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        text += f"[{step}]" if step.isdigit() else f".{step}" if text else step
    return text
