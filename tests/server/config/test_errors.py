"""Configuration: TOML text in, settings or exact error lines out. Most are rows of errors.txt and settings.txt."""

# ruff: noqa: E501 -- the table is read by row

import re
from pathlib import Path

import pytest
import rows
from config_text import CANARY, FULL, LOCAL, SECRET, errors, load_text

from dragoman_server.cli.config_output import config_lines
from dragoman_server.config.loader import load
from dragoman_server.config.sources import MAX_FILE_BYTES as MAX_CONFIG_BYTES
from dragoman_server.platform.extras import install_command
from dragoman_server.settings import ServerSettings
from dragoman_server.settings.problems import ConfigError

ACCOUNT = '[[accounts]]\nupstream = "local"\nname = "a"\n'
TEXTS = {
    "FULL": FULL,
    "LOCAL": LOCAL,
    "ACCOUNT": ACCOUNT,
    "TRY_NEXT": '[[rules]]\naction = "try_next"\n',
    "KEY": f'[[client_keys]]\nname = "ci"\nhash = "{"0" * 64}"\n',
    "PRICE": '[[prices]]\nmodel = "m"\ninput = 1\noutput = 2.5\n',
}


def loaded(lines: list[str]) -> list[str]:
    """Return the settings that differ from the defaults, and the warnings; or the errors."""
    environ: dict[str, str] = {}
    flags: dict[str, str] = {}
    text = ""
    for line in (line.replace("$CANARY", CANARY).replace("$SECRET", SECRET) for line in lines):
        name, _, value = line.partition("=")
        if name.startswith("env "):
            environ[name.removeprefix("env ")] = value
        elif name.startswith("file "):
            Path(name.removeprefix("file ")).write_text(value)
        elif name.startswith("--"):
            flags[name.removeprefix("--")] = value
        else:
            text += TEXTS.get(line.removeprefix("$")) or line + "\n"
    try:
        found = load_text(text, environ, **flags)
    except ConfigError as error:
        shown = str(error).splitlines()
    else:
        settings = [re.sub(" +#", " #", line) for line in config_lines(found, with_origin=True)]
        shown = [line for line in settings if not line.endswith("# default")]
        shown += [f"warning: {warning}" for warning in found.warnings]
    assert CANARY not in "".join(shown), text
    assert "hunter2" not in "".join(shown), text
    return shown or ["="]


@pytest.mark.promise("S13")
def test_the_lines_of_errors() -> None:
    rows.check(Path(__file__).with_name("errors.txt"), loaded)


def test_what_is_loaded() -> None:
    rows.check(Path(__file__).with_name("settings.txt"), loaded)


TOO_MUCH = "dragoman.toml: has a number that is too large, or is nested too deeply"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"[server]\n# \xff\n", "dragoman.toml:2: is not UTF-8 text"),
        ('[server]\nhost = "', "dragoman.toml:2: not valid TOML: Unterminated string at the end of the file"),
        ("server.port = 0x" + "f" * 5000, "dragoman.toml:1: server.port: this integer is out of range: from 0 to 65535"),
        ("[server]\nport = " + "9" * 5000, TOO_MUCH),
        ("a = " + "[" * 100_000, TOO_MUCH),
        (b"#" * (MAX_CONFIG_BYTES + 1), f"dragoman.toml: is larger than {MAX_CONFIG_BYTES} bytes"),
    ],
    ids=["not UTF-8", "no end", "a large integer", "a number too large to read", "deep nesting", "a large file"],
)  # fmt: skip
def test_a_file_that_no_row_can_show(text: str | bytes, line: str) -> None:
    assert errors(text) == [line]


def test_a_file_may_be_as_large_as_that() -> None:
    assert load_text(b"#" * MAX_CONFIG_BYTES).settings.server == ServerSettings()


SOCKS = 'proxy = "socks5://user:secret@proxy:1080"\n'


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (LOCAL + SOCKS, "upstreams[0].proxy"),
        (LOCAL + ACCOUNT + SOCKS, "accounts[0].proxy"),
    ],
)
def test_the_extra_for_socks_proxies_may_be_missing(
    text: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_text(text)
    monkeypatch.setattr("dragoman_server.platform.extras.find_spec", lambda name: None)
    line = text.count("\n")
    missing = f"a SOCKS proxy needs an extra: {install_command('socks')}"
    assert errors(text) == [f"dragoman.toml:{line}: {key}: {missing}"]


def test_a_socks_proxy_of_the_environment_without_the_extra_is_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environ = {"ALL_PROXY": f"socks5h://user:{CANARY}@proxy:1080", "https_proxy": "http://proxy:3128"}
    assert load(environ=environ).warnings == ()
    monkeypatch.setattr("dragoman_server.platform.extras.find_spec", lambda name: None)
    expected = [f"ALL_PROXY: a SOCKS proxy needs an extra; {install_command('socks')}"]
    assert [str(each) for each in load(environ=environ).warnings] == expected


def test_an_interpolated_file_that_is_no_text() -> None:
    Path("key").write_bytes(b"\xff" + CANARY.encode())
    (line,) = errors(LOCAL + 'api_key = "${file:key}"\n')
    assert line == "dragoman.toml:5: upstreams[0].api_key: the file key is not UTF-8 text"


def test_a_named_file_that_is_absent() -> None:
    with pytest.raises(ConfigError) as caught:
        load(environ={}, path="absent.toml")
    assert str(caught.value) == "absent.toml: cannot read the configuration: No such file or directory"
