"""What an agent is told in one run: a function of its author's, plain or async."""

import threading
from collections.abc import Awaitable

import anyio
import pytest

from passback.core.messages import ConversationId, ConversationKey, OwnerId, RunId, RunRef
from passback.engine.told import Told, run_context

pytestmark = pytest.mark.anyio

RUN = RunRef(ConversationKey(OwnerId("ann"), ConversationId("c")), RunId("r"))


def plain(run: RunRef) -> str:
    assert threading.current_thread() is not threading.main_thread()
    return f"for {run.key.owner}"


async def asynchronous(run: RunRef) -> str:
    return f"for {run.key.owner}"


def gives_awaitable(run: RunRef) -> Awaitable[str]:
    return asynchronous(run)


@pytest.mark.parametrize("function", [plain, asynchronous, gives_awaitable])
async def test_a_function_may_be_plain_or_async(function: Told) -> None:
    assert await run_context(function)(RUN) == "for ann"


@pytest.mark.promise("P11")
async def test_a_function_has_a_deadline() -> None:
    async def hangs(_run: RunRef) -> str:
        await anyio.sleep_forever()
        raise AssertionError

    with pytest.raises(TimeoutError):
        await run_context(hangs, seconds=0.01)(RUN)
