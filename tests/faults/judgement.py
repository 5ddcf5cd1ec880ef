"""Gathers what servers say when all is over, and lets every checker look at it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import anyio
import httpx
from tests.faults import checkers
from tests.faults.pace import pause
from tests.faults.records import Operation, outcome_of
from tests.support.wire import Frame, FrameReader, Json

SETTLING = 90.0
"""Seconds that the last runs may take to end, however busy the machine is."""
WELL = frozenset({"completed", "handed-back"})
"""How a run may end that nobody stops, whatever happens to its workers."""
TOLD = frozenset({"failed: store_unavailable"})
"""How it may end besides where the store itself goes away: whoever follows it is told."""


@dataclass(slots=True)
class Evidence:
    """What a living worker tells.

    Attributes:
        histories: the messages of each conversation.
        replays: a fresh read of each run that a client knows of.
        missing: what could not be had.
    """

    histories: dict[str, list[Json]] = field(default_factory=dict[str, list[Json]])
    replays: dict[str, list[Frame]] = field(default_factory=dict[str, list[Frame]])
    missing: list[str] = field(default_factory=list[str])


async def gather(url: str, operations: Iterable[Operation]) -> Evidence:
    """Wait until nothing runs any more, then read everything."""
    evidence = Evidence()
    operations = list(operations)
    async with httpx.AsyncClient(base_url=url, timeout=10, trust_env=False) as http:
        for conversation in dict.fromkeys(each.post.conversation for each in operations):
            try:
                await _history(http, conversation, evidence)
            except (httpx.TransportError, KeyError, TimeoutError) as error:
                evidence.missing.append(f"{conversation} cannot be read: {error!r}")
        for operation in operations:
            if operation.run_id and operation.run_id not in evidence.replays:
                await _replay(http, operation, evidence)
    return evidence


async def _history(http: httpx.AsyncClient, conversation: str, evidence: Evidence) -> None:
    path = f"/conversations/{conversation}"
    with anyio.fail_after(SETTLING):
        while (stands := await http.get(path)).status_code == 200 and _goes_on(stands.json()):
            await pause(0.05)
    messages: list[Json] = []
    after: int | None = 0
    while stands.status_code == 200 and after is not None:
        page = (await http.get(f"{path}/messages", params={"after": after, "limit": 1000})).json()
        messages += page["messages"]
        after = page["next"]
    evidence.histories[conversation] = messages


def _goes_on(stands: Json) -> bool:
    return stands["status"] == "running" or bool(stands.get("queued"))


async def _replay(http: httpx.AsyncClient, operation: Operation, evidence: Evidence) -> None:
    """Read a run from its start, as a client that saw nothing of it."""
    path = f"/conversations/{operation.post.conversation}/stream"
    headers = {"last-event-id": f"{operation.run_id}.0-0"}
    try:
        with anyio.fail_after(SETTLING):
            answer = await http.get(path, params={"include": "run"}, headers=headers)
        if answer.status_code != 200:
            evidence.missing.append(f"{operation.run_id} cannot be read: {answer.text}")
            return
        evidence.replays[operation.run_id] = FrameReader().feed(answer.content)
    except (httpx.TransportError, TimeoutError) as error:
        evidence.missing.append(f"{operation.run_id} cannot be read: {error!r}")


@dataclass(frozen=True, slots=True)
class Rules:
    """What is asked of a scenario beside what is always asked.

    Args:
        outcomes: how its runs may end.
        share: so many of the posts have to be acknowledged.
        rolls_back: whether acknowledged messages may be taken back again.
    """

    outcomes: frozenset[str] = WELL
    share: float = 0.8
    rolls_back: bool = False


def judge(
    operations: Sequence[Operation],
    evidence: Evidence,
    seen: Mapping[int, Sequence[str]],
    rules: Rules,
) -> list[str]:
    """The faults that all checkers found."""
    found = [
        evidence.missing,
        checkers.polite(operations),
        checkers.enough(operations, rules.share),
    ]
    for conversation, history in evidence.histories.items():
        own = [each for each in operations if each.post.conversation == conversation]
        back = _taken_back(own, evidence) if rules.rolls_back else set[str]()
        problems = [
            *checkers.kept(own, history, taken_back=back),
            *checkers.in_order(own, history),
            *checkers.whole(history),
            *checkers.paired(history),
            *checkers.prefixes(history, seen),
            *chain.from_iterable(
                checkers.told(history, each) for each in own if each.post.token not in back
            ),
        ]
        found.append([f"{conversation}: {problem}" for problem in problems])
    for run_id, frames in evidence.replays.items():
        found.append(checkers.ended_once(run_id, frames))
        found.append(checkers.ended_well(run_id, frames, rules.outcomes))
    found += [
        checkers.adds_up(each, evidence.replays[each.run_id])
        for each in operations
        if each.run_id in evidence.replays
    ]
    return list(chain.from_iterable(found))


def _taken_back(operations: Sequence[Operation], evidence: Evidence) -> set[str]:
    """The messages whose run was stopped, if anybody asked for a rollback."""
    if not any(each.post.policy == "rollback" for each in operations):
        return set()
    return {
        each.post.token
        for each in operations
        if outcome_of(evidence.replays.get(each.run_id, ())) == "cancelled"
    }
