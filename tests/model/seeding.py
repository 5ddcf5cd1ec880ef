"""Rules that are made wrong, to see that the search finds each of them."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest
from tests.model.checker import Search
from tests.model.scenes import Lookout, lookouts_of_crashes, lookouts_of_networks

from passback.core.conversation.commands import Command
from passback.core.conversation.head import Head, dump_head, load_head
from passback.core.conversation.rules import Decided, Known, Refused
from passback.core.conversation.store import Guard, Write
from passback.core.conversation.table import TABLE
from passback.core.values import value

logger = logging.getLogger(__name__)

LOOKOUTS: Final = {"crashes": lookouts_of_crashes(), "network": lookouts_of_networks()}
MOST: Final = 60_000  # states that are looked at for a fault

Change = Callable[[Known, Command, Write], Write]


def as_it_is(command: Command) -> Command:
    return command


def as_decided(known: Known, command: Command, write: Write) -> Write:
    return write


@value
class Fault:
    """A rule that is wrong.

    Attributes:
        command: whose rule it is.
        change: makes the write wrong.
        promise: is broken.
        steps: of the shortest path to that, at most.
        name: of the scene in which it is found.
        of: the searches that play it.
        misread: makes the command wrong before the rule has it.
    """

    command: type[Command]
    change: Change
    promise: str
    steps: int
    name: str
    of: str = "crashes"
    misread: Callable[[Command], Command] = as_it_is

    def seed(self, patch: pytest.MonkeyPatch) -> None:
        """Put it into the table."""
        row = TABLE[self.command]

        def decide_wrongly(known: Known, command: Command, now: int) -> Decided | Refused:
            decided = row.rule(known, self.misread(command), now)
            if isinstance(decided, Refused) or decided.write is None:
                return decided
            write = self.change(known, command, decided.write)
            head = decided.head if write.head is None else load_head(write.head)
            return replace(decided, write=write, head=head)

        patch.setitem(TABLE, self.command, replace(row, rule=decide_wrongly))

    def assert_found(self) -> None:
        assert_found(LOOKOUTS[self.of][self.name], self.promise, self.steps)


def assert_found(lookout: Lookout, promise: str, steps: int, /) -> None:
    """Assert that a search finds a broken promise, and print the shortest path to it."""
    found = Search(lookout.scene).run(MOST).violation

    assert found is not None
    logger.info("%s", found)
    assert found.broken.promise == promise, str(found)
    assert len(found.path) <= steps, str(found)


def unguarded(known: Known, command: Command, write: Write) -> Write:
    # a conversation is made by a write that is guarded
    return replace(write, guard=Guard()) if known.found.version else write


def with_head(change: Callable[[Known, Head], Head]) -> Change:
    def changed(known: Known, command: Command, write: Write) -> Write:
        assert write.head is not None
        return replace(write, head=dump_head(change(known, load_head(write.head))))

    return changed
