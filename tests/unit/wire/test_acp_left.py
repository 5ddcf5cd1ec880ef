"""Sessions that are opened with something left: calls that are owed, and other clients beside."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from tests.support.acp_editor import AcpError, choose, joined_text, never
from tests.support.acp_memory import MemoryEditor, connected, failing, memory_editor, told
from tests.support.acp_schema import Json
from tests.support.waiting import wait_until

from passback import Permission, tool
from passback.core.conversation_settings import ConversationSettings
from passback.core.errors import StoreUnavailable
from passback.core.messages import (
    ApprovalMessage,
    ConversationId,
    ConversationKey,
    Owed,
    new_message_id,
)
from passback.http.gate import ANONYMOUS
from passback.models.scripted import ScriptedModel, Turn, calls, says

pytestmark = pytest.mark.anyio

ASK = "session/request_permission"
RUN = ("run_command", {"command": "make"})
PAINT: Json = {"passback": {"tools": [{"name": "paint", "description": "Paint"}]}}


@tool(permission=Permission("ask", "It cannot be undone."))
def burn(parcel: str) -> str:
    """Burn a parcel."""
    return f"{parcel} is burnt"


BURN = calls(("burn", {"parcel": "it"}))


@asynccontextmanager
async def left_asking(
    *turns: Turn, method: str = ASK
) -> AsyncGenerator[tuple[MemoryEditor, MemoryEditor, ScriptedModel]]:
    """An editor that is gone in the middle of a call, another one, and the model.

    The second is connected and has not opened the session.
    """
    async with memory_editor(*turns, tools=[burn]) as (gone, model):
        gone.is_checked = False
        await gone.new_session(_meta=PAINT)
        gone.handlers[method] = never
        gone.begin_prompt("Do it")
        await gone.until_asked(method)
        gone.leave()
        async with connected(gone.worker) as editor:
            editor.is_checked = False  # what was left is shown outside of a prompt
            await editor.open()
            editor.session = gone.session
            yield gone, editor, model


async def owed_of(editor: MemoryEditor) -> list[Owed]:
    return list((await editor.runs.status(editor.key)).owed)


def ended(editor: MemoryEditor, words: str) -> bool:
    return words in joined_text(editor.updates())


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_a_permission_that_was_open_is_asked_again(method: str) -> None:
    async with left_asking(BURN, says("Done.")) as (_, editor, model):
        given = {"sessionId": editor.session, "cwd": "/srv", "mcpServers": []}
        await editor.request(method, **given)
        await wait_until(lambda: ended(editor, "Done."))
        [asked] = editor.asked(ASK)
        assert asked["toolCall"]["rawInput"] == {"parcel": "it"}
        assert told(model) == ["it is burnt"]
        assert [each["status"] for each in editor.calls()] == ["completed"]


async def test_a_call_that_may_have_been_carried_out_is_not_made_again_unasked() -> None:
    async with left_asking(calls(RUN), says("Done."), method="terminal/create") as (
        gone,
        editor,
        model,
    ):
        bypass = {"sessionId": editor.session, "modeId": "bypass"}
        await editor.load(editor.session)
        await editor.until_asked(ASK)
        [asked] = editor.asked(ASK)
        assert "may have been carried out" in str(asked["toolCall"]["content"])
        assert await editor.request("session/set_mode", **bypass) == {}
        await wait_until(lambda: ended(editor, "Done."))
        assert len(gone.asked("terminal/create")) == len(editor.asked("terminal/create")) == 1
        assert "exit code" in told(model)[0]


async def test_a_mode_that_asks_nothing_asks_for_what_was_left() -> None:
    async with left_asking(calls(RUN), says("Done."), method="terminal/create") as (
        _,
        editor,
        model,
    ):
        editor.handlers[ASK] = choose("reject_once")
        await editor.runs.configure(editor.key, ConversationSettings(mode="bypass"))
        await editor.load(editor.session)
        await wait_until(lambda: ended(editor, "Done."))
        assert told(model) == ["The user did not allow this call."]
        assert editor.asked("terminal/create") == []


async def test_a_prompt_goes_before_what_was_left() -> None:
    async with left_asking(BURN, says("Fine.")) as (_, editor, model):
        editor.handlers[ASK] = never
        await editor.load(editor.session)
        await editor.until_asked(ASK)
        assert await editor.prompt("Leave it") == "end_turn"
        assert editor.withdrawn == [ASK]
        assert "went on before" in told(model)[0]
        assert [each["status"] for each in editor.calls()] == ["failed"]
        assert ended(editor, "Fine.")


async def test_what_was_carried_out_before_a_prompt_is_kept() -> None:
    turn = calls(("paint", {}), ("burn", {"parcel": "it"}))
    async with left_asking(turn, says("Fine."), method="_passback/tool_call") as (
        _,
        editor,
        model,
    ):

        async def paint(_: Json) -> Json:
            await anyio.lowlevel.checkpoint()
            return {"content": "blue"}

        editor.handlers |= {"_passback/tool_call": paint, ASK: never}
        await editor.load(editor.session, _meta=PAINT)
        await wait_until(lambda: "completed" in {each.get("status") for each in editor.calls()})
        await editor.until_asked(ASK)
        assert await editor.prompt("Leave it") == "end_turn"
        assert told(model)[0] == "blue"


async def test_a_cancel_ends_what_was_left() -> None:
    async with left_asking(BURN, says("Fine.")) as (_, editor, model):
        editor.handlers[ASK] = never
        await editor.load(editor.session)
        await editor.until_asked(ASK)
        editor.cancel()
        while await owed_of(editor):
            await anyio.lowlevel.checkpoint()
        await wait_until(lambda: editor.calls()[0]["status"] == "failed")
        assert await editor.prompt("More") == "end_turn"
        assert len(model.requests) == 2


async def test_calls_of_another_client_are_left_to_it() -> None:
    async with left_asking(calls(("paint", {})), says("Fine."), method="_passback/tool_call") as (
        _,
        editor,
        _model,
    ):
        await editor.load(editor.session)  # it declares no tools
        assert await editor.request("session/list") is not None
        assert [each.name for each in await owed_of(editor)] == ["paint"]
        assert await editor.prompt("Leave it") == "end_turn"


# ---------------------------------------------------------------- beside other clients
async def test_a_permission_is_taken_back_when_another_client_has_answered() -> None:
    async with memory_editor(BURN, says("Done."), tools=[burn]) as (editor, model):
        editor.is_checked = False  # the answer "cancelled" is not the one that counts
        editor.handlers[ASK] = never
        key = editor.begin_prompt("Burn it")
        await editor.until_asked(ASK)
        [owed] = await owed_of(editor)
        await editor.post(ApprovalMessage(new_message_id(), owed.id, approved=True))
        assert await editor.stop_reason(key) == "end_turn"
        assert editor.withdrawn == [ASK]
        assert told(model) == ["it is burnt"]
        assert [each["status"] for each in editor.calls()] == ["completed"]
        assert ended(editor, "Done.")


async def test_a_session_that_cannot_be_watched_asks_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with memory_editor(BURN, says("Done."), tools=[burn]) as (editor, model):
        another = ConversationKey(ANONYMOUS, ConversationId("another"))
        said = "a session is not watched: conversation_not_found"

        async def allow(params: Json) -> Json:
            await wait_until(lambda: said in caplog.text)
            return await choose("allow_once")(params)

        editor.handlers[ASK] = allow
        editor.verbs["watch"] = lambda _key, after: editor.runs.watch(another, after=after)
        assert await editor.prompt("Burn it") == "end_turn"
        assert told(model) == ["it is burnt"]


async def test_the_mode_that_another_connection_has_set_counts() -> None:
    async with memory_editor(calls(RUN), says("No."), tools=[burn]) as (editor, model):
        mode = {"sessionId": editor.session, "modeId": "bypass"}
        await editor.request("session/set_mode", **mode)
        async with connected(editor.worker) as other:
            await other.open()
            await other.load(editor.session)
            await other.request("session/set_mode", **{**mode, "modeId": "plan"})
            assert await editor.prompt("Run it") == "end_turn"
        assert told(model) == ["The user did not allow this call."]


async def test_a_conversation_that_is_deleted_ends_what_is_asked() -> None:
    async with memory_editor(BURN, tools=[burn]) as (editor, _):
        editor.is_checked = False  # the call has failed before the editor answers
        editor.handlers[ASK] = never
        key = editor.begin_prompt("Burn it")
        await editor.until_asked(ASK)
        await editor.runs.delete(editor.key)
        with pytest.raises(AcpError, match="no such conversation"):
            await editor.result(key)
        assert editor.withdrawn == [ASK]


async def test_a_decision_that_cannot_be_kept_fails_the_prompt() -> None:
    async with memory_editor(calls(RUN), says("Fine.")) as (editor, _):
        editor.handlers[ASK] = choose("allow_always")
        editor.hooks["configure"] = failing(StoreUnavailable("the store is away"))
        failed = await editor.refusal_of_prompt("Run it")
        assert (failed.code, failed.message) == (-32603, "the store is away")
        assert await editor.prompt("Leave it") == "end_turn"
