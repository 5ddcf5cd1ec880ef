"""A real model's service behind the server, and its failures: one `error` event, and it goes on."""

from collections.abc import AsyncGenerator, Callable

import anyio
import pytest
from tests.e2e.model_apis import DIALECTS, KEY, Dialect, Stage, model_stage
from tests.support.model_server import Act, ModelServer, Reply, Step, fails
from tests.support.wire import COLOR, DONE, ZONE, Answer, Client, Json, result, user

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=DIALECTS, ids=str)
async def whole_stage(request: pytest.FixtureRequest) -> AsyncGenerator[Stage]:
    async with model_stage(request.param) as stage:
        yield stage


@pytest.fixture
def model(whole_stage: Stage) -> ModelServer:
    whole_stage.model.play()
    return whole_stage.model


@pytest.fixture
def client(whole_stage: Stage) -> Client:
    return whole_stage.client


@pytest.fixture
def dialect(whole_stage: Stage) -> Dialect:
    return whole_stage.dialect


def check_failure(answer: Answer, *, text: str = "") -> Json:
    """A stream with what was said before, one error, and [DONE]; gives the error."""
    assert answer.status == 200
    assert answer.text == text
    assert answer.types == [*(["text"] if text else []), "error", DONE]
    error = answer.frames[-2].event
    assert error.keys() - {"retryAfter"} == {"type", "error", "code", "retryable"}
    return error


# ---------------------------------------------------------------- answers
async def test_a_tool_round_trip_asks_the_model_twice_with_paired_messages(
    client: Client, model: ModelServer, dialect: Dialect, conversation: str
) -> None:
    model.play(
        dialect.calls(("id-1", "set-color", '{"color": "blue"}')), dialect.says("It is", " blue.")
    )
    first = await client.post(conversation, user("set color"), tools=[COLOR])
    answer = await client.post(conversation, result(first.call.id, "done"))
    assert (first.call.name, first.call.arguments) == ("set-color", {"color": "blue"})
    assert first.call.id.startswith("call_")
    assert answer.text == "It is blue."
    one, two = model.requests
    assert [request.path for request in (one, two)] == [dialect.path] * 2
    header, before = dialect.key
    assert {request.headers[header] for request in (one, two)} == {before + KEY}
    [tool] = two.json["tools"]
    assert tool.get("function", tool)["name"] == "set-color"
    assert len(two.shown) == 3


@pytest.mark.promise("P5")
async def test_superseded_and_parked_calls_stay_paired_for_the_model(
    client: Client, model: ModelServer, dialect: Dialect, conversation: str
) -> None:
    both = dialect.calls(("a", "set-color", '{"color": "red"}'), ("b", "get-time-zone", "{}"))
    model.play(both, dialect.says("never mind"), both, dialect.says("all set"))
    await client.post(conversation, user("do both"), tools=[COLOR, ZONE])
    await client.post(conversation, user("forget it"))
    second = await client.post(conversation, user("do both"))
    color, zone = second.calls
    await client.post(conversation, result(zone.id, "UTC"))
    answer = await client.post(conversation, result(color.id, "red"))
    assert answer.text == "all set"
    assert len(model.requests) == 4


async def test_text_comes_as_the_model_says_it(
    client: Client, model: ModelServer, dialect: Dialect, conversation: str
) -> None:
    gate = anyio.Event()
    model.play(Reply([*dialect.begins("first "), gate, *dialect.begins("second"), *dialect.ends]))
    async with client.stream(conversation, [user("go")]) as stream:
        assert (await stream.next()).event["content"] == "first "
        gate.set()
        assert (await stream.whole()).text == "first second"


# ---------------------------------------------------------------- failures
def half(*steps: Step) -> Callable[[Dialect], Reply]:
    """An answer that goes on like this after its first word."""
    return lambda dialect: Reply([*dialect.begins("half"), *steps])


def cut_call(dialect: Dialect) -> Reply:
    return Reply([*dialect.begins_call(("a", "x", "")), Act.CUT])


def reply(one: Reply) -> Callable[[Dialect], Reply]:
    return lambda _: one


FAILURES: dict[str, tuple[Callable[[Dialect], Reply], str | None, str]] = {
    "refused": (reply(fails(401)), "model_rejected", ""),
    "bad request": (reply(fails(400)), "model_rejected", ""),
    "rate limited": (reply(fails(429, retry_after="60")), "model_rate_limited", ""),
    "overloaded": (reply(fails(529, retry_after="60")), "model_unavailable", ""),
    "cut before the first byte": (reply(Reply([Act.CUT])), None, ""),
    "not a byte": (reply(Reply([])), "model_incomplete", ""),
    "cut in the middle": (half(Act.CUT), None, "half"),
    "ended without an end": (half(), "model_incomplete", "half"),
    "garbage": (half(b"data: {broken\n\n", Act.CUT), None, "half"),
    "not a stream": (
        reply(Reply([b"<html>"], headers={"content-type": "text/html"})),
        "model_rejected",
        "",
    ),
    "an error inside the stream": (
        lambda dialect: Reply([*dialect.begins("half"), dialect.fault]),
        "model_unavailable",
        "half",
    ),
    "an error that begins the stream": (
        lambda dialect: Reply([dialect.fault]),
        "model_unavailable",
        "",
    ),
    "a call cut off": (cut_call, None, ""),
}
MODEL_CODES = {"model_unavailable", "model_incomplete", "model_error"}


@pytest.mark.promise("P6", "P12")
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_a_failing_model_is_one_error_and_the_conversation_stays_usable(
    client: Client,
    model: ModelServer,
    dialect: Dialect,
    conversation: str,
    failure: tuple[Callable[[Dialect], Reply], str | None, str],
) -> None:
    answer, code, text = failure
    model.play(answer(dialect))
    error = check_failure(await client.post(conversation, user("go")), text=text)
    assert error["code"] in ({code} if code else MODEL_CODES)
    model.play_afterwards(dialect.says("back again"))
    await client.post(conversation, user("again"))
    next_answer = await client.post(conversation, user("at last"))
    assert (next_answer.text, next_answer.types) == ("back again", ["text", DONE])
    kept = await client.messages(conversation)
    halves = [message for message in kept if message["content"] == "half"]
    assert bool(halves) == bool(text)
    assert all(message["partial"] for message in halves)


async def test_a_client_tools_call_that_is_cut_off_is_never_handed_out(
    client: Client, model: ModelServer, dialect: Dialect, conversation: str
) -> None:
    model.play(Reply([*dialect.begins_call(("a", "set-color", '{"col')), Act.CUT]))
    cut = await client.post(conversation, user("go"), tools=[COLOR])
    assert cut.types == ["tool-call-start", "tool-call-args", "error", DONE]
    assert (await client.conversation(conversation))["owed"] == []
    call_id = cut.frames[0].event["toolCallId"]
    refused = await client.post(conversation, result(call_id, "blue"))
    assert (refused.status, refused.json["code"]) == (404, "tool_call_not_found")
    model.play_afterwards(dialect.says("back again"))
    await client.post(conversation, user("again"))
    assert (await client.post(conversation, user("at last"))).text == "back again"


async def test_a_model_that_is_overloaded_for_a_moment_is_asked_again_unseen(
    client: Client, model: ModelServer, dialect: Dialect, conversation: str
) -> None:
    model.play(fails(503), dialect.says("here"))
    answer = await client.post(conversation, user("go"))
    assert (answer.text, answer.types) == ("here", ["text", DONE])
    assert [dialect.asked(request) for request in model.requests] == [[("user", ["go"])]] * 2


async def test_a_cancelled_run_hangs_up_on_a_model_that_has_stalled(
    client: Client, model: ModelServer, dialect: Dialect, conversation: str
) -> None:
    model.play(Reply([*dialect.begins("half"), Act.STALL]))
    async with client.stream(conversation, [user("go")], include=["usage"]) as stream:
        await stream.next()
        await client.cancel(conversation)
        with anyio.fail_after(20):
            answer = await stream.whole()
            await model.left.wait()
    assert answer.types == ["text", "usage", DONE]
    usage = answer.frames[-2].event
    assert (usage["outputTokens"], usage["estimated"]) == (1, True)
