"""Capabilities of an upstream or a model, as settings: what it accepts beyond its protocol.

Their keys are the fields of `UpstreamSpec.capabilities` of the protocols. The tables of well-known hosts and of model
families, `[[upstreams]]` and `[[capabilities]]` of the configuration have values by these keys; a key that is not in
one of them is unset, so that one source can be laid over another. They apply to translated requests; relayed ones stay
as the client has written them, unless `relay` is "rewrite".
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Self

from msgspec import Struct, field
from msgspec.structs import replace

from dragoman import PROTOCOLS, Capabilities
from dragoman.codec import UpstreamSpec
from dragoman.document import REFUSABLE_MEMBERS
from dragoman_server.settings.fields import Name, SettingKind, SettingSpec, settings_of

# The neutral names of the settings of all protocols: Chat Completions' names if it has the setting.
REFUSABLE: tuple[str, ...] = tuple(
    sorted({*REFUSABLE_MEMBERS, *(name for spec in PROTOCOLS.values() for name in spec.settings)})
)

# What applies where no source sets one, if that is not the default of the core.
_UNSET = {
    "max_tokens": "default_max_tokens of [server]",
    "max_output_tokens": "from the model's family or the upstream's model list",
    "context_window": "from the model's family or the upstream's model list",
    "sampling": "unless anthropic_version is 2026-10-21 or later",
    "encrypted_reasoning": "for model families that are known to reason",
    "billing_header": "only at Anthropic's host",
}


def capability_settings(specs: Iterable[UpstreamSpec]) -> dict[str, SettingSpec]:
    """Return what can be set for upstreams that speak one of these protocols, by name."""
    keys = dict(settings_of(Capabilities))
    for spec in specs:
        keys |= settings_of(spec.capabilities)
    keys["refuses"] = replace(keys["refuses"], choices=REFUSABLE, kind=SettingKind.CHOICES)
    for name in keys.keys() & _UNSET:
        keys[name] = replace(keys[name], help=f"{keys[name].help}; unset: {_UNSET[name]}", default=None)
    return keys


class CapabilitySettings(Struct, frozen=True, kw_only=True):
    """A table that may have capabilities, by their keys."""

    capabilities: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Return the table with these values. Those that it has no field for are capabilities, None is unset."""
        own = values.keys() & {*cls.__struct_fields__}
        capabilities = {
            name: value for name, value in values.items() if name not in own and value is not None
        }
        return cls(**{name: values[name] for name in own}, capabilities=capabilities)


class ModelCapabilitySettings(CapabilitySettings, frozen=True, kw_only=True):
    """One `[[capabilities]]` table."""

    model: Annotated[
        str, "the upstream's name of the model; * matches any text; later tables override earlier ones"
    ]
    upstream: Annotated[Name | None, "upstream that the table applies to; unset: all"] = None
