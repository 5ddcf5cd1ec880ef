"""What is heard of a connection beside its answers."""

from collections import deque
from collections.abc import Iterable, Sequence

import anyio

from passback.toolsets.mcp.door import Forgotten, Lost
from passback.toolsets.mcp.targets import shown_line

MESSAGE_BYTES = 4 * 1024 * 1024
"""The largest message that is read from a server."""


_LAST_LINES = 5


class LastWords:
    """The last lines that a process has said of itself: why it failed, mostly.

    Args:
        secrets: what is not shown of them.
    """

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self._secrets = secrets
        self._lines: deque[bytes] = deque(maxlen=_LAST_LINES)

    def clear(self) -> None:
        self._lines.clear()

    def hear(self, lines: Iterable[bytes]) -> None:
        self._lines.extend(line for line in lines if line.strip())

    def shown(self) -> tuple[str, ...]:
        """Return the lines as people may see them."""
        return tuple(shown_line(line, self._secrets) for line in self._lines)


class Line:
    """Shared by a transport, that notices things, and by those who wait for them."""

    def __init__(self, last_words: LastWords) -> None:
        self.last_words = last_words
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
