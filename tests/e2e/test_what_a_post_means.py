"""The table "What a post means", row by row, where nothing runs: over HTTP, on two workers.

The rows of what runs are in `test_a_post_during_a_run.py`. Each post goes to the other worker than
the one before, and the model's service refuses what providers refuse.
"""

import pytest
from tests.e2e.stage import (
    GO,
    OWING,
    PAID,
    SUPERSEDED,
    Past,
    Post,
    Row,
    Stage,
    begins,
    call_of,
    past,
    row,
)
from tests.support.model_server import calls, says

pytestmark = [pytest.mark.anyio, pytest.mark.promise("P2", "P5", "P9")]

# ---------------------------------------------------------------- earlier posts
NEW: list[Past] = []
IDLE = [past("user: hi", then=says("hello"))]
HALF = [*OWING, past("color: red")]
ANSWERED = [*OWING, past("zone: UTC", "color: red", then=says("done"))]
SINGLY = [*HALF, past("zone: UTC", then=says("done"))]
LEFT = [*HALF, past("user: never mind", then=says("fine"))]
MIXED = [past("user: go", then=call_of("zone", "price", "color"))]
TWICE = [past("user: go", then=[call_of("price"), call_of("zone")])]
INVALID = [past("user: go", then=calls(("a", "color", "[1]"), ("b", "zone", "{}")))]
MADE_UP = [past("user: go", then=call_of("fly", "zone"))]
NAMED = [past("user#m-1: hi", then=says("hello"), key="key-1")]
MIX = ["user: go", "assistant: -> zone, price, color"]
NO_OBJECT = "Not executed: the arguments are not a JSON object: [1]"


ROWS = {
    # ---------------- idle
    "a user message starts a run": begins(
        IDLE,
        "user: more",
        adds=["user: more"],
        asks=["user: hi", "assistant: hello", "user: more"],
    ),
    "so does the first": begins(NEW, "user: hi", adds=["user: hi"], asks=["user: hi"]),
    "two messages are two": begins(
        NEW, "user: hi", "user: hi", adds=["user: hi", "user: hi"], asks=["user: hi", "user: hi"]
    ),
    # ---------------- idle, calls owed: all results
    "all results start a run": begins(
        OWING,
        "zone: UTC",
        "color: red",
        adds=["zone: UTC", "color: red"],
        asks=[*GO, "zone: UTC", "color: red"],
    ),
    "in any order": begins(
        OWING,
        "color: red",
        "zone: UTC",
        adds=["color: red", "zone: UTC"],
        asks=[*GO, "zone: UTC", "color: red"],
    ),
    "or the last of several": begins(
        HALF, "zone: UTC", adds=["zone: UTC"], asks=[*GO, "zone: UTC", "color: red"]
    ),
    "together with one that is known": begins(
        HALF, "color: red", "zone: UTC", adds=["zone: UTC"], asks=[*GO, "zone: UTC", "color: red"]
    ),
    "an equal one twice counts once": begins(
        HALF, "zone: UTC", "zone: UTC", adds=["zone: UTC"], asks=[*GO, "zone: UTC", "color: red"]
    ),
    "a result may say that the tool failed": begins(
        HALF,
        "zone (error): no clock",
        adds=["zone (error): no clock"],
        asks=[*GO, "zone: Error: no clock", "color: red"],
    ),
    "a result may be empty": begins(
        HALF, "zone: ", adds=["zone: "], asks=[*GO, "zone: ", "color: red"]
    ),
    # ---------------- idle, calls owed: the server's own calls among them
    "results beside the server's": begins(
        MIXED,
        "color: red",
        "zone: UTC",
        adds=["color: red", "zone: UTC"],
        asks=[*MIX, "zone: UTC", PAID, "color: red"],
    ),
    "results behind a turn of the server's": begins(
        TWICE,
        "zone: UTC",
        adds=["zone: UTC"],
        asks=["user: go", "assistant: -> price", PAID, "assistant: -> zone", "zone: UTC"],
    ),
    "results beside an invalid call": begins(
        INVALID,
        "zone: UTC",
        adds=["zone: UTC"],
        asks=["user: go", "assistant: -> color, zone", f"color: Error: {NO_OBJECT}", "zone: UTC"],
    ),
    "results beside a call of no tool": begins(
        MADE_UP,
        "zone: UTC",
        adds=["zone: UTC"],
        asks=[
            "user: go",
            "assistant: -> fly, zone",
            "fly: Error: Not executed: there is no tool named 'fly'.",
            "zone: UTC",
        ],
    ),
    # ---------------- idle, calls owed: some of them
    "some results are stored": Row(OWING, Post(["color: red"]), "owes zone", ["color: red"]),
    "the others of several calls are named": Row(
        MIXED, Post(["zone: UTC"]), "owes color", ["zone: UTC"]
    ),
    "a repeat of them is still not all": row(HALF, "color: red", is_="owes zone"),
    # ---------------- idle, calls owed: a user message
    "a message closes what is open": begins(
        OWING,
        "user: never mind",
        adds=["zone (superseded)", "color (superseded)", "user: never mind"],
        asks=[*GO, f"zone: {SUPERSEDED}", f"color: {SUPERSEDED}", "user: never mind"],
    ),
    "and leaves what was answered": begins(
        HALF,
        "user: never mind",
        adds=["zone (superseded)", "user: never mind"],
        asks=[*GO, f"zone: {SUPERSEDED}", "color: red", "user: never mind"],
    ),
    "also beside the server's calls": begins(
        MIXED,
        "user: never mind",
        adds=["zone (superseded)", "color (superseded)", "user: never mind"],
        asks=[*MIX, f"zone: {SUPERSEDED}", PAID, f"color: {SUPERSEDED}", "user: never mind"],
    ),
    # ---------------- idle, calls owed: results and a user message
    "results come before their message": begins(
        OWING,
        "user: and?",
        "color: red",
        adds=["color: red", "zone (superseded)", "user: and?"],
        asks=[*GO, f"zone: {SUPERSEDED}", "color: red", "user: and?"],
    ),
    "all results and a message": begins(
        OWING,
        "zone: UTC",
        "user: and?",
        "color: red",
        adds=["zone: UTC", "color: red", "user: and?"],
        asks=[*GO, "zone: UTC", "color: red", "user: and?"],
    ),
    "a known result and a message": begins(
        ANSWERED,
        "zone: UTC",
        "user: and?",
        adds=["user: and?"],
        asks=[*GO, "zone: UTC", "color: red", "assistant: done", "user: and?"],
    ),
    # ---------------- any: known by key or id
    "a key that is known": row(NAMED, "user: hi", is_="joins 1", key="key-1"),
    "a message that is known": row(NAMED, "user#m-1: hi", is_="joins 1"),
    "a known key with other words": row(NAMED, "user: bye", is_="422 reused", key="key-1"),
    "a known message with other words": row(NAMED, "user#m-1: bye", is_="422 reused"),
    # ---------------- any: a result that is stored
    "the same results": row(ANSWERED, "zone: UTC", "color: red", is_="joins 2"),
    "one of them": row(ANSWERED, "color: red", is_="joins 2"),
    "the first of several posts": row(SINGLY, "color: red", is_="joins 2"),
    "one that a message went past": row(LEFT, "color: red", is_="joins 2"),
    "another result": row(ANSWERED, "zone: CET", is_="409 tool_result_conflict"),
    "another one while more is owed": row(HALF, "color: blue", is_="409 tool_result_conflict"),
    "another one beside a good one": row(
        HALF, "zone: UTC", "color: blue", is_="409 tool_result_conflict"
    ),
    "two for one call": row(OWING, "zone: UTC", "zone: CET", is_="409 tool_result_conflict"),
    "the same, as a failure": row(HALF, "color (error): red", is_="409 tool_result_conflict"),
    "one that comes too late": row(LEFT, "zone: UTC", is_="409 tool_result_conflict"),
    "one that comes too late, with a message": row(
        LEFT, "zone: UTC", "user: and?", is_="409 tool_result_conflict"
    ),
    # ---------------- any: a result for an unknown call
    "another conversation's call": row(OWING, "foreign: UTC", is_="404 tool_call_not_found"),
    "beside a good one": row(OWING, "zone: UTC", "foreign: UTC", is_="404 tool_call_not_found"),
    "with a message": row(OWING, "user: and?", "foreign: UTC", is_="404 tool_call_not_found"),
    "the server's call": row(MIXED, "price: free", is_="404 tool_call_not_found"),
    "an invalid call": row(INVALID, "color: red", is_="404 tool_call_not_found"),
    "an invalid call, when all is over": row(
        [*INVALID, past("zone: UTC", then=says("done"))],
        "color: red",
        is_="404 tool_call_not_found",
    ),
    "in a new conversation": row(NEW, "foreign: UTC", is_="404 tool_call_not_found"),
    # ---------------- any: no message
    "nothing": row(IDLE, is_="422 nothing_to_do"),
    "nothing while calls are owed": row(OWING, is_="422 nothing_to_do"),
    "nothing in a new conversation": row(NEW, is_="422 nothing_to_do"),
}


@pytest.mark.parametrize("what", ROWS.values(), ids=ROWS)
async def test_a_post_when_nothing_runs(stage: Stage, what: Row) -> None:
    await stage.call_elsewhere()
    await stage.play(what)
