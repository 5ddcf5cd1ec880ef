"""`passback check`: settings, store, models and tools, each tried once."""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial

from passback.agent import Agent
from passback.app import Application
from passback.core.errors import PassbackError, ToolsetUnavailable
from passback.core.ports import ModelClient
from passback.settings import Settings
from passback.workers import EXIT_FAILED

_MAX_SHOWN_TOOLS = 20


async def check(settings: Settings, agents: Sequence[Agent]) -> int:
    """Check everything that a server needs, print the findings and return the exit code."""
    backend = Application(settings, *agents).backend
    await backend.refuse_clashes()
    print("settings  ok")

    async def check_store() -> Sequence[str]:
        async with backend.ledger as store:
            return await store.check()

    healthy = await _report_check("store", backend.ledger.location, check_store)
    for model in backend.models:
        healthy &= await _report_check("model", model.name, partial(_check_model, model))
    async with AsyncExitStack() as stack:
        for one in backend.connected:
            await stack.enter_async_context(one.running())
        for one in backend.connected:
            healthy &= await _report_check("tools", one.name, one.ready)
        _print_unasked_writes(await backend.unasked_writes())
    return 0 if healthy else EXIT_FAILED


async def _report_check(
    part: str, name: str, attempt: Callable[[], Coroutine[None, None, Sequence[str]]]
) -> bool:
    try:
        warnings = await attempt()
    except PassbackError as error:
        print(f"{part:<9} {name}: {error.message}")
        for line in error.said if isinstance(error, ToolsetUnavailable) else ():
            print(f"{'':<9} it said: {line}")
        return False
    print(f"{part:<9} {name}: ok")
    for warning in warnings:
        print(f"{'':<9} warning: {warning}")
    return True


async def _check_model(model: ModelClient) -> Sequence[str]:
    try:
        return await model.check() or ()
    finally:
        await model.aclose()


def _print_unasked_writes(names: Sequence[str]) -> None:
    if not names:
        return
    shown = ", ".join(names[:_MAX_SHOWN_TOOLS])
    more = len(names) - _MAX_SHOWN_TOOLS
    count = (
        "1 tool may write and needs"
        if len(names) == 1
        else f"{len(names)} tools may write and need"
    )
    print(f"{'allowed':<9} {count} no permission: {shown}{f' and {more} more' if more > 0 else ''}")
