"""The ledger over a store that answers in unusual ways: late, twice, or with errors."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.support.store_values import (
    LONG,
    asking,
    begin_run,
    change,
    ending,
    new_key,
    texts,
    user,
)
from typing_extensions import override

from passback.core.changes import ClaimRequest
from passback.core.conversation.commands import ClaimCall, Park
from passback.core.conversation.head import Head
from passback.core.conversation.rules import CHANGED, Known
from passback.core.conversation.store import (
    Append,
    Appended,
    Found,
    LogPage,
    Query,
    QueryPage,
    Wanted,
    Write,
)
from passback.core.conversation.table import decide
from passback.core.conversation.tree import Tree
from passback.core.errors import StoreError, UnknownConversation
from passback.core.events import Position
from passback.core.messages import CallId, ConversationKey, RunId
from passback.core.transcript import owed_answers
from passback.engine import records
from passback.engine.documents import export_conversation
from passback.engine.ledger import Ledger
from passback.engine.moving import move_conversations
from passback.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


class UnusualStore(MemoryStore):
    """Attributes say what happens: a failing append, a log that expires, lists with surprises."""

    fails = False
    expires = False
    twice = False
    unreadable: ConversationKey | None = None
    broken: ConversationKey | None = None
    overtaken = 0

    @override
    async def append(
        self, appends: Sequence[Append], /, *, lease: int
    ) -> Sequence[Appended | StoreError]:
        if self.fails:
            return [StoreError("damaged")] * len(appends)
        return await super().append(appends, lease=lease)

    @override
    async def log(
        self, key: ConversationKey, run_id: RunId | None, /, *, after: Position, limit: int
    ) -> LogPage | None:
        if self.expires and after.seq > 1:
            return None
        page = await super().log(key, run_id, after=after, limit=1)
        return page and replace(page, more=True)

    @override
    async def query(self, query: Query, /) -> QueryPage:
        page = await super().query(query)
        listed = [
            replace(each, found=None) if each.key == self.unreadable else each
            for each in page.listed
        ]
        return replace(page, listed=tuple(listed * (2 if self.twice else 1)))

    @override
    async def read(self, key: object, wanted: Wanted, /) -> Found:
        if key == self.broken and not wanted.whole:
            raise StoreError("broken")
        assert isinstance(key, ConversationKey)
        return await super().read(key, wanted)

    @override
    async def apply(self, write: Write, /):  # type: ignore[no-untyped-def]
        if write.enqueue is not None and self.overtaken:
            self.overtaken -= 1
            return None
        return await super().apply(write)


def test_a_change_that_was_judged_on_another_version_is_refused() -> None:
    key = new_key()
    known = Known(Found(version=5), Head())
    request = ClaimRequest(key, "n", 4, CallId("c"), "tab")
    for command in (Park(change(key, 4)), ClaimCall(request, 1)):
        assert decide(known, command, 0) == CHANGED


def test_a_branch_has_no_message_behind_its_end() -> None:
    with pytest.raises(IndexError):
        Tree(1).number(2)


async def test_an_append_that_fails_alone_has_its_error() -> None:
    async with UnusualStore() as store, Ledger(store) as ledger:
        held = await begin_run(ledger, new_key())
        store.fails = True
        [answer] = await ledger.append([texts(held, 2, "a")], lease=LONG)
        assert isinstance(answer, StoreError)


async def test_a_log_that_expires_while_it_is_read_ends_there() -> None:
    async with UnusualStore() as store, Ledger(store) as ledger:
        held = await begin_run(ledger, new_key())
        for number in (2, 3):
            await ledger.append([texts(held, number, "a")], lease=LONG)
        store.expires = True
        assert [each.position.seq for each in await ledger.read_log(held.run)] == [1, 2]


async def test_only_so_many_readings_are_remembered_and_none_that_is_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(records, "REMEMBERED", 1)
    async with MemoryStore() as store, Ledger(store) as ledger:
        keys = [new_key(), new_key()]
        for key in keys:
            assert await ledger.park(change(key, 0, user("a")))
        versions = [(await ledger.status(key)).version for key in keys]
        for key, version in zip(keys, versions, strict=True):
            assert await ledger.park(change(key, version, user("b")))
        monkeypatch.setattr(records, "REMEMBERED_BYTES", 0)
        version = (await ledger.status(keys[0])).version
        assert await ledger.park(change(keys[0], version, user("c")))


async def test_lists_end_after_so_many_and_leave_out_what_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(records, "SCAN_LIMIT", 1)
    call = asking("a")
    async with MemoryStore() as store, Ledger(store) as ledger:
        owing: list[ConversationKey] = []
        for _ in range(70):  # more than a page of the store
            held = await begin_run(ledger, new_key())
            end = replace(ending(held, 0, 2), append=(call,), owed=owed_answers([call]))
            await ledger.commit(end, lease=LONG)
            owing.append(held.run.key)
        owner = owing[0].owner
        inbox = await ledger.inbox(owner, limit=1000)
        assert inbox.next is not None
        page = await ledger.conversations(owner, limit=1000)
        assert page.next is not None
        rest = await ledger.conversations(owner, after=page.next, limit=1000)
        assert len(page.conversations) + len(rest.conversations) == 70


async def test_a_conversation_that_is_not_there_is_not_exported() -> None:
    async with MemoryStore() as store:
        with pytest.raises(UnknownConversation):
            await export_conversation(store, new_key())


async def test_a_move_tells_what_it_could_not_read_and_counts_nothing_twice() -> None:
    async with UnusualStore() as source, MemoryStore() as target:
        ledger, keys = Ledger(source), [new_key() for _ in range(3)]
        for key in keys:
            assert await ledger.park(change(key, 0, user("a")))
        source.twice, source.unreadable, source.broken = True, keys[0], keys[1]
        moved = await move_conversations(source, target)
        assert keys[0] in moved.faults
        assert not moved.is_whole
        assert (await target.read(keys[2], Wanted())).version
