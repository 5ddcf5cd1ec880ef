"""The messages of a conversation: a tree, which is read as the list that ends at its leaf.

Messages are numbered in the order in which they were stored. A message follows the one that was
stored before it, unless a `Fork` says that it follows another one. Without forks the branch is
simply all messages, and its positions are their numbers.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from passback.core.conversation.store import Span
from passback.core.values import value

NO_MESSAGE = -1
"""The number of the message that the first one of a branch follows."""


@value
class Fork:
    """Message `start` follows message `parent`, and not the one that was stored before it."""

    start: int
    parent: int


@value
class Tree:
    """The branches of a conversation, and the one that is read.

    Attributes:
        leaf: the number of the last message of the branch; `NO_MESSAGE`: it is empty.
        forks: by `start`.
    """

    leaf: int = NO_MESSAGE
    forks: tuple[Fork, ...] = ()

    def __len__(self) -> int:
        """Return the number of messages on the branch."""
        if not self.forks:
            return self.leaf + 1
        return sum(end - start for start, end in self._pieces())

    def spans(self, first: int, stored: int, /) -> tuple[Span, ...]:
        """Return where the messages of the branch are, from position `first` on.

        The last span is open if the branch ends with the last of all `stored` messages, so that it
        has those that are appended next.
        """
        found: list[Span] = []
        for start, end in self._pieces():
            left = max(0, min(first, end - start))
            first -= left
            if start + left < end:
                found.append(Span(start + left, end))
        if self.leaf == stored - 1:
            if found:
                found[-1] = replace(found[-1], end=None)
            else:  # all that the branch has is before `first`, or it is empty
                found.append(Span(stored))
        return tuple(found)

    def number(self, position: int, /) -> int:
        """Return the number of the message at a position of the branch."""
        for start, end in self._pieces():
            if position < end - start:
                return start + position
            position -= end - start
        raise IndexError(position)

    def position(self, number: int, /) -> int | None:
        """Return the position of a message on the branch; None if it is not there."""
        before = 0
        for start, end in self._pieces():
            if start <= number < end:
                return before + number - start
            before += end - start
        return None

    def ends_before(self, position: int, /) -> "Tree":
        """Return the tree with the branch that ends before a position of this one."""
        if position >= len(self):
            return self
        return replace(self, leaf=self.number(position - 1) if position else NO_MESSAGE)

    def grown(self, count: int, stored: int, /) -> "Tree":
        """Return the tree with `count` messages more on its branch, behind `stored` ones in all."""
        if not count:
            return self
        forks = self.forks
        if self.leaf != stored - 1:
            forks = (*forks, Fork(stored, self.leaf))
        return Tree(stored + count - 1, forks)

    def shared(self, other: "Tree", /) -> int:
        """Return how many messages two branches have in common, from their beginning on."""
        count = 0
        for (start, end), (other_start, other_end) in zip(
            self._pieces(), other._pieces(), strict=False
        ):
            if start != other_start:
                break
            count += min(end, other_end) - start
            if end != other_end:
                break
        return count

    def newest_leaf(self, number: int, stored: int, /) -> int:
        """Return the newest of the messages behind a message, on any branch; else that message.

        `stored`: the number of all messages.
        """
        newest, behind = number, list[tuple[int, int]]()
        for start, end, parent in self._stretches(stored):
            if start <= number < end:
                behind.append((number, end))
            elif parent == number == NO_MESSAGE or _contain(behind, parent):
                behind.append((start, end))
            else:
                continue
            newest = end - 1
        return newest

    def branchings(self, stored: int, /) -> Sequence["Branching"]:
        """Return where other branches leave the one that is read, from its beginning on.

        `stored`: the number of all messages.
        """
        pieces = self._pieces()
        on_branch = [(NO_MESSAGE, NO_MESSAGE + 1), *pieces]
        following = dict(zip([NO_MESSAGE, *(end - 1 for _, end in pieces)], pieces, strict=False))
        starts = {fork.start for fork in self.forks}
        followers: dict[int, list[int]] = {}
        if self.leaf + 1 < stored and self.leaf + 1 not in starts:
            followers[self.leaf] = [self.leaf + 1]
        for fork in self.forks:
            if _contain(on_branch, fork.parent):
                first = [fork.parent + 1] if fork.parent + 1 not in starts else []
                followers.setdefault(fork.parent, first).append(fork.start)
        found: list[Branching] = []
        for parent, each in sorted(followers.items()):
            if parent in following:
                current: int | None = following[parent][0]
            else:
                current = None if parent == self.leaf else parent + 1
            if set(each) - {current}:
                found.append(Branching(parent, tuple(each), current))
        return found

    def parent(self, number: int, /) -> int:
        """Return the number of the message that a message follows, or `NO_MESSAGE`."""
        fork = self._fork_of(number)
        return fork.parent if fork is not None and fork.start == number else number - 1

    def _fork_of(self, number: int) -> Fork | None:
        """Return the last fork up to a message."""
        place = bisect_right(self.forks, number, key=lambda fork: fork.start)
        return self.forks[place - 1] if place else None

    def _stretches(self, stored: int) -> Sequence[tuple[int, int, int]]:
        """Return the runs of consecutive messages: start, end, and what the first one follows."""
        starts = [0, *(fork.start for fork in self.forks)]
        parents = [NO_MESSAGE, *(fork.parent for fork in self.forks)]
        return [*zip(starts, [*starts[1:], stored], parents, strict=True)]

    def _pieces(self) -> Sequence[tuple[int, int]]:
        """Return the runs of consecutive numbers that make up the branch."""
        pieces: list[tuple[int, int]] = []
        number = self.leaf
        while number != NO_MESSAGE:
            fork = self._fork_of(number)
            start = 0 if fork is None else fork.start
            pieces.append((start, number + 1))
            number = NO_MESSAGE if fork is None else fork.parent
        return pieces[::-1]


@value
class Branching:
    """A place of a branch where other branches go on otherwise.

    Attributes:
        parent: the number of the message before it, or `NO_MESSAGE`.
        followers: the first message of each branch, oldest first.
        current: the one of them on the branch that is read; None if that ends here.
    """

    parent: int
    followers: tuple[int, ...]
    current: int | None


def _contain(spans: Sequence[tuple[int, int]], number: int) -> bool:
    """Return whether one of these spans, in order, has a number."""
    place = bisect_right(spans, number, key=lambda span: span[0])
    return place > 0 and number < spans[place - 1][1]
