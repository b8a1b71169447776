"""Check what must fit together in the tables of clients, the operator's keys, and the other settings of `[server]`.

Single values are checked by `settings.values`, upstreams by `config.loader`, and names of upstreams by
`config.route_tables` (`[models]`, `[endpoints]`) and `config.loader` (all other tables).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias, TypeVar
from urllib.parse import urlsplit

from dragoman_server.settings import (
    AccountSettings,
    AwsKey,
    ClientKey,
    Group,
    LimitHolder,
    ServerSettings,
    Settings,
)
from dragoman_server.settings.client_keys import hash_client_key
from dragoman_server.settings.problems import did_you_mean
from dragoman_server.settings.values import is_loopback

_Row = TypeVar("_Row", covariant=True)
_Path: TypeAlias = tuple[str | int, ...]
_Rows: TypeAlias = Sequence[tuple[_Path, _Row]]


def client_problems(
    groups: _Rows[Group],
    keys: _Rows[ClientKey],
    aws_keys: _Rows[AwsKey],
    server: ServerSettings,
    *,
    with_prices: bool,
) -> Iterator[tuple[_Path, str]]:
    """Yield each error with its place. with_prices: some model has a price."""
    yield from limit_problems([*groups, *keys], [group.name for _, group in groups], with_prices=with_prices)
    for path, key in keys:
        if (key.previous_hash is None) != (key.previous_expires is None):
            missing = "previous_hash" if key.previous_hash is None else "previous_expires"
            yield path, f"needs {missing} as well: previous_hash and previous_expires go together"
    names = [key.name for _, key in keys]
    for path, aws_key in aws_keys:
        if aws_key.client_key not in names and not server.stored_keys:
            hint = did_you_mean(aws_key.client_key, names) or "; `dragoman keys add` makes one"
            yield (*path, "client_key"), f'"{aws_key.client_key}" is no client key{hint}'
    if server.budget_webhook is not None and not _is_http_url(server.budget_webhook.reveal()):
        yield ("server", "budget_webhook"), "is not a URL such as https://hooks.example/budgets"
    if server.stored_keys and server.account_store == "memory":
        text = "needs account_store sqlite or valkey: in the memory of a process, keys would be lost with it"
        yield ("server", "stored_keys"), text
    if server.stored_keys and server.secret is None:
        yield ("server", "stored_keys"), "needs server.secret: the hashes of keys are keyed with it"
    yield from _operator_problems(keys, server)


def _is_http_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        return False


def limit_problems(
    holders: _Rows[LimitHolder], groups: Sequence[str], *, with_prices: bool
) -> Iterator[tuple[_Path, str]]:
    """Yield the errors in limits. groups: the names of all. with_prices: some model has a price."""
    for path, holder in holders:
        if holder.budget is not None and not with_prices:
            text = f"needs [[prices]]: without a price, a {holder.kind} with a budget may use no model"
            yield (*path, "budget"), text
        group = holder.group if isinstance(holder, ClientKey) else None
        if group is not None and group not in groups:
            hint = did_you_mean(group, groups) or "; there are " + (", ".join(sorted(groups)) or "none")
            yield (*path, "group"), f'"{group}" is no group{hint}'


def _operator_problems(keys: _Rows[ClientKey], server: ServerSettings) -> Iterator[tuple[_Path, str]]:
    metrics, admin, secret = server.metrics_key, server.admin_key, server.secret
    hashes = {key_hash for _, key in keys for key_hash in (key.hash, key.previous_hash)}
    if keys and secret is None:
        yield ("client_keys",), "need server.secret: their hashes are keyed with it"
    if admin and secret and admin == secret:
        yield ("server", "admin_key"), "is server.secret: it must be a different key"
    elif admin and secret and hash_client_key(admin.reveal(), secret) in hashes:
        yield ("server", "admin_key"), "is a client key: it must be a different key"
    if metrics and metrics in (admin, secret):
        yield ("server", "metrics_key"), "is another key as well: it must be a different key"
    elif metrics and secret and hash_client_key(metrics.reveal(), secret) in hashes:
        yield ("server", "metrics_key"), "is a client key: it must be a different key"


def problems_together(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield settings of `[server]` that do not fit the others, each with the problem."""
    holders: Iterable[LimitHolder | AccountSettings] = (
        *settings.groups,
        *settings.client_keys,
        *settings.accounts,
    )
    limited = any(holder.has_limits for holder in holders)
    return server_problems(settings.server, has_keys=bool(settings.client_keys), has_limits=limited)


def server_problems(server: ServerSettings, *, has_keys: bool, has_limits: bool) -> Iterator[tuple[str, str]]:
    """Yield the same. has_keys, has_limits: of the tables, which may be wrong and so not in the settings."""
    has_keys = has_keys or server.stored_keys
    if not (is_loopback(server.host) or has_keys or server.allow_public_without_keys):
        text = (
            f"{server.host} can be reached from other machines, and there are no client keys, so whoever can "
            "connect could use your upstreams: make a key with `dragoman keys add`, or set "
            "allow_public_without_keys = true if something else controls who can connect"
        )
        yield "host", text
    if server.workers > 1 and server.response_store == "memory":
        yield (
            "response_store",
            "exists in one process only, and there are several workers: use sqlite or valkey",
        )
    if server.workers > 1 and server.account_store == "memory" and has_limits:
        yield (
            "account_store",
            f"is memory, so each of the {server.workers} workers would count the limits of client keys and accounts "
            f"by itself, and together they would allow {server.workers} times as much: use sqlite with "
            "account_store_path, or valkey",
        )
