"""The Python client against a real server: text, tools, keys; and the one without async."""

import logging
import signal
import sys
from dataclasses import replace
from datetime import date
from typing import Any

import anyio
import pytest
from tests.e2e.workers import SECONDS, broken_off
from tests.support.model_server import ModelServer, Reply, calls, says
from tests.support.proxies import FrameCutter
from tests.support.python_client import QUICK, joined, results_of
from tests.support.server import Server, running_server
from tests.support.wire import Client as RawClient
from tests.support.wire import user

from passback_client import (
    Answer,
    Client,
    Event,
    Limits,
    PassbackError,
    RunEnd,
    RunStart,
    Text,
    Tool,
    ToolAnswer,
    ToolError,
    Usage,
)
from passback_client import sync as plain

pytestmark = [pytest.mark.anyio, pytest.mark.measured]

MIB = 1024 * 1024


# ---------------------------------------------------------------- refusals
async def test_a_result_that_the_server_refuses_does_not_block_the_others(
    model: ModelServer, played: Server, raw: RawClient, conversation: str
) -> None:
    model.play(calls(*[(name, name, "{}") for name in ("small", "large", "deep")]), says("Done."))
    deep: object = 1
    for _ in range(56):
        deep = [deep]
    given = {"small": "small", "large": "x" * (MIB + 1), "deep": deep}
    tools = [Tool(name, "", {}, lambda *_, name=name: given[name]) for name in given]
    async with Client(played.url, tools=tools, limits=Limits(result_bytes=2 * MIB)) as client:
        answer = await client.ask("go", conversation_id=conversation)
    assert answer.text == "Done."
    too_large = f"The answer was refused: the result of a tool is larger than {MIB} bytes"
    content = [{"type": "data", "data": deep}]
    assert await results_of(raw, conversation) == [
        ("small", False),
        (too_large, True),
        (content, False),
    ]


# ---------------------------------------------------------------- the main job
async def test_a_text_streams_and_its_conversation_goes_on(
    model: ModelServer, cutter: FrameCutter, mine: Client
) -> None:
    model.play(says("Hel", "lo"), says("Again"))
    stream = mine.send("hi")
    events = [event async for event in stream]
    assert "".join(event.content for event in events if isinstance(event, Text)) == "Hello"
    assert isinstance(events[-1], RunEnd)
    assert stream.conversation_id is not None
    again = await mine.ask("hi again", conversation_id=stream.conversation_id)
    assert (again.text, again.outcome) == ("Again", "completed")
    kept = await mine.messages(stream.conversation_id, after=1, limit=2)
    assert [message.get("content") for message in kept.messages] == ["Hello", "hi again"]
    assert (kept.next, kept.total) == (3, 4)
    assert cutter.accepted == 1


async def test_a_typed_function_is_called_and_its_result_answered(
    model: ModelServer, mine: Client, raw: RawClient, conversation: str
) -> None:
    model.play(calls(("a", "paint", '{"color": "blue", "size": 2}')), says("Painted."))

    @mine.tool
    async def paint(color: str, size: int = 1) -> dict[str, object]:
        """Paint it."""
        return {"color": color, "size": size}

    events = [event async for event in mine.send("paint", conversation_id=conversation)]
    [answer] = [event for event in events if isinstance(event, ToolAnswer)]
    assert (answer.name, answer.content) == ("paint", {"color": "blue", "size": 2})
    kept = [{"type": "data", "data": {"color": "blue", "size": 2}}]
    assert await results_of(raw, conversation) == [(kept, False)]
    [declared] = model.requests[0].json["tools"]
    assert declared["function"]["description"] == "Paint it."
    assert declared["function"]["parameters"]["required"] == ["color"]


async def test_an_answer_has_its_calls_and_what_its_model_calls_used(
    model: ModelServer, played: Server
) -> None:
    def paint(color: str) -> str:
        return f"{color} now"

    model.play(
        counted(calls(("a", "paint", '{"color": "blue"}')), 20, 7), counted(says("Painted."), 30, 2)
    )
    async with Client(played.url, tools=[paint]) as client:
        answer = await client.ask("paint")
    [call] = answer.calls
    fields = (call.name, call.arguments, call.complete, call.result, call.is_error, call.calls)
    assert fields == ("paint", '{"color": "blue"}', True, "blue now", False, ())
    used = [(each.input_tokens, each.output_tokens) for each in answer.model_calls]
    assert used == [(20, 7), (30, 2)]
    assert answer.usage == Usage(50, 9, 0, 0)
    assert answer.model == "openai:mock"


def counted(reply: Reply, given: int, written: int) -> Reply:
    """An answer at whose end the model's service tells what it used."""
    *steps, done = reply.steps
    usage = {"prompt_tokens": given, "completion_tokens": written}
    return replace(reply, steps=[*steps, {"choices": [], "usage": usage}, done])


async def test_four_calls_run_at_once(
    model: ModelServer, mine: Client, raw: RawClient, conversation: str
) -> None:
    asked = [(f"call-{n}", "meet", f'{{"number": {n}}}') for n in range(4)]
    model.play(calls(*asked), says("Met."))
    here: list[int] = []
    all_here = anyio.Event()

    @mine.tool
    async def meet(number: int) -> list[dict[str, str]]:
        here.append(number)
        if len(here) == 4:
            all_here.set()
        await all_here.wait()
        return [{"type": "text", "text": f"I am {number}"}]

    assert (await mine.ask("meet", conversation_id=conversation)).text == "Met."
    parts = [[{"type": "text", "text": f"I am {n}"}] for n in range(4)]
    assert await results_of(raw, conversation) == [(each, False) for each in parts]


def fails(*_: object) -> str:
    raise ValueError("no paint left")


def tells(*_: object) -> str:
    raise ToolError("use another one")


@pytest.mark.parametrize(
    ("paint", "content"),
    [
        (Tool("paint", "", {"type": "object"}, fails), "ValueError: no paint left"),
        (Tool("paint", "", {"type": "object"}, tells), "use another one"),
    ],
    ids=["any exception", "an error for the model"],
)
async def test_a_tool_that_throws_gives_an_error_result(
    model: ModelServer, mine: Client, raw: RawClient, paint: Tool, content: str
) -> None:
    model.play(calls(("a", "paint", "{}")), says("A pity."))
    mine.add_tool(paint)
    answer = await mine.ask("paint")
    assert answer.text == "A pity."
    assert answer.conversation_id is not None
    assert await results_of(raw, answer.conversation_id) == [(content, True)]


async def test_wrong_arguments_are_an_error_for_the_model(
    model: ModelServer, mine: Client, raw: RawClient, conversation: str
) -> None:
    """The server passes these arguments on: a `format` is a note to it."""
    model.play(calls(("a", "paint", '{"day": "someday"}')), says("I see."))

    @mine.tool
    def paint(day: date) -> None:
        raise AssertionError(day)

    assert (await mine.ask("paint", conversation_id=conversation)).text == "I see."
    [(content, is_error)] = await results_of(raw, conversation)
    assert str(content).startswith("The arguments are not valid.\nday: Input should be a valid")
    assert is_error


async def test_a_call_of_a_tool_of_another_client_is_answered_as_unknown(
    model: ModelServer, mine: Client, raw: RawClient, conversation: str
) -> None:
    model.play(calls(("a", "theirs", "{}")), says("I see."))
    theirs: Any = {"name": "theirs", "description": "", "parameters": {"type": "object"}}
    await raw.post(conversation, user("hi"), tools=[theirs])
    answer = Answer()
    async for event in mine.resume(conversation):
        answer.feed(event)
    assert answer.text == "I see."
    assert await results_of(raw, conversation) == [("This client has no tool 'theirs'.", True)]


# ---------------------------------------------------------------- keys
async def test_a_key_is_sent_and_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "sk-0123456789abcdef"
    keys = {"PASSBACK_API_KEYS": f"me:{secret}"}
    async with running_server("--model", "demo:fast", environment=keys) as server:
        async with Client(server.url, api_key=secret) as client:
            assert (await client.ask("hi")).text.startswith("Hello!")
        async with Client(server.url, api_key=secret + "x") as client:
            with pytest.raises(PassbackError) as caught:
                await client.ask("hi")
    assert (caught.value.code, caught.value.status) == ("unauthenticated", 401)
    assert caught.value.request_id
    shown = f"{caught.value!r} {caught.value} {vars(caught.value)} {client!r} {vars(client)}"
    assert caplog.records
    assert secret not in shown + caplog.text


# ---------------------------------------------------------------- without async
async def test_the_plain_client_does_the_same(
    model: ModelServer, cutter: FrameCutter, conversation: str
) -> None:
    model.play(calls(("a", "paint", '{"color": "blue"}')), says("It ", "is ", "done."), says("Hi."))
    cutter.frames = 1

    def use() -> list[Event]:
        with plain.Client(cutter.url, retry=QUICK) as client:

            @client.tool
            def paint(color: str) -> str:
                return color

            stream = client.send("paint", conversation_id=conversation)
            events = list(stream)
            assert client.ask("hi", conversation_id=conversation).text == "Hi."
            assert stream.conversation_id == conversation
            assert stream.run_id == client.conversation(conversation).run_id or stream.cursor
            assert client.messages(conversation).total == 6
            assert not client.cancel(conversation)
            assert list(client.resume(conversation)) == []
            return events

    with anyio.fail_after(SECONDS):
        events = await anyio.to_thread.run_sync(use)
    assert joined(events) == "It is done."
    assert [event.content for event in events if isinstance(event, ToolAnswer)] == ["blue"]


WAITING_PROGRAM = """
import signal, sys
from passback_client.sync import Client
# in the background the tests' processes ignore the signal
signal.signal(signal.SIGINT, signal.default_int_handler)
with Client(sys.argv[1]) as client:
    for event in client.send("go", on_disconnect="cancel"):
        print(event, flush=True)
"""


async def test_ctrl_c_ends_a_program_that_waits_in_the_plain_client(
    model: ModelServer, played: Server
) -> None:
    model.play(broken_off("never ending"))
    command = [sys.executable, "-c", WAITING_PROGRAM, played.url]
    with anyio.fail_after(SECONDS):
        async with await anyio.open_process(command) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            printed = b""
            while b"never ending" not in printed:
                printed += await process.stdout.receive()
            process.send_signal(signal.SIGINT)
            errors = b"".join([chunk async for chunk in process.stderr])
            assert await process.wait() != 0
        await model.left.wait()
    assert errors.rstrip().endswith(b"KeyboardInterrupt")
    assert errors.count(b"Traceback") <= 2  # the interruption, and where it was waited for


async def test_leaving_the_loop_of_the_plain_client_closes_the_connection(
    model: ModelServer, played: Server, conversation: str
) -> None:
    model.play(broken_off("never ending"))

    def use() -> None:
        with plain.Client(played.url) as client:
            for event in client.send("go", conversation_id=conversation, on_disconnect="cancel"):
                if isinstance(event, Text):
                    break
            anyio.from_thread.run(model.left.wait)
            with client.send("go", conversation_id=conversation, on_busy="enqueue") as stream:
                assert isinstance(next(stream), RunStart)
                assert stream.cancel()

    with anyio.fail_after(SECONDS):
        await anyio.to_thread.run_sync(use)
