"""Check the keys of requests: client keys, and the operator's key for the paths below /admin.

A presented client key is hashed, and looked up by its hash. Both middlewares refuse a request before any endpoint
receives it.
"""

import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dragoman import PROTOCOLS, RemoteProtocolError, RequestRefused
from dragoman.codec import ProtocolSpec, UpstreamSpec
from dragoman_server.accounts.stored_keys import StoredKeys
from dragoman_server.capabilities.cloud_apis import CLOUD_APIS
from dragoman_server.http.aws_signature import AwsSignature, read_signature, refused
from dragoman_server.http.browsers import refuse_form_content_type, refuse_other_origins
from dragoman_server.http.request import BodyReader, Query
from dragoman_server.platform.clock import utc_text
from dragoman_server.platform.off_loop import off_loop
from dragoman_server.proxying.client_request import (
    SCOPE_KEY,
    SCOPE_PAGE,
    ClientDisconnected,
    path_below_mount,
)
from dragoman_server.settings import AwsKey, ClientKey, Group, ServerSettings
from dragoman_server.settings.client_keys import hash_client_key
from dragoman_server.settings.secret import Secret
from dragoman_server.settings.values import is_loopback
from dragoman_server.wire.replies import Reply, send_reply

HTTP_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

ADMIN_PATH = "/admin"
# POST, because a body comes with it. It changes nothing.
EXPLAIN_PATH = f"{ADMIN_PATH}/explain"
METRICS_PATH = "/metrics"
UI_PATH = "/ui"
HEALTHZ_PATH = "/healthz"
READYZ_PATH = "/readyz"
HELLO_PATH = "/api/hello"

# These report only that the gateway runs. Every other path needs a key, also those that are added later.
OPEN_PATHS = frozenset({HEALTHZ_PATH, READYZ_PATH, HELLO_PATH})

_OPERATOR_PATHS = frozenset({ADMIN_PATH, METRICS_PATH, UI_PATH})
_BELOW_OPERATOR_PATHS = (f"{ADMIN_PATH}/", f"{UI_PATH}/")

# Sends an error in the form of the path's protocol: see FallbackErrors.refuse().
Refuse = Callable[[Scope, RemoteProtocolError | RequestRefused, Send], Awaitable[None]]


def is_admin_path(path: str) -> bool:
    """True if the operator's application serves this path. path: see path_below_mount()."""
    return path in _OPERATOR_PATHS or path.startswith(_BELOW_OPERATOR_PATHS)


class KeyPlaces(msgspec.Struct, frozen=True):
    """Where clients send their key, besides the header authorization: names of headers and of query parameters."""

    headers: tuple[str, ...]
    parameters: tuple[str, ...]


def key_places(protocols: Iterable[ProtocolSpec]) -> KeyPlaces:
    """Return the places where clients of these protocols, and of clouds, send their key."""
    specs = [spec for spec in protocols if isinstance(spec, UpstreamSpec)]
    of_clouds = [header for api in CLOUD_APIS.values() for header in api.key_headers]
    headers = dict.fromkeys([*(spec.auth_header for spec in specs), *of_clouds])
    headers.pop("authorization", None)
    parameters = dict.fromkeys(spec.auth_query for spec in specs if spec.auth_query is not None)
    return KeyPlaces(tuple(headers), tuple(parameters))


KEY_PLACES = key_places(PROTOCOLS.values())


def presented_key(
    headers: Iterable[tuple[bytes, bytes]], query: bytes = b"", places: KeyPlaces = KEY_PLACES
) -> str | None:
    """Return the key that a client sends. query: of its URL, as in an ASGI scope.

    If several are sent, a header of a protocol's own comes first, as at Anthropic's server, then authorization, and a
    parameter of the query last. What is sent twice has no single value, so it is ignored.
    """
    values: dict[bytes, list[str]] = {}
    of_protocols = _encoded(places.headers)
    for name, value in headers:
        if (small := name.lower()) in of_protocols or small == b"authorization":
            values.setdefault(small, []).append(value.decode("latin-1").strip())
    for key_header in of_protocols if values else ():
        if key_header in values:
            return _single(values[key_header])
    scheme, _, credentials = (_single(values.get(b"authorization", [])) or "").partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip()
    if not query or not places.parameters:
        return None
    sent = map(Query(query.decode("latin-1")).all, places.parameters)
    return next(map(_single, filter(None, sent)), None)


@lru_cache(maxsize=8)  # each request asks
def _encoded(names: tuple[str, ...]) -> dict[bytes, None]:
    return dict.fromkeys(name.encode("ascii") for name in names)


def _single(values: list[str]) -> str | None:
    return values[0] if len(values) == 1 else None


def same_key(presented: str, configured: Secret) -> bool:
    """Compare two keys in constant time, without revealing even their length."""
    nonce = secrets.token_bytes(32)
    digests = (
        hmac.digest(nonce, key.encode("utf-8", "surrogateescape"), "sha256")
        for key in (presented, configured.reveal())
    )
    return hmac.compare_digest(*digests)


class _KnownKey(msgspec.Struct, frozen=True):
    """A key whose hash is configured.

    Attributes:
        ends: When it becomes invalid.
        is_previous: A newer one has taken its place.
        problem: Why it cannot be used, None if it can.
    """

    key: ClientKey
    ends: datetime | None
    is_previous: bool = False
    problem: str | None = None

    def check(self, now: float) -> None:
        """Raise RequestRefused (401) if the key is not valid now."""
        name = self.key.name
        if self.key.disabled:
            raise _unauthorized(
                f"the client key {name} is disabled: have it enabled again (dragoman keys enable {name})"
            )
        if self.ends is None or now < self.ends.timestamp():
            if self.problem is not None:
                raise _unauthorized(f"{self.problem}: have the group configured, or another key made")
            return
        at = utc_text(self.ends)
        if self.is_previous:
            raise _unauthorized(
                f"this key of {name} ended at {at}: send the newer one that has taken its place"
            )
        raise _unauthorized(
            f"the client key {name} expired at {at}: have another one made (dragoman keys rotate {name})"
        )


class Keyring:
    """The client keys of the configuration and of the account store; false if no key is needed.

    Args:
        keys: with the hash of each.
        secret: keys the hashes. ValueError if there are client keys and no secret.
        places: where a key may come.
        stored: the keys in the store. Of those with a name that is in `keys` too, none is accepted.
        groups: those that stored keys may be in.
        aws_keys: those that clients may sign with.

    Attributes:
        aws_keys: By their ids.
    """

    def __init__(
        self,
        keys: Iterable[ClientKey],
        secret: Secret | None,
        places: KeyPlaces = KEY_PLACES,
        stored: StoredKeys | None = None,
        groups: Mapping[str, Group] = MappingProxyType({}),
        aws_keys: Iterable[AwsKey] = (),
    ) -> None:
        # A lookup does not take constant time, and need not: the hashes are HMACs with the gateway's secret, so a
        # client cannot compute the hash of a key that it tries. How far two hashes agree shows nothing about a key.
        keys = list(keys)
        self._keys = _by_hash((key, None) for key in keys)
        self._named = {key.name: key for key in keys}
        self.aws_keys = {key.access_key_id: key for key in aws_keys}
        self._stored = stored
        self._groups = groups
        self._view: Mapping[str, ClientKey] = {}
        self._stored_keys: dict[str, _KnownKey] = {}
        if (keys or stored is not None) and secret is None:
            raise ValueError("client keys need server.secret: their hashes are keyed with it")
        self._secret = secret
        self._places = places

    def __bool__(self) -> bool:
        return bool(self._keys) or self._stored is not None

    def authenticate(
        self, headers: Iterable[tuple[bytes, bytes]], now: float, query: bytes = b""
    ) -> ClientKey | None:
        """Return the key that a request came with, None where no keys are configured.

        headers, query: as in an ASGI scope. now: seconds since the epoch.

        Raises RequestRefused (401) if no configured key matches, or the one that does is disabled or has expired. Only
        who has such a key gets to know that: every other one gets the same error, whatever it is.
        """
        if self._secret is None or not self:
            return None
        presented = presented_key(headers, query, self._places)
        if presented is None:
            raise _unauthorized(
                "this gateway needs a client key: send it once, as authorization: Bearer, or as "
                + ", ".join(self._places.headers)
            )
        known = self._find(hash_client_key(presented, self._secret))
        if known is None:
            if self._stored is not None and not self._stored.is_known:
                raise RequestRefused("the store of client keys does not respond; try again", status=503)
            raise _unauthorized(
                "the client key is not known to this gateway: send another one, or have one made (dragoman keys add)"
            )
        if known.ends is not None or known.key.disabled or known.problem is not None:
            known.check(now)
        return known.key

    def named(self, name: str, now: float) -> ClientKey:
        """Return the key of this name. Raises RequestRefused (401) if there is none, or it is not valid now."""
        key, problem = self._named.get(name), None
        if key is None and self._stored is not None and name in self._stored.keys:
            key, problem = _in_group(self._stored.keys[name], self._groups)
        if key is None:
            raise _unauthorized(f"there is no client key {name}: have one made (dragoman keys add)")
        _KnownKey(key, key.expires, problem=problem).check(now)
        return key

    def _find(self, key_hash: str) -> _KnownKey | None:
        known = self._keys.get(key_hash)
        if known is not None or self._stored is None:
            return known
        if self._view is not self._stored.keys:
            self._view = self._stored.keys
            self._stored_keys = _by_hash(
                _in_group(key, self._groups) for name, key in self._view.items() if name not in self._named
            )
        return self._stored_keys.get(key_hash)


def _in_group(key: ClientKey, groups: Mapping[str, Group]) -> tuple[ClientKey, str | None]:
    try:
        return key.in_group_of(groups), None
    except ValueError as error:  # a reload has removed it
        return key, str(error)


def _by_hash(keys: Iterable[tuple[ClientKey, str | None]]) -> dict[str, _KnownKey]:
    """Return the keys by their hashes. keys: each with its error."""
    found = dict[str, _KnownKey]()
    for key, problem in keys:
        found[key.hash] = _KnownKey(key, key.expires, problem=problem)
        if key.previous_hash is not None:
            ends = min(filter(None, (key.previous_expires, key.expires)), default=None)
            found.setdefault(key.previous_hash, _KnownKey(key, ends, is_previous=True, problem=problem))
    return found


class KeyAuthMiddleware:
    """Pass on requests with a client key, where keys are configured, and put that key into their scope.

    Args:
        server: its limits are those of bodies, which signatures cover.
        refuse: sends the error of a request that is not passed on.
        allowed: returns the methods that there are at the path of a request.
    """

    def __init__(
        self,
        app: ASGIApp,
        keyring: Keyring,
        server: ServerSettings,
        refuse: Refuse,
        allowed: Callable[[Scope], list[str]] = lambda scope: [*HTTP_METHODS],
    ) -> None:
        self._app = app
        self._server = server
        self._allowed = allowed
        self._keyring, self._needs_key = keyring, bool(keyring)
        self._refuse = refuse

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            return self._app(scope, receive, send)
        if scope["method"] == "OPTIONS":
            # Clients and monitors test with it if the server is up. The response reveals nothing, so it needs no key.
            allowed = ", ".join(sorted({*self._allowed(scope), "OPTIONS"}))
            return send_reply(send, Reply(200, [("allow", allowed)], b""))
        if (self._needs_key or scope.get(SCOPE_PAGE)) and path_below_mount(scope) not in OPEN_PATHS:
            try:
                if not self._needs_key:
                    refuse_form_content_type(scope["headers"])
                if self._keyring.aws_keys:
                    signature = read_signature(scope["headers"], time.time())
                    if signature is not None:
                        return self._pass_signed(signature, scope, receive, send)
                if self._needs_key:
                    key = self._keyring.authenticate(scope["headers"], time.time(), scope["query_string"])
                    scope = {**scope, SCOPE_KEY: key}
            except (RemoteProtocolError, RequestRefused) as error:
                return self._refuse(scope, error, send)
        return self._app(scope, receive, send)

    async def _pass_signed(self, signature: AwsSignature, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            key, receive = await self._verified(signature, scope, receive)
        except ClientDisconnected:
            return
        except (RemoteProtocolError, RequestRefused) as error:
            await self._refuse(scope, error, send)
            return
        await self._app({**scope, SCOPE_KEY: key}, receive, send)

    async def _verified(
        self, signature: AwsSignature, scope: Scope, receive: Receive
    ) -> tuple[ClientKey, Receive]:
        """Return the signer's key, and what receives the body once more. Raises RequestRefused."""
        aws_key = self._keyring.aws_keys.get(signature.key_id)
        if aws_key is None:
            raise refused(_OTHER_SIGNER)
        # What is signed is the body as it was sent, whatever its coding.
        length = {"content-length": dict(scope["headers"]).get(b"content-length", b"").decode("latin-1")}
        server = self._server
        body = await BodyReader(receive, length, server.max_body_bytes, server.body_timeout_s).read_all()
        if not await off_loop(len(body), signature.is_valid, scope, body, aws_key.secret_access_key):
            raise refused(_OTHER_SIGNER)
        key = self._keyring.named(aws_key.client_key, time.time())
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_again() -> Message:
            return messages.pop() if messages else await receive()

        return key, receive_again


# Nobody learns which of the two it is.
_OTHER_SIGNER = "no key here has this id, or it was made with another secret or for another request"


# What a proxy adds to the requests that it passes on from somewhere else.
_PROXY_HEADERS = frozenset({b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"})


class AdminKeyMiddleware:
    """Pass on requests with the operator's keys only.

    Without an admin key every path below /admin is a 404, and so is the page. But if there are no keys at all, and only
    this machine can connect, whoever runs the gateway may look: then what changes nothing needs no key. Where there
    is an admin key, the files of the page need none: they show nothing until the page has asked its reader for the key.

    Args:
        keyless: no client keys are configured.
        refuse: sends the error of a request that is not passed on.
    """

    def __init__(self, app: ASGIApp, server: ServerSettings, refuse: Refuse, *, keyless: bool) -> None:
        self._app = app
        keys = server.admin_key, server.metrics_key
        self._admin_keys = [key for key in keys[:1] if key is not None]
        self._metrics_keys = [key for key in keys if key is not None]
        # A name or a proxy that is configured means that others come, through something on this machine.
        self._shows_to_this_machine = (
            keyless
            and not self._admin_keys
            and is_loopback(server.host)
            and not (server.allowed_hosts or server.trusted_proxies or server.allow_public_without_keys)
        )
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        requested = path_below_mount(scope)
        for_metrics = requested == METRICS_PATH
        for_page = requested == UI_PATH or requested.startswith(UI_PATH + "/")
        keys = self._metrics_keys if for_metrics else self._admin_keys
        path = METRICS_PATH if for_metrics else UI_PATH if for_page else ADMIN_PATH
        kind = "metrics" if for_metrics else "admin"
        try:
            if keys:
                if not for_page:
                    _check_key(scope, keys, f"{path} needs the {kind} key")
            elif for_metrics or not (self._shows_to_this_machine and _is_look_from_this_machine(scope)):
                message = f"there is nothing at this path: {path} needs server.{kind}_key"
                raise RequestRefused(message, status=404, code="unknown_url")
            else:
                refuse_other_origins(scope["headers"], scope["scheme"])
        except RequestRefused as error:
            await self._refuse(scope, error, send)
        else:
            await self._app(scope, receive, send)


def _check_key(scope: Scope, keys: Iterable[Secret], message: str) -> None:
    """Raise RequestRefused (401) for a request with none of these keys."""
    presented = presented_key(scope["headers"])
    if presented is None or not any(same_key(presented, key) for key in keys):
        wrong = "" if presented is None else ", and this key is another one"
        raise _unauthorized(message + wrong)


def _is_look_from_this_machine(scope: Scope) -> bool:
    """True if a request changes nothing, and no proxy has passed it on from somewhere else.

    The client's address counts as well as the settings, because an ASGI server of one's own may listen anywhere.
    """
    address = (scope.get("client") or ("",))[0]
    return (
        (scope["method"] in ("GET", "HEAD") or path_below_mount(scope).startswith(f"{EXPLAIN_PATH}/"))
        and is_loopback(address)
        and not any(name in _PROXY_HEADERS for name, _ in scope["headers"])
    )


def _unauthorized(message: str) -> RequestRefused:
    return RequestRefused(message, status=401, code="invalid_api_key")
