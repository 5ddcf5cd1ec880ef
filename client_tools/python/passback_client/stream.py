"""The events of a `send`, as an asynchronous iterator."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Self

from typing_extensions import override

from passback_client.events import Event, Left
from passback_client.exchange import Exchange

Cancel = Callable[[str, str | None], Awaitable[bool]]


async def _events(
    exchange: Exchange, begin: Callable[[], Awaitable[None]] | None
) -> AsyncGenerator[Event]:
    try:
        if begin is not None:
            await begin()
        while (event := await exchange.next()) is not None:
            yield event
    finally:
        await exchange.aclose()


class Stream(AsyncIterator[Event]):
    """The events of all runs that a post leads to; the client's tools run while it is read.

    Nothing is sent before the first event is requested. Leaving the loop closes the connection, and
    cancelling the task that reads also cancels the running tools; the run on the server continues
    in both cases, and `Client.resume` follows it again. Read a stream in one task at a time.
    """

    def __init__(
        self,
        exchange: Exchange,
        cancel: Cancel,
        begin: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._exchange = exchange
        self._cancel = cancel
        # a generator, so that leaving the loop ends it, and with it the connection
        self._events = _events(exchange, begin)

    @property
    def conversation_id(self) -> str | None:
        """The conversation; None before the first event of a new one."""
        return self._exchange.follower.run.conversation_id or None

    @property
    def run_id(self) -> str | None:
        """The run whose events come now."""
        return self._exchange.follower.run.run_id

    @property
    def cursor(self) -> str | None:
        """The place of the last event, for `Client.resume`."""
        return self._exchange.follower.run.cursor

    @property
    def left(self) -> Left | None:
        """The rest of the limits of conversation and owner when the answer began; None: not
        reported.

        It is of the last post; `Usage.left` has changes during the run.
        """
        return self._exchange.follower.left

    @override
    def __aiter__(self) -> Self:
        return self

    @override
    async def __anext__(self) -> Event:
        """Return the next event.

        Raises:
            Unreachable: no answer, or too many disconnects.
            CursorExpired: the run's log has lost its beginning.
            PassbackError: the server refuses; a limit is reached.
        """
        return await anext(self._events)

    async def cancel(self) -> bool:
        """Stop the run on the server and the tools that run here, from any task. The events end
        soon after.

        Returns:
            Whether a run was stopped. Before the first event there is none to stop.
        """
        self._exchange.stop()
        run = self._exchange.follower.run
        if run.run_id is None:
            return False
        return await self._cancel(run.conversation_id, run.run_id)

    async def aclose(self) -> None:
        """Close the connection. The run continues."""
        await self._events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
