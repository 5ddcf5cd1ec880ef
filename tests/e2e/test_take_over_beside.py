"""A worker is killed while two sub-agents talk: all readers end with the record's messages."""

from collections.abc import Iterable

import anyio
import pytest
from tests.e2e.asking import ROOT
from tests.e2e.parallel_agents import Parts
from tests.e2e.workers import LEASE, SECONDS, worker
from tests.support.agent_api import bodies, check_legal, events_of
from tests.support.model_server import Act, Reply, calls, event, listening, says
from tests.support.wire import COLOR, DONE, Client, Frame, Json, merged, user, without_void

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P3", "P10")]

INCLUDE = ["run", "rewind", "agents"]
TASKS = calls(("a", "one", '{"task": "go"}'), ("b", "two", '{"task": "go"}'))


def half() -> Reply:
    """The beginning of an answer, in the middle of a call of the client's tool."""
    called = {"index": 0, "id": "c", "function": {"name": "set-color", "arguments": '{"col'}}
    return Reply([event(content="half of one "), event(tool_calls=[called]), Act.STALL])


def words(frames: Iterable[Frame]) -> list[str]:
    """Return what each agent has said, as far as it stands."""
    texts: dict[str, str] = {}
    for frame in without_void(frames):
        if frame.type == "agent-text":
            parent = frame.event["parentToolCallId"]
            texts[parent] = texts.get(parent, "") + frame.event["delta"]
        elif frame.type == "text":
            texts[""] = texts.get("", "") + frame.event["content"]
    return sorted(texts.values())


def recorded(messages: Iterable[Json]) -> list[str]:
    texts: dict[str, str] = {}
    for each in messages:
        parent, message = each.get("toolCallId", ""), each.get("message", each)
        if message["role"] == "assistant" and message["content"]:
            texts[parent] = texts.get(parent, "") + message["content"]
    return sorted(texts.values())


@pytest.mark.promise("P10")
async def test_readers_end_with_the_records_texts_when_the_worker_of_two_sub_agents_is_killed(
    store: str, conversation: str
) -> None:
    gate = anyio.Event()
    parts = {
        "lead": [TASKS, says("all ", "done")],
        "one": [half(), says("whole ", "of one")],
        "two": [
            Reply([gate, event(content="two looks"), *calls(("d", "look", "{}")).steps]),
            Reply([event(content=" half"), Act.STALL]),
            says(" and ", "says"),
        ],
    }
    async with listening(Parts(parts)) as model:
        settings = ("--model", "openai:mock", "--model-base-url", model.base_url)
        flags = (
            "tests.e2e.parallel_agents:agent",
            "--store",
            store,
            "--timing",
            f"lease={LEASE}",
            *settings,
        )
        async with worker(*flags, cwd=ROOT) as lives, worker(*flags, cwd=ROOT) as dies:
            survivor = lives.client
            asked = dies.client.stream(conversation, [user("go")], tools=[COLOR], include=INCLUDE)
            async with asked as stream, survivor.follow(conversation, include=INCLUDE) as followed:
                with anyio.fail_after(SECONDS):
                    while (await stream.until("tool-call-args")).event["delta"] != '{"col':
                        pass
                    gate.set()
                    await stream.until("tool-result")
                    await stream.until("agent-text")
                    dies.server.kill()
                    live = await followed.whole()
            good = await survivor.replay(conversation, include=INCLUDE)
            texts = ["all done", "two looks and says", "whole of one"]
            assert recorded(await survivor.messages(conversation)) == texts
            assert (good.types[-2:], words(good.frames)) == (["run-end", DONE], texts)
            assert "rewind" not in good.types
            assert merged(without_void(live.frames)) == merged(good.frames)
            await _goes_on_anywhere(survivor, conversation, stream.frames, good.frames)
            await _is_the_same_in_other_forms(survivor, conversation)
    model.assert_no_violations()


async def _goes_on_anywhere(
    survivor: Client, conversation: str, seen: list[Frame], good: Iterable[Frame]
) -> None:
    """A client that was cut off behind any frame, and comes back to another worker."""
    for count, frame in enumerate(seen, 1):
        rest = await survivor.replay(conversation, after=frame.id, include=INCLUDE)
        assert merged(without_void((*seen[:count], *rest.frames))) == merged(good)
    unable = await survivor.replay(conversation, after=seen[-1].id)
    assert unable.types == ["error", DONE]
    assert unable.frames[0].event["code"] == "rewound"
    again = await survivor.replay(conversation, after=unable.frames[-1].id)
    assert again.text == "all done"


async def _is_the_same_in_other_forms(survivor: Client, conversation: str) -> None:
    path = f"/conversations/{conversation}/stream"
    document = (await survivor.http.get(path, params={"wait": "true"})).json()
    assert (document["text"], document["owed"]) == ("all done", [])
    plain = await survivor.http.get(path, headers={"accept": "text/plain"})
    assert plain.text == "all done\n"
    response = await survivor.http.get(f"/process/{conversation}/stream")
    final = check_legal(events_of(response.content))
    begun = [call["name"] for call in bodies(final, "plugin_call")]
    assert (sorted(begun), bodies(final, "function_call")) == (["look", "one", "two"], [])
