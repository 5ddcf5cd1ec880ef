"""The routes of the chat wire below `/api`."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from starlette.types import ASGIApp
from tests.support.asgi_client import ask, ask_json
from tests.support.ledgers import open_ledger
from tests.support.logged_runs import RUN, LoggedRuns
from tests.support.runs import worker
from tests.unit.engine.sub_agents import TASK, helper
from typing_extensions import override

from passback.core.changes import (
    ConversationPage,
    ConversationPlace,
    ListedConversation,
    Status,
)
from passback.core.errors import ModelError
from passback.core.messages import (
    AssistantMessage,
    CallId,
    MessageId,
    Owed,
    OwnerId,
    RunId,
    ToolCall,
    UserMessage,
)
from passback.core.signals import Signal
from passback.engine.service import RunService
from passback.http.gate import Access
from passback.http.site import build_site
from passback.http.wires import RequestLimits, Services
from passback.models.scripted import ScriptedModel, Turn, calls, says
from passback.toolsets.agents import AgentTools
from passback.wire.chat.rest import build_rest

pytestmark = pytest.mark.anyio

ANYBODY = OwnerId("anonymous")
KEYS = Access(keys={"k" * 16: OwnerId("ann")})
OUTPUT = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def site(runs: Any, access: Access | None = None, **services: Any) -> ASGIApp:
    made = Services(runs, Signal(), version="9.8.7", **services)
    return build_site([build_rest(made)], access or Access())


@dataclass
class Served:
    app: ASGIApp
    runs: RunService

    async def ask(self, method: str, path: str) -> Any:
        answer = await ask(self.app, method, path)
        assert answer.status == 200, answer.body
        return answer.json

    async def create(self, **body: Any) -> str:
        answer = await ask_json(self.app, "POST", "/api/sessions", body)
        assert answer.status == 200, answer.body
        session_id: str = answer.json["session_id"]
        assert answer.json == {"session_id": session_id}
        return session_id

    async def chat(self, session_id: str, query: str = "", **body: Any) -> Any:
        path = f"/api/sessions/{session_id}/chat{query}"
        answer = await ask_json(self.app, "POST", path, body)
        assert answer.status == 200, answer.body
        end = answer.json
        assert end.pop("session_id") == session_id
        end.pop("chat_run_id", None)
        return end

    async def turns(self, session_id: str, query: str = "") -> Any:
        return await self.ask("GET", f"/api/sessions/{session_id}/messages{query}")


@asynccontextmanager
async def served(*script: Turn, **options: Any) -> AsyncGenerator[Served]:
    limits = RequestLimits(answer_chars=options.pop("answer_chars", 10_000))
    async with (
        open_ledger("memory:") as store,
        worker(store, ScriptedModel(script), **options) as runs,
    ):
        yield Served(site(runs, limits=limits), runs)


def session(session_id: str, **fields: Any) -> dict[str, Any]:
    """The view of a session without its times."""
    return {
        "id": session_id,
        "intent": "",
        "status": "created",
        "model": None,
        "shared": False,
        "is_pinned": False,
        "memory_enabled": False,
        "is_persistent": True,
        "replay_state": None,
        "pending_tool_call_ids": [],
        **fields,
    }


def without_times(shown: dict[str, Any]) -> dict[str, Any]:
    assert shown["created_at"].endswith("Z")
    assert shown["updated_at"].endswith("Z")
    return {name: each for name, each in shown.items() if not name.endswith("_at")}


def end(result: Any = None, **fields: Any) -> dict[str, Any]:
    return {
        "status": "completed",
        "result": result,
        "finish_reason": "completed",
        "pending_tool_call_ids": [],
        **fields,
    }


# ---------------------------------------------------------------- sessions
async def test_a_session_is_created_shown_renamed_and_deleted() -> None:
    async with served() as here:
        session_id = await here.create(intent="The capital\nof France", solution_id="unknown")
        path = f"/api/sessions/{session_id}"
        shown = session(session_id, intent="The capital of France")
        assert without_times(await here.ask("GET", path)) == shown
        renamed = await ask_json(here.app, "PATCH", path, {"intent": "Capitals"})
        shown["intent"] = "Capitals"
        assert (renamed.status, without_times(renamed.json)) == (200, shown)
        assert await here.ask("DELETE", path) == {"deleted": True}
        gone = await ask(here.app, "GET", path)
        assert (gone.status, gone.json["detail"], gone.json["code"]) == (
            404,
            "there is no such conversation",
            "conversation_not_found",
        )


async def test_a_session_without_an_intent_has_no_title() -> None:
    async with served() as here:
        session_id = await here.create(intent=None, model=None)
        shown = await here.ask("GET", f"/api/sessions/{session_id}")
        assert without_times(shown) == session(session_id)


async def test_a_repeat_with_the_same_key_is_the_same_session() -> None:
    async with served() as here:
        answers = [
            await ask_json(here.app, "POST", "/api/sessions", {}, headers={"idempotency-key": key})
            for key in ("a", "a", "b")
        ]
        first, again, other = [answer.json["session_id"] for answer in answers]
        assert first == again != other


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        (Status(1), "created"),
        (Status(2, RUN.run_id, message_count=2), "completed"),
        (Status(2, message_count=2), "completed"),
        (Status(2, RUN.run_id, running=True), "running"),
        (Status(2, RUN.run_id, queued=(RunId("run_2"),)), "running"),
        (Status(2, RUN.run_id, stopped_early=True), "interrupted"),
        (Status(2, RUN.run_id, owed=(Owed(CallId("c"), "paint", "{}"),)), "waiting_for_input"),
        (Status(2, RUN.run_id, owed=(Owed(CallId("c"), "x", "{}"),), overdue=True), "completed"),
    ],
)
async def test_a_session_has_a_status(status: Status, shown: str) -> None:
    runs = LoggedRuns()
    runs.known[RUN.key] = status
    answer = await ask(site(runs), "GET", "/api/sessions/c")
    assert answer.json["status"] == shown


# ---------------------------------------------------------------- the list
async def test_sessions_are_listed_in_pages_and_found_by_their_title() -> None:
    async with served() as here:
        ids = [await here.create(intent=name) for name in ("Rome", "Paris", "Paris too")]
        newest = ids[::-1]
        whole = await here.ask("GET", "/api/sessions")
        assert [each["id"] for each in whole.pop("items")] == newest
        assert whole == {
            "total": 3,
            "limit": 20,
            "offset": 0,
            "content_match_truncated": False,
        }
        page = await here.ask("GET", "/api/sessions?limit=1&offset=1&template_id_prefix=x")
        assert ([each["id"] for each in page["items"]], page["total"]) == (newest[1:2], 3)
        found = await here.ask("GET", "/api/sessions?q=%20PAR")
        assert ([each["id"] for each in found["items"]], found["total"]) == (newest[:2], 2)


class Endless(LoggedRuns):
    """Each page of the list is full, or empty, and not the last one."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    @override
    async def conversations(self, owner: OwnerId, /, **asked: Any) -> ConversationPage:
        self.lists.append((owner, asked["after"], asked["limit"], asked["search"]))
        place = ConversationPlace(1, "0" * 32)
        return ConversationPage((ListedConversation(RUN.key, place, Status(1)),) * self.size, place)


async def test_a_long_list_says_that_it_is_not_whole() -> None:
    runs = Endless(100)
    answer = await ask(site(runs), "GET", "/api/sessions?offset=999&limit=5")
    assert (answer.json["total"], len(answer.json["items"]), len(runs.lists)) == (1_000, 1, 10)
    assert answer.json["content_match_truncated"] is True


async def test_a_list_that_never_ends_is_given_up() -> None:
    runs = Endless(0)
    answer = await ask(site(runs), "GET", "/api/sessions")
    assert (answer.json["total"], answer.json["content_match_truncated"]) == (0, True)
    assert len(runs.lists) == 50


# ---------------------------------------------------------------- turns
async def test_turns_come_in_pages() -> None:
    script = [TASK, says("one"), says("two"), says("three")]
    agent = helper(ScriptedModel([says("found")]))
    async with served(*script, toolsets=[AgentTools([agent])]) as here:
        session_id = await here.create()
        for number in range(3):
            await here.chat(session_id, message=f"go {number}")
        turns = await here.turns(session_id)
        texts = [[block["content"] for block in turn["blocks"]] for turn in turns]
        assert texts == [
            ["go 0"],
            [],
            ["found"],
            ["one"],
            ["go 1"],
            ["two"],
            ["go 2"],
            ["three"],
        ]
        rooted = [turn for turn in turns if turn["loop_id"] == "root"]
        assert await here.turns(session_id, "?root_only=true") == rooted
        assert await here.turns(session_id, "?limit=2&root_only=false") == turns[:3]
        for at, turn in enumerate(rooted):
            rest = turns[turns.index(rooted[at + 1]) :] if at + 1 < len(rooted) else []
            after = f"?after={turn['sequence']}"
            assert await here.turns(session_id, after) == rest
            assert await here.turns(session_id, f"{after}&limit=1000") == rest
        assert await here.turns(session_id, "?after=1000") == []


async def test_a_long_history_is_read_in_pages_only() -> None:
    async with served(says("a" * 90), says("b" * 90), answer_chars=150) as here:
        session_id = await here.create()
        for number in range(2):
            await here.chat(session_id, message=f"go {number}")
        answer = await ask(here.app, "GET", f"/api/sessions/{session_id}/messages")
        assert (answer.status, answer.json["code"]) == (422, "invalid_request")


async def test_pages_of_a_very_long_record_are_as_those_of_a_short_one() -> None:
    runs = LoggedRuns()
    runs.known[RUN.key] = Status(2, message_count=1_300)
    runs.history = tuple(UserMessage(MessageId(f"u{number}"), "hi") for number in range(1_300))
    for query, ids in (
        ("?limit=150", range(150)),
        ("?after=1250&limit=1000", range(1_250, 1_300)),
        ("", range(1_300)),
    ):
        answer = await ask(site(runs), "GET", f"/api/sessions/c/messages{query}")
        assert [turn["id"] for turn in answer.json] == [f"u{number}" for number in ids]


@pytest.mark.parametrize(
    ("running", "turn_status", "call_status"),
    [(True, "streaming", "pending"), (False, "paused", "awaiting_result")],
)
async def test_a_client_owes_nothing_while_a_run_goes_on(
    running: bool, turn_status: str, call_status: str
) -> None:
    runs = LoggedRuns()
    runs.known[RUN.key] = Status(2, RUN.run_id, running=running, message_count=2)
    call = ToolCall(CallId("c"), "paint", "{}", client=True)
    answer = AssistantMessage(MessageId("a"), "", (call,), run_id=RUN.run_id)
    runs.history = (UserMessage(MessageId("u"), "go"), answer)
    [_, turn] = (await ask(site(runs), "GET", "/api/sessions/c/messages")).json
    assert (turn["status"], turn["tool_calls"][0]["status"]) == (turn_status, call_status)


# ---------------------------------------------------------------- chats
async def test_a_headless_chat_answers_with_its_end() -> None:
    async with served(says("Paris.")) as here:
        session_id = await here.create()
        given = await here.chat(session_id, message="The capital?", headless=True)
        assert given == end({"output": "Paris."})
        [asked, told] = await here.turns(session_id)
        assert (asked["role"], told["blocks"]) == ("user", [{"type": "text", "content": "Paris."}])


async def test_a_headless_chat_answers_in_the_shape_of_raw_clients() -> None:
    async with served(says("Paris."), says('{"city": "Rome"}'), says('{"city": "Bern"}')) as here:
        session_id = await here.create()
        text = await here.chat(session_id, "?event_format=raw", message="?")
        assert text == end({"output": "Paris.", "result": "Paris."})
        value = await here.chat(session_id, message="?", output_schema=OUTPUT)
        assert value == end({"output": {"city": "Rome"}, "schema": OUTPUT})
        raw = await here.chat(session_id, "?event_format=raw", message="?", output_schema=OUTPUT)
        assert raw == end({"city": "Bern"})


async def test_a_headless_chat_that_fails_says_so() -> None:
    async with served([ModelError("the model is gone")]) as here:
        session_id = await here.create()
        assert await here.chat(session_id, message="?") == end(
            {"err_msg": "the model is gone"},
            status="failed",
            finish_reason="tool_error",
            error={"code": "model_error", "message": "the model is gone"},
        )


async def test_a_headless_chat_goes_on_with_results() -> None:
    script = [calls(("paint", {}), ("paint", {})), says("ok")]
    async with served(*script) as here:
        session_id = await here.create()
        tools = [{"name": "paint", "parameters": {"type": "object", "properties": {}}}]
        handed = await here.chat(session_id, message="go", tools=tools)
        first, second = handed["pending_tool_call_ids"]
        assert handed == end(finish_reason="awaiting_answer", pending_tool_call_ids=[first, second])
        parked = await here.chat(session_id, tool_results=[{"tool_call_id": first, "result": 1}])
        assert parked == end(finish_reason="awaiting_answer", pending_tool_call_ids=[second])
        results = [{"tool_call_id": second, "result": "painted", "status": "done"}]
        assert (await here.chat(session_id, tool_results=results))["status"] == "completed"


@pytest.mark.parametrize("prefer", ["respond-async", "wait=0", "respond-async, wait=0", "Wait=0"])
async def test_a_chat_that_is_not_waited_for_goes_on(prefer: str) -> None:
    hold = anyio.Event()
    async with served([hold, *says("ok")]) as here:
        session_id = await here.create()
        path = f"/api/sessions/{session_id}/chat"
        answer = await ask_json(
            here.app, "POST", path, {"message": "?"}, headers={"prefer": prefer}
        )
        assert answer.status == 202
        assert answer.headers["location"] == answer.json["follow"]
        hold.set()


async def test_a_repeat_with_the_same_key_is_the_same_chat() -> None:
    async with served(says("Paris.")) as here:
        path = f"/api/sessions/{await here.create()}/chat"
        ends = [
            (
                await ask_json(
                    here.app, "POST", path, {"message": "?"}, headers={"idempotency-key": "k"}
                )
            ).json
            for _ in range(2)
        ]
        assert ends[0] == ends[1]


# ---------------------------------------------------------------- what there is
async def test_version_and_health_need_no_key() -> None:
    app = site(LoggedRuns(), KEYS)
    version = await ask(app, "GET", "/api/version")
    assert (version.status, version.json) == (200, {"version": "9.8.7", "min_sdk": "0.1.0"})
    health = await ask(app, "GET", "/api/health")
    assert (health.status, health.json) == (200, {"status": "ok"})


async def test_the_models_that_can_be_chosen_are_listed() -> None:
    answer = await ask(site(LoggedRuns()), "GET", "/api/config/models")
    assert answer.json == {
        "default": "scripted",
        "models": [{"id": "scripted", "name": "scripted"}, {"id": "other", "name": "other"}],
    }


# ---------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/sessions", 401),
        ("GET", "/api/sessions/c", 401),
        ("GET", "/api/sessions/c/messages", 401),
        ("GET", "/api/config/models", 401),
        ("DELETE", "/api/sessions/c", 401),
    ],
)
async def test_other_routes_need_a_key(method: str, path: str, status: int) -> None:
    answer = await ask(site(LoggedRuns(), KEYS), method, path)
    assert (answer.status, answer.json["code"]) == (status, "unauthenticated")
    assert set(answer.json) == {"detail", "code", "request_id"}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/sessions?limit=0"),
        ("GET", "/api/sessions?limit=101"),
        ("GET", "/api/sessions?offset=-1"),
        ("GET", "/api/sessions?offset=1001"),
        ("GET", f"/api/sessions?q={'a' * 201}"),
        ("GET", "/api/sessions?page=1"),
        ("GET", "/api/sessions/c/messages?limit=0"),
        ("GET", "/api/sessions/c/messages?limit=1001"),
        ("GET", "/api/sessions/c/messages?after=x"),
        ("GET", "/api/sessions/c/messages?root_only=1"),
        ("GET", "/api/sessions/%7Bid%7D"),
        ("GET", "/api/sessions/%0a/messages"),
    ],
)
async def test_a_wrong_query_is_refused(method: str, path: str) -> None:
    answer = await ask(site(LoggedRuns()), method, path)
    assert (answer.status, answer.json["code"]) == (422, "invalid_request")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/api/sessions", {"intent": 1}, 422, "invalid_request"),
        ("POST", "/api/sessions", {"model": "other"}, 422, "invalid_request"),
        ("PATCH", "/api/sessions/c", {}, 422, "invalid_request"),
        ("PATCH", "/api/sessions/c", {"intent": " "}, 422, "invalid_request"),
        ("PATCH", "/api/sessions/none", {"intent": "a"}, 404, "conversation_not_found"),
        ("POST", "/api/sessions/none/chat", {"message": "?"}, 404, "conversation_not_found"),
        ("POST", "/api/sessions/c/chat", {}, 422, "nothing_to_do"),
        ("POST", "/api/sessions/c/chat", {"message": 1}, 422, "invalid_request"),
        ("POST", "/api/sessions/c/chat?event_format=x", {}, 422, "invalid_request"),
        (
            "POST",
            "/api/sessions/c/chat",
            {"message": "?", "output_schema": 1},
            422,
            "invalid_request",
        ),
    ],
)
async def test_a_wrong_body_is_refused(
    method: str, path: str, body: Any, status: int, code: str
) -> None:
    runs = LoggedRuns()
    runs.known[RUN.key] = Status(1)
    answer = await ask_json(site(runs), method, path, body)
    assert (answer.status, answer.json["code"]) == (status, code), answer.body
    assert runs.posts == []


@pytest.mark.parametrize("intent", [" ", "a" * 201])
async def test_a_refused_title_is_named_as_it_was_posted(intent: str) -> None:
    runs = LoggedRuns()
    runs.known[RUN.key] = Status(1)
    answer = await ask_json(site(runs), "PATCH", "/api/sessions/c", {"intent": intent})
    assert answer.json["detail"].startswith("intent: ")


@pytest.mark.parametrize("path", ["/api/", "/api/session", "/api/sessions/c/turns"])
async def test_an_address_that_nothing_has_answers_in_the_form_of_the_protocol(path: str) -> None:
    answer = await ask(site(LoggedRuns()), "GET", path)
    assert (answer.status, answer.json["code"]) == (404, "not_found")
    assert set(answer.json) == {"detail", "code", "request_id"}


@pytest.mark.parametrize("path", ["", "/messages"])
async def test_an_unknown_session_is_not_found(path: str) -> None:
    answer = await ask(site(LoggedRuns()), "GET", f"/api/sessions/none{path}")
    assert (answer.status, answer.json["code"]) == (404, "conversation_not_found")
