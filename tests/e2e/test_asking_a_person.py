"""The table "What a post means" for approvals, like `test_what_a_post_means`."""

from collections.abc import AsyncGenerator

import pytest
from tests.e2e.asking import asking_worker, flags_for
from tests.e2e.stage import Past, Post, Row, Stage, begins, call_of, past, row
from tests.support.model_server import ModelServer, says
from tests.support.wire import Client

from passback.core.transcript import UNMADE_TEXT

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P1", "P2", "P5", "P9")]


@pytest.fixture(scope="module")
async def asking_pair(store: str, model: ModelServer) -> AsyncGenerator[tuple[Client, Client]]:
    flags = flags_for(store, model)
    async with asking_worker(*flags) as one, asking_worker(*flags) as other:
        yield one.client, other.client


@pytest.fixture
def stage(model: ModelServer, asking_pair: tuple[Client, Client], conversation: str) -> Stage:
    return Stage(model, asking_pair, conversation)


# ---------------------------------------------------------------- earlier posts
NEW: list[Past] = []
WIPE = [past("user: go", then=call_of("wipe"))]
BOTH = [past("user: go", then=call_of("wipe", "send"))]
MIXED = [past("user: go", then=call_of("wipe", "price", "zone"))]
HALF = [*BOTH, past("send? yes")]
DENIED = [*BOTH, past("send? no")]
ZONED = [*MIXED, past("zone: UTC")]
DONE = [*BOTH, past("send? yes", "wipe? no", then=says("done"))]
SINGLY = [*HALF, past("wipe? yes", then=says("done"))]
LEFT = [*HALF, past("user: never mind", then=says("fine"))]
NEVER = [past("user: go", then=[call_of("burn"), says("done")])]

GO = ["user: go", "assistant: -> wipe"]
GO_BOTH = ["user: go", "assistant: -> wipe, send"]
GO_MIXED = ["user: go", "assistant: -> wipe, price, zone"]
NO = "Error: This call was not allowed."
GONE_ON = "Error: The user went on before this call was answered."

ROWS = {
    # ---------------- all that is owed
    "a yes starts a run that makes the call": begins(
        WIPE,
        "wipe? yes",
        adds=["wipe? yes", "wipe: wiped"],
        asks=[*GO, "wipe: wiped"],
    ),
    "a yes for good": begins(
        WIPE,
        "wipe? always",
        adds=["wipe? always", "wipe: wiped"],
        asks=[*GO, "wipe: wiped"],
    ),
    "a no starts a run that makes none": begins(
        WIPE,
        "wipe? no",
        adds=["wipe? no", "wipe (denied)"],
        asks=[*GO, f"wipe: {NO}"],
    ),
    "a no with a reason": begins(
        WIPE,
        "wipe? no, not now",
        adds=["wipe? no, not now", "wipe (denied)"],
        asks=[*GO, f"wipe: {NO} The user says: not now"],
    ),
    "two at once, one of each": begins(
        BOTH,
        "send? yes",
        "wipe? no",
        adds=["send? yes", "wipe? no", "wipe (denied)", "send: sent"],
        asks=[*GO_BOTH, f"wipe: {NO}", "send: sent"],
    ),
    "two at once are made in the model's order": begins(
        BOTH,
        "send? yes",
        "wipe? yes",
        adds=["send? yes", "wipe? yes", "wipe: wiped", "send: sent"],
        asks=[*GO_BOTH, "wipe: wiped", "send: sent"],
    ),
    "the last of several": begins(
        HALF,
        "wipe? yes",
        adds=["wipe? yes", "wipe: wiped", "send: sent"],
        asks=[*GO_BOTH, "wipe: wiped", "send: sent"],
    ),
    "the last, beside one that was denied": begins(
        DENIED,
        "wipe? yes",
        adds=["wipe? yes", "wipe: wiped"],
        asks=[*GO_BOTH, "wipe: wiped", f"send: {NO}"],
    ),
    "an answer and a result in one post": begins(
        MIXED,
        "zone: UTC",
        "wipe? yes",
        adds=["wipe? yes", "zone: UTC", "wipe: wiped"],
        asks=[*GO_MIXED, "wipe: wiped", "price: 3 euros", "zone: UTC"],
    ),
    "an answer behind a result": begins(
        ZONED,
        "wipe? no",
        adds=["wipe? no", "wipe (denied)"],
        asks=[*GO_MIXED, f"wipe: {NO}", "price: 3 euros", "zone: UTC"],
    ),
    # ---------------- some of it
    "one of two is stored": Row(BOTH, Post(["send? yes"]), "owes wipe", ["send? yes"]),
    "a no of two is stored": Row(
        BOTH, Post(["send? no"]), "owes wipe", ["send? no", "send (denied)"]
    ),
    "an answer, and a result is missing": Row(
        MIXED, Post(["wipe? yes"]), "owes zone", ["wipe? yes"]
    ),
    "a result, and an answer is missing": Row(
        MIXED, Post(["zone: UTC"]), "owes wipe", ["zone: UTC"]
    ),
    "a repeat is still not all": row(HALF, "send? yes", is_="owes wipe"),
    # ---------------- a user message
    "a message means that nobody answered": begins(
        WIPE,
        "user: never mind",
        adds=["wipe (superseded)", "user: never mind"],
        asks=[*GO, f"wipe: {GONE_ON}", "user: never mind"],
    ),
    "what was allowed and has not begun is not made": begins(
        HALF,
        "user: never mind",
        adds=["wipe (superseded)", "send (superseded)", "user: never mind"],
        asks=[*GO_BOTH, f"wipe: {GONE_ON}", f"send: Error: {UNMADE_TEXT}", "user: never mind"],
    ),
    "a no and a message": begins(
        WIPE,
        "wipe? no, too late",
        "user: do the other",
        adds=["wipe? no, too late", "wipe (denied)", "user: do the other"],
        asks=[*GO, f"wipe: {NO} The user says: too late", "user: do the other"],
    ),
    # ---------------- what is known
    "the same answers": row(DONE, "send? yes", "wipe? no", is_="joins 2"),
    "one of them": row(DONE, "wipe? no", is_="joins 2"),
    "the first of several posts": row(SINGLY, "send? yes", is_="joins 2"),
    "one that a message went past": row(LEFT, "send? yes", is_="joins 2"),
    "a no instead of a yes": row(DONE, "send? no", is_="409 tool_result_conflict"),
    "a yes instead of a no": row(DONE, "wipe? yes", is_="409 tool_result_conflict"),
    "a no for another reason": row(DONE, "wipe? no, why not", is_="409 tool_result_conflict"),
    "a yes for good instead of once": row(HALF, "send? always", is_="409 tool_result_conflict"),
    "another one beside a good one": row(
        HALF, "wipe? yes", "send? no", is_="409 tool_result_conflict"
    ),
    "two for one call": row(BOTH, "wipe? yes", "wipe? no", is_="409 tool_result_conflict"),
    "one that comes too late": row(LEFT, "wipe? yes", is_="409 tool_result_conflict"),
    "a result for what was allowed": row(HALF, "send: sent", is_="409 tool_result_conflict"),
    "an answer to what has a result": row(ZONED, "zone? yes", is_="409 tool_result_conflict"),
    # ---------------- what is unknown
    "another conversation's": row(WIPE, "foreign? yes", is_="404 tool_call_not_found"),
    "beside a good one": row(WIPE, "wipe? yes", "foreign? yes", is_="404 tool_call_not_found"),
    "with a message": row(WIPE, "foreign? yes", "user: and?", is_="404 tool_call_not_found"),
    "in a new conversation": row(NEW, "foreign? yes", is_="404 tool_call_not_found"),
    "a result for a call that asks": row(WIPE, "wipe: wiped", is_="404 tool_call_not_found"),
    "an answer to a client's call": row(MIXED, "zone? yes", is_="404 tool_call_not_found"),
    "an answer to a call that was made": row(MIXED, "price? yes", is_="404 tool_call_not_found"),
    "an answer to a call that is never made": row(
        NEVER, "burn? yes", is_="404 tool_call_not_found"
    ),
}


@pytest.mark.parametrize("what", ROWS.values(), ids=ROWS)
async def test_an_answer_when_nothing_runs(stage: Stage, what: Row) -> None:
    await stage.call_elsewhere("wipe")
    await stage.play(what)


async def test_what_is_allowed_for_good_is_not_asked_again_here(stage: Stage) -> None:
    await stage.lead(*WIPE)
    stage.model.play(call_of("wipe"), call_of("send"), says("good"))
    answer = await stage.post(Post(["wipe? always"]))
    assert answer.types == [
        *("run-start", "tool-call-end", "tool-result"),
        *("tool-call-start", "tool-call-args", "tool-call-end", "tool-result"),
        *("tool-call-start", "tool-call-args", "interrupt", "owed", "run-end", "[DONE]"),
    ]
    assert await stage.owed() == ["send"]


async def test_with_a_key_the_post_is_known_again(stage: Stage) -> None:
    await stage.lead(*WIPE)
    stage.model.play(says("good"))
    first = await stage.post(Post(["wipe? yes"], key="key-9"))
    again = await stage.post(Post(["wipe? yes"], key="key-9"))
    other = await stage.post(Post(["wipe? no"], key="key-9"))
    assert (first.status, again.status) == (200, 200)
    assert again.headers["x-run-id"] == first.headers["x-run-id"]
    assert (other.status, other.json["code"]) == (422, "reused")
    assert stage.asked() == [[*GO, "wipe: wiped"]]
