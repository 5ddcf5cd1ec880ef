"""Events for subscribers: one reader of a conversation for all of them on this worker.

A subscriber without a cursor joins the shared reader. One with a cursor reads alone until it has
reached the place of the shared reader, and joins it then.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
import anyio.abc

from passback.core.errors import (
    TRIMMED,
    CursorExpired,
    InvalidCursor,
    PassbackError,
    UnknownConversation,
)
from passback.core.events import START, Cursor, Logged, Position, Rewound, RunStarted
from passback.core.messages import ConversationKey, Message, RunRef, UserMessage
from passback.core.runs import RunBatch, Runs
from passback.native.earlier import read_range
from passback.wire.chat.headless import HeadlessResult
from passback.wire.chat.history import read_turns_before
from passback.wire.chat.outgoing import Batch, Client, refusal
from passback.wire.chat.said import Said, position_of

if TYPE_CHECKING:
    from passback.wire.chat.turns import Turns

logger = logging.getLogger(__name__)

_PAGE = 50  # messages
_NEED_STORE = (RunStarted, Rewound)
_DELETED = "the conversation was deleted"


class TurnReader:
    """Turns the events of a conversation's runs into those of the clients."""

    def __init__(self, runs: Runs, key: ConversationKey, /) -> None:
        self._runs = runs
        self._key = key
        self._turns: Turns | None = None
        self._headless = HeadlessResult()
        self._restates = False

    def snapshot(self) -> Sequence[Said]:
        """Return what a late client is told of the turns in progress."""
        return self._turns.snapshot() if self._turns else ()

    def read_at_once(self, batch: RunBatch, /) -> Sequence[Said] | None:
        """Return what clients are told of a batch, or None if the store has to be read for it."""
        if self._restates or any(isinstance(each.event, _NEED_STORE) for each in batch.events):
            return None
        said: list[Said] = []
        for logged in batch.events:
            said += self._feed(batch.run, logged, ())
        return said

    async def read(self, batch: RunBatch, /) -> Sequence[Said]:
        """Return what clients are told of a batch. Batches come as `Runs.watch` gives them."""
        said: list[Said] = []
        for logged in batch.events:
            said += await self._read_event(batch.run, logged)
        if self._restates and self._turns is not None:
            self._restates = False
            return self._turns.restate(batch.events[-1].position)
        return said

    async def read_beginning(self, batch: RunBatch, after: Position, /) -> None:
        """Read the events of a run up to a position, behind which `batch` is the first.

        Raises:
            CursorExpired: the position is not one of this run.
        """
        if isinstance(batch.events[0].event, Rewound):
            return  # the position is void, and the run is read again for that
        await self._read_until(batch.run, after)
        if self._turns is None:
            raise CursorExpired(TRIMMED)

    async def _read_until(self, run: RunRef, last: Position) -> None:
        async with self._runs.follow(run) as batches:
            async for batch in batches:
                for logged in batch:
                    if logged.position > last:
                        return
                    await self._read_event(run, logged)
                if batch[-1].position == last:
                    return

    async def _read_event(self, run: RunRef, logged: Logged) -> Sequence[Said]:
        event = logged.event
        if isinstance(event, Rewound):
            return await self._rewind(run, logged.position, event.to)
        posted: Sequence[Message] = ()
        if isinstance(event, RunStarted):
            end = event.first + event.posted
            posted = await read_range(self._runs, self._key, event.first, end)
            if self._turns is None or event.rolled_back:
                self._turns = await read_turns_before(self._runs, self._key, event.first)
            self._headless = HeadlessResult(await self._asked(posted, event.first))
        return self._feed(run, logged, posted)

    def _feed(self, run: RunRef, logged: Logged, posted: Sequence[Message]) -> Sequence[Said]:
        if self._turns is None:  # a run of before, which was taken out of the queue
            return ()
        said = self._turns.feed(run, logged, posted)
        self._headless.complete(logged.event, said)
        return said

    async def _asked(self, posted: Sequence[Message], first: int) -> UserMessage | None:
        """Return the user's message that a run answers: of its post, or the last one before."""
        page, end = posted, first
        while True:
            for message in reversed(page):
                if isinstance(message, UserMessage):
                    return message
            if end == 0:
                return None
            start = max(0, end - _PAGE)
            page = (await self._runs.messages(self._key, start=start, limit=end - start)).messages
            end = start

    async def _rewind(self, run: RunRef, position: Position, to: Position) -> Sequence[Said]:
        """Return what replaces events that a take-over has made void."""
        fresh = TurnReader(self._runs, self._key)
        await fresh._read_until(run, to)
        if fresh._turns is None:
            raise CursorExpired(TRIMMED)
        self._headless = fresh._headless
        if self._turns is None:  # of a client that comes back with a void cursor
            self._turns, self._restates = fresh._turns, True
            return ()
        return self._turns.rewind(fresh._turns, position)


@dataclass(eq=False, slots=True)
class Subscription:
    """A client's subscription to a conversation.

    Attributes:
        client: gets the events.
        key: the conversation.
        is_raw: the client wants `turn:events`.
        count: how often the client has subscribed; as often it has to unsubscribe.
        seen: the number of the last event that the client has.
        feed: the shared reader, also while the subscription reads alone.
        alone: the task that reads alone.
    """

    client: Client
    key: ConversationKey
    is_raw: bool = False
    count: int = 0
    seen: int = 0
    feed: "Feed | None" = None
    alone: anyio.CancelScope | None = None

    def take(self, batch: Batch, /) -> None:
        """Send the events of a batch that the client has not seen."""
        if batch.said and batch.said[-1].number > self.seen:
            events = batch.events_after(self.seen, is_raw=self.is_raw)
            self.seen = batch.said[-1].number
            for event in events:
                self.client.send(event)

    def fail(self, error: PassbackError, /) -> None:
        """Tell the client that nothing more comes, and why."""
        self.client.send(refusal(error, session_id=self.key.id))


@dataclass(eq=False, slots=True)
class Feed:
    """The shared reader of one conversation.

    Attributes:
        key: the conversation.
        reader: makes the events.
        position: the last event that was read.
        subscribers: get the events.
        users: the number of subscriptions that hold it.
        reading: the task that reads.
        began: set when all is read that was logged before, or it has failed.
        error: the reason of its end.
    """

    key: ConversationKey
    reader: TurnReader
    position: Position = START
    subscribers: set[Subscription] = field(default_factory=set[Subscription])
    users: int = 0
    reading: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    began: anyio.Event = field(default_factory=anyio.Event)
    error: PassbackError | None = None

    async def read(self, runs: Runs, /) -> None:
        """Read the conversation for all subscribers, until it is deleted."""
        status = await runs.status(self.key)
        run_id, logged = status.run_id, status.logged
        self.position = START if status.running else logged
        after = logged if run_id is None else Cursor(run_id, self.position)
        async with runs.watch(self.key, after=after, take=self._read_at_once) as batches:
            if not status.running:
                self.began.set()
            async for batch in batches:
                said = await self.reader.read(batch)
                self.position = batch.events[-1].position
                if self.began.is_set():
                    self._publish(said)
                elif self.position >= logged:
                    self.began.set()

    def _read_at_once(self, batch: RunBatch) -> bool:
        """Publish a batch within the run's own step, and return True, if that needs no waiting."""
        said = self.reader.read_at_once(batch) if self.began.is_set() else None
        if said is None:
            return False
        self.position = batch.events[-1].position
        self._publish(said)
        return True

    def _publish(self, said: Sequence[Said]) -> None:
        batch = Batch(self.key.id, said)
        for each in tuple(self.subscribers):
            each.take(batch)

    def end(self, error: PassbackError, /) -> None:
        """Tell all subscribers why nothing more comes."""
        self.error = error
        self.began.set()
        for each in tuple(self.subscribers):
            each.fail(error)


@dataclass(eq=False, slots=True)
class _Beginning:
    """The beginning of a task that reads alone: it has begun, or failed before."""

    done: anyio.Event = field(default_factory=anyio.Event)
    error: PassbackError | None = None


class Feeds:
    """The shared readers of a worker. Used within `running()`."""

    def __init__(self, runs: Runs, /) -> None:
        self._runs = runs
        self._feeds: dict[ConversationKey, Feed] = {}
        self._tasks: anyio.abc.TaskGroup | None = None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Own the tasks that read, until the context is left."""
        async with anyio.create_task_group() as self._tasks:
            yield
            self._tasks.cancel_scope.cancel()

    async def join(self, one: Subscription, /) -> None:
        """Send the turns in progress, and subscribe to what follows.

        Raises:
            UnknownConversation: there is no such conversation.
            CursorExpired: the log of the run in progress is too large.
            StoreError: the store failed.
        """
        feed = await self._open(one)
        one.seen = 0
        one.take(Batch(one.key.id, feed.reader.snapshot()))
        feed.subscribers.add(one)

    async def resume(self, one: Subscription, number: int, /) -> None:
        """Subscribe to what comes after the event `number`. 0: to the last chat, from its start.

        Raises:
            UnknownConversation, InvalidCursor, CursorExpired, StoreError: as `Runs.watch`.
        """
        after, one.seen = position_of(number) if number else START, number
        beginning = _Beginning()
        one.alone = anyio.CancelScope()
        self._group.start_soon(self._read_alone, one, one.alone, after, beginning)
        await beginning.done.wait()
        if beginning.error is not None:
            raise beginning.error

    def leave(self, one: Subscription, /) -> None:
        """Stop reading for a subscription. Nothing more is sent for it."""
        if one.alone is not None:
            one.alone.cancel()
            one.alone = None
        feed, one.feed = one.feed, None
        if feed is not None:
            feed.subscribers.discard(one)
            feed.users -= 1
            if feed.users == 0:
                feed.reading.cancel()
                self._forget(feed)

    @property
    def _group(self) -> anyio.abc.TaskGroup:
        assert self._tasks is not None, "feeds need `running()` around them"
        return self._tasks

    async def _open(self, one: Subscription) -> Feed:
        """Return the reader of a conversation, when it has begun. The subscription holds it."""
        feed = self._feeds.get(one.key)
        if feed is None:
            feed = self._feeds[one.key] = Feed(one.key, TurnReader(self._runs, one.key))
            self._group.start_soon(self._run, feed)
        feed.users += 1
        one.feed = feed
        await feed.began.wait()
        if feed.error is not None:
            raise feed.error
        return feed

    def _forget(self, feed: Feed) -> None:
        if self._feeds.get(feed.key) is feed:
            del self._feeds[feed.key]

    async def _run(self, feed: Feed) -> None:
        with feed.reading:
            error = await _failure_of(feed.read(self._runs)) or UnknownConversation(_DELETED)
            self._forget(feed)
            feed.end(error)

    async def _read_alone(
        self, one: Subscription, alone: anyio.CancelScope, after: Position, beginning: _Beginning
    ) -> None:
        with alone:
            error = await _failure_of(self._catch_up(one, after, beginning))
            if not beginning.done.is_set():
                beginning.error = error
                beginning.done.set()
            elif error is not None:
                one.fail(error)

    async def _catch_up(self, one: Subscription, after: Position, beginning: _Beginning) -> None:
        async with AsyncExitStack() as stack:
            batches, is_whole = await self._watch_after(stack, one.key, after)
            feed = await self._open(one)
            beginning.done.set()
            reader = TurnReader(self._runs, one.key)
            async for batch in batches:
                if not is_whole:
                    await reader.read_beginning(batch, after)
                    is_whole = True
                one.take(Batch(one.key.id, await reader.read(batch)))
                await one.client.wait_until_sent()
                if feed.error is not None:
                    raise feed.error
                if batch.events[-1].position >= feed.position:
                    one.alone = None
                    feed.subscribers.add(one)
                    return
        raise UnknownConversation(_DELETED)

    async def _watch_after(
        self, stack: AsyncExitStack, key: ConversationKey, after: Position
    ) -> tuple[AsyncIterator[RunBatch], bool]:
        """Return the batches after a position, and whether they begin with its run's start."""
        if after == START and (last := (await self._runs.status(key)).run_id) is not None:
            watching = self._runs.watch(key, after=Cursor(last, START))
            return await stack.enter_async_context(watching), True
        try:
            watching = self._runs.watch(key, after=after)
            return await stack.enter_async_context(watching), True
        except (CursorExpired, InvalidCursor):
            # what is said in these milliseconds is not stored yet, and what a take-over has made
            # void never again: the newest run knows both
            run_id = (await self._runs.status(key)).run_id
            if run_id is None:
                raise
        watching = self._runs.watch(key, after=Cursor(run_id, after))
        return await stack.enter_async_context(watching), False


async def _failure_of(work: Awaitable[None]) -> PassbackError | None:
    """Return the error with which a task ends; None if it ends well."""
    try:
        await work
    except PassbackError as error:
        return error
    except Exception:  # a reader's boundary: the log gets the error, the clients do not
        logger.exception("reading a conversation failed")
        return PassbackError("the server met an unexpected error")
    return None
