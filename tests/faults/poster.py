"""One of several processes that post at the same time: says `ready`, waits for a line, posts, prints its operations."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import anyio
from tests.faults.caller import caller
from tests.faults.records import Operation, Post, as_json
from tests.support.wire import Json

PATIENCE = 90


@dataclass(frozen=True, slots=True)
class Given:
    """Workers that stay as they are."""

    addresses: Sequence[str]

    def urls(self) -> Sequence[str]:
        return self.addresses


async def main(job: Json) -> None:
    operations: list[Operation] = []
    workers = Given(job["urls"])
    async with caller(workers, Random(job["seed"]), patience=PATIENCE) as client:

        async def send(post: Post) -> None:
            operations.append(await client.perform(post))

        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await anyio.to_thread.run_sync(sys.stdin.readline)
        async with anyio.create_task_group() as tasks:
            for post in job["posts"]:
                tasks.start_soon(send, Post(**post))
    sys.stdout.write(json.dumps([as_json(each) for each in operations]) + "\n")


if __name__ == "__main__":
    anyio.run(main, json.loads(sys.argv[1]))
