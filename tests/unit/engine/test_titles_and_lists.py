"""Titles, lists and new conversations through the service of runs."""

from dataclasses import replace

import anyio
import pytest
from tests.support.runs import KEY, OTHER, contents, outcome, post, reply, says, until, worker
from tests.support.store_values import unversioned

from passback.core.changes import ConversationPlace
from passback.core.errors import Conflict, InvalidRequest, UnknownConversation
from passback.core.events import RunStarted, TextDelta
from passback.core.messages import ConversationId, DataPart, OwnerId, TextPart, UserMessage
from passback.core.posts import StartRun
from passback.engine.ledger import Ledger
from passback.engine.service import RunService
from passback.models.scripted import ScriptedModel
from passback.models.scripted import says as words

pytestmark = pytest.mark.anyio


def model(count: int = 3) -> ScriptedModel:
    return ScriptedModel([words("ok")] * count)


async def title(runs: RunService) -> str:
    return (await runs.status(KEY)).title


async def listed(runs: RunService, search: str = "") -> list[tuple[str, str]]:
    page = await runs.conversations(KEY.owner, limit=100, search=search)
    return [(each.key.id, each.status.title) for each in page.conversations]


# ---------------------------------------------------------------- titles
async def test_the_first_message_gives_a_conversation_its_title(store: Ledger) -> None:
    async with worker(store, model()) as runs:
        await reply(runs, says("Make the\npage blue"))
        assert await title(runs) == "Make the page blue"
        await reply(runs, says("and red", "u2"))
        assert await title(runs) == "Make the page blue"


async def test_a_slash_command_is_a_title_too(store: Ledger) -> None:
    async with worker(store, model()) as runs:
        await reply(runs, says("/help"))
        assert await title(runs) == "/help"


async def test_a_later_message_gives_no_title_where_the_first_had_no_text(store: Ledger) -> None:
    async with worker(store, model()) as runs:
        await reply(runs, says(" \n"))
        await reply(runs, says("words", "u2"))
        assert await title(runs) == ""


async def test_an_imported_history_gives_the_title(store: Ledger) -> None:
    history = (UserMessage(says().id, "long ago", imported=True),)
    async with worker(store, model()) as runs:
        await runs.start(StartRun(KEY, (says("now", "u2"),), history=history))
        assert await title(runs) == "long ago"


async def test_a_message_that_takes_back_the_first_one_keeps_its_title(store: Ledger) -> None:
    async with worker(store, ScriptedModel([["half", anyio.Event()], words("b")])) as runs:
        first = await post(runs, says("first"))
        await until(runs, first, TextDelta)
        second = await post(runs, says("second", "u2"), on_busy="rollback")
        await outcome(runs, first)
        await outcome(runs, second)
        assert (await contents(runs))[0] == "second"
        assert await title(runs) == "first"


async def test_a_person_renames_a_conversation(store: Ledger) -> None:
    async with worker(store, model()) as runs:
        await reply(runs, says("hi"))
        before = await unversioned(store, KEY)
        await runs.rename(KEY, "  The\tblue page \n")
        renamed = replace(before, title="The blue page", named=True)
        assert await unversioned(store, KEY) == renamed
        for wrong in ("", " \n", "\x00", "x" * 201):
            with pytest.raises(InvalidRequest, match="title"):
                await runs.rename(KEY, wrong)
        with pytest.raises(UnknownConversation):
            await runs.rename(OTHER, "title")
        assert await title(runs) == "The blue page"
        await reply(runs, says("more", "u2"))
        assert await title(runs) == "The blue page"


# ---------------------------------------------------------------- new and empty ones
@pytest.mark.parametrize(
    ("given", "made", "later"), [("", "", "hi there"), (" My\nplans ", "My plans", "My plans")]
)
async def test_a_conversation_is_created_empty_and_takes_its_first_message(
    store: Ledger, given: str, made: str, later: str
) -> None:
    async with worker(store, model()) as runs:
        await runs.create(KEY, title=given)
        status = await runs.status(KEY)
        assert (status.title, status.message_count, status.run_id) == (made, 0, None)
        assert 0 < status.created <= status.updated
        assert await listed(runs) == [(KEY.id, made)]
        assert await reply(runs, says("hi there")) == "ok"
        assert await contents(runs) == ["hi there", "ok"]
        assert await title(runs) == later


async def test_an_empty_conversation_is_followed_from_its_first_run_on(store: Ledger) -> None:
    async with worker(store, model()) as runs:
        await runs.create(KEY)
        async with runs.watch(KEY) as batches:
            run = await post(runs, says("hi"))
            first = await anext(aiter(batches))
        assert (first.run, first.events[0].event) == (run, RunStarted(run.run_id))


async def test_a_conversation_is_created_once(store: Ledger) -> None:
    async with worker(store, model()) as runs:
        await runs.create(KEY)
        with pytest.raises(Conflict):
            await runs.create(KEY, title="again")
        with pytest.raises(InvalidRequest):
            await runs.create(OTHER, title="x" * 201)
        await reply(runs, says("hi"))
        with pytest.raises(Conflict):
            await runs.create(KEY)
        assert await listed(runs) == [(KEY.id, "hi")]
        await runs.delete(KEY)
        await runs.create(KEY, title="anew")
        assert await listed(runs) == [(KEY.id, "anew")]


async def test_a_rename_before_the_first_message_stays(store: Ledger) -> None:
    async with worker(store, model()) as runs:
        await runs.create(KEY)
        await runs.rename(KEY, "mine")
        await reply(runs, says("hi"))
        assert await title(runs) == "mine"


# ---------------------------------------------------------------- lists
async def test_an_owner_lists_and_searches_conversations_in_pages(store: Ledger) -> None:
    keys = [replace(KEY, id=ConversationId(name)) for name in "abc"]
    async with worker(store, model(9)) as runs:
        for key in keys:
            await outcome(runs, await post(runs, says(f"Title {key.id}"), key=key))
        await runs.create(replace(KEY, owner=OwnerId("another")), title="Title")
        first = await runs.conversations(KEY.owner, limit=2)
        assert [each.key for each in first.conversations] == [keys[2], keys[1]]
        rest = await runs.conversations(KEY.owner, limit=2, after=first.next)
        assert [each.key for each in rest.conversations] == [keys[0]]
        assert rest.next is None
        assert await listed(runs, "TITLE B") == [("b", "Title b")]
        none = await runs.conversations(KEY.owner, limit=1, after=ConversationPlace(0, ""))
        assert none.conversations == ()


async def test_parts_make_a_title(store: Ledger) -> None:
    data = DataPart({"text": "no title"})
    async with worker(store, model(9)) as runs:
        await outcome(runs, await post(runs, UserMessage(says().id, (TextPart("look"),))))
        assert await title(runs) == "look"
        await outcome(runs, await post(runs, UserMessage(says().id, (data,)), key=OTHER))
        assert (await runs.status(OTHER)).title == ""
