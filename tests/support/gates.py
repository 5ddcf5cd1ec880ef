"""Gates of a test, at which programs of other processes wait until the test lets them go."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.abc
from anyio.abc import SocketAttribute

BROKEN = (anyio.BrokenResourceError, anyio.EndOfStream)


async def wait_at(port: int) -> None:
    """Wait until the gate at a port is opened, or was. Called by the other process."""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        with suppress(*BROKEN):
            await stream.receive()


class Gate:
    """A gate: use `gate`.

    Attributes:
        port: where to wait.
        opened: set by the test to let all go, also those that come later.
    """

    def __init__(self) -> None:
        self.port = 0
        self.opened = anyio.Event()
        self._arrivals = anyio.Semaphore(0)

    async def serve(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            self._arrivals.release()
            await self.opened.wait()

    async def reached(self) -> None:
        """Wait until one more has come."""
        await self._arrivals.acquire()


@asynccontextmanager
async def gate() -> AsyncGenerator[Gate]:
    """Give a gate on a free port."""
    made = Gate()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        made.port = int(listener.extra(SocketAttribute.local_port))
        tasks.start_soon(listener.serve, made.serve)
        yield made
        tasks.cancel_scope.cancel()
