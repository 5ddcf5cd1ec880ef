"""The native routes that list, search and rename conversations."""

from dataclasses import replace
from typing import Any

import pytest
from starlette.types import ASGIApp
from tests.support.asgi_client import Answer, ask, ask_json
from tests.support.logged_runs import RUN, LoggedRuns

from passback.core.changes import ConversationPlace, Status
from passback.core.events import Position
from passback.core.messages import CallId, ConversationId, ConversationKey, Owed, OwnerId, RunId
from passback.core.signals import Signal
from passback.http.gate import Access
from passback.http.site import build_site
from passback.http.wires import Services
from passback.wire.rest import build

pytestmark = pytest.mark.anyio

OPEN = Access()
KEYS = Access(keys={"k" * 16: OwnerId("ann")})
ANN = {"authorization": f"Bearer {'k' * 16}"}
CREATED, UPDATED = 1_769_860_680_000, 1_769_860_800_250
HERE = "/conversations/c"
FIRST = Status(
    3,
    RUN.run_id,
    owed=(Owed(CallId("call_1"), "paint", "{}"), Owed(CallId("call_2"), "paint", "{}")),
    logged=Position(2, 17),
    title="The blue page",
    created=CREATED,
    updated=UPDATED,
)


@pytest.fixture
def runs() -> LoggedRuns:
    made = LoggedRuns()
    made.known[RUN.key] = FIRST
    return made


def app(runs: LoggedRuns, access: Access = OPEN) -> ASGIApp:
    return build_site([build(Services(runs, Signal()))], access)


def other(name: str, owner: str = RUN.key.owner) -> ConversationKey:
    return ConversationKey(OwnerId(owner), ConversationId(name))


def refusal(answer: Answer) -> tuple[int, object]:
    return answer.status, answer.json["code"]


async def listed(runs: LoggedRuns) -> dict[str, Any]:
    """Return the only conversation of the first page."""
    answer = await ask(app(runs), "GET", "/conversations")
    assert answer.status == 200
    [shown] = answer.json["conversations"]
    return dict(shown)


# ---------------------------------------------------------------- the list
async def test_conversations_are_listed_in_pages(runs: LoggedRuns) -> None:
    runs.known[other("new")] = Status(1)
    first = await ask(app(runs), "GET", "/conversations?limit=7")
    assert (first.status, first.json) == (
        200,
        {
            "conversations": [
                {
                    "id": "new",
                    "title": "",
                    "createdAt": "1970-01-01T00:00:00.000Z",
                    "updatedAt": "1970-01-01T00:00:00.000Z",
                    "status": "idle",
                    "runId": None,
                    "owed": 0,
                    "cursor": None,
                }
            ],
            "next": f"1-{'0' * 32}",
        },
    )
    path = f"/conversations?after={first.json['next']}&search=blue%20p"
    assert (await ask(app(runs), "GET", path)).json == {
        "conversations": [
            {
                "id": "c",
                "title": "The blue page",
                "createdAt": "2026-01-31T11:58:00.000Z",
                "updatedAt": "2026-01-31T12:00:00.250Z",
                "status": "waiting",
                "runId": "run_1",
                "owed": 2,
                "cursor": "run_1.2-17",
            }
        ],
        "next": None,
    }
    owner = RUN.key.owner
    assert runs.lists == [
        (owner, None, 7, ""),
        (owner, ConversationPlace(1, "0" * 32), 20, "blue p"),
    ]


@pytest.mark.parametrize(
    ("changes", "status", "owed"),
    [
        ({}, "waiting", 2),
        ({"overdue": True}, "idle", 0),
        ({"owed": ()}, "idle", 0),
        ({"owed": (), "running": True}, "running", 0),
        ({"owed": (), "running": True, "lapsed": True}, "running", 0),
        ({"owed": (), "queued": (RunId("run_2"),)}, "idle", 0),
    ],
)
async def test_the_list_tells_what_a_conversation_waits_for(
    runs: LoggedRuns, changes: dict[str, Any], status: str, owed: int
) -> None:
    runs.known[RUN.key] = replace(FIRST, **changes)
    shown = await listed(runs)
    assert (shown["status"], shown["owed"]) == (status, owed)


@pytest.mark.promise("P13")
async def test_the_list_has_the_conversations_of_the_keys_owner(runs: LoggedRuns) -> None:
    answer = await ask(app(runs, KEYS), "GET", "/conversations", headers=ANN)
    assert answer.json == {"conversations": [], "next": None}
    assert refusal(await ask(app(runs, KEYS), "GET", "/conversations")) == (401, "unauthenticated")
    runs.known[other("hers", "ann")] = FIRST
    answer = await ask(app(runs, KEYS), "GET", "/conversations", headers=ANN)
    assert [each["id"] for each in answer.json["conversations"]] == ["hers"]


@pytest.mark.promise("P13")
async def test_without_keys_the_list_is_refused_beyond_loopback(runs: LoggedRuns) -> None:
    answer = await ask(app(runs, Access(loopback_only=False)), "GET", "/conversations")
    assert refusal(answer) == (403, "keys_needed")
    assert runs.lists == []


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("limit=0", "invalid_request"),
        ("limit=101", "invalid_request"),
        ("limit=-1", "invalid_request"),
        ("limit=ten", "invalid_request"),
        ("limit=", "invalid_request"),
        ("limit=1.0", "invalid_request"),
        ("limit=1&limit=1", "invalid_request"),
        (f"limit={'9' * 5000}", "invalid_request"),
        ("after=", "invalid_cursor"),
        ("after=0", "invalid_cursor"),
        ("after=0-0", "invalid_cursor"),
        ("after=run_1.2-17", "invalid_cursor"),
        (f"after=-1-{'0' * 32}", "invalid_cursor"),
        (f"after={'9' * 17}-{'0' * 32}", "invalid_cursor"),
        (f"after=1-{'0' * 33}", "invalid_cursor"),
        (f"after=1-{'A' * 32}", "invalid_cursor"),
        (f"after=%D9%A1-{'0' * 32}", "invalid_cursor"),
        (f"search={'x' * 201}", "invalid_request"),
        ("title=blue", "invalid_request"),
        ("status=owed", "invalid_request"),
        (f"{'x' * 5000}=", "invalid_request"),
    ],
)
async def test_the_list_refuses_bad_queries(runs: LoggedRuns, query: str, code: str) -> None:
    answer = await ask(app(runs), "GET", f"/conversations?{query}")
    assert refusal(answer) == (422, code)
    assert len(answer.json["message"]) < 200
    assert runs.lists == []


async def test_a_search_may_have_200_characters_of_any_kind(runs: LoggedRuns) -> None:
    for search in ("", "x" * 200, "%F0%9F%9A%80" * 200, "%00", "%25_%5C"):
        answer = await ask(app(runs), "GET", f"/conversations?search={search}")
        assert answer.status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
async def test_the_list_takes_no_other_methods(runs: LoggedRuns, method: str) -> None:
    answer = await ask(app(runs), method, "/conversations")
    assert (answer.status, answer.headers["allow"]) == (405, "DELETE, GET, HEAD")


# ---------------------------------------------------------------- rename
async def test_a_conversation_is_renamed_and_shown(runs: LoggedRuns) -> None:
    answer = await ask_json(app(runs), "PATCH", HERE, {"title": " The\nred  page "})
    assert answer.status == 200
    assert answer.json == (await ask(app(runs), "GET", HERE)).json
    assert answer.json["title"] == "The red page"
    assert answer.json["createdAt"] == "2026-01-31T11:58:00.000Z"
    assert answer.json["updatedAt"] == "2026-01-31T12:00:00.250Z"
    assert (await listed(runs))["title"] == "The red page"


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "title: Field required"),
        ({"title": None}, "title: Input should be a valid string"),
        ({"title": 7}, "title: Input should be a valid string"),
        ({"title": ["a"]}, "title: Input should be a valid string"),
        ({"title": ""}, "title: it needs at least one character that can be seen"),
        ({"title": " \n\u2028"}, "title: it needs at least one character that can be seen"),
        ({"title": "\u0000\u200b"}, "title: it needs at least one character that can be seen"),
        ({"title": "x" * 201}, "title: it has 201 characters, 200 at most"),
    ],
)
async def test_a_bad_title_is_refused_and_changes_nothing(
    runs: LoggedRuns, body: dict[str, object], message: str
) -> None:
    answer = await ask_json(app(runs), "PATCH", HERE, body)
    assert refusal(answer) == (422, "invalid_request")
    assert answer.json["message"] == message
    assert runs.known == {RUN.key: FIRST}


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    ("body", "media_type", "status", "code"),
    [
        (b"", "application/json", 400, "bad_request"),
        (b"{", "application/json", 400, "bad_request"),
        (b"[]", "application/json", 400, "bad_request"),
        (b'"title"', "application/json", 400, "bad_request"),
        (b'{"title": "a"}', "text/plain", 415, "unsupported_media_type"),
    ],
)
async def test_a_bad_body_is_refused(
    runs: LoggedRuns, body: bytes, media_type: str, status: int, code: str
) -> None:
    headers = {"content-type": media_type}
    answer = await ask(app(runs), "PATCH", HERE, headers=headers, body=body)
    assert refusal(answer) == (status, code)
    assert runs.known == {RUN.key: FIRST}


async def test_pages_of_other_origins_may_rename(runs: LoggedRuns) -> None:
    access = Access(origins=frozenset({"https://app.example"}))
    headers = {"origin": "https://app.example", "access-control-request-method": "PATCH"}
    answer = await ask(app(runs, access), "OPTIONS", HERE, headers=headers)
    assert answer.headers["access-control-allow-methods"] == "DELETE, GET, HEAD, PATCH, POST"
