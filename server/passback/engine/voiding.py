"""What the log says of a take-over: what is void, and what of that is said again.

`Status.committed` stands before the turns that were open when the worker was lost. Sub-agents work side by side, so that
one may have committed behind the beginning of another one's turn: what it said then is void with that turn, and
said again, for the transcript has it.
"""

from collections.abc import AsyncGenerator, Sequence

from passback.core.changes import Loaded
from passback.core.errors import CursorExpired, UnknownRun
from passback.core.events import START, Rewound, RunEvent, ToolProgressed, TurnStarted, unnested
from passback.core.messages import AssistantMessage, CallId, RunRef, ToolMessage
from passback.core.ports import Store
from passback.core.transcript import runnable, unwrapped, waiting
from passback.engine.turns import resulted

_AT_ONCE = 1000
"""Events that are read at once."""


async def voiding(
    store: Store, run: RunRef, loaded: Loaded, append: Sequence[ToolMessage]
) -> tuple[RunEvent, ...]:
    """Return what the log says of a take-over: what is void, what is said again, and which server calls got an answer of ours.

    Raises StoreError.
    """
    owed = {each.call.id for each in waiting(loaded.messages)}
    answered = [resulted(each) for each in append if each.call_id not in owed]
    try:
        again = [event async for event in _said_again(store, run, loaded)]
    except (CursorExpired, UnknownRun):  # so much was said meanwhile that the log has lost it
        return (Rewound(START), *answered)
    return (Rewound(loaded.status.committed), *again, *answered)


async def _said_again(store: Store, run: RunRef, loaded: Loaded) -> AsyncGenerator[RunEvent]:
    """Yield what the log has behind `Status.committed` of turns that the transcript has.

    That is nothing where no call of the server's was under way.

    Raises:
        CursorExpired, UnknownRun: the log does not have it any more.
        StoreError: it could not be read.
    """
    if not runnable(loaded.messages):
        return
    said = (unwrapped(message)[1] for message in loaded.messages)
    turns = {each.id for each in said if isinstance(each, AssistantMessage)}
    void: set[tuple[CallId, ...]] = set()
    place = loaded.status.committed
    while batch := await store.read_log(run, after=place, limit=_AT_ONCE):
        for logged in batch:
            path, told = unnested(logged.event)
            if isinstance(told, TurnStarted):
                (void.discard if told.message_id in turns else void.add)(path)
            # a call that goes on tells its progress anew
            if path not in void and not isinstance(told, ToolProgressed):
                yield logged.event
        place = batch[-1].position
