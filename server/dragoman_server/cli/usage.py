"""`dragoman usage`: what was used, by key, model, upstream, account, day or hour."""

import io
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click
from msgspec.structs import replace

from dragoman_server.cli.admin import AdminUnavailable, admin_request
from dragoman_server.cli.options import (
    FAILURE,
    UNBOUND,
    USAGE_ERROR,
    config_option,
    exit_with,
    load_or_exit,
    loader,
)
from dragoman_server.config.loader import LoadedConfig
from dragoman_server.settings import ClientKey, ServerSettings, Settings
from dragoman_server.settings.problems import ConfigError, printable

_FILE = "usage.sqlite"
_BY = "key,group,model,upstream,account,day,hour"
_FILTERS = ("key", "model", "upstream", "account")
# The columns of the table for people; CSV and JSON have all.
_SHOWN = {
    "requests": "requests",
    "errors": "errors",
    "input_tokens": "input",
    "cached_tokens": "cached",
    "output_tokens": "output",
    "cost_usd": "cost",
}


def with_usage_file(loaded: LoadedConfig) -> LoadedConfig:
    """Return the configuration with the file in which commands store usage, if it names no other store.

    The file is usage_store_path, by default in the user's state directory, which the store makes.
    """
    server, directory = loaded.settings.server, state_directory(os.environ)
    path = server.usage_store_path or (None if directory is None else str(directory / _FILE))
    if server.usage_store is not None or path is None:
        return loaded
    server = replace(server, usage_store="sqlite", usage_store_path=path)
    return replace(loaded, settings=replace(loaded.settings, server=server))


def state_directory(environ: Mapping[str, str]) -> Path | None:
    """Return the program's directory for state, which may not exist yet; None for a user without a home.

    A service of systemd with StateDirectory= has it in $STATE_DIRECTORY (systemd.exec(5)), and often no home. Linux:
    "$XDG_STATE_HOME defines the base directory relative to which user-specific state files should be stored"
    (XDG Base Directory Specification 0.8; relative paths in it are invalid). macOS and Windows have no such variable.
    """
    if service := environ.get("STATE_DIRECTORY"):
        return Path(service.partition(":")[0])
    try:
        home = Path.home()
    except RuntimeError:  # the user has no entry
        home = None
    if sys.platform == "win32":
        base = environ.get("LOCALAPPDATA")
        return Path(base, "dragoman") if base else None
    base = environ.get("XDG_STATE_HOME")
    if base and Path(base).is_absolute():
        return Path(base, "dragoman")
    if home is None or not home.is_absolute():
        return None
    return home / ("Library/Application Support" if sys.platform == "darwin" else ".local/state") / "dragoman"


def server_of(settings: Settings, config_file: str | None) -> ServerSettings:
    """Return the settings of the gateway that runs with a configuration: with the address that it is bound to."""
    with suppress(ConfigError):
        return with_usage_file(loader(config_file, {})()).settings.server
    return settings.server


@click.command(
    params=[
        config_option,
        click.Option(
            ["--by"], metavar=_BY, help="what to add up by, several with commas; unset: all in one row"
        ),
        click.Option(["--since"], default="7d", show_default=True, help="24h, 7d, 2w, a date or a time"),
        click.Option(["--until"], help="the same; unset: now"),
        *(click.Option([f"--{name}"], metavar="NAME", help=f"only of this {name}") for name in _FILTERS),
        click.Option(
            ["--limit"], type=click.IntRange(1, 10_000), default=1000, help="largest number of rows"
        ),
        click.Option(["--json", "form"], flag_value="json", help="as JSON"),
        click.Option(["--csv", "form"], flag_value="csv", help="as CSV, for spreadsheets"),
    ]
)
def usage(config_file: str | None, form: str | None, **asked: str | int | None) -> None:
    """Print what was used, by key, model, day and so on.

    The newest and largest rows come first. They are requested from the running gateway if server.admin_key is set, or
    else read from the usage store. Days and hours are in UTC. Exit codes: 0 when it is printed, 1 when there is nothing
    to read it from, 2 when the configuration or the command line is wrong.
    """
    loaded = with_usage_file(load_or_exit(config_file, UNBOUND, of_gateway=True))
    query = urlencode({name: value for name, value in asked.items() if value is not None})
    found = _read(loaded.settings, config_file, query)
    if form == "json":
        click.echo(json.dumps(found, indent=2))
    elif form == "csv":
        click.echo(_csv(found), nl=False)
    else:
        for line in _table(found):
            click.echo(line)
    if found["truncated"]:
        click.echo(f"there are more rows than {asked['limit']}: --limit shows more of them", err=True)


def _read(settings: Settings, config_file: str | None, query: str) -> dict[str, Any]:
    """Return what /admin/usage does, from the gateway or from the store."""
    import anyio
    import msgspec

    from dragoman import RemoteProtocolError
    from dragoman_server.cli.stores import STORE_ERRORS, read_keys, stored_usage
    from dragoman_server.http.usage import usage_json, usage_query

    try:
        wanted = usage_query(query, time.time())
    except RemoteProtocolError as error:
        exit_with(USAGE_ERROR, f"--{error.message}")
    try:
        found: dict[str, Any] = admin_request(server_of(settings, config_file), "GET", f"usage?{query}")
        return found
    except AdminUnavailable as error:
        reason = str(error)

    async def read(keys: Sequence[ClientKey]) -> dict[str, Any]:
        store = stored_usage(settings.server)
        async with store.running():
            report: dict[str, Any] = msgspec.to_builtins(await usage_json(store, wanted, keys))
        return report

    needs_keys = "group" in wanted.by or "key" in wanted.filters
    try:
        return anyio.run(read, read_keys(settings) if needs_keys else ())
    except RemoteProtocolError as error:
        exit_with(USAGE_ERROR, f"--{error.message}")
    except STORE_ERRORS as error:
        exit_with(FAILURE, f"{reason}; {error}")


def _csv(found: Mapping[str, Any]) -> str:
    """Return the rows as CSV: a histogram is one column for each of its buckets."""
    rows = found["rows"] or [found["total"]]
    import csv  # not at the top, because each start of the gateway imports this module

    bounds = [*[f"{bound}s" for bound in found["first_byte_bounds_s"]], "more"]
    names = [name for name in (*found["by"], *found["total"]) if name != "first_byte"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names, *[f"first_byte_{bound}" for bound in bounds]])
    for row in rows:
        writer.writerow([*[_cell(row[name]) for name in names], *row["first_byte"]])
    return out.getvalue()


def _cell(value: Any) -> Any:
    """Return a value for a spreadsheet, which would compute a name of a client's that begins like a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _table(found: Mapping[str, Any]) -> Iterator[str]:
    by: Sequence[str] = found["by"]
    lines = [[*by, *_SHOWN.values()]]
    for row in found["rows"]:
        lines.append([*[printable(row[name]) or "-" for name in by], *_figures(row)])
    if by:
        lines.append([*["total", *[""] * (len(by) - 1)], *_figures(found["total"])])
    else:
        lines.append(_figures(found["total"]))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [
            text.ljust(width) if place < len(by) else text.rjust(width)
            for place, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
    if unpriced := found["total"]["unpriced"]:
        yield f"requests without a price, which are not in the cost: {unpriced} (docs/usage.md#prices)"


def _figures(counts: Mapping[str, Any]) -> list[str]:
    cost = counts["cost_usd"]
    money = "no price" if cost is None else money_text(cost)
    return [f"{counts[name]:,}" for name in _SHOWN if name != "cost_usd"] + [money]


def money_text(dollars: float) -> str:
    """Return an amount for a table, small ones with more digits."""
    digits = 2 if not dollars or dollars >= 1 else 4 if dollars >= 0.01 else 6
    return f"${dollars:,.{digits}f}"
