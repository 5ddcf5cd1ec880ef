"""The calls that a run answers, and that were made before it began."""

from collections.abc import Iterable, Iterator, Mapping

from passback.core.errors import UnknownConversation
from passback.core.messages import (
    AssistantMessage,
    CallId,
    ChildMessage,
    ConversationKey,
    Message,
    ToolCall,
)
from passback.core.ports import Runs

_LAST = 100
"""Messages of a transcript that are looked at: what is owed is at its end."""

Calls = Mapping[CallId, ToolCall]


async def known_calls(runs: Runs, key: ConversationKey, /) -> Calls:
    """The calls at the end of a conversation; none where there is no such conversation. Raises StoreError."""
    calls: dict[CallId, ToolCall] = {}
    try:
        place = max(0, (await runs.status(key)).message_count - _LAST)
        page = await runs.messages(key, start=place, limit=_LAST)
        while page.messages:
            calls.update((call.id, call) for call in _calls(page.messages))
            place += len(page.messages)
            page = await runs.messages(key, start=place, limit=_LAST)
    except UnknownConversation:
        return {}
    return calls


def _calls(messages: Iterable[Message]) -> Iterator[ToolCall]:
    for message in messages:
        if isinstance(message, ChildMessage):
            yield from _calls([message.message])
        elif isinstance(message, AssistantMessage):
            yield from message.tool_calls
