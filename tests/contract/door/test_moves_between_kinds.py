"""Moves from memory to a store of each kind and back, and the documents of what was moved."""

import json
from math import inf
from typing import Any

import pytest
from tests.unit.core.test_importing import FULL
from tests.unit.engine.test_moving import make_large, make_running, make_small, records_of

from passback.core.conversation.document import read_document
from passback.core.conversation.store import Store, Wanted
from passback.core.messages import ConversationId, ConversationKey, OwnerId
from passback.engine.documents import export_conversation, read_import
from passback.engine.ledger import Ledger
from passback.engine.moving import hash_conversation, move_conversations
from passback.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio

ALL = Wanted(queue=True, within=inf, whole=True)


async def document_of(store: Store, key: ConversationKey) -> str:
    """The text of a document, without the times."""
    pieces = [piece async for piece in await export_conversation(store, key)]
    document: dict[str, Any] = json.loads(b"".join(pieces))
    del document["created"], document["updated"]
    return json.dumps(document)


async def test_a_move_there_and_back_changes_nothing(door: Store) -> None:
    async with MemoryStore() as first, MemoryStore() as last:
        odd = ConversationKey(OwnerId("a\0b \ud800"), ConversationId("naïve 会話"))
        keys = [
            await make_large(first),
            await make_small(first, "small"),
            await make_running(first, "lost", lasts=0),
            await make_small(first, odd.id, odd.owner),
        ]
        there = await move_conversations(first, door)
        assert (there.copied, there.is_whole, there.target) == (4, True, 4)
        back = await move_conversations(door, last)
        assert (back.copied, back.is_whole) == (4, True)
        for key in keys:
            found = records_of(await first.read(key, ALL))
            assert records_of(await door.read(key, ALL)) == found
            assert records_of(await last.read(key, ALL)) == found
            assert await hash_conversation(door, key) == await hash_conversation(first, key)
        again = await move_conversations(first, door)
        assert (again.copied, again.there, again.is_whole) == (0, 4, True)


async def test_a_conversation_gives_the_same_document_on_every_kind(door: Store) -> None:
    key = ConversationKey(OwnerId("ann"), ConversationId("c"))
    async with MemoryStore() as memory:
        for store in (memory, door):
            command = await read_import(key, read_document(FULL), limit=2**30)
            assert await Ledger(store).create(command)
        assert await document_of(door, key) == await document_of(memory, key)
        page = await Ledger(door).conversations(key.owner, limit=9)
        assert [each.status.title for each in page.conversations] == ["The blue page"]
        inbox = await Ledger(door).inbox(key.owner, limit=9)
        assert [each.key for each in inbox.owing] == [key]
