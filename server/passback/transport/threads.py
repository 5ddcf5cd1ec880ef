"""Work on posted texts that may be large, which must not hold up the event loop."""

from collections.abc import Callable, Iterable
from typing import TypeVar, TypeVarTuple

import anyio.to_thread

_Args = TypeVarTuple("_Args")
_Result = TypeVar("_Result")

_AT_ONCE = 16 * 1024  # characters that are worked on where the event loop runs
_EACH = 100  # characters that a text counts as more


async def work_on(
    texts: Iterable[str], work: Callable[[*_Args], _Result], /, *args: *_Args
) -> _Result:
    """Return what `work` returns for its arguments, whose texts are `texts`; where they are large, it runs in a thread."""
    if sum(_EACH + len(text) for text in texts) <= _AT_ONCE:
        return work(*args)
    return await anyio.to_thread.run_sync(work, *args)
