"""What a host is: a call, and the two functions that change it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from dragoman.codec import SSE, Framing, UpstreamSpec
from dragoman_server.capabilities.cloud_apis import cloud_api_of
from dragoman_server.settings import AccountSettings, UpstreamSettings
from dragoman_server.wire.headers import with_key


class StreamedContent(Protocol):
    """A body that is sent while it arrives, by one call.

    Attributes:
        length: Its bytes, None if they are not known before.
    """

    length: int | None

    async def receive(self) -> bytes:
        """Return the next bytes; b"" at the end. Raises an UpstreamError if there is none."""


class UpstreamCall(msgspec.Struct, frozen=True):
    """One HTTP request to an upstream. The way there, its timeouts and its proxy, are no part of it.

    Attributes:
        content: The body, None for a GET.
        framing: The response's, if it is a stream.
        least_read_s: The seconds of silence that are allowed in any case.
        model: That it is for, of a body that is no JSON or is not held.
    """

    method: str
    url: str
    headers: Sequence[tuple[str, str]] = ()
    content: bytes | StreamedContent | None = None
    framing: Framing = SSE
    least_read_s: float = 0.0
    model: str = ""

    @property
    def held(self) -> bytes:
        """The body, b"" for one that is sent while it arrives."""
        return self.content if isinstance(self.content, bytes) else b""

    def __repr__(self) -> str:
        return f"<UpstreamCall {self.method}>"  # headers and body may be secret, and the URL too


async def add_key(
    call: UpstreamCall,
    upstream: UpstreamSettings,
    protocol: UpstreamSpec,
    account: AccountSettings,
    now: float,
) -> UpstreamCall:
    """Authorize a call by the account's key, in the header of its cloud, its protocol or the setting `auth`."""
    if account.api_key is None:
        return call
    api = cloud_api_of(upstream)
    headers = with_key(call.headers, upstream, protocol, account.api_key, api.key_headers if api else ())
    return replace(call, headers=headers)


class HostError(Exception):
    """A call cannot be fitted or authorized. The message may be sent to clients.

    Attributes:
        detail: More for the operator, "" for nothing.
    """

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail

    def again(self) -> "HostError":
        """Return an equal error, because each raise adds to a traceback."""
        return HostError(str(self), self.detail)


class Authorize(Protocol):
    """Returns a call with the credentials of an account. Raises HostError or UpstreamError if it cannot.

    Args:
        protocol: that the call is in.
        now: seconds since the epoch.
    """

    def __call__(
        self,
        call: UpstreamCall,
        upstream: UpstreamSettings,
        protocol: UpstreamSpec,
        account: AccountSettings,
        now: float,
    ) -> Awaitable[UpstreamCall]: ...


class Host(msgspec.Struct, frozen=True):
    """How calls to one kind of servers differ from their protocol's calls.

    Attributes:
        fit: Returns the call as the host takes it, before it is authorized; in a thread, if its body is large. None
            leaves it as it is. Raises HostError.
        authorize: See Authorize.
        renew: Forgets a token that was refused, unless it was fetched since that time, so that the next call gets
            another one. Returns false if there is none.
        meant_status: Status, headers and body of an error response -> the status that says what it means.
    """

    fit: Callable[[UpstreamCall, UpstreamSettings], UpstreamCall] | None = None
    authorize: Authorize = add_key
    renew: Callable[[UpstreamSettings, AccountSettings, float], bool] | None = None
    meant_status: Callable[[int, Sequence[tuple[str, str]], bytes], int] | None = None
