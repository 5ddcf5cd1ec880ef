"""The workloads: what is asked of the mock model, and how many ask for it at once."""

from dataclasses import dataclass
from typing import NamedTuple

# The model's words, one after the other. Most are plain, as in a real answer; two need escaping in
# JSON, one is not ASCII.
WORDS = (
    *("The", " quick", " brown", " fox", " jumps", " over", " the", " lazy", " dog", ",", " and"),
    *(" then", " it", " says", ':\n"', "hello", '"', " to", " caf\u00e9", "s", " of", " every"),
    *(" town", " that", " it", " has", " ever", " run", " through", " at", " night", "."),
)


def word_at(index: int) -> str:
    return WORDS[index % len(WORDS)]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the mock model: its text deltas, `gap_ms` apart (0: all in one write).

    Attributes:
        words: of each delta.
    """

    deltas: int
    gap_ms: int
    words: int = 1

    @property
    def prompt(self) -> str:
        """The text that makes the mock model give this answer, wherever a request has it."""
        return f"bench:{self.deltas}:{self.gap_ms}:{self.words}"

    @property
    def text(self) -> str:
        return "".join(map(word_at, range(self.deltas * self.words)))

    def delta(self, index: int) -> str:
        return "".join(map(word_at, range(index * self.words, (index + 1) * self.words)))


@dataclass(frozen=True, slots=True)
class Workload:
    """Streams at once that each ask `requests` times in a row; starts are `stagger_ms` apart."""

    name: str
    streams: int
    requests: int
    answer: Answer
    stagger_ms: int = 0

    @property
    def deltas(self) -> int:
        return self.streams * self.requests * self.answer.deltas

    @property
    def title(self) -> str:
        gap = f"{self.answer.gap_ms} ms apart" if self.answer.gap_ms else "no delay"
        answer = "1 delta" if self.answer.deltas == 1 else f"{self.answer.deltas} deltas, {gap}"
        streams = "1 stream" if self.streams == 1 else f"{self.streams} streams"
        return f"{self.name}: {streams}, {self.requests} x {answer}"


class HistoryLength(NamedTuple):
    """The number of messages that a conversation has, and that are behind its boundary."""

    messages: int
    behind: int


# Starts are spread as people's are: the first event is then measured beside streams that are
# already running.
PACED = Workload("paced", 20, 1, Answer(200, 20), stagger_ms=23)
# Ten times as many: the server hardly sleeps between two deltas, and what waking up costs goes.
CROWD = Workload("crowd", 200, 1, Answer(60, 50), stagger_ms=11)
# Shorter rounds, but more of them. All streams have to be there before the first ends, however
# long the histories.
HISTORY = Workload("history", 20, 1, Answer(150, 20), stagger_ms=23)
# What a post itself costs, so the answer is short.
BOUNDARY = Workload("boundary", 10, 1, Answer(30, 20), stagger_ms=23)
BURST = Workload("burst", 10, 6, Answer(500, 0))
SHORT = Workload("short", 1, 200, Answer(1, 0))
RUSH = Workload("rush", 20, 10, Answer(1, 0))
# Enough at once to keep two workers busy. Connections come one by one, so that the one with less
# to do takes more.
SCALING = Workload("scaling", 40, 25, Answer(1, 0), stagger_ms=3)

WARM_UP = Workload("warm-up", 4, 10, Answer(50, 0))
# Of two workers, one alone would do with less.
WARM_UP_BOTH = Workload("warm-up", 40, 5, Answer(50, 0), stagger_ms=3)
# The first delta comes at once, the second one long after the measurement has ended.
SILENT = Answer(2, 600_000)
# One word each second, for as long as anybody measures.
SLOW = Answer(600, 1000)
# 4 MB: in pieces of about 1 KB, and in one.
LARGE_PIECES = Workload("large, in pieces", 20, 1, Answer(4_000, 0, words=232))
LARGE_WHOLE = Workload("large, in one piece", 20, 1, Answer(1, 0, words=928_000))
