"""A damaged conversation fails alone: its callers get an error, those of others what they ask."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import anyio
import pytest
from tests.contract.door.writes import (
    ALL,
    LONG,
    OVER,
    a_write,
    all_pages,
    applied,
    due_keys,
    entry,
    log_of,
    new_owner,
    running,
    tag_of,
    whole,
)

from passback.core.conversation.store import (
    Append,
    Appended,
    Guard,
    LogChange,
    Query,
    Store,
    Wanted,
)
from passback.core.errors import StoreError
from passback.core.ids import ConversationTag
from passback.core.messages import ConversationKey, OwnerId, RunId

pytestmark = pytest.mark.anyio

Damage = Callable[[ConversationKey], None]
Runs = list[tuple[ConversationKey, RunId]]


async def three(store: Store, damage: Damage, milliseconds: int = LONG) -> Runs:
    """Make three conversations of one owner, and damage the second."""
    owner = new_owner()
    runs = [await running(store, milliseconds=milliseconds, owner=owner) for _ in range(3)]
    for key, _ in runs:
        await applied(store, replace(a_write(key), owes=True, messages=(b"one",)))
    damage(runs[1][0])
    return runs


async def test_an_append_has_the_error_of_the_damaged_one_as_its_answer(
    door: Store, damage: Damage
) -> None:
    runs = await three(door, damage)
    for given in (entry(1, 2), None):
        appends = [Append(key, run_id, "one", given) for key, run_id in runs]
        first, second, third = await door.append(appends, lease=LONG)
        assert type(second) is StoreError
        for answer in (first, third):
            assert isinstance(answer, Appended)
            assert answer.held
    for key, run_id in (runs[0], runs[2]):
        assert await log_of(door, key, run_id) == [entry(1, 1), entry(1, 2)]


Call = Callable[[Store, ConversationKey, RunId], Awaitable[object]]
CALLS: dict[str, Call] = {
    "read": lambda store, key, _: whole(store, key),
    "read by tag": lambda store, key, _: store.read(ConversationTag(tag_of(key)), Wanted()),
    "write": lambda store, key, _: store.apply(replace(a_write(key), head=b"head")),
    "write under a fence": lambda store, key, run_id: store.apply(
        replace(a_write(key, Guard(fence="one")), log=LogChange(run_id, entry(1, 2)))
    ),
}


@pytest.mark.parametrize("call", CALLS)
async def test_who_asks_for_the_damaged_one_gets_an_error_and_others_do_not(
    door: Store, damage: Damage, call: str
) -> None:
    answers: dict[ConversationKey, object] = {}

    async def ask(key: ConversationKey, run_id: RunId) -> None:
        try:
            answers[key] = await CALLS[call](door, key, run_id)
        except StoreError as error:
            answers[key] = error

    runs = await three(door, damage)
    async with anyio.create_task_group() as tasks:
        for run in runs:
            tasks.start_soon(ask, *run)
    assert type(answers[runs[1][0]]) is StoreError
    for key in (runs[0][0], runs[2][0]):
        assert answers[key] is not None
        assert not isinstance(answers[key], StoreError)


async def test_lists_have_the_others(door: Store, damage: Damage) -> None:
    runs = await three(door, damage)
    keys = [key for key, _ in runs]
    for query in (Query(keys[0].owner, "owing"), Query(keys[0].owner, "all", limit=1)):
        listed = [each for page in await all_pages(door, query) for each in page.listed]
        found = {each.key: each.found for each in listed}
        assert found.get(keys[1]) is None
        for key in (keys[0], keys[2]):
            assert found[key] == replace(await whole(door, key, ALL), messages=None)


async def test_what_is_due_of_others_is_found(door: Store, damage: Damage) -> None:
    runs = await three(door, damage, milliseconds=OVER)
    assert {runs[0][0], runs[2][0]} <= await due_keys(door)


async def test_the_list_of_all_has_the_others(door: Store, damage: Damage) -> None:
    runs = await three(door, damage)
    query = Query(OwnerId(""), "stored", limit=1)
    pages = await all_pages(door, query)
    found = {each.key: each.found for page in pages for each in page.listed}
    assert found.get(runs[1][0]) is None
    unnamed = {tag for page in pages for tag in page.unnamed}
    # a store says at least its tag
    assert (runs[1][0] in found) != (tag_of(runs[1][0]) in unnamed)
    for key in (runs[0][0], runs[2][0]):
        assert tag_of(key) not in unnamed
        assert found[key] == await door.read(key, Wanted())
