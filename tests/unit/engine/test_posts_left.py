"""A client that leaves while its post is being stored: no lease is left behind under which nobody works (P6)."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
from tests.support.killable_worker import Fault, Faults
from tests.support.runs import KEY, OTHER, contents, outcome, over, post, reply, says, worker
from typing_extensions import override

from passback.core.context import Context, Unbounded
from passback.core.deltas import ModelRequest
from passback.core.errors import UnknownConversation
from passback.core.messages import RunRef
from passback.core.ports import ModelClient, Store
from passback.engine.service import RunService
from passback.engine.supervisor import BROKEN_RUN
from passback.models.scripted import ScriptedModel
from passback.models.scripted import says as words

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P6")]


@asynccontextmanager
async def left(store: Store, fault: Fault) -> AsyncGenerator[RunService]:
    """A worker whose store was asked to begin a run and has answered after the client had left."""
    faults = Faults(store)
    faults.plan["begin"] = [fault]
    asked, answers = asyncio.Event(), asyncio.Event()

    async def ask() -> None:
        asked.set()
        await answers.wait()

    faults.first["begin"] = ask
    async with worker(faults.store, ScriptedModel([words("one"), words("two")])) as runs:
        client = asyncio.create_task(post(runs, says("first", "u1")))
        await asked.wait()
        client.cancel()
        with suppress(asyncio.CancelledError):
            await client
        assert client.cancelled()
        answers.set()
        with anyio.fail_after(10):
            await faults.until("begin", 1)
        yield runs


async def test_the_run_of_a_client_that_left_goes_on(memory: Store) -> None:
    async with left(memory, "none") as runs:
        run_id = (await runs.status(KEY)).run_id
        assert run_id is not None
        with anyio.fail_after(10):
            await over(memory, RunRef(KEY, run_id))
        assert await contents(runs) == ["first", "one"]
        assert await reply(runs, says("second", "u2")) == "two"


async def test_nothing_comes_of_a_post_that_the_store_refused_after_its_client_left(
    memory: Store,
) -> None:
    async with left(memory, "refuse") as runs:
        with pytest.raises(UnknownConversation):
            await runs.status(KEY)
        assert await reply(runs, says("second", "u2")) == "one"
        assert await contents(runs) == ["second", "one"]


async def test_nobody_waits_for_a_worker_that_broke_down(memory: Store) -> None:
    faults, asked = Faults(memory), asyncio.Event()

    async def never() -> None:
        asked.set()
        await asyncio.Event().wait()

    faults.first["begin"] = never
    clients: list[asyncio.Task[RunRef]] = []

    async def break_down() -> None:
        async with worker(faults.store, ScriptedModel([])) as runs:
            clients.append(asyncio.create_task(post(runs, says())))
            await asked.wait()
            raise ZeroDivisionError

    with pytest.raises(ExceptionGroup):
        await break_down()
    with anyio.fail_after(10):
        await asyncio.wait(clients)
    assert clients[0].cancelled()


class Unwatchable(Unbounded):
    """A policy that breaks when the run begins."""

    @override
    def watch(self, _model: ModelClient, _frame: ModelRequest, /) -> Context:
        raise ZeroDivisionError


async def test_a_run_that_cannot_be_set_up_fails_alone(memory: Store) -> None:
    async def told(_run: RunRef) -> str:
        return ""

    model = ScriptedModel([])
    async with worker(memory, model, context=Unwatchable(), extra_prompt=told) as runs:
        for key in (KEY, OTHER, KEY):
            run = await post(runs, says(), key=key)
            assert await outcome(runs, run) == BROKEN_RUN
