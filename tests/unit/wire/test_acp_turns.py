"""Prompts of one session: their order, their ends, and cancelling in each of their states."""

from typing import Any

import anyio
import pytest
from tests.support.acp_editor import AcpError, joined_text, never
from tests.support.acp_memory import memory_editor, told
from tests.support.acp_schema import Json
from tests.support.waiting import pause, wait_until

from passback import Permission, tool
from passback.core.deltas import Finish
from passback.core.errors import ModelRejected
from passback.core.messages import RunRef
from passback.models.scripted import ScriptedModel, calls, says

pytestmark = pytest.mark.anyio

QUESTION: Json = {"questions": [{"question": "What is your name?"}]}


@tool(permission=Permission("ask", "It cannot be undone."), title="Burn a parcel", kind="delete")
def burn(parcel: str) -> str:
    """Burn a parcel."""
    return f"{parcel} is burnt"


@tool
async def wait_forever() -> str:
    """Wait until it is cancelled."""
    await anyio.sleep_forever()
    return ""


def prompted(model: ScriptedModel, number: int = -1) -> str:
    """Return the text of the last message that a request showed the model."""
    return str(model.requests[number].messages[-1].content)


@tool
def count() -> str:
    """Count."""
    return "1"


# ---------------------------------------------------------------- ends
@pytest.mark.parametrize(
    ("finish", "reason"),
    [("stop", "end_turn"), ("length", "max_tokens"), ("refusal", "refusal")],
)
async def test_the_stop_reason_tells_how_the_turn_ended(finish: Any, reason: str) -> None:
    async with memory_editor(["Said.", Finish(finish)]) as (editor, _):
        assert await editor.prompt("Hello") == reason
        assert joined_text(editor.updates()) == "Said."


async def test_too_many_turns_end_with_max_turn_requests() -> None:
    async with memory_editor(
        calls(("count", {})), calls(("count", {})), tools=[count], max_turns=1
    ) as (editor, _):
        assert await editor.prompt("Hello") == "max_turn_requests"


async def test_a_failure_of_the_model_is_an_error_with_code() -> None:
    async with memory_editor([ModelRejected("the model is unknown")], says("Said.")) as (
        editor,
        _,
    ):
        error = await editor.refusal_of_prompt()
        assert (error.code, error.data["code"]) == (-32603, "model_rejected")
        assert error.data["retryable"] is False
        assert await editor.prompt("Again") == "end_turn"


async def test_the_first_turn_brings_a_title_and_the_second_none() -> None:
    async with memory_editor(says("Hi."), says("Hi.")) as (editor, _):
        assert await editor.prompt("Hello") == "end_turn"
        [titled] = editor.of_kind("session_info_update")
        assert (titled["title"], titled["updatedAt"][-1]) == ("Hello", "Z")
        start = len(editor.frames)
        assert await editor.prompt("And more") == "end_turn"
        assert editor.of_kind("session_info_update", start) == []


async def test_a_command_is_listed_and_answered() -> None:
    async with memory_editor() as (editor, _):
        [told_of] = editor.of_kind("available_commands_update")
        names = [each["name"] for each in told_of["availableCommands"]]
        assert "help" in names
        assert all(not name.startswith("/") for name in names)
        assert await editor.prompt("/help") == "end_turn"
        assert "/help" in joined_text(editor.updates())


async def test_what_a_prompt_has_is_shown_to_the_model() -> None:
    async with memory_editor(says("Hi.")) as (editor, model):
        link = {"type": "resource_link", "uri": "file:///srv/a.py", "name": "a.py"}
        assert await editor.prompt("Look at", link) == "end_turn"
        assert "[@a.py](file:///srv/a.py)" in prompted(model)
        assert "/srv/project" in str(model.requests[0].messages) + model.requests[0].system


async def test_a_conversation_that_is_deleted_ends_its_prompt() -> None:
    held = anyio.Event()
    async with memory_editor(["Hi.", held]) as (editor, _):
        key = editor.begin_prompt("Hello")
        await wait_until(lambda: bool(editor.of_kind("agent_message_chunk")))
        await editor.runs.delete(editor.key)
        with pytest.raises(AcpError) as refused:
            await editor.result(key)
        assert refused.value.code == -32002


async def test_a_run_that_another_client_cancels_ends_its_prompt_as_cancelled() -> None:
    async with memory_editor(["Hi.", anyio.Event()]) as (editor, _):
        editor.is_checked = False
        key = editor.begin_prompt("Hello")
        await wait_until(lambda: bool(editor.of_kind("agent_message_chunk")))
        run_id = (await editor.runs.status(editor.key)).run_id
        assert run_id is not None
        await editor.runs.cancel(RunRef(editor.key, run_id))
        assert await editor.stop_reason(key) == "cancelled"


# ---------------------------------------------------------------- order
async def test_prompts_are_answered_in_their_order() -> None:
    held = anyio.Event()
    async with memory_editor(["One.", held, Finish("stop")], says("Two."), says("Three.")) as (
        editor,
        model,
    ):
        keys = [editor.begin_prompt(text) for text in ("first", "second", "third")]
        await wait_until(lambda: bool(editor.of_kind("agent_message_chunk")))
        assert len(model.requests) == 1
        held.set()
        assert [await editor.stop_reason(key) for key in keys] == ["end_turn"] * 3
        for number, text in enumerate(("first", "second", "third")):
            assert text in prompted(model, number)
        assert joined_text(editor.updates()) == "One.Two.Three."


async def test_a_prompt_waits_for_the_run_of_another_client() -> None:
    held = anyio.Event()
    async with memory_editor(["One.", held, Finish("stop")], says("Two.")) as (editor, model):
        await editor.post("from elsewhere")
        await wait_until(lambda: model.open_streams == 1)
        key = editor.begin_prompt("Hello")
        held.set()
        assert await editor.stop_reason(key) == "end_turn"
        assert joined_text(editor.updates()) == "Two."


# ---------------------------------------------------------------- cancelling
async def test_a_cancel_right_behind_the_prompt() -> None:
    async with memory_editor(says("Said."), says("Said.")) as (editor, _):
        key = editor.begin_prompt("Hello")
        editor.cancel()
        assert await editor.stop_reason(key) == "cancelled"
        assert await editor.prompt("Again") == "end_turn"


async def test_a_cancel_while_the_prompt_is_stored() -> None:
    async with memory_editor([anyio.Event()], says("Said.")) as (editor, model):

        async def cancel() -> None:
            del editor.hooks["start"]
            editor.cancel()
            await pause(0.01)

        editor.hooks["start"] = cancel
        assert await editor.stop_reason(editor.begin_prompt("Hello")) == "cancelled"
        assert model.open_streams == 0
        assert await editor.prompt("Again") == "end_turn"


async def test_a_cancel_with_nothing_to_cancel_spoils_nothing() -> None:
    async with memory_editor(says("Said.")) as (editor, _):
        editor.cancel()
        editor.cancel()
        assert await editor.prompt("Hello") == "end_turn"


async def test_a_cancel_in_the_middle_of_a_text_twice() -> None:
    async with memory_editor(["Half a", anyio.Event()], says("Said.")) as (editor, model):
        key = editor.begin_prompt("Hello")
        await wait_until(lambda: bool(editor.of_kind("agent_message_chunk")))
        editor.cancel()
        editor.cancel()
        assert await editor.stop_reason(key) == "cancelled"
        assert model.open_streams == 0
        assert await editor.prompt("Again") == "end_turn"
        assert any("Half a" in str(each.content) for each in model.requests[-1].messages)


async def test_a_cancel_of_a_server_tool_fails_its_call() -> None:
    async with memory_editor(calls(("wait_forever", {})), tools=[wait_forever]) as (editor, _):
        key = editor.begin_prompt("Hello")
        await wait_until(lambda: [each["status"] for each in editor.calls()] == ["in_progress"])
        editor.cancel()
        assert await editor.stop_reason(key) == "cancelled"
        assert [each["status"] for each in editor.calls()] == ["failed"]


async def test_a_cancel_ends_prompts_that_wait_for_another_one() -> None:
    async with memory_editor(["One", anyio.Event()], says("Said.")) as (editor, model):
        first, second = editor.begin_prompt("first"), editor.begin_prompt("second")
        await wait_until(lambda: bool(editor.of_kind("agent_message_chunk")))
        editor.cancel()
        assert await editor.stop_reason(second) == "cancelled"
        assert await editor.stop_reason(first) == "cancelled"
        assert len(model.requests) == 1


async def test_a_cancel_of_a_prompt_that_waits_for_another_client() -> None:
    held = anyio.Event()
    async with memory_editor(["One.", held, Finish("stop")], says("Two.")) as (editor, model):
        await editor.post("from elsewhere")
        await wait_until(lambda: model.open_streams == 1)
        key = editor.begin_prompt("Hello")
        while not (await editor.runs.status(editor.key)).queued:
            await anyio.lowlevel.checkpoint()
        editor.cancel()
        assert await editor.stop_reason(key) == "cancelled"
        held.set()
        await editor.until_idle()
        assert len(model.requests) == 1


WAITING: list[tuple[str, str, Json, str]] = [
    ("session/request_permission", "burn", {"parcel": "a"}, "session/request_permission"),
    ("fs/read_text_file", "read_text_file", {"path": "a"}, "fs/read_text_file"),
    ("fs/write_text_file", "write_text_file", {"path": "a", "content": "b"}, "fs/write_text_file"),
    ("elicitation/create", "ask_user", QUESTION, "elicitation/create"),
    ("terminal/wait_for_exit", "run_command", {"command": "make"}, "terminal/wait_for_exit"),
    ("terminal/output", "run_command", {"command": "make"}, "terminal/output"),
    ("_passback/tool_call", "paint", {}, "_passback/tool_call"),
]
PAINT: Json = {"passback": {"tools": [{"name": "paint", "description": "Paint"}]}}


@pytest.mark.parametrize(("method", "name", "arguments", "withdrawn"), WAITING)
async def test_a_cancel_while_the_editor_is_asked_takes_the_request_back(
    method: str, name: str, arguments: Json, withdrawn: str
) -> None:
    async with memory_editor(
        calls((name, arguments)), says("Said."), tools=[burn], ask_user=True
    ) as (editor, model):
        await editor.new_session(_meta=PAINT)
        editor.handlers[method] = never
        key = editor.begin_prompt("Hello")
        await editor.until_asked(method)
        editor.cancel()
        assert await editor.stop_reason(key) == "cancelled"
        assert editor.withdrawn == [withdrawn]
        assert [each["status"] for each in editor.calls()] == ["failed"]
        assert (await editor.runs.status(editor.key)).owed == ()
        assert editor.workspace.terminals == {}
        assert await editor.prompt("Again") == "end_turn"
        assert len(told(model)) == 1


async def test_a_permission_that_is_answered_with_cancelled_cancels_the_prompt() -> None:
    async with memory_editor(calls(("burn", {"parcel": "a"})), says("Said."), tools=[burn]) as (
        editor,
        _,
    ):

        async def cancel(_: Json) -> Json:
            return {"outcome": {"outcome": "cancelled"}}

        editor.handlers["session/request_permission"] = cancel
        editor.is_checked = False  # it does not say that the prompt is cancelled
        assert await editor.prompt("Burn it") == "cancelled"
        assert [each["status"] for each in editor.calls()] == ["failed"]
        assert await editor.prompt("Again") == "end_turn"


async def test_a_cancel_in_the_middle_of_a_terminals_creation_releases_it() -> None:
    async with memory_editor(calls(("run_command", {"command": "make"}))) as (editor, _):
        made = editor.handlers["terminal/create"]
        held = anyio.Event()

        async def create_late(params: Json) -> Json:
            await held.wait()
            return await made(params)

        editor.handlers["terminal/create"] = create_late
        key = editor.begin_prompt("Build")
        await editor.until_asked("terminal/create")
        editor.cancel()
        held.set()
        assert await editor.stop_reason(key) == "cancelled"
        assert len(editor.asked("terminal/release")) == 1
        await wait_until(lambda: not editor.workspace.terminals)
        assert "terminal/create" not in editor.withdrawn


async def test_what_was_carried_out_before_a_cancel_is_kept() -> None:
    turn = calls(
        ("write_text_file", {"path": "a", "content": "b"}), ("read_text_file", {"path": "c"})
    )
    async with memory_editor(turn, says("Said.")) as (editor, model):
        await editor.request("session/set_mode", sessionId=editor.session, modeId="bypass")
        reads = editor.handlers["fs/read_text_file"]

        async def read_one(params: Json) -> Json:
            return await (never if params["path"].endswith("c") else reads)(params)

        editor.handlers["fs/read_text_file"] = read_one
        key = editor.begin_prompt("Hello")
        await wait_until(lambda: "/srv/project/a" in editor.workspace.files)
        await editor.until_asked("fs/read_text_file", 3)
        editor.cancel()
        assert await editor.stop_reason(key) == "cancelled"
        assert await editor.prompt("Again") == "end_turn"
        written, read = told(model)
        assert (written, "went on before" in read) == ("Wrote /srv/project/a.", True)


async def test_a_cancel_before_the_editor_is_asked_asks_nothing() -> None:
    """The run has ended when the cancel comes, and the prompt is not answered yet."""
    async with memory_editor(
        calls(("ask_user", QUESTION)), says("Said."), ask_user=True, capabilities={}
    ) as (editor, _):
        key = editor.begin_prompt("Hello")
        # the call is announced with the last events of its run, and they are sent together
        await wait_until(lambda: bool(editor.calls()))
        editor.cancel()
        assert await editor.stop_reason(key) == "cancelled"
        assert (await editor.runs.status(editor.key)).owed == ()
        assert joined_text(editor.updates()) == ""
