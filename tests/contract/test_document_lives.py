"""Random conversations as documents: an import gives what was exported, whatever has happened.

The environment variable DOCUMENT_MOVES says how many moves there are at least.
"""

import json
import os
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contract.conversation_steps import STEPS, ConversationStep, end, message
from tests.contract.random_conversation import conversation
from tests.contract.random_operations import Pick
from tests.support.lanes import rounds
from tests.support.ledgers import open_ledger
from tests.support.transcript_rules import faults_of

from passback.core.changes import load_message
from passback.core.conversation.document import read_document
from passback.core.conversation.store import Span, Wanted
from passback.core.messages import ConversationId, ConversationKey, Message, OwnerId
from passback.core.transcript import owed_answers
from passback.engine.documents import export_conversation, read_import
from passback.engine.ledger import Ledger

pytestmark = pytest.mark.anyio

COUNT = int(os.environ.get("DOCUMENT_MOVES") or rounds(400, nightly=10_000))
MIN_STEPS = 15  # of one conversation, at least
OTHER = ConversationKey(OwnerId("another owner"), ConversationId("other id"))
TIMES = ("created", "updated")


async def exported(store: Ledger, key: ConversationKey) -> bytes:
    pieces = [piece async for piece in await export_conversation(store.store, key)]
    return b"".join(pieces)


async def imported(text: bytes) -> tuple[bytes, Sequence[Message]]:
    """Import a document into an empty store; return its document there, and its branch."""
    async with open_ledger("memory:") as store:
        command = await read_import(OTHER, read_document(json.loads(text)), limit=2**30)
        assert await store.create(command)
        assert not await store.create(command)
        page = await store.page(OTHER, start=0, limit=10_000)
        status = await store.status(OTHER)
        assert status.owed == owed_answers(page.messages)
        assert not status.running
        found = await store.store.read(OTHER, Wanted())
        records = await store.store.page(OTHER, (Span(0),), limit=10_000)
        assert found.message_count == len(list(map(load_message, records)))
        loaded = await store.load(OTHER)
        assert loaded.messages == page.messages[status.state.history_start :]
        return await exported(store, OTHER), page.messages


def comparable(text: bytes) -> str:
    """A document as text in the same order, without its id and times."""
    document = json.loads(text)
    kept = {name: each for name, each in document.items() if name not in ("id", *TIMES)}
    return json.dumps(kept)


async def check_document(store: Ledger, key: ConversationKey) -> bool:
    """Return whether an import was the identity."""
    if not (await store.status(key)).version:
        return True  # no post has come through yet
    first = await exported(store, key)
    second, messages = await imported(first)
    third, _ = await imported(second)
    assert comparable(third) == comparable(second)
    assert faults_of(messages, running=False) == []
    if comparable(second) == comparable(first):
        return True
    # only a run that went on, or calls that a server would make, are closed
    before, after = json.loads(first), json.loads(second)
    added = after["messages"][len(before["messages"]) :]
    assert after["messages"][: len(before["messages"])] == before["messages"]
    assert all(each["synthetic"] == "interrupted" for each in added)
    assert added or before.get("running")
    assert after.get("receipts") == before.get("receipts")
    return False


@pytest.mark.timeout(300 + COUNT / 5)
@given(
    moves=st.lists(
        st.tuples(st.sampled_from(STEPS), st.integers(0, 10**9)),
        min_size=MIN_STEPS,
        max_size=2 * MIN_STEPS,
    )
)
@settings(
    max_examples=-(-COUNT // MIN_STEPS), deadline=None, suppress_health_check=list(HealthCheck)
)
@pytest.mark.promise("P5", "P8", "P9", "P13")
async def test_an_import_gives_what_was_exported(
    moves: list[tuple[ConversationStep, int]],
) -> None:
    async with open_ledger("memory:") as store, conversation(store) as one:
        for move, number in [(message, 0), *moves]:
            await move(one, Pick(number))
            await one.settle()
            await check_document(store, one.key)
        await end(one)
        await check_document(store, one.key)
