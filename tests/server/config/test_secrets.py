"""Configuration: no secret is shown in any way."""

import copy
import json
import logging
import pickle
from pathlib import Path

import pytest
from config_text import CANARY, FULL, errors, load_text

from dragoman_server.cli.config_output import config_lines
from dragoman_server.settings import ServerSettings, Settings, UpstreamSettings, settings_of
from dragoman_server.settings.problems import ConfigError
from dragoman_server.settings.secret import Secret


@pytest.mark.promise("S3")
def test_a_secret_is_only_shown_by_reveal() -> None:
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


def test_settings_after_a_reload_mask_the_secrets_before_it() -> None:
    before, after = (Settings(server=ServerSettings(admin_key=Secret(f"{each}-{CANARY}"))) for each in "ab")
    assert after.masking_also(before).mask(f"a-{CANARY} b-{CANARY}") == "**** ****"
    assert after.mask(f"a-{CANARY}") != "****"


@pytest.mark.promise("S3")
def test_a_canary_is_in_no_output(caplog: pytest.LogCaptureFixture) -> None:
    Path("team").write_text(CANARY)
    text = FULL.replace("${ACCOUNT}", "${LOCAL_KEY}")
    loaded = load_text(text, {"LOCAL_KEY": CANARY, "SIZE": "8b", "DRAGOMAN_SECRET": CANARY})
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("test").info("%s %r", loaded.settings.upstreams[0], loaded.settings.upstreams[0])
        logging.getLogger("test").info("%s %r", loaded.settings.server, loaded.settings.server)
    outputs = [
        repr(loaded.settings.upstreams[0]),
        str(loaded.settings.upstreams[0].headers),
        "\n".join(config_lines(loaded, with_origin=True)),
        "\n".join(config_lines(loaded, with_origin=False)),
        caplog.text,
    ]
    for output in outputs:
        assert CANARY not in output
    assert pickle.loads(pickle.dumps(loaded.settings)) == loaded.settings


# No error quotes a value that came out of a variable.
VALUES: list[str] = [CANARY, f"http://u:{CANARY}/@h", f"{CANARY}://h", f"{CANARY}\n", f"http://h:{CANARY}"]


@pytest.mark.promise("S3")
def test_no_error_quotes_the_value_of_a_variable() -> None:
    for value in VALUES:
        for key in [*settings_of(UpstreamSettings), "headers"]:
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
            assert CANARY not in message, key


def test_no_error_quotes_an_expanded_alias_or_server_setting() -> None:
    text = (
        '[server]\nhost = "${V}"\ncors_origins = ["http://${V}"]\nbackend = "${V}"\n[models]\na = "${V}/x"\n'
        '[[rules]]\naction = "try_next"\nstatuses = ["${V}"]\n'
    )
    found = "\n".join(errors(text, {"V": CANARY + " "}))
    assert found.count("\n") == 4
    assert CANARY not in found
