"""The UI message stream of Vercel's AI SDK (version 7), for `useChat` and its transport.

A chat is a conversation, shared with every other wire. The server keeps it, so of the messages that
a client posts only the new ones count. The client executes its own tools: their calls end the
stream, and the next post has the message of the agent with their results.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from passback.core.changes import Status
from passback.core.errors import UnknownConversation
from passback.core.messages import ConversationKey, Message, RunId, RunRef
from passback.core.posts import Parked
from passback.http.answers import ErrorForm, ErrorView, empty_answer, json_answer, owner_of
from passback.http.body import read_object
from passback.http.requests import (
    check_conversation_id,
    check_run_id,
    number_parameter,
    validate_model,
)
from passback.http.routing import Endpoint
from passback.http.wires import Services, Wire, WireType
from passback.setting_forms import PATH, setting
from passback.streams.sse import EVENTS, EventStream, opening_comment, stream_headers
from passback.wire.ai_sdk.describe import (
    DEFAULT_LIMIT,
    MOST_LIMIT,
    ChatMessagesView,
    UiChunk,
    describe_paths,
)
from passback.wire.ai_sdk.encoder import UiEncoder, parked_chunks
from passback.wire.ai_sdk.history import read_page
from passback.wire.ai_sdk.posted import AiSdkRequest, UiMessage
from passback.wire.ai_sdk.reading import read_request
from passback.wire.ai_sdk.record import message_id_of, read_beginning, read_beginning_of

STREAM_HEADER: Final = {"x-vercel-ai-ui-message-stream": "v1"}
_MOST_NUMBER: Final = 2**53
# a client takes the end of a transfer for the end of the answer, and a broken one for a cut
_FORM: Final = replace(EVENTS, breaks_off=True, headers=STREAM_HEADER)


@dataclass(frozen=True, slots=True)
class AiSdkSettings:
    """The settings of this wire."""

    ai_sdk_path: str = setting("/api/chat", PATH, "where the AI SDK's chats are served", rare=True)


def build(services: Services, settings: AiSdkSettings = AiSdkSettings(), /) -> Wire:
    path = settings.ai_sdk_path
    chats = _Chats(services)
    return Wire(
        routes=[
            Endpoint(path, chats.post, methods=["POST"]),
            Endpoint(
                f"{path}/{{id}}/messages",
                chats.messages,
                methods=["GET"],
                query={"GET": ["before", "limit"]},
            ),
            Endpoint(
                f"{path}/{{id}}/stream", chats.resume, methods=["GET"], query={"GET": ["runId"]}
            ),
            Endpoint(f"{path}/{{id}}/stop", chats.stop, methods=["POST"]),
        ],
        paths=describe_paths(path),
        types=(AiSdkRequest, UiMessage, UiChunk, ChatMessagesView),
        error_form=_form_error,
    )


WIRE = WireType(build, AiSdkSettings)


def _form_error(view: ErrorView, /) -> ErrorForm:
    """Return the text of an error, which clients show to their users as it is."""
    return ErrorForm(view.message)


class _Chats:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._runs = services.runs

    async def post(self, request: Request) -> ASGIApp:
        """Admit the post, then answer with the run that it began or joined."""
        services = self._services
        post = validate_model(
            AiSdkRequest, await read_object(request, services.limits, services.bodies)
        )
        asked = await read_request(services, request, post)
        started = await self._runs.start(asked.command)
        known = asked.goes_on
        if isinstance(started, Parked):
            return _parked_answer(request, started, None if known is None else known.id)
        encoder = UiEncoder(
            started,
            started.run_id if known is None else known.id,
            open_calls=asked.open_calls,
            continues=known is not None,
            usage=asked.usage,
        )
        return EventStream(services, started, encoder, form=_FORM, remembers=True)

    async def messages(self, request: Request) -> Response:
        """Answer with the stored messages of a chat, the newest or those before a position."""
        key = _key_of(request)
        before = number_parameter(request, "before", _MOST_NUMBER, most=_MOST_NUMBER, least=1)
        limit = number_parameter(request, "limit", DEFAULT_LIMIT, most=MOST_LIMIT, least=1)
        page = await read_page(self._runs, key, before, limit)
        shown: ChatMessagesView = {"messages": list(page.messages), "before": page.before}
        return json_answer(request.scope, shown)

    async def resume(self, request: Request) -> ASGIApp:
        """Answer with the message that is being written, from its start; 204 if none is.

        A run that the request names is sent whether it goes on or not.
        """
        key = _key_of(request)
        given = request.query_params.get("runId")
        named = check_run_id(given) if given is not None else None
        try:
            status = await self._runs.status(key)
        except UnknownConversation:  # a chat that has no message yet
            if named is not None:
                raise
            return empty_answer(request.scope)
        current = status.run_id if status.running else None
        run_id = named or current or next(iter(status.queued), None)
        if run_id is None:
            return empty_answer(request.scope)
        run = RunRef(key, run_id)
        earlier = await self._beginning_of(run, status)
        encoder = UiEncoder(
            run, message_id_of(earlier) or run_id, continues=bool(earlier), earlier=earlier
        )
        return EventStream(self._services, run, encoder, form=_FORM, remembers=True)

    async def _beginning_of(self, run: RunRef, status: Status) -> Sequence[Message]:
        """Return what the message of a run has from earlier runs."""
        if run.run_id in status.queued:  # it begins with a message of the user
            return ()
        if run.run_id == status.run_id:
            return await read_beginning(self._runs, run.key, status.run_start)
        return await read_beginning_of(self._runs, run)

    async def stop(self, request: Request) -> Response:
        """Cancel the run that goes on, or else the first one that waits."""
        key = _key_of(request)
        status = await self._runs.status(key)
        run_id: RunId | None = status.run_id if status.running else None
        run_id = run_id or next(iter(status.queued), None)
        if run_id is not None:
            await self._runs.cancel(RunRef(key, run_id))
        return empty_answer(request.scope)


def _key_of(request: Request) -> ConversationKey:
    return ConversationKey(owner_of(request), check_conversation_id(request.path_params["id"]))


def _parked_answer(request: Request, parked: Parked, message_id: str | None) -> Response:
    """Answer results that are stored while other calls are still owed: no run."""
    scope = request.scope
    missing = {"x-owed-tool-calls": ",".join(owed.id for owed in parked.owed)}
    headers = {**stream_headers(scope, parked.key.id), **STREAM_HEADER, **missing}
    frames = [f"data: {chunk}\n\n" for chunk in parked_chunks(message_id)]
    return Response("".join([opening_comment(parked.key.id), *frames]), headers=headers)
