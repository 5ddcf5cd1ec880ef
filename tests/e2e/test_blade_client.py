"""The published client of the chat socket (blade-agent-kit), as it is, at every flow it has.

It resumes behind a cut with one mend, which `blade_client.py` makes.
"""

import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.e2e import blade_client
from tests.support.gates import gate
from tests.support.model_server import DONE, Act, ModelServer, Reply, Step, calls, event, says
from tests.support.programs import missing
from tests.support.proxies import CuttingProxy, cutting_proxy
from tests.support.server import Server, running_server
from tests.support.wire import Json

pytestmark = pytest.mark.anyio

KEY = "the-key-of-ann-0123"
ROOT = Path(__file__).resolve().parents[2]
FORM = json.dumps(
    {
        "questions": [
            {"question": "Where to?", "options": [{"label": "staging"}, {"label": "production"}]}
        ]
    }
)
SCHEMA: Json = {
    "type": "object",
    "properties": {"countries": {"type": "array", "items": {"type": "string"}}},
    "required": ["countries"],
}


@pytest.fixture(scope="module")
async def server(model: ModelServer) -> AsyncGenerator[Server]:
    flags = ("--model", "openai:mock", "--model-base-url", model.base_url)
    agent = "tests.support.served_agents:asking"
    keys = {"PASSBACK_API_KEYS": f"ann:{KEY}"}
    async with running_server(agent, *flags, environment=keys, cwd=str(ROOT)) as server:
        yield server


def python_of_client() -> str:
    """Return the Python with the client; skip the test without one."""
    return os.environ.get("TEST_BLADE_CLIENT") or missing("blade-agent-kit")


async def judged(server: Server | CuttingProxy, *steps: list[Any]) -> list[Any]:
    """Return what each step gave to the client."""
    python = python_of_client()
    script = str(Path(blade_client.__file__))
    with anyio.fail_after(50):
        done = await anyio.run_process(
            [python, script, server.url, KEY],
            input=json.dumps(steps).encode(),
            env={**os.environ, "NO_PROXY": "*"},
            stderr=None,
        )
    report: list[Any] = json.loads(done.stdout)
    return report


def of(step: int, *path: str) -> Json:
    """A part of what a step gave."""
    return {"step": step, "path": list(path)}


def text_of(chat: Json, role: str = "assistant") -> str:
    """The text of all turns that ended, as the client tells its users to take it."""
    turns = [e["payload"] for e in chat["events"] if e["kind"] == "turn:end"]
    blocks = [block for turn in turns if turn["role"] == role for block in turn["blocks"]]
    return "".join(block["content"] for block in blocks if block["type"] == "text")


def check_whole(chat: Json) -> None:
    """A chat begins once, ends last, and its numbers grow."""
    kinds = [each["kind"] for each in chat["events"]]
    assert kinds[0] == "chat:start"
    assert kinds[-1] == "chat:end"
    assert kinds.count("chat:start") == kinds.count("chat:end") == 1
    numbers = [each["stream_sequence"] for each in chat["events"] if "stream_sequence" in each]
    assert numbers == sorted(set(numbers))
    assert len(numbers) >= len(kinds) - 1


async def test_a_session_is_made_talked_to_looked_at_and_deleted(
    server: Server, model: ModelServer
) -> None:
    model.play(says("Pa", "ris."), says("Rome."))
    made, first, second, looked, deleted, gone = await judged(
        server,
        ["create", "capitals"],
        ["chat", of(0, "id"), "The capital of France?", {}],
        ["chat", of(0, "id"), "Of Italy?", {"mode": "executing", "model": None}],
        ["look", of(0, "id")],
        ["delete", of(0, "id")],
        ["chat", of(0, "id"), "Of Spain?", {}],
    )
    assert made["intent"] == "capitals"
    assert made["created_at"].startswith("20")
    for chat, said, asked in (
        (first, "Paris.", "The capital of France?"),
        (second, "Rome.", "Of Italy?"),
    ):
        check_whole(chat)
        assert text_of(chat) == said
        assert text_of(chat, "user") == asked
        assert chat["events"][-1]["status"] == "completed"
    assert looked["health"]["status"] == "ok"
    assert looked["models"]["default"]
    assert looked["session"]["id"] == made["id"]
    assert made["id"] in looked["sessions"]
    assert looked["total"] == len(looked["sessions"])
    assert deleted == {"deleted": True}
    assert gone["error"] == "BladeChatError"
    model.assert_no_violations()


async def test_a_question_is_answered(server: Server, model: ModelServer) -> None:
    model.play(calls(("a", "ask_user", FORM)), says("To production."))
    answer = {"tool_call_id": of(1, "asked"), "selections": {"0": [1]}, "custom": {}}
    _, asked, answered = await judged(
        server,
        ["create", ""],
        ["chat", of(0, "id"), "Deploy it.", {}],
        ["chat", of(0, "id"), "", {"askuser_answer": answer}],
    )
    check_whole(asked)
    end = asked["events"][-1]
    assert (end["status"], end["finish_reason"]) == ("completed", "awaiting_answer")
    [call] = [
        each["payload"]["data"]
        for each in asked["events"]
        if each["kind"] == "turn:patch" and each["payload"]["patch_type"] == "add_tool_call"
    ]
    assert call["tool_name"] == "AskUserQuestion"
    [question] = json.loads(call["arguments"])["questions"]
    assert [option["label"] for option in question["options"]] == ["staging", "production"]
    check_whole(answered)
    assert text_of(answered) == "To production."
    assert "production" in json.dumps(model.requests[1].json["messages"][-1])
    model.assert_no_violations()


async def test_a_wrong_answer_is_refused_and_loses_nothing(
    server: Server, model: ModelServer
) -> None:
    model.play(calls(("a", "ask_user", FORM)), says("To staging."))
    wrong = {"tool_call_id": of(1, "asked"), "selections": {"0": [2]}, "custom": {}}
    right = {**wrong, "selections": {"0": [0]}}
    _, _, refused, answered = await judged(
        server,
        ["create", ""],
        ["chat", of(0, "id"), "Deploy it.", {}],
        ["chat", of(0, "id"), "", {"askuser_answer": wrong}],
        ["chat", of(0, "id"), "", {"askuser_answer": right}],
    )
    assert refused["error"] == "BladeChatError"
    assert text_of(answered) == "To staging."


async def test_headless_runs_give_a_text_or_what_a_schema_asks_for(
    server: Server, model: ModelServer
) -> None:
    countries = {"countries": ["Russia", "Canada"]}
    model.play(says("Paris."), says(json.dumps(countries)))
    text, data = await judged(
        server, ["headless", "The capital?", None], ["headless", "The largest?", SCHEMA]
    )
    assert (text, data) == ("Paris.", countries)


async def test_a_chat_is_stopped(server: Server, model: ModelServer) -> None:
    model.play(Reply([event(content="one"), Act.STALL]))
    _, stopped = await judged(server, ["create", ""], ["stop-within", of(0, "id"), "Count."])
    assert stopped["acked"]["status"] == stopped["again"]["status"] == "ok"
    check_whole(stopped)
    assert stopped["events"][-1]["status"] == "interrupted"
    assert text_of(stopped) == "one"


@pytest.mark.promise("P3")
async def test_an_answer_is_shown_whole_though_the_connection_is_cut_in_its_middle(
    server: Server, model: ModelServer
) -> None:
    python_of_client()  # a skip within tasks would be an error
    said = [anyio.Event(), anyio.Event()]
    steps: list[Step] = [
        event(content="one "),
        said[0],
        event(content="two "),
        said[1],
        event(content="three."),
    ]
    model.play(Reply([*steps, event("stop"), DONE]))
    given: list[Any] = []
    async with cutting_proxy(server.url) as proxy, gate() as shown:

        async def drive() -> None:
            chat = ["chat-behind-a-cut", of(0, "id"), "Count.", shown.port]
            given.extend(await judged(proxy, ["create", ""], chat))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drive)
            await shown.reached()
            before = proxy.accepted
            proxy.cut()
            said[0].set()
            shown.opened.set()
            await shown.reached()
            assert proxy.accepted > before
            said[1].set()
    chat = given[1]
    check_whole(chat)
    assert chat["events"][-1]["status"] == "completed"
    assert text_of(chat) == "one two three."
    patches = [e["payload"]["data"] for e in chat["events"] if e["kind"] == "turn:patch"]
    assert [patch["text_delta"] for patch in patches] == ["one ", "two ", "three."]
    model.assert_no_violations()


async def test_a_model_that_fails_is_told_by_the_end_of_the_chat(
    server: Server, model: ModelServer
) -> None:
    model.play(Reply([b"{}"], 401, {"content-type": "application/json"}))
    [failed] = await judged(server, ["headless", "The capital?", None])
    assert failed["error"] == "HeadlessError"
    assert failed["message"]


async def test_a_message_is_edited_and_answered_anew(server: Server, model: ModelServer) -> None:
    model.play(*(says(f"{number}.") for number in range(4)))
    what_if = {"from_step": 0, "quotes": [], "deprecate_entry_ids": ["entry_1"]}
    _, first, edited, anew, refused, more = await judged(
        server,
        ["create", ""],
        ["chat", of(0, "id"), "The capital of France?", {}],
        ["chat", of(0, "id"), "Of Italy?", {"whatif": what_if}],
        ["chat", of(0, "id"), "", {"whatif": {"from_step": 1}}],
        ["chat", of(0, "id"), "Of Spain?", {"whatif": {"from_step": 9}}],
        ["chat", of(0, "id"), "Of Spain?", {}],
    )
    check_whole(first)
    for chat, said in ((edited, "1."), (anew, "2.")):
        kinds = [each["kind"] for each in chat["events"]]
        assert kinds[0] == "session:updated"
        assert kinds[-1] == "chat:end"
        assert (text_of(chat, "user"), text_of(chat)) == ("Of Italy?", said)
        assert chat["events"][0]["payload"]["rolled_back_to"] == 0
    assert refused["error"] == "BladeChatError"
    assert "whatif.from_step: this session has no turn" in refused["message"]
    assert text_of(more) == "3."
    asked = [each["content"] for each in model.requests[3].shown]
    assert asked == ["Of Italy?", "2.", "Of Spain?"]
    model.assert_no_violations()
