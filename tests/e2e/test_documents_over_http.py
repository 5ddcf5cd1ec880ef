"""A conversation is exported, imported on another server and goes on there; owners are erased."""

import copy
import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from tests.support.server import running_server
from tests.support.wire import ZONE, client_of, result, user

pytestmark = pytest.mark.anyio

KEYS = {name: f"the-key-of-{name}-0123456789" for name in ("ann", "bob")}
MODEL = ("--store", "memory:", "--model", "demo:fast")


def headers(owner: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[owner]}"}


def variables(**more: str) -> dict[str, str]:
    return {"PASSBACK_API_KEYS": ",".join(f"{who}:{key}" for who, key in KEYS.items()), **more}


@pytest.fixture(scope="module")
async def url() -> AsyncGenerator[str]:
    """A server that allows imports, in memory."""
    environment = variables(PASSBACK_ALLOW_ROLES="assistant")
    async with running_server(*MODEL, environment=environment) as server:
        yield server.url


def without_times(document: dict[str, Any]) -> dict[str, Any]:
    return {n: each for n, each in document.items() if n not in ("id", "created", "updated")}


async def exported(http: httpx.AsyncClient, name: str, owner: str = "ann") -> dict[str, Any]:
    answer = await http.get(f"/conversations/{name}/export", headers=headers(owner))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    document: dict[str, Any] = answer.json()
    return document


async def test_what_is_owed_is_answered_in_the_copy(url: str) -> None:
    async with (
        client_of(url, key=KEYS["ann"]) as ann,
        client_of(url, key=KEYS["bob"]) as bob,
        httpx.AsyncClient(base_url=url, timeout=30) as http,
    ):
        called = await ann.post("zone", user("get-time-zone"), tools=[ZONE])
        document = await exported(http, "zone")
        for attempt, status in ((1, 201), (2, 409)):
            answer = await http.post(
                "/conversations/import?id=copy", json=document, headers=headers("bob")
            )
            assert answer.status_code == status, attempt
        again = await exported(http, "copy", "bob")
        assert without_times(again) == without_times(document)
        [owed] = (await http.get("/conversations/copy", headers=headers("bob"))).json()["owed"]
        assert owed["id"] == called.call.id
        for client, name in ((bob, "copy"), (ann, "zone")):
            assert "UTC" in (await client.post(name, result(owed["id"], "UTC"))).text
        answer = await http.get("/conversations/copy/export", headers=headers("ann"))
        assert answer.status_code == 404


HOSTILE: list[tuple[str, Any]] = [
    ("leaf", 99),
    ("forks", [{"start": 1, "parent": 5}]),
    ("owed", []),
    ("messages", [{"role": "root"}]),
    ("format", "x"),
    ("version", 9),
    ("title", "a\nb"),
    ("state", {"cost": -1}),
    ("receipts", {"x": {"fingerprint": "y"}}),
    ("id", ""),
    ("tools", [{"name": "a b", "description": "", "parameters": {}}]),
]


async def test_a_changed_document_is_refused_and_nothing_is_stored(url: str) -> None:
    async with (
        client_of(url, key=KEYS["ann"]) as ann,
        httpx.AsyncClient(base_url=url, timeout=30) as http,
    ):
        await ann.post("hostile", user("get-time-zone"), tools=[ZONE])
        document = await exported(http, "hostile")
        document["id"] = "refused"
        for name, given in HOSTILE:
            answer = await http.post(
                "/conversations/import", json={**document, name: given}, headers=headers("ann")
            )
            assert 400 <= answer.status_code < 500, name
            assert answer.json()["code"] in ("invalid_request", "invalid_tool"), name
        for number in range(len(document["messages"])):
            less = copy.deepcopy(document)
            del less["messages"][number]
            answer = await http.post("/conversations/import", json=less, headers=headers("ann"))
            assert answer.status_code == 422
        text = json.dumps(document)
        for body in (text[:-1], text + "]", "[]", "", "\ufeff" + text):
            answer = await http.post(
                "/conversations/import",
                content=body,
                headers={**headers("ann"), "content-type": "application/json"},
            )
            assert 400 <= answer.status_code < 500
        gone = await http.get("/conversations/refused", headers=headers("ann"))
        assert gone.status_code == 404


async def test_an_import_is_refused_where_messages_of_the_agent_are() -> None:
    async with (
        running_server(*MODEL, environment=variables()) as server,
        client_of(server.url, key=KEYS["ann"]) as ann,
        httpx.AsyncClient(base_url=server.url, timeout=30) as http,
    ):
        await ann.post("c", user("hi"))
        document = await exported(http, "c")
        answer = await http.post(
            "/conversations/import?id=d", json=document, headers=headers("ann")
        )
        assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")
        assert "PASSBACK_ALLOW_ROLES" in answer.json()["message"]


async def test_an_owner_erases_its_conversations_and_no_others(url: str) -> None:
    async with (
        client_of(url, key=KEYS["ann"]) as ann,
        client_of(url, key=KEYS["bob"]) as bob,
        httpx.AsyncClient(base_url=url, timeout=30) as http,
    ):
        for number in range(3):
            await ann.post(f"erased-{number}", user("hi"))
        await bob.post("kept", user("hi"))
        answer = await http.delete("/conversations?owner=bob", headers=headers("ann"))
        assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")
        more = True
        while more:
            answer = await http.delete("/conversations", headers=headers("ann"))
            more = answer.json()["more"]
        listed = (await http.get("/conversations", headers=headers("ann"))).json()
        assert listed["conversations"] == []
        assert (await http.get("/conversations/kept", headers=headers("bob"))).status_code == 200
