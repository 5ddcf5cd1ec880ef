"""Pure rules over messages: what is owed, and what a model may be shown.

A transcript keeps one invariant (DESIGN P5): every tool call is answered once, between its assistant message and
the next other message, or it is one of the calls of the last assistant message and nothing but answers follow it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from passback.core.messages import (
    AssistantMessage,
    CallId,
    Message,
    MessageId,
    Owed,
    Synthetic,
    ToolCall,
    ToolMessage,
)

SYNTHETIC_TEXT: Mapping[Synthetic, str] = {
    "superseded": "The user went on without answering this call.",
    "interrupted": "This call was stopped before it was answered; it may or may not have run.",
    "invalid": "This call was not executed: its arguments are not valid.",
    "timeout": "Nobody answered this call in time.",
}

MintMessageId: TypeAlias = Callable[[], MessageId]


# ---------------------------------------------------------------- what is open
def unanswered(messages: Sequence[Message], /) -> tuple[ToolCall, ...]:
    """The calls at the tail that have no answer yet, in the model's order."""
    answered: set[CallId] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.call_id)
        elif isinstance(message, AssistantMessage):
            return tuple(call for call in message.tool_calls if call.id not in answered)
        else:
            break
    return ()


def owed(messages: Sequence[Message], /) -> tuple[Owed, ...]:
    """What the client has to answer before the conversation can go on."""
    return tuple(
        Owed(call.id, call.name, call.arguments) for call in unanswered(messages) if call.client
    )


def closing(
    calls: Iterable[ToolCall], reason: Synthetic, mint: MintMessageId, /
) -> tuple[ToolMessage, ...]:
    """An error result for each call, marked as written by the server."""
    return tuple(
        ToolMessage(mint(), call.id, SYNTHETIC_TEXT[reason], is_error=True, synthetic=reason)
        for call in calls
    )


def futile_turns(messages: Sequence[Message], /) -> int:
    """How many turns at the tail have made nothing but invalid calls."""
    turns = 0
    for message in reversed(messages):
        if isinstance(message, AssistantMessage) and message.tool_calls:
            turns += 1
        elif not isinstance(message, ToolMessage) or message.synthetic != "invalid":
            break
    return turns


# ---------------------------------------------------------------- what a model may be shown
def paired(messages: Sequence[Message], /) -> tuple[Message, ...]:
    """A view that every provider accepts: each call answered once, in order, next to it; nothing empty.

    On a transcript that keeps the invariant only the order of answers changes. What is missing all the same
    (never by our own writes) is filled in as `interrupted`; an answer without its call is left out.
    """
    view: list[Message] = []
    answers = _answers_by_turn(messages)
    for position, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            continue
        if isinstance(message, AssistantMessage):
            view.extend(_with_answers(message, answers.get(position, {})))
        else:
            view.append(message)
    return tuple(view)


def _answers_by_turn(messages: Sequence[Message]) -> dict[int, dict[CallId, ToolMessage]]:
    turns: dict[int, dict[CallId, ToolMessage]] = {}
    current: dict[CallId, ToolMessage] = {}
    for position, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            current = turns[position] = {}
        elif isinstance(message, ToolMessage):
            current.setdefault(message.call_id, message)
        else:
            current = {}
    return turns


def _with_answers(
    message: AssistantMessage, answers: Mapping[CallId, ToolMessage]
) -> Iterable[Message]:
    if not message.content and not message.tool_calls:
        return
    yield message
    for call in message.tool_calls:
        filler = partial(MessageId, f"{call.id}-interrupted")
        yield answers.get(call.id) or closing([call], "interrupted", filler)[0]
