"""Settings of a conversation: given when it is created, and set anew at any time."""

from dataclasses import replace

import anyio
import pytest
from tests.support.runs import KEY, outcome, post, says, worker

from passback.core.conversation_settings import (
    NO_SETTINGS,
    SETTINGS_BYTES,
    ConversationSettings,
)
from passback.core.errors import InvalidRequest, UnknownConversation
from passback.core.messages import ConversationId
from passback.engine.ledger import Ledger
from passback.models.scripted import ScriptedModel
from passback.models.scripted import says as words

pytestmark = pytest.mark.anyio

OTHER = replace(KEY, id=ConversationId("other"))
SETTINGS = ConversationSettings(
    "/files/ann", ("/two",), "openai:gpt-5", "plan", (("write_file", "allow"),), "high"
)
# in JSON: {"cwd":"..."}
FULL = ConversationSettings("x" * (SETTINGS_BYTES - len('{"cwd":""}')))


async def test_a_conversation_is_created_with_settings(store: Ledger) -> None:
    async with worker(store, ScriptedModel([words("ok")])) as runs:
        await runs.create(KEY, settings=SETTINGS)
        await runs.create(OTHER)
        assert (await runs.status(KEY)).settings == SETTINGS
        assert (await runs.status(OTHER)).settings == NO_SETTINGS
        await outcome(runs, await post(runs, says("hi")))
        assert (await runs.status(KEY)).settings == SETTINGS


async def test_settings_are_set_anew_also_during_a_run(store: Ledger) -> None:
    go_on = anyio.Event()
    async with worker(store, ScriptedModel([["half", go_on, "whole"]])) as runs:
        run = await post(runs, says("hi"))
        for settings in (SETTINGS, FULL, SETTINGS):
            await runs.configure(KEY, settings)
            assert (await runs.status(KEY)).settings == settings
        go_on.set()
        await outcome(runs, run)
        assert (await runs.status(KEY)).settings == SETTINGS


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        (replace(FULL, cwd=f"{FULL.cwd}x"), "are too large: 65537 bytes, of at most 65536"),
        (ConversationSettings(directories=("\ud800",)), "have a text that is not Unicode"),
    ],
)
async def test_settings_that_cannot_be_stored_are_refused(
    store: Ledger, settings: ConversationSettings, wrong: str
) -> None:
    async with worker(store, ScriptedModel([])) as runs:
        await runs.create(KEY, settings=SETTINGS)
        with pytest.raises(InvalidRequest, match=f"^the settings of the conversation {wrong}$"):
            await runs.configure(KEY, settings)
        with pytest.raises(InvalidRequest, match=wrong):
            await runs.create(OTHER, settings=settings)
        with pytest.raises(UnknownConversation):
            await runs.configure(OTHER, SETTINGS)
        assert (await runs.status(KEY)).settings == SETTINGS
