"""Reloads of the configuration: what is applied, what needs a restart, and what is refused."""

import logging
import os
import threading
from pathlib import Path

import anyio
import pytest
from virtual_time import REAL_BACKENDS, VIRTUAL_BACKENDS

from dragoman_server.config import reload
from dragoman_server.config.loader import LoadedConfig, load
from dragoman_server.config.reload import ConfigReloader, ReloadResult, SettingsRefused
from dragoman_server.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*REAL_BACKENDS)]

SECRET = 'secret = "canary-secret-0123456789-0123456789"\n'
KEY = f'[[client_keys]]\nname = "ci"\nhash = "{"0" * 64}"\n'


class Gateway:
    """Settings in use, and the file that they are reloaded from."""

    def __init__(self, file: Path, text: str) -> None:
        self.file = file
        self.file.write_text(text)
        self.used = [self.load().settings]
        self.reloader = ConfigReloader(self.settings, self.load, self._use)

    @property
    def settings(self) -> Settings:
        return self.used[-1]

    def load(self) -> LoadedConfig:
        return load(environ={}, path=str(self.file))

    async def _use(self, settings: Settings) -> None:
        if settings.server.keepalive_s == 99:
            raise SettingsRefused("a certificate cannot be read")
        self.used.append(settings)

    async def reload(self, text: str) -> ReloadResult:
        self.file.write_text(text)
        return await self.reloader.reload()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "dragoman.toml"


async def test_the_new_settings_are_used(file: Path) -> None:
    gateway = Gateway(file, "[server]\nkeepalive_s = 5\n")
    result = await gateway.reload(f"[server]\nkeepalive_s = 7\n{SECRET}{KEY}")
    changes = ("server: changed keepalive_s, secret", "client_keys: 0 -> 1 (with ci)")
    assert result == ReloadResult(changes=changes)
    assert gateway.settings.server.keepalive_s == 7
    assert [key.name for key in gateway.settings.client_keys] == ["ci"]


async def test_a_wrong_configuration_is_refused_with_all_its_errors(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = Gateway(file, "")
    caplog.set_level(logging.INFO, "dragoman.server")
    result = await gateway.reload('[server]\nkeepalive_s = "soon"\nprot = 1\n')
    assert result.errors == (
        f"{file}:2: server.keepalive_s: expected a number of seconds, found a string",
        f'{file}:3: server.prot: unknown key; did you mean "port"?',
    )
    assert len(gateway.used) == 1
    assert caplog.messages == [f"the configuration was not reloaded: {error}" for error in result.errors]


async def test_settings_that_cannot_be_used_are_refused_too(file: Path) -> None:
    gateway = Gateway(file, "[server]\nkeepalive_s = 5\n")
    result = await gateway.reload("[server]\nkeepalive_s = 99\n")
    assert result.errors == ("a certificate cannot be read",)
    assert (await gateway.reload("[server]\nport = 1\n")).needs_restart == ("server.port",)


async def test_what_needs_a_restart_is_reported_until_there_is_one(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = Gateway(file, "[server]\nport = 8080\nkeepalive_s = 5\n")
    for seconds in (6, 7):
        result = await gateway.reload(f'[server]\nport = 9090\nbackend = "trio"\nkeepalive_s = {seconds}\n')
        assert (result.needs_restart, result.errors) == (("server.port", "server.backend"), ())
        assert (gateway.settings.server.port, gateway.settings.server.keepalive_s) == (8080, seconds)
    assert "changed, but used from the next start on: server.port, server.backend" in caplog.messages
    assert (await gateway.reload("[server]\nport = 8080\n")).needs_restart == ()


async def test_what_is_right_elsewhere_may_be_wrong_here(file: Path) -> None:
    """Without a check of what would be in effect, the gateway would be open to all who can connect."""
    gateway = Gateway(file, f'[server]\nhost = "0.0.0.0"\n{SECRET}{KEY}')
    (error,) = (await gateway.reload('[server]\nhost = "127.0.0.1"\n')).errors
    assert error.startswith(
        "server.host: 0.0.0.0 can be reached from other machines, and there are no client keys"
    )
    assert error.endswith("the running gateway keeps host: restart it to change that")
    assert gateway.settings.client_keys


async def test_limits_are_never_counted_by_each_worker_alone(file: Path) -> None:
    gateway = Gateway(file, f"[server]\nworkers = 4\n{SECRET}{KEY}")
    for workers, limited in ((4, KEY), (1, KEY), (1, KEY + '[[groups]]\nname = "team"\n')):
        text = f"[server]\nworkers = {workers}\n{SECRET}{limited}requests_per_minute = 5\n"
        (error,) = (await gateway.reload(text)).errors
        assert "each of the 4 workers would count the limits" in error
    assert gateway.settings.client_keys[0].requests_per_minute is None


async def test_warnings_are_passed_on(file: Path) -> None:
    (warning,) = (await Gateway(file, "").reload('[server]\ncors_origins = ["*"]\n')).warnings
    assert warning.startswith("server.cors_origins: any web page")


UPSTREAM = '[[upstreams]]\nname = "%s"\nprotocol = "openai_chat"\nbase_url = "http://127.0.0.1:9/%s"\n'


@pytest.mark.parametrize(
    ("name", "tables"),
    [("client_keys", KEY), ("upstreams", UPSTREAM % ("up", "v1"))],
)
async def test_a_reload_never_takes_away_all_of_what_keeps_the_door(
    file: Path, name: str, tables: str
) -> None:
    """An empty file, or half of one, is a configuration without errors, and would let everybody in."""
    gateway = Gateway(file, f"[server]\n{SECRET}{tables}")
    for text in ("", f"[server]\n{SECRET}"):
        (error,) = (await gateway.reload(text)).errors
        assert error.startswith(f"it has no {name}, and the running gateway has 1; if that is meant, write")
        assert len(getattr(gateway.settings, name)) == 1
    allowed = f'[server]\n{SECRET}reload_may_remove = ["{name}"]\n'
    assert allowed.splitlines()[-1] in error
    assert (await gateway.reload(allowed)).errors == ()
    assert getattr(gateway.settings, name) == ()


async def test_a_reload_says_what_is_different(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys = f'[server]\n{SECRET}{KEY}group = "g"\n[[groups]]\nname = "g"\n'
    gateway = Gateway(file, keys + UPSTREAM % ("a", "v1") + UPSTREAM % ("b", "v1") + '[models]\nx = "a/x"\n')
    caplog.set_level(logging.INFO, "dragoman.server")
    price = '[[prices]]\nmodel = "m"\ninput = 1\noutput = 2\n'
    text = keys + 'models = ["c/*"]\n' + UPSTREAM % ("b", "v2") + UPSTREAM % ("c", "v1") + price
    result = await gateway.reload(text)
    assert result.changes == (
        "models: 1 -> 0",
        "upstreams: 2 -> 2 (without a; with c; changed b)",
        "groups: 1 -> 1 (changed g)",
        "prices: 0 -> 1",
    )
    await gateway.reload(text)
    assert caplog.messages == [
        f"the configuration was reloaded: {'; '.join(result.changes)}",
        "the configuration was reloaded: nothing is different",
    ]


async def test_reloads_come_one_after_the_other(file: Path) -> None:
    gateway = Gateway(file, "")
    under_way = []

    async def use(settings: Settings) -> None:
        under_way.append("begins")
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        under_way.append("ends")

    reloader = ConfigReloader(gateway.settings, gateway.load, use)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reloader.reload)
        tasks.start_soon(reloader.reload)
    assert under_way == ["begins", "ends", "begins", "ends"]


async def test_requests_that_come_before_a_reload_begins_are_one(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload, "PAUSE_S", 0.0)
    gateway, used = Gateway(file, ""), list[Settings]()

    async def use(settings: Settings) -> None:
        used.append(settings)
        if len(used) == 1:
            for _ in range(100):
                reloader.request()
        await anyio.wait_all_tasks_blocked()

    reloader = ConfigReloader(gateway.settings, gateway.load, use)
    reloader.request()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reloader.run)
        while len(used) < 2:
            await anyio.wait_all_tasks_blocked()
            await anyio.to_thread.run_sync(lambda: None)  # the file is read in a thread
        await reloader.reload()
        tasks.cancel_scope.cancel()
    assert len(used) == 3


@pytest.mark.backends(*VIRTUAL_BACKENDS)
async def test_signals_in_a_row_are_a_reload_a_second(caplog: pytest.LogCaptureFixture) -> None:
    times = []
    caplog.set_level(logging.INFO, "dragoman.audit")

    class Reloader(ConfigReloader):
        async def reload(self) -> ReloadResult:
            times.append(anyio.current_time())
            return ReloadResult(changes=("models: 1 -> 2",))

    async def use(settings: Settings) -> None:
        raise AssertionError("nothing is loaded")

    reloader = Reloader(Settings(), lambda: load(environ={}), use)
    started = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reloader.run)
        for _ in range(300):
            reloader.request()
            await anyio.sleep(0.005)
        await anyio.sleep(60)
        tasks.cancel_scope.cancel()
    assert [time - started for time in times] == pytest.approx([0, reload.PAUSE_S, 2 * reload.PAUSE_S])
    audited = [each.__dict__["dragoman"] for each in caplog.records if each.name == "dragoman.audit"]
    row = {"action": "reload", "name": "configuration", "by": "SIGHUP", "changes": ("models: 1 -> 2",)}
    assert audited == [row] * 3


async def test_a_file_that_cannot_be_read_again_changes_nothing(tmp_path: Path) -> None:
    """As of `--config <(command)`: the second time it is empty, which would be a configuration without keys."""
    pipe, end = os.pipe()
    os.close(end)
    gateway = Gateway(tmp_path / "dragoman.toml", "")
    gateway.file = Path(f"/dev/fd/{pipe}")
    (error,) = (await gateway.reloader.reload()).errors
    os.close(pipe)
    assert error == f"{gateway.file} is not a file that can be read again: restart the gateway"
    assert len(gateway.used) == 1


async def test_a_file_that_does_not_respond_does_not_keep_the_gateway(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_s = reload.LOAD_S
    monkeypatch.setattr(reload, "LOAD_S", 0.01)
    gateway, responds = Gateway(file, ""), threading.Event()

    def load() -> LoadedConfig:
        responds.wait(30)
        return gateway.load()

    reloader = ConfigReloader(gateway.settings, load, gateway._use)
    assert (await reloader.reload()).errors == ("it was not read within 0.01 s",)
    (error,) = (await reloader.reload()).errors
    assert error.startswith("the file is still being read for an earlier reload")
    responds.set()
    reloader._loading.result()
    monkeypatch.setattr(reload, "LOAD_S", limit_s)
    assert (await reloader.reload()).errors == ()


async def test_an_internal_error_of_a_reload_does_not_end_the_gateway(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = Gateway(file, "")

    async def use(settings: Settings) -> None:
        raise RuntimeError("oops")

    reloader = ConfigReloader(gateway.settings, gateway.load, use)
    assert (await reloader.reload()).errors == ("an internal error; see the log",)
    assert "oops" in caplog.text


async def test_secrets_of_open_requests_stay_masked(file: Path) -> None:
    gateway = Gateway(file, '[server]\nsecret = "canary-first-0123456789-0123456789"\n')
    for name in ("second", "third"):
        await gateway.reload(f'[server]\nsecret = "canary-{name}-0123456789-0123456789"\n')
    text = " ".join(f"canary-{name}-0123456789-0123456789" for name in ("first", "second", "third"))
    assert gateway.settings.mask(text) == "**** **** ****"
