"""Sessions of ACP: listed, loaded, resumed, closed and deleted; by another process, after a crash."""

import datetime
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.e2e.acp_stage import (
    AGENT,
    Stage,
    begin_session,
    call,
    later,
    opened_editor,
    says_and_calls,
    settings_of,
)
from tests.support.acp_editor import AcpError, Editor, joined_text, never
from tests.support.acp_schema import Json
from tests.support.model_server import Act, ModelServer, Reply, event, says
from tests.support.server import running_server
from tests.support.wire import client_of, user

pytestmark = [pytest.mark.anyio, pytest.mark.node, pytest.mark.timeout(120)]

UNKNOWN = -32002


@pytest.fixture
async def stage(editor: Editor, model: ModelServer, tmp_path: Path) -> AsyncGenerator[Stage]:
    stage = await begin_session(editor, model, tmp_path)
    yield stage
    editor.check()


async def loaded(
    editor: Editor, session: str, cwd: Path, method: str = "session/load"
) -> list[Json]:
    """Load a session; the updates that came before the answer."""
    start = len(editor.frames)
    key = await editor.begin(method, sessionId=session, cwd=str(cwd), mcpServers=[])
    await editor.result(key)
    place = next(
        n
        for n, frame in enumerate(editor.frames)
        if not frame.is_sent and "method" not in frame.message and frame.message["id"] == key
    )
    return [
        frame.message["params"]["update"]
        for frame in editor.frames[start:place]
        if not frame.is_sent and frame.message.get("method") == "session/update"
    ]


def shown(updates: list[Json]) -> list[tuple[str, str]]:
    """Return what a conversation says: who, and the text or the call and its last title."""
    told: list[tuple[str, str]] = []
    titles = {
        each["toolCallId"]: each["title"]
        for each in updates
        if "toolCallId" in each and "title" in each
    }
    last = ""
    for each in updates:
        kind = each["sessionUpdate"]
        if kind in {"user_message_chunk", "agent_message_chunk"}:
            text = each["content"].get("text", each["content"]["type"])
            if each["messageId"] == last:
                text = told.pop()[1] + text
            told.append((kind, text))
            last = each["messageId"]
        elif kind == "tool_call":
            told.append((each["toolCallId"], titles[each["toolCallId"]]))
    return told


def ends(updates: list[Json]) -> dict[str, Json]:
    """Return each call as its last update left it."""
    found: dict[str, Json] = {}
    for each in updates:
        if each["sessionUpdate"] in {"tool_call", "tool_call_update"}:
            found.setdefault(each["toolCallId"], {}).update(each)
    return {
        key: {name: each.get(name) for name in ("title", "kind", "status", "content", "locations")}
        for key, each in found.items()
    }


async def play_a_conversation(stage: Stage) -> None:
    path = str(stage.folder / "a.txt")
    stage.workspace.files[path] = "old\n"
    stage.model.play(
        says_and_calls(
            "I look. ",
            ("read_text_file", {"path": path}),
            ("burn", {"parcel": "it"}),
        ),
        call("write_text_file", path=path, content="new\n"),
        says("All is ", "well."),
    )
    assert await stage.prompt("Do it") == "end_turn"
    stage.model.play(says("Yes."))
    assert await stage.prompt("Really?") == "end_turn"


# ---------------------------------------------------------------- load and resume
async def test_a_loaded_session_shows_all_that_was_shown(stage: Stage) -> None:
    await play_a_conversation(stage)
    live = stage.updates
    again = await loaded(stage.editor, stage.session, stage.folder)
    assert ends(again) == ends(live)
    said = [each for each in shown(again) if each[0] != "user_message_chunk"]
    assert said == shown(live)
    asked = [each[1] for each in shown(again) if each[0] == "user_message_chunk"]
    assert asked == ["Do it", "Really?"]
    ids = {each["messageId"] for each in live if "messageId" in each}
    kept = {each["messageId"] for each in again if each["sessionUpdate"] == "agent_message_chunk"}
    assert kept == ids


async def test_a_loaded_session_goes_on(stage: Stage) -> None:
    await play_a_conversation(stage)
    await loaded(stage.editor, stage.session, stage.folder)
    stage.model.play(says("I do."))
    assert await stage.prompt("Do you remember?") == "end_turn"
    assert "All is well." in str(stage.model.requests[-1].shown)


async def test_a_resumed_session_replays_nothing_and_goes_on(stage: Stage) -> None:
    await play_a_conversation(stage)
    again = await loaded(stage.editor, stage.session, stage.folder, "session/resume")
    assert shown(again) == []
    stage.model.play(says("I do."))
    assert await stage.prompt("Do you remember?") == "end_turn"
    assert "All is well." in str(stage.model.requests[-1].shown)


async def test_a_load_gives_the_modes_and_options_of_the_session(stage: Stage) -> None:
    editor = stage.editor
    await editor.request("session/set_mode", sessionId=stage.session, modeId="plan")
    asked = {"sessionId": stage.session, "cwd": str(stage.folder), "mcpServers": []}
    for method in ("session/load", "session/resume"):
        answer = await editor.request(method, **asked)
        assert answer["modes"]["currentModeId"] == "plan"
        values = {each["id"]: each["currentValue"] for each in answer["configOptions"]}
        assert values["mode"] == "plan"


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_an_unknown_session_is_not_found(editor: Editor, tmp_path: Path, method: str) -> None:
    with pytest.raises(AcpError) as failed:
        await loaded(editor, "no-such-session", tmp_path, method)
    assert failed.value.code == UNKNOWN
    editor.check()


# ---------------------------------------------------------------- list, close, delete
async def listed(editor: Editor, **asked: str) -> dict[str, Json]:
    """Return all sessions of all pages, by id, newest first."""
    found: list[Json] = []
    page = await editor.request("session/list", **asked)
    found += page["sessions"]
    while cursor := page.get("nextCursor"):
        page = await editor.request("session/list", **asked, cursor=cursor)
        found += page["sessions"]
    assert len({each["sessionId"] for each in found}) == len(found)
    return {each["sessionId"]: each for each in found}


async def test_sessions_are_listed_with_folder_title_and_time(stage: Stage) -> None:
    stage.model.play(says("Yes."))
    assert await stage.prompt("Is the red parcel here?") == "end_turn"
    known = (await listed(stage.editor, cwd=str(stage.folder)))[stage.session]
    assert known["cwd"] == str(stage.folder)
    assert "red parcel" in known["title"]
    assert datetime.datetime.fromisoformat(known["updatedAt"]).tzinfo is not None


async def test_a_list_by_folder_has_no_session_of_another(stage: Stage, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    stage.model.play(says("Yes."))
    assert await stage.prompt("Hello") == "end_turn"
    assert await listed(stage.editor, cwd=str(elsewhere)) == {}


async def test_all_pages_of_a_list_have_all_sessions(stage: Stage) -> None:
    made: set[str] = set()
    stage.model.play(says("Yes."))
    for _ in range(60):
        session = await stage.editor.new_session(stage.folder)
        made.add(session)
        assert await stage.editor.prompt(session, "Hello") == "end_turn"
    assert made <= (await listed(stage.editor, cwd=str(stage.folder))).keys()


async def test_a_closed_session_can_be_loaded_and_a_deleted_one_cannot(stage: Stage) -> None:
    editor = stage.editor
    stage.model.play(says("Yes."))
    assert await stage.prompt("Hello") == "end_turn"
    assert await editor.request("session/close", sessionId=stage.session) == {}
    assert shown(await loaded(editor, stage.session, stage.folder)) == [
        ("user_message_chunk", "Hello"),
        ("agent_message_chunk", "Yes."),
    ]
    for _ in range(2):  # a repeat succeeds, too
        assert await editor.request("session/delete", sessionId=stage.session) == {}
    assert stage.session not in await listed(editor)
    with pytest.raises(AcpError) as failed:
        await loaded(editor, stage.session, stage.folder)
    assert failed.value.code == UNKNOWN


async def test_closing_an_unknown_session_is_harmless_or_not_found(editor: Editor) -> None:
    answer = await editor.answer(await editor.begin("session/close", sessionId="no-such-session"))
    assert answer.get("result") == {} or answer["error"]["code"] == UNKNOWN
    editor.check()


# ---------------------------------------------------------------- processes
async def test_a_session_outlives_its_process(model: ModelServer, tmp_path: Path) -> None:
    async with opened_editor(model, tmp_path) as first:
        stage = await begin_session(first, model, tmp_path)
        await play_a_conversation(stage)
    async with opened_editor(model, tmp_path) as second:
        assert stage.session in await listed(second, cwd=str(tmp_path))
        again = await loaded(second, stage.session, tmp_path)
        assert ends(again) == ends(stage.updates)
        model.play(says("Still here."))
        assert await second.prompt(stage.session, "And now?") == "end_turn"
        assert joined_text(second.updates(stage.session)).endswith("Still here.")


@pytest.mark.parametrize("where", ["text", "tool", "permission", "file"])
async def test_a_process_that_is_killed_loses_nothing_and_repeats_nothing(
    model: ModelServer, tmp_path: Path, where: str
) -> None:
    async with opened_editor(model, tmp_path) as first:
        stage = await begin_session(first, model, tmp_path)
        await play_a_conversation(stage)
        known = shown(await loaded(first, stage.session, tmp_path))
        await _kill_in_the_middle(later(stage), where)
    async with opened_editor(model, tmp_path) as second:
        again = await loaded(second, stage.session, tmp_path)
        told = shown(again)
        assert told[: len(known)] == known
        assert told[len(known)] == ("user_message_chunk", "Go on")
        assert len([each for each in told if each == ("user_message_chunk", "Go on")]) == 1
        model.play(says("I am back."))
        start = len(second.frames)
        assert await second.prompt(stage.session, "Are you there?") == "end_turn"
        assert joined_text(second.updates(stage.session, start)).endswith("I am back.")
        asked = [each["content"] for each in model.requests[-1].shown if each["role"] == "user"]
        assert len([each for each in asked if "Go on" in str(each)]) == 1


async def _kill_in_the_middle(stage: Stage, where: str) -> None:
    """Kill the agent while it says something, runs a tool, asks, or waits for the editor."""
    calls_of = {
        "tool": call("wait_forever"),
        "permission": call("burn", parcel="more"),
        "file": call("read_text_file", path=str(stage.folder / "a.txt")),
        "text": Reply([event(content="I was say"), Act.STALL]),
    }
    for method in ("session/request_permission", "fs/read_text_file"):
        stage.editor.handlers[method] = never
    stage.model.play(calls_of[where], says("Not said."))
    if where == "tool":
        await stage.editor.request("session/set_mode", sessionId=stage.session, modeId="bypass")
    await stage.begin("Go on")
    if where == "text":
        await stage.update("agent_message_chunk")
    elif where == "tool":
        await stage.update("tool_call_update", status="in_progress")
    else:
        await stage.update("tool_call")
    await stage.editor.kill()


@pytest.mark.promise("P18")
async def test_a_conversation_begun_over_http_is_listed_and_loaded(
    model: ModelServer, tmp_path: Path
) -> None:
    settings = settings_of(model, tmp_path)
    model.play(says("Hello from the web."))
    arguments = (AGENT, "--store", settings["PASSBACK_STORE"])
    async with running_server(*arguments, environment=settings) as server:
        async with client_of(server.url) as client:
            answer = await client.post("from-the-web", user("Who are you?"))
            assert answer.text == "Hello from the web."
        async with opened_editor(model, tmp_path) as editor:
            assert "from-the-web" in await listed(editor)
            again = await loaded(editor, "from-the-web", tmp_path)
            assert shown(again) == [
                ("user_message_chunk", "Who are you?"),
                ("agent_message_chunk", "Hello from the web."),
            ]
            model.play(says("I go on."))
            assert await editor.prompt("from-the-web", "Go on") == "end_turn"
