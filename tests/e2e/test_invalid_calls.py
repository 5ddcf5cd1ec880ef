"""Calls that do not fit their tool's schema, over HTTP: only the model gets an error."""

import json

import anyio
import pytest
from tests.support.model_server import ModelServer, Reply, calls, says
from tests.support.wire import COLOR, DONE, Client, Json, result, user

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P4")]

REASON = (
    "Not executed: the arguments do not fit the tool's schema: "
    'at $.color: "pink" is not one of ["blue", "red"]'
)
PINK = calls(("p", "set-color", '{"color": "pink"}'))
BLUE = calls(("b", "set-color", '{"color": "blue"}'))


def messages_behind_user(model: ModelServer) -> list[Json]:
    """The messages of the last request, without the user's."""
    messages: list[Json] = model.requests[-1].shown
    return [message for message in messages if message["role"] != "user"]


async def test_the_model_corrects_an_invalid_call(
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
    call, response = messages_behind_user(model)
    assert call["tool_calls"][0]["function"]["arguments"] == '{"color": "pink"}'
    assert response == {"role": "tool", "tool_call_id": "p", "content": f"Error: {REASON}"}
    done = await raw.post(conversation, result(answer.call.id, "done"))
    assert (done.text, model.violations) == ("It is blue.", [])
    history = await raw.messages(conversation)
    assert [message.get("synthetic") for message in history if message["role"] == "tool"] == [
        "invalid",
        None,
    ]


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
    assert "Not executed: the arguments" in messages_behind_user(model)[-1]["content"]
