"""Pure rules over messages: open calls, answers that are owed, and the view that a model is shown.

A transcript keeps one invariant (P5): every tool call is answered once, between its
assistant message and the next other message, or it is one of the calls of the last assistant
message and nothing but answers follow it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from itertools import chain, starmap
from typing import NamedTuple, TypeAlias, TypeVar

from pydantic import JsonValue

from passback.core.messages import (
    UNNAMED,
    Answer,
    ApprovalMessage,
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
    RunId,
    SideMessage,
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

# The start of a message that rejects an answer by its output schema.
NOT_ACCEPTED = "Your answer was not accepted: "

# The start of the result of a call that names no tool: readers of the run did not see it.
UNKNOWN_TOOL = "Not executed: there is no tool named "

# The start of the result of a sub-agent that failed: its last answer may be lost.
AGENT_FAILED = "The agent failed: "

UNMADE_TEXT = "The user allowed this call, but went on before it was made: it was not made."

MessageT = TypeVar("MessageT", bound=Message)

MintMessageId: TypeAlias = Callable[[], MessageId]


@value
class OpenCall:
    """A call without a result.

    `path` are the calls on which the sub-agents around it work, outermost first.
    """

    call: ToolCall
    path: tuple[CallId, ...] = ()

    @property
    def owed(self) -> Owed:
        """The answer that the client owes to it."""
        call, parent = self.call, self.path[-1] if self.path else None
        kind = call.asks or "tool_result"
        return Owed(
            id=call.id,
            name=call.name,
            arguments=call.arguments,
            kind=kind,
            reason=call.reason,
            parent_id=parent,
        )


def unanswered_calls(messages: Sequence[Message], /) -> tuple[ToolCall, ...]:
    """Return the calls of the last turn that have no result yet, in the model's order."""
    return _find_last_turn(messages).calls


def waiting_calls(
    messages: Sequence[Message], path: tuple[CallId, ...] = (), /
) -> tuple[OpenCall, ...]:
    """Return the open calls that the client has to answer, those of sub-agents included.

    `path` are the calls on which the sub-agents around the transcript work.
    """
    turn = _find_last_turn(messages)
    waiting: list[OpenCall] = []
    for call in turn.calls:
        if turn.is_owed(call):
            waiting.append(OpenCall(call, path))
        elif call.id in turn.children:
            waiting += waiting_calls(turn.children[call.id], (*path, call.id))
    return tuple(waiting)


def runnable_calls(messages: Sequence[Message], /) -> tuple[ToolCall, ...]:
    """Return the open calls that the server may make.

    A call in which a sub-agent waits for the client is not one of them.
    """
    turn = _find_last_turn(messages)
    return tuple(
        call
        for call in turn.calls
        if not turn.is_owed(call) and not waiting_calls(turn.children.get(call.id, ()))
    )


def resumable_calls(messages: Sequence[Message], /) -> tuple[ToolCall, ...]:
    """Return the runnable calls that were handed back to the client before.

    They are approved, or have a sub-agent that has begun its work.
    """
    turn = _find_last_turn(messages)
    return tuple(call for call in runnable_calls(messages) if call.asks or call.id in turn.children)


def owed_answers(messages: Sequence[Message], /) -> tuple[Owed, ...]:
    """Return the answers that the client owes before the conversation can go on."""
    return tuple(each.owed for each in waiting_calls(messages))


def child_transcript(call_id: CallId, messages: Sequence[Message], /) -> tuple[Message, ...]:
    """Return the transcript of the sub-agent that works on an open call; empty if there is none."""
    return _find_last_turn(messages).children.get(call_id, ())


def wrap_in_children(path: Sequence[CallId], message: Message, /) -> Message:
    """Return a message wrapped in a `ChildMessage` for each of the calls `path`, the first
    outermost.
    """
    for call_id in reversed(path):
        message = ChildMessage(call_id, message)
    return message


@value
class _LastTurn:
    """The last turn: its open calls, the ids of approved ones, and the messages of sub-agents."""

    calls: tuple[ToolCall, ...]
    approved: Set[CallId]
    children: Mapping[CallId, tuple[Message, ...]]

    @classmethod
    def of(cls, messages: Sequence[Message]) -> "_LastTurn":
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
                    # read backwards: the result of an answered call was seen already
                    if message.call_id not in answered:
                        children.setdefault(message.call_id, []).append(message.message)
                case SummaryMessage():  # may follow an open turn, and answers nothing
                    continue
                case AssistantMessage():
                    calls = tuple(call for call in message.tool_calls if call.id not in answered)
                    break
                case _:
                    break
        return cls(calls, approved, {key: tuple(reversed(said)) for key, said in children.items()})

    def is_owed(self, call: ToolCall) -> bool:
        return call.client or (call.asks == "approval" and call.id not in self.approved)


_NOTHING_OPEN = _LastTurn((), frozenset(), {})


def _find_last_turn(messages: Sequence[Message]) -> _LastTurn:
    """Return the last turn, without a search if its last message shows that no call is open."""
    last = messages[-1] if messages else None
    if (
        last is None
        or isinstance(last, UserMessage)
        or (isinstance(last, AssistantMessage) and not last.tool_calls)
    ):
        return _NOTHING_OPEN
    return _LastTurn.of(messages)


def answer_messages(answer: Answer, mint: MintMessageId, /) -> tuple[Message, ...]:
    """Return the messages that a client's answer adds; a denial adds a result, too."""
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
    """Yield the lasting permissions in messages, those of sub-agents included, oldest first."""
    for message in messages:
        said = innermost_message(message)
        if not isinstance(said, ApprovalMessage) or not said.always:
            continue
        reason = said.reason[:REASON_CHARACTERS]
        yield LastingPermission(said.tool, said.digest, said.approved, reason)


def innermost_message(message: Message, /) -> Message:
    """Return the message of the sub-agent, however deep it is nested."""
    while isinstance(message, ChildMessage):
        message = message.message
    return message


def posted_count(messages: Sequence[Message], /) -> int:
    """Return the number of messages behind the last one that a model wrote."""
    for count, message in enumerate(reversed(messages)):
        if isinstance(innermost_message(message), AssistantMessage | SummaryMessage):
            return count
    return len(messages)


def unwrap_message(message: Message, /) -> tuple[tuple[CallId, ...], Message]:
    """Return the calls on which sub-agents work, outermost first, and the message itself.

    The opposite of `wrap_in_children`.
    """
    path: list[CallId] = []
    while isinstance(message, ChildMessage):
        path.append(message.call_id)
        message = message.message
    return tuple(path), message


def recorded_message(
    message: MessageT, created: int, run_id: RunId, mint: MintMessageId, /
) -> MessageT:
    """Return a message with its id, its time and its run, where it has none yet.

    An imported message has no time and no run: nobody knows when it was written.
    """
    if isinstance(message, ChildMessage):
        inner = recorded_message(message.message, created, run_id, mint)
        return replace(message, message=inner)
    message_id = message.id if message.id != UNNAMED else mint()
    if not isinstance(message, SideMessage) and message.imported:
        return replace(message, id=message_id)
    return replace(
        message,
        id=message_id,
        created=message.created or created,
        run_id=message.run_id or run_id,
    )


class AddressedAgent(NamedTuple):
    """The agent and model that a user message asks, by name; empty where none was named.

    `answered` is that of `MessageContext`.
    """

    agent: str = ""
    model: str = ""
    answered: bool | None = None


def last_addressed_agent(messages: Sequence[Message], /) -> AddressedAgent | None:
    """Return the agent and model of the last user message; None if there is no user message."""
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            context = message.context or MessageContext()
            return AddressedAgent(message.agent, context.model, context.answered)
    return None


def closing_results(
    calls: Iterable[ToolCall], reason: Synthetic, mint: MintMessageId, /
) -> tuple[ToolMessage, ...]:
    """Return an error result for each call, marked as written by the server."""
    return tuple(
        ToolMessage(mint(), call.id, SYNTHETIC_TEXT[reason], is_error=True, synthetic=reason)
        for call in calls
    )


def unmade_results(calls: Iterable[ToolCall], mint: MintMessageId, /) -> tuple[ToolMessage, ...]:
    """Return results for approved calls that the user did not wait for."""
    return tuple(
        replace(each, content=UNMADE_TEXT) for each in closing_results(calls, "superseded", mint)
    )


def count_futile_turns(messages: Sequence[Message], /) -> int:
    """Return how many of the last turns had invalid calls only, or an answer that was rejected."""
    turns = 0
    for message in reversed(messages):
        match message:
            case AssistantMessage():
                # a rejected answer is counted at the system message that rejects it
                turns += bool(message.tool_calls)
            case SystemMessage(synthetic="invalid"):
                turns += 1
            case SummaryMessage() | ToolMessage(synthetic="invalid"):
                pass
            case _:
                break
    return turns


def schema_of_answer(
    messages: Sequence[Message], earlier: JsonObject | None = None, /
) -> JsonObject | None:
    """Return the schema for the answer to the last user message; without one, `earlier`."""
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            return None if message.context is None else message.context.output_schema
    return earlier


def posted_data(messages: Sequence[Message], earlier: JsonValue = None, /) -> JsonValue:
    """Return the structured data that was posted last, and None if it was dropped since.

    Return `earlier` if the messages say nothing of data.
    """
    for message in reversed(messages):
        match message:
            case SummaryMessage(forgets=True):
                return None
            case UserMessage(context=MessageContext() as context) if (
                context.data is not None or context.forgets
            ):
                return context.data
            case _:
                pass
    return earlier


def view_start(messages: Sequence[Message], /) -> int:
    """Return the index of the first message that `shown_messages` needs."""
    last = _last_summary(messages)
    return 0 if last is None else _first_kept(*last)


def shown_messages(messages: Sequence[Message], /) -> Sequence[Message]:
    """Return the transcript to be shown: last summary as a user message, messages kept, later ones.

    Takes time only for the messages from the boundary on, however long the record is.
    """
    last = _last_summary(messages)
    if last is None:
        return messages
    place, summary = last
    kept = messages[_first_kept(place, summary) : place]
    shown: tuple[Message, ...] = ()
    if not summary.is_blank:
        said = f"What was said before, in short.\n\n{summary.content}"
        text = wrap_in_tags("earlier-conversation", said)
        if summary.asked:
            text = f"{text}\n{wrap_in_tags('last-user-message', summary.asked)}"
        shown = (UserMessage(summary.id, text),)
    return (
        *shown,
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
    # `keeps` may be below 0, or more than there is
    return max(0, place - max(0, summary.keeps))


def wrap_in_tags(tag: str, text: str, /) -> str:
    """Return a text between two tags that nothing in the text can close."""
    return f"<{tag}>\n{re.sub(rf'(?i)<(?=/?{tag})', '< ', text)}\n</{tag}>"


def is_command(message: Message, /) -> bool:
    """Return whether a message is a command or its answer, which no model is shown."""
    return isinstance(message, UserMessage | AssistantMessage) and message.command


def paired_messages(messages: Sequence[Message], /) -> tuple[ModelMessage, ...]:
    """Return the view in a form that every provider accepts.

    Each call is answered once, in order, next to it; no message is empty; commands are left out. On
    a transcript that keeps the invariant only the order of answers changes. A missing answer (never
    by our own writes) is filled in as `interrupted`, and an answer without its call is left out.
    """
    shown: list[tuple[ModelMessage, Mapping[CallId, ToolMessage]]] = []
    answers: dict[CallId, ToolMessage] = {}  # to the calls of the message before
    generation: Generation | None = None
    for message in shown_messages(messages):
        if isinstance(message, ToolMessage):
            # of several answers to one call the first counts
            answers.setdefault(message.call_id, message)
        elif not isinstance(message, SideMessage):
            answers = {}
            if is_command(message):
                continue
            if isinstance(message, UserMessage):
                generation = message.context.generation if message.context else None
            elif isinstance(message, SystemMessage) and message.synthetic:
                # it rejects the model's last answer; providers take such a reply from the user only
                asked = None if generation is None else MessageContext(generation=generation)
                message = UserMessage(message.id, message.content, context=asked)
            shown.append((message, answers))
    return tuple(chain.from_iterable(starmap(_with_answers, shown)))


def _with_answers(
    message: ModelMessage, answers: Mapping[CallId, ToolMessage]
) -> Iterable[ModelMessage]:
    calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
    # providers refuse an empty assistant message
    if message.content or calls or not isinstance(message, AssistantMessage):
        yield message
    for call in calls:
        filler = partial(MessageId, f"{call.id}-interrupted")
        yield answers.get(call.id) or closing_results([call], "interrupted", filler)[0]
