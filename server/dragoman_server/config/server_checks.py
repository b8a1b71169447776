"""Check that settings of `[server]` fit each other and the tables: when they are loaded, and before a reload.

Single values are checked by `settings.values`, clients' keys by `settings.client_checks`, upstreams by `loader`, and
names of upstreams by `route_tables` (`[models]`, `[endpoints]`) and `loader` (all other tables).
"""

from collections.abc import Iterable, Iterator

from dragoman_server.settings import AccountSettings, LimitHolder, ServerSettings, Settings
from dragoman_server.settings.values import is_loopback


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
