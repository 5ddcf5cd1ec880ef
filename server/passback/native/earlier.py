"""Reading of messages that are recorded already, and of the calls of earlier runs."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import TypeAlias

from passback.core.errors import UnknownConversation
from passback.core.events import RunStarted
from passback.core.messages import (
    AssistantMessage,
    CallId,
    ChildMessage,
    ConversationKey,
    Message,
    RunRef,
    ToolCall,
)
from passback.core.runs import Runs

PAGE_MESSAGES = 100  # messages per read of the store
MOST_SEARCHED = 10_000  # messages that are searched for one of them, from the end
_MOST_MESSAGES = 2_000  # messages that are searched for calls, from the end

Calls: TypeAlias = Mapping[CallId, ToolCall]


async def earlier_calls(runs: Runs, run: RunRef, /) -> Calls:
    """Return the calls that a run may have results of, though an earlier run made them.

    For the newest run the first message is known: the calls are those of the last turn before. For
    any other run, all calls in the last messages of the conversation are returned. Without such a
    conversation there are none.

    Raises:
        StoreError: the messages cannot be read.
    """
    calls: dict[CallId, ToolCall] = {}
    try:
        status = await runs.status(run.key)
        is_newest = status.run_id == run.run_id
        end = status.run_start if is_newest else status.message_count
        first = max(0, end - _MOST_MESSAGES)
        while end > first:
            messages = await read_range(runs, run.key, max(first, end - PAGE_MESSAGES), end)
            calls.update((call.id, call) for call in _iterate_calls(messages))
            if is_newest and any(isinstance(each, AssistantMessage) for each in messages):
                break
            end -= PAGE_MESSAGES
    except UnknownConversation:
        return {}
    return calls


async def messages_before(runs: Runs, run: RunRef, /) -> int | None:
    """Return the number of messages before a run's own, those that were posted for it included.

    None: the run ended before it began.

    Raises:
        UnknownRun, CursorExpired: the run's beginning cannot be read any more.
    """
    async with runs.follow(run) as batches:
        async for batch in batches:
            for _, event in batch:
                if isinstance(event, RunStarted):
                    return event.first + event.posted
    return None


async def read_range(
    runs: Runs, key: ConversationKey, start: int, end: int, /
) -> tuple[Message, ...]:
    """Return the messages from `start` to `end`, with several reads where they are large."""
    found: list[Message] = []
    while len(found) < end - start:
        limit = min(end - start - len(found), PAGE_MESSAGES)
        page = await runs.messages(key, start=start + len(found), limit=limit)
        if not page.messages:  # the conversation was deleted, or a rollback has shortened it
            break
        found += page.messages
    return tuple(found)


async def read_back(
    runs: Runs, key: ConversationKey, end: int, /
) -> AsyncIterator[tuple[Message, ...]]:
    """Yield the last messages before a position in pages, the last page first."""
    last = max(0, end - MOST_SEARCHED)
    while end > last:
        start = max(last, end - PAGE_MESSAGES)
        yield await read_range(runs, key, start, end)
        end = start


def _iterate_calls(messages: Iterable[Message]) -> Iterator[ToolCall]:
    for message in messages:
        if isinstance(message, ChildMessage):
            yield from _iterate_calls([message.message])
        elif isinstance(message, AssistantMessage):
            yield from message.tool_calls
