"""Workers whose model is played by the test, and what the tests of several of them share."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
from tests.support.model_server import DONE as LAST_CHUNK
from tests.support.model_server import Act, Reply, event
from tests.support.server import Server, running_server
from tests.support.wire import DONE, Answer, Client, client_of, without_void

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LEASE = 2
"""Seconds: short, and long enough for a worker on a busy machine to renew it in time."""
SECONDS = 30
"""Limit for a run to be taken over and end, however busy the machine is."""
CUT = b"retry: 1000\n\n"
"""The end of a stream whose run goes on."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A server, and a client of it."""

    server: Server
    client: Client


@asynccontextmanager
async def worker(*flags: str, cwd: Path | None = EXAMPLES) -> AsyncGenerator[Worker]:
    """Start a worker in the folder of its agent; None: in that of the tests."""
    async with (
        running_server(*flags, cwd=str(cwd) if cwd else None) as server,
        client_of(server.url) as client,
    ):
        yield Worker(server, client)


# ---------------------------------------------------------------- answers of the model
def broken_off(*pieces: str) -> Reply:
    """An answer that stops in its middle."""
    return Reply([*(event(content=piece) for piece in pieces), Act.STALL])


def held(before: str, gate: anyio.Event, *after: str) -> Reply:
    """A text that is said, and the rest when the gate opens."""
    rest = [event(content=piece) for piece in after]
    return Reply([event(content=before), gate, *rest, event("stop"), LAST_CHUNK])


# ---------------------------------------------------------------- records
async def transcript(client: Client, conversation: str) -> list[tuple[str, object, bool]]:
    """The history: who said what, and whether it is partial."""
    messages = await client.messages(conversation)
    return [(each["role"], each["content"], each.get("partial", False)) for each in messages]


async def whole(client: Client, conversation: str) -> Answer:
    """Follow the newest run to its end, without what became void meanwhile."""
    answer = await client.replay(conversation, include=["run", "rewind"])
    assert answer.types[-2:] == ["run-end", DONE]
    return replace(answer, frames=tuple(without_void(answer.frames)))
