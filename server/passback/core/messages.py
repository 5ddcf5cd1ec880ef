"""Messages of a conversation, their parts, calls and results, and the ids that name them."""

import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NewType, TypeAlias

from pydantic import JsonValue

PlanPriority: TypeAlias = Literal["high", "medium", "low"]
PlanStatus: TypeAlias = Literal["pending", "in_progress", "completed"]


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """One task that the agent intends to do."""

    content: str
    priority: PlanPriority = "medium"
    status: PlanStatus = "pending"


Plan: TypeAlias = tuple[PlanEntry, ...]


OwnerId = NewType("OwnerId", str)
ConversationId = NewType("ConversationId", str)
RunId = NewType("RunId", str)
MessageId = NewType("MessageId", str)
CallId = NewType("CallId", str)

UNNAMED: Final = MessageId("")
"""The id of a message that gets its own when it is recorded."""

JsonObject: TypeAlias = Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class ConversationKey:
    """The name of a conversation. Equal ids of different owners are different conversations."""

    owner: OwnerId
    id: ConversationId


@dataclass(frozen=True, slots=True)
class RunRef:
    """One run of one conversation."""

    key: ConversationKey
    run_id: RunId


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str
    type: Literal["text"] = "text"


Medium: TypeAlias = Literal["image", "audio", "file"]


@dataclass(frozen=True, slots=True)
class MediaPart:
    """An image, a sound or a file, by `url`, which may be a data: URL."""

    type: Medium
    url: str
    media_type: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class DataPart:
    """Structured data as JSON."""

    data: JsonValue
    type: Literal["data"] = "data"


@dataclass(frozen=True, slots=True)
class RefusalPart:
    text: str
    type: Literal["refusal"] = "refusal"


Part: TypeAlias = TextPart | MediaPart | DataPart | RefusalPart
Content: TypeAlias = str | tuple[Part, ...]


def as_text(content: Content, /, *, media: Callable[[MediaPart], str]) -> str:
    """Return content as text: one line for each part, data as JSON, and `media(part)` for media."""
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for part in content:
        match part:
            case MediaPart():
                texts.append(media(part))
            case DataPart():
                texts.append(json.dumps(part.data, ensure_ascii=False))
            case _:
                texts.append(part.text)
    return "\n".join(texts)


def single_text(content: Content, /) -> str | None:
    """Return the text of content that is one text, alone or as its only part; otherwise None."""
    if isinstance(content, str):
        return content
    match content:
        case (TextPart(text),):
            return text
        case _:
            return None


TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # matched against the whole name
TOOL_NAME_RULE: Final = "it needs 1 to 64 letters, digits, - and _"  # the same for people


def fold_name(name: str, /) -> str:
    """Return the form that names which look alike share: NFKC, case folded."""
    return unicodedata.normalize("NFKC", name).casefold()


ToolKind: TypeAlias = Literal[
    "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "other"
]
"""The kind of work that a tool does, by which clients choose an icon. The words are those of the
Agent Client Protocol.
"""

TITLE_CHARACTERS: Final = 200  # of a tool's display name


@dataclass(frozen=True, slots=True)
class Location:
    """A file that a call is about, or one of its lines."""

    path: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model knows it, and how clients show it.

    Attributes:
        parameters: a JSON Schema of type object.
        title: its name for people; empty if it has none. The model is not shown it.
        kind: likewise for people.
    """

    name: str
    description: str
    parameters: JsonObject
    title: str = ""
    kind: ToolKind = "other"


Asks: TypeAlias = Literal["approval", "question"]
"""The answer that a call needs from a person: leave for the server to make the call, or answers to
the call's own questions (`questions`).
"""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model's request to call a tool.

    `provider_id` is the id that the provider gave, or None. A provider's ids may be missing, empty
    or repeated, so `id` is always made here.

    Attributes:
        arguments: the JSON text exactly as the model wrote it.
        client: the client executes the call, not the server.
        asks: the answer that a person has to give; None if none is needed.
        reason: why approval is asked for.
        digest: the tool's declaration for which approval is asked, as `declaration_digest` gives
            it.
        title: the tool's, when the call was made.
        kind: likewise.
    """

    id: CallId
    name: str
    arguments: str
    client: bool = False
    provider_id: str | None = None
    asks: Asks | None = None
    reason: str = ""
    digest: str = ""
    title: str = ""
    kind: ToolKind = "other"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a server tool. A failure is a result with `is_error`, never an exception.

    Attributes:
        plan: replaces the agent's plan; None keeps it.
        invalid: the arguments of the call are not valid and the tool did not run; `content` says
            what is wrong with them.
    """

    content: Content
    is_error: bool = False
    plan: Plan | None = None
    invalid: bool = False


Synthetic: TypeAlias = Literal[
    "superseded", "interrupted", "invalid", "denied", "timeout", "unanswered"
]
"""Why the server wrote a result itself. `unanswered`: the history that a client imported has no
result of the call.
"""


EFFORTS: Final = ("low", "medium", "high")
"""Efforts of reasoning that every service takes which has any."""


ANY_TOOL: Final = "*"
"""No tool has this name."""


@dataclass(frozen=True, slots=True)
class Generation:
    """Options for an answer, under the names that most services use.

    None keeps the agent's.

    Attributes:
        effort: of reasoning, one of `EFFORTS` or the agent's own; sent only where the agent's
            options name one (`deltas.default_effort`).
        must_call: the tool that the first answer has to call; `ANY_TOOL`: any of them.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    effort: str | None = None
    must_call: str | None = None


@dataclass(frozen=True, slots=True)
class MessageContext:
    """The fields of a post beside its text.

    They are stored in the transcript, so that every worker shows the model the same.

    Args:
        data: structured data to work on; None if the message has none.
        intent: the user's goal, in the caller's words.
        constraints: what the answer has to respect.
        instructions: the caller's instructions for the answer to this message.
        output_schema: a JSON Schema of type object that the answer has to fit.
        at: when the post came (RFC 3339), where the agent is given the time. Equal posts may differ
            in it.
        generation: options for the answer to this message, sent to the model's service and not
            shown to the model.
        forgets: drop data that was posted earlier, although the message has none.
        extras: fields of the post that its protocol does not define; stored, and otherwise ignored.
        model: the name of the model that was chosen for the answer; empty for the agent's own.
        answered: whether somebody is there to answer the agent's questions; None: if its client
            says so by its tools.
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
    answered: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The time of a message, and the run for which it was written. Comparisons leave both out.

    Attributes:
        created: milliseconds since 1970, by the clock of the worker that wrote it, or that got it
            in a post; 0 if unknown, as in an imported history.
        run_id: the run that wrote it, or that it began; empty if there is none.
    """

    created: int = field(default=0, compare=False)
    run_id: RunId = field(default=RunId(""), compare=False)


@dataclass(frozen=True, slots=True)
class SystemMessage(Recorded):
    """A message of the operator. `synthetic`: the server wrote it to reject the answer before it.

    `imported`, here and in other messages: it belongs to a history that the client imported.
    """

    id: MessageId
    content: Content
    synthetic: Literal["invalid"] | None = None
    imported: bool = False
    role: Literal["system"] = "system"


@dataclass(frozen=True, slots=True)
class UserMessage(Recorded):
    """A message of the user. `agent` names the agent that was asked, where the server has several.

    No model is shown a `command`.
    """

    id: MessageId
    content: Content
    agent: str = ""
    context: MessageContext | None = None
    command: bool = False
    imported: bool = False
    role: Literal["user"] = "user"


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A provider's reasoning: readable `text`, and an `opaque` block for that provider only."""

    text: str
    provider: str
    opaque: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of model calls, as the provider counts them.

    `estimated`: an answer ended before its provider reported them.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False

    @property
    def is_nothing(self) -> bool:
        """True if no token was counted."""
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

# Of one kind in one model call. No call uses so many: a service that reports more is wrong, and its
# number must not overflow a sum.
MAX_REPORTED_TOKENS: Final = 10**12


def limit_usage(usage: Usage, /) -> Usage:
    """Return a reported usage with each number within 0 and `MAX_REPORTED_TOKENS`."""
    said = (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens)
    if min(said) >= 0 and max(said) <= MAX_REPORTED_TOKENS:
        return usage
    given, answered, cached, reasoned = (max(0, min(MAX_REPORTED_TOKENS, each)) for each in said)
    return Usage(given, answered, cached, reasoned, usage.estimated)


def add_usages(one: Usage | None, other: Usage | None, /) -> Usage | None:
    """Return the sum of two usages. None if both are unknown."""
    return other if one is None else one if other is None else one + other


@dataclass(frozen=True, slots=True)
class AssistantMessage(Recorded):
    """One answer of the model. `partial`: it ended early (cancelled, failed, or out of tokens).

    No model is shown the answer to a `command`.

    Attributes:
        usage: of the model call that gave this answer; None if the provider reports none.
        model: the name of the model that gave this answer.
        duration: milliseconds from the start of that model call to its end; 0 if unknown.
        started: when that model call began, in milliseconds since 1970; 0 if unknown.
        window: tokens of that model's context window; 0 if unknown.
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
    duration: int = field(default=0, compare=False, kw_only=True)
    started: int = field(default=0, compare=False, kw_only=True)
    window: int = field(default=0, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class ToolMessage(Recorded):
    """The result of one call.

    Attributes:
        synthetic: why the server wrote it; None if the tool gave it.
        duration: milliseconds that a tool of the server worked; 0 if none did, or it is unknown.
    """

    id: MessageId
    call_id: CallId
    content: Content
    is_error: bool = False
    synthetic: Synthetic | None = None
    imported: bool = False
    role: Literal["tool"] = "tool"
    duration: int = field(default=0, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class ApprovalMessage(Recorded):
    """A person's decision on a call of `tool` that needs approval. No model is shown it.

    `always` extends it to later calls in this conversation: a denial to all calls of the tool, an
    approval to those whose declaration has this `digest`. A denial may have a `reason`.
    """

    id: MessageId
    call_id: CallId
    approved: bool
    reason: str = ""
    always: bool = False
    tool: str = ""
    digest: str = ""
    role: Literal["approval"] = "approval"


CompactionTrigger: TypeAlias = Literal["auto", "manual", "forced_retry"]
"""Why a summary was made: the window was filling, the user asked for it, or the model's service
refused a request as too long.
"""


@dataclass(frozen=True, slots=True)
class SummaryMessage(Recorded):
    """A summary, shown to the model in place of the messages before it.

    The `keeps` messages right before it are shown as well. A blank summary that keeps nothing marks
    where the agent was made to forget.

    Attributes:
        asked: the text of the user's last message, if that is not among the messages kept.
        usage: of the model call that wrote the summary.
        model, duration, started, window: likewise, as in `AssistantMessage`.
        turns: the number of messages of the user and answers that are not shown any more.
        before, after: estimated tokens of the context without it and with it; 0 if unknown.
        trigger: why it was made.
    """

    id: MessageId
    content: str
    keeps: int
    asked: str = ""
    usage: "Usage | None" = None
    role: Literal["summary"] = "summary"
    model: str = field(default="", compare=False, kw_only=True)
    duration: int = field(default=0, compare=False, kw_only=True)
    started: int = field(default=0, compare=False, kw_only=True)
    window: int = field(default=0, compare=False, kw_only=True)
    turns: int = field(default=0, compare=False, kw_only=True)
    before: int = field(default=0, compare=False, kw_only=True)
    after: int = field(default=0, compare=False, kw_only=True)
    trigger: CompactionTrigger = field(default="auto", compare=False, kw_only=True)

    @property
    def is_blank(self) -> bool:
        """True if it has nothing to show."""
        return not (self.content or self.asked)

    @property
    def forgets(self) -> bool:
        """True if no message before it is used any more."""
        return self.is_blank and self.keeps <= 0


@dataclass(frozen=True, slots=True)
class ChildMessage:
    """A message in the transcript of the sub-agent that works on the call `call_id`."""

    call_id: CallId
    message: "Message"
    role: Literal["child"] = "child"

    @property
    def id(self) -> MessageId:
        return self.message.id

    @property
    def created(self) -> int:
        return self.message.created

    @property
    def run_id(self) -> RunId:
        return self.message.run_id


ModelMessage: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage
"""A message that a model may be shown."""
HistoryMessage: TypeAlias = ModelMessage
"""A message that an imported history may contain."""

SideMessage: TypeAlias = ApprovalMessage | ChildMessage | SummaryMessage
"""A message of a transcript that is not shown to its model as it is."""

Message: TypeAlias = ModelMessage | SideMessage
Answer: TypeAlias = ToolMessage | ApprovalMessage
"""A client's answer to a call."""

PostedMessage: TypeAlias = SystemMessage | UserMessage | Answer

OwedKind: TypeAlias = Literal["tool_result", "approval", "question"]


@dataclass(frozen=True, slots=True)
class Owed:
    """An answer that the client owes: a tool result, an approval, or answers to questions.

    `parent_id` is the call on which a sub-agent works, if a sub-agent waits for the answer.
    """

    id: CallId
    name: str
    arguments: str
    kind: OwedKind = "tool_result"
    reason: str = ""
    parent_id: CallId | None = None
