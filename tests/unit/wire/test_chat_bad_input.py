"""Bad input on the chat socket: an error for its sender, an open socket, and nothing stored."""

import json
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from tests.support.chat_site import ANYBODY, chat_site

from passback import Agent
from passback.core.messages import ConversationId, ConversationKey
from passback.models.scripted import ScriptedModel, says

pytestmark = pytest.mark.anyio

SESSION = "session_0"  # the one that the tests create
DEEP = "[" * 20_000 + "]" * 20_000


@dataclass(frozen=True)
class Row:
    """A message of a client, the code of its error, and what the error names."""

    sent: str | bytes
    code: str
    named: str = ""


def event(name: Any, data: Any = None, **more: Any) -> str:
    return json.dumps({"event": name, "data": data, **more})


def about(name: str, **data: Any) -> str:
    return event(name, {"session_id": SESSION, **data})


subscribe = partial(about, "session:subscribe")
send = partial(about, "chat:send")


def what_if(*, askuser_answer: Any = None, tool_results: Any = None, **fields: Any) -> str:
    return send(
        message="a", whatif=fields, askuser_answer=askuser_answer, tool_results=tool_results
    )


def part(**fields: Any) -> str:
    return send(message=[fields])


def answer(**fields: Any) -> str:
    return send(message="", askuser_answer=fields)


def result(**fields: Any) -> str:
    return send(message="", tool_results=[fields])


FRAMES = {
    "no JSON": Row("hello", "bad_request"),
    "nothing": Row("", "bad_request"),
    "a number": Row("1", "bad_request"),
    "a list": Row("[]", "bad_request"),
    "null": Row("null", "bad_request"),
    "broken JSON": Row('{"event": "chat:stop", "data": {', "bad_request"),
    "half of a character": Row('{"event": "\\ud800"}', "bad_request"),
    "not a number": Row('{"event": NaN}', "bad_request"),
    "infinity": Row('{"event": "chat:send", "data": 1e999}', "bad_request"),
    "brackets without end": Row('{"event": "chat:send", "data": ' + "[" * 5000, "bad_request"),
    "deep JSON": Row('{"event": "chat:send", "data": ' + DEEP + "}", "bad_request"),
    "bytes": Row(b'{"event": "chat:stop"}', "bad_request"),
    "no event": Row("{}", "invalid_request", "event"),
    "an event that is null": Row(event(None), "invalid_request", "event"),
    "an event that is a number": Row(event(1), "invalid_request", "event"),
    "an event that is a list": Row(event(["chat:send"]), "invalid_request", "event"),
    "an unknown event": Row(event("chat:cancel"), "invalid_request", "chat:cancel"),
    "an event of the server": Row(event("chat:end", {}), "invalid_request", "chat:end"),
    "an event of the library": Row(event("connect", {}), "invalid_request", "connect"),
    "a long name": Row(event("x" * 10_000), "invalid_request", "x" * 64 + "'"),
    "an id that is a list": Row(event("chat:stop", {}, id=[1]), "invalid_request", "id"),
    "an id that is true": Row(event("chat:stop", {}, id=True), "invalid_request", "id"),
    "an id that is no whole number": Row(event("chat:stop", {}, id=1.5), "invalid_request", "id"),
    "a huge id": Row(event("chat:stop", {}, id=2**60), "invalid_request", "id"),
    "a long id": Row(event("chat:stop", {}, id="x" * 129), "invalid_request", "id"),
}
SESSIONS = {
    "no data": Row(event("session:subscribe"), "invalid_request", "data: "),
    "data that are a list": Row(event("chat:send", []), "invalid_request", "data: "),
    "data that are a text": Row(event("chat:stop", SESSION), "invalid_request", "data: "),
    "no session": Row(event("session:subscribe", {}), "invalid_request", "session_id"),
    "a session that is null": Row(subscribe(session_id=None), "invalid_request", "session_id"),
    "a session that is a number": Row(send(session_id=1), "invalid_request", "session_id"),
    "a session that is a list": Row(send(session_id=["a"]), "invalid_request", "session_id"),
    "an empty session": Row(send(session_id=""), "invalid_request"),
    "a session that is a path": Row(subscribe(session_id=".."), "invalid_request"),
    "a session with a line break": Row(subscribe(session_id="a\nb"), "invalid_request"),
    "a long session": Row(subscribe(session_id="x" * 257), "invalid_request"),
    "a session to unsubscribe that is none": Row(
        event("session:unsubscribe", {}), "invalid_request", "session_id"
    ),
    "an unknown session": Row(subscribe(session_id="nowhere"), "conversation_not_found"),
    "a cursor in an unknown one": Row(
        subscribe(session_id="nowhere", after_sequence=8589935617), "conversation_not_found"
    ),
    "a message to an unknown one": Row(
        send(session_id="nowhere", message="hi"), "conversation_not_found"
    ),
    "a stop of an unknown one": Row(
        event("chat:stop", {"session_id": "nowhere"}), "conversation_not_found"
    ),
    "a form that is none": Row(subscribe(event_format="rare"), "invalid_request", "event_format"),
    "a form that is a number": Row(subscribe(event_format=1), "invalid_request", "event_format"),
    "a cursor below 0": Row(subscribe(after_sequence=-1), "invalid_request", "after_sequence"),
    "a cursor with a fraction": Row(
        subscribe(after_sequence=1.5), "invalid_request", "after_sequence"
    ),
    "a cursor that is a text": Row(
        subscribe(after_sequence="1"), "invalid_request", "after_sequence"
    ),
    "a cursor that is true": Row(
        subscribe(after_sequence=True), "invalid_request", "after_sequence"
    ),
    "a cursor that no event has": Row(subscribe(after_sequence=7), "invalid_cursor"),
    "a cursor of the future": Row(subscribe(after_sequence=2**50), "invalid_cursor"),
    "a cursor beyond all": Row(subscribe(after_sequence=2**63), "invalid_cursor"),
    "resume that is a text": Row(subscribe(resume="yes"), "invalid_request", "resume"),
}
MESSAGES = {
    "no message": Row(send(), "nothing_to_do", "message"),
    "an empty message": Row(send(message=""), "nothing_to_do", "message"),
    "no parts": Row(send(message=[]), "nothing_to_do", "message"),
    "a blank message": Row(send(message=" \n"), "invalid_request"),
    "a message that is a number": Row(send(message=1), "invalid_request", "message"),
    "a message that is an object": Row(send(message={"text": "a"}), "invalid_request", "message"),
    "a part that is a text": Row(send(message=["a"]), "invalid_request", "message.0"),
    "a part of no type": Row(part(text="a"), "invalid_request", "message.0.type"),
    "a part of an unknown type": Row(part(type="video"), "invalid_request", "message.0.type"),
    "a text that is a number": Row(part(type="text", text=1), "invalid_request", "message.0.text"),
    "blank parts": Row(part(type="text", text=" "), "invalid_request"),
    "an image without an address": Row(part(type="image_url"), "invalid_request", "image_url"),
    "an image in no data": Row(
        part(type="image_url", image_url={"url": "data:image/png;base64,%"}), "invalid_request"
    ),
    "an image of a file": Row(
        part(type="image_url", image_url={"url": "file:///etc/passwd"}), "invalid_request", "url"
    ),
    "an image that is a text": Row(
        part(type="image_url", image_url={"url": "data:text/plain;base64,aGk="}), "invalid_request"
    ),
    "a file without data": Row(part(type="file", name="a"), "invalid_request", "data"),
    "a file that is no base64": Row(
        part(type="file", name="a", data="a b"), "invalid_request", "message.0.data"
    ),
    "a file of a wrong type": Row(
        part(type="file", data="aGk=", media_type="a b"), "invalid_request", "message.0.data"
    ),
    "a file that is too large": Row(part(type="file", data="A" * 2000), "attachment_too_large"),
    "too many parts": Row(
        send(message=[{"type": "text", "text": "a"}] * 1001), "invalid_request", "message"
    ),
    "a mode that is none": Row(send(message="a", mode="fast"), "invalid_request", "mode"),
    "headless as a text": Row(send(message="a", headless="yes"), "invalid_request", "headless"),
    "a model that is a number": Row(send(message="a", model=1), "invalid_request", "model"),
    "a model that nobody has": Row(send(message="a", model="gpt-9"), "unknown_model"),
    "a schema that is a list": Row(
        send(message="a", output_schema=[]), "invalid_request", "output_schema"
    ),
    "a schema that is none": Row(
        send(message="a", output_schema={"type": "text"}), "invalid_output_schema"
    ),
    "a schema of a list": Row(
        send(message="a", output_schema={"type": "array"}), "invalid_output_schema"
    ),
    "a schema without a message": Row(
        send(message="", output_schema={"type": "object"}, askuser_answer=None), "nothing_to_do"
    ),
    "a busy policy that is none": Row(
        send(message="a", on_busy="wait"), "invalid_request", "on_busy"
    ),
    "what if, without a step": Row(what_if(), "invalid_request", "whatif.from_step"),
    "what if, as a text": Row(send(message="a", whatif="1"), "invalid_request", "whatif"),
    "a step below 0": Row(what_if(from_step=-1), "invalid_request", "whatif.from_step"),
    "a step that is a text": Row(what_if(from_step="1"), "invalid_request", "whatif.from_step"),
    "a step that is true": Row(what_if(from_step=True), "invalid_request", "whatif.from_step"),
    "a step that there is not": Row(
        what_if(from_step=1), "message_not_found", "whatif.from_step: this session has no turn"
    ),
    "a huge step": Row(what_if(from_step=2**70), "message_not_found", "whatif.from_step"),
    "quotes": Row(what_if(from_step=0, quotes=[{}]), "invalid_request", "whatif.quotes"),
    "entries that are numbers": Row(
        what_if(from_step=0, deprecate_entry_ids=[1]), "invalid_request", "deprecate_entry_ids.0"
    ),
    "what if, with an answer": Row(
        what_if(from_step=0, askuser_answer={"tool_call_id": "c"}), "invalid_request", "whatif"
    ),
    "what if, with a result": Row(
        what_if(from_step=0, tool_results=[{"tool_call_id": "c", "result": 1}]),
        "invalid_request",
        "whatif",
    ),
    "what if, with nothing to answer": Row(
        send(message="", whatif={"from_step": 0}), "nothing_to_do"
    ),
    "what if, in an unknown session": Row(
        send(session_id="nowhere", message="a", whatif={"from_step": 0}), "conversation_not_found"
    ),
    "a decision of a replay": Row(
        send(message="a", replay_decision="ok"), "invalid_request", "replay_decision"
    ),
    "an id that cannot be printed": Row(
        send(message="a", message_id="\u0000"), "invalid_request", "message_id"
    ),
    "an unknown command": Row(send(message="/nosuch"), "unknown_command"),
    "tools that are an object": Row(send(message="a", tools={}), "invalid_request", "tools"),
    "a tool without a name": Row(send(message="a", tools=[{}]), "invalid_tool", "tools[0]"),
    "a tool with a wrong schema": Row(
        send(message="a", tools=[{"name": "t", "parameters": {"type": "list"}}]), "invalid_tool"
    ),
    "two tools of one name": Row(
        send(message="a", tools=[{"name": "t"}, {"name": "T"}]), "tool_name_clash"
    ),
}
ANSWERS = {
    "an answer that is a text": Row(
        send(askuser_answer="yes"), "invalid_request", "askuser_answer"
    ),
    "an answer to nothing": Row(
        answer(selections={"0": [0]}), "invalid_request", "askuser_answer.tool_call_id"
    ),
    "an answer to an unknown call": Row(answer(tool_call_id="call_1"), "tool_call_not_found"),
    "selections that are a list": Row(
        answer(tool_call_id="c", selections=[0]), "invalid_request", "askuser_answer.selections"
    ),
    "a selection that is a number": Row(
        answer(tool_call_id="c", selections={"0": 0}), "invalid_request", "selections.0"
    ),
    "a place that is a text": Row(
        answer(tool_call_id="c", selections={"0": ["0"]}), "invalid_request", "selections.0.0"
    ),
    "a place that is true": Row(
        answer(tool_call_id="c", selections={"0": [True]}), "invalid_request", "selections.0.0"
    ),
    "words that are a number": Row(
        answer(tool_call_id="c", custom={"0": 1}), "invalid_request", "custom.0"
    ),
    "results that are an object": Row(send(tool_results={}), "invalid_request", "tool_results"),
    "a result of nothing": Row(
        result(result="a"), "invalid_request", "tool_results.0.tool_call_id"
    ),
    "no result": Row(result(tool_call_id="c"), "invalid_request", "tool_results.0.result"),
    "a result with a status that is none": Row(
        result(tool_call_id="c", result=1, status="ok"), "invalid_request", "tool_results.0.status"
    ),
    "a result of an unknown call": Row(result(tool_call_id="c", result=1), "tool_call_not_found"),
    "a result that is too large": Row(
        result(tool_call_id="c", result="x" * 3000), "result_too_large"
    ),
    "nothing to compact": Row(event("chat:compact", {}), "invalid_request", "session_id"),
}
TABLE = {**FRAMES, **SESSIONS, **MESSAGES, **ANSWERS}


def test_the_table_is_long() -> None:
    assert len(TABLE) == sum(map(len, (FRAMES, SESSIONS, MESSAGES, ANSWERS))) >= 100


async def test_each_row_gets_its_error_and_changes_nothing() -> None:
    limits = "attachment_bytes=1024 result_bytes=2000"
    agent = Agent(model=ScriptedModel([says("fine")]), commands={"mine": lambda _argument, _c: "x"})
    async with chat_site(agent, settings={"limits": limits, "models": "demo"}) as site:
        assert await site.create() == SESSION
        key = ConversationKey(ANYBODY, ConversationId(SESSION))
        before = await site.runs.status(key)
        async with site.client() as client:
            for why, row in TABLE.items():
                await client.connection.send(row.sent)
                error = await client.next()
                assert error["event"] == "system:error", (why, error)
                data = error["data"]
                assert data["code"] == row.code, (why, error)
                assert row.named in f"{data['message']} {data.get('detail')}", (why, error)
                assert "Traceback" not in json.dumps(error)
            assert await site.runs.status(key) == before
            await client.call("session:subscribe", session_id=SESSION)
            await client.emit("chat:send", session_id=SESSION, message="hello")
            assert (await client.chat())[-1]["data"]["status"] == "completed"


async def test_a_refusal_names_the_session_and_the_place() -> None:
    async with chat_site() as site:
        await site.create()
        async with site.client() as client, site.client() as other:
            await other.call("session:subscribe", session_id=SESSION)
            await client.connection.send(send(message=[{"type": "text", "text": 1}]))
            problems = [{"at": "message.0.text", "problem": "Input should be a valid string"}]
            assert await client.next() == {
                "event": "system:error",
                "data": {
                    "code": "invalid_request",
                    "message": "message.0.text: Input should be a valid string",
                    "session_id": SESSION,
                    "detail": {"problems": problems},
                },
            }
            ack = await client.call("chat:stop", session_id=3)
            assert (ack["status"], ack["code"], "session_id" in ack) == (
                "error",
                "invalid_request",
                False,
            )
            ack = await client.call("chat:stop", session_id="s" * 257)
            assert (ack["code"], "session_id" in ack) == ("invalid_request", False)
            await client.emit("chat:stop", session_id=SESSION)
            # nobody else is told
            assert await other.call("chat:stop", session_id=SESSION) == {"status": "ok"}
            assert client.received == other.received == []


async def test_a_client_follows_a_bounded_number_of_sessions() -> None:
    async with chat_site() as site, site.client() as client:
        for _ in range(100):
            session = await site.create()
            assert (await client.call("session:subscribe", session_id=session))["status"] == "ok"
        session = await site.create()
        ack = await client.call("session:subscribe", session_id=session)
        assert ack["code"] == "invalid_request"
        assert (await client.call("session:subscribe", session_id=SESSION))["status"] == "ok"
