"""The list of conversations and their titles, in the Python client, with a scripted server."""

from typing import Any

import httpx
import pytest
from tests.support.python_client import IDLE, Script, document, refusal

from passback_client import (
    BadAnswer,
    Client,
    ConversationPage,
    ListedConversation,
    Refused,
)
from passback_client import sync as plain

pytestmark = pytest.mark.anyio

CREATED, UPDATED = "2026-01-31T11:58:00.000Z", "2026-01-31T12:00:00.000Z"
TIMES = {"createdAt": CREATED, "updatedAt": UPDATED}
NEXT = f"1769860800000000-{'0' * 32}"


def fields_of(name: str, **more: Any) -> dict[str, Any]:
    return {
        "id": name,
        "title": name.upper(),
        **TIMES,
        "status": "idle",
        "runId": None,
        "owed": 0,
        "cursor": None,
        **more,
    }


def value_of(name: str) -> ListedConversation:
    return ListedConversation(name, name.upper(), CREATED, UPDATED, "idle", None, 0, None)


def page(*names: str, following: str | None = None) -> httpx.Response:
    return document({"conversations": [fields_of(name) for name in names], "next": following})


def asked(script: Script) -> list[str]:
    return [request.url.raw_path.decode() for request in script.requests]


async def test_all_pages_are_yielded_also_behind_an_empty_one() -> None:
    script = Script(page("a", "b", following=NEXT), page(following="x"), page("c"))
    async with Client("http://host", transport=script.transport) as client:
        found = [each async for each in client.conversations(search="A & b")]
    assert found == [value_of(name) for name in "abc"]
    query = "/conversations?limit=20"
    search = "search=A+%26+b"
    assert asked(script) == [
        f"{query}&{search}",
        f"{query}&after={NEXT}&{search}",
        f"{query}&after=x&{search}",
    ]


def test_all_pages_are_yielded_without_async() -> None:
    script = Script(page("a", following=NEXT), page("b"))
    with plain.Client("http://host", transport=script.transport) as client:
        assert [each.id for each in client.conversations()] == ["a", "b"]
    assert asked(script) == ["/conversations?limit=20", f"/conversations?limit=20&after={NEXT}"]


def test_no_page_is_asked_for_before_it_is_needed() -> None:
    script = Script(page("a", "b", following=NEXT))
    with plain.Client("http://host/p", transport=script.transport) as client:
        assert next(client.conversations()).id == "a"
    assert asked(script) == ["/p/conversations?limit=20"]


async def test_one_page_is_read_with_all_that_it_tells() -> None:
    state = {"status": "waiting", "runId": "r", "owed": 2, "cursor": "r.1-9", "newer": True}
    listed = document({"conversations": [fields_of("a", **state)], "next": NEXT})
    script = Script(listed, page())
    async with Client("http://host", transport=script.transport) as client:
        first = await client.conversation_page(limit=1)
        assert first == ConversationPage(
            (ListedConversation("a", "A", CREATED, UPDATED, "waiting", "r", 2, "r.1-9"),), NEXT
        )
        assert await client.conversation_page(after=first.next) == ConversationPage((), None)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"conversations": None},
        {"conversations": [{}]},
        {"conversations": [fields_of("a", owed="many")]},
        {"conversations": [], "next": 7},
    ],
)
async def test_a_list_that_is_none_is_a_bad_answer(fields: dict[str, Any]) -> None:
    script = Script(document(fields))
    async with Client("http://host", transport=script.transport) as client:
        with pytest.raises(BadAnswer):
            await client.conversation_page()


# ---------------------------------------------------------------- titles
CONVERSATION: dict[str, Any] = {"id": "a/b", "runId": None, "running": None, "owed": []}


async def test_a_conversation_is_renamed() -> None:
    renamed = {**CONVERSATION, "messageCount": 0, "title": "The blue page", **TIMES}
    script = Script(document(renamed), document(renamed))
    async with Client("http://host", transport=script.transport) as client:
        conversation = await client.rename("a/b", "The blue page")
        assert conversation == await client.conversation("a/b")
    assert conversation.title == "The blue page"
    assert [conversation.created_at, conversation.updated_at] == [CREATED, UPDATED]
    request, _ = script.requests
    assert (request.method, request.url.raw_path) == ("PATCH", b"/conversations/a%2Fb")
    assert request.headers["content-type"] == "application/json"
    assert request.content == b'{"title": "The blue page"}'


def test_a_title_that_is_refused_is_an_error_without_async() -> None:
    script = Script(refusal(422, "invalid_request"), document({**IDLE, "title": "mine"}))
    with plain.Client("http://host", transport=script.transport) as client:
        with pytest.raises(Refused) as refused:
            client.rename("c", "")
        assert refused.value.code == "invalid_request"
        assert client.rename("c", "mine").title == "mine"


async def test_an_older_server_sends_no_title() -> None:
    script = Script(document(IDLE))
    async with Client("http://host", transport=script.transport) as client:
        conversation = await client.conversation("c")
    assert (conversation.title, conversation.created_at, conversation.updated_at) == (
        "",
        None,
        None,
    )
