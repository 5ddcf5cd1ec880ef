"""The way from a stream to its client: sends, fills silences, and notices when nobody is there to read.

`passback serve` drops a client that does not read by itself (`protocol`); elsewhere the line has to notice.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from time import monotonic
from typing import Any, TypeVar

import anyio
from starlette.types import Message, Receive, Scope, Send

from passback.http.sending import SendNow, send_now
from passback.http.wires import Services

PING = ": ping\n\n"

Said = TypeVar("Said")

_TICK = 0.001
"""Seconds: a timer may ring that much too early."""

_LAST_WORDS_SECONDS = 2
"""How long a stopping server waits for a client to take them."""


class ResponseWriter:
    """One response's line, open while it is held.

    It costs no task where the server can send without one; elsewhere one task waits for the client's leave.

    Args:
        services: what bounds its patience.
        scope, receive, send: the request's.
        ping: what fills a silence; empty where nothing can.
    """

    def __init__(
        self, services: Services, scope: Scope, receive: Receive, send: Send, /, *, ping: str = ""
    ) -> None:
        self._stopping = services.stopping
        self._patience = services.limits.send_seconds
        self._ping = ping
        self._ping_seconds = services.ping_seconds if ping else math.inf
        self._direct = send_now(scope)
        self._receive = receive
        self._send = send
        self._talking: asyncio.Task[Any] | None = None
        self._gone = False
        self._sending_since: float | None = None
        self._last_sent = monotonic()
        self._timer: asyncio.TimerHandle | None = None

    async def hold(self, talk: Callable[[], Awaitable[Said]]) -> Said | None:
        """Give what `talk` gives; None when the client left or did not read, or the server stopped, before its end."""
        said = None
        with self._stopping.telling(self._let_go):
            if self._direct is None:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._watch)
                    said = await self._unless_let_go(talk)
                    tasks.cancel_scope.cancel()
                return said
            with self._direct.left.telling(self._let_go):
                if self._ping:
                    self._ring_later(self._direct, self._ping_seconds)
                try:
                    return await self._unless_let_go(talk)
                finally:
                    if self._timer is not None:
                        self._timer.cancel()

    async def _unless_let_go(self, talk: Callable[[], Awaitable[Said]]) -> Said | None:
        """By asyncio's own cancellation: a scope of anyio's costs as much as all else that a line does."""
        if self._gone:
            return None
        task = self._talking = asyncio.current_task()
        assert task is not None
        others = task.cancelling()
        try:
            return await talk()
        except asyncio.CancelledError:
            if not self._gone or task.uncancel() > others:
                raise
            return None
        finally:
            self._talking = None

    def _let_go(self) -> None:
        if self._talking is not None and not self._gone:
            self._talking.cancel()
        self._gone = True

    async def begin(self, head: Message, opening: str = "") -> str:
        """Send the head of the response, with what opens its body where that goes at once; gives what is still to be sent."""
        if self._direct is None or not opening:
            await self._send(head)
            return opening
        # as one: a sending is a system call, and wakes the client
        await self._direct.begin(self._send(head), opening.encode())
        self._last_sent = monotonic()
        return ""

    async def send(self, chunk: str) -> None:
        """Send a part of the body, when the client has room for it."""
        self._sending_since = monotonic()
        await self._send(body(chunk))
        self._sending_since = None
        self._last_sent = monotonic()

    def send_now(self, chunk: str) -> None:
        """Send at once. Only while it is `ready`."""
        assert self._direct is not None
        self._direct.send(chunk.encode(errors="replace"))
        self._last_sent = monotonic()

    @property
    def ready(self) -> bool:
        """Whether a chunk can be sent without waiting."""
        return self._direct is not None and self._direct.ready

    async def end(self, chunk: str, *, whole: bool = True) -> None:
        """Send the last words, if the client takes them; a stopping server does not wait long for that.

        Not `whole`: the answer gets no end, so that the client sees that it broke off. A server that cannot be told
        so sees to it when the application returns.
        """
        last = body(chunk, more=not whole)
        # what is ready does not wait
        with nullcontext() if self.ready else anyio.move_on_after(self._last_patience) as waiting:
            await self._send(last)
        if waiting is not None and waiting.cancelled_caught:
            self._drop()
        elif not whole and self._direct is not None:
            self._direct.break_off()

    @property
    def _last_patience(self) -> float:
        """Seconds for the last words."""
        stops = self._stopping.is_set
        return min(self._patience, _LAST_WORDS_SECONDS) if stops else self._patience

    # ---------------------------------------------------------------- who is there
    def _ring_later(self, direct: SendNow, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._fill_silence, direct)

    def _fill_silence(self, direct: SendNow) -> None:
        """Send the ping if nothing was sent for long enough. One timer rings for all silences of an answer."""
        left = self._last_sent + self._ping_seconds - monotonic()
        if left > _TICK:
            self._ring_later(direct, left)
            return
        if direct.ready:
            self.send_now(self._ping)
        self._ring_later(direct, self._ping_seconds)

    def _drop(self) -> None:
        """A connection that is closed in the usual way waits until all was read."""
        if self._direct is not None:
            self._direct.drop()

    async def _watch(self) -> None:
        """Notice in a task that the client leaves or does not read, and fill silences."""
        while not self._is_unread():
            with anyio.move_on_after(self._seconds_until_due()):
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    break
                continue
            if self._sending_since is None and monotonic() - self._last_sent >= self._ping_seconds:
                with anyio.move_on_after(self._patience) as sending:
                    await self._send(body(self._ping))
                if sending.cancelled_caught:
                    break
                self._last_sent = monotonic()
        self._let_go()

    def _is_unread(self) -> bool:
        since = self._sending_since
        return since is not None and monotonic() - since >= self._patience

    def _seconds_until_due(self) -> float:
        """Return how long no silence has to be filled, and no patience can end."""
        now = monotonic()
        if self._sending_since is not None:
            return min(self._ping_seconds, self._sending_since + self._patience - now)
        # no later than its patience: a client may stop to read meanwhile
        return min(self._patience, max(0.0, self._last_sent + self._ping_seconds - now))


def body(chunk: str, *, more: bool = True) -> Message:
    """A part of a response's body; not `more`: the last one."""
    return {"type": "http.response.body", "body": chunk.encode(errors="replace"), "more_body": more}
