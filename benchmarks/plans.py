"""The plans of a run of the benchmarks: how much it measures."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from benchmarks.servers import (
    NAMES,
    PASSBACK_ACP,
    PASSBACK_AG_UI,
    PASSBACK_AGENT_API,
    PASSBACK_AI_SDK,
    PASSBACK_CHAT,
    PASSBACK_MEMORY,
    PASSBACK_POSTGRES,
    PASSBACK_REDIS,
    PASSBACK_SQLITE,
    PLAIN,
    PROXY,
    PROXY_REDIS,
    is_general,
    is_measured,
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
    HistoryLength,
    Workload,
)

WORKLOADS = (PACED, CROWD, BURST, SHORT, RUSH, SCALING)
LONG_HISTORY = 2_000  # messages
SHORT_HISTORY = HistoryLength(20, 20)
BOUNDARY_LENGTHS = (HistoryLength(50, 50), HistoryLength(10_000, 50))
QUICK_SERVERS = (
    *(PLAIN, PROXY, PROXY_REDIS),
    *(PASSBACK_REDIS, PASSBACK_AGENT_API, PASSBACK_AG_UI, PASSBACK_AI_SDK),
    *(PASSBACK_CHAT, PASSBACK_ACP),
)
OTHER_STORES = {PASSBACK_MEMORY, PASSBACK_SQLITE, PASSBACK_POSTGRES}


@dataclass(frozen=True, slots=True)
class Plan:
    """The amount of measuring.

    Attributes:
        rounds: of each workload, by its name.
        histories: workloads in conversations of several lengths.
    """

    rounds: Mapping[str, int]
    works: Sequence[Workload]
    servers: Sequence[str]
    histories: Sequence[tuple[Workload, Sequence[HistoryLength]]]
    tool_rounds: int = 1
    tool_requests: int = 1
    idle_servers: Sequence[str] = ()
    idle_streams: int = 0
    slow_servers: Sequence[str] = ()
    slow_streams: int = 0


def make_plan(options: argparse.Namespace, /) -> Plan:
    """Return the plan that the command line asks for."""
    works = [work for work in WORKLOADS if work.name in options.workloads]
    servers = [
        name
        for name in NAMES
        if any(word in name for word in options.servers)
        and (is_general(name) or any(is_measured(name, work) for work in works))
    ]
    if options.check:
        return check_plan(servers)
    if options.quick:
        return quick_plan(options, works, servers)
    return full_plan(options, works, servers)


def full_plan(
    options: argparse.Namespace, works: Sequence[Workload], servers: Sequence[str]
) -> Plan:
    rounds = {work.name: int(options.rounds) for work in works}
    rounds[CROWD.name] = ceil(options.rounds / 2)  # it takes longest
    rounds[SHORT.name] = 3 * options.rounds  # one takes a second, in which much may happen
    rounds[HISTORY.name] = ceil(options.rounds * 4 / 3)  # the limit is close to the noise
    rounds[BOUNDARY.name] = rounds[HISTORY.name]
    long = HistoryLength(options.long_history, options.long_history)
    histories = ((HISTORY, (SHORT_HISTORY, long)), (BOUNDARY, BOUNDARY_LENGTHS))
    return Plan(
        rounds=rounds,
        works=works,
        servers=servers,
        histories=histories if options.long_history else (),
        tool_rounds=options.rounds,
        tool_requests=options.tool_requests,
        idle_servers=[name for name in servers if is_general(name) or name == PASSBACK_CHAT],
        idle_streams=options.idle_streams,
        slow_servers=[name for name in servers if name in (PROXY, PASSBACK_REDIS, PASSBACK_CHAT)],
        slow_streams=options.slow_streams,
    )


def quick_plan(
    options: argparse.Namespace, works: Sequence[Workload], servers: Sequence[str]
) -> Plan:
    """Measure in less than a minute what people feel, beside what they would have otherwise."""
    shortened = [
        replace(work, requests=work.requests // 2)
        if work.requests > 1
        else replace(work, answer=Answer(work.answer.deltas // 4, work.answer.gap_ms))
        for work in works
        if work not in (CROWD, RUSH, SCALING)
    ]
    passback = [name for name in servers if name == PASSBACK_REDIS]
    return Plan(
        rounds={work.name: 1 for work in (*shortened, BOUNDARY)},
        works=shortened,
        servers=[name for name in servers if name in QUICK_SERVERS],
        histories=((BOUNDARY, BOUNDARY_LENGTHS),) if options.long_history else (),
        tool_requests=min(options.tool_requests, 5),
        idle_servers=passback,
        idle_streams=min(options.idle_streams, 200),
        slow_servers=passback,
        slow_streams=min(options.slow_streams, 500),
    )


def check_plan(servers: Sequence[str], /) -> Plan:
    """Let each server answer in each of its ways; of those that differ in their store, only one."""
    works = [
        replace(PACED, streams=4, answer=Answer(20, 20)),
        replace(BURST, streams=4, requests=2),
        replace(SCALING, requests=5),
    ]
    history = replace(HISTORY, streams=4, answer=Answer(40, 20))
    return Plan(
        rounds={work.name: 1 for work in (*works, history)},
        works=works,
        servers=[name for name in servers if name not in OTHER_STORES],
        histories=((history, (SHORT_HISTORY, HistoryLength(200, 50))),),
    )
