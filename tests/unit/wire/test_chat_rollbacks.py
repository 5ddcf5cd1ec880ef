"""A chat that is rolled back leaves nothing with the clients: what they were told is the record."""

import anyio
import httpx
import pytest
from tests.support.chat_site import ChatSite, Json, chat_site
from tests.support.ledgers import open_ledger
from tests.support.logged_runs import RUN
from tests.support.runs import PAINT, call_ids, post, result, says, worker
from tests.unit.wire.chat_client import ChatClient
from tests.unit.wire.chat_watcher import Watcher, recorded_turns
from tests.unit.wire.random_turns import HANG
from tests.unit.wire.test_chat_plain import agent, say
from tests.unit.wire.test_chat_resume import shown, take

from passback.core.events import Logged, Position, RunStarted
from passback.core.messages import AssistantMessage, Message, MessageId, RunId, UserMessage
from passback.models.scripted import ScriptedModel, calls
from passback.models.scripted import says as words
from passback.wire.chat.turns import Turns

pytestmark = pytest.mark.anyio

EARLIER = RunId("run_0")
ASKED = UserMessage(MessageId("u0"), "go", run_id=EARLIER)
ANSWER = AssistantMessage(MessageId("a0"), "here", run_id=EARLIER)
INSTEAD = UserMessage(MessageId("u2"), "instead", run_id=RUN.run_id)


def begun(*before: Message) -> list[tuple[str, object]]:
    """What clients are told when a run begins for which another one was rolled back."""
    started = RunStarted(RUN.run_id, len(before), 1, rolled_back=True)
    said = Turns(before).feed(RUN, Logged(Position(1, 1), started), [INSTEAD])
    return [(each.name, each.data.get("id", each.data.get("rolled_back_to"))) for each in said]


def test_what_stands_behind_the_last_message_that_is_kept_is_told_anew() -> None:
    begins = [("chat:start", None), ("turn:start", "u2"), ("turn:end", "u2")]
    assert begun() == [("session:updated", 0), *begins]
    assert begun(ASKED) == [("session:updated", 1), *begins]
    kept = [("turn:start", "run_0.1"), ("turn:end", "run_0.1")]
    assert begun(ASKED, ANSWER) == [("session:updated", 1), *kept, *begins]


async def test_a_run_that_went_on_with_results_is_rolled_back_to_them() -> None:
    model = ScriptedModel([calls(("paint", {})), [HANG, anyio.Event()], words("two")])
    async with open_ledger("memory:") as store, worker(store, model) as runs:
        watcher = Watcher(runs, ["rollback"])
        await watcher.follow(await post(runs, says(), tools=[PAINT]))
        [call_id] = await call_ids(runs)
        await watcher.follow(await post(runs, result(call_id, "painted")))
        assert watcher.client.kept == await recorded_turns(runs)
        [_, painted, _, last] = watcher.client.kept.values()
    assert [call["result"] for call in painted["tool_calls"]] == ["painted"]
    assert last["blocks"] == [{"type": "text", "content": "two"}]


async def test_clients_that_are_there_and_those_that_come_back_have_what_is_recorded() -> None:
    scripted = agent(words("Zero."), ["half ", anyio.Event()], words("Two."))
    async with chat_site(scripted) as site:
        session = await site.create()
        async with site.subscribed(session) as client, site.subscribed(session) as other:
            events = await say(client, session)
            await client.emit("chat:send", session_id=session, message="wrong")
            while "half " not in str(events[-1]):
                events.append(await client.next())
            sent = {"message": "right", "on_busy": "rollback"}
            ack = await other.call("chat:send", session_id=session, **sent)
            assert ack["status"] == "ok"
            void = list(events)
            events += [*await client.chat(), *await client.chat()]
        assert [each["event"] for each in events].count("session:updated") == 1
        recorded = await turns_of(site, session)
        texts = [
            "".join(block["content"] for block in turn["blocks"]) for turn in recorded.values()
        ]
        assert texts == ["go", "Zero.", "right", "Two."]
        assert shown(events).kept == recorded
        for cut, last in enumerate(void, 1):
            late = shown(void[:cut])
            if any(late.turns[turn]["role"] == "user" for turn in late.open):
                continue  # between the two events of one message, which come as one
            await catch_up(site, session, late, last["data"]["stream_sequence"])
            assert late.kept == recorded


async def turns_of(site: ChatSite, session: str) -> dict[str, Json]:
    async with httpx.AsyncClient() as http:
        answer = await http.get(f"{site.url}/api/sessions/{session}/messages")
    return {turn["id"]: turn for turn in answer.json()}


async def catch_up(site: ChatSite, session: str, client: ChatClient, number: int) -> None:
    async with site.subscribed(session, after_sequence=number) as late:
        while len(client.ends) < 3:
            take(client, await late.chat())
