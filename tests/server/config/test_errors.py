"""Configuration: TOML text in, exact error lines out."""

from pathlib import Path

import pytest
from config_text import CANARY, LOCAL, errors, load_text

from dragoman_server.config.interpolate import MAX_FILE_BYTES
from dragoman_server.config.loader import _TABLES, load
from dragoman_server.config.problems import ConfigError
from dragoman_server.config.sources import MAX_FILE_BYTES as MAX_CONFIG_BYTES
from dragoman_server.settings import ServerSettings, keys_of


@pytest.fixture(autouse=True)
def _working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# Each text has one error, which is reported as exactly this line.
INVALID = {
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
        "dragoman.toml:1: zzz: unknown key; valid keys are " + ", ".join(_TABLES),
    ),
    "a dashed key": (
        "[server]\nlog-level = 'info'\n",
        'dragoman.toml:2: server.log-level: unknown key; did you mean "log_level"?',
    ),
    "a key that needs quotes": (
        '[server]\n"a b" = 1\n',
        'dragoman.toml:2: server."a b": unknown key; valid keys are ' + ", ".join(keys_of(ServerSettings)),
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
        "dragoman.toml: has a number that is too large, or is nested too deeply",
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
        'dragoman.toml:2: server.backend: unknown backend "q"; valid values are "asyncio", "uvloop", "trio"',
    ),
    "an empty choice": ('[server]\nbackend = ""\n', "dragoman.toml:2: server.backend: is empty"),
    "a file name with a NUL": (
        '[server]\ncertfile = "a\\u0000"\nkeyfile = "b"\n',
        'dragoman.toml:2: server.certfile: "a\\u0000" is not a file name',
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
        'dragoman.toml:4: server.cors_origins[1]: "https://b.example/" is not an origin: '
        'write "https://host" or "https://host:port", "loopback" for the pages of this machine, or "*" for any',
    ),
    "a host with its port": (
        '[server]\nallowed_hosts = ["gate.lan:8080"]\n',
        'dragoman.toml:2: server.allowed_hosts[0]: "gate.lan:8080" is not a host name: '
        'write it without scheme and port, such as "*.example.com"',
    ),
    "an element twice": (
        '[server]\ncors_origins = ["*", "*"]\n',
        'dragoman.toml:2: server.cors_origins[1]: "*" is listed twice',
    ),
    "a certificate without a key": (
        '[server]\ncertfile = "a.pem"\n',
        "dragoman.toml:2: server.certfile: needs keyfile as well",
    ),
    "a key without a certificate": (
        '[server]\nkeyfile = "a.pem"\n',
        "dragoman.toml:2: server.keyfile: needs certfile as well",
    ),
    "a default model that leads nowhere": (
        '[server]\ndefault_model = "fasst"\n[[upstreams]]\nname = "a"\nprotocol = "openai_chat"\n'
        'base_url = "http://a"\n[[upstreams]]\nname = "b"\nprotocol = "openai_chat"\nbase_url = "http://b"\n'
        '[models]\nfast = "a/m"\n',
        "dragoman.toml:2: server.default_model: is routed to no upstream: write a name of [models], or "
        '"upstream/model"; did you mean "fast"?',
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
    "an empty list of protocols": (
        LOCAL.replace('protocol = "openai_chat"\n', "protocols = []\n"),
        "dragoman.toml:1: upstreams[0].protocol: missing",
    ),
    "a name with a slash": (
        LOCAL.replace('"local"', '"lo/cal"'),
        'dragoman.toml:2: upstreams[0].name: "lo/cal" is not a valid name: '
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
        'valid schemes are "http" and "https"',
    ),
    "credentials in a URL": (
        LOCAL.replace("http://", f"http://user:{CANARY}@"),
        'dragoman.toml:4: upstreams[0].base_url: "http://****@127.0.0.1:9000/v1" has credentials in it: '
        "put them into api_key or headers",
    ),
    "credentials that break the URL": (
        LOCAL.replace("http://", f"http://user:{CANARY}/x@"),
        'dragoman.toml:4: upstreams[0].base_url: "http://****@127.0.0.1:9000/v1" is not a URL: '
        "its host or port is malformed",
    ),
    "a query in a URL": (
        LOCAL.replace("/v1", "/v1?a=b"),
        'dragoman.toml:4: upstreams[0].base_url: "http://127.0.0.1:9000/v1?****" has a query or a fragment: '
        "a base URL ends with its path",
    ),
    "an endpoint": (
        LOCAL.replace("/v1", "/v1/chat/completions"),
        'dragoman.toml:4: upstreams[0].base_url: "http://127.0.0.1:9000/v1/chat/completions" is an endpoint, '
        'not a base URL: leave "/chat/completions" out',
    ),
    "a port that is none": (
        LOCAL.replace(":9000", ":x"),
        'dragoman.toml:4: upstreams[0].base_url: "http://127.0.0.1:x/v1" is not a URL: '
        "its host or port is malformed",
    ),
    "port 0": (
        LOCAL.replace(":9000", ":0"),
        'dragoman.toml:4: upstreams[0].base_url: "http://127.0.0.1:0/v1" has port 0',
    ),
    "no host in a URL": (
        LOCAL.replace("127.0.0.1:9000", ""),
        'dragoman.toml:4: upstreams[0].base_url: "http:///v1" has no host',
    ),
    "a line end in a URL": (
        LOCAL.replace(":9000", ":90\\n00"),
        'dragoman.toml:4: upstreams[0].base_url: "http://127.0.0.1:90\\u000a00/v1" is not a URL: '
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
        'dragoman.toml:5: upstreams[0].api_key: a single "$": write "${NAME}" for a variable, '
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
        "which a key cannot have",
    ),
    "a header with a line end": (
        LOCAL + f'headers = {{ x-team = "{CANARY}\\r\\nx: y" }}\n',
        "dragoman.toml:5: upstreams[0].headers.x-team: has line ends or other characters "
        "that are not allowed in a header",
    ),
    "a header that frames": (
        LOCAL + '[upstreams.headers]\nHost = "a"\n',
        "dragoman.toml:6: upstreams[0].headers.Host: this header belongs to the connection and cannot be set",
    ),
    "a header of another client": (
        LOCAL + '[upstreams.headers]\nUser-Agent = "a"\n',
        "dragoman.toml:6: upstreams[0].headers.User-Agent: this header identifies the sender, "
        "and the gateway sends its own",
    ),
    "a header of a vendor's SDK": (
        LOCAL + '[upstreams.headers]\nx-stainless-lang = "js"\n',
        "dragoman.toml:6: upstreams[0].headers.x-stainless-lang: this header identifies the sender, "
        "and the gateway sends its own",
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
        'dragoman.toml:5: upstreams[0].reasoning_field: unknown reasoning_field "thoughts"; valid values are '
        '"reasoning_content", "reasoning", "none"',
    ),
    "a header's name": (
        LOCAL + '[upstreams.headers]\n"a b" = "a"\n',
        'dragoman.toml:6: upstreams[0].headers."a b": is not a header name',
    ),
    "a header twice": (
        LOCAL + '[upstreams.headers]\nA = "a"\na = "a"\n',
        "dragoman.toml:7: upstreams[0].headers.a: is set twice: header names ignore case",
    ),
    "a header that is a number": (
        LOCAL + "headers.a = 1\n",
        "dragoman.toml:5: upstreams[0].headers.a: expected a string, found an integer",
    ),
    "a proxy's scheme": (
        LOCAL + f'proxy = "ftp://user:{CANARY}@proxy"\n',
        "dragoman.toml:5: upstreams[0].proxy: has an unknown scheme; "
        'valid schemes are "http", "https", "socks5", "socks5h"',
    ),
    "a time of nothing": (
        LOCAL + "connect_s = 0\n",
        "dragoman.toml:5: upstreams[0].connect_s: 0 is out of range: from 0.001 to 3600 seconds",
    ),
    "an alias of an unknown upstream": (
        LOCAL + '[models]\n"gpt-4.1" = "locol/x"\n',
        'dragoman.toml:6: models."gpt-4.1": unknown upstream "locol"; did you mean "local"?',
    ),
    "an alias like no upstream": (
        LOCAL + '[models]\na = "zzz/x"\n',
        'dragoman.toml:6: models.a: unknown upstream "zzz"; there are local, sim',
    ),
    "an alias without a model": (
        LOCAL + '[models]\na = "local"\n',
        'dragoman.toml:6: models.a: "local" is not of the form "upstream/model"',
    ),
    "a * that stands for nothing": (
        LOCAL + '[models]\nfast = "local/qwen-*"\n',
        'dragoman.toml:6: models.fast: "local/qwen-*" has 1 *, and the name "fast" has none: a * here stands for what '
        "the * of the name matched; write the model's own name in its place",
    ),
    "more * than the name has, in a chain": (
        LOCAL + '[models]\n"claude-*" = [\n"local/x",\n"local/*-*"]\n',
        'dragoman.toml:8: models."claude-*"[1]: "local/*-*" has 2 *, and the name "claude-*" has 1: a * here stands '
        "for what the * of the name matched; write the model's own name in its place",
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
        "GROQ_API_KEY, CEREBRAS_API_KEY, XAI_API_KEY, MISTRAL_API_KEY, TOGETHER_API_KEY, FIREWORKS_API_KEY, "
        "MOONSHOT_API_KEY, ZAI_API_KEY, MINIMAX_API_KEY, DASHSCOPE_API_KEY, GEMINI_API_KEY",
    ),
}


SOCKS = 'proxy = "socks5://user:secret@proxy:1080"\n'


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (LOCAL + SOCKS, "upstreams[0].proxy"),
        (LOCAL + '[[accounts]]\nupstream = "local"\nname = "a"\n' + SOCKS, "accounts[0].proxy"),
    ],
)
def test_the_extra_for_socks_proxies_may_be_missing(
    text: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_text(text)
    monkeypatch.setattr("dragoman_server.config.values.find_spec", lambda name: None)
    line = text.count("\n")
    missing = "a SOCKS proxy needs an extra: install dragoman[socks]"
    assert errors(text) == [f"dragoman.toml:{line}: {key}: {missing}"]


def test_a_socks_proxy_of_the_environment_without_the_extra_is_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environ = {"ALL_PROXY": f"socks5h://user:{CANARY}@proxy:1080", "https_proxy": "http://proxy:3128"}
    assert load(environ=environ).warnings == ()
    monkeypatch.setattr("dragoman_server.config.values.find_spec", lambda name: None)
    assert load(environ=environ).warnings == (
        "ALL_PROXY: a SOCKS proxy needs an extra: install dragoman[socks]",
    )


@pytest.mark.promise("S13")
def test_each_error_is_one_exact_line() -> None:
    for name, (text, line) in INVALID.items():
        assert errors(text) == [line], name
        assert CANARY not in line, name


def test_all_errors_are_reported_at_once_in_the_order_of_their_places() -> None:
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
            "which a key cannot have",
        ),
    ],
)
def test_an_error_in_the_environment_names_the_variable(variable: str, text: str, line: str) -> None:
    assert errors("", {variable: text}) == [line]


def test_a_provider_url_that_is_wrong_names_its_variable() -> None:
    found = errors("", {"OPENAI_API_KEY": CANARY, "OPENAI_BASE_URL": "localhost:9/v1"})
    assert found == [
        'environment: OPENAI_BASE_URL: "localhost:9/v1" has no scheme: write "http://..." or "https://..."'
    ]


def test_a_provider_url_that_is_none_at_all() -> None:
    assert errors("", {"OPENAI_API_KEY": CANARY, "OPENAI_BASE_URL": "http://[::"}) == [
        'environment: OPENAI_BASE_URL: "http://[::" is not a URL: its host or port is malformed'
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


def test_a_default_model_without_a_route_names_its_source() -> None:
    environ = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "DRAGOMAN_DEFAULT_MODEL": CANARY}
    (line,) = errors("", environ)
    assert line == (
        "environment: DRAGOMAN_DEFAULT_MODEL: is routed to no upstream: write a name of [models], "
        'or "upstream/model"'
    )


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
    assert errors("a = " + "[" * 100_000) == [
        "dragoman.toml: has a number that is too large, or is nested too deeply"
    ]
