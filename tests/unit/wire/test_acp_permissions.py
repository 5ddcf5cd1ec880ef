"""Permissions of calls: what the editor's user is asked, and decisions that last."""

from typing import Any

import pytest
from tests.support.acp_editor import AcpError, choose
from tests.support.acp_memory import FOLDER, answering, memory_editor, statuses, told

from passback import Permission, tool
from passback.models.scripted import calls, says

pytestmark = pytest.mark.anyio

POEM = f"{FOLDER}/poem.txt"
WRITE = ("write_text_file", {"path": "poem.txt", "content": "new\n"})
READ = ("read_text_file", {"path": "poem.txt"})
RUN = ("run_command", {"command": "make"})


@tool(permission=Permission("ask", "It cannot be undone."), title="Burn a parcel", kind="delete")
def burn(parcel: str) -> str:
    """Burn a parcel."""
    return f"{parcel} is burnt"


async def test_a_call_that_asks_is_shown_with_its_reason_and_made_when_it_is_allowed() -> None:
    async with memory_editor(calls(("burn", {"parcel": "it"})), says("Done."), tools=[burn]) as (
        editor,
        model,
    ):
        assert await editor.prompt("Burn it") == "end_turn"
        [asked] = editor.asked("session/request_permission")
        assert [each["kind"] for each in asked["options"]] == [
            "allow_once",
            "allow_always",
            "reject_once",
            "reject_always",
        ]
        shown = asked["toolCall"]
        assert (shown["title"], shown["kind"], shown["status"]) == (
            "Burn a parcel",
            "delete",
            "pending",
        )
        assert shown["content"][0]["content"]["text"] == "It cannot be undone."
        assert (told(model), statuses(editor)) == (["it is burnt"], ["completed"])


@tool(permission="ask")
def fold() -> str:
    """Fold it."""
    return "folded"


async def test_a_call_that_asks_without_a_reason_is_shown_with_its_name() -> None:
    async with memory_editor(calls(("fold", {})), says("Done."), tools=[fold]) as (editor, _):
        assert await editor.prompt("Fold it") == "end_turn"
        [asked] = editor.asked("session/request_permission")
        assert "fold" in asked["toolCall"]["content"][0]["content"]["text"]


@pytest.mark.parametrize(
    "answer",
    [
        5,
        {},
        {"outcome": "selected"},
        {"outcome": {"outcome": "selected"}},
        {"outcome": {"outcome": "selected", "optionId": 5}},
        {"outcome": {"outcome": "selected", "optionId": "sesame"}},
        {"outcome": {"outcome": "later", "optionId": "allow_once"}},
        AcpError(-32603, "no"),
    ],
)
async def test_what_is_no_permission_permits_nothing_and_the_turn_goes_on(answer: Any) -> None:
    async with memory_editor(calls(("burn", {"parcel": "it"})), says("Pity."), tools=[burn]) as (
        editor,
        model,
    ):
        editor.handlers["session/request_permission"] = answering(answer)
        assert await editor.prompt("Burn it") == "end_turn"
        assert (statuses(editor), "burnt" in told(model)[0]) == (["failed"], False)


@pytest.mark.parametrize(("kind", "made"), [("allow_always", True), ("reject_always", False)])
async def test_a_lasting_decision_on_a_server_tool_is_not_asked_again(
    kind: str, made: bool
) -> None:
    burning = calls(("burn", {"parcel": "it"}))
    async with memory_editor(burning, says("Done."), burning, says("Done."), tools=[burn]) as (
        editor,
        model,
    ):
        editor.handlers["session/request_permission"] = choose(kind)
        assert await editor.prompt("Burn it") == "end_turn"
        await editor.load()
        assert await editor.prompt("Burn it") == "end_turn"
        assert len(editor.asked("session/request_permission")) == 1
        assert ["burnt" in each for each in told(model)] == [made, made]


@pytest.mark.parametrize(("kind", "text"), [("allow_always", "new\n"), ("reject_always", None)])
async def test_a_lasting_decision_on_the_editors_tools_outlives_the_session(
    kind: str, text: str | None
) -> None:
    async with memory_editor(calls(WRITE), says("Done."), calls(WRITE), says("Done.")) as (
        editor,
        _,
    ):
        editor.handlers["session/request_permission"] = choose(kind)
        for _number in range(2):
            start = len(editor.frames)
            assert await editor.prompt("Write it") == "end_turn"
            assert statuses(editor, start) == ["completed" if text else "failed"]
            assert editor.workspace.files.get(POEM) == text
            await editor.load()
        assert len(editor.asked("session/request_permission")) == 1


async def test_lasting_decisions_are_kept_for_each_tool() -> None:
    script = (calls(WRITE, RUN), says("Done."), calls(WRITE, RUN), says("Done."))
    async with memory_editor(*script) as (editor, _):
        editor.handlers["session/request_permission"] = choose("allow_always")
        assert await editor.prompt("Do it") == "end_turn"
        assert await editor.prompt("Do it") == "end_turn"
        assert len(editor.asked("session/request_permission")) == 2
        assert statuses(editor) == ["completed"] * 4


def lines(*commands: str) -> Any:
    return [calls(("run_command", {"command": each})) for each in commands]


@pytest.mark.parametrize(("kind", "verb"), [("allow_always", "allow"), ("reject_always", "reject")])
async def test_a_lasting_decision_on_a_command_is_on_this_command_only(
    kind: str, verb: str
) -> None:
    script = lines("make", "make", "make install", "make")
    async with memory_editor(*script, says("Done.")) as (editor, _):
        editor.handlers["session/request_permission"] = choose(kind)
        assert await editor.prompt("Build") == "end_turn"
        first, second = editor.asked("session/request_permission")
        assert [each["toolCall"]["title"] for each in (first, second)] == [
            "`make`",
            "`make install`",
        ]
        names = {each["kind"]: each["name"] for each in first["options"]}
        assert names[kind] == f"Always {verb} this command"
        ran = [each["args"][-1] for each in editor.workspace.commands]
        assert ran == (["make", "make", "make install", "make"] if verb == "allow" else [])


async def test_a_decision_for_which_there_is_no_room_holds_once() -> None:
    async with memory_editor(*lines("make", "make"), says("Done.")) as (editor, _):
        folders = ["/" + "a" * 4000] * 16 + ["/" + "a" * 1390]
        await editor.new_session(additionalDirectories=folders)
        editor.handlers["session/request_permission"] = choose("allow_always")
        assert await editor.prompt("Build") == "end_turn"
        assert len(editor.asked("session/request_permission")) == 2
        assert len(editor.workspace.commands) == 2


async def test_a_permission_for_a_command_shows_all_of_it() -> None:
    command = "make " + "x" * 300 + "\n\u202erm -rf ~"
    async with memory_editor(*lines(command), says("Done.")) as (editor, _):
        editor.handlers["session/request_permission"] = choose("reject_once")
        assert await editor.prompt("Build") == "end_turn"
        [asked] = editor.asked("session/request_permission")
        shown = asked["toolCall"]
        assert shown["title"] == f"`make {'x' * 174}…`"
        [content] = shown["content"]
        assert content["content"]["text"] == f"```\nmake {'x' * 300}\n\\u202erm -rf ~\n```"
        [called] = editor.calls()
        assert [each["content"]["text"][:8] for each in called["content"]] == [
            "```\nmake",
            "The user",
        ]


async def test_edits_outside_of_the_folders_ask_in_the_mode_that_accepts_edits() -> None:
    paths = ["a.txt", "/srv/more/b.txt", "../c.txt"]
    script = [calls(("write_text_file", {"path": each, "content": "new"})) for each in paths]
    async with memory_editor(*script, says("Done.")) as (editor, _):
        await editor.new_session(additionalDirectories=["/srv/more"])
        await editor.request("session/set_mode", sessionId=editor.session, modeId="accept_edits")
        assert await editor.prompt("Write") == "end_turn"
        [asked] = editor.asked("session/request_permission")
        assert asked["toolCall"]["title"] == "Write /srv/c.txt"


@pytest.mark.parametrize("kind", ["allow_once", "reject_once"])
async def test_a_decision_that_does_not_last_is_asked_again(kind: str) -> None:
    async with memory_editor(calls(WRITE), calls(WRITE), says("Done.")) as (editor, model):
        editor.handlers["session/request_permission"] = choose(kind)
        assert await editor.prompt("Write it") == "end_turn"
        asked = editor.asked("session/request_permission")
        assert len(asked) == 2
        [diff] = asked[0]["toolCall"]["content"]
        assert diff == {"type": "diff", "path": POEM, "oldText": None, "newText": "new\n"}
        allowed = kind == "allow_once"
        assert statuses(editor) == ["completed" if allowed else "failed"] * 2
        assert (told(model)[0] == "The user did not allow this call.") is not allowed


@pytest.mark.parametrize(
    ("mode", "asked", "made"),
    [
        ("ask", ["burn", "write_text_file", "run_command"], [True, True, True]),
        ("accept_edits", ["burn", "run_command"], [True, True, True]),
        ("plan", ["burn"], [True, False, False]),
        ("bypass", [], [True, True, True]),
    ],
)
async def test_a_mode_says_what_asks(mode: str, asked: list[str], made: list[bool]) -> None:
    async with memory_editor(
        calls(("burn", {"parcel": "it"}), WRITE, RUN, READ), says("Done."), tools=[burn]
    ) as (editor, model):
        assert await editor.request("session/set_mode", sessionId=editor.session, modeId=mode) == {}
        assert await editor.prompt("Do it") == "end_turn"
        names = [each["toolCall"]["name"] for each in editor.asked("session/request_permission")]
        assert sorted(names) == sorted(asked)
        burnt, written, ran, _ = told(model)
        assert ["burnt" in burnt, written.startswith("Wrote"), "exit code" in ran] == made
