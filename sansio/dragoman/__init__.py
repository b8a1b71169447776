"""Dragoman: a sans-IO translator between the wire protocols of large language models.

It is fed bytes and gives bytes and events. It opens no socket, reads no clock, draws no random number, logs
nothing and knows no event loop, so it works under asyncio, trio, threads and plain functions alike. Start
with RequestTranslator and ResponseTranslator; REGISTRY names the protocols.
"""

from ._errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from ._events import (
    Annotation,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Ended,
    Event,
    Failed,
    Logprobs,
    Opaque,
    ReasoningDelta,
    ReasoningForm,
    Seal,
    SealDelta,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    ToolHead,
    ToolKind,
    Usage,
)
from ._fault import Fault, FaultKind
from ._fold import Answer, Block, Fold, ReasoningPart
from ._grammar import Checker, Phase
from ._keepalive import Keepalive
from ._loss import Ledger, Loss, LossCode, Policy
from ._reader import NEED_DATA, EventReader, NeedData
from ._relay import Relay
from ._request import (
    CacheMark,
    CustomTool,
    FunctionTool,
    Grammar,
    HostedTool,
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
    ToolResult,
)
from ._seal import Sealer
from ._spec import Exchange, ProtocolSpec, StreamReader, StreamWriter, Tap, Target, ToolRule
from ._splice import Peek, peek, splice_model
from ._sse import Frame, SSEParser
from ._tools import ToolBook
from ._translate import (
    Outcome,
    RequestTranslator,
    ResponseTranslator,
    TranslatedRequest,
    fault_of,
    translate_fault,
)
from .protocols import REGISTRY

__all__ = [
    "NEED_DATA",
    "REGISTRY",
    "Annotation",
    "Answer",
    "ArgumentsDelta",
    "Block",
    "BlockEnded",
    "BlockKind",
    "BlockStarted",
    "CacheMark",
    "Checker",
    "CustomTool",
    "Ended",
    "Event",
    "EventReader",
    "Exchange",
    "Failed",
    "Fault",
    "FaultKind",
    "Fold",
    "Frame",
    "FunctionTool",
    "Grammar",
    "HostedTool",
    "Keepalive",
    "Ledger",
    "LocalProtocolError",
    "Logprobs",
    "Loss",
    "LossCode",
    "Media",
    "Message",
    "NeedData",
    "Opaque",
    "OpaquePart",
    "Outcome",
    "Peek",
    "Phase",
    "Policy",
    "ProtocolError",
    "ProtocolSpec",
    "ReasoningConfig",
    "ReasoningDelta",
    "ReasoningForm",
    "ReasoningPart",
    "Refusal",
    "Relay",
    "RemoteProtocolError",
    "Request",
    "RequestTranslator",
    "ResponseFormat",
    "ResponseTranslator",
    "SSEParser",
    "Seal",
    "SealDelta",
    "Sealer",
    "Started",
    "StopReason",
    "Stopped",
    "StreamReader",
    "StreamWriter",
    "Tap",
    "Target",
    "Text",
    "TextDelta",
    "Thought",
    "ToolBook",
    "ToolCall",
    "ToolChoice",
    "ToolHead",
    "ToolKind",
    "ToolResult",
    "ToolRule",
    "TranslatedRequest",
    "Usage",
    "fault_of",
    "peek",
    "splice_model",
    "translate_fault",
]
