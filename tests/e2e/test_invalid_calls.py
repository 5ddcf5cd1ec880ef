"""Calls that do not fit their tool's schema, over real HTTP: the model is told, the client has nothing to execute."""

import json
from pathlib import Path

import anyio
import pytest
from tests.support.model_server import ModelServer, Reply, calls, says
from tests.support.server import running_server
from tests.support.wire import COLOR, DONE, Client, Json, check_refusal, client_of, result, user

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P4")]

REASON = (
    "Not executed: the arguments do not fit the tool's schema: "
    'at $.color: "pink" is not one of ["blue", "red"]'
)
PINK = calls(("p", "set-color", '{"color": "pink"}'))
BLUE = calls(("b", "set-color", '{"color": "blue"}'))


def told(model: ModelServer) -> list[Json]:
    """The messages of the last request, without the user's."""
    messages: list[Json] = model.requests[-1].shown
    return [message for message in messages if message["role"] != "user"]


async def test_an_invalid_call_is_mended_by_the_model(
    raw: Client, model: ModelServer, conversation: str
) -> None:
    model.play(PINK, BLUE, says("It is blue."))
    answer = await raw.post(conversation, user("set color"), tools=[COLOR])
    assert answer.types == [
        *("tool-call-start", "tool-call-args", "tool-result"),
        *("tool-call-start", "tool-call-args", "tool-call-end", DONE),
    ]
    assert answer.call.arguments == {"color": "blue"}
    [refused] = [f.event["result"] for f in answer.frames if f.type == "tool-result"]
    assert refused == REASON
    call, response = told(model)
    assert call["tool_calls"][0]["function"]["arguments"] == '{"color": "pink"}'
    assert response == {"role": "tool", "tool_call_id": "p", "content": f"Error: {REASON}"}
    done = await raw.post(conversation, result(answer.call.id, "done"))
    assert (done.text, model.violations) == ("It is blue.", [])
    history = await raw.messages(conversation)
    assert [message.get("synthetic") for message in history if message["role"] == "tool"] == [
        "invalid",
        None,
    ]


@pytest.mark.promise("P6")
async def test_a_model_that_does_not_mend_it_fails_the_run(
    raw: Client, model: ModelServer, conversation: str
) -> None:
    model.play(PINK)
    answer = await raw.post(conversation, user("set color"), tools=[COLOR])
    assert answer.frames[-2].event == {
        "type": "error",
        "error": "the model made nothing but invalid tool calls, again and again",
        "code": "model_astray",
        "retryable": True,
    }
    assert (answer.frames[-1].data, answer.calls, len(model.requests)) == (DONE, [], 3)
    assert (await raw.conversation(conversation))["owed"] == []
    model.play(says("Sorry."))
    assert (await raw.post(conversation, user("well?"))).text == "Sorry."
    assert model.violations == []


async def test_another_worker_judges_by_the_same_schema(
    model: ModelServer, played_pair: tuple[Client, Client], conversation: str
) -> None:
    one, other = played_pair
    model.play(BLUE, PINK, says("I give up."))
    asked = await one.post(conversation, user("set color"), tools=[COLOR])
    answer = await other.post(conversation, result(asked.call.id, "done"))
    assert answer.text == "I give up."
    assert told(model)[-1]["content"] == f"Error: {REASON}"


AGENT = """
from passback import Agent, tool
from passback.models.scripted import ScriptedModel, calls, says


@tool
def add(a: int) -> int:
    \"\"\"Add one.\"\"\"
    return a + 1


agent = Agent(ScriptedModel([calls(("add", {"a": "one"})), says("Sorry.")] * 2), tools=[add])
"""


async def test_a_tool_of_the_server_that_did_not_run_says_so_on_both_wires(tmp_path: Path) -> None:
    (tmp_path / "my_agent.py").write_text(AGENT)
    why = "The arguments are not valid.\na: Input should be a valid integer, unable to parse string as an integer"
    async with (
        running_server("my_agent:agent", cwd=str(tmp_path)) as server,
        client_of(server.url) as client,
    ):
        answer = await client.post("c", user("Add one to one."))
        [told] = [frame.event for frame in answer.frames if frame.type == "tool-result"]
        told.pop("toolCallId")
        assert told == {
            "type": "tool-result",
            "result": why,
            "isError": True,
            "synthetic": "invalid",
        }
        text = [{"type": "text", "text": "Once more."}]
        body = {"input": [{"role": "user", "content": text}], "stream": False}
        response = (await client.http.post("/process", json=body)).json()
    assert [(each["type"], each["status"]) for each in response["output"]] == [
        ("plugin_call", "completed"),
        ("plugin_call_output", "completed"),
        ("message", "completed"),
    ]
    output = response["output"][1]["content"][0]["data"]
    assert (output["is_error"], output["synthetic"]) == (True, "invalid")


# ---------------------------------------------------------------- hostile ones
def _tool(**schema: object) -> Json:
    return {"name": "t", "parameters": {"type": "object", **schema}}


def _large(arguments: object) -> Reply:
    return calls(("c", "t", json.dumps(arguments)))


HEAVY: dict[str, tuple[Json, Reply]] = {
    "a doubling with each level": (
        _tool(allOf=[{"properties": {"a": {"$ref": "#"}}}] * 2),
        calls(("c", "t", '{"a":' * 60 + "{}" + "}" * 60)),
    ),
    "many alternatives of many items": (
        _tool(properties={"a": {"items": {"not": {"anyOf": [{"type": "string"}] * 480}}}}),
        _large({"a": [0] * 50_000}),
    ),
    "a value of many lists": (_tool(), _large({"a": [[]] * 80_000})),
}


@pytest.mark.promise("P11")
@pytest.mark.parametrize(("tool", "reply"), HEAVY.values(), ids=HEAVY.keys())
async def test_a_heavy_call_is_refused_while_others_are_served(
    raw: Client, model: ModelServer, conversation: str, tool: Json, reply: Reply
) -> None:
    model.play(reply, says("Well."))
    answers: list[str] = []

    async def ask() -> None:
        answers.append((await raw.post(conversation, user("go"), tools=[tool])).text)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        while not answers:
            assert (await raw.http.get("/healthz")).status_code == 200
    assert answers == ["Well."]
    assert "Not executed: the arguments" in told(model)[-1]["content"]


@pytest.mark.promise("P11", "P12")
@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "http://127.0.0.1:1/schema"},
        {"$dynamicAnchor": "n", "not": {"$dynamicRef": "#n"}},
        {
            "$defs": {
                **{f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)},
                "d40": {},
            },
            "$ref": "#/$defs/d0",
        },
        {"enum": [True] * 1_000},
        {"enum": ["x" * 70_000]},
    ],
)
async def test_a_schema_bomb_cannot_be_declared(
    raw: Client, conversation: str, schema: Json
) -> None:
    body = {"conversationId": conversation, "messages": [user("go")], "tools": [_tool(**schema)]}
    check_refusal(await raw.http.post("/send-message", json=body), 422, "invalid_tool")
    assert await raw.conversation(conversation) == {"status": 404, "code": "conversation_not_found"}
