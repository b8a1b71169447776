"""The libraries of clouds that find credentials: what each of them needs, in one place. All of it blocks.

Nothing is imported before it is needed. What goes wrong is told to clients by the name of the error only: its text may
have paths and identities in it, and is for `dragoman doctor`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from dragoman.jsontext import decode_object
from dragoman_server.hosts.host import HostError

if TYPE_CHECKING:
    from collections.abc import MutableMapping

Headers: TypeAlias = "Sequence[tuple[str, str]]"
# Method, URL, headers, body, service, region and the seconds since the epoch -> the headers with a signature.
Sign: TypeAlias = Callable[[str, str, Headers, bytes, str, str, float], Headers]


# The header of AWS with the only secret that a signed request has.
SESSION_TOKEN = "x-amz-security-token"


class FoundCredential(msgspec.Struct, frozen=True):
    """A credential that was found.

    Attributes:
        source: Where it comes from, for people.
        until: Its end in seconds since the epoch, None if it has none, or is renewed by the library.
        headers: With its token, for tokens.
        sign: Signs a call, for signatures.
    """

    source: str
    until: float | None
    headers: Headers = ()
    sign: Sign | None = None

    def __repr__(self) -> str:
        return f"<FoundCredential {self.source}>"  # the headers are secret

    def lasts(self, now: float) -> bool:
        return self.until is None or now < self.until


class CredentialLibrary(msgspec.Struct, frozen=True):
    """One library.

    Attributes:
        name: For people.
        find: Identity and scope -> what fetches the credential anew, each time it is called.
        signs: It signs calls; else it has tokens.
    """

    name: str
    extra: str
    find: Callable[[str | None, str], Callable[[], FoundCredential]]
    signs: bool = False

    def failure(self, error: Exception) -> HostError:
        """Return the error for a call that has no credential."""
        if isinstance(error, ImportError):
            return HostError(f"it needs the extra {self.extra} of Dragoman, see `dragoman doctor`")
        return HostError(f"{self.name} has no credentials for it: {type(error).__name__}", detail=str(error))


def _google(identity: str | None, scope: str) -> Callable[[], FoundCredential]:
    import google.auth

    library: Any = google.auth  # much of it has no types
    request = _google_request()
    if identity is None:
        credentials, _ = library.default(scopes=[scope], request=request)
    else:
        credentials = _google_file(identity, scope)
    kind = type(credentials).__module__.rpartition(".")[2].replace("_", " ")
    who = getattr(credentials, "service_account_email", None) or getattr(credentials, "signer_email", None)

    def fetch() -> FoundCredential:
        credentials.refresh(request)
        headers: MutableMapping[str, str] = {}
        credentials.apply(headers)  # with the quota project
        until = credentials.expiry.replace(tzinfo=UTC).timestamp() if credentials.expiry else None
        source = " ".join(filter(None, (f"google-auth: {kind}", who, identity and f"of {identity}")))
        return FoundCredential(source, until, [(name.lower(), value) for name, value in headers.items()])

    return fetch


# The type in a file of credentials -> the module with its class, and what reads the file. google-auth advises against
# its own function for all types: one should know which type a file has.
_GOOGLE_FILES: Mapping[str, tuple[str, str]] = {
    "authorized_user": ("google.oauth2.credentials", "from_authorized_user_file"),
    "external_account": ("google.auth.identity_pool", "from_file"),
    "service_account": ("google.oauth2.service_account", "from_service_account_file"),
}


def _google_file(path: str, scope: str) -> Any:
    content = decode_object(Path(path).read_bytes(), "the file")
    module, read = _GOOGLE_FILES[str(content.get("type"))]
    return getattr(import_module(module).Credentials, read)(path, scopes=[scope])


def _google_request() -> Any:
    """Return what google-auth sends its requests with: httpx2, so that it needs no second HTTP client."""
    import google.auth.exceptions
    import httpx2

    errors: Any = google.auth.exceptions

    def send(
        url: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **more: object,
    ) -> SimpleNamespace:
        try:
            # A client for each request: no connection outlives it. It follows no redirect.
            with httpx2.Client(timeout=timeout or _TOKEN_S) as client:
                response = client.request(method, url, content=body, headers=headers)
        except httpx2.HTTPError as error:
            raise errors.TransportError(error) from None
        return SimpleNamespace(status=response.status_code, headers=response.headers, data=response.content)

    return send


# Seconds for one request for a token.
_TOKEN_S = 10.0


def _azure(identity: str | None, scope: str) -> Callable[[], FoundCredential]:
    from azure.identity import DefaultAzureCredential

    options = {} if identity is None else {"managed_identity_client_id": identity}
    credential = DefaultAzureCredential(**options)

    def fetch() -> FoundCredential:
        token = credential.get_token(scope)
        found = type(getattr(credential, "_successful_credential", None) or credential).__name__
        return FoundCredential(
            f"azure-identity: {found}", token.expires_on, [("authorization", f"Bearer {token.token}")]
        )

    return fetch


def _aws(identity: str | None, scope: str) -> Callable[[], FoundCredential]:
    import botocore.session  # type: ignore[import-untyped]
    from botocore.auth import SigV4Auth  # type: ignore[import-untyped]
    from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
    from botocore.exceptions import NoCredentialsError  # type: ignore[import-untyped]

    credentials = botocore.session.Session(profile=identity).get_credentials()
    if credentials is None:
        raise NoCredentialsError

    class RequestSigner(SigV4Auth):  # type: ignore[misc]
        """At a given time, and without add_auth()'s log, which has the token in it."""

        def add_auth_at(self, request: AWSRequest, now: float) -> None:
            request.context["timestamp"] = f"{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%SZ}"
            self._modify_request_before_signing(request)
            text = self.string_to_sign(request, self.canonical_request(request))
            self._inject_signature_to_request(request, self.signature(text, request))

    def sign(
        method: str, url: str, headers: Headers, body: bytes, service: str, region: str, now: float
    ) -> Headers:
        # Proxies may change other headers.
        signed = {name: value for name, value in headers if name == "content-type"}
        request = AWSRequest(method, url, headers=signed, data=body)
        RequestSigner(credentials.get_frozen_credentials(), service, region).add_auth_at(request, now)
        added = [(name.lower(), value) for name, value in request.headers.items() if name not in signed]
        return [*headers, *added]

    def fetch() -> FoundCredential:
        credentials.get_frozen_credentials()  # which fails here, if it does
        whose = f"profile {identity}, {credentials.method}" if identity else credentials.method
        return FoundCredential(f"botocore: {whose}", None, sign=sign)

    return fetch


# By the extra that brings the library.
CREDENTIAL_LIBRARIES: Mapping[str, CredentialLibrary] = {
    "azure": CredentialLibrary("azure-identity", "azure", _azure),
    "vertex": CredentialLibrary("google-auth", "vertex", _google),
    "bedrock": CredentialLibrary("botocore", "bedrock", _aws, signs=True),
}
