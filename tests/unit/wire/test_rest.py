"""The native routes of a conversation, its messages and its runs, and of the server."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from starlette.types import ASGIApp
from tests.support.asgi_client import Answer, ask, ask_json
from tests.support.logged_runs import OPENING, RUN, LoggedRuns
from tests.unit.wire.send_message_site import STREAM, greeting

from passback.core.changes import ClaimedCall, Status
from passback.core.errors import CursorExpired, ShuttingDown, StoreUnavailable
from passback.core.messages import (
    CallId,
    ConversationId,
    MessageId,
    Owed,
    OwnerId,
    RunId,
    RunRef,
    UserMessage,
)
from passback.core.runs import BranchPoint
from passback.core.signals import Signal
from passback.core.state import State
from passback.http.gate import Access
from passback.http.requests import keyed_conversation_id, posted_conversation_id
from passback.http.routing import Endpoint
from passback.http.site import build_site
from passback.http.wires import Services
from passback.wire.rest import build

pytestmark = pytest.mark.anyio

KEY = RUN.key
OPEN = Access()
IDLE = Status(3, RUN.run_id, message_count=2)


def _runs(status: Status = IDLE, conversation: str = "c") -> LoggedRuns:
    runs = greeting()
    runs.known[replace(KEY, id=ConversationId(conversation))] = status
    return runs


def _app(runs: LoggedRuns, access: Access = OPEN) -> ASGIApp:
    services = Services(runs, Signal())
    return build_site([build(services)], access)


async def _get(runs: LoggedRuns, path: str, **headers: str) -> Answer:
    return await ask(_app(runs), "GET", path, headers=headers)


# ---------------------------------------------------------------- one conversation
async def test_a_conversation_is_shown_without_its_messages() -> None:
    owed = (Owed(CallId("call_1"), "paint", '{"color":"blue"}'),)
    status = Status(3, RUN.run_id, running=False, owed=owed, message_count=2)
    status = replace(status, title="a title", created=1000, updated=2500)
    answer = await _get(_runs(status), "/conversations/c")
    assert answer.status == 200
    assert answer.json == {
        "id": "c",
        "title": "a title",
        "createdAt": "1970-01-01T00:00:01.000Z",
        "updatedAt": "1970-01-01T00:00:02.500Z",
        "status": "idle",
        "runId": "run_1",
        "running": None,
        "queued": [],
        "owed": [
            {
                "id": "call_1",
                "name": "paint",
                "arguments": '{"color":"blue"}',
                "kind": "tool_result",
                "deadline": None,
                "claimedUntil": None,
            }
        ],
        "messageCount": 2,
        "usage": {"inputTokens": 0, "outputTokens": 0, "cachedTokens": 0, "reasoningTokens": 0},
        "cost": 0.0,
        "seconds": 0.0,
        "plan": [],
        "state": {},
        "refusals": [],
        "permissions": [],
    }


async def test_the_shared_state_is_shown() -> None:
    runs = _runs(replace(IDLE, state=State(shared={"color": "red"})))
    assert (await _get(runs, "/conversations/c")).json["state"] == {"color": "red"}


async def test_structured_data_is_shown_on_request() -> None:
    runs = _runs(replace(IDLE, state=State(data={"rows": [1]})))
    assert "structuredData" not in (await _get(runs, "/conversations/c")).json
    answer = await _get(runs, "/conversations/c?include=,structuredData")
    assert answer.json["structuredData"] == {"rows": [1]}


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("/conversations/c?include=data", "structuredData"),
        ("/conversations/c?include=structuredData,usage", "structuredData"),
        (
            "/conversations/c/stream?include=run,foo",
            (
                "agents, context, message-ids, output, owed, plan, progress, "
                "reasoning, rewind, run, state, tools, usage"
            ),
        ),
    ],
)
async def test_an_unknown_include_is_refused_with_the_known_ones(path: str, known: str) -> None:
    answer = await _get(_runs(), path)
    assert (answer.status, answer.code) == (422, "invalid_request")
    assert answer.json["message"] == f"include: each word has to be one of {known}"


async def test_a_lasting_permission_is_retracted_by_the_name_of_its_tool() -> None:
    runs = _runs()
    gone = await ask(_app(runs), "DELETE", "/conversations/c/permissions/rm")
    assert (gone.status, gone.body) == (204, b"")
    assert runs.retracted == [(KEY, "rm")]


async def test_owed_calls_are_shown_with_their_deadline_and_their_claims() -> None:
    owed = tuple(Owed(CallId(call), "paint", "{}") for call in ("call_1", "call_2"))
    until = 1_769_860_800_250
    claims = (ClaimedCall(CallId("call_2"), until - 250),)
    status = Status(3, RUN.run_id, owed=owed, answer_by=until, claims=claims)
    answer = await _get(_runs(status), "/conversations/c")
    deadline, claimed = "2026-01-31T12:00:00.250Z", "2026-01-31T12:00:00.000Z"
    times = [(each["id"], each["deadline"], each["claimedUntil"]) for each in answer.json["owed"]]
    assert times == [("call_1", deadline, None), ("call_2", deadline, claimed)]


async def test_a_conversation_shows_its_running_and_queued_runs() -> None:
    queued = (RunId("run_2"), RunId("run_3"))
    status = replace(IDLE, running=True, run_start=4, attempt=2, queued=queued)
    answer = await _get(_runs(status), "/conversations/c")
    assert answer.json["status"] == "running"
    assert answer.json["running"] == {"runId": "run_1", "firstMessage": 4, "attempt": 2}
    assert answer.json["queued"] == ["run_2", "run_3"]


# every route of a conversation; those of its calls need a body, see test_rest_calls.py
ROUTES = [
    (method, re.sub(r"\{\w+\}", "rm", route.path.replace("{id}", "{}")))
    for route in build(Services(LoggedRuns(), Signal())).routes
    if isinstance(route, Endpoint) and "{id}" in route.path and "{callId}" not in route.path
    for method in sorted((route.methods or set()) - {"HEAD"})
]


async def _try(
    app: ASGIApp, method: str, path: str, headers: Mapping[str, str] | None = None
) -> Answer:
    """Send a request, with a body where the method needs one."""
    if method == "PATCH":
        return await ask_json(app, method, path, {"title": "a title"}, headers=headers or {})
    if path.endswith("/leaf"):
        return await ask_json(app, method, path, {"message": "msg_1"}, headers=headers or {})
    return await ask(app, method, path, headers=headers or {})


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_an_unknown_conversation_is_not_found(method: str, path: str) -> None:
    answer = await _try(_app(_runs()), method, path.format("other"))
    assert (answer.status, answer.code) == (404, "conversation_not_found")


@pytest.mark.promise("P13", "P17")
@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_a_conversation_of_another_owner_is_not_found(method: str, path: str) -> None:
    app = _app(_runs(), Access(keys={"a-key": OwnerId("alice")}))
    headers = {"authorization": "Bearer a-key"}
    answer = await _try(app, method, path.format("c"), headers)
    assert (answer.status, answer.code) == (404, "conversation_not_found")


@pytest.mark.promise("P12")
@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    ("given", "status"),
    [("%00", 422), ("a%0D%0Ab", 422), ("x" * 257, 422), ("%FF", 400), ("%ED%A0%80", 400)],
)
async def test_an_impossible_id_is_refused(method: str, path: str, given: str, status: int) -> None:
    assert (await _try(_app(_runs()), method, path.format(given))).status == status


@pytest.mark.parametrize(
    ("given", "conversation"),
    [
        ("a%2Fb", "a/b"),
        ("c%2Fmessages", "c/messages"),
        ("c%2Fstream", "c/stream"),
        ("%2F", "/"),
        ("a%20b", "a b"),
        ("%C3%A9", "é"),
        ("100%2525", "100%25"),
        ("messages", "messages"),
    ],
)
async def test_an_id_may_hold_anything_that_can_be_encoded(given: str, conversation: str) -> None:
    runs = _runs(conversation=conversation)
    assert (await _get(runs, f"/conversations/{given}")).json["id"] == conversation
    assert (await _get(runs, f"/conversations/{given}/messages")).status == 200


# ---------------------------------------------------------------- branches
BRANCHED = replace(IDLE, stored=4)


async def test_a_conversation_shows_its_branches_if_it_has_any() -> None:
    runs = _runs(BRANCHED)
    assert "branches" not in (await _get(runs, "/conversations/c")).json
    first, second, third = (MessageId(f"m{number}") for number in range(3))
    runs.points = [BranchPoint(None, (first, second), first), BranchPoint(first, (third,), None)]
    shown = (await _get(runs, "/conversations/c")).json["branches"]
    assert shown == [
        {"after": None, "versions": ["m0", "m1"], "current": "m0"},
        {"after": "m0", "versions": ["m2"], "current": None},
    ]
    runs.known[KEY] = replace(IDLE, stored=2)  # all of its messages are read
    assert "branches" not in (await _get(runs, "/conversations/c")).json


async def test_another_branch_is_read_from_now_on() -> None:
    runs = _runs()
    answer = await ask_json(_app(runs), "POST", "/conversations/c/leaf", {"message": "m1"})
    assert (answer.status, answer.json["id"]) == (200, "c")
    assert runs.switched == [(KEY, MessageId("m1"))]


@pytest.mark.parametrize(
    ("body", "after"),
    [({}, None), ({"after": None}, None), ({"after": ""}, ""), ({"after": "m"}, "m")],
)
async def test_a_conversation_is_copied(body: dict[str, Any], after: str | None) -> None:
    runs, path = _runs(), "/conversations/c/fork"
    copy = replace(KEY, id=ConversationId("d"))
    answer = await ask_json(_app(runs), "POST", path, body | {"conversationId": "d"})
    assert (answer.status, answer.json["id"]) == (201, "d")
    assert runs.forked == [(KEY, copy, after)]


async def test_a_copy_gets_an_id_of_its_own_or_that_of_its_key() -> None:
    runs, path = _runs(), "/conversations/c/fork"
    answers = [await ask(_app(runs), "POST", path) for _ in range(2)]
    keyed = [await ask(_app(runs), "POST", path, headers={"idempotency-key": "k"}) for _ in "ab"]
    assert len({each.json["id"] for each in (*answers, *keyed)} - {"c"}) == 3
    assert keyed[0].json["id"] == keyed[1].json["id"]


async def test_the_key_of_a_fork_belongs_to_the_conversation_that_is_copied() -> None:
    headers, owner = {"idempotency-key": "k"}, KEY.owner
    forks = [
        (await ask(_app(_runs(IDLE, name)), "POST", path, headers=headers)).json["id"]
        for name, path in (("c", "/conversations/c/fork"), ("d", "/conversations/d/fork"))
    ]
    begun = keyed_conversation_id(owner, "k")
    assert posted_conversation_id(owner, "k", None) == begun
    assert forks == [keyed_conversation_id(owner, "k", ConversationId(each)) for each in "cd"]
    assert len({*forks, begun}) == 3


async def test_a_copy_may_have_any_id_that_a_conversation_may_have() -> None:
    runs, named = _runs(), "\u202e\u00a0"
    body = {"conversationId": named}
    answer = await ask_json(_app(runs), "POST", "/conversations/c/fork", body)
    assert (answer.status, answer.json["id"]) == (201, named)


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        *(("leaf", body) for body in ({}, {"message": ""}, {"message": 1}, {"message": "a\n"})),
        *(("fork", body) for body in ({"after": 1}, {"after": "x" * 257}, {"conversationId": ""})),
        *(("fork", {"conversationId": name}) for name in ("{a}", "..", "a\n", "x" * 257)),
    ],
)
async def test_a_branch_that_cannot_be_is_refused(path: str, body: dict[str, Any]) -> None:
    runs = _runs()
    answer = await ask_json(_app(runs), "POST", f"/conversations/c/{path}", body)
    assert (answer.status, answer.code) == (422, "invalid_request")
    assert (runs.switched, runs.forked) == ([], [])


async def test_a_conversation_is_deleted_once() -> None:
    app = _app(_runs())
    gone = await ask(app, "DELETE", "/conversations/c", headers={"x-request-id": "r"})
    assert (gone.status, gone.body, gone.headers["x-request-id"]) == (204, b"", "r")
    assert (await ask(app, "DELETE", "/conversations/c")).status == 404


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_other_methods_are_not_allowed(method: str) -> None:
    answer = await ask(_app(_runs()), method, "/conversations/c")
    assert answer.status == 405
    assert {"GET", "DELETE"} <= set(answer.headers["allow"].split(", "))


# ---------------------------------------------------------------- messages
def _message(number: int) -> dict[str, Any]:
    return {"id": f"m{number}", "role": "user", "content": str(number)}


@pytest.mark.parametrize(
    ("query", "numbers", "following"),
    [
        ("", range(5), None),
        ("?limit=2", range(2), 2),
        ("?after=2&limit=2", range(2, 4), 4),
        ("?after=4&limit=2", range(4, 5), None),
        ("?after=3&limit=2", range(3, 5), None),
        ("?after=5", range(0), None),
        ("?after=99", range(0), None),
    ],
)
async def test_messages_come_in_pages(query: str, numbers: range, following: int | None) -> None:
    runs = _runs()
    runs.history = tuple(UserMessage(MessageId(f"m{n}"), str(n)) for n in range(5))
    answer = await _get(runs, f"/conversations/c/messages{query}")
    assert answer.json == {
        "messages": [_message(number) for number in numbers],
        "next": following,
        "total": 5,
    }


BAD_PAGES = "after=-1 after=x after= after=1.0 after=² limit=0 limit=1001 limit=x"


@pytest.mark.promise("P11", "P12")
@pytest.mark.parametrize("query", [*BAD_PAGES.split(), f"after={'9' * 5000}"])
async def test_a_malformed_page_is_refused(query: str) -> None:
    answer = await _get(_runs(), f"/conversations/c/messages?{query}")
    assert (answer.status, answer.code) == (422, "invalid_request")


# ---------------------------------------------------------------- stream
async def test_the_newest_run_is_streamed_from_its_start() -> None:
    answer = await _get(_runs(), "/conversations/c/stream")
    assert answer.body == OPENING.encode() + STREAM
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert (answer.headers["x-run-id"], answer.headers["x-conversation-id"]) == ("run_1", "c")


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/conversations/c/stream", {"last-event-id": "run_1.1-2"}),
        ("/conversations/c/stream?lastEventId=run_1.1-2", {}),
        ("/conversations/c/stream?lastEventId=run_1.0-0", {"last-event-id": "run_1.1-2"}),
        ("/conversations/c/stream?runId=run_1", {"last-event-id": "run_1.1-2"}),
    ],
)
async def test_a_stream_continues_behind_the_last_event_seen(
    path: str, headers: dict[str, str]
) -> None:
    answer = await _get(_runs(), path, **headers)
    assert answer.body == OPENING.encode() + b"id: run_1.1-3\ndata: [DONE]\n\n"


@pytest.mark.parametrize("query", ["runId=run_1", "lastEventId=run_1.0-0", "runId="])
async def test_a_run_is_streamed_by_its_name(query: str) -> None:
    runs = _runs(replace(IDLE, run_id=RunId("run_1" if query == "runId=" else "run_0")))
    answer = await _get(runs, f"/conversations/c/stream?{query}")
    assert answer.body == OPENING.encode() + STREAM


async def test_a_stream_has_more_events_on_request() -> None:
    answer = await _get(_runs(), "/conversations/c/stream?include=usage,run")
    assert b'id: run_1.1-1\ndata: {"type":"run-start","runId":"run_1"}\n\n' in answer.body


@pytest.mark.parametrize(
    ("status", "seen", "query", "answered"),
    [
        (Status(1), "", "", (404, "run_not_found")),
        (IDLE, "run_2.1-2", "", (404, "run_not_found")),
        (IDLE, "", "runId=run_2", (404, "run_not_found")),
        (IDLE, "nonsense", "", (422, "invalid_cursor")),
        (IDLE, "", "lastEventId=nonsense", (422, "invalid_cursor")),
        (IDLE, "run_1.1-4", "", (422, "invalid_cursor")),
        (IDLE, "run_1.1-2", "runId=run_2", (422, "invalid_cursor")),
    ],
)
async def test_a_stream_of_an_unknown_run_or_event_is_an_error(
    status: Status, seen: str, query: str, answered: tuple[int, str]
) -> None:
    path = f"/conversations/c/stream?{query}"
    answer = await _get(_runs(status), path, **{"last-event-id": seen})
    assert (answer.status, answer.code) == answered


@pytest.mark.promise("P3")
async def test_a_stream_whose_beginning_was_trimmed_is_gone() -> None:
    runs = _runs()
    runs.unreadable = CursorExpired("the history is whole")
    answer = await _get(runs, "/conversations/c/stream")
    assert (answer.status, answer.code) == (410, "cursor_expired")


# ---------------------------------------------------------------- cancel
RUNNING = replace(IDLE, running=True, queued=(RunId("run_2"), RunId("run_3")))
WAITING = replace(RUNNING, running=False)
CANCEL = "/conversations/c/cancel"


def _run(name: str) -> RunRef:
    return RunRef(KEY, RunId(name))


@pytest.mark.promise("P7")
@pytest.mark.parametrize(("status", "run"), [(RUNNING, "run_1"), (WAITING, "run_2")])
@pytest.mark.parametrize("content_type", ["application/json", "application/x-www-form-urlencoded"])
async def test_the_running_run_is_cancelled_or_else_the_first_queued_one(
    status: Status, run: str, content_type: str
) -> None:
    runs = _runs(status)
    answer = await ask(_app(runs), "POST", CANCEL, headers={"content-type": content_type})
    assert (answer.status, answer.json) == (202, {"cancelled": True})
    assert runs.cancelled == [_run(run)]


@pytest.mark.promise("P7")
@pytest.mark.parametrize("status", [RUNNING, WAITING])
@pytest.mark.parametrize(
    ("query", "body"),
    [("", {"runId": "run_3"}), ("?runId=run_3", {}), ("?runId=run_3", {"runId": "run_3"})],
)
async def test_a_run_is_cancelled_by_id(status: Status, query: str, body: dict[str, str]) -> None:
    runs = _runs(status)
    answer = await ask_json(_app(runs), "POST", CANCEL + query, body)
    assert (answer.status, answer.json) == (202, {"cancelled": True})
    assert runs.cancelled == [_run("run_3")]


@pytest.mark.parametrize("body", [{}, {"runId": None}])
async def test_cancelling_when_nothing_runs_is_no_error(body: dict[str, Any]) -> None:
    runs = _runs()
    answer = await ask_json(_app(runs), "POST", CANCEL, body)
    assert (answer.status, answer.json) == (200, {"cancelled": False})
    assert runs.cancelled == []


async def test_cancelling_a_run_that_ends_in_the_same_moment_is_no_error() -> None:
    runs = _runs(RUNNING)
    runs.over = True
    answer = await ask(_app(runs), "POST", CANCEL)
    assert (answer.status, answer.json) == (200, {"cancelled": False})


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    ("run", "answered"),
    [
        ("run_1", (409, "conflict")),
        ("run_9", (404, "run_not_found")),
        ("\0", (404, "run_not_found")),
    ],
)
async def test_a_named_run_that_has_ended_or_is_unknown_cannot_be_cancelled(
    run: str, answered: tuple[int, str]
) -> None:
    runs = _runs(replace(RUNNING, run_id=RunId("run_0")))
    answer = await ask_json(_app(runs), "POST", CANCEL, {"runId": run})
    assert (answer.status, answer.code) == answered
    assert runs.cancelled == []


async def test_a_named_run_whose_log_was_trimmed_has_ended_too() -> None:
    runs = _runs()
    runs.unreadable = CursorExpired("the history is whole")
    answer = await ask_json(_app(runs), "POST", CANCEL, {"runId": "run_1"})
    assert (answer.status, answer.code) == (409, "conflict")


async def test_a_named_run_that_ends_in_the_same_moment_has_ended() -> None:
    runs = _runs(RUNNING)
    runs.over = True
    answer = await ask_json(_app(runs), "POST", CANCEL, {"runId": "run_1"})
    assert (answer.status, answer.code) == (409, "conflict")


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    ("query", "body", "status"),
    [
        ("", b"[]", 400),
        ("", b"{", 400),
        ("", b'{"runId": 1}', 422),
        ("", b'{"runId": ""}', 422),
        ("?runId=run_1", b'{"runId": "run_2"}', 422),
        ("", b'{"runId": "' + b"x" * 257 + b'"}', 422),
    ],
)
async def test_a_malformed_cancel_cancels_nothing(query: str, body: bytes, status: int) -> None:
    runs = _runs(RUNNING)
    headers = {"content-type": "application/json"}
    answer = await ask(_app(runs), "POST", CANCEL + query, headers=headers, body=body)
    assert answer.status == status
    assert runs.cancelled == []


# ---------------------------------------------------------------- the server
async def test_a_server_is_healthy_and_ready() -> None:
    assert (await _get(_runs(), "/healthz")).json == {"status": "ok"}
    assert (await _get(_runs(), "/readyz")).json == {"status": "ready"}


@pytest.mark.parametrize("error", [ShuttingDown("bye"), StoreUnavailable("away")])
async def test_a_server_that_is_not_ready_says_why(error: Any) -> None:
    runs = _runs()
    runs.unready = error
    answer = await _get(runs, "/readyz")
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, error.code, "1")
    assert (await _get(runs, "/healthz")).status == 200


async def test_health_needs_no_key() -> None:
    app = _app(_runs(), Access(keys={"a-key": OwnerId("alice")}))
    paths = ("/healthz", "/readyz", "/openapi.json")
    assert [(await ask(app, "GET", path)).status for path in paths] == [200, 200, 401]
