"""The state that tools share with clients outlives cuts, workers and stores."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.e2e.workers import LEASE, SECONDS, Worker, broken_off, held
from tests.support.commands import passback
from tests.support.gates import gate
from tests.support.model_server import ModelServer, Reply, calls, says
from tests.support.server import running_server
from tests.support.wire import Client, Frame, client_of, user, without_void

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
STATES = ["rewind", "run", "state"]
BOUGHT = ["tea", "milk"]
"""What each message to the agent of `shared_state.py` puts into the cart."""


@pytest.fixture(scope="module")
def flags(store: str, model: ModelServer) -> Sequence[str]:
    """Flags of a worker whose tools write the state."""
    lease = ("--store", store, "--timing", f"lease={LEASE}")
    model_flags = ("--model", "openai:mock", "--model-base-url", model.base_url)
    return ("tests.support.served_agents:sharing", *lease, *model_flags)


def adds(item: str) -> Reply:
    return calls(("call_0", "add_to_cart", json.dumps({"item": item})))


def told(frames: Sequence[Frame]) -> list[dict[str, Any]]:
    """Return the values of each event of the state."""
    return [frame.event["values"] for frame in frames if frame.type == "state"]


async def cart_of(client: Client, conversation: str) -> object:
    return (await client.conversation(conversation))["state"].get("cart")


# ---------------------------------------------------------------- cuts
async def test_a_client_that_was_cut_off_gets_each_change_once(
    model: ModelServer, survivor: Client, conversation: str
) -> None:
    more = anyio.Event()
    model.play(adds("tea"), held("It is ", more, "there."))
    with anyio.fail_after(SECONDS):
        async with survivor.stream(conversation, [user("tea")], include=STATES) as stream:
            changed = await stream.until("state")
            before = stream.so_far.frames[-2]
        assert await cart_of(survivor, conversation) == ["tea"]
        more.set()
        async with survivor.follow(conversation, after=changed.id, include=STATES) as stream:
            assert told((await stream.whole()).frames) == []
        async with survivor.follow(conversation, after=before.id, include=STATES) as stream:
            assert told((await stream.whole()).frames) == [{"cart": ["tea"]}]
    assert await cart_of(survivor, conversation) == ["tea"]


# ---------------------------------------------------------------- take-overs
@pytest.mark.promise("P10")
async def test_what_a_tool_wrote_before_its_worker_died_is_kept(
    model: ModelServer, victim: Worker, survivor: Client, conversation: str
) -> None:
    model.play(adds("tea"), broken_off("void "), adds("milk"), says("done"))
    async with (
        victim.client.stream(conversation, [user("buy")], include=STATES),
        survivor.follow(conversation, include=STATES) as followed,
    ):
        await followed.until("text")
        victim.server.kill()
        with anyio.fail_after(SECONDS):
            answer = await followed.whole()
    assert "rewind" in answer.types
    good = without_void(answer.frames)
    assert told(good) == [{"cart": ["tea"]}, {"cart": ["tea", "milk"]}]
    assert await cart_of(survivor, conversation) == ["tea", "milk"]
    again = await survivor.replay(conversation, include=STATES)
    assert told(without_void(again.frames)) == told(good)


@pytest.mark.promise("P10")
async def test_what_a_tool_wrote_that_never_ended_is_void(
    model: ModelServer, victim: Worker, survivor: Client, conversation: str
) -> None:
    async with gate() as waiting:
        hold = json.dumps({"item": "void", "port": waiting.port})
        model.play(adds("tea"), calls(("call_1", "add_and_hold", hold)), adds("milk"), says("done"))
        async with (
            victim.client.stream(conversation, [user("buy")], include=STATES),
            survivor.follow(conversation, include=STATES) as followed,
        ):
            with anyio.fail_after(SECONDS):
                await waiting.reached()
                assert await cart_of(survivor, conversation) == ["tea"]
                victim.server.kill()
                answer = await followed.whole()
    good = without_void(answer.frames)
    assert told(good) == [{"cart": ["tea"]}, {"cart": ["tea", "milk"]}]
    assert await cart_of(survivor, conversation) == ["tea", "milk"]


# ---------------------------------------------------------------- moves
async def test_an_export_has_it_and_an_import_goes_on_with_it() -> None:
    allowed = {"PASSBACK_ALLOW_ROLES": "assistant"}
    flags = ("shared_state:agent", "--store", "memory:")
    async with (
        running_server(*flags, cwd=str(EXAMPLES)) as here,
        running_server(*flags, cwd=str(EXAMPLES), environment=allowed) as there,
        client_of(here.url) as one,
        client_of(there.url) as other,
    ):
        await one.post("c", user("buy"))
        document = (await one.http.get("/conversations/c/export")).json()
        imported = await other.http.post("/conversations/import?id=copy", json=document)
        assert imported.status_code == 201, imported.text
        assert await cart_of(other, "copy") == BOUGHT
        again = (await other.http.get("/conversations/copy/export")).json()
        assert again["state"] == document["state"]
        answer = await other.post("copy", user("buy"), include=["state"])
        assert told(answer.frames)[-1] == {"cart": BOUGHT * 2}
        assert await cart_of(other, "copy") == BOUGHT * 2
        assert await cart_of(one, "c") == BOUGHT


async def test_it_is_moved_to_another_store_and_back(tmp_path: Path) -> None:
    stores = [f"sqlite:///{tmp_path}/{name}.db" for name in ("from", "to", "back")]
    for number, store in enumerate(stores):
        if number:
            moved = passback("move", stores[number - 1], store)
            assert (moved.returncode, moved.stderr) == (0, "")
        flags = ("shared_state:agent", "--store", store)
        async with (
            running_server(*flags, cwd=str(EXAMPLES)) as server,
            client_of(server.url) as client,
        ):
            if number:
                assert await cart_of(client, "c") == BOUGHT * number
            await client.post("c", user("buy"))
            assert await cart_of(client, "c") == BOUGHT * (number + 1)
