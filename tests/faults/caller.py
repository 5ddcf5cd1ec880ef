"""A client that does not give up: it repeats posts under their key, and comes back to streams that were cut."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from random import Random
from time import monotonic
from typing import Any, Protocol

import anyio
import httpx
from tests.faults.pace import pause
from tests.faults.records import Operation, Post
from tests.support.wire import DONE, PATH, Frame, FrameReader, Json, client_tool

SILENCE = (2.0, 4.0)
"""Seconds after which a client believes that nothing more comes; the harness's servers send a comment each second."""
ASK = client_tool("ask", what={"type": "string"})
FORGETFUL = 0.4
"""How often a client that forgets does."""
PASSING = {"store_unavailable", "store_error", "store_full", "shutting_down"}
"""Codes after which the same post may be sent again."""


class Workers(Protocol):
    def urls(self) -> Sequence[str]:
        """Those that can be asked now."""
        ...


class Caller:
    """Use `caller`.

    Args:
        workers: where to go; another one is chosen for every request.
        http: the connections.
        random: which worker, which way to come back.
        patience: seconds that one post may take, its answer included.
        rewinds: whether it asks for `rewind` events; without, it is told by an error and reads again.
        forgets: whether it sometimes repeats a post without a cursor after its connection broke. Nothing that becomes
            void may reach it then, if its worker was killed and no other one is.
    """

    def __init__(
        self,
        workers: Workers,
        http: httpx.AsyncClient,
        random: Random,
        *,
        patience: float = 30,
        rewinds: bool = False,
        forgets: bool = False,
    ) -> None:
        self._workers = workers
        self._http = http
        self._random = random
        self._patience = patience
        self._include = ["run", "rewind"] if rewinds else ["run"]
        self._forgetful = FORGETFUL if forgets else 0.0

    async def perform(self, post: Post, *, insists: bool = False) -> Operation:
        """Post, and read the answer to its end.

        Args:
            post: what.
            insists: come again while the conversation is busy.
        """
        operation = Operation(post, monotonic())
        with anyio.move_on_after(self._patience):
            while not await self._exchange(operation, insists=insists):
                await pause(self._random.uniform(0.02, 0.1))
        return operation

    async def _exchange(self, operation: Operation, *, insists: bool) -> bool:
        """One request. True: there is nothing more to do."""
        urls = self._workers.urls()
        if not urls:
            return False
        request = self._request(operation, self._random.choice(urls))
        try:
            async with self._http.stream(**request) as response:
                if response.status_code == 200:
                    await self._read(operation, response)
                    return operation.ended
                await response.aread()
                return _refused(operation, response, insists=insists)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            return False
        except httpx.TransportError as error:
            self._cut(operation, error)
            return False
        except AssertionError as malformed:
            operation.notes.append(str(malformed))
            return True

    def _request(self, operation: Operation, url: str) -> dict[str, Any]:
        post, last = operation.post, _last_id(operation)
        headers = {"last-event-id": last} if last else {}
        if operation.run_id and self._random.random() < 0.5:
            path = f"/conversations/{post.conversation}/stream"
            asked = {"include": ",".join(self._include), "runId": operation.run_id}
            return {"method": "GET", "url": url + path, "params": asked, "headers": headers}
        body = {
            "conversationId": post.conversation,
            "messages": [post.message],
            "tools": [ASK],
            "onBusy": post.policy,
            "include": self._include,
        }
        headers["idempotency-key"] = post.token
        return {"method": "POST", "url": url + PATH, "json": body, "headers": headers}

    def _cut(self, operation: Operation, error: httpx.TransportError) -> None:
        operation.doubtful = True
        operation.cuts += operation.acknowledged is not None
        killed = not isinstance(error, httpx.TimeoutException)
        if killed and self._random.random() < self._forgetful:
            operation.forgot, operation.frames = True, []

    async def _read(self, operation: Operation, response: httpx.Response) -> None:
        if operation.acknowledged is None:
            operation.acknowledged = monotonic()
        run_id = response.headers.get("x-run-id", "")
        if operation.run_id and run_id != operation.run_id:
            operation.notes.append(f"run {operation.run_id} went on as {run_id}")
        operation.run_id = run_id
        reader = FrameReader()
        async for chunk in response.aiter_raw():
            for frame in reader.feed(chunk):
                if not _take(operation, frame):
                    return
        operation.cuts += not operation.ended


def _last_id(operation: Operation) -> str:
    return operation.frames[-1].id if operation.frames else ""


def _take(operation: Operation, frame: Frame) -> bool:
    """Keep a frame. False: read the run again from its start."""
    if frame.data == DONE:
        operation.ended = True
    elif frame.type == "error" and frame.event["code"] == "rewound":
        _told_of_void(operation)
        operation.void += len(operation.frames)
        operation.frames = []
        return False
    elif frame.type == "rewind":
        _told_of_void(operation)
        _void(operation, frame.event)
        return True
    operation.frames.append(frame)
    return True


def _told_of_void(operation: Operation) -> None:
    if operation.forgot:
        operation.notes.append("a post that was repeated from nothing got text that became void")


def _void(operation: Operation, rewind: Json) -> None:
    """Take out what stands behind the id that a rewind names."""
    ids = [frame.id for frame in operation.frames]
    good = [frame for frame in operation.frames if place_of(frame.id) <= place_of(rewind["to"])]
    operation.void += len(ids) - len(good)
    operation.frames = good


def place_of(event_id: str) -> tuple[int, int, int]:
    """The place that an id names, `<run>.<epoch>-<number>` or `<run>.<epoch>-<number>~<n>`."""
    place, _, piece = event_id.rpartition(".")[2].partition("~")
    epoch, number = place.split("-")
    return int(epoch), int(number), int(piece or 0)


def _refused(operation: Operation, response: httpx.Response, *, insists: bool) -> bool:
    """Note a refusal. True: it is final."""
    code = _code_of(response)
    refusal = f"{response.status_code} {code}"
    if response.status_code == 500 or not code:
        operation.notes.append(f"it was answered with {refusal}")
        operation.doubtful = True
        return True
    if code in PASSING:
        operation.doubtful |= code != "shutting_down"
        return False
    if operation.acknowledged is not None:
        operation.notes.append(f"coming back was refused: {refusal}")
        return True
    if insists and code == "conversation_busy":
        return False
    operation.refusal = refusal
    return True


def _code_of(response: httpx.Response) -> str:
    try:
        return str(response.json()["code"])
    except (ValueError, KeyError, TypeError):
        return ""


@asynccontextmanager
async def caller(
    workers: Workers,
    random: Random,
    *,
    patience: float = 30,
    rewinds: bool = False,
    forgets: bool = False,
) -> AsyncGenerator[Caller]:
    timeout = httpx.Timeout(random.uniform(*SILENCE), pool=60)
    async with httpx.AsyncClient(timeout=timeout, trust_env=False) as http:
        yield Caller(workers, http, random, patience=patience, rewinds=rewinds, forgets=forgets)
