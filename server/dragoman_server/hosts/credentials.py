"""Credentials of clouds for accounts without a key: found, renewed and used by the clouds' own libraries.

Those block, so each credential has one thread, and calls wait in order: google-auth's credentials "are not safe to
refresh concurrently" (anthropic 2.12.0, lib/google_cloud). A token is kept until five minutes before its end, and
renewed when the upstream refuses it. Signatures are made for each call, when its body is final. The libraries are
imported by the first call that needs one.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

import anyio
from msgspec.structs import replace

from dragoman.codec import UpstreamSpec
from dragoman_server.capabilities.cloud_apis import cloud_api_of, host_name, region_at
from dragoman_server.hosts.credential_libraries import (
    CREDENTIAL_LIBRARIES,
    SESSION_TOKEN,
    CredentialLibrary,
    FoundCredential,
)
from dragoman_server.hosts.host import HostError, UpstreamCall, add_key
from dragoman_server.platform.off_loop import in_threads
from dragoman_server.settings import AccountSettings, UpstreamSettings
from dragoman_server.settings.secret import Mask

# Seconds before its end after which a token is renewed.
EARLY_S = 300
# Seconds for which a call waits for its credentials. A machine without any asks several places in turn.
WAIT_S = 30.0
# Seconds between two fetches: calls do not queue up behind one another's failures, nor because of a library that gives
# tokens that end soon. More than one request for a token takes.
PAUSE_S = 15.0

_Result = TypeVar("_Result")


class Credential:
    """One identity at one cloud, in its own thread.

    Args:
        library: finds it.
        identity: see the setting; None for whatever the library finds.
        scope: of its tokens.

    Attributes:
        mask: Removes its token from texts of the upstream.
    """

    def __init__(self, library: CredentialLibrary, identity: str | None, scope: str) -> None:
        self._find: Callable[[], Callable[[], FoundCredential]] = lambda: library.find(identity, scope)
        self._library = library
        self._threads = ThreadPoolExecutor(1, "dragoman-credential")
        self._fetch: Callable[[], FoundCredential] | None = None
        self._found: FoundCredential | None = None
        self._fetched_at = 0.0
        self._failure: HostError | None = None
        self._next_at = 0.0  # when it may be fetched again
        self._secret = ""
        self.mask = Mask(())

    def __repr__(self) -> str:
        return f"<Credential of {self._library.name}>"

    async def get(self, now: float) -> FoundCredential:
        """Return a token that is valid for a while. now: seconds since the epoch. Raises HostError."""
        found = self._kept(now)
        if found is None:
            found = await self._in_thread(self._renewed, now)
            self._remember(dict(found.headers).get("authorization", ""))
        return found

    async def sign(self, call: UpstreamCall, service: str, region: str, now: float) -> UpstreamCall:
        """Return the call with a signature. Raises HostError."""
        found = await self.get(now)
        signed = await self._in_thread(self._signed, found, call, service, region, now)
        self._remember(dict(signed.headers).get(SESSION_TOKEN, ""))
        return signed

    def _remember(self, secret: str) -> None:
        if secret != self._secret:
            self._secret, self.mask = secret, Mask([secret])

    def drop(self, since: float) -> bool:
        """Forget a token that was refused, unless it was fetched since then. Return false if there is none."""
        had = self._found is not None
        if had and self._fetched_at < since:
            self._found, self._fetch, self._next_at = None, None, 0.0
        return had

    async def _in_thread(self, function: Callable[..., _Result], *arguments: object) -> _Result:
        try:
            with anyio.fail_after(WAIT_S):
                return await in_threads(self._threads, function, *arguments)
        except TimeoutError:
            raise HostError(f"{self._library.name} found no credentials within {WAIT_S:g} s") from None

    def _kept(self, now: float) -> FoundCredential | None:
        """Return what need not be renewed now: it lasts, or is valid and was just fetched or could not be."""
        found = self._found
        if found is None or not found.lasts(now):
            return None
        return found if found.lasts(now + EARLY_S) or now < self._next_at else None

    def _renewed(self, now: float) -> FoundCredential:
        """Return a new token, unless a call before this one has got one. Runs in the thread."""
        if (kept := self._kept(now)) is not None:
            return kept
        if self._failure is not None and now < self._next_at:
            raise self._failure.again()
        found, self._next_at = self._found, now + PAUSE_S
        try:
            fetch = self._fetch = self._fetch or self._find()
            fetched = fetch()
        except Exception as error:  # each library has its own
            self._failure = self._library.failure(error)
            if found is None or not found.lasts(now):
                raise self._failure.again() from None
            return found
        self._found, self._fetched_at, self._failure = fetched, now, None
        return fetched

    def _signed(
        self, found: FoundCredential, call: UpstreamCall, service: str, region: str, now: float
    ) -> UpstreamCall:
        """Return the call with a signature. Runs in the thread: the library may have to renew what it has found."""
        assert found.sign is not None  # the library signs
        if call.content and not call.held:
            raise HostError("a body that is sent while it arrives cannot be signed; send a smaller one")
        try:
            headers = found.sign(call.method, call.url, call.headers, call.held, service, region, now)
        except Exception as error:  # each library has its own
            raise self._library.failure(error) from None
        return replace(call, headers=headers)


@lru_cache(maxsize=256)
def credential_of(extra: str, identity: str | None, scope: str) -> Credential:
    """Return the credential of an identity, the same one for all accounts with it."""
    return Credential(CREDENTIAL_LIBRARIES[extra], identity, scope)


def cloud_credential(upstream: UpstreamSettings, account: AccountSettings) -> Credential | None:
    """Return the credential of an account, or None if it has a key or its upstream is no cloud."""
    api = cloud_api_of(upstream)
    if api is None or not api.extra or account.api_key is not None:
        return None
    if any(name in upstream.headers for name in ("authorization", *api.key_headers)):
        return None
    # A signature is for a service, and its key for all of them.
    scope = "" if CREDENTIAL_LIBRARIES[api.extra].signs else upstream.token_scope or api.scope
    return credential_of(api.extra, account.identity, scope)


async def authorize_cloud_call(
    call: UpstreamCall,
    upstream: UpstreamSettings,
    protocol: UpstreamSpec,
    account: AccountSettings,
    now: float,
) -> UpstreamCall:
    """Authorize a call to a cloud by the account's key, or else by a token or a signature. See Authorize."""
    credential = cloud_credential(upstream, account)
    if credential is None:
        return await add_key(call, upstream, protocol, account, now)
    api = cloud_api_of(upstream)
    assert api is not None  # it has credentials
    if CREDENTIAL_LIBRARIES[api.extra].signs:
        return await credential.sign(call, api.scope, _region(upstream), now)
    found = await credential.get(now)
    return replace(call, headers=[*call.headers, *found.headers])


def renew(upstream: UpstreamSettings, account: AccountSettings, since: float) -> bool:
    """Forget the token of an account that was refused, see Credential.drop()."""
    credential = cloud_credential(upstream, account)
    return credential is not None and credential.drop(since)


def _region(upstream: UpstreamSettings) -> str:
    region = region_at(host_name(upstream), upstream.base_url) or upstream.region
    if region is None:
        raise HostError("set region: its base URL does not show for which region to sign")
    return region
