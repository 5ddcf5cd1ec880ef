"""Fork a conversation: copy its messages into another one, in writes of a bounded size."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Literal

from passback.core.admission import close_open_calls
from passback.core.changes import Change, LoadedConversation, Status, dump_message
from passback.core.conversation.tree import Tree
from passback.core.errors import Conflict, UnknownConversation
from passback.core.ids import new_message_id, new_nonce
from passback.core.messages import ConversationKey, Message, MessageId
from passback.core.posts import Receipt, ReceiptName
from passback.core.state import State
from passback.core.values import value
from passback.engine.branching import (
    find_message,
    on_branch,
    refuse_within_turn,
)
from passback.engine.ledger import Ledger, until_applied
from passback.engine.loading import ConversationLoader
from passback.engine.log import record_messages

SLICE_BYTES: Final = 2**20  # of messages in one write, unless a message has more
_PAGE: Final = 256  # messages that are read at once

_COPIED = ReceiptName("copied")
"""The receipt of a copy that is whole."""

_EXISTS = "there is a conversation with this id already"


@value
class _Source:
    """Messages to copy, and what becomes of their copy.

    Attributes:
        key: the conversation.
        tree: its branch, up to the last message that is copied.
        closing: results of the calls that are open there.
        finish: the change that follows the last message, without its `expected` and `append`.
        fingerprint: equal for the same messages of the same conversation.
    """

    key: ConversationKey
    tree: Tree
    closing: tuple[Message, ...]
    finish: Change
    fingerprint: str


class Copier:
    """Copies conversations.

    Args:
        ledger: has the conversations.
        loads: loads them.
        most: bytes of messages that a branch may have, if it has to be loaded.
    """

    def __init__(self, ledger: Ledger, loads: ConversationLoader, most: int) -> None:
        self._ledger = ledger
        self._loads = loads
        self._most = most

    async def fork(
        self, key: ConversationKey, target: ConversationKey, after: MessageId | None, /
    ) -> None:
        """Copy a conversation up to a message. Raises as `Runs.fork`."""
        async with self._loads.load_whole(key) as loaded:
            source = await self._source_of(key, target, after, loaded)

        async def attempt() -> Literal[True] | None:
            return await self._copy(source, target) or None

        await until_applied(attempt)

    async def _source_of(
        self,
        key: ConversationKey,
        target: ConversationKey,
        after: MessageId | None,
        loaded: LoadedConversation,
    ) -> _Source:
        if not loaded.status.version:
            raise UnknownConversation("there is no such conversation")
        if key == target:
            raise Conflict(_EXISTS)
        leaf = loaded.status.tree.leaf
        if after is not None:
            leaf = await find_message(self._ledger, key, loaded, after)
        moved = loaded
        if leaf != loaded.status.tree.leaf:
            moved = await on_branch(self._ledger, key, loaded, leaf, most=self._most)
            refuse_within_turn(moved.messages)
        status = moved.status
        closing = record_messages(
            target,
            close_open_calls(moved.messages, partial(new_message_id, target)).append,
            loaded.status.run_id,
        )
        name = f"{key.id}|{leaf}|{len(closing)}"
        fingerprint = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
        finish = Change(
            target,
            "",
            0,
            receipts={_COPIED: Receipt(fingerprint)},
            tools=moved.tools or None,
            state=_copied_state(moved),
            title=status.title or None,
            named=status.named,
            settings=status.settings,
        )
        return _Source(key, status.tree, closing, finish, fingerprint)

    async def _copy(self, source: _Source, target: ConversationKey) -> bool:
        """Copy what is not there yet. False: somebody else has changed the target meanwhile.

        Raises:
            Conflict: it is another conversation.
        """
        there = await self._ledger.load(target, receipts=[_COPIED], within=0)
        if (copied := there.receipts.get(_COPIED)) is not None:
            if copied.fingerprint != source.fingerprint:
                raise Conflict(_EXISTS)
            return True
        position = await self._compare(source, target, there.status)
        version = there.status.version
        while position + len(found := await self._read_slice(source, position)) < len(source.tree):
            if not await self._ledger.park(Change(target, new_nonce(), version, found)):
                return False
            position += len(found)
            version = (await self._ledger.status(target)).version
        append = (*found, *source.closing)
        finish = replace(source.finish, nonce=new_nonce(), expected=version, append=append)
        return await self._ledger.park(finish)

    async def _read_slice(self, source: _Source, start: int) -> tuple[Message, ...]:
        """Return the messages of one write."""
        found, size = list[Message](), 0
        while start + len(found) < len(source.tree):
            for message in await self._read(source, start + len(found)):
                size += len(dump_message(message))
                if found and size > SLICE_BYTES:
                    return tuple(found)
                found.append(message)
        return tuple(found)

    async def _compare(self, source: _Source, target: ConversationKey, status: Status) -> int:
        """Return how many messages are copied. Raise `Conflict` if others are there."""
        if status.running or status.queued or status.message_count > len(source.tree):
            raise Conflict(_EXISTS)
        position = 0
        while position < status.message_count:
            theirs = await self._ledger.page(target, start=position, limit=_PAGE)
            ours = list[Message]()
            while len(ours) < len(theirs.messages):
                ours += await self._read(source, position + len(ours))
            if not theirs.messages or tuple(ours[: len(theirs.messages)]) != theirs.messages:
                raise Conflict(_EXISTS)
            position += len(theirs.messages)
        return position

    async def _read(self, source: _Source, start: int) -> Sequence[Message]:
        page = await self._ledger.read_branch(source.key, source.tree, start=start, limit=_PAGE)
        if not page:
            raise UnknownConversation("the conversation was deleted meanwhile")
        return page


def _copied_state(moved: LoadedConversation) -> State:
    """Return the state of a copy: nothing was spent for it, and permissions stay as they are."""
    state = moved.status.state
    return replace(
        state,
        cost=0.0,
        seconds=0.0,
        tokens=0,
        run=None,
        earlier_plan=None,
        earlier_shared=None,
        lasting=state.permissions(moved.messages) or state.lasting,
        title_call=None,
    )
