"""Promises of every store: one client at a time claims a call, until it expires or is answered."""

from dataclasses import replace

import anyio
import pytest
from tests.support.store_values import (
    LONG,
    answer,
    asking,
    begin_run,
    change,
    ending,
    new_key,
    new_nonce,
    user,
)

from passback.core.changes import CallClaim, ClaimRequest
from passback.core.messages import CallId, ConversationKey
from passback.core.transcript import owed_answers
from passback.engine.ledger import Ledger

pytestmark = pytest.mark.anyio

A, B = CallId("a"), CallId("b c%\u2028")
ASKED = asking(A, B)
TAB, OTHER = "a tab \u2028\ud800", "other " * 20


async def owing(store: Ledger) -> ConversationKey:
    """A conversation whose client owes A and B."""
    key = new_key()
    held = await begin_run(store, key, user("go"))
    end = replace(ending(held, 0, 2), append=(ASKED,), owed=owed_answers([ASKED]))
    await store.commit(end, lease=LONG)
    return key


async def hold(
    store: Ledger, key: ConversationKey, call: CallId = A, who: str = TAB, seconds: float = LONG
) -> CallClaim:
    status = await store.status(key)
    held = await store.claim_call(
        ClaimRequest(key, new_nonce(), status.version, call, who), seconds=seconds
    )
    assert held is not None
    return held


async def claims(store: Ledger, key: ConversationKey) -> list[str]:
    return [claim.call_id for claim in (await store.status(key)).claims]


async def test_a_claim_holds_for_its_time_and_is_shown_on_every_worker(
    store: Ledger, peer: Ledger
) -> None:
    key = await owing(store)
    first, second = await hold(store, key), await hold(store, key, B, OTHER, 60)
    assert (first.mine, second.mine) == (True, True)
    assert first.until - second.until > 1000 * (LONG - 120)
    assert second.left <= 60_000
    shown = (await peer.load(key)).status.claims
    assert [(claim.call_id, claim.until) for claim in shown] == [
        (A, first.until),
        (B, second.until),
    ]


@pytest.mark.promise("P15")
async def test_another_client_is_refused_and_nothing_changes(store: Ledger, peer: Ledger) -> None:
    key = await owing(store)
    first = await hold(store, key)
    before = await store.status(key)
    refused = await hold(peer, key, A, OTHER)
    assert (refused.mine, refused.until) == (False, first.until)
    assert refused.left > 0
    assert await store.status(key) == before


async def test_the_same_client_renews_its_claim(store: Ledger) -> None:
    key = await owing(store)
    first = await hold(store, key, seconds=60)
    again = await hold(store, key, seconds=600)
    assert again.until - first.until >= 540_000
    assert await claims(store, key) == [A]


async def test_a_claim_that_is_over_is_gone(store: Ledger) -> None:
    key = await owing(store)
    await hold(store, key, seconds=0.02)
    with anyio.fail_after(5):
        while not (await hold(store, key, A, OTHER)).mine:
            pass
    assert await claims(store, key) == [A]


async def test_a_claim_is_given_back_by_who_has_it(store: Ledger) -> None:
    key = await owing(store)
    await hold(store, key)
    assert not (await hold(store, key, A, OTHER, 0)).mine
    assert await claims(store, key) == [A]
    assert (await hold(store, key, A, TAB, 0)).mine
    assert await claims(store, key) == []
    assert (await hold(store, key, A, OTHER)).mine


@pytest.mark.parametrize("state", ["unknown", "changed", "running"])
async def test_a_claim_needs_the_version_that_it_was_judged_by(store: Ledger, state: str) -> None:
    key = new_key() if state == "unknown" else await owing(store)
    version = (await store.status(key)).version
    if state == "changed":
        version -= 1
    elif state == "running":
        await begin_run(store, key, answer(A))
        version += 1
    before = await store.status(key)
    assert (
        await store.claim_call(ClaimRequest(key, new_nonce(), version, A, TAB), seconds=9) is None
    )
    assert await store.status(key) == before


async def test_with_the_answer_the_claim_is_gone(store: Ledger) -> None:
    key = await owing(store)
    await hold(store, key, A)
    await hold(store, key, B)
    version = (await store.status(key)).version
    left = owed_answers([ASKED, answer(A)])
    assert await store.park(replace(change(key, version, answer(A)), owed=left))
    assert await claims(store, key) == [B]
    await begin_run(store, key, answer(B))
    assert await claims(store, key) == []


async def test_of_many_clients_one_gets_the_claim(store: Ledger, peer: Ledger) -> None:
    key = await owing(store)
    won: list[str] = []

    async def compete(here: Ledger, who: str) -> None:
        while True:
            status = await here.status(key)
            claim = ClaimRequest(key, new_nonce(), status.version, A, who)
            if held := await here.claim_call(claim, seconds=LONG):
                won.extend([who] if held.mine else [])
                return

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(compete, (store, peer)[number % 2], f"tab {number}")
    assert len(won) == 1


async def test_claims_go_with_the_conversation(store: Ledger) -> None:
    key = await owing(store)
    await hold(store, key)
    await store.delete(key)
    assert (await store.status(key)).claims == ()
