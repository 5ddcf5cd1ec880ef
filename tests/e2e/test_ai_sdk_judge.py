"""Whatever a run does, the published AI SDK takes its stream, and shows what is in the record."""

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import ASGIApp
from tests.support.ai_sdk import (
    API,
    Chats,
    Json,
    agent,
    published_chats,
    text_of,
    tool_part,
    tools_of,
    user,
)
from tests.support.asgi_client import ask, ask_json
from tests.support.lanes import examples
from tests.support.ledgers import open_ledger
from tests.support.runs import worker
from tests.unit.engine.sub_agents import erase, helper

from passback.core.deltas import Finish, ReasoningBlock, ReasoningChunk, UsageChunk
from passback.core.errors import ModelError
from passback.core.events import (
    START,
    Cancelled,
    Completed,
    ContextWarned,
    Cursor,
    Failed,
    HandedBack,
    Nested,
    OutputAccepted,
    PlanUpdated,
    ReasoningDelta,
    RunEvent,
    RunFinished,
    RunQueued,
    RunStarted,
    StateChanged,
    TextDelta,
    ToolBegan,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    ToolProgressed,
    ToolResulted,
    TurnEnded,
    TurnStarted,
    UsageReported,
)
from passback.core.messages import (
    AssistantMessage,
    CallId,
    ConversationId,
    ConversationKey,
    DataPart,
    MessageId,
    Owed,
    OwnerId,
    PlanEntry,
    Reasoning,
    RunId,
    RunRef,
    Usage,
    UserMessage,
)
from passback.core.questions import ASK_USER
from passback.core.signals import Signal
from passback.engine.service import RunService
from passback.http.gate import Access
from passback.http.site import build_site
from passback.http.wires import Services
from passback.models.scripted import ScriptedModel, Step, calls, says
from passback.toolsets.agents import AgentTools
from passback.toolsets.functions import ToolError, tool
from passback.wire.ai_sdk import build
from passback.wire.ai_sdk.encoder import NOT_MADE, UiEncoder
from passback.wire.ai_sdk.json_values import REFUSED_INPUT
from passback.wire.ai_sdk.record import message_id_of, read_beginning

pytestmark = [pytest.mark.anyio, pytest.mark.node]


@pytest.fixture(scope="module")
async def chats() -> AsyncGenerator[Chats]:
    async with published_chats() as chats:
        yield chats


# ---------------------------------------------------------------- any events at all
RUN = RunRef(ConversationKey(OwnerId("o"), ConversationId("c")), RunId("run_1"))
CALLS = st.sampled_from([CallId("call_1"), CallId("call_2"), CallId("call_3")])
TEXT = st.sampled_from(["a", "", "{", '"}', "你\u2028", "\ud800"])
# keys that the client's parser refuses
HOSTILE = '{"a": [{"__proto__": {"b": 1}}]}'
WRAPPED = '{"constructor": {"prototype": null}}'
HOSTILE_VALUES: st.SearchStrategy[Json] = st.sampled_from([HOSTILE, WRAPPED]).map(json.loads)
RESULTS = TEXT | st.builds(lambda value: (DataPart(value),), HOSTILE_VALUES)
OUTCOMES = st.sampled_from(
    [
        Completed(),
        Completed("max_tokens"),
        Cancelled(),
        Failed("lost", "it is lost"),
        HandedBack((Owed(CallId("call_1"), "paint", "{"),)),
        HandedBack((Owed(CallId("call_2"), "wipe", "{}", "approval", "Sure?", CallId("call_3")),)),
        HandedBack((Owed(CallId("call_1"), "paint", HOSTILE),)),
        HandedBack((Owed(CallId("call_2"), "wipe", WRAPPED, "approval"),)),
    ]
)
PLAIN: st.SearchStrategy[RunEvent] = st.one_of(
    st.just(TurnStarted(MessageId("m"))),
    st.just(TurnEnded(MessageId("m"))),
    st.builds(TextDelta, TEXT),
    st.builds(ReasoningDelta, TEXT),
    st.builds(ToolCallStarted, CALLS, st.sampled_from(["paint", "a-b_1"]), st.booleans(), TEXT),
    st.builds(ToolCallArguments, CALLS, TEXT | st.just(HOSTILE)),
    st.builds(ToolCallEnded, CALLS),
    st.builds(ToolBegan, CALLS),
    st.builds(ToolProgressed, CALLS, TEXT),
    st.builds(ToolResulted, CALLS, RESULTS, st.booleans(), st.sampled_from([None, "denied"])),
    st.builds(StateChanged, HOSTILE_VALUES, st.just(("__proto__",))),
    st.just(StateChanged({"__proto__": 1})),
    st.builds(OutputAccepted, HOSTILE_VALUES),
    st.just(PlanUpdated((PlanEntry("a"),))),
    st.just(OutputAccepted([None])),
    st.just(UsageReported(Usage(1, 2))),
    st.just(ContextWarned(1, 2)),
    st.just(RunQueued(RUN.run_id)),
    st.just(RunStarted(RUN.run_id)),
)
EVENTS = st.lists(PLAIN | PLAIN | st.builds(Nested, CALLS, PLAIN) | st.none(), max_size=25)
HISTORIES = st.sampled_from(
    [
        [user("go")],
        [
            user("go"),
            agent(
                {"type": "step-start"},
                tool_part("output-available", "call_1", output=1),
                {
                    **tool_part("approval-responded", "call_2", providerExecuted=False),
                    "approval": {"id": "call_2", "approved": True},
                },
            ),
        ],
    ]
)


@examples(150)
@given(EVENTS, OUTCOMES, HISTORIES)
async def test_the_client_takes_any_stream_of_the_encoder(
    chats: Chats,
    events: list[RunEvent | None],
    outcome: Completed | Cancelled | Failed | HandedBack,
    messages: list[Json],
) -> None:
    goes_on = messages[-1]["role"] == "assistant"
    one = UiEncoder(
        RUN, "run_1", open_calls=[CallId("call_2")] if goes_on else (), continues=goes_on
    )
    frames: list[str] = []
    for event in [*events, RunFinished(outcome)]:
        if event is None:
            frames += one.rewind(Cursor(RUN.run_id, START))
        else:
            frames += one.feed(event)
    body = "".join(f"data: {frame}\n\n" for frame in [*frames, *one.end()])
    # an app that posts results by itself posts the error of a call whose arguments it cannot take
    seen = await chats.judge(body, messages, auto=REFUSED_INPUT not in body)
    failed = isinstance(outcome, Failed)
    assert (seen["status"], seen["error"]) == (
        ("error", "it is lost") if failed else ("ready", None)
    )
    assert len(seen["messages"]) == 2
    assert len(seen["requests"]) == 1
    states = {part["state"] for part in tools_of(seen)}
    assert isinstance(outcome, HandedBack) or states <= {
        *("output-available", "output-error", "output-denied")
    }


# ---------------------------------------------------------------- runs of the engine
@tool
def look(at: str = "") -> str:
    """Look."""
    return f"seen {at}"


@tool
def breaks() -> str:
    """Break."""
    raise ToolError("broken")


@tool
def echo(value: Any) -> Any:
    """Return what is given."""
    return {"given": value}


@tool(permission="ask")
def scrub(value: Any) -> str:
    """Scrub it."""
    return f"scrubbed {value}"


QUESTIONS = {"questions": [{"question": "Which?", "options": [{"label": "a"}, {"label": "b"}]}]}
ARGUMENTS: dict[str, Json] = {
    "look": {"at": "the sky"},
    "echo": {"value": json.loads(HOSTILE)},
    "breaks": {},
    "erase": {},
    "paint": {},
    "ask_user": QUESTIONS,
    "helper": {"task": "find it"},
    "nosuch": {},
}
WRONG: dict[str, Json] = {
    "look": {"at": 1},
    "paint": {"no": 1},
    "ask_user": {"questions": []},
}
PAINT: Json = {
    "name": "paint",
    "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
}
ANSWERS = {"answers": [{"selected": ["a"]}]}


def _calls(names: Sequence[str], wrong: Sequence[str]) -> list[Step]:
    made = [(name, ARGUMENTS[name]) for name in names] + [(name, WRONG[name]) for name in wrong]
    return calls(*made)


def _whole(turn: list[Step], thinks: bool) -> list[Step]:
    turn = [*turn[:-1], UsageChunk(Usage(7, 3)), turn[-1]]
    block = ReasoningBlock(Reasoning("hm, well", "scripted"))
    return (
        [ReasoningChunk("hm, "), ReasoningChunk("well"), *turn[:-1], block, turn[-1]]
        if (thinks)
        else turn
    )


def _odd(kind: str) -> list[Step]:
    turns: dict[str, list[Step]] = {
        "error": [ReasoningChunk("hm"), "on it", ModelError("the model is gone")],
        "cut": ["on it", *calls(("look", {}))[:-1]],
        "nothing": [Finish("stop")],
        "long": ["on it", Finish("length")],
        "refusal": ["no", Finish("refusal")],
    }
    return turns[kind]


SAID = st.builds(says, st.sampled_from(["on it", "你好", "a\nb"]))
CALLED = st.builds(
    _calls,
    st.lists(st.sampled_from([*ARGUMENTS, "helper", "paint"]), min_size=1, max_size=3),
    st.lists(st.sampled_from([*WRONG]), max_size=1),
)
ODD = st.builds(_odd, st.sampled_from(["error", "cut", "nothing", "long", "refusal"]))
TURNS = st.lists(
    st.builds(_whole, SAID | CALLED | CALLED, st.booleans()) | ODD, min_size=1, max_size=6
)
Reaction: TypeAlias = str
REACTIONS: st.SearchStrategy[list[Reaction]] = st.lists(
    st.sampled_from(["answer", "answer", "deny", "go on", "again", "edit"]), min_size=3, max_size=3
)
KEY = ConversationKey(OwnerId("anonymous"), ConversationId("c"))


def _answered(part: Json, denies: bool) -> Json:
    """Return a part of a call as the client has it after the user has answered."""
    if part.get("state") == "approval-requested":
        return {
            **part,
            "state": "approval-responded",
            "approval": {**part["approval"], "approved": not denies},
        }
    if part.get("state") != "input-available" or part.get("providerExecuted"):
        return part
    if denies:
        return {**part, "state": "output-error", "errorText": "no"}
    output = ANSWERS if part["type"] == "tool-ask_user" else "done"
    return {**part, "state": "output-available", "output": output}


def _reacted(messages: list[Json], reaction: Reaction, number: int) -> tuple[list[Json], Json]:
    """Return what the client has after a reaction of its user, and what its request says more."""
    last = messages[-1]
    if last["role"] == "assistant" and reaction in {"answer", "deny"}:
        parts = [_answered(each, reaction == "deny") for each in last["parts"]]
        if parts != last["parts"]:
            return [*messages[:-1], {**last, "parts": parts}], {"messageId": last["id"]}
    if last["role"] == "assistant" and reaction == "again":
        return messages[:-1], {"trigger": "regenerate-message", "messageId": last["id"]}
    if reaction == "edit":
        at = max(n for n, each in enumerate(messages) if each["role"] == "user")
        edited = user(f"or rather {number}", messages[at]["id"])
        return [*messages[:at], edited], {"messageId": edited["id"]}
    return [*messages, user(f"and now? {number}", f"u{number}")], {}


async def _ask(site: ASGIApp, messages: list[Json], more: Json) -> str:
    body = {"id": KEY.id, "messages": messages, "tools": [PAINT], **more}
    answer = await ask_json(site, "POST", API, body)
    assert answer.status == 200, answer.body
    return answer.body.decode()


@examples(40)
@given(TURNS, TURNS, REACTIONS)
async def test_the_client_takes_the_runs_of_a_chat_and_shows_the_record(
    chats: Chats, script: list[list[Step]], helpers: list[list[Step]], reactions: list[Reaction]
) -> None:
    agent_tool = helper(ScriptedModel(helpers), look, erase)
    toolsets = [AgentTools([agent_tool])]
    async with (
        open_ledger("memory:") as store,
        worker(
            store,
            ScriptedModel(script),
            look,
            echo,
            breaks,
            erase,
            toolsets=toolsets,
            offers=[ASK_USER],
        ) as runs,
    ):
        site = build_site([build(Services(runs, Signal()))], Access())
        messages, more = [user("go", "u0")], Json()
        for number, reaction in enumerate([*reactions, ""], 1):
            body = await _ask(site, messages, more)
            seen = await chats.judge(body, messages)
            assert len(seen["requests"]) == 1
            assert seen["status"] == "ready" or seen["error"]
            assert len(seen["messages"]) == len(messages) + (messages[-1]["role"] == "user")
            messages = seen["messages"]
            await _check_record(runs, chats, messages)
            await _check_history(site, chats, messages)
            messages, more = _reacted(messages, reaction, number)


DRAW: Json = {"name": "draw", "parameters": {"type": "object", "properties": {}}}


async def test_a_client_says_that_it_does_not_take_some_arguments(chats: Chats) -> None:
    wrapped, hostile = json.loads(WRAPPED), json.loads(HOSTILE)
    script = [
        calls(("draw", wrapped), ("echo", {"value": hostile})),
        ["I shall not", *calls(("scrub", {"value": hostile}))],
    ]
    async with (
        open_ledger("memory:") as store,
        worker(store, ScriptedModel(script), echo, scrub) as runs,
    ):
        site = build_site([build(Services(runs, Signal()))], Access())
        messages, more, asked = [user("go", "u0")], Json(tools=[DRAW]), list[Json]()
        for _ in script:
            seen = await chats.judge(await _ask(site, messages, more), messages, auto=False)
            assert (seen["status"], seen["error"]) == ("ready", None)
            messages = seen["messages"]
            drawn, echoed, *asked = tools_of(seen)
            assert (drawn["state"], drawn["errorText"]) == ("output-error", REFUSED_INPUT)
            assert json.loads(drawn["input"]) == wrapped
            assert json.loads(echoed["input"]) == {"value": hostile}
            assert json.loads(echoed["output"]) == {"given": hostile}
            await _check_record(runs, chats, messages)
            await _check_history(site, chats, messages)
            more["messageId"] = messages[-1]["id"]
        assert text_of({"messages": messages}) == "I shall not"
        # a person decides on all that is asked for
        [part] = asked
        assert part["state"] == "approval-requested"
        assert json.loads(part["input"]) == {"value": hostile}


async def _check_record(runs: RunService, chats: Chats, messages: list[Json]) -> None:
    """Check that a message adds up to what is stored, and a replay of it to the same message."""
    status = await runs.status(KEY)
    assert status.run_id is not None
    run = RunRef(KEY, status.run_id)
    earlier = await read_beginning(runs, KEY, status.run_start)
    one = UiEncoder(
        run, message_id_of(earlier) or run.run_id, earlier=earlier, continues=bool(earlier)
    )
    frames: list[str] = []
    async with runs.follow(run) as batches:
        async for batch in batches:
            frames += [frame for logged in batch for frame in one.feed(logged.event)]
    body = "".join(f"data: {frame}\n\n" for frame in [*frames, *one.end()])
    again = await chats.judge(body, messages, resumes=True)
    assert [_shown(each) for each in again["messages"]] == [_shown(each) for each in messages]
    record = (await runs.messages(KEY, start=0, limit=1000)).messages
    last = max(n for n, each in enumerate(record) if isinstance(each, UserMessage))
    told = [each.content for each in record[last:] if isinstance(each, AssistantMessage)]
    if not any(isinstance(each, AssistantMessage) and each.partial for each in record[last:]):
        assert text_of({"messages": messages}) == "".join(str(each) for each in told)


async def _check_history(site: ASGIApp, chats: Chats, messages: list[Json]) -> None:
    """Check that a client which loads the chat has what the one has that was there."""
    stored = (await ask(site, "GET", f"{API}/{KEY.id}/messages")).json["messages"]
    await chats.validate(stored)
    live = [each for each in messages if each["role"] == "user" or _shown(each)["parts"]]
    loaded = [each for each in stored if each["role"] == "user" or _shown(each)["parts"]]
    assert [each["role"] for each in loaded] == [each["role"] for each in live]
    for one, other in zip(loaded, live, strict=True):
        if one["role"] == "user":  # an edited one has an id of the server's
            assert one["parts"] == other["parts"]
            continue
        left = set[str]() if other is live[-1] else _open_calls(other)
        assert not left & _open_calls(one)
        assert _loaded(one, left) == _loaded(other, left)
        shared = {"conversationId", "model"} & {*one["metadata"]}
        if "failure" not in other["metadata"]:  # that run may have stored no answer
            shared |= {"runId"} & {*one["metadata"]}
        assert {name: one["metadata"][name] for name in shared} == {
            name: other["metadata"][name] for name in shared
        }


def _open_calls(message: Json) -> set[str]:
    states = {"input-available", "approval-requested"}
    return {each["toolCallId"] for each in message["parts"] if each.get("state") in states}


def _loaded(message: Json, left: set[str]) -> Json:
    """Return what a message has in common live and loaded.

    Thoughts of an answer that failed are live only. Calls that the user has `left` open by a new
    message stay open for the client that was there.
    """
    shown = _shown(message)
    shown["parts"] = [
        each
        for each in shown["parts"]
        if each != ("reasoning", "hm")
        and not (isinstance(each, dict) and each["toolCallId"] in left)
    ]
    return shown


def _shown(message: Json) -> Json:
    """Return what a message shows of its record.

    Calls that a failed turn has begun are shown live only, those of unknown tools are in the record
    only.
    """
    kept: list[Any] = []
    for part in message["parts"]:
        error = str(part.get("errorText"))
        if part["type"] in {"text", "reasoning"}:
            kept.append((part["type"], part["text"]))
        elif "toolCallId" in part and error != NOT_MADE and "no tool named" not in error:
            names = ("type", "toolCallId", "state", "input", "output", "errorText", "title")
            kept.append({name: part.get(name) for name in names})
    return {"id": message["id"], "role": message["role"], "parts": kept}
