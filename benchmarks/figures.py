"""From samples to medians, ratios and goals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.goals import Goal
from benchmarks.idle import Idle
from benchmarks.rounds import MODEL_ALONE, HistorySample, Sample
from benchmarks.servers import (
    NAMES,
    PASSBACK_AGENT_API,
    PASSBACK_REDIS,
    PASSBACK_TWO_READERS,
    PASSBACK_TWO_WORKERS,
    PASSBACK_UNLOGGED,
    PASSBACK_UNLOOPED,
    PLAIN,
    PROXY,
    PROXY_REDIS,
)
from benchmarks.stalls import Stalls
from benchmarks.workloads import BOUNDARY, BURST, CROWD, HISTORY, PACED, SCALING, SHORT, Workload


@dataclass(frozen=True, slots=True)
class Row:
    """A server under a workload; medians over the rounds, ratios between figures of the same round."""

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
class Results:
    """Everything that a run of the benchmarks found."""

    samples: Sequence[Sample]
    history: Sequence[HistorySample]
    idle: dict[str, Idle]
    stalls: dict[str, Stalls]
    tools: Sequence[float]  # milliseconds: the longest of each round
    left_out: dict[str, str]  # server -> why
    has_spare_core: bool  # for a second worker, so that requests per second can be compared

    def of_work(self, work: Workload) -> list[Sample]:
        return [sample for sample in self.samples if sample.workload == work.name]

    def of_history(self, work: Workload) -> list[HistorySample]:
        return [sample for sample in self.history if sample.workload == work.name]

    def rows(self, work: Workload) -> list[Row]:
        of_work = self.of_work(work)
        measured = {sample.server for sample in of_work}
        return [_row(of_work, name) for name in (MODEL_ALONE, *NAMES) if name in measured]

    def goals(self) -> list[Goal]:
        return [*self._beside_others(), *self._beside_itself(), self._scaling()]

    def _beside_others(self) -> list[Goal]:
        paced, burst, short = self.of_work(PACED), self.of_work(BURST), self.of_work(SHORT)
        own = PASSBACK_REDIS
        return [
            *(
                _goal(f"{work.name}: CPU, beside the minimal proxy", (limit, "times"), ratios)
                for work, limit, ratios in (
                    (PACED, 1.65, _ratios(paced, own, PROXY)),
                    (BURST, 1.5, _ratios(burst, own, PROXY)),
                    (SHORT, 6.5, _ratios(short, own, PROXY)),
                )
            ),
            _goal(
                "short: CPU, beside the proxy with a Redis history",
                (2.0, "times"),
                _ratios(short, own, PROXY_REDIS),
            ),
            _goal("paced: CPU, beside a plain server", (0.25, "times"), _ratios(paced, own, PLAIN)),
            _goal("burst: CPU, beside a plain server", (0.05, "times"), _ratios(burst, own, PLAIN)),
            _goal("paced: first event, after the proxy's", (2.0, "ms"), _delays(paced, own, PROXY)),
            _goal(
                "short: first event, one stream, after the proxy's",
                (1.2, "ms"),
                _delays(short, own, PROXY),
            ),
            _goal(
                "crowd: first event, 200 streams, beside the proxy's",
                (1.5, "times"),
                _slowness(self.of_work(CROWD), own, PROXY),
            ),
        ]

    def _beside_itself(self) -> list[Goal]:
        paced, burst, own = self.of_work(PACED), self.of_work(BURST), PASSBACK_REDIS
        weighed, late = self.idle.get(own), self.stalls.get(own)
        return [
            _goal(
                "idle open stream: memory",
                (36.0, "KiB"),
                [weighed.kib_per_stream] if weighed else (),
            ),
            _goal(
                "slow streams: how late an event is, p99",
                (250.0, "ms"),
                [late.late_ms[1]] if late else (),
            ),
            _goal(
                "paced: CPU, beside the log off",
                (1.5, "times"),
                _ratios(paced, own, PASSBACK_UNLOGGED),
            ),
            _goal(
                "burst: CPU, beside the log off",
                (1.5, "times"),
                _ratios(burst, own, PASSBACK_UNLOGGED),
            ),
            _goal(
                "paced: CPU of the Agent API, beside `/send-message`",
                (1.3, "times"),
                _ratios(paced, PASSBACK_AGENT_API, own),
            ),
            _goal(
                "burst: CPU of the Agent API, beside `/send-message`",
                (1.3, "times"),
                _ratios(burst, PASSBACK_AGENT_API, own),
            ),
            _goal(
                "paced: CPU, beside the loop off",
                (1.05, "times"),
                _ratios(paced, own, PASSBACK_UNLOOPED),
            ),
            _goal(
                "ten read-only tools of 100 ms at once: the longest of a round",
                (150.0, "ms"),
                self.tools,
            ),
            _goal(
                "paced: CPU that a second reader adds, beside the first's",
                (0.25, "times"),
                [both - 1 for both in _ratios(paced, PASSBACK_TWO_READERS, own)],
            ),
            _goal(
                "history: CPU while streaming, long beside short",
                (1.1, "times"),
                _lengthened(self.of_history(HISTORY), lambda sample: sample.streaming_ms),
            ),
            _goal(
                "boundary: CPU per request, 10,000 messages beside 50, 50 behind it",
                (1.1, "times"),
                _lengthened(self.of_history(BOUNDARY), lambda sample: sample.request_ms),
            ),
        ]

    def _scaling(self) -> Goal:
        """What a second worker brings; without a core for it, what it costs: 2 / 1.8 is what doubling may lose."""
        own, both, scaling = PASSBACK_REDIS, PASSBACK_TWO_WORKERS, self.of_work(SCALING)
        if self.has_spare_core:
            words = "scaling: requests per second, two workers on two cores beside one on one"
            return Goal(words, 1.8, "times", tuple(_speedups(scaling, both, own)), at_least=True)
        words = "scaling: CPU per request, two workers on one core beside one there"
        return _goal(words, (round(2 / 1.8, 2), "times"), _ratios(scaling, both, own))


def _goal(words: str, limit: tuple[float, str], rounds: Sequence[float]) -> Goal:
    return Goal(words, *limit, tuple(rounds))


def _of(samples: Sequence[Sample], server: str) -> list[Sample]:
    return [sample for sample in samples if sample.server == server]


def _firsts(samples: Sequence[Sample]) -> list[float]:
    return sorted(first for sample in samples for first in sample.first_ms)


def _median(rounds: Sequence[float]) -> float | None:
    return median(rounds) if rounds else None


def _ratios(samples: Sequence[Sample], server: str, reference: str) -> list[float]:
    """The CPU beside the reference's, round by round."""
    if MODEL_ALONE in {server, reference}:
        return []
    other = {sample.round: sample.cpu_ms for sample in _of(samples, reference)}
    return [s.cpu_ms / other[s.round] for s in _of(samples, server) if s.round in other]


def _speedups(samples: Sequence[Sample], server: str, reference: str) -> list[float]:
    """The answers per second beside the reference's, round by round."""
    other = {s.round: s.per_second for s in _of(samples, reference) if s.per_second}
    own = [s for s in _of(samples, server) if s.round in other]
    return [s.per_second / other[s.round] for s in own if s.per_second]


def _firsts_beside(
    samples: Sequence[Sample], server: str, reference: str
) -> list[tuple[float, float]]:
    """The median first event and the reference's, round by round."""
    other = {sample.round: median(sample.first_ms) for sample in _of(samples, reference)}
    return [(median(s.first_ms), other[s.round]) for s in _of(samples, server) if s.round in other]


def _delays(samples: Sequence[Sample], server: str, reference: str) -> list[float]:
    return [own - other for own, other in _firsts_beside(samples, server, reference)]


def _slowness(samples: Sequence[Sample], server: str, reference: str) -> list[float]:
    return [own / other for own, other in _firsts_beside(samples, server, reference)]


def _lengthened(
    samples: Sequence[HistorySample], cpu_ms: Callable[[HistorySample], float]
) -> list[float]:
    """The CPU after the longest history beside that after the shortest, round by round."""
    records = sorted({sample.record for sample in samples})
    short = {s.round: cpu_ms(s) for s in samples if s.record == records[0]}
    long = [s for s in samples if s.record == records[-1]] if len(records) > 1 else []
    return [cpu_ms(s) / short[s.round] for s in long if s.round in short]


def _row(samples: Sequence[Sample], server: str) -> Row:
    own = _of(samples, server)
    firsts = _firsts(own)
    return Row(
        workload=own[0].workload,
        server=server,
        cpu_ms=median(sample.cpu_ms for sample in own),
        of_proxy=_median(_ratios(samples, server, PROXY)),
        of_proxy_redis=_median(_ratios(samples, server, PROXY_REDIS)),
        of_passback=_median(_ratios(samples, server, PASSBACK_REDIS)),
        store_cpu_ms=median(sample.store_cpu_ms for sample in own),
        waited=_median([sample.waited for sample in own if sample.waited is not None]),
        first_ms=median(firsts),
        first_ms_p99=firsts[int(0.99 * (len(firsts) - 1))],
        first_after_model_ms=_median(_delays(samples, server, MODEL_ALONE)),
        first_after_proxy_ms=_median(_delays(samples, server, PROXY)),
        per_second=_median([sample.per_second for sample in own if sample.per_second]),
    )
