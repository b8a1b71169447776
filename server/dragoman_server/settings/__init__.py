"""Everything that can be set: frozen structs whose annotations are the one table of all settings.

`settings_of` collects the settings of a class from its annotations: type, limits, help text. The TOML reader, the
environment (`DRAGOMAN_` and the field's name), the command line, `dragoman config show` and docs/configuration.md are
all made from them, so a new setting is one new field. `config` reads the values; these modules read nothing.

More than a third of the lines declare settings with their help texts, and a seventh keeps secrets out of texts.
"""

from dragoman_server.settings.capabilities import ModelCapabilitySettings, capability_settings
from dragoman_server.settings.clients import AwsKey, ClientKey, Group, LimitHolder
from dragoman_server.settings.fields import settings_of
from dragoman_server.settings.prices import Price
from dragoman_server.settings.server import ARRAYS, ServerSettings, Settings
from dragoman_server.settings.upstreams import SIMULATOR, AccountSettings, RuleSettings, UpstreamSettings

__all__ = [
    "ARRAYS",
    "SIMULATOR",
    "AccountSettings",
    "AwsKey",
    "ClientKey",
    "Group",
    "LimitHolder",
    "ModelCapabilitySettings",
    "Price",
    "RuleSettings",
    "ServerSettings",
    "Settings",
    "UpstreamSettings",
    "capability_settings",
    "settings_of",
]
