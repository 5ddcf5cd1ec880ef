"""Sessions: made, loaded, resumed, listed, closed, deleted; their settings and MCP servers."""

import itertools
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import pytest
from pydantic import JsonValue
from tests.support.acp_editor import ALL_CAPABILITIES, AcpError, joined_text
from tests.support.acp_memory import (
    FOLDER,
    MemoryEditor,
    connected,
    failing,
    memory_editor,
    told,
    worker_of,
)
from tests.support.acp_schema import Json
from tests.support.mcp_servers import ROOT, TOOLS
from tests.support.waiting import wait_until

from passback import tool
from passback.core.changes import ListedConversation
from passback.core.conversation_settings import ConversationSettings
from passback.core.deltas import Finish, ReasoningBlock, ReasoningChunk
from passback.core.errors import StoreUnavailable
from passback.core.ids import new_conversation_id
from passback.core.messages import ConversationId, ConversationKey, Reasoning
from passback.http.gate import ANONYMOUS
from passback.models.scripted import ScriptedModel, calls, says

pytestmark = pytest.mark.anyio

SERVER: Json = {
    "name": "tools",
    "command": TOOLS[0],
    "args": list(TOOLS[1:]),
    "env": [{"name": "PYTHONPATH", "value": str(ROOT)}],
}
PLAN: list[JsonValue] = [{"content": "Weigh", "priority": "high", "status": "pending"}]
BROKEN: Json = {"name": "broken", "command": "/nowhere/at/all", "type": "stdio"}


@tool(read_only=True, title="Weigh a parcel", kind="read")
def weigh(parcel: str) -> str:
    """Weigh a parcel."""
    return f"{parcel} weighs 2 kg"


def shown_of(updates: list[Json]) -> list[Json]:
    """Return what is shown of a conversation, each call once and as it was in the end."""
    shown: list[Json] = []
    known: dict[str, Json] = {}
    for update in updates:
        kind = update["sessionUpdate"]
        if kind == "tool_call":
            shown.append(known.setdefault(update["toolCallId"], dict(update)))
        elif kind == "tool_call_update":
            known[update["toolCallId"]].update({**update, "sessionUpdate": "tool_call"})
        elif kind in {"agent_message_chunk", "agent_thought_chunk"}:
            last = shown[-1] if shown else {}
            if last.get("sessionUpdate") == kind and last["messageId"] == update["messageId"]:
                last["content"]["text"] += update["content"]["text"]
            else:
                shown.append({**update, "content": dict(update["content"])})
        elif kind == "plan":
            shown.append(update)
    return shown


# ---------------------------------------------------------------- load and resume
async def test_a_load_shows_what_was_shown() -> None:
    script = (
        [
            ReasoningChunk("Hm."),
            ReasoningBlock(Reasoning("Hm.", "p")),
            "Let me ",
            "look.",
            *calls(("weigh", {"parcel": "it"})),
        ],
        calls(("write_text_file", {"path": "a.txt", "content": "2 kg\n"})),
        calls(("run_command", {"command": "make"}), ("read_text_file", {"path": "nothing"})),
        calls(("update_plan", {"entries": PLAN})),
        says("Done."),
    )
    async with memory_editor(*script, tools=[weigh], plan=True) as (editor, _):
        start = len(editor.frames)
        assert await editor.prompt("Weigh it") == "end_turn"
        live = shown_of(editor.updates(start))
        assert [each["sessionUpdate"] for each in live] == [
            "agent_thought_chunk",
            "agent_message_chunk",
            *["tool_call"] * 4,
            "tool_call",
            "plan",
            "agent_message_chunk",
        ]
        start = len(editor.frames)
        await editor.load()
        replayed = shown_of(editor.updates(start))
        assert [each for each in replayed if each["sessionUpdate"] != "plan"] == [
            {
                **each,
                "content": [
                    {"type": "content", "content": {"type": "text", "text": text}}
                    for text in ("```\nmake\n```", "done\n[exit code 0]")
                ],
            }
            if each.get("kind") == "execute"  # its terminal is gone
            else each
            for each in live
            if each["sessionUpdate"] != "plan"
        ]
        assert replayed[-1]["sessionUpdate"] == "plan"
        assert joined_text(editor.updates(start), "user_message_chunk") == "Weigh it"


async def test_a_resume_shows_nothing_and_goes_on() -> None:
    async with memory_editor(says("One."), says("Two.")) as (editor, model):
        assert await editor.prompt("Hello") == "end_turn"
        start = len(editor.frames)
        answer = await editor.request("session/resume", sessionId=editor.session, cwd="/srv/other")
        assert answer["modes"]["currentModeId"] == "ask"
        assert await editor.prompt("More") == "end_turn"
        assert joined_text(editor.updates(start)) == "Two."
        assert "/srv/other" in str(model.requests[-1])
        [listed] = (await editor.request("session/list"))["sessions"]
        assert listed["cwd"] == "/srv/other"


async def test_an_unknown_session_is_not_found() -> None:
    async with memory_editor() as (editor, _):
        for method in ("session/load", "session/resume"):
            error = await editor.refusal(method, sessionId="sesame", cwd=FOLDER, mcpServers=[])
            assert (error.code, "sesame" in error.message) == (-32002, False)
        for method, more in (
            ("session/prompt", {"prompt": [{"type": "text", "text": "Hi"}]}),
            ("session/set_mode", {"modeId": "ask"}),
            ("session/set_config_option", {"configId": "mode", "value": "ask"}),
        ):
            error = await editor.refusal(method, sessionId="sesame", **more)
            assert (error.code, "session/load" in error.message) == (-32002, True)


async def test_a_session_that_cannot_be_read_is_not_open() -> None:
    async with memory_editor(says("Hi.")) as (editor, _):
        assert await editor.prompt("Hello") == "end_turn"
        editor.hooks["messages"] = failing(StoreUnavailable("the store cannot be reached"))
        with pytest.raises(AcpError, match="cannot be reached"):
            await editor.load()
        assert (await editor.refusal_of_prompt()).code == -32002
        del editor.hooks["messages"]
        await editor.load()


async def test_a_long_conversation_is_shown_whole() -> None:
    texts = [str(number) for number in range(60)]
    async with memory_editor(*[says(text) for text in texts]) as (editor, _):
        for text in texts:
            assert await editor.prompt(text) == "end_turn"
        start = len(editor.frames)
        await editor.load()
        assert joined_text(editor.updates(start)) == "".join(texts)


async def test_a_run_that_goes_on_is_shown_after_a_load() -> None:
    held = anyio.Event()
    async with memory_editor(["One. ", held, "Two.", Finish("stop")], says("Three.")) as (
        editor,
        model,
    ):
        editor.is_checked = False
        await editor.post("Hello")
        await wait_until(lambda: model.open_streams == 1)
        await editor.load()
        await wait_until(lambda: joined_text(editor.updates()) == "One. ")
        with pytest.raises(AcpError, match="cancel it first"):
            await editor.load()
        key = editor.begin_prompt("And then")
        held.set()
        assert await editor.stop_reason(key) == "end_turn"
        assert joined_text(editor.updates()) == "One. Two.Three."


async def test_a_run_of_another_client_that_is_shown_can_be_cancelled() -> None:
    async with memory_editor(["One. ", anyio.Event()]) as (editor, model):
        editor.is_checked = False
        await editor.post("Hello")
        await wait_until(lambda: model.open_streams == 1)
        await editor.load()
        await wait_until(lambda: joined_text(editor.updates()) == "One. ")
        editor.cancel()
        await wait_until(lambda: model.open_streams == 0)


def on_call(number: int, act: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[object]]:
    """Return a hook that acts when it is called so many times."""
    times = itertools.count(1)

    async def hook() -> None:
        if next(times) == number:
            await act()

    return hook


async def test_a_run_that_is_shown_may_vanish() -> None:
    async with memory_editor(["One. ", anyio.Event()]) as (editor, model):
        await editor.post("Hello")
        await wait_until(lambda: model.open_streams == 1)
        await editor.load()
        await wait_until(lambda: joined_text(editor.updates()) == "One. ")
        await editor.runs.delete(editor.key)
        assert (await editor.refusal_of_prompt("More")).code == -32002
        assert await editor.request("session/close", sessionId=editor.session) == {}


STATUS_OF_RESTORING = 3  # the two before are of the opening


async def test_a_run_that_is_to_be_shown_may_have_ended() -> None:
    held = anyio.Event()
    async with memory_editor(["One. ", held, Finish("stop")], says("Two.")) as (editor, model):
        await editor.post("Hello")
        await wait_until(lambda: model.open_streams == 1)

        async def end() -> None:
            held.set()
            await editor.until_idle()

        async def end_after_status(*given: Any) -> Any:
            status = await editor.runs.status(*given)
            if next(times) == STATUS_OF_RESTORING:
                await end()
            return status

        times = itertools.count(1)
        editor.verbs["status"] = end_after_status
        await editor.load()
        assert await editor.prompt("More") == "end_turn"
        assert joined_text(editor.updates()) == "One. Two."


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_a_session_whose_prompt_goes_on_is_not_opened_anew(method: str) -> None:
    held = anyio.Event()
    async with memory_editor(["One. ", held, "Two.", Finish("stop")], says("Three.")) as (
        editor,
        _,
    ):
        key = editor.begin_prompt("Hello")
        await wait_until(lambda: joined_text(editor.updates()) == "One. ")
        given: Json = {"sessionId": editor.session, "cwd": "/srv/other", "mcpServers": []}
        error = await editor.refusal(method, **given)
        assert (error.code, error.message) == (
            -32603,
            "a prompt goes on in this session: cancel it first",
        )
        assert (await editor.runs.status(editor.key)).settings.cwd == FOLDER
        held.set()
        assert await editor.stop_reason(key) == "end_turn"
        assert joined_text(editor.updates()) == "One. Two."
        await editor.request(method, **given)
        assert await editor.prompt("More") == "end_turn"


async def test_a_load_may_follow_another_at_once() -> None:
    async with memory_editor(says("Hi.")) as (editor, _):
        given: Json = {"sessionId": editor.session, "cwd": FOLDER, "mcpServers": []}
        for key in [editor.begin("session/load", **given) for _number in range(3)]:
            await editor.result(key)
        assert await editor.prompt("Hello") == "end_turn"


async def test_a_load_behind_a_cancel_waits_for_the_end_of_the_prompt() -> None:
    async with memory_editor(["One.", anyio.Event()], says("Two.")) as (editor, _):
        key = editor.begin_prompt("Hello")
        await wait_until(lambda: bool(joined_text(editor.updates())))
        editor.is_checked = False
        editor.cancel()
        await editor.load()
        assert await editor.stop_reason(key) == "cancelled"
        assert await editor.prompt("Again") == "end_turn"


# ---------------------------------------------------------------- settings
async def test_modes_and_options_are_in_step_and_outlive_the_session() -> None:
    async with memory_editor() as (editor, _):
        session = editor.session
        await editor.request("session/set_mode", sessionId=session, modeId="plan")
        [changed] = editor.of_kind("config_option_update")
        assert changed["configOptions"][0]["currentValue"] == "plan"
        answer = await editor.request(
            "session/set_config_option", sessionId=session, configId="mode", value="bypass"
        )
        [option] = answer["configOptions"]
        assert (option["id"], option["currentValue"]) == ("mode", "bypass")
        assert editor.of_kind("current_mode_update")[-1]["currentModeId"] == "bypass"
        loaded = await editor.load()
        assert loaded["modes"]["currentModeId"] == "bypass"
        assert loaded["configOptions"] == [option]


@pytest.mark.parametrize(
    ("option", "value"),
    [("mode", "sesame"), ("mode", 5), ("model", "one"), ("model", True), ("effort", "high")],
)
async def test_an_option_that_there_is_not_is_refused(option: str, value: Any) -> None:
    async with memory_editor() as (editor, _):
        error = await editor.refusal(
            "session/set_config_option", sessionId=editor.session, configId=option, value=value
        )
        assert (error.code, "sesame" in error.message) == (-32602, False)
        error = await editor.refusal("session/set_mode", sessionId=editor.session, modeId="sesame")
        assert (error.code, "sesame" in error.message) == (-32602, False)


async def test_a_model_is_chosen_where_there_are_several() -> None:
    other = ScriptedModel([says("I am the other.")], name="other")
    async with memory_editor(says("I am the first."), models=[other]) as (editor, _):
        shown = await editor.request(
            "session/set_config_option", sessionId=editor.session, configId="model", value="other"
        )
        _, model = shown["configOptions"]
        assert (model["currentValue"], [each["value"] for each in model["options"]]) == (
            "other",
            ["scripted", "other"],
        )
        assert await editor.prompt("Who?") == "end_turn"
        assert joined_text(editor.updates()) == "I am the other."
        assert (await editor.load())["configOptions"][1]["currentValue"] == "other"


async def test_an_effort_is_chosen_where_the_agent_has_one() -> None:
    options: dict[str, JsonValue] = {"reasoning_effort": "medium"}
    async with memory_editor(says("Hi."), says("Hi."), options=options) as (editor, model):
        assert await editor.prompt("Hello") == "end_turn"
        shown = await editor.request(
            "session/set_config_option", sessionId=editor.session, configId="effort", value="high"
        )
        assert shown["configOptions"][1]["currentValue"] == "high"
        assert await editor.prompt("Think") == "end_turn"
        assert [each.generation.effort for each in model.requests] == [None, "high"]


async def test_changes_of_settings_that_come_together_are_both_kept() -> None:
    other = ScriptedModel([], name="other")
    async with memory_editor(models=[other]) as (editor, _):
        given: Json = {"sessionId": editor.session}
        keys = [
            editor.begin("session/set_mode", **given, modeId="plan"),
            editor.begin("session/set_config_option", **given, configId="model", value="other"),
        ]
        for key in keys:
            await editor.result(key)
        loaded = await editor.load()
        assert [each["currentValue"] for each in loaded["configOptions"]] == ["plan", "other"]


# ---------------------------------------------------------------- lists, ends
async def test_sessions_are_listed_by_pages_with_what_is_known_of_them() -> None:
    async with memory_editor(says("Hi.")) as (editor, _):
        assert await editor.prompt("Hello") == "end_turn"
        first = editor.session
        for number in range(51):
            await editor.new_session(cwd=f"/srv/{number}", additionalDirectories=["/srv/more"])
        page = await editor.request("session/list")
        assert len(page["sessions"]) == 50
        rest = await editor.request("session/list", cursor=page["nextCursor"])
        assert "nextCursor" not in rest
        everything = {each["sessionId"]: each for each in page["sessions"] + rest["sessions"]}
        assert len(everything) == 52
        assert everything[editor.session]["cwd"] == "/srv/50"
        assert everything[editor.session]["additionalDirectories"] == ["/srv/more"]
        said = everything[first]
        assert (said["title"], said["cwd"], said["updatedAt"][-1]) == ("Hello", FOLDER, "Z")
        assert "additionalDirectories" not in said


async def test_a_list_by_folder_has_its_sessions_and_those_without_a_folder() -> None:
    async with memory_editor() as (editor, _):
        await editor.new_session(cwd="/srv/other")
        elsewhere = ConversationKey(ANONYMOUS, ConversationId("elsewhere"))
        await editor.runs.create(elsewhere)
        of_folder = await editor.request("session/list", cwd="/srv/other")
        assert {each["sessionId"]: each["cwd"] for each in of_folder["sessions"]} == {
            editor.session: "/srv/other",
            "elsewhere": "/srv/other",
        }
        everything = await editor.request("session/list", cwd=None)
        assert {each["cwd"] for each in everything["sessions"]} == {FOLDER, "/srv/other", "/"}


async def make_conversations(editor: MemoryEditor, count: int, cwd: str) -> set[str]:
    """Make conversations of a folder as another client does; return their ids."""
    keys = [ConversationKey(ANONYMOUS, new_conversation_id()) for _number in range(count)]
    for key in keys:
        await editor.runs.create(key, settings=ConversationSettings(cwd=cwd))
    return {key.id for key in keys}


async def list_pages(editor: MemoryEditor, cwd: str) -> list[set[str]]:
    pages: list[set[str]] = []
    given: Json = {"cwd": cwd}
    while True:
        page = await editor.request("session/list", **given)
        ids = [each["sessionId"] for each in page["sessions"]]
        pages.append(set(ids))
        assert len(pages[-1]) == len(ids)
        if "nextCursor" not in page:
            return pages
        given["cursor"] = page["nextCursor"]


async def test_a_page_of_a_folder_is_full_where_more_of_it_follow() -> None:
    async with memory_editor() as (editor, _):
        wanted: set[str] = set()
        for _number in range(6):
            wanted |= await make_conversations(editor, 20, "/srv/wanted")
            await make_conversations(editor, 20, "/srv/other")
        await make_conversations(editor, 60, "/srv/other")
        pages = await list_pages(editor, "/srv/wanted")
        assert [len(each) for each in pages] == [50, 50, 20]
        assert set().union(*pages) == wanted


async def test_a_page_of_a_folder_takes_a_bounded_number_of_reads() -> None:
    async with memory_editor() as (editor, _):
        wanted = await make_conversations(editor, 1, "/srv/wanted")
        await make_conversations(editor, 20 * 50, "/srv/other")
        reads = itertools.count()

        async def count() -> None:
            next(reads)

        editor.hooks["conversations"] = count
        assert await list_pages(editor, "/srv/wanted") == [set(), wanted]
        assert next(reads) == 21


async def test_a_closed_session_can_be_loaded_and_a_deleted_one_cannot() -> None:
    async with memory_editor(says("Hi.")) as (editor, _):
        given: Json = {"sessionId": editor.session}
        assert await editor.request("session/close", **given) == {}
        assert await editor.request("session/close", **given) == {}
        assert (await editor.refusal_of_prompt()).code == -32002
        await editor.load()
        assert await editor.prompt("Hello") == "end_turn"
        assert await editor.request("session/delete", **given) == {}
        assert await editor.request("session/delete", **given) == {}
        with pytest.raises(AcpError, match="-32002"):
            await editor.load()


async def test_a_delete_ends_the_prompt_first() -> None:
    async with memory_editor(["Hi.", anyio.Event()]) as (editor, model):
        key = editor.begin_prompt("Hello")
        await wait_until(lambda: model.open_streams == 1)
        assert await editor.request("session/delete", sessionId=editor.session) == {}
        assert await editor.stop_reason(key) == "cancelled"
        assert model.open_streams == 0


async def all_conversations(editor: MemoryEditor) -> Sequence[ListedConversation]:
    page = await editor.runs.conversations(ANONYMOUS, after=None, limit=500)
    return page.conversations


async def test_the_number_of_open_sessions_is_limited() -> None:
    async with memory_editor() as (editor, _):
        first = editor.session
        known = len(await all_conversations(editor))
        keys = [editor.begin("session/new", cwd=FOLDER, mcpServers=[]) for _number in range(300)]
        refused = []
        for key in keys:
            try:
                await editor.result(key)
            except AcpError as error:
                refused.append((error.code, error.data["code"]))
        assert refused == [(-32603, "conflict")] * 201
        assert len(await all_conversations(editor)) == known + 99
        await editor.load(first)  # it is opened anew, which makes it no more
        await editor.request("session/close", sessionId=first)
        assert await editor.new_session()


async def test_a_session_of_another_connection_is_shared() -> None:
    worker, _ = worker_of(says("Hi."), says("There."))
    async with (
        worker.backend.running(),
        connected(worker) as one,
        connected(worker) as other,
    ):
        for editor in (one, other):
            await editor.open()
        session = await one.new_session()
        assert await one.prompt("Hello") == "end_turn"
        await other.load(session)
        assert joined_text(other.updates()) == "Hi."
        assert await other.prompt("And") == "end_turn"
        assert joined_text(other.updates()) == "Hi.There."


# ---------------------------------------------------------------- MCP servers
async def test_the_tools_of_a_sessions_servers_reach_its_model() -> None:
    script = (calls(("tools__add", {"a": 1, "b": 2})), says("Done."), says("Hi."))
    async with memory_editor(*script) as (editor, model):
        other = editor.session
        await editor.new_session(cwd=str(ROOT), mcpServers=[SERVER, SERVER])
        assert await editor.prompt("Add") == "end_turn"
        names = {each.name for each in model.requests[0].tools}
        assert {name for name in names if name.startswith("tools")} >= {"tools__add"}
        assert len({name.partition("__")[0] for name in names if "__" in name}) == 2
        assert told(model) == ["3"]
        key = editor.begin_prompt("Hello", session=other)
        assert await editor.stop_reason(key) == "end_turn"
        assert not any("__" in each.name for each in model.requests[-1].tools)


@pytest.mark.parametrize("notices", [True, False])
async def test_a_broken_server_is_told_once_and_the_session_goes_on(*, notices: bool) -> None:
    capabilities = ALL_CAPABILITIES if notices else {}
    async with memory_editor(says("Hi."), says("Hi."), capabilities=capabilities) as (editor, _):
        await editor.new_session(mcpServers=[BROKEN])
        for _number in range(2):
            assert await editor.prompt("Hello") == "end_turn"
        if notices:
            [told_of] = editor.of_kind("notice")
            assert told_of["severity"] == "warning"
            assert "broken" in told_of["title"]
        else:
            said = joined_text(editor.updates())
            assert said.count("its tools are left out") == 1


async def test_a_prompt_waits_for_the_servers_and_can_be_cancelled_then() -> None:
    # a server that never says anything
    mute = {
        "name": "mute",
        "command": sys.executable,
        "args": ["-c", "import sys; sys.stdin.read()"],
    }
    async with memory_editor(says("Hi.")) as (editor, model):
        await editor.new_session(cwd=str(ROOT), mcpServers=[mute])
        key = editor.begin_prompt("Hello")
        second = editor.begin_prompt("Hello")
        await anyio.lowlevel.checkpoint()
        editor.cancel()
        assert await editor.stop_reason(key) == "cancelled"
        assert await editor.stop_reason(second) == "cancelled"
        assert model.requests == []
        assert await editor.request("session/close", sessionId=editor.session) == {}


async def test_without_the_package_servers_are_refused() -> None:
    worker, _ = worker_of()
    async with worker.backend.running(), connected(worker, tool_server=None) as editor:
        await editor.open()
        error = await editor.refusal("session/new", cwd=FOLDER, mcpServers=[SERVER])
        assert (error.code, "pip install passback[acp]" in error.message) == (-32602, True)
        assert await editor.new_session()
