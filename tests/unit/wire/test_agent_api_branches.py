"""`/process`: a request that says which message the new ones follow."""

from typing import Any

import pytest
from tests.support.agent_api import PATH, Json, text, user
from tests.support.asgi_client import ask_json
from tests.support.logged_runs import LoggedRuns
from tests.unit.wire.agent_api_site import GREETING, post, site

from passback.core.errors import UnknownMessage
from passback.core.messages import UserMessage, as_text
from passback.core.posts import StartRun

pytestmark = pytest.mark.anyio

ANSWER = {"role": "assistant", "type": "message", "content": [text("b")]}
OURS = "msg_693FyNLtTkEYVaTmsgaHHib8dHegXHoh9O"


async def _posted(*messages: Json, **more: Any) -> StartRun:
    """Return what a request posts, where clients may bring a history."""
    runs = LoggedRuns(*GREETING)
    app = site(runs, allow_roles=frozenset({"user", "tool", "assistant"}))
    body = {"session_id": "c", "input": list(messages), **more}
    answer = await ask_json(app, "POST", PATH, body)
    assert answer.status == 200, answer.body
    return runs.posts[0]


def said_in(post: StartRun) -> list[str]:
    """The texts of the user's new messages."""
    users = [each for each in post.messages if isinstance(each, UserMessage)]
    return [as_text(each.content, media=lambda part: part.url) for each in users]


@pytest.mark.parametrize(
    ("after", "place"),
    [
        ("", ""),
        ("mine", "mine"),
        ("mine_2", "mine_2"),
        (OURS, OURS),
        (f"{OURS}_2", OURS),  # a part of an answer has an id of its own
        (f"{OURS}_output", OURS),
        ("msg_call_0b6f4c1d2e3a495867f8a9b0_output", "msg_call_0b6f4c1d2e3a495867f8a9b0_output"),
    ],
)
async def test_a_request_may_say_what_it_follows(after: str, place: str) -> None:
    said = await _posted(user("a"), after=after)
    assert (said.after, len(said.messages)) == (place, 1)


async def test_a_request_that_names_its_place_repeats_nothing_and_brings_no_history() -> None:
    plain = await _posted(user("a"), ANSWER, user("c"))
    assert (plain.after, plain.resends, len(plain.history)) == (None, True, 2)
    named = await _posted(user("a"), ANSWER, user("c"), after="m1")
    assert (named.resends, named.history, named.continues) == (False, (), True)
    assert [said_in(post) for post in (named, plain)] == [["c"], ["c"]]


@pytest.mark.parametrize("given", [(), (user("a"), ANSWER)], ids=["nothing", "nothing new"])
async def test_a_request_without_a_new_message_has_one_answered_anew(given: tuple[Json]) -> None:
    said = await _posted(*given, after="m1")
    assert (said.messages, said.after) == ((), "m1")


@pytest.mark.promise("P12")
@pytest.mark.parametrize("after", [1, [], "a\n", "x" * 257])
async def test_a_place_that_is_none_is_refused(after: Any) -> None:
    runs = LoggedRuns(*GREETING)
    answer = await post(runs, {"session_id": "c", "input": [user("a")], "after": after})
    assert (answer.status, answer.code, runs.posts) == (422, "invalid_request", [])
    assert answer.json["message"].startswith("after: ")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_message_that_there_is_not_is_a_404_whatever_form_is_asked_for(
    stream: bool,
) -> None:
    runs = LoggedRuns(*GREETING)
    runs.answer = UnknownMessage("there is no such message in this conversation")
    body = {"session_id": "c", "input": [user("a")], "after": "m1", "stream": stream}
    answer = await post(runs, body)
    assert (answer.status, answer.code) == (404, "message_not_found")
