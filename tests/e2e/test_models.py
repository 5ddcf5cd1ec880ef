"""A real model's service behind the server, with all that can go wrong there: one `error` event, and life goes on."""

from collections.abc import AsyncGenerator

import anyio
import pytest
from tests.support.model_server import (
    Act,
    ModelServer,
    Reply,
    calls,
    event,
    fails,
    model_server,
    says,
)
from tests.support.server import running_server
from tests.support.wire import COLOR, DONE, ZONE, Answer, Client, Json, client_of, result, user

pytestmark = pytest.mark.anyio

KEY = "sk-test-key"


@pytest.fixture(scope="module")
async def stage() -> AsyncGenerator[tuple[Client, ModelServer]]:
    """A client of a server, and the model's service behind it."""
    async with model_server() as model:
        environment = {
            "PASSBACK_MODEL": "openai:mock",
            "PASSBACK_MODEL_BASE_URL": model.base_url,
            "PASSBACK_MODEL_API_KEY": KEY,
        }
        async with (
            running_server(environment=environment) as server,
            client_of(server.url) as client,
        ):
            yield client, model


@pytest.fixture
def model(stage: tuple[Client, ModelServer]) -> ModelServer:
    stage[1].play()
    return stage[1]


@pytest.fixture
def client(stage: tuple[Client, ModelServer]) -> Client:
    return stage[0]


def asked(model: ModelServer) -> list[list[Json]]:
    """The messages of each request, as role and content."""
    return [
        [{"role": m["role"], "content": m.get("content")} for m in request.json["messages"]]
        for request in model.requests
    ]


def check_failure(answer: Answer, *, said: str = "") -> Json:
    """A stream with what was said before, one error, and [DONE]; gives the error."""
    assert answer.status == 200
    assert answer.text == said
    assert answer.types == [*(["text"] if said else []), "error", DONE]
    error = answer.frames[-2].event
    assert error.keys() - {"retryAfter"} == {"type", "error", "code", "retryable"}
    return error


# ---------------------------------------------------------------- what goes well
async def test_a_tool_round_trip_asks_the_model_twice_with_paired_messages(
    client: Client, model: ModelServer, conversation: str
) -> None:
    model.play(calls(("id-1", "set-color", '{"color": "blue"}')), says("It is", " blue."))
    first = await client.post(conversation, user("set color"), tools=[COLOR])
    told = await client.post(conversation, result(first.call.id, "done"))
    assert (first.call.name, first.call.arguments) == ("set-color", {"color": "blue"})
    assert first.call.id.startswith("call_")
    assert told.text == "It is blue."
    one, two = model.requests
    assert [request.path for request in (one, two)] == ["/v1/chat/completions"] * 2
    assert {request.headers["authorization"] for request in (one, two)} == {f"Bearer {KEY}"}
    assert [tool["function"]["name"] for tool in two.json["tools"]] == ["set-color"]
    assert [message["role"] for message in two.json["messages"]] == ["user", "assistant", "tool"]


@pytest.mark.promise("P5")
async def test_superseded_and_parked_calls_stay_paired_for_the_model(
    client: Client, model: ModelServer, conversation: str
) -> None:
    both = calls(("a", "set-color", '{"color": "red"}'), ("b", "get-time-zone", "{}"))
    model.play(both, says("never mind"), both, says("all set"))
    await client.post(conversation, user("do both"), tools=[COLOR, ZONE])
    await client.post(conversation, user("forget it"))
    second = await client.post(conversation, user("do both"))
    color, zone = second.calls
    await client.post(conversation, result(zone.id, "UTC"))
    told = await client.post(conversation, result(color.id, "red"))
    assert told.text == "all set"
    assert len(model.requests) == 4


async def test_text_comes_as_the_model_says_it(
    client: Client, model: ModelServer, conversation: str
) -> None:
    gate = anyio.Event()
    model.play(Reply([event(content="first "), gate, event(content="second"), event("stop")]))
    async with client.stream(conversation, [user("go")]) as stream:
        assert (await stream.next()).event["content"] == "first "
        gate.set()
        assert (await stream.whole()).text == "first second"


# ---------------------------------------------------------------- what does not
FAILURES = {
    "refused": (fails(401), "model_rejected", ""),
    "bad request": (fails(400), "model_rejected", ""),
    "rate limited": (fails(429, retry_after="60"), "model_rate_limited", ""),
    "cut before the first byte": (Reply([Act.CUT]), None, ""),
    "cut in the middle": (Reply([event(content="half"), Act.CUT]), None, "half"),
    "ended without an end": (Reply([event(content="half")]), "model_incomplete", "half"),
    "garbage": (Reply([event(content="half"), b"data: {broken\n\n", Act.CUT]), None, "half"),
    "not a stream": (
        Reply([b"<html>"], headers={"content-type": "text/html"}),
        "model_rejected",
        "",
    ),
    "an error inside the stream": (
        Reply([event(content="half"), {"error": {"message": "overloaded", "code": 503}}]),
        None,
        "half",
    ),
    "a call cut off": (
        Reply([event(tool_calls=[{"index": 0, "id": "a", "function": {"name": "x"}}]), Act.CUT]),
        None,
        "",
    ),
}
MODEL_CODES = {"model_unavailable", "model_incomplete", "model_error"}


@pytest.mark.promise("P6", "P12")
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_a_failing_model_is_one_error_and_the_conversation_stays_usable(
    client: Client,
    model: ModelServer,
    conversation: str,
    failure: tuple[Reply, str | None, str],
) -> None:
    reply, code, said = failure
    model.play(reply)
    error = check_failure(await client.post(conversation, user("go")), said=said)
    assert error["code"] in ({code} if code else MODEL_CODES)
    model.will(says("back again"))
    await client.post(conversation, user("again"))
    told = await client.post(conversation, user("at last"))
    assert (told.text, told.types) == ("back again", ["text", DONE])
    kept = await client.messages(conversation)
    halves = [message for message in kept if message["content"] == "half"]
    assert bool(halves) == bool(said)
    assert all(message["partial"] for message in halves)


async def test_a_client_tools_call_that_is_cut_off_is_never_handed_out(
    client: Client, model: ModelServer, conversation: str
) -> None:
    start = {"index": 0, "id": "a", "function": {"name": "set-color", "arguments": '{"col'}}
    model.play(Reply([event(tool_calls=[start]), Act.CUT]))
    cut = await client.post(conversation, user("go"), tools=[COLOR])
    assert cut.types == ["tool-call-start", "tool-call-args", "error", DONE]
    assert (await client.conversation(conversation))["owed"] == []
    call_id = cut.frames[0].event["toolCallId"]
    told = await client.post(conversation, result(call_id, "blue"))
    assert (told.status, told.json["code"]) == (404, "tool_call_not_found")
    model.will(says("back again"))
    await client.post(conversation, user("again"))
    assert (await client.post(conversation, user("at last"))).text == "back again"


async def test_a_model_that_is_overloaded_for_a_moment_is_asked_again_unseen(
    client: Client, model: ModelServer, conversation: str
) -> None:
    model.play(fails(503), says("here"))
    answer = await client.post(conversation, user("go"))
    assert (answer.text, answer.types) == ("here", ["text", DONE])
    assert asked(model) == [[{"role": "user", "content": "go"}]] * 2


async def test_a_model_that_cannot_be_reached_is_one_error(conversation: str) -> None:
    environment = {
        "PASSBACK_MODEL": "openai:mock",
        "PASSBACK_MODEL_BASE_URL": "http://127.0.0.1:9/v1",
    }
    async with (
        running_server(environment=environment) as server,
        client_of(server.url) as client,
    ):
        error = check_failure(await client.post(conversation, user("go")))
    assert (error["code"], error["retryable"]) == ("model_unavailable", True)


async def test_a_cancelled_run_hangs_up_on_a_model_that_has_stalled(
    client: Client, model: ModelServer, conversation: str
) -> None:
    model.play(Reply([event(content="half"), Act.STALL]))
    async with client.stream(conversation, [user("go")]) as stream:
        await stream.next()
        await client.cancel(conversation)
        with anyio.fail_after(5):
            assert (await stream.whole()).types == ["text", DONE]
            await model.left.wait()


@pytest.mark.parametrize("said", ["", "half"])
async def test_a_model_that_stalls_is_given_up(conversation: str, said: str) -> None:
    stalls = Reply([event(content=said), Act.STALL])
    async with model_server(stalls) as model:
        settings = ("--model", "openai:mock", "--model-base-url", model.base_url)
        async with (
            running_server(*settings, "--model-timeout", "1") as server,
            client_of(server.url) as client,
        ):
            error = check_failure(await client.post(conversation, user("go")), said=said)
            assert (error["code"], error["retryable"]) == ("model_unavailable", True)
            with anyio.fail_after(5):
                await model.left.wait()
