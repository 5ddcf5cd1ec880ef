"""Rows of PostgreSQL that are damaged or missing: others are listed, and nothing is shifted."""

from dataclasses import replace
from typing import Literal

import pytest
from tests.contract.door.writes import (
    LONG,
    a_write,
    all_pages,
    applied,
    made,
    new_owner,
    tag_of,
    whole,
)
from tests.support.postgres_server import PostgresServer

from passback.core.conversation.store import Due, Query, Span
from passback.core.errors import StoreError
from passback.core.messages import ConversationKey
from passback.stores.postgres import PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

INDEXES: tuple[Literal["all", "owing", "stored"], ...] = ("all", "owing", "stored")


@pytest.mark.parametrize("name", [r"\xff", r"\x6666"])
async def test_a_damaged_name_does_not_hold_up_lists(
    store: PostgresStore, shared_postgres: PostgresServer, database: str, name: str
) -> None:
    owner = new_owner()
    keys = [await made(store, owner=owner) for _ in range(3)]
    for key in keys:
        await applied(store, replace(a_write(key), due=Due(after=0), owes=True))
    shared_postgres.run(
        f"UPDATE pb.conversations SET key[2] = '{name}' WHERE tag = '{tag_of(keys[1])}'",
        "SELECT 1",
        database=database,
    )
    for index in INDEXES:
        pages = await all_pages(store, Query(owner, index, limit=1))
        assert {each.key for page in pages for each in page.listed} == {keys[0], keys[2]}
        assert [tag for page in pages for tag in page.unnamed] == [tag_of(keys[1])]
    due = await store.due(9, milliseconds=LONG)
    assert {keys[0], keys[2]} <= set(due)


@pytest.mark.parametrize("number", range(3))
async def test_a_missing_message_shifts_no_others(
    store: PostgresStore, shared_postgres: PostgresServer, database: str, number: int
) -> None:
    messages = (b"zero", b"one", b"two", b"three")
    keys = [await made(store, *messages) for _ in range(2)]
    shared_postgres.run(
        f"DELETE FROM pb.messages WHERE tag = '{tag_of(keys[0])}' AND number = {number}",
        "SELECT 1",
        database=database,
    )

    async def read_all(key: ConversationKey) -> list[bytes]:
        found: list[bytes] = []
        while records := await store.page(key, (Span(len(found), 4),), limit=3):
            found += records
        return found

    with pytest.raises(StoreError, match="messages of the conversation are missing"):
        await read_all(keys[0])
    with pytest.raises(StoreError):
        await whole(store, keys[0])
    assert await read_all(keys[1]) == [*messages]
    spans = (Span(2), Span(0, 1))
    assert await store.page(keys[1], spans, limit=9) == [b"two", b"three", b"zero"]
