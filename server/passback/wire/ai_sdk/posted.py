"""Models of requests: `AiSdkRequest` and its messages. `reading` turns them into commands."""

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, JsonValue

from passback.core.posts import OnBusy, OnDisconnect
from passback.http.requests import PostedId
from passback.native.declarations import DeclaredTool
from passback.native.message_context import PostedContext
from passback.native.parts import Posted

_MOST_MESSAGES: Final = 10_000  # of a request: a client sends the whole conversation each time
_MOST_PARTS: Final = 10_000  # of a message: an answer may have many steps
_NAME_CHARACTERS: Final = 256

_Name: TypeAlias = Annotated[str, Field(max_length=_NAME_CHARACTERS)]
_CallId: TypeAlias = Annotated[str, Field(min_length=1, max_length=256)]


class UiMessage(Posted):
    """A message as the client has it.

    Its parts are read only if they are new: those of a message of the user, and the client's
    answers in the last message of the agent.
    """

    id: PostedId
    role: Literal["system", "user", "assistant"]
    parts: Annotated[list[dict[str, JsonValue]], Field(fail_fast=True, max_length=_MOST_PARTS)]
    metadata: JsonValue = None


class UiText(Posted):
    type: Literal["text"]
    text: str


class UiFile(Posted):
    """A file, by an `http:`, `https:` or `data:` URL. `mediaType` may be one half, as `image`."""

    type: Literal["file"]
    url: str
    media_type: _Name
    filename: _Name | None = None


class UiData(Posted):
    """Data of the app's own, as JSON for the model."""

    data: JsonValue


class UiApproval(Posted):
    id: _CallId
    approved: bool
    reason: Annotated[str, Field(max_length=10_000)] | None = None


class UiOutput(Posted):
    """The result of a client tool."""

    tool_call_id: _CallId
    output: JsonValue = None


class UiOutputError(Posted):
    """The failure of a client tool."""

    tool_call_id: _CallId
    error_text: str


class UiDecision(Posted):
    """A person's decision on a call."""

    approval: UiApproval


class AiSdkRequest(PostedContext):
    """The messages of a chat, or its new message only. Unknown keys are ignored."""

    id: Annotated[str, Field(max_length=256)] | None = Field(
        None, description="The chat's id, which is the conversation's. Missing or empty: a new one."
    )
    messages: (
        Annotated[list[UiMessage], Field(fail_fast=True, max_length=_MOST_MESSAGES)] | None
    ) = Field(None, description="The chat as the client has it. Only what is new counts.")
    message: UiMessage | None = Field(
        None, description="Instead of `messages`: the new message, or the agent's with answers."
    )
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    message_id: Annotated[str, Field(max_length=256)] | None = Field(
        None,
        description="The message of the user that is edited, the message of the agent that is "
        "gone on with, or the one that is regenerated.",
    )
    tools: list[DeclaredTool] | None = Field(
        None,
        description="The client's tools. They replace the conversation's; without the key those "
        "stay; `[]` clears.",
    )
    agent: _Name | None = Field(
        None, description="The agent's name, where the server has several agents."
    )
    on_busy: OnBusy | None = Field(
        None, description="What a new message means while a run goes on, as in `/send-message`."
    )
    on_disconnect: OnDisconnect | None = Field(
        None, description="`cancel`: a run that nobody follows is cancelled."
    )
