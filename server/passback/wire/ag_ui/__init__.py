"""The AG-UI protocol: `POST /ag-ui`.

A thread is a conversation, shared with every other wire. A client posts all messages that it
knows, and only what the server does not have counts. Calls of the client's tools, and interrupts
where a person has to answer, end the run; the next request brings the answers.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from passback.core.changes import Status
from passback.core.errors import (
    ConversationBusy,
    InvalidRequest,
    NothingToDo,
    Reused,
    UnknownConversation,
    UnknownMessage,
)
from passback.core.ids import tag_of
from passback.core.messages import (
    UNNAMED,
    Answer,
    ConversationKey,
    Owed,
    Plan,
    RunId,
    RunRef,
)
from passback.core.posts import Parked, StartRun
from passback.http.answers import owner_of
from passback.http.body import read_object
from passback.http.requests import check_conversation_id, headers_of, validate_model
from passback.http.routing import Endpoint
from passback.http.wires import Services, Wire, WireType
from passback.native.earlier import Calls, earlier_calls, messages_before
from passback.native.responses import EVENTS_TYPE, accepted_type, seen_event
from passback.native.times import utc_timestamp
from passback.streams.frames import EventId
from passback.streams.sse import (
    EVENTS,
    EventStream,
    last_event_id,
    last_event_of,
    opening_comment,
    stream_headers,
)
from passback.wire.ag_ui.describe import describe_paths
from passback.wire.ag_ui.encoder import AgUiEncoder, ag_ui_data
from passback.wire.ag_ui.posted import AgUiOptions, RunAgentInput
from passback.wire.ag_ui.reading import read_commands, read_known
from passback.wire.ag_ui.snapshot import read_snapshot

_PATHS: Final = ("/ag-ui", "/ag-ui/{agentId}")
_STREAM: Final = "/ag-ui/threads/{threadId}/stream"
_ID_CHARACTERS: Final = 256  # of a client's run id

# Clients take the end of a stream for the end of its run, so one that is cut says so. The frame has
# no id: whoever comes back goes on after the last event.
_CUT = ag_ui_data(
    "RUN_ERROR",
    message="the stream was cut short, and the run goes on: read it again",
    code="stream_cut",
    metadata={"retryable": True},
)
_FORM: Final = replace(EVENTS, cut=f"data: {_CUT}\n\n")


def build(services: Services, /) -> Wire:
    wire = _AgUi(services)
    return Wire(
        routes=[
            *(Endpoint(path, wire.run_agent, methods=["POST"]) for path in _PATHS),
            Endpoint(
                _STREAM,
                wire.follow_thread,
                methods=["GET"],
                query={"GET": ["runId", "lastEventId"]},
            ),
        ],
        paths=describe_paths(_PATHS, _STREAM),
        types=(RunAgentInput, AgUiOptions),
    )


WIRE = WireType(build)


class _AgUi:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._runs = services.runs

    async def run_agent(self, request: Request) -> ASGIApp:
        """Admit the post, then answer with the run that it began or joined, or with the history."""
        accepted_type(request, [EVENTS_TYPE])
        seen = last_event_id(headers_of(request.scope))
        post = validate_model(
            RunAgentInput, await read_object(request, self._services.limits, self._services.bodies)
        )
        key = ConversationKey(owner_of(request), check_conversation_id(post.thread_id))
        try:
            status = await self._runs.status(key)
        except UnknownConversation:
            status = None
        state = post.state if isinstance(post.state, dict) else {}
        if post.asks_for_history:
            return await self._answer_history(
                request, key, status, post.run_id, state, older=post.is_older
            )
        known = await read_known(self._services, key, status, post)
        commands = await read_commands(self._services, request, post, known)
        started = await self._start_first(commands)
        if isinstance(started, Parked):
            encoder = AgUiEncoder(key.id, post.run_id, older=post.is_older)
            return _whole_answer(request, key, encoder, owed=started.owed)
        # only a run that goes on after answers has events of calls that an earlier run made
        answers = any(isinstance(each, Answer) for each in commands[-1].messages)
        calls = await earlier_calls(self._runs, started) if answers else None
        return self._answer_run(
            started,
            AgUiEncoder(
                key.id,
                post.run_id,
                known=calls,
                state=state,
                shared=status.state.shared if status else None,
                older=post.is_older,
            ),
            last_event_of(started, seen),
        )

    async def follow_thread(self, request: Request) -> ASGIApp:
        """Answer with what came after an event, with a run of this thread that is named, or with
        the thread and the run that goes on.
        """
        accepted_type(request, [EVENTS_TYPE])
        key = ConversationKey(
            owner_of(request), check_conversation_id(request.path_params["threadId"])
        )
        run_id = request.query_params.get("runId")
        if run_id is not None and not (1 <= len(run_id) <= _ID_CHARACTERS and run_id.isprintable()):
            raise InvalidRequest(
                f"runId has to have 1 to {_ID_CHARACTERS} characters that can be printed"
            )
        since = seen_event(request)
        if since is not None:
            run = RunRef(key, since.cursor.run_id)
        elif run_id is not None and _is_made_here(run_id):
            run = RunRef(key, RunId(run_id))
        else:
            status = await self._runs.status(key)
            named = run_id or status.run_id or "run"
            return await self._answer_history(request, key, status, named, None)
        calls = await earlier_calls(self._runs, run)
        return self._answer_run(run, AgUiEncoder(key.id, run_id or run.run_id, known=calls), since)

    def _answer_run(
        self, run: RunRef, encoder: AgUiEncoder, since: EventId | None = None
    ) -> EventStream:
        # what is open cannot be told from an id: the encoder is fed from the run's start
        return EventStream(self._services, run, encoder, since, form=_FORM, remembers=True)

    # ---------------------------------------------------------------- starting
    async def _start_first(self, commands: Sequence[StartRun]) -> RunRef | Parked:
        """Start the first command whose message `after` which it comes is there."""
        *guesses, last = commands
        for command in guesses:
            with suppress(UnknownMessage):
                return await self._start(command)
        return await self._start(last)

    async def _start(self, command: StartRun) -> RunRef | Parked:
        try:
            started = await self._start_named(command)
        except ConversationBusy:
            # a client that has nothing new wants to see what goes on
            running = None if command.messages else await self._running(command.key)
            if running is None:
                raise
            return running
        except NothingToDo:
            raise NothingToDo(
                "the posted messages have nothing new: add a user's message, the results of the "
                "calls that are pending, or resume; or leave out the agent's last message to have "
                "it answered anew"
            ) from None
        if command.after is None or not command.messages or isinstance(started, Parked):
            return started
        status = await self._runs.status(command.key)
        if started.run_id in {status.run_id, *status.queued}:
            return started
        # the message is on a branch that the client has left before, and goes back to
        return await self._runs.start(
            replace(command, messages=(), after=command.messages[-1].id, named=frozenset())
        )

    async def _start_named(self, command: StartRun) -> RunRef | Parked:
        try:
            return await self._runs.start(command)
        except Reused:
            # an edited message under its old id, whose first version stays in the record
            messages = tuple(
                each if isinstance(each, Answer) else replace(each, id=UNNAMED)
                for each in command.messages
            )
        try:
            return await self._runs.start(replace(command, messages=messages, named=frozenset()))
        except Reused:
            raise Reused(
                "this runId, or Idempotency-Key, was used for another request: "
                "each request needs its own"
            ) from None

    async def _running(self, key: ConversationKey) -> RunRef | None:
        status = await self._runs.status(key)
        is_running = status.running and status.run_id is not None
        return RunRef(key, status.run_id) if is_running and status.run_id else None

    # ---------------------------------------------------------------- the history
    async def _answer_history(
        self,
        request: Request,
        key: ConversationKey,
        status: Status | None,
        run_id: str,
        state: Mapping[str, JsonValue] | None,
        *,
        older: bool = False,
    ) -> ASGIApp:
        """Answer with the messages of a conversation, then with the run that goes on, if any."""
        status = status or Status()
        plan: Plan = status.state.plan
        running = RunRef(key, status.run_id) if status.running and status.run_id else None
        end = status.message_count
        if running is not None:
            begun = await messages_before(self._runs, running)
            end = status.run_start if begun is None else begun
        history = await read_snapshot(self._runs, key, end, helpers=not older)
        known: Calls | None = None if running is None else await earlier_calls(self._runs, running)
        encoder = AgUiEncoder(
            key.id,
            run_id,
            known=known,
            state=state,
            history=history,
            plan=plan,
            shared=status.state.shared,
            older=older,
        )
        if running is not None:
            return self._answer_run(running, encoder)
        expires = None if status.answer_by is None else utc_timestamp(status.answer_by)
        return _whole_answer(request, key, encoder, owed=status.owed, expires=expires)


def _is_made_here(run_id: str) -> bool:
    """Return whether the server gave a run this id. Requests name their runs as they like."""
    return run_id.startswith("run_") and tag_of(RunId(run_id)) is not None


def _whole_answer(
    request: Request,
    key: ConversationKey,
    encoder: AgUiEncoder,
    *,
    owed: Sequence[Owed],
    expires: str | None = None,
) -> Response:
    """Return a stream that has no run behind it: its events have no ids."""
    events = encoder.close(owed, expires)
    frames = [opening_comment(key.id), *(f"data: {each}\n\n" for each in events)]
    owing = {"x-owed-tool-calls": ",".join(each.id for each in owed)} if owed else {}
    return Response("".join(frames), headers=stream_headers(request.scope, key.id) | owing)
