"""The client's side of `/send-message`: posts, and a reader of well-formed frames only."""

import json
import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

import anyio
import httpx

Json: TypeAlias = dict[str, Any]

PATH = "/send-message"
SECONDS = 30
"""Time that one read may take."""

_FRAME = re.compile(rb"(?:id: (?P<id>[\x21-\x7e]+)\n)?data: (?P<data>[\x20-\x7e]+)\n\n")
_NOISE = re.compile(rb"(?:: [\x20-\x7e]*|retry: [0-9]+)\n\n")


# ---------------------------------------------------------------- posts
def user(content: object) -> Json:
    return {"role": "user", "content": content}


def result(call_id: str, content: object) -> Json:
    return {"role": "tool", "toolCallId": call_id, "content": content}


def client_tool(name: str, **properties: Json) -> Json:
    """A tool whose parameters are all required."""
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": "", "parameters": json.dumps(schema)}


def keyed(key: str, *, after: str | None = None) -> dict[str, str]:
    """Return the headers of a repeatable post; `after` is the last id seen of its answer."""
    return {"idempotency-key": key} | ({"last-event-id": after} if after else {})


COLOR = client_tool("set-color", color={"type": "string", "enum": ["blue", "red"]})
ZONE = client_tool("get-time-zone")


# ---------------------------------------------------------------- answers
@dataclass(frozen=True, slots=True)
class Frame:
    """`id` is empty where an answer has no run, and so no log that a client could come back to."""

    id: str
    data: str

    @property
    def event(self) -> Json:
        """Raises ValueError for `[DONE]`, which is no event."""
        event: Json = json.loads(self.data)
        return event

    @property
    def type(self) -> str:
        return self.data if self.data == "[DONE]" else str(self.event["type"])


DONE = "[DONE]"


@dataclass(frozen=True, slots=True)
class Call:
    id: str
    name: str
    arguments: Any


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole response: `frames` of a stream, or else `body`."""

    status: int
    headers: httpx.Headers
    body: bytes
    frames: tuple[Frame, ...] = ()

    @property
    def json(self) -> Json:
        value: Json = json.loads(self.body)
        return value

    @property
    def types(self) -> list[str]:
        """The types of the frames, neighbours of one type counted once."""
        return [kind for kind, _ in groupby(frame.type for frame in self.frames)]

    @property
    def text(self) -> str:
        return text_of(self.frames)

    @property
    def calls(self) -> list[Call]:
        """The calls that have ended, in that order."""
        events = [frame.event for frame in self.frames if frame.data != DONE]
        names = {e["toolCallId"]: e["toolCallName"] for e in _of(events, "tool-call-start")}
        pieces = _of(events, "tool-call-args")
        return [
            Call(call, names[call], json.loads("".join(_deltas(pieces, call))))
            for call in (e["toolCallId"] for e in _of(events, "tool-call-end"))
        ]

    @property
    def call(self) -> Call:
        """The only call."""
        [call] = self.calls
        return call


def text_of(frames: Iterable[Frame]) -> str:
    return "".join(frame.event["content"] for frame in frames if frame.type == "text")


def merged(frames: Iterable[Frame]) -> list[tuple[str, str]]:
    """Return ids and data, with neighbouring pieces joined, because their cuts may differ."""
    whole: list[tuple[str, str]] = []
    for _, group in groupby(frames, key=_stream_of):
        pieces = list(group)
        event = pieces[-1].event if pieces[-1].data != DONE else {}
        for field in {"content", "delta"} & event.keys():
            event[field] = "".join(piece.event[field] for piece in pieces)
        whole.append((pieces[-1].id, json.dumps(event) if event else DONE))
    return whole


def place_of(event_id: str) -> tuple[int, int, int]:
    """Return the order of an id in its run: `<run>.<epoch>-<number>`, or `~<n>` for more frames."""
    place, _, piece = event_id.rpartition(".")[2].partition("~")
    epoch, number = place.split("-")
    return int(epoch), int(number), int(piece or 0)


def without_void(frames: Iterable[Frame]) -> list[Frame]:
    """Return the frames that a reader keeps who obeys each `rewind`."""
    kept: list[Frame] = []
    for frame in frames:
        if frame.type == "rewind":
            kept = [each for each in kept if place_of(each.id) <= place_of(frame.event["to"])]
        else:
            kept.append(frame)
    return kept


def _stream_of(frame: Frame) -> object:
    if frame.type in {"text", "reasoning"}:
        return frame.type
    return frame.event["toolCallId"] if frame.type == "tool-call-args" else frame


def _of(events: Iterable[Json], kind: str) -> list[Json]:
    return [event for event in events if event["type"] == kind]


def _deltas(pieces: Iterable[Json], call_id: str) -> list[str]:
    return [piece["delta"] for piece in pieces if piece["toolCallId"] == call_id]


class FrameReader:
    """Turn bytes into frames. Comments and `retry:` are skipped; other stray bytes are an error."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[Frame]:
        self._rest += chunk
        frames: list[Frame] = []
        while b"\n\n" in self._rest:
            found = _FRAME.match(self._rest)
            if found:
                frames.append(Frame((found["id"] or b"").decode(), found["data"].decode()))
            match = found or _NOISE.match(self._rest)
            assert match, f"not a frame of ours: {self._rest[:200]!r}"
            self._rest = self._rest[match.end() :]
        return frames

    def close(self) -> None:
        assert self._rest == b"", f"an unfinished frame: {self._rest[:200]!r}"


class Stream:
    """A response that is being read."""

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.raw = b""
        self.frames: list[Frame] = []
        self._chunks = response.aiter_raw()
        self._reader = FrameReader()
        self._ready: list[Frame] = []

    async def next(self) -> Frame:
        """The next frame. Raises StopAsyncIteration at the end of the response."""
        while not self._ready:
            chunk = await anext(self._chunks)
            self.raw += chunk
            self._ready = self._reader.feed(chunk)
        frame = self._ready.pop(0)
        self.frames.append(frame)
        return frame

    async def take(self, count: int) -> list[Frame]:
        return [await self.next() for _ in range(count)]

    async def until(self, kind: str) -> Frame:
        """The next frame of this type; what comes before it is in `frames`."""
        while (frame := await self.next()).type != kind:
            pass
        return frame

    async def whole_run(self) -> list[Frame]:
        """Read to the end of a run."""
        frames = [await self.next()]
        while frames[-1].type != "run-end":
            frames.append(await self.next())
        return frames

    async def whole(self) -> Answer:
        """Read to the end."""
        if self.headers["content-type"].startswith("text/event-stream"):
            try:
                while True:
                    await self.next()
            except StopAsyncIteration:
                self._reader.close()
        else:
            self.raw = b"".join([chunk async for chunk in self._chunks])
        return self.so_far

    async def until_cut(self) -> Answer:
        """Read until the connection breaks. Raises StopAsyncIteration if it does not."""
        try:
            while True:
                await self.next()
        except (httpx.RemoteProtocolError, httpx.ReadError):
            return self.so_far

    @property
    def so_far(self) -> Answer:
        return Answer(self.status, self.headers, self.raw, tuple(self.frames))


# ---------------------------------------------------------------- the client
class Client:
    """Speaks to one server, as the program of a user would."""

    def __init__(self, url: str, *, key: str | None = None) -> None:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self.http = httpx.AsyncClient(
            base_url=url, headers=headers, timeout=SECONDS, trust_env=False
        )

    def stream(
        self,
        conversation: str,
        messages: Sequence[Json],
        *,
        path: str = PATH,
        headers: Mapping[str, str] | None = None,
        **more: object,
    ) -> AbstractAsyncContextManager[Stream]:
        """Post messages; `more` are further keys of the body."""
        body = {"conversationId": conversation, "messages": list(messages), **more}
        return self._stream("POST", path, json=body, headers=headers)

    async def post(self, conversation: str, *messages: Json, **more: Any) -> Answer:
        """Post messages and read the whole answer."""
        async with self.stream(conversation, messages, **more) as stream:
            return await stream.whole()

    def follow(
        self,
        conversation: str,
        *,
        after: str | None = None,
        run_id: str | None = None,
        include: Sequence[str] = (),
    ) -> AbstractAsyncContextManager[Stream]:
        """Read the newest run of a conversation or a named one, or go on after an id."""
        headers = {"last-event-id": after} if after else {}
        asked = {"include": ",".join(include)} if include else {}
        asked |= {"runId": run_id} if run_id else {}
        path = f"/conversations/{conversation}/stream"
        return self._stream("GET", path, headers=headers, params=asked)

    def watch(
        self, conversation: str, *, after: str | None = None
    ) -> AbstractAsyncContextManager[Stream]:
        """Read all runs of a conversation, from now on or behind an id."""
        headers = {"last-event-id": after} if after else {}
        return self._stream("GET", f"/conversations/{conversation}/events", headers=headers)

    async def replay(self, conversation: str, **more: Any) -> Answer:
        """Follow to the end; `more` as for `follow`."""
        async with self.follow(conversation, **more) as stream:
            return await stream.whole()

    async def conversation(self, conversation: str) -> Json:
        """Return what GET shows of a conversation, and all of its messages."""
        found = await self.http.get(f"/conversations/{conversation}")
        if found.status_code != 200:
            return {"status": found.status_code, "code": found.json()["code"]}
        page = await self.http.get(f"/conversations/{conversation}/messages?limit=1000")
        return {**found.json(), **page.json()}

    async def messages(self, conversation: str) -> list[Json]:
        found: list[Json] = (await self.conversation(conversation))["messages"]
        return found

    async def cancel(self, conversation: str, *, run_id: str | None = None) -> httpx.Response:
        named = {"runId": run_id} if run_id else {}
        return await self.http.post(f"/conversations/{conversation}/cancel", params=named)

    async def until_refused(self) -> None:
        """Ask whether the server is ready until it is about to stop or refuses connections."""
        with anyio.fail_after(SECONDS):
            while True:
                try:
                    ready = await self.http.get("/readyz")
                except httpx.TransportError:
                    return
                if ready.status_code != 200:
                    assert ready.json()["code"] == "shutting_down"
                    return

    @asynccontextmanager
    async def _stream(self, method: str, path: str, **request: Any) -> AsyncGenerator[Stream]:
        async with self.http.stream(method, path, **request) as response:
            yield Stream(response)


@asynccontextmanager
async def client_of(url: str, *, key: str | None = None) -> AsyncGenerator[Client]:
    client = Client(url, key=key)
    async with client.http:
        yield client


# ---------------------------------------------------------------- refusals
def check_refusal(answer: httpx.Response, status: int, code: str) -> None:
    """A refusal has this status and code, in the one form of all refusals."""
    body: Json = answer.json()
    assert (answer.status_code, body["code"]) == (status, code), body
    assert answer.headers["content-type"] == "application/json"
    assert body.keys() - {"details"} == {"code", "message", "request_id"}
    assert body["message"]
    assert body["request_id"] == answer.headers["x-request-id"]
