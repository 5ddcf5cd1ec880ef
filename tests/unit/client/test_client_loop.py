"""The loop behind the plain client, and what becomes of work that is left."""

import asyncio
import signal
import sys
import threading
from collections.abc import Iterator

import anyio
import httpx
import pytest
from tests.support.python_client import DONE, PAINT, Script, frame, owes, stream

from passback_client import BadSetup, Tool, ToolContext
from passback_client import sync as plain
from passback_client.loop import Call, Loop
from passback_client.tools import Execute

pytestmark = pytest.mark.anyio


async def test_work_that_is_left_before_it_begins_never_does() -> None:
    done: list[str] = []

    async def work() -> None:
        done.append("work")

    call = Call(work)
    call.leave()
    assert call.ended.is_set()
    with pytest.raises(asyncio.CancelledError):
        await call.run()
    assert done == []


async def test_work_that_is_left_is_cancelled_and_has_ended_when_it_is_unwound() -> None:
    begun, unwound = anyio.Event(), anyio.Event()

    async def work() -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
            assert not call.ended.is_set()
            unwound.set()

    call = Call(work)
    task = asyncio.ensure_future(call.run())
    await begun.wait()
    call.leave()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert unwound.is_set()
    assert call.ended.is_set()
    call.leave()  # once more, in vain


def test_a_loop_runs_in_another_thread_while_it_is_open() -> None:
    async def thread() -> int:
        return threading.get_ident()

    loop = Loop()
    with pytest.raises(BadSetup):
        loop.run(thread)
    loop.open()
    try:
        assert loop.is_open
        assert loop.run(thread) != threading.get_ident()
    finally:
        loop.close()
    assert not loop.is_open


async def _leave(_: object, __: ToolContext) -> None:
    sys.exit(3)


async def _interrupt(_: object, __: ToolContext) -> None:
    raise KeyboardInterrupt


async def _ctrl_c(_: object, __: ToolContext) -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    await anyio.sleep_forever()


@pytest.fixture
def heeding_ctrl_c() -> Iterator[None]:
    """As in a program of a terminal: what a shell has started in the background begins with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeding_ctrl_c")
def test_ctrl_c_leaves_the_call_that_waits() -> None:
    site = Script(owes(PAINT), _says("Again."))
    with _client(site, _ctrl_c) as client:
        with pytest.raises(KeyboardInterrupt):
            client.ask("hi")
        assert client.ask("hi").text == "Again."


def test_the_plain_client_outlives_a_tool_that_ends_the_program() -> None:
    site = Script(owes(PAINT), _says("Done."), _says("Again."))
    with _client(site, _leave) as client:
        assert (client.ask("hi").text, client.ask("hi").text) == ("Done.", "Again.")
    [result] = site.bodies[1]["messages"]
    assert (result["content"], result["isError"]) == ("SystemExit: 3", True)


def test_the_plain_client_outlives_a_tool_that_is_interrupted() -> None:
    site = Script(owes(PAINT), _says("Again."), _says("And again."))
    with _client(site, _interrupt) as client:
        with pytest.raises(KeyboardInterrupt):
            client.ask("hi")
        assert (client.ask("hi").text, client.ask("hi").text) == ("Again.", "And again.")


def _client(site: Script, execute: Execute) -> plain.Client:
    tools = [Tool("paint", "", {}, execute)]
    return plain.Client("http://host", transport=site.transport, claims=False, tools=tools)


def _says(text: str) -> httpx.Response:
    return stream(frame("next.1-2", type="text", content=text), DONE, run="next")
