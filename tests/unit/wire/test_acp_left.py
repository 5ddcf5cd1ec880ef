"""Sessions that are opened with something left: calls that are owed, and other clients beside."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.support.acp_editor import AcpError, choose, joined_text, never
from tests.support.acp_memory import (
    HookedRuns,
    MemoryEditor,
    connected,
    failing,
    memory_editor,
    told,
    worker_of,
)
from tests.support.acp_schema import Json
from tests.support.waiting import wait_until

from passback import Permission, tool
from passback.core.changes import Page, Status
from passback.core.conversation_settings import ConversationSettings
from passback.core.deltas import Finish
from passback.core.errors import InvalidRequest, StoreUnavailable
from passback.core.messages import (
    UNNAMED,
    ApprovalMessage,
    ConversationId,
    ConversationKey,
    Owed,
    ToolSpec,
)
from passback.http.gate import ANONYMOUS
from passback.models.scripted import ScriptedModel, Turn, calls, says

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]
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
        runs = HookedRuns(gone.runs)
        async with connected(gone.worker, runs=runs) as editor:
            editor.is_checked = False  # what was left is shown outside of a prompt
            editor.verbs = runs.verbs
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
        await editor.post(ApprovalMessage(UNNAMED, owed.id, approved=True))
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


async def test_an_answer_that_comes_too_late_follows_the_run_of_the_one_that_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with memory_editor(BURN, says("Done."), tools=[burn]) as (editor, model):
        another = ConversationKey(ANONYMOUS, ConversationId("another"))

        async def allow_too_late(params: Json) -> Json:
            await wait_until(lambda: "a session is not watched" in caplog.text)
            [owed] = await owed_of(editor)
            await editor.post(ApprovalMessage(UNNAMED, owed.id, approved=False))
            await editor.until_idle()
            return await choose("allow_once")(params)

        editor.handlers[ASK] = allow_too_late
        editor.verbs["watch"] = lambda _key, after: editor.runs.watch(another, after=after)
        assert await editor.prompt("Burn it") == "end_turn"
        assert "burnt" not in told(model)[0]
        assert ended(editor, "Done.")


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
        with pytest.raises(AcpError, match=r"no such (conversation|run)"):
            await editor.result(key)
        assert editor.withdrawn == [ASK]


async def test_a_decision_that_cannot_be_kept_fails_the_prompt() -> None:
    async with memory_editor(calls(RUN), says("Fine.")) as (editor, _):
        editor.handlers[ASK] = choose("allow_always")
        editor.hooks["configure"] = failing(StoreUnavailable("the store is away"))
        failed = await editor.refusal_of_prompt("Run it")
        assert (failed.code, failed.message) == (-32603, "the store is away")
        assert await editor.prompt("Leave it") == "end_turn"


# ---------------------------------------------------------------- at bad moments
async def test_loads_at_once_open_the_session_one_after_the_other() -> None:
    async with memory_editor(says("Hi."), says("Yes.")) as (editor, _):
        assert await editor.prompt("Hello") == "end_turn"
        editor.is_checked = False  # what is loaded is shown behind the answer to the close
        held = anyio.Event()
        editor.hooks["messages"] = held.wait
        given = {"sessionId": editor.session, "cwd": "/srv", "mcpServers": []}
        keys = [editor.begin("session/load", **given) for _ in range(2)]
        close = editor.begin("session/close", sessionId=editor.session)
        await editor.result(close)
        held.set()
        for key in keys:
            assert "configOptions" in await editor.result(key)
        assert await editor.prompt("Still there?") == "end_turn"


async def test_a_session_is_not_opened_for_an_owner_who_has_left() -> None:
    keys = {"api_keys": "alice:the-key-of-alice,bob:the-key-of-bob-x"}
    worker, _ = worker_of(settings=keys)
    async with worker.backend.running():
        runs = HookedRuns(worker.backend.runs)
        async with connected(worker, owner=None, key="the-key-of-alice", runs=runs) as editor:
            await editor.open()
            await editor.request("authenticate", methodId="api-key")
            held = anyio.Event()
            runs.hooks["create"] = held.wait
            key = editor.begin("session/new", cwd="/srv", mcpServers=[])
            bob = {"methodId": "api-key", "_meta": {"apiKey": "the-key-of-bob-x"}}
            await editor.request("authenticate", **bob)
            held.set()
            with pytest.raises(AcpError, match="another owner"):
                await editor.result(key)
            session = await editor.new_session()
            alice = {"methodId": "api-key", "_meta": {"apiKey": "the-key-of-alice"}}
            await editor.request("authenticate", **alice)
            refused = await editor.refusal("session/set_mode", sessionId=session, modeId="plan")
            assert refused.code == -32002


async def test_a_record_that_shrinks_while_it_is_read_ends_the_load() -> None:
    async with memory_editor(says("Hi."), says("Yes.")) as (editor, _):
        assert await editor.prompt("Hello") == "end_turn"

        async def nothing(*_: object, **__: object) -> Page:
            await anyio.lowlevel.checkpoint()
            return Page((), 0, 0)

        editor.verbs["messages"] = nothing
        assert "modes" in await editor.load()


async def test_what_is_left_is_not_begun_for_a_session_that_is_closed() -> None:
    # a server that never says anything, for which the session waits
    mute = {
        "name": "mute",
        "command": sys.executable,
        "args": ["-c", "import sys; sys.stdin.read()"],
    }
    async with left_asking(BURN, says("Fine.")) as (_, editor, _model):
        await editor.load(editor.session, cwd=str(ROOT), mcpServers=[mute])
        assert await editor.request("session/close", sessionId=editor.session) == {}
        assert editor.asked(ASK) == []
        assert [each.name for each in await owed_of(editor)] == ["burn"]


async def test_a_store_that_fails_leaves_what_is_left(caplog: pytest.LogCaptureFixture) -> None:
    async with left_asking(BURN, says("Fine.")) as (_gone, editor, _):
        times = iter(range(100))

        async def status(*given: ConversationKey) -> Status:
            if next(times) == 3:  # those before are of the opening
                raise StoreUnavailable("the store is away")
            return await editor.runs.status(*given)

        editor.verbs["status"] = status
        await editor.load(editor.session)
        await wait_until(lambda: "is not gone on with: the store is away" in caplog.text)
        assert await editor.prompt("Leave it") == "end_turn"


async def test_an_error_in_what_was_left_is_logged_and_harms_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with memory_editor(says("Hi."), says("Yes.")) as (editor, _):
        assert await editor.prompt("Hello") == "end_turn"
        times = iter(range(100))

        async def status(*given: ConversationKey) -> Status:
            if next(times) == 3:  # those before are of the opening
                raise RuntimeError("a fault")
            return await editor.runs.status(*given)

        editor.verbs["status"] = status
        await editor.load()
        await wait_until(lambda: "what was left of a session failed" in caplog.text)
        del editor.verbs["status"]
        assert await editor.prompt("Still there?") == "end_turn"


async def test_a_call_of_another_clients_tool_of_the_same_name_is_refused() -> None:
    theirs = ToolSpec("run_command", "Run", {"type": "object"})
    async with memory_editor(calls(("run_command", {"file": "a"})), says("Fine.")) as (
        editor,
        model,
    ):
        editor.is_checked = False
        await editor.post("Run it", tools=(theirs,))
        await editor.until_idle()
        await editor.load()
        await wait_until(lambda: ended(editor, "Fine."))
        assert told(model) == ["Not made: the arguments are those of another tool of this name."]


async def test_a_result_that_is_refused_is_told_to_the_model() -> None:
    async with memory_editor(calls(RUN), says("Fine.")) as (editor, model):
        failures = iter([InvalidRequest("it is too large")])

        async def refuse(_: Json) -> Json:
            editor.hooks["start"] = start
            await anyio.lowlevel.checkpoint()
            return {"output": "ok", "truncated": False, "exitStatus": {"exitCode": 0}}

        async def start() -> None:
            for failure in failures:
                raise failure
            await anyio.lowlevel.checkpoint()

        editor.handlers["terminal/output"] = refuse
        assert await editor.prompt("Run it") == "end_turn"
        assert told(model) == ["The result cannot be shown to you: it is too large"]


async def test_a_result_that_is_refused_again_fails_the_prompt() -> None:
    async with memory_editor(calls(RUN), says("Fine.")) as (editor, _):

        async def refuse(_: Json) -> Json:
            editor.hooks["start"] = failing(InvalidRequest("it is too large"))
            await anyio.lowlevel.checkpoint()
            return {"output": "ok", "truncated": False, "exitStatus": {"exitCode": 0}}

        editor.handlers["terminal/output"] = refuse
        assert (await editor.refusal_of_prompt("Run it")).code == -32602


async def test_a_store_that_fails_after_the_answer_fails_no_prompt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = anyio.Event()
    async with memory_editor(["One.", held, Finish("stop")]) as (editor, _):
        key = editor.begin_prompt("Hello")
        await wait_until(lambda: ended(editor, "One."))
        editor.hooks["status"] = failing(StoreUnavailable("the store is away"))
        held.set()
        assert await editor.stop_reason(key) == "end_turn"
        assert "title and cost are not told: store_unavailable" in caplog.text


async def test_a_model_that_is_gone_is_not_asked_for() -> None:
    async with memory_editor(says("Hi.")) as (editor, _):
        await editor.runs.configure(editor.key, ConversationSettings(model="gone"))
        assert await editor.prompt("Hello") == "end_turn"
