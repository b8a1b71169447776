"""Check what must fit together in the tables of clients: their keys and groups, and the operator's keys."""

from collections.abc import Iterator

from dragoman_server.config.sources import Rows
from dragoman_server.config.toml_lines import KeyPath
from dragoman_server.settings import ClientKey, Group, LimitHolder, ServerSettings
from dragoman_server.settings.client_keys import hash_client_key
from dragoman_server.settings.problems import did_you_mean


def client_problems(
    groups: Rows[Group], keys: Rows[ClientKey], server: ServerSettings, *, with_prices: bool
) -> Iterator[tuple[KeyPath, str]]:
    """Yield what is wrong, each with its place. with_prices: there are [[prices]]."""
    holders: Rows[LimitHolder] = [*groups, *keys]
    for path, holder in holders:
        if holder.budget is not None and not with_prices:
            text = f"needs [[prices]]: without a price, a {holder.kind} with a budget may use no model"
            yield (*path, "budget"), text
    names = sorted(group.name for _, group in groups)
    for path, key in keys:
        if key.group is not None and key.group not in names:
            hint = did_you_mean(key.group, names) or "; there are " + (", ".join(names) or "none")
            yield (*path, "group"), f"names no group{hint}"
        if (key.previous_hash is None) != (key.previous_expires is None):
            missing = "previous_hash" if key.previous_hash is None else "previous_expires"
            yield path, f"needs {missing} as well: previous_hash and previous_expires go together"
    yield from _operator_problems(keys, server)


def _operator_problems(keys: Rows[ClientKey], server: ServerSettings) -> Iterator[tuple[KeyPath, str]]:
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
