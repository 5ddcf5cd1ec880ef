"""How much a run of the benchmarks measures."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from benchmarks.rounds import Record
from benchmarks.servers import (
    NAMES,
    PASSBACK_AGENT_API,
    PASSBACK_MEMORY,
    PASSBACK_REDIS,
    PASSBACK_SQLITE,
    PLAIN,
    PROXY,
    PROXY_REDIS,
    is_whole,
    takes_part,
)
from benchmarks.workloads import (
    BOUNDARY,
    BURST,
    CROWD,
    HISTORY,
    PACED,
    RUSH,
    SCALING,
    SHORT,
    Answer,
    Workload,
)

WORKLOADS = (PACED, CROWD, BURST, SHORT, RUSH, SCALING)
LONG_HISTORY = 2_000
_SHORT_HISTORY = Record(20, 20)
_BEHIND = Record(50, 50), Record(10_000, 50)
_QUICK = (PLAIN, PROXY, PROXY_REDIS, PASSBACK_REDIS, PASSBACK_AGENT_API)

Lengths = tuple[Workload, Sequence[Record]]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured; of a workload so many rounds."""

    rounds: Mapping[str, int]
    works: Sequence[Workload]
    servers: Sequence[str]
    lengths: Sequence[Lengths]
    idle_servers: Sequence[str]
    idle_streams: int
    slow_servers: Sequence[str]
    slow_streams: int
    tool_rounds: int
    tool_requests: int


def plan(options: argparse.Namespace) -> Plan:
    """What the command line asks for."""
    works = [work for work in WORKLOADS if work.name in options.workloads]
    servers = [name for name in NAMES if any(word in name for word in options.servers)]
    servers = [name for name in servers if is_whole(name) or _is_asked(name, works)]
    if options.check:
        return _check(servers)
    if options.quick:
        return _quick(options, works, servers)
    rounds = {work.name: int(options.rounds) for work in works}
    rounds[CROWD.name] = ceil(options.rounds / 2)  # it takes longest
    rounds[SHORT.name] = 3 * options.rounds  # one takes a second, in which much may happen
    rounds[HISTORY.name] = ceil(options.rounds * 4 / 3)  # the limit is close to the noise
    rounds[BOUNDARY.name] = rounds[HISTORY.name]
    return Plan(
        rounds,
        works,
        servers,
        _lengths(options.long_history),
        idle_servers=[name for name in servers if is_whole(name)],
        idle_streams=options.idle_streams,
        slow_servers=[name for name in servers if name in (PROXY, PASSBACK_REDIS)],
        slow_streams=options.slow_streams,
        tool_rounds=options.rounds,
        tool_requests=options.tool_requests,
    )


def _is_asked(name: str, works: Sequence[Workload]) -> bool:
    return any(takes_part(name, work) for work in works)


def _lengths(long: int) -> Sequence[Lengths]:
    whole = _SHORT_HISTORY, Record(long, long)
    return [(HISTORY, whole), (BOUNDARY, _BEHIND)] if long else []


def _quick(options: argparse.Namespace, works: Sequence[Workload], servers: Sequence[str]) -> Plan:
    """What people feel, beside what they would have otherwise, in less than a minute."""
    works = [_shortened(work) for work in works if work not in (CROWD, RUSH, SCALING)]
    servers = [name for name in servers if name in _QUICK]
    ours = [name for name in servers if name == PASSBACK_REDIS]
    return Plan(
        {work.name: 1 for work in (*works, BOUNDARY)},
        works,
        servers,
        [each for each in _lengths(options.long_history) if each[0] == BOUNDARY],
        idle_servers=ours,
        idle_streams=min(options.idle_streams, 200),
        slow_servers=ours,
        slow_streams=min(options.slow_streams, 500),
        tool_rounds=1,
        tool_requests=min(options.tool_requests, 5),
    )


def _check(servers: Sequence[str]) -> Plan:
    """Enough for each server to answer in each of its ways; without those that differ from another one in their store only."""
    servers = [name for name in servers if name not in {PASSBACK_MEMORY, PASSBACK_SQLITE}]
    works = [
        replace(PACED, streams=4, answer=Answer(20, 20)),
        replace(BURST, streams=4, requests=2),
        replace(SCALING, requests=5),
    ]
    history = replace(HISTORY, streams=4, answer=Answer(40, 20))
    return Plan(
        {work.name: 1 for work in (*works, history)},
        works,
        servers,
        [(history, (_SHORT_HISTORY, Record(200, 50)))],
        idle_servers=[],
        idle_streams=0,
        slow_servers=[],
        slow_streams=0,
        tool_rounds=1,
        tool_requests=1,
    )


def _shortened(work: Workload) -> Workload:
    if work.requests > 1:
        return replace(work, requests=work.requests // 2)
    return replace(work, answer=Answer(work.answer.deltas // 4, work.answer.gap_ms))
