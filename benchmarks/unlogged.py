"""The product with its log off: conversations are stored, what is streamed is not.

    python -m benchmarks.unlogged serve --store unlogged:redis://127.0.0.1:6379/0 ...

All is `passback serve` as it comes, but for one more line in the table of stores: `unlogged:` and
the URL of a store. What that opens is a store at the same door, whose `append` and `renew` answer
at once that the lease is held, and whose `commit` takes the messages and the events that reveal
them, but not the deltas that waited for the log's writer. So what is left out is the packing and
writing of deltas and the renewing of leases; the log in memory and its writer's timer are there. A
run may last as long as the lease that it begins with, and can be resumed in its own process only.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Self, cast

from benchmarks.servers import UNLOGGED
from passback import cli
from passback.core.changes import Change, Commit, Lease, LeaseState, LogWrite
from passback.core.events import ReasoningDelta, RunEvent, TextDelta, ToolCallArguments
from passback.core.messages import RunId
from passback.core.ports import Store
from passback.stores import open as stores
from passback.stores.options import StoreOptions


class UnloggedStore:
    """A store that writes no deltas; for everything else the one behind it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # number of the last event that was stored under a lease, by its fence
        self._last: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        await self._store.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._store.__aexit__(*exc)

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def append(self, writes: Sequence[LogWrite], /, *, lease: float) -> Sequence[LeaseState]:
        return ["held" for _ in writes]

    async def renew(self, leases: Sequence[Lease], /, *, lease: float) -> Sequence[LeaseState]:
        return ["held" for _ in leases]

    async def begin(
        self, change: Change, run_id: RunId, events: tuple[RunEvent, ...], /, *, lease: float
    ) -> Lease | None:
        begun = await self._store.begin(change, run_id, events, lease=lease)
        if begun is not None:
            self._last[begun.fence] = len(events)
        return begun

    async def commit(self, commit: Commit, /, *, lease: float) -> bool:
        fence = commit.log.lease.fence
        revealed = tuple(takewhile(is_no_delta, reversed(commit.log.events)))[::-1]
        log = replace(commit.log, first=self._last[fence] + 1, events=revealed)
        self._last[fence] += len(revealed)
        if commit.ends:
            del self._last[fence]
        return await self._store.commit(replace(commit, log=log), lease=lease)


def is_no_delta(event: RunEvent) -> bool:
    return not isinstance(event, (TextDelta, ReasoningDelta, ToolCallArguments))


def open_unlogged(rest: str, options: StoreOptions) -> Store:
    return cast("Store", UnloggedStore(stores.open_store(rest, options=options)))


if __name__ == "__main__":
    stores.OPENERS = {**stores.OPENERS, UNLOGGED: open_unlogged}
    sys.exit(cli.main())
