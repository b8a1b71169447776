"""Configuration: TOML text in, exact error lines or settings out."""

import copy
import dataclasses
import json
import logging
import pickle
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman._json import MAX_DOCUMENT_BYTES
from dragoman_server import _show_config
from dragoman_server._interpolate import MAX_FILE_BYTES
from dragoman_server._providers import PROVIDERS, Provider
from dragoman_server._secret import Secret
from dragoman_server._suggest import nearest
from dragoman_server._toml_lines import TomlLines
from dragoman_server._values import check
from dragoman_server.config import MAX_FILE_BYTES as MAX_CONFIG_BYTES
from dragoman_server.config import ConfigError, Loaded, ServerSettings, UpstreamSettings, load
from dragoman_server.settings import MAX_BODY_BYTES, SERVER_KEYS, UPSTREAM_KEYS

CANARY = "sk-canary-0123456789-abcdefghij-wq7zk"

LOCAL = """\
[[upstreams]]
name = "local"
protocol = "openai_chat"
base_url = "http://127.0.0.1:9000/v1"
"""


@pytest.fixture(autouse=True)
def _working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load_text(text: str | bytes, environ: Mapping[str, str] | None = None, **flags: str) -> Loaded:
    Path("dragoman.toml").write_bytes(text.encode() if isinstance(text, str) else text)
    return load(environ=environ or {}, flags=flags)


def errors(text: str | bytes, environ: Mapping[str, str] | None = None, **flags: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_text(text, environ, **flags)
    return str(caught.value).splitlines()


# Each text has one fault, which gives exactly this line.
FAULTS = {
    "not TOML": (
        "[server\n",
        "dragoman.toml:1: not valid TOML: Expected ']' at the end of a table declaration (column 8)",
    ),
    "not TOML, at the end": (
        '[server]\nhost = "',
        "dragoman.toml:2: not valid TOML: Unterminated string at the end of the file",
    ),
    "a key twice": (
        "[server]\nport = 1\nport = 2\n",
        "dragoman.toml:3: not valid TOML: Cannot overwrite a value (column 9)",
    ),
    "not UTF-8": (b"[server]\n# \xff\n", "dragoman.toml:2: is not UTF-8 text"),
    "an unknown table": ("[sever]\n", 'dragoman.toml:1: sever: unknown key; did you mean "server"?'),
    "an unknown key": (
        "\n[server]\nprot = 1\n",
        'dragoman.toml:3: server.prot: unknown key; did you mean "port"?',
    ),
    "a key like none": (
        "zzz = 1\n",
        "dragoman.toml:1: zzz: unknown key; valid are server, upstreams, models",
    ),
    "a dashed key": (
        "[server]\nlog-level = 'info'\n",
        'dragoman.toml:2: server.log-level: unknown key; did you mean "log_level"?',
    ),
    "a key that needs quotes": (
        '[server]\n"a b" = 1\n',
        'dragoman.toml:2: server."a b": unknown key; valid are ' + ", ".join(SERVER_KEYS),
    ),
    "a table that is none": ("server = 1\n", "dragoman.toml:1: server: expected a table, found an integer"),
    "text for a number": (
        '[server]\nport = "80"\n',
        "dragoman.toml:2: server.port: expected an integer, found a string",
    ),
    "a boolean for a number": (
        "[server]\nport = true\n",
        "dragoman.toml:2: server.port: expected an integer, found a boolean",
    ),
    "a float for an integer": (
        "[server]\nworkers = 1.5\n",
        "dragoman.toml:2: server.workers: expected an integer, found a float",
    ),
    "too large": (
        "[server]\nport = 65536\n",
        "dragoman.toml:2: server.port: 65536 is out of range: from 0 to 65535",
    ),
    "too small": (
        "[server]\nport = -1\n",
        "dragoman.toml:2: server.port: -1 is out of range: from 0 to 65535",
    ),
    "too large to print": (
        "[server]\nport = 0x" + "f" * 5000 + "\n",
        "dragoman.toml:2: server.port: this integer is out of range: from 0 to 65535",
    ),
    "too large to read": (
        "[server]\nport = " + "9" * 5000 + "\n",
        "dragoman.toml: has a number or a nesting that is too large",
    ),
    "no number": (
        "[server]\ndrain_s = nan\n",
        "dragoman.toml:2: server.drain_s: nan is out of range: from 0 to 86400 seconds",
    ),
    "infinite": (
        "[server]\ndrain_s = inf\n",
        "dragoman.toml:2: server.drain_s: inf is out of range: from 0 to 86400 seconds",
    ),
    "a date": (
        "[server]\ndrain_s = 2026-11-21\n",
        "dragoman.toml:2: server.drain_s: expected a number of seconds, found a date or time",
    ),
    "a number for a switch": (
        "[server]\nhttp2 = 1\n",
        "dragoman.toml:2: server.http2: expected true or false, found an integer",
    ),
    "a choice misspelt": (
        '[server]\nbackend = "uvlop"\n',
        'dragoman.toml:2: server.backend: unknown backend "uvlop"; did you mean "uvloop"?',
    ),
    "a choice like none": (
        '[server]\nbackend = "q"\n',
        'dragoman.toml:2: server.backend: unknown backend "q"; valid are "asyncio", "uvloop", "trio"',
    ),
    "an empty choice": ('[server]\nbackend = ""\n', "dragoman.toml:2: server.backend: is empty"),
    "a file name with a NUL": (
        '[server]\ncertfile = "a\\u0000"\nkeyfile = "b"\n',
        'dragoman.toml:2: server.certfile: "a\\u0000" is no file name',
    ),
    "no host": (
        '[server]\nhost = "a b"\n',
        'dragoman.toml:2: server.host: "a b" is neither a host name nor an IP address',
    ),
    "a text for a list": (
        '[server]\ncors_origins = "*"\n',
        "dragoman.toml:2: server.cors_origins: expected an array of strings, found a string",
    ),
    "an element of a list": (
        '[server]\ncors_origins = [\n  "https://a.example",\n  "https://b.example/",\n]\n',
        'dragoman.toml:4: server.cors_origins[1]: "https://b.example/" is no origin: '
        'write "https://host" or "https://host:port", or "*" for any',
    ),
    "an element twice": (
        '[server]\ncors_origins = ["*", "*"]\n',
        'dragoman.toml:2: server.cors_origins[1]: "*" stands here twice',
    ),
    "a certificate without a key": (
        '[server]\ncertfile = "a.pem"\n',
        "dragoman.toml:2: server.certfile: needs keyfile as well",
    ),
    "a key without a certificate": (
        '[server]\nkeyfile = "a.pem"\n',
        "dragoman.toml:2: server.keyfile: needs certfile as well",
    ),
    "one bracket": (
        '[upstreams]\nname = "local"\n',
        "dragoman.toml:1: upstreams: expected an array of tables, found a table; "
        "write [[upstreams]] with two brackets, and the name as a key",
    ),
    "an upstream that is no table": (
        "upstreams = [\n1]\n",
        "dragoman.toml:2: upstreams[0]: expected a table, found an integer",
    ),
    "an unknown key of an upstream": (
        LOCAL + 'apikey = "x"\n',
        'dragoman.toml:5: upstreams[0].apikey: unknown key; did you mean "api_key"?',
    ),
    "an unknown protocol": (
        LOCAL.replace("openai_chat", "openai-chat"),
        'dragoman.toml:3: upstreams[0].protocol: unknown protocol "openai-chat"; did you mean "openai_chat"?',
    ),
    "an unknown protocol in the list": (
        LOCAL + 'protocols = ["openai_chat", "anthropic"]\n',
        'dragoman.toml:5: upstreams[0].protocols[1]: unknown protocol "anthropic"; '
        'did you mean "anthropic_messages"?',
    ),
    "the preferred protocol not in the list": (
        LOCAL + 'protocols = ["openai_responses"]\n',
        'dragoman.toml:5: upstreams[0].protocols: does not list "openai_chat", the preferred protocol',
    ),
    "no base URL": (
        LOCAL.replace('base_url = "http://127.0.0.1:9000/v1"\n', ""),
        "dragoman.toml:1: upstreams[0].base_url: missing",
    ),
    "no name": (LOCAL.replace('name = "local"\n', ""), "dragoman.toml:1: upstreams[0].name: missing"),
    "no protocol": (
        LOCAL.replace('protocol = "openai_chat"\n', ""),
        "dragoman.toml:1: upstreams[0].protocol: missing",
    ),
    "a name with a slash": (
        LOCAL.replace('"local"', '"lo/cal"'),
        'dragoman.toml:2: upstreams[0].name: "lo/cal" is no name: '
        "use letters, digits, dots, dashes and underscores",
    ),
    "the simulator's name": (
        LOCAL.replace('"local"', '"sim"'),
        'dragoman.toml:2: upstreams[0].name: "sim" is the built-in simulator; choose another name',
    ),
    "a name twice": (
        LOCAL + "\n" + LOCAL,
        'dragoman.toml:7: upstreams[1].name: "local" is already the name of the upstream in line 2',
    ),
    "a URL without a scheme": (
        LOCAL.replace("http://", ""),
        'dragoman.toml:4: upstreams[0].base_url: "127.0.0.1:9000/v1" has no scheme: '
        'write "http://..." or "https://..."',
    ),
    "another scheme": (
        LOCAL.replace("http://", "ftp://"),
        'dragoman.toml:4: upstreams[0].base_url: "ftp://127.0.0.1:9000/v1" has an unknown scheme; '
        'valid are "http" and "https"',
    ),
    "credentials in a URL": (
        LOCAL.replace("http://", f"http://user:{CANARY}@"),
        'dragoman.toml:4: upstreams[0].base_url: "http://****@127.0.0.1:9000/v1" has credentials in it: '
        "put them into api_key or headers",
    ),
    "credentials that break the URL": (
        LOCAL.replace("http://", f"http://user:{CANARY}/x@"),
        'dragoman.toml:4: upstreams[0].base_url: "http://****@127.0.0.1:9000/v1" is no URL: '
        "its host or port is malformed",
    ),
    "a query in a URL": (
        LOCAL.replace("/v1", "/v1?a=b"),
        'dragoman.toml:4: upstreams[0].base_url: "http://127.0.0.1:9000/v1?a=b" has a query or a fragment: '
        "a base URL ends with its path",
    ),
    "an endpoint": (
        LOCAL.replace("/v1", "/v1/chat/completions"),
        'dragoman.toml:4: upstreams[0].base_url: "http://127.0.0.1:9000/v1/chat/completions" is an endpoint, '
        'not a base URL: leave "/chat/completions" out',
    ),
    "a port that is none": (
        LOCAL.replace(":9000", ":x"),
        'dragoman.toml:4: upstreams[0].base_url: "http://127.0.0.1:x/v1" is no URL: '
        "its host or port is malformed",
    ),
    "port 0": (
        LOCAL.replace(":9000", ":0"),
        'dragoman.toml:4: upstreams[0].base_url: "http://127.0.0.1:0/v1" has port 0',
    ),
    "no host in a URL": (
        LOCAL.replace("127.0.0.1:9000", ""),
        'dragoman.toml:4: upstreams[0].base_url: "http:///v1" names no host',
    ),
    "a line end in a URL": (
        LOCAL.replace(":9000", ":90\\n00"),
        'dragoman.toml:4: upstreams[0].base_url: "http://127.0.0.1:90\\u000a00/v1" is no URL: '
        "it has spaces, control characters or characters outside ASCII",
    ),
    "ourselves": (
        LOCAL.replace(":9000", ":8080"),
        "dragoman.toml:4: upstreams[0].base_url: points at this gateway itself",
    ),
    "ourselves under another name": (
        LOCAL.replace("127.0.0.1:9000", "localhost:8080"),
        "dragoman.toml:4: upstreams[0].base_url: points at this gateway itself",
    ),
    "a variable that is not set": (
        LOCAL + 'api_key = "${LOCAL_KEY}"\n',
        "dragoman.toml:5: upstreams[0].api_key: the environment variable LOCAL_KEY is not set",
    ),
    "a variable in a list": (
        LOCAL + 'models = [\n"a",\n"${NAME}"]\n',
        "dragoman.toml:7: upstreams[0].models[1]: the environment variable NAME is not set",
    ),
    "a shell's variable": (
        LOCAL + 'api_key = "$LOCAL_KEY"\n',
        'dragoman.toml:5: upstreams[0].api_key: a "$" alone: write "${NAME}" for a variable, '
        '"$$" for a dollar sign',
    ),
    "a default as in a shell": (
        LOCAL + 'api_key = "${KEY:-x}"\n',
        'dragoman.toml:5: upstreams[0].api_key: "${KEY:-x}" is neither "${NAME}" nor "${file:PATH}"',
    ),
    "a file that is absent": (
        LOCAL + 'api_key = "${file:absent}"\n',
        "dragoman.toml:5: upstreams[0].api_key: cannot read the file absent: No such file or directory",
    ),
    "a file without a name": (
        LOCAL + 'api_key = "${file:}"\n',
        'dragoman.toml:5: upstreams[0].api_key: "${file:}" names no file',
    ),
    "a file that is a directory": (
        LOCAL + 'api_key = "${file:.}"\n',
        "dragoman.toml:5: upstreams[0].api_key: cannot read the file .: Is a directory",
    ),
    "an endless file": (
        LOCAL + 'api_key = "${file:/dev/zero}"\n',
        f"dragoman.toml:5: upstreams[0].api_key: the file /dev/zero is larger than {MAX_FILE_BYTES} bytes",
    ),
    "an empty key": (LOCAL + 'api_key = ""\n', "dragoman.toml:5: upstreams[0].api_key: is empty"),
    "a key of two lines": (
        LOCAL + f'api_key = "{CANARY}\\n{CANARY}"\n',
        "dragoman.toml:5: upstreams[0].api_key: has spaces, line ends or characters outside ASCII, "
        "which no key has",
    ),
    "a header with a line end": (
        LOCAL + f'headers = {{ x-team = "{CANARY}\\r\\nx: y" }}\n',
        "dragoman.toml:5: upstreams[0].headers.x-team: has line ends or other characters "
        "that no header may have",
    ),
    "a header that frames": (
        LOCAL + '[upstreams.headers]\nHost = "a"\n',
        "dragoman.toml:6: upstreams[0].headers.Host: this header belongs to the connection and cannot be set",
    ),
    "a header whose reference fails": (
        LOCAL + '[upstreams.headers]\nx-a = "${NOPE}"\n',
        "dragoman.toml:6: upstreams[0].headers.x-a: the environment variable NOPE is not set",
    ),
    "a model whose reference fails": (
        '[models]\nfast = "${NOPE}"\n',
        "dragoman.toml:2: models.fast: the environment variable NOPE is not set",
    ),
    "a header that is a setting": (
        LOCAL + '[upstreams.headers]\nAnthropic-Version = "2026-10-21"\n',
        "dragoman.toml:6: upstreams[0].headers.Anthropic-Version: this header has a setting of its own: "
        "anthropic_version",
    ),
    "a value that is not of the three": (
        LOCAL + 'reasoning_field = "thoughts"\n',
        'dragoman.toml:5: upstreams[0].reasoning_field: unknown reasoning_field "thoughts"; valid are '
        '"reasoning_content", "reasoning", "none"',
    ),
    "a header's name": (
        LOCAL + '[upstreams.headers]\n"a b" = "a"\n',
        'dragoman.toml:6: upstreams[0].headers."a b": is no header name',
    ),
    "a header twice": (
        LOCAL + '[upstreams.headers]\nA = "a"\na = "a"\n',
        "dragoman.toml:7: upstreams[0].headers.a: stands here twice: names of headers ignore case",
    ),
    "a header that is a number": (
        LOCAL + "headers.a = 1\n",
        "dragoman.toml:5: upstreams[0].headers.a: expected a string, found an integer",
    ),
    "a proxy's scheme": (
        LOCAL + f'proxy = "ftp://user:{CANARY}@proxy"\n',
        "dragoman.toml:5: upstreams[0].proxy: has an unknown scheme; "
        'valid are "http", "https", "socks5", "socks5h"',
    ),
    "a time of nothing": (
        LOCAL + "connect_s = 0\n",
        "dragoman.toml:5: upstreams[0].connect_s: 0 is out of range: from 0.001 to 3600 seconds",
    ),
    "an alias of nobody": (
        LOCAL + '[models]\n"gpt-4.1" = "locol/x"\n',
        'dragoman.toml:6: models."gpt-4.1": unknown upstream "locol"; did you mean "local"?',
    ),
    "an alias like nobody": (
        LOCAL + '[models]\na = "zzz/x"\n',
        'dragoman.toml:6: models.a: unknown upstream "zzz"; there are local, sim',
    ),
    "an alias without a model": (
        LOCAL + '[models]\na = "local"\n',
        'dragoman.toml:6: models.a: "local" is not of the form "upstream/model"',
    ),
    "an alias that is no text": (
        LOCAL + "[models]\na = 1\n",
        "dragoman.toml:6: models.a: expected a string, found an integer",
    ),
    "an alias with a dot": (
        LOCAL + '[models]\ngpt-4.1 = "local/x"\n',
        "dragoman.toml:6: models.gpt-4: expected a string, found a table; write names with dots in quotes",
    ),
    "an alias to the simulator that is off": (
        "server.simulator = false\n" + LOCAL + '[models]\na = "sim/echo"\n',
        'dragoman.toml:7: models.a: unknown upstream "sim"; there are local',
    ),
    "nothing to serve": (
        "[server]\nsimulator = false\n",
        "dragoman.toml:2: server.simulator: is off, and there is no upstream: add [[upstreams]] to a file "
        "or set one of OPENAI_API_KEY, ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN, DEEPSEEK_API_KEY, "
        "OPENROUTER_API_KEY, "
        "GROQ_API_KEY, XAI_API_KEY, MISTRAL_API_KEY",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_exact_line(name: str) -> None:
    text, line = FAULTS[name]
    assert errors(text) == [line]
    assert CANARY not in line


def test_all_faults_are_reported_at_once_in_the_order_of_their_places() -> None:
    text = """\
[models]
fast = "lokal/x"

[[upstreams]]
name = "local"
protocol = "openai-chat"
base_url = "localhost"
api_key = "${NOT_SET}"

[server]
port = 99999
"""
    assert errors(text, {"DRAGOMAN_WORKERS": "many"}, drain_s="soon") == [
        'dragoman.toml:2: models.fast: unknown upstream "lokal"; did you mean "local"?',
        'dragoman.toml:6: upstreams[0].protocol: unknown protocol "openai-chat"; did you mean "openai_chat"?',
        'dragoman.toml:7: upstreams[0].base_url: "localhost" has no scheme: '
        'write "http://..." or "https://..."',
        "dragoman.toml:8: upstreams[0].api_key: the environment variable NOT_SET is not set",
        "dragoman.toml:11: server.port: 99999 is out of range: from 0 to 65535",
        'environment: DRAGOMAN_WORKERS: expected an integer, found "many"',
        'command line: --drain-s: expected a number of seconds, found "soon"',
    ]


@pytest.mark.parametrize(
    ("variable", "text", "line"),
    [
        ("DRAGOMAN_PORT", "http", 'environment: DRAGOMAN_PORT: expected an integer, found "http"'),
        ("DRAGOMAN_HTTP2", "maybe", 'environment: DRAGOMAN_HTTP2: expected true or false, found "maybe"'),
        (
            "DRAGOMAN_BACKEND",
            "tri",
            'environment: DRAGOMAN_BACKEND: unknown backend "tri"; did you mean "trio"?',
        ),
        (
            "OPENAI_API_KEY",
            f"{CANARY} {CANARY}",
            "environment: OPENAI_API_KEY: has spaces, line ends or characters outside ASCII, "
            "which no key has",
        ),
    ],
)
def test_a_fault_in_the_environment_names_the_variable(variable: str, text: str, line: str) -> None:
    assert errors("", {variable: text}) == [line]


def test_a_provider_url_that_is_wrong_names_its_variable() -> None:
    found = errors("", {"OPENAI_API_KEY": CANARY, "OPENAI_BASE_URL": "localhost:9/v1"})
    assert found == [
        'environment: OPENAI_BASE_URL: "localhost:9/v1" has no scheme: write "http://..." or "https://..."'
    ]


def test_a_provider_url_that_is_none_at_all() -> None:
    assert errors("", {"OPENAI_API_KEY": CANARY, "OPENAI_BASE_URL": "http://[::"}) == [
        'environment: OPENAI_BASE_URL: "http://[::" is no URL: its host or port is malformed'
    ]


def test_an_interpolated_file_that_is_no_text() -> None:
    Path("key").write_bytes(b"\xff" + CANARY.encode())
    (line,) = errors(LOCAL + 'api_key = "${file:key}"\n')
    assert line == "dragoman.toml:5: upstreams[0].api_key: the file key is not UTF-8 text"


def test_the_simulator_turned_off_on_the_command_line() -> None:
    (line,) = errors("", simulator="false")
    assert line.startswith("command line: --simulator: is off, and there is no upstream")


def test_a_certificate_on_the_command_line_needs_a_key_from_anywhere() -> None:
    assert errors("", certfile="c.pem") == ["command line: --certfile: needs keyfile as well"]
    server = load_text("", {"DRAGOMAN_KEYFILE": "k.pem"}, certfile="c.pem").settings.server
    assert server.tls


def test_a_named_file_that_is_absent() -> None:
    with pytest.raises(ConfigError) as caught:
        load(environ={}, path="absent.toml")
    assert str(caught.value) == "absent.toml: cannot read the configuration: No such file or directory"


def test_a_file_that_is_too_large() -> None:
    assert errors(b"#" * (MAX_CONFIG_BYTES + 1)) == [
        f"dragoman.toml: is larger than {MAX_CONFIG_BYTES} bytes"
    ]
    assert load_text(b"#" * MAX_CONFIG_BYTES).settings.server == ServerSettings()


def test_deep_nesting_is_an_error_and_no_crash() -> None:
    assert errors("a = " + "[" * 100_000) == ["dragoman.toml: has a number or a nesting that is too large"]


# Precedence.


def test_without_anything_there_are_defaults_and_the_simulator() -> None:
    loaded = load(environ={})
    assert loaded.path is None
    assert loaded.settings.server == ServerSettings()
    assert loaded.settings.upstreams == ()
    assert loaded.settings.upstream("sim") is not None
    assert loaded.origins == {}
    assert loaded.warnings == ()


def test_flag_beats_environment_beats_file_beats_default() -> None:
    text, environ = "[server]\nport = 1\n", {"DRAGOMAN_PORT": "2"}
    assert load(environ={}).settings.server.port == 8080
    assert load_text(text).settings.server.port == 1
    assert load_text(text, environ).settings.server.port == 2
    loaded = load_text(text, environ, port="3")
    assert loaded.settings.server.port == 3
    assert str(loaded.origins["server.port"]) == "--port"


def test_a_hidden_value_is_still_checked() -> None:
    assert errors("[server]\nport = 'x'\n", {"DRAGOMAN_PORT": "y"}, port="3") == [
        "dragoman.toml:2: server.port: expected an integer, found a string",
        'environment: DRAGOMAN_PORT: expected an integer, found "y"',
    ]


def test_an_empty_variable_is_no_variable() -> None:
    loaded = load_text("", {"DRAGOMAN_PORT": "", "OPENAI_API_KEY": "", "DRAGOMAN_CONFIG": ""})
    assert loaded.settings.server.port == 8080
    assert loaded.settings.upstreams == ()


def test_the_file_is_named_by_flag_then_variable_then_default() -> None:
    for name, port in (("flag", 1), ("variable", 2), ("dragoman", 3)):
        Path(name + ".toml").write_text(f"server.port = {port}\n")
    environ = {"DRAGOMAN_CONFIG": "variable.toml"}
    assert load(environ=environ, path="flag.toml").settings.server.port == 1
    assert load(environ=environ).settings.server.port == 2
    assert load(environ={}).settings.server.port == 3


SAMPLES = {
    "host": ("::1", "::1"),
    "port": ("1", 1),
    "backend": ("trio", "trio"),
    "workers": ("2", 2),
    "certfile": ("c.pem", "c.pem"),
    "keyfile": ("k.pem", "k.pem"),
    "http2": ("off", False),
    "keepalive_s": ("2.5", 2.5),
    "cors_origins": ("https://A.example, http://b:1", ("https://a.example", "http://b:1")),
    "max_body_bytes": ("2048", 2048),
    "drain_s": ("0", 0.0),
    "loss_policy": ("refuse", "refuse"),
    "default_max_tokens": ("7", 7),
    "simulator": ("no", False),
    "log_level": ("debug", "debug"),
    "log_format": ("json", "json"),
}


def test_every_server_setting_has_a_variable_and_a_flag() -> None:
    assert set(SAMPLES) == set(SERVER_KEYS)
    key = {"OPENAI_API_KEY": CANARY}
    by_variable = load(environ=key | {f"DRAGOMAN_{n.upper()}": text for n, (text, _) in SAMPLES.items()})
    by_flag = load(environ=key, flags={name: text for name, (text, _) in SAMPLES.items()})
    expected = {name: value for name, (_, value) in SAMPLES.items()}
    assert dataclasses.asdict(by_variable.settings.server) == expected
    assert dataclasses.asdict(by_flag.settings.server) == expected
    assert str(by_variable.origins["server.log_level"]) == "environment DRAGOMAN_LOG_LEVEL"


# The file.

FULL = """\
[server]
host = "0.0.0.0"
cors_origins = []

[[upstreams]]
name = "local"
protocols = ["openai_responses", "openai_chat"]
base_url = "http://127.0.0.1:9000/v1/"
api_key = "${LOCAL_KEY}"
models = ["qwen3", "qwen3-${SIZE}"]
proxy = "http://user:${LOCAL_KEY}@proxy:3128"
loss_policy = "refuse"
auth = "x-api-key"
read_s = 5

  [upstreams.headers]
  X-Price = "5$$"
  X-Team = "${file:team}"

[[upstreams]]
name = "claude"
protocol = "anthropic_messages"
base_url = "https://claude.example/${ACCOUNT}"

[models]
"claude-sonnet-4-6" = "local/qwen3"
"gpt-*" = "claude/claude-opus-4-8"
"""


def test_a_whole_file() -> None:
    Path("team").write_text("red\n")
    environ = {
        "LOCAL_KEY": CANARY,
        "SIZE": "8b",
        "ACCOUNT": "a1",
        "OPENAI_API_KEY": "unused-as-the-file-names-all",
    }
    loaded = load_text(FULL, environ)
    assert loaded.settings.server == ServerSettings(host="0.0.0.0", cors_origins=())
    local, claude = loaded.settings.upstreams
    assert local == UpstreamSettings(
        name="local",
        protocol="openai_responses",
        protocols=("openai_responses", "openai_chat"),
        base_url="http://127.0.0.1:9000/v1",
        api_key=Secret(CANARY),
        models=("qwen3", "qwen3-8b"),
        proxy=Secret(f"http://user:{CANARY}@proxy:3128"),
        headers={"x-price": Secret("5$"), "x-team": Secret("red")},
        loss_policy="refuse",
        auth="x-api-key",
        read_s=5.0,
        max_tokens_field="max_tokens",
    )
    assert claude.protocols == ("anthropic_messages",)
    assert claude.base_url == "https://claude.example/a1"
    assert loaded.settings.models == {"claude-sonnet-4-6": "local/qwen3", "gpt-*": "claude/claude-opus-4-8"}
    assert loaded.settings.upstream("claude") is claude
    assert loaded.settings.upstream("nobody") is None
    assert str(loaded.origins["upstreams[0].api_key"]) == "dragoman.toml:9, LOCAL_KEY"
    assert str(loaded.origins["upstreams[0].headers.x-team"]) == "dragoman.toml:18, file:team"
    (warning,) = loaded.warnings
    assert warning == (
        "server.host: 0.0.0.0 is reachable from other machines, and there are no client keys: "
        "whoever can connect can use your upstreams"
    )


def test_paths_in_a_file_start_at_the_file() -> None:
    Path("etc/keys").mkdir(parents=True)
    Path("etc/keys/local").write_text(CANARY)
    Path("etc/d.toml").write_text(
        '[server]\ncertfile = "c.pem"\nkeyfile = "/k.pem"\n' + LOCAL + 'api_key = "${file:keys/local}"\n'
    )
    settings = load(environ={}, path="etc/d.toml").settings
    assert (settings.server.certfile, settings.server.keyfile) == ("etc/c.pem", "/k.pem")
    assert settings.upstreams[0].api_key == Secret(CANARY)


def test_a_byte_order_mark_is_no_key() -> None:
    assert load_text(b"\xef\xbb\xbfserver.port = 1\n").settings.server.port == 1


def test_what_a_variable_holds_is_not_expanded_again() -> None:
    settings = load_text(LOCAL + 'api_key = "${A}"\n', {"A": "$${A}"}).settings
    assert settings.upstreams[0].api_key == Secret("$${A}")


def test_names_that_come_from_variables_are_known_to_aliases() -> None:
    text = LOCAL.replace('"local"', '"${NAME}"') + '[models]\na = "mine/x"\n'
    assert load_text(text, {"NAME": "mine"}).settings.models == {"a": "mine/x"}


@pytest.mark.parametrize(
    ("host", "warned"),
    [
        ("127.0.0.1", 0),
        ("127.9.9.9", 0),
        ("::1", 0),
        ("localhost", 0),
        ("::", 1),
        ("10.0.0.1", 1),
        ("box", 1),
    ],
)
def test_a_public_bind_is_warned_of(host: str, warned: int) -> None:
    assert len(load(environ={}, flags={"host": host}).warnings) == warned


def test_a_messages_upstream_with_v1_is_warned_of() -> None:
    loaded = load_text(LOCAL.replace("openai_chat", "anthropic_messages"))
    assert loaded.warnings == (
        "upstream local: the base URL of a Messages upstream is written without /v1, "
        "requests would go to .../v1/v1/messages",
    )


@pytest.mark.parametrize(
    ("protocol", "base_url", "for_openai", "for_anthropic"),
    [
        ("openai_chat", "http://a/v1", "http://a/v1", "http://a"),
        ("openai_responses", "http://a/x/v1/", "http://a/x/v1", "http://a/x"),
        ("openai_chat", "http://a", "http://a", "http://a"),
        ("anthropic_messages", "http://a", "http://a/v1", "http://a"),
    ],
)
def test_one_base_url_serves_both_conventions(
    protocol: str, base_url: str, for_openai: str, for_anthropic: str
) -> None:
    upstream = UpstreamSettings(name="a", protocol=protocol, base_url=base_url)
    assert upstream.base_url_for("openai_chat") == for_openai
    assert upstream.base_url_for("openai_responses") == for_openai
    assert upstream.base_url_for("anthropic_messages") == for_anthropic


# Upstreams that the environment is enough for.


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
def test_a_key_in_the_environment_makes_an_upstream(provider: object) -> None:
    assert isinstance(provider, type(PROVIDERS[0]))
    for variable, auth in provider.keys:
        (upstream,) = load(environ={variable: CANARY}).settings.upstreams
        assert (upstream.name, upstream.base_url, upstream.auth) == (provider.name, provider.base_url, auth)
        assert (upstream.protocol, upstream.protocols) == (provider.protocol, provider.protocols)
        assert upstream.api_key == Secret(CANARY)


@pytest.mark.parametrize(
    ("url", "protocols", "max_tokens_field"),
    [
        (None, ("openai_chat", "openai_responses"), "max_completion_tokens"),
        ("https://eu.api.openai.com/v1", ("openai_chat", "openai_responses"), "max_completion_tokens"),
        ("http://127.0.0.1:11434/v1", ("openai_chat",), "max_tokens"),
        ("https://api.openai.com.evil.example/v1", ("openai_chat",), "max_tokens"),
    ],
)
def test_what_an_openai_key_speaks(
    url: str | None, protocols: tuple[str, ...], max_tokens_field: str
) -> None:
    environ = {"OPENAI_API_KEY": CANARY} | ({"OPENAI_BASE_URL": url} if url else {})
    (upstream,) = load(environ=environ).settings.upstreams
    assert upstream.protocols == protocols
    assert upstream.max_tokens_field == max_tokens_field


# What an upstream takes where nobody said it, by its host: how the upstream came to be makes no difference.
OPENAI_TAKES = {
    "max_tokens_field": "max_completion_tokens",
    "reasoning_field": "none",
    "custom_tools": True,
    "developer_role": True,
    "mid_system": True,
    "cache_marks": True,
}
COMPATIBLE_TAKES = {
    "max_tokens_field": "max_tokens",
    "reasoning_field": "reasoning_content",
    "custom_tools": None,
    "developer_role": False,
    "mid_system": False,
    "cache_marks": False,
}
TAKES = {
    "https://api.openai.com/v1": OPENAI_TAKES,
    "https://eu.api.openai.com/v1": OPENAI_TAKES,
    "https://api.openai.com.evil.example/v1": COMPATIBLE_TAKES,
    "https://notapi.openai.com/v1": COMPATIBLE_TAKES,
    "http://127.0.0.1:9000/v1": COMPATIBLE_TAKES,
    "http://[::1]:9000/v1": COMPATIBLE_TAKES,
    "https://api.deepseek.com/v1": COMPATIBLE_TAKES,
    "https://api.x.ai/v1": COMPATIBLE_TAKES,
    "https://openrouter.ai/api/v1": COMPATIBLE_TAKES | {"reasoning_field": "reasoning"},
    "https://api.groq.com/openai/v1": COMPATIBLE_TAKES | {"reasoning_field": "reasoning"},
    "https://api.mistral.ai/v1": COMPATIBLE_TAKES | {"reasoning_field": "none"},
}


@pytest.mark.parametrize("url", TAKES)
def test_what_a_host_takes(url: str) -> None:
    in_file = load_text(LOCAL.replace("http://127.0.0.1:9000/v1", url)).settings.upstreams[0]
    Path("dragoman.toml").unlink()
    found = load(environ={"OPENAI_API_KEY": CANARY, "OPENAI_BASE_URL": url}).settings.upstreams[0]
    for upstream in (in_file, found):
        assert {name: getattr(upstream, name) for name in TAKES[url]} == TAKES[url]


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
def test_what_a_provider_takes_are_settings_that_a_file_could_have(provider: Provider) -> None:
    for name, value in provider.takes.items():
        assert check(UPSTREAM_KEYS[name], value, value) == value


def test_what_is_set_wins_over_what_the_host_takes() -> None:
    own = "custom_tools = false\nmax_tokens_field = 'max_tokens'\nreasoning_field = 'reasoning'\n"
    (upstream,) = load_text(LOCAL.replace("127.0.0.1:9000", "api.openai.com") + own).settings.upstreams
    assert (upstream.custom_tools, upstream.developer_role) == (False, True)
    assert (upstream.max_tokens_field, upstream.reasoning_field) == ("max_tokens", "reasoning")


@pytest.mark.parametrize(
    ("text", "takes"),
    [
        ("", True),
        ("anthropic_version = '2023-06-01'", True),
        ("anthropic_version = '2026-10-21'", False),
        ("anthropic_version = 'vertex-2023-10-16'", True),
        ("anthropic_version = '2026-10-21'\nsampling = true", True),
        ("sampling = false", False),
    ],
)
def test_sampling_goes_with_the_version(text: str, takes: bool) -> None:
    (upstream,) = load_text(LOCAL + text).settings.upstreams
    assert upstream.takes_sampling is takes


def test_a_body_may_be_as_large_as_the_core_reads() -> None:
    assert MAX_BODY_BYTES == MAX_DOCUMENT_BYTES
    assert ServerSettings().max_body_bytes == SERVER_KEYS["max_body_bytes"].high == MAX_BODY_BYTES


def test_the_sdk_variable_that_points_at_us_makes_no_loop() -> None:
    environ = {"ANTHROPIC_AUTH_TOKEN": "any", "ANTHROPIC_BASE_URL": "http://localhost:8080"}
    loaded = load(environ=environ)
    assert loaded.settings.upstreams == ()
    assert loaded.warnings == (
        "ANTHROPIC_BASE_URL points at this gateway itself, "
        "so ANTHROPIC_AUTH_TOKEN makes no upstream anthropic",
    )
    assert len(load(environ=environ, flags={"port": "8081"}).settings.upstreams) == 1


def test_a_file_that_names_upstreams_names_them_all() -> None:
    names = [upstream.name for upstream in load_text(LOCAL, {"OPENAI_API_KEY": CANARY}).settings.upstreams]
    assert names == ["local"]
    assert load_text("upstreams = []\n", {"OPENAI_API_KEY": CANARY}).settings.upstreams == ()


def test_aliases_may_point_at_found_upstreams() -> None:
    loaded = load_text('[models]\nfast = "openai/gpt-5-mini"\n', {"OPENAI_API_KEY": CANARY})
    assert loaded.settings.models == {"fast": "openai/gpt-5-mini"}


# Secrets.


def test_a_secret_shows_itself_to_reveal_alone() -> None:
    secret = Secret(CANARY)
    assert secret.reveal() == CANARY
    for text in (
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret!r:>60}",
        repr({"a": [secret]}),
    ):
        assert CANARY not in text
        assert CANARY[-4:] in text
        assert CANARY[-5:] not in text
    with pytest.raises(TypeError):
        json.dumps(secret)
    with pytest.raises(TypeError):
        "".join([secret])  # type: ignore[list-item]


@pytest.mark.parametrize("value", ["", "a", "12345678", "x" * 23])
def test_a_short_secret_shows_nothing(value: str) -> None:
    assert str(Secret(value)) == "****"
    assert bool(Secret(value)) is bool(value)


def test_secrets_compare_by_value_and_travel_to_workers() -> None:
    secret = Secret(CANARY)
    assert secret == Secret(CANARY)
    assert secret != Secret("other")
    assert secret != CANARY
    assert hash(secret) == hash(Secret(CANARY))
    assert pickle.loads(pickle.dumps(secret)) == secret
    assert copy.deepcopy(secret) == secret


def test_a_canary_is_in_no_output(caplog: pytest.LogCaptureFixture) -> None:
    Path("team").write_text(CANARY)
    text = FULL.replace("${ACCOUNT}", "${LOCAL_KEY}")
    loaded = load_text(text, {"LOCAL_KEY": CANARY, "SIZE": "8b"})
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("test").info("%s %r", loaded.settings.upstreams[0], loaded.settings.upstreams[0])
    outputs = [
        repr(loaded.settings.upstreams[0]),
        str(loaded.settings.upstreams[0].headers),
        "\n".join(_show_config.lines(loaded, with_origin=True)),
        "\n".join(_show_config.lines(loaded, with_origin=False)),
        caplog.text,
    ]
    for output in outputs:
        assert CANARY not in output
    assert pickle.loads(pickle.dumps(loaded.settings)) == loaded.settings


# Whatever the fault, a value that came out of a variable is not quoted.
@pytest.mark.parametrize("key", [*UPSTREAM_KEYS, "headers"])
@pytest.mark.parametrize(
    "value", [CANARY, f"http://u:{CANARY}/@h", f"{CANARY}://h", f"{CANARY}\n", f"http://h:{CANARY}"]
)
def test_no_error_quotes_what_a_variable_held(key: str, value: str) -> None:
    faulty = {
        "protocols": '["openai_chat", "${V}"]',
        "models": '["${V}", "${V}"]',
        "headers": '{ "${V}" = "a", b = "${V}\\n" }',
    }.get(key, '"${V}"')
    table = {"name": '"local"', "protocol": '"openai_chat"', "base_url": '"http://a/v1"', key: faulty}
    text = "[[upstreams]]\n" + "".join(f"{name} = {toml}\n" for name, toml in table.items())
    message = ""
    try:
        load_text(text, {"V": value})
    except ConfigError as error:
        message = f"{error} {error!r}"
    assert CANARY not in message


def test_no_error_quotes_an_expanded_alias_or_server_setting() -> None:
    text = (
        '[server]\nhost = "${V}"\ncors_origins = ["http://${V}"]\nbackend = "${V}"\n[models]\na = "${V}/x"\n'
    )
    found = "\n".join(errors(text, {"V": CANARY + " "}))
    assert found.count("\n") == 3
    assert CANARY not in found


# config show.


def test_show_prints_each_setting_with_its_origin() -> None:
    Path("team").write_text("red")
    loaded = load_text(FULL, {"LOCAL_KEY": CANARY, "SIZE": "8b", "ACCOUNT": "a1"}, workers="2")
    shown = {row.key: (row.value, str(row.origin)) for row in _show_config.rows(loaded)}
    assert shown["server.host"] == ('"0.0.0.0"', "dragoman.toml:2")
    assert shown["server.workers"] == ("2", "--workers")
    assert shown["server.port"] == ("8080", "default")
    assert shown["upstreams[0].api_key"] == ('"****q7zk"', "dragoman.toml:9, LOCAL_KEY")
    assert shown["upstreams[0].models"] == ('["qwen3", "qwen3-8b"]', "dragoman.toml:10, SIZE")
    assert shown["upstreams[0].headers.x-team"] == ('"****"', "dragoman.toml:18, file:team")
    assert shown["upstreams[1].base_url"] == (
        '"https://claude.example/${ACCOUNT}"',
        "dragoman.toml:23, ACCOUNT",
    )
    assert shown["models.claude-sonnet-4-6"] == ('"local/qwen3"', "dragoman.toml:26")
    assert shown['models."gpt-*"'] == ('"claude/claude-opus-4-8"', "dragoman.toml:27")


def test_show_does_not_shorten_values() -> None:
    models = ["m" * 300]
    loaded = load_text(LOCAL + f"models = {models}\n")
    assert f'upstreams[0].models = ["{models[0]}"]' in list(_show_config.lines(loaded, with_origin=False))


# The tables.


def test_every_default_passes_its_own_check() -> None:
    defaults = dataclasses.asdict(ServerSettings())
    assert set(defaults) == set(SERVER_KEYS)
    lines = [
        f"{name} = {json.dumps(list(value) if isinstance(value, tuple) else value)}"
        for name, value in defaults.items()
        if value is not None
    ]
    assert load_text("[server]\n" + "\n".join(lines)).settings.server == ServerSettings()


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ServerSettings().port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("word", "valid", "found"),
    [
        ("prot", ("port", "host"), "port"),
        ("OPENAI-CHAT", ("openai_chat",), "openai_chat"),
        ("zzz", ("port",), None),
        ("x" * 1000, ("x" * 1000,), None),
    ],
)
def test_the_nearest_name(word: str, valid: tuple[str, ...], found: str | None) -> None:
    assert nearest(word, valid) == found


# The locator.

LINES = [
    # text, key path, line
    ("a = 1\nb = 2", ("b",), 2),
    ("a.b.c = 1", ("a", "b"), 1),
    ("\r\n\r\n[t]\r\nk = 1", ("t", "k"), 4),
    ("# [x]\n[t] # c\nk = 1", ("t", "k"), 3),
    ("[t.\"a.b\"]\n'k' = 1", ("t", "a.b", "k"), 2),
    ('"\\u0061\\tb" = 1', ("a\tb",), 1),
    ('"\\U0001F600" = 1', ("\U0001f600",), 1),
    ("[ a . b ]\nc . d = 1", ("a", "b", "c", "d"), 2),
    ("[[t]]\nk = 1\n[[t]]\nk = 2", ("t", 1, "k"), 4),
    ("[[t]]\n[t.s]\nk = 1\n[[t]]\n[t.s]\nk = 1", ("t", 1, "s", "k"), 6),
    ("[[t]]\n[[t.u]]\n[[t.u]]\nk = 1\n[[t]]\n[[t.u]]\nk = 1", ("t", 1, "u", 0, "k"), 7),
    ("t = { a = 1, b = { c = 2 } }", ("t", "b", "c"), 1),
    ("t = [ # ]\n 1, # ,\n 2,\n]\nk = 1", ("t", 1), 3),
    ("t = [[1], [\n2]]\nk = 1", ("t", 1, 0), 2),
    ("t = [{a = 1}, {a = 2,\n b = 3}]", ("t", 1, "a"), 1),
    ('s = """\nk = 0 \\""" "" """\nk = 1', ("k",), 3),
    ("s = '''\nk = 0\\''''\nk = 1", ("k",), 3),
    ('s = """"two"""""\nk = 1', ("k",), 2),
    ('s = "#\\"[t]"\nk = 1', ("k",), 2),
    ("s = '\\'\nk = 1", ("k",), 2),
    ("d = 2026-11-21 10:00:00Z # x\nk = inf", ("k",), 2),
    ("k=1#c", ("k",), 1),
    ("[t]\nk = 1", ("t", "absent"), 1),
    ("[t]\nk = 1", ("absent",), None),
]


@pytest.mark.parametrize(("text", "path", "line"), LINES)
def test_the_line_of_a_key(text: str, path: tuple[str | int, ...], line: int | None) -> None:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        # Line ends in inline tables are new in TOML 1.1; the walk knows both versions.
        assert text == "t = [{a = 1}, {a = 2,\n b = 3}]"
    assert TomlLines(text).line_of(path) == line


def paths_of(value: object, path: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    children: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))
    return {path}.union(*(paths_of(child, (*path, name)) for name, child in children)) - {()}


def toml_key(key: str) -> str:
    return '"' + "".join(f"\\U{ord(c):08x}" if c in '"\\' or not c.isprintable() else c for c in key) + '"'


def toml_value(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_key(k)} = {toml_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + "".join(f"\n  {toml_value(v)}, # ]}}" for v in value) + "\n]"
    if isinstance(value, str):
        return toml_key(value) if len(value) % 2 else '"""\n' + toml_key(value)[1:-1] + '"""'
    return json.dumps(value)


KEYS = st.text(st.characters(codec="utf-8"), max_size=6)
SCALARS = st.one_of(st.integers(-9, 9), st.booleans(), KEYS)
# An inline table must stand in one line, so it holds no arrays.
VALUES = st.recursive(
    st.one_of(SCALARS, st.dictionaries(KEYS, st.one_of(st.integers(0, 9), st.booleans()), max_size=3)),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)
TABLES = st.dictionaries(KEYS, VALUES, max_size=4)


@given(
    top=TABLES,
    tables=st.dictionaries(KEYS, st.one_of(TABLES, st.lists(TABLES, min_size=1, max_size=3)), max_size=3),
)
def test_every_key_of_any_document_is_found_where_it_stands(
    top: dict[str, object], tables: dict[str, object]
) -> None:
    lines: list[str] = []
    expected: dict[tuple[str | int, ...], int] = {}

    def add(path: tuple[str | int, ...], text: str) -> None:
        expected[path] = len(lines) + 1
        lines.extend(text.split("\n"))

    for key, value in top.items():
        add((key,), f"{toml_key(key)} = {toml_value(value)}")
    for name, table in tables.items():
        if name in top:
            continue
        for index, element in enumerate(table if isinstance(table, list) else [table]):
            double = isinstance(table, list)
            path: tuple[str | int, ...] = (name, index) if double else (name,)
            add(path, f"[[{toml_key(name)}]]" if double else f"[{toml_key(name)}]")
            for key, value in element.items():
                add((*path, key), f"{toml_key(key)} = {toml_value(value)}")
    text = "\n".join(lines)
    document = tomllib.loads(text)
    found = TomlLines(text)
    for path, line in expected.items():
        assert found.line_of(path) == line
    for path in paths_of(document):
        assert path in found
