"""The state of a conversation, and its messages."""

from dataclasses import dataclass
from typing import Annotated, Literal, NotRequired, TypeAlias, TypedDict, cast

from pydantic import BeforeValidator, Field, JsonValue, TypeAdapter

from passback_client.events import FromJson, JsonObject, OwedCall, PlanEntry, Usage
from passback_client.fields import count, objects, text
from passback_client.parsing import read


@dataclass(frozen=True, slots=True)
class Running(FromJson):
    """The current run.

    Attributes:
        run_id: its id.
        first_message: number of messages before it.
        attempt: more than 1 if another worker took it over.
    """

    run_id: str
    first_message: int = 0
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Refusal(FromJson):
    """A call of `name` that a person or a rule denied; the model got `reason`."""

    call_id: Annotated[str, Field(alias="toolCallId")]
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class LastingPermission(FromJson):
    """A person's lasting decision about a tool of the server; `reason` is why its calls are
    denied.
    """

    name: str
    approved: Annotated[
        bool, Field(alias="decision"), BeforeValidator(lambda decision: decision == "allow")
    ]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class BranchPoint(FromJson):
    """A place of a conversation with several versions of what follows.

    Attributes:
        after: the message before it; None at the beginning.
        versions: the first message of each branch, oldest first.
        current: the one of them that is read; None as long as it is not written.
    """

    after: Annotated[str | None, Field(default=None)]
    versions: tuple[str, ...]
    current: str | None = None


@dataclass(frozen=True, slots=True)
class ListedConversation(FromJson):
    """A conversation in a list.

    Attributes:
        id: its id.
        title: for people; empty if it has none.
        created_at: when its first message came, as an RFC 3339 time in UTC.
        updated_at: when a client last posted something.
        status: `running`, `waiting` if the client must answer calls, or `idle`.
        run_id: the newest run that has started.
        owed: number of calls that the client must answer.
        cursor: of the last stored event of that run, for `Client.resume`.
    """

    id: str
    title: str
    created_at: str
    updated_at: str
    status: str
    run_id: Annotated[str | None, Field(default=None)]
    owed: int
    cursor: Annotated[str | None, Field(default=None)]


@dataclass(frozen=True, slots=True)
class ConversationPage(FromJson):
    """Some conversations, newest first; `next` is the `after` of the next page, if there is one.

    A page may be short, or empty, and not the last one.
    """

    conversations: tuple[ListedConversation, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Conversation(FromJson):
    """The state of a conversation.

    Attributes:
        id: its id.
        run_id: the newest run that has started.
        running: the current run, if there is one.
        queued: the runs that wait, in order.
        owed: calls that the client must answer.
        message_count: number of messages.
        usage: of all messages together; None if the server does not send it.
        plan: of the agent.
        cost: of all its model calls, in the currency of the server's prices; None if the server
            does not send it.
        seconds: working time of its runs; None if the server does not send it.
        refusals: the latest denied calls, oldest first.
        permissions: permanent decisions, oldest first.
        title: for people; empty if it has none.
        created_at: when its first message came, as an RFC 3339 time in UTC; None if the server does
            not send it, and so is the next.
        updated_at: when a client last posted something.
        branches: where the branch that is read has other versions, from its beginning on.
    """

    id: str
    run_id: Annotated[str | None, Field(default=None)]
    running: Annotated[Running | None, Field(default=None)]
    queued: Annotated[tuple[str, ...], Field(default=())]
    owed: tuple[OwedCall, ...]
    message_count: int
    usage: Usage | None = None
    plan: tuple[PlanEntry, ...] = ()
    cost: float | None = None
    seconds: float | None = None
    refusals: tuple[Refusal, ...] = ()
    permissions: tuple[LastingPermission, ...] = ()
    title: str = ""
    created_at: str | None = None
    updated_at: str | None = None
    branches: tuple[BranchPoint, ...] = ()


class Recorded(TypedDict):
    """The time of a message, RFC 3339 in UTC, and the run that wrote it or that it began; each is
    left out if it is not known.
    """

    createdAt: NotRequired[str]
    runId: NotRequired[str]


class UserMessage(Recorded):
    """A message to the agent: a text, or a list of parts, and the context of its post.

    `agentId` names the agent that was asked, among several. `at` is when it came, where the agent
    is told the time. `extras` are the keys of its post that the protocol does not have, where that
    one keeps them. `synthetic` is there when the server wrote it itself: `invalid` tells the model
    that its answer does not fit. `imported`, here and below, is there in a history that a client
    brought along.
    """

    id: str
    role: Literal["user", "system"]
    content: JsonValue
    agentId: NotRequired[str]
    structuredData: NotRequired[JsonValue]
    intent: NotRequired[str]
    constraints: NotRequired[list[str]]
    instructions: NotRequired[str]
    outputSchema: NotRequired[JsonObject]
    model: NotRequired[str]
    at: NotRequired[str]
    extras: NotRequired[JsonObject]
    synthetic: NotRequired[str]
    imported: NotRequired[bool]


class FunctionCall(TypedDict):
    name: str
    arguments: str


class MessageCall(TypedDict):
    """`arguments` is JSON text as the model wrote it; `client` says that the client executes the
    call.
    """

    id: str
    type: Literal["function"]
    function: FunctionCall
    client: bool
    title: NotRequired[str]
    kind: NotRequired[str]


class UsedTokens(TypedDict):
    """Of one model call, as its provider counts them; `estimated` when its answer was cut before
    that.
    """

    inputTokens: int
    outputTokens: int
    cachedTokens: int
    reasoningTokens: int
    estimated: NotRequired[bool]


class AssistantMessage(Recorded):
    """One answer of the model; `partial` if it was stopped early. `durationMs` is how long the
    model took.
    """

    id: str
    role: Literal["assistant"]
    content: JsonValue
    toolCalls: NotRequired[list[MessageCall]]
    partial: NotRequired[bool]
    usage: NotRequired[UsedTokens]
    imported: NotRequired[bool]
    model: NotRequired[str]
    durationMs: NotRequired[int]


class ToolMessage(Recorded):
    """The answer to one call; `synthetic` says why the server wrote it itself.

    It is `superseded`, `interrupted`, `invalid`, `denied`, `timeout`, or `unanswered` in a history.
    `durationMs` is how long a tool of the server worked.
    """

    id: str
    role: Literal["tool"]
    toolCallId: str
    content: JsonValue
    isError: NotRequired[bool]
    synthetic: NotRequired[str]
    imported: NotRequired[bool]
    durationMs: NotRequired[int]


class ApprovalMessage(Recorded):
    """A person's decision about a call that needed approval."""

    id: str
    role: Literal["approval"]
    toolCallId: str
    approved: bool
    reason: NotRequired[str]
    always: NotRequired[bool]


class SummaryMessage(Recorded):
    """A summary: `content` replaces the earlier messages in the prompt."""

    id: str
    role: Literal["summary"]
    content: str


class ChildMessage(TypedDict):
    """A message to or of a sub-agent that works on the call `toolCallId`."""

    id: str
    role: Literal["child"]
    toolCallId: str
    message: "Message"


Message: TypeAlias = (
    UserMessage | AssistantMessage | ToolMessage | ApprovalMessage | SummaryMessage | ChildMessage
)
"""The field `role` tells them apart."""


@dataclass(frozen=True, slots=True)
class MessagePage:
    """Some messages, oldest first; `next` is the `after` of the next page, if there is one.

    Messages are dicts as the server sends them; one of a newer server may have another `role` than
    the types say.
    """

    messages: list[Message]
    next: int | None
    total: int


_CONVERSATION = TypeAdapter(Conversation)
_CONVERSATIONS = TypeAdapter(ConversationPage)


def read_conversation(fields: JsonObject) -> Conversation:
    """Raises BadAnswer."""
    return read(_CONVERSATION, fields)


def read_conversations(fields: JsonObject) -> ConversationPage:
    """Raises BadAnswer."""
    return read(_CONVERSATIONS, fields)


def read_page(fields: JsonObject) -> MessagePage:
    """Raises BadAnswer."""
    following = None if fields.get("next") is None else count(fields, "next")
    return MessagePage(read_messages(fields), following, count(fields, "total"))


def read_messages(fields: JsonObject) -> list[Message]:
    """Raises BadAnswer."""
    messages = objects(fields, "messages")
    for message in messages:
        text(message, "role")
    return cast("list[Message]", messages)
