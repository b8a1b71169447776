"""Upstreams that an environment variable is enough for, and what well-known hosts take.

A table of well-known providers. A provider that also speaks a second protocol in part (a beta of
Responses, say) is listed with the one it speaks in full: a translation loses less than a half-implemented
endpoint.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from .capabilities import HOSTED_USES, NONE
from .settings import ANTHROPIC_MESSAGES, OPENAI_CHAT, OPENAI_RESPONSES


@dataclass(frozen=True, slots=True)
class Provider:
    """`keys` are pairs of variable and `auth` setting, the first that is set wins.

    `takes` are settings that hold at the provider's host where nobody set them, however the upstream came to be. One of
    them is `default_model`, its best known model as of 2026-11.
    """

    name: str
    keys: tuple[tuple[str, str], ...]
    base_url_variable: str
    base_url: str
    protocol: str
    protocols: tuple[str, ...]
    takes: Mapping[str, object] = field(default_factory=dict)


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

# Of servers that are compatible with Chat Completions, many know no other name of the limit, and no other efforts.
_COMPATIBLE: Mapping[str, object] = {"max_tokens_field": "max_tokens", "efforts": ("low", "medium", "high")}

PROVIDERS = (
    Provider(
        "openai",
        (("OPENAI_API_KEY", "bearer"),),
        "OPENAI_BASE_URL",
        "https://api.openai.com/v1",
        OPENAI_RESPONSES,
        (OPENAI_CHAT, OPENAI_RESPONSES),
        {
            "default_model": "gpt-5.6",
            # "Unsupported parameter: 'max_tokens' is not supported with this model."
            "max_tokens_field": "max_completion_tokens",
            "reasoning_field": NONE,
            "custom_tools": True,
            "developer_role": True,
            "mid_system": True,
            "hosted_tools": HOSTED_USES,
            "stores_responses": True,
            "counts_tokens": True,
        },
    ),
    Provider(
        "anthropic",
        # The vendor's SDK sends the first as x-api-key and the second as a bearer token.
        (("ANTHROPIC_API_KEY", "x-api-key"), ("ANTHROPIC_AUTH_TOKEN", "bearer")),
        "ANTHROPIC_BASE_URL",
        "https://api.anthropic.com",
        ANTHROPIC_MESSAGES,
        (ANTHROPIC_MESSAGES,),
        {"default_model": "claude-sonnet-5-5", "hosted_tools": HOSTED_USES, "counts_tokens": True},
    ),
    Provider(
        "deepseek",
        (("DEEPSEEK_API_KEY", "bearer"),),
        "DEEPSEEK_BASE_URL",
        "https://api.deepseek.com/v1",
        OPENAI_CHAT,
        _CHAT,
        # "Thinking mode toggle: thinking.type. reasoning_effort: low, high, max." JSON mode is all there is.
        {
            **_COMPATIBLE,
            "default_model": "deepseek-v4-pro",
            "reasoning_setting": "thinking",
            "efforts": ("none", "low", "high", "max"),
            "structured_output": "object",
        },
    ),
    Provider(
        "openrouter",
        (("OPENROUTER_API_KEY", "bearer"),),
        "OPENROUTER_BASE_URL",
        "https://openrouter.ai/api/v1",
        OPENAI_CHAT,
        _CHAT,
        # Its own setting, which it fits to each model; what a model does not take, it leaves out.
        {
            **_COMPATIBLE,
            # It chooses a model for each request.
            "default_model": "openrouter/auto",
            "reasoning_field": "reasoning",
            "reasoning_setting": "reasoning",
            "efforts": ("none", "minimal", "low", "medium", "high", "xhigh"),
        },
    ),
    Provider(
        "groq",
        (("GROQ_API_KEY", "bearer"),),
        "GROQ_BASE_URL",
        "https://api.groq.com/openai/v1",
        OPENAI_CHAT,
        _CHAT,
        # Other names are refused: "property 'reasoning_content' is unsupported". So is an effort by most models,
        # and a schema; see the model families.
        {
            **_COMPATIBLE,
            "default_model": "openai/gpt-oss-120b",
            "reasoning_field": "reasoning",
            "efforts": (),
            "structured_output": "object",
        },
    ),
    Provider(
        "xai",
        (("XAI_API_KEY", "bearer"),),
        "XAI_BASE_URL",
        "https://api.x.ai/v1",
        OPENAI_CHAT,
        _CHAT,
        {**_COMPATIBLE, "default_model": "grok-4.5"},
    ),
    Provider(
        "mistral",
        (("MISTRAL_API_KEY", "bearer"),),
        "MISTRAL_BASE_URL",
        "https://api.mistral.ai/v1",
        OPENAI_CHAT,
        _CHAT,
        # Members of messages that it does not know are refused: "Extra inputs are not permitted".
        # "Tool call id must be a-z, A-Z, 0-9, with a length of 9."
        {
            **_COMPATIBLE,
            "default_model": "mistral-large-latest",
            "reasoning_field": NONE,
            "efforts": (),
            "call_ids": "alnum9",
        },
    ),
)


def is_openai_host(url: str) -> bool:
    """Whether `url` is OpenAI itself or one of its regional hosts, not a compatible server."""
    provider = _provider_at(url)
    return provider is not None and provider.name == "openai"


def takes(url: str) -> Mapping[str, object]:
    """What is known of the host of `url`, for settings that nobody set."""
    provider = _provider_at(url)
    return (provider and provider.takes) or _COMPATIBLE


def provider_name(url: str) -> str | None:
    """The name of the provider whose public host `url` leads to."""
    provider = _provider_at(url)
    return None if provider is None else provider.name


def _provider_at(url: str) -> Provider | None:
    """The provider whose public host, or a subdomain of it (a region), `url` leads to."""
    host = _host(url)
    for provider in PROVIDERS:
        public = _host(provider.base_url)
        if host == public or host.endswith("." + public):
            return provider
    return None


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


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
