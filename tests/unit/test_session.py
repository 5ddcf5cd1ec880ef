"""A conversation with an agent from Python, without HTTP."""

import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel
from tests.support.waiting import wait_until

from passback.agent import Agent
from passback.core.deltas import UsageChunk
from passback.core.errors import (
    AttachmentTooLarge,
    BadRequest,
    BodyTooLarge,
    ClientError,
    ConfigurationError,
    ConversationBusy,
    DataTooLarge,
    InvalidOutputSchema,
    InvalidRequest,
    InvalidTool,
    ResultTooLarge,
    ToolNameClash,
    UnknownToolCall,
)
from passback.core.events import (
    Completed,
    HandedBack,
    OutputAccepted,
    RunEvent,
    RunFinished,
    TextDelta,
)
from passback.core.messages import (
    DataPart,
    MediaPart,
    MessageContext,
    TextPart,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from passback.core.permissions import LastingPermission, declaration_digest
from passback.core.questions import ASK_USER
from passback.core.state import ConversationState
from passback.core.toolsets import ToolContext
from passback.models.scripted import ScriptedModel, calls, says
from passback.session import Session
from passback.toolsets.functions import FunctionTools, tool

pytestmark = pytest.mark.anyio


PAINT = ToolSpec("paint", "", {"type": "object"})


def text_of(events: Sequence[RunEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def test_an_agent_answers_with_its_history() -> None:
    model = ScriptedModel([says("Hello."), says("You said hi.")])
    with anyio.fail_after(10):
        async with Session(Agent(model=model)) as session:
            first = [event async for event in session.submit("hi")]
            second = [event async for event in session.submit("what did I say?")]
            messages = await session.messages()
    assert (text_of(first), first[-1]) == ("Hello.", RunFinished(Completed()))
    assert text_of(second) == "You said hi."
    assert [message.role for message in messages] == ["user", "assistant"] * 2
    assert len(model.requests[1].messages) == 3


async def test_a_session_keeps_its_conversation_in_its_store(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/talks.db"
    model = ScriptedModel([says("Hello."), says("Again.")])
    agent = Agent(model=model)
    with anyio.fail_after(10):
        session = Session(agent, store=store, conversation="c")
        assert text_of([event async for event in session.submit("hi")]) == "Hello."
        assert text_of([event async for event in session.submit("hi")]) == "Again."
        async with Session(agent, store=store, conversation="c") as other:
            assert other.conversation_id == "c"
            assert len(await other.messages()) == 4
    assert len(model.requests[1].messages) == 3


async def test_owed_calls_are_answered_by_the_caller() -> None:
    @tool(permission="ask")
    def erase() -> str:
        return "erased"

    script = [calls(("paint", {}), ("paint", {})), calls(("erase", {})), says("done")]
    with anyio.fail_after(10):
        agent = Agent(model=ScriptedModel(script), tools=[erase])
        async with Session(agent, tools=[PAINT]) as session:
            assert await session.owed() == ()
            events = [event async for event in session.submit("go")]
            finished = events[-1]
            assert isinstance(finished, RunFinished)
            assert isinstance(finished.outcome, HandedBack)
            first, second = await session.owed()
            assert finished.outcome.owed == (first, second)
            assert [event async for event in session.answer(first.id, "blue")] == []
            async for _ in session.answer(second.id, "no paint", is_error=True):
                pass
            [approval] = await session.owed()
            assert approval.kind == "approval"
            events = [event async for event in session.decide(approval.id, approved=True)]
            assert text_of(events) == "done"


async def test_a_run_whose_iteration_is_left_goes_on_until_it_is_cancelled() -> None:
    gate = anyio.Event()
    model = ScriptedModel([["a", gate, *says("b")], says("c")])
    with anyio.fail_after(10):
        async with Session(Agent(model=model)) as session:
            assert not await session.cancel()
            submission = session.submit("hi")
            async for event in submission:
                if isinstance(event, TextDelta):
                    break
            await submission.aclose()
            assert model.open_streams == 1
            with pytest.raises(ConversationBusy):
                await anext(session.submit("again"))
            assert await session.cancel()
            await wait_until(lambda: model.open_streams == 0)
            assert not await session.cancel()


async def test_a_refused_message_raises_when_it_is_iterated() -> None:
    with anyio.fail_after(10):
        async with Session(Agent(model=ScriptedModel([]))) as session:
            with pytest.raises(UnknownToolCall):
                await anext(session.answer("call_x", "blue"))
            assert await session.messages() == ()


async def test_wrong_settings_are_errors_where_they_are_given(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="PASSBACK_STORE"):
        Session(Agent(), store="nonsense:")
    with pytest.raises(ConfigurationError, match="PASSBACK_MAX_TURNS"):
        Session(Agent(), settings={"MAX_TURNS": "x"})
    session = Session(Agent())
    with pytest.raises(RuntimeError, match="async with"):
        await session.owed()
    (tmp_path / "file").touch()
    with anyio.fail_after(10), pytest.raises(ConfigurationError):
        async with Session(Agent(), store=f"sqlite:///{tmp_path}/file/talks.db"):
            pass
    session = Session(Agent(), store=f"sqlite:///{tmp_path}/file/talks.db")
    with anyio.fail_after(10), pytest.raises(ConfigurationError):
        await anext(session.submit("hi"))


async def test_the_state_of_a_session_has_usage_permissions_and_data() -> None:
    @tool(permission="ask")
    def erase() -> str:
        return "erased"

    async def read(stream: AsyncIterator[RunEvent]) -> None:
        async for _ in stream:
            pass

    script = [calls(("erase", {})), says("kept"), calls(("erase", {})), says("kept")]
    used = UsageChunk(Usage(1000, 100))
    agent = Agent(model=ScriptedModel([[used, *each] for each in script]), tools=[erase])
    [spec] = await FunctionTools([erase]).specs()
    never = LastingPermission("erase", declaration_digest(spec), False, "No.")
    settings = {"prices": "scripted=2/8"}
    with anyio.fail_after(10):
        async with Session(agent, settings=settings) as session:
            assert await session.state() == ConversationState()
            await session.retract("erase")
            await read(session.submit("go", structured_data=[{"a": 1}]))
            [owed] = await session.owed()
            await read(session.decide(owed.id, approved=False, reason="No.", always=True))
            await read(session.submit("again"))
            state = await session.state()
            assert [each.tool for each in state.refusals] == ["erase", "erase"]
            assert replace(state, refusals=(), seconds=0) == ConversationState(
                usage=Usage(4000, 400), cost=0.0112, permissions=(never,), data=[{"a": 1}]
            )
            await session.retract("erase")
            assert (await session.state()).permissions == ()


# ---------------------------------------------------------------- messages
TEXT = "Input should be a valid string"
DEEP: Any = []
for _ in range(80):
    DEEP = [DEEP]


class Colour(BaseModel):
    name: str


class WithoutSchema(BaseModel):
    model_config = {"arbitrary_types_allowed": True}

    thing: ScriptedModel


async def events_of(stream: AsyncIterator[RunEvent]) -> list[RunEvent]:
    with anyio.fail_after(10):
        return [event async for event in stream]


async def test_a_message_has_all_the_fields_of_a_post() -> None:
    model = ScriptedModel([says('{"name": "blue"}')])
    async with Session(Agent(model=model, tell_time=False)) as session:
        events = await events_of(
            session.submit(
                [TextPart("Which?"), DataPart(5)],
                structured_data={"wall": [1, None]},
                intent=" paint ",
                constraints=("calm", ""),
                instructions="Be brief.",
                output_schema=Colour,
            )
        )
        [message, _] = await session.messages()
    assert OutputAccepted({"name": "blue"}) in events
    assert isinstance(message, UserMessage)
    assert message.content == (TextPart("Which?"), DataPart(5))
    schema = Colour.model_json_schema()
    assert message.context == MessageContext(
        {"wall": [1, None]}, "paint", ("calm",), "Be brief.", schema
    )


async def test_data_hold_until_they_are_replaced_or_cleared() -> None:
    seen: list[object] = []

    @tool
    def look(context: ToolContext) -> None:
        """Record the data."""
        seen.append(context.data)

    turns = [each for _ in range(4) for each in (calls(("look", {})), says("so"))]
    async with Session(Agent(model=ScriptedModel(turns), tools=[look])) as session:
        await events_of(session.submit("one", structured_data={"a": 1}))
        await events_of(session.submit("two"))
        await events_of(session.submit("three", structured_data=0))
        await events_of(session.submit("/clear"))
        await events_of(session.submit("four"))
    assert seen == [{"a": 1}, {"a": 1}, 0, None]


async def test_parts_may_be_written_as_they_are_posted() -> None:
    async with Session(Agent(model=ScriptedModel([says("so")]))) as session:
        await events_of(
            session.submit(({"type": "text", "text": "hi"}, {"type": "data", "data": 5}))
        )
        [message, _] = await session.messages()
    assert isinstance(message, UserMessage)
    assert message.content == (TextPart("hi"), DataPart(5))


async def test_an_answer_may_be_any_json() -> None:
    model = ScriptedModel([calls(("paint", {})), says("so")])
    async with Session(Agent(model=model), tools=[PAINT, ASK_USER]) as session:
        last = (await events_of(session.submit("go")))[-1]
        assert isinstance(last, RunFinished)
        assert isinstance(last.outcome, HandedBack)
        [owed] = last.outcome.owed
        await events_of(session.answer(owed.id, {"colour": "blue"}))
        answered = (await session.messages())[2]
    assert isinstance(answered, ToolMessage)
    assert answered.content == (DataPart({"colour": "blue"}),)
    assert model.requests[0].tools == (PAINT, ASK_USER)


REFUSED: list[tuple[Callable[[Session], AsyncIterator[RunEvent]], type[ClientError], str]] = [
    (lambda s: s.submit(""), InvalidRequest, "the content of a message is empty"),
    (lambda s: s.submit([]), InvalidRequest, "the content of a message is empty"),
    (lambda s: s.submit(None), InvalidRequest, "content: "),  # type: ignore[arg-type]
    (lambda s: s.submit("\ud800"), InvalidRequest, "what is said cannot be written as JSON"),
    (lambda s: s.submit([5]), InvalidRequest, "content.0: "),  # type: ignore[list-item]
    (lambda s: s.submit([{"type": "nope"}]), InvalidRequest, "content.0.type: "),
    (lambda s: s.submit("hi", structured_data=math.nan), InvalidRequest, "what is said cannot"),
    (lambda s: s.submit("hi", structured_data=DEEP), BadRequest, "the JSON is nested deeper"),
    (lambda s: s.submit("hi", structured_data=object()), InvalidRequest, "structured_data: "),  # type: ignore[arg-type]
    (lambda s: s.submit("hi", structured_data={1: 2}), InvalidRequest, "structured_data: "),  # type: ignore[dict-item]
    (
        lambda s: s.submit("hi", structured_data="x" * 2_000),
        DataTooLarge,
        "structuredData is larger than 1024 bytes",
    ),
    (lambda s: s.submit("hi" * 5_000), BodyTooLarge, "what is said is larger than 10000"),
    (
        lambda s: s.submit([MediaPart("image", f"data:image/png;base64,{'A' * 4_000}")]),
        AttachmentTooLarge,
        "the inline attachments of a message",
    ),
    (lambda s: s.submit("hi", intent=5), InvalidRequest, "intent: "),  # type: ignore[arg-type]
    (lambda s: s.submit("hi", constraints="calm"), InvalidRequest, "constraints: "),
    (
        lambda s: s.submit("hi", output_schema={"type": "array"}),
        InvalidOutputSchema,
        "outputSchema is refused: its schema is not of type 'object'",
    ),
    (lambda s: s.submit("hi", output_schema=int), InvalidRequest, "output_schema: "),  # type: ignore[arg-type]
    (
        lambda s: s.submit("hi", output_schema=WithoutSchema),
        InvalidOutputSchema,
        "output_schema has no JSON",
    ),
    (lambda s: s.answer("", "x"), InvalidRequest, "call_id: "),
    (lambda s: s.answer("c", object()), InvalidRequest, "content: "),  # type: ignore[arg-type]
    (lambda s: s.answer("c", "x" * 2_000), ResultTooLarge, "the result of a tool is larger"),
    (lambda s: s.decide("c", approved=None), InvalidRequest, "approved: "),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "error", "problem"), REFUSED)
async def test_a_malformed_message_is_refused_and_not_stored(
    call: Callable[[Session], AsyncIterator[RunEvent]], error: type[ClientError], problem: str
) -> None:
    sizes = "body_bytes=10000 data_bytes=1024 result_bytes=1024 attachment_bytes=1024"
    async with Session(Agent(model=ScriptedModel([])), settings={"limits": sizes}) as session:
        with pytest.raises(error) as raised:
            await events_of(call(session))
        assert type(raised.value) is error
        assert raised.value.message.startswith(problem)
        assert await session.messages() == ()


@pytest.mark.parametrize(
    ("tool", "error"),
    [
        (ToolSpec("two words", "", {}), InvalidTool),
        (ToolSpec("draw", "", {"type": "array"}), InvalidTool),
        (ToolSpec("draw", "", {"x": object()}), InvalidRequest),  # type: ignore[dict-item]
        (ToolSpec("Paint", "", {}), ToolNameClash),
    ],
)
async def test_tools_are_checked_as_those_of_a_post(
    tool: ToolSpec, error: type[ClientError]
) -> None:
    async with Session(Agent(model=ScriptedModel([])), tools=[PAINT, tool]) as session:
        with pytest.raises(error):
            await events_of(session.submit("hi"))


@pytest.mark.parametrize(
    ("given", "error", "problem"),
    [
        ({"conversation": ""}, InvalidRequest, "a conversation id has 1 to 256 characters"),
        ({"conversation": "{id}"}, InvalidRequest, "a conversation id has no braces"),
        ({"conversation": "\ud800"}, ConfigurationError, f"Session: conversation: {TEXT}"),
        ({"owner": None}, ConfigurationError, f"Session: owner: {TEXT} (given: None)"),
        (
            {"tools": ["x"]},
            ConfigurationError,
            "Session: tools.0: Input should be an instance of ToolSpec (given: str)",
        ),
        (
            {"settings": {"max_turns": 5}},
            ConfigurationError,
            f"Session: settings.max_turns: {TEXT} (given: 5)",
        ),
        ({"store": None}, ConfigurationError, f"Session: store: {TEXT} (given: None)"),
    ],
)
async def test_a_session_is_checked_when_it_is_made(
    given: dict[str, Any], error: type[Exception], problem: str
) -> None:
    with pytest.raises(error) as raised:
        Session(Agent(model=ScriptedModel([])), **given)
    assert str(raised.value).startswith(problem)


async def test_a_session_is_opened_once_and_not_used_after_its_end() -> None:
    session = Session(Agent(model=ScriptedModel([])))
    async with session:
        with pytest.raises(InvalidRequest, match="open already"):
            await session.__aenter__()
        begun = session.submit("hi")
    for use in (
        begun.__anext__,
        session.owed,
        session.messages,
        session.cancel,
        session.__aenter__,
    ):
        with anyio.fail_after(10), pytest.raises(InvalidRequest, match="this session is closed"):
            await use()
