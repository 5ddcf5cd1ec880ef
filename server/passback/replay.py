"""Replay of a recorded run to a client, without the server and the model that it came from.

The file is what the playground exports: format `passback-run`, version 1
(docs/how-to/playground.md). A recording answers posts with the recorded frames, at their recorded
times.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from time import monotonic
from typing import Annotated, Literal, cast

import anyio
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp

from passback.core.changes import Status
from passback.core.errors import ConfigurationError, InvalidCursor, UnknownRun, UnknownToolCall
from passback.core.messages import ConversationId, RunId
from passback.http.answers import json_answer
from passback.http.body import read_object
from passback.http.gate import Access
from passback.http.routing import Endpoint
from passback.http.site import build_site
from passback.http.wires import PartialBodies, RequestLimits, Wire
from passback.native.history import conversation_view
from passback.streams.sse import opening_comment, stream_headers
from passback.wire.page import build_page

FORMAT = "passback-run"
VERSION = 1
MAX_BYTES = 64 * 1024 * 1024  # of a file
_DAY = 24 * 60 * 60 * 1000  # milliseconds

# a line break would end a field of the server-sent event that is made of it
_OneLine = Annotated[str, Field(pattern=r"^[^\r\n\x00]*$")]
_HeaderValue = Annotated[str, Field(pattern=r"^[\x20-\x7e]*$", max_length=8192)]
_Moment = Annotated[float, Field(ge=0, le=_DAY, allow_inf_nan=False)]


class _RecordingModel(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class Frame(_RecordingModel):
    """One server-sent event. `at` is in milliseconds since the request."""

    at: _Moment
    id: _OneLine
    data: _OneLine


class RecordedRequest(_RecordingModel):
    """A post, or a request to follow a run."""

    method: Literal["GET", "POST"]
    path: str
    body: dict[str, JsonValue] | None = None

    @property
    def answered_calls(self) -> frozenset[str]:
        """The calls whose results the request brings."""
        return answered_calls(self.body or {})


class RecordedResponse(_RecordingModel):
    """Status and headers of the response. `body` is that of a refusal."""

    status: Annotated[int, Field(ge=200, le=599)]
    headers: dict[str, _HeaderValue] = Field(default_factory=dict)
    body: JsonValue = None


class Exchange(_RecordingModel):
    """A request and all frames of its response, read on one or several connections."""

    request: RecordedRequest
    response: RecordedResponse | None
    frames: tuple[Frame, ...] = Field(strict=False)

    @property
    def run_id(self) -> str | None:
        """The run whose frames these are."""
        return self.response.headers.get("x-run-id") if self.response else None


class Recording(_RecordingModel):
    """The exchanges that have a response, oldest first. `startedAt` is when the first one began."""

    startedAt: Annotated[AwareDatetime, Field(strict=False)] | None = None  # noqa: N815
    exchanges: tuple[Exchange, ...] = Field(strict=False)


def answered_calls(body: dict[str, JsonValue], /) -> frozenset[str]:
    """Return the calls whose results are in the body of a post, well-formed or not."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return frozenset()
    calls = [message.get("toolCallId") for message in messages if isinstance(message, dict)]
    return frozenset(call for call in calls if isinstance(call, str))


def load_recording(path: Path, /) -> Recording:
    """Read a recording from a file.

    Raises:
        ConfigurationError: the file cannot be read, is too large, or is not a recording of this
            version. The text says which.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)  # one more shows that a file is too large
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    if len(text) > MAX_BYTES:
        raise ConfigurationError(f"{path}: larger than {MAX_BYTES // 1024 // 1024} MiB")
    try:
        return parse_recording(text)
    except ValueError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def parse_recording(text: bytes, /) -> Recording:
    """Return the recording in a file's content. Raise ValueError with what is wrong."""
    try:
        value = cast("JsonValue", from_json(text, allow_inf_nan=False))
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise ValueError(f'not an exported run: it has no "format": "{FORMAT}"')
    if value.get("version") != VERSION:
        found = str(value.get("version"))[:20]
        raise ValueError(f"of version {found}; this passback reads version {VERSION}")
    try:
        recording = Recording.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}") from None
    answered = tuple(each for each in recording.exchanges if each.response)
    if not answered:
        raise ValueError("no request in it has an answer")
    return Recording(startedAt=recording.startedAt, exchanges=answered)


_KEPT_HEADERS = ("x-owed-tool-calls", "retry-after")
_MAX_KEYS = 1000  # idempotency keys that are remembered, the newest
_MAX_ID_CHARACTERS = 256  # of a conversation

_LIMITS = RequestLimits()


def replay_site(recording: Recording, /, *, speed: float) -> ASGIApp:
    """Build the playground and the routes that a client of the recorded runs needs.

    Only clients and pages of this machine may use it.

    Args:
        recording: the exchanges to play.
        speed: factor of the recorded speed; 0: without pauses.
    """
    return build_site(
        [_Player(recording, speed).build_wire(), build_page()], Access(loopback_pages=True)
    )


class _Player:
    """Player of one recording.

    Every conversation id stands for the recorded conversation, because clients choose their own.
    """

    def __init__(self, recording: Recording, speed: float) -> None:
        self._exchanges = recording.exchanges
        # a file without it, which was not exported, is from the time when it is played
        self._started = recording.startedAt or datetime.now(UTC)
        self._speed = speed
        self._bodies = PartialBodies()
        # those that answer a user's message; without any, those of followed runs, or else all
        numbered = list(enumerate(recording.exchanges))
        fresh = [each for each in numbered if not each[1].request.answered_calls]
        posts = [index for index, exchange in fresh if exchange.request.method == "POST"]
        self._openings = posts or [index for index, _ in fresh or numbered]
        self._played = 0
        self._known: dict[str, int] = {}
        self._begun: dict[int, float] = {}

    def build_wire(self) -> Wire:
        one = "/conversations/{conversation_id}"
        read_messages = _always({"messages": [], "next": None, "total": 0})
        cancel_run = _always({"cancelled": False})
        return Wire(
            routes=[
                # any query is accepted: the answer is recorded, whatever it asks for
                Endpoint("/send-message", self.answer_post, methods=["POST"], query=None),
                Endpoint(f"{one}/stream", self.answer_follow, methods=["GET"], query=None),
                Endpoint(f"{one}/messages", read_messages, methods=["GET"], query=None),
                Endpoint(f"{one}/cancel", cancel_run, methods=["POST"], query=None),
                Endpoint(one, self.get_conversation, methods=["GET"], query=None),
            ]
        )

    async def answer_post(self, request: Request) -> ASGIApp:
        body = await read_object(request, _LIMITS, self._bodies)
        key = request.headers.get("idempotency-key")
        known = self._known.get(key) if key else None
        index = self._choose_exchange(body) if known is None else known
        if known is None:
            self._begun[index] = monotonic()
        if key:
            self._known[key] = index
            # dicts keep their order: the first key is the oldest
            if len(self._known) > _MAX_KEYS:
                del self._known[next(iter(self._known))]
        given = body.get("conversationId")
        # the server would refuse an illegal id with a 422; here any post is answered
        is_id = isinstance(given, str) and len(given) <= _MAX_ID_CHARACTERS
        return self._play_exchange(request, index, str(given) if is_id else "replay")

    def _choose_exchange(self, body: dict[str, JsonValue]) -> int:
        """Return the index of the exchange that answers a post.

        Results get the recorded answer to results of the same calls. Messages get the recorded
        openings in turn, over and over.
        """
        if calls := answered_calls(body):
            for index, exchange in enumerate(self._exchanges):
                if exchange.request.answered_calls & calls:
                    return index
            raise UnknownToolCall("the recording has no answer to a result of this call")
        index = self._openings[self._played % len(self._openings)]
        self._played += 1
        return index

    async def answer_follow(self, request: Request) -> ASGIApp:
        after = request.headers.get("last-event-id") or request.query_params.get("lastEventId")
        run_id, known = request.query_params.get("runId"), enumerate(self._exchanges)
        if after:
            found = (n for n, one in known if any(frame.id == after for frame in one.frames))
            if (index := next(found, None)) is None:
                raise InvalidCursor("the recording has no event with this id")
        elif run_id is None:
            # the newest run is the one that was begun last
            index = max(self._begun, key=self._begun.__getitem__, default=0)
        elif (index := next((n for n, one in known if one.run_id == run_id), None)) is None:
            raise UnknownRun("the recording has no such run")
        return self._play_exchange(request, index, request.path_params["conversation_id"], after)

    def _play_exchange(
        self, request: Request, index: int, conversation_id: str, after: str | None = None
    ) -> ASGIApp:
        exchange = self._exchanges[index]
        response = exchange.response
        assert response is not None  # `load` keeps only exchanges with a response
        kept = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
        if response.status != 200:
            body = response.body if isinstance(response.body, dict) else {"message": response.body}
            return json_answer(request.scope, body, status=response.status, headers=kept)
        run_id = RunId(exchange.run_id) if exchange.run_id else None
        conversation = ConversationId(conversation_id)
        headers = stream_headers(request.scope, conversation, run_id) | kept
        seen = (n for n, frame in enumerate(exchange.frames) if frame.id == after)
        unseen = exchange.frames[max(seen, default=-1) + 1 :]
        frames = self._timed_frames(index, conversation, unseen)
        return StreamingResponse(frames, headers=headers)

    async def _timed_frames(
        self, index: int, conversation: ConversationId, frames: Sequence[Frame]
    ) -> AsyncGenerator[str]:
        # one clock per exchange: a client that connects again is where the others are
        begun = self._begun.setdefault(index, monotonic())
        yield opening_comment(conversation)
        for at, together in groupby(frames, key=lambda frame: frame.at):
            if self._speed:
                due = begun + at / 1000 / self._speed
                await anyio.sleep(max(0, due - monotonic()))
            yield "".join(
                (f"id: {frame.id}\n" if frame.id else "") + f"data: {frame.data}\n\n"
                for frame in together
            )

    async def get_conversation(self, request: Request) -> ASGIApp:
        conversation_id = ConversationId(request.path_params["conversation_id"])
        started = int(self._started.timestamp() * 1000)
        status = Status(created=started, updated=started)
        return json_answer(request.scope, conversation_view(conversation_id, status))


def _always(answer: dict[str, JsonValue]) -> Callable[[Request], Awaitable[ASGIApp]]:
    async def respond(request: Request) -> ASGIApp:
        return json_answer(request.scope, answer)

    return respond
