"""Writing a response: sending, pings in silences, and the detection of clients that are gone.

With `passback serve`, the server itself drops a client that does not read (`http.protocol`). With
other servers the writer has to detect it.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from time import monotonic
from typing import Any, TypeVar

import anyio
from starlette.types import Message, Receive, Scope, Send

from passback.hotpath.sending import SendNow, send_now
from passback.http.wires import Services

PING = ": ping\n\n"

ResultT = TypeVar("ResultT")

_TIMER_ERROR = 0.001  # seconds; a timer may fire that much too early
_FINAL_SEND_SECONDS = 2  # in which a client has to take the last chunk of a stopping server


class ResponseWriter:
    """The writer of one response.

    It needs no task where the server has the extension `SendNow`. Elsewhere one task waits for the
    client to disconnect.

    Args:
        services: with the time for which a client may leave an answer unread, and `stopping`.
        scope, receive, send: of the request.
        ping: text sent after a silence. Empty if the format has none.
    """

    def __init__(
        self, services: Services, scope: Scope, receive: Receive, send: Send, /, *, ping: str = ""
    ) -> None:
        self._stopping = services.stopping
        self._timeout = services.limits.send_seconds
        self._ping = ping
        self._ping_seconds = services.ping_seconds if ping else math.inf
        self._direct = send_now(scope)
        self._receive = receive
        self._send = send
        self._body_task: asyncio.Task[Any] | None = None
        self._gone = False
        self._sending_since: float | None = None
        self._last_sent = monotonic()
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, body: Callable[[], Awaitable[ResultT]]) -> ResultT | None:
        """Run `body()` to its end and return its result.

        Returns None if the client disconnects or stalls, or the server stops.
        """
        result = None
        with self._stopping.telling(self._cancel_body):
            if self._direct is None:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._watch_client)
                    result = await self._run_cancellable(body)
                    tasks.cancel_scope.cancel()
                return result
            with self._direct.left.telling(self._cancel_body):
                if self._ping:
                    self._ping_when_due(self._direct)
                try:
                    return await self._run_cancellable(body)
                finally:
                    if self._timer is not None:
                        self._timer.cancel()

    async def _run_cancellable(self, body: Callable[[], Awaitable[ResultT]]) -> ResultT | None:
        """Return the result of `body()`, or None if `_cancel_body` was called."""
        # asyncio's own cancellation: a cancel scope of anyio costs as much as the rest of a writer
        if self._gone:
            return None
        task = self._body_task = asyncio.current_task()
        assert task is not None
        others = task.cancelling()
        try:
            return await body()
        except asyncio.CancelledError:
            # somebody else cancels the task, too, or instead
            if not self._gone or task.uncancel() > others:
                raise
            return None
        finally:
            self._body_task = None

    def _cancel_body(self) -> None:
        if self._body_task is not None and not self._gone:
            self._body_task.cancel()
        self._gone = True

    async def send_head(self, head: Message, opening: str = "") -> str:
        """Send the head, and `opening` with it if possible. Return what is still to be sent."""
        if self._direct is None or not opening:
            await self._send(head)
            return opening
        # in one piece: each sending is a system call, and wakes the client
        await self._direct.begin(self._send(head), opening.encode())
        self._last_sent = monotonic()
        return ""

    async def send(self, chunk: str) -> None:
        """Send a part of the body, when the client has room for it."""
        self._sending_since = monotonic()
        await self._send(body_message(chunk))
        self._sending_since = None
        self._last_sent = monotonic()

    def send_now(self, chunk: str) -> None:
        """Send a part of the body at once. Allowed only while `ready`."""
        assert self._direct is not None
        self._direct.send(chunk.encode(errors="replace"))
        self._last_sent = monotonic()

    @property
    def ready(self) -> bool:
        """A chunk can be sent without waiting."""
        return self._direct is not None and self._direct.ready

    async def send_last(self, chunk: str, *, whole: bool = True) -> None:
        """Send the last chunk, if the client takes it. A stopping server waits only briefly.

        Without `whole` the answer gets no end, so that the client sees that it broke off. Servers
        without `SendNow` break it off when the application returns.
        """
        last = body_message(chunk, more=not whole)
        timeout = self._timeout
        if self._stopping.is_set:
            timeout = min(timeout, _FINAL_SEND_SECONDS)
        # no cancel scope where the sending does not wait
        with nullcontext() if self.ready else anyio.move_on_after(timeout) as waiting:
            await self._send(last)
        if waiting is not None and waiting.cancelled_caught:
            # dropped, because a connection that is closed in the usual way waits for its reader
            if self._direct is not None:
                self._direct.drop()
        elif not whole and self._direct is not None:
            self._direct.break_off()

    def _ping_when_due(self, direct: SendNow) -> None:
        """Send the ping if nothing was sent for long enough, and start a timer for the next."""
        # sending does not restart the timer, which would cost more than one that fires for nothing
        left = self._last_sent + self._ping_seconds - monotonic()
        if left <= _TIMER_ERROR:
            if direct.ready:
                self.send_now(self._ping)
            left = self._ping_seconds
        self._timer = asyncio.get_running_loop().call_later(left, self._ping_when_due, direct)

    async def _watch_client(self) -> None:
        """Cancel the body when the client disconnects or does not read. Send pings in silences."""
        # until a sending has stalled
        while self._sending_since is None or monotonic() - self._sending_since < self._timeout:
            now = monotonic()
            if self._sending_since is not None:
                due = min(self._ping_seconds, self._sending_since + self._timeout - now)
            else:
                # no later than the timeout, because a sending may begin meanwhile and stall
                due = min(self._timeout, max(0.0, self._last_sent + self._ping_seconds - now))
            with anyio.move_on_after(due):
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    break
                continue
            # timed out: a ping is due, or a client has stalled
            if self._sending_since is None and monotonic() - self._last_sent >= self._ping_seconds:
                with anyio.move_on_after(self._timeout) as sending:
                    await self._send(body_message(self._ping))
                if sending.cancelled_caught:
                    break
                self._last_sent = monotonic()
        self._cancel_body()


def body_message(chunk: str, *, more: bool = True) -> Message:
    """Return the ASGI message with a part of the body, the last one without `more`."""
    return {"type": "http.response.body", "body": chunk.encode(errors="replace"), "more_body": more}
