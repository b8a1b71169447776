"""The table of clients for `dragoman run` and the banner: the variables and arguments with which each uses a gateway.

Pure functions make them. A client's files are never read or written. A client that is not in the table gets the
variables of the SDKs.
"""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import PurePath
from urllib.parse import urlsplit

import msgspec

from dragoman_server.settings.server import KEY_VARIABLE
from dragoman_server.settings.values import is_loopback, proxies_of

# A gateway without client keys accepts every key, and vendors' clients require one.
ANY_KEY = "any"

# The value of one variable of the environment is at most 128 KiB on Linux. So many models fit in any case.
_MAX_MODELS = 100

_NO_PROXY_VARIABLES = ("no_proxy", "NO_PROXY")


@dataclass(frozen=True, slots=True)
class ClientTarget:
    """The gateway and the models for one client.

    Attributes:
        url: The gateway's, without a path.
        key: The key for the gateway.
        model, small_model: None leaves the choice to the client.
        small_model: The model for titles and summaries.
        context, output: The model's, in tokens; None: unknown.
        models: The names that the client may offer.
    """

    url: str
    key: str = field(repr=False)
    model: str | None = None
    small_model: str | None = None
    context: int | None = None
    output: int | None = None
    models: tuple[str, ...] = ()

    @property
    def openai_url(self) -> str:
        """The base URL as OpenAI's SDKs take it."""
        return f"{self.url}/v1"


# Returns the value for a target, None for no variable or argument.
Value = Callable[[ClientTarget], str | None]


class Client(msgspec.Struct, frozen=True):
    """One client.

    Attributes:
        variables: The variables in its environment.
        needed: The ones that suffice for a first try.
        options: Pairs of an option and its value, before its own arguments.
        unset: Variables of the user that would lead it to another server or another key.
        own_models: Names that it requests if nobody chooses a model. If the gateway routes them all, nothing is chosen.
        settings_option: Takes a file of settings that outrank the user's: {"env": variables}.
        first_request: Tokens of its first request, with its instructions and tools: a fourth of its bytes.
    """

    variables: Mapping[str, Value]
    needed: tuple[str, ...] = ()
    options: tuple[tuple[str, Value], ...] = ()
    unset: tuple[str, ...] = ()
    own_models: tuple[str, ...] = ()
    settings_option: str = ""
    first_request: int = 0

    def environment(self, target: ClientTarget, environ: Mapping[str, str]) -> dict[str, str | None]:
        """Return what changes in its environment: the value of each variable, None to unset it."""
        changes: dict[str, str | None] = dict.fromkeys(name for name in self.unset if name in environ)
        changes |= {
            name: found for name, value in self.variables.items() if (found := value(target)) is not None
        }
        host = urlsplit(target.url).hostname or ""
        if is_loopback(host) and any(proxies_of(environ)):
            # Or the client would send requests for this machine to the proxy.
            for name in _NO_PROXY_VARIABLES:
                changes[name] = ",".join(filter(None, (environ.get(name), host)))
        return changes

    def arguments(self, target: ClientTarget) -> list[str]:
        """Return the arguments that come before its own."""
        return [
            word
            for name, value in self.options
            if (found := value(target)) is not None
            for word in (name, found)
        ]

    def settings(self, target: ClientTarget) -> str | None:
        """Return the text of the file for `settings_option`, None if it has none."""
        if not self.settings_option:
            return None
        variables = self.environment(target, {})
        return json.dumps({"env": {**dict.fromkeys(self.unset, ""), **variables}})

    def shell_lines(self, command: str, target: ClientTarget, environ: Mapping[str, str]) -> Iterator[str]:
        """Yield the lines for a shell that do the same for commands which are started from there."""
        for name, value in self.environment(target, environ).items():
            yield f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}"
        if options := self.arguments(target):
            yield f"alias {PurePath(command).name}={shlex.quote(shlex.join([command, *options]))}"


_url: Value = attrgetter("url")
_openai_url: Value = attrgetter("openai_url")
_key: Value = attrgetter("key")
_model: Value = attrgetter("model")
_small_model: Value = attrgetter("small_model")


def _context(target: ClientTarget) -> str | None:
    return None if target.context is None else str(target.context)


def _compact_window(target: ClientTarget) -> str | None:
    # Claude Code raises a smaller value to this one and warns about it.
    return None if target.context is None or target.context < 100_000 else str(target.context)


def _litellm_model(name: str | None) -> str | None:
    return None if name is None else f"openai/{name}"


def _codex_key(target: ClientTarget) -> str | None:
    return None if target.key == ANY_KEY else target.key


def _codex_option(name: str, value: Callable[[ClientTarget], object]) -> tuple[str, Value]:
    def option(target: ClientTarget) -> str | None:
        found = value(target)
        # A string of JSON is one of TOML, which Codex reads.
        return None if found is None else f"{name}={json.dumps(found)}"

    return "-c", option


def _codex_provider(target: ClientTarget) -> str:
    members = {"name": "Dragoman", "base_url": target.openai_url, "wire_api": "responses"}
    if _codex_key(target) is not None:
        members["env_key"] = KEY_VARIABLE
    table = ",".join(f"{name}={json.dumps(value)}" for name, value in members.items())
    return f"model_providers.dragoman={{{table}}}"


def _opencode_config(target: ClientTarget) -> str | None:
    limits = {"context": target.context, "output": target.output or target.context}
    models: dict[str, object] = {name: {} for name in target.models[:_MAX_MODELS]}
    models |= {name: {} for name in (target.small_model, target.model) if name is not None}
    if target.model is not None and target.context is not None:
        models[target.model] = {"limit": limits}
    chosen = {"model": target.model, "small_model": target.small_model}
    return json.dumps(
        {
            **{name: f"dragoman/{model}" for name, model in chosen.items() if model is not None},
            "provider": {
                "dragoman": {
                    "npm": "@ai-sdk/openai-compatible",
                    "name": "Dragoman",
                    "options": {"baseURL": target.openai_url, "apiKey": f"{{env:{KEY_VARIABLE}}}"},
                    "models": models,
                }
            },
        }
    )


# Claude Code has a model for each tier, for subagents and for titles.
_CLAUDE_MODELS: Mapping[str, Value] = {
    "ANTHROPIC_MODEL": _model,
    "ANTHROPIC_DEFAULT_OPUS_MODEL": _model,
    "ANTHROPIC_DEFAULT_SONNET_MODEL": _model,
    "ANTHROPIC_DEFAULT_FABLE_MODEL": _model,
    "ANTHROPIC_DEFAULT_HAIKU_MODEL": _small_model,
    "ANTHROPIC_SMALL_FAST_MODEL": _small_model,
    "CLAUDE_CODE_SUBAGENT_MODEL": _model,
    # Without them, it assumes its own window for every model. Older versions read only the second one.
    "CLAUDE_CODE_MAX_CONTEXT_TOKENS": _context,
    "CLAUDE_CODE_AUTO_COMPACT_WINDOW": _compact_window,
}

# All families of SDKs. OPENAI_API_BASE is the name in LiteLLM and older LangChain; several programs read a model too.
SDKS = Client(
    variables={
        "OPENAI_BASE_URL": _openai_url,
        "OPENAI_API_BASE": _openai_url,
        "OPENAI_API_KEY": _key,
        "OPENAI_MODEL": _model,
        "OPENAI_DEFAULT_MODEL": _model,
        "ANTHROPIC_BASE_URL": _url,
        "ANTHROPIC_API_KEY": _key,
        **_CLAUDE_MODELS,
        # google-genai 3.6.1 and @google/genai 3.1.0 prefer the first key; programs read the other one themselves.
        "GOOGLE_API_KEY": _key,
        "GEMINI_API_KEY": _key,
        "GOOGLE_GEMINI_BASE_URL": _url,
        "GOOGLE_VERTEX_BASE_URL": _url,
        KEY_VARIABLE: _key,
    },
    needed=("OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
    unset=("ANTHROPIC_AUTH_TOKEN", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE"),
)

# By the name of the command.
CLIENTS: Mapping[str, Client] = {
    # https://code.claude.com/docs/en/llm-gateway and /model-config, and what versions 2.1.197 and 2.1.330 read
    "claude": Client(
        variables={"ANTHROPIC_BASE_URL": _url, "ANTHROPIC_AUTH_TOKEN": _key, **_CLAUDE_MODELS},
        needed=(
            "ANTHROPIC_BASE_URL",
            "ANTHROPIC_AUTH_TOKEN",
            "ANTHROPIC_MODEL",
            "CLAUDE_CODE_MAX_CONTEXT_TOKENS",
        ),
        # With a key as well it would send that one; the others lead it to a cloud.
        unset=(
            "ANTHROPIC_API_KEY",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CODE_USE_BEDROCK",
            "CLAUDE_CODE_USE_VERTEX",
            "CLAUDE_CODE_USE_FOUNDRY",
            "CLAUDE_CODE_USE_MANTLE",
        ),
        own_models=("claude-opus-5", "claude-sonnet-5", "claude-haiku-5"),
        # What `env` of the user's settings.json has would outrank the environment.
        settings_option="--settings",
        first_request=12_500,
    ),
    # Codex 0.169.0 reads no address from the environment.
    "codex": Client(
        variables={KEY_VARIABLE: _codex_key},
        needed=(KEY_VARIABLE,),
        options=(
            _codex_option("model_provider", lambda _: "dragoman"),
            ("-c", _codex_provider),
            _codex_option("model", _model),
            _codex_option("model_context_window", lambda target: target.context),
        ),
        own_models=("gpt-5.5", "gpt-5.5-codex"),
        first_request=10_000,
    ),
    # https://opencode.ai/docs/config: this configuration is merged with the user's files
    "opencode": Client(
        variables={"OPENCODE_CONFIG_CONTENT": _opencode_config, KEY_VARIABLE: _key}, first_request=7_500
    ),
    # Without a way to sign in among its settings, Gemini CLI 0.61.0 refuses an address for the Gemini API ("Invalid
    # auth method selected.") but not one for Vertex AI; with this version, requests come to the same endpoints.
    "gemini": Client(
        variables={
            "GOOGLE_GENAI_USE_VERTEXAI": lambda _: "true",
            "GOOGLE_VERTEX_BASE_URL": _url,
            "GOOGLE_GENAI_API_VERSION": lambda _: "v1beta",
            "GOOGLE_API_KEY": _key,
            "GOOGLE_GEMINI_BASE_URL": _url,
            "GEMINI_API_KEY": _key,
            "GEMINI_MODEL": _model,
        },
        needed=(
            "GOOGLE_GENAI_USE_VERTEXAI",
            "GOOGLE_VERTEX_BASE_URL",
            "GOOGLE_GENAI_API_VERSION",
            "GOOGLE_API_KEY",
            "GEMINI_MODEL",
        ),
        unset=("GOOGLE_GENAI_USE_GCA", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"),
        # It asks the first one which model a task needs.
        own_models=("gemini-3.5-flash-lite", "gemini-3.8-flash"),
        first_request=7_800,
    ),
    # `copilot help providers` of version 1.0.102
    "copilot": Client(
        variables={
            "COPILOT_PROVIDER_BASE_URL": _openai_url,
            "COPILOT_PROVIDER_API_KEY": _key,
            "COPILOT_MODEL": _model,
            "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": _context,
        },
        needed=("COPILOT_PROVIDER_BASE_URL", "COPILOT_PROVIDER_API_KEY", "COPILOT_MODEL"),
        # The first one says how the address is meant; the others outrank the key and the model.
        unset=(
            "COPILOT_PROVIDER_TYPE",
            "COPILOT_PROVIDER_API_KEY_COMMAND",
            "COPILOT_PROVIDER_BEARER_TOKEN",
            "COPILOT_PROVIDER_MODEL_ID",
            "COPILOT_PROVIDER_WIRE_MODEL",
        ),
        first_request=12_300,
    ),
    # https://aider.chat/docs/config/options.html: each option has a variable
    "aider": Client(
        variables={
            "OPENAI_API_BASE": _openai_url,
            "OPENAI_API_KEY": _key,
            "AIDER_MODEL": lambda target: _litellm_model(target.model),
            "AIDER_WEAK_MODEL": lambda target: _litellm_model(target.small_model),
            # Its table of models does not have the gateway's names.
            "AIDER_SHOW_MODEL_WARNINGS": lambda _: "false",
        },
        unset=("AIDER_OPENAI_API_BASE", "AIDER_OPENAI_API_KEY"),
    ),
}


def first_requests(clients: Mapping[str, Client]) -> dict[str, int]:
    """Return the tokens of the first request of those clients whose size is known."""
    return {name: client.first_request for name, client in clients.items() if client.first_request}


def client_of(command: str) -> Client:
    """Return the client of a command, which may be a path."""
    return CLIENTS.get(PurePath(command).name.removesuffix(".exe"), SDKS)
