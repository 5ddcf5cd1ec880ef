"""A client that does not give up: it repeats posts under their key, and resumes broken streams.

As a program, `python -m tests.faults.retrying_client JOB` is one of several processes that post at
the same time: it prints `ready`, waits for a line, posts, and prints its operations as JSON.
"""

import json
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from random import Random
from time import monotonic
from typing import Any, Protocol

import anyio
import httpx
from tests.faults.evidence import Operation, Post
from tests.support.waiting import pause
from tests.support.wire import DONE, PATH, Frame, FrameReader, Json, client_tool, without_void

READ_TIMEOUT = (2.0, 4.0)  # seconds, chosen between; the workers send a comment each second
ASK_TOOL = client_tool("ask", what={"type": "string"})
CURSOR_LOSS = 0.4
"""Share of broken connections after which a client that forgets its cursor does so."""
TRANSIENT = {"store_unavailable", "store_error", "store_full", "shutting_down"}
"""Codes after which the same post may be sent again."""


class Servers(Protocol):
    def urls(self) -> Sequence[str]:
        """Return the URLs at which clients may ask now."""
        ...


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The behaviour of a client.

    Attributes:
        timeout: seconds that one post may take, its answer included.
        accepts_rewinds: whether it asks for `rewind` events; without them, an error says that text
            became void, and it reads again.
        forgets_cursor: whether it sometimes repeats a post without a cursor after its connection
            broke. If its worker was killed and no other one is, it must get no void text then.
    """

    timeout: float = 30
    accepts_rewinds: bool = False
    forgets_cursor: bool = False


class RetryingClient:
    """The client: use `retrying_client`. It chooses a server at random for every request."""

    def __init__(
        self, servers: Servers, http: httpx.AsyncClient, random: Random, options: ClientOptions
    ) -> None:
        self._servers = servers
        self._http = http
        self._random = random
        self._options = options
        self._include = ["run", "rewind"] if options.accepts_rewinds else ["run"]

    async def perform(self, post: Post, *, retry_busy: bool = False) -> Operation:
        """Post, and read the answer to its end; `retry_busy` also while a conversation is busy."""
        operation = Operation(post, monotonic())
        with anyio.move_on_after(self._options.timeout):
            while not await self._try_request(operation, retry_busy=retry_busy):
                await pause(self._random.uniform(0.02, 0.1))
        return operation

    async def _try_request(self, operation: Operation, *, retry_busy: bool) -> bool:
        """Make one request. True: there is nothing more to do."""
        urls = self._servers.urls()
        if not urls:
            return False
        request = self._build_request(operation, self._random.choice(urls))
        try:
            async with self._http.stream(**request) as response:
                if response.status_code == 200:
                    await _read_stream(operation, response)
                    return operation.ended
                await response.aread()
                return _record_refusal(operation, response, retry_busy=retry_busy)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            return False
        except httpx.TransportError as error:
            self._record_disconnect(operation, error)
            return False
        except AssertionError as malformed:
            operation.protocol_errors.append(str(malformed))
            return True

    def _build_request(self, operation: Operation, url: str) -> dict[str, Any]:
        """Build the post, or half the time, if its run is known, a GET of the run."""
        post = operation.post
        headers = {"last-event-id": operation.frames[-1].id} if operation.frames else {}
        if operation.run_id and self._random.random() < 0.5:
            path = f"/conversations/{post.conversation}/stream"
            asked = {"include": ",".join(self._include), "runId": operation.run_id}
            return {"method": "GET", "url": url + path, "params": asked, "headers": headers}
        body = {
            "conversationId": post.conversation,
            "messages": [post.message],
            "tools": [ASK_TOOL],
            "onBusy": post.policy,
            "include": self._include,
        }
        headers["idempotency-key"] = post.token
        return {"method": "POST", "url": url + PATH, "json": body, "headers": headers}

    def _record_disconnect(self, operation: Operation, error: httpx.TransportError) -> None:
        operation.indeterminate = True
        operation.disconnects += operation.acknowledged is not None
        forgets = self._options.forgets_cursor and not isinstance(error, httpx.TimeoutException)
        if forgets and self._random.random() < CURSOR_LOSS:
            operation.restarted, operation.frames = True, []


async def _read_stream(operation: Operation, response: httpx.Response) -> None:
    if operation.acknowledged is None:
        operation.acknowledged = monotonic()
    run_id = response.headers.get("x-run-id", "")
    if operation.run_id and run_id != operation.run_id:
        operation.protocol_errors.append(f"run {operation.run_id} continued as {run_id}")
    operation.run_id = run_id
    reader = FrameReader()
    async for chunk in response.aiter_raw():
        for frame in reader.feed(chunk):
            if not _record_frame(operation, frame):
                return
    operation.disconnects += not operation.ended


def _record_frame(operation: Operation, frame: Frame) -> bool:
    """Record a frame. False: the run has to be read again from its start."""
    if frame.data == DONE:
        operation.ended = True
    elif frame.type == "error" and frame.event["code"] == "rewound":
        _discard_void(operation, kept=[])
        return False
    elif frame.type == "rewind":
        _discard_void(operation, kept=without_void([*operation.frames, frame]))
        return True
    operation.frames.append(frame)
    return True


def _discard_void(operation: Operation, *, kept: list[Frame]) -> None:
    if operation.restarted:
        operation.protocol_errors.append("a post that was repeated without a cursor got void text")
    operation.void_frames += len(operation.frames) - len(kept)
    operation.frames = kept


def _record_refusal(operation: Operation, response: httpx.Response, *, retry_busy: bool) -> bool:
    """Record a refusal. True: it is final."""
    code = _error_code(response)
    refusal = f"{response.status_code} {code}"
    if response.status_code == 500 or not code:
        operation.protocol_errors.append(f"it was answered with {refusal}")
        operation.indeterminate = True
        return True
    if code in TRANSIENT:
        operation.indeterminate |= code != "shutting_down"
        return False
    if operation.acknowledged is not None:
        operation.protocol_errors.append(f"a resume was refused: {refusal}")
        return True
    if retry_busy and code == "conversation_busy":
        return False
    operation.refusal = refusal
    return True


def _error_code(response: httpx.Response) -> str:
    try:
        return str(response.json()["code"])
    except (ValueError, KeyError, TypeError):
        return ""


@asynccontextmanager
async def retrying_client(
    servers: Servers, random: Random, options: ClientOptions
) -> AsyncGenerator[RetryingClient]:
    timeout = httpx.Timeout(random.uniform(*READ_TIMEOUT), pool=60)
    async with httpx.AsyncClient(timeout=timeout, trust_env=False) as http:
        yield RetryingClient(servers, http, random, options)


# ---------------------------------------------------------------- as a process
@dataclass(frozen=True, slots=True)
class FixedServers:
    """Servers that stay as they are."""

    addresses: Sequence[str]

    def urls(self) -> Sequence[str]:
        return self.addresses


async def _post_together(job: Json) -> None:
    """Post all posts of the job at once, as soon as standard input has a line."""
    operations: list[Operation] = []
    options = ClientOptions(timeout=90)
    async with retrying_client(FixedServers(job["urls"]), Random(job["seed"]), options) as client:

        async def send(post: Post) -> None:
            operations.append(await client.perform(post))

        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await anyio.to_thread.run_sync(sys.stdin.readline)
        async with anyio.create_task_group() as tasks:
            for post in job["posts"]:
                tasks.start_soon(send, Post(**post))
    sys.stdout.write(json.dumps([asdict(each) for each in operations]) + "\n")


if __name__ == "__main__":
    anyio.run(_post_together, json.loads(sys.argv[1]))
