"""Tools that run in the editor: its files, its terminals, its forms, and tools of its own."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.e2e.acp_stage import (
    Stage,
    begin_session,
    call,
    offered,
    opened_editor,
    says_and_calls,
    told,
)
from tests.support.acp_editor import AcpError, Editor, choose, never
from tests.support.acp_schema import Json
from tests.support.model_server import ModelServer, says

pytestmark = [pytest.mark.anyio, pytest.mark.node]

FILES = {"read_text_file", "write_text_file", "edit_text_file"}
SCHEMA: Json = {"type": "object", "properties": {"color": {"type": "string"}}}
TOOL: Json = {"name": "paint", "description": "Paint the window", "parameters": SCHEMA}
DECLARED: Json = {"passback": {"tools": [TOOL]}}
CHOICE: Json = {
    "question": "Which post office?",
    "options": [{"label": "North"}, {"label": "South"}],
    "freeText": False,
}
OPEN: Json = {"question": "What is your name?"}


@pytest.fixture
async def stage(editor: Editor, model: ModelServer, tmp_path: Path) -> AsyncGenerator[Stage]:
    stage = await begin_session(editor, model, tmp_path)
    yield stage
    editor.check()


@asynccontextmanager
async def with_capabilities(
    model: ModelServer, folder: Path, capabilities: Json
) -> AsyncGenerator[Stage]:
    """A session in an editor that offers only these."""
    async with opened_editor(model, folder, capabilities=capabilities) as editor:
        yield await begin_session(editor, model, folder)


# ---------------------------------------------------------------- files
async def test_the_model_reads_what_the_editor_holds(stage: Stage) -> None:
    path = str(stage.folder / "poem.txt")
    stage.workspace.files[path] = "one\ntwo\nthree\nfour\n"
    stage.model.play(
        call("read_text_file", path=path),
        call("read_text_file", path=path, line=2, limit=2),
        says("Read."),
    )
    assert await stage.prompt("Read the poem") == "end_turn"
    assert stage.asked("session/request_permission") == []
    whole, part = told(stage.model)
    assert ("one" in whole, "four" in whole) == (True, True)
    assert ("one" in part, "two\nthree" in part, "four" in part) == (False, True, False)
    first, second = stage.calls()
    assert (first["kind"], first["status"], first["locations"][0]["path"]) == (
        "read",
        "completed",
        path,
    )
    assert second["locations"][0]["line"] == 2


async def test_a_new_file_is_shown_as_a_diff_before_it_is_permitted(stage: Stage) -> None:
    path = str(stage.folder / "new.txt")
    seen: list[Json] = []

    async def look(params: Json) -> Json:
        seen.extend(params["toolCall"].get("content") or stage.calls()[-1].get("content") or [])
        assert path not in stage.workspace.files
        return await choose("allow_once")(params)

    stage.editor.handlers["session/request_permission"] = look
    stage.model.play(call("write_text_file", path=path, content="hello\n"), says("Written."))
    assert await stage.prompt("Write it") == "end_turn"
    diff = {"type": "diff", "path": path, "newText": "hello\n"}
    assert [{**each, "oldText": None} for each in seen] == [{**diff, "oldText": None}]
    assert stage.workspace.files == {path: "hello\n"}
    [written] = stage.calls()
    assert (written["kind"], written["status"]) == ("edit", "completed")


async def test_an_edit_shows_the_text_before_and_after(stage: Stage) -> None:
    path = str(stage.folder / "poem.txt")
    stage.workspace.files[path] = "roses are red\n"
    stage.model.play(
        call("read_text_file", path=path),
        call("edit_text_file", path=path, old_text="red", new_text="blue"),
        says("Changed."),
    )
    assert await stage.prompt("Make them blue") == "end_turn"
    assert stage.workspace.files == {path: "roses are blue\n"}
    edited = stage.calls()[-1]
    [diff] = [each for each in edited["content"] if each["type"] == "diff"]
    assert diff["path"] == path
    assert ("red" in diff["oldText"], "blue" in diff["newText"]) == (True, True)


async def test_a_file_that_has_changed_since_it_was_read_is_not_overwritten(stage: Stage) -> None:
    path = str(stage.folder / "poem.txt")
    stage.workspace.files[path] = "roses are red\n"
    stage.model.play(call("read_text_file", path=path), says("Read."))
    assert await stage.prompt("Read it") == "end_turn"
    stage.workspace.files[path] = "roses are yellow\n"
    stage.model.play(call("write_text_file", path=path, content="roses are blue\n"), says("Oh."))
    assert await stage.prompt("Make them blue") == "end_turn"
    assert stage.workspace.files[path] == "roses are yellow\n"
    assert stage.calls()[-1]["status"] == "failed"
    assert "yellow" in told(stage.model)[-1]


async def test_a_file_that_is_not_there_is_told_to_the_model(stage: Stage) -> None:
    path = str(stage.folder / "none.txt")
    stage.model.play(call("read_text_file", path=path), says("There is none."))
    assert await stage.prompt("Read it") == "end_turn"
    assert [each["status"] for each in stage.calls()] == ["failed"]
    assert "none.txt" in told(stage.model)[-1]


@pytest.mark.parametrize("path", ["relative.txt", "../outside.txt", ""])
async def test_a_path_that_is_not_absolute_is_never_asked_of_the_editor(
    stage: Stage, path: str
) -> None:
    stage.model.play(call("read_text_file", path=path), says("No."))
    assert await stage.prompt("Read it") == "end_turn"
    assert all(Path(each["path"]).is_absolute() for each in stage.asked("fs/read_text_file"))


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"readTextFile": True},
        {"writeTextFile": True},
        {"readTextFile": True, "writeTextFile": False},
    ],
)
async def test_without_both_methods_of_files_the_model_gets_none_of_their_tools(
    model: ModelServer, tmp_path: Path, files: Json
) -> None:
    async with with_capabilities(model, tmp_path, {"fs": files}) as stage:
        model.play(says("Hi."))
        assert await stage.prompt("Hello") == "end_turn"
        assert offered(model) & {*FILES, "run_command"} == set()


async def test_an_editor_that_offers_all_gets_all_its_tools_to_the_model(stage: Stage) -> None:
    stage.model.play(says("Hi."))
    assert await stage.prompt("Hello") == "end_turn"
    assert offered(stage.model) >= {*FILES, "run_command", "ask_user", "burn"}


# ---------------------------------------------------------------- terminals
async def test_a_command_runs_in_a_terminal_that_is_shown_and_released(stage: Stage) -> None:
    stage.workspace.output = "3 tests passed\n"
    stage.model.play(call("run_command", command="make", args=["test"]), says("Green."))
    assert await stage.prompt("Test it") == "end_turn"
    [ran] = stage.workspace.commands
    assert (ran["command"], ran.get("args")) == ("make", ["test"])
    assert ran["cwd"] == str(stage.folder)
    assert stage.workspace.terminals == {}
    [called] = stage.calls()
    assert (called["kind"], called["status"]) == ("execute", "completed")
    shown = [each.get("content") or [] for each in stage.updates if "toolCallId" in each]
    assert {"type": "terminal", "terminalId": "terminal-1"} in [e for one in shown for e in one]
    assert "3 tests passed" in told(stage.model)[-1]
    assert [each for each in stage.story if each.startswith("terminal/")][-1] == "terminal/release"


async def test_a_command_that_fails_tells_its_exit_code(stage: Stage) -> None:
    stage.workspace.output = None
    stage.model.play(call("run_command", command="make"), says("Red."))
    key = await stage.begin("Build it")
    await stage.editor.wait_for(lambda: bool(stage.asked("terminal/create")))
    await stage.workspace.started.wait()
    [terminal] = stage.workspace.terminals.values()
    terminal.output = "no rule\n"
    terminal.end(exitCode=2)
    assert await stage.editor.stop_reason(key) == "end_turn"
    result = told(stage.model)[-1]
    assert ("no rule" in result, "2" in result) == (True, True)
    assert stage.workspace.terminals == {}


async def test_a_command_that_takes_too_long_is_killed(stage: Stage) -> None:
    stage.workspace.output = None
    stage.model.play(call("run_command", command="make", seconds=1), says("Too slow."))
    assert await stage.prompt("Build it") == "end_turn"
    assert len(stage.asked("terminal/kill")) == 1
    assert stage.workspace.terminals == {}


async def test_a_terminal_that_cannot_be_made_is_told_to_the_model(stage: Stage) -> None:
    async def fail(_: Json) -> Json:
        raise AcpError(-32603, "There is no shell")

    stage.editor.handlers["terminal/create"] = fail
    stage.model.play(call("run_command", command="make"), says("Pity."))
    assert await stage.prompt("Build it") == "end_turn"
    assert [each["status"] for each in stage.calls()] == ["failed"]


# ---------------------------------------------------------------- questions
async def test_a_question_is_a_form_in_an_editor_that_has_forms(stage: Stage) -> None:
    stage.model.play(call("ask_user", questions=[CHOICE, OPEN]), says("Good."))

    async def fill(params: Json) -> Json:
        schema = params["requestedSchema"]
        first, second = schema["properties"]
        assert "Which post office?" in str(params)
        options = str(schema["properties"][first])
        assert ("North" in options, "South" in options) == (True, True)
        return {"action": "accept", "content": {first: "South", second: "Ann"}}

    stage.editor.handlers["elicitation/create"] = fill
    assert await stage.prompt("Send it") == "end_turn"
    answers = told(stage.model)[-1]
    assert ("South" in answers, "Ann" in answers) == (True, True)
    [asked] = stage.asked("elicitation/create")
    assert (asked["mode"], asked["sessionId"]) == ("form", stage.session)


@pytest.mark.parametrize("action", ["decline", "cancel", "_later"])
async def test_a_form_that_is_not_filled_lets_the_turn_go_on(stage: Stage, action: str) -> None:
    stage.workspace.form = {"action": action}
    stage.model.play(call("ask_user", questions=[CHOICE]), says("Then I guess."))
    assert await stage.prompt("Send it") == "end_turn"
    assert stage.text == "Then I guess."


async def test_without_forms_a_single_choice_is_asked_by_the_options_of_a_permission(
    model: ModelServer, tmp_path: Path
) -> None:
    async with with_capabilities(model, tmp_path, {}) as stage:

        async def take_south(params: Json) -> Json:
            [chosen] = [each for each in params["options"] if each["name"] == "South"]
            return {"outcome": {"outcome": "selected", "optionId": chosen["optionId"]}}

        stage.editor.handlers["session/request_permission"] = take_south
        model.play(call("ask_user", questions=[CHOICE]), says("Good."))
        assert await stage.prompt("Send it") == "end_turn"
        assert "South" in told(model)[-1]
        assert stage.text == "Good."


async def test_without_forms_an_open_question_is_text_and_the_next_prompt_its_answer(
    model: ModelServer, tmp_path: Path
) -> None:
    async with with_capabilities(model, tmp_path, {}) as stage:
        model.play(call("ask_user", questions=[OPEN]), says("Hello Ann."))
        assert await stage.prompt("Send it") == "end_turn"
        assert "What is your name?" in stage.text
        assert await stage.prompt("Ann") == "end_turn"
        assert stage.text.endswith("Hello Ann.")
        assert "Ann" in str(model.requests[-1].shown[-1])


# ---------------------------------------------------------------- tools of the client's own
async def test_a_tool_of_the_client_is_called_by_an_extension_request(
    editor: Editor, model: ModelServer, tmp_path: Path
) -> None:
    stage = await begin_session(editor, model, tmp_path, _meta=DECLARED)

    async def paint(arguments: Json) -> Json:
        return {"content": f"It is {arguments['color']} now."}

    stage.workspace.tools["paint"] = paint
    model.play(call("paint", color="red"), says("Painted."))
    assert await stage.prompt("Paint it") == "end_turn"
    [asked] = stage.asked("_passback/tool_call")
    [called] = stage.calls()
    assert asked == {
        "sessionId": stage.session,
        "toolCallId": called["toolCallId"],
        "name": "paint",
        "arguments": {"color": "red"},
    }
    assert called["status"] == "completed"
    assert told(model) == ["It is red now."]
    editor.check()


async def test_the_extension_is_advertised(editor: Editor) -> None:
    opened = editor.since()[0]["result"]
    assert opened["agentCapabilities"]["_meta"]["passback"]["toolCall"] is True


async def test_a_session_that_declares_no_tools_has_none(stage: Stage) -> None:
    stage.model.play(says("Hi."))
    assert await stage.prompt("Hello") == "end_turn"
    assert "paint" not in offered(stage.model)


@pytest.mark.parametrize("how", ["isError", "error", "nonsense"])
async def test_a_tool_of_the_client_that_fails_lets_the_turn_go_on(
    editor: Editor, model: ModelServer, tmp_path: Path, how: str
) -> None:
    stage = await begin_session(editor, model, tmp_path, _meta=DECLARED)

    async def fail(_: Json) -> Json:
        if how == "error":
            raise AcpError(-32603, "No paint left")
        return {"content": "No paint left", "isError": True} if how == "isError" else {"x": 1}

    stage.workspace.tools["paint"] = fail
    model.play(call("paint", color="red"), says("Pity."))
    assert await stage.prompt("Paint it") == "end_turn"
    assert [each["status"] for each in stage.calls()] == ["failed"]
    assert stage.text == "Pity."
    editor.check()


async def test_a_cancelled_turn_takes_back_what_it_has_asked_of_the_client(
    editor: Editor, model: ModelServer, tmp_path: Path
) -> None:
    stage = await begin_session(editor, model, tmp_path, _meta=DECLARED)
    editor.handlers["_passback/tool_call"] = never
    model.play(call("paint", color="red"), says("Not said."))
    key = await stage.begin("Paint it")
    await editor.wait_for(lambda: bool(stage.asked("_passback/tool_call")))
    await stage.cancel()
    assert await editor.stop_reason(key) == "cancelled"
    assert [each["status"] for each in stage.calls()] == ["failed"]
    await editor.wait_for(lambda: "$/cancel_request" in str(editor.since(stage.start)))
    with anyio.fail_after(5):
        model.play(says("Hello."))
        assert await stage.prompt("Are you there?") == "end_turn"
    editor.check()


async def test_a_turn_mixes_tools_of_both_sides(stage: Stage) -> None:
    path = str(stage.folder / "list.txt")
    stage.workspace.files[path] = "a red parcel\n"
    stage.model.play(
        says_and_calls(
            "I look. ",
            ("weigh", {"parcel": "it"}),
            ("read_text_file", {"path": path}),
            ("burn", {"parcel": "it"}),
        ),
        says("All done."),
    )
    assert await stage.prompt("Do it all") == "end_turn"
    assert [each["status"] for each in stage.calls()] == ["completed"] * 3
    weighed, read, burnt = told(stage.model)
    assert (weighed, burnt) == ("it weighs 2 kg", "it is burnt")
    assert "a red parcel" in read
