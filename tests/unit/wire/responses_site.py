"""A site with Responses, and the requests of its clients without a socket."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
from starlette.types import ASGIApp
from tests.support.logged_runs import LoggedRuns
from tests.unit.wire.responses_events import Json, added_up, events_of

from passback import Agent
from passback.core.events import (
    Completed,
    RunEvent,
    RunFinished,
    RunStarted,
    TextDelta,
    TurnStarted,
)
from passback.core.messages import MessageId, RunId
from passback.core.signals import Signal
from passback.http.gate import Access
from passback.http.site import build_site
from passback.http.wires import Services
from passback.models.scripted import Step
from passback.testing import ScriptedModel, serve_in_memory
from passback.wire.responses import build

PATH = "/v1/responses"
PAINT: Json = {
    "type": "function",
    "name": "paint",
    "description": "Paints.",
    "parameters": {"type": "object"},
    "strict": None,
}
GREETING: tuple[RunEvent, ...] = (
    RunStarted(RunId("run_1")),
    TurnStarted(MessageId("msg_1")),
    TextDelta("hi"),
    RunFinished(Completed()),
)


def site(runs: LoggedRuns, access: Access | None = None, **settings: Any) -> ASGIApp:
    services = Services(runs, Signal(), **settings)
    return build_site([build(services)], access or Access())


class ResponsesClient:
    """A client that posts what a test says, and no more."""

    def __init__(self, http: httpx.AsyncClient, path: str = PATH) -> None:
        self.http = http
        self.path = path
        self.headers = httpx.Headers()
        """Those of the last answer."""

    async def post(self, given: object = None, **fields: Any) -> Json:
        """Post input; return the response."""
        answer = await self._send(given, fields)
        assert answer.status_code == 200, answer.text
        response: Json = answer.json()
        return response

    async def stream(self, given: object = None, **fields: Any) -> Json:
        """Post input; return the response that its events add up to."""
        answer = await self._send(given, {**fields, "stream": True})
        assert answer.status_code == 200, answer.text
        return added_up(events_of(answer.text))

    async def refusal(self, given: object = None, **fields: Any) -> tuple[int, Json]:
        """Post input that is refused; return the status and the error."""
        answer = await self._send(given, fields)
        return answer.status_code, error_of(answer)

    async def _send(self, given: object, fields: Json) -> httpx.Response:
        headers = fields.pop("headers", {})
        body = fields if given is None else {"input": given, **fields}
        answer = await self.http.post(self.path, json=body, headers=headers)
        self.headers = answer.headers
        return answer

    async def get(self, place: str, **query: Any) -> httpx.Response:
        """Return what is at an address below that of the responses."""
        return await self.http.get(f"{self.path}/{place}", params=query)

    async def read(self, response: Json) -> Json:
        """Return a response as it is recorded."""
        answer = await self.get(response["id"])
        assert answer.status_code == 200, answer.text
        read: Json = answer.json()
        return read

    async def messages(self, conversation: str | None = None) -> list[Json]:
        """Return the messages of a conversation, of the last answer's if none is named."""
        name = conversation or self.headers["x-conversation-id"]
        page = (await self.http.get(f"/conversations/{name}/messages")).json()
        messages: list[Json] = page["messages"]
        return messages

    async def contents(self, conversation: str | None = None) -> list[object]:
        return [each.get("content") for each in await self.messages(conversation)]


@asynccontextmanager
async def responses(
    *agents: Agent | Sequence[list[Step]], **settings: str
) -> AsyncGenerator[ResponsesClient]:
    """Serve agents, or the turns of one, without a socket; yield a client."""
    served = [
        each if isinstance(each, Agent) else Agent(model=ScriptedModel(list(each)))
        for each in agents
    ]
    async with (
        serve_in_memory(*served, settings=settings) as transport,
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http,
    ):
        yield ResponsesClient(http)


def error_of(answer: httpx.Response) -> Json:
    """Return an error, which has the protocol's form."""
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert body.keys() == {"error"}
    error: Json = body["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["message"]
    return error


def user(content: object, **fields: Any) -> Json:
    return {"role": "user", "content": content, **fields}


def output(call: Json, value: object = "done", **fields: Any) -> Json:
    """Return the output of a call that a response has."""
    return {
        "type": "function_call_output",
        "call_id": call["call_id"],
        "output": value,
        **fields,
    }


def calls_of(response: Json) -> list[Json]:
    return [each for each in response["output"] if each["type"] == "function_call"]
