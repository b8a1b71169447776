"""The commands `dragoman keys ...`: make, list, rotate, disable, enable and revoke client keys.

The keys have their own file next to the configuration file, which these commands write whole. It has only hashes: who
made a key has it. What keys have used is in the usage store: a running gateway is asked for it, or else the store is
read.
"""

import getpass
import json
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec.structs import replace

from dragoman_server.cli.admin import AdminUnavailable, admin_request
from dragoman_server.cli.config_writer import ConfigEditError, locked, replace_file
from dragoman_server.cli.options import (
    FAILURE,
    UNBOUND,
    USAGE_ERROR,
    config_option,
    config_path,
    exit_with,
    load_or_exit,
    setting_option,
)
from dragoman_server.cli.usage import money_text, server_of, with_usage_file
from dragoman_server.config.loader import DEFAULT_FILE, LoadedConfig, load
from dragoman_server.config.show import toml_text
from dragoman_server.platform.clock import utc_text
from dragoman_server.settings import ClientKey, LimitHolder, Settings
from dragoman_server.settings.client_keys import (
    NOT_CHOSEN,
    SETTINGS,
    WHEN,
    Changed,
    KeyChange,
    make_key,
    public_table,
    rotated_key,
    table_of,
)
from dragoman_server.settings.clients import amount_text
from dragoman_server.settings.problems import ConfigError
from dragoman_server.settings.values import InvalidValue, parse_text
from dragoman_server.telemetry.audit import audit

if TYPE_CHECKING:
    from dragoman_server.accounts.stored_keys import StoredKeys

_T = TypeVar("_T")

_NOT_STORED = "client keys in the account store need server.stored_keys = true"

_HOW_TO_APPLY = "a running gateway needs a reload for it: dragoman reload, or SIGHUP"


@click.group()
def keys() -> None:
    """Make, list and change client keys.

    Their hashes are in a file next to the configuration file, dragoman.client_keys.toml, or with server.stored_keys in
    the account store; a key is shown once, when it is made. Exit codes: 0 when it is done, 1 when the file or the store
    cannot be changed, 2 when the configuration or the command line is wrong.
    """


@keys.command(
    "add",
    params=[
        config_option,
        click.Option(["--write"], is_flag=True, help="write the key's table into the file of the keys"),
        click.Option(
            ["--store"], is_flag=True, help="put it into the account store, for all gateways that share it"
        ),
        click.Option(["--expires"], metavar="WHEN", help=f"when it becomes invalid: {WHEN}"),
        *(
            setting_option(setting, None)
            for name, setting in SETTINGS.items()
            if name not in ("name", "expires", *NOT_CHOSEN)
        ),
    ],
)
@click.argument("name")
def add_key(
    name: str, config_file: str | None, write: bool, store: bool, **permissions: str | bool | None
) -> None:
    """Make a key for NAME and print it.

    Its table is printed too, or written into the file of the keys with --write, or put into the account store with
    --store, where every gateway that shares it sees it at once. Both have only a hash, made with server.secret.
    """
    if write:
        _lock(config_file)
    loaded = load_or_exit(config_file, UNBOUND, of_gateway=True)
    now = datetime.now(UTC)
    if any(key.name == name for key in loaded.settings.client_keys):
        exit_with(USAGE_ERROR, f"there is already a key named {name!a}")
    values = {"name": name, **_given(permissions)}
    if store:
        key, made = _in_store(loaded, lambda stored: stored.make(values, loaded.settings, now))
        _print_key(key)
        _changed(loaded, made, "made", f"the key {name} was added", None)
        return
    try:
        key, made = make_key(values, loaded.settings, now)
    except InvalidValue as error:
        exit_with(USAGE_ERROR, str(error))
    if not write:
        _print_key(key)
        click.echo(f"Add these lines to the configuration; {_HOW_TO_APPLY}", err=True)
        click.echo(f"\n{_key_table(made)}", nl=False)
        return
    file = _write(loaded, [*loaded.settings.client_keys, made])
    _print_key(key)
    _changed(loaded, made, "made", f"the key {name} was added", file)


@keys.command(
    "list", params=[config_option, click.Option(["--json", "as_json"], is_flag=True, help="as JSON")]
)
def list_keys(config_file: str | None, as_json: bool) -> None:
    """Print the keys, what each may do and what it has used.

    What it has used is requested from the running gateway if server.admin_key is set, or else read from the usage
    store.
    """
    loaded = with_usage_file(load_or_exit(config_file, UNBOUND, of_gateway=True))
    from dragoman_server.cli.stores import keys_or_exit

    keys = keys_or_exit(loaded.settings)
    found, problem = _used(loaded.settings, keys, config_file)
    used_by = {name: {row["name"]: row for row in rows} for name, rows in found.items()}
    now, groups = datetime.now(UTC).timestamp(), loaded.settings.groups_by_name
    rows = [
        {"name": key.name, "group": key.group, "state": key.state(now, groups), **_row(key, used_by["keys"])}
        for key in keys
    ]
    of_groups = [{"name": name, **_row(group, used_by["groups"])} for name, group in groups.items()]
    if as_json:
        click.echo(json.dumps({"keys": rows, "groups": of_groups}, indent=2))
    else:
        for line in [*_table("name", rows), *([""] if of_groups else []), *_table("group", of_groups)]:
            click.echo(line)
    if not rows:
        where = "--store" if loaded.settings.server.stored_keys else "--write"
        click.echo(f"there are no client keys; dragoman keys add NAME {where} makes one", err=True)
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
        click.Option(["--expires"], metavar="WHEN", help=f"when the new key becomes invalid: never, {WHEN}"),
    ],
)
@click.argument("name")
def rotate_key(name: str, config_file: str | None, overlap: str, expires: str | None) -> None:
    """Make a new key for NAME, print it, and let the old one end later.

    Both have the same limits and counters.
    """
    now = datetime.now(UTC)
    loaded, (key, new), file = _change(
        name,
        config_file,
        lambda old, settings: rotated_key(old, settings, now, overlap=overlap, expires=expires),
    )
    _print_key(key)
    ends = new.previous_expires
    state = "is no longer valid" if ends is None else f"is valid until {utc_text(ends)}"
    _changed(loaded, new, "rotated", f"{name} has a new key, and the old one {state}", file)


@keys.command("disable", params=[config_option])
@click.argument("name")
def disable_key(name: str, config_file: str | None) -> None:
    """Refuse requests with the key of NAME until it is enabled. Its limits and counters stay."""
    _disable(name, config_file, disabled=True)


@keys.command("enable", params=[config_option])
@click.argument("name")
def enable_key(name: str, config_file: str | None) -> None:
    """Accept the key of NAME again."""
    _disable(name, config_file, disabled=False)


def _disable(name: str, config_file: str | None, *, disabled: bool) -> None:
    loaded, (_, key), file = _change(
        name, config_file, lambda old, _: (None, replace(old, disabled=disabled))
    )
    done = "disabled" if disabled else "enabled"
    _changed(loaded, key, done, f"{name} is {done}", file, err=False)


@keys.command("revoke", params=[config_option])
@click.argument("name")
def revoke_key(name: str, config_file: str | None) -> None:
    """Remove the key of NAME."""
    revoked: list[ClientKey] = []

    def revoke(old: ClientKey, _: Settings) -> tuple[None, None]:
        revoked.append(old)
        return None, None

    loaded, _, file = _change(name, config_file, revoke)
    _changed(loaded, revoked[-1], "revoked", f"{name} is revoked", file, err=False)


def _change(
    name: str, config_file: str | None, change: KeyChange[Changed]
) -> tuple[LoadedConfig, Changed, Path | None]:
    """Change the key of NAME where it is: in the file that is returned, or in the account store."""
    _lock(config_file)
    loaded = load_or_exit(config_file, UNBOUND, of_gateway=True)
    settings = loaded.settings
    keys = {key.name: key for key in settings.client_keys}
    if name not in keys:
        if not settings.server.stored_keys:
            exit_with(USAGE_ERROR, f"there is no key named {name!a}; there are {', '.join(keys) or 'none'}")
        return loaded, _in_store(loaded, lambda stored: stored.change(name, settings, change)), None
    try:
        changed = change(keys[name], settings)
    except InvalidValue as error:
        exit_with(USAGE_ERROR, str(error))
    new = {**keys, name: changed[1]}
    return loaded, changed, _write(loaded, [key for key in new.values() if key is not None])


def _changed(
    loaded: LoadedConfig,
    key: ClientKey,
    done: str,
    text: str,
    file: Path | None,
    *,
    err: bool = True,
) -> None:
    """Print what was done, and record it. file: where, None for the account store."""
    where = "the account store" if file is None else file
    click.echo(f"{where}: {text}" + ("" if file is None else f"; {_HOW_TO_APPLY}"), err=err)
    table = public_table(key)
    by = f"command of user {_user()}"
    audit(loaded.settings, f"key {done}", table.pop("name"), by=by, **table)


# The file.

_HEAD = "# Client keys, written by `dragoman keys`: what else is in this file is lost when a key changes.\n"


def _key_table(key: ClientKey) -> str:
    """Return the table of a key, without defaults."""
    # A dollar sign begins a reference in the file.
    lines = [f"{name} = {toml_text(value)}\n".replace("$", "$$") for name, value in table_of(key).items()]
    return "".join(["[[client_keys]]\n", *lines])


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


def _in_store(loaded: LoadedConfig, change: Callable[["StoredKeys"], Awaitable[_T]]) -> _T:
    """Return what a change of the keys in the account store returns. Print what is wrong and exit if it fails."""
    if not loaded.settings.server.stored_keys:
        exit_with(USAGE_ERROR, _NOT_STORED)
    from dragoman_server.cli.stores import REFUSALS, STORE_ERRORS, change_stored

    try:
        return change_stored(loaded.settings, change)
    except (InvalidValue, *REFUSALS) as error:
        exit_with(USAGE_ERROR, str(error))
    except STORE_ERRORS as error:
        exit_with(FAILURE, f"the account store does not work, so the change may not have been made: {error}")


def _print_key(key: str) -> None:
    click.echo("The key, which is shown only once:", err=True)
    click.echo(key)


def _given(permissions: Mapping[str, str | bool | None]) -> dict[str, object]:
    """Return the values of flags as the file would have them."""
    values = dict[str, object]()
    for name, given in permissions.items():
        try:
            if given is not None:
                values[name] = given if isinstance(given, bool) else parse_text(SETTINGS[name], given)
        except InvalidValue as error:
            exit_with(USAGE_ERROR, str(error))
    return values


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # an id without a name, as in a container
        return str(os.getuid())


# The list.

_NOT_LISTED = ("name", "group", "hash", "previous_hash", "budget_period", "disabled")
_USAGE = ("requests", "tokens", "cost_usd", "last_used", "budget_spent", "budget_left")


# The columns of the table for people: the member, its heading, and its text.
_COLUMNS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("name", "name", str),
    ("group", "group", str),
    ("state", "state", str),
    ("requests", "requests", str),
    ("tokens", "tokens", str),
    ("cost_usd", "cost", money_text),
    ("budget_spent", "budget spent", money_text),
    ("last_used", "last used (UTC)", lambda time: time[:16].replace("T", " ")),
    ("settings", "settings", " ".join),
)


def _row(holder: LimitHolder, used: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the settings of a key or a group, and what it has used as far as that is known."""
    known = used.get(holder.name, {})
    counts = {name: known[name] for name in _USAGE if name in known}
    return {"settings": list(_permissions(holder)), **counts}


def _permissions(key: LimitHolder) -> Iterator[str]:
    """Yield the settings except for hashes: `name=value`, or `name` for a switch that is on."""
    for name in SETTINGS:
        value = getattr(key, name, None)
        if name in _NOT_LISTED or value is None or value is False or value == ():
            continue
        if name == "budget":
            yield f"budget={amount_text(value)}/{key.budget_period}"
        elif isinstance(value, datetime):
            yield f"{name}={toml_text(value)}"
        else:
            text = ",".join(value) if isinstance(value, tuple) else value
            yield name if value is True else f"{name}={text}"


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield lines with the columns that some row has. title: of the first one."""
    columns = [
        (heading, [show(row[name]) if row.get(name) is not None else "-" for row in rows])
        for name, heading, show in _COLUMNS
        if any(row.get(name) is not None for row in rows)
    ]
    widths = [max(map(len, [heading, *cells])) for heading, cells in columns]
    lines = zip(*([heading.replace("name", title), *cells] for heading, cells in columns), strict=True)
    for line in lines:
        yield "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()


def _used(
    settings: Settings, keys: list[ClientKey], config_file: str | None
) -> tuple[Mapping[str, list[dict[str, Any]]], str]:
    """Return what keys and groups have used, as /admin/keys does, or the reason why that is not known."""
    server = server_of(settings, config_file)
    try:
        return admin_request(server, "GET", "keys"), ""
    except AdminUnavailable as error:
        reason = str(error)
    from dragoman_server.cli.stores import STORE_ERRORS, read_used

    try:
        return read_used(settings, keys), ""
    except STORE_ERRORS as error:
        return {"keys": [], "groups": []}, f"{reason}; {error}"
