"""The request document: one request of a client in a form of no protocol, with its messages, tools and settings.

ProtocolSpec.read_request makes it, the passes change it, UpstreamSpec.write_request takes it.
"""

from dragoman._ir.request import (
    CacheMark,
    Citation,
    CodeExecution,
    CustomTool,
    FunctionTool,
    Grammar,
    HostedTool,
    McpServer,
    Media,
    Message,
    OpaquePart,
    ReasoningConfig,
    Refusal,
    Request,
    ResponseFormat,
    Text,
    Thought,
    ToolCall,
    ToolChoice,
    ToolRef,
    ToolResult,
    WebSearch,
)

__all__ = [
    "CacheMark",
    "Citation",
    "CodeExecution",
    "CustomTool",
    "FunctionTool",
    "Grammar",
    "HostedTool",
    "McpServer",
    "Media",
    "Message",
    "OpaquePart",
    "ReasoningConfig",
    "Refusal",
    "Request",
    "ResponseFormat",
    "Text",
    "Thought",
    "ToolCall",
    "ToolChoice",
    "ToolRef",
    "ToolResult",
    "WebSearch",
]
