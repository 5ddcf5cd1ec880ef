"""A run of this process, from its lease to its end, and how many an owner has."""

import anyio

from passback.core.changes import Lease, LeaseState
from passback.core.errors import TooManyRuns
from passback.core.events import Cancelled, Completed, Outcome, RunEvent
from passback.core.messages import OwnerId
from passback.core.ports import Store
from passback.core.values import value
from passback.engine.log import LogWriter, RunLog
from passback.engine.loop import Work
from passback.engine.spending import Meter


class OwnerRuns:
    """Counts the runs that each owner has in this process, those included whose lease is just being taken."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: dict[OwnerId, int] = {}

    def refuse_more(self, owner: OwnerId) -> None:
        """Raise `TooManyRuns` when an owner has as many as one may have."""
        if self._counts.get(owner, 0) >= self._most:
            raise TooManyRuns(
                f"{self._most} of your runs go on in this worker (PASSBACK_MAX_OWNER_RUNS): try again when one has ended",
                retry_after=1,
            )

    def add(self, owner: OwnerId) -> None:
        self._counts[owner] = self._counts.get(owner, 0) + 1

    def remove(self, owner: OwnerId) -> None:
        left = self._counts[owner] - 1
        if left:
            self._counts[owner] = left
        else:
            del self._counts[owner]


@value
class Assignment:
    """A run that is to go on here, under a lease of its own.

    Args:
        opening: the events that its log has under this lease.
        continues: its log has events of earlier leases.
        cut: it is to end at once, cancelled: a post that stops it waits already.
        tethered: it is cancelled when nobody follows it.
    """

    opening: tuple[RunEvent, ...]
    work: Work
    continues: bool = False
    cut: bool = False
    tethered: bool = False


class Active:
    """A run that goes on here, until it has ended, is left to another worker, or is lost to one."""

    def __init__(self, lease: Lease, run: Assignment, writer: LogWriter, store: Store) -> None:
        self.scope = anyio.CancelScope()
        work = run.work
        self.meter = Meter(work.brain.budget, work.state, lease, store, work.owner_spent)
        self.log = RunLog(lease, run.opening, writer, self._lease_is, continues=run.continues)
        self.tethered = run.tethered
        self.outcome: Outcome | None = None
        """How to end it; None: not at all, another worker goes on."""
        self.lost = False
        self.alone_since: float | None = None

    def stop(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.scope.cancel()

    def exhaust(self) -> None:
        """Its seconds are used up."""
        self.stop(Completed("budget"))

    def leave(self) -> None:
        """Stop it here, so that another worker goes on from the last committed turn."""
        self.scope.cancel()

    def lose(self) -> None:
        """Its lease is another's, or its conversation is no more: nothing of it can be stored."""
        self.lost = True
        self.scope.cancel()

    def _lease_is(self, state: LeaseState) -> None:
        if state == "lost":
            self.lose()
        else:
            self.stop(Cancelled())
