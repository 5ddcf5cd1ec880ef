"""The protocol's routes below `/api`: sessions, their turns, headless chats, and what there is."""

import json
import logging
import re
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from passback.core.changes import ConversationPlace, ListedConversation, Status
from passback.core.errors import Conflict, InvalidRequest
from passback.core.events import Cursor, Logged, Position, RunEvent, TextDelta
from passback.core.messages import (
    UNNAMED,
    ConversationId,
    ConversationKey,
    OwnerId,
    RunRef,
    UserMessage,
)
from passback.core.posts import Parked
from passback.core.titles import MAX_TITLE, check_title, first_title
from passback.http.answers import (
    ErrorForm,
    ErrorView,
    json_answer,
    lister_of,
    owner_of,
    written_answer,
)
from passback.http.body import read_object
from passback.http.requests import (
    check_conversation_id,
    headers_of,
    idempotency_key,
    number_parameter,
    posted_conversation_id,
    validate_model,
)
from passback.http.routing import Endpoint
from passback.http.wires import Services, Wire
from passback.native.document import MAX_WAIT_SECONDS, WaitedAnswer
from passback.native.parts import SnakeCased
from passback.native.times import utc_timestamp
from passback.wire.chat.describe import (
    ApiError,
    ApiHealth,
    ChatEnd,
    CreatedSession,
    DeletedSession,
    ModelsView,
    SessionPage,
    SessionView,
    TurnView,
    VersionView,
    describe_paths,
)
from passback.wire.chat.headless import HeadlessResult, raw_result
from passback.wire.chat.history import read_turns
from passback.wire.chat.posted import ChatSend, read_send
from passback.wire.chat.projections import JsonDict
from passback.wire.chat.turns import Turns

_DEFAULT_LIMIT: Final = 20
_MAX_LIMIT: Final = 100
_MOST_LISTED: Final = 1_000  # sessions of an owner that a list reaches; a search finds the others
_MOST_READS: Final = 50  # of the store, for one list
_MIN_SDK: Final = "0.1.0"
_WAIT: Final = re.compile(r"wait=(\d{1,4})")


class CreateSession(SnakeCased):
    """A new session. `intent` is its title; without one, its first message gives it a title."""

    intent: Annotated[str, Field(max_length=100_000)] | None = None
    model: JsonValue = None


class RenameSession(SnakeCased):
    """A new title of a session: one line of 1 to 200 characters."""

    intent: str


class HeadlessChat(ChatSend):
    """A headless chat: as `chat:send`. The session is that of the path."""

    session_id: str = ""


def build_rest(services: Services, /) -> Wire:
    """Return the part of the wire with its routes for plain requests."""
    rest = _Rest(services)
    session = "/api/sessions/{id}"
    return Wire(
        routes=[
            Endpoint(
                "/api/sessions",
                rest.answer_sessions,
                methods=["GET", "POST"],
                query={"GET": ["limit", "offset", "q", "template_id_prefix", "chat_group_id"]},
            ),
            Endpoint(
                session,
                rest.answer_session,
                methods=["GET", "PATCH", "DELETE"],
                query={"DELETE": ["delete_workspace"]},
            ),
            Endpoint(
                f"{session}/messages",
                rest.get_turns,
                methods=["GET"],
                query={"GET": ["after", "limit", "root_only"]},
            ),
            Endpoint(
                f"{session}/chat",
                rest.chat,
                methods=["POST"],
                query={"POST": ["event_format"]},
            ),
            Endpoint("/api/config/models", rest.get_models, methods=["GET"]),
            Endpoint("/api/version", rest.get_version, methods=["GET"]),
            # load balancers ask for it every few seconds: kept out of the log at INFO
            Endpoint("/api/health", rest.get_health, methods=["GET"], log_level=logging.DEBUG),
        ],
        paths=describe_paths(),
        types=(
            CreateSession,
            RenameSession,
            CreatedSession,
            DeletedSession,
            SessionView,
            SessionPage,
            TurnView,
            ModelsView,
            VersionView,
            ApiHealth,
            ApiError,
            ChatEnd,
            HeadlessChat,
        ),
        public=frozenset({"/api/version", "/api/health"}),
        error_form=form_error,
        error_root="/api/",
    )


def form_error(view: ErrorView, /) -> ErrorForm:
    """Return an error in the protocol's form, with the code beside it."""
    details = {"details": view.details} if view.details else {}
    said = {"detail": view.message, "code": view.code, **details}
    return ErrorForm({**said, "request_id": view.request_id})


class _Rest:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._runs = services.runs

    async def answer_sessions(self, request: Request) -> Response:
        if request.method == "POST":
            return await self._create(request)
        return await self._list(request)

    async def _create(self, request: Request) -> Response:
        """Create a session. One that a repeat of the post has created already is the same."""
        services, key = self._services, idempotency_key(headers_of(request.scope))
        posted = validate_model(
            CreateSession, await read_object(request, services.limits, services.bodies)
        )
        if posted.model is not None:
            raise InvalidRequest("model: choose it with each message, in chat:send")
        owner = owner_of(request)
        session_id = posted_conversation_id(owner, key, None)
        title = first_title((UserMessage(UNNAMED, posted.intent or ""),))
        with suppress(Conflict):  # a repeat with the same key has created it
            await self._runs.create(ConversationKey(owner, session_id), title=title)
        created: CreatedSession = {"session_id": session_id}
        return json_answer(request.scope, created)

    async def _list(self, request: Request) -> Response:
        owner, search = lister_of(request), request.query_params.get("q", "").strip()
        limit = number_parameter(request, "limit", _DEFAULT_LIMIT, most=_MAX_LIMIT, least=1)
        offset = number_parameter(request, "offset", 0, most=_MOST_LISTED)
        if len(search) > MAX_TITLE:
            raise InvalidRequest(f"q has {len(search)} characters, {MAX_TITLE} at most")
        found, is_whole = await self._find_sessions(owner, search)
        shown: SessionPage = {
            "items": [
                session_view(each.key.id, each.status) for each in found[offset : offset + limit]
            ],
            "total": len(found),
            "limit": limit,
            "offset": offset,
            "content_match_truncated": not is_whole,
        }
        return json_answer(request.scope, shown)

    async def _find_sessions(
        self, owner: OwnerId, search: str
    ) -> tuple[list[ListedConversation], bool]:
        """Return the newest sessions of an owner, and whether these are all."""
        found: list[ListedConversation] = []
        after: ConversationPlace | None = None
        for _ in range(_MOST_READS):
            page = await self._runs.conversations(
                owner, after=after, limit=_MAX_LIMIT, search=search
            )
            found += page.conversations
            after = page.next
            if after is None or len(found) >= _MOST_LISTED:
                break
        return found[:_MOST_LISTED], after is None and len(found) <= _MOST_LISTED

    async def answer_session(self, request: Request) -> Response:
        key, services = _session_key(request), self._services
        if request.method == "DELETE":
            await self._runs.delete(key)
            deleted: DeletedSession = {"deleted": True}
            return json_answer(request.scope, deleted)
        if request.method == "PATCH":
            body = await read_object(request, services.limits, services.bodies)
            title = check_title(validate_model(RenameSession, body).intent, field="intent")
            await self._runs.rename(key, title)
        return json_answer(request.scope, session_view(key.id, await self._runs.status(key)))

    async def get_turns(self, request: Request) -> Response:
        """Answer with the turns of a session, in an array, as a client of the socket has them."""
        query = request.query_params
        after = number_parameter(request, "after", 0, most=2**53)
        limit = number_parameter(request, "limit", 0, most=1_000, least=1)
        root_only = query.get("root_only", "false")
        if root_only not in {"true", "false"}:
            raise InvalidRequest("root_only has to be true or false")
        key = _session_key(request)
        turns = await read_turns(
            self._runs,
            key,
            after=after,
            limit=limit or None,
            most=self._services.limits.answer_chars,
        )
        if root_only == "true":
            turns = [turn for turn in turns if turn["parent_fork_tool_call_id"] is None]
        written = json.dumps(turns, separators=(",", ":"), allow_nan=False)
        return written_answer(request.scope, written)

    async def chat(self, request: Request) -> ASGIApp:
        """Run a headless chat, and answer with its `chat:end`."""
        key, services = _session_key(request), self._services
        headers = headers_of(request.scope)
        seconds = _seconds_to_wait(headers.first.get(b"prefer", ""))
        event_format = request.query_params.get("event_format")
        if event_format not in {None, "raw"}:
            raise InvalidRequest("event_format has to be raw, or left out")
        body = await read_object(request, services.limits, services.bodies)
        sent = validate_model(HeadlessChat, {**body, "session_id": key.id, "headless": True})
        await self._runs.status(key)  # of an unknown session the client is told so
        if sent.whatif is not None and not sent.message:
            raise InvalidRequest(
                "message: it is missing: send it again to have it answered anew, with the turn "
                "before it in whatif"
            )
        post = await read_send(services, key, sent)
        started = await self._runs.start(replace(post, idempotency_key=idempotency_key(headers)))
        if isinstance(started, Parked):
            return json_answer(request.scope, _parked_end(started))
        asked = [each for each in post.messages if isinstance(each, UserMessage)]
        gatherer = partial(
            ChatGatherer, asked=asked[-1] if asked else None, is_raw=event_format == "raw"
        )
        return WaitedAnswer(services, started, seconds=seconds, gatherer=gatherer)

    async def get_models(self, request: Request) -> Response:
        names = self._runs.models()
        shown: ModelsView = {
            "default": names[0],
            "models": [{"id": name, "name": name} for name in names],
        }
        return json_answer(request.scope, shown)

    async def get_version(self, request: Request) -> Response:
        shown: VersionView = {"version": self._services.version, "min_sdk": _MIN_SDK}
        return json_answer(request.scope, shown)

    async def get_health(self, request: Request) -> Response:
        return json_answer(request.scope, {"status": "ok"})


def _session_key(request: Request) -> ConversationKey:
    """Return the session of the path. Raise InvalidRequest for an illegal id."""
    return ConversationKey(owner_of(request), check_conversation_id(request.path_params["id"]))


def session_view(session_id: ConversationId, status: Status, /) -> SessionView:
    """Return the view of a session."""
    return {
        "id": session_id,
        "intent": status.title,
        "status": session_status(status),
        "created_at": utc_timestamp(status.created),
        "updated_at": utc_timestamp(status.updated),
        "model": None,
        "shared": False,
        "is_pinned": False,
        "memory_enabled": False,
        "is_persistent": True,
        "replay_state": None,
        "pending_tool_call_ids": [each.id for each in status.owed],
    }


def session_status(
    status: Status, /
) -> Literal["created", "running", "completed", "interrupted", "waiting_for_input"]:
    """Return the status of a session. One whose last chat failed is completed."""
    if status.running or status.queued:
        return "running"
    if status.owed and not status.overdue:
        return "waiting_for_input"
    if status.run_id is None and not status.message_count:
        return "created"
    return "interrupted" if status.stopped_early else "completed"


def _seconds_to_wait(prefer: str) -> float:
    """Return how long to wait for the end of a chat, by the header `Prefer` (RFC 7240)."""
    words = [word.strip().lower() for word in re.split("[,;]", prefer)]
    waits = [int(found[1]) for word in words if (found := _WAIT.fullmatch(word))]
    if "respond-async" in words:
        return min(waits, default=0)
    return min([*waits, MAX_WAIT_SECONDS])


def _parked_end(parked: Parked) -> JsonDict:
    """Return the answer to results that are stored while other calls are still owed."""
    return {
        "session_id": parked.key.id,
        "status": "completed",
        "result": None,
        "finish_reason": "awaiting_answer",
        "pending_tool_call_ids": [owed.id for owed in parked.owed],
    }


class ChatGatherer:
    """Gathers the `chat:end` of a headless chat for a document.

    Args:
        run: the chat.
        asked: the user's message; None if the chat goes on after results.
        is_raw: its result has the shape for raw subscribers.
    """

    def __init__(self, run: RunRef, /, *, asked: UserMessage | None, is_raw: bool) -> None:
        self.chars = 0
        self._run = run
        self._is_raw = is_raw
        self._turns = Turns()
        self._result = HeadlessResult(asked)
        self._count = 0
        self._end: JsonDict = {}

    def feed(self, event: RunEvent, /) -> None:
        """Take the next event of the run."""
        self._count += 1
        if isinstance(event, TextDelta):
            self.chars += len(event.text)
        said = self._turns.feed(self._run, Logged(Position(1, self._count), event))
        self._result.complete(event, said)
        for each in said:
            self._end = each.data

    def document(self, last: Cursor, /) -> JsonDict:
        """Return the payload of `chat:end`, which says so if the chat failed."""
        end: JsonDict = {"session_id": self._run.key.id, **self._end}
        return {**end, "result": raw_result(end["result"])} if self._is_raw else end
