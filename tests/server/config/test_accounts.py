"""Configuration of accounts, rules and chains: TOML text in, settings or exact error lines out."""

from config_text import CANARY, LOCAL, load_text

from dragoman import PROTOCOLS
from dragoman_server.cli.config_file import config_lines
from dragoman_server.proxying.destinations import find_destinations
from dragoman_server.settings import AccountSettings, RuleSettings
from dragoman_server.settings.secret import Secret

CLOUD = LOCAL.replace('"local"', '"cloud"').replace("9000", "9001")
# Nine lines.
TWO = LOCAL + "\n" + CLOUD


def account(upstream: str = "local", name: str = "a", more: str = "") -> str:
    return f'[[accounts]]\nupstream = "{upstream}"\nname = "{name}"\n{more}'


# Good ones.


def test_an_upstream_without_accounts_has_one() -> None:
    settings = load_text(LOCAL + f'api_key = "{CANARY}"\nproxy = "http://proxy:1"\n').settings
    (only,) = settings.accounts_of(settings.upstreams[0])
    assert (only.id, only.api_key, only.weight) == ("local/default", Secret(CANARY), 1)
    assert settings.accounts == ()


def test_accounts_belong_to_their_upstreams() -> None:
    text = TWO + account(name="a") + account("cloud", "a") + account(name="b")
    settings = load_text(text).settings
    local, cloud = settings.upstreams
    assert [each.id for each in settings.accounts_of(local)] == ["local/a", "local/b"]
    assert [each.id for each in settings.accounts_of(cloud)] == ["cloud/a"]


def test_every_setting_of_an_account() -> None:
    more = """\
api_key = "${KEY}"
proxy = "socks5://user:${KEY}@proxy:1080"
weight = 3
requests_per_minute = 50
tokens_per_minute = 30000
max_concurrent_requests = 4
"""
    settings = load_text(LOCAL + account(more=more), {"KEY": CANARY}).settings
    assert settings.accounts == (
        AccountSettings(
            upstream="local",
            name="a",
            api_key=Secret(CANARY),
            proxy=Secret(f"socks5://user:{CANARY}@proxy:1080"),
            weight=3,
            requests_per_minute=50,
            tokens_per_minute=30_000,
            max_concurrent_requests=4,
        ),
    )
    assert CANARY not in repr(settings)


def test_the_settings_for_the_accounts_of_an_upstream() -> None:
    more = 'selection = "most_remaining"\nsticky = false\nhedge_s = 2.5\n'
    upstream = load_text(LOCAL + more).settings.upstreams[0]
    assert (upstream.selection, upstream.sticky, upstream.hedge_s) == ("most_remaining", False, 2.5)
    upstream = load_text(LOCAL).settings.upstreams[0]
    assert (upstream.selection, upstream.sticky, upstream.hedge_s) == ("least_recently_used", True, 0)


def test_every_setting_of_a_rule() -> None:
    text = """\
[[rules]]
action = "try_next"
upstream = "local"
statuses = [400, 418]
codes = ["engine", "shard"]
words = ["Out of Shards"]

[[rules]]
action = "retry_later"
statuses = [404]
"""
    assert load_text(LOCAL + text).settings.rules == (
        RuleSettings(
            action="try_next",
            upstream="local",
            statuses=(400, 418),
            codes=("engine", "shard"),
            words=("Out of Shards",),
        ),
        RuleSettings(action="retry_later", statuses=(404,)),
    )


CONDITIONS: list[str] = ["statuses = [500]", 'codes = ["x"]', 'words = ["x"]']


ACTIONS: list[str] = ["return_to_client", "try_next", "cool_down", "disable", "retry_later"]


def test_a_rule_has_any_action_and_any_condition() -> None:
    for action in ACTIONS:
        for condition in CONDITIONS:
            text = f'[[rules]]\naction = "{action}"\n{condition}\n'
            (rule,) = load_text(LOCAL + text).settings.rules
            assert rule.action == action, (action, condition)


def test_a_model_may_be_a_chain() -> None:
    text = (
        TWO
        + '[models]\nfast = ["local/small", "cloud/${SIZE}", "sim/echo"]\n"gpt-*" = ["cloud/x"]\none = "local/y"\n'
    )
    settings = load_text(text, {"SIZE": "tiny"}).settings
    assert settings.models == {
        "fast": ("local/small", "cloud/tiny", "sim/echo"),
        "gpt-*": ("cloud/x",),
        "one": "local/y",
    }
    for model, expected in (
        ("fast", [("local", "small"), ("cloud", "tiny"), ("sim", "echo")]),
        ("gpt-5", [("cloud", "x")]),
        ("one", [("local", "y")]),
    ):
        found = find_destinations(settings, PROTOCOLS["openai_chat"], model)
        assert [(each.settings.name, each.upstream_model) for each in found] == expected


def test_accounts_are_shown_without_keys() -> None:
    text = LOCAL + account(more='api_key = "${KEY}"\nproxy = "http://user:${KEY}@proxy:1"\nweight = 2\n')
    text += '[[rules]]\naction = "try_next"\nstatuses = [400]\n[models]\nfast = ["local/a", "sim/echo"]\n'
    loaded = load_text(text, {"KEY": CANARY})
    shown = list(config_lines(loaded, with_origin=False))
    assert CANARY not in "\n".join(shown)
    for line in (
        'rules[0].action = "try_next"',
        "rules[0].statuses = [400]",
        'models.fast = ["local/a", "sim/echo"]',
    ):
        assert line in shown
    assert "accounts[0].weight = 2" in shown
