"""What the server reads of a conversation beside what it has loaded. Nothing here waits."""

from collections.abc import Coroutine, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from tests.model.apply_write import Conversation

from passback.core.changes import load_events, load_message
from passback.core.conversation.head import Head, load_head
from passback.core.conversation.store import LogEntry
from passback.core.conversation.tree import Tree
from passback.core.events import START, Logged, Position, RunEvent
from passback.core.messages import ConversationKey, Message, MessageId, RunRef

ResultT = TypeVar("ResultT")

_load = lru_cache(maxsize=100_000)(load_message)
_events = lru_cache(maxsize=100_000)(load_events)
_head = lru_cache(maxsize=100_000)(load_head)


def messages_of(records: tuple[bytes, ...], /) -> tuple[Message, ...]:
    return tuple(map(_load, records))


def head_in(known: Conversation, /) -> Head:
    return _head(known.head) if known.version else Head()


def logged(entries: Sequence[LogEntry], /) -> Iterator[tuple[Position, RunEvent]]:
    for entry in entries:
        for number, event in enumerate(_events(entry.record), entry.first):
            yield Position(entry.position.epoch, number), event


def records_of(tree: Tree, records: tuple[bytes, ...], /, *, start: int = 0) -> tuple[bytes, ...]:
    """Return the records of a branch from a position on; `records` are those of all branches."""
    spans = tree.spans(start, tree.leaf + 2)
    return tuple(each for span in spans for each in records[span.start : span.end])


class Reading:
    """A conversation, as `Ledger` reads it."""

    def __init__(self, known: Conversation) -> None:
        self._known = known

    async def read_branch(
        self, key: ConversationKey, tree: Tree, /, *, start: int, limit: int
    ) -> tuple[Message, ...]:
        return messages_of(records_of(tree, self._known.messages, start=start)[:limit])

    async def find_message(
        self, key: ConversationKey, message_id: MessageId, stored: int, /
    ) -> int | None:
        messages = messages_of(self._known.messages[:stored])
        return next((n for n, each in enumerate(messages) if each.id == message_id), None)

    async def read_log(self, run: RunRef, /, *, after: Position = START) -> Sequence[Logged]:
        events = logged(self._known.log(run.run_id))
        return [Logged(position, event) for position, event in events if position > after]


def result_of(work: Coroutine[Any, Any, ResultT], /) -> ResultT:
    """Return the result of what never waits."""
    try:
        work.send(None)
    except StopIteration as done:
        result: ResultT = done.value
        return result
    raise AssertionError("it waits")
