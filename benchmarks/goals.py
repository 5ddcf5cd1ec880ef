"""What the figures should be at most, and whether they are."""

from dataclasses import dataclass
from statistics import median, quantiles


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure that should be at most `limit`, or at least: the median of its rounds. No rounds: it was not measured."""

    words: str
    limit: float
    unit: str
    rounds: tuple[float, ...]
    at_least: bool = False

    @property
    def measured(self) -> float | None:
        return median(self.rounds) if self.rounds else None

    @property
    def quartiles(self) -> tuple[float, float] | None:
        """Half of the rounds are between these. None: too few rounds to say."""
        if len(self.rounds) < 4:
            return None
        low, _, high = quantiles(self.rounds, n=4, method="inclusive")
        return low, high

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "not measured"
        beyond = self.limit - self.measured if self.at_least else self.measured - self.limit
        return "met" if beyond <= 0 else "MISSED"
