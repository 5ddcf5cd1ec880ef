"""Promises of every store: the settings of a conversation hold until they are set anew."""

from dataclasses import replace

import pytest
from tests.support.store_values import (
    LONG,
    begin_run,
    change,
    ending,
    fail_lost_run,
    new_key,
    new_nonce,
    take_over_run,
    turn,
    unversioned,
    user,
)

from passback.core.changes import Change, Status
from passback.core.conversation_settings import (
    NO_SETTINGS,
    SETTINGS_BYTES,
    ConversationSettings,
)
from passback.core.messages import ConversationKey, OwnerId
from passback.engine.ledger import Ledger

pytestmark = pytest.mark.anyio

SETTINGS = ConversationSettings(
    "/files/ann/naïve 会話 🚀 'x' \\ \"",
    ("/one", "/two\u2028\n"),
    "openai:gpt-5",
    "plan",
    (("write_file", "allow"), ("run", "deny")),
    "high",
)
OTHER = ConversationSettings(mode="ask")
LARGE = ConversationSettings("/" + "x" * (SETTINGS_BYTES - 99))


async def create(
    store: Ledger, key: ConversationKey, settings: ConversationSettings | None = None
) -> Status:
    assert await store.park(Change(key, new_nonce(), 0, (user("hi"),), settings=settings))
    return await store.status(key)


@pytest.mark.promise("P15")
async def test_a_conversation_is_configured_again_and_again(store: Ledger, peer: Ledger) -> None:
    key, other = new_key(), new_key()
    before, beside = await create(store, key), await create(store, other)
    assert before.settings == NO_SETTINGS
    for settings in (SETTINGS, SETTINGS, LARGE, OTHER, NO_SETTINGS):
        assert await store.configure(key, settings)
        assert await unversioned(peer, key) == replace(before, version=0, settings=settings)
    status = await store.status(key)
    assert (status.created, status.updated) == (before.created, before.updated)
    assert await store.status(other) == beside


async def test_what_is_configured_does_not_disturb_a_run(store: Ledger, peer: Ledger) -> None:
    key = new_key()
    held = await begin_run(store, key, user("go"))
    assert await peer.configure(key, SETTINGS)
    await store.commit(turn(held, 0, 2, say="a"), lease=LONG)
    assert await peer.configure(key, OTHER)
    assert not await store.commit(ending(held, 1, 2), lease=LONG)
    assert (await store.status(key)).settings == OTHER


async def test_what_is_not_there_cannot_be_configured(store: Ledger) -> None:
    key = new_key()
    await create(store, key)
    assert not await store.configure(new_key(), SETTINGS)
    assert not await store.configure(replace(key, owner=OwnerId("bob")), SETTINGS)
    assert await store.delete(key)
    assert not await store.configure(key, SETTINGS)
    assert await store.status(key) == Status()
    # one that is created again under the same id has none of the old one's
    assert (await create(store, key)).settings == NO_SETTINGS


async def test_a_change_brings_settings_or_keeps_them(store: Ledger) -> None:
    key = new_key()
    assert (await create(store, key, SETTINGS)).settings == SETTINGS
    for given, kept in ((None, SETTINGS), (OTHER, OTHER), (NO_SETTINGS, NO_SETTINGS)):
        version = (await store.status(key)).version
        assert await store.park(replace(change(key, version), settings=given))
        assert (await store.status(key)).settings == kept


async def test_settings_stay_when_a_run_is_taken_over_or_lost(store: Ledger) -> None:
    key = new_key()
    await create(store, key, SETTINGS)
    await begin_run(store, key, user("go"), lease=0)
    await take_over_run(store, key, lease=0)
    await fail_lost_run(store, key)
    assert (await store.status(key)).settings == SETTINGS


async def test_a_list_has_the_settings_of_its_conversations(store: Ledger) -> None:
    key = new_key()
    await create(store, key, SETTINGS)
    [listed] = (await store.conversations(key.owner, limit=1)).conversations
    assert (listed.key, listed.status.settings) == (key, SETTINGS)
