"""Answers that no model should give: none reaches a client's tool or spoils the next message."""

from collections.abc import AsyncGenerator, Sequence

import pytest
from tests.e2e.model_apis import ANTHROPIC, DIALECTS, OPENAI, RESPONSES, Stage, model_stage
from tests.support import anthropic_server, model_server, responses_model_server
from tests.support.model_server import Json, Reply, Step
from tests.support.wire import COLOR, DONE, user

pytestmark = pytest.mark.anyio

BLUE = '{"color": "blue"}'
Call = tuple[object, object, Sequence[str]]
"""An id, a name and the pieces of the arguments; no id or name at all where it is None."""


@pytest.fixture(scope="module", params=DIALECTS, ids=str)
async def stage(request: pytest.FixtureRequest) -> AsyncGenerator[Stage]:
    async with model_stage(request.param) as one:
        yield one


# ---------------------------------------------------------------- writing them
def answer(*calls: Call, text: str = "", reason: str | None = "calls") -> dict[str, Reply]:
    """Return an answer in every protocol.

    The reason is `calls`, `stop`, `length` or another; None: it ends without one.
    """
    return {
        OPENAI.kind: Reply([*_chat(calls, text, reason), model_server.DONE]),
        ANTHROPIC.kind: Reply([anthropic_server.START, *_message(calls, text, reason)]),
        RESPONSES.kind: Reply([*responses_model_server.HEAD, *_response(calls, text, reason)]),
    }


def _chat(calls: Sequence[Call], text: str, reason: str | None) -> list[Step]:
    steps: list[Step] = [model_server.event(content=text)] if text else []
    for index, (call_id, name, pieces) in enumerate(calls):
        head = _given(id=call_id, function=_given(name=name, arguments=""))
        steps.append(model_server.event(tool_calls=[{"index": index, **head}]))
        steps += [
            model_server.event(tool_calls=[{"index": index, "function": {"arguments": piece}}])
            for piece in pieces
        ]
    return [*steps, model_server.event("tool_calls" if reason == "calls" else reason)]


def _message(calls: Sequence[Call], text: str, reason: str | None) -> list[Step]:
    steps: list[Step] = [*anthropic_server.text(0, text)] if text else []
    for index, (call_id, name, pieces) in enumerate(calls, 1):
        start = _given(type="tool_use", id=call_id, name=name, input={})
        deltas: list[Json] = [{"type": "input_json_delta", "partial_json": p} for p in pieces]
        steps += anthropic_server.block(index, start, *deltas)
    names = {"calls": "tool_use", "stop": "end_turn", "length": "max_tokens"}
    if reason is None:
        return [*steps, anthropic_server.event("message_stop")]
    return [*steps, *anthropic_server.ending(names.get(reason, reason))]


def _response(calls: Sequence[Call], text: str, reason: str | None) -> list[Step]:
    steps: list[Step] = [*responses_model_server.text(0, text).steps] if text else []
    event, kind = responses_model_server.event, "response.function_call_arguments.delta"
    for index, (call_id, name, pieces) in enumerate(calls, 1):
        item = _given(type="function_call", call_id=call_id, name=name, arguments="")
        inner = [event(kind, output_index=index, delta=piece) for piece in pieces]
        ended = item | {"arguments": "".join(pieces)}
        steps += responses_model_server.streamed(index, item, inner, ended).steps
    if reason == "length":
        return [*steps, responses_model_server.cut_off()]
    # the protocol has no other reasons: a response is complete, whatever its status says
    named = reason in {"calls", "stop"}
    whole = responses_model_server.response("completed" if named else str(reason))
    return [*steps, event("response.completed", response=whole)]


def _given(**fields: object) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


# ---------------------------------------------------------------- the table
SET = "set-color"
ANSWERS: dict[str, dict[str, Reply]] = {
    "calls without ids": answer((None, SET, [BLUE]), (None, SET, [BLUE])),
    "calls with empty ids": answer(("", SET, [BLUE]), ("", SET, [BLUE])),
    "calls of one id": answer(("a", SET, [BLUE]), ("a", SET, [BLUE])),
    "an id of other characters": answer(("a b\n\u2028<", SET, [BLUE])),
    "an id that is long": answer(("i" * 5_000, SET, [BLUE])),
    "an id that is no text": answer((7, SET, [BLUE])),
    "arguments that break off": answer(("a", SET, ['{"color": "bl'])),
    "arguments that are cut off by the tokens": answer(("a", SET, ['{"col']), reason="length"),
    "whole arguments, and no tokens left": answer(("a", SET, [BLUE]), reason="length"),
    "no arguments": answer(("a", SET, [])),
    "arguments that are a list": answer(("a", SET, ["[1]"])),
    "arguments that are a text": answer(("a", SET, ['"{}"'])),
    "arguments twice": answer(("a", SET, [BLUE, BLUE])),
    "arguments that are no JSON": answer(("a", SET, ["{color: blue}"])),
    "numbers that are none": answer(("a", SET, ['{"color": NaN}'])),
    "half a character": answer(("a", SET, ['{"color": "\ud83d"}'])),
    "a tool that there is not": answer(("a", "fly", ["{}"])),
    "no name": answer(("a", None, [BLUE])),
    "an empty name": answer(("a", "", [BLUE])),
    "a name that no service takes back": answer(("a", "no such näme!" * 40, ["{}"])),
    "a good call beside bad ones": answer(
        ("a", "fly", ["{}"]), ("b", SET, [BLUE]), ("c", SET, ["{"]), ("d", None, ["{}"])
    ),
    "too many calls": answer(*((f"c{n}", SET, [BLUE]) for n in range(300))),
    "nothing": answer(reason="stop"),
    "nothing, for want of tokens": answer(reason="length"),
    "nothing, and calls announced": answer(reason="calls"),
    "blanks": answer(text=" \n", reason="stop"),
    "calls, and it says that it stops": answer(("a", SET, [BLUE]), text="Well.", reason="stop"),
    "an end that there is not": answer(text="Well.", reason="whatever"),
    "an end without a reason": answer(text="Well.", reason=None),
    "half a character in a text": answer(text="a\ud83d", reason="stop"),
    "controls in a text": answer(text="a\x00b\x85c\u2028d\r\n\ndata: [DONE]\n\n", reason="stop"),
}


@pytest.mark.promise("P4", "P5", "P6")
@pytest.mark.parametrize("answers", ANSWERS.values(), ids=ANSWERS)
async def test_after_a_hostile_answer_the_next_user_message_works(
    stage: Stage, conversation: str, answers: dict[str, Reply]
) -> None:
    client, model, dialect = stage.client, stage.model, stage.dialect
    model.play(answers[dialect.kind], dialect.says("set aside"))
    first = await client.post(conversation, user("go"), tools=[COLOR])
    assert (first.status, first.frames[-1].data) == (200, DONE)
    # what is handed out can be executed, and is owed
    assert {call.name for call in first.calls} <= {SET}
    assert all(call.arguments == {"color": "blue"} for call in first.calls)
    owed = [each["id"] for each in (await client.conversation(conversation))["owed"]]
    assert owed == [call.id for call in first.calls]
    assert len({*owed}) == len(owed)
    model.play(dialect.says("back again"))
    reply = await client.post(conversation, user("and now?"))
    assert (reply.status, reply.text, reply.types) == (200, "back again", ["text", DONE])
    model.assert_no_violations()
    assert model_server.spoken_in(model.requests[-1].json)
