"""Configuration: TOML text in, settings out."""

import json
from pathlib import Path

import pytest
from config_text import CANARY, FULL, LOCAL, SECRET, errors, load_text, needed_besides_key
from msgspec import structs

from dragoman._wire.json import MAX_DOCUMENT_BYTES
from dragoman_server.capabilities.providers import PROVIDERS
from dragoman_server.cli.config_output import config_lines
from dragoman_server.config.loader import load
from dragoman_server.feed.workers import DIRECTORY_VARIABLE
from dragoman_server.platform.extras import install_command
from dragoman_server.settings import ClientKey, ServerSettings, UpstreamSettings, settings_of
from dragoman_server.settings.capabilities import ModelCapabilitySettings
from dragoman_server.settings.client_keys import hash_client_key
from dragoman_server.settings.problems import nearest
from dragoman_server.settings.secret import Secret
from dragoman_server.settings.server import MAX_BODY_BYTES

# Precedence.


def test_the_variable_of_workers_is_none_of_a_users() -> None:
    assert load(environ={DIRECTORY_VARIABLE: "/tmp/x"}).warnings == ()


def test_without_anything_there_are_defaults_and_the_simulator() -> None:
    loaded = load(environ={})
    assert (loaded.path, loaded.settings.server, loaded.settings.upstreams) == (None, ServerSettings(), ())
    assert loaded.settings.upstream("sim") is not None
    assert (loaded.settings.origins, loaded.warnings) == ({}, ())


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
    "websocket": ("off", False),
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
    "response_store_url": ("unix:///run/valkey", Secret("unix:///run/valkey")),
    "background_timeout_s": ("60", 60.0),
    "max_background_responses": ("5", 5),
    "response_store_max_bytes": ("2000000", 2_000_000),
    "response_store_max_age_s": ("60", 60.0),
    "account_store": ("sqlite", "sqlite"),
    "account_store_path": ("a.db", "a.db"),
    "account_store_url": ("valkey://:hunter2@host/1", Secret("valkey://:hunter2@host/1")),
    "stored_keys": ("yes", True),
    "upstream_certfile": ("u.pem", "u.pem"),
    "audit_log": ("audit.jsonl", "audit.jsonl"),
    "budget_webhook": ("https://hooks.test/k", Secret("https://hooks.test/k")),
    "usage_store": ("valkey", "valkey"),
    "usage_store_path": ("u.db", "u.db"),
    "usage_store_url": ("unix:///run/valkey", Secret("unix:///run/valkey")),
    "usage_max_age_s": ("86400", 86_400.0),
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
    assert set(SAMPLES) == set(settings_of(ServerSettings))
    key = {"OPENAI_API_KEY": CANARY}
    by_variable = load(environ=key | {f"DRAGOMAN_{n.upper()}": text for n, (text, _) in SAMPLES.items()})
    by_flag = load(environ=key, flags={name: text for name, (text, _) in SAMPLES.items()})
    expected = {name: value for name, (_, value) in SAMPLES.items()}
    assert structs.asdict(by_variable.settings.server) == expected
    assert structs.asdict(by_flag.settings.server) == expected
    assert str(by_variable.settings.origins["server.log_level"]) == "environment DRAGOMAN_LOG_LEVEL"


# Capabilities and client keys.

KEY = f'[[client_keys]]\nname = "ci"\nhash = "{"0" * 64}"\n'


@pytest.mark.parametrize("setting", ["admin_key", "metrics_key"])
def test_a_key_of_the_operator_is_no_client_key(setting: str) -> None:
    operators, variable = "operator-0123456789-0123456789-0123456789", f"DRAGOMAN_{setting.upper()}"
    key = f'[[client_keys]]\nname = "ci"\nhash = "{hash_client_key(operators, Secret(SECRET))}"\n'
    environ = {"DRAGOMAN_SECRET": SECRET, variable: operators}
    assert errors(key, environ) == [f"environment: {variable}: is a client key: it must be a different key"]
    assert getattr(load_text(KEY, environ).settings.server, setting) == Secret(operators)


@pytest.mark.parametrize(
    ("setting", "extra"),
    [("metrics_key", "metrics"), ("otel", "otel"), ("account_store", "valkey"), ("usage_store", "valkey")],
)
def test_settings_that_need_an_extra(setting: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman_server.platform.extras.find_spec", lambda name: None)
    value = extra if setting == "account_store" else SAMPLES[setting][0]
    urls = {f"DRAGOMAN_{name}_STORE_URL": "valkey://host" for name in ("ACCOUNT", "USAGE")}
    (line,) = errors("", {f"DRAGOMAN_{setting.upper()}": value, **urls})
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
    assert (claude.protocols, claude.base_url) == (("anthropic_messages",), "https://claude.example/a1")
    assert loaded.settings.models == {"claude-sonnet-4-6": "local/qwen3", "gpt-*": "claude/claude-opus-4-8"}
    assert loaded.settings.upstream("claude") is claude
    assert loaded.settings.upstream("nobody") is None
    assert str(loaded.settings.origins["upstreams[0].api_key"]) == "dragoman.toml:9, LOCAL_KEY"
    assert str(loaded.settings.origins["upstreams[0].headers.x-team"]) == "dragoman.toml:18, file:team"
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
        '[server]\ncertfile = "c.pem"\nkeyfile = "/k.pem"\nresponse_store_path = "r.db"\n'
        + LOCAL
        + 'api_key = "${file:keys/local}"\n'
    )
    settings = load(environ={}, path="etc/d.toml").settings
    assert (settings.server.certfile, settings.server.keyfile) == ("etc/c.pem", "/k.pem")
    assert settings.server.response_store_path == "etc/r.db"
    assert settings.upstreams[0].api_key == Secret(CANARY)


def test_a_byte_order_mark_is_no_key() -> None:
    assert load_text(b"\xef\xbb\xbfserver.port = 1\n").settings.server.port == 1


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
        store = {"stored_keys": "true", "account_store": "sqlite", "account_store_path": "a.db"}
        stored = load_text("", {"DRAGOMAN_SECRET": SECRET}, host=host, cors_origins="*", **store)
        assert (stored.warnings, stored.settings.needs_keys) == ((), True), host


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
            environ = {variable: CANARY, **needed_besides_key(provider)}
            (upstream,) = load(environ=environ).settings.upstreams
            url = provider.base_url_in(environ)
            assert (upstream.name, upstream.base_url, upstream.auth) == (provider.name, url, auth), variable
            assert {*upstream.headers} == {name for name, _ in provider.headers}
            for name in environ:  # all of them are needed
                assert not load(environ={**environ, name: ""}).settings.upstreams
            assert upstream.protocol == provider.protocols[0], variable
            assert upstream.protocols == tuple(sorted(provider.protocols)), variable
            assert upstream.api_key == Secret(CANARY), variable


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
        == settings_of(ServerSettings)["max_body_bytes"].limits.le
        == MAX_BODY_BYTES
    )


# config show.


def test_show_does_not_shorten_values() -> None:
    models = ["m" * 300]
    loaded = load_text(LOCAL + f"models = {models}\n")
    assert f'upstreams[0].models = ["{models[0]}"]' in list(config_lines(loaded, with_origin=False))


# Accounts and stores.


def test_accounts_belong_to_their_upstreams_and_each_has_one() -> None:
    cloud, other = LOCAL.replace('"local"', '"cloud"'), LOCAL.replace('"local"', '"other"')
    account = '[[accounts]]\nupstream = "%s"\nname = "%s"\n'
    text = LOCAL + cloud + other + f'api_key = "{CANARY}"\nproxy = "http://proxy:1"\n'
    text += account % ("local", "a") + account % ("cloud", "a") + account % ("local", "b")
    settings = load_text(text).settings
    found = [settings.accounts_of(upstream) for upstream in settings.upstreams]
    seen = [[each.id for each in accounts] for accounts in found]
    assert seen == [["local/a", "local/b"], ["cloud/a"], ["other/default"]]
    assert (found[2][0].api_key, found[2][0].weight) == (Secret(CANARY), 1)


def test_nothing_is_stored_by_default() -> None:
    server = ServerSettings()
    found = (server.response_store, server.response_store_path, server.account_store)
    assert found == ("off", None, "memory")
    assert (server.response_store_max_bytes, server.response_store_max_age_s) == (256 * 2**20, 30 * 86_400)


# (protocol, base URL, True if it stores responses itself, True if it counts tokens)
HOSTS = [
    ("openai_responses", "https://api.openai.com/v1", True, True),
    ("openai_responses", "https://eu.api.openai.com/v1", True, True),
    ("openai_responses", "https://api.openai.com.evil.example/v1", False, False),
    ("openai_responses", "http://127.0.0.1:9000/v1", False, False),
    ("anthropic_messages", "https://api.anthropic.com", False, True),
    ("anthropic_messages", "http://127.0.0.1:9000", False, False),
]


def test_stored_responses_and_token_counts_of_hosts() -> None:
    for protocol, url, stores, counts in HOSTS:
        text = LOCAL.replace("openai_chat", protocol).replace("http://127.0.0.1:9000/v1", url)
        (upstream,) = load_text(text).settings.upstreams
        assert (upstream.stores_responses, upstream.counts_tokens) == (stores, counts), url
        other = f"stores_responses = {str(not stores).lower()}\ncounts_tokens = {str(not counts).lower()}\n"
        (upstream,) = load_text(text + other).settings.upstreams
        assert (upstream.stores_responses, upstream.counts_tokens) == (not stores, not counts), url


# The tables.


def test_every_default_passes_its_own_check() -> None:
    defaults = structs.asdict(ServerSettings())
    assert set(defaults) == set(settings_of(ServerSettings))
    lines = [
        f"{name} = {json.dumps(list(value) if isinstance(value, tuple) else value)}"
        for name, value in defaults.items()
        if value is not None
    ]
    assert load_text("[server]\n" + "\n".join(lines)).settings.server == ServerSettings()


def test_settings_are_frozen() -> None:
    with pytest.raises(AttributeError, match="immutable"):
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
