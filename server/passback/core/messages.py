"""Messages of a conversation, their parts, calls and results, and the ids that name them."""

import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NewType, TypeAlias

from pydantic import JsonValue

PlanPriority: TypeAlias = Literal["high", "medium", "low"]
PlanStatus: TypeAlias = Literal["pending", "in_progress", "completed"]


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """One thing that the agent means to do."""

    content: str
    priority: PlanPriority = "medium"
    status: PlanStatus = "pending"


Plan: TypeAlias = tuple[PlanEntry, ...]


OwnerId = NewType("OwnerId", str)
ConversationId = NewType("ConversationId", str)
RunId = NewType("RunId", str)
MessageId = NewType("MessageId", str)
CallId = NewType("CallId", str)

JsonObject: TypeAlias = Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class ConversationKey:
    """What names a conversation: ids of different owners never meet."""

    owner: OwnerId
    id: ConversationId


@dataclass(frozen=True, slots=True)
class RunRef:
    """One run of one conversation."""

    key: ConversationKey
    run_id: RunId


# ---------------------------------------------------------------- content
@dataclass(frozen=True, slots=True)
class TextPart:
    text: str
    type: Literal["text"] = "text"


@dataclass(frozen=True, slots=True)
class MediaPart:
    """An image, a sound or a file, by `url` (also a data: URL)."""

    type: Literal["image", "audio", "file"]
    url: str
    media_type: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class DataPart:
    """JSON that is data, not text."""

    data: JsonValue
    type: Literal["data"] = "data"


@dataclass(frozen=True, slots=True)
class RefusalPart:
    text: str
    type: Literal["refusal"] = "refusal"


Part: TypeAlias = TextPart | MediaPart | DataPart | RefusalPart
Content: TypeAlias = str | tuple[Part, ...]


def as_text(content: Content, /, *, media: Callable[[MediaPart], str]) -> str:
    """Content where there is room for a text only: a line for each part, data as JSON, and what `media` says of media."""
    if isinstance(content, str):
        return content
    return "\n".join(_part_text(part, media) for part in content)


def lone_text(content: Content, /) -> str | None:
    """The text that content is, also as its only part. None: there is more in it, or something else."""
    if isinstance(content, str):
        return content
    match content:
        case (TextPart(text),):
            return text
        case _:
            return None


def _part_text(part: Part, media: Callable[[MediaPart], str]) -> str:
    if isinstance(part, MediaPart):
        return media(part)
    if isinstance(part, DataPart):
        return json.dumps(part.data, ensure_ascii=False)
    return part.text


# ---------------------------------------------------------------- tools
TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What the whole name of a tool has to match."""
TOOL_NAME_RULE: Final = "it needs 1 to 64 letters, digits, - and _"
"""The same, for people."""


def folded(name: str, /) -> str:
    """What names that look alike have in common."""
    return unicodedata.normalize("NFKC", name).casefold()


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What the model is told of a tool; `parameters` is a JSON Schema whose type is object."""

    name: str
    description: str
    parameters: JsonObject


Asks: TypeAlias = Literal["approval", "question"]
"""What a person is asked by a call: whether the server may make it, or what the call itself asks (`questions`)."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model's request.

    `arguments` is the JSON text just as the model wrote it; `client` says who executes it; `provider_id` is the id that the
    provider gave, if any: theirs may be missing, empty or doubled, so ours are minted here. `asks` says that a person has to
    answer, `reason` why an approval is asked for, and `digest` for which declaration of the tool.
    """

    id: CallId
    name: str
    arguments: str
    client: bool = False
    provider_id: str | None = None
    asks: Asks | None = None
    reason: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a server tool; a failure is `is_error`, never an exception. `plan` replaces what the agent means to do.

    `invalid`: the tool did not run, as the arguments of the call are not valid; the content says what is wrong with them.
    """

    content: Content
    is_error: bool = False
    plan: Plan | None = None
    invalid: bool = False


# ---------------------------------------------------------------- messages
Synthetic: TypeAlias = Literal[
    "superseded", "interrupted", "invalid", "denied", "timeout", "unanswered"
]
"""Why the server wrote a result itself; `unanswered`: the history that a client brought along has none."""


@dataclass(frozen=True, slots=True)
class Generation:
    """How the model is to write its answer, by the names that most services have; None: as the agent is set up."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None


@dataclass(frozen=True, slots=True)
class MessageContext:
    """What a post says beside its words. It is part of the transcript, so that every worker tells the model the same.

    Args:
        data: structured data to work on; None: there is none here.
        intent: what the user wants, in the caller's words.
        constraints: what has to be kept to.
        instructions: the caller's, for the answer to this message.
        output_schema: a JSON Schema of type object that the answer has to fit.
        at: when the post came (RFC 3339), where the agent is told the time; equal posts may differ in it.
        generation: how the answer to this message is to be written; it is told to the model's service, not to the model.
        forgets: whether data that was posted earlier does not count any more, although there is none here.
        extras: what a post said that is no word of its protocol; it is kept, and means nothing here.
        model: the name of the model that was chosen for the answer; empty: the agent's own.
    """

    data: JsonValue = None
    intent: str = ""
    constraints: tuple[str, ...] = ()
    instructions: str = ""
    output_schema: JsonObject | None = None
    at: str = ""
    generation: Generation | None = None
    forgets: bool = False
    extras: JsonObject | None = None
    model: str = ""


@dataclass(frozen=True, slots=True)
class SystemMessage:
    """`synthetic` says that the server wrote it itself: why the answer before it was not accepted.

    `imported`, here and in other messages: it stands in a history that a client brought along.
    """

    id: MessageId
    content: Content
    synthetic: Literal["invalid"] | None = None
    imported: bool = False
    role: Literal["system"] = "system"


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What was said to the agent; `agent` names the one that was asked, where the server has several.

    A `command` no model is shown.
    """

    id: MessageId
    content: Content
    agent: str = ""
    brief: MessageContext | None = None
    command: bool = False
    imported: bool = False
    role: Literal["user"] = "user"


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A provider's reasoning: readable `text`, and its `opaque` block for replay to the same provider only."""

    text: str
    provider: str
    opaque: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of model calls, as the provider counts them; `estimated` where an answer was cut before it said."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False

    @property
    def is_nothing(self) -> bool:
        """Whether no token was counted."""
        return not (
            self.input_tokens or self.output_tokens or self.cached_tokens or self.reasoning_tokens
        )

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.estimated or other.estimated,
        )

    def __sub__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens - other.input_tokens,
            self.output_tokens - other.output_tokens,
            self.cached_tokens - other.cached_tokens,
            self.reasoning_tokens - other.reasoning_tokens,
            self.estimated,
        )


UNUSED: Final = Usage()

MOST_TOKENS: Final = 10**12
"""Of one kind in one model call. No call has so many: a service that says so is wrong, and no sum may overflow for it."""


def credible(usage: Usage, /) -> Usage:
    """What a service says that a model call used, each number within what there can be."""
    said = (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens)
    if min(said) >= 0 and max(said) <= MOST_TOKENS:
        return usage
    given, answered, cached, reasoned = (max(0, min(MOST_TOKENS, each)) for each in said)
    return Usage(given, answered, cached, reasoned, usage.estimated)


def together(one: Usage | None, other: Usage | None, /) -> Usage | None:
    """Their sum; None: nobody has told anything."""
    return other if one is None else one if other is None else one + other


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """One turn's answer; `partial` when it was cut (cancelled, failed, out of tokens).

    `usage` is that of the model call that said it, None where the provider tells nothing; `model` is the name of the one
    that said it. The answer to a `command` no model is shown.
    """

    id: MessageId
    content: Content
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: tuple[Reasoning, ...] = ()
    partial: bool = False
    usage: Usage | None = None
    command: bool = False
    imported: bool = False
    model: str = ""
    role: Literal["assistant"] = "assistant"


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The answer to one call; `synthetic` says why the server wrote it itself, None when it did not."""

    id: MessageId
    call_id: CallId
    content: Content
    is_error: bool = False
    synthetic: Synthetic | None = None
    imported: bool = False
    role: Literal["tool"] = "tool"


@dataclass(frozen=True, slots=True)
class ApprovalMessage:
    """A person's answer to a call of `tool` that needs approval; no model is shown it.

    `always` answers for later calls in this conversation, too, an approval if the declaration has this `digest`; a denied
    one has a `reason`.
    """

    id: MessageId
    call_id: CallId
    approved: bool
    reason: str = ""
    always: bool = False
    tool: str = ""
    digest: str = ""
    role: Literal["approval"] = "approval"


@dataclass(frozen=True, slots=True)
class SummaryMessage:
    """From here on, a model is shown `content` in place of what came before, but for the `keeps` messages right before it.

    `asked` is the user's last message, in words, where it is not among those that are kept. `usage` is that of the model
    call that wrote the summary. One that says nothing and keeps nothing is where the agent was made to forget.
    """

    id: MessageId
    content: str
    keeps: int
    asked: str = ""
    usage: "Usage | None" = None
    role: Literal["summary"] = "summary"

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing in it to be shown."""
        return not (self.content or self.asked)

    @property
    def forgets(self) -> bool:
        """Whether nothing before it counts any more."""
        return self.is_blank and self.keeps <= 0


@dataclass(frozen=True, slots=True)
class ChildMessage:
    """A message of a transcript within the transcript: of the sub-agent that works on the call `call_id`."""

    call_id: CallId
    message: "Message"
    role: Literal["child"] = "child"

    @property
    def id(self) -> MessageId:
        return self.message.id


ModelMessage: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage
"""What a model may be shown."""
HistoryMessage: TypeAlias = ModelMessage
"""What a history may have that a client brings along."""

Aside: TypeAlias = ApprovalMessage | ChildMessage | SummaryMessage
"""What stands in a transcript and is not for its own model."""

Message: TypeAlias = ModelMessage | Aside
Answer: TypeAlias = ToolMessage | ApprovalMessage
"""What a call is answered with by the client."""

PostedMessage: TypeAlias = SystemMessage | UserMessage | Answer

OwedKind: TypeAlias = Literal["tool_result", "approval", "question"]


@dataclass(frozen=True, slots=True)
class Owed:
    """What the client has to answer: the result of a tool's call, whether a call may be made, or a call's questions.

    `parent_id` is the call of the sub-agent that owes it.
    """

    id: CallId
    name: str
    arguments: str
    kind: OwedKind = "tool_result"
    reason: str = ""
    parent_id: CallId | None = None
