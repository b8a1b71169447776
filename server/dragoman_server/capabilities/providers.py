"""The table of well-known providers: which environment variable makes an upstream of each, and what its hosts accept.

A provider that implements a second protocol only in part (a beta of Responses, say) is listed with the one that it
implements in full, because a translation loses less than a half-implemented endpoint.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from dragoman.document import EFFORTS
from dragoman_server.capabilities.cloud_apis import CLOUD_APIS, cloud_api_name_at, host_name
from dragoman_server.capabilities.cloud_providers import CLOUDS
from dragoman_server.capabilities.local_servers import LOCAL_SERVERS, LocalServer
from dragoman_server.capabilities.provider import (
    CHAT,
    CLAUDE_API,
    GEMINI,
    GEMINI_API,
    LOCAL,
    MESSAGES,
    OPENAI_API,
    PUBLIC,
    REFUSED,
    RESPONSES,
    Provider,
)
from dragoman_server.settings import UpstreamSettings
from dragoman_server.settings.fields import NONE
from dragoman_server.settings.patterns import matches
from dragoman_server.settings.upstreams import AUTO_HOST


def _chat(
    name: str,
    base_url: str,
    default_model: str,
    source: str,
    *,
    accepts: tuple[str, ...] = (),
    refuses: tuple[str, ...] = (),
    hosts: tuple[str, ...] = (),
    models: tuple[str, ...] = (),
    **capabilities: object,
) -> Provider:
    """Make a provider of Chat Completions.

    accepts, refuses: how it differs from what PUBLIC refuses. capabilities: other differences from PUBLIC.
    """
    keys = ((f"{name.upper()}_API_KEY", "bearer"),)
    refused = tuple([name for name in (*REFUSED, "top_k") if name not in accepts])
    capabilities |= {"default_model": default_model, "refuses": (*refused, *refuses)}
    capabilities = {**PUBLIC, **capabilities}
    return Provider(name, keys, base_url, (CHAT,), source, capabilities, hosts=hosts, models=models)


PROVIDERS = (
    Provider(
        "openai",
        (("OPENAI_API_KEY", "bearer"),),
        "https://api.openai.com/v1",
        (RESPONSES, CHAT),
        "openai-python 3.54.0; pydantic-ai#2822",
        {"default_model": "gpt-5.6", **OPENAI_API},
        # Few compatible servers have Responses.
        compatible=CHAT,
        models=("gpt-*", "chatgpt-*", "o1*", "o3*", "o4*", "codex-*"),
    ),
    Provider(
        "anthropic",
        # The vendor's SDK sends the first as x-api-key and the second as a bearer token.
        (("ANTHROPIC_API_KEY", "x-api-key"), ("ANTHROPIC_AUTH_TOKEN", "bearer")),
        "https://api.anthropic.com",
        (MESSAGES,),
        "anthropic-python 2.12.0",
        {"default_model": "claude-sonnet-5-5", **CLAUDE_API, "billing_header": True},
        models=("claude-*",),
        # Most upstreams that speak Messages serve Claude.
        models_elsewhere=True,
    ),
    _chat(
        "deepseek",
        "https://api.deepseek.com/v1",
        "deepseek-v4-pro",
        "api-docs.deepseek.com/guides/thinking_mode; cloudwego/eino#994; pi#3636; hermes-webui#2297; 9router#773",
        # Clients adapt to such hosts by their address. Here they have the gateway's, and send what OpenAI accepts: the
        # role developer is refused, and so are turns without their reasoning.
        relay="rewrite",
        # "Thinking mode does not support this tool_choice": it is on by default. "reasoning_effort: low, high, max."
        # "minimal goes to low, medium to high."
        # "The `reasoning_content` in the thinking mode must be passed back." There is JSON mode, but no schema.
        reasoning_setting="thinking",
        efforts=("none", "minimal", "low", "medium", "high", "max"),
        structured_output="object",
        forced_tools="not_thinking",
        reasoning_back="always",
        # "unknown variant `image_url`, expected `text`"
        refuses=("file", "image", "logprobs", "top_logprobs"),
        models=("deepseek-*",),
    ),
    _chat(
        "openrouter",
        "https://openrouter.ai/api/v1",
        "openrouter/auto",  # chooses a model for each request
        "openrouter.ai/docs: api-reference, sdk DefaultEffort, multimodal/videos; bifrost#7261",
        # It fits its own setting to each model, and leaves out what a model does not accept.
        reasoning_field="reasoning",
        reasoning_setting="reasoning",
        efforts=EFFORTS,
        cache_marks="cache_control",
        developer_role=True,
        accepts=("user", "verbosity", "top_k", "video"),
    ),
    _chat(
        "groq",
        "https://api.groq.com/openai/v1",
        "openai/gpt-oss-120b",
        "console.groq.com/docs/openai; opencode 1.18.33; vercel/ai#16540",
        # reasoning_content and unknown members are refused.
        relay="rewrite",
        # "json mode cannot be combined with tool/function calling"
        format_with_tools="no",
        # Other names are refused: "property 'reasoning_content' is unsupported". Most models refuse an effort
        # and a schema, see the model families. For members in `refuses`, "a 400 error will be returned".
        reasoning_field="reasoning",
        efforts=(),
        structured_output="object",
        refuses=("logit_bias", "logprobs", "n", "top_logprobs"),
    ),
    _chat(
        "cerebras",
        "https://api.cerebras.ai/v1",
        "gpt-oss-120b",
        "req_llm's guide to Cerebras",
        relay="rewrite",  # removes the members of `refuses` from a client's body
        # Tools should be strict there, and `tool_choice` is auto or none.
        max_tokens_field="max_completion_tokens",
        reasoning_field="reasoning",
        forced_tools="no",
        accepts=("tool_strict",),
        refuses=("frequency_penalty", "logit_bias", "parallel_tool_calls", "presence_penalty"),
    ),
    _chat("xai", "https://api.x.ai/v1", "grok-4.5", "docs.x.ai", developer_role=True, models=("grok-*",)),
    _chat(
        "mistral",
        "https://api.mistral.ai/v1",
        "mistral-large-latest",
        "eca#231; crush#1590; avante#2695; mistral-go#2; pi 0.73.1, opencode 1.18.33",
        # Unknown members are refused, store and reasoning_content too: "Extra inputs are not permitted".
        relay="rewrite",
        # "Tool call id must be a-z, A-Z, 0-9, with a length of 9." "Unexpected role 'user' after role 'tool'."
        reasoning_field=NONE,
        efforts=(),
        call_ids="alnum9",
        turn_order="no_user_after_tool",
        accepts=("tool_strict",),
        refuses=("logit_bias", "logprobs", "seed", "top_logprobs"),
        models=("mistral-*", "magistral-*", "ministral-*", "codestral-*", "devstral-*"),
    ),
    _chat(
        "together",
        "https://api.together.ai/v1",
        "openai/gpt-oss-120b",
        "docs.together.ai; langchain_together (top_k)",
        accepts=("top_k",),
        hosts=("api.together.xyz",),
    ),
    _chat(
        "fireworks",
        "https://api.fireworks.ai/inference/v1",
        "accounts/fireworks/models/gpt-oss-120b",
        "docs.fireworks.ai; langchain_fireworks (top_k)",
        accepts=("top_k",),
    ),
    _chat(
        "moonshot",
        "https://api.moonshot.ai/v1",
        "kimi-k3",
        "kimi-code#686; new-api#3121; agentscope's page on Kimi; VideoAdGuard#34; @ai-sdk/moonshotai 3.0.32",
        # Other sampling than the model's own is refused, and tool calls without their reasoning are:
        # "thinking is enabled but reasoning_content is missing in assistant tool call message"
        max_tokens_field="max_completion_tokens",
        relay="rewrite",
        forced_tools="not_thinking",
        reasoning_back="always",
        tool_images=True,
        accepts=("video",),
        hosts=("api.moonshot.cn",),
        models=("kimi-*",),
    ),
    _chat(
        "zai",
        "https://api.z.ai/api/paas/v4",
        "glm-5.3",
        "docs.z.ai/guides/capabilities/thinking-mode; agentscope's page on GLM",
        # Thinking is on by default, and has no efforts. "Thoughts go back unmodified with tool results."
        reasoning_setting="thinking",
        efforts=None,
        structured_output="object",
        forced_tools="no",
        reasoning_back="tool_loop",
        refuses=("frequency_penalty", "logit_bias", "logprobs", "presence_penalty", "seed", "top_logprobs"),
        hosts=("open.bigmodel.cn",),
        models=("glm-*",),
    ),
    _chat(
        "minimax",
        "https://api.minimax.io/v1",
        "MiniMax-M3.1",
        "openclaw#19386; cherry-studio#16431; platform.minimax.io; qwen-code#11905",
        # Functions without parameters are refused, too.
        relay="rewrite",
        # "invalid thinking.type: "enabled" (allowed: adaptive, disabled) (2013)"
        max_tokens_field="max_completion_tokens",
        reasoning_setting="thinking",
        thinking_type="adaptive",
        efforts=None,
        hosts=("api.minimaxi.com",),
    ),
    _chat(
        "dashscope",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "qwen3.8-max",
        "alibabacloud.com/help/model-studio; cloudwego/eino#994",
        # "The tool_choice parameter does not support being set to required or object in thinking mode"
        relay="rewrite",
        reasoning_setting="enable_thinking",
        efforts=None,
        structured_output="object",
        forced_tools="not_thinking",
        accepts=("video",),
        hosts=("dashscope.aliyuncs.com",),
        models=("qwen*",),
    ),
    Provider(
        "gemini",
        # google-genai reads both.
        (("GEMINI_API_KEY", "auto"), ("GOOGLE_API_KEY", "auto")),
        "https://generativelanguage.googleapis.com",
        (GEMINI,),
        "google-genai 3.4.0; ai.google.dev/gemini-api/docs/openai; paws#103; continue#8865; SkyrimNet-GamePlugin#77",
        {"default_model": "gemini-3.8-flash", **GEMINI_API},
        by_protocol={
            CHAT: {
                **PUBLIC,
                # "Function call is missing a thought_signature in functionCall parts." "Unknown name
                # "frequency_penalty"". Other unknown members are refused as well.
                "relay": "rewrite",
                "reasoning_field": NONE,
                "hosted_tools": (),
                "enforces": (),
                "counts_tokens": False,
                "refuses": (*REFUSED, "top_k", "frequency_penalty"),
            }
        },
        models=("gemini-*",),
        url_variable="GOOGLE_GEMINI_BASE_URL",
    ),
    Provider(
        "ollama",
        (),  # the variable may be there for the server on this machine
        "https://ollama.com/v1",
        (CHAT,),
        "docs.ollama.com/api/authentication",
        PUBLIC,
        date="2026-11-29",
        # "x-api-key alone is not supported."
        by_protocol={MESSAGES: {"auth": "bearer"}},
    ),
    Provider(
        "github",
        (),  # nor does a token of GitHub show that it is for its models
        "https://models.github.ai/inference",
        (CHAT,),
        "docs.github.com/rest/models; github.blog/changelog/2025-05-15-github-models-api-now-available",
        # "GET /catalog/models", which is elsewhere and has another form
        {**PUBLIC, "model_list": False},
        date="2026-11-29",
    ),
    *CLOUDS,
)


@lru_cache(maxsize=256)  # each new model asks, and only the settings have such URLs
def host_capabilities(url: str, protocol: str, host: str = AUTO_HOST) -> Mapping[str, object]:
    """Return the capabilities of the host of `url` for this protocol, for settings that the user did not set.

    host: UpstreamSettings.host.
    """
    server = provider_at(url, host) or local_server_at(url)
    if isinstance(server, Provider):
        known = server.capabilities
    else:
        # Local servers accept top_k; public ones may refuse it.
        known = LOCAL if is_local(url) else PUBLIC
    if protocol != CHAT:
        known = {name: value for name, value in known.items() if name not in ("refuses", "relay")}
    if protocol == MESSAGES:
        known = {"billing_header": False, **known}
    return known if server is None else {**known, **server.by_protocol.get(protocol, {})}


def providers_of_model(model: str) -> Iterator[Provider]:
    """Yield the providers whose model has this name."""
    return (provider for provider in PROVIDERS if any(matches(model, pattern) for pattern in provider.models))


def protocols_at(provider: Provider, url: str) -> tuple[str, ...]:
    """Return the protocols of a server that is used in a provider's place, the preferred one first."""
    if provider.compatible is not None and provider_at(url) is not provider:
        return (provider.compatible,)
    return provider.protocols


def protocols_of_model(upstream: UpstreamSettings, model: str) -> tuple[str, ...]:
    """Return the protocols in which an upstream serves a model, the preferred one first."""
    served: tuple[str, ...] = ()
    if host_name(upstream) in CLOUD_APIS:
        provider = provider_at(upstream.base_url, upstream.host)
        rows = () if provider is None else provider.model_protocols
        served = next((protocols for pattern, protocols in rows if matches(model, pattern)), ())
    names = sorted(upstream.protocols, key=lambda name: name != upstream.protocol)
    return tuple([name for name in served if name in names] or names)


def provider_name(url: str, host: str = AUTO_HOST) -> str | None:
    """Return the name of the provider whose public host `url` leads to, or None. host: UpstreamSettings.host."""
    provider = provider_at(url, host)
    return None if provider is None else provider.name


@lru_cache(maxsize=256)
def provider_at(url: str, host: str = AUTO_HOST) -> Provider | None:
    """Return the provider to whose cloud API or public host, or a subdomain of it (a region), `url` leads.

    host: UpstreamSettings.host.
    """
    api = (
        cloud_api_name_at(url)
        if host == AUTO_HOST
        else CLOUD_APIS[host].provider or host
        if host in CLOUD_APIS
        else ""
    )
    if api:
        return next((provider for provider in PROVIDERS if provider.name == api), None)
    host, _ = address_of(url)
    for provider in PROVIDERS:
        for public in (urlsplit(provider.base_url).netloc, *provider.hosts):
            # The addresses of some clouds are set by variables, so that they have no host here.
            if public and (host == public or host.endswith("." + public)):
                return provider
    return None


def local_server_at(url: str) -> LocalServer | None:
    """Return the local server whose default port `url` has, None for a public host as well."""
    port = address_of(url)[1]
    found = next((each for each in LOCAL_SERVERS if address_of(each.base_url)[1] == port), None)
    return found if found is not None and is_local(url) else None


@lru_cache(maxsize=256)
def kind_of_host(url: str, host: str = AUTO_HOST) -> str:
    """Return what is known of the host of `url`, for people. host: UpstreamSettings.host."""
    provider = provider_at(url, host)
    if provider is not None:
        return f"the host of {provider.name}"
    return "a host on a private network" if is_local(url) else "an unknown public host"


def is_local(url: str) -> bool:
    """True if the host is this machine or in a private network: by its address, or by a name without a dot."""
    host, _ = address_of(url)
    try:
        return ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith((".local", ".internal", ".localhost"))


def address_of(url: str) -> tuple[str, int | None]:
    """Return host and port of a URL; of one that is malformed an empty text and None."""
    try:
        parts = urlsplit(url)
        return parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return "", None


def discover_providers(environ: Mapping[str, str]) -> Iterator[tuple[Provider, str, str]]:
    """Yield the providers whose keys are set, each with the variable and its `auth`, in the table's order.

    So is everything else that their requests need. An empty variable counts as unset.
    """
    for provider in PROVIDERS:
        for variable, auth in provider.keys:
            needed = (variable, *(by for _, by in provider.headers))
            if all(map(environ.get, needed)) and provider.base_url_in(environ) is not None:
                yield provider, variable, auth
                break
