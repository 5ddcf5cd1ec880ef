"""A scripted model service on this machine: HTTP as OpenAI's chat completions.

In a test: `async with model_server(reply, ...) as server`, then `server.base_url`. As a process,
whose script is a JSON list of replies: `python -m tests.support.model_server SCRIPT.json` prints
its base URL, and serves until its standard input ends. A JSON reply has the fields of `Reply`; its
steps are objects (events), strings (raw text), numbers (seconds), `"<cut>"` and `"<stall>"`.

It holds requests to the rules of `tests.support.provider_rules`, which providers enforce. What
breaks one gets a 400, and leaving the context is an AssertionError that shows it.
"""

import json
import re
import sys
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from tests.support.provider_rules import violations_of

Json: TypeAlias = dict[str, Any]


class Act(Enum):
    """Misbehaviour of a service."""

    CUT = "<cut>"
    """Closes the connection in the middle of the answer."""
    STALL = "<stall>"
    """Sends nothing more, and leaves the connection open."""


Step: TypeAlias = Json | bytes | float | anyio.Event | Act
"""An event, raw bytes, seconds to wait, a gate to wait at, misbehaviour. An event is one chunk."""

_TIME = re.compile(r"<user_context>\n<time>[^<]*</time>\n</user_context>\n{0,2}")

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Reply:
    """One answer. A status other than 200 usually has one step: its body."""

    steps: Sequence[Step] = ()
    status: int = 200
    headers: Mapping[str, str] = field(
        default_factory=lambda: {"content-type": "text/event-stream"}
    )
    ends: bool = True
    """True if the body is closed properly after the last step."""


@dataclass(frozen=True)
class Request:
    """One request; the names of the headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        parsed: Json = json.loads(self.body)
        return parsed

    @property
    def shown(self) -> list[Json]:
        """The messages, or items, without the default prompt of an agent: its rules, and the time."""
        messages = spoken_in(self.json)
        spoken = messages[1:] if messages and messages[0].get("role") == "system" else messages
        return [{**each, "content": _untimed(each.get("content"))} for each in spoken]


def spoken_in(body: Json) -> list[Json]:
    """The messages of a request, or the items of a protocol that has these."""
    spoken: list[Json] = body["messages"] if "messages" in body else body["input"]
    return spoken


def _untimed(content: Any) -> Any:
    if isinstance(content, str):
        return _TIME.sub("", content)
    if not isinstance(content, list):
        return content
    timeless = [
        {**part, "text": _TIME.sub("", part["text"])} if "text" in part else part
        for part in content
    ]
    return [part for part in timeless if part.get("text", True)]


# ---------------------------------------------------------------- writing replies
def event(finish: str | None = None, **delta: object) -> Json:
    """One chunk of an answer, with this delta."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice]}


def says(*pieces: str) -> Reply:
    """A text, one chunk for each piece."""
    return Reply([*(event(content=piece) for piece in pieces), event("stop"), DONE])


def calls(*tools: tuple[str, str, str]) -> Reply:
    """Return tool calls, given as id, name and JSON of the arguments, which come in two pieces."""
    steps: list[Step] = []
    for index, (call_id, name, arguments) in enumerate(tools):
        middle = len(arguments) // 2
        first = {"name": name, "arguments": arguments[:middle]}
        steps.append(event(tool_calls=[{"index": index, "id": call_id, "function": first}]))
        rest = {"arguments": arguments[middle:]}
        steps.append(event(tool_calls=[{"index": index, "function": rest}]))
    return Reply([*steps, event("tool_calls"), DONE])


def fails(status: int, body: Json | None = None, **headers: str) -> Reply:
    """An error instead of an answer; underscores in the names of headers stand for hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(
        [json.dumps(body or {}).encode()], status, {"content-type": "application/json"} | named
    )


# ---------------------------------------------------------------- the server
class ModelServer:
    """Play one reply for each completion that is asked for, in order; the last one again and again.

    Attributes:
        requests: completions that were asked for, and answered.
        violations: what was wrong with their messages, each followed by these; such a request gets
            a 400.
        open_answers: how many are being played now.
        left: set when a client closed the connection in the middle of an answer.
        lists: the path of its list of models; None: whatever ends so. Elsewhere it knows no
            address.
        looked: the requests for that list, wherever.
    """

    def __init__(self, replies: Iterable[Reply], models: Sequence[str] = ("mock",)) -> None:
        self.base_url = ""
        self.requests: list[Request] = []
        self.violations: list[str] = []
        self.open_answers = 0
        self.left = anyio.Event()
        self.models = Reply([json.dumps({"data": [{"id": name} for name in models]}).encode()])
        self.lists: str | None = None
        self.looked: list[Request] = []
        self._replies = list(replies)
        self._connections = 0

    @property
    def connections(self) -> int:
        """The number of connections so far."""
        return self._connections

    def play(self, *replies: Reply) -> None:
        """Begin anew with these: nothing was asked yet."""
        self._replies = list(replies)
        self.requests, self.left = [], anyio.Event()

    def play_afterwards(self, *replies: Reply) -> None:
        """Play these after those that are still to be played."""
        self._replies.extend(replies)

    def assert_no_violations(self) -> None:
        """Check that no request was one that a provider refuses; each is reported once."""
        violations, self.violations = self.violations, []
        assert violations == [], "\n".join(violations)

    async def serve(self, stream: SocketStream) -> None:
        """One connection."""
        self._connections += 1
        async with stream:
            received = BufferedByteReceiveStream(stream)
            try:
                while await self._exchange(stream, received):
                    pass
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.IncompleteRead):
                return

    async def _exchange(self, stream: SocketStream, received: BufferedByteReceiveStream) -> bool:
        """One request and its answer. False: the connection is not to be used again."""
        request = await _receive(received)
        reply = self._reply_to(request)
        await stream.send(_head(reply))
        self.open_answers += 1
        try:
            return await self._watched(stream, received, reply)
        finally:
            self.open_answers -= 1

    def _reply_to(self, request: Request) -> Reply:
        path = request.path.partition("?")[0]
        if path.endswith("/models"):
            self.looked.append(request)
            return self.models if self.lists in {None, path} else fails(404)
        body = request.json
        if wrong := "; ".join(self.breaches_of(body)):
            self.violations.append(f"{wrong}, in {json.dumps(spoken_in(body), indent=1)}")
            return fails(400, {"error": {"message": wrong, "type": "invalid_request_error"}})
        return self._answer_to(request)

    def breaches_of(self, body: Json) -> Sequence[str]:
        """Return what the provider would refuse in a request."""
        return violations_of(body["messages"])

    def _answer_to(self, request: Request) -> Reply:
        self.requests.append(request)
        if not self._replies:
            return fails(500, {"error": {"message": "the script is empty"}})
        return self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]

    async def _watched(
        self, stream: SocketStream, received: BufferedByteReceiveStream, reply: Reply
    ) -> bool:
        """Play a reply until it ends or the client leaves."""
        keeps = False
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                try:
                    received.feed_data(await stream.receive())  # the next request, early
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    self.left.set()
                    tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            try:
                keeps = await _play(stream, reply)
            except anyio.BrokenResourceError:
                self.left.set()
            tasks.cancel_scope.cancel()
        return keeps


AnyServer = TypeVar("AnyServer", bound=ModelServer)


async def _play(stream: SocketStream, reply: Reply) -> bool:
    for step in reply.steps:
        match step:
            case Act.CUT:
                return False
            case Act.STALL:
                await anyio.sleep_forever()
            case anyio.Event():
                await step.wait()
            case bytes():
                await stream.send(_chunk(step))
            case dict():
                await stream.send(_chunk(b"data: " + json.dumps(step).encode() + b"\n\n"))
            case _:
                await anyio.sleep(step)
    if reply.ends:
        await stream.send(b"0\r\n\r\n")
    return reply.ends


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _head(reply: Reply) -> bytes:
    headers = {**reply.headers, "transfer-encoding": "chunked"}
    lines = [
        f"HTTP/1.1 {reply.status} Scripted",
        *(f"{k}: {v}" for k, v in headers.items()),
        "",
        "",
    ]
    return "\r\n".join(lines).encode()


async def _receive(received: BufferedByteReceiveStream) -> Request:
    head = await received.receive_until(b"\r\n\r\n", 64 * 1024)
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {
        name.lower(): value.strip() for name, _, value in (li.partition(":") for li in lines)
    }
    body = await received.receive_exactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, body)


@asynccontextmanager
async def model_server(
    *replies: Reply, models: Sequence[str] = ("mock",)
) -> AsyncGenerator[ModelServer]:
    """A server that plays these.

    Raises:
        AssertionError: on leaving: a request broke a rule.
    """
    async with listening(ModelServer(replies, models)) as server:
        yield server
    server.assert_no_violations()


@asynccontextmanager
async def listening(server: AnyServer) -> AsyncGenerator[AnyServer]:
    """A server on a free port of 127.0.0.1; leaving ends it with all its connections."""
    multi = await anyio.create_tcp_listener(local_host="127.0.0.1")
    [listener] = multi.listeners
    port = listener.extra(SocketAttribute.local_port)
    server.base_url = f"http://127.0.0.1:{port}/v1"
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, server.serve)
        yield server
        tasks.cancel_scope.cancel()


# ---------------------------------------------------------------- as a process
def _step(value: object) -> Step:
    match value:
        case dict() | float() | int():
            return value
        case str() if value in {act.value for act in Act}:
            return Act(value)
        case str():
            return value.encode()
        case _:
            raise SystemExit(f"not a step: {value!r}")


def read_script(text: str) -> list[Reply]:
    """The replies of a JSON script."""
    return [
        Reply(**{**fields, "steps": [_step(step) for step in fields.get("steps", ())]})
        for fields in json.loads(text)
    ]


async def _main(script: Path) -> None:
    replies = read_script(await anyio.Path(script).read_text())
    async with model_server(*replies) as server:
        sys.stdout.write(f"{server.base_url}\n")
        sys.stdout.flush()
        await anyio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)


if __name__ == "__main__":
    anyio.run(_main, Path(sys.argv[1]))
