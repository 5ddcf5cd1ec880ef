"""JSON that the client's parser refuses: its keys would change prototypes in JavaScript."""

import json
from typing import Any

import pytest
from tests.support.ai_sdk import Json
from tests.unit.wire.ai_sdk_chunks import (
    END,
    SERVER,
    TURN,
    A,
    B,
    body,
    call,
    failure,
    output,
    play,
)
from tests.unit.wire.test_ai_sdk_history import parts_of, result, said

from passback.core.events import (
    HandedBack,
    OutputAccepted,
    RunFinished,
    StateChanged,
    ToolResulted,
)
from passback.core.messages import (
    CallId,
    ChildMessage,
    DataPart,
    Owed,
    TextPart,
    ToolCall,
    ToolMessage,
)
from passback.wire.ai_sdk.encoder import NOT_MADE
from passback.wire.ai_sdk.json_values import (
    REFUSED_INPUT,
    read_arguments,
    show_output,
    show_value,
    takes_arguments,
)

PROTO = '{"a":"你","__proto__":{"b":1}}'
REFUSED = [
    PROTO,
    '{"__proto__":null}',
    '{"\\u005f_proto__":1}',
    '{"a":[[{"b":{"__proto__":[]}}]]}',
    '{"constructor":{"prototype":1}}',
    '[{"a":{"constructor":{"a":0,"prototype":{}}}}]',
]
TAKEN = [
    "{}",
    '"__proto__"',
    '{"a":"__proto__","prototype":{}}',
    '{"constructor":"prototype"}',
    '{"constructor":["prototype",{"prototype":1}]}',
    '{"constructor":{"a":{"prototype":1}}}',
]
OWED = RunFinished(HandedBack((Owed(A, "look", PROTO),)))


@pytest.mark.parametrize("text", REFUSED)
def test_what_the_client_refuses_is_shown_as_its_text(text: str) -> None:
    value = json.loads(text)
    assert not takes_arguments(text)
    assert read_arguments(text) == text
    shown = show_value(value)
    assert isinstance(shown, str)
    assert json.loads(shown) == value
    assert show_output((DataPart(value),)) == shown
    parts = show_output((TextPart("x"), DataPart(value)))
    assert isinstance(parts, str)
    assert json.loads(parts) == [{"type": "text", "text": "x"}, {"type": "data", "data": value}]


@pytest.mark.parametrize("text", TAKEN)
def test_anything_else_is_shown_as_it_is(text: str) -> None:
    value = json.loads(text)
    assert takes_arguments(text)
    assert read_arguments(text) == show_value(value) == show_output((DataPart(value),)) == value
    assert show_output(text) == text


def test_what_is_no_json_is_shown_as_its_text() -> None:
    assert read_arguments("{") == "{"
    assert takes_arguments("{")


# ---------------------------------------------------------------- live
def shown_input(kind: str, **more: Any) -> Json:
    return {"type": kind, "toolCallId": A, "toolName": "look", "input": PROTO, **more}


def test_a_call_of_the_server_goes_on_with_its_arguments_as_a_text() -> None:
    value: Any = {"__proto__": 1}
    chunks = body(TURN, *call(A, PROTO), ToolResulted(A, (DataPart(value),)))
    assert shown_input("tool-input-available", **SERVER) in chunks
    assert output(A, '{"__proto__":1}') in chunks


def test_a_call_of_the_client_has_failed_and_is_not_made() -> None:
    parent = {"toolMetadata": {"parentToolCallId": B}}
    failed = shown_input("tool-input-error", errorText=REFUSED_INPUT)
    chunks = play(TURN, *call(A, PROTO, client=True), OWED)
    assert [each for each in chunks if each["type"] == "tool-input-error"] == [failed]
    assert not any(each["type"] == "tool-input-available" for each in chunks)
    assert chunks[-1]["finishReason"] == "tool-calls"
    # one of which the client knows nothing
    late = RunFinished(HandedBack((Owed(A, "look", PROTO, parent_id=B),)))
    assert {**failed, **parent} in play(late)


def test_a_call_of_the_client_that_ends_without_a_result_says_so() -> None:
    assert failure(A, NOT_MADE) in body(TURN, *call(A, PROTO, client=True))


def test_a_person_who_is_asked_sees_the_arguments_as_a_text() -> None:
    asks = RunFinished(HandedBack((Owed(A, "look", PROTO, "approval"),)))
    for live in ((TURN, *call(A, PROTO)), (TURN,)):
        chunks = play(*live, asks)
        [delta] = [each for each in chunks if each["type"] == "tool-input-delta"][-1:]
        assert json.loads(delta["inputTextDelta"]) == PROTO
        kinds = [each["type"] for each in chunks]
        assert kinds.index("tool-approval-request") > kinds.index("tool-input-delta")


def test_structured_output_is_shown_as_a_text_and_such_state_is_left_out() -> None:
    state = StateChanged({"a": 1, "__proto__": 2, "b": {"__proto__": 3}}, ("__proto__",))
    chunks = play(OutputAccepted({"constructor": {"prototype": 1}}), state, END)
    shown = {each["type"]: each["data"] for each in chunks if each["type"].startswith("data-")}
    assert shown == {
        "data-output": '{"constructor":{"prototype":1}}',
        "data-state": {"type": "state", "values": {"a": 1}, "removed": ["__proto__"]},
    }


# ---------------------------------------------------------------- loaded
OWN = ToolCall(CallId("call_o"), "paint", PROTO, client=True)
SERVERS = ToolCall(CallId("call_s"), "look", PROTO)
ASKED = ToolCall(CallId("call_q"), "wipe", PROTO, asks="approval")


@pytest.mark.anyio
async def test_a_chat_that_is_loaded_shows_the_same() -> None:
    own, servers, asked = (await parts_of(said("", OWN, SERVERS, ASKED)))[1:]
    assert own == {
        "type": "tool-paint",
        "toolCallId": "call_o",
        "state": "output-error",
        "input": PROTO,
        "errorText": REFUSED_INPUT,
    }
    assert (servers["state"], servers["input"]) == ("input-available", PROTO)
    assert (asked["state"], asked["input"]) == ("approval-requested", PROTO)


@pytest.mark.anyio
async def test_a_loaded_call_of_the_client_that_failed_has_the_end_that_it_had() -> None:
    async def ends(*more: Any) -> list[Json]:
        parts = await parts_of(said("", OWN), *more)
        return [each for each in parts if "toolCallId" in each]

    error = ToolMessage(result(OWN).id, OWN.id, REFUSED_INPUT, is_error=True)
    [posted] = await ends(error)
    assert "providerExecuted" not in posted
    assert (posted["state"], posted["errorText"]) == ("output-error", REFUSED_INPUT)
    [answered] = await ends(result(OWN, (DataPart({"__proto__": 1}),)))
    assert (answered["state"], answered["output"]) == ("output-available", '{"__proto__":1}')
    inner = ChildMessage(SERVERS.id, said("", OWN, at=2))
    # the sub-agent that made it has ended
    [_, unmade] = [
        each
        for each in await parts_of(said("", SERVERS), inner, result(SERVERS))
        if "toolCallId" in each
    ]
    assert (unmade["errorText"], unmade["providerExecuted"]) == (NOT_MADE, True)


@pytest.mark.anyio
async def test_a_client_that_loads_a_failed_call_does_not_post_it_by_itself() -> None:
    parts = await parts_of(said("", OWN))
    assert parts[-1] == {"type": "step-start"}
