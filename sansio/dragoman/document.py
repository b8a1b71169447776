"""The request document: one request in a form that belongs to no protocol, with its messages, tools and settings.

ProtocolSpec.read_request makes it, the passes change it, UpstreamSpec.write_request takes it.
"""

from dragoman._ir.parameters import EFFORTS
from dragoman._ir.request import (
    REFUSABLE_MEMBERS,
    Citation,
    Media,
    Message,
    OpaquePart,
    Param,
    Part,
    Reasoning,
    ReasoningConfig,
    Refusal,
    Request,
    ResponseFormat,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman._ir.tools import (
    CacheMark,
    CodeExecution,
    CustomTool,
    FunctionTool,
    Grammar,
    HostedTool,
    McpServer,
    Namespace,
    Tool,
    ToolChoice,
    ToolRef,
    WebSearch,
)
from dragoman._transforms.extensions import refuse_server_state
from dragoman._transforms.pass_context import CacheKeySource, ReasoningLookup
from dragoman._transforms.reasoning_cache import CachedReasoning

__all__ = [
    "EFFORTS",
    "REFUSABLE_MEMBERS",
    "CacheKeySource",
    "CacheMark",
    "CachedReasoning",
    "Citation",
    "CodeExecution",
    "CustomTool",
    "FunctionTool",
    "Grammar",
    "HostedTool",
    "McpServer",
    "Media",
    "Message",
    "Namespace",
    "OpaquePart",
    "Param",
    "Part",
    "Reasoning",
    "ReasoningConfig",
    "ReasoningLookup",
    "Refusal",
    "Request",
    "ResponseFormat",
    "Role",
    "Text",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "ToolRef",
    "ToolResult",
    "WebSearch",
    "refuse_server_state",
]
