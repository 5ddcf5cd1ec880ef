"""The route of a run's record, which outlives the run's log."""

from collections.abc import Mapping
from typing import Literal

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from passback.core.changes import RunRecord
from passback.core.errors import UnknownRun
from passback.core.events import RunFinished
from passback.core.messages import RunId, RunRef
from passback.http.answers import json_answer, lister_of
from passback.http.routing import Endpoint
from passback.http.wires import Services, Wire
from passback.native.openapi import (
    STORE_ERRORS,
    describe_operation,
    describe_parameter,
    json_response,
    schema_reference,
)
from passback.native.shapes import UsageView, run_end, usage_view
from passback.native.times import utc_timestamp
from passback.wire.rest.conversations import (
    CONVERSATION_ERRORS,
    ID_PARAMETER,
    conversation_key,
)

_FOUND = "/runs/{runId}"
_RUN = "/conversations/{id}/runs/{runId}"


class RunView(TypedDict):
    """The record of a run. While it goes on, `outcome` and `endedAt` are null.

    `outcome` and `reason` are those of the event `run-end`. Times are RFC 3339, in UTC; `beganAt`
    is null for a run that was cancelled while it waited. `messages` is the number of messages that
    it has stored, those of its post included. `usage` is that of its messages; `tokens`, `seconds`
    and `cost` are of all its model calls, whatever came of them.
    """

    conversationId: str
    runId: str
    outcome: Literal["completed", "handed-back", "cancelled", "failed"] | None
    reason: str | None
    beganAt: str | None
    endedAt: str | None
    messages: int
    model: str | None
    usage: UsageView
    tokens: int
    seconds: float
    cost: float


def build(services: Services, /) -> Wire:
    async def get_run(request: Request) -> Response:
        run = RunRef(conversation_key(request), RunId(request.path_params["runId"]))
        return json_answer(request.scope, _run_view(run, await services.runs.run(run)))

    async def find_run(request: Request) -> Response:
        """Answer with a run's record; its id tells in which conversation it is."""
        run_id = RunId(request.path_params["runId"])
        key = await services.runs.locate(lister_of(request), run_id)
        if key is None:
            raise UnknownRun("there is no such run")
        run = RunRef(key, run_id)
        return json_answer(request.scope, _run_view(run, await services.runs.run(run)))

    return Wire(
        routes=[
            Endpoint(_RUN, get_run, methods=["GET"]),
            Endpoint(_FOUND, find_run, methods=["GET"]),
        ],
        paths=_PATHS,
        types=(RunView,),
    )


def _run_view(run: RunRef, record: RunRecord) -> RunView:
    end = None if record.outcome is None else run_end(RunFinished(record.outcome))
    return {
        "conversationId": run.key.id,
        "runId": run.run_id,
        "outcome": end and end["outcome"],
        "reason": end and end.get("reason"),
        "beganAt": utc_timestamp(record.began) if record.began else None,
        "endedAt": None if record.ended is None else utc_timestamp(record.ended),
        "messages": record.messages,
        "model": record.model or None,
        "usage": usage_view(record.usage),
        "tokens": record.spent.tokens,
        "seconds": round(record.spent.seconds, 3),
        "cost": round(record.spent.cost, 9),
    }


_RUN_ID_PARAMETER = describe_parameter("runId", "path", "The run's id.")
_PATHS: Mapping[str, JsonValue] = {
    _FOUND: {
        "parameters": [_RUN_ID_PARAMETER],
        "get": describe_operation(
            "findRun",
            "What is kept of a run, in whichever conversation it is.",
            {"200": json_response("The run.", schema_reference("RunView"))},
            "keys_needed",
            "run_not_found",
            *STORE_ERRORS,
        ),
    },
    _RUN: {
        "parameters": [ID_PARAMETER, _RUN_ID_PARAMETER],
        "get": describe_operation(
            "getRun",
            "What is kept of a run, also after its log has expired.",
            {"200": json_response("The run.", schema_reference("RunView"))},
            *CONVERSATION_ERRORS,
            "run_not_found",
        ),
    },
}
