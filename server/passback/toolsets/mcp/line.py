"""What is heard of a connection beside its answers."""

import anyio

from passback.toolsets.mcp.door import Forgotten, Lost

MESSAGE_BYTES = 4 * 1024 * 1024
"""The largest message that is read from a server."""


class Line:
    """Shared by a transport, that notices things, and by those who wait for them."""

    def __init__(self) -> None:
        self.refusal: str | None = None
        """What the last request was refused with, for want of a better reason."""
        self.over = False
        """Whether nothing more will come."""
        self._forgotten = False
        self._end: str | None = None
        self._stirred = anyio.Event()

    @property
    def end(self) -> str | None:
        """Why nothing more will come, where somebody said it."""
        return self._end

    def finish(self, reason: str) -> None:
        """Say that nothing more will come, and why; what is said later is only a consequence."""
        if not self.over:
            self._end = reason
        self.close()

    def close(self) -> None:
        """Say that nothing more will come; the reason is found elsewhere."""
        self.over = True
        self._stirred.set()

    def forget(self) -> None:
        """Say that the server knows the connection no more."""
        self._forgotten = True
        self.finish("the server has forgotten it")

    def change(self) -> None:
        """Say that the tools may have changed."""
        self._stirred.set()

    async def news(self) -> None:
        """Raises Lost when nothing more will come."""
        if not self.over:
            await self._stirred.wait()
        self._stirred = anyio.Event()
        if self.over:
            raise self.lost()

    def lost(self) -> Lost:
        return (Forgotten if self._forgotten else Lost)(self._end or "the connection was closed")
