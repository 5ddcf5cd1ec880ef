"""Posts to conversations that have a history, and weighs the server while it streams the answers.

    python -m benchmarks.history --url http://127.0.0.1:9200 --store redis://127.0.0.1:6390/0 --pid PID \
        --messages 2000 --behind 2000 --streams 20 --deltas 200 --gap-ms 20

Prints one JSON object, see `History`. The conversations are written right before, through the door of the store.
"""

import argparse
import asyncio
import itertools
import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import NamedTuple
from urllib.parse import urlsplit

import uvloop

from benchmarks.client import (
    WIRE,
    Connection,
    Reply,
    connect,
    new_conversation,
    request_bytes,
    says,
    text_so_far,
)
from benchmarks.processes import cpu_seconds, waited_seconds
from benchmarks.workloads import Answer, Workload, word
from passback.core.changes import Change
from passback.core.messages import (
    AssistantMessage,
    ConversationId,
    ConversationKey,
    Message,
    UserMessage,
    new_message_id,
    new_nonce,
)
from passback.core.state import State
from passback.http.access import ANONYMOUS
from passback.stores.open import open_store

_WORDS = 60  # of each message
_TEXTS_SECONDS = 60  # until all streams have a text
_AFTER_SECONDS = 0.15


@dataclass(frozen=True, slots=True)
class History:
    """What posts to conversations with a history cost the server, in milliseconds of CPU.

    Attributes:
        request_ms: for one request, all in all: reading the history, streaming, the end.
        streaming_ms: for 1,000 deltas of the model, from the moment when all streams have had their first text
            until the first of them ends.
        weighed: how many deltas came in that time.
        waited: for each second on its core in that time, the seconds that the server waited for it.
        wrong: answers that were not what the model said.
    """

    request_ms: float
    streaming_ms: float
    weighed: int
    waited: float
    wrong: int


# ------------------------------------------------------------------ the conversations
async def fill(store_url: str, conversations: int, messages: int, behind: int) -> list[str]:
    """Write conversations, of whose messages so many are behind the boundary; gives their ids."""
    state = State(history_start=messages - behind)
    ids = [new_conversation() for _ in range(conversations)]
    async with open_store(store_url) as store:
        for one in ids:
            key = ConversationKey(ANONYMOUS, ConversationId(one))
            change = Change(key, new_nonce(), 0, _transcript(messages), state=state)
            if not await store.park(change):
                raise SystemExit("the store says of a new conversation that it has changed")
    return ids


def _transcript(messages: int) -> tuple[Message, ...]:
    """A question, an answer, and so on."""
    text = "".join(map(word, range(_WORDS)))
    kinds = itertools.cycle((UserMessage, AssistantMessage))
    return tuple(kind(new_message_id(), text) for kind in itertools.islice(kinds, messages))


# ------------------------------------------------------------------ the load
class Scales:
    """Weighs a server, and counts the deltas that its streams have brought."""

    def __init__(self, pid: int, connections: Sequence[Connection], answer: Answer) -> None:
        self._pid = pid
        self._connections = connections
        self._ends = list(itertools.accumulate(len(word(index)) for index in range(answer.deltas)))

    def read(self) -> "Reading":
        cpu, waited = cpu_seconds(self._pid), waited_seconds(self._pid)
        texts = [text_so_far(WIRE, connection.body) for connection in self._connections]
        return Reading(cpu, waited, sum(bisect_right(self._ends, len(text)) for text in texts))


class Reading(NamedTuple):
    """Seconds on its core and waiting for it, and deltas: counted by their text, as a frame may bring several."""

    cpu: float
    waited: float
    deltas: int


async def measure(url: str, conversations: Sequence[str], work: Workload, pid: int) -> History:
    connections = [await connect(url, partial(Connection, WIRE)) for _ in conversations]
    scales = Scales(pid, connections, work.answer)
    begin = scales.read()
    async with asyncio.TaskGroup() as tasks:
        asked = [
            tasks.create_task(_ask(connections[index], url, conversation, work, index))
            for index, conversation in enumerate(conversations)
        ]
        async with asyncio.timeout(_TEXTS_SECONDS):
            for connection in connections:
                await connection.text_came.wait()
        since = scales.read()
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        until = scales.read()
    await asyncio.sleep(_AFTER_SECONDS)
    end = scales.read()
    if until.deltas == since.deltas:
        raise SystemExit("the first stream had ended before the last one began")
    return History(
        request_ms=(end.cpu - begin.cpu) * 1e3 / len(asked),
        streaming_ms=(until.cpu - since.cpu) * 1e6 / (until.deltas - since.deltas),
        weighed=until.deltas - since.deltas,
        waited=(until.waited - since.waited) / (until.cpu - since.cpu),
        wrong=sum(not says(WIRE, task.result().body, work.answer.text) for task in asked),
    )


async def _ask(
    connection: Connection, url: str, conversation: str, work: Workload, index: int
) -> Reply:
    await asyncio.sleep(index * work.stagger_ms / 1000)
    netloc = urlsplit(url).netloc
    return await connection.ask(request_bytes(WIRE, netloc, work.answer.prompt, conversation))


async def _fill_and_measure(options: argparse.Namespace) -> History:
    answer = Answer(options.deltas, options.gap_ms)
    work = Workload("history", options.streams, 1, answer, options.stagger_ms)
    conversations = await fill(options.store, work.streams, options.messages, options.behind)
    return await measure(options.url, conversations, work, options.pid)


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
    history = uvloop.run(_fill_and_measure(parser.parse_args()))
    print(json.dumps(asdict(history)))


if __name__ == "__main__":
    main()
