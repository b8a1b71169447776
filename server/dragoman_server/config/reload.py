"""Load the configuration again while the gateway runs, and apply it if nothing is wrong with it.

The new configuration is checked as at the start, and as it would be in effect: settings with RESTART in
`settings/server.py` cannot change while the gateway runs, so they stay as they are. A configuration that has lost all
client keys or all upstreams is refused unless it says that it may: a file that is half written must not open the
gateway to everybody. If anything is wrong, nothing changes.
"""

import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import anyio.from_thread
import anyio.lowlevel
import msgspec
from msgspec.structs import replace

from dragoman_server.config.loader import LoadedConfig
from dragoman_server.settings import ARRAYS, ServerSettings, Settings, settings_of
from dragoman_server.settings.checks import problems_together
from dragoman_server.settings.fields import AppliedBy
from dragoman_server.settings.problems import ConfigError
from dragoman_server.settings.server import REMOVABLE
from dragoman_server.telemetry.audit import audit_off_loop

_log = logging.getLogger("dragoman.server")

# Seconds for reading the file, and those that it names. A network file system or a named pipe may not respond.
LOAD_S = 10.0

# After a reload that a signal has requested. All signals that come meanwhile are one more reload.
PAUSE_S = 1.0

_AT_START = tuple(
    name for name, key in settings_of(ServerSettings).items() if key.applied_by is AppliedBy.RESTART
)


class SettingsRefused(ValueError):
    """Settings without an error cannot be used by the running gateway. The arguments are the reasons, a line each."""


class ReloadResult(msgspec.Struct, frozen=True):
    """The outcome of a reload. All texts are single lines.

    Attributes:
        errors: Why nothing has changed; empty if the new configuration is in use.
        warnings: The warnings, as `dragoman config check` prints them.
        needs_restart: Changed settings whose new value is used from the next start on, as `server.port`.
        changes: The differences, as `client keys: 3 -> 0 (without ci)`. No values, which may be secret.
    """

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()


# The settings to use, and the report if they can be used.
_Loaded: TypeAlias = tuple[Settings, ReloadResult]

# Loads and applies the configuration. Never raises for a fault in it.
Reload: TypeAlias = Callable[[], Coroutine[Any, Any, ReloadResult]]


class ConfigReloader(msgspec.Struct, eq=False):
    """Reloads the configuration, one reload at a time, and logs how that ended.

    Attributes:
        _settings: The settings in use.
        _load: Reads new ones. Raises ConfigError.
        _apply: Puts them into use. Raises ValueError, SettingsRefused for example, if that is impossible; then the old
            ones are still in use.
    """

    _settings: Settings
    _load: Callable[[], LoadedConfig]
    _apply: Callable[[Settings], Awaitable[None]]
    _lock: anyio.Lock = msgspec.field(default_factory=anyio.Lock)
    _loading: Future[_Loaded] | None = None
    _requested: anyio.Event = msgspec.field(default_factory=anyio.Event)

    def request(self) -> None:
        """Have run() reload, PAUSE_S after the last such reload at the earliest. Until it begins, requests are one."""
        self._requested.set()

    async def run(self) -> None:
        """Reload after each request(), also one that was made before this. Never return."""
        while True:
            await self._requested.wait()
            self._requested = anyio.Event()
            result = await self.reload()
            changes, errors = result.changes, result.errors
            await audit_off_loop(
                self._settings, "reload", "configuration", by="SIGHUP", changes=changes, errors=errors
            )
            await anyio.sleep(PAUSE_S)

    async def reload(self) -> ReloadResult:
        """See Reload."""
        async with self._lock:
            try:
                with anyio.fail_after(LOAD_S):
                    settings, result = await self._read()
                await self._apply(settings)
            except ConfigError as error:
                result = ReloadResult(errors=tuple(str(error).splitlines()))
            except ValueError as error:
                result = ReloadResult(errors=tuple(map(str, error.args)))
            except TimeoutError:
                result = ReloadResult(errors=(f"it was not read within {LOAD_S:g} s",))
            except Exception:  # a reload never ends the gateway
                _log.exception("a reload failed")
                result = ReloadResult(errors=("an internal error; see the log",))
            else:
                self._settings = settings
        _log_result(result)
        return result

    async def _read(self) -> _Loaded:
        """Load and compare in a thread, because a large file takes a while, and streams must go on.

        It is a daemon, because a file system that hangs keeps it for ever, and must not keep the process. There is one.
        """
        if self._loading is not None and not self._loading.done():
            raise SettingsRefused(
                "the file is still being read for an earlier reload: does its file system respond?"
            )
        ended, token = anyio.Event(), anyio.lowlevel.current_token()
        self._loading = loading = Future[_Loaded]()

        def read() -> None:
            try:
                loading.set_result(_load_again(self._load, self._settings))
            except Exception as error:
                loading.set_exception(error)
            with suppress(RuntimeError):  # the event loop has ended meanwhile
                anyio.from_thread.run_sync(ended.set, token=token)

        threading.Thread(target=read, name="dragoman reload", daemon=True).start()
        await ended.wait()
        return loading.result()


def _load_again(load: Callable[[], LoadedConfig], running: Settings) -> _Loaded:
    loaded = load()
    if loaded.path is not None and not Path(loaded.path).is_file():
        # A pipe, as of `--config <(command)`, is empty by now, and an empty configuration has no client keys.
        raise SettingsRefused(f"{loaded.path} is not a file that can be read again: restart the gateway")
    settings, needs_restart = with_settings_of_the_start(loaded.settings, running)
    _check_removals(settings, running)
    result = ReloadResult(
        warnings=tuple(map(str, loaded.warnings)),
        needs_restart=needs_restart,
        changes=tuple(_changes(settings, running)),
    )
    return settings.masking_also(running), result


def with_settings_of_the_start(wanted: Settings, running: Settings) -> tuple[Settings, tuple[str, ...]]:
    """Return what can be used now, and the names of settings that need a restart to change.

    Raises SettingsRefused if that does not fit together: a setting that is right for another address or number of
    workers may be wrong for the running gateway's.
    """
    kept = {
        name: getattr(running.server, name)
        for name in _AT_START
        if getattr(running.server, name) != getattr(wanted.server, name)
    }
    if not kept:
        return wanted, ()
    origins = {f"server.{name}": running.origins.get(f"server.{name}") for name in kept}
    settings = replace(
        wanted,
        server=replace(wanted.server, **kept),
        origins={
            name: origin for name, origin in {**wanted.origins, **origins}.items() if origin is not None
        },
    )
    problems = [
        f"server.{name}: {text}; the running gateway keeps {', '.join(kept)}: restart it to change that"
        for name, text in problems_together(settings)
    ]
    if problems:
        raise SettingsRefused(*problems)
    return settings, tuple(f"server.{name}" for name in kept)


def _check_removals(wanted: Settings, running: Settings) -> None:
    """Raise SettingsRefused if all of something is gone that the gateway must not lose by mistake."""
    allowed = wanted.server.reload_may_remove
    for name in REMOVABLE:
        before = getattr(running, name)
        if before and not getattr(wanted, name) and name not in allowed:
            raise SettingsRefused(
                f"it has no {name}, and the running gateway has {len(before)}; if that is meant, write"
                f' reload_may_remove = ["{name}"] into [server]'
            )


def _changes(wanted: Settings, running: Settings) -> Iterator[str]:
    """Yield the differences, a line for each table, by the names of settings and of rows."""
    settings = [
        name
        for name in settings_of(ServerSettings)
        if getattr(wanted.server, name) != getattr(running.server, name)
    ]
    if settings:
        yield f"server: changed {', '.join(settings)}"
    if wanted.models != running.models:
        yield f"models: {len(running.models)} -> {len(wanted.models)}"
    for table in ARRAYS:
        before, after = _configured(getattr(running, table)), _configured(getattr(wanted, table))
        if before == after:
            continue
        named = _by_name(before), _by_name(after)
        rows = [Counter({name: len(named_rows) for name, named_rows in of.items()}) for of in named]
        changed = {name for name, named_rows in named[1].items() if named_rows != named[0].get(name)} - (
            rows[1] - rows[0]
        ).keys()
        names_of = {"without": rows[0] - rows[1], "with": rows[1] - rows[0], "changed": changed}
        details = [f"{what} {', '.join(sorted(names))}" for what, names in names_of.items() if any(names)]
        rest = f" ({'; '.join(details)})" if details else ""
        yield f"{table}: {len(before)} -> {len(after)}{rest}"


def _configured(rows: Iterable[msgspec.Struct]) -> list[dict[str, Any]]:
    """Return the values of rows, without the group that a key has besides the group's name."""
    return [
        {name: getattr(row, name) for name in row.__struct_fields__ if not name.startswith("_")}
        for row in rows
    ]


def _by_name(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row.get("name", ""), []).append(row)
    return found


def _log_result(result: ReloadResult) -> None:
    for error in result.errors:
        _log.error("the configuration was not reloaded: %s", error)
    for warning in result.warnings:
        _log.warning("%s", warning)
    if result.needs_restart:
        _log.warning("changed, but used from the next start on: %s", ", ".join(result.needs_restart))
    if not result.errors:
        _log.info("the configuration was reloaded: %s", "; ".join(result.changes) or "nothing is different")
