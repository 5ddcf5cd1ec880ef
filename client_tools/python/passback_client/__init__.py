"""Client of a passback server: sends messages, runs the client's tools, reads on after cuts.

`Client` is asynchronous; `passback_client.sync.Client` is the same without `async`.
"""

from passback_client.answer import Answer
from passback_client.approvals import Approval, Decision
from passback_client.client import Client
from passback_client.conversation import Conversation, MessagePage
from passback_client.errors import (
    BadAnswer,
    BadSetup,
    Busy,
    CursorExpired,
    LimitExceeded,
    PassbackError,
    Refused,
    RunFailed,
    Unreachable,
)
from passback_client.events import (
    AgentText,
    ContextUse,
    Decided,
    Event,
    Failure,
    Interrupt,
    MessageStart,
    Output,
    Owed,
    OwedCall,
    Reasoning,
    Rewind,
    RunEnd,
    RunQueued,
    RunStart,
    Text,
    ToolAnswer,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    ToolProgress,
    ToolResult,
    Unknown,
    Usage,
)
from passback_client.limits import Limits, Retry
from passback_client.questions import Option, Question, Reply
from passback_client.stream import Stream
from passback_client.tools import Tool, ToolCall, ToolContext, ToolError

__all__ = [
    "AgentText",
    "Answer",
    "Approval",
    "BadAnswer",
    "BadSetup",
    "Busy",
    "Client",
    "ContextUse",
    "Conversation",
    "CursorExpired",
    "Decided",
    "Decision",
    "Event",
    "Failure",
    "Interrupt",
    "LimitExceeded",
    "Limits",
    "MessagePage",
    "MessageStart",
    "Option",
    "Output",
    "Owed",
    "OwedCall",
    "PassbackError",
    "Question",
    "Reasoning",
    "Refused",
    "Reply",
    "Retry",
    "Rewind",
    "RunEnd",
    "RunFailed",
    "RunQueued",
    "RunStart",
    "Stream",
    "Text",
    "Tool",
    "ToolAnswer",
    "ToolCall",
    "ToolCallArgs",
    "ToolCallEnd",
    "ToolCallStart",
    "ToolContext",
    "ToolError",
    "ToolProgress",
    "ToolResult",
    "Unknown",
    "Unreachable",
    "Usage",
]
