"""Models of requests: `RunAgentInput` and its messages. `reading` turns them into commands."""

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, JsonValue

from passback.core.posts import OnBusy, OnDisconnect
from passback.http.requests import PostedId
from passback.native.declarations import DeclaredTool
from passback.native.message_context import PostedContext
from passback.native.parts import MAX_ITEMS, Posted

_MAX_MESSAGES: Final = 10_000  # of a request, which has the whole conversation each time
_CallId: TypeAlias = Annotated[str, Field(min_length=1, max_length=256)]
_MimeType: TypeAlias = Annotated[str, Field(max_length=256)]


class AgUiSource(Posted):
    """The place of media: `data` in base64 with a `mimeType`, or a `url`.

    The server keeps no files: a `file` is refused.
    """

    type: Literal["data", "url", "file"]
    value: str
    mime_type: _MimeType | None = None


class AgUiText(Posted):
    type: Literal["text"]
    text: str


class AgUiMedia(Posted):
    type: Literal["image", "audio", "video", "document"]
    source: AgUiSource


AgUiPart: TypeAlias = Annotated[AgUiText | AgUiMedia, Field(discriminator="type")]
AgUiContent: TypeAlias = (
    str | Annotated[list[AgUiPart], Field(fail_fast=True, max_length=MAX_ITEMS)]
)


class AgUiUserMessage(Posted):
    """A message of the user. Its `id` tells whether it is new."""

    role: Literal["user"]
    id: PostedId
    content: AgUiContent


class AgUiSystemMessage(Posted):
    """A message of the operator. New ones only where the server's settings allow this role."""

    role: Literal["system", "developer"]
    id: PostedId
    content: str


class AgUiFunction(Posted):
    """The function of a call. `arguments` is the text of a JSON object."""

    name: str
    arguments: str


class AgUiCall(Posted):
    id: _CallId
    type: Literal["function"] = "function"
    function: AgUiFunction


class AgUiAssistantMessage(Posted):
    """A message of the agent, which the server has already.

    `subagentRunId` is there if a sub-agent wrote it.
    """

    role: Literal["assistant"]
    id: PostedId
    content: str | None = None
    tool_calls: Annotated[list[AgUiCall], Field(fail_fast=True, max_length=MAX_ITEMS)] | None = None
    subagent_run_id: str | None = None


class AgUiToolMessage(Posted):
    """The result of a call. With `error`, the tool failed."""

    role: Literal["tool"]
    id: PostedId
    tool_call_id: _CallId
    content: AgUiContent
    error: str | None = None


class AgUiOwnMessage(Posted):
    """A message that only the client uses. It is ignored."""

    role: Literal["activity", "reasoning"]


AgUiSaid: TypeAlias = AgUiUserMessage | AgUiSystemMessage | AgUiAssistantMessage | AgUiToolMessage
"""A message that is part of the conversation."""
AgUiMessage: TypeAlias = Annotated[AgUiSaid | AgUiOwnMessage, Field(discriminator="role")]


class AgUiContext(Posted):
    """Something that the agent should know; it is shown to the model as data."""

    description: Annotated[str, Field(max_length=4_000)]
    value: JsonValue


class AgUiResume(Posted):
    """The answer to an interrupt.

    `resolved` needs a `payload`: an `Approval`, or what a question was answered. `cancelled` denies
    the call, or refuses to answer.
    """

    interrupt_id: _CallId
    status: Literal["resolved", "cancelled"]
    payload: JsonValue = None


class AgUiOptions(PostedContext):
    """The server's own options: the value of `passback` in `forwardedProps`."""

    on_busy: OnBusy | None = Field(
        None, description="What a new message means while a run goes on, as in `/send-message`."
    )
    on_disconnect: OnDisconnect | None = Field(
        None, description="`cancel`: a run that nobody follows is cancelled."
    )


class RunAgentInput(Posted):
    """The whole conversation, as the client knows it. Only what the server does not have counts.

    Without messages and answers, the conversation is sent instead. Unknown keys are ignored.
    """

    thread_id: Annotated[str, Field(min_length=1, max_length=256)] = Field(
        description="The conversation. A new one begins under an unknown id."
    )
    run_id: PostedId = Field(
        description="Names the request: one with the same id is its repeat, and joins its run."
    )
    parent_run_id: str | None = None
    protocol_version: str | None = Field(
        None, description="Without it, the client is taken for one from before AG-UI 1.0."
    )
    state: JsonValue = Field(
        None, description="The client's state: data for the model, with a new user message."
    )
    messages: Annotated[list[AgUiMessage], Field(fail_fast=True, max_length=_MAX_MESSAGES)]
    tools: list[DeclaredTool] | None = Field(
        None,
        description="The client's tools. They replace the conversation's; without the key those "
        "stay; `[]` clears.",
    )
    context: Annotated[list[AgUiContext], Field(fail_fast=True, max_length=MAX_ITEMS)] | None = None
    forwarded_props: JsonValue = Field(
        None,
        description="Stored with a new user message, and otherwise ignored, but for the key "
        "`passback`: `AgUiOptions`.",
    )
    resume: Annotated[list[AgUiResume], Field(fail_fast=True, max_length=MAX_ITEMS)] | None = None

    @property
    def is_older(self) -> bool:
        """True if the client is from before AG-UI 1.0: it would refuse what came with that."""
        return self.protocol_version is None

    @property
    def asks_for_history(self) -> bool:
        """True if the client wants to be sent the conversation."""
        return not self.messages and not self.resume
