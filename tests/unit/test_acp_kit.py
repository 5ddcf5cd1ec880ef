"""What the tests of ACP hold an agent to: faults in its frames are found."""

from typing import Any

import pytest
from tests.support.acp_order import Frame, order_faults
from tests.support.acp_schema import Json, faults_of

pytestmark = pytest.mark.node  # the schema is in an npm package

TEXT: Json = {"type": "text", "text": "a"}


def update(kind: str, /, **fields: Any) -> Json:
    params = {"sessionId": "s", "update": {"sessionUpdate": kind, **fields}}
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}


def answer(result: Any = None, key: Any = 1, **more: Any) -> Json:
    frame = {"jsonrpc": "2.0", "id": key, **more}
    return frame if "error" in more else {**frame, "result": {} if result is None else result}


def asks(method: str, key: int, **params: Any) -> Json:
    return {
        "jsonrpc": "2.0",
        "id": key,
        "method": method,
        "params": {"sessionId": "s", **params},
    }


@pytest.mark.parametrize(
    ("frame", "asked"),
    [
        (update("agent_message_chunk", content=TEXT, messageId="m"), None),
        (update("plan", entries=[{"content": "a", "priority": "low", "status": "pending"}]), None),
        (update("tool_call", toolCallId="c", title="t", kind="edit", rawInput={"any": 1}), None),
        (update("tool_call_update", toolCallId="c", _meta={"any": 1}), None),
        (answer({"stopReason": "end_turn"}), "session/prompt"),
        (answer(error={"code": -32602, "message": "no", "data": {"any": 1}}), "session/prompt"),
        (answer(error={"code": -32700, "message": "no"}, key=None), None),
        (answer({"any": 1}), "_passback/anything"),
        (asks("_passback/tool_call", 3, any=1), None),
        ({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 3}}, None),
    ],
)
def test_a_frame_of_the_protocol_has_no_faults(frame: Json, asked: str | None) -> None:
    assert faults_of(frame, asked) == []


@pytest.mark.parametrize(
    ("frame", "asked", "fault"),
    [
        ([], None, "is no object"),
        ({"id": 1, "result": {}}, "session/close", "has no jsonrpc 2.0"),
        (update("agent_massage_chunk", content=TEXT), None, "is not valid under any"),
        (update("agent_message_chunk", content={**TEXT, "more": 1}), None, "is not valid"),
        (update("agent_message_chunk", content=TEXT, id="m"), None, "'id' was unexpected"),
        (update("tool_call", toolCallId="c"), None, "'title' is a required property"),
        (update("tool_call", toolCallId="c", title="t", kind="burn"), None, "'burn' is not valid"),
        (
            update("tool_call_update", toolCallId="c", status="cancelled"),
            None,
            "'cancelled' is not",
        ),
        (answer({"stopReason": "done"}), "session/prompt", "'done' is not valid"),
        (answer({"sessionId": "s", "models": {}}), "session/new", "'models' was unexpected"),
        (answer({}), "session/fork", "is no method of an agent"),
        (answer({}), None, "answers what was no request"),
        (answer(error={"code": "x", "message": "no"}), "session/new", "'x' is not valid"),
        (answer({}, error={"code": 1, "message": "no"}) | {"result": {}}, "x", "exactly one"),
        (answer({}) | {"params": {}}, "session/close", "fields that JSON-RPC does not have"),
        ({"jsonrpc": "2.0", "method": "session/request_permission"}, None, "without an id"),
        ({**update("plan", entries=[]), "id": 1}, None, "is a notification and has an id"),
        (asks("session/fork", 1), None, "is no method of a client"),
        (asks("fs/read_text_file", 1), None, "'path' is a required property"),
    ],
)
def test_a_frame_that_is_not_of_the_protocol_is_found(
    frame: Any, asked: str | None, fault: str
) -> None:
    assert fault in "\n".join(faults_of(frame, asked))


# ---------------------------------------------------------------- order
CAPABILITIES: Json = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}
OPTIONS = [
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]
START = [
    Frame(True, asks("initialize", 1, clientCapabilities=CAPABILITIES)),
    Frame(False, answer({})),
    Frame(True, asks("session/new", 2)),
    Frame(False, answer({"sessionId": "s"}, key=2)),
    Frame(True, asks("session/prompt", 3)),
]
END = Frame(False, answer({"stopReason": "end_turn"}, key=3))


def announced(call: str = "c") -> Frame:
    return Frame(False, update("tool_call", toolCallId=call, title="t"))


def becomes(status: str, call: str = "c") -> Frame:
    return Frame(False, update("tool_call_update", toolCallId=call, status=status))


SAYS = Frame(False, update("agent_message_chunk", content=TEXT))
RUNS = (becomes("in_progress"), becomes("completed"))
PERMISSION = Frame(
    False, asks("session/request_permission", 9, toolCall={"toolCallId": "c"}, options=OPTIONS)
)
WITHDRAWN = Frame(
    False, {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 9}}
)
READS = Frame(False, asks("fs/read_text_file", 8, path="/a"))
CREATES = Frame(False, asks("terminal/create", 7, command="ls"))
CREATED = Frame(True, answer({"terminalId": "t"}, key=7))
LOADS = Frame(True, asks("session/load", 4))
LOADED = Frame(False, answer({}, key=4))
CANCELS = Frame(True, {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s"}})
CANCELLED = Frame(False, answer({"stopReason": "cancelled"}, key=3))


def chosen(option: str) -> Frame:
    outcome = {"outcome": "selected", "optionId": option}
    return Frame(True, answer({"outcome": outcome}, key=9))


@pytest.mark.parametrize(
    "frames",
    [
        [SAYS, END],
        [SAYS, announced(), PERMISSION, chosen("yes"), *RUNS, SAYS, END],
        [announced(), PERMISSION, chosen("no"), becomes("failed"), SAYS, END],
        [announced(), becomes("in_progress"), READS, becomes("completed"), END],
        [announced(), becomes("failed"), CANCELS, CANCELLED],
        [announced(), PERMISSION, WITHDRAWN, becomes("failed"), chosen("yes"), END],
        [announced(), PERMISSION, WITHDRAWN, chosen("no"), *RUNS, END],
        [announced(), *RUNS, END, LOADS, announced(), becomes("completed"), SAYS, LOADED],
    ],
)
def test_a_turn_in_order_has_no_faults(frames: list[Frame]) -> None:
    assert order_faults([*START, *frames]) == []


@pytest.mark.parametrize(
    ("frames", "fault"),
    [
        ([END, SAYS], "outside of a prompt"),
        ([END, END], "waits for no answer"),
        ([CANCELLED], "nobody cancelled"),
        ([becomes("in_progress")], "before it is announced"),
        ([announced(), announced()], "a second time"),
        ([announced(), becomes("completed")], "from pending to completed"),
        ([announced(), *RUNS, becomes("failed")], "which is completed"),
        ([announced(), END], "before its calls have ended"),
        ([announced(), PERMISSION, becomes("in_progress")], "while it asks for permission"),
        ([announced(), PERMISSION, chosen("no"), becomes("in_progress")], "was refused"),
        ([announced(), WITHDRAWN, PERMISSION, becomes("failed")], "while it asks for permission"),
        ([announced(), becomes("in_progress"), PERMISSION], "which is in_progress"),
        ([PERMISSION], "which is None"),
        ([READS], "while no call is open"),
        ([END, READS], "outside of a prompt"),
        ([announced(), READS, READS], "of a request that waits"),
        ([Frame(False, asks("elicitation/create", 5))], "does not offer"),
        ([Frame(False, update("notice", severity="info", title="t"))], "does not offer to show"),
        ([Frame(False, update("user_message_chunk", content=TEXT))], "repeats what the user says"),
        ([announced(), CREATES, CREATED, becomes("failed"), END], "released the terminals"),
        ([Frame(False, asks("terminal/kill", 5, terminalId="t"))], "no terminal that is there"),
        ([END, Frame(True, asks("session/resume", 4)), SAYS], "while a session is resumed"),
        ([END, Frame(True, asks("session/close", 4)), LOADED, SAYS], "that is closed"),
    ],
)
def test_a_turn_out_of_order_is_found(frames: list[Frame], fault: str) -> None:
    assert fault in "\n".join(order_faults([*START, *frames]))


def test_an_update_before_the_answer_of_session_new_is_found() -> None:
    [fault] = order_faults([*START[:3], Frame(False, update("available_commands_update"))])
    assert fault == "frame 3: sends available_commands_update before the client knows the session"
