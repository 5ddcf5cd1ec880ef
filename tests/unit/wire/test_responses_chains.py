"""Where a response goes on: behind the last one, in a copy behind an older one, by its items."""

import anyio
import pytest
from tests.unit.wire.responses_events import Json, items_of, texts_of
from tests.unit.wire.responses_site import (
    PAINT,
    PATH,
    ResponsesClient,
    calls_of,
    error_of,
    output,
    responses,
    user,
)

from passback import Agent
from passback.core.deltas import Finish
from passback.models.scripted import Step
from passback.testing import ScriptedModel, calls, says

pytestmark = pytest.mark.anyio

TOLD: list[list[Step]] = [says(each) for each in ("one", "two", "three", "four", "five")]
CALL: list[Step] = calls(("paint", {"at": 1}))
KEYED = {"headers": {"idempotency-key": "k1"}}


def place_of(client: ResponsesClient) -> str:
    return client.headers["x-conversation-id"]


# ---------------------------------------------------------------- by the id of a response
async def test_the_last_response_is_continued_in_place_and_an_older_one_in_a_copy() -> None:
    async with responses(TOLD) as client:
        first = await client.post("1")
        home = place_of(client)
        second = await client.post("2", previous_response_id=first["id"])
        assert (place_of(client), second["previous_response_id"]) == (home, first["id"])
        third = await client.post("3", previous_response_id=first["id"])
        copy = place_of(client)
        assert copy != home
        assert await client.contents(copy) == ["1", "one", "3", "three"]
        await client.post("4", previous_response_id=third["id"])
        assert place_of(client) == copy
        await client.post("5", previous_response_id=second["id"])
        assert place_of(client) == home
        assert await client.contents(home) == ["1", "one", "2", "two", "5", "five"]
        assert await client.read(first) == first
        assert await client.read(third) == third


async def test_a_response_is_copied_as_often_as_it_is_continued() -> None:
    async with responses(TOLD) as client:
        first = await client.post("1")
        places = set[str]()
        for number in range(4):
            await client.post(str(number), previous_response_id=first["id"])
            places.add(place_of(client))
        assert len(places) == 4


async def test_a_response_that_goes_on_cannot_be_continued_yet() -> None:
    async with responses([["so far", anyio.Event()], says("next")]) as client:
        first = await client.post("1", background=True)
        body = {"input": "2", "previous_response_id": first["id"]}
        answer = await client.http.post(PATH, json=body)
        error = error_of(answer)
        assert (answer.status_code, error["code"]) == (409, "conversation_locked")
        assert int(answer.headers["retry-after"]) >= 1
        assert "x-should-retry" not in answer.headers
        cancelled = (await client.http.post(f"{PATH}/{first['id']}/cancel")).json()
        assert cancelled["status"] == "cancelled"
        next_one = await client.post("2", previous_response_id=first["id"])
        assert texts_of(next_one) == ["next"]
        assert await client.contents() == ["1", "so far", "2", "next"]


async def test_a_conversation_is_continued_by_its_name() -> None:
    async with responses(TOLD) as client:
        await client.post("1")
        name = place_of(client)
        for given in name, {"id": name}:
            response = await client.post("2", conversation=given)
            assert (place_of(client), response["conversation"]) == (name, {"id": name})
            assert await client.read(response) == response
        assert "conversation" not in await client.post("x")


async def test_a_deleted_conversation_takes_its_responses_with_it() -> None:
    async with responses(TOLD) as client:
        first = await client.post("1")
        await client.http.delete(f"/conversations/{place_of(client)}")
        assert (await client.get(first["id"])).status_code == 404
        status, error = await client.refusal("2", previous_response_id=first["id"])
        assert (status, error["code"]) == (400, "previous_response_not_found")


async def test_a_response_on_a_branch_that_was_left_is_not_continued() -> None:
    async with responses(TOLD) as client:
        first = await client.post("1")
        name = place_of(client)
        second = await client.post("2", previous_response_id=first["id"])
        message = (await client.messages(name))[1]["id"]
        body = {
            "conversationId": name,
            "messages": [{"role": "user", "content": "other"}],
            "after": message,
        }
        assert (await client.http.post("/send-message?wait=true", json=body)).status_code == 200
        status, error = await client.refusal("3", previous_response_id=second["id"])
        assert (status, error["code"]) == (400, "previous_response_not_found")
        assert "another branch" in error["message"]
        read = await client.read(second)
        assert (read["status"], read["output"]) == ("completed", [])


async def test_an_old_response_is_found_behind_many_messages() -> None:
    async with responses([says("x")] * 60) as client:
        first = await client.post("1")
        before = first
        for number in range(52):
            before = await client.post(str(number), previous_response_id=before["id"])
        await client.post("copy", previous_response_id=first["id"])
        assert await client.contents() == ["1", "x", "copy", "x"]
        # and by its item
        await client.post([user("1"), *first["output"], user("again")])
        assert await client.contents() == ["1", "x", "again", "x"]


# ---------------------------------------------------------------- calls
async def test_a_message_instead_of_the_outputs_supersedes_the_calls() -> None:
    async with responses([CALL, says("well")]) as client:
        first = await client.post("go", tools=[PAINT])
        second = await client.post("no, stop", previous_response_id=first["id"])
        assert texts_of(second) == ["well"]
        messages = await client.messages()
        assert [each["role"] for each in messages] == [
            *("user", "assistant", "tool", "user", "assistant")
        ]
        assert messages[2]["synthetic"] == "superseded"


async def test_calls_that_were_answered_later_are_closed_in_a_copy_that_ends_before() -> None:
    async with responses([calls(("paint", {}), ("paint", {"n": 2})), *TOLD]) as client:
        first = await client.post("go", tools=[PAINT])
        one, other = calls_of(first)
        home = place_of(client)
        second = await client.post([output(one, "a"), output(other, "b")])
        assert (place_of(client), texts_of(second)) == (home, ["one"])
        await client.post("instead", previous_response_id=first["id"])
        assert place_of(client) != home
        *_, earlier, said, _ = await client.messages()
        assert (said["content"], earlier["synthetic"]) == ("instead", "superseded")


async def test_outputs_belong_to_their_calls_whatever_response_is_named() -> None:
    async with responses([CALL, says("done"), says("more")]) as client:
        first = await client.post("go", tools=[PAINT])
        [call] = calls_of(first)
        done = await client.post([output(call)])  # without the response
        assert texts_of(done) == ["done"]
        await client.post("more", previous_response_id=done["id"])
        # a repeat, and a different one
        assert await client.post([output(call)], previous_response_id=first["id"]) == done | {
            "previous_response_id": None
        }
        status, error = await client.refusal(
            [output(call, "other")], previous_response_id=first["id"]
        )
        assert (status, error["code"]) == (409, "tool_result_conflict")
        status, error = await client.refusal([output({"call_id": "call_x"})])
        assert (status, error["param"]) == (400, "input")


async def test_outputs_may_come_with_a_message() -> None:
    async with responses([CALL, says("done")]) as client:
        first = await client.post("go", tools=[PAINT])
        [call] = calls_of(first)
        given = [output(call, "blue"), user("and now?")]
        await client.post(given, previous_response_id=first["id"])
        assert await client.contents() == ["go", "", "blue", "and now?", "done"]


@pytest.mark.parametrize("approved", [True, False])
async def test_a_decision_continues_the_response_that_asked(approved: bool) -> None:
    async def erase(path: str) -> str:
        """Erase."""
        return f"erased {path}"

    script = [calls(("erase", {"path": "/"})), says("so be it")]
    agent = Agent(model=ScriptedModel(script), tools=[erase], permissions={"erase": "ask"})
    async with responses(agent) as client:
        first = await client.stream("erase it")
        assert items_of(first) == [("mcp_approval_request", "")]
        [asked] = first["output"]
        decision: Json = {
            "type": "mcp_approval_response",
            "approval_request_id": asked["id"],
            "approve": approved,
        }
        second = await client.stream([decision], previous_response_id=first["id"])
        assert texts_of(second) == ["so be it"]
        [made] = [each for each in second["output"] if each["type"] == "mcp_call"]
        assert (made["status"], made["output"], made["error"] is None) == (
            ("completed", "erased /", True) if approved else ("failed", None, False)
        )
        assert await client.read(second) == second
        again = await client.stream([decision], previous_response_id=first["id"])
        assert again == second
        page = (await client.get(f"{second['id']}/input_items")).json()["data"]
        assert [each["approve"] for each in page] == [approved]
        # the whole conversation again, with the request and the decision as they were
        given = [user("erase it"), asked, decision, *second["output"]]
        assert (await client.refusal(given))[0] == 400  # nothing is new


# ---------------------------------------------------------------- resent conversations
@pytest.mark.parametrize(
    "form",
    ["whole", "references", "ids", "untyped"],
)
async def test_a_resent_conversation_goes_on_where_it_was(form: str) -> None:
    def resent(items: list[Json]) -> list[Json]:
        forms = {
            "whole": items,
            "references": [{"type": "item_reference", "id": each["id"]} for each in items],
            "ids": [{"id": each["id"]} for each in items],
            "untyped": [{k: v for k, v in each.items() if k != "status"} for each in items],
        }
        return forms[form]

    async with responses([CALL, *TOLD]) as client:
        said: list[Json] = [user("go")]
        first = await client.post(said, tools=[PAINT])
        home = place_of(client)
        said += [*resent(first["output"]), output(calls_of(first)[0], "blue")]
        second = await client.post(said, tools=[PAINT])
        assert texts_of(second) == ["one"]
        said += [*resent(second["output"]), user("more")]
        third = await client.post(said)
        assert texts_of(third) == ["two"]
        assert place_of(client) == home
        assert await client.contents() == ["go", "", "blue", "one", "more", "two"]
        # the end is cut off and said anew: a copy
        await client.post([*said[:-1], user("instead")])
        assert place_of(client) != home
        assert await client.contents() == ["go", "", "blue", "one", "instead", "three"]


async def test_calls_without_ids_are_known_by_their_call_ids() -> None:
    """As the AI SDK sends what it has."""
    async with responses([CALL, *TOLD]) as client:
        first = await client.post("go", tools=[PAINT])
        home = place_of(client)
        [call] = calls_of(first)
        bare = {k: v for k, v in call.items() if k not in {"id", "status"}}
        second = await client.post([user("go"), bare, output(call)], tools=[PAINT])
        assert (place_of(client), texts_of(second)) == (home, ["one"])


async def test_the_models_refusal_is_known_again() -> None:
    async with responses([[Finish("refusal")], *TOLD]) as client:
        first = await client.stream("go")
        assert await client.read(first) == first
        home = place_of(client)
        await client.post([user("go"), *first["output"], user("please")])
        assert place_of(client) == home


async def test_an_item_that_is_not_in_its_conversation_any_more_is_named() -> None:
    async with responses(TOLD) as client:
        first = await client.post("1")
        [item] = first["output"]
        gone = f"{item['id'][:-3]}abc"
        status, error = await client.refusal([user("1"), {"id": gone}, user("2")])
        assert (status, error["param"]) == (404, "input")


@pytest.mark.promise("P13")
async def test_no_item_stands_for_a_conversation_whose_id_is_a_secret() -> None:
    async with responses([CALL, *TOLD], host="0.0.0.0") as client:
        first = await client.post("go", tools=[PAINT])
        [call] = calls_of(first)
        status, error = await client.refusal([output(call)])
        assert (status, error["param"]) == (400, "input")
        done = await client.post([output(call)], previous_response_id=first["id"])
        assert texts_of(done) == ["one"]


# ---------------------------------------------------------------- repeats
async def test_a_repeat_with_its_key_is_the_same_response() -> None:
    async with responses(TOLD) as client:
        first = await client.post("1", **KEYED)
        assert await client.post("1", **KEYED) == first
        assert await client.stream("1", **KEYED) == first
        status, error = await client.refusal("2", **KEYED)
        assert (status, error["code"]) == (409, "reused")
        assert client.headers["x-should-retry"] == "false"


async def test_a_repeat_behind_a_response_is_the_same_in_place_and_in_a_copy() -> None:
    async with responses(TOLD) as client:
        first = await client.post("1")
        home = place_of(client)
        second = await client.post("2", previous_response_id=first["id"], **KEYED)
        assert place_of(client) == home
        assert await client.post("2", previous_response_id=first["id"], **KEYED) == second
        other = {"headers": {"idempotency-key": "k2"}}
        third = await client.post("3", previous_response_id=first["id"], **other)
        copy = place_of(client)
        assert copy != home
        assert await client.post("3", previous_response_id=first["id"], **other) == third
        assert place_of(client) == copy
        assert await client.contents() == ["1", "one", "3", "three"]


async def test_tools_and_instructions_are_not_inherited() -> None:
    model = ScriptedModel(TOLD)
    async with responses(Agent(model=model)) as client:
        first = await client.post("1", tools=[PAINT], instructions="be brief", metadata={"a": "b"})
        second = await client.post("2", previous_response_id=first["id"])
        assert [each.name for each in model.requests[0].tools] == ["paint"]
        assert model.requests[1].tools == ()
        assert (second["tools"], second["instructions"], second["metadata"]) == ([], None, {})


# ---------------------------------------------------------------- deletion
async def test_a_response_that_stands_alone_is_deleted_with_its_conversation() -> None:
    async with responses(TOLD) as client:
        first = await client.post("hi")
        place = f"/conversations/{client.headers['x-conversation-id']}"
        deleted = await client.http.delete(f"{PATH}/{first['id']}")
        assert deleted.json() == {"id": first["id"], "object": "response", "deleted": True}
        assert (await client.http.get(place)).status_code == 404
        assert (await client.http.delete(f"{PATH}/{first['id']}")).status_code == 404


async def test_a_response_that_is_continued_or_in_a_named_conversation_is_hidden() -> None:
    async with responses(TOLD) as client:
        first = await client.post("hi")
        name = client.headers["x-conversation-id"]
        second = await client.post("go on", previous_response_id=first["id"])
        for response in (first, second):
            assert (await client.http.delete(f"{PATH}/{response['id']}")).status_code == 200
            assert (await client.http.get(f"{PATH}/{response['id']}")).status_code == 404
            status, error = await client.refusal("x", previous_response_id=response["id"])
            assert (status, error["code"]) == (400, "previous_response_not_found")
        assert len(await client.messages(name)) == 4
        third = await client.post("still here", conversation=name)
        assert (await client.http.delete(f"{PATH}/{third['id']}")).status_code == 200
        assert len(await client.messages(name)) == 6


async def test_a_response_that_goes_on_is_not_deleted() -> None:
    async with responses([["so far", anyio.Event()]]) as client:
        first = await client.post("hi", background=True)
        answer = await client.http.delete(f"{PATH}/{first['id']}")
        assert (answer.status_code, error_of(answer)["code"]) == (409, "conversation_locked")
        await client.http.post(f"{PATH}/{first['id']}/cancel")
