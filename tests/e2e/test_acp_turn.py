"""A prompt of ACP as the protocol describes it: what the agent reports, in which order, and its end."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.e2e.acp_stage import (
    Stage,
    begin_session,
    call,
    later,
    offered,
    opened_editor,
    says_and_calls,
    told,
)
from tests.support.acp_editor import AcpError, Editor, choose, joined_text
from tests.support.acp_schema import Json
from tests.support.model_server import DONE, ModelServer, Reply, event, fails, says

pytestmark = [pytest.mark.anyio, pytest.mark.node]

PLAN = [
    {"content": "Weigh it", "priority": "high", "status": "in_progress"},
    {"content": "Burn it", "priority": "low", "status": "pending"},
]
FILE: Json = {
    "type": "resource",
    "resource": {
        "uri": "file:///home/you/parcels.txt",
        "mimeType": "text/plain",
        "text": "one red parcel",
    },
}
LINK: Json = {"type": "resource_link", "uri": "file:///home/you/list.txt", "name": "list.txt"}
KEY = "sk-secret-of-the-service"


@pytest.fixture(scope="module")
async def editor(
    model: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Editor]:
    folder = tmp_path_factory.mktemp("agent")
    async with opened_editor(model, folder, PASSBACK_MAX_TURNS="3") as editor:
        yield editor


@pytest.fixture
async def stage(editor: Editor, model: ModelServer, tmp_path: Path) -> AsyncGenerator[Stage]:
    stage = await begin_session(editor, model, tmp_path)
    yield stage
    editor.check()


async def test_a_turn_goes_as_the_protocol_says(stage: Stage) -> None:
    stage.model.play(
        says_and_calls("I will see. ", ("update_plan", {"entries": PLAN})),
        says_and_calls("To the fire. ", ("burn", {"parcel": "the red one"})),
        says("It is ", "burnt."),
    )
    assert await stage.prompt("Burn the red parcel", FILE, LINK) == "end_turn"
    [burnt] = stage.calls("Burn a parcel")
    [asked] = stage.asked("session/request_permission")
    assert asked["toolCall"]["toolCallId"] == burnt["toolCallId"]
    assert (burnt["kind"], burnt["status"]) == ("delete", "completed")
    assert burnt["content"] == [
        {"type": "content", "content": {"type": "text", "text": "the red one is burnt"}}
    ]
    [plan] = [each for each in stage.updates if each["sessionUpdate"] == "plan"]
    assert plan["entries"] == PLAN
    assert stage.text == "I will see. To the fire. It is burnt."
    assert stage.story[-7:] == [
        "agent_message_chunk",
        "tool_call: pending",
        "session/request_permission",
        "tool_call_update: in_progress",
        "tool_call_update: completed",
        "agent_message_chunk",
        "stops: end_turn",
    ]
    assert told(stage.model)[-1] == "the red one is burnt"


async def test_the_model_gets_the_text_the_file_and_the_link_of_a_prompt(stage: Stage) -> None:
    stage.model.play(says("I see."))
    assert await stage.prompt("What is there?", FILE, LINK) == "end_turn"
    asked = str(stage.model.requests[0].shown[-1])
    for said in ("What is there?", "one red parcel", "file:///home/you/parcels.txt", LINK["uri"]):
        assert said in asked


async def test_all_chunks_of_a_message_have_its_id_and_the_next_message_another(
    stage: Stage,
) -> None:
    stage.model.play(
        says_and_calls("First. ", ("weigh", {"parcel": "it"})), says("Here ", "it is.")
    )
    assert await stage.prompt("Weigh it") == "end_turn"
    texts: dict[str, str] = {}
    for each in stage.updates:
        if each["sessionUpdate"] == "agent_message_chunk":
            key = each["messageId"]
            texts[key] = texts.get(key, "") + each["content"]["text"]
    assert list(texts.values()) == ["First. ", "Here it is."]


async def test_thoughts_are_reported_as_thoughts(stage: Stage) -> None:
    thinks = event(reasoning_content="hm, ")
    stage.model.play(Reply([thinks, event(content="Yes."), event("stop"), DONE]))
    assert await stage.prompt("Is it so?") == "end_turn"
    thought = joined_text(stage.updates, "agent_thought_chunk")
    assert (thought, stage.text) == ("hm, ", "Yes.")


# ---------------------------------------------------------------- the end
async def test_a_message_that_is_cut_by_the_limit_of_tokens_ends_with_max_tokens(
    stage: Stage,
) -> None:
    stage.model.play(Reply([event(content="It is a"), event("length"), DONE]))
    assert await stage.prompt("Go on and on") == "max_tokens"
    assert stage.text == "It is a"


async def test_a_turn_of_too_many_requests_ends_with_max_turn_requests(stage: Stage) -> None:
    stage.model.play(*(call("weigh", parcel=f"number {n}") for n in range(9)))
    assert await stage.prompt("Weigh all") == "max_turn_requests"
    assert {each["status"] for each in stage.calls()} == {"completed"}
    assert len(stage.model.requests) == 3


async def test_a_refusal_of_the_model_ends_with_refusal(stage: Stage) -> None:
    stage.model.play(Reply([event(refusal="I will not."), event("stop"), DONE]), says("Hello."))
    assert await stage.prompt("Do the forbidden") == "refusal"
    assert await stage.prompt("Good day") == "end_turn"


async def test_a_failure_of_the_model_is_an_error_that_says_why(stage: Stage) -> None:
    body = {"error": {"message": f"Incorrect API key provided: {KEY}", "type": "auth"}}
    stage.model.play(fails(401, body))
    with pytest.raises(AcpError) as failed:
        await stage.prompt("Hello")
    assert failed.value.code == -32603
    assert "model" in failed.value.message
    assert KEY not in f"{failed.value.message} {failed.value.data}"
    stage.model.play(says("Here I am."))
    assert await stage.prompt("And now?") == "end_turn"
    assert stage.text == "Here I am."


# ---------------------------------------------------------------- permissions
async def test_a_call_that_is_rejected_fails_and_the_turn_goes_on(stage: Stage) -> None:
    stage.editor.handlers["session/request_permission"] = choose("reject_once")
    stage.model.play(
        says_and_calls(
            "",
            ("burn", {"parcel": "the red one"}),
            ("weigh", {"parcel": "the blue one"}),
        ),
        says("As you like."),
    )
    assert await stage.prompt("Burn one, weigh one") == "end_turn"
    assert [each["status"] for each in stage.calls("Burn")] == ["failed"]
    assert [each["status"] for each in stage.calls("Weigh")] == ["completed"]
    assert stage.text == "As you like."
    refused, weighed = told(stage.model)
    assert "burnt" not in refused
    assert weighed == "the blue one weighs 2 kg"


async def test_the_options_of_a_permission_are_of_all_four_kinds(stage: Stage) -> None:
    stage.model.play(call("burn", parcel="it"), says("Done."))
    assert await stage.prompt("Burn it") == "end_turn"
    [asked] = stage.asked("session/request_permission")
    kinds = [each["kind"] for each in asked["options"]]
    assert sorted(kinds) == ["allow_always", "allow_once", "reject_always", "reject_once"]
    assert len({each["optionId"] for each in asked["options"]}) == 4


@pytest.mark.parametrize(
    ("lasting", "status"), [("allow_always", "completed"), ("reject_always", "failed")]
)
async def test_a_lasting_choice_holds_for_its_session_only(
    stage: Stage, lasting: str, status: str
) -> None:
    stage.editor.handlers["session/request_permission"] = choose(lasting)
    stage.model.play(call("burn", parcel="it"), says("."), call("burn", parcel="more"))
    stage.model.play_afterwards(says("."))
    assert await stage.prompt("Burn it") == "end_turn"
    assert await stage.prompt("Burn more") == "end_turn"
    assert len(stage.asked("session/request_permission")) == 1
    assert [each["status"] for each in stage.calls("Burn")] == [status, status]
    other = await begin_session(stage.editor, stage.model, stage.folder)
    stage.model.play(call("burn", parcel="it"), says("."))
    assert await other.prompt("Burn it") == "end_turn"
    assert len(other.asked("session/request_permission")) == 1


async def test_an_answer_that_is_no_option_permits_nothing(stage: Stage) -> None:
    async def invent(_: Json) -> Json:
        return {"outcome": {"outcome": "selected", "optionId": "whatever-you-like"}}

    stage.editor.handlers["session/request_permission"] = invent
    stage.model.play(call("burn", parcel="it"), says("Then not."))
    assert await stage.prompt("Burn it") == "end_turn"
    assert [each["status"] for each in stage.calls("Burn")] == ["failed"]


async def test_a_client_that_fails_to_ask_permits_nothing(stage: Stage) -> None:
    async def fail(_: Json) -> Json:
        raise AcpError(-32603, "The window is closed")

    stage.editor.handlers["session/request_permission"] = fail
    stage.model.play(call("burn", parcel="it"), says("Then not."))
    assert await stage.prompt("Burn it") == "end_turn"
    assert [each["status"] for each in stage.calls("Burn")] == ["failed"]


# ---------------------------------------------------------------- modes
async def test_modes_and_the_config_option_are_in_step(stage: Stage) -> None:
    made = await stage.editor.request("session/new", cwd=str(stage.folder), mcpServers=[])
    session = made["sessionId"]
    modes = [each["id"] for each in made["modes"]["availableModes"]]
    assert modes == ["ask", "accept_edits", "bypass", "plan"]
    [option] = [each for each in made["configOptions"] if each["id"] == "mode"]
    assert [each["value"] for each in option["options"]] == modes
    assert (made["modes"]["currentModeId"], option["currentValue"]) == ("ask", "ask")
    answer = await stage.editor.request(
        "session/set_config_option", sessionId=session, configId="mode", value="plan"
    )
    values = {each["id"]: each["currentValue"] for each in answer["configOptions"]}
    assert values["mode"] == "plan"
    await stage.editor.update(session, "current_mode_update", currentModeId="plan")
    mark = len(stage.editor.frames)
    await stage.editor.request("session/set_mode", sessionId=session, modeId="bypass")
    changed = await stage.editor.update(session, "config_option_update", start=mark)
    values = {each["id"]: each["currentValue"] for each in changed["configOptions"]}
    assert values["mode"] == "bypass"


@pytest.mark.parametrize(
    ("mode", "asks", "statuses"),
    [
        ("ask", 2, ["completed", "completed"]),
        ("accept_edits", 1, ["completed", "completed"]),
        ("bypass", 0, ["completed", "completed"]),
        ("plan", 0, ["failed", "failed"]),
    ],
)
async def test_a_mode_says_what_asks(
    stage: Stage, mode: str, asks: int, statuses: list[str]
) -> None:
    stage = await begin_session(stage.editor, stage.model, stage.folder, mode=mode)
    path = str(stage.folder / "a.txt")
    stage.model.play(
        call("write_text_file", path=path, content="new"),
        call("run_command", command="make"),
        says("Ready."),
    )
    assert await stage.prompt("Build it") == "end_turn"
    assert len(stage.asked("session/request_permission")) == asks
    assert [each["status"] for each in stage.calls()] == statuses
    assert stage.workspace.files.get(path) == ("new" if mode != "plan" else None)


# ---------------------------------------------------------------- beside the turn
async def test_the_session_tells_its_commands_usage_and_title(stage: Stage) -> None:
    commands = await stage.update("available_commands_update")
    assert "help" in [each["name"] for each in commands["availableCommands"]]
    usage = {"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 4}}
    stage.model.play(Reply([event(content="Hi."), event("stop"), usage, DONE]))
    key = await stage.begin("Say something about parcels")
    assert await stage.editor.stop_reason(key) == "end_turn"
    used = await stage.update("usage_update")
    assert used["used"] > 0
    assert used["size"] == 128_000
    place = [frame.message for frame in stage.editor.frames]
    answered = next(n for n, each in enumerate(place) if each.get("id") == key and "result" in each)
    usages = [n for n, each in enumerate(place) if "usage_update" in str(each)]
    assert max(n for n in usages if n >= stage.start) < answered
    assert "parcels" in (await stage.update("session_info_update"))["title"]


async def test_a_command_is_answered_without_the_model(stage: Stage) -> None:
    stage.model.play(says("not asked"))
    assert await stage.prompt("/help") == "end_turn"
    assert "/help" in stage.text
    assert stage.model.requests == []


async def test_a_second_prompt_waits_for_the_first(stage: Stage) -> None:
    stage.model.play(call("weigh", parcel="it"), says("One."), says("Two."))
    first = await stage.begin("First")
    second = await stage.begin("Second")
    assert await stage.editor.stop_reason(first) == "end_turn"
    assert await stage.editor.stop_reason(second) == "end_turn"
    assert stage.text == "One.Two."
    answers = [each.get("id") for each in stage.editor.since(stage.start) if "result" in each]
    assert answers[-2:] == [first, second]


async def test_prompts_of_two_sessions_do_not_mix(stage: Stage) -> None:
    other = await begin_session(stage.editor, stage.model, stage.folder)
    pieces = [f"{n} " for n in range(40)]
    stage.model.play(says(*pieces), says(*pieces))
    keys = [await stage.begin("Count"), await other.begin("Count")]
    assert [await stage.editor.stop_reason(key) for key in keys] == ["end_turn", "end_turn"]
    assert (stage.text, other.text) == ("".join(pieces), "".join(pieces))


async def test_five_hundred_deltas_in_a_burst_are_at_most_sixty_frames(stage: Stage) -> None:
    pieces = [f"word {n}, " for n in range(500)]
    stage.model.play(says(*pieces))
    mark = later(stage)
    assert await mark.prompt("Talk") == "end_turn"
    assert mark.text == "".join(pieces)
    assert len(stage.editor.since(mark.start)) <= 60


async def test_a_cancelled_turn_keeps_what_was_said_and_the_next_one_knows_it(
    stage: Stage,
) -> None:
    stage.model.play(Reply([event(content="Once upon"), 3600.0]))
    key = await stage.begin("Tell a story")
    await stage.update("agent_message_chunk")
    await stage.cancel()
    assert await stage.editor.stop_reason(key) == "cancelled"
    stage.model.play(says("Well."))
    assert await stage.prompt("And then?") == "end_turn"
    assert "Once upon" in str(stage.model.requests[-1].shown)
    assert "burn" in offered(stage.model)
