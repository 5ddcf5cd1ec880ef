"""Pure rules over messages: what is owed, and what a model may be shown.

A transcript keeps one invariant (DESIGN P5): every tool call is answered once, between its assistant message and
the next other message, or it is one of the calls of the last assistant message and nothing but answers follow it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeAlias

from pydantic import JsonValue

from passback.core.messages import (
    Answer,
    ApprovalMessage,
    Aside,
    AssistantMessage,
    CallId,
    ChildMessage,
    Generation,
    JsonObject,
    Message,
    MessageContext,
    MessageId,
    ModelMessage,
    Owed,
    SummaryMessage,
    Synthetic,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from passback.core.permissions import REASON_CHARACTERS, LastingPermission
from passback.core.values import value

SYNTHETIC_TEXT: Mapping[Synthetic, str] = {
    "superseded": "The user went on before this call was answered.",
    "interrupted": "This call was stopped before it was answered; it may or may not have run.",
    "invalid": "This call was not executed: its arguments are not valid.",
    "denied": "This call was not allowed.",
    "timeout": "Nobody answered this call in time.",
    "unanswered": "The history of this conversation has no result of this call.",
}

NOT_ACCEPTED = "Your answer was not accepted: "
"""How a message begins by which a model is told that its answer does not fit the output schema."""

UNMADE = "The user allowed this call, but went on before it was made: it was not made."

MintMessageId: TypeAlias = Callable[[], MessageId]


# ---------------------------------------------------------------- what is open
@value
class OpenCall:
    """A call without a result, within the sub-agents that work on the calls `path`, outermost first."""

    call: ToolCall
    path: tuple[CallId, ...] = ()

    @property
    def owed(self) -> Owed:
        """As the client is told of it."""
        call, parent = self.call, self.path[-1] if self.path else None
        kind = call.asks or "tool_result"
        return Owed(call.id, call.name, call.arguments, kind, call.reason, parent)


def unanswered(messages: Sequence[Message], /) -> tuple[ToolCall, ...]:
    """The calls at the tail that have no result yet, in the model's order."""
    return _tail_of(messages).calls


def waiting(messages: Sequence[Message], /) -> tuple[OpenCall, ...]:
    """The calls without a result that the client has to answer, those of sub-agents included."""
    return tuple(_waiting(messages, ()))


def runnable(messages: Sequence[Message], /) -> tuple[ToolCall, ...]:
    """The calls without a result that the server may make, or go on with, because no sub-agent waits in them."""
    tail = _tail_of(messages)
    return tuple(
        call
        for call in tail.calls
        if not tail.is_owed(call) and not waiting(tail.children.get(call.id, ()))
    )


def resumable(messages: Sequence[Message], /) -> tuple[ToolCall, ...]:
    """Of the runnable calls, those that were handed back before: approved, or with a sub-agent in the middle of its work."""
    tail = _tail_of(messages)
    return tuple(call for call in runnable(messages) if call.asks or call.id in tail.children)


def owed(messages: Sequence[Message], /) -> tuple[Owed, ...]:
    """What the client has to answer before the conversation can go on."""
    return tuple(each.owed for each in _waiting(messages, ()))


def transcript_of(call_id: CallId, messages: Sequence[Message], /) -> tuple[Message, ...]:
    """What the sub-agent that works on an open call was told and has said."""
    return _tail_of(messages).children.get(call_id, ())


def within(path: Sequence[CallId], message: Message, /) -> Message:
    """A message as it stands in the transcript, if it is one of the sub-agents that work on the calls `path`."""
    for call_id in reversed(path):
        message = ChildMessage(call_id, message)
    return message


def _waiting(messages: Sequence[Message], path: tuple[CallId, ...]) -> Iterator[OpenCall]:
    tail = _tail_of(messages)
    for call in tail.calls:
        if tail.is_owed(call):
            yield OpenCall(call, path)
        elif call.id in tail.children:
            yield from _waiting(tail.children[call.id], (*path, call.id))


@value
class _Tail:
    """The last turn: its calls without a result, those that were approved, and what their sub-agents say."""

    calls: tuple[ToolCall, ...]
    approved: Set[CallId]
    children: Mapping[CallId, tuple[Message, ...]]

    @classmethod
    def of(cls, messages: Sequence[Message]) -> "_Tail":
        answered: set[CallId] = set()
        approved: set[CallId] = set()
        children: dict[CallId, list[Message]] = {}
        calls: tuple[ToolCall, ...] = ()
        for message in reversed(messages):
            match message:
                case ToolMessage():
                    answered.add(message.call_id)
                case ApprovalMessage():
                    approved.add(message.call_id)
                case ChildMessage():
                    if message.call_id not in answered:
                        children.setdefault(message.call_id, []).append(message.message)
                case SummaryMessage():
                    continue
                case AssistantMessage():
                    calls = tuple(call for call in message.tool_calls if call.id not in answered)
                    break
                case _:
                    break
        return cls(calls, approved, {key: tuple(reversed(said)) for key, said in children.items()})

    def is_owed(self, call: ToolCall) -> bool:
        return call.client or (call.asks == "approval" and call.id not in self.approved)


_CLOSED = _Tail((), frozenset(), {})


def _tail_of(messages: Sequence[Message]) -> _Tail:
    """Where the user has spoken last, or the model without a call, nothing is open: that is mostly so."""
    if not messages or _closes(messages[-1]):
        return _CLOSED
    return _Tail.of(messages)


def _closes(last: Message) -> bool:
    if isinstance(last, AssistantMessage):
        return not last.tool_calls
    return isinstance(last, UserMessage)


def written(answer: Answer, mint: MintMessageId, /) -> tuple[Message, ...]:
    """What a client's answer adds to the transcript: a denial is a result, too."""
    if isinstance(answer, ToolMessage) or answer.approved:
        return (answer,)
    text = SYNTHETIC_TEXT["denied"]
    if answer.always:
        text += " Nor is any other call of this tool in this conversation."
    if answer.reason:
        text += f" The user says: {answer.reason}"
    result = ToolMessage(mint(), answer.call_id, text, is_error=True, synthetic="denied")
    return answer, result


def lasting_permissions(messages: Iterable[Message], /) -> Iterator[LastingPermission]:
    """What people have answered for all calls to come, of whatever agent in this conversation; oldest first."""
    for message in messages:
        said = innermost(message)
        if not isinstance(said, ApprovalMessage) or not said.always:
            continue
        # an approval without a digest is of a version that went by names alone
        if said.digest or not said.approved:
            reason = said.reason[:REASON_CHARACTERS]
            yield LastingPermission(said.tool, said.digest, said.approved, reason)


def innermost(message: Message, /) -> Message:
    """What a sub-agent says or is told, however deep it is."""
    while isinstance(message, ChildMessage):
        message = message.message
    return message


def unwrapped(message: Message, /) -> tuple[tuple[CallId, ...], Message]:
    """Return the calls on which a sub-agent works, outermost first, and what it says or is told; the opposite of `within`."""
    path: list[CallId] = []
    while isinstance(message, ChildMessage):
        path.append(message.call_id)
        message = message.message
    return tuple(path), message


class Asked(NamedTuple):
    """Who answers the user: the names of an agent and of its model, each empty where none was named."""

    agent: str = ""
    model: str = ""


def last_asked(messages: Sequence[Message], /) -> Asked | None:
    """Return whom the user asked last; None: the user says nothing here."""
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            return Asked(message.agent, "" if message.brief is None else message.brief.model)
    return None


def closing(
    calls: Iterable[ToolCall], reason: Synthetic, mint: MintMessageId, /
) -> tuple[ToolMessage, ...]:
    """An error result for each call, marked as written by the server."""
    return tuple(
        ToolMessage(mint(), call.id, SYNTHETIC_TEXT[reason], is_error=True, synthetic=reason)
        for call in calls
    )


def left_unmade(calls: Iterable[ToolCall], mint: MintMessageId, /) -> tuple[ToolMessage, ...]:
    """As `closing`, for calls that were answered and that the user then went on without."""
    return tuple(replace(each, content=UNMADE) for each in closing(calls, "superseded", mint))


def futile_turns(messages: Sequence[Message], /) -> int:
    """How many turns at the tail have made nothing but invalid calls, or gave an answer that was not accepted."""
    turns = 0
    for message in reversed(messages):
        match message:
            case AssistantMessage():
                turns += bool(message.tool_calls)  # an answer is counted by what was said to it
            case SystemMessage(synthetic="invalid"):
                turns += 1
            case SummaryMessage() | ToolMessage(synthetic="invalid"):
                pass
            case _:
                break
    return turns


# ---------------------------------------------------------------- what was posted beside words
def schema_of(
    messages: Sequence[Message], earlier: JsonObject | None = None, /
) -> JsonObject | None:
    """What the answer to the last user message has to fit; without any user message, what had to before: `earlier`."""
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            return None if message.brief is None else message.brief.output_schema
    return earlier


def data_of(messages: Sequence[Message], earlier: JsonValue = None, /) -> JsonValue:
    """The structured data that was posted last and not forgotten; without any, what there was before: `earlier`."""
    for message in reversed(messages):
        match message:
            case SummaryMessage(forgets=True):
                return None
            case UserMessage(brief=MessageContext() as brief) if (
                brief.data is not None or brief.forgets
            ):
                return brief.data
            case _:
                pass
    return earlier


# ---------------------------------------------------------------- what a model may be shown
def boundary(messages: Sequence[Message], /) -> int:
    """The place of the first message that `view` needs."""
    last = _last_summary(messages)
    return 0 if last is None else _first_kept(*last)


def view(messages: Sequence[Message], /) -> Sequence[Message]:
    """The transcript as it is to be shown: the last summary as a user's message, what it keeps, and what follows.

    It costs as much as what follows the boundary, however long the record is.
    """
    last = _last_summary(messages)
    if last is None:
        return messages
    place, summary = last
    kept = messages[_first_kept(place, summary) : place]
    return (
        *(() if summary.is_blank else (UserMessage(summary.id, _summary_text(summary)),)),
        *(message for message in kept if not isinstance(message, SummaryMessage)),
        *messages[place + 1 :],
    )


def _last_summary(messages: Sequence[Message]) -> tuple[int, SummaryMessage] | None:
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if isinstance(message, SummaryMessage):
            return place, message
    return None


def _first_kept(place: int, summary: SummaryMessage) -> int:
    return max(0, place - max(0, summary.keeps))


def _summary_text(summary: SummaryMessage) -> str:
    said = tagged("earlier-conversation", f"What was said before, in short.\n\n{summary.content}")
    if not summary.asked:
        return said
    return f"{said}\n{tagged('last-user-message', summary.asked)}"


def tagged(tag: str, text: str, /) -> str:
    """The text between two tags, which nothing in it can close."""
    return f"<{tag}>\n{re.sub(rf'(?i)<(?=/?{tag})', '< ', text)}\n</{tag}>"


def unheard(message: Message, /) -> bool:
    """Whether a message is a command, or the answer to one: they stay in the record, and no model is shown them."""
    return isinstance(message, UserMessage | AssistantMessage) and message.command


def paired(messages: Sequence[Message], /) -> tuple[ModelMessage, ...]:
    """A view that every provider accepts: each call answered once, in order, next to it; nothing empty, and no commands.

    On a transcript that keeps the invariant only the order of answers changes. What is missing all the same
    (never by our own writes) is filled in as `interrupted`; an answer without its call is left out.
    """
    shown: list[ModelMessage] = []
    generation: Generation | None = None
    messages = view(messages)
    answers = _answers_by_turn(messages)
    for position, message in enumerate(messages):
        if unheard(message):
            continue
        if isinstance(message, AssistantMessage):
            shown.extend(_with_answers(message, answers.get(position, {})))
        elif isinstance(message, SystemMessage) and message.synthetic:
            # it answers what the model said last, which for all providers is a user's part
            asked = None if generation is None else MessageContext(generation=generation)
            shown.append(UserMessage(message.id, message.content, brief=asked))
        elif isinstance(message, UserMessage | SystemMessage):
            if isinstance(message, UserMessage):
                generation = message.brief.generation if message.brief else None
            shown.append(message)
    return tuple(shown)


def _answers_by_turn(messages: Sequence[Message]) -> dict[int, dict[CallId, ToolMessage]]:
    turns: dict[int, dict[CallId, ToolMessage]] = {}
    current: dict[CallId, ToolMessage] = {}
    for position, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            current = turns[position] = {}
        elif isinstance(message, ToolMessage):
            current.setdefault(message.call_id, message)
        elif not isinstance(message, Aside):
            current = {}
    return turns


def _with_answers(
    message: AssistantMessage, answers: Mapping[CallId, ToolMessage]
) -> Iterable[ModelMessage]:
    if not message.content and not message.tool_calls:
        return
    yield message
    for call in message.tool_calls:
        filler = partial(MessageId, f"{call.id}-interrupted")
        yield answers.get(call.id) or closing([call], "interrupted", filler)[0]
