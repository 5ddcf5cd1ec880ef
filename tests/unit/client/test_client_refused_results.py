"""Results that the server refuses: what blocks nothing, and what the model is told; against a scripted server."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from tests.support.python_client import (
    DONE,
    IDLE,
    PAINT,
    Reply,
    Script,
    document,
    frame,
    owes,
    refusal,
    stream,
)

from passback_client import (
    Client,
    Decided,
    Event,
    Owed,
    OwedCall,
    Refused,
    Retry,
    Tool,
    ToolAnswer,
    ToolContext,
)

pytestmark = pytest.mark.anyio

SECONDS = 10
NAMES = ("a", "b", "c")
TOO_LARGE = "The answer was refused: it is result_too_large"


def paints(*names: str) -> list[dict[str, str]]:
    return [PAINT | {"id": name} for name in names]


def says(text: str, run: str = "next") -> Reply:
    return stream(frame(f"{run}.1-2", type="text", content=text), DONE, run=run)


def large() -> Reply:
    return refusal(413, "result_too_large")


def looks(run: str, *owed: dict[str, str]) -> Reply:
    return document(IDLE | {"runId": run, "owed": owed})


async def play(*replies: Reply, calls: Sequence[dict[str, str]]) -> tuple[Script, list[Event]]:
    """What the client does where a run hands these calls back; a call is answered by its id."""
    site = Script(owes(*calls), *replies)
    ran: list[str] = []

    async def paint(_: object, context: ToolContext) -> str:
        ran.append(context.call.id)
        return f"painted {context.call.id}"

    client = Client(
        "http://host",
        transport=site.transport,
        retry=Retry(attempts=1),
        claims=False,
        tools=[Tool("paint", "", {}, paint)],
        approve=lambda _: True,
    )
    with anyio.fail_after(SECONDS):
        async with client:
            events = [event async for event in client.send("hi")]
    assert sorted(ran) == sorted({*ran})
    return site, events


def told(events: Sequence[Event]) -> list[tuple[str, object, bool]]:
    return [(e.call_id, e.content, e.is_error) for e in events if isinstance(e, ToolAnswer)]


def posted(site: Script) -> list[list[str]]:
    """The calls that each post answers."""
    return [
        [each["toolCallId"] for each in body.get("messages", ())]
        + [each["interruptId"] for each in _resumed(body)]
        for body in site.bodies[1:]
    ]


def _resumed(body: dict[str, Any]) -> list[Any]:
    given = body.get("resume", [])
    return given if isinstance(given, list) else [given]


@pytest.mark.parametrize(
    ("status", "code"), [(400, "bad_request"), (413, "body_too_large"), (422, "invalid_request")]
)
async def test_refused_results_are_posted_one_by_one(status: int, code: str) -> None:
    left = [owes(*paints("b", "c"), run=None), owes(*paints("c"), run=None)]
    site, events = await play(refusal(status, code), *left, says("Done."), calls=paints(*NAMES))
    assert posted(site) == [["a", "b", "c"], ["a"], ["b"], ["c"]]
    assert told(events) == [(name, f"painted {name}", False) for name in NAMES]
    keys = site.headers("idempotency-key")
    assert len({*keys}) == len(keys)


async def test_a_result_that_is_refused_alone_is_told_to_the_model_as_an_error() -> None:
    left = [owes(*paints("b", "c"), run=None), large(), owes(*paints("c"), run=None)]
    site, events = await play(large(), *left, says("Done."), calls=paints(*NAMES))
    assert posted(site) == [["a", "b", "c"], ["a"], ["b"], ["b"], ["c"]]
    assert site.bodies[4]["messages"] == [
        {"role": "tool", "toolCallId": "b", "content": TOO_LARGE, "isError": True}
    ]
    assert told(events) == [
        ("a", "painted a", False),
        ("b", TOO_LARGE, True),
        ("c", "painted c", False),
    ]


async def test_one_result_that_is_refused_is_posted_as_an_error_and_no_more_than_that() -> None:
    site, events = await play(large(), says("Done."), calls=paints("a"))
    assert (posted(site), told(events)) == ([["a"], ["a"]], [("a", TOO_LARGE, True)])
    with pytest.raises(Refused, match="result_too_large"):
        await play(large(), large(), calls=paints("a"))


async def test_a_decision_that_is_refused_becomes_a_denial() -> None:
    calls = [{"id": "ok", "name": "delete", "arguments": "{}", "kind": "approval"}]
    refused = refusal(422, "invalid_request")
    site, events = await play(refused, says("Done."), calls=calls)
    denial = "The answer was refused: it is invalid_request"
    assert [each for each in events if isinstance(each, Decided)] == [
        Decided("ok", "delete", approved=False, reason=denial)
    ]
    assert _resumed(site.bodies[2]) == [
        {"interruptId": "ok", "payload": {"approved": False, "reason": denial}}
    ]


async def test_a_run_that_begins_meanwhile_is_read_and_waits_for_nothing_else() -> None:
    site, events = await play(large(), says("Late."), calls=paints("a", "b"))
    assert posted(site) == [["a", "b"], ["a"]]
    assert told(events) == [("a", "painted a", False)]


async def test_a_call_that_another_client_has_answered_meanwhile_is_left_out() -> None:
    settled = refusal(409, "tool_result_conflict")
    site, events = await play(
        large(),
        owes(*paints("b", "c"), run=None),
        settled,
        looks("run", *paints("c")),
        says("Done."),
        calls=paints(*NAMES),
    )
    assert posted(site) == [["a", "b", "c"], ["a"], ["b"], ["c"]]
    assert [call_id for call_id, *_ in told(events)] == ["a", "c"]


async def test_what_only_others_can_answer_stays_owed() -> None:
    asked = {"id": "q", "name": "ask_user", "arguments": "{}", "kind": "question"}
    left = [owes(*paints("b"), asked, run=None), owes(asked, run=None)]
    site, events = await play(large(), *left, calls=[*paints("a", "b"), asked])
    assert posted(site) == [["a", "b"], ["a"], ["b"]]
    assert events[-1] == Owed((OwedCall("q", "ask_user", "{}", "question"),))


async def test_another_refusal_is_an_error_at_once() -> None:
    with pytest.raises(Refused, match="refused"):
        await play(refusal(403, "refused"), calls=paints("a", "b"))
