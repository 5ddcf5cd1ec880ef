"""Turns that use given numbers of tokens, budgets, and reports of what is left."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
from tests.support.runs import KEY

from passback.agent import Agent
from passback.backend import Backend
from passback.core.budgets import Budget, BudgetLimits, Left
from passback.core.deltas import UsageChunk
from passback.core.events import Completed, RunEvent, UsageReported
from passback.core.messages import Usage
from passback.engine.service import RunService
from passback.models.scripted import Step, calls, says
from passback.settings import load_settings
from passback.toolsets.functions import tool

BUDGET = Completed("budget")
SOON = 0.1
"""Seconds that a limit leaves, where its end is waited for."""


@tool
def look() -> str:
    """Looks."""
    return "seen"


def uses(tokens: int, steps: Sequence[Step] | None = None) -> list[Step]:
    """Return a turn that uses so many tokens, half of them output; by default it says `ok`."""
    usage = Usage(tokens - tokens // 2, tokens // 2)
    return [UsageChunk(usage), *(says("ok") if steps is None else steps)]


def looks(tokens: int) -> list[Step]:
    return uses(tokens, calls(("look", {})))


def reports(seen: Sequence[RunEvent]) -> list[Left | None]:
    return [event.left for event in seen if isinstance(event, UsageReported)]


def of_run(**limits: float) -> Budget:
    return Budget(run=_limits(limits))


def of_conversation(**limits: float) -> Budget:
    return Budget(conversation=_limits(limits))


def of_owner(**limits: float) -> Budget:
    return Budget(owner=_limits(limits))


def _limits(given: dict[str, float]) -> BudgetLimits:
    tokens = given.pop("tokens", None)
    return BudgetLimits(None if tokens is None else int(tokens), **given)


@asynccontextmanager
async def serving(agent: Agent, **given: str) -> AsyncGenerator[RunService]:
    """The runs of a server with one agent, without a prompt of its own, and these settings."""
    served = backend(replace(agent, conduct="", tell_time=False), **given)
    with anyio.fail_after(30):
        async with served.running():
            yield served.runs


def backend(agent: Agent, **given: str) -> Backend:
    named = {f"PASSBACK_{name.upper()}": value for name, value in given.items()}
    return Backend(load_settings({"PASSBACK_STORE": "memory:", **named}), [agent])


async def tokens_of(runs: RunService) -> int:
    return (await runs.status(KEY)).state.tokens
