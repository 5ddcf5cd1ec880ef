"""The native routes for owed calls: the inbox, and claims of single calls."""

from dataclasses import replace

import pytest
from starlette.types import ASGIApp
from tests.support.asgi_client import Answer, ask, ask_json
from tests.support.logged_runs import RUN, LoggedRuns

from passback.core.changes import ClaimedCall, InboxPlace, Status
from passback.core.messages import CallId, ConversationId, ConversationKey, Owed, OwnerId, RunId
from passback.core.signals import Signal
from passback.http.gate import Access
from passback.http.site import build_site
from passback.http.wires import RequestLimits, Services
from passback.wire.rest import build

pytestmark = pytest.mark.anyio

OPEN = Access()
CALL = "/conversations/c/tool-calls/call_1/claim"


@pytest.fixture
def runs() -> LoggedRuns:
    """Runs of a conversation that owes one call."""
    made = LoggedRuns()
    made.known[RUN.key] = Status(3, RUN.run_id, owed=(Owed(CallId("call_1"), "paint", "{}"),))
    return made


def app(runs: LoggedRuns, access: Access = OPEN) -> ASGIApp:
    return build_site([build(Services(runs, Signal()))], access)


def other(name: str) -> ConversationKey:
    return replace(RUN.key, id=ConversationId(name))


def refusal(answer: Answer) -> tuple[int, object]:
    return answer.status, answer.json["code"]


# ---------------------------------------------------------------- the inbox
async def test_the_inbox_lists_the_calls_of_all_conversations(runs: LoggedRuns) -> None:
    until = 1_769_860_800_250
    calls = tuple(Owed(CallId(call), "ask", '{"x":1}') for call in ("call_2", "call_3"))
    claims = (ClaimedCall(CallId("call_3"), until),)
    runs.known[other("d")] = Status(1, RunId("run_2"), owed=calls, answer_by=until, claims=claims)
    runs.known[other("idle")] = Status(1)
    first = await ask(app(runs), "GET", "/tool-calls?status=owed")
    assert (first.status, first.json) == (
        200,
        {
            "toolCalls": [
                {
                    "conversationId": "c",
                    "runId": "run_1",
                    "id": "call_1",
                    "name": "paint",
                    "arguments": "{}",
                    "kind": "tool_result",
                    "deadline": None,
                    "claimedUntil": None,
                }
            ],
            "next": f"0-{'0' * 32}",
        },
    )
    path = f"/tool-calls?status=owed&after={first.json['next']}&limit=7"
    second = (await ask(app(runs), "GET", path)).json
    time = "2026-01-31T12:00:00.250Z"
    assert second["next"] is None
    assert [
        (each["conversationId"], each["id"], each["deadline"], each["claimedUntil"])
        for each in second["toolCalls"]
    ] == [("d", "call_2", time, None), ("d", "call_3", time, time)]
    assert runs.pages == [(RUN.key.owner, None, 100), (RUN.key.owner, InboxPlace(0, "0" * 32), 7)]


@pytest.mark.promise("P13")
async def test_the_inbox_has_the_calls_of_the_keys_owner(runs: LoggedRuns) -> None:
    access = Access(keys={"k" * 16: OwnerId("ann")})
    headers = {"authorization": f"Bearer {'k' * 16}"}
    answer = await ask(app(runs, access), "GET", "/tool-calls?status=owed", headers=headers)
    assert answer.json == {"toolCalls": [], "next": None}
    assert refusal(await ask(app(runs, access), "GET", "/tool-calls?status=owed")) == (
        401,
        "unauthenticated",
    )


@pytest.mark.promise("P13")
async def test_without_keys_the_inbox_is_refused_beyond_loopback(
    runs: LoggedRuns,
) -> None:
    site = app(runs, Access(loopback_only=False))
    answer = await ask(site, "GET", "/tool-calls?status=owed")
    assert refusal(answer) == (403, "keys_needed")
    assert runs.pages == []


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "invalid_request"),
        ("?status=", "invalid_request"),
        ("?status=answered", "invalid_request"),
        ("?status=owed&status=owed", "invalid_request"),
        ("?status=owed&conversation=c", "invalid_request"),
        (f"?status=owed&{'x' * 5000}=", "invalid_request"),
        ("?status=owed&limit=0", "invalid_request"),
        ("?status=owed&limit=1001", "invalid_request"),
        ("?status=owed&limit=ten", "invalid_request"),
        ("?status=owed&after=", "invalid_cursor"),
        ("?status=owed&after=0-0", "invalid_cursor"),
        (f"?status=owed&after=-1-{'0' * 32}", "invalid_cursor"),
        (f"?status=owed&after={'9' * 17}-{'0' * 32}", "invalid_cursor"),
        (f"?status=owed&after=%D9%A1-{'0' * 32}", "invalid_cursor"),
    ],
)
async def test_the_inbox_refuses_unknown_queries(runs: LoggedRuns, query: str, code: str) -> None:
    answer = await ask(app(runs), "GET", f"/tool-calls{query}")
    assert refusal(answer) == (422, code)
    assert len(answer.json["message"]) < 200
    assert runs.pages == []


# ---------------------------------------------------------------- claims
async def test_a_call_is_claimed_renewed_and_released(runs: LoggedRuns) -> None:
    claim = {"claimant": "tab", "seconds": 60}
    for _ in range(2):
        answer = await ask_json(app(runs), "POST", CALL, claim)
        assert (answer.status, answer.json) == (
            200,
            {"callId": "call_1", "claimant": "tab", "expiresAt": "1970-01-01T00:01:00.000Z"},
        )
    released = await ask_json(app(runs), "DELETE", CALL, {"claimant": "tab"})
    assert (released.status, released.body) == (204, b"")
    assert released.headers["x-request-id"]
    assert runs.claims == {}


async def test_a_claim_lasts_for_half_a_minute_by_default(runs: LoggedRuns) -> None:
    answer = await ask_json(app(runs), "POST", CALL, {"claimant": "x" * 128})
    assert answer.json["expiresAt"] == "1970-01-01T00:00:30.000Z"


async def test_a_foreign_claim_conflicts_and_says_when_to_retry(runs: LoggedRuns) -> None:
    await ask_json(app(runs), "POST", CALL, {"claimant": "tab"})
    answer = await ask_json(app(runs), "POST", CALL, {"claimant": "phone", "seconds": 7})
    assert refusal(answer) == (409, "call_claimed")
    assert answer.headers["retry-after"] == "7"
    assert refusal(await ask(app(runs), "DELETE", f"{CALL}?claimant=phone")) == (
        409,
        "call_claimed",
    )


@pytest.mark.parametrize("query", ["?claimant=tab", "?claimant=t%61b"])
async def test_a_claim_is_released_without_a_body(runs: LoggedRuns, query: str) -> None:
    await ask_json(app(runs), "POST", CALL, {"claimant": "tab"})
    assert (await ask(app(runs), "DELETE", CALL + query)).status == 204
    assert runs.claims == {}


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"claimant": None},
        {"claimant": ""},
        {"claimant": "x" * 129},
        {"claimant": 7},
        {"claimant": "tab", "seconds": 0},
        {"claimant": "tab", "seconds": 601},
        {"claimant": "tab", "seconds": 1.5},
        {"claimant": "tab", "seconds": "30"},
        {"claimant": "tab", "seconds": True},
    ],
)
async def test_a_malformed_claim_is_refused(runs: LoggedRuns, body: dict[str, object]) -> None:
    assert refusal(await ask_json(app(runs), "POST", CALL, body)) == (422, "invalid_request")
    assert runs.claims == {}


@pytest.mark.promise("P12")
@pytest.mark.parametrize("query", ["", "?claimant=", f"?claimant={'x' * 129}"])
async def test_releasing_a_claim_needs_the_claimant(runs: LoggedRuns, query: str) -> None:
    answer = await ask(app(runs), "DELETE", CALL + query)
    assert refusal(answer) == (422, "invalid_request")


async def test_a_release_names_one_claimant(runs: LoggedRuns) -> None:
    answer = await ask_json(app(runs), "DELETE", f"{CALL}?claimant=tab", {"claimant": "phone"})
    assert refusal(answer) == (422, "invalid_request")
    await ask_json(app(runs), "POST", CALL, {"claimant": "tab"})
    answer = await ask_json(app(runs), "DELETE", f"{CALL}?claimant=tab", {"claimant": "tab"})
    assert answer.status == 204


@pytest.mark.promise("P9", "P13")
async def test_calls_of_others_and_unknown_calls_are_not_found(runs: LoggedRuns) -> None:
    claim = {"claimant": "tab"}
    path = "/conversations/c/tool-calls/call_2/claim"
    assert refusal(await ask_json(app(runs), "POST", path, claim)) == (404, "tool_call_not_found")
    assert other("d") not in runs.known
    path = "/conversations/d/tool-calls/call_1/claim"
    unknown = 404, "conversation_not_found"
    assert refusal(await ask_json(app(runs), "POST", path, claim)) == unknown
    access = Access(keys={"k" * 16: OwnerId("ann")})
    foreign = await ask_json(
        app(runs, access), "POST", CALL, claim, headers={"authorization": f"Bearer {'k' * 16}"}
    )
    assert refusal(foreign) == unknown


# ---------------------------------------------------------------- agents and commands
async def test_the_agents_are_listed_with_what_a_post_may_name_and_hold(runs: LoggedRuns) -> None:
    limits = RequestLimits(body_bytes=20, attachment_bytes=10)
    site = build_site([build(Services(runs, Signal(), limits))], OPEN)
    listed = await ask(site, "GET", "/agents")
    assert (listed.status, listed.json) == (
        200,
        {
            "agents": [
                {
                    "id": "",
                    "models": [
                        {"id": "scripted", "media": ["image"]},
                        {"id": "other", "media": ["audio", "image"]},
                    ],
                    "commands": [{"name": "help", "description": "Lists the commands."}],
                }
            ],
            "limits": {"bodyBytes": 20, "attachmentBytes": 10},
        },
    )
    assert refusal(await ask(site, "GET", "/agents?agentId=x")) == (422, "invalid_request")


async def test_the_commands_are_listed(runs: LoggedRuns) -> None:
    listed = await ask(app(runs), "GET", "/commands")
    assert listed.json == {"commands": [{"name": "help", "description": "Lists the commands."}]}
    assert refusal(await ask(app(runs), "GET", "/commands?agentId=x")) == (404, "agent_not_found")
