"""What an agent is told in one run: a function of its author's, plain or async."""

import threading
from collections.abc import Awaitable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from passback.core.messages import ConversationId, ConversationKey, OwnerId, RunId, RunRef
from passback.engine.guarding import (
    EXTRA_PROMPT_BYTES,
    EXTRA_PROMPT_MISSING,
    ExtraPromptFunction,
    ExtraPromptOnce,
    extra_prompt,
)

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
async def test_a_function_may_be_plain_or_async(function: ExtraPromptFunction) -> None:
    assert await extra_prompt(function)(RUN) == "for ann"


async def hangs(_run: RunRef) -> str:
    await anyio.sleep_forever()
    raise AssertionError


async def fails(_run: RunRef) -> str:
    raise OSError("secret")


def gives_no_text(_run: RunRef) -> Any:
    return 5


@pytest.mark.promise("P11")
@pytest.mark.parametrize("function", [hangs, fails, gives_no_text])
async def test_the_model_is_told_what_cannot_be_found_out(function: ExtraPromptFunction) -> None:
    told = extra_prompt(function, shown="# Context\n{}".format, seconds=0.1)
    assert await told(RUN) == f"# Context\n{EXTRA_PROMPT_MISSING}"


@pytest.mark.promise("P11")
async def test_a_text_has_a_limit_and_says_where_it_was_cut() -> None:
    full = await extra_prompt(lambda _: "ü" * (EXTRA_PROMPT_BYTES // 2))(RUN)
    assert full == "ü" * (EXTRA_PROMPT_BYTES // 2)
    cut = await extra_prompt(lambda _: "a" + "ü" * EXTRA_PROMPT_BYTES)(RUN)
    kept, said = cut.split("\n")
    assert kept == "a" + "ü" * (EXTRA_PROMPT_BYTES // 2 - 1)
    assert said == f"[Cut here: {EXTRA_PROMPT_BYTES + 1} bytes more.]"


async def test_all_that_ask_at_once_are_told_the_same() -> None:
    """Forks that go on after a take-over do."""
    asked: list[RunRef] = []

    async def counted(run: RunRef) -> str:
        asked.append(run)
        await anyio.lowlevel.checkpoint()
        return f"the {len(asked)}. time"

    once, said = ExtraPromptOnce(counted, RUN), list[str]()

    async def ask() -> None:
        said.append(await once())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        tasks.start_soon(ask)
    assert (asked, said, await once()) == ([RUN], ["the 1. time"] * 2, "the 1. time")
    assert await ExtraPromptOnce(None, RUN)() == ""
