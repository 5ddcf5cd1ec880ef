"""Comparison of a posted conversation with the recorded one: finds the messages that are new.

A client posts all messages each time. Those that the server has are found by their ids, results by
their calls. What follows the last of them is new; where the record goes on differently from there,
the client has edited or shortened the conversation, and a branch begins.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from passback.core.errors import InvalidRequest
from passback.core.ids import conversation_tag, is_server_made, tag_of
from passback.core.messages import (
    AssistantMessage,
    CallId,
    Content,
    ConversationKey,
    Message,
    MessageId,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from passback.core.runs import Runs
from passback.core.transcript import innermost_message
from passback.core.values import value
from passback.native.earlier import PAGE_MESSAGES, read_range
from passback.wire.ag_ui.encoder import result_id
from passback.wire.ag_ui.posted import (
    AgUiAssistantMessage,
    AgUiSaid,
    AgUiToolMessage,
    AgUiUserMessage,
)

MOST_MESSAGES: Final = 10_000  # recorded messages that are searched, from the end
MOST_BRANCHES: Final = 3  # messages that are looked for on other branches

_Said: TypeAlias = UserMessage | AssistantMessage | SystemMessage
ReadContent: TypeAlias = Callable[[AgUiUserMessage], Content]


@value
class Tail:
    """The last messages of the branch that is read, from the position `start` on."""

    start: int = 0
    messages: Sequence[Message] = ()

    @property
    def answered(self) -> frozenset[CallId]:
        """The calls that have results in it, those of sub-agents included."""
        said = map(innermost_message, self.messages)
        return frozenset(each.call_id for each in said if isinstance(each, ToolMessage))

    @property
    def approvals(self) -> frozenset[CallId]:
        """The calls in it that needed a person's approval, those of sub-agents included."""
        said = map(innermost_message, self.messages)
        made = (each.tool_calls for each in said if isinstance(each, AssistantMessage))
        return frozenset(call.id for calls in made for call in calls if call.asks == "approval")


@value
class Place:
    """The place at which the posted conversation and the record part.

    Args:
        known: the index of the last posted message that the record has; -1: it has none.
        end: the index of the first message of the tail that the client does not have.
        after: the id of the message before it; empty if there is none.
        is_end: the record ends there, too.
    """

    known: int
    end: int
    after: MessageId
    is_end: bool


async def read_tail(
    runs: Runs, key: ConversationKey, count: int, posted: Sequence[AgUiSaid], /
) -> Tail:
    """Return the last messages of a conversation, back to one that was posted, too.

    Args:
        runs: reads them.
        key: the conversation.
        count: the number of its messages.
        posted: the client's messages.

    Raises:
        UnknownConversation: there is none any more.
        InvalidRequest: none of the posted messages is among the last `MOST_MESSAGES`.
    """
    names = {_name(each) for each in posted}
    messages: tuple[Message, ...] = ()
    start = count
    while start > 0:
        if len(messages) >= MOST_MESSAGES:
            raise InvalidRequest(
                f"none of the posted messages is among the last {MOST_MESSAGES} of this thread: "
                "post an empty list of messages to be sent what it has"
            )
        end, start = start, max(0, start - PAGE_MESSAGES)
        page = await read_range(runs, key, start, end)
        messages = page + messages
        if any(_recorded_name(each) in names for each in page):
            break
    return Tail(start, messages)


def _name(posted: AgUiSaid) -> tuple[str, str]:
    """Return what is equal for a posted message and the recorded one."""
    if isinstance(posted, AgUiToolMessage):
        return "tool", posted.tool_call_id
    return "message", posted.id


def _recorded_name(message: Message) -> tuple[str, str] | None:
    if isinstance(message, ToolMessage):
        return "tool", message.call_id
    return ("message", message.id) if isinstance(message, _Said) else None


def find_place(posted: Sequence[AgUiSaid], tail: Tail, read: ReadContent, /) -> Place:
    """Return where the posted conversation and the record part.

    `read` returns the content of a user's message: an edited one is new, although it has the id of
    a recorded one.
    """
    recorded = {
        name: at
        for at, message in enumerate(tail.messages)
        if (name := _recorded_name(message)) is not None
    }
    known, at = -1, -1
    for index in reversed(range(len(posted))):
        found = recorded.get(_name(posted[index]))
        if found is not None and not _is_edited(posted[index], tail.messages[found], read):
            known, at = index, found
            break
    end, after = at + 1, tail.messages[at].id if at >= 0 else MessageId("")
    # results, approvals and the like belong to the message before them
    while end < len(tail.messages) and not isinstance(tail.messages[end], _Said):
        if isinstance(tail.messages[end], ToolMessage):
            after = tail.messages[end].id
        end += 1
    return Place(known, end, after, end == len(tail.messages))


def _is_edited(posted: AgUiSaid, recorded: Message, read: ReadContent) -> bool:
    return (
        isinstance(posted, AgUiUserMessage)
        and isinstance(recorded, UserMessage)
        and read(posted) != recorded.content
    )


def message_to_answer(tail: Tail, place: Place, /) -> MessageId | None:
    """Return the message that is answered anew if nothing is new, the last one that is known.

    It is the one before an answer that was cut. None: there is no message.
    """
    if not tail.messages:
        return None
    match tail.messages[: place.end]:
        case [*_, before, AssistantMessage(partial=True)]:
            return before.id
        case _:
            return place.after


def named_elsewhere(
    posted: Sequence[AgUiSaid], place: Place, key: ConversationKey, /
) -> Sequence[tuple[int, MessageId]]:
    """Return the agent's messages that may be on another branch, the last first, and their indexes.

    They follow the last one that the branch has, and the server made their ids for this
    conversation. Messages that were never recorded have such ids, too: those of an answer that was
    cut, or that goes on.
    """
    tag = conversation_tag(key)
    found = [
        (index, MessageId(each.id))
        for index, each in enumerate(posted)
        # behind calls, the conversation goes on after their results only
        if index > place.known and isinstance(each, AgUiAssistantMessage) and not each.tool_calls
    ]
    ours = [(index, made) for index, made in found if is_server_made(made) and tag_of(made) == tag]
    return ours[: -MOST_BRANCHES - 1 : -1]


def is_from_server(result: AgUiToolMessage, /) -> bool:
    """Return whether a result is one that the server gave, by its id."""
    call_id = CallId(result.tool_call_id)
    return result.id == result_id(call_id) or is_server_made(MessageId(result.id))
