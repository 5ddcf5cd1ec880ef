"""The OpenAPI document, held against what a session really gets."""

import json
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, cast

import anyio
import httpx
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from pydantic import JsonValue
from tests.e2e.workers import broken_off, worker
from tests.support import ai_sdk, openai_sdk
from tests.support.model_server import (
    Act,
    ModelServer,
    Reply,
    calls,
    event,
    fails,
    model_server,
    says,
)
from tests.support.server import Server
from tests.support.wire import (
    COLOR,
    DONE,
    PATH,
    Client,
    FrameReader,
    Json,
    client_tool,
    keyed,
    result,
    user,
)

from passback.wire.responses.errors import find_class

pytestmark = pytest.mark.anyio

USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
THINKS = Reply(
    [
        event(reasoning_content="hm"),
        event(content="so"),
        event("stop"),
        {"choices": [], "usage": USAGE},
        b"data: [DONE]\n\n",
    ]
)
SCRIPT = (
    THINKS,
    calls(("a", "set-color", '{"color":"blue"}'), ("b", "price", '{"drink":"tea"}')),
    THINKS,
    Reply([event(content="half"), Act.CUT]),
    fails(401),
    broken_off("so "),
    says("so"),
)
BY_AGENTS = {
    *("agent-text", "context", "interrupt", "output", "plan", "state"),
    *("tool-begin", "tool-progress"),
}
"""Events that other agents say: see `test_openapi_agents.py`."""

EVERYTHING = ["reasoning", "usage", "message-ids", "run", "owed", "rewind"]

# who claims which call; the first that there is where none is named
CLAIMS = (
    ("POST", "", "one"),
    ("POST", "", "two"),
    ("DELETE", "", "two"),
    ("DELETE", "", "one"),
    ("POST", "call_0", "one"),
)

OUR_HEADERS = frozenset({"x-conversation-id", "x-run-id", "x-request-id", "x-owed-tool-calls"})


def closed(schema: JsonValue) -> JsonValue:
    """A schema in which an object has no other keys than those that are described."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: closed(value) for key, value in schema.items()}
    if schema.get("type") == "object" and schema.get("properties"):
        strict.setdefault("additionalProperties", False)
    return strict


OF_CONVERSATIONS = {"posted", "switched", "deleted"}
"""Events beside those of runs."""

SIMPLE = (
    ("GET", "{here}?include=structuredData"),
    ("GET", "{here}/runs/none"),
    ("GET", "/runs/none"),
    ("GET", "{here}/export"),
    ("POST", "/conversations/import"),
    ("DELETE", "{here}/permissions/price"),
    ("PATCH", "{here}"),
    *(("GET", f"/conversations{query}") for query in ("?limit=1", "?after=x", "?search=none")),
    *[("DELETE", "{here}")] * 2,
    *(
        ("GET", path)
        for path in ("/healthz", "/readyz", "/openapi.json", "/agents", "/commands", "/runs/none")
    ),
)

BODIES: Mapping[str, Json] = {
    "PATCH": {"title": "another"},
    "POST": {"format": "passback-conversation", "version": 1, "id": "imported"},
}


class Described:
    """Holds answers against a document, and keeps what they were."""

    def __init__(self, document: Json) -> None:
        self.document = document
        self.answers: set[str] = set()
        self.events: set[str] = set()

    def check(self, answer: httpx.Response) -> None:
        """This answer is one that the document tells of."""
        method, path = answer.request.method, self._template(answer.request.url.path)
        described = self.document["paths"][path][method.lower()]["responses"][
            str(answer.status_code)
        ]
        self.answers.add(f"{method} {path} {answer.status_code}")
        assert OUR_HEADERS & answer.headers.keys() <= {
            name.lower() for name in described["headers"]
        }
        media_type = answer.headers.get("content-type", "").partition(";")[0]
        if media_type == "application/json":
            self._fits(answer.json(), described["content"][media_type]["schema"])
            assert answer.is_success or _code_of(answer) in _codes_of(described)
        elif media_type == "text/event-stream":
            schema = described["content"][media_type]["x-event-schema"]
            for data in _data_of(answer.content, schema):
                self._check_event(data, schema)
        elif media_type == "text/plain":
            assert described["content"][media_type]["schema"] == {"type": "string"}
            assert answer.headers["x-error-code"] in described["x-codes"]
        else:
            assert "content" not in described
            assert answer.content == b""

    def check_completeness(self) -> None:
        """Everything that is described was met, but for what other agents say."""
        mapping = self.document["components"]["schemas"]["NativeEvent"]["discriminator"]["mapping"]
        assert self.events == {*mapping, *OF_CONVERSATIONS, DONE} - BY_AGENTS
        paths = {answer.split()[1] for answer in self.answers}
        assert paths == self.document["paths"].keys() - {"/"}

    def _template(self, path: str) -> str:
        if path in self.document["paths"]:
            return path  # before those with a parameter, as OpenAPI has it
        [found] = [
            template
            for template in self.document["paths"]
            if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path)
        ]
        return str(found)

    def _check_event(self, data: str, schema: Json) -> None:
        value: Any = data if data == DONE else json.loads(data)
        self._fits(value, schema)
        # those of the Agent API, AG-UI, the AI SDK and Responses have schemas of their own
        foreign = any(name in str(schema) for name in ("UiChunk", "ResponseEvent")) or (
            isinstance(value, dict) and ("object" in value or not value["type"].islower())
        )
        if not foreign:
            self.events.add(DONE if isinstance(value, str) else value["type"])

    def _fits(self, value: object, schema: Json) -> None:
        strict = closed({**schema, "components": self.document["components"]})
        Draft202012Validator(cast("Json", strict)).validate(value)


def _data_of(body: bytes, schema: Json) -> Sequence[str]:
    """Return what the frames of a stream have; those of Responses name their type, too."""
    if "ResponseEvent" in str(schema):
        return openai_sdk.data_of(body)
    return [frame.data for frame in FrameReader().feed(body)]


def _code_of(answer: httpx.Response) -> str | None:
    """Return an error's code, which the form of OpenAI's has within."""
    body: Json = answer.json()
    code: str | None = body.get("error", body)["code"]
    return code


def _codes_of(described: Json) -> set[str | None]:
    """Return the codes of an answer, also as the form of OpenAI's has them."""
    codes: list[str] = described["x-codes"]
    return {*codes, *(find_class(each).code for each in codes)}


@pytest.fixture(scope="module")
async def model() -> AsyncGenerator[ModelServer]:
    async with model_server(*SCRIPT) as model:
        yield model


@pytest.fixture(scope="module")
def flags(model: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    store = ("--store", f"sqlite:///{tmp_path_factory.mktemp('store')}/passback.db")
    return ("my_agent:agent", *store, "--model", "openai:mock", "--model-base-url", model.base_url)


@pytest.fixture(scope="module")
async def server(flags: Sequence[str]) -> AsyncGenerator[Server]:
    async with worker(*flags) as serves:
        yield serves.server


@pytest.fixture
async def described(client: Client) -> Described:
    return Described((await client.http.get("/openapi.json")).json())


async def test_the_served_document_is_valid_openapi(described: Described) -> None:
    validate(described.document)
    assert described.document["openapi"].startswith("3.1")


async def test_every_answer_and_event_of_a_session_is_described(
    client: Client, described: Described, flags: Sequence[str], conversation: str
) -> None:
    async def ask(method: str, path: str, **request: Any) -> httpx.Response:
        answer = await client.http.request(method, path, **request)
        described.check(answer)
        return answer

    async def say(*messages: Json, **more: Any) -> httpx.Response:
        body = {"conversationId": conversation, "messages": messages, "include": EVERYTHING, **more}
        headers = more.pop("headers", None)
        return await ask("POST", more.pop("path", PATH), json=body, headers=headers)

    here = f"/conversations/{conversation}"
    await say(user("think"))
    called = await say(user("set color, price of tea"), tools=[COLOR])
    owed = re.findall(r"call_[0-9A-Za-z]{34}", called.text)
    await _lookups(ask, here, owed[0], called.headers["x-run-id"])
    await say(result(owed[0], "blue"), path="/v1/aibot/bots/default/send-message")
    await say(result(owed[0], "red"))
    await say(user("fail"))
    await say(user("fail"))
    await say(user("hi"), tools=[client_tool("price")])
    await say(result("call_0", "x"))
    await ask("POST", PATH, content=b"{", headers={"content-type": "application/json"})
    await ask("POST", PATH, content=b"{}", headers={"content-type": "text/plain"})
    for foreign in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
        await ask("POST", PATH, json={"messages": []}, headers=foreign)
    for path in ("messages?limit=2", "messages?limit=no", "stream"):
        await ask("GET", f"{here}/{path}")
    await ask("GET", f"{here}/stream", headers={"last-event-id": "no"})
    await ask("POST", f"{here}/cancel")
    waits: Json = {"onBusy": "enqueue", "headers": keyed("next")}
    async with worker(*flags, "--timing", "shutdown_grace=0") as stops:
        async with (
            stops.client.stream(conversation, [user("slowly")]) as stream,
            client.stream(conversation, [user("next")], **waits),
        ):
            last = await stream.until("text")
            await say(user("no"), onBusy="reject")
            await ask("GET", here)
            stops.server.terminate()
            await stream.whole()
        include = {"include": ",".join(EVERYTHING)}
        await ask("GET", f"{here}/stream", params=include, headers={"last-event-id": last.id})
    await say(user("next"), **waits)
    await say(user("previous"), headers=keyed("next"))
    await ask("POST", f"{here}/cancel", json={"runId": stream.headers["x-run-id"]})
    await ask("GET", f"{here}/stream?wait=true")
    await ask("GET", f"{here}/stream?wait=1", headers={"accept": "text/event-stream"})
    await _branches(ask, conversation)
    await _agent_api(ask, f"{conversation}-2")
    await _chats(ask, f"{conversation}-3")
    await _ag_ui(ask, f"{conversation}-4")
    await _sessions(ask)
    await _responses(ask)
    await _to_the_end(ask, here, last.id)
    described.check_completeness()


async def _lookups(
    ask: Callable[..., Coroutine[Any, Any, object]], here: str, owed: str, run_id: str
) -> None:
    for method, call_id, who in CLAIMS:
        await ask(method, f"{here}/tool-calls/{call_id or owed}/claim", json={"claimant": who})
    for path in (here, "/tool-calls?status=owed", "/tool-calls", f"/runs/{run_id}", "/runs/none"):
        await ask("GET", path)


async def _agent_api(ask: Callable[..., Coroutine[Any, Any, object]], session: str) -> None:
    for asked in ("/help", " "):  # a command needs no model, and blanks are no message
        message = {"role": "user", "content": [{"type": "text", "text": asked}]}
        for streams in (True, False):
            posted = {"input": [message], "session_id": session, "stream": streams}
            await ask("POST", "/process", json=posted)
    for query in ("", "?stream=false", "?stream=perhaps"):
        await ask("GET", f"/process/{session}/stream{query}")


async def _chats(ask: Callable[..., Coroutine[Any, Any, object]], chat: str) -> None:
    for asked in ("/help", " "):  # a command needs no model, and blanks are no message
        await ask("POST", ai_sdk.API, json={"id": chat, "message": ai_sdk.user(asked)})
    for here in (chat, "no", "%20{"):
        await ask("GET", f"{ai_sdk.API}/{here}/messages")
        await ask("GET", f"{ai_sdk.API}/{here}/stream")
        await ask("POST", f"{ai_sdk.API}/{here}/stop")


async def _ag_ui(ask: Callable[..., Coroutine[Any, Any, object]], thread: str) -> None:
    for path in ("/ag-ui", "/ag-ui/default"):
        for number, said in enumerate(("/help", " ")):
            message = {"role": "user", "id": "u", "content": said}
            run_id = f"run-{number}"
            posted = {"threadId": thread, "runId": run_id, "messages": [message]}
            await ask("POST", path, json=posted)
        await ask("POST", path, json={"threadId": thread, "runId": "r", "messages": []})
    for query in ("", "?runId=r", "?runId=", "?lastEventId=no"):
        await ask("GET", f"/ag-ui/threads/{thread}/stream{query}")
    await ask("GET", "/ag-ui/threads/unknown/stream")


async def _branches(
    ask: Callable[..., Coroutine[Any, Any, httpx.Response]], conversation: str
) -> None:
    here = f"/conversations/{conversation}"
    post: Json = {"conversationId": conversation, "messages": [user("hi")], "after": ""}
    await ask("POST", PATH, json=post)
    shown = (await ask("GET", here)).json()
    await ask("POST", f"{here}/leaf", json={"message": shown["branches"][0]["versions"][0]})
    await ask("POST", f"{here}/leaf", json={"message": "no"})
    await ask("POST", f"{here}/fork")
    await ask("POST", f"{here}/fork", json={"conversationId": conversation})


async def _sessions(ask: Callable[..., Coroutine[Any, Any, httpx.Response]]) -> None:
    for path in ("health", "version", "config/models", "sessions?limit=1", "sessions?limit=0"):
        await ask("GET", f"/api/{path}")
    await ask("POST", "/api/sessions", json={"intent": 1})
    created = await ask("POST", "/api/sessions", json={"intent": "Capitals"})
    session = f"/api/sessions/{created.json()['session_id']}"
    for message in ("/help", ""):  # a command needs no model
        await ask("POST", f"{session}/chat", json={"message": message})
    await ask("POST", f"{session}/chat?event_format=raw", json={"message": "/help"})
    prefers = {"prefer": "respond-async"}
    await ask("POST", f"{session}/chat", json={"message": "/help"}, headers=prefers)
    for query in ("", "?limit=1", "?limit=0"):
        await ask("GET", f"{session}/messages{query}")
    for intent in ("Towns", " "):
        await ask("PATCH", session, json={"intent": intent})
    for method in ("GET", "DELETE", "DELETE", "GET"):
        await ask(method, session)


async def _responses(ask: Callable[..., Coroutine[Any, Any, httpx.Response]]) -> None:
    for streams in (True, False):
        await ask("POST", openai_sdk.PATH, json={"input": "/help", "stream": streams})
    created = await ask("POST", openai_sdk.PATH, json={"input": "/help", "model": "any"})
    assert created.json()["status"] == "completed"
    wrong: Sequence[Json] = ({"input": []}, {"input": "x", "conversation": "none"})
    for body in wrong:
        await ask("POST", openai_sdk.PATH, json=body)
    for response in (created.json()["id"], "resp_none"):
        here = f"{openai_sdk.PATH}/{response}"
        for query in ("", "?stream=true", "?stream=true&starting_after=1"):
            await ask("GET", f"{here}{query}")
        for query in ("", "?limit=0", "?order=asc"):
            await ask("GET", f"{here}/input_items{query}")
        await ask("POST", f"{here}/cancel")
    await ask("GET", f"{openai_sdk.PATH}/{created.json()['id']}?stream=true&starting_after=x")
    await ask("GET", f"{openai_sdk.BASE}/models")


async def _to_the_end(
    ask: Callable[..., Coroutine[Any, Any, object]], here: str, seen: str
) -> None:
    """Follow the conversation from an event on, until it is deleted."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(ask, "GET", f"{here}/events", headers={"last-event-id": seen}))
        await ask("GET", f"{here}/events", headers={"last-event-id": "no"})
        for method, path in SIMPLE:
            await ask(method, path.format(here=here), json=BODIES.get(method))
