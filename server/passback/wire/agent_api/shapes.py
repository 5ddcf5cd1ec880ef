"""The events of an answer, for the OpenAPI document."""

from typing import Annotated, Literal, NotRequired, TypeAlias

from pydantic import Field, JsonValue
from typing_extensions import TypedDict


class AgentError(TypedDict):
    """`code` is one of the server's error codes."""

    code: str
    message: str
    retryable: bool
    retry_after: NotRequired[float]


class AgentUsage(TypedDict):
    """Tokens of all model calls; `estimated` is there when an answer was cut before its provider counted."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    estimated: NotRequired[bool]


class AgentContent(TypedDict):
    """A part. `delta` true: append it; false: it replaces what there is; `completed`: the whole."""

    object: Literal["content"]
    status: Literal["in_progress", "completed"]
    type: Literal["text", "data"]
    index: int
    delta: bool
    msg_id: str
    text: NotRequired[str]
    data: NotRequired[dict[str, JsonValue]]
    sequence_number: int


class AgentMessageMetadata(TypedDict):
    """The call on which the sub-agent works that says this."""

    parent_call_id: str


class AgentMessage(TypedDict):
    """A message; with all its parts when it has ended. `incomplete`: it was cut; `rejected`: a call that was not valid."""

    object: Literal["message"]
    status: Literal["in_progress", "completed", "incomplete", "rejected"]
    id: str
    type: str
    role: Literal["assistant", "tool"]
    metadata: NotRequired[AgentMessageMetadata]
    content: NotRequired[list[AgentContent]]
    usage: NotRequired[AgentUsage]
    sequence_number: int


class AgentResponseMetadata(TypedDict):
    """`requires_action`: the calls that the client has to answer now. `reason`: why an answer is incomplete."""

    requires_action: NotRequired[list[str]]
    reason: NotRequired[str]


class AgentResponse(TypedDict):
    """The response. Its last event has the whole `output`, and the name of the `model` that spoke last."""

    object: Literal["response"]
    status: Literal[
        "created",
        "queued",
        "in_progress",
        "completed",
        "incomplete",
        "canceled",
        "rejected",
        "failed",
    ]
    id: str
    created_at: int
    completed_at: NotRequired[int]
    session_id: str
    model: NotRequired[str]
    output: NotRequired[list[AgentMessage]]
    usage: NotRequired[AgentUsage]
    metadata: NotRequired[AgentResponseMetadata]
    error: NotRequired[AgentError]
    sequence_number: int


AgentEvent: TypeAlias = Annotated[
    AgentResponse | AgentMessage | AgentContent, Field(discriminator="object")
]
