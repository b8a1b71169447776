"""Configuration: TOML text in, exact error lines out."""

# ruff: noqa: E501 -- the tables are read by row

from pathlib import Path

import pytest
from config_text import CANARY, LOCAL, errors, load_text

from dragoman.protocols.openai_chat.capabilities import ChatCapabilities
from dragoman_server.config.interpolate import MAX_FILE_BYTES
from dragoman_server.config.loader import _TABLES, load
from dragoman_server.config.sources import MAX_FILE_BYTES as MAX_CONFIG_BYTES
from dragoman_server.platform.extras import install_command
from dragoman_server.settings import ServerSettings, keys_of
from dragoman_server.settings.problems import ConfigError

ACCOUNT = '[[accounts]]\nupstream = "local"\nname = "a"\n'
TRY_NEXT = '[[rules]]\naction = "try_next"\n'

# One line of a table, and its error, as it is reported.
SERVER = {
    "log-level = 'info'": 'log-level: unknown key; did you mean "log_level"?',
    'port = "80"': "port: expected an integer, found a string",
    "port = true": "port: expected an integer, found a boolean",
    "workers = 1.5": "workers: expected an integer, found a float",
    "port = 65536": "port: 65536 is out of range: from 0 to 65535",
    "port = -1": "port: -1 is out of range: from 0 to 65535",
    "port = 0x" + "f" * 5000: "port: this integer is out of range: from 0 to 65535",
    "drain_s = nan": "drain_s: nan is out of range: from 0 to 86400 seconds",
    "drain_s = inf": "drain_s: inf is out of range: from 0 to 86400 seconds",
    "drain_s = 2026-11-21": "drain_s: expected a number of seconds, found a date or time",
    "http2 = 1": "http2: expected true or false, found an integer",
    'backend = "uvlop"': 'backend: unknown backend "uvlop"; did you mean "uvloop"?',
    'backend = "q"': 'backend: unknown backend "q"; valid values are "asyncio", "uvloop", "trio"',
    'backend = ""': "backend: is empty",
    'host = "a b"': 'host: "a b" is neither a host name nor an IP address',
    'cors_origins = "*"': "cors_origins: expected an array of strings, found a string",
    'allowed_hosts = ["gate.lan:8080"]': (
        'allowed_hosts[0]: "gate.lan:8080" is not a host name: write it without scheme and '
        'port, such as "*.example.com"'
    ),
    'trusted_proxies = ["nginx"]': (
        'trusted_proxies[0]: "nginx" is neither an IP address nor a network: write one such as '
        '"127.0.0.1" or "10.0.0.0/8"'
    ),
    'cors_origins = ["*", "*"]': 'cors_origins[1]: "*" is listed twice',
    'certfile = "a.pem"': "certfile: needs keyfile as well",
    'keyfile = "a.pem"': "keyfile: needs certfile as well",
    "simulator = false": (
        "simulator: is off, and there is no upstream: add [[upstreams]] to a file or set "
        "one of OPENAI_API_KEY, ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN, DEEPSEEK_API_KEY, "
        "OPENROUTER_API_KEY, GROQ_API_KEY, CEREBRAS_API_KEY, XAI_API_KEY, MISTRAL_API_KEY, "
        "TOGETHER_API_KEY, FIREWORKS_API_KEY, MOONSHOT_API_KEY, ZAI_API_KEY, "
        "MINIMAX_API_KEY, DASHSCOPE_API_KEY, GEMINI_API_KEY"
    ),
    '"a b" = 1': '"a b": unknown key; valid keys are ' + ", ".join(keys_of(ServerSettings)),
    "max_attempts = 0": "max_attempts: 0 is out of range: from 1 to 100",
}
CHAT_CAPABILITIES = ", ".join(ChatCapabilities.__struct_fields__)
UPSTREAM = {
    'apikey = "x"': 'apikey: unknown key; did you mean "api_key"?',
    'protocols = ["openai_chat", "anthropic"]': (
        'protocols[1]: unknown protocol "anthropic"; did you mean "anthropic_messages"?'
    ),
    'protocols = ["openai_responses"]': 'protocols: does not list "openai_chat", the preferred protocol',
    'api_key = "${LOCAL_KEY}"': "api_key: the environment variable LOCAL_KEY is not set",
    'api_key = "$LOCAL_KEY"': (
        'api_key: a single "$": write "${NAME}" for a variable, "$$" for a dollar sign'
    ),
    'api_key = "${KEY:-x}"': 'api_key: "${KEY:-x}" is neither "${NAME}" nor "${file:PATH}"',
    'api_key = "${file:absent}"': "api_key: cannot read the file absent: No such file or directory",
    'api_key = "${file:}"': 'api_key: "${file:}" names no file',
    'api_key = "${file:.}"': "api_key: cannot read the file .: Is a directory",
    'api_key = ""': "api_key: is empty",
    'reasoning_field = "thoughts"': (
        'reasoning_field: unknown reasoning_field "thoughts"; valid values are '
        '"reasoning_content", "reasoning", "reasoning_details", "thinking_blocks", "none"'
    ),
    'summaries = "auto"': f"summaries: is no capability of openai_chat, which has {CHAT_CAPABILITIES}",
    "headers.a = 1": "headers.a: expected a string, found an integer",
    "connect_s = 0": "connect_s: 0 is out of range: from 0.001 to 3600 seconds",
    'api_key = "${file:/dev/zero}"': f"api_key: the file /dev/zero is larger than {MAX_FILE_BYTES} bytes",
    f'api_key = "{CANARY}\\n{CANARY}"': (
        "api_key: has spaces, line ends or characters outside ASCII, which a key cannot have"
    ),
    f'headers = {{ x-team = "{CANARY}\\r\\nx: y" }}': (
        "headers.x-team: has line ends or other characters that are not allowed in a header"
    ),
    f'proxy = "ftp://user:{CANARY}@proxy"': (
        'proxy: has an unknown scheme; valid schemes are "http", "https", "socks5", "socks5h"'
    ),
    'selection = "wieghted"': 'selection: unknown selection "wieghted"; did you mean "weighted"?',
    "hedge_s = -1": "hedge_s: -1 is out of range: from 0 to 3600 seconds",
}
MODELS = {
    '"gpt-4.1" = "locol/x"': '"gpt-4.1": unknown upstream "locol"; did you mean "local"?',
    'a = "zzz/x"': 'a: unknown upstream "zzz"; there are local, sim',
    'a = "local"': 'a: "local" is not of the form "upstream/model"',
    'fast = "local/qwen-*"': (
        'fast: "local/qwen-*" has 1 *, and the name "fast" has none: a * here stands for '
        "what the * of the name matched; write the model's own name in its place"
    ),
    "a = 1": "a: expected a string, found an integer",
    'gpt-4.1 = "local/x"': "gpt-4: expected a string, found a table; write names with dots in quotes",
    "a = []": "a: is an empty chain",
    'a = ["local"]': 'a[0]: "local" is not of the form "upstream/model"',
    'a = ["local/x", 1]': "a[1]: expected a string, found an integer",
    'a = ["local/x", "local/${NOPE}"]': "a[1]: the environment variable NOPE is not set",
    'a = ["local/x", "local/y", "local/x"]': 'a[2]: "local/x" is listed twice',
}
HEADERS = {
    'Host = "a"': "Host: this header belongs to the connection and cannot be set",
    'User-Agent = "a"': "User-Agent: this header identifies the sender, and the gateway sends its own",
    'x-stainless-lang = "js"': (
        "x-stainless-lang: this header identifies the sender, and the gateway sends its own"
    ),
    'x-a = "${NOPE}"': "x-a: the environment variable NOPE is not set",
    'Anthropic-Version = "2026-10-21"': (
        "Anthropic-Version: this header has its own setting: anthropic_version"
    ),
    '"a b" = "a"': '"a b": is not a header name',
}
BASE_URL = {
    "127.0.0.1:9000/v1": '"127.0.0.1:9000/v1" has no scheme: write "http://..." or "https://..."',
    "ftp://127.0.0.1:9000/v1": (
        '"ftp://127.0.0.1:9000/v1" has an unknown scheme; valid schemes are "http" and "https"'
    ),
    "http://127.0.0.1:9000/v1?a=b": (
        '"http://127.0.0.1:9000/v1?****" has a query or a fragment: a base URL ends with its path'
    ),
    "http://127.0.0.1:9000/v1/chat/completions": (
        '"http://127.0.0.1:9000/v1/chat/completions" is an endpoint, not a base URL: leave '
        '"/chat/completions" out'
    ),
    "http://127.0.0.1:x/v1": '"http://127.0.0.1:x/v1" is not a URL: its host or port is malformed',
    "http://127.0.0.1:0/v1": '"http://127.0.0.1:0/v1" has port 0',
    "http:///v1": '"http:///v1" has no host',
    "http://127.0.0.1:90\\n00/v1": (
        '"http://127.0.0.1:90\\u000a00/v1" is not a URL: it has spaces, control characters '
        "or characters outside ASCII"
    ),
    "http://127.0.0.1:8080/v1": "points at this gateway itself",
    "http://localhost:8080/v1": "points at this gateway itself",
    f"http://user:{CANARY}@127.0.0.1:9000/v1": (
        '"http://****@127.0.0.1:9000/v1" has credentials in it: put them into api_key or headers'
    ),
    f"http://user:{CANARY}/x@127.0.0.1:9000/v1": (
        '"http://****@127.0.0.1:9000/v1" is not a URL: its host or port is malformed'
    ),
}
ACCOUNT_KEYS = {
    'apikey = "x"': 'apikey: unknown key; did you mean "api_key"?',
    'api_key = "${NOPE}"': "api_key: the environment variable NOPE is not set",
    "weight = 0": "weight: 0 is out of range: from 1 to 1000",
    "requests_per_minute = 0": "requests_per_minute: 0 is out of range: from 1 to 1000000",
    "tokens_per_minute = 0": "tokens_per_minute: 0 is out of range: from 1 to 10000000000",
}
RULE = {
    "statuses = [400, 42]": "statuses[1]: 42 is not an HTTP status",
    'statuses = ["400"]': 'statuses[0]: "400" is not an HTTP status',
    "statuses = 400": "statuses: expected an array of integers, found an integer",
    'words = [""]': "words[0]: is empty",
}
# Whole files.
FILES = {
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
    "a table that is none": ("server = 1\n", "dragoman.toml:1: server: expected a table, found an integer"),
    "too large to read": (
        "[server]\nport = " + "9" * 5000 + "\n",
        "dragoman.toml: has a number that is too large, or is nested too deeply",
    ),
    "a file name with a NUL": (
        '[server]\ncertfile = "a\\u0000"\nkeyfile = "b"\n',
        'dragoman.toml:2: server.certfile: "a\\u0000" is not a file name',
    ),
    "an element of a list": (
        '[server]\ncors_origins = [\n  "https://a.example",\n  "https://b.example/",\n]\n',
        'dragoman.toml:4: server.cors_origins[1]: "https://b.example/" is not an origin: '
        'write "https://host" or "https://host:port", "loopback" for the pages of this machine, or "*" for any',
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
    "an unknown protocol": (
        LOCAL.replace("openai_chat", "openai-chat"),
        'dragoman.toml:3: upstreams[0].protocol: unknown protocol "openai-chat"; did you mean "openai_chat"?',
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
    "a variable in a list": (
        LOCAL + 'models = [\n"a",\n"${NAME}"]\n',
        "dragoman.toml:7: upstreams[0].models[1]: the environment variable NAME is not set",
    ),
    "a model whose reference fails": (
        '[models]\nfast = "${NOPE}"\n',
        "dragoman.toml:2: models.fast: the environment variable NOPE is not set",
    ),
    "a header twice": (
        LOCAL + '[upstreams.headers]\nA = "a"\na = "a"\n',
        "dragoman.toml:7: upstreams[0].headers.a: is set twice: header names ignore case",
    ),
    "more * than the name has, in a chain": (
        LOCAL + '[models]\n"claude-*" = [\n"local/x",\n"local/*-*"]\n',
        'dragoman.toml:8: models."claude-*"[1]: "local/*-*" has 2 *, and the name "claude-*" has 1: a * here stands '
        "for what the * of the name matched; write the model's own name in its place",
    ),
    "an alias to the simulator that is off": (
        "server.simulator = false\n" + LOCAL + '[models]\na = "sim/echo"\n',
        'dragoman.toml:7: models.a: unknown upstream "sim"; there are local',
    ),
    "a key like none": (
        "zzz = 1\n",
        "dragoman.toml:1: zzz: unknown key; valid keys are " + ", ".join(_TABLES),
    ),
    "an account of a misspelt upstream": (
        LOCAL + ACCOUNT.replace("local", "locol"),
        'dragoman.toml:6: accounts[0].upstream: names no upstream; did you mean "local"?',
    ),
    "an account without an upstream": (
        LOCAL + '[[accounts]]\nname = "a"\n',
        "dragoman.toml:5: accounts[0].upstream: missing",
    ),
    "an account without a name": (
        LOCAL + '[[accounts]]\nupstream = "local"\n',
        "dragoman.toml:5: accounts[0].name: missing",
    ),
    "an account's name twice": (
        LOCAL + ACCOUNT + ACCOUNT,
        'dragoman.toml:10: accounts[1].name: "a" is already an account of this upstream',
    ),
    "an account's name with a slash": (
        LOCAL + ACCOUNT.replace('"a"', '"a/b"'),
        'dragoman.toml:7: accounts[0].name: "a/b" is not a valid name: '
        "use letters, digits, dots, dashes and underscores",
    ),
    "a key in two places": (
        LOCAL + f'api_key = "{CANARY}"\n' + ACCOUNT,
        "dragoman.toml:6: accounts[0]: upstream local has an api_key as well: make that an account",
    ),
    "a rule without an action": (
        "[[rules]]\nstatuses = [400]\n",
        "dragoman.toml:1: rules[0].action: missing",
    ),
    "a rule about nothing": (
        TRY_NEXT,
        "dragoman.toml:1: rules[0]: has no condition: add statuses, codes or words",
    ),
    "an unknown action": (
        TRY_NEXT.replace("try_next", "retry") + "statuses = [400]\n",
        'dragoman.toml:2: rules[0].action: unknown action "retry"; did you mean "retry_later"?',
    ),
    "an action that no rule can have": (
        TRY_NEXT.replace("try_next", "proxy") + "statuses = [400]\n",
        'dragoman.toml:2: rules[0].action: unknown action "proxy"; '
        'valid values are "return_to_client", "try_next", "cool_down", "disable", "retry_later"',
    ),
    "a rule for an unknown upstream": (
        LOCAL + TRY_NEXT + 'upstream = "locol"\nstatuses = [400]\n',
        'dragoman.toml:7: rules[0].upstream: names no upstream; did you mean "local"?',
    ),
    "a chain to an unknown upstream": (
        LOCAL + '[models]\na = [\n"local/x",\n"locol/y"]\n',
        'dragoman.toml:8: models.a[1]: unknown upstream "locol"; did you mean "local"?',
    ),
}
INVALID = [
    *((f"[server]\n{line}\n", f"dragoman.toml:2: server.{error}") for line, error in SERVER.items()),
    *((f"{LOCAL}{line}\n", f"dragoman.toml:5: upstreams[0].{error}") for line, error in UPSTREAM.items()),
    *(
        (f"{LOCAL}[upstreams.headers]\n{line}\n", f"dragoman.toml:6: upstreams[0].headers.{error}")
        for line, error in HEADERS.items()
    ),
    *((f"{LOCAL}[models]\n{line}\n", f"dragoman.toml:6: models.{error}") for line, error in MODELS.items()),
    *(
        (LOCAL.replace("http://127.0.0.1:9000/v1", url), f"dragoman.toml:4: upstreams[0].base_url: {error}")
        for url, error in BASE_URL.items()
    ),
    *(
        (f"{LOCAL}{ACCOUNT}{line}\n", f"dragoman.toml:8: accounts[0].{error}")
        for line, error in ACCOUNT_KEYS.items()
    ),
    *((f"{TRY_NEXT}{line}\n", f"dragoman.toml:3: rules[0].{error}") for line, error in RULE.items()),
    *FILES.values(),
]


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
    assert [str(each) for each in load(environ=environ).warnings] == [
        f"ALL_PROXY: a SOCKS proxy needs an extra; {install_command('socks')}"
    ]


VARIABLES = [
    ("DRAGOMAN_PROT", "write DRAGOMAN_PORT, or unset DRAGOMAN_PROT"),
    ("dragoman_port", "write DRAGOMAN_PORT, or unset dragoman_port"),
    ("DRAGOMAN_ZQ", "unset DRAGOMAN_ZQ"),
]


def test_an_unknown_variable_is_a_warning_with_the_name_that_was_meant() -> None:
    for name, fix in VARIABLES:
        (warning,) = load(environ={name: CANARY}).warnings
        assert str(warning) == f"{name}: is not a variable of Dragoman; {fix}"


def test_variables_that_something_reads_are_not_unknown() -> None:
    environ = {"DRAGOMAN_TEAM": CANARY, "DRAGOMAN_KEY": CANARY, "DRAGOMAN_PORT": "1"}
    assert load_text('server.default_model = "sim/${DRAGOMAN_TEAM}"\n', environ).warnings == ()


@pytest.mark.promise("S13")
def test_each_error_is_one_exact_line() -> None:
    for text, line in INVALID:
        assert errors(text) == [line], text
        assert CANARY not in line, text


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
        ("DRAGOMAN_BACKEND", "tri", 'environment: DRAGOMAN_BACKEND: unknown backend "tri"; did you mean "trio"?'),
        ("OPENAI_API_KEY", f"{CANARY} {CANARY}", "environment: OPENAI_API_KEY: has spaces, line ends or characters outside ASCII, which a key cannot have"),
    ],
)  # fmt: skip
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
