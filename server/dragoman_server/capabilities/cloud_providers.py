"""The rows of `providers` that are clouds: keys, models and what they accept. How to call them is in `cloud_apis`.

Azure's names of models are names of deployments, so they show no family of models.
"""

from collections.abc import Mapping
from functools import partial

from dragoman_server.capabilities.cloud_apis import LOOKED_UP
from dragoman_server.capabilities.provider import (
    CHAT,
    CLAUDE_API,
    GEMINI,
    GEMINI_API,
    MESSAGES,
    OPENAI_API,
    OPENAI_REFUSED,
    PUBLIC,
    RESPONSES,
    Provider,
)

_BEDROCK_CHAT: Mapping[str, object] = {**PUBLIC, "max_tokens_field": "max_completion_tokens"}
_BEDROCK_MODELS = ("anthropic.claude-*", "*.anthropic.claude-*", "openai.gpt-*")
# The names of some profiles (ARNs) do not show which model is behind them.
_BEDROCK_PROTOCOLS = (("*anthropic.claude-*", (MESSAGES,)), ("arn:*", ()), ("*", (RESPONSES, CHAT)))

_cloud = partial(Provider, date=LOOKED_UP)

CLOUDS = (
    _cloud(
        "azure",
        (("AZURE_OPENAI_API_KEY", "auto"),),
        "${AZURE_OPENAI_ENDPOINT}/openai/v1",
        (RESPONSES, CHAT),
        "learn.microsoft.com: api-version-lifecycle; pydantic-ai 2.68.0",
        {**OPENAI_API, "counts_tokens": False},
        by_protocol={CHAT: {"refuses": (*OPENAI_REFUSED, "file")}},
        url_variable="AZURE_OPENAI_BASE_URL",
    ),
    _cloud(
        "foundry",
        (("ANTHROPIC_FOUNDRY_API_KEY", "auto"),),
        "https://${ANTHROPIC_FOUNDRY_RESOURCE}.services.ai.azure.com/anthropic",
        (MESSAGES,),
        "anthropic-python 2.12.0, lib/foundry.py",
        CLAUDE_API,
        url_variable="ANTHROPIC_FOUNDRY_BASE_URL",
        set_by=("CLAUDE_CODE_USE_FOUNDRY", "ANTHROPIC_FOUNDRY_RESOURCE"),
    ),
    _cloud(
        "bedrock",
        (("AWS_BEARER_TOKEN_BEDROCK", "auto"),),
        "https://bedrock-runtime.${AWS_REGION}.amazonaws.com",
        (MESSAGES, RESPONSES, CHAT),
        "docs.aws.amazon.com/bedrock: inference-messages-api, inference-responses-api",
        # "Runtime is synchronous only and has no server-side tools."
        {"hosted_tools": ()},
        by_protocol={MESSAGES: {"counts_tokens": True}, CHAT: _BEDROCK_CHAT},
        models=_BEDROCK_MODELS,
        model_protocols=_BEDROCK_PROTOCOLS,
        url_variable="AWS_BEDROCK_BASE_URL",
        set_by=("CLAUDE_CODE_USE_BEDROCK",),
    ),
    _cloud(
        "mantle",
        (),
        "https://bedrock-mantle.${AWS_REGION}.api.aws",
        (MESSAGES, RESPONSES, CHAT),
        "anthropic-python 2.12.0, lib/bedrock/_mantle.py; pydantic-ai#6536",
        {"hosted_tools": ()},
        by_protocol={
            MESSAGES: {"counts_tokens": True},
            # "function, mcp, custom, namespace, tool_search, web_search"
            # It "rejects `additional_tools` input items", which Codex sends.
            RESPONSES: {
                "hosted_tools": ("web_search", "mcp"),
                "custom_tools": True,
                "additional_tools": False,
            },
            CHAT: _BEDROCK_CHAT,
        },
        models=_BEDROCK_MODELS,
        model_protocols=_BEDROCK_PROTOCOLS,
        url_variable="ANTHROPIC_BEDROCK_MANTLE_BASE_URL",
        set_by=("CLAUDE_CODE_USE_MANTLE", "ANTHROPIC_BEDROCK_MANTLE_BASE_URL"),
    ),
    _cloud(
        "claude-aws",
        (("ANTHROPIC_AWS_API_KEY", "auto"),),
        "https://aws-external-anthropic.${AWS_REGION}.api.aws",
        (MESSAGES,),
        "anthropic-python 2.12.0, lib/aws",
        {"default_model": "claude-sonnet-5-5", **CLAUDE_API},
        headers=(("anthropic-workspace-id", "ANTHROPIC_AWS_WORKSPACE_ID"),),
        url_variable="ANTHROPIC_AWS_BASE_URL",
        set_by=("ANTHROPIC_AWS_WORKSPACE_ID",),
    ),
    _cloud(
        "claude-google",
        (),
        "https://claude.googleapis.com/v1/projects/${GOOGLE_CLOUD_PROJECT}/locations/global"
        "/workspaces/${ANTHROPIC_GOOGLE_CLOUD_WORKSPACE_ID}/invoke",
        (MESSAGES,),
        "anthropic-python 2.12.0, lib/google_cloud",
        {"default_model": "claude-sonnet-5-5", **CLAUDE_API},
        url_variable="ANTHROPIC_GOOGLE_CLOUD_BASE_URL",
        set_by=("ANTHROPIC_GOOGLE_CLOUD_WORKSPACE_ID",),
    ),
    _cloud(
        "vertex",
        (),
        "https://aiplatform.googleapis.com/v1/projects/${GOOGLE_CLOUD_PROJECT}/locations/global",
        (MESSAGES, GEMINI, RESPONSES, CHAT),
        "anthropic-python 2.12.0, lib/vertex; openai-python 3.54.0, providers/vertex.py; google-genai 3.4.0",
        {},
        by_protocol={
            MESSAGES: {**CLAUDE_API, "hosted_tools": ("web_search",)},
            GEMINI: GEMINI_API,
            RESPONSES: {"hosted_tools": ()},
            CHAT: {**PUBLIC, "hosted_tools": ()},
        },
        model_protocols=(
            ("claude-*", (MESSAGES,)),
            ("gemini-*", (GEMINI,)),
            ("*/*", (CHAT,)),  # publisher/name
            ("*", (RESPONSES,)),
        ),
        url_variable="VERTEX_BASE_URL",
        set_by=("CLAUDE_CODE_USE_VERTEX", "ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_GENAI_USE_VERTEXAI"),
    ),
)
