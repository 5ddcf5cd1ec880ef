"""A recording as a server: answers posts with the recorded frames, at their recorded times."""

from collections.abc import AsyncGenerator, Sequence
from itertools import groupby
from time import monotonic

import anyio
from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp

from passback.core.changes import Status
from passback.core.errors import InvalidCursor, UnknownRun, UnknownToolCall
from passback.core.messages import ConversationId, RunId
from passback.http.access import Access
from passback.http.answers import json_answer
from passback.http.body import read_object
from passback.http.routing import Endpoint
from passback.http.site import build_site
from passback.http.wires import PartialBodies, RequestLimits, Wire
from passback.native.history import conversation_view
from passback.replay.recording import Exchange, Frame, Recording, answered_calls
from passback.streams.sse import opening_comment, stream_headers
from passback.wire.page import build_page

_KEPT_HEADERS = ("x-owed-tool-calls", "retry-after")
_MAX_KEYS = 1000  # idempotency keys that are remembered, the newest
_MAX_ID_CHARACTERS = 256  # of a conversation

_LIMITS = RequestLimits()


def replay_site(recording: Recording, /, *, speed: float) -> ASGIApp:
    """Build the playground and the routes that a client of the recorded runs needs.

    Only clients of this machine may use it.

    Args:
        recording: the exchanges to play.
        speed: factor of the recorded speed; 0: without pauses.
    """
    return build_site([_Player(recording, speed).build_wire(), build_page()], Access())


class _Player:
    """Player of one recording.

    Every conversation id stands for the recorded conversation, because clients choose their own.
    """

    def __init__(self, recording: Recording, speed: float) -> None:
        self._exchanges = recording.exchanges
        self._speed = speed
        self._bodies = PartialBodies()
        self._openings = _opening_exchanges(recording.exchanges)
        self._played = 0
        self._known: dict[str, int] = {}
        self._begun: dict[int, float] = {}

    def build_wire(self) -> Wire:
        one = "/conversations/{conversation_id}"
        return Wire(
            routes=[
                # any query is accepted: the answer is recorded, whatever it asks for
                Endpoint("/send-message", self._answer_post, methods=["POST"], query=None),
                Endpoint(f"{one}/stream", self._answer_follow, methods=["GET"], query=None),
                Endpoint(f"{one}/messages", self._get_messages, methods=["GET"], query=None),
                Endpoint(f"{one}/cancel", self._cancel_run, methods=["POST"], query=None),
                Endpoint(one, self._get_conversation, methods=["GET"], query=None),
            ]
        )

    async def _answer_post(self, request: Request) -> ASGIApp:
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

    async def _answer_follow(self, request: Request) -> ASGIApp:
        after = request.headers.get("last-event-id") or request.query_params.get("lastEventId")
        index = (
            self._exchange_with_event(after)
            if after
            else self._exchange_of_run(request.query_params.get("runId"))
        )
        return self._play_exchange(request, index, request.path_params["conversation_id"], after)

    def _exchange_with_event(self, frame_id: str) -> int:
        for index, exchange in enumerate(self._exchanges):
            if any(frame.id == frame_id for frame in exchange.frames):
                return index
        raise InvalidCursor("the recording has no event with this id")

    def _exchange_of_run(self, run_id: str | None) -> int:
        if run_id is None:
            # the newest run is the one that was begun last
            return max(self._begun, key=self._begun.__getitem__, default=0)
        for index, exchange in enumerate(self._exchanges):
            if exchange.run_id == run_id:
                return index
        raise UnknownRun("the recording has no such run")

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

    async def _get_conversation(self, request: Request) -> ASGIApp:
        conversation_id = ConversationId(request.path_params["conversation_id"])
        return json_answer(request.scope, conversation_view(conversation_id, Status()))

    async def _get_messages(self, request: Request) -> ASGIApp:
        return json_answer(request.scope, {"messages": [], "next": None, "total": 0})

    async def _cancel_run(self, request: Request) -> ASGIApp:
        return json_answer(request.scope, {"cancelled": False})


def _opening_exchanges(exchanges: tuple[Exchange, ...]) -> list[int]:
    """Return the indexes of the exchanges that answer a user's message.

    Without any, those of followed runs; without these, of all exchanges.
    """
    numbered = list(enumerate(exchanges))
    fresh = [each for each in numbered if not each[1].request.answered_calls]
    posts = [index for index, exchange in fresh if exchange.request.method == "POST"]
    return posts or [index for index, _ in fresh or numbered]
