"""Branches of a conversation: find a message, go on behind it, show and switch branches."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Literal, Protocol

from passback.core.admission import BUSY, NO_MESSAGE_HERE, NOT_WHOLE, close_open_calls
from passback.core.changes import Change, LoadedConversation, Status, dump_message
from passback.core.conversation.tree import NO_MESSAGE, Tree
from passback.core.errors import (
    Conflict,
    ConversationBusy,
    HistoryTooLarge,
    InvalidRequest,
    UnknownMessage,
)
from passback.core.ids import new_message_id, new_nonce
from passback.core.messages import ConversationKey, Message, MessageId, SummaryMessage
from passback.core.posts import Receipt, StartRun
from passback.core.runs import BranchPoint
from passback.core.transcript import runnable_calls
from passback.core.values import value
from passback.engine.ledger import Ledger, until_applied
from passback.engine.loading import ConversationLoader
from passback.engine.log import record_messages

MOST_FORKS: Final = 1000  # of a conversation: each is part of its head, which every run writes


class Branches(Protocol):
    """The messages of all branches, as `Ledger` has them."""

    async def read_branch(
        self, key: ConversationKey, tree: Tree, /, *, start: int, limit: int
    ) -> tuple[Message, ...]: ...

    async def find_message(
        self, key: ConversationKey, message_id: MessageId, stored: int, /
    ) -> int | None: ...


async def find_message(
    branches: Branches, key: ConversationKey, loaded: LoadedConversation, message_id: MessageId, /
) -> int:
    """Return the number of a message on any branch; `NO_MESSAGE` for the empty id.

    Raises:
        UnknownMessage: the conversation has none with this id.
    """
    if not message_id:
        return NO_MESSAGE
    status = loaded.status
    for index in reversed(range(len(loaded.messages))):
        if loaded.messages[index].id == message_id:
            return status.tree.number(loaded.start + index)
    number = await branches.find_message(key, message_id, status.stored)
    if number is None:
        raise UnknownMessage(NO_MESSAGE_HERE)
    return number


@value
class Place:
    """The message that a post follows.

    Attributes:
        follows: its number; None if the post does not say it.
        branch: the conversation on the branch that ends there; None: it is the one that is read.
    """

    follows: int | None = None
    branch: LoadedConversation | None = None


async def find_place(
    branches: Branches, post: StartRun, loaded: LoadedConversation, /, *, most: int
) -> Place:
    """Return the message that a post follows. Raises as `find_message` and `on_branch`."""
    if post.after is None or not loaded.status.version:
        return Place()
    follows = await find_message(branches, post.key, loaded, post.after)
    if follows == loaded.status.tree.leaf:
        return Place(follows)
    return Place(follows, await on_branch(branches, post.key, loaded, follows, most=most))


async def on_branch(
    branches: Branches,
    key: ConversationKey,
    loaded: LoadedConversation,
    leaf: int,
    /,
    *,
    most: int | None = None,
) -> LoadedConversation:
    """Return a conversation as it is on the branch that ends with the message `leaf`.

    Nothing is owed there. Amounts spent stay spent. `Status.unchanged` tells what of the branch
    readers know.

    Args:
        branches: has the other messages.
        key: the conversation.
        loaded: it, on the branch that is read.
        leaf: the number of a message, or `NO_MESSAGE`.
        most: bytes of messages that may be read.

    Raises:
        HistoryTooLarge: they are more than `most`.
    """
    status = loaded.status
    tree = replace(status.tree, leaf=leaf)
    kept = position = status.tree.shared(tree)
    branch = _BranchReader(branches, key, loaded, most)
    # what an old record has of permissions only in its messages stays, too
    lasting = status.state.permissions(loaded.messages) or status.state.lasting
    state, anew = replace(status.state, lasting=lasting), kept < loaded.start
    while left := await branch.read_page(status.tree, position, status.message_count):
        state = state.after_rollback(left, status.run_id)
        anew = anew or any(isinstance(each, SummaryMessage) for each in left)
        position += len(left)
    earlier = await branch.read(status.tree, 0 if anew else loaded.start, kept)
    gained = await branch.read(tree, kept, len(tree))
    state = state.on_branch(gained, anew=anew)
    messages = (*earlier, *gained)
    status = replace(
        status,
        owed=(),
        message_count=len(tree),
        state=state,
        history_bytes=sum(len(dump_message(message)) for message in messages),
        tree=tree,
        unchanged=kept if status.unchanged is None else min(kept, status.unchanged),
    )
    return replace(loaded, status=status, messages=messages)


async def read_from(
    branches: Branches, key: ConversationKey, loaded: LoadedConversation, position: int, /
) -> tuple[Message, ...]:
    """Return the messages of the branch that is read from a position on, which may be before
    `history_start`. Fewer if the conversation is gone: whatever is decided then is not written.
    """
    reader = _BranchReader(branches, key, loaded)
    return await reader.read(loaded.status.tree, position, loaded.status.message_count)


class _BranchReader:
    """Reads messages of branches; those that are loaded already are not read again."""

    def __init__(
        self,
        branches: Branches,
        key: ConversationKey,
        loaded: LoadedConversation,
        most: int | None = None,
    ) -> None:
        self._branches = branches
        self._key = key
        self._loaded = loaded
        self._most = most
        self._size = 0

    async def read(self, tree: Tree, start: int, end: int) -> tuple[Message, ...]:
        """Return the messages of a branch between two positions.

        Fewer if the conversation is gone: whatever is decided then is not written.
        """
        found = list[Message]()
        while page := await self.read_page(tree, start + len(found), end):
            found += page
            if self._most is not None:
                self._size += sum(len(dump_message(message)) for message in page)
                _refuse_larger(self._size, self._most)
        return tuple(found)

    async def read_page(self, tree: Tree, start: int, end: int) -> Sequence[Message]:
        """Return some of the messages of a branch between two positions, the first ones."""
        loaded = self._loaded
        is_current = tree == loaded.status.tree
        if is_current and start >= loaded.start:
            return loaded.messages[start - loaded.start : end - loaded.start]
        limit = (min(end, loaded.start) if is_current else end) - start
        return await self._branches.read_branch(self._key, tree, start=start, limit=limit)


def _refuse_larger(size: int, most: int) -> None:
    if size > most:
        raise HistoryTooLarge(
            f"this branch of the conversation is larger than {most} bytes "
            "(history_bytes in PASSBACK_LIMITS): go on from a later message, "
            "or begin a new conversation",
            details={"limit": most},
        )


def refuse_within_turn(messages: Sequence[Message], /) -> None:
    """Raise `InvalidRequest` if the server's calls at the end of these messages are answered only
    after it.
    """
    if runnable_calls(messages):
        raise InvalidRequest(NOT_WHOLE)


def refuse_fork(status: Status, /) -> None:
    """Raise `Conflict` if a conversation may have no further fork."""
    if len(status.tree.forks) >= MOST_FORKS:
        raise Conflict(
            f"this conversation has jumped {MOST_FORKS} times between its branches: "
            "go on with the newest one, fork the conversation, or begin a new one"
        )


def refuse_growth(status: Status, left: Sequence[Message] = (), /) -> None:
    """Raise `Conflict` if the next message of the branch that is read needs a fork too many.

    `left`: messages that are stored before it, on another branch.
    """
    if left or status.tree.leaf != status.stored - 1:
        refuse_fork(status)


async def branch_points(
    ledger: Ledger, key: ConversationKey, status: Status, /
) -> Sequence[BranchPoint]:
    """Return where the branch that is read has other versions."""
    branchings = status.tree.branchings(status.stored)
    numbers = {number for each in branchings for number in (each.parent, *each.followers)}
    ids = await ledger.message_ids(key, sorted(numbers - {NO_MESSAGE}))
    return [
        BranchPoint(
            ids.get(each.parent),
            tuple(ids[number] for number in each.followers if number in ids),
            None if each.current is None else ids.get(each.current),
        )
        for each in branchings
    ]


class BranchSwitch:
    """Makes another branch of a conversation the one that is read.

    Args:
        ledger: has the conversations.
        loads: loads them.
        most: bytes of messages that a branch may have.
    """

    def __init__(self, ledger: Ledger, loads: ConversationLoader, most: int) -> None:
        self._ledger = ledger
        self._loads = loads
        self._most = most

    async def switch(
        self,
        key: ConversationKey,
        message_id: MessageId,
        status: Callable[[ConversationKey], Awaitable[Status]],
        /,
    ) -> None:
        """Switch to the newest leaf under a message. Raises as `Runs.switch`.

        `status`: looks after the conversation first.
        """
        if not message_id:
            raise UnknownMessage(NO_MESSAGE_HERE)

        async def attempt() -> Literal[True] | None:
            await status(key)
            async with self._loads.locked(key), self._loads.load_whole(key) as loaded:
                return await self._switch_loaded(key, message_id, loaded) or None

        await until_applied(attempt)

    async def _switch_loaded(
        self, key: ConversationKey, message_id: MessageId, loaded: LoadedConversation
    ) -> bool:
        """Return whether it is done. False: the conversation has changed meanwhile."""
        status = loaded.status
        if status.running or status.queued:
            raise ConversationBusy(BUSY, retry_after=1)
        number = await find_message(self._ledger, key, loaded, message_id)
        leaf = status.tree.newest_leaf(number, status.stored)
        if leaf == status.tree.leaf:
            return True
        change = await switch_change(self._ledger, key, loaded, leaf, most=self._most)
        if change.left:
            refuse_growth(status)
        return await self._ledger.park(change)


async def switch_change(
    branches: Branches,
    key: ConversationKey,
    loaded: LoadedConversation,
    leaf: int,
    /,
    *,
    most: int | None = None,
) -> Change:
    """Return the change by which the branch that ends with `leaf` is the one that is read.

    Calls that the client owes are closed on the branch that is left. Raises as `on_branch`.
    """
    status = loaded.status
    moved = await on_branch(branches, key, loaded, leaf, most=most)
    closed = close_open_calls(loaded.messages, partial(new_message_id, key), overdue=status.overdue)
    return Change(
        key,
        new_nonce(),
        status.version,
        receipts={name: Receipt(print_) for name, print_ in closed.receipts.items()},
        leaf=leaf,
        left=record_messages(key, closed.append, status.run_id),
        state=moved.status.state,
    )
