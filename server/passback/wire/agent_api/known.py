"""The calls that a run answers, and that were made before it began."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from passback.core.errors import UnknownConversation
from passback.core.messages import (
    AssistantMessage,
    CallId,
    ChildMessage,
    ConversationKey,
    Message,
    RunRef,
    ToolCall,
)
from passback.core.ports import Runs

_AT_ONCE = 100
"""Messages that are read in one go."""
_MOST = 2_000
"""Messages that are looked at."""

Calls = Mapping[CallId, ToolCall]


async def known_calls(runs: Runs, run: RunRef, /) -> Calls:
    """The calls of the turn that a run goes on with; none where there is no such conversation. Raises StoreError.

    Of the newest run it is known where it began, and that is the last turn before. For another one the end of the
    conversation is looked through.
    """
    calls: dict[CallId, ToolCall] = {}
    try:
        status = await runs.status(run.key)
        is_newest = status.run_id == run.run_id
        end = status.mark if is_newest else status.message_count
        first = max(0, end - _MOST)
        while end > first:
            messages = await _read(runs, run.key, max(first, end - _AT_ONCE), end)
            calls.update((call.id, call) for call in _calls(messages))
            if is_newest and any(isinstance(each, AssistantMessage) for each in messages):
                break
            end -= _AT_ONCE
    except UnknownConversation:
        return {}
    return calls


async def _read(runs: Runs, key: ConversationKey, start: int, end: int) -> Sequence[Message]:
    """The messages from one place to another; where they are large, a page has fewer than were asked for."""
    found: list[Message] = []
    while len(found) < end - start:
        page = await runs.messages(key, start=start + len(found), limit=end - start - len(found))
        if not page.messages:
            break
        found += page.messages
    return found


def _calls(messages: Iterable[Message]) -> Iterator[ToolCall]:
    for message in messages:
        if isinstance(message, ChildMessage):
            yield from _calls([message.message])
        elif isinstance(message, AssistantMessage):
            yield from message.tool_calls
