"""What is wrong with a transcript (P5), read off the promise itself: none of the server's own rules is asked."""

from collections import Counter
from collections.abc import Iterable, Sequence

from passback.core.messages import (
    Aside,
    AssistantMessage,
    CallId,
    Content,
    Message,
    ToolCall,
    ToolMessage,
)


def faults_of(messages: Sequence[Message], *, running: bool) -> list[str]:
    """Where a transcript breaks a promise; while nothing runs, only the client's calls may be open."""
    faults = list(_shape(messages))
    for position, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            faults += _turn(messages, position, message)
        elif isinstance(message, ToolMessage) and _caller(messages, position) is None:
            faults.append(f"{position}: answers no call of the turn before it")
    if not running:
        faults += [
            f"{call.id} waits for a server" for call in open_calls(messages) if not call.client
        ]
    return faults


def said_in(messages: Sequence[Message]) -> list[Content]:
    """What was said to the agent and by it; what stands aside says nothing."""
    return [message.content for message in messages if not isinstance(message, Aside)]


def open_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """Calls without an answer, anywhere."""
    answered = {each.call_id for each in messages if isinstance(each, ToolMessage)}
    return [call for call in calls_of(messages) if call.id not in answered]


def calls_of(messages: Sequence[Message]) -> list[ToolCall]:
    return [
        call for each in messages if isinstance(each, AssistantMessage) for call in each.tool_calls
    ]


def answers_of(messages: Sequence[Message]) -> dict[CallId, ToolMessage]:
    return {each.call_id: each for each in messages if isinstance(each, ToolMessage)}


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
    end = next((n for n, each in enumerate(behind) if each.role != "tool"), len(behind))
    answers = Counter(each.call_id for each in behind[:end] if isinstance(each, ToolMessage))
    for call in turn.tool_calls:
        if answers[call.id] > 1 or (answers[call.id] == 0 and end < len(behind)):
            yield f"{call.id} has {answers[call.id]} answers next to it"


def _caller(messages: Sequence[Message], position: int) -> AssistantMessage | None:
    answer, before = messages[position], messages[:position]
    turn = next((each for each in reversed(before) if each.role != "tool"), None)
    if isinstance(turn, AssistantMessage) and isinstance(answer, ToolMessage):
        return turn if answer.call_id in {call.id for call in turn.tool_calls} else None
    return None
