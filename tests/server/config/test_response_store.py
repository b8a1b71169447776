"""The settings of the response store and of counts: valid combinations, and defaults for well-known hosts."""

from pathlib import Path

import pytest
from config_text import errors, load_text

from dragoman_server.config.loader import load
from dragoman_server.platform.extras import install_command

UPSTREAM = '[[upstreams]]\nname = "up"\nprotocol = "%s"\nbase_url = "%s"\n'
RESPONSES, MESSAGES = "openai_responses", "anthropic_messages"


def test_nothing_is_stored_by_default() -> None:
    server = load_text("").settings.server
    assert server.response_store == "off"
    assert server.response_store_path is None
    assert server.response_store_max_bytes == 256 * 2**20
    assert server.response_store_max_age_s == 30 * 86_400


def test_a_file_is_named_from_where_the_configuration_is(tmp_path: Path) -> None:
    folder = tmp_path / "etc"
    folder.mkdir()
    file = folder / "dragoman.toml"
    file.write_text('[server]\nresponse_store = "sqlite"\nresponse_store_path = "state/responses.db"\n')
    server = load(environ={}, path=str(file)).settings.server
    assert server.response_store_path == str(folder / "state" / "responses.db")


def test_the_environment_can_switch_it_on() -> None:
    environ = {"DRAGOMAN_RESPONSE_STORE": "sqlite", "DRAGOMAN_RESPONSE_STORE_PATH": "/tmp/x.db"}
    server = load_text("", environ).settings.server
    assert (server.response_store, server.response_store_path) == ("sqlite", "/tmp/x.db")


SQLITE = '[server]\nresponse_store = "sqlite"\n'
MEMORY = '[server]\nresponse_store = "memory"\n'


def test_sqlite_needs_a_file() -> None:
    needs = "server.response_store: needs response_store_path as well"
    assert errors(SQLITE) == [f"dragoman.toml:2: {needs}"]
    assert len(errors("", {"DRAGOMAN_RESPONSE_STORE": "sqlite"})) == 1
    # An invalid path is one error, not two.
    assert len(errors(SQLITE + "response_store_path = 5\n")) == 1
    load_text(SQLITE + 'response_store_path = "x.db"\n')


def test_memory_is_for_one_process() -> None:
    text = "server.response_store: exists in one process only, and there are several workers: use sqlite"
    assert errors(MEMORY + "workers = 2\n") == [f"dragoman.toml:2: {text}"]
    assert len(errors(MEMORY, workers="2")) == 1
    load_text(MEMORY + "workers = 1\n")
    load_text(SQLITE + 'response_store_path = "x.db"\nworkers = 2\n')


@pytest.mark.parametrize(
    "line",
    [
        'response_store = "redis"',
        "response_store_max_bytes = 1000",
        "response_store_max_age_s = 0",
        'response_store_path = ""',
    ],
)
def test_values_out_of_range_are_errors(line: str) -> None:
    assert len(errors(f"[server]\n{line}\n")) == 1


# The account store.

ACCOUNTS = '[server]\naccount_store = "%s"\n'


def test_accounts_are_in_memory_by_default() -> None:
    server = load_text("").settings.server
    assert (server.account_store, server.account_store_path, server.account_store_url) == (
        "memory",
        None,
        None,
    )
    load_text("[server]\nworkers = 2\n")


@pytest.mark.parametrize(
    ("store", "needed", "value"),
    [
        ("sqlite", "account_store_path", "a.db"),
        ("valkey", "account_store_url", "valkey://user:hunter2@host:1/2"),
        ("valkey", "account_store_url", "unix:///run/valkey.sock?db=3"),
    ],
)
def test_an_account_store_needs_a_place(store: str, needed: str, value: str) -> None:
    text = ACCOUNTS % store
    assert errors(text) == [f"dragoman.toml:2: server.account_store: needs {needed} as well"]
    server = load_text(f'{text}{needed} = "{value}"\n').settings.server
    assert server.account_store == store
    assert "hunter2" not in repr(server)


def test_an_invalid_url_is_an_error_that_does_not_show_it() -> None:
    # Other invalid URLs: tests/server/accounts/test_store_choice.py
    assert errors('[server]\naccount_store_url = "valkey://:hunter2@host:port"\n') == [
        "dragoman.toml:2: server.account_store_url: is not of the form valkey://host:port/db, "
        "valkeys://... or unix:///path"
    ]


def test_the_extra_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman_server.platform.extras.find_spec", lambda name: None)
    text = ACCOUNTS % "valkey" + 'account_store_url = "valkey://host"\n'
    assert errors(text) == [
        f"dragoman.toml:2: server.account_store: needs an extra: {install_command('valkey')}"
    ]


# (protocol, base URL, True if it stores responses itself, True if it counts tokens)
HOSTS = [
    (RESPONSES, "https://api.openai.com/v1", True, True),
    (RESPONSES, "https://eu.api.openai.com/v1", True, True),
    (RESPONSES, "https://api.openai.com.evil.example/v1", False, False),
    (RESPONSES, "http://127.0.0.1:9000/v1", False, False),
    (MESSAGES, "https://api.anthropic.com", False, True),
    (MESSAGES, "http://127.0.0.1:9000", False, False),
]


def test_stored_responses_and_token_counts_of_hosts() -> None:
    for protocol, url, stores, counts in HOSTS:
        (upstream,) = load_text(UPSTREAM % (protocol, url)).settings.upstreams
        assert (upstream.stores_responses, upstream.counts_tokens) == (stores, counts), url
        other = f"stores_responses = {str(not stores).lower()}\ncounts_tokens = {str(not counts).lower()}\n"
        (upstream,) = load_text(UPSTREAM % (protocol, url) + other).settings.upstreams
        assert (upstream.stores_responses, upstream.counts_tokens) == (not stores, not counts), url
