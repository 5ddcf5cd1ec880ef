"""Promises of every store: what a protocol notes of a request stays with its run, as it was."""

import json
from dataclasses import replace

import pytest
from tests.support.store_values import (
    CANCELLED,
    LONG,
    begin_run,
    change,
    ending,
    fail_lost_run,
    new_key,
    new_run,
    opening,
    take_over_run,
    turn,
    user,
    waiting,
)

from passback.core.changes import Enqueue, Lease, QueuedPost
from passback.core.conversation.document import read_document
from passback.core.errors import UnknownRun
from passback.core.events import RunQueued
from passback.core.messages import ConversationId, ConversationKey, JsonObject, OwnerId, RunRef
from passback.core.posts import StartRun
from passback.engine.documents import export_conversation, read_import
from passback.engine.ledger import Ledger

pytestmark = pytest.mark.anyio

NOTE: JsonObject = {
    "response": {
        "nothing": None,
        "inside": {"nothing": None, "list": [None, {"nothing": None}, []], "object": {}},
        "flag": False,
        "text": "",
        "number": 0,
        "fraction": 0.5,
        "whole": 1.0,
        "signs": '你 \u2028 "\\ |',
    },
    "key": None,
}
OTHER = ConversationKey(OwnerId("another owner"), ConversationId("other id"))


async def begin_noted(store: Ledger, key: ConversationKey, *, lease: float = LONG) -> Lease:
    run_id, version = new_run(), (await store.status(key)).version
    noted = replace(change(key, version, user("a")), note=NOTE)
    held = await store.begin(noted, run_id, opening(run_id), lease=lease)
    assert held is not None
    return held


async def check_note(store: Ledger, run: RunRef, note: JsonObject | None = NOTE) -> None:
    """Equal also in what JSON tells apart and Python does not."""
    found = (await store.run_record(run)).note
    assert json.dumps(found, sort_keys=True) == json.dumps(note, sort_keys=True)


async def test_a_note_is_kept_while_its_run_goes_on_and_behind_it(store: Ledger) -> None:
    held = await begin_noted(store, new_key())
    await check_note(store, held.run)
    await store.commit(turn(held, 0, 2, say="one"), lease=LONG)
    await check_note(store, held.run)
    await store.commit(ending(held, 1, 2, say="two"), lease=LONG)
    await check_note(store, held.run)
    later = await begin_run(store, held.run.key, user("b"))
    await check_note(store, held.run)
    await check_note(store, later.run, None)


async def test_every_worker_reads_a_note(store: Ledger, peer: Ledger) -> None:
    held = await begin_noted(store, new_key())
    await check_note(peer, held.run)


async def test_a_note_is_kept_by_who_takes_a_run_over(store: Ledger) -> None:
    held = await begin_noted(store, new_key(), lease=0)
    await store.commit(turn(held, 0, 2, say="one"), lease=0)
    lease = await take_over_run(store, held.run.key, user("closed"))
    await check_note(store, held.run)
    await store.commit(ending(lease, 0, 2), lease=LONG)
    await check_note(store, held.run)


async def test_a_lost_run_keeps_its_note(store: Ledger) -> None:
    held = await begin_noted(store, new_key(), lease=0)
    await fail_lost_run(store, held.run.key, user("closed"))
    await check_note(store, held.run)


async def test_a_post_that_waits_has_its_note(store: Ledger) -> None:
    held = await begin_run(store, new_key(), user("a"))
    run_id = new_run()
    post = StartRun(held.run.key, (user("next"),), on_busy="enqueue", note=NOTE)
    queued = QueuedPost(run_id, post)
    assert await store.enqueue(Enqueue(queued, {}, (RunQueued(run_id),), 9)) == "queued"
    assert await store.enqueue(waiting(held.run.key)) == "queued"
    first, second = (await store.load(held.run.key)).queue
    assert json.dumps(first.post.note) == json.dumps(NOTE)
    assert second.post.note is None


async def test_a_run_that_never_began_has_no_note(store: Ledger) -> None:
    held = await begin_run(store, new_key(), user("a"))
    entry = waiting(held.run.key)
    await store.enqueue(entry)
    with pytest.raises(UnknownRun):
        await store.run_record(entry.run)
    assert await store.cancel(entry.run, CANCELLED)
    await check_note(store, entry.run, None)


async def test_a_note_moves_with_its_conversation(store: Ledger) -> None:
    held = await begin_noted(store, new_key())
    await store.commit(ending(held, 0, 2, say="one"), lease=LONG)
    pieces = [piece async for piece in await export_conversation(store.store, held.run.key)]
    text = b"".join(pieces)
    command = await read_import(OTHER, read_document(json.loads(text)), limit=2**30)
    assert await store.create(command)
    await check_note(store, RunRef(OTHER, held.run.run_id))
