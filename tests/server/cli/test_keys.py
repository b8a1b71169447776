"""`dragoman keys` and `dragoman reload`: how they change files and stores. What they print is in transcripts.txt."""

import json
import os
import re
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from stat import S_ISDIR

import anyio
import pytest
from click.testing import Result
from command.cli import run
from edge import EdgeGateway, Upstream

from dragoman_server.cli import config_writer
from dragoman_server.config.loader import load
from dragoman_server.settings import ClientKey
from dragoman_server.settings.client_keys import hash_client_key, parse_duration, parse_when
from dragoman_server.settings.secret import Secret
from dragoman_server.settings.values import InvalidValue
from dragoman_server.usage.stores.base import KeyUse, UsageBatch
from dragoman_server.usage.stores.sqlite import SQLiteUsageStore

RELOAD = "a running gateway needs a reload for it: dragoman reload, or SIGHUP"
ADMIN = "admin-canary-0123456789-0123456789-wq7zk"
NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


SECRET = "a-secret-of-some-length-0123456789-wq7zk"


def add(name: str, **environ: str) -> tuple[str, str]:
    """Return a new key, and the configuration with it."""
    result = run("keys", "add", name, DRAGOMAN_SECRET=SECRET, **environ)
    assert result.exit_code == 0
    key, _, lines = result.stdout.partition("\n")
    return key, lines


@pytest.mark.promise("S2")
def test_a_key_is_printed_once_with_its_hash() -> None:
    key, lines = add("ci")
    assert re.fullmatch(r"drk_[A-Za-z0-9_-]{43}", key)
    Path("dragoman.toml").write_text(lines)
    (found,) = load(environ={"DRAGOMAN_SECRET": SECRET}).settings.client_keys
    assert (found.name, found.hash) == ("ci", hash_client_key(key, Secret(SECRET)))
    assert key not in lines
    assert run("keys", "list", DRAGOMAN_SECRET=SECRET).stdout.splitlines()[1].split()[:2] == ["ci", "active"]
    assert add("other")[0] != key


def test_a_list_without_keys_says_how_to_make_one() -> None:
    result = run("keys", "list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.splitlines() == [
        f"there is no dragoman.toml in {Path.cwd()}: --config or DRAGOMAN_CONFIG names another file",
        "there are no client keys; dragoman keys add NAME --write makes one",
    ]


def test_a_key_can_be_made_for_a_gateway_that_must_not_start_without() -> None:
    Path("dragoman.toml").write_text('[server]\nhost = "0.0.0.0"\n')
    assert run("config", "check").exit_code == 2
    lines = add("ci")[1]
    with Path("dragoman.toml").open("a") as file:
        file.write(lines)
    assert run("config", "check", DRAGOMAN_SECRET=SECRET).exit_code == 0


FILE = Path("dragoman.client_keys.toml")


@pytest.mark.parametrize("name", ["first", "middle", "last"])
def test_only_the_revoked_key_is_removed(name: str) -> None:
    (config := Path("dragoman.toml")).write_text("# Ours.\n[server]\nport = 1\n")
    for each in ("first", "middle", "last"):
        keys("add", each, "--write", "--models", "a[b],up/*", "--expires", "2126-12-31", "--may-loosen")
    FILE.chmod(0o640)
    before = keys_in()
    assert keys("revoke", name).stdout == f"{FILE}: {name} is revoked; {RELOAD}\n"
    assert keys_in() == {each: key for each, key in before.items() if each != name}
    assert FILE.stat().st_mode & 0o777 == 0o640
    assert config.read_text() == "# Ours.\n[server]\nport = 1\n"
    assert sorted(Path().iterdir()) == [FILE, config]


@pytest.mark.parametrize(
    "arguments", [("revoke", "a"), ("rotate", "a"), ("disable", "a"), ("add", "b", "--write")]
)
def test_keys_in_the_configuration_file_are_read_and_not_changed(arguments: tuple[str, ...]) -> None:
    text = f'# Ours.\n[[client_keys]]\nname = "a"\nhash = "{"0" * 64}"\n'
    (config := Path("dragoman.toml")).write_text(text)
    result = run("keys", *arguments, DRAGOMAN_SECRET=SECRET)
    assert (result.exit_code, result.stdout, config.read_text()) == (1, "", text)
    advice = f"dragoman.toml:3 has client keys: move their tables to {FILE}, which this command changes"
    assert advice in result.stderr
    assert list(Path().iterdir()) == [config]
    config.rename(FILE)
    keys(*arguments)


def test_a_file_that_cannot_be_written_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise PermissionError(13, "Permission denied")

    keys("add", "a", "--write")
    text = FILE.read_text()
    monkeypatch.setattr(Path, "replace", refuse)
    result = run("keys", "revoke", "a", DRAGOMAN_SECRET=SECRET)
    assert (result.exit_code, FILE.read_text()) == (1, text)
    assert "Permission denied" in result.stderr
    assert len(list(Path().iterdir())) == 1


# Writing the file.


def keys_in(file: str | None = None) -> dict[str, ClientKey]:
    settings = load(environ={"DRAGOMAN_SECRET": SECRET}, path=file).settings
    return {key.name: key for key in settings.client_keys}


def keys(*arguments: str) -> Result:
    result = run("keys", *arguments, DRAGOMAN_SECRET=SECRET)
    assert result.exit_code == 0, result.stderr
    return result


@pytest.mark.parametrize("config", [None, "# Ours.\r\n[server]\r\nport = 1", "\ufeff[models]\n\n\n"])
def test_a_key_is_written_to_its_own_file(config: str | None) -> None:
    if config is not None:
        Path("dragoman.toml").write_bytes(config.encode())
        Path("dragoman.toml").chmod(0o640)
    flags = ("--expires", "2126-12-31", "--models", "fast,up/*,$a", "--requests-per-minute", "60")
    result = keys("add", "ci", "--write", "--may-loosen", *flags)
    key = keys_in()["ci"]
    assert key.hash == hash_client_key(result.stdout.strip(), Secret(SECRET))
    assert key.expires == datetime(2126, 12, 31, tzinfo=UTC)
    assert (key.models, key.requests_per_minute, key.may_loosen) == (("fast", "up/*", "$a"), 60, True)
    assert "budget" not in FILE.read_text()
    assert FILE.stat().st_mode & 0o777 == (0o600 if config is None else 0o640)
    assert f"{FILE}: the key ci was added; {RELOAD}" in result.stderr
    keys("add", "other", "--write")
    assert keys_in()["ci"] == key


def test_each_configuration_file_has_its_own_keys() -> None:
    for name in ("a", "b"):
        Path(f"{name}.toml").write_text("")
        keys("add", f"of-{name}", "--write", "--config", f"{name}.toml")
    assert [list(keys_in(f"{name}.toml")) for name in "ab"] == [["of-a"], ["of-b"]]


def test_the_old_key_of_a_rotated_one_is_valid_for_the_overlap() -> None:
    old = keys("add", "ci", "--write").stdout.strip()
    began = datetime.now(UTC).replace(microsecond=0)
    result = keys("rotate", "ci", "--overlap", "2h")
    key = keys_in()["ci"]
    assert key.hash == hash_client_key(result.stdout.strip(), Secret(SECRET))
    assert key.previous_hash == hash_client_key(old, Secret(SECRET))
    assert key.previous_expires is not None
    assert timedelta(hours=2) <= key.previous_expires - began < timedelta(hours=2, minutes=5)
    keys("rotate", "ci", "--overlap", "0")
    assert (keys_in()["ci"].previous_hash, keys_in()["ci"].previous_expires) == (None, None)


def test_a_key_whose_old_one_is_still_valid_is_not_rotated_again() -> None:
    """The old one was promised to be valid until then, and a table has room for two."""
    keys("add", "ci", "--write")
    keys("rotate", "ci", "--overlap", "2h")
    before = FILE.read_text()
    result = run("keys", "rotate", "ci", DRAGOMAN_SECRET=SECRET)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "ci has two keys already, and the older one is valid until 2" in result.stderr
    assert FILE.read_text() == before
    FILE.write_text(re.sub("previous_expires = .*", "previous_expires = 2020-01-01", before))
    keys("rotate", "ci")


def test_an_expired_key_is_rotated_only_with_a_new_end() -> None:
    FILE.write_text(add("ci")[1] + "expires = 2020-01-01\n")
    result = run("keys", "rotate", "ci", DRAGOMAN_SECRET=SECRET)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "ci has expired: write how long the new key is valid, as 90d" in result.stderr
    assert "the old one is no longer valid" in keys("rotate", "ci", "--expires", "never").stderr
    assert (keys_in()["ci"].expires, keys_in()["ci"].previous_hash) == (None, None)


def test_a_disabled_key_keeps_its_settings() -> None:
    keys("add", "ci", "--write", "--loss-policy", "refuse")
    before = FILE.read_text()
    assert keys("disable", "ci").stdout == f"{FILE}: ci is disabled; {RELOAD}\n"
    assert (keys_in()["ci"].disabled, keys_in()["ci"].loss_policy) == (True, "refuse")
    keys("disable", "ci")
    assert keys("enable", "ci").stdout == f"{FILE}: ci is enabled; {RELOAD}\n"
    assert FILE.read_text() == before


def test_commands_at_the_same_time_change_the_file_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys("add", "ci", "--write")
    before = FILE.read_text()
    with config_writer.locked(Path("dragoman.toml")):
        monkeypatch.setattr(config_writer, "LOCK_S", 0.0)
        for arguments in (("add", "other", "--write"), ("rotate", "ci"), ("revoke", "ci")):
            result = run("keys", *arguments, DRAGOMAN_SECRET=SECRET)
            assert (result.exit_code, result.stdout) == (1, "")
            assert "another command is changing dragoman.toml: try again" in result.stderr
    assert FILE.read_text() == before
    keys("revoke", "ci")


def test_a_changed_file_is_on_the_disk_before_it_is_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    FILE.write_text("")
    synced = []

    def sync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        synced.append("directory" if S_ISDIR(status.st_mode) else status.st_size)
        synced.append(FILE.stat().st_size)

    monkeypatch.setattr(os, "fsync", sync)
    keys("add", "ci", "--write")
    size = FILE.stat().st_size
    assert synced == [size, 0, "directory", size]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_changed_file_keeps_its_owner() -> None:
    """Root makes a key; the gateway runs as another user, the only one who may read the file."""
    (config := Path("dragoman.toml")).touch(0o600)
    for file in (config, FILE):  # the second key changes the file that the first one has made
        os.chown(file, 1234, 1235)
        keys("add", f"ci{file}", "--write")
        stat = FILE.stat()
        assert (stat.st_uid, stat.st_gid, stat.st_mode & 0o777) == (1234, 1235, 0o600)
        os.chown(config, 0, 0)


def test_a_change_that_would_make_the_configuration_wrong_is_not_made() -> None:
    text = "[server]\nworkers = 2\n"
    (file := Path("dragoman.toml")).write_text(text)
    for flags, reason in (
        (("--requests-per-minute", "5"), "each of the 2 workers would count the limits"),
        (("--budget", "5"), "needs [[prices]]"),
    ):
        result = run("keys", "add", "ci", "--write", *flags, DRAGOMAN_SECRET=SECRET)
        assert (result.exit_code, result.stdout, file.read_text()) == (2, "", text)
        assert "nothing was changed, because this would be wrong:\ndragoman." in result.stderr
        assert reason in result.stderr
        assert list(Path().iterdir()) == [file]
    keys("add", "ci", "--write")
    before = FILE.stat()
    result = run("keys", "add", "web", "--write", "--budget", "5", DRAGOMAN_SECRET=SECRET)
    assert (result.exit_code, list(keys_in())) == (2, ["ci"])
    assert f"{FILE}:10: client_keys[1].budget: needs [[prices]]" in result.stderr
    # A reload at this moment would have read a wrong file if there had been one for a while.
    assert (FILE.stat().st_ino, FILE.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_without_its_last_key_a_public_gateway_would_not_reload() -> None:
    Path("dragoman.toml").write_text('[server]\nhost = "0.0.0.0"\n')
    assert "warning" not in keys("add", "ci", "--write").stderr
    assert "warning" not in keys("disable", "ci").stderr
    result = keys("revoke", "ci")
    assert "warning: the gateway neither starts nor reloads with this file:" in result.stderr
    assert "0.0.0.0 can be reached from other machines, and there are no client keys" in result.stderr


def test_what_a_time_means() -> None:
    for text, when in {
        "90s": NOW + timedelta(seconds=90),
        "30d": NOW + timedelta(days=30),
        "2w": NOW + timedelta(days=14),
        "2026-12-31": datetime(2026, 12, 31, tzinfo=UTC),
        "2026-12-31T18:00:00+02:00": datetime(2026, 12, 31, 16, tzinfo=UTC),
    }.items():
        assert parse_when(text, NOW) == when, text
    for text in ("", "d", "1.5d", "2026-12-31T18:00:00", "2026-13-01", "2026-11-23", "999999w"):
        with pytest.raises(InvalidValue):
            parse_when(text, NOW)
    assert parse_duration("0") == timedelta()


# In the account store.


def test_keys_in_the_account_store_are_changed_by_the_same_commands() -> None:
    Path("dragoman.toml").write_text(
        '[server]\nstored_keys = true\naccount_store = "sqlite"\naccount_store_path = "accounts.db"\n'
        'usage_store = "sqlite"\nusage_store_path = "usage.db"\naudit_log = "audit.jsonl"\n'
        '[[groups]]\nname = "team"\nbudget = 9\n'
        '[[prices]]\nmodel = "*"\ninput = 1\noutput = 1\n'
    )
    assert "dragoman keys add NAME --store makes one" in keys("list").stderr
    assert "client keys: there is none" in run("config", "check", DRAGOMAN_SECRET=SECRET).stderr
    made = keys(
        "add", "ci", "--store", "--group", "team", "--requests-per-minute", "60", "--expires", "2126-12-31"
    )
    assert re.fullmatch(r"drk_[A-Za-z0-9_-]{43}\n", made.stdout)
    assert made.stderr.endswith("the account store: the key ci was added\n")
    keys("add", "filed", "--write")
    rotated = keys("rotate", "ci", "--overlap", "0")
    assert "the account store: ci has a new key, and the old one is no longer valid" in rotated.stderr
    assert keys("disable", "ci").stdout == "the account store: ci is disabled\n"

    async def use(store: SQLiteUsageStore) -> None:
        async with store.running():
            await store.add(UsageBatch("1", {}, {"ci": KeyUse(2, 30, 0.25)}, 0))

    anyio.run(use, SQLiteUsageStore("usage.db"))
    listed = keys("list").stdout.splitlines()[1:]
    permissions = "expires=2126-12-31T00:00:00Z requests_per_minute=60"
    assert [" ".join(line.split()) for line in listed] == [
        "filed - active 0 0 $0.00",
        f"ci team disabled 2 30 $0.2500 {permissions}",
        "",
        "group budget spent settings",
        "team $0.00 budget=9/month",
    ]
    file = Path("dragoman.toml")
    file.write_text(file.read_text().replace('"team"', '"crew"'))
    checked = run("config", "check", DRAGOMAN_SECRET=SECRET)
    assert (
        "warning: group team: is not configured, so its client keys in the account store are refused: ci"
        in checked.stderr
    )
    assert keys("list").stdout.splitlines()[2].split()[:3] == ["ci", "team", "disabled"]
    assert keys("enable", "ci").stdout == "the account store: ci is enabled\n"
    for arguments, words in (
        (("add", "ci", "--store"), "there is already a client key named ci"),
        (("add", "filed", "--store"), "there is already a key named 'filed'"),
        (("add", "new", "--store", "--group", "tame"), '"tame" is no group'),
        (("revoke", "none"), "the account store has no client key 'none'"),
    ):
        result = run("keys", *arguments, DRAGOMAN_SECRET=SECRET)
        assert (result.exit_code, result.stdout) == (2, ""), arguments
        assert words in result.stderr, arguments
    assert keys("revoke", "ci").stdout == "the account store: ci is revoked\n"
    rows = [json.loads(line) for line in Path("audit.jsonl").read_text().splitlines()]
    assert [(row["action"], row["name"]) for row in rows] == [
        *(("key made", name) for name in ("ci", "filed")),
        *((f"key {done}", "ci") for done in ("rotated", "disabled", "enabled", "revoked")),
    ]
    assert all(row["by"].startswith("command of user ") for row in rows)
    keys("add", "fresh", "--store")
    assert run("usage", "--key", "fresh", DRAGOMAN_SECRET=SECRET).exit_code == 0, "it was not used yet"
    stored = b"".join(file.read_bytes() for file in Path().iterdir())
    assert not [key for key in (made.stdout, rotated.stdout) if key.strip().encode() in stored]


# With a gateway.


@pytest.mark.process
def test_a_running_gateway_reloads_and_says_what_keys_have_used(tmp_path: Path) -> None:
    environ = {"DRAGOMAN_SECRET": SECRET, "DRAGOMAN_ADMIN_KEY": ADMIN}
    with Upstream() as upstream, EdgeGateway(tmp_path, upstream, backend="asyncio", env=environ) as gateway:
        gateway.ready()
        at = {**environ, "DRAGOMAN_PORT": str(gateway.port)}
        key = run("keys", "add", "ci", "--write", **environ).stdout.strip()
        result = run("reload", **at)
        expected = (0, "the configuration was reloaded\nclient_keys: 0 -> 1 (with ci)\n")
        assert (result.exit_code, result.stdout) == expected
        assert gateway.get("/v1/models").startswith(b'{"error"')
        Path("dragoman.toml").write_text(Path("dragoman.toml").read_text() + "prot = 1\n")
        result = run("reload", **at)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "unknown key" in result.stderr
        Path("dragoman.toml").write_text(Path("dragoman.toml").read_text().replace("prot = 1\n", ""))
        rows = json.loads(run("keys", "list", "--json", **at).stdout)["keys"]
        assert [(row["name"], row["requests"], row["last_used"]) for row in rows] == [("ci", 0, None)]
        assert key not in "".join(gateway.output)
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0
    result = run("reload", **at)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Connection refused; without a request, SIGHUP does the same" in result.stderr
