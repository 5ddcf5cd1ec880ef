"""Pure rules over messages: what is owed, what a post means, what a model may be shown.

A transcript keeps one invariant (DESIGN P5): every tool call is answered once, between its assistant message and
the next other message, or it is one of the calls of the last assistant message and nothing but answers follow it.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TypeAlias

from passback.core.errors import (
    ConversationBusy,
    NothingToDo,
    ResultConflict,
    UnknownToolCall,
)
from passback.core.messages import (
    AssistantMessage,
    CallId,
    Content,
    Message,
    MessageId,
    Owed,
    PostedMessage,
    RunId,
    Synthetic,
    ToolCall,
    ToolMessage,
)

SYNTHETIC_TEXT: Mapping[Synthetic, str] = {
    "superseded": "The user went on without answering this call.",
    "interrupted": "The server stopped before this call was answered; it may or may not have run.",
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


def fingerprint(content: Content, is_error: bool, /) -> str:
    """Equal for equal results: 64 hex digits of their canonical form."""
    plain = content if isinstance(content, str) else [asdict(part) for part in content]
    canonical = json.dumps([plain, is_error], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


# ---------------------------------------------------------------- what a post means
@dataclass(frozen=True, slots=True)
class Answer:
    """What is remembered of an answered client call.

    `run_id` is the run that the answers started; None while other calls of the same turn are still owed.
    """

    fingerprint: str
    run_id: RunId | None = None


@dataclass(frozen=True, slots=True)
class Begins:
    """The post starts a run; `answered` are all client calls that it settles, with their fingerprints."""

    append: tuple[Message, ...]
    answered: Mapping[CallId, str]


@dataclass(frozen=True, slots=True)
class Parks:
    """Results are kept, others are still owed; nothing runs. Empty `append`: a repeat, nothing to store."""

    append: tuple[Message, ...]
    answered: Mapping[CallId, str]
    owed: tuple[Owed, ...]


@dataclass(frozen=True, slots=True)
class Joins:
    """A repeated post: it follows the run that the first one started."""

    run_id: RunId


Verdict: TypeAlias = Begins | Parks | Joins


def accept(
    messages: Sequence[Message],
    posted: Sequence[PostedMessage],
    mint: MintMessageId,
    /,
    *,
    answers: Mapping[CallId, Answer],
    running: RunId | None,
) -> Verdict:
    """Decide what a post means for a conversation (DESIGN section 5).

    Args:
        messages: the transcript.
        posted: the post's messages, in its order.
        mint: makes ids for the messages that the server adds.
        answers: what is remembered of those posted calls that were answered before.
        running: the run that is going on, if any.

    Raises:
        NothingToDo: no message.
        UnknownToolCall: a result for a call that is neither owed nor answered.
        ResultConflict: a result for an answered call, or two in one post, with other content.
        ConversationBusy: a run is going on and the post would need another.
    """
    if not posted:
        raise NothingToDo("the post has no message, and nothing waits to be resumed")
    results = [message for message in posted if isinstance(message, ToolMessage)]
    others = [message for message in posted if not isinstance(message, ToolMessage)]
    open_calls = () if running else unanswered(messages)
    fresh = _fresh_results(results, {call.id for call in open_calls if call.client}, answers)
    if not fresh and not others:
        return _repeat(results, answers, messages)
    if running:
        raise ConversationBusy("a run of this conversation is going on", retry_after=1)
    remaining = tuple(call for call in open_calls if call.id not in fresh)
    answered = {call_id: _print(result) for call_id, result in fresh.items()}
    owing = tuple(Owed(call.id, call.name, call.arguments) for call in remaining if call.client)
    if owing and not others:
        return Parks(tuple(fresh.values()), answered, owing)
    closed = _close(remaining, mint)
    parked = _parked(messages) if any(call.client for call in open_calls) else ()
    answered |= {result.call_id: _print(result) for result in (*parked, *closed)}
    return Begins((*fresh.values(), *closed, *others), answered)


def _print(message: ToolMessage) -> str:
    return fingerprint(message.content, message.is_error)


def _close(calls: Sequence[ToolCall], mint: MintMessageId) -> tuple[ToolMessage, ...]:
    """Client calls are superseded by the post; a server call left open was cut by a crash."""
    return (
        *closing((call for call in calls if call.client), "superseded", mint),
        *closing((call for call in calls if not call.client), "interrupted", mint),
    )


def _fresh_results(
    results: Sequence[ToolMessage],
    open_ids: Collection[CallId],
    answers: Mapping[CallId, Answer],
) -> dict[CallId, ToolMessage]:
    """The posted results that answer an open call; equal repeats are left out."""
    fresh: dict[CallId, ToolMessage] = {}
    for result in results:
        known = answers.get(result.call_id)
        first = known.fingerprint if known else None
        if result.call_id in fresh:
            first = _print(fresh[result.call_id])
        elif known is None and result.call_id in open_ids:
            fresh[result.call_id] = result
            continue
        if first is None:
            raise UnknownToolCall("no such tool call is waiting in this conversation")
        if first != _print(result):
            raise ResultConflict("this tool call was already answered with another result")
    return fresh


def _repeat(
    results: Sequence[ToolMessage], answers: Mapping[CallId, Answer], messages: Sequence[Message]
) -> Verdict:
    runs = [answers[result.call_id].run_id for result in results]
    last = runs[-1]
    if last is None:
        return Parks((), {}, owed(messages))
    return Joins(last)


def _parked(messages: Sequence[Message]) -> list[ToolMessage]:
    """The results of an open turn's client calls that came in earlier posts."""
    turn = next(message for message in reversed(messages) if isinstance(message, AssistantMessage))
    client = {call.id for call in turn.tool_calls if call.client}
    return [m for m in messages if isinstance(m, ToolMessage) and m.call_id in client]


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
