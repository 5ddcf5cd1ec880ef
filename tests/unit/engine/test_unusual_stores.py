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
    waiting,
)
from typing_extensions import override

from passback.core.changes import ClaimRequest
from passback.core.conversation.commands import Begin, ClaimCall, Park
from passback.core.conversation.head import Head
from passback.core.conversation.rules import CHANGED, Known
from passback.core.conversation.store import (
    Append,
    Appended,
    Applied,
    Found,
    LogPage,
    Query,
    QueryPage,
    Span,
    Wanted,
    Write,
)
from passback.core.conversation.table import decide
from passback.core.conversation.tree import Tree
from passback.core.conversation_settings import ConversationSettings
from passback.core.errors import StoreError, StoreUnavailable, UnknownConversation
from passback.core.events import Position
from passback.core.ids import ConversationTag
from passback.core.messages import CallId, ConversationKey, MessageId, RunId, UserMessage
from passback.core.transcript import owed_answers
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
    hints = False
    unreadable: ConversationKey | None = None
    broken: ConversationKey | None = None
    error: StoreError = StoreError("broken")
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
        page = await super().query(replace(query, index="all") if self.hints else query)
        listed = [
            replace(each, found=None) if each.key == self.unreadable else each
            for each in page.listed
        ]
        return replace(page, listed=tuple(listed * (2 if self.twice else 1)))

    @override
    async def read(self, key: ConversationKey | ConversationTag, wanted: Wanted, /) -> Found:
        if key == self.broken:
            raise self.error
        return await super().read(key, wanted)

    @override
    async def apply(self, write: Write, /) -> Applied | None:
        if write.enqueue is not None and self.overtaken:
            self.overtaken -= 1
            return None
        return await super().apply(write)


def test_a_change_that_was_judged_on_another_version_is_refused() -> None:
    key = new_key()
    known = Known(Found(version=5), Head())
    request = ClaimRequest(key, "n", 4, CallId("c"), "tab")
    begin = Begin(change(key, 4), RunId("run"), (), 1)
    for command in (Park(change(key, 4)), begin, ClaimCall(request, 1)):
        assert decide(known, command, 0) == CHANGED


def test_a_branch_has_no_message_behind_its_end() -> None:
    with pytest.raises(IndexError):
        Tree(1).number(2)


async def test_an_append_that_fails_alone_has_its_error() -> None:
    store = UnusualStore()
    async with Ledger(store) as ledger:
        held = await begin_run(ledger, new_key())
        store.fails = True
        [answer] = await ledger.append([texts(held, 2, "a")], lease=LONG)
        assert isinstance(answer, StoreError)


async def test_a_log_that_expires_while_it_is_read_ends_there() -> None:
    store = UnusualStore()
    async with Ledger(store) as ledger:
        held = await begin_run(ledger, new_key())
        for number in (2, 3):
            await ledger.append([texts(held, number, "a")], lease=LONG)
        store.expires = True
        assert [each.position.seq for each in await ledger.read_log(held.run)] == [1, 2]


async def test_only_so_many_readings_are_remembered_and_none_that_is_large() -> None:
    async with Ledger(MemoryStore(), remembered=1) as ledger:
        keys = [new_key(), new_key()]
        for key in keys:
            assert await ledger.park(change(key, 0, user("a")))
        versions = [(await ledger.status(key)).version for key in keys]
        for key, version in zip(keys, versions, strict=True):
            assert await ledger.park(change(key, version, user("b")))
        assert await ledger.configure(keys[0], ConversationSettings("x" * 40_000))
        version = (await ledger.status(keys[0])).version
        assert await ledger.park(change(keys[0], version, user("c")))


async def test_lists_end_after_so_many_and_leave_out_what_runs() -> None:
    call = asking("a")
    async with Ledger(MemoryStore(), scanned=1) as ledger:
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


async def test_a_move_ends_where_a_store_is_away_in_the_comparison() -> None:
    source = UnusualStore()
    async with source, MemoryStore() as target:
        key = new_key()
        assert await Ledger(source).park(change(key, 0, user("a")))
        source.error = StoreUnavailable("away")

        def report(phase: str, done: int, total: int) -> None:
            source.broken = key if phase == "copy" and done == total else source.broken

        with pytest.raises(StoreUnavailable):
            await move_conversations(source, target, report=report)


async def test_a_move_tells_what_it_could_not_read_and_counts_nothing_twice() -> None:
    source = UnusualStore()
    async with source, MemoryStore() as target:
        ledger, keys = Ledger(source), [new_key() for _ in range(3)]
        for key in keys:
            assert await ledger.park(change(key, 0, user("a")))
        source.twice, source.unreadable = True, keys[0]

        def report(phase: str, done: int, total: int) -> None:
            if phase == "copy" and done == total:
                source.broken = keys[1]

        moved = await move_conversations(source, target, report=report)
        assert moved.faults.keys() == {keys[0], keys[1]}
        assert not moved.is_whole
        assert (await target.read(keys[2], Wanted())).version


async def test_a_move_whose_waiting_posts_are_overtaken_begins_again() -> None:
    target = UnusualStore()
    async with MemoryStore() as source, target:
        ledger, key = Ledger(source), new_key()
        await begin_run(ledger, key, user("a"), lease=0)
        for text in ("b", "c"):
            assert await ledger.enqueue(waiting(key, text)) == "queued"
        target.overtaken = 1
        moved = await move_conversations(source, target)
        assert moved.is_whole
        assert len((await target.read(key, Wanted())).queue) == 2


async def test_a_hint_of_a_conversation_that_runs_is_not_in_the_inbox() -> None:
    store = UnusualStore()
    async with Ledger(store) as ledger:
        held = await begin_run(ledger, new_key(), user("a"))
        store.hints = True
        assert (await ledger.inbox(held.run.key.owner, limit=9)).owing == ()


async def test_a_message_is_found_by_its_id_and_not_by_its_text() -> None:
    async with Ledger(MemoryStore()) as ledger:
        key = new_key()
        assert await ledger.park(change(key, 0, user("a"), user('"m-a"')))
        assert await ledger.find_message(key, MessageId("m-a"), 2) == 0
        assert await ledger.find_message(key, MessageId("m-b"), 2) is None


async def test_a_message_is_found_in_a_record_that_is_read_in_several_pages() -> None:
    async with Ledger(MemoryStore()) as ledger:
        key, large = new_key(), "x" * 5_000_000
        messages = [UserMessage(MessageId(f"m-{number}"), large) for number in range(3)]
        assert await ledger.park(change(key, 0, *messages))
        assert len(await ledger.store.page(key, (Span(0, 3),), limit=3)) < len(messages)
        for number, message in enumerate(messages):
            assert await ledger.find_message(key, message.id, 3) == number
