"""Load conversations: one load at a time for each, few large ones at once, and none that became too
large.
"""

import math
import sys
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import anyio

from passback.core.admission import ConversationSnapshot
from passback.core.changes import LoadedConversation, dump_message
from passback.core.errors import ConversationBusy, HistoryTooLarge, ServerBusy
from passback.core.messages import (
    ConversationKey,
    Message,
    MessageContext,
    UserMessage,
    single_text,
)
from passback.core.posts import ReceiptName
from passback.engine.commands import Commands
from passback.engine.ledger import Ledger
from passback.pacing import FairLimiter

# bytes of a history that is read only when it is needed, and then in turn with other large ones
LARGE_HISTORY_BYTES = 2**20

# large histories that posts hold at once until it is decided what they are needed for
_LARGE_AT_ONCE = 2
# posts that wait for a conversation to be loaded: each of them is held in memory
_MOST_WAITING = 64
_COMMAND_BYTES = 4096  # bytes of a command that is taken although there is no room


class ConversationLoader:
    """Loads conversations one after the other, however many posts come at once.

    Args:
        store: has the conversations.
        timeout: seconds that a post waits for those before it. Recovery waits without a limit, and
            does not wait for the large history of a post.
    """

    def __init__(self, ledger: Ledger, *, timeout: float = 30.0) -> None:
        self._ledger = ledger
        self._timeout = timeout
        self._locks: dict[ConversationKey, anyio.Lock] = {}
        self._large = FairLimiter(_LARGE_AT_ONCE, timeout)
        self._large_for_recovery = FairLimiter(1, math.inf, most_waiting=sys.maxsize)

    @asynccontextmanager
    async def locked(
        self, key: ConversationKey, /, *, recovers: bool = False
    ) -> AsyncGenerator[None]:
        """Hold the lock of a conversation while it is loaded and judged, and not for longer.

        Raises:
            ConversationBusy: the wait is too long, or too many posts wait; never if `recovers`.
        """
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = anyio.Lock(fast_acquire=True)
        try:
            if not lock.locked():
                lock.acquire_nowait()
            elif recovers:
                await lock.acquire()
            else:
                many = lock.statistics().tasks_waiting >= _MOST_WAITING
                with anyio.move_on_after(0 if many else self._timeout) as waiting:
                    await lock.acquire()
                if waiting.cancelled_caught:
                    raise ConversationBusy(
                        "too many posts to this conversation at once", retry_after=1
                    )
            try:
                yield
            finally:
                lock.release()
        finally:
            # whoever waits has it by now
            if not lock.locked():
                self._locks.pop(key, None)

    async def load_small(
        self, key: ConversationKey, receipts: Collection[ReceiptName] = ()
    ) -> LoadedConversation:
        """Return a conversation, without its messages if they are large."""
        return await self._ledger.load(key, receipts=receipts, within=LARGE_HISTORY_BYTES)

    @asynccontextmanager
    async def load_whole(
        self,
        key: ConversationKey,
        receipts: Collection[ReceiptName] = (),
        *,
        recovers: bool = False,
    ) -> AsyncGenerator[LoadedConversation]:
        """Load a conversation with its large messages. Owners take turns; load nothing else within.

        Raises:
            ServerBusy: the wait is too long, or too many posts of the owner wait; never if
                `recovers`.
        """
        places = self._large_for_recovery if recovers else self._large
        async with AsyncExitStack() as held:
            try:
                await held.enter_async_context(places.acquire(key))
            except TimeoutError:
                raise ServerBusy(
                    "too many large conversations are read at once; try again later", retry_after=1
                ) from None
            yield await self._ledger.load(key, receipts=receipts)


def judged_snapshot(
    loaded: LoadedConversation, branch: LoadedConversation | None = None, /
) -> ConversationSnapshot:
    """Return a conversation as a post is judged on it; `branch`: where the post goes on."""
    status = loaded.status
    return ConversationSnapshot(
        loaded.messages,
        loaded.receipts,
        running=status.run_id if status.running else None,
        queued=[message for waits in loaded.queue for message in waits.post.messages],
        overdue=status.overdue,
        start=status.state.history_start,
        exists=status.version > 0,
        state=status.state,
        place=None if branch is None else branch.messages,
    )


def refuse_too_large(
    loaded: LoadedConversation, append: Sequence[Message], limit: int, commands: Commands, /
) -> None:
    """Return if the messages fit into a history of at most `limit` bytes, or make it smaller.

    Raises:
        HistoryTooLarge: there is no room for them.
    """
    room = limit - (loaded.status.history_bytes or 0) - loaded.queue_bytes
    if room >= 0 and sum(map(_most_bytes, append)) <= room:
        return
    size = sum(len(dump_message(message)) for message in append)
    if size <= room or (commands.shortens_history(append) and size <= _COMMAND_BYTES):
        return
    way = "post /clear to let the agent forget it, or " if commands.enabled else ""
    raise HistoryTooLarge(
        f"with this post the conversation is larger than {limit} bytes "
        f"(history_bytes in PASSBACK_LIMITS): {way}begin a new one",
        details={"limit": limit},
    )


def _most_bytes(message: Message) -> int:
    """Return an upper bound of a message's record in bytes, without serializing where that is
    costly.
    """
    if isinstance(message, UserMessage):
        context, text = message.context, single_text(message.content)
        if text is not None and (context is None or context == MessageContext(at=context.at)):
            # as JSON writes control characters; ids and names have bounds
            return 6 * len(text) + 4096
    return len(dump_message(message))
