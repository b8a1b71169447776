"""Configuration: TOML text in, settings out."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
from config_text import CANARY, FULL, LOCAL, SECRET, errors, load_text

from dragoman._wire.json import MAX_DOCUMENT_BYTES
from dragoman_server.capabilities.providers import PROVIDERS
from dragoman_server.cli.config_file import config_lines
from dragoman_server.config.loader import load
from dragoman_server.platform.extras import install_command
from dragoman_server.settings import ClientKey, Price, ServerSettings, UpstreamSettings, keys_of
from dragoman_server.settings.capabilities import ModelCapabilitySettings
from dragoman_server.settings.keys import hash_client_key
from dragoman_server.settings.problems import nearest
from dragoman_server.settings.secret import Secret
from dragoman_server.settings.server import MAX_BODY_BYTES

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
    "allowed_hosts": ("Gate.Lan, [::1], *.example", ("gate.lan", "::1", "*.example")),
    "cors_origins": ("https://A.example, http://b:1", ("https://a.example", "http://b:1")),
    "reload_may_remove": ("client_keys, upstreams", ("client_keys", "upstreams")),
    "trusted_proxies": ("127.0.0.1, 10.1.2.3/8, fd00::/8", ("127.0.0.1/32", "10.0.0.0/8", "fd00::/8")),
    "max_body_bytes": ("2048", 2048),
    "header_timeout_s": ("5", 5.0),
    "body_timeout_s": ("7.5", 7.5),
    "drain_delay_s": ("5", 5.0),
    "drain_s": ("0", 0.0),
    "max_connections": ("100", 100),
    "send_timeout_s": ("30", 30.0),
    "loss_policy": ("refuse", "refuse"),
    "default_max_tokens": ("7", 7),
    "default_model": ("openai/m", "openai/m"),
    "model_names": ("plain", "plain"),
    "model_list_ttl_s": ("60", 60.0),
    "record": ("recordings", "recordings"),
    "record_texts": ("off", False),
    "record_max_files": ("5", 5),
    "record_max_age_s": ("60", 60.0),
    "response_store": ("sqlite", "sqlite"),
    "response_store_path": ("r.db", "r.db"),
    "response_store_max_bytes": ("2000000", 2_000_000),
    "response_store_max_age_s": ("60", 60.0),
    "account_store": ("sqlite", "sqlite"),
    "account_store_path": ("a.db", "a.db"),
    "account_store_url": ("valkey://:hunter2@host/1", Secret("valkey://:hunter2@host/1")),
    "secret": ("s" * 32, Secret("s" * 32)),
    "max_attempts": ("3", 3),
    "account_wait_s": ("2.5", 2.5),
    "admin_key": ("a" * 32, Secret("a" * 32)),
    "metrics_key": ("m" * 32, Secret("m" * 32)),
    "otel": ("true", True),
    "allow_public_without_keys": ("yes", True),
    "check_grammars": ("no", False),
    "reasoning_store_bytes": ("0", 0),
    "simulator": ("no", False),
    "log_level": ("debug", "debug"),
    "log_format": ("json", "json"),
}


def test_every_server_setting_has_a_variable_and_a_flag() -> None:
    assert set(SAMPLES) == set(keys_of(ServerSettings))
    key = {"OPENAI_API_KEY": CANARY}
    by_variable = load(environ=key | {f"DRAGOMAN_{n.upper()}": text for n, (text, _) in SAMPLES.items()})
    by_flag = load(environ=key, flags={name: text for name, (text, _) in SAMPLES.items()})
    expected = {name: value for name, (_, value) in SAMPLES.items()}
    assert dataclasses.asdict(by_variable.settings.server) == expected
    assert dataclasses.asdict(by_flag.settings.server) == expected
    assert str(by_variable.origins["server.log_level"]) == "environment DRAGOMAN_LOG_LEVEL"


# Capabilities and client keys.

KEY = f'[[client_keys]]\nname = "ci"\nhash = "{"0" * 64}"\n'


def test_times_of_client_keys() -> None:
    for text, expected in {
        "2026-12-31": "2026-12-31T00:00:00+00:00",
        '"2026-12-31"': "2026-12-31T00:00:00+00:00",
        "2026-12-31T18:00:00+02:00": "2026-12-31T16:00:00+00:00",
        '"2026-12-31T18:00:00Z"': "2026-12-31T18:00:00+00:00",
    }.items():
        (key,) = load_text(f"{KEY}expires = {text}\n", {"DRAGOMAN_SECRET": SECRET}).settings.client_keys
        assert key.expires is not None
        assert key.expires.isoformat() == expected, text


PRICE = '[[prices]]\nmodel = "m"\ninput = 1\noutput = 2.5\n'


def test_a_key_with_all_its_limits() -> None:
    limits = "requests_per_minute = 60\ntokens_per_minute = 100_000\nbudget = 5\nbudget_period = 'day'\n"
    loaded = load_text(
        KEY + 'models = ["fast", "claude-*"]\n' + limits + PRICE + "cached_input = 0\n",
        {"DRAGOMAN_SECRET": SECRET},
    )
    assert loaded.settings.client_keys == (
        ClientKey(
            name="ci",
            hash="0" * 64,
            models=("fast", "claude-*"),
            requests_per_minute=60,
            tokens_per_minute=100_000,
            budget=5.0,
            budget_period="day",
        ),
    )
    assert loaded.settings.prices == (Price(model="m", input=1.0, output=2.5, cached_input=0.0),)
    shown = list(config_lines(loaded, with_origin=False))
    assert "client_keys[0].budget = 5.0" in shown
    assert "prices[0].output = 2.5" in shown


def test_the_admin_key_is_a_key_of_its_own() -> None:
    admin = "admin-0123456789-0123456789-0123456789"
    key = f'[[client_keys]]\nname = "ci"\nhash = "{hash_client_key(admin, Secret(SECRET))}"\n'
    environ = {"DRAGOMAN_SECRET": SECRET, "DRAGOMAN_ADMIN_KEY": admin}
    (line,) = errors(key, environ)
    assert line == "environment: DRAGOMAN_ADMIN_KEY: is a client key: it must be a different key"
    (line,) = errors("", {**environ, "DRAGOMAN_ADMIN_KEY": SECRET})
    assert line == "environment: DRAGOMAN_ADMIN_KEY: is server.secret: it must be a different key"
    assert load_text(KEY, environ).settings.server.admin_key == Secret(admin)


def test_the_metrics_key_is_a_key_of_its_own() -> None:
    metrics = "metrics-0123456789-0123456789-0123456789"
    key = f'[[client_keys]]\nname = "ci"\nhash = "{hash_client_key(metrics, Secret(SECRET))}"\n'
    environ = {"DRAGOMAN_SECRET": SECRET, "DRAGOMAN_METRICS_KEY": metrics}
    (line,) = errors(key, environ)
    assert line == "environment: DRAGOMAN_METRICS_KEY: is a client key: it must be a different key"
    for other in (SECRET, metrics):
        more = {} if other == SECRET else {"DRAGOMAN_ADMIN_KEY": metrics}
        (line,) = errors("", {**environ, **more, "DRAGOMAN_METRICS_KEY": other})
        assert line == "environment: DRAGOMAN_METRICS_KEY: is another key as well: it must be a different key"
    assert load_text(KEY, environ).settings.server.metrics_key == Secret(metrics)


@pytest.mark.parametrize(("setting", "extra"), [("metrics_key", "metrics"), ("otel", "otel")])
def test_settings_that_need_an_extra(setting: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman_server.platform.extras.find_spec", lambda name: None)
    environ = {f"DRAGOMAN_{setting.upper()}": SAMPLES[setting][0]}
    (line,) = errors("", environ)
    assert line == f"environment: DRAGOMAN_{setting.upper()}: needs an extra: {install_command(extra)}"


# The file.


def test_a_whole_file() -> None:
    Path("team").write_text("red\n")
    environ = {
        "LOCAL_KEY": CANARY,
        "SIZE": "8b",
        "ACCOUNT": "a1",
        "OPENAI_API_KEY": "unused-as-the-file-names-all",
        "DRAGOMAN_SECRET": SECRET,
    }
    loaded = load_text(FULL, environ)
    assert loaded.settings.server == ServerSettings(host="0.0.0.0", cors_origins=(), secret=Secret(SECRET))
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
    )
    assert claude.protocols == ("anthropic_messages",)
    assert claude.base_url == "https://claude.example/a1"
    assert loaded.settings.models == {"claude-sonnet-4-6": "local/qwen3", "gpt-*": "claude/claude-opus-4-8"}
    assert loaded.settings.upstream("claude") is claude
    assert loaded.settings.upstream("nobody") is None
    assert str(loaded.origins["upstreams[0].api_key"]) == "dragoman.toml:9, LOCAL_KEY"
    assert str(loaded.origins["upstreams[0].headers.x-team"]) == "dragoman.toml:18, file:team"
    assert loaded.settings.capabilities == (
        ModelCapabilitySettings.of(model="qwen3*", upstream="local", efforts=(), refuses=("top_k", "seed")),
        ModelCapabilitySettings.of(model="*", tool_images=True),
    )
    assert loaded.settings.client_keys == (ClientKey(name="ci", hash="ab" * 32, loss_policy="refuse"),)
    assert loaded.warnings == ()


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


def test_the_value_of_a_variable_is_not_expanded_again() -> None:
    settings = load_text(LOCAL + 'api_key = "${A}"\n', {"A": "$${A}"}).settings
    assert settings.upstreams[0].api_key == Secret("$${A}")


def test_aliases_may_use_names_that_come_from_variables() -> None:
    text = LOCAL.replace('"local"', '"${NAME}"') + '[models]\na = "mine/x"\n'
    assert load_text(text, {"NAME": "mine"}).settings.models == {"a": "mine/x"}


LOOPBACK_HOSTS = ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "localhost", "dev.localhost"]
PUBLIC_HOSTS = [
    "0.0.0.0",
    "::",
    "::ffff:0.0.0.0",
    "::ffff:10.0.0.1",
    "fe80::1",
    "10.0.0.1",
    "box",
    "127.0.0.1.example",
    "localhost.example",
    "0",
]


@pytest.mark.promise("S14")
def test_a_loopback_host_needs_no_keys() -> None:
    for host in LOOPBACK_HOSTS:
        loaded = load(environ={}, flags={"host": host})
        assert (loaded.settings.server.host, loaded.warnings) == (host, ()), host


@pytest.mark.promise("S14")
def test_a_public_host_needs_keys_or_a_setting() -> None:
    keys = f'[[client_keys]]\nname = "ci"\nhash = "{"0" * 64}"\n'
    for host in PUBLIC_HOSTS:
        assert errors("", host=host) == [
            f"command line: --host: {host} can be reached from other machines, and there are no client keys, so "
            "whoever can connect could use your upstreams: make a key with `dragoman keys add`, or set "
            "allow_public_without_keys = true if something else controls who can connect"
        ], host
        flags = {"host": host, "allow_public_without_keys": "true"}
        assert len(load(environ={}, flags=flags).warnings) == 1, host
        with_keys = load_text(keys, {"DRAGOMAN_HOST": host, "DRAGOMAN_SECRET": SECRET})
        assert with_keys.warnings == (), host


def test_an_empty_list_of_keys_is_no_list() -> None:
    (line,) = errors('client_keys = []\n[server]\nhost = "0.0.0.0"\n')
    assert line.startswith("dragoman.toml:3: server.host: 0.0.0.0 can be reached from other machines")


def test_invalid_keys_are_the_only_error_of_a_public_bind() -> None:
    (line,) = errors(
        '[server]\nhost = "0.0.0.0"\n[[client_keys]]\nname = "ci"\n', {"DRAGOMAN_SECRET": SECRET}
    )
    assert line == "dragoman.toml:3: client_keys[0].hash: missing"


def test_a_messages_upstream_with_v1_is_warned_of() -> None:
    loaded = load_text(LOCAL.replace("openai_chat", "anthropic_messages"))
    assert [str(each) for each in loaded.warnings] == [
        "upstream local: the base URL for anthropic_messages is written without /v1; "
        "requests would go to .../v1/v1/messages; remove /v1 from base_url: dragoman.toml:4"
    ]


@pytest.mark.parametrize(
    ("pattern", "target", "better"),
    [
        ("claude-*", "local/anthropic/*", "local/anthropic/claude-*"),
        ("claude-*", "local/*", "local/claude-*"),
        ("claude-*", "local/anthropic/claude-*", None),
        ("claude-*", "local/glm-*", None),  # another family: the names are like each other on purpose
        ("anthropic/*", "local/*", None),  # the vendor's part is meant to go
        ("*", "local/anthropic/*", None),
        ("claude-*", "local/one", None),
    ],
)
def test_a_pattern_that_loses_a_part_of_the_name_is_warned_of(
    pattern: str, target: str, better: str | None
) -> None:
    loaded = load_text(LOCAL + f'[models]\n"{pattern}" = "{target}"\n')
    expected = (
        f'models."{pattern}": "{target}" loses "claude-", because * stands for the text behind it; '
        f'write "{better}"'
    )
    assert [str(each) for each in loaded.warnings] == ([] if better is None else [expected])


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


def test_a_key_in_the_environment_makes_an_upstream() -> None:
    for provider in PROVIDERS:
        for variable, auth in provider.keys:
            (upstream,) = load(environ={variable: CANARY}).settings.upstreams
            assert (upstream.name, upstream.base_url, upstream.auth) == (
                provider.name,
                provider.base_url,
                auth,
            ), variable
            assert upstream.protocol == provider.protocols[0], variable
            assert upstream.protocols == tuple(sorted(provider.protocols)), variable
            assert upstream.api_key == Secret(CANARY), variable


@pytest.mark.parametrize(
    ("url", "protocols"),
    [
        (None, ("openai_chat", "openai_responses")),
        ("https://eu.api.openai.com/v1", ("openai_chat", "openai_responses")),
        ("http://127.0.0.1:11434/v1", ("openai_chat",)),
        ("https://api.openai.com.evil.example/v1", ("openai_chat",)),
    ],
)
def test_the_protocols_of_an_openai_key(url: str | None, protocols: tuple[str, ...]) -> None:
    environ = {"OPENAI_API_KEY": CANARY} | ({"OPENAI_BASE_URL": url} if url else {})
    (upstream,) = load(environ=environ).settings.upstreams
    assert upstream.protocols == protocols


def test_settings_of_a_known_host_are_defaults() -> None:
    url = LOCAL.replace("127.0.0.1:9000", "api.openai.com")
    assert load_text(url).settings.upstreams[0].counts_tokens
    assert not load_text(url + "counts_tokens = false\n").settings.upstreams[0].counts_tokens
    assert not load_text(LOCAL).settings.upstreams[0].counts_tokens
    # Capabilities of a model are resolved later, for each requested model.
    assert load_text(url).settings.upstreams[0].capabilities == {}


def test_a_body_may_be_as_large_as_the_core_reads() -> None:
    assert MAX_BODY_BYTES == MAX_DOCUMENT_BYTES
    assert (
        ServerSettings().max_body_bytes
        == keys_of(ServerSettings)["max_body_bytes"].limits.le
        == MAX_BODY_BYTES
    )


def test_the_sdk_variable_that_points_at_us_makes_no_loop() -> None:
    environ = {"ANTHROPIC_AUTH_TOKEN": "any", "ANTHROPIC_BASE_URL": "http://localhost:8080"}
    loaded = load(environ=environ)
    assert loaded.settings.upstreams == ()
    assert [str(each) for each in loaded.warnings] == [
        "ANTHROPIC_BASE_URL: points at this gateway itself, so ANTHROPIC_AUTH_TOKEN does not make an upstream "
        "anthropic; unset ANTHROPIC_BASE_URL where the gateway is started"
    ]
    assert len(load(environ=environ, flags={"port": "8081"}).settings.upstreams) == 1


def test_a_file_that_names_upstreams_names_them_all() -> None:
    names = [upstream.name for upstream in load_text(LOCAL, {"OPENAI_API_KEY": CANARY}).settings.upstreams]
    assert names == ["local"]
    assert load_text("upstreams = []\n", {"OPENAI_API_KEY": CANARY}).settings.upstreams == ()


def test_aliases_may_point_at_found_upstreams() -> None:
    loaded = load_text('[models]\nfast = "openai/gpt-5-mini"\n', {"OPENAI_API_KEY": CANARY})
    assert loaded.settings.models == {"fast": "openai/gpt-5-mini"}


# config show.


def test_show_prints_each_setting_with_its_origin() -> None:
    Path("team").write_text("red")
    environ = {"LOCAL_KEY": CANARY, "SIZE": "8b", "ACCOUNT": "a1", "DRAGOMAN_SECRET": SECRET}
    loaded = load_text(FULL, environ, workers="2")
    lines = [re.fullmatch(r"(\S+) = (.*\S) +# (.*)", line) for line in config_lines(loaded, with_origin=True)]
    shown = {line[1]: (line[2], line[3]) for line in lines if line is not None}
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
    assert shown["server.secret"] == (f'"****{SECRET[-4:]}"', "environment DRAGOMAN_SECRET")
    assert shown["capabilities[0].efforts"] == ("[]", "dragoman.toml:32")
    assert shown["client_keys[0].name"] == ('"ci"', "dragoman.toml:40")
    assert shown["models.claude-sonnet-4-6"] == ('"local/qwen3"', "dragoman.toml:26")
    assert shown['models."gpt-*"'] == ('"claude/claude-opus-4-8"', "dragoman.toml:27")


def test_show_does_not_shorten_values() -> None:
    models = ["m" * 300]
    loaded = load_text(LOCAL + f"models = {models}\n")
    assert f'upstreams[0].models = ["{models[0]}"]' in list(config_lines(loaded, with_origin=False))


# The tables.


def test_every_default_passes_its_own_check() -> None:
    defaults = dataclasses.asdict(ServerSettings())
    assert set(defaults) == set(keys_of(ServerSettings))
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
