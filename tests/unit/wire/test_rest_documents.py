"""The native routes that export, import and erase conversations."""

import json
from typing import Any

import pytest
from starlette.types import ASGIApp
from tests.support.asgi_client import Answer, ask, ask_json, exchange
from tests.support.logged_runs import RUN, LoggedRuns
from tests.unit.core.test_importing import FULL, agent, call, document, tool, user

from passback.core.changes import Status
from passback.core.conversation.document import DOCUMENT_END, read_document
from passback.core.errors import StoreUnavailable
from passback.core.messages import ConversationId, ConversationKey, OwnerId
from passback.core.signals import Signal
from passback.http.gate import Access
from passback.http.site import build_site
from passback.http.wires import RequestLimits, Services
from passback.wire.rest import build

pytestmark = pytest.mark.anyio

KEYS = Access(keys={"k" * 16: OwnerId("ann")})
ANN = {"authorization": f"Bearer {'k' * 16}"}
EXPORT, IMPORT = "/conversations/c/export", "/conversations/import"
TRUSTED = frozenset({"user", "tool", "assistant"})


@pytest.fixture
def runs() -> LoggedRuns:
    made = LoggedRuns()
    made.known[RUN.key] = Status(1)
    return made


def app(
    runs: LoggedRuns,
    access: Access | None = None,
    roles: frozenset[str] = TRUSTED,
    limits: RequestLimits | None = None,
) -> ASGIApp:
    services = Services(runs, Signal(), allow_roles=roles, limits=limits or RequestLimits())
    return build_site([build(services)], access or Access())


async def post(runs: LoggedRuns, posted: Any, path: str = IMPORT, **given: Any) -> Answer:
    return await ask_json(app(runs, **given), "POST", path, posted)


def refusal(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.code


# ---------------------------------------------------------------- export
async def test_a_conversation_is_exported(runs: LoggedRuns) -> None:
    answer = await ask(app(runs), "GET", EXPORT)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-disposition"] == 'attachment; filename="conversation.json"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert read_document(answer.json) == read_document(document())


async def test_a_client_may_leave_in_the_middle(runs: LoggedRuns) -> None:
    site = app(runs)
    async with exchange(site, "GET", EXPORT) as one:
        assert one.status == 200
    assert (await ask(site, "GET", EXPORT)).body.endswith(DOCUMENT_END)


async def test_a_head_has_no_document(runs: LoggedRuns) -> None:
    answer = await ask(app(runs), "HEAD", EXPORT)
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize("path", [EXPORT, "/conversations/%7Bid%7D/export"])
async def test_what_is_not_there_is_not_exported(path: str) -> None:
    answer = await ask(app(LoggedRuns()), "GET", path)
    assert refusal(answer)[0] in (404, 422)
    assert answer.code in ("conversation_not_found", "invalid_request")


@pytest.mark.promise("P17")
async def test_another_owners_conversation_is_as_one_that_is_not_there(runs: LoggedRuns) -> None:
    answer = await ask(app(runs, KEYS), "GET", EXPORT, headers=ANN)
    assert refusal(answer) == (404, "conversation_not_found")


async def test_an_export_that_fails_has_no_end(runs: LoggedRuns) -> None:
    runs.broken = StoreUnavailable("gone")
    async with exchange(app(runs), "GET", EXPORT) as asked:
        body = await asked.rest()
        assert not asked.ended
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(body)


# ---------------------------------------------------------------- import
async def test_a_document_is_imported_under_its_id_or_another(runs: LoggedRuns) -> None:
    for path, name in ((IMPORT, "c2"), (f"{IMPORT}?id=c3", "c3"), (f"{IMPORT}?id=a%2Fb", "a/b")):
        answer = await post(runs, {**FULL, "id": "c2"}, path)
        assert (answer.status, answer.json["id"]) == (201, name)
        assert ConversationKey(RUN.key.owner, ConversationId(name)) in runs.known
    assert runs.imports == [read_document({**FULL, "id": "c2"})] * 3
    answer = await post(runs, {**FULL, "id": "c2"})
    assert refusal(answer) == (409, "conflict")


@pytest.mark.parametrize("roles", [{"user", "tool"}, {"user", "tool", "system"}])
async def test_without_the_role_of_the_agent_nothing_is_imported(
    runs: LoggedRuns, roles: set[str]
) -> None:
    for posted in (FULL, document(), {}):
        answer = await post(runs, posted, roles=frozenset(roles))
        assert refusal(answer) == (403, "not_allowed")
        assert "PASSBACK_ALLOW_ROLES=assistant" in answer.json["message"]
    assert runs.imports == []


@pytest.mark.parametrize("inside", [False, True])
async def test_messages_of_the_system_need_their_role(runs: LoggedRuns, inside: bool) -> None:
    system = {"role": "system", "id": "s", "content": "be brief"}
    posted = document(user("a"), system)
    if inside:
        child = {"role": "child", "call_id": "x", "message": system}
        posted = document(user("a"), agent("b", call("x")), child, tool("c", "x"))
    answer = await post(runs, posted)
    assert refusal(answer) == (403, "not_allowed")
    assert "PASSBACK_ALLOW_ROLES=system,assistant" in answer.json["message"]
    assert runs.imports == []
    assert (await post(runs, {**posted, "id": "d"}, roles=TRUSTED | {"system"})).status == 201
    # the server's own rejection of an answer is none
    rejected = document(user("a"), agent("b"), {**system, "synthetic": "invalid"}, id="e")
    assert (await post(runs, rejected)).status == 201


@pytest.mark.parametrize(
    ("once", "twice"),
    [
        ('"version": 1', '"version": 1, "version": 1'),
        ('"id": "c2"', '"id": "c2", "\\u0069d": "c3"'),
        ('"content": "a"', '"content": "b", "content": "a"'),
    ],
)
async def test_a_document_with_a_key_twice_is_refused(
    runs: LoggedRuns, once: str, twice: str
) -> None:
    text = json.dumps(document(user("m", content="a"), id="c2"))
    assert once in text
    site, headers = app(runs, roles=TRUSTED), {"content-type": "application/json"}
    doubled = text.replace(once, twice).encode()
    answer = await ask(site, "POST", IMPORT, headers=headers, body=doubled)
    assert refusal(answer) == (422, "invalid_request")
    assert "twice" in answer.json["message"]
    assert runs.imports == []
    assert (await ask(site, "POST", IMPORT, headers=headers, body=text.encode())).status == 201


BAD_TYPE = {"type": "image", "url": "data:text/plain;base64,AAAA"}
NO_URL = {"type": "image", "url": "javascript:alert(1)"}
LARGE = {"type": "image", "url": "data:image/png;base64," + "A" * 4000}


@pytest.mark.parametrize(
    ("posted", "status", "code", "place"),
    [
        ({}, 422, "invalid_request", "id"),
        ({"id": 7}, 422, "invalid_request", "id"),
        ({"id": "c2"}, 422, "invalid_request", "this is no conversation"),
        ({**document(), "messages": {}}, 422, "invalid_request", "messages: Input should be a va"),
        (document(id=""), 422, "invalid_request", "a conversation id"),
        (document(id="{x}"), 422, "invalid_request", "a conversation id"),
        (document(id="x" * 257), 422, "invalid_request", "a conversation id"),
        (document(user("a", content="")), 422, "invalid_request", "messages.0"),
        (document(user("a", content=[])), 422, "invalid_request", "messages.0"),
        (document(user("a", content=[NO_URL])), 422, "invalid_request", "messages.0.content"),
        (document(user("a", content=[BAD_TYPE])), 422, "invalid_request", "messages.0"),
        (document(user("a", content=[LARGE])), 413, "attachment_too_large", "messages.0"),
        (
            document(user("a", context={"data": "x" * 3000})),
            413, "data_too_large", "messages.0: context.data",
        ),
        (
            document(user("a", context={"data": {"mediaType": "text/csv", "text": '"'}})),
            422, "invalid_request", "messages.0",
        ),
        (
            document(user("a", context={"output_schema": {"type": "array"}})),
            422, "invalid_output_schema", "messages.0.context.output_schema",
        ),
        (
            document(state={"output_schema": {"type": "object", "$ref": "http://x/y"}}),
            422, "invalid_output_schema", "state.output_schema",
        ),
        (document(state={"data": "x" * 3000}), 413, "data_too_large", "state.data"),
        (
            document(tools=[{"name": "a b", "description": "", "parameters": {}}]),
            422, "invalid_tool", "tools",
        ),
        (
            document(tools=[{"name": "a", "description": "", "parameters": {"type": "array"}}]),
            422, "invalid_tool", "tool 'a'",
        ),
        (
            document(
                tools=[
                    {"name": name, "description": "", "parameters": {"type": "object"}}
                    for name in ("a", "A")
                ]
            ),
            422, "tool_name_clash", "two tools",
        ),
    ],
)  # fmt: skip
async def test_contents_that_no_post_may_have_are_refused(
    runs: LoggedRuns, posted: Any, status: int, code: str, place: str
) -> None:
    limits = RequestLimits(attachment_bytes=2000, data_bytes=2000)
    answer = await post(runs, posted, limits=limits)
    assert refusal(answer) == (status, code)
    assert answer.json["message"].startswith(place), answer.json["message"]
    assert runs.imports == []


async def test_a_body_is_limited_as_those_of_posts_are(runs: LoggedRuns) -> None:
    answer = await post(runs, FULL, limits=RequestLimits(body_bytes=100))
    assert refusal(answer) == (413, "body_too_large")


async def test_import_is_an_id_as_any_other(runs: LoggedRuns) -> None:
    runs.known[ConversationKey(RUN.key.owner, ConversationId("import"))] = Status(1)
    assert (await ask(app(runs), "GET", IMPORT)).json["id"] == "import"
    assert (await ask(app(runs), "DELETE", IMPORT)).status == 204
    assert (await ask(app(runs), "PUT", IMPORT)).status == 405


# ---------------------------------------------------------------- erasing
async def test_the_conversations_of_an_owner_are_erased_in_steps(runs: LoggedRuns) -> None:
    for number in range(100):
        runs.known[ConversationKey(OwnerId("ann"), ConversationId(str(number)))] = Status(1)
    runs.known[ConversationKey(OwnerId("ann"), ConversationId("last"))] = Status(1)
    steps = [
        (await ask(app(runs, KEYS), "DELETE", "/conversations", headers=ANN)).json for _ in range(3)
    ]
    assert steps == [
        {"deleted": 100, "more": True},
        {"deleted": 1, "more": False},
        {"deleted": 0, "more": False},
    ]
    assert list(runs.known) == [RUN.key]


@pytest.mark.parametrize("owner", ["ann", "anonymous", ""])
@pytest.mark.parametrize("access", [Access(), KEYS])
async def test_nobody_erases_what_is_another_owners(
    runs: LoggedRuns, access: Access, owner: str
) -> None:
    answer = await ask(app(runs, access), "DELETE", f"/conversations?owner={owner}", headers=ANN)
    assert refusal(answer) == (403, "not_allowed")
    assert "passback erase --owner" in answer.json["message"]
    assert list(runs.known) == [RUN.key]


async def test_without_keys_nobody_erases_what_is_everybodys(runs: LoggedRuns) -> None:
    open_to_all = Access(loopback_only=False)
    answer = await ask(app(runs, open_to_all), "DELETE", "/conversations")
    assert refusal(answer) == (403, "keys_needed")
    assert list(runs.known) == [RUN.key]


async def test_a_key_is_needed_where_there_are_keys(runs: LoggedRuns) -> None:
    for method, path in (("DELETE", "/conversations"), ("GET", EXPORT), ("POST", IMPORT)):
        assert (await ask(app(runs, KEYS), method, path)).status == 401
    assert list(runs.known) == [RUN.key]
