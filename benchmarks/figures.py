"""The figures: from samples to medians, ratios and goals, and the medians committed before."""

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from benchmarks.measurements import MODEL_ALONE, HistorySample, Sample
from benchmarks.open_streams import IdleStreams, SlowStreams
from benchmarks.servers import (
    NAMES,
    PASSBACK_ACP,
    PASSBACK_AG_UI,
    PASSBACK_AGENT_API,
    PASSBACK_AI_SDK,
    PASSBACK_CHAT,
    PASSBACK_POSTGRES,
    PASSBACK_REDIS,
    PASSBACK_TWO_READERS,
    PASSBACK_TWO_WORKERS,
    PASSBACK_UNLOGGED,
    PASSBACK_UNLOOPED,
    PLAIN,
    PROXY,
    PROXY_REDIS,
)
from benchmarks.workloads import (
    BOUNDARY,
    BURST,
    CROWD,
    HISTORY,
    PACED,
    SCALING,
    SHORT,
    HistoryLength,
    Workload,
)


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure, the median of its rounds, that should be at most `limit`, or at least.

    Attributes:
        rounds: empty if it was not measured.
    """

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
        """The range of the middle half of the rounds. None: too few rounds to say."""
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


@dataclass(frozen=True, slots=True)
class Row:
    """A server under a workload: medians over the rounds, ratios between figures of one round."""

    workload: str
    server: str
    cpu_ms: float
    of_proxy: float | None
    of_proxy_redis: float | None
    of_passback: float | None
    store_cpu_ms: float
    waited: float | None
    first_ms: float
    first_ms_p99: float
    first_after_model_ms: float | None
    first_after_proxy_ms: float | None
    per_second: float | None


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """Posts to conversations of one length: medians over the rounds."""

    length: HistoryLength
    request_ms: float
    streaming_ms: float
    waited: float


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a run of the benchmarks.

    Attributes:
        tools: milliseconds, the longest of each round.
        left_out: what could not be measured, and why.
        has_spare_core: for a second worker, so that requests per second can be compared.
    """

    samples: Sequence[Sample]
    history: Sequence[HistorySample]
    idle: dict[str, IdleStreams]
    slow: dict[str, SlowStreams]
    tools: Sequence[float]
    left_out: dict[str, str]
    has_spare_core: bool

    def work_samples(self, work: Workload, server: str | None = None) -> list[Sample]:
        return [
            sample
            for sample in self.samples
            if sample.workload == work.name and server in (None, sample.server)
        ]

    def rows(self, work: Workload) -> list[Row]:
        measured = {sample.server for sample in self.work_samples(work)}
        return [self.row(work, name) for name in (MODEL_ALONE, *NAMES) if name in measured]

    def row(self, work: Workload, server: str) -> Row:
        samples = self.work_samples(work, server)
        firsts = sorted(first for sample in samples for first in sample.first_ms)
        return Row(
            workload=work.name,
            server=server,
            cpu_ms=median(sample.cpu_ms for sample in samples),
            of_proxy=median_or_none(cpu_ratios(self, work, PROXY, server)),
            of_proxy_redis=median_or_none(cpu_ratios(self, work, PROXY_REDIS, server)),
            of_passback=median_or_none(cpu_ratios(self, work, PASSBACK_REDIS, server)),
            store_cpu_ms=median(sample.store_cpu_ms for sample in samples),
            waited=median_or_none([s.waited for s in samples if s.waited is not None]),
            first_ms=median(firsts),
            first_ms_p99=firsts[int(0.99 * (len(firsts) - 1))],
            first_after_model_ms=median_or_none(first_delays(self, work, MODEL_ALONE, server)),
            first_after_proxy_ms=median_or_none(first_delays(self, work, PROXY, server)),
            per_second=median_or_none([s.per_second for s in samples if s.per_second]),
        )

    def history_samples(self, work: Workload) -> list[HistorySample]:
        return [sample for sample in self.history if sample.workload == work.name]

    def history_rows(self, work: Workload) -> list[HistoryRow]:
        samples = self.history_samples(work)
        rows: list[HistoryRow] = []
        for length in sorted({sample.length for sample in samples}):
            own = [sample for sample in samples if sample.length == length]
            request = median(sample.request_ms for sample in own)
            streaming = median(sample.streaming_ms for sample in own)
            rows.append(HistoryRow(length, request, streaming, median(s.waited for s in own)))
        return rows

    def goals(self) -> list[Goal]:
        goals = [
            Goal(words, limit, unit, tuple(find_rounds(self)))
            for words, limit, unit, find_rounds in GOALS
        ]
        both, scaling = PASSBACK_TWO_WORKERS, SCALING
        if self.has_spare_core:
            words = "scaling: requests per second, two workers on two cores beside one on one"
            pairs = paired_figures(self, scaling, (both, PASSBACK_REDIS), lambda s: s.per_second)
            ratios = tuple(own / other for own, other in pairs)
            return [*goals, Goal(words, 1.8, "times", ratios, at_least=True)]
        # without a core for it, what a second worker costs: the limit is what doubling may lose
        words = "scaling: CPU per request, two workers on one core beside one there"
        ratios = tuple(cpu_ratios(self, scaling, PASSBACK_REDIS, both))
        return [*goals, Goal(words, round(2 / 1.8, 2), "times", ratios)]


def median_or_none(rounds: Sequence[float], /) -> float | None:
    return median(rounds) if rounds else None


def paired_figures(
    results: Results,
    work: Workload,
    servers: tuple[str, str],
    figure: Callable[[Sample], float | None],
) -> list[tuple[float, float]]:
    """Return a figure of two servers, for each round in which both have it."""
    own, other = (
        {s.round: value for s in results.work_samples(work, name) if (value := figure(s))}
        for name in servers
    )
    return [(own[number], other[number]) for number in own if number in other]


def cpu_ratios(
    results: Results, work: Workload, reference: str, server: str = PASSBACK_REDIS
) -> list[float]:
    """Return a server's CPU beside the reference's, round by round."""
    pairs = paired_figures(results, work, (server, reference), lambda sample: sample.cpu_ms)
    return [own / other for own, other in pairs]


def paired_firsts(
    results: Results, work: Workload, reference: str, server: str = PASSBACK_REDIS
) -> list[tuple[float, float]]:
    """Return the median first event of a server and of the reference, round by round."""
    return paired_figures(results, work, (server, reference), lambda s: s.median_first_ms)


def first_delays(
    results: Results, work: Workload, reference: str, server: str = PASSBACK_REDIS
) -> list[float]:
    """Return by how many ms a server's first event comes after the reference's."""
    return [own - other for own, other in paired_firsts(results, work, reference, server)]


def length_ratios(
    samples: Sequence[HistorySample], cpu_ms: Callable[[HistorySample], float]
) -> list[float]:
    """Return the CPU after the longest history beside that after the shortest, by rounds."""
    lengths = sorted({sample.length for sample in samples})
    short = {s.round: cpu_ms(s) for s in samples if s.length == lengths[0]}
    long = [s for s in samples if s.length == lengths[-1]] if len(lengths) > 1 else []
    return [cpu_ms(s) / short[s.round] for s in long if s.round in short]


# what, its limit and unit, and how the figures of its rounds are found
GOALS: Sequence[tuple[str, float, str, Callable[[Results], Sequence[float]]]] = (
    (
        "paced: CPU, beside the minimal proxy",
        1.65,
        "times",
        lambda found: cpu_ratios(found, PACED, PROXY),
    ),
    (
        "burst: CPU, beside the minimal proxy",
        1.5,
        "times",
        lambda found: cpu_ratios(found, BURST, PROXY),
    ),
    (
        "short: CPU, beside the minimal proxy",
        6.5,
        "times",
        lambda found: cpu_ratios(found, SHORT, PROXY),
    ),
    (
        "short: CPU, beside the proxy with a Redis history",
        2.0,
        "times",
        lambda found: cpu_ratios(found, SHORT, PROXY_REDIS),
    ),
    (
        "paced: CPU, beside a plain server",
        0.25,
        "times",
        lambda found: cpu_ratios(found, PACED, PLAIN),
    ),
    (
        "burst: CPU, beside a plain server",
        0.05,
        "times",
        lambda found: cpu_ratios(found, BURST, PLAIN),
    ),
    (
        "paced: first event, after the proxy's",
        2.0,
        "ms",
        lambda found: first_delays(found, PACED, PROXY),
    ),
    (
        "short: first event, one stream, after the proxy's",
        1.2,
        "ms",
        lambda found: first_delays(found, SHORT, PROXY),
    ),
    (
        "crowd: first event, 200 streams, beside the proxy's",
        1.5,
        "times",
        lambda found: [a / b for a, b in paired_firsts(found, CROWD, PROXY)],
    ),
    (
        "idle open stream: memory",
        36.0,
        "KiB",
        lambda found: [
            each.kib_per_stream for name, each in found.idle.items() if name == PASSBACK_REDIS
        ],
    ),
    (
        "slow streams: how late an event is, p99",
        250.0,
        "ms",
        lambda found: [
            each.late_ms[1] for name, each in found.slow.items() if name == PASSBACK_REDIS
        ],
    ),
    (
        "paced: CPU, beside the log off",
        1.5,
        "times",
        lambda found: cpu_ratios(found, PACED, PASSBACK_UNLOGGED),
    ),
    (
        "burst: CPU, beside the log off",
        1.5,
        "times",
        lambda found: cpu_ratios(found, BURST, PASSBACK_UNLOGGED),
    ),
    (
        "short: CPU on PostgreSQL, beside Redis",
        1.5,
        "times",
        lambda found: cpu_ratios(found, SHORT, PASSBACK_REDIS, PASSBACK_POSTGRES),
    ),
    (
        "paced: CPU of the Agent API, beside `/send-message`",
        1.3,
        "times",
        lambda found: cpu_ratios(found, PACED, PASSBACK_REDIS, PASSBACK_AGENT_API),
    ),
    (
        "burst: CPU of the Agent API, beside `/send-message`",
        1.3,
        "times",
        lambda found: cpu_ratios(found, BURST, PASSBACK_REDIS, PASSBACK_AGENT_API),
    ),
    (
        "paced: CPU of AG-UI, beside `/send-message`",
        1.3,
        "times",
        lambda found: cpu_ratios(found, PACED, PASSBACK_REDIS, PASSBACK_AG_UI),
    ),
    (
        "paced: CPU of the AI SDK, beside `/send-message`",
        1.3,
        "times",
        lambda found: cpu_ratios(found, PACED, PASSBACK_REDIS, PASSBACK_AI_SDK),
    ),
    (
        "paced: CPU of the chat socket, beside `/send-message`",
        1.4,
        "times",
        lambda found: cpu_ratios(found, PACED, PASSBACK_REDIS, PASSBACK_CHAT),
    ),
    (
        "paced: CPU of ACP, beside `/send-message`",
        1.4,
        "times",
        lambda found: cpu_ratios(found, PACED, PASSBACK_REDIS, PASSBACK_ACP),
    ),
    (
        "idle chat socket: memory",
        64.0,
        "KiB",
        lambda found: [
            each.kib_per_stream for name, each in found.idle.items() if name == PASSBACK_CHAT
        ],
    ),
    (
        "1,000 clients of one chat: how late an event is, p99",
        250.0,
        "ms",
        lambda found: [
            each.late_ms[1] for name, each in found.slow.items() if name == PASSBACK_CHAT
        ],
    ),
    (
        "paced: CPU, beside the loop off",
        1.05,
        "times",
        lambda found: cpu_ratios(found, PACED, PASSBACK_UNLOOPED),
    ),
    (
        "ten read-only tools of 100 ms at once: the longest of a round",
        150.0,
        "ms",
        lambda found: found.tools,
    ),
    (
        "paced: CPU that a second reader adds, beside the first's",
        0.25,
        "times",
        lambda found: [
            both - 1 for both in cpu_ratios(found, PACED, PASSBACK_REDIS, PASSBACK_TWO_READERS)
        ],
    ),
    (
        "history: CPU while streaming, long beside short",
        1.1,
        "times",
        lambda found: length_ratios(found.history_samples(HISTORY), lambda s: s.streaming_ms),
    ),
    (
        "boundary: CPU per request, 10,000 messages beside 50, 50 behind it",
        1.1,
        "times",
        lambda found: length_ratios(found.history_samples(BOUNDARY), lambda s: s.request_ms),
    ),
)


@dataclass(frozen=True, slots=True)
class Committed:
    """The medians by the goals' words, and where they are from, or why there are none."""

    words: str
    medians: Mapping[str, float]


def last_committed(path: Path, /) -> Committed:
    """Return the results in `path` as HEAD has them, whatever the file holds."""
    command = ["git", "-C", str(path.parent), "show", f"HEAD:./{path.name}"]
    missing = Committed(f"before: no {path.name} is committed, so there is nothing to compare", {})
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # no git
        return missing
    if done.returncode:
        return missing
    try:
        document = json.loads(done.stdout)
        medians = {goal["words"]: goal["measured"] for goal in document["goals"]}
        measured = {words: float(each) for words, each in medians.items() if each is not None}
        machine = ", ".join(f"{name} {value}" for name, value in document["machine"].items())
    except (ValueError, LookupError, TypeError, AttributeError):
        return Committed(f"before: the {path.name} that is committed cannot be read", {})
    source = f"before: the medians of the {path.name} that is committed"
    return Committed(f"{source}. It may be of another machine: {machine}", measured)
