"""Upstreams that an environment variable is enough for.

A table of well-known providers. A provider that also speaks a second protocol in part (a beta of
Responses, say) is listed with the one it speaks in full: a translation loses less than a half-implemented
endpoint.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from .settings import ANTHROPIC_MESSAGES, OPENAI_CHAT, OPENAI_RESPONSES


@dataclass(frozen=True, slots=True)
class Provider:
    """`keys` are pairs of variable and `auth` setting, the first that is set wins."""

    name: str
    keys: tuple[tuple[str, str], ...]
    base_url_variable: str
    base_url: str
    protocol: str
    protocols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """A provider whose key is set; `base_url_variable` is None where the public URL is used."""

    provider: Provider
    key_variable: str
    auth: str
    base_url: str
    base_url_variable: str | None
    protocol: str
    protocols: tuple[str, ...]


_CHAT = (OPENAI_CHAT,)

PROVIDERS = (
    Provider(
        "openai",
        (("OPENAI_API_KEY", "bearer"),),
        "OPENAI_BASE_URL",
        "https://api.openai.com/v1",
        OPENAI_RESPONSES,
        (OPENAI_CHAT, OPENAI_RESPONSES),
    ),
    Provider(
        "anthropic",
        # The vendor's SDK sends the first as x-api-key and the second as a bearer token.
        (("ANTHROPIC_API_KEY", "x-api-key"), ("ANTHROPIC_AUTH_TOKEN", "bearer")),
        "ANTHROPIC_BASE_URL",
        "https://api.anthropic.com",
        ANTHROPIC_MESSAGES,
        (ANTHROPIC_MESSAGES,),
    ),
    Provider(
        "deepseek",
        (("DEEPSEEK_API_KEY", "bearer"),),
        "DEEPSEEK_BASE_URL",
        "https://api.deepseek.com/v1",
        OPENAI_CHAT,
        _CHAT,
    ),
    Provider(
        "openrouter",
        (("OPENROUTER_API_KEY", "bearer"),),
        "OPENROUTER_BASE_URL",
        "https://openrouter.ai/api/v1",
        OPENAI_CHAT,
        _CHAT,
    ),
    Provider(
        "groq",
        (("GROQ_API_KEY", "bearer"),),
        "GROQ_BASE_URL",
        "https://api.groq.com/openai/v1",
        OPENAI_CHAT,
        _CHAT,
    ),
    Provider("xai", (("XAI_API_KEY", "bearer"),), "XAI_BASE_URL", "https://api.x.ai/v1", OPENAI_CHAT, _CHAT),
    Provider(
        "mistral",
        (("MISTRAL_API_KEY", "bearer"),),
        "MISTRAL_BASE_URL",
        "https://api.mistral.ai/v1",
        OPENAI_CHAT,
        _CHAT,
    ),
)


def is_openai_host(url: str) -> bool:
    """Whether `url` is OpenAI itself or one of its regional hosts, not a compatible server."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    return host == "api.openai.com" or host.endswith(".api.openai.com")


def discover(environ: Mapping[str, str]) -> list[Found]:
    """The providers whose keys are set, in the table's order. An empty variable counts as unset."""
    found = []
    for provider in PROVIDERS:
        for variable, auth in provider.keys:
            if environ.get(variable):
                found.append(_found(provider, variable, auth, environ))
                break
    return found


def _found(provider: Provider, variable: str, auth: str, environ: Mapping[str, str]) -> Found:
    url = environ.get(provider.base_url_variable)
    protocol, protocols = provider.protocol, provider.protocols
    if url and OPENAI_RESPONSES in protocols and not is_openai_host(url):
        # What calls itself compatible with OpenAI speaks Chat Completions; Responses only now and then.
        protocol, protocols = OPENAI_CHAT, _CHAT
    return Found(
        provider=provider,
        key_variable=variable,
        auth=auth,
        base_url=url or provider.base_url,
        base_url_variable=provider.base_url_variable if url else None,
        protocol=protocol,
        protocols=protocols,
    )
