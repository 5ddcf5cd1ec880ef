"""Questions to the editor's user, and answers that another client gives meanwhile."""

from typing import Any

import anyio
import pytest
from tests.support.acp_editor import AcpError, choose, joined_text, never
from tests.support.acp_memory import MemoryEditor, failing, memory_editor, told
from tests.support.acp_schema import Json
from tests.support.waiting import moment

from passback import Permission, tool
from passback.core.errors import QueueFull
from passback.core.messages import UNNAMED, ApprovalMessage, Owed, ToolMessage, ToolSpec
from passback.models.scripted import calls, says
from passback.streams.jsonrpc import ConnectionLost, Peer
from passback.wire.acp.asking import ask_permission, ask_user

pytestmark = pytest.mark.anyio

CHOICE: Json = {
    "question": "Which post office?",
    "options": [{"label": "North", "description": "Old"}, {"label": "South"}],
    "freeText": False,
}
SEVERAL: Json = {**CHOICE, "header": "Offices", "multiple": True, "freeText": True}
OPEN: Json = {"question": "What is your name?"}
DECLINED = ["The user declined to answer."]
ALONE = (
    "Not asked: here the user can be asked in text only. Ask one thing at a time, without other "
    "calls beside it."
)
PAINT_SPEC = ToolSpec("paint", "Paint", {"type": "object", "properties": {}})
PAINT: Json = {"passback": {"tools": [{"name": "paint", "description": "Paint"}]}}


def asks(*questions: Json) -> Any:
    return calls(("ask_user", {"questions": list(questions)}))


@tool(permission=Permission("ask", "It cannot be undone."))
def burn(parcel: str) -> str:
    """Burn a parcel."""
    return f"{parcel} is burnt"


async def paint(_: Json) -> Json:
    return {"content": "by the editor"}


async def owed_of(editor: MemoryEditor) -> tuple[Owed, ...]:
    return (await editor.runs.status(editor.key)).owed


# ---------------------------------------------------------------- forms
async def test_questions_are_one_form() -> None:
    async with memory_editor(asks(CHOICE, SEVERAL, OPEN), says("Good.")) as (editor, model):
        editor.workspace.form = {
            "action": "accept",
            "content": {"q0": "South", "q1": ["North"], "q1_text": "Both", "q2": "Ann"},
        }
        assert await editor.prompt("Send it") == "end_turn"
        [asked] = editor.asked("elicitation/create")
        assert asked["message"] == "The agent has questions."
        assert asked["toolCallId"] == editor.calls()[0]["toolCallId"]
        options = [{"const": "North", "title": "North: Old"}, {"const": "South", "title": "South"}]
        assert asked["requestedSchema"] == {
            "type": "object",
            "properties": {
                "q0": {"type": "string", "oneOf": options, "title": "Which post office?"},
                "q1": {
                    "type": "array",
                    "items": {"anyOf": options},
                    "title": "Offices",
                    "description": "Which post office?",
                },
                "q1_text": {"type": "string", "title": "In your own words"},
                "q2": {"type": "string", "title": "What is your name?"},
            },
        }
        [answers] = told(model)
        for answer in ("['South']", "['North']", "'Both'", "'Ann'"):
            assert answer in answers
        assert editor.calls()[0]["title"] == "Which post office?"


async def test_a_single_question_is_the_message_of_its_form() -> None:
    async with memory_editor(asks(OPEN), says("Good.")) as (editor, _):
        assert await editor.prompt("Send it") == "end_turn"
        assert editor.asked("elicitation/create")[0]["message"] == "What is your name?"


@pytest.mark.parametrize(
    "content", [None, {}, {"q0": None, "q0_text": None}, {"q0": [], "q0_text": ""}]
)
async def test_what_is_left_empty_is_skipped(content: Any) -> None:
    async with memory_editor(asks(SEVERAL), says("Good.")) as (editor, model):
        editor.workspace.form = {"action": "accept", "content": content}
        assert await editor.prompt("Send it") == "end_turn"
        assert "'selected': [], 'text': ''" in told(model)[0]


@pytest.mark.parametrize(
    "answer",
    [
        {"action": "decline"},
        {"action": "cancel", "content": {"q0": "South"}},
        {"action": "later"},
        {"content": {"q0": "South"}},
        5,
        {"action": "accept", "content": {"q0": "East"}},
        {"action": "accept", "content": {"q0": 5}},
        {"action": "accept", "content": {"q0": ["North", "South"]}},
    ],
)
async def test_a_form_that_is_not_filled_is_declined(answer: Any) -> None:
    async with memory_editor(asks(CHOICE), says("Then not.")) as (editor, model):
        editor.workspace.form = answer
        assert await editor.prompt("Send it") == "end_turn"
        assert told(model) == DECLINED
        assert editor.calls()[0]["status"] == "failed"


async def test_a_form_that_cannot_be_shown_is_declined() -> None:
    async with memory_editor(asks(CHOICE), says("Then not.")) as (editor, model):
        del editor.handlers["elicitation/create"]
        assert await editor.prompt("Send it") == "end_turn"
        assert told(model) == DECLINED


# ---------------------------------------------------------------- without forms
async def test_a_single_choice_is_asked_by_the_options_of_a_permission() -> None:
    async with memory_editor(asks(CHOICE), says("Good."), capabilities={}) as (editor, model):
        assert await editor.prompt("Send it") == "end_turn"
        [asked] = editor.asked("session/request_permission")
        assert asked["toolCall"]["title"] == "Which post office?"
        names = [(each["name"], each["kind"]) for each in asked["options"]]
        assert names == [
            ("North", "allow_once"),
            ("South", "allow_once"),
            ("None of these", "reject_once"),
        ]
        assert "['North']" in told(model)[0]


async def test_a_question_that_is_too_long_for_a_title_is_shown_whole() -> None:
    question = {**CHOICE, "question": "Which?\n" + "x" * 300}
    title = f"Which? {'x' * 192}…"
    async with memory_editor(asks(question), says("Good."), capabilities={}) as (editor, _):
        assert await editor.prompt("Send it") == "end_turn"
        [asked] = editor.asked("session/request_permission")
        assert asked["toolCall"]["title"] == title
        assert asked["toolCall"]["content"][0]["content"]["text"] == question["question"]
    async with memory_editor(asks(question), says("Good.")) as (editor, _):
        assert await editor.prompt("Send it") == "end_turn"
        [asked] = editor.asked("elicitation/create")
        field = asked["requestedSchema"]["properties"]["q0"]
        assert (field["title"], field["description"]) == (title, question["question"])


@pytest.mark.parametrize("chosen", ["reject", "nonsense", "error"])
async def test_none_of_the_options_is_declined(chosen: str) -> None:
    async with memory_editor(asks(CHOICE), says("Then not."), capabilities={}) as (editor, model):

        async def answer(params: Json) -> Json:
            if chosen == "error":
                raise AcpError(-32603, "no")
            return {"outcome": {"outcome": "selected", "optionId": "sesame"}}

        handler = choose("reject_once") if chosen == "reject" else answer
        editor.handlers["session/request_permission"] = handler
        assert await editor.prompt("Send it") == "end_turn"
        assert told(model) == DECLINED


async def test_an_open_question_is_asked_in_text_and_the_next_prompt_answers_it() -> None:
    async with memory_editor(asks(OPEN), says("Hello Ann."), capabilities={}) as (editor, model):
        assert await editor.prompt("Hello") == "end_turn"
        assert joined_text(editor.updates()) == "What is your name?"
        assert editor.calls()[0]["status"] == "completed"
        assert await editor.prompt("Ann") == "end_turn"
        assert (told(model), len(model.requests)) == (["Ann"], 2)


async def test_the_options_of_a_question_in_text_are_a_list() -> None:
    async with memory_editor(asks(SEVERAL), capabilities={}) as (editor, _):
        assert await editor.prompt("Hello") == "end_turn"
        assert joined_text(editor.updates()) == "Which post office?\n- North: Old\n- South"


async def test_a_prompt_that_is_no_answer_goes_on_without_one() -> None:
    question = {**SEVERAL, "freeText": False}
    async with memory_editor(asks(question), says("Good."), capabilities={}) as (editor, model):
        assert await editor.prompt("Hello") == "end_turn"
        assert await editor.prompt("Forget it") == "end_turn"
        assert "went on before" in told(model)[0]
        assert "Forget it" in str(model.requests[-1].messages[-1].content)


async def test_a_prompt_with_a_file_goes_on_without_an_answer() -> None:
    async with memory_editor(asks(OPEN), says("Good."), capabilities={}) as (editor, model):
        assert await editor.prompt("Hello") == "end_turn"
        link = {"type": "resource_link", "uri": "file:///a", "name": "a"}
        assert await editor.prompt("Ann", link) == "end_turn"
        assert "went on before" in told(model)[0]


async def test_a_prompt_after_the_time_of_a_question_is_no_answer() -> None:
    async with memory_editor(
        asks(OPEN), *[says("Good.")] * 2, capabilities={}, settings={"tool_timeout": "0.1"}
    ) as (editor, model):
        assert await editor.prompt("Hello") == "end_turn"
        while (status := await editor.runs.status(editor.key)).owed and not status.overdue:
            await moment()
        assert await editor.prompt("Ann") == "end_turn"
        assert "Ann" not in told(model)[0]
        assert "Ann" in str(model.requests[-1].messages[-1].content)


async def test_several_questions_are_asked_in_text_and_answered_by_a_message() -> None:
    async with memory_editor(asks(OPEN, OPEN), says("Fine."), capabilities={}) as (editor, model):
        assert await editor.prompt("Hello") == "end_turn"
        asked = joined_text(editor.updates())
        assert asked.count(OPEN["question"]) == 2
        assert await editor.prompt("Blue, and red") == "end_turn"
        assert "went on before" in told(model)[0]
        assert "Blue, and red" in str(model.requests[-1].messages[-1].content)


async def test_a_question_beside_another_call_cannot_be_asked_in_text() -> None:
    turn = calls(("ask_user", {"questions": [OPEN]}), ("paint", {}))
    async with memory_editor(turn, says("Pity."), capabilities={}) as (editor, model):
        await editor.new_session(_meta=PAINT)
        editor.handlers["_passback/tool_call"] = paint
        assert await editor.prompt("Hello") == "end_turn"
        assert told(model) == [ALONE, "by the editor"]


# ---------------------------------------------------------------- the editor is gone
def a_lost_peer() -> Peer:
    peer = Peer(lambda _: None, depth=8, frame_bytes=1000)
    peer.close()
    return peer


async def test_without_an_editor_nothing_is_answered() -> None:
    owed = Owed("call_1", "ask_user", '{"questions": [{"question": "a"}]}')  # type: ignore[arg-type]
    with pytest.raises(ConnectionLost):
        await ask_permission(a_lost_peer(), "s", {})
    with pytest.raises(ConnectionLost):
        await ask_user(a_lost_peer(), "s", owed, {}, by_form=True)


# ---------------------------------------------------------------- other clients
async def begin_asking(editor: MemoryEditor) -> int:
    """Begin a prompt whose call waits for a permission, and return the prompt's id."""
    editor.handlers["session/request_permission"] = never
    key = editor.begin_prompt("Burn it")
    await editor.until_asked("session/request_permission")
    return key


def hold(editor: MemoryEditor, method: str, answer: Any) -> anyio.Event:
    """Let a handler wait for an event, which is returned."""
    held = anyio.Event()

    async def wait(params: Json) -> Json:
        await held.wait()
        result: Json = await answer(params)
        return result

    editor.handlers[method] = wait
    return held


async def test_the_answer_of_another_client_counts_if_it_comes_first() -> None:
    async with memory_editor(calls(("burn", {"parcel": "it"})), says("Done."), tools=[burn]) as (
        editor,
        model,
    ):
        held = hold(editor, "session/request_permission", choose("allow_once"))
        key = editor.begin_prompt("Burn it")
        await editor.until_asked("session/request_permission")
        [owed] = await owed_of(editor)
        await editor.post(ApprovalMessage(UNNAMED, owed.id, approved=False))
        await editor.until_idle()
        held.set()
        assert await editor.stop_reason(key) == "end_turn"
        assert "burnt" not in told(model)[0]
        assert joined_text(editor.updates()) == "Done."


async def test_a_message_of_another_client_goes_on_without_the_answer() -> None:
    async with memory_editor(calls(("burn", {"parcel": "it"})), says("Fine."), tools=[burn]) as (
        editor,
        model,
    ):
        held = hold(editor, "session/request_permission", choose("allow_once"))
        key = editor.begin_prompt("Burn it")
        await editor.until_asked("session/request_permission")
        await editor.post("Leave it")
        await editor.until_idle()
        held.set()
        assert await editor.stop_reason(key) == "end_turn"
        assert "went on before" in told(model)[0]
        assert joined_text(editor.updates()) == "Fine."


async def test_tools_of_another_client_are_left_to_it() -> None:
    turns = (calls(("burn", {"parcel": "it"})), calls(("paint", {})))
    async with memory_editor(*turns, tools=[burn]) as (editor, _):
        held = hold(editor, "session/request_permission", choose("allow_once"))
        key = editor.begin_prompt("Burn it")
        await editor.until_asked("session/request_permission")
        await editor.post("Paint it", tools=(PAINT_SPEC,))
        await editor.until_idle()
        held.set()
        assert await editor.stop_reason(key) == "end_turn"
        assert [each.name for each in await owed_of(editor)] == ["paint"]


async def test_answers_that_are_refused_fail_the_prompt() -> None:
    async with memory_editor(calls(("paint", {})), says("Said.")) as (editor, model):
        await editor.new_session(_meta=PAINT)

        async def paint_and_refuse(_: Json) -> Json:
            editor.hooks["start"] = failing(QueueFull("too many posts"))
            return {"content": "blue"}

        editor.handlers["_passback/tool_call"] = paint_and_refuse
        error = await editor.refusal_of_prompt()
        assert (error.code, error.data["code"]) == (-32603, "queue_full")
        del editor.hooks["start"]
        assert await editor.prompt("Again") == "end_turn"
        assert "went on before" in told(model)[0]


async def test_of_several_answers_those_that_another_client_has_given_are_left_out() -> None:
    turn = calls(("paint", {}), ("paint", {}))
    async with memory_editor(turn, says("Done.")) as (editor, model):
        await editor.new_session(_meta=PAINT)

        held = hold(editor, "_passback/tool_call", paint)
        key = editor.begin_prompt("Paint")
        await editor.until_asked("_passback/tool_call")
        first, _ = await owed_of(editor)
        await editor.post(ToolMessage(UNNAMED, first.id, "by another"))
        held.set()
        assert await editor.stop_reason(key) == "end_turn"
        assert told(model) == ["by another", "by the editor"]


async def test_a_cancel_keeps_what_another_client_has_answered() -> None:
    turn = calls(("paint", {}), ("paint", {}), ("burn", {"parcel": "it"}))
    async with memory_editor(turn, says("Done."), says("Said."), tools=[burn]) as (editor, model):
        await editor.new_session(_meta=PAINT)

        editor.handlers["_passback/tool_call"] = paint
        key = await begin_asking(editor)
        first = (await owed_of(editor))[0]
        await editor.post(ToolMessage(UNNAMED, first.id, "by another"))
        editor.cancel()
        assert await editor.stop_reason(key) == "cancelled"
        assert await editor.prompt("Again") == "end_turn"
        assert told(model)[:2] == ["by another", "by the editor"]


async def test_a_cancel_after_another_client_has_answered_everything() -> None:
    async with memory_editor(
        calls(("paint", {}), ("burn", {"parcel": "it"})), says("Done."), tools=[burn]
    ) as (
        editor,
        _,
    ):
        await editor.new_session(_meta=PAINT)

        editor.handlers["_passback/tool_call"] = paint
        key = await begin_asking(editor)
        painted, burnt = await owed_of(editor)
        await editor.post(
            ToolMessage(UNNAMED, painted.id, "by another"),
            ApprovalMessage(UNNAMED, burnt.id, approved=False),
        )
        await editor.until_idle()
        editor.cancel()
        assert await editor.stop_reason(key) == "cancelled"


async def test_a_session_that_is_deleted_while_it_asks_is_not_found() -> None:
    async with memory_editor(calls(("burn", {"parcel": "it"})), tools=[burn]) as (editor, _):
        held = hold(editor, "session/request_permission", choose("allow_once"))
        key = editor.begin_prompt("Burn it")
        await editor.until_asked("session/request_permission")
        await editor.runs.delete(editor.key)
        held.set()
        with pytest.raises(AcpError) as refused:
            await editor.result(key)
        assert refused.value.code in {-32002, -32603}


async def test_calls_of_a_conversation_begun_elsewhere_are_nobodys_here() -> None:
    """Its tools are of the client that began it, and the prompt of the editor goes on."""
    async with memory_editor(calls(("paint", {})), says("Said.")) as (editor, model):
        await editor.post("Paint", tools=(PAINT_SPEC,))
        await editor.until_idle()
        await editor.load()
        assert [each["status"] for each in editor.calls()] == ["pending"]
        assert await editor.prompt("Never mind") == "end_turn"
        assert "went on before" in told(model)[0]
        assert [each["status"] for each in editor.calls()] == ["failed"]
