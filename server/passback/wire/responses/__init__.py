"""Responses, as the Open Responses specification and OpenAI's clients have them: `/v1/responses`.

A response is a run, and what continues it goes on in its conversation, shared with every other
wire. The client executes its own functions: their calls end the response, and the next request
brings a `function_call_output` for each.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from passback.core.changes import RunRecord
from passback.core.errors import (
    Conflict,
    ConversationBusy,
    InvalidRequest,
    UnknownConversation,
    UnknownRun,
)
from passback.core.events import (
    START,
    Cancelled,
    Cursor,
    Failed,
    HandedBack,
    RunFinished,
    RunStarted,
)
from passback.core.messages import Answer, JsonObject, RunId, RunRef
from passback.core.posts import Parked
from passback.http.answers import json_answer, owner_of, run_headers
from passback.http.body import read_object
from passback.http.requests import number_parameter, validate_model
from passback.http.routing import Endpoint
from passback.http.wires import Services, Wire, WireType
from passback.native.document import MAX_WAIT_SECONDS, WaitedAnswer
from passback.native.earlier import Calls, earlier_calls
from passback.setting_forms import PATH, setting
from passback.streams.sse import EVENTS, EventStream, opening_comment, stream_headers
from passback.wire.responses.describe import (
    DeletedResponse,
    ItemList,
    ModelList,
    ResponseEvent,
    ResponsesError,
    ResponseView,
    describe_paths,
)
from passback.wire.responses.encoder import ResponseEncoder, frame_data, frame_event
from passback.wire.responses.errors import form_error
from passback.wire.responses.items import response_id, response_object, run_of_response
from passback.wire.responses.posted import CreateResponse
from passback.wire.responses.reading import read_request
from passback.wire.responses.record import input_items, read_run, recorded_response
from passback.wire.responses.request_note import note_of_run

_MOST_NUMBER: Final = 2**53
_CANCEL_SECONDS: Final = 5  # that a client waits for the end of what it cancels
# a client takes the end of a transfer for the end of the response, and a broken one for a cut
_FORM: Final = replace(EVENTS, frame=frame_event, breaks_off=True)


@dataclass(frozen=True, slots=True)
class ResponsesSettings:
    """The settings of this wire."""

    responses_path: str = setting("/v1", PATH, "where Responses are served", rare=True)


def build(services: Services, settings: ResponsesSettings = ResponsesSettings(), /) -> Wire:
    base = settings.responses_path
    path, one = f"{base}/responses", f"{base}/responses/{{response_id}}"
    responses = _Responses(services)
    return Wire(
        routes=[
            Endpoint(path, responses.create, methods=["POST"]),
            # clients add parameters every month
            Endpoint(one, responses.retrieve, methods=["GET"], query=None),
            Endpoint(one, responses.delete, methods=["DELETE"]),
            Endpoint(f"{one}/cancel", responses.cancel, methods=["POST"]),
            Endpoint(f"{one}/input_items", responses.list_input, methods=["GET"], query=None),
            Endpoint(f"{base}/models", responses.list_models, methods=["GET"]),
        ],
        paths=describe_paths(base),
        types=(
            *(CreateResponse, ResponseView, ResponseEvent, DeletedResponse, ItemList, ModelList),
            ResponsesError,
        ),
        error_form=form_error,
        error_root=path,
    )


WIRE = WireType(build, ResponsesSettings)


class _Responses:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._runs = services.runs

    async def create(self, request: Request) -> ASGIApp:
        """Admit the request, then answer with the response that it began or joined.

        The `Accept` header decides nothing: clients send any.
        """
        services = self._services
        post = validate_model(
            CreateResponse, await read_object(request, services.limits, services.bodies)
        )
        command = await read_request(services, request, post)
        started = await self._runs.start(command)
        if isinstance(started, Parked):
            return await self._answer_parked(request, started, streams=post.stream is True)
        answers = any(isinstance(each, Answer) for each in command.messages)
        if answers or command.idempotency_key is not None:  # it may be the repeat of another one
            note = note_of_run(await self._runs.run(started))
        else:
            note = note_of_run(RunRecord(note=command.note))
        if post.background and not post.stream:
            return json_answer(
                request.scope,
                response_object(started.run_id, note, status="in_progress"),
                headers=run_headers(started.key.id, started.run_id),
            )
        # only a run that goes on after answers has events of calls that an earlier run made
        known = await earlier_calls(self._runs, started) if answers else None
        encoder = self._encoder(started, note, known)
        if post.stream:
            return EventStream(services, started, encoder, form=_FORM, remembers=True)
        return WaitedAnswer(
            services,
            started,
            seconds=MAX_WAIT_SECONDS,
            gatherer=lambda _: self._encoder(started, note, known),
            goes_on=response_object(started.run_id, note, status="in_progress"),
        )

    async def retrieve(self, request: Request) -> ASGIApp:
        """Answer with a response as far as it has got, or with its events behind a number."""
        run, record = await self._find(request)
        note = note_of_run(record)
        if request.query_params.get("stream") != "true":
            found = await read_run(self._runs, run)
            return json_answer(
                request.scope, recorded_response(found, note, self._services.mcp_servers)
            )
        after = -1
        if "starting_after" in request.query_params:
            after = number_parameter(request, "starting_after", 0, most=_MOST_NUMBER)
        known = await earlier_calls(self._runs, run)
        if after >= 0 and record.outcome is not None:
            await self._check_number(after, run, note, known)
        encoder = self._encoder(run, note, known, after)
        return EventStream(self._services, run, encoder, form=_FORM, remembers=True)

    async def cancel(self, request: Request) -> Response:
        """Cancel a response that goes on, wait for its end, and answer with it."""
        run, record = await self._find(request)
        if record.outcome is None:
            await self._runs.cancel(run)
            with anyio.move_on_after(_CANCEL_SECONDS):
                async with self._runs.follow(run) as batches:
                    async for _ in batches:
                        pass
        elif not isinstance(record.outcome, Cancelled):
            raise Conflict("this response is over: it cannot be cancelled any more")
        found = await read_run(self._runs, run)
        note = note_of_run(found.record)
        servers = self._services.mcp_servers
        return json_answer(request.scope, recorded_response(found, note, servers))

    async def delete(self, request: Request) -> Response:
        """Delete a response, and its conversation if that has nothing else and no name."""
        run, record = await self._find(request)
        status = await self._runs.status(run.key)
        is_alone = record.follows < 0 and status.run_id == run.run_id and not status.queued
        if record.outcome is None:
            raise ConversationBusy("this response goes on: cancel it first")
        if is_alone and "conversation" not in note_of_run(record):
            await self._runs.delete(run.key)
        else:
            await self._runs.hide(run)
        return json_answer(
            request.scope,
            {"id": response_id(run.run_id), "object": "response", "deleted": True},
        )

    async def list_input(self, request: Request) -> Response:
        """Answer with the items of the request, the newest first unless the order is `asc`."""
        run, _ = await self._find(request)
        limit = number_parameter(request, "limit", 20, most=100, least=1)
        order = request.query_params.get("order", "desc")
        if order not in {"asc", "desc"}:
            raise InvalidRequest("order has to be asc or desc", details={"parameter": "order"})
        items = input_items(await read_run(self._runs, run))
        if order == "desc":
            items.reverse()
        after = request.query_params.get("after")
        if after is not None:
            at = next((n for n, each in enumerate(items) if each["id"] == after), None)
            if at is None:
                raise InvalidRequest(
                    "after names no item of this response", details={"parameter": "after"}
                )
            items = items[at + 1 :]
        page = items[:limit]
        return json_answer(
            request.scope,
            {
                "object": "list",
                "data": page,
                "first_id": page[0]["id"] if page else None,
                "last_id": page[-1]["id"] if page else None,
                "has_more": len(items) > limit,
            },
        )

    async def list_models(self, request: Request) -> Response:
        """Answer with the names that `model` may have: the agents, and the models to choose."""
        names = dict.fromkeys([*filter(None, self._runs.agents()), *self._runs.models()])
        data = [
            {"id": each, "object": "model", "created": 0, "owned_by": "passback"} for each in names
        ]
        return json_answer(request.scope, {"object": "list", "data": data})

    def _encoder(
        self, run: RunRef, note: JsonObject, known: Calls | None, after: int = -1
    ) -> ResponseEncoder:
        return ResponseEncoder(
            run.run_id,
            note,
            known=known,
            mcp_servers=self._services.mcp_servers,
            most=self._services.limits.answer_chars,
            after=after,
        )

    async def _check_number(self, after: int, run: RunRef, note: JsonObject, known: Calls) -> None:
        """Raise InvalidRequest for a number behind the last event of a response that is over."""
        encoder = self._encoder(run, note, known, _MOST_NUMBER)  # counts, and sends nothing
        async with self._runs.follow(run) as batches:
            async for batch in batches:
                for position, event in batch:
                    encoder.feed_at(position, event)
        if after >= encoder.number:
            raise InvalidRequest(
                "starting_after: this response has no event of this number",
                details={"parameter": "starting_after"},
            )

    async def _find(self, request: Request) -> tuple[RunRef, RunRecord]:
        """Return the run of the response that a request names. Raises UnknownRun."""
        run_id = run_of_response(request.path_params["response_id"])
        key = await self._runs.locate(owner_of(request), run_id)
        if key is not None:
            run = RunRef(key, run_id)
            with suppress(UnknownRun, UnknownConversation):
                record = await self._runs.run(run)
                if not record.hidden:
                    return run, record
        raise UnknownRun("there is no such response")

    async def _answer_parked(self, request: Request, parked: Parked, *, streams: bool) -> Response:
        """Answer outputs that are stored while other calls are still owed: no run begins.

        The response that made the calls is given again, with those that still need an output.
        """
        status = await self._runs.status(parked.key)
        run = RunRef(parked.key, status.run_id or RunId(""))
        encoder = self._encoder(run, note_of_run(await self._runs.run(run)), None)
        finished = RunFinished(HandedBack(parked.owed))
        frames = [*encoder.feed(RunStarted(run.run_id)), *encoder.feed(finished), *encoder.end()]
        if not streams:
            document = encoder.document(Cursor(run.run_id, START))
            assert not isinstance(document, Failed)
            return json_answer(request.scope, document, headers=run_headers(run.key.id, run.run_id))
        text = "".join([opening_comment(run.key.id), *map(frame_data, frames)])
        return Response(text, headers=stream_headers(request.scope, run.key.id, run.run_id))
