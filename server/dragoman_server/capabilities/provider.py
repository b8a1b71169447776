"""A provider, and what several of them accept. The tables are in `providers` and `cloud_providers`."""

import re
from collections.abc import Mapping
from typing import get_args

import msgspec

from dragoman.codec import Enforced, HostedUse
from dragoman_server.capabilities.cloud_apis import in_partition
from dragoman_server.settings.fields import NONE

# The protocols that the hosts of these tables speak, by their names in the registry. What else needs a certain protocol
# (the event stream of a cloud, first requests of commands) imports its name from here.
CHAT = "openai_chat"
MESSAGES = "anthropic_messages"
RESPONSES = "openai_responses"
GEMINI = "gemini"


# The day on which nearly all sources of these tables were read.
LOOKED_UP = "2026-11-22"


_VARIABLE = re.compile(r"\$\{(\w+)\}")
# Other names of the same variables, which vendors' SDKs read as well.
_OTHER_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "AWS_REGION": ("AWS_DEFAULT_REGION",),
    "GOOGLE_CLOUD_PROJECT": ("ANTHROPIC_VERTEX_PROJECT_ID", "ANTHROPIC_GOOGLE_CLOUD_PROJECT"),
}


class Provider(msgspec.Struct, frozen=True):
    """A provider, by its public hosts.

    Attributes:
        keys: Pairs of an environment variable and the `auth` setting; the first variable that is set wins. Without any,
            the environment makes no upstream of it.
        set_by: Variables of the vendor's clients that show that it is used, maybe with other credentials than a key.
        base_url: The URL of its public API, as the vendor's SDK takes it. `${NAME}` is a variable of the environment.
        url_variable: The variable in which the vendor's SDK takes another one, "" for `<NAME>_BASE_URL`.
        protocols: All that it speaks, the preferred one first.
        source: Where the capabilities are documented.
        date: When that was read.
        capabilities: Settings for upstreams at its hosts that do not set them; `default_model` is its best known model,
            `refuses` and `relay` are about Chat Completions only.
        hosts: Further public hosts, such as hosts of other regions.
        by_protocol: More of them, for one of its protocols.
        headers: Headers that its requests need, each with the environment variable that has its value.
        model_protocols: Patterns of names of models, each with the protocols in which they are served, if that is not
            all; the first one that matches counts.
        compatible: The protocol of servers that call themselves compatible with it, if that is another one.
        models: Patterns of the names of its models, which lead to the upstream of its name.
        models_elsewhere: Else they lead to the first upstream that speaks its preferred protocol.
    """

    name: str
    keys: tuple[tuple[str, str], ...]
    base_url: str
    protocols: tuple[str, ...]
    source: str
    capabilities: Mapping[str, object]
    date: str = LOOKED_UP
    hosts: tuple[str, ...] = ()
    compatible: str | None = None
    by_protocol: Mapping[str, Mapping[str, object]] = msgspec.field(default_factory=dict)
    headers: tuple[tuple[str, str], ...] = ()
    model_protocols: tuple[tuple[str, tuple[str, ...]], ...] = ()
    models: tuple[str, ...] = ()
    models_elsewhere: bool = False
    url_variable: str = ""
    set_by: tuple[str, ...] = ()

    @property
    def base_url_variable(self) -> str:
        return self.url_variable or f"{self.name.upper()}_BASE_URL"

    def base_url_in(self, environ: Mapping[str, str]) -> str | None:
        """Return its base URL as the environment says, None if a variable that is needed for it is not set."""
        if environ.get(self.base_url_variable):
            return environ[self.base_url_variable]
        url = self.base_url
        for name in _VARIABLE.findall(url):
            value = next(
                (environ[each] for each in (name, *_OTHER_VARIABLES.get(name, ())) if environ.get(each)), ""
            )
            if not value:
                return None
            url = url.replace(f"${{{name}}}", value.rstrip("/"))
        return in_partition(url)


# Parameters that only OpenAI has. Elsewhere they have no effect, and servers that check bodies refuse them: "property
# 'store' is unsupported", "Extra inputs are not permitted".
_OPENAI_ONLY = (
    "metadata",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
    "verbosity",
)
REFUSED = (*_OPENAI_ONLY, "allowed_tools", "message_name", "tool_strict", "video")
# Many servers that are compatible with Chat Completions accept no other name of the limit, and no other efforts.
LOCAL: Mapping[str, object] = {
    "max_tokens_field": "max_tokens",
    "efforts": ("low", "medium", "high"),
    "refuses": REFUSED,
}
PUBLIC: Mapping[str, object] = {**LOCAL, "refuses": (*REFUSED, "top_k")}

# What the vendors' own APIs have, of which some clouds have all.
# "Unknown parameter: 'web_search_options'." The models that accept it also search without it.
OPENAI_REFUSED = ("top_k", "video", "web_search_options")
OPENAI_API: Mapping[str, object] = {
    # "Unsupported parameter: 'max_tokens' is not supported with this model."
    "max_tokens_field": "max_completion_tokens",
    "reasoning_field": NONE,
    "custom_tools": True,
    "developer_role": True,
    "mid_system": True,
    "cache_keys": True,
    "hosted_tools": get_args(HostedUse),
    "enforces": get_args(Enforced),
    "stores_responses": True,
    "counts_tokens": True,
    "refuses": OPENAI_REFUSED,
}
CLAUDE_API: Mapping[str, object] = {
    "hosted_tools": get_args(HostedUse),
    "enforces": get_args(Enforced),
    "counts_tokens": True,
}
GEMINI_API: Mapping[str, object] = {**CLAUDE_API, "thought_signatures": True}
