"""Calls that the editor executes: files, terminals, and tools of its own."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import pytest
from pydantic import JsonValue
from tests.support.acp_editor import AcpError, choose
from tests.support.acp_memory import FOLDER, answering, memory_editor, offered, statuses, told
from tests.support.acp_schema import Json

from passback import tool
from passback.models.scripted import calls, says

pytestmark = pytest.mark.anyio

Call: TypeAlias = tuple[str, Mapping[str, JsonValue]]

POEM = f"{FOLDER}/poem.txt"
WRITE = ("write_text_file", {"path": "poem.txt", "content": "new\n"})
READ = ("read_text_file", {"path": "poem.txt"})
RUN = ("run_command", {"command": "make"})
FILES: Json = {"fs": {"readTextFile": True, "writeTextFile": True}}


# ---------------------------------------------------------------- files
async def test_a_file_is_read_changed_and_written() -> None:
    edit = ("edit_text_file", {"path": "poem.txt", "old_text": "one", "new_text": "uno"})
    async with memory_editor(calls(READ), calls(edit), calls(WRITE), says("Done.")) as (
        editor,
        model,
    ):
        editor.workspace.files[POEM] = "one\ntwo\n"
        assert await editor.prompt("Go") == "end_turn"
        assert told(model) == ["one\ntwo\n", f"Edited {POEM}.", f"Wrote {POEM}."]
        read, edited, written = editor.calls()
        assert (read["title"], read["locations"]) == ("Read poem.txt", [{"path": POEM}])
        assert (edited["title"], edited["content"][0]["oldText"]) == ("Edit poem.txt", "one")
        assert (written["title"], written["content"][0]["oldText"]) == (
            "Write poem.txt",
            "uno\ntwo\n",
        )
        assert editor.workspace.files == {POEM: "new\n"}


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"line": 2}, "[lines 2 to 3 of 3]\ntwo\fstill two\r\nthree"),
        ({"line": 2, "limit": 1}, "[lines 2 to 2 of 3]\ntwo\fstill two\r\n"),
        ({"limit": 1}, "[lines 1 to 1 of 3]\none\n"),
        ({"line": 2.0, "limit": 1.0}, "[lines 2 to 2 of 3]\ntwo\fstill two\r\n"),
        ({"limit": 3}, "one\ntwo\fstill two\r\nthree"),
        ({"line": 4}, "The file has 3 lines, and none from line 4 on."),
    ],
)
async def test_lines_of_a_file_are_counted_as_editors_do(arguments: Json, shown: str) -> None:
    call = ("read_text_file", {"path": POEM, **arguments})
    async with memory_editor(calls(call), says("Read.")) as (editor, model):
        editor.handlers["fs/read_text_file"] = answering(
            {"content": "one\ntwo\fstill two\r\nthree"}
        )
        assert await editor.prompt("Read it") == "end_turn"
        assert told(model) == [shown]
        if "line" in arguments:
            assert editor.calls()[0]["locations"] == [{"path": POEM, "line": arguments["line"]}]


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("x" * 99 + "\n", "\n[cut here: read on with line=2622; 3000 lines in all]"),
        ("x" * 300_000, "\n[cut here: the line is too long to be shown; 1 lines in all]"),
    ],
)
async def test_a_large_file_is_cut(text: str, end: str) -> None:
    whole = text * (3000 if text.endswith("\n") else 1)
    async with memory_editor(calls(READ), calls(WRITE), says("Read.")) as (editor, model):
        editor.workspace.files[POEM] = whole
        assert await editor.prompt("Read it") == "end_turn"
        read, written = told(model)
        assert (read[: 256 * 1024], read[256 * 1024 :]) == (whole[: 256 * 1024], end)
        assert "Read all of it first" in written
        assert editor.workspace.files == {POEM: whole}


async def test_a_file_of_which_some_lines_were_read_is_edited_and_not_written() -> None:
    some: Call = ("read_text_file", {"path": POEM, "limit": 1})
    edit = ("edit_text_file", {"path": POEM, "old_text": "one", "new_text": "uno"})
    async with memory_editor(
        calls(some), calls(WRITE), calls(edit), calls(WRITE), calls(READ), calls(WRITE), says("Ok.")
    ) as (editor, model):
        editor.workspace.files[POEM] = "one\ntwo\n"
        assert await editor.prompt("Go") == "end_turn"
        _, refused, edited, again, whole, written = told(model)
        assert ("Read all of it" in refused, "Read all of it" in again) == (True, True)
        assert (edited, whole) == (f"Edited {POEM}.", "uno\ntwo\n")
        assert written == f"Wrote {POEM}."


async def test_an_edit_keeps_the_line_ends_of_a_file() -> None:
    edit = ("edit_text_file", {"path": POEM, "old_text": "one\ntwo", "new_text": "uno\ndue"})
    async with memory_editor(calls(READ), calls(edit), says("Ok."), calls(WRITE), says("Ok.")) as (
        editor,
        model,
    ):
        editor.workspace.files[POEM] = "one\r\ntwo\r\n"
        assert await editor.prompt("Go") == "end_turn"
        assert editor.workspace.files == {POEM: "uno\r\ndue\r\n"}
        await editor.load()
        assert await editor.prompt("Go") == "end_turn"
        assert told(model)[-1] == f"Wrote {POEM}."


async def test_an_empty_file_is_told_as_such_and_known() -> None:
    async with memory_editor(calls(READ), says("Read."), calls(WRITE), says("Written.")) as (
        editor,
        model,
    ):
        editor.workspace.files[POEM] = ""
        assert await editor.prompt("Read it") == "end_turn"
        assert told(model) == ["(the file is empty)"]
        await editor.load()
        assert await editor.prompt("Write it") == "end_turn"
        assert editor.workspace.files == {POEM: "new\n"}


@pytest.mark.parametrize(
    ("old_text", "reason"),
    [("three", "does not stand in the file"), ("o", "stands there 2 times")],
)
async def test_a_piece_that_is_not_there_once_is_not_replaced(old_text: str, reason: str) -> None:
    edit = ("edit_text_file", {"path": POEM, "old_text": old_text, "new_text": "x"})
    async with memory_editor(calls(READ), calls(edit), says("Oh.")) as (editor, model):
        editor.workspace.files[POEM] = "one\ntwo\n"
        assert await editor.prompt("Change it") == "end_turn"
        assert reason in told(model)[1]
        assert editor.asked("session/request_permission") == []


async def test_a_file_that_was_not_read_or_has_changed_is_not_written() -> None:
    async with memory_editor(
        calls(WRITE), calls(READ), says("Read."), calls(WRITE), says("Oh.")
    ) as (
        editor,
        model,
    ):
        editor.workspace.files[POEM] = "one\n"
        assert await editor.prompt("Write it") == "end_turn"
        assert "you have not read it" in told(model)[0]
        editor.workspace.files[POEM] = "uno\n"
        assert await editor.prompt("Write it") == "end_turn"
        assert "-one\n+uno" in told(model)[2]
        assert editor.workspace.files == {POEM: "uno\n"}


async def test_a_file_that_changes_while_the_person_is_asked_is_not_written() -> None:
    async with memory_editor(calls(READ), calls(WRITE), says("Oh.")) as (editor, model):
        editor.workspace.files[POEM] = "one\n"

        async def change(params: Json) -> Json:
            editor.workspace.files[POEM] = "uno\n"
            return await choose("allow_once")(params)

        editor.handlers["session/request_permission"] = change
        assert await editor.prompt("Write it") == "end_turn"
        assert "has changed" in told(model)[1]
        assert editor.workspace.files == {POEM: "uno\n"}


@pytest.mark.parametrize("name", ["read_text_file", "edit_text_file"])
@pytest.mark.parametrize("error", [AcpError(-32002, "x"), AcpError(-32603, "ENOENT: no")])
async def test_a_file_that_is_missing_is_told(name: str, error: AcpError) -> None:
    pieces = {} if name.startswith("read") else {"old_text": "a", "new_text": "b"}
    async with memory_editor(calls((name, {"path": POEM, **pieces})), says("Oh.")) as (
        editor,
        model,
    ):
        editor.handlers["fs/read_text_file"] = answering(error)
        assert await editor.prompt("Go") == "end_turn"
        assert (told(model), statuses(editor)) == ([f"There is no file {POEM}."], ["failed"])


@pytest.mark.parametrize("call", [READ, WRITE])
@pytest.mark.parametrize("answer", [{}, 5, {"content": 5}])
async def test_an_answer_without_a_text_is_told(call: Any, answer: Any) -> None:
    async with memory_editor(calls(call), says("Oh.")) as (editor, model):
        editor.handlers["fs/read_text_file"] = answering(answer)
        assert await editor.prompt("Go") == "end_turn"
        assert told(model) == ["The editor's answer has no text."]


@pytest.mark.parametrize("method", ["fs/read_text_file", "fs/write_text_file"])
async def test_a_refusal_of_the_editor_is_told(method: str) -> None:
    async with memory_editor(calls(READ if "read" in method else WRITE), says("Oh.")) as (
        editor,
        model,
    ):
        editor.handlers[method] = answering(AcpError(-32603, "The disk is full"))
        assert await editor.prompt("Go") == "end_turn"
        assert told(model) == ["The editor could not do it: The disk is full"]


@pytest.mark.parametrize("name", ["write_text_file", "edit_text_file"])
async def test_a_refusal_before_the_person_is_asked_is_told_to_the_model(name: str) -> None:
    pieces = {"content": "a"} if name.startswith("write") else {"old_text": "a", "new_text": "b"}
    async with memory_editor(calls((name, {"path": POEM, **pieces})), says("Oh.")) as (
        editor,
        model,
    ):
        editor.handlers["fs/read_text_file"] = answering(AcpError(-32603, "The disk is full"))
        assert await editor.prompt("Go") == "end_turn"
        assert told(model) == ["The editor could not do it: The disk is full"]
        assert editor.asked("session/request_permission") == []


async def test_without_both_methods_of_files_there_is_no_tool_of_them() -> None:
    async with memory_editor(says("Hi."), capabilities={"fs": {"readTextFile": True}}) as (
        editor,
        model,
    ):
        assert await editor.prompt("Hello") == "end_turn"
        assert offered(model) == {"ask_user"}


async def test_what_was_read_and_written_is_known_again_after_a_load() -> None:
    edit = ("edit_text_file", {"path": "b", "old_text": "one", "new_text": "uno"})
    first = calls(
        ("read_text_file", {"path": "a"}),
        ("read_text_file", {"path": "b"}),
        ("read_text_file", {"path": "c", "line": 1}),
        ("write_text_file", {"path": "d", "content": "d\n"}),
        ("edit_text_file", {"path": "e", "old_text": "one", "new_text": "uno"}),
        RUN,
    )
    second = calls(*[("write_text_file", {"path": path, "content": "new\n"}) for path in "abcd"])
    async with memory_editor(first, calls(edit), says("Read."), second, says("Done.")) as (
        editor,
        model,
    ):
        editor.workspace.files.update({f"{FOLDER}/{path}": "one\ntwo\n" for path in "abce"})
        await editor.request("session/set_mode", sessionId=editor.session, modeId="bypass")
        assert await editor.prompt("Read them") == "end_turn"
        await editor.load()
        assert await editor.prompt("Write them") == "end_turn"
        assert [each.partition(" ")[0] for each in told(model)[-4:]] == [
            "Wrote",
            "Wrote",
            "Not",  # of which a part was read
            "Wrote",
        ]


async def test_a_file_of_which_a_part_was_shown_is_not_known_after_a_load() -> None:
    edit = ("edit_text_file", {"path": "poem.txt", "old_text": "one", "new_text": "uno"})
    async with memory_editor(
        calls(READ), calls(edit), says("Read."), calls(WRITE), says("Oh.")
    ) as (editor, model):
        editor.workspace.files[POEM] = "one" + "x" * 300_000
        assert await editor.prompt("Read it") == "end_turn"
        assert told(model)[1] == f"Edited {POEM}."
        await editor.load()
        assert await editor.prompt("Write it") == "end_turn"
        assert "you have not read it" in told(model)[2]


async def test_paths_of_windows_are_joined_as_there() -> None:
    async with memory_editor(calls(READ), calls(RUN), says("Read.")) as (editor, _):
        await editor.new_session(cwd="C:\\project")
        editor.workspace.files["C:\\project\\poem.txt"] = "one"
        assert await editor.prompt("Read it") == "end_turn"
        assert editor.calls()[0]["title"] == "Read poem.txt"
        [ran] = editor.workspace.commands
        assert (ran["command"], ran["args"], ran["cwd"]) == ("cmd", ["/c", "make"], "C:\\project")


# ---------------------------------------------------------------- terminals
async def test_a_command_is_shown_run_and_released() -> None:
    line: Call = ("run_command", {"command": "make", "args": ["all", "-k"], "cwd": "src"})
    async with memory_editor(calls(line), says("Built.")) as (editor, model):
        assert await editor.prompt("Build") == "end_turn"
        [ran] = editor.workspace.commands
        assert (ran["command"], ran["args"], ran["cwd"]) == (
            "make",
            ["all", "-k"],
            f"{FOLDER}/src",
        )
        [called] = editor.calls()
        assert (called["title"], called["kind"]) == ("`make all -k`", "execute")
        assert called["content"] == [{"type": "terminal", "terminalId": "terminal-1"}]
        assert told(model) == ["done\n[exit code 0]"]
        assert editor.workspace.terminals == {}


@pytest.mark.parametrize(
    ("answer", "result", "status"),
    [
        (
            {"output": "no rule\n", "exitStatus": {"exitCode": 2}},
            "no rule\n[exit code 2]",
            "failed",
        ),
        ({"output": "", "exitStatus": {"signal": "SIGSEGV"}}, "[ended by SIGSEGV]", "failed"),
        (
            {"output": "b", "truncated": True, "exitStatus": {"exitCode": 0}},
            "[the beginning is cut off]\nb\n[exit code 0]",
            "completed",
        ),
        ({"output": 5, "exitStatus": 5}, "[exit code 7]", "failed"),
        ({"exitStatus": {"exitCode": "0", "signal": 9}}, "[exit code 7]", "failed"),
        ({"exitStatus": {"exitCode": None, "signal": None}}, "[exit code 7]", "failed"),
        ({"exitStatus": {"exitCode": False}}, "[exit code 7]", "failed"),
        (5, "[exit code 7]", "failed"),
        (AcpError(-32603, "no"), "The editor could not do it: no", "failed"),
    ],
)
async def test_the_end_of_a_command_is_told(answer: Any, result: str, status: str) -> None:
    async with memory_editor(calls(RUN), says("Oh.")) as (editor, model):
        editor.handlers["terminal/wait_for_exit"] = answering({"exitCode": 7})
        editor.handlers["terminal/output"] = answering(answer)
        assert await editor.prompt("Build") == "end_turn"
        assert (told(model), statuses(editor)) == ([result], [status])
        assert editor.workspace.terminals == {}


@pytest.mark.parametrize(
    ("ended", "result"),
    [
        ({"exitCode": 0}, "a\n[exit code 0]"),
        ({"signal": "SIGKILL"}, "a\n[ended by SIGKILL]"),
        ({}, "a\n[exit code unknown]"),
        (5, "a\n[exit code unknown]"),
    ],
)
async def test_an_editor_may_tell_the_end_of_a_command_where_it_is_waited_for(
    ended: Any, result: str
) -> None:
    async with memory_editor(calls(RUN), says("Oh.")) as (editor, model):
        editor.handlers["terminal/wait_for_exit"] = answering(ended)
        editor.handlers["terminal/output"] = answering({"output": "a\n", "truncated": False})
        assert await editor.prompt("Build") == "end_turn"
        assert told(model) == [result]


async def test_a_command_that_takes_too_long_is_killed() -> None:
    call: Call = ("run_command", {"command": "make", "seconds": 1.0})
    async with memory_editor(calls(call), says("Slow.")) as (editor, model):
        editor.workspace.output = None
        assert await editor.prompt("Build") == "end_turn"
        assert told(model) == ["[stopped after 1 s]"]
        assert len(editor.asked("terminal/kill")) == 1
        assert editor.workspace.terminals == {}


@pytest.mark.parametrize("answer", [{}, 5, {"terminalId": 5}])
async def test_a_terminal_without_an_id_is_told(answer: Any) -> None:
    async with memory_editor(calls(RUN), says("Oh.")) as (editor, model):
        editor.handlers["terminal/create"] = answering(answer)
        editor.is_checked = False
        assert await editor.prompt("Build") == "end_turn"
        assert told(model) == ["The editor's answer names no terminal."]


async def test_a_terminal_that_cannot_be_released_is_gone() -> None:
    async with memory_editor(calls(RUN), says("Built.")) as (editor, model):
        editor.handlers["terminal/release"] = answering(AcpError(-32002, "no"))
        assert await editor.prompt("Build") == "end_turn"
        assert told(model) == ["done\n[exit code 0]"]


# ---------------------------------------------------------------- tools of the editor's own
PAINT: Json = {
    "name": "paint",
    "description": "Paint",
    "parameters": {"type": "object", "properties": {"color": {"type": "string"}}},
}


@pytest.mark.parametrize(
    ("answer", "result", "status"),
    [
        ({"content": "blue"}, "blue", "completed"),
        ({"content": "no", "isError": True}, "no", "failed"),
        ({"content": "no", "isError": "yes"}, "no", "completed"),
        ({"content": {"any": 1}}, "(DataPart(data={'any': 1}, type='data'),)", "completed"),
        (
            {"content": [{"type": "text", "text": "a"}]},
            "(TextPart(text='a', type='text'),)",
            "completed",
        ),
        ({}, "The editor's answer has no content.", "failed"),
        (5, "The editor's answer has no content.", "failed"),
        ({"content": "x" * 3000}, "the result of a tool is larger than 2000 bytes", "failed"),
        (AcpError(-32603, "no paint"), "The editor could not do it: no paint", "failed"),
    ],
)
async def test_a_tool_of_the_editor_is_called_by_an_extension(
    answer: Any, result: str, status: str
) -> None:
    async with memory_editor(
        calls(("paint", {"color": "blue"})), says("Done."), settings={"limits": "result_bytes=2000"}
    ) as (editor, model):
        await editor.new_session(_meta={"passback": {"tools": [PAINT]}})
        editor.handlers["_passback/tool_call"] = answering(answer)
        assert await editor.prompt("Paint") == "end_turn"
        [asked] = editor.asked("_passback/tool_call")
        [called] = editor.calls()
        assert asked == {
            "sessionId": editor.session,
            "toolCallId": called["toolCallId"],
            "name": "paint",
            "arguments": {"color": "blue"},
        }
        assert (told(model), called["status"]) == ([result], status)
        assert editor.asked("session/request_permission") == []


async def test_a_declared_tool_takes_the_place_of_ours_with_its_name() -> None:
    mine = {"name": "run_command", "description": "Mine"}
    async with memory_editor(calls(("run_command", {})), says("Done.")) as (editor, model):
        await editor.new_session(_meta={"passback": {"tools": [mine]}})
        editor.handlers["_passback/tool_call"] = answering({"content": "mine"})
        assert await editor.prompt("Run") == "end_turn"
        assert told(model) == ["mine"]
        assert editor.calls()[0]["title"] == "run_command"


@tool(name="run_command")
def run_here(command: str) -> str:
    """Run it here."""
    return f"here: {command}"


async def test_a_tool_of_the_agent_takes_the_place_of_ours_with_its_name() -> None:
    async with memory_editor(calls(RUN), says("Done."), tools=[run_here]) as (editor, model):
        assert await editor.prompt("Run") == "end_turn"
        assert told(model) == ["here: make"]
        assert offered(model) >= {"run_command", "read_text_file"}
        assert editor.calls()[0]["title"] == "run_command"
        assert editor.workspace.commands == []


async def test_a_declared_tool_cannot_have_the_name_of_a_tool_of_the_agent() -> None:
    async with memory_editor(tools=[run_here]) as (editor, _):
        mine = {"name": "run_command", "description": "Mine"}
        await editor.new_session(_meta={"passback": {"tools": [mine]}})
        error = await editor.refusal_of_prompt()
        assert (error.code, error.data["code"]) == (-32602, "tool_name_clash")
