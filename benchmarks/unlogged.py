"""The product with its log off: conversations are stored, what is streamed is not.

    python -m benchmarks.unlogged serve --store unlogged:redis://127.0.0.1:6379/0 ...

All is `passback serve` as it comes, but for one more line in the table of stores, `unlogged:` and
the URL of a store, and for its ledger: `append` and `renew` answer at once that the lease is held,
and `commit` takes the messages and the events that reveal them, but not the deltas that waited for
the log's writer. So what is left out is the packing and writing of deltas and the renewing of
leases; the log in memory and its writer's timer are there. A run may last as long as the lease that
it begins with, and can be resumed in its own process only.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from typing_extensions import override

from benchmarks.servers import UNLOGGED
from passback import backend, cli
from passback.core.changes import Change, Commit, Lease, LeaseState, LogWrite
from passback.core.conversation.store import Store
from passback.core.errors import StoreError
from passback.core.events import ReasoningDelta, RunEvent, TextDelta, ToolCallArguments
from passback.core.messages import RunId
from passback.engine.ledger import Ledger
from passback.stores import open as stores
from passback.stores.options import StoreOptions


class UnloggedLedger(Ledger):
    """A ledger that writes no deltas."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        # number of the last event that was stored under a lease, by its fence
        self._last: dict[str, int] = {}

    @override
    async def append(
        self, writes: Sequence[LogWrite], /, *, lease: float
    ) -> Sequence[LeaseState | StoreError]:
        return ["held" for _ in writes]

    @override
    async def renew(
        self, leases: Sequence[Lease], /, *, lease: float
    ) -> Sequence[LeaseState | StoreError]:
        return ["held" for _ in leases]

    @override
    async def begin(
        self, change: Change, run_id: RunId, events: tuple[RunEvent, ...], /, *, lease: float
    ) -> Lease | None:
        begun = await super().begin(change, run_id, events, lease=lease)
        if begun is not None:
            self._last[begun.fence] = len(events)
        return begun

    @override
    async def commit(self, commit: Commit, /, *, lease: float) -> bool:
        fence = commit.log.lease.fence
        revealed = tuple(takewhile(is_no_delta, reversed(commit.log.events)))[::-1]
        log = replace(commit.log, first=self._last[fence] + 1, events=revealed)
        self._last[fence] += len(revealed)
        if commit.ends:
            del self._last[fence]
        return await super().commit(replace(commit, log=log), lease=lease)


def is_no_delta(event: RunEvent) -> bool:
    return not isinstance(event, (TextDelta, ReasoningDelta, ToolCallArguments))


def open_unlogged(rest: str, options: StoreOptions) -> Store:
    return stores.open_store(rest, options=options)


if __name__ == "__main__":
    stores.OPENERS = {**stores.OPENERS, UNLOGGED: open_unlogged}
    vars(backend)["Ledger"] = UnloggedLedger
    sys.exit(cli.main())
