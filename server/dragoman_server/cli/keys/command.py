"""The commands `dragoman keys ...`: make, list, rotate, disable, enable and revoke client keys.

The keys have their own file next to the configuration file, which these commands write whole. It has only hashes: who
made a key has it. What keys have used is in the account store: a running gateway is asked for it, or else a shared
store is read.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from dragoman_server.cli.admin import AdminUnavailable, admin_request
from dragoman_server.cli.config_file import toml_text
from dragoman_server.cli.config_writer import ConfigEditError, locked, replace_file
from dragoman_server.cli.options import (
    FAILURE,
    UNBOUND,
    USAGE_ERROR,
    config_option,
    config_path,
    exit_with,
    load_or_exit,
    loader,
    setting_option,
)
from dragoman_server.config.loader import DEFAULT_FILE, LoadedConfig, load
from dragoman_server.settings import ClientKey, Settings, settings_of
from dragoman_server.settings.client_keys import hash_client_key, new_key
from dragoman_server.settings.problems import ConfigError
from dragoman_server.settings.secret import Secret
from dragoman_server.settings.server import ENV_PREFIX
from dragoman_server.settings.values import InvalidValue, check_value, parse_text

_SETTINGS = settings_of(ClientKey)
# The others are flags of `add`, by the same name.
_OF_THE_KEY = ("name", "hash", "expires", "disabled", "previous_hash", "previous_expires")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_MAX_DURATION_S = 100 * 365 * 86_400
_DURATION = re.compile(r"(\d{1,6})([smhdw])")
_WHEN = "30d, 12h, 45m, a date, or a time such as 2026-12-31T18:00:00Z"

_HOW_TO_APPLY = "a running gateway needs a reload for it: dragoman reload, or SIGHUP"


@click.group()
def keys() -> None:
    """Make, list and change client keys.

    Their hashes are in a file next to the configuration file, dragoman.client_keys.toml; a key is shown once, when it
    is made. Exit codes: 0 when it is done, 1 when the file cannot be changed, 2 when the configuration or the command
    line is wrong.
    """


@keys.command(
    "add",
    params=[
        config_option,
        click.Option(["--write"], is_flag=True, help="write the key's table into the file of the keys"),
        click.Option(["--expires"], metavar="WHEN", help=f"when it becomes invalid: {_WHEN}"),
        *(setting_option(setting, None) for name, setting in _SETTINGS.items() if name not in _OF_THE_KEY),
    ],
)
@click.argument("name")
def add_key(
    name: str, config_file: str | None, write: bool, expires: str | None, **permissions: str | bool | None
) -> None:
    """Make a key for NAME and print it.

    Its table is printed too, or written into the file of the keys with --write. The file has only a hash, made with
    server.secret.
    """
    if write:
        _lock(config_file)
    loaded = load_or_exit(config_file, UNBOUND)
    secret = _secret_of(loaded.settings)
    if any(key.name == name for key in loaded.settings.client_keys):
        exit_with(USAGE_ERROR, f"there is already a key named {name!a}")
    key = new_key()
    try:
        check_value(_SETTINGS["name"], name, name)
        ends = None if expires is None else parse_when(expires, datetime.now(UTC))
        made = ClientKey(name=name, hash=hash_client_key(key, secret), expires=ends, **_checked(permissions))
    except InvalidValue as error:
        exit_with(USAGE_ERROR, str(error))
    if not write:
        _print_key(key)
        click.echo(f"Add these lines to the configuration; {_HOW_TO_APPLY}", err=True)
        click.echo(f"\n{_key_table(made)}", nl=False)
        return
    file = _write(loaded, [*loaded.settings.client_keys, made])
    _print_key(key)
    click.echo(f"{file}: the key {name} was added; {_HOW_TO_APPLY}", err=True)


@keys.command(
    "list", params=[config_option, click.Option(["--json", "as_json"], is_flag=True, help="as JSON")]
)
def list_keys(config_file: str | None, as_json: bool) -> None:
    """Print the keys, what each may do and what it has used.

    What it has used is requested from the running gateway if server.admin_key is set, or else read from the account
    store.
    """
    loaded = load_or_exit(config_file, UNBOUND)
    found, problem = _used(loaded.settings, config_file)
    used = {row["name"]: row for row in found or ()}
    now = datetime.now(UTC).timestamp()
    rows = []
    for key in loaded.settings.client_keys:
        row = {"name": key.name, "state": key.state(now), "settings": list(_permissions(key))}
        known = {name: value for name, value in used.get(key.name, {}).items() if name in _USAGE}
        rows.append({**row, **known})
    if as_json:
        click.echo(json.dumps({"keys": rows}, indent=2))
    else:
        for line in _table(rows):
            click.echo(line)
    if not rows:
        click.echo("there are no client keys; dragoman keys add NAME --write makes one", err=True)
    elif problem:
        click.echo(f"what keys have used is not known: {problem}", err=True)


@keys.command(
    "rotate",
    params=[
        config_option,
        click.Option(
            ["--overlap"],
            metavar="DURATION",
            default="24h",
            show_default=True,
            help="how long the old key stays valid; 0: not at all",
        ),
        click.Option(["--expires"], metavar="WHEN", help=f"when the new key becomes invalid: never, {_WHEN}"),
    ],
)
@click.argument("name")
def rotate_key(name: str, config_file: str | None, overlap: str, expires: str | None) -> None:
    """Make a new key for NAME, print it, and let the old one end later.

    Both have the same limits and counters.
    """
    loaded, old = _find(name, config_file)
    now = datetime.now(UTC).replace(microsecond=0)
    try:
        ends = now + parse_duration(overlap)
        new_end = old.expires
        if expires is not None:
            new_end = None if expires == "never" else parse_when(expires, now)
    except InvalidValue as error:
        exit_with(USAGE_ERROR, str(error))
    if new_end is not None and new_end <= now:
        exit_with(
            USAGE_ERROR,
            f"{name} has expired: write how long the new key is valid, as in --expires 90d",
        )
    before = old.previous_expires
    if before is not None and before > now and ends > now:
        exit_with(
            USAGE_ERROR,
            f"{name} has two keys already, and the older one is valid until {toml_text(before)}: rotate it "
            "after that, or end both now with --overlap 0",
        )
    key = new_key()
    keeps_old = ends > now and (old.expires is None or old.expires > now)
    file = _change(
        loaded,
        old,
        hash=hash_client_key(key, _secret_of(loaded.settings)),
        expires=new_end,
        previous_hash=old.hash if keeps_old else None,
        previous_expires=ends if keeps_old else None,
    )
    _print_key(key)
    state = f"is valid until {toml_text(ends)}" if keeps_old else "is no longer valid"
    click.echo(f"{file}: {name} has a new key, and the old one {state}; {_HOW_TO_APPLY}", err=True)


@keys.command("disable", params=[config_option])
@click.argument("name")
def disable_key(name: str, config_file: str | None) -> None:
    """Refuse requests with the key of NAME until it is enabled. Its limits and counters stay."""
    file = _change(*_find(name, config_file), disabled=True)
    click.echo(f"{file}: {name} is disabled; {_HOW_TO_APPLY}")


@keys.command("enable", params=[config_option])
@click.argument("name")
def enable_key(name: str, config_file: str | None) -> None:
    """Accept the key of NAME again."""
    file = _change(*_find(name, config_file), disabled=False)
    click.echo(f"{file}: {name} is enabled; {_HOW_TO_APPLY}")


@keys.command("revoke", params=[config_option])
@click.argument("name")
def revoke_key(name: str, config_file: str | None) -> None:
    """Remove the key of NAME."""
    loaded, key = _find(name, config_file)
    file = _write(loaded, [other for other in loaded.settings.client_keys if other is not key])
    click.echo(f"{file}: {name} is revoked; {_HOW_TO_APPLY}")


# The file.

_HEAD = "# Client keys, written by `dragoman keys`: what else is in this file is lost when a key changes.\n"


def _key_table(key: ClientKey) -> str:
    """Return the table of a key, with what is not the default."""
    lines = [
        # A dollar sign begins a reference in the file.
        f"{name} = {toml_text(value)}\n".replace("$", "$$")
        for name, setting in _SETTINGS.items()
        if (value := getattr(key, name)) != setting.default
    ]
    return "".join(["[[client_keys]]\n", *lines])


def _change(loaded: LoadedConfig, key: ClientKey, **values: Any) -> Path:
    """Write the file with other values of a key."""
    keys = loaded.settings.client_keys
    return _write(loaded, [replace(key, **values) if other is key else other for other in keys])


def _write(loaded: LoadedConfig, keys: Sequence[ClientKey]) -> Path:
    """Write the file with these keys. Print what is wrong and exit if that would make the configuration wrong."""
    file = loaded.keys_file
    before = loaded.origin("client_keys", 0, "name")
    if loaded.settings.client_keys and before.source != str(file):
        exit_with(
            FAILURE,
            f"{before.place} has client keys: move their tables to {file}, which this command changes",
        )

    def check(written: Path) -> None:
        try:
            load(environ=os.environ, path=loaded.path, flags=UNBOUND, keys_file=written)
        except ConfigError as error:
            problems = str(error).replace(str(written), str(file))
            exit_with(USAGE_ERROR, f"nothing was changed, because this would be wrong:\n{problems}")

    text = "\n".join([_HEAD, *map(_key_table, keys)])
    try:
        replace_file(file, text.encode(), like=Path(loaded.path or DEFAULT_FILE), check=check)
    except ConfigEditError as error:
        exit_with(FAILURE, str(error))
    try:
        load(environ=os.environ, path=loaded.path)
    except ConfigError as error:
        # On a public address, the last key was revoked: a reload is refused, so the key would stay valid.
        click.echo(f"warning: the gateway neither starts nor reloads with this file:\n{error}", err=True)
    return file


def _lock(config_file: str | None) -> None:
    """Let no other command change the file until this one has ended, or print why that is impossible and exit."""
    try:
        click.get_current_context().with_resource(locked(config_path(config_file)))
    except ConfigEditError as error:
        exit_with(FAILURE, str(error))


def _find(name: str, config_file: str | None) -> tuple[LoadedConfig, ClientKey]:
    """Return the configuration and a key in it that will be changed."""
    _lock(config_file)
    loaded = load_or_exit(config_file, UNBOUND)
    keys = {key.name: key for key in loaded.settings.client_keys}
    if name not in keys:
        exit_with(USAGE_ERROR, f"there is no key named {name!a}; there are {', '.join(keys) or 'none'}")
    return loaded, keys[name]


def _secret_of(settings: Settings) -> Secret:
    if settings.server.secret is None:
        exit_with(
            USAGE_ERROR,
            "keys need server.secret, which their hashes are made with: put 32 or more random characters "
            f"into {ENV_PREFIX}SECRET, as from `openssl rand -hex 32`, and keep them",
        )
    return settings.server.secret


def _print_key(key: str) -> None:
    click.echo("The key, which is shown only once:", err=True)
    click.echo(key)


def _checked(permissions: Mapping[str, str | bool | None]) -> dict[str, Any]:
    """Return the values of flags as the file would have them. Raises InvalidValue."""
    values = {}
    for name, given in permissions.items():
        if given is not None:
            value = given if isinstance(given, bool) else parse_text(_SETTINGS[name], given)
            values[name] = check_value(_SETTINGS[name], value, value)
    return values


# Times.


def parse_when(text: str, now: datetime) -> datetime:
    """Return the time that a text means: a duration from now, a date, or a time. Raises InvalidValue."""
    if _DURATION.fullmatch(text):
        return (now + parse_duration(text)).replace(microsecond=0)
    try:
        when = check_value(_SETTINGS["expires"], text, text)
    except InvalidValue:
        raise InvalidValue(f"{text!a} is not a time: write {_WHEN}") from None
    assert isinstance(when, datetime)
    if when <= now:
        raise InvalidValue(f"{text} is in the past")
    return when


def parse_duration(text: str) -> timedelta:
    """Return the duration that a text means: 30d, 12h, 45m, 90s, 2w, or 0. Raises InvalidValue."""
    match = _DURATION.fullmatch(text)
    if match is None and text != "0":
        raise InvalidValue(f"{text!a} is not a duration: write 30d, 12h, 45m, or 0")
    seconds = int(match[1]) * _UNITS[match[2]] if match else 0
    if seconds > _MAX_DURATION_S:
        raise InvalidValue(f"{text} is more than 100 years")
    return timedelta(seconds=seconds)


# The list.

_NOT_LISTED = ("name", "hash", "previous_hash", "budget_period", "disabled")
_USAGE = ("requests", "tokens", "cost_usd", "last_used", "budget_spent")


def _permissions(key: ClientKey) -> Iterator[str]:
    """Yield the settings of a key except for its hashes: `name=value`, or `name` for a switch that is on."""
    for name in _SETTINGS:
        value = getattr(key, name)
        if name in _NOT_LISTED or value is None or value is False or value == ():
            continue
        if name == "budget":
            yield f"budget={value:g}/{key.budget_period}"
        elif isinstance(value, datetime):
            yield f"{name}={toml_text(value)}"
        else:
            text = ",".join(value) if isinstance(value, tuple) else value
            yield name if value is True else f"{name}={text}"


def _table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    lines = [("name", "state", "requests", "tokens", "spent", "last used (UTC)", "settings")] if rows else []
    for row in rows:
        spent = row.get("cost_usd")
        counts = [str(row.get(name, "-")) for name in ("requests", "tokens")]
        money = "-" if spent is None else f"${spent:.2f}"
        last = row.get("last_used")
        used = "-" if last is None else f"{last[:16].replace('T', ' ')}"
        lines.append((row["name"], row["state"], *counts, money, used, " ".join(row["settings"])))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()


def _used(settings: Settings, config_file: str | None) -> tuple[list[dict[str, Any]] | None, str]:
    """Return what keys have used, as /admin/keys does, or None and the reason why that is not known."""
    server = settings.server
    with suppress(ConfigError):
        server = loader(config_file, {})().settings.server  # with the address that the gateway is bound to
    try:
        rows: list[dict[str, Any]] = admin_request(server, "GET", "keys")["keys"]
        return rows, ""
    except AdminUnavailable as error:
        reason = str(error)
    if server.account_store == "memory":
        return None, f"{reason}, and the account store is the memory of the gateway"
    import anyio

    from dragoman_server.accounts.stores.base import AccountStoreError

    try:
        return anyio.run(_read_store, settings), ""
    except (AccountStoreError, OSError, ExceptionGroup) as error:
        return None, f"{reason}; {error}"


async def _read_store(settings: Settings) -> list[dict[str, Any]]:
    """Return the rows of /admin/keys, made from the account store."""
    import time

    from dragoman_server.accounts.key_usage import KeyUsage
    from dragoman_server.accounts.limits import ClientLimits
    from dragoman_server.gateway import make_account_store
    from dragoman_server.http.admin.keys import keys_json

    store = make_account_store(settings.server)
    async with store.running():
        found = await keys_json(settings, KeyUsage(store), ClientLimits(settings, store), time.time())
    return found or []
