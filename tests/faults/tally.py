"""The result of a scenario."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.faults.records import Operation


@dataclass(slots=True)
class Tally:
    """Counts, and what was wrong.

    Attributes:
        points: how many faults were made, or cases tried.
        hits: how many runs were under way when a fault came.
        posts: how many operations clients did.
        acknowledged: how many of them were.
        refusals: how often which refusal was the last word.
        failed: how many runs failed, and said so.
        cuts: how often a stream broke off.
        void: how many frames were declared void.
        usable: seconds from each fault until a post was accepted again; None: never.
        faults: what was found.
        clues: the logs and histories where something was.
    """

    points: int = 0
    hits: int = 0
    posts: int = 0
    acknowledged: int = 0
    refusals: dict[str, int] = field(default_factory=dict[str, int])
    failed: int = 0
    cuts: int = 0
    void: int = 0
    usable: list[float | None] = field(default_factory=list[float | None])
    faults: list[str] = field(default_factory=list[str])
    clues: list[str] = field(default_factory=list[str])

    def count(self, operations: Iterable[Operation]) -> None:
        for each in operations:
            self.posts += 1
            self.acknowledged += each.verdict == "ok"
            if each.refusal:
                self.refusals[each.refusal] = self.refusals.get(each.refusal, 0) + 1
            self.failed += each.outcome.startswith("failed")
            self.cuts += each.cuts
            self.void += each.void

    @property
    def worst(self) -> float | None:
        """The longest time until a conversation was usable again."""
        return max((each for each in self.usable if each is not None), default=None)
