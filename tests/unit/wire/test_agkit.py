"""`/send-message`: what is posted becomes a command or a 4xx before anything is stored; the answer is the run's log."""

from typing import Any
from urllib.parse import unquote

import anyio
import pytest
from starlette.types import ASGIApp
from tests.support.bridge import Answer, ask, ask_json, exchange
from tests.support.logged_runs import RUN, LoggedRuns

from passback.core.errors import ConversationBusy, NothingToDo
from passback.core.events import Completed, RunFinished, RunStarted, TextDelta
from passback.core.messages import (
    CallId,
    ConversationId,
    ConversationKey,
    DataPart,
    MediaPart,
    Owed,
    OwnerId,
    SystemMessage,
    TextPart,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from passback.core.ports import Parked
from passback.transport.access import Access
from passback.transport.site import build_site
from passback.transport.sse import OPENING
from passback.transport.wires import Services
from passback.wire.agkit import build

pytestmark = pytest.mark.anyio

PATH = "/send-message"
OPEN = Access()
HELLO: dict[str, Any] = {
    "conversationId": "c",
    "messages": [{"role": "user", "content": "hello"}],
}
ANSWER = b'id: run_1.1-2\ndata: {"type":"text","content":"hi"}\n\nid: run_1.1-3\ndata: [DONE]\n\n'


def _runs() -> LoggedRuns:
    return LoggedRuns(RunStarted(RUN.run_id), TextDelta("hi"), RunFinished(Completed()))


def _app(runs: LoggedRuns, access: Access = OPEN, **settings: Any) -> ASGIApp:
    services = Services(runs, anyio.Event(), dict, **settings)
    return build_site([build(services)], access)


async def _post(runs: LoggedRuns, value: object, **request: Any) -> Answer:
    return await ask_json(_app(runs), "POST", PATH, value, **request)


# ---------------------------------------------------------------- what is understood
@pytest.mark.parametrize("path", [PATH, "/v1/aibot/bots/any-agent/send-message"])
async def test_a_post_is_answered_with_the_log_of_its_run(path: str) -> None:
    runs = _runs()
    answer = await ask_json(_app(runs), "POST", path, HELLO)
    assert (answer.status, answer.body) == (200, OPENING.encode() + ANSWER)
    assert answer.headers["x-run-id"] == "run_1"
    [command] = runs.commands
    assert command.key == ConversationKey(OwnerId("anonymous"), ConversationId("c"))
    assert [type(message) for message in command.messages] == [UserMessage]
    assert command.tools is None


@pytest.mark.promise("P13")
async def test_the_conversation_belongs_to_the_owner_of_the_key() -> None:
    runs = _runs()
    app = _app(runs, Access(keys={"a-key": OwnerId("alice")}))
    await ask_json(app, "POST", PATH, HELLO, headers={"authorization": "Bearer a-key"})
    assert runs.commands[0].key.owner == "alice"


@pytest.mark.parametrize("missing", [{}, {"conversationId": None}])
async def test_a_conversation_without_id_gets_one_of_its_own(missing: dict[str, Any]) -> None:
    runs = _runs()
    for _ in range(2):
        await _post(runs, missing | {"messages": HELLO["messages"]})
    first, second = (command.key.id for command in runs.commands)
    assert first != second
    assert len(first) > 20


async def test_messages_are_read_in_their_order() -> None:
    runs = _runs()
    messages = [
        {"role": "tool", "content": "blue", "toolCallId": "call_1", "id": "ignored"},
        {"role": "tool", "content": {"ok": False}, "toolCallId": "call_2", "isError": True},
        {"role": "user", "content": "and now?", "botId": 1},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "see"},
                {"type": "image_url", "image_url": {"url": "https://x/"}},
            ],
        },
    ]
    await _post(runs, HELLO | {"messages": messages, "botId": "b", "msg": 1})
    ids = [message.id for message in runs.commands[0].messages]
    assert runs.commands[0].messages == (
        ToolMessage(ids[0], CallId("call_1"), "blue"),
        ToolMessage(ids[1], CallId("call_2"), (DataPart({"ok": False}),), is_error=True),
        UserMessage(ids[2], "and now?"),
        UserMessage(ids[3], (TextPart("see"), MediaPart("image", "https://x/"))),
    )
    assert len(set(ids)) == 4


@pytest.mark.parametrize(
    ("tools", "specs"),
    [
        (None, None),
        ([], ()),
        (
            [{"name": "t", "parameters": '{"type": "object"}'}],
            (ToolSpec("t", "", {"type": "object"}),),
        ),
    ],
)
async def test_tools_replace_clear_or_keep(tools: object, specs: object) -> None:
    runs = _runs()
    await _post(runs, HELLO | {"tools": tools})
    assert runs.commands[0].tools == specs


async def test_a_system_message_is_read_where_the_settings_allow_it() -> None:
    runs = _runs()
    app = _app(runs, allow_roles=frozenset({"user", "tool", "system"}))
    await ask_json(app, "POST", PATH, {"messages": [{"role": "system", "content": "be kind"}]})
    [message] = runs.commands[0].messages
    assert message == SystemMessage(message.id, "be kind")


@pytest.mark.parametrize("conversation", ["c", "a b", "é/ü?#%", "x" * 256, "😀"])
async def test_a_conversations_id_may_be_any_short_text(conversation: str) -> None:
    runs = _runs()
    runs.answer = Parked(ConversationKey(OwnerId("o"), ConversationId(conversation)), ())
    answer = await _post(runs, HELLO | {"conversationId": conversation})
    assert runs.commands[0].key.id == conversation
    assert unquote(answer.headers["x-conversation-id"]) == conversation


# ---------------------------------------------------------------- more events, again, still owed
async def test_more_events_come_to_those_who_ask() -> None:
    answer = await _post(_runs(), HELLO | {"include": ["run", "tomorrow"]})
    assert b'data: {"type":"run-start","runId":"run_1"}\n\n' in answer.body
    assert b'data: {"type":"run-end","outcome":"completed","reason":"end_turn"}\n\n' in answer.body


@pytest.mark.parametrize(
    ("seen", "rest"),
    [
        ("run_1.1-2", b"id: run_1.1-3\ndata: [DONE]\n\n"),
        ("run_0.1-2", ANSWER),
        ("", ANSWER),
    ],
)
async def test_a_repeated_post_gets_what_it_has_not_seen_of_the_run_it_joins(
    seen: str, rest: bytes
) -> None:
    answer = await _post(_runs(), HELLO, headers={"last-event-id": seen})
    assert answer.body == OPENING.encode() + rest


STILL_OWED = (Owed(CallId("call_1"), "t", "{}"), Owed(CallId("call_2"), "u", "{}"))


async def test_results_that_are_not_all_say_what_is_still_owed() -> None:
    runs = _runs()
    runs.answer = Parked(RUN.key, STILL_OWED)
    answer = await _post(runs, HELLO)
    assert (answer.status, answer.body) == (
        200,
        b": still owed: call_1 call_2\n\ndata: [DONE]\n\n",
    )
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["x-owed-tool-calls"] == "call_1,call_2"
    assert answer.headers["x-conversation-id"] == "c"
    assert "x-run-id" not in answer.headers


async def test_what_is_still_owed_is_an_event_for_those_who_ask() -> None:
    runs = _runs()
    runs.answer = Parked(RUN.key, STILL_OWED[:1])
    answer = await _post(runs, HELLO | {"include": ["owed"]})
    assert answer.body == (
        b": still owed: call_1\n\n"
        b'data: {"type":"owed","toolCalls":'
        b'[{"id":"call_1","name":"t","arguments":"{}","kind":"tool_result"}]}\n\n'
        b"data: [DONE]\n\n"
    )


# ---------------------------------------------------------------- what is refused
def _message(**message: object) -> dict[str, Any]:
    return {"messages": [message]}


UNFIT: dict[str, tuple[dict[str, Any], int, str]] = {
    "an unknown role": (_message(role="robot", content="x"), 422, "invalid_request"),
    "no role": (_message(content="x"), 422, "invalid_request"),
    "a role that is no text": (_message(role=1, content="x"), 422, "invalid_request"),
    "a forged system message": (_message(role="system", content="x"), 422, "invalid_request"),
    "a forged answer": (_message(role="assistant", content="x"), 422, "invalid_request"),
    "no content": (_message(role="user"), 422, "invalid_request"),
    "empty content": (_message(role="user", content=" "), 422, "invalid_request"),
    "content of the wrong kind": (_message(role="user", content=1), 422, "invalid_request"),
    "content that is an object": (_message(role="user", content={}), 422, "invalid_request"),
    "an unknown part": (_message(role="user", content=[{"type": "x"}]), 422, "invalid_request"),
    "a result without call": (_message(role="tool", content="x"), 422, "invalid_request"),
    "a result with an empty call": (
        _message(role="tool", content="x", toolCallId=""),
        422,
        "invalid_request",
    ),
    "a result with a call that is no text": (
        _message(role="tool", content="x", toolCallId=1),
        422,
        "invalid_request",
    ),
    "a result with a huge call": (
        _message(role="tool", content="x", toolCallId="x" * 1_000_000),
        422,
        "invalid_request",
    ),
    "a result without content": (_message(role="tool", toolCallId="c"), 422, "invalid_request"),
    "an error flag that is no flag": (
        _message(role="tool", content="x", toolCallId="c", isError="no"),
        422,
        "invalid_request",
    ),
    "a message that is no object": ({"messages": ["hello"]}, 422, "invalid_request"),
    "messages that are no list": ({"messages": "hello"}, 422, "invalid_request"),
    "messages that are null": ({"messages": None}, 422, "invalid_request"),
    "too many messages": ({"messages": HELLO["messages"] * 1001}, 422, "invalid_request"),
    "an id that is no text": ({"conversationId": 7}, 422, "invalid_request"),
    "an empty id": ({"conversationId": ""}, 422, "invalid_request"),
    "an id of 257 characters": ({"conversationId": "x" * 257}, 422, "invalid_request"),
    "an id of a megabyte": ({"conversationId": "x" * 1_000_000}, 422, "invalid_request"),
    "an id with NUL": ({"conversationId": "a\0b"}, 422, "invalid_request"),
    "an id with a line break": ({"conversationId": "a\r\nX-Y: z"}, 422, "invalid_request"),
    "an id with a C1 control": ({"conversationId": "a\u0085b"}, 422, "invalid_request"),
    "tools that are no list": ({"tools": {}}, 422, "invalid_request"),
    "a tool without name": ({"tools": [{"parameters": {}}]}, 422, "invalid_tool"),
    "a tool that is no object": ({"tools": [1]}, 422, "invalid_tool"),
    "two tools of one name": (
        {"tools": [{"name": "t"}, {"name": "T"}]},
        422,
        "tool_name_clash",
    ),
    "a schema that is no JSON": (
        {"tools": [{"name": "t", "parameters": "{"}]},
        422,
        "invalid_tool",
    ),
    "a schema that is none": (
        {"tools": [{"name": "t", "parameters": {"type": 5}}]},
        422,
        "invalid_tool",
    ),
    "a schema with a remote reference": (
        {"tools": [{"name": "t", "parameters": {"$ref": "http://127.0.0.1:1/"}}]},
        422,
        "invalid_tool",
    ),
    "include that is no list": ({"include": "run"}, 422, "invalid_request"),
    "include of other things": ({"include": [1]}, 422, "invalid_request"),
    "resume that is no object": ({"resume": "yes"}, 422, "invalid_request"),
    "resume without id": ({"resume": {"payload": 1}}, 422, "invalid_request"),
    "resume of nothing": ({"resume": {"interruptId": "i", "payload": {}}}, 404, "not_found"),
}


@pytest.mark.promise("P12", "P13")
@pytest.mark.parametrize(("unfit", "status", "code"), UNFIT.values(), ids=UNFIT.keys())
async def test_what_does_not_fit_is_refused_and_goes_no_further(
    unfit: dict[str, Any], status: int, code: str
) -> None:
    runs = _runs()
    answer = await _post(runs, HELLO | unfit, headers={"x-request-id": "r"})
    assert (answer.status, answer.code, answer.json["request_id"]) == (status, code, "r")
    assert len(answer.body) < 2000
    assert runs.commands == []


@pytest.mark.promise("P12")
async def test_a_malformed_event_id_is_refused_before_anything_is_stored() -> None:
    runs = _runs()
    answer = await _post(runs, HELLO, headers={"last-event-id": "nonsense"})
    assert (answer.status, answer.code) == (422, "invalid_cursor")
    assert runs.commands == []


async def test_what_is_wrong_is_told_by_its_place() -> None:
    answer = await _post(_runs(), _message(role="tool", content="secret", toolCallId=5))
    assert answer.json["details"] == {
        "problems": [
            {"at": "messages.0.tool.toolCallId", "problem": "Input should be a valid string"}
        ]
    }
    assert b"secret" not in answer.body


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    ("error", "status"), [(NothingToDo("no"), 422), (ConversationBusy("later"), 409)]
)
async def test_a_refusal_of_the_runs_is_an_answer_and_no_stream(error: Any, status: int) -> None:
    runs = _runs()
    runs.answer = error
    answer = await _post(runs, HELLO)
    assert (answer.status, answer.code) == (status, error.code)


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded"])
async def test_a_form_of_a_foreign_page_is_refused(media_type: str) -> None:
    runs = _runs()
    headers = {"content-type": media_type}
    async with exchange(_app(runs), "POST", PATH, headers=headers, body=b'{"a":1}') as one:
        assert one.status == 415
    assert runs.commands == []


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_only_posts_are_routed(method: str) -> None:
    answer = await ask(_app(_runs()), method, PATH)
    assert (answer.status, answer.code, answer.headers["allow"]) == (
        405,
        "method_not_allowed",
        "POST",
    )


@pytest.mark.promise("P11")
@pytest.mark.parametrize(
    "post",
    [
        {"messages": [1] * 200_000},
        {"messages": [{"role": "user", "content": [1] * 200_000}]},
        {"messages": [{"role": "user", "content": "x"}] * 1001},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 1001}]},
        {**HELLO, "include": [1] * 200_000},
        {**HELLO, "include": ["x"] * 101},
    ],
    ids=["messages", "parts", "many messages", "many parts", "include", "many words"],
)
async def test_of_a_list_that_is_wrong_all_over_only_the_beginning_is_told(
    post: dict[str, object],
) -> None:
    runs = _runs()
    answer = await _post(runs, post)
    assert (answer.status, answer.json["code"]) == (422, "invalid_request")
    assert len(answer.json["details"]["problems"]) <= 2
    assert runs.commands == []
