"""Rules of a transcript (P5), written from the promise itself, without the server's code."""

from collections import Counter
from collections.abc import Iterable, Sequence

from passback.core.messages import (
    Answer,
    ApprovalMessage,
    AssistantMessage,
    CallId,
    Content,
    Message,
    SideMessage,
    ToolCall,
    ToolMessage,
)


def faults_of(messages: Sequence[Message], *, running: bool) -> list[str]:
    """Return broken promises; while nothing runs, only the client's calls may be open."""
    faults = list(_shape(messages))
    for position, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            faults += _turn(messages, position, message)
        elif isinstance(message, ToolMessage) and _caller(messages, position) is None:
            faults.append(f"{position}: answers no call of the turn before it")
    faults += _approvals(messages)
    if not running:
        awaited = awaited_calls(messages)
        # what was allowed waits for the answers to the others
        faults += [
            f"{call.id} waits for a server"
            for call in open_calls(messages)
            if call not in awaited and not (call.asks and awaited)
        ]
    return faults


def said_in(messages: Sequence[Message]) -> list[Content]:
    """Return what user and agent said; messages that stand aside say nothing."""
    return [message.content for message in messages if not isinstance(message, SideMessage)]


def open_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """Calls without an answer, anywhere."""
    answered = {each.call_id for each in messages if isinstance(each, ToolMessage)}
    return [call for call in calls_of(messages) if call.id not in answered]


def awaited_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """Open calls that the client has to answer."""
    allowed = approvals_of(messages)
    return [
        call
        for call in open_calls(messages)
        if call.client or (call.asks == "approval" and call.id not in allowed)
    ]


def calls_of(messages: Sequence[Message]) -> list[ToolCall]:
    return [
        call for each in messages if isinstance(each, AssistantMessage) for call in each.tool_calls
    ]


def answers_of(messages: Sequence[Message]) -> dict[CallId, ToolMessage]:
    return {each.call_id: each for each in messages if isinstance(each, ToolMessage)}


def approvals_of(messages: Sequence[Message]) -> dict[CallId, ApprovalMessage]:
    return {each.call_id: each for each in messages if isinstance(each, ApprovalMessage)}


def words_of(answer: Answer) -> tuple[object, ...]:
    """Return the content of an answer: equal for equal ones."""
    if isinstance(answer, ApprovalMessage):
        return "approval", answer.approved, answer.reason, answer.always
    return "result", answer.content, answer.is_error


def _approvals(messages: Sequence[Message]) -> Iterable[str]:
    """A person was asked about what is answered; what was not allowed has not been made."""
    asking = {call.id for call in calls_of(messages) if call.asks == "approval"}
    answers, approvals = answers_of(messages), approvals_of(messages)
    given = Counter(each.call_id for each in messages if isinstance(each, ApprovalMessage))
    yield from (f"{call}: nobody asked about it" for call in given if call not in asking)
    yield from (f"{call} was answered {count} times" for call, count in given.items() if count > 1)
    for call in asking & answers.keys():
        allowed = call in approvals and approvals[call].approved
        if answers[call].synthetic is None and not allowed:
            yield f"{call} was made, and nobody allowed it"
        if (call in approvals and not allowed) is not (answers[call].synthetic == "denied"):
            yield f"{call} is {answers[call].synthetic}"


def _shape(messages: Sequence[Message]) -> Iterable[str]:
    if messages and messages[0].role != "user":
        yield f"begins with a message of the {messages[0].role}"
    ids = Counter([str(each.id) for each in messages])
    ids.update(str(call.id) for call in calls_of(messages))
    yield from (f"{name} stands there {count} times" for name, count in ids.items() if count > 1)
    for position, message in enumerate(messages):
        if isinstance(message, AssistantMessage) and not (message.content or message.tool_calls):
            yield f"{position}: says nothing"
        if isinstance(message, ToolMessage) and message.synthetic and not message.is_error:
            yield f"{position}: was made up, and is no error"


def _turn(messages: Sequence[Message], position: int, turn: AssistantMessage) -> Iterable[str]:
    behind = messages[position + 1 :]
    end = next((n for n, each in enumerate(behind) if not isinstance(each, Answer)), len(behind))
    answers = Counter(each.call_id for each in behind[:end] if isinstance(each, ToolMessage))
    for call in turn.tool_calls:
        if answers[call.id] > 1 or (answers[call.id] == 0 and end < len(behind)):
            yield f"{call.id} has {answers[call.id]} answers next to it"


def _caller(messages: Sequence[Message], position: int) -> AssistantMessage | None:
    answer, before = messages[position], messages[:position]
    turn = next((each for each in reversed(before) if not isinstance(each, Answer)), None)
    if isinstance(turn, AssistantMessage) and isinstance(answer, ToolMessage):
        return turn if answer.call_id in {call.id for call in turn.tool_calls} else None
    return None
