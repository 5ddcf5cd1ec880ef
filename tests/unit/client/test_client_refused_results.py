"""Results that a scripted server refuses: they do not block others, and the model gets an error."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from tests.support.python_client import (
    IDLE,
    Reply,
    Script,
    document,
    owes,
    refusal,
)
from tests.unit.client.replies import paints, says

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

SECONDS = 30
NAMES = ("a", "b", "c")
TOO_LARGE = "The answer was refused: it is result_too_large"


def large() -> Reply:
    return refusal(413, "result_too_large")


def conversation(run: str, *owed: dict[str, str]) -> Reply:
    return document(IDLE | {"runId": run, "owed": owed})


async def play(*replies: Reply, calls: Sequence[dict[str, str]]) -> tuple[Script, list[Event]]:
    """Let a run hand these calls back to a client whose tool answers each by its id."""
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


def tool_answers(events: Sequence[Event]) -> list[tuple[str, object, bool]]:
    return [(e.call_id, e.content, e.is_error) for e in events if isinstance(e, ToolAnswer)]


def posted(site: Script) -> list[list[str]]:
    """Return the ids of the calls that each post answers."""
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
    assert tool_answers(events) == [(name, f"painted {name}", False) for name in NAMES]
    keys = site.headers("idempotency-key")
    assert len({*keys}) == len(keys)


async def test_a_result_that_is_refused_alone_becomes_an_error_for_the_model() -> None:
    left = [owes(*paints("b", "c"), run=None), large(), owes(*paints("c"), run=None)]
    site, events = await play(large(), *left, says("Done."), calls=paints(*NAMES))
    assert posted(site) == [["a", "b", "c"], ["a"], ["b"], ["b"], ["c"]]
    assert site.bodies[4]["messages"] == [
        {"role": "tool", "toolCallId": "b", "content": TOO_LARGE, "isError": True}
    ]
    assert tool_answers(events) == [
        ("a", "painted a", False),
        ("b", TOO_LARGE, True),
        ("c", "painted c", False),
    ]


async def test_a_single_refused_result_is_posted_once_more_as_an_error() -> None:
    site, events = await play(large(), says("Done."), calls=paints("a"))
    assert (posted(site), tool_answers(events)) == ([["a"], ["a"]], [("a", TOO_LARGE, True)])
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


async def test_a_run_that_begins_after_one_result_is_read_and_the_others_are_dropped() -> None:
    site, events = await play(large(), says("Late."), calls=paints("a", "b"))
    assert posted(site) == [["a", "b"], ["a"]]
    assert tool_answers(events) == [("a", "painted a", False)]


async def test_a_call_that_another_client_has_answered_meanwhile_is_left_out() -> None:
    settled = refusal(409, "tool_result_conflict")
    site, events = await play(
        large(),
        owes(*paints("b", "c"), run=None),
        settled,
        conversation("run", *paints("c")),
        says("Done."),
        calls=paints(*NAMES),
    )
    assert posted(site) == [["a", "b", "c"], ["a"], ["b"], ["c"]]
    assert [call_id for call_id, *_ in tool_answers(events)] == ["a", "c"]


async def test_calls_that_only_others_can_answer_stay_owed() -> None:
    asked = {"id": "q", "name": "ask_user", "arguments": "{}", "kind": "question"}
    left = [owes(*paints("b"), asked, run=None), owes(asked, run=None)]
    site, events = await play(large(), *left, calls=[*paints("a", "b"), asked])
    assert posted(site) == [["a", "b"], ["a"], ["b"]]
    assert events[-1] == Owed((OwedCall("q", "ask_user", "{}", "question"),))


async def test_another_refusal_is_an_error_at_once() -> None:
    with pytest.raises(Refused, match="refused"):
        await play(refusal(403, "refused"), calls=paints("a", "b"))
