"""The settings of a session, as they are stored now: other clients may change them, too."""

from dataclasses import replace
from typing import Any

import anyio

from passback.core.conversation_settings import ConversationSettings
from passback.core.messages import ConversationKey
from passback.core.runs import Runs
from passback.wire.acp.client_tools import Change
from passback.wire.acp.modes import Lasting, with_decision


class KeptSettings:
    """The settings of one session.

    Its folders are those with which the editor has opened it.

    Args:
        runs: keeps them.
        key: the conversation.
        settings: as they are stored.
    """

    def __init__(self, runs: Runs, key: ConversationKey, settings: ConversationSettings, /) -> None:
        self._runs = runs
        self._key = key
        self._changing = anyio.Lock()
        self.now = settings

    async def refresh(self) -> None:
        """Read them anew."""
        async with self._changing:  # a change that is under way is not undone by an older reading
            await self._read()

    async def _read(self) -> None:
        stored = (await self._runs.status(self._key)).settings
        self.now = replace(stored, cwd=self.now.cwd, directories=self.now.directories)

    async def change(self, **changes: Any) -> None:
        """Change fields of them, also while a prompt goes on; others stay as they are stored."""
        async with self._changing:
            await self._read()
            await self._store(replace(self.now, **changes))

    async def decide(self, change: Change, decision: Lasting, /) -> None:
        """Keep a person's lasting decision on what a client tool changes.

        Raises:
            InvalidRequest: there is no room for it.
        """
        async with self._changing:
            await self._read()
            decisions = with_decision(self.now, change, decision)
            await self._store(replace(self.now, decisions=decisions))

    async def _store(self, settings: ConversationSettings) -> None:
        await self._runs.configure(self._key, settings)
        self.now = settings
