"""One model answer: which events readers see, and what the turn is worth."""

import itertools
from collections.abc import Sequence

import pytest

from passback.core.deltas import (
    Finish,
    FinishReason,
    ModelDelta,
    ReasoningBlock,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
    UsageChunk,
)
from passback.core.events import (
    ReasoningDelta,
    RunEvent,
    TextDelta,
    ToolCallArguments,
    ToolCallStarted,
)
from passback.core.messages import AssistantMessage, CallId, MessageId, Reasoning, ToolCall, Usage
from passback.engine.assembler import Assembler, InvalidCall, KnownTool, ModelTurn

ID = MessageId("m")
ONE, TWO = CallId("call-1"), CallId("call-2")
TOOLS = {"paint": KnownTool("client"), "add": KnownTool("server")}
CUT = "Not executed: the answer was cut off before the call was complete."


def assembler() -> Assembler:
    count = itertools.count(1)
    return Assembler(ID, TOOLS.get, lambda: CallId(f"call-{next(count)}"))


def assembled(*deltas: ModelDelta) -> tuple[list[RunEvent], ModelTurn]:
    """Return all events, of the pieces and of the end."""
    one = assembler()
    events = [event for delta in deltas for event in one.feed([delta])]
    last, turn = one.finish()
    return [*events, *last], turn


def turn_of(
    message: AssistantMessage,
    *,
    client: Sequence[ToolCall] = (),
    server: Sequence[ToolCall] = (),
    invalid: Sequence[InvalidCall] = (),
    finish: FinishReason | None = "tool_calls",
    usage: Usage | None = None,
) -> ModelTurn:
    return ModelTurn(message, tuple(client), tuple(server), tuple(invalid), finish, usage)


def test_text_is_shown_as_it_comes_and_joined_in_the_message() -> None:
    events, turn = assembled(TextChunk("Hel"), TextChunk("lo"), Finish("stop"))
    assert events == [TextDelta("Hel"), TextDelta("lo")]
    assert turn == turn_of(AssistantMessage(ID, "Hello"), finish="stop")


def test_reasoning_is_shown_and_its_blocks_are_kept_unedited() -> None:
    block = Reasoning("hm", "openai", "opaque")
    events, turn = assembled(ReasoningChunk("hm"), ReasoningBlock(block), Finish("stop"))
    assert events == [ReasoningDelta("hm")]
    assert turn.message == AssistantMessage(ID, "", reasoning=(block,))


def test_the_last_usage_counts() -> None:
    one = assembler()
    assert one.usage is None
    one.feed([UsageChunk(Usage(1, 1)), UsageChunk(Usage(1, 2)), Finish("stop")])
    assert one.usage == Usage(1, 2)
    assert one.finish()[1].usage == Usage(1, 2)


@pytest.mark.parametrize(
    ("deltas", "usage"),
    [
        ([TextChunk("1234")], Usage(0, 1, estimated=True)),
        ([TextChunk("12345")], Usage(0, 2, estimated=True)),
        ([ReasoningChunk("12"), TextChunk("3"), TextChunk("4")], Usage(0, 1, estimated=True)),
        ([ToolCallChunk(0, name="paint", arguments="{}")], Usage(0, 2, estimated=True)),
        ([UsageChunk(Usage(7, 1, 3))], Usage(7, 1, 3, estimated=True)),
        ([UsageChunk(Usage(7, 1, 3)), TextChunk("x" * 40)], Usage(7, 10, 3, estimated=True)),
        ([TextChunk("x"), UsageChunk(Usage(7, 5))], Usage(7, 5, estimated=True)),
        ([TextChunk("x" * 40), UsageChunk(Usage(7, 1)), Finish("stop")], Usage(7, 1)),
        ([TextChunk("x" * 40), Finish("stop")], None),
    ],
)
def test_the_tokens_of_an_answer_that_is_not_whole_are_estimated(
    deltas: list[ModelDelta], usage: Usage | None
) -> None:
    one = assembler()
    for delta in deltas:
        one.feed([delta])
    assert one.usage == usage


def test_a_client_call_streams_under_an_id_of_ours() -> None:
    events, turn = assembled(
        ToolCallChunk(0, provider_id="p", name="paint"),
        ToolCallChunk(0, arguments='{"to":'),
        ToolCallChunk(0, arguments=' "red"}'),
        Finish("tool_calls"),
    )
    call = ToolCall(ONE, "paint", '{"to": "red"}', client=True, provider_id="p")
    assert events == [
        ToolCallStarted(ONE, "paint", client=True),
        ToolCallArguments(ONE, '{"to":'),
        ToolCallArguments(ONE, ' "red"}'),
    ]
    assert turn == turn_of(AssistantMessage(ID, "", (call,)), client=[call])


def test_a_whole_call_in_one_piece() -> None:
    events, turn = assembled(ToolCallChunk(0, "p", "add", '{"a":1}'), Finish("stop"))
    call = ToolCall(ONE, "add", '{"a":1}', provider_id="p")
    assert events == [ToolCallStarted(ONE, "add", client=False), ToolCallArguments(ONE, '{"a":1}')]
    assert turn == turn_of(AssistantMessage(ID, "", (call,)), server=[call], finish="stop")


def test_a_call_without_arguments_gets_an_empty_object_that_readers_see() -> None:
    events, turn = assembled(ToolCallChunk(0, name="paint"), Finish("tool_calls"))
    call = ToolCall(ONE, "paint", "{}", client=True)
    assert events == [ToolCallStarted(ONE, "paint", client=True), ToolCallArguments(ONE, "{}")]
    assert turn.client == (call,)


def test_arguments_before_the_name_are_shown_when_the_call_has_one() -> None:
    events, turn = assembled(
        ToolCallChunk(0, arguments='{"a"'),
        ToolCallChunk(0, arguments=":1"),
        ToolCallChunk(0, name="add"),
        ToolCallChunk(0, arguments="}"),
        ToolCallChunk(0, provider_id="late"),
        Finish("tool_calls"),
    )
    assert events == [
        ToolCallStarted(ONE, "add", client=False),
        ToolCallArguments(ONE, '{"a":1'),
        ToolCallArguments(ONE, "}"),
    ]
    assert turn.server == (ToolCall(ONE, "add", '{"a":1}', provider_id="late"),)


def test_the_first_name_of_a_call_stays() -> None:
    events, turn = assembled(
        ToolCallChunk(0, name="add"), ToolCallChunk(0, name="paint"), Finish("tool_calls")
    )
    assert events[0] == ToolCallStarted(ONE, "add", client=False)
    assert [call.name for call in turn.message.tool_calls] == ["add"]


def test_interleaved_calls_stay_apart_and_in_the_order_of_their_beginnings() -> None:
    events, turn = assembled(
        TextChunk("both"),
        ToolCallChunk(7, name="paint"),
        ToolCallChunk(3, name="add"),
        ToolCallChunk(7, arguments='{"x"'),
        ToolCallChunk(3, arguments="{}"),
        ToolCallChunk(7, arguments=":1}"),
        Finish("tool_calls"),
    )
    paint = ToolCall(ONE, "paint", '{"x":1}', client=True)
    add = ToolCall(TWO, "add", "{}")
    assert events == [
        TextDelta("both"),
        ToolCallStarted(ONE, "paint", client=True),
        ToolCallStarted(TWO, "add", client=False),
        ToolCallArguments(ONE, '{"x"'),
        ToolCallArguments(TWO, "{}"),
        ToolCallArguments(ONE, ":1}"),
    ]
    assert turn == turn_of(AssistantMessage(ID, "both", (paint, add)), client=[paint], server=[add])


@pytest.mark.parametrize(
    "arguments",
    [
        "{",
        '{"a":',
        "[1]",
        "null",
        '"text"',
        "{}{}",
        "{'a':1}",
        '{"a":NaN}',
        '{"a":1,}',
        " ",
        "[" * 100000,
    ],
)
@pytest.mark.parametrize("name", ["paint", "add"])
@pytest.mark.promise("P4")
def test_arguments_that_are_no_json_object_reach_no_tool(name: str, arguments: str) -> None:
    events, turn = assembled(ToolCallChunk(0, name=name, arguments=arguments), Finish("tool_calls"))
    call = ToolCall(ONE, name, "{}", client=name == "paint")
    reason = f"Not executed: the arguments are not a JSON object: {arguments[:200]}"
    assert events[-1] == ToolCallArguments(ONE, arguments)
    assert turn == turn_of(
        AssistantMessage(ID, "", (call,)), invalid=[InvalidCall(call, reason, announced=True)]
    )


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ('{"to":"alice","amount":1,"to":"mallory","amount":9999}', "to"),
        ('{"to":"alice","t\\u006f":"mallory"}', "to"),
        ('{"rows":[{"a":1},{"b":{"a":1,"a":1}}]}', "a"),
        ('{"":1,"":2}', ""),
        (f'{{"{"k" * 300}":1,"{"k" * 300}":1}}', "k" * 200),
    ],
)
@pytest.mark.parametrize("name", ["paint", "add"])
@pytest.mark.promise("P4")
def test_arguments_with_duplicate_keys_reach_no_tool(name: str, arguments: str, key: str) -> None:
    """A person would approve the first value, and the tool would take the last."""
    _, turn = assembled(ToolCallChunk(0, name=name, arguments=arguments), Finish("tool_calls"))
    call = ToolCall(ONE, name, "{}", client=name == "paint")
    reason = f"Not executed: the arguments have the key {key!r} twice in one object."
    assert turn == turn_of(
        AssistantMessage(ID, "", (call,)), invalid=[InvalidCall(call, reason, announced=True)]
    )


@pytest.mark.parametrize(
    "arguments",
    [
        '{"a":1,"b":{"a":1},"c":[{"a":1},{"a":2}],"A":"a"}',
        '{"n":1e999999,"big":' + "9" * 4300 + "}",
        '{"text":"\\ud83d\\ude00 \\"a\\":1, \\"a\\":1"}',
    ],
    ids=["in different objects", "numbers", "within a text"],
)
def test_arguments_whose_keys_differ_go_on_as_they_are(arguments: str) -> None:
    _, turn = assembled(ToolCallChunk(0, name="paint", arguments=arguments), Finish("tool_calls"))
    call = ToolCall(ONE, "paint", arguments, client=True)
    assert turn == turn_of(AssistantMessage(ID, "", (call,)), client=[call])


@pytest.mark.parametrize(
    ("name", "kept"),
    [("fly", "fly"), ("Paint", "Paint"), ("no such tool!", "no_such_tool_"), ("é" * 99, "_" * 64)],
)
def test_a_call_of_an_unknown_tool_is_never_announced(name: str, kept: str) -> None:
    """It is kept under a name that every provider takes back: an odd one would spoil the record."""
    events, turn = assembled(ToolCallChunk(0, "p", name, "{}"), Finish("tool_calls"))
    call = ToolCall(ONE, kept, "{}", provider_id="p")
    reason = f"Not executed: there is no tool named {name!r}."
    assert events == []
    assert turn == turn_of(
        AssistantMessage(ID, "", (call,)), invalid=[InvalidCall(call, reason, announced=False)]
    )


def test_valid_and_invalid_calls_stand_in_the_models_order() -> None:
    _, turn = assembled(
        ToolCallChunk(0, name="add"),
        ToolCallChunk(1, name="fly"),
        ToolCallChunk(2, name="paint"),
        ToolCallChunk(3, name="add", arguments="?"),
        Finish("tool_calls"),
    )
    assert [call.name for call in turn.message.tool_calls] == ["add", "fly", "paint", "add"]
    assert [call.name for call in (*turn.server, *turn.client)] == ["add", "paint"]
    assert [invalid.call.name for invalid in turn.invalid] == ["fly", "add"]


@pytest.mark.parametrize("name", [None, ""])
def test_a_call_without_a_name_is_no_call(name: str | None) -> None:
    events, turn = assembled(
        TextChunk("hm"), ToolCallChunk(0, "p", name, "{}"), Finish("tool_calls")
    )
    assert events == [TextDelta("hm")]
    assert turn == turn_of(AssistantMessage(ID, "hm"))


def test_an_empty_name_is_replaced_by_the_one_that_follows() -> None:
    _, turn = assembled(
        ToolCallChunk(0, name=""), ToolCallChunk(0, name="add"), Finish("tool_calls")
    )
    assert turn.server == (ToolCall(ONE, "add", "{}"),)


@pytest.mark.parametrize("finish", [None, "length"])
def test_an_answer_that_was_cut_executes_nothing(finish: FinishReason | None) -> None:
    ends: list[ModelDelta] = [Finish(finish)] if finish else []
    _, turn = assembled(TextChunk("I"), ToolCallChunk(0, name="add", arguments='{"a":1}'), *ends)
    call = ToolCall(ONE, "add", "{}")
    assert turn == turn_of(
        AssistantMessage(ID, "I", (call,), partial=True),
        invalid=[InvalidCall(call, CUT, announced=True)],
        finish=finish,
    )


def test_an_empty_answer_is_an_empty_turn() -> None:
    assert assembled(Finish("stop")) == ([], turn_of(AssistantMessage(ID, ""), finish="stop"))
    assert assembled() == ([], turn_of(AssistantMessage(ID, "", partial=True), finish=None))


def test_what_there_is_of_a_cut_turn_is_its_text_without_calls() -> None:
    one = assembler()
    assert one.partial() is None
    one.feed([ToolCallChunk(0, name="add"), TextChunk("")])
    assert one.partial() is None
    one.feed([TextChunk("half "), TextChunk("a wor")])
    assert one.partial() == AssistantMessage(ID, "half a wor", partial=True)


# ---------------------------------------------------------------- splits
WHOLE = (
    TextChunk("Hello, wörld"),
    ToolCallChunk(0, "p0", "paint", '{"to":"red","n":[1,2]}'),
    ToolCallChunk(1, "p1", "add", "{}"),
    Finish("tool_calls"),
)


def split(delta: ModelDelta, at: int) -> list[ModelDelta]:
    match delta:
        case TextChunk(text):
            return [TextChunk(text[:at]), TextChunk(text[at:])]
        case ToolCallChunk(slot, provider_id, name, arguments):
            return [
                ToolCallChunk(slot, provider_id, name, arguments[:at]),
                ToolCallChunk(slot, arguments=arguments[at:]),
            ]
        case _:
            return [delta]


def test_the_turn_is_the_same_wherever_its_pieces_are_split() -> None:
    _, whole = assembled(*WHOLE)
    for at in range(25):
        events, turn = assembled(*(piece for delta in WHOLE for piece in split(delta, at)))
        assert turn == whole
        assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "Hello, wörld"
        for call in turn.message.tool_calls:
            pieces = [
                e.delta for e in events if isinstance(e, ToolCallArguments) and e.call_id == call.id
            ]
            assert "".join(pieces) == call.arguments
            assert "" not in pieces


@pytest.mark.parametrize("size", range(1, 9))
def test_batches_change_nothing(size: int) -> None:
    deltas = [piece for delta in WHOLE for piece in split(delta, 3)]
    one = assembler()
    events: list[RunEvent] = []
    for start in range(0, len(deltas), size):
        events.extend(one.feed(deltas[start : start + size]))
    last, turn = one.finish()
    assert ([*events, *last], turn) == assembled(*deltas)
