"""Resolve the capabilities of a model at an upstream from all sources.

Later sources win: the host (`providers`), the model's family (`model_families`), the configuration's
`[[upstreams]]`, its `[[capabilities]]` in their order. What none of them sets is the default of the core's
Capabilities.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import get_type_hints

import msgspec
from msgspec.structs import replace

from dragoman import UPSTREAMS, Capabilities
from dragoman.codec import UpstreamSpec
from dragoman_server.capabilities.model_families import families_of
from dragoman_server.capabilities.providers import host_capabilities, kind_of_host, provider_name
from dragoman_server.settings import Settings, UpstreamSettings
from dragoman_server.settings.fields import NONE, is_optional
from dragoman_server.settings.patterns import matches
from dragoman_server.settings.upstreams import AUTO_VERSION, NEWEST_VERSION


def capabilities_for(
    settings: Settings, upstream: UpstreamSettings, model: str, protocol: UpstreamSpec | None = None
) -> Capabilities:
    """Return the capabilities of an upstream's model, of the protocol's type.

    model: by its name there. protocol: that requests use, by default the preferred one.
    """
    protocol = protocol or UPSTREAMS[upstream.protocol]
    key = "capabilities", upstream.name, model, protocol.name
    found: Capabilities | None = settings.resolved.get(key)
    return found or settings.resolved.keep(key, _resolve(settings, upstream, model, protocol))


class KnownCapability(msgspec.Struct, frozen=True):
    """A capability that is not the default.

    Attributes:
        value: Its value, as a setting.
        source: Where it comes from, for people.
    """

    name: str
    value: object
    source: str

    @property
    def text(self) -> str:
        """The value for people: nearly as the configuration has it."""
        if isinstance(self.value, tuple):
            return "|".join(map(str, self.value)) or "none"
        return str(self.value).lower() if isinstance(self.value, bool) else str(self.value)


def known_capabilities(
    settings: Settings, upstream: UpstreamSettings, model: str, protocol: UpstreamSpec | None = None
) -> dict[str, KnownCapability]:
    """Return what is known about a model of an upstream, by name. A later source overrides those before it."""
    protocol = protocol or UPSTREAMS[upstream.protocol]
    known: dict[str, KnownCapability] = {}
    for source, values in _sources(settings, upstream, model, protocol.name):
        for name in values.keys() & {*protocol.capabilities.__struct_fields__}:
            known[name] = KnownCapability(name, values[name], source)
        if values.get("cache_keys") and "refuses" not in values and "refuses" in known:
            # It says what the key is for, so it overrides an earlier source that refuses the key.
            refused = tuple([each for each in _names(known["refuses"].value) if each != "prompt_cache_key"])
            known["refuses"] = replace(known["refuses"], value=refused)
    return {name: capability for name, capability in known.items() if capability.value is not None}


def _sources(
    settings: Settings, upstream: UpstreamSettings, model: str, protocol: str
) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the sources with what they have, also for other protocols. None: an earlier value does not hold."""
    host = host_capabilities(upstream.base_url, protocol, upstream.host)
    provider = provider_name(upstream.base_url, upstream.host)
    refused = _names(host.get("refuses"))
    yield kind_of_host(upstream.base_url, upstream.host), host
    for family in families_of(model, provider, protocol):
        values = dict(family.capabilities)
        if "refuses" in values:
            # Servers and models refuse parameters independently, so the union is refused.
            values["refuses"] = (*refused, *_names(values["refuses"]))
        yield f"the model family {' '.join(family.patterns)}", values
    yield f"[[upstreams]] {upstream.name}", upstream.capabilities
    for row in settings.capabilities:
        if row.upstream in (None, upstream.name) and matches(model, row.model):
            yield f"[[capabilities]] {row.model}", row.capabilities


def upstreams_without_grammars(settings: Settings) -> list[str]:
    """Return the names of upstreams that enforce no grammar, whatever the model."""
    found = []
    for upstream in settings.upstreams:
        by_default = any(UPSTREAMS[protocol].tool_limits.custom_by_default for protocol in upstream.protocols)
        known = known_capabilities(settings, upstream, "").get("custom_tools")
        if not (by_default if known is None else known.value):
            found.append(upstream.name)
    return found


def _resolve(
    settings: Settings, upstream: UpstreamSettings, model: str, protocol: UpstreamSpec
) -> Capabilities:
    known = {
        name: each.value for name, each in known_capabilities(settings, upstream, model, protocol).items()
    }
    known.setdefault("max_tokens", settings.server.default_max_tokens)
    # Clouds put their own name before the date of the Messages API, as in bedrock-2023-05-31.
    version = upstream.anthropic_version
    has_sampling = version == AUTO_VERSION or version[-len(NEWEST_VERSION) :] < NEWEST_VERSION
    known.setdefault("sampling", has_sampling)  # temperature, top_p and top_k
    # The efforts of its host say nothing about one model.
    family: dict[str, object] = {}
    for matching in families_of(model, provider_name(upstream.base_url, upstream.host), protocol.name):
        family.update(matching.capabilities)
    known.setdefault("encrypted_reasoning", known.get("efforts") != () and bool(family.get("efforts")))
    if known.get("efforts") == ():
        # No reasoning, by whichever parameter.
        known.update(thinking=NONE, reasoning_setting=NONE)
    if "web_search_options" in _names(known.get("refuses")):
        # In Chat Completions, a web search is requested only by this parameter.
        known["hosted_tools"] = tuple(
            [use for use in _names(known.get("hosted_tools")) if use != "web_search"]
        )
    for name in _optional(protocol.capabilities):
        if known.get(name) == NONE:
            known[name] = None
    # Capabilities of models in other protocols are ignored.
    return msgspec.convert(known, protocol.capabilities)


@cache  # it compiles sixty annotations, and each new model asks
def _optional(kind: type[Capabilities]) -> list[str]:
    """Return the names of capabilities that may be None."""
    return [name for name, hint in get_type_hints(kind).items() if is_optional(hint)]


def _names(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else ()
