"""Everything that can be set: frozen dataclasses whose annotations are the one table of all keys.

Each field carries a `SettingSpec`: its kind, its range, its help text. The TOML reader, the environment (`DRAGOMAN_`
and the field's name), the command line, `dragoman config show` and docs/configuration.md are all made from these
tables, so a new setting is one new field. `config` reads the values; these modules read nothing.
"""

from dragoman_server.settings.capabilities import (
    CAPABILITY_KEYS,
    MODEL_KEYS,
)
from dragoman_server.settings.fields import (
    keys_of,
)
from dragoman_server.settings.server import (
    ACCOUNT_STORES,
    BOTH,
    BUDGET_PERIODS,
    CLIENT_KEY_KEYS,
    ENV_PREFIX,
    FULL,
    LOOPBACK_ORIGINS,
    MAX_BODY_BYTES,
    MODEL_NAMES,
    PLAIN,
    PRICE_KEYS,
    RESPONSE_STORES,
    SERVER_KEYS,
    ClientKey,
    Price,
    ServerSettings,
    Settings,
)
from dragoman_server.settings.upstreams import (
    ACCOUNT_KEYS,
    AUTO_VERSION,
    DEFAULT_ACCOUNT,
    LOSS_POLICIES,
    NEWEST_VERSION,
    RULE_KEYS,
    SIMULATOR,
    SIMULATOR_UPSTREAM,
    UPSTREAM_KEYS,
    UPSTREAM_PROTOCOLS,
    VERSION_HEADER,
    AccountSettings,
    RuleSettings,
    UpstreamSettings,
    upstream_keys,
)

__all__ = [
    "ACCOUNT_KEYS",
    "ACCOUNT_STORES",
    "AUTO_VERSION",
    "BOTH",
    "BUDGET_PERIODS",
    "CAPABILITY_KEYS",
    "CLIENT_KEY_KEYS",
    "DEFAULT_ACCOUNT",
    "ENV_PREFIX",
    "FULL",
    "LOOPBACK_ORIGINS",
    "LOSS_POLICIES",
    "MAX_BODY_BYTES",
    "MODEL_KEYS",
    "MODEL_NAMES",
    "NEWEST_VERSION",
    "PLAIN",
    "PRICE_KEYS",
    "RESPONSE_STORES",
    "RULE_KEYS",
    "SERVER_KEYS",
    "SIMULATOR",
    "SIMULATOR_UPSTREAM",
    "UPSTREAM_KEYS",
    "UPSTREAM_PROTOCOLS",
    "VERSION_HEADER",
    "AccountSettings",
    "ClientKey",
    "Price",
    "RuleSettings",
    "ServerSettings",
    "Settings",
    "UpstreamSettings",
    "keys_of",
    "upstream_keys",
]
