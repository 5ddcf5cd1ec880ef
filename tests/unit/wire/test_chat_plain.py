"""The chat socket as a plain WebSocket, by the published client `websockets`: every flow."""

import json
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from tests.support.chat_site import ANYBODY, ChatSite, Json, PlainChat, chat_site

from passback import Agent, Permission, tool
from passback.core.messages import ConversationId, ConversationKey
from passback.models.scripted import ScriptedModel, Turn, calls, says

pytestmark = pytest.mark.anyio

OK = {"status": "ok"}
QUESTIONS: Json = {
    "questions": [
        {
            "question": "Where to?",
            "options": [{"label": "staging", "description": "for tests"}, {"label": "production"}],
            "freeText": False,
        },
        {
            "question": "Which parts?",
            "options": [{"label": "api"}, {"label": "page"}],
            "multiple": True,
        },
        {"question": "Why?"},
    ]
}
ANSWER: Json = {"selections": {"0": [1], "1": [0, 1]}, "custom": {"2": " because "}}


@tool(title="Run a command")
def bash(command: str) -> str:
    """Run a command."""
    return f"ran {command}"


@tool(permission=Permission("ask", "It cannot be undone."))
def delete_file(path: str) -> str:
    """Delete a file."""
    return f"{path} is deleted"


def agent(*turns: Turn) -> Agent:
    return Agent(model=ScriptedModel(turns), tools=[bash, delete_file])


def key(session: str) -> ConversationKey:
    return ConversationKey(ANYBODY, ConversationId(session))


def told(events: Sequence[Json]) -> list[str]:
    """The events in short: name, and what is most important in it."""
    return [" ".join([each["event"], *_details(each["event"], each["data"])]) for each in events]


def _details(name: str, data: Json) -> list[str]:
    match name:
        case "turn:start" | "turn:end":
            return [data["role"], data["status"]]
        case "turn:patch":
            inner = data["data"]
            kind = data["patch_type"]
            told_of = inner.get("text_delta") or inner.get("tool_name") or inner.get("result") or ""
            return [kind, told_of, *([inner["status"]] if inner.get("status") else [])]
        case "chat:end":
            return [data["status"], data["finish_reason"]]
        case _:
            return []


async def say(client: PlainChat, session: str, message: Any = "go", **more: Any) -> list[Json]:
    """Send a message, and return the events of its chat."""
    ack = await client.call("chat:send", session_id=session, message=message, **more)
    assert ack["status"] == "ok", ack
    return await client.chat()


async def record(site: ChatSite, session: str) -> int:
    return (await site.runs.status(key(session))).message_count


async def test_a_chat_without_tools() -> None:
    async with chat_site(agent(says("Paris", "."), says("Rome."))) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            first = await say(client, session, "The capital of France?")
            assert told(first) == [
                "chat:start",
                "turn:start user completed",
                "turn:end user completed",
                "turn:start assistant streaming",
                *told(first)[4:-2],
                "turn:end assistant completed",
                "chat:end completed completed",
            ]
            patches = [each["data"]["data"] for each in first if each["event"] == "turn:patch"]
            assert "".join(each["text_delta"] for each in patches) == "Paris."
            second = await say(client, session, [{"type": "text", "text": "And of Italy?"}])
            numbers = [each["data"]["stream_sequence"] for each in first + second]
            assert numbers == sorted(set(numbers))
            assert 0 < numbers[0] <= numbers[-1] < 2**53
            assert {each["data"]["session_id"] for each in first + second} == {session}


async def test_a_tool_of_the_server_and_several_turns() -> None:
    model = agent(
        ["I look.", *calls(("bash", {"command": "ls"}))],
        calls(("bash", {"command": "wc"})),
        says("Two files."),
    )
    async with chat_site(model) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            events = await say(client, session)
            assert told(events)[3:] == [
                "turn:start assistant streaming",
                "turn:patch add_content I look.",
                "turn:patch add_tool_call bash pending",
                "turn:patch tool_result ran ls done",
                "turn:end assistant completed",
                "turn:start assistant streaming",
                "turn:patch add_tool_call bash pending",
                "turn:patch tool_result ran wc done",
                "turn:end assistant completed",
                "turn:start assistant streaming",
                "turn:patch add_content Two files.",
                "turn:end assistant completed",
                "chat:end completed completed",
            ]
            call, result = (events[at]["data"]["data"] for at in (5, 6))
            assert call["display_name"] == "Run a command"
            assert json.loads(call["arguments"]) == {"command": "ls"}
            assert isinstance(result["duration_ms"], int)


async def asked(client: PlainChat, session: str, **more: Any) -> str:
    """Let the agent ask, and return the id of the call."""
    events = await say(client, session, **more)
    assert told(events)[-2:] == ["turn:end assistant paused", "chat:end completed awaiting_answer"]
    [call_id] = events[-1]["data"]["pending_tool_call_ids"]
    call = next(e["data"]["data"] for e in events if e["data"].get("patch_type") == "add_tool_call")
    assert call["tool_name"] == "AskUserQuestion"
    assert call["status"] == "awaiting_answer"
    assert json.loads(call["arguments"])["source_loop"] is None
    assert isinstance(call_id, str)
    return call_id


async def test_questions_are_answered_by_places_and_words() -> None:
    script = [calls(("ask_user", QUESTIONS)), says("Deployed.")]
    async with chat_site(agent(*script)) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            call_id = await asked(client, session)
            assert (await site.runs.status(key(session))).owed
            answer = {"tool_call_id": call_id, **ANSWER}
            events = await say(client, session, "", askuser_answer=answer)
            assert "turn:patch tool_result" in told(events)[1]
            assert told(events)[-1] == "chat:end completed completed"
            page = await site.runs.messages(key(session), start=0, limit=10)
            chosen = [
                {"selected": ["production"], "text": ""},
                {"selected": ["api", "page"], "text": ""},
                {"selected": [], "text": "because"},
            ]
            given = page.messages[2]
            assert given.content[0].data == {"answers": chosen}  # type: ignore[union-attr]
            # the same again is no error, and nothing happens; another one is refused
            count = await record(site, session)
            ack = await client.call(
                "chat:send", session_id=session, message="", askuser_answer=answer
            )
            assert ack["status"] == "ok"
            other = {**answer, "selections": {"0": [0], "1": [0]}}
            refused = await client.call(
                "chat:send", session_id=session, message="", askuser_answer=other
            )
            assert (refused["status"], refused["code"]) == ("error", "tool_result_conflict")
            assert await record(site, session) == count


async def test_a_repeated_answer_is_recognised_after_many_chats() -> None:
    script = [calls(("ask_user", QUESTIONS)), *[says("Yes.")] * 52]
    async with chat_site(agent(*script)) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            answer = {"tool_call_id": await asked(client, session), **ANSWER}
            await say(client, session, "", askuser_answer=answer)
            for _ in range(51):
                await say(client, session)
            ack = await client.call(
                "chat:send", session_id=session, message="", askuser_answer=answer
            )
            assert ack["status"] == "ok"


WRONG_ANSWERS: dict[str, Json] = {
    "nothing": {},
    "a question without an answer": {"selections": {"0": [0], "1": [0]}},
    "an empty selection": {**ANSWER, "selections": {"0": [], "1": [0]}},
    "a place beyond the options": {**ANSWER, "selections": {"0": [2], "1": [0]}},
    "a place below 0": {**ANSWER, "selections": {"0": [-1], "1": [0]}},
    "two of one": {**ANSWER, "selections": {"0": [0, 1], "1": [0]}},
    "one twice": {**ANSWER, "selections": {"0": [0], "1": [1, 1]}},
    "a question that is none": {**ANSWER, "custom": {"2": "x", "3": "y"}},
    "a number with a zero": {**ANSWER, "selections": {"00": [0], "1": [0]}},
    "words where only options count": {
        "selections": {"1": [0]},
        "custom": {"0": "elsewhere", "2": "x"},
    },
    "blank words": {**ANSWER, "custom": {"2": "  "}},
}


async def test_wrong_answers_change_nothing() -> None:
    async with chat_site(agent(calls(("ask_user", QUESTIONS)), says("Deployed."))) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            call_id = await asked(client, session)
            before = await site.runs.status(key(session))
            for why, wrong in WRONG_ANSWERS.items():
                answer = {"tool_call_id": call_id, **wrong}
                await client.emit("chat:send", session_id=session, askuser_answer=answer)
                error = await client.next()
                assert error["event"] == "system:error", why
                assert error["data"]["code"] == "invalid_answer", (why, error)
                assert error["data"]["message"].startswith("askuser_answer"), (why, error)
                assert error["data"]["session_id"] == session
            unknown = {"tool_call_id": "call_nowhere", **ANSWER}
            await client.emit("chat:send", session_id=session, askuser_answer=unknown)
            assert (await client.next())["data"]["code"] == "tool_call_not_found"
            assert await site.runs.status(key(session)) == before
            answer = {"tool_call_id": call_id, **ANSWER}
            assert told(await say(client, session, "", askuser_answer=answer))[-1].startswith(
                "chat:end"
            )


async def test_a_message_goes_on_without_an_answer() -> None:
    script = [calls(("ask_user", QUESTIONS)), says("As you like.")]
    async with chat_site(agent(*script)) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            await asked(client, session)
            events = await say(client, session, "never mind")
            assert "cancelled" in told(events)[1]
            assert told(events)[-1] == "chat:end completed completed"


async def test_calls_that_need_approval() -> None:
    script = [
        calls(("delete_file", {"path": "a"})),
        says("Deleted."),
        calls(("delete_file", {"path": "b"})),
        says("Kept."),
        calls(("delete_file", {"path": "c"})),
        says("Kept, too."),
    ]
    async with chat_site(agent(*script)) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            for given, result in (
                ({"selections": {"0": [0]}}, "a is deleted"),
                ({"selections": {"0": [1]}, "custom": {"0": "too late"}}, "too late"),
                ({"custom": {"0": "never"}}, "never"),
            ):
                events = await say(client, session)
                assert told(events)[-1] == "chat:end completed awaiting_answer"
                [call_id] = events[-1]["data"]["pending_tool_call_ids"]
                for wrong in (
                    {},
                    {"selections": {"0": [2]}},
                    {"selections": {"0": [0, 1]}},
                    {"selections": {"1": [0]}},
                ):
                    answer = {"tool_call_id": call_id, **wrong}
                    ack = await client.call("chat:send", session_id=session, askuser_answer=answer)
                    assert ack["code"] == "invalid_answer", wrong
                answer = {"tool_call_id": call_id, **given}
                events = await say(client, session, "", askuser_answer=answer)
                assert result in "\n".join(told(events))


PAINT = {
    "name": "paint",
    "description": "Paint it.",
    "parameters": {"type": "object", "properties": {}},
}


async def test_client_tools() -> None:
    script = [calls(("paint", {}), ("paint", {})), says("Painted.")]
    async with chat_site(agent(*script)) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            events = await say(client, session, tools=[PAINT])
            assert "turn:patch add_tool_call paint awaiting_result" in told(events)
            assert told(events)[-2] == "turn:end assistant paused"
            first, second = events[-1]["data"]["pending_tool_call_ids"]
            answer = {"tool_call_id": first, **ANSWER}
            ack = await client.call("chat:send", session_id=session, askuser_answer=answer)
            assert ack["code"] == "invalid_answer"
            results = [{"tool_call_id": first, "result": "blue"}]
            ack = await client.call(
                "chat:send", session_id=session, message="", tool_results=results
            )
            assert ack == {"status": "ok", "pending_tool_call_ids": [second]}
            results = [{"tool_call_id": second, "result": {"color": "red"}, "status": "error"}]
            events = await say(client, session, None, tool_results=results)
            assert told(events)[1:3] == [
                "turn:patch tool_result blue done",
                'turn:patch tool_result {"color": "red"} error',
            ]
            other = [{"tool_call_id": second, "result": "another"}]
            ack = await client.call("chat:send", session_id=session, tool_results=other)
            assert ack["code"] == "tool_result_conflict"


async def test_forks() -> None:
    cook = Agent(
        name="cook",
        description="Cooks.",
        model=ScriptedModel([calls(("bash", {"command": "stir"})), says("Soup.")]),
        tools=[bash],
    )
    script = [calls(("cook", {"task": "cook"})), says("Here is soup.")]
    head = Agent(model=ScriptedModel(script), agents=[cook])
    async with chat_site(head) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            events = await say(client, session)
            fork = next(e["data"]["data"]["id"] for e in events if e["event"] == "turn:patch")
            parents = [
                each["data"]["parent_fork_tool_call_id"]
                for each in events
                if each["event"] == "turn:start"
            ]
            assert parents == [None, None, fork, fork, None]


async def test_a_sub_agents_approval_is_given_once_though_it_is_sent_twice() -> None:
    cook = Agent(
        name="cook",
        description="Cooks.",
        model=ScriptedModel([calls(("delete_file", {"path": "a"})), says("Soup.")]),
        tools=[delete_file],
    )
    script = [calls(("cook", {"task": "cook"})), says("Here is soup.")]
    async with chat_site(Agent(model=ScriptedModel(script), agents=[cook])) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            [call_id] = (await say(client, session))[-1]["data"]["pending_tool_call_ids"]
            answer = {"tool_call_id": call_id, "selections": {"0": [0]}}
            events = await say(client, session, "", askuser_answer=answer)
            assert told(events)[-1] == "chat:end completed completed"
            ack = await client.call(
                "chat:send", session_id=session, message="", askuser_answer=answer
            )
            assert ack["status"] == "ok"


SCHEMA: Json = {
    "type": "object",
    "properties": {"countries": {"type": "array", "items": {"type": "string"}}},
    "required": ["countries"],
}


@pytest.mark.parametrize("event_format", [None, "raw"])
async def test_headless_chats(event_format: str | None) -> None:
    value = {"countries": ["Russia", "Canada", "China"]}
    script: list[Turn] = [
        says("Paris."),
        says(json.dumps(value)),
        calls(("delete_file", {"path": "a"})),
        calls(("paint", {})),
        says("Painted."),
        [ValueError("it breaks")],
        says("not headless"),
    ]
    async with chat_site(agent(*script)) as site:
        session = await site.create()
        async with site.subscribed(session, event_format=event_format) as client:

            async def end(message: str = "go", **more: Any) -> Json:
                data: Json = (await say(client, session, message, **more))[-1]["data"]
                return data

            is_raw = event_format == "raw"
            text = await end(headless=True)
            assert text["result"] == (
                {"output": "Paris.", "result": "Paris."} if is_raw else {"output": "Paris."}
            )
            made = await end(headless=True, output_schema=SCHEMA)
            assert made["result"] == (value if is_raw else {"output": value, "schema": SCHEMA})
            asked_ = await end(headless=True, tools=[PAINT])
            assert (asked_["status"], asked_["result"]) == ("failed", {"err_msg": "input required"})
            waits = await end(headless=True)
            assert (waits["status"], waits["result"]) == ("completed", None)
            results = [{"tool_call_id": waits["pending_tool_call_ids"][0], "result": "blue"}]
            painted = await end("", tool_results=results)
            assert painted["result"]["output"] == "Painted."
            broken = await end(headless=True)
            assert broken["status"] == "failed"
            assert broken["result"] == {"err_msg": broken["error"]["message"]}
            assert "it breaks" not in json.dumps(broken)
            assert (await end())["result"] is None


async def test_headless_goes_on_for_a_client_that_comes_later() -> None:
    script = [calls(("paint", {})), says("Painted.")]
    async with chat_site(agent(*script)) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            waits = await say(client, session, headless=True, tools=[PAINT])
        results = [
            {"tool_call_id": waits[-1]["data"]["pending_tool_call_ids"][0], "result": "blue"}
        ]
        async with site.subscribed(session) as client:
            events = await say(client, session, "", tool_results=results)
            assert events[-1]["data"]["result"] == {"output": "Painted."}


async def test_parts_of_a_message() -> None:
    parts = [
        {"type": "text", "text": "Look."},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "file", "name": "a.pdf", "data": "JVBERg=="},
        {"type": "file", "data": "JVBERg==", "media_type": "text/plain"},
        {"type": "file", "name": None, "data": "JVBERg=="},
    ]
    model = ScriptedModel([says("I see.")], media=True)
    async with chat_site(Agent(model=model)) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            await say(client, session, parts, mode="planning", model=None, message_id="m1")
        message = (await site.runs.messages(key(session), start=0, limit=1)).messages[0]
        kinds = [getattr(part, "media_type", "") for part in message.content]  # type: ignore[union-attr]
        assert kinds == ["", None, "application/pdf", "text/plain", "application/octet-stream"]
        assert message.context.extras == {"mode": "planning"}  # type: ignore[union-attr]
        assert message.id == "m1"


async def test_a_stop_right_behind_a_send_stops_that_chat() -> None:
    gate = anyio.Event()
    async with chat_site(agent(["One ", gate, *says("two.")], says("Again."))) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            assert await client.call("chat:stop", session_id=session) == OK
            await client.emit("chat:send", session_id=session, message="go")
            assert await client.call("chat:stop", session_id=session) == OK
            events = await client.chat()
            assert told(events)[0] == "chat:start"
            assert told(events)[-1] == "chat:end interrupted completed"
            assert await client.call("chat:stop", session_id=session) == OK
            assert told(await say(client, session))[-1] == "chat:end completed completed"


async def test_a_stop_ends_what_waits_and_what_is_owed() -> None:
    gate = anyio.Event()
    async with chat_site(agent([gate, *says("late")], calls(("ask_user", QUESTIONS)))) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            await client.emit("chat:send", session_id=session, message="one")
            await client.emit("chat:send", session_id=session, message="two")
            refused = (await client.until("system:error"))[-1]["data"]
            assert (refused["code"], refused["session_id"]) == ("conversation_busy", session)
            ack = await client.call(
                "chat:send", session_id=session, message="three", on_busy="enqueue"
            )
            assert ack["status"] == "ok"
            assert await client.call("chat:stop", session_id=session) == OK
            ends = [(await client.chat())[-1]["data"], (await client.chat())[-1]["data"]]
            assert {each["status"] for each in ends} == {"interrupted"}
            assert not (await site.runs.status(key(session))).running
            await asked(client, session)
            assert await client.call("chat:stop", session_id=session) == OK
            events = await client.chat()
            assert told(events)[-1] == "chat:end interrupted completed"
            assert not (await site.runs.status(key(session))).owed


async def test_compaction() -> None:
    script = [says("Long."), calls(("ask_user", QUESTIONS))]
    async with chat_site(agent(*script)) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            await say(client, session)
            ack = await client.call("chat:compact", session_id=session)
            assert ack["status"] == "ok"
            assert (await client.chat())[-1]["data"]["chat_run_id"] == ack["chat_run_id"]
            await client.emit("chat:compact", session_id="nowhere")
            assert (await client.next())["data"]["code"] == "conversation_not_found"


async def test_all_subscribers_are_told_and_a_late_one_gets_the_turn_in_progress() -> None:
    gate = anyio.Event()
    async with chat_site(agent(["One ", gate, *says("two.")], says("Again."))) as site:
        session = await site.create()
        async with site.subscribed(session) as one, site.subscribed(session) as other:
            await other.emit("chat:send", session_id=session, message="go")
            first = await one.until("turn:patch")
            async with (
                site.subscribed(session) as late,
                site.subscribed(session, event_format="raw") as raw,
            ):
                start, turn = await late.next(), await late.next()
                assert told([start, turn]) == ["chat:start", "turn:start assistant streaming"]
                assert turn["data"]["blocks"] == [{"type": "text", "content": "One "}]
                assert "stream_sequence" not in start["data"]
                assert turn["data"]["stream_sequence"] == first[-1]["data"]["stream_sequence"]
                batch = (await raw.next())["data"]
                assert [each["type"] for each in batch["events"]] == ["chat:start", "turn:start"]
                gate.set()
                rest = await one.chat()
                assert await late.chat() == rest
                assert (await raw.until("chat:end"))[-1]["data"] == rest[-1]["data"]
                assert (await other.chat())[-1] == rest[-1]
                # as often as a client has subscribed
                await late.call("session:subscribe", session_id=session)
                await late.call("session:unsubscribe", session_id=session)
                await say(one, session)
                assert told(await late.chat())[-1] == "chat:end completed completed"
                await late.call("session:unsubscribe", session_id=session)
                await late.call("session:unsubscribe", session_id=session)
                assert late.received == []


async def test_raw_subscribers_get_batches() -> None:
    async with chat_site(
        agent(["I look.", *calls(("bash", {"command": "ls"}))], says("Done."))
    ) as site:
        session = await site.create()
        async with (
            site.subscribed(session) as typed,
            site.subscribed(session, event_format="raw", after_sequence=0) as raw,
        ):
            events = await say(typed, session)
            batches = await raw.chat()
            assert {each["event"] for each in batches[:-1]} == {"turn:events"}
            assert batches[-1] == events[-1]
            flat = [
                {
                    "event": each["type"],
                    "data": {**each["payload"], "stream_sequence": each["stream_sequence"]},
                }
                for batch in batches[:-1]
                for each in batch["data"]["events"]
            ]
            assert flat == events[:-1]


async def test_a_deleted_session_ends_its_subscriptions() -> None:
    async with chat_site(agent(says("x"))) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            await site.runs.delete(key(session))
            error = await client.next()
            assert (error["event"], error["data"]["code"]) == (
                "system:error",
                "conversation_not_found",
            )
            ack = await client.call("chat:send", session_id=session, message="go")
            assert ack["status"] == "error"
            assert await client.call("session:unsubscribe", session_id=session) == OK


async def test_questions_are_offered_beside_the_tools_of_the_client() -> None:
    model = ScriptedModel([says(word) for word in ("one", "two", "three", "four")])
    async with chat_site(Agent(model=model)) as site:
        session = await site.create()
        async with site.subscribed(session) as client:
            await say(client, session, headless=True)
            await say(client, session, tools=[PAINT])
            await say(client, session)
            await say(client, session, headless=True)
        offered = [[spec.name for spec in request.tools] for request in model.requests]
        assert offered == [[], ["ask_user", "paint"], ["ask_user", "paint"], ["paint"]]
