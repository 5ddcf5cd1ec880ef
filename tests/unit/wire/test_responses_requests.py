"""What Responses make of a request: its new messages, what is asked for, and an imported history."""

from typing import Any

import pytest
from tests.support.asgi_client import ask_json
from tests.support.logged_runs import RUN, LoggedRuns
from tests.unit.wire.responses_events import Json
from tests.unit.wire.responses_site import (
    GREETING,
    PAINT,
    PATH,
    calls_of,
    output,
    responses,
    site,
    user,
)
from typing_extensions import override

from passback import Agent
from passback.core.changes import RunRecord, Status
from passback.core.ids import new_call_id
from passback.core.messages import (
    ANY_TOOL,
    ApprovalMessage,
    ConversationId,
    ConversationKey,
    DataPart,
    Generation,
    MediaPart,
    MessageContext,
    OwnerId,
    RefusalPart,
    TextPart,
    ToolMessage,
    UserMessage,
)
from passback.core.posts import StartRun
from passback.testing import ScriptedModel, calls, says

pytestmark = pytest.mark.anyio

UNUSED = ConversationKey(OwnerId("anonymous"), ConversationId("never-used"))
IMAGE = "https://x.test/i.png"
DATA = "data:image/png;base64,aGk="
NAMED = {"type": "function", "name": "paint"}


async def command_of(given: object, runs: LoggedRuns | None = None, **fields: Any) -> StartRun:
    """Return the command that a request is read as."""
    runs = runs or LoggedRuns(*GREETING)
    runs.known[RUN.key] = Status(1, RUN.run_id)
    runs.records[RUN.run_id] = RunRecord()
    answer = await ask_json(site(runs), "POST", PATH, {"input": given, **fields})
    assert answer.status == 200, answer.body
    return runs.posts[-1]


async def message_of(given: object, runs: LoggedRuns | None = None, **fields: Any) -> UserMessage:
    [message] = (await command_of(given, runs, **fields)).messages
    assert isinstance(message, UserMessage)
    return message


async def context_of(given: object = "hi", **fields: Any) -> MessageContext:
    return (await message_of(given, **fields)).context or MessageContext()


# ---------------------------------------------------------------- input
@pytest.mark.parametrize(
    "given",
    [
        "hi",
        [{"role": "user", "content": "hi"}],
        [{"type": "message", "role": "user", "content": "hi", "id": "x", "status": "completed"}],
        [{"type": None, "role": "user", "content": "hi", "unknown": 1}],
    ],
)
async def test_a_text_is_a_message_of_the_user(given: object) -> None:
    assert (await message_of(given)).content == "hi"


@pytest.mark.parametrize(
    ("part", "content"),
    [
        ({"type": "input_text", "text": "a"}, TextPart("a")),
        ({"type": "input_image", "image_url": IMAGE}, MediaPart("image", IMAGE)),
        ({"type": "input_image", "image_url": DATA, "detail": "low"}, MediaPart("image", DATA)),
        (
            {"type": "input_file", "file_url": "https://x.test/a.pdf", "filename": "a.pdf"},
            MediaPart("file", "https://x.test/a.pdf", None, "a.pdf"),
        ),
        (
            {"type": "input_file", "file_data": "aGk=", "filename": "a.pdf"},
            MediaPart("file", "data:application/pdf;base64,aGk=", "application/pdf", "a.pdf"),
        ),
        (
            {"type": "input_file", "file_data": "aGk="},
            MediaPart(
                "file", "data:application/octet-stream;base64,aGk=", "application/octet-stream"
            ),
        ),
        (
            {"type": "input_file", "file_data": "data:text/plain;base64,aGk="},
            MediaPart("file", "data:text/plain;base64,aGk="),
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "mp3"}},
            MediaPart("audio", "data:audio/mpeg;base64,aGk=", "audio/mpeg"),
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "ogg"}},
            MediaPart("audio", "data:audio/ogg;base64,aGk=", "audio/ogg"),
        ),
    ],
)
async def test_parts_are_read(part: Json, content: object) -> None:
    assert (await message_of([user([part])])).content == (content,)


async def test_a_refusal_that_is_quoted_is_read() -> None:
    part = {"type": "refusal", "refusal": "no"}
    assert (await message_of([user([part])])).content == (RefusalPart("no"),)


async def test_several_messages_are_all_new() -> None:
    posted = await command_of([user("a"), user("b")])
    assert [each.content for each in posted.messages if isinstance(each, UserMessage)] == ["a", "b"]


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("done", "done"),
        ([{"type": "input_text", "text": "a"}], (TextPart("a"),)),
        ([{"type": "refusal", "refusal": "no"}], (TextPart("no"),)),
        ([{"type": "input_image", "image_url": IMAGE}], (MediaPart("image", IMAGE),)),
        ([], (DataPart([]),)),
    ],
)
async def test_an_output_is_a_result(value: object, content: object) -> None:
    given = [{"type": "function_call_output", "call_id": "call_1", "output": value, "id": "x"}]
    [message] = (await command_of(given)).messages
    assert isinstance(message, ToolMessage)
    assert (message.call_id, message.content) == ("call_1", content)


@pytest.mark.parametrize(("approved", "reason"), [(True, None), (False, "too dear"), (False, None)])
async def test_a_decision_is_read(approved: bool, reason: str | None) -> None:
    given = {"type": "mcp_approval_response", "approval_request_id": "call_1", "approve": approved}
    [message] = (await command_of([{**given, "reason": reason}])).messages
    assert isinstance(message, ApprovalMessage)
    assert (message.call_id, message.approved, message.reason) == ("call_1", approved, reason or "")


# ---------------------------------------------------------------- what is asked for
@pytest.mark.parametrize(
    ("given", "instructions", "expected"),
    [
        ("hi", "be brief", "be brief"),
        ("hi", " ", ""),
        ([user("be kind", role="system"), user("hi")], None, "be kind"),
        (
            [
                user(
                    [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}],
                    role="developer",
                ),
                user("hi"),
                user("c", role="system"),
            ],
            "first",
            "first\n\na\nb\n\nc",
        ),
    ],
)
async def test_what_the_program_says_is_an_instruction(
    given: object, instructions: str | None, expected: str
) -> None:
    assert (await context_of(given, instructions=instructions)).instructions == expected


async def test_options_of_the_answer_are_handed_on() -> None:
    asked = {
        "temperature": 0.5,
        "top_p": 0.25,
        "max_output_tokens": 64,
        "frequency_penalty": 1,
        "presence_penalty": -1,
    }
    given = Generation(0.5, 0.25, 64, frequency_penalty=1, presence_penalty=-1)
    assert (await context_of(**asked)).generation == given
    assert (await context_of()).generation is None


class Thinking(LoggedRuns):
    """Runs of an agent that thinks as hard as it is told."""

    @override
    def effort(self, agent: str = "", /) -> str | None:
        return "low"


@pytest.mark.parametrize(
    ("runs", "effort", "known"),
    [
        (Thinking(*GREETING), "high", "high"),
        (Thinking(*GREETING), "xhigh", None),
        (LoggedRuns(*GREETING), "high", None),
    ],
)
async def test_an_effort_is_handed_on_where_the_agent_has_one(
    runs: LoggedRuns, effort: str, known: str | None
) -> None:
    message = await message_of("hi", runs, reasoning={"effort": effort, "summary": "auto"})
    generation = message.context.generation if message.context else None
    assert (generation.effort if generation else None) == known
    assert runs.posts[-1].note is not None
    assert runs.posts[-1].note["response"]["reasoning"] == {  # type: ignore[index, call-overload]
        "effort": effort,
        "summary": "auto",
    }


SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "number"}}}


@pytest.mark.parametrize(
    ("form", "schema", "repeated"),
    [
        ({"type": "text"}, None, {"type": "text"}),
        (None, None, {"type": "text"}),
        ({"type": "json_object"}, {"type": "object"}, {"type": "json_object"}),
        (
            {"type": "json_schema", "name": "n", "schema": SCHEMA},
            SCHEMA,
            {
                "type": "json_schema",
                "name": "n",
                "schema": SCHEMA,
                "strict": None,
                "description": None,
            },
        ),
    ],
)
async def test_a_format_is_an_output_schema(
    form: Json | None, schema: Json | None, repeated: Json
) -> None:
    runs = LoggedRuns(*GREETING)
    body = {"input": "hi", "text": {"format": form, "verbosity": "low"}}
    answer = await ask_json(site(runs), "POST", PATH, body)
    [message] = runs.posts[0].messages
    assert isinstance(message, UserMessage)
    assert (message.context.output_schema if message.context else None) == schema
    assert answer.json["text"] == {"format": repeated, "verbosity": "low"}


async def test_tools_are_those_of_this_request() -> None:
    assert (await command_of("hi")).tools == ()
    [tool] = (await command_of("hi", tools=[PAINT])).tools or ()
    assert (tool.name, tool.description) == ("paint", "Paints.")


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (None, ["paint", "erase"]),
        ("auto", ["paint", "erase"]),
        ("none", []),
        (
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "erase"}],
            },
            ["erase"],
        ),
    ],
)
async def test_a_choice_of_tools_is_kept(choice: object, names: list[str]) -> None:
    tools = [PAINT, {"type": "web_search"}, {**PAINT, "name": "erase"}, {"type": "custom"}]
    runs = LoggedRuns(*GREETING)
    body = {"input": "hi", "tools": tools, "tool_choice": choice}
    answer = await ask_json(site(runs), "POST", PATH, body)
    assert [each.name for each in runs.posts[0].tools or ()] == names
    # tools of other kinds are left out
    assert answer.json["tools"] == [tools[0], tools[2]]
    assert answer.json["tool_choice"] == (choice or "auto")


@pytest.mark.parametrize(
    ("choice", "forced"),
    [
        ("required", ANY_TOOL),
        ({"type": "function", "name": "paint"}, "paint"),
        ({"type": "allowed_tools", "mode": "required", "tools": [NAMED]}, ANY_TOOL),
        ({"type": "allowed_tools", "mode": "auto", "tools": [NAMED]}, None),
    ],
)
async def test_a_function_is_forced_with_a_message_of_the_user(
    choice: object, forced: str | None
) -> None:
    generation = (await context_of(tools=[PAINT], tool_choice=choice)).generation
    assert (generation and generation.must_call) == forced
    output = {"type": "function_call_output", "call_id": "call_1", "output": "x"}
    body = {"input": [output], "tools": [PAINT], "tool_choice": choice}
    answer = await ask_json(site(LoggedRuns(*GREETING)), "POST", PATH, body)
    assert (answer.status == 400) == (forced is not None)


async def test_a_function_in_the_form_of_chat_completions_is_repeated_as_a_function() -> None:
    nested = {"type": "function", "function": {k: v for k, v in PAINT.items() if k != "type"}}
    answer = await ask_json(
        site(LoggedRuns(*GREETING)), "POST", PATH, {"input": "hi", "tools": [nested]}
    )
    assert answer.json["tools"] == [PAINT]


async def test_a_response_repeats_what_it_was_asked() -> None:
    asked = {
        "model": "scripted",
        "instructions": "be brief",
        "parallel_tool_calls": False,
        "max_tool_calls": 3,
        "temperature": 0,
        "top_p": 0,
        "top_logprobs": 5,
        "truncation": "auto",
        "metadata": {"a": "b"},
        "service_tier": "flex",
        "safety_identifier": "s",
        "prompt_cache_key": "p",
    }
    body = {"input": "hi", **asked, "user": "u", "include": ["x"], "store": True, "new": [1]}
    answer = await ask_json(site(LoggedRuns(*GREETING)), "POST", PATH, body)
    assert answer.json.items() >= asked.items()
    nothing = dict.fromkeys((*asked, "user", "include", "tools", "text", "store"))
    answer = await ask_json(site(LoggedRuns(*GREETING)), "POST", PATH, {**nothing, "input": "hi"})
    assert answer.json["service_tier"] == "default"
    assert (answer.json["temperature"], answer.json["model"]) == (1, "scripted")


# ---------------------------------------------------------------- models
@pytest.mark.parametrize(
    ("name", "model"),
    [(None, ""), ("", ""), ("other", "other"), ("scripted", "scripted"), ("gpt-9", "")],
)
async def test_one_agent_takes_any_name_and_a_model_that_may_be_chosen(
    name: str | None, model: str
) -> None:
    message = await message_of("hi", model=name)
    assert message.agent == ""
    assert (message.context.model if message.context else "") == model


class Several(LoggedRuns):
    """Runs of several agents, and models with the names of their services."""

    @override
    def agents(self) -> tuple[str, ...]:
        return ("writer", "painter")

    @override
    def models(self, agent: str = "", /) -> tuple[str, ...]:
        return ("openai:gpt-9",)


@pytest.mark.parametrize(
    ("name", "agent", "model"),
    [
        ("painter", "painter", ""),
        ("openai:gpt-9", "", "openai:gpt-9"),
        ("gpt-9", "", "gpt-9"),
        (None, "", ""),
    ],
)
async def test_a_model_is_an_agent_or_the_model_of_one(
    name: str | None, agent: str, model: str
) -> None:
    runs = Several(*GREETING)
    message = await message_of("hi", runs, model=name)
    assert message.agent == agent
    assert (message.context.model if message.context else "") == model
    answer = await ask_json(site(runs), "POST", PATH, {"input": "hi", "model": name})
    assert answer.json["model"] == (name or "writer")


# ---------------------------------------------------------------- what was said elsewhere
FOREIGN: Json = {"type": "function_call", "name": "paint", "arguments": '{"a":1}'}
TOLD = [
    user("paint"),
    {"type": "reasoning", "id": "rs_x", "summary": []},
    user([{"type": "output_text", "text": "I will"}], role="assistant", id="msg_x"),
    {**FOREIGN, "call_id": "call_x", "id": "fc_x"},
    {**FOREIGN, "call_id": "call_y"},
    {"type": "function_call_output", "call_id": "call_x", "output": "blue"},
    user("done", role="assistant"),
    user("thanks", role="system"),
    user("and now?"),
]


@pytest.mark.promise("P13")
async def test_a_foreign_history_is_refused_unless_the_operator_allows_it() -> None:
    async with responses([says("hi")]) as client:
        status, error = await client.refusal(TOLD)
        assert (status, error["param"]) == (400, "input")
        assert "previous_response_id" in error["message"]
        assert "PASSBACK_ALLOW_ROLES=assistant" in error["message"]


async def test_a_foreign_history_is_imported_and_nothing_of_it_is_owed() -> None:
    agent = Agent(model=(model := ScriptedModel([says("hi"), says("again")])))
    async with responses(agent, allow_roles="assistant") as client:
        first = await client.post(TOLD)
        conversation = client.headers["x-conversation-id"]
        messages = await client.messages()
        assert [each["role"] for each in messages] == [
            *("user", "assistant", "tool", "tool", "assistant", "user", "assistant")
        ]
        made = messages[1]["toolCalls"]
        assert [each["function"]["name"] for each in made] == ["paint", "paint"]
        assert "call_x" not in {each["id"] for each in made}
        assert messages[2]["content"] == "blue"
        assert "thanks" in str(model.requests[0])
        # outputs of what was imported answer nothing
        status, _ = await client.refusal(
            [{"type": "function_call_output", "call_id": "call_y", "output": "x"}],
            previous_response_id=first["id"],
        )
        assert status == 400
        # resent with what was said here, it goes on here
        await client.post([*TOLD, *first["output"], user("more")])
        assert client.headers["x-conversation-id"] == conversation
        assert (await client.contents())[-2:] == ["more", "again"]


@pytest.mark.parametrize(
    ("history", "param"),
    [
        ([user("hi", role="assistant"), user("a")], "input.0"),
        ([user("a"), {"type": "item_reference", "id": "msg_x"}, user("b")], "input.1"),
        (
            [
                user("a"),
                {"type": "function_call_output", "call_id": "c", "output": "x"},
                user("x", role="assistant"),
                user("b"),
            ],
            "input.1",
        ),
        ([user("a"), {**FOREIGN, "call_id": "c", "arguments": "{"}, user("b")], "input.1"),
        ([user("a"), {**FOREIGN, "call_id": "c", "name": "a b"}, user("b")], "input.1"),
        ([user("a"), user(" ", role="assistant"), user("b")], "input.1"),
        (
            [
                user("a"),
                {**FOREIGN, "call_id": "c"},
                {"type": "function_call_output", "call_id": "c", "output": "x"},
            ],
            None,
        ),
    ],
)
async def test_an_illegal_history_is_refused_with_its_place(
    history: list[Json], param: str | None
) -> None:
    runs = LoggedRuns(*GREETING)
    app = site(runs, allow_roles=frozenset({"assistant"}))
    answer = await ask_json(app, "POST", PATH, {"input": history})
    error = answer.json["error"]
    assert answer.status == 400
    assert error["param"] == param or error["message"].startswith(param or "input.")
    assert runs.posts == []


async def test_thoughts_alone_are_no_history() -> None:
    runs = LoggedRuns(*GREETING)
    app = site(runs, allow_roles=frozenset({"assistant"}))
    given = [{"type": "reasoning", "id": "rs_x", "summary": []}, user("a")]
    assert (await ask_json(app, "POST", PATH, {"input": given})).status == 200
    assert runs.posts[0].history == ()


async def test_only_some_conversations_are_looked_for() -> None:
    """Each place costs a read of the store, and a request may name thousands."""

    class Counting(LoggedRuns):
        located = 0

        @override
        async def locate(self, *given: Any) -> None:
            self.located += 1

    runs = Counting(*GREETING)
    app = site(runs, allow_roles=frozenset({"assistant"}))
    keys = [ConversationKey(UNUSED.owner, ConversationId(f"c{n}")) for n in range(40)]
    items = [{**FOREIGN, "call_id": new_call_id(key)} for key in keys]
    answer = await ask_json(app, "POST", PATH, {"input": [user("a"), *items, user("b")]})
    assert answer.status == 200
    assert runs.located == 16


# ---------------------------------------------------------------- outputs
async def test_outputs_alone_keep_what_their_question_asked_for() -> None:
    agent = Agent(model=(model := ScriptedModel([calls(("paint", {})), says('{"a":1}')])))
    async with responses(agent) as client:
        form = {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}
        first = await client.post("go", tools=[PAINT], instructions="be brief", text=form)
        [call] = calls_of(first)
        done = await client.stream([output(call)], previous_response_id=first["id"], text=form)
        assert done["output"][0]["content"][0]["text"] == '{"a":1}'
        assert "be brief" in str(model.requests[1])
        assert await client.read(done) == done
