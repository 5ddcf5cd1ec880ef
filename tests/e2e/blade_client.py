"""A program for a Python with blade-agent-kit: its own client talks to a server and reports.

    python blade_client.py URL KEY < STEPS

A step is a list: a verb of `_VERBS` and its arguments. Prints a JSON list: what each step gave. In
arguments, `{"step": N, "path": [...]}` stands for a part of what step N gave.
"""

import asyncio
import contextlib
import dataclasses
import importlib
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

SECONDS = 40


def main() -> None:
    url, key = sys.argv[1:]
    report = asyncio.run(_report(url, key, json.load(sys.stdin)))
    sys.stdout.write(json.dumps(report))


async def _report(url: str, key: str, steps: list[list[Any]]) -> list[Any]:
    given: list[Any] = []
    # the types of the package are of another Python than those that check this file
    package: Any = importlib.import_module("blade_agent_kit")
    raised = (package.BladeChatError, package.HeadlessError)
    async with asyncio.timeout(SECONDS), package.BladeAgentClient(url, token=key) as client:
        for verb, *arguments in steps:
            known = [_resolved(argument, given) for argument in arguments]
            try:
                given.append(await _VERBS[verb](client, *known))
            except raised as error:
                given.append({"error": type(error).__name__, "message": str(error)})
    return given


def _resolved(argument: Any, given: list[Any]) -> Any:
    if isinstance(argument, dict) and argument.keys() == {"step", "path"}:
        part = given[argument["step"]]
        for name in argument["path"]:
            part = part[name]
        return part
    if isinstance(argument, dict):
        return {name: _resolved(value, given) for name, value in argument.items()}
    return argument


async def _create(client: Any, intent: str) -> Any:
    return dataclasses.asdict(await client.create_session(intent=intent))


async def _chat(client: Any, session: str, message: str, options: Mapping[str, Any]) -> Any:
    """All that the client shows of one chat, and the call that asks a question, if there is one."""
    events = [
        {"kind": event.kind, **event.raw}
        async for event in client.chat(session, message, **options)
    ]
    patches = (e["payload"]["data"] for e in events if e["kind"] == "turn:patch")
    asked = [data["id"] for data in patches if data.get("status") == "awaiting_answer"]
    return {"events": events, "asked": asked[0] if asked else None}


async def _stop_within(client: Any, session: str, message: str) -> Any:
    """Stop a chat at its first words, and read it to its end."""
    events: list[Any] = []
    acked = None
    async for event in client.chat(session, message):
        events.append({"kind": event.kind, **event.raw})
        if event.kind == "turn:patch" and acked is None:
            acked = await client.stop(session)
    return {"events": events, "acked": acked, "again": await client.stop(session)}


async def _chat_behind_a_cut(client: Any, session: str, message: str, port: int) -> Any:
    """What the client shows of a chat. At each piece of a text it waits at a gate of the test, which
    cuts the connection at the first.
    """
    _mend(client)
    events: list[Any] = []
    async for event in client.chat(session, message):
        events.append({"kind": event.kind, **event.raw})
        if event.kind == "turn:patch":
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await reader.read()
            writer.close()
    return {"events": events}


def _mend(client: Any) -> None:
    """Have the client subscribe again behind a cut.

    It looks whether it is connected in its handler of `connect`, and python-socketio says so only
    after that: 2610.0.4 never subscribes again.
    """
    socket = client._socket
    restore = socket._restore_subscriptions

    async def restore_once_connected() -> None:
        never = asyncio.Event()
        while not socket._sio.connected:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(never.wait(), 0.01)
        await restore()

    socket._restore_subscriptions = restore_once_connected


async def _headless(client: Any, prompt: str, schema: Any) -> Any:
    return await client.headless.run(prompt, schema=schema)


async def _look(client: Any, session: str) -> Any:
    page = await client.list_sessions_page(q="")
    return {
        "health": await client.health(),
        "models": dataclasses.asdict(await client.list_models()),
        "session": dataclasses.asdict(await client.get_session(session)),
        "sessions": [each.id for each in page.items],
        "total": page.total,
    }


async def _delete(client: Any, session: str) -> Any:
    return await client.delete_session(session)


_VERBS: Mapping[str, Callable[..., Awaitable[Any]]] = {
    "create": _create,
    "chat": _chat,
    "chat-behind-a-cut": _chat_behind_a_cut,
    "stop-within": _stop_within,
    "headless": _headless,
    "look": _look,
    "delete": _delete,
}


if __name__ == "__main__":
    main()
