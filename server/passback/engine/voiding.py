"""The log's words for a take-over: what is void, and what of that is said again.

`Status.committed` stands before the turns that were open at the last commit. Sub-agents work side by side, so that
one may have committed behind the beginning of another one's turn: what it said then is void with that turn, and
said again, for the transcript has it.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import TypeAlias

from passback.core.changes import Loaded, OpenTurns
from passback.core.errors import CursorExpired, UnknownRun
from passback.core.events import START, Rewound, RunEvent, ToolProgressed, unnested
from passback.core.messages import CallId, RunRef, ToolMessage
from passback.core.pieces import join, stream_of
from passback.core.ports import Store
from passback.core.transcript import waiting
from passback.engine.children import nested
from passback.engine.turns import resulted

_Path: TypeAlias = tuple[CallId, ...]


async def voiding(
    store: Store, run: RunRef, loaded: Loaded, append: Sequence[ToolMessage]
) -> tuple[RunEvent, ...]:
    """Return what the log says of a take-over: what is void, what is said again, and which server calls got an answer of ours.

    Raises StoreError.
    """
    owed = {each.call.id for each in waiting(loaded.messages)}
    answered = [resulted(each) for each in append if each.call_id not in owed]
    status = loaded.status
    if status.open_turns is None:
        return (Rewound(status.committed), *answered)
    try:
        said = [each async for each in _said_again(store, run, loaded, status.open_turns)]
    except (CursorExpired, UnknownRun):  # so much was said meanwhile that the log has lost it
        return (Rewound(START), *answered)
    return (Rewound(status.committed), *_joined(said), *answered)


async def _said_again(
    store: Store, run: RunRef, loaded: Loaded, open_turns: OpenTurns
) -> AsyncGenerator[tuple[_Path, RunEvent]]:
    """Yield what the log has behind `Status.committed` that was committed all the same, and who said it.

    Raises:
        CursorExpired, UnknownRun: the log does not have it any more.
        StoreError: it could not be read.
    """
    end, place = open_turns.end, loaded.status.committed
    begun = {each.path: each.after for each in open_turns.turns}
    while place < end and (batch := await store.read_log(run, after=place)):
        for logged in batch:
            path, told = unnested(logged.event)
            is_void = logged.position > begun.get(path, end) or logged.position > end
            # a call that goes on tells its progress anew
            if not is_void and not isinstance(told, ToolProgressed):
                yield path, told
        place = batch[-1].position


def _joined(said: Sequence[tuple[_Path, RunEvent]]) -> list[RunEvent]:
    """Join the pieces of each text and of each call's arguments, also where another agent spoke between them."""
    parts: list[tuple[_Path, list[RunEvent]]] = []
    last: dict[_Path, list[RunEvent]] = {}
    for path, event in said:
        stream, part = stream_of(event), last.get(path)
        if part is not None and stream is not None and stream_of(part[0]) == stream:
            part.append(event)
        else:
            last[path] = [event]
            parts.append((path, last[path]))
    return [nested(path, join(part)) for path, part in parts]
