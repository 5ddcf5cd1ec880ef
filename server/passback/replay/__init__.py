"""Replay of a recorded run to a client, without the server and the model that it came from.

The file is what the playground exports (`recording`). A recording answers posts with the recorded
frames, at their recorded times, and fails as it did when it was recorded, and as its reader wants
(`faults`).
"""

from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from time import monotonic, time
from typing import Literal, TypeAlias

import anyio
from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import override

from passback.core.changes import Status
from passback.core.errors import InvalidCursor, UnknownRun, UnknownToolCall
from passback.core.messages import ConversationId, RunId
from passback.core.values import value
from passback.hotpath.sending import send_now
from passback.http.answers import empty_answer, json_answer, request_id
from passback.http.body import read_object
from passback.http.gate import Access
from passback.http.routing import Endpoint
from passback.http.site import build_site
from passback.http.wires import PartialBodies, RequestLimits, Wire
from passback.native.history import conversation_view
from passback.native.times import utc_timestamp
from passback.replay.faults import (
    BreakOff,
    Lose,
    Plan,
    PlayedFrame,
    PlayLog,
    Refuse,
    TakeOver,
    plan_play,
)
from passback.replay.recording import (
    Exchange,
    Faults,
    RecordedResponse,
    Recording,
    answered_calls,
)
from passback.streams.sse import opening_comment, stream_headers
from passback.streams.writer import body_message
from passback.wire.page import build_page

_KEPT_HEADERS = ("x-owed-tool-calls", "retry-after")
_MAX_KEYS = 1000  # idempotency keys that are remembered, the newest
_MAX_ID_CHARACTERS = 256  # of a conversation

_CLAIM_SECONDS = 30
_AT_START = ".0-0"  # the end of an id that stands for the beginning of its run

_LIMITS = RequestLimits()


@value
class PlayFaults:
    """The faults of a replay that go before those of its recording.

    Args:
        fields: the fields of `Faults` that take the place of the recording's, by their names.
        ignores_recorded: nothing that is recorded goes wrong, and the faults in the file count for
            nothing.
    """

    fields: Mapping[str, object]
    ignores_recorded: bool = False

    def apply(self, faults: Faults) -> Faults:
        """Return the faults of an exchange."""
        return (Faults() if self.ignores_recorded else faults).model_copy(update=self.fields)


def replay_site(
    recording: Recording, /, *, speed: float = 1, faults: PlayFaults | None = None
) -> ASGIApp:
    """Build the playground and the routes that a client of the recorded runs needs.

    Only clients and pages of this machine may use it.

    Args:
        recording: the exchanges to play.
        speed: factor of the recorded speed; 0: without pauses.
        faults: instead of those of the recording.
    """
    player = _Player(recording, speed, faults or PlayFaults({}))
    return build_site([player.build_wire(), build_page()], Access(loopback_pages=True))


class _Play:
    """One play of an exchange: its frames, its clock, and what still goes wrong in it."""

    def __init__(self, exchange: Exchange, plan: Plan, speed: float) -> None:
        self.exchange = exchange
        self.log = PlayLog(exchange.frames)
        self._plan = plan
        self._failures = deque(plan.failures)
        self._speed = speed
        self.begun: float | None = None
        self._worker = 1

    def begin(self) -> None:
        """Start the clock, once: a client that connects again is where the others are."""
        if self.begun is None:
            self.begun = monotonic()

    def next_refusal(self) -> RecordedResponse | None:
        """Return the refusal that a request meets at this moment, for this one time."""
        if not (self._failures and isinstance(failure := self._failures[0], Refuse)):
            return None
        self._failures.popleft()
        return failure.response

    def loses_answer(self) -> bool:
        """Return whether a request gets no answer, for this one time."""
        if not (self._failures and isinstance(self._failures[0], Lose)):
            return False
        self._failures.popleft()
        return True

    async def until_begun(self) -> None:
        """Wait until a response may begin."""
        await self._sleep_until(self._plan.delay_first / 1000)

    def chunks(self, frames: Sequence[PlayedFrame], opening: str) -> AsyncGenerator[str | None]:
        """Return the text of a stream, piece by piece; None last if it breaks off there.

        `frames` are those of the log at this moment.
        """
        return self._read_frames(frames, opening, self._worker)

    async def _read_frames(
        self, frames: Sequence[PlayedFrame], opening: str, worker: int
    ) -> AsyncGenerator[str | None]:
        count = frames[0].count - 1 if frames else 0
        yield opening
        text = ""
        for one in frames:
            if self._worker != worker or self._breaks_off(count):
                break
            if self._is_early(one):
                yield text
                text = ""
                await self._sleep_until(self._due(one))
            if self._worker != worker:  # it died, and another reader has seen that
                break
            text += _frame_text(one.frame.id, one.frame.data)
            count = one.count
        else:
            yield text
            return
        yield text
        yield None

    def _breaks_off(self, count: int) -> bool:
        """Return whether a stream breaks off behind so many frames, for this one time."""
        failure = self._failures[0] if self._failures else None
        if not isinstance(failure, BreakOff | TakeOver) or failure.after > count:
            return False
        self._failures.popleft()
        if isinstance(failure, TakeOver) and (again := self.log.take_over(count)):
            self._worker += 1
            # the turn is played again from here on
            assert self.begun is not None
            self.begun += max(0.0, monotonic() - self.begun - self._due(again))
        return True

    def _due(self, one: PlayedFrame) -> float:
        """Return when a frame is due, in seconds since the beginning."""
        at = one.frame.at / self._speed if self._speed else 0
        return (self._plan.delay_first + at + self._plan.delay * one.count) / 1000

    def _is_early(self, one: PlayedFrame) -> bool:
        assert self.begun is not None
        return self.begun + self._due(one) > monotonic()

    async def _sleep_until(self, due: float) -> None:
        assert self.begun is not None
        await anyio.sleep(max(0.0, self.begun + due - monotonic()))


class _PlayResponse(StreamingResponse):
    """A stream of a play, which begins when that is due, and may break off."""

    def __init__(
        self, play: _Play, scope: Scope, chunks: AsyncGenerator[str | None], headers: dict[str, str]
    ) -> None:
        super().__init__((), headers=headers)
        self._play = play
        self._scope = scope
        self._chunks = chunks

    @override
    async def stream_response(self, send: Send) -> None:
        await self._play.until_begun()
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for chunk in self._chunks:
            if chunk is None:
                _break_off(self._scope)
                return
            if chunk:
                await send(body_message(chunk))
        await send(body_message("", more=False))


async def _lose_answer(scope: Scope, _receive: Receive, _send: Send) -> None:
    _break_off(scope)


def _break_off(scope: Scope) -> None:
    if (direct := send_now(scope)) is not None:
        direct.break_off()  # other servers break it off when the application returns


@value
class _Reader:
    """The wishes of a request: the events after an id, with `rewind` events among them or not."""

    conversation_id: ConversationId
    after: str | None
    rewinds: bool


class _Player:
    """Player of one recording.

    Every conversation id stands for the recorded conversation, because clients choose their own.
    """

    def __init__(self, recording: Recording, speed: float, faults: PlayFaults) -> None:
        self._recording = recording
        self._exchanges = recording.exchanges
        # a file without it, which was not exported, is from the time when it is played
        self._started = recording.startedAt or datetime.now(UTC)
        self._speed = speed
        self._faults = faults
        self._bodies = PartialBodies()
        self._openings = _Openings(recording.exchanges)
        # the newest play of each exchange; one that has not begun was only refused so far
        self._plays: dict[int, _Play] = {}
        self._planned = 0
        self._known: dict[str, _Play] = {}

    def build_wire(self) -> Wire:
        one = "/conversations/{conversation_id}"
        claim = f"{one}/tool-calls/{{call_id}}/claim"
        read_messages = _always({"messages": [], "next": None, "total": 0})
        cancel_run = _always({"cancelled": False})
        return Wire(
            routes=[
                # any query is accepted: the answer is recorded, whatever it asks for
                Endpoint("/send-message", self.answer_post, methods=["POST"], query=None),
                Endpoint(
                    "/v1/aibot/bots/{agent_id}/send-message",
                    self.answer_post,
                    methods=["POST"],
                    query=None,
                ),
                Endpoint(f"{one}/stream", self.answer_follow, methods=["GET"], query=None),
                Endpoint(f"{one}/messages", read_messages, methods=["GET"], query=None),
                Endpoint(f"{one}/cancel", cancel_run, methods=["POST"], query=None),
                Endpoint(claim, self.grant_claim, methods=["POST"], query=None),
                Endpoint(claim, _release_claim, methods=["DELETE"], query=None),
                Endpoint(one, self.get_conversation, methods=["GET"], query=None),
            ]
        )

    async def answer_post(self, request: Request) -> ASGIApp:
        body = await read_object(request, _LIMITS, self._bodies)
        key = request.headers.get("idempotency-key")
        play = self._known.get(key) if key else None
        if play is None:
            index = self._choose_exchange(body)
            play = self._plan_play(index)
            if refusal := play.next_refusal():
                return _refusal_answer(request, refusal)
            play.begin()
            if not answered_calls(body):
                self._openings.advance(body)
            self._remember(key, play)
        elif refusal := play.next_refusal():
            return _refusal_answer(request, refusal)
        given = body.get("conversationId")
        # the server would refuse an illegal id with a 422; here any post is answered
        is_id = isinstance(given, str) and len(given) <= _MAX_ID_CHARACTERS
        include = body.get("include")
        reader = _Reader(
            ConversationId(str(given) if is_id else "replay"),
            request.headers.get("last-event-id"),
            isinstance(include, list) and "rewind" in include,
        )
        return self._answer(request, play, reader)

    def _choose_exchange(self, body: dict[str, JsonValue]) -> int:
        """Return the index of the exchange that answers a post.

        Results get the recorded answer to results of the same calls.
        """
        if not (calls := answered_calls(body)):
            return self._openings.choose(body)
        for index, exchange in enumerate(self._exchanges):
            if exchange.request.answered_calls & calls:
                return index
        raise UnknownToolCall("the recording has no answer to a result of this call")

    def _plan_play(self, index: int) -> _Play:
        """Return the play of an exchange that is next, the same until it has begun."""
        play = self._plays.get(index)
        if play is not None and play.begun is None:
            return play
        self._planned += 1
        exchange = self._exchanges[index]
        faults = self._faults.apply(exchange.faults or self._recording.faults)
        plan = plan_play(
            exchange, faults, self._planned, recorded=not self._faults.ignores_recorded
        )
        self._plays[index] = play = _Play(exchange, plan, self._speed)
        return play

    def _remember(self, key: str | None, play: _Play) -> None:
        if key is None:
            return
        self._known[key] = play
        # dicts keep their order: the first key is the oldest
        if len(self._known) > _MAX_KEYS:
            del self._known[next(iter(self._known))]

    async def answer_follow(self, request: Request) -> ASGIApp:
        query = request.query_params
        after = request.headers.get("last-event-id") or query.get("lastEventId")
        run_id = query.get("runId")
        if after and after.endswith(_AT_START):
            run_id, after = after.removesuffix(_AT_START), None
        play = self._play_of_event(after) if after else self._play_of_run(run_id)
        play.begin()
        if refusal := play.next_refusal():
            return _refusal_answer(request, refusal)
        conversation = ConversationId(request.path_params["conversation_id"])
        rewinds = "rewind" in query.get("include", "").split(",")
        return self._answer(request, play, _Reader(conversation, after, rewinds))

    def _play_of_event(self, event_id: str) -> _Play:
        for play in self._plays.values():
            if play.log.holds(event_id):
                return play
        for index, exchange in enumerate(self._exchanges):
            if any(frame.id == event_id for frame in exchange.frames):
                return self._plays.get(index) or self._plan_play(index)
        raise InvalidCursor("the recording has no event with this id")

    def _play_of_run(self, run_id: str | None) -> _Play:
        """Return the newest play of a run; without an id, of the run that was begun last."""
        index: int | None
        if run_id is None:
            begun = {index: play.begun or 0 for index, play in self._plays.items()}
            index = max(begun, key=begun.__getitem__, default=0)
        else:
            known = enumerate(self._exchanges)
            index = next((number for number, one in known if one.run_id == run_id), None)
            if index is None:
                raise UnknownRun("the recording has no such run")
        return self._plays.get(index) or self._plan_play(index)

    def _answer(self, request: Request, play: _Play, reader: _Reader) -> ASGIApp:
        if play.loses_answer():
            return _lose_answer
        exchange = play.exchange
        response = exchange.response
        assert response is not None  # a recording has only exchanges with a response
        if response.status != 200:
            return _refusal_answer(request, response)
        run_id = RunId(exchange.run_id) if exchange.run_id else None
        headers = stream_headers(request.scope, reader.conversation_id, run_id)
        frames = play.log.frames_after(reader.after, rewinds=reader.rewinds)
        chunks = play.chunks(frames, opening_comment(reader.conversation_id))
        return _PlayResponse(play, request.scope, chunks, headers | _kept_headers(response))

    async def grant_claim(self, request: Request) -> ASGIApp:
        """Grant every claim: of a call that is played again, a claim cannot be over."""
        claimant = (await read_object(request, _LIMITS, self._bodies)).get("claimant")
        expires = utc_timestamp(int(1000 * (time() + _CLAIM_SECONDS)))
        view = {"callId": request.path_params["call_id"], "claimant": claimant}
        return json_answer(request.scope, {**view, "expiresAt": expires})

    async def get_conversation(self, request: Request) -> ASGIApp:
        conversation_id = ConversationId(request.path_params["conversation_id"])
        started = int(self._started.timestamp() * 1000)
        status = Status(created=started, updated=started)
        return json_answer(request.scope, conversation_view(conversation_id, status))


class _Openings:
    """The exchanges that answer posts without results, each kind in turn, over and over.

    The kinds are messages, edits (`after`, with messages) and regenerated answers (`after`, without
    messages). A post of a kind that the recording lacks counts as a message.
    """

    def __init__(self, exchanges: Sequence[Exchange]) -> None:
        # those that answer a user's message; without any, those of followed runs, or else all
        numbered = list(enumerate(exchanges))
        fresh = [each for each in numbered if not each[1].request.answered_calls]
        posts = [each for each in fresh if each[1].request.method == "POST"]
        self._exchanges = dict(posts or fresh or numbered)
        self._played = Counter[_Kind]()

    def choose(self, body: dict[str, JsonValue]) -> int:
        """Return the index of the exchange that answers a post next."""
        kind, indexes = self._indexes_for(body)
        return indexes[self._played[kind] % len(indexes)]

    def advance(self, body: dict[str, JsonValue]) -> None:
        """Note that the post was answered: the next one of its kind gets the next exchange."""
        self._played[self._indexes_for(body)[0]] += 1

    def _indexes_for(self, body: dict[str, JsonValue]) -> "tuple[_Kind, list[int]]":
        kind = _kind_of(body)
        same = [n for n, one in self._exchanges.items() if _kind_of(one.request.body or {}) == kind]
        if same:
            return kind, same
        if kind != "message":
            return self._indexes_for({})
        return kind, list(self._exchanges)


_Kind: TypeAlias = Literal["message", "edit", "regeneration"]


def _kind_of(body: dict[str, JsonValue]) -> _Kind:
    if not isinstance(body.get("after"), str):
        return "message"
    return "edit" if body.get("messages") else "regeneration"


def _frame_text(event_id: str, data: str) -> str:
    return (f"id: {event_id}\n" if event_id else "") + f"data: {data}\n\n"


def _kept_headers(response: RecordedResponse) -> dict[str, str]:
    return {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}


def _refusal_answer(request: Request, response: RecordedResponse) -> ASGIApp:
    body = response.body if isinstance(response.body, dict) else {"message": response.body}
    if body.get("request_id") == "":  # a fault's: no server has given it
        body = {**body, "request_id": request_id(request.scope)}
    headers = _kept_headers(response)
    return json_answer(request.scope, body, status=response.status, headers=headers)


async def _release_claim(request: Request) -> ASGIApp:
    return empty_answer(request.scope)


def _always(answer: dict[str, JsonValue]) -> Callable[[Request], Awaitable[ASGIApp]]:
    async def respond(request: Request) -> ASGIApp:
        return json_answer(request.scope, answer)

    return respond
