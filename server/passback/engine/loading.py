"""Conversations as they are loaded: one at a time for each, few large ones at once, and none that became too large."""

from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager

import anyio
from typing_extensions import override

from passback.core.changes import Loaded
from passback.core.errors import ConversationBusy, HistoryTooLarge
from passback.core.messages import ConversationKey, Message, UserMessage, lone_text
from passback.core.ports import Store
from passback.core.posts import ReceiptName
from passback.core.records import dump_message
from passback.engine.commands import Commands
from passback.engine.turn import Turn

LARGE = 2**20
"""Bytes of a history that is not read before it is known to be needed, and then in turn with other large ones."""

_AT_ONCE = 2
"""Large histories that are held at once until it is decided what they are needed for."""

_COMMAND = 4096
"""Bytes of a command that is taken although there is no room."""


class Loads:
    """Has conversations loaded one after the other, however many posts come at once.

    Args:
        patience: seconds that one of them waits for those before it.
    """

    def __init__(self, store: Store, *, patience: float = 30.0) -> None:
        self._store = store
        self._patience = patience
        self._turns: dict[ConversationKey, _LoadTurn] = {}
        self._large = anyio.Semaphore(_AT_ONCE)

    def turn(self, key: ConversationKey) -> "_LoadTurn":
        """The turn of a conversation, to be held while it is loaded and judged, and not for longer.

        Entering it raises `ConversationBusy` when that takes too long.
        """
        turn = self._turns.get(key)
        if turn is None:
            turn = self._turns[key] = _LoadTurn(key, self._turns, self._patience)
        return turn

    async def first(self, key: ConversationKey, receipts: Collection[ReceiptName] = ()) -> Loaded:
        """A conversation, without its messages if they are large."""
        return await self._store.load(key, receipts=receipts, within=LARGE)

    @asynccontextmanager
    async def whole(
        self, key: ConversationKey, receipts: Collection[ReceiptName] = ()
    ) -> AsyncGenerator[Loaded]:
        """A conversation with its messages, which are large. Nothing else is loaded within.

        Raises:
            ConversationBusy: others are, for too long.
        """
        with anyio.move_on_after(self._patience) as waiting:
            await self._large.acquire()
        if waiting.cancelled_caught:
            raise _too_many()
        try:
            yield await self._store.load(key, receipts=receipts)
        finally:
            self._large.release()


class _LoadTurn(Turn):
    """Is forgotten when nobody has it or waits for it."""

    __slots__ = ("_key", "_patience", "_turns")

    def __init__(
        self, key: ConversationKey, turns: "dict[ConversationKey, _LoadTurn]", patience: float
    ) -> None:
        super().__init__()
        self._key = key
        self._patience = patience
        self._turns = turns

    @override
    async def __aenter__(self) -> None:
        if self.take():
            return
        with anyio.move_on_after(self._patience) as waiting:
            await super().__aenter__()
        if waiting.cancelled_caught:
            raise _too_many()

    @override
    def give_back(self) -> None:
        super().give_back()
        if self.is_free:
            self._turns.pop(self._key, None)


def _too_many() -> ConversationBusy:
    return ConversationBusy("too many posts to this conversation at once", retry_after=1)


# ---------------------------------------------------------------- what became too large
def refuse_beyond(
    loaded: Loaded, append: Sequence[Message], limit: int, commands: Commands, /
) -> None:
    """Return if messages may follow on a history that has room for so many bytes, or make it smaller.

    Raises:
        HistoryTooLarge: there is no room for them.
    """
    room = limit - (loaded.status.history_bytes or 0) - loaded.queue_bytes
    if room >= 0 and sum(map(_at_most, append)) <= room:
        return
    size = sum(len(dump_message(message)) for message in append)
    if size <= room or (commands.mends(append) and size <= _COMMAND):
        return
    way = "post /clear to let the agent forget it, or " if commands.enabled else ""
    raise HistoryTooLarge(
        f"with this post the conversation is larger than {limit} bytes (PASSBACK_MAX_HISTORY_BYTES): {way}begin a new one",
        details={"limit": limit},
    )


def _at_most(message: Message) -> int:
    """Bytes that the record of a message cannot exceed, without writing it where that is dear."""
    if isinstance(message, UserMessage) and message.brief is None:
        text = lone_text(message.content)
        if text is not None:
            return (
                6 * len(text) + 4096
            )  # as JSON writes control characters; ids and names have bounds
    return len(dump_message(message))
