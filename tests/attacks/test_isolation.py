"""Another owner's ids are unknown ids: bob tries all of alice's, and learns and changes nothing."""

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
from tests.e2e.asking import AGENT, ROOT
from tests.e2e.workers import broken_off
from tests.support import agent_api, ai_sdk, openai_sdk
from tests.support.model_server import ModelServer, calls, says
from tests.support.server import running_server
from tests.support.wire import PATH, ZONE, Client, Json, client_of, keyed, result, user

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P9", "P13", "P17")]

KEYS = {"alice": "the-key-of-alice-0123456789", "bob": "the-key-of-bob-0123456789"}


@dataclass(frozen=True, slots=True)
class Ids:
    """Ids of alice's conversation: a call for her client, one that waits for approval, an event."""

    conversation: str
    run: str
    event: str
    call: str
    approval: str

    @property
    def response(self) -> str:
        """The run as Responses name it."""
        return self.run.replace("run_", "resp_")

    @property
    def unknown(self) -> "Ids":
        """Ids that look the same and that there never were."""
        return Ids(*(_turned(each) for each in self.all))

    @property
    def all(self) -> Sequence[str]:
        return (self.conversation, self.run, self.event, self.call, self.approval)


def _turned(name: str) -> str:
    """Replace the hexadecimal digits of an id."""
    head, dot, place = name.partition(".")
    other = str.maketrans("0123456789abcdef", "123456789abcdef0")
    return head[:-8] + head[-8:].translate(other) + dot + place


@dataclass(frozen=True, slots=True)
class Owners:
    """Two owners at two workers on one store."""

    alice: Client
    bob: Sequence[Client]
    waiting: Ids
    running: Ids

    async def state(self) -> Sequence[object]:
        """Return all that alice can see."""
        seen: list[object] = []
        for each in (self.waiting, self.running):
            for path in ("", "/messages"):
                url = f"/conversations/{each.conversation}{path}"
                seen.append((await self.alice.http.get(url)).content)
        path = f"/conversations/{self.waiting.conversation}/stream"
        seen.append((await self.alice.http.get(path, params={"include": "run,owed"})).content)
        return seen


@pytest.fixture(scope="module")
async def owners(store: str, model: ModelServer) -> AsyncGenerator[Owners]:
    flags = ("--store", store, "--model", "openai:mock", "--model-base-url", model.base_url)
    environment = {"PASSBACK_API_KEYS": ",".join(f"{who}:{key}" for who, key in KEYS.items())}
    async with AsyncExitStack() as stack:

        async def worker() -> str:
            serving = running_server(AGENT, *flags, environment=environment, cwd=str(ROOT))
            return (await stack.enter_async_context(serving)).url

        async def client(url: str, owner: str) -> Client:
            return await stack.enter_async_context(client_of(url, key=KEYS[owner]))

        urls = [await worker(), await worker()]
        alice = await client(urls[0], "alice")
        bob = [await client(url, "bob") for url in urls]
        waiting = await _waiting(alice, model)
        model.play(broken_off("half "))
        stream = alice.stream(f"conversation-{uuid4()}", [user("go")], include=["run"])
        begun = await stack.enter_async_context(stream)
        first = await begun.until("text")
        name = begun.headers["x-conversation-id"]
        running = Ids(name, begun.headers["x-run-id"], first.id, waiting.call, waiting.approval)
        yield Owners(alice, bob, waiting, running)


async def _waiting(alice: Client, model: ModelServer) -> Ids:
    model.play(calls(("a", "wipe", "{}"), ("b", "get-time-zone", "{}")))
    asked = await alice.post(f"conversation-{uuid4()}", user("go"), tools=[ZONE])
    begun = [each.event for each in asked.frames if each.type == "tool-call-start"]
    named = {each["toolCallName"]: each["toolCallId"] for each in begun}
    return Ids(
        asked.headers["x-conversation-id"],
        asked.headers["x-run-id"],
        asked.frames[1].id,
        named["get-time-zone"],
        named["wipe"],
    )


@pytest.fixture(scope="module")
async def untouched(owners: Owners) -> Sequence[object]:
    """Return what alice sees before the first attack."""
    return await owners.state()


# ---------------------------------------------------------------- the ways to name something
@dataclass(frozen=True, slots=True)
class Way:
    """A request; its texts are formats with the names of `Ids`."""

    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    unknown: int = 404  # the status for what there is not


STREAM = "/conversations/{conversation}/stream"
CLAIM = "/conversations/{conversation}/tool-calls/{call}/claim"


def _posts(*messages: Json, **more: Any) -> Way:
    body = {"conversationId": "{conversation}", "messages": list(messages), **more}
    return Way("POST", PATH, body)


def _processes(*messages: Json) -> Way:
    return Way("POST", agent_api.PATH, {"session_id": "{conversation}", "input": list(messages)})


def _answers(part: Json, **more: Any) -> Way:
    """Post a message of the agent with an answer, by the AI SDK."""
    part = {**part, "type": "tool-x", "toolCallId": "{call}"}
    message = {"id": "m", "role": "assistant", "parts": [part]}
    return Way("POST", ai_sdk.API, {"id": "{conversation}", "message": message, **more})


APPROVED = {"id": "{approval}", "approved": True}
THREAD = "/ag-ui/threads/{conversation}/stream"


def _runs(*messages: Json, **more: Any) -> Way:
    body = {"threadId": "{conversation}", "runId": "r", "messages": list(messages), **more}
    return Way("POST", "/ag-ui", body)


SESSION = "/api/sessions/{conversation}"


def _chats(**body: Any) -> Way:
    return Way("POST", f"{SESSION}/chat", body)


RESPONSE = f"{openai_sdk.PATH}/{{response}}"


def _responds(unknown: int, *items: Json, **more: Any) -> Way:
    """Ask for a response; what is not there makes the request a wrong one."""
    return Way("POST", openai_sdk.PATH, {"input": list(items), **more}, unknown=unknown)


HI = {"role": "user", "content": "hi"}
DECISION = {
    "type": "mcp_approval_response",
    "approval_request_id": "{approval}",
    "approve": True,
}


WAYS = {
    "look at it": Way("GET", "/conversations/{conversation}"),
    "rename it": Way("PATCH", "/conversations/{conversation}", {"title": "mine"}),
    "read its messages": Way("GET", "/conversations/{conversation}/messages"),
    "stream its newest run": Way("GET", STREAM),
    "stream a run": Way("GET", f"{STREAM}?runId={{run}}"),
    "stream from an event, by the header": Way("GET", STREAM, None, {"last-event-id": "{event}"}),
    "stream from an event, by the address": Way("GET", f"{STREAM}?lastEventId={{event}}"),
    "read a run as a document": Way("GET", f"{STREAM}?wait=1&runId={{run}}"),
    "read a run as text": Way("GET", STREAM, None, {"accept": "text/plain"}),
    "read the record of a run": Way("GET", "/conversations/{conversation}/runs/{run}"),
    "read the record of a run by its id": Way("GET", "/runs/{run}"),
    "export it": Way("GET", "/conversations/{conversation}/export"),
    "switch its branch": Way("POST", "/conversations/{conversation}/leaf", {"message": "m"}),
    "copy it": Way("POST", "/conversations/{conversation}/fork", {}),
    "follow it": Way("GET", "/conversations/{conversation}/events"),
    "follow it from an event": Way(
        "GET", "/conversations/{conversation}/events?lastEventId={event}"
    ),
    "stream it by the Agent API": Way("GET", "/process/{conversation}/stream"),
    "stream from an event by the Agent API": Way(
        "GET", "/process/{conversation}/stream?runId={run}", None, {"last-event-id": "{event}"}
    ),
    "cancel what runs": Way("POST", "/conversations/{conversation}/cancel"),
    "cancel a run": Way("POST", "/conversations/{conversation}/cancel?runId={run}"),
    "claim a call": Way("POST", CLAIM, {"claimant": "bob"}),
    "give a claim back": Way("DELETE", f"{CLAIM}?claimant=bob"),
    "claim an approval": Way("POST", CLAIM.replace("{call}", "{approval}"), {"claimant": "bob"}),
    "forget an answer": Way("DELETE", "/conversations/{conversation}/permissions/wipe"),
    "delete it": Way("DELETE", "/conversations/{conversation}"),
    "post a result": _posts(result("{call}", "UTC")),
    "post a result with words": _posts(result("{call}", "UTC"), user("go on")),
    "post a result by its call": Way("POST", PATH, {"messages": [result("{call}", "UTC")]}),
    "approve a call by its id": Way(
        "POST", PATH, {"resume": {"interruptId": "{approval}", "payload": True}}
    ),
    "approve a call": _posts(resume={"interruptId": "{approval}", "payload": True}),
    "deny a call": _posts(resume={"interruptId": "{approval}", "payload": False}),
    "post a result by the Agent API": _processes(agent_api.output("{call}", "UTC")),
    "approve a call by the Agent API": _processes(agent_api.decision("{approval}", True)),
    "post a result by its call, by the Agent API": Way(
        "POST", agent_api.PATH, {"input": [agent_api.output("{call}", "UTC")]}
    ),
    "read its messages by the AI SDK": Way(
        "GET", f"{ai_sdk.API}/{{conversation}}/messages", unknown=200
    ),
    "resume it by the AI SDK": Way("GET", f"{ai_sdk.API}/{{conversation}}/stream", unknown=204),
    "stop it by the AI SDK": Way("POST", f"{ai_sdk.API}/{{conversation}}/stop"),
    "post a result by the AI SDK": _answers({"state": "output-available", "output": "UTC"}),
    "approve a call by the AI SDK": _answers({"state": "approval-responded", "approval": APPROVED}),
    "post a result by its call, by the AI SDK": _answers(
        {"state": "output-available", "output": "UTC"}, id=""
    ),
    "edit a message by the AI SDK": Way(
        "POST",
        ai_sdk.API,
        {
            "id": "{conversation}",
            "messages": [ai_sdk.agent(message_id="{run}"), ai_sdk.user("hi", "m")],
            "messageId": "m",
        },
    ),
    "regenerate an answer by the AI SDK": Way(
        "POST", ai_sdk.API, {"id": "{conversation}", "trigger": "regenerate-message"}
    ),
    "stream it by AG-UI": Way("GET", THREAD),
    "stream from an event by AG-UI": Way("GET", THREAD, None, {"last-event-id": "{event}"}),
    "post a result by AG-UI": _runs(
        {"role": "tool", "id": "t", "toolCallId": "{call}", "content": "UTC"}
    ),
    "approve a call by AG-UI": _runs(
        resume=[{"interruptId": "{approval}", "status": "resolved", "payload": True}]
    ),
    "deny a call by AG-UI": _runs(resume=[{"interruptId": "{approval}", "status": "cancelled"}]),
    "look at it as a session": Way("GET", SESSION),
    "rename it as a session": Way("PATCH", SESSION, {"intent": "mine"}),
    "delete it as a session": Way("DELETE", SESSION),
    "read its turns": Way("GET", f"{SESSION}/messages"),
    "chat in its session": _chats(message="hi"),
    "post a result in its session": _chats(
        tool_results=[{"tool_call_id": "{call}", "result": "UTC"}]
    ),
    "approve a call in its session": _chats(
        askuser_answer={"tool_call_id": "{approval}", "selections": {"0": [0]}}
    ),
    "read a response": Way("GET", RESPONSE),
    "read a response's events": Way("GET", f"{RESPONSE}?stream=true&starting_after=1"),
    "read a response's request": Way("GET", f"{RESPONSE}/input_items"),
    "delete a response": Way("DELETE", RESPONSE),
    "cancel a response": Way("POST", f"{RESPONSE}/cancel"),
    "continue a response": _responds(400, HI, previous_response_id="{response}"),
    "continue it by Responses": _responds(404, HI, conversation="{conversation}"),
    "post an output of its response": _responds(
        400, openai_sdk.output("{call}", "UTC"), previous_response_id="{response}"
    ),
    "post an output by its call": _responds(400, openai_sdk.output("{call}", "UTC")),
    "approve a call by Responses": _responds(400, DECISION),
}


def _written(value: Any, ids: Ids) -> Any:
    if isinstance(value, str):
        for name in (*Ids.__slots__, "response"):
            value = value.replace("{" + name + "}", getattr(ids, name))
        return value
    if isinstance(value, dict):
        return {key: _written(each, ids) for key, each in value.items()}
    return [_written(each, ids) for each in value] if isinstance(value, list) else value


async def answer_to(client: Client, way: Way, ids: Ids) -> tuple[int, list[tuple[str, str]], str]:
    """The whole answer, but for the day, the request's id, and the ids that were asked with."""
    answer = await client.http.request(
        way.method,
        _written(way.path, ids),
        json=_written(way.body, ids),
        headers=_written(dict(way.headers), ids),
    )
    varying = {"date", "x-request-id"}
    headers = [
        (name, _unnamed(text, ids))
        for name, text in answer.headers.multi_items()
        if name not in varying
    ]
    body = re.sub(r"req_\w+", "REQUEST", answer.text)
    return answer.status_code, headers, _unnamed(body, ids)


def _unnamed(text: str, ids: Ids) -> str:
    for name in (*Ids.__slots__, "response"):
        text = text.replace(getattr(ids, name), name.upper())
    return text


async def test_each_operation_that_names_something_of_an_owner_is_among_the_ways(
    owners: Owners,
) -> None:
    def operation(method: str, path: str) -> str:
        path = path.partition("?")[0].replace("/permissions/wipe", "/permissions/{name}")
        return f"{method.upper()} {re.sub('{.*?}', '{}', path)}"

    document = (await owners.bob[0].http.get("/openapi.json")).json()
    naming = {
        operation(method, path)
        for path, operations in document["paths"].items()
        for method in operations.keys() & {"get", "put", "post", "patch", "delete"}
        if "{" in path and "{agentId}" not in path  # agents are everybody's
    }
    assert naming - {operation(way.method, way.path) for way in WAYS.values()} == set()


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_an_id_of_another_owner_is_as_one_that_never_was(
    owners: Owners, untouched: Sequence[object], way: Way
) -> None:
    for bob in owners.bob:  # at her worker, and at another
        for ids in (owners.waiting, owners.running):
            stolen, unknown = await answer_to(bob, way, ids), await answer_to(bob, way, ids.unknown)
            assert stolen == unknown
            assert stolen[0] == way.unknown
    assert await owners.state() == untouched


async def test_what_was_tried_would_have_worked_for_its_owner(owners: Owners) -> None:
    """The attacks name what is there: the ids lead alice to her conversations."""
    reading = [way for name, way in WAYS.items() if name.startswith(("look", "read", "stream"))]
    for way in reading:
        assert (await answer_to(owners.alice, way, owners.waiting))[0] == 200
    for name in ("claim a call", "claim an approval"):
        way = WAYS[name]
        assert (await answer_to(owners.alice, way, owners.waiting))[0] == 200
        dropped = Way("DELETE", f"{way.path}?claimant=bob")
        assert (await answer_to(owners.alice, dropped, owners.waiting))[0] == 204


async def test_the_history_of_another_owners_thread_is_that_of_none(owners: Owners) -> None:
    way = _runs()
    for ids in (owners.waiting, owners.running):
        for bob in owners.bob:
            stolen, unknown = await answer_to(bob, way, ids), await answer_to(bob, way, ids.unknown)
            assert stolen == unknown
            assert '"messages":[]}' in stolen[2]
    own = await answer_to(owners.alice, way, owners.waiting)
    assert '"messages":[{' in own[2]


# ---------------------------------------------------------------- names that both have
async def test_two_owners_may_use_the_same_names_and_share_nothing(
    owners: Owners, model: ModelServer, conversation: str
) -> None:
    asked = {**user("the same words"), "id": "message-1"}
    texts: list[str] = []
    runs: list[str] = []
    for client, answer in ((owners.alice, "for alice"), (owners.bob[1], "for bob")):
        model.play(says(answer))
        posted = await client.post(conversation, asked, headers=keyed("key-1"))
        texts.append(posted.text)
        runs.append(posted.headers["x-run-id"])
    assert texts == ["for alice", "for bob"]
    assert len(set(runs)) == 2
    for client, answer in ((owners.alice, "for alice"), (owners.bob[0], "for bob")):
        messages = await client.messages(conversation)
        assert [each["content"] for each in messages] == ["the same words", answer]
    assert (await owners.bob[0].http.delete(f"/conversations/{conversation}")).status_code == 204
    assert len(await owners.alice.messages(conversation)) == 2


async def test_a_conversation_that_follows_from_a_key_is_another_for_each_owner(
    owners: Owners, model: ModelServer
) -> None:
    model.play(says("hello"))
    body = {"messages": [user("hi")]}
    names: list[str] = []
    for client in (owners.alice, owners.alice, owners.bob[1]):
        answer = await client.http.post(PATH, json=body, headers=keyed("key-2"))
        assert answer.status_code == 200
        names.append(answer.headers["x-conversation-id"])
    assert names[0] == names[1] != names[2]


async def test_the_inbox_is_each_owners_own_on_every_page(
    owners: Owners, model: ModelServer
) -> None:
    await _waiting(owners.alice, model)  # so that the first page of alice's is not the last
    empty: Json = {"toolCalls": [], "next": None}
    first = (await owners.alice.http.get("/tool-calls?status=owed&limit=1")).json()
    assert first["next"]
    for bob in owners.bob:
        for query in ("", f"&after={first['next']}"):
            inbox = await bob.http.get(f"/tool-calls?status=owed{query}")
            assert (inbox.status_code, inbox.json()) == (200, empty)


async def test_the_list_of_conversations_is_each_owners_own_on_every_page(
    owners: Owners, model: ModelServer
) -> None:
    await _waiting(owners.alice, model)  # so that the first page of alice's is not the last
    first = (await owners.alice.http.get("/conversations?limit=1")).json()
    assert first["next"]
    [newest] = first["conversations"]
    hers = {each.conversation for each in (owners.waiting, owners.running)} | {newest["id"]}
    whole = (await owners.alice.http.get("/conversations?search=go")).json()
    assert hers <= {each["id"] for each in whole["conversations"]}
    for bob in owners.bob:
        for query in ("", "?search=go", f"?after={first['next']}"):
            page = await bob.http.get(f"/conversations{query}")
            assert page.status_code == 200
            assert not hers & {each["id"] for each in page.json()["conversations"]}
