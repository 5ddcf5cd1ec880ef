"""Promises of every store: an owner's conversations, newest first, with titles that may change."""

import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

import anyio
import pytest
from tests.support.ledgers import open_ledger
from tests.support.store_values import (
    LONG,
    answer,
    asking,
    begin_run,
    change,
    ending,
    fail_lost_run,
    new_nonce,
    take_over_run,
    turn,
    unversioned,
    user,
    waiting,
)
from tests.support.waiting import moment

from passback.core.budgets import Spent
from passback.core.changes import (
    Change,
    ClaimRequest,
    ConversationPage,
    ConversationPlace,
    ListedConversation,
    Status,
    WrittenTitle,
)
from passback.core.messages import (
    AssistantMessage,
    CallId,
    ConversationId,
    ConversationKey,
    MessageId,
    OwnerId,
    ToolCall,
    Usage,
)
from passback.core.state import State, TitleCall
from passback.core.transcript import owed_answers
from passback.engine.ledger import Ledger
from passback.stores.options import StoreOptions

pytestmark = pytest.mark.anyio

ANN, BOB = OwnerId("ann"), OwnerId("bob \u2028\ud800")
EMPTY = ConversationPage()


def key_of(name: str, owner: OwnerId = ANN) -> ConversationKey:
    return ConversationKey(owner, ConversationId(name))


def named(key: ConversationKey, title: str | None = None) -> Change:
    return Change(key, new_nonce(), 0, (user("hi"),), title=title)


async def create(store: Ledger, *names: str, owner: OwnerId = ANN) -> None:
    """Create conversations whose titles are their names in capitals."""
    for name in names:
        assert await store.park(named(key_of(name, owner), name.upper()))


async def touch(store: Ledger, name: str) -> None:
    status = await store.status(key_of(name))
    assert await store.park(change(key_of(name), status.version, user("more")))


def names_of(page: ConversationPage) -> list[str]:
    return [each.key.id for each in page.conversations]


async def listed(store: Ledger, owner: OwnerId = ANN, search: str = "") -> list[str]:
    page = await store.conversations(owner, limit=1000, search=search)
    assert page.next is None
    return names_of(page)


async def pages(store: Ledger, limit: int, search: str = "") -> list[list[str]]:
    found: list[list[str]] = []
    after: ConversationPlace | None = None
    while True:
        page = await store.conversations(ANN, after=after, limit=limit, search=search)
        found.append(names_of(page))
        after = page.next
        if after is None:
            return found


async def later(store: Ledger, key: ConversationKey) -> Status:
    """Return the status when a millisecond has passed since the update, so that another shows."""
    status = await store.status(key)
    while time.time_ns() // 1_000_000 <= status.updated + 1:
        await anyio.lowlevel.checkpoint()
    return status


# ---------------------------------------------------------------- title and times
async def test_a_conversation_is_listed_as_it_is_stored(store: Ledger, peer: Ledger) -> None:
    before = time.time_ns() // 1_000_000
    await create(store, "one", "two")
    held = await begin_run(store, key_of("one"), user("go"))
    await store.append(
        [replace(turn(held, 0, 2).log, events=ending(held, 0, 2).log.events)], lease=LONG
    )

    page = await peer.conversations(ANN, limit=9)

    first, second = page.conversations
    assert page == ConversationPage(
        (
            ListedConversation(key_of("one"), first.place, await store.status(key_of("one"))),
            ListedConversation(key_of("two"), second.place, await store.status(key_of("two"))),
        )
    )
    assert first.place > second.place
    assert (first.status.title, first.status.run_id) == ("ONE", held.run.run_id)
    assert (first.status.running, str(first.status.logged)) == (True, "1-2")
    for status in (first.status, second.status):
        assert before - 1 <= status.created <= status.updated <= before + 60_000


async def test_only_what_a_client_changes_is_an_update(store: Ledger) -> None:
    key = key_of("one")

    async def is_updated(status: Status) -> bool:
        now = await store.status(key)
        assert now.created == status.created
        return now.updated > status.updated

    assert await store.park(change(key, 0, user("a")))
    before = await later(store, key)
    await touch(store, "one")
    assert await is_updated(before)
    before = await later(store, key)
    held = await begin_run(store, key, user("b"))
    assert await is_updated(before)
    before = await later(store, key)
    assert await store.enqueue(waiting(key, "c")) == "queued"
    assert await is_updated(before)

    before = await later(store, key)
    full = waiting(key, "d", limit=1)
    assert await store.enqueue(full) == "full"
    assert not await store.park(change(key, 1, user("refused")))
    await store.commit(turn(held, 0, 2, say="e"), lease=0)
    await store.rename(key, "f")
    taken = await take_over_run(store, key, user("g"), lease=0)
    await store.keep_followed(taken.run, seconds=9)
    await fail_lost_run(store, key)
    assert not await is_updated(before)


@pytest.mark.promise("P15")
async def test_a_change_that_is_sent_again_is_no_second_update(store: Ledger) -> None:
    first = named(key_of("one"), "title")
    assert await store.park(first)
    before = await later(store, key_of("one"))
    assert await store.park(first)
    assert (await store.status(key_of("one"))).updated == before.updated


async def test_a_title_is_set_once_by_changes_and_kept_by_those_without(store: Ledger) -> None:
    key = key_of("one")
    assert await store.park(named(key))
    assert (await store.status(key)).title == ""
    for given, title in ((None, ""), ("", ""), ("first", "first"), ("late", "first")):
        status = await store.status(key)
        assert await store.park(replace(change(key, status.version), title=given))
        assert (await store.status(key)).title == title
    await begin_run(store, key, user("go"))
    assert (await store.status(key)).title == "first"


# ---------------------------------------------------------------- rename
@pytest.mark.promise("P15")
async def test_a_conversation_is_renamed_again_and_again(store: Ledger) -> None:
    await create(store, "one", "two")
    before = await unversioned(store, key_of("one"))
    for title in ("naïve 会話 🚀 'x' \\ \"", "naïve 会話 🚀 'x' \\ \"", "x" * 200):
        assert await store.rename(key_of("one"), title)
        assert await unversioned(store, key_of("one")) == replace(before, title=title, named=True)
    assert await listed(store) == ["two", "one"]
    assert await listed(store, search="x" * 200) == ["one"]


async def test_a_rename_does_not_disturb_a_run(store: Ledger, peer: Ledger) -> None:
    held = await begin_run(store, key_of("one"), user("go"))
    assert await peer.rename(key_of("one"), "during")
    await store.commit(turn(held, 0, 2, say="a"), lease=LONG)
    assert await peer.rename(key_of("one"), "later")
    assert not await store.commit(ending(held, 1, 2), lease=LONG)
    assert (await store.status(key_of("one"))).title == "later"


async def test_what_is_not_there_cannot_be_renamed(store: Ledger) -> None:
    await create(store, "one")
    assert not await store.rename(key_of("two"), "title")
    assert not await store.rename(key_of("one", BOB), "title")
    await store.delete(key_of("one"))
    assert not await store.rename(key_of("one"), "title")
    assert await store.status(key_of("one")) == Status()
    assert await store.park(named(key_of("one")))
    assert (await store.status(key_of("one"))).title == ""


# ---------------------------------------------------------------- titles that a model writes
CALL = TitleCall(Usage(40, 5, 10), Spent(45, 0.25, 1.5))


async def written(store: Ledger, name: str, title: str, call: TitleCall = CALL) -> WrittenTitle:
    """Return what came of a model call for a title of a conversation that is there."""
    created = (await store.status(key_of(name))).created
    return WrittenTitle(key_of(name), created, title, call)


@pytest.mark.promise("P15")
async def test_the_title_of_a_model_replaces_that_of_the_first_message_once(store: Ledger) -> None:
    await create(store, "one", "two")
    before = await unversioned(store, key_of("one"))
    title = "naïve 会話 🚀 'x' \\ \""
    first = await written(store, "one", title)
    stored = replace(before, title=title, state=replace(before.state, title_call=CALL))
    other = await written(store, "one", "second", TitleCall(Usage(1), Spent(1)))
    for each in (first, first, other):
        assert await store.write_title(each)
        assert await unversioned(store, key_of("one")) == stored
    assert await listed(store) == ["two", "one"]
    assert await listed(store, search="会話") == ["one"]
    assert await store.rename(key_of("one"), "mine")
    assert await store.write_title(first)
    assert await unversioned(store, key_of("one")) == replace(stored, title="mine", named=True)


@pytest.mark.parametrize("way", ["created", "renamed", "renamed alike"])
async def test_a_title_that_a_client_gave_stays(store: Ledger, peer: Ledger, way: str) -> None:
    key = key_of("one")
    assert await store.park(replace(named(key, "first"), named=way == "created"))
    if way != "created":
        assert await peer.rename(key, "mine" if way == "renamed" else "first")
    assert await store.park(replace(change(key, (await store.status(key)).version), title="x"))
    before = await unversioned(store, key)
    assert before.named
    assert await peer.write_title(await written(store, "one", "a model's"))
    after = await unversioned(store, key)
    assert after == replace(before, state=replace(before.state, title_call=CALL))


async def test_a_client_names_only_what_it_gives_a_title(store: Ledger) -> None:
    key = key_of("one")
    assert await store.park(replace(named(key), named=True))
    assert not (await store.status(key)).named
    version = (await store.status(key)).version
    assert await store.park(replace(change(key, version), title="first"))
    version = (await store.status(key)).version
    assert await store.park(replace(change(key, version), title="late", named=True))
    status = await store.status(key)
    assert (status.title, status.named) == ("first", False)


async def test_a_call_for_a_title_that_failed_leaves_the_title(store: Ledger) -> None:
    await create(store, "one")
    assert await store.write_title(await written(store, "one", ""))
    assert await store.write_title(await written(store, "one", "late"))
    status = await store.status(key_of("one"))
    assert (status.title, status.state.title_call) == ("ONE", CALL)


async def test_what_a_title_has_cost_stays_when_a_run_writes_its_state(
    store: Ledger, peer: Ledger
) -> None:
    held = await begin_run(store, key_of("one"), user("go"))
    assert await peer.write_title(await written(store, "one", "during"))
    mine = State(cost=0.5, tokens=7)
    await store.commit(replace(turn(held, 0, 2, say="a"), state=mine), lease=LONG)
    status = await store.status(key_of("one"))
    assert (status.title, status.state) == ("during", replace(mine, title_call=CALL))
    mine = replace(status.state, tokens=8)
    await store.commit(replace(ending(held, 1, 2), state=mine), lease=LONG)
    assert (await peer.status(key_of("one"))).state == mine


async def test_a_conversation_that_was_created_again_gets_no_title_of_the_one_before(
    store: Ledger,
) -> None:
    key = key_of("one")
    assert await store.park(named(key, "secret"))
    before = await later(store, key)
    assert not await store.write_title(WrittenTitle(key_of("two"), before.created, "x", CALL))
    assert not await store.write_title(WrittenTitle(key_of("one", BOB), before.created, "x", CALL))
    await store.delete(key)
    assert not await store.write_title(WrittenTitle(key, before.created, "x", CALL))
    assert await store.status(key) == Status()
    assert await store.park(named(key, "anew"))
    again = await store.status(key)
    assert not await store.write_title(WrittenTitle(key, before.created, "x", CALL))
    assert await store.status(key) == again


# ---------------------------------------------------------------- which are listed
@pytest.mark.promise("P13")
async def test_an_owner_finds_no_conversations_of_another_owner(store: Ledger) -> None:
    """Their names may begin alike."""
    owners = [ANN, OwnerId("ann\x01"), OwnerId("ann:b"), OwnerId("an"), OwnerId(""), BOB]
    names = ["one", "n\0two", "x" * 10_000, "naïve 会話 \u2028\r\n\ud800"]
    for number, owner in enumerate(owners):
        for name in names:
            assert await store.park(named(key_of(name, owner), f"of {number}"))
    for number, owner in enumerate(owners):
        assert await listed(store, owner) == [*reversed(names)]
        assert await listed(store, owner, search=f"OF {number}") == [*reversed(names)]
        assert await listed(store, owner, search=f"of {number + 1}") == []
    assert await store.conversations(OwnerId("ann\x01b"), limit=9) == EMPTY


async def test_one_that_is_deleted_is_not_there_until_it_is_made_again(store: Ledger) -> None:
    await create(store, "one", "two", "three")
    await begin_run(store, key_of("one"), user("go"))
    for name in ("one", "two"):
        assert await store.delete(key_of(name))
    assert await listed(store) == ["three"]
    await create(store, "two")
    assert await listed(store) == ["two", "three"]


@pytest.fixture
async def brief(store_url: str) -> AsyncGenerator[Ledger]:
    """A store that keeps an idle conversation for a few milliseconds."""
    async with open_ledger(store_url, options=StoreOptions(ttl=0.005)) as opened:
        yield opened


async def test_one_that_has_expired_is_not_there(store: Ledger, brief: Ledger) -> None:
    await create(brief, "gone")
    await begin_run(brief, key_of("runs"), user("go"))
    with anyio.fail_after(5):
        while (await brief.status(key_of("gone"))).version:
            await moment()
    assert await listed(brief) == ["runs"]
    assert await listed(brief, search="gone") == []
    await create(brief, "new")
    assert "gone" not in await listed(brief)


async def test_each_state_is_listed(store: Ledger) -> None:
    key = key_of("owes")
    call = asking("a", "b")
    held = await begin_run(store, key, user("go"))
    end = replace(ending(held, 0, 2), append=(call,), owed=owed_answers([call]))
    await store.commit(end, lease=LONG)
    claim = ClaimRequest(key, new_nonce(), (await store.status(key)).version, CallId("a"), "tab")
    assert await store.claim_call(claim, seconds=LONG)
    lapsed = await begin_run(store, key_of("lapsed"), user("go"), lease=0)
    page = await store.conversations(ANN, limit=9)
    states = {
        each.key.id: (each.status.lapsed, len(each.status.owed), each.status.run_id)
        for each in page.conversations
    }
    assert states == {"owes": (False, 2, held.run.run_id), "lapsed": (True, 0, lapsed.run.run_id)}
    await begin_run(store, key, answer("a"), answer("b"))
    assert await listed(store) == ["owes", "lapsed"]


# ---------------------------------------------------------------- search
@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("", ["sharp", "plans", "blue", "none"]),
        ("PLAN", ["plans"]),
        ("the  ", ["plans", "blue"]),
        ("strasse", ["sharp"]),
        ("STRAẞE", ["sharp"]),
        ("e b", ["blue"]),
        ("%", ["sharp"]),
        ("_", []),
        ("*", []),
        ("no such", []),
        ("\ud800", []),
    ],
)
async def test_titles_are_searched_whatever_their_case(
    store: Ledger, search: str, found: list[str]
) -> None:
    titles = {
        "none": None,
        "blue": "The blue page",
        "plans": "Plans for the weekend",
        "sharp": "100 % Straße",
    }
    for name, title in titles.items():
        assert await store.park(named(key_of(name), title))
    assert await listed(store, search=search) == found


# ---------------------------------------------------------------- pages
NAMES: Sequence[str] = "abcdefg"


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8])
@pytest.mark.parametrize("search", ["", "m"])
async def test_pages_are_full_and_the_last_one_is_known(
    store: Ledger, limit: int, search: str
) -> None:
    for name in NAMES:
        assert await store.park(named(key_of(name), "match"))
        assert await store.park(named(key_of(f"other {name}"), "no"))
        if not search:
            assert await store.delete(key_of(f"other {name}"))
    found = await pages(store, limit, search)
    assert [name for page in found for name in page] == [*reversed(NAMES)]
    assert [len(page) for page in found[:-1]] == [limit] * (len(found) - 1)
    assert found[-1]


async def test_a_thousand_conversations_are_in_pages_once_each(store: Ledger) -> None:
    names = [f"n{number}" for number in range(1000)]
    with anyio.fail_after(60):
        for start in range(0, 1000, 100):
            async with anyio.create_task_group() as tasks:
                for name in names[start : start + 100]:
                    tasks.start_soon(create, store, name)
    found = await pages(store, 30)
    assert [len(page) for page in found] == [30] * 33 + [10]
    assert sorted(name for page in found for name in page) == sorted(names)
    places = [each.place for each in (await store.conversations(ANN, limit=1000)).conversations]
    assert places == sorted(places, reverse=True)
    # a search looks at so many titles for one page, and goes on at the next
    found = await pages(store, 30, "N77")
    assert sorted(name for page in found for name in page) == [
        "n77",
        *(f"n77{n}" for n in range(10)),
    ]


async def test_pages_go_on_while_conversations_change(store: Ledger) -> None:
    """None that stays as it is is left out or shown twice."""
    await create(store, *NAMES)
    page = await store.conversations(ANN, limit=3)
    assert names_of(page) == ["g", "f", "e"]
    await store.delete(key_of("e"))  # the place itself
    await touch(store, "g")
    await touch(store, "c")  # it moves to the front, behind this reader
    await create(store, "new")
    await store.rename(key_of("b"), "renamed")

    rest = await store.conversations(ANN, after=page.next, limit=1000)

    assert (names_of(rest), rest.next) == (["d", "b", "a"], None)
    assert await listed(store) == ["new", "c", "g", "f", "d", "b", "a"]


async def test_a_place_that_was_never_given_out_is_a_position_too(store: Ledger) -> None:
    await create(store, "a")
    [one] = (await store.conversations(ANN, limit=9)).conversations
    updated, tag = one.place
    for place, found in (
        (ConversationPlace(0, "f" * 32), ()),
        (ConversationPlace(updated, tag), ()),
        (ConversationPlace(updated, "0" * 32), ()),
        (ConversationPlace(updated, "g"), (one,)),
        (ConversationPlace(updated + 1, ""), (one,)),
        (ConversationPlace(10**16 - 1, "f"), (one,)),
    ):
        assert (await store.conversations(ANN, after=place, limit=9)).conversations == found


async def test_large_arguments_make_small_pages(store: Ledger) -> None:
    big = "x" * 3 * 2**20
    for name in ("a", "b", "c"):
        call = ToolCall(CallId(name), "tool", big, client=True)
        said = AssistantMessage(MessageId("m"), "", (call,))
        held = await begin_run(store, key_of(name), user("go"))
        end = replace(ending(held, 0, 2), append=(said,), owed=owed_answers([said]))
        await store.commit(end, lease=LONG)
    assert await pages(store, 1000) == [["c", "b"], ["a"]]
