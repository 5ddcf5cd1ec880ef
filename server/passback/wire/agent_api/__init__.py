"""The Agent API protocol (AgentScope Runtime): `POST /process`.

A session is a conversation, shared with every other wire. The client executes its own tools: their
calls are `function_call` messages that end the response, and the next request brings a
`function_call_output` for each.
"""

from dataclasses import dataclass
from functools import partial
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from passback.builders import ResponseBuilder, encode
from passback.core.errors import InvalidRequest
from passback.core.messages import Answer, ConversationKey, RunRef
from passback.core.posts import Parked
from passback.http.answers import json_answer, owner_of, run_headers
from passback.http.body import read_object
from passback.http.requests import (
    check_conversation_id,
    headers_of,
    preferred_media_type,
    validate_model,
)
from passback.http.routing import Endpoint
from passback.http.wires import Services, Wire, WireType
from passback.native.document import MAX_WAIT_SECONDS, WaitedAnswer
from passback.native.earlier import Calls, earlier_calls
from passback.native.responses import DOCUMENT_TYPE, EVENTS_TYPE, FOLLOW_QUERY, followed_run
from passback.setting_forms import PATH, setting
from passback.streams.frames import EventId
from passback.streams.sse import (
    EventStream,
    last_event_id,
    last_event_of,
    opening_comment,
    stream_headers,
)
from passback.wire.agent_api.describe import (
    AgentContent,
    AgentMessage,
    AgentResponse,
    describe_paths,
)
from passback.wire.agent_api.encoder import (
    AgentEncoder,
    refuse_invented_event,
    requires_action,
)
from passback.wire.agent_api.posted import ID_CHARACTERS, AgentRequest
from passback.wire.agent_api.reading import read_request


@dataclass(frozen=True, slots=True)
class AgentApiSettings:
    """The settings of this wire."""

    process_path: str = setting("/process", PATH, "where the Agent API is served", rare=True)


def build(services: Services, settings: AgentApiSettings = AgentApiSettings(), /) -> Wire:
    path = settings.process_path
    wire = _Process(services, path)
    return Wire(
        routes=[
            Endpoint(path, wire.process_request, methods=["POST"]),
            Endpoint(
                f"{path}/{{session_id}}/stream",
                wire.follow_run,
                methods=["GET"],
                query={"GET": ["stream", "id", *FOLLOW_QUERY]},
            ),
        ],
        paths=describe_paths(path),
        types=(AgentRequest, AgentResponse, AgentMessage, AgentContent),
    )


WIRE = WireType(build, AgentApiSettings)


class _Process:
    def __init__(self, services: Services, path: str) -> None:
        self._path = path
        self._services = services
        self._runs = services.runs

    async def process_request(self, request: Request) -> ASGIApp:
        """Admit the post, then answer with the run that it began or joined."""
        seen = last_event_id(headers_of(request.scope))
        post = validate_model(
            AgentRequest, await read_object(request, self._services.limits, self._services.bodies)
        )
        streams = _wants_stream(request, asked=post.stream is not False)
        command = await read_request(self._services, request, post)
        started = await self._runs.start(command)
        if isinstance(started, Parked):
            return _parked_response(request, started, post.id, streams=streams)
        # only a run that goes on after answers has events of calls that an earlier run made
        answers = any(isinstance(message, Answer) for message in command.messages)
        known = await earlier_calls(self._runs, started) if answers else None
        since = last_event_of(started, seen)
        return await self._answer_run(started, post.id, known, since=since, streams=streams)

    async def follow_run(self, request: Request) -> ASGIApp:
        """Answer with a run of a session: from its start, or from the last event that was seen."""
        asked = request.query_params.get("stream", "true")
        if asked not in {"true", "false"}:
            raise InvalidRequest("stream has to be true or false")
        streams = _wants_stream(request, asked=asked == "true")
        given = request.query_params.get("id")
        if given is not None and len(given) > ID_CHARACTERS:
            raise InvalidRequest(f"id has at most {ID_CHARACTERS} characters")
        key = ConversationKey(
            owner_of(request), check_conversation_id(request.path_params["session_id"])
        )
        run, since = await followed_run(request, self._runs, key)
        known = await earlier_calls(self._runs, run)
        return await self._answer_run(run, given, known, since=since, streams=streams)

    async def _answer_run(
        self,
        run: RunRef,
        response_id: str | None,
        known: Calls | None,
        *,
        since: EventId | None,
        streams: bool,
    ) -> ASGIApp:
        """Answer with one response: a stream, or a document of the whole run.

        A document ignores `since`: it has what the client has seen, too.
        """
        services = self._services
        encoder = partial(
            AgentEncoder,
            run.key.id,
            response_id or f"response_{run.run_id.removeprefix('run_')}",
            known=known,
            mcp_servers=services.mcp_servers,
            most=services.limits.answer_chars,
            seen=since.cursor.position.seq + 1 if since else 0,
        )
        # the client has some frames of an event: only this encoder knows whether it can have them
        if streams and since and since.frames:
            await refuse_invented_event(self._runs, run, since, encoder())
        # the encoder's answer so far cannot be restored from an id: it is fed from the run's start
        if streams:
            return EventStream(services, run, encoder(), since, remembers=True)
        return WaitedAnswer(
            services,
            run,
            seconds=MAX_WAIT_SECONDS,
            gatherer=lambda _: encoder(),
            follow=self._path,
        )


def _wants_stream(request: Request, *, asked: bool) -> bool:
    """Return True for a stream, False for a document.

    Args:
        request: its `Accept` header decides.
        asked: what the client asked for otherwise; decides where `Accept` allows both.

    Raises:
        NotAcceptable: `Accept` allows neither.
    """
    offers = (EVENTS_TYPE, DOCUMENT_TYPE) if asked else (DOCUMENT_TYPE, EVENTS_TYPE)
    return (
        preferred_media_type(", ".join(headers_of(request.scope).all.get(b"accept", ())), offers)
        == EVENTS_TYPE
    )


def _parked_response(
    request: Request, parked: Parked, response_id: str | None, *, streams: bool
) -> Response:
    """Answer results that are stored while other calls are still owed: no run, no message."""
    response = ResponseBuilder(parked.key.id, response_id or f"response_{uuid4()}")
    begun = [response.created(), response.in_progress()]
    events = [*begun, response.completed(metadata=requires_action(parked.owed))]
    missing = {"x-owed-tool-calls": ",".join(owed.id for owed in parked.owed)}
    if not streams:
        headers = run_headers(parked.key.id, None) | missing
        return json_answer(request.scope, events[-1], headers=headers)
    frames = [opening_comment(parked.key.id), *(f"data: {encode(event)}\n\n" for event in events)]
    return Response("".join(frames), headers=stream_headers(request.scope, parked.key.id) | missing)
