"""Whatever a run does, the published client of AG-UI accepts its stream, and knows what is said."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.ag_ui_client import AgUiClient, Bridge, Json, Seen, ag_ui_client, result, user
from tests.support.asgi_client import ask_json
from tests.support.lanes import examples
from tests.support.ledgers import open_ledger
from tests.support.runs import worker
from tests.unit.engine.sub_agents import erase, helper
from tests.unit.wire.ag_ui_events import EVENTS, OUTCOMES, RUN
from tests.unit.wire.ag_ui_site import HEADERS, PATH, site

from passback.core.deltas import Finish, ReasoningBlock, ReasoningChunk, UsageChunk
from passback.core.errors import ModelError
from passback.core.events import Logged, Outcome, Position, Rewound, RunEvent, RunFinished
from passback.core.messages import (
    AssistantMessage,
    ConversationId,
    ConversationKey,
    OwnerId,
    Reasoning,
    Usage,
)
from passback.core.questions import ASK_USER
from passback.core.toolsets import ToolContext
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel, Step, calls, says
from passback.streams.frames import SseFramer
from passback.toolsets.agents import AgentTools
from passback.toolsets.functions import ToolError, tool
from passback.toolsets.plan import PlanTools
from passback.wire.ag_ui.encoder import AgUiEncoder

pytestmark = [pytest.mark.anyio, pytest.mark.node]

KEY = ConversationKey(OwnerId("anonymous"), ConversationId("thread"))

QUESTIONS = {"questions": [{"question": "Which?", "options": [{"label": "a"}, {"label": "b"}]}]}
PLAN = {"entries": [{"content": "look", "status": "in_progress"}]}
PAINT: Json = {
    "name": "paint",
    "description": "Paints.",
    "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def client() -> AsyncGenerator[AgUiClient]:
    async with ag_ui_client() as client:
        yield client


@tool
def look(context: ToolContext, at: str = "") -> str:
    """Look."""
    context.progress("looking")
    return f"seen {at}"


@tool
def breaks() -> str:
    """Break."""
    raise ToolError("broken")


CALLS: dict[str, dict[str, Any]] = {
    "look": {"at": "the sky"},
    "breaks": {},
    "erase": {},
    "paint": {},
    "ask_user": QUESTIONS,
    "helper": {"task": "find it"},
    "nosuch": {},
    "update_plan": PLAN,
}
WRONG: dict[str, dict[str, Any]] = {"look": {"at": 1}, "paint": {"no": 1}}


def _thinks(turn: list[Step]) -> list[Step]:
    block = ReasoningBlock(Reasoning("hm, well", "scripted"))
    return [ReasoningChunk("hm, "), ReasoningChunk("well"), *turn[:-1], block, turn[-1]]


def _whole(turn: list[Step], thinks: bool, counted: bool) -> list[Step]:
    turn = [*turn[:-1], UsageChunk(Usage(7, 3)), turn[-1]] if counted else turn
    return _thinks(turn) if thinks else turn


def _calls(names: Sequence[str], wrong: Sequence[str]) -> list[Step]:
    return calls(*((name, CALLS[name]) for name in names), *((name, WRONG[name]) for name in wrong))


def _said(texts: list[str]) -> list[Step]:
    return says(*texts)


def _called(text: list[str], names: list[str], wrong: list[str]) -> list[Step]:
    return [*text, *_calls(names, wrong)]


def _odd(kind: str, text: str) -> list[Step]:
    """Return an answer that is none, made anew for each."""
    turns: dict[str, list[Step]] = {
        "error": [ReasoningChunk("hm"), text, ModelError("the model is gone")],
        "cut": [text, *calls(("look", {}))[:-1]],
        "nothing": [Finish("stop")],
        "thought": [ReasoningChunk("hm"), Finish("stop")],
        "long": [text, UsageChunk(Usage(1, 1)), Finish("length")],
        "refusal": [text, Finish("refusal")],
    }
    return turns[kind]


TEXTS = st.sampled_from(["on it", "你好", "a\nb"])
KINDS = st.sampled_from(["error", "cut", "nothing", "thought", "long", "refusal"])
SAID = st.builds(_said, st.lists(TEXTS, min_size=1, max_size=3))
CALLED = st.builds(
    _called,
    st.lists(TEXTS, max_size=1),
    st.lists(st.sampled_from([*CALLS, "helper", "helper"]), min_size=1, max_size=3),
    st.lists(st.sampled_from([*WRONG]), max_size=1),
)
WHOLE = st.builds(_whole, SAID | CALLED | CALLED, st.booleans(), st.booleans())
TURNS = st.lists(WHOLE | WHOLE | st.builds(_odd, KINDS, TEXTS), min_size=1, max_size=6)
REACTIONS = st.lists(
    st.sampled_from(["answer", "answer", "deny", "go on", "reload"]), min_size=4, max_size=4
)


def bridge(runs: RunService) -> Bridge:
    app = site(runs)

    async def answer(body: dict[str, Any]) -> tuple[int, str, str]:
        got = await ask_json(app, "POST", PATH, body, headers=HEADERS)
        return got.status, got.headers.get("content-type", ""), got.body.decode()

    return answer


async def _react(client: AgUiClient, seen: Seen, reaction: str) -> Seen:
    """Let the client do what its user or its tools do after a run."""
    tools: list[Json] = [PAINT]
    if reaction == "reload":
        await client.open(client.thread, bridge=client.bridge)
        again = await client.run(parameters={"tools": tools})
        again.check_accepted()
        assert again.types[:2] == ["RUN_STARTED", "MESSAGES_SNAPSHOT"]
        return await _react(client, again, "answer") if again.end["outcome"] != "success" else again
    interrupts = seen.report["interrupts"]
    pending = _pending(seen)
    status = "cancelled" if reaction == "deny" else "resolved"
    resume = [_resumed(each, status) for each in interrupts]
    results = [result(each, error="no" if reaction == "deny" else "") for each in pending]
    for each in results:
        if not each["error"]:
            del each["error"]
    said = [] if (results or resume) and reaction != "go on" else [user("and now?")]
    parameters: Json = {"tools": tools, **({"resume": resume} if resume else {})}
    return await client.run(*results, *said, parameters=parameters)


def _pending(seen: Seen) -> list[str]:
    end: Json = seen.report["end"] or {}
    if end.get("outcome") == "interrupt":
        [finished] = seen.of("RUN_FINISHED")
        named: list[str] = finished.get("metadata", {}).get("pendingToolCallIds", [])
        return named
    pending: list[str] = end.get("pendingToolCallIds") or []
    return pending


def _resumed(interrupt: dict[str, Any], status: str) -> dict[str, Any]:
    entry = {"interruptId": interrupt["id"], "status": status}
    if status == "cancelled":
        return entry
    answers = {"answers": [{"selected": ["a"]}]}
    is_question = interrupt["metadata"]["kind"] == "question"
    return entry | {"payload": answers if is_question else {"approved": True}}


@examples(60)
@given(TURNS, TURNS, REACTIONS)
async def test_every_stream_is_accepted_and_says_what_is_recorded(
    client: AgUiClient,
    script: list[list[Step]],
    helpers: list[list[Step]],
    reactions: list[str],
) -> None:
    agent = helper(ScriptedModel(helpers), look, erase)
    async with (
        open_ledger("memory:") as store,
        worker(
            store,
            ScriptedModel(script),
            look,
            breaks,
            erase,
            toolsets=[AgentTools([agent]), PlanTools()],
            offers=[ASK_USER],
        ) as runs,
    ):
        await client.open(KEY.id, bridge=bridge(runs))
        seen = await client.run(user("go"), parameters={"tools": [PAINT]})
        for reaction in [*reactions, ""]:
            seen.check_accepted()
            assert seen.types[0] == "RUN_STARTED"
            assert seen.types[-1] in {"RUN_FINISHED", "RUN_ERROR"}
            recorded = await _texts(runs)
            known = [
                each.get("content") or ""
                for each in seen.messages
                if each["role"] == "assistant" and "subagentRunId" not in each
            ]
            # in order: an answer that was cut and given anew is the client's only, and a call of
            # an unknown tool the record's only
            left = iter(known)
            assert all(each in left for each in recorded if each)
            if reaction:
                seen = await _react(client, seen, reaction)


async def _texts(runs: RunService) -> list[str]:
    page = await runs.messages(KEY, start=0, limit=1000)
    return [
        each.content
        for each in page.messages
        if isinstance(each, AssistantMessage) and isinstance(each.content, str)
    ]


@examples(100)
@given(st.lists(EVENTS, max_size=20), st.lists(EVENTS, max_size=5), OUTCOMES, st.integers(0, 20))
async def test_every_log_is_a_stream_that_is_accepted_also_if_a_part_is_void(
    client: AgUiClient,
    events: list[RunEvent],
    more: list[RunEvent],
    outcome: Outcome,
    place: int,
) -> None:
    """Of another worker's log, or of one that never was."""
    framer = SseFramer(AgUiEncoder("thread", "run", state={}), RUN, remembers=True)
    log = [Logged(Position(1, number), event) for number, event in enumerate(events, 1)]
    text = framer.frame_batch(log)
    to = Position(1, min(place, len(events)))
    anew: list[RunEvent] = [Rewound(to), *more, RunFinished(outcome)]
    text += framer.frame_batch(
        [Logged(Position(2, number), event) for number, event in enumerate(anew, 1)]
    )
    text += framer.end_frames()

    async def answer(_body: dict[str, Any]) -> tuple[int, str, str]:
        return 200, "text/event-stream", text

    await client.open("thread", bridge=answer)
    seen = await client.run(user("go"))
    seen.check_accepted()
    is_over = any(isinstance(each, RunFinished) for each in events)
    if events and to < log[-1].position and not is_over:
        assert (seen.types[-1], seen.end["code"]) == ("RUN_ERROR", "rewound")
