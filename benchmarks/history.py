"""Post to conversations that have a history, and weigh the server while it streams the answers.

    python -m benchmarks.history --url http://127.0.0.1:9200 --store redis://127.0.0.1:6390/0 \
        --pid PID --messages 2000 --behind 2000 --streams 20 --deltas 200 --gap-ms 20

Prints one JSON object, see `HistoryCost`. The conversations are written right before, through the
door of the store.
"""

import argparse
import asyncio
import itertools
import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import uvloop
from tests.support.ledgers import open_ledger

from benchmarks.client import WIRE, Connection, Reply, new_conversation_id
from benchmarks.processes import cpu_seconds, waited_seconds
from benchmarks.workloads import Answer, HistoryLength, Workload, word_at
from passback.core.changes import Change
from passback.core.ids import new_nonce
from passback.core.messages import (
    AssistantMessage,
    ConversationId,
    ConversationKey,
    MessageId,
    UserMessage,
)
from passback.core.state import State
from passback.http.gate import ANONYMOUS

MESSAGE_WORDS = 60
FIRST_TEXTS_SECONDS = 60  # until all streams have a text
SETTLE_SECONDS = 0.15  # after the last answer


@dataclass(frozen=True, slots=True)
class HistoryCost:
    """The server's CPU time for posts to conversations with a history, in milliseconds.

    Attributes:
        request_ms: for one request, all in all: reading the history, streaming, the end.
        streaming_ms: for 1,000 deltas of the model, from the moment when all streams have had their
            first text until the first of them ends.
        weighed: the number of deltas that came in that time.
        waited: for each second on its core in that time, the seconds that the server waited for it.
        wrong: answers that were not what the model said.
    """

    request_ms: float
    streaming_ms: float
    weighed: int
    waited: float
    wrong: int


async def fill_store(store_url: str, conversations: int, length: HistoryLength) -> list[str]:
    """Write conversations of questions and answers; return their ids."""
    text = "".join(map(word_at, range(MESSAGE_WORDS)))
    kinds = itertools.islice(itertools.cycle((UserMessage, AssistantMessage)), length.messages)
    messages = tuple(kind(MessageId(f"m{n}"), text) for n, kind in enumerate(kinds))
    state = State(history_start=length.messages - length.behind)
    ids = [new_conversation_id() for _ in range(conversations)]
    async with open_ledger(store_url) as store:
        for conversation in ids:
            key = ConversationKey(ANONYMOUS, ConversationId(conversation))
            if not await store.park(Change(key, new_nonce(), 0, messages, state=state)):
                raise SystemExit("the store says of a new conversation that it has changed")
    return ids


class Reading(NamedTuple):
    """The server's seconds on its core and waiting for it, and the deltas that have come."""

    cpu: float
    waited: float
    deltas: int


class StreamMeter:
    """Weighs a server, and counts the deltas that its streams have brought."""

    def __init__(self, pid: int, connections: Sequence[Connection], answer: Answer) -> None:
        self._pid = pid
        self._connections = connections
        words = (len(word_at(index)) for index in range(answer.deltas))
        self._delta_ends = list(itertools.accumulate(words))

    def read(self) -> Reading:
        cpu, waited = cpu_seconds(self._pid), waited_seconds(self._pid)
        # by their text, as a frame may bring several
        lengths = (len(WIRE.stream_text(connection.body)) for connection in self._connections)
        deltas = sum(bisect_right(self._delta_ends, length) for length in lengths)
        return Reading(cpu, waited, deltas)


async def measure(url: str, conversations: Sequence[str], work: Workload, pid: int) -> HistoryCost:
    connections = [await Connection.open(url) for _ in conversations]
    meter = StreamMeter(pid, connections, work.answer)

    async def ask(index: int) -> Reply:
        await asyncio.sleep(index * work.stagger_ms / 1000)
        return await connections[index].ask(work.answer.prompt, conversations[index])

    begin = meter.read()
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(ask(index)) for index in range(len(conversations))]
        async with asyncio.timeout(FIRST_TEXTS_SECONDS):
            for connection in connections:
                await connection.text_came.wait()
        since = meter.read()
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        until = meter.read()
    await asyncio.sleep(SETTLE_SECONDS)
    end = meter.read()
    if until.deltas == since.deltas:
        raise SystemExit("the first stream had ended before the last one began")
    text = work.answer.text
    return HistoryCost(
        request_ms=(end.cpu - begin.cpu) * 1e3 / len(asked),
        streaming_ms=(until.cpu - since.cpu) * 1e6 / (until.deltas - since.deltas),
        weighed=until.deltas - since.deltas,
        waited=(until.waited - since.waited) / (until.cpu - since.cpu),
        wrong=sum(not WIRE.has_answer(task.result().body, text) for task in asked),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="post to conversations that have a history")
    parser.add_argument("--url", required=True)
    parser.add_argument("--store", required=True, help="the URL of the server's store")
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--behind", type=int, required=True, help="messages that are still read")
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--deltas", type=int, required=True)
    parser.add_argument("--gap-ms", type=int, required=True)
    parser.add_argument("--stagger-ms", type=int, default=0)
    options = parser.parse_args()
    answer = Answer(options.deltas, options.gap_ms)
    work = Workload("history", options.streams, 1, answer, options.stagger_ms)
    length = HistoryLength(options.messages, options.behind)

    async def fill_and_measure() -> HistoryCost:
        conversations = await fill_store(options.store, work.streams, length)
        return await measure(options.url, conversations, work, options.pid)

    print(json.dumps(asdict(uvloop.run(fill_and_measure()))))


if __name__ == "__main__":
    main()
