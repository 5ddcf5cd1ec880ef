"""A conversation with an agent from Python, without HTTP: the same engine and the same events as the server's."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from types import TracebackType
from typing import Self

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from passback.agent import Agent
from passback.backend import Backend
from passback.core.errors import UnknownConversation
from passback.core.events import RunEvent
from passback.core.ids import new_conversation_id, new_message_id
from passback.core.messages import (
    ApprovalMessage,
    CallId,
    Content,
    ConversationId,
    ConversationKey,
    Message,
    Owed,
    OwnerId,
    PostedMessage,
    RunRef,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from passback.core.ports import Parked
from passback.core.posts import StartRun
from passback.settings import load, variable

_PAGE = 1000
_AT_ONCE = 1000
"""Events that wait for their reader before the session reads on."""


class Session:
    """One conversation with one agent.

        async with agent.session(store="sqlite:///talks.db") as session:
            async for event in session.submit("Hello"):
                ...

    Without `async with`, each iteration opens the store and closes it again.

    Args:
        agent: who answers.
        store: where the conversation is kept, as in `PASSBACK_STORE`; the default forgets it with the session.
        conversation: its id; None: a new one.
        owner: whose it is.
        tools: what the caller executes itself: calls of these are owed, and `answer` answers them.
        settings: others, by their names without `PASSBACK_`, such as `{"max_turns": "5"}`.

    Raises:
        ConfigurationError: an agent or settings that cannot work.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        store: str = "memory:",
        conversation: str | None = None,
        owner: str = "local",
        tools: Sequence[ToolSpec] = (),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        given = {variable(name): value for name, value in (settings or {}).items()}
        self._settings = load({**given, variable("store"): store})
        self._agent = agent
        self._fresh: Backend | None = Backend(self._settings, [agent])
        conversation_id = ConversationId(conversation or new_conversation_id())
        self._key = ConversationKey(OwnerId(owner), conversation_id)
        self._tools = tuple(tools)
        self._keeper: _Keeper | None = None

    @property
    def conversation_id(self) -> str:
        return self._key.id

    async def __aenter__(self) -> Self:
        """Raises ConfigurationError or StoreError when the store cannot be used."""
        backend, self._fresh = self._fresh or Backend(self._settings, [self._agent]), None
        self._keeper = await _Keeper.open(backend)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._keeper is not None:
            keeper, self._keeper = self._keeper, None
            await keeper.close()

    # ---------------------------------------------------------------- saying something
    def submit(self, message: Content) -> AsyncGenerator[RunEvent]:
        """Say something; iterate over what the agent says.

        The iteration raises ClientError or StoreError when the message is not taken. Leaving it early does not stop the
        run: `cancel` does, and the session's end.
        """
        return self._events(UserMessage(new_message_id(), message))

    def answer(
        self, call_id: str, content: Content, *, is_error: bool = False
    ) -> AsyncGenerator[RunEvent]:
        """The result of a call that is owed; the iteration is empty while others are still owed."""
        return self._events(ToolMessage(new_message_id(), CallId(call_id), content, is_error))

    def decide(
        self, call_id: str, *, approved: bool, reason: str = "", always: bool = False
    ) -> AsyncGenerator[RunEvent]:
        """Whether a call may be made that is owed an approval; as `answer`."""
        return self._events(
            ApprovalMessage(new_message_id(), CallId(call_id), approved, reason, always)
        )

    async def _events(self, message: PostedMessage) -> AsyncGenerator[RunEvent]:
        send, receive = anyio.create_memory_object_stream[RunEvent](_AT_ONCE)
        # a task of its own holds what has to be left again: nobody may be at the yield when that is due
        reading = asyncio.create_task(self._read(message, send))
        try:
            async for event in receive:
                yield event
            await reading
        finally:
            receive.close()
            reading.cancel()
            await asyncio.wait([reading])

    async def _read(self, message: PostedMessage, send: MemoryObjectSendStream[RunEvent]) -> None:
        with send:
            if self._keeper is not None:
                await self._follow(message, send)
            else:
                async with self:
                    await self._follow(message, send)

    async def _follow(self, message: PostedMessage, send: MemoryObjectSendStream[RunEvent]) -> None:
        runs = self._open.runs
        started = await runs.start(StartRun(self._key, (message,), self._tools or None))
        if isinstance(started, Parked):
            return
        async with runs.follow(started) as batches:
            async for batch in batches:
                for logged in batch:
                    await send.send(logged.event)

    # ---------------------------------------------------------------- looking
    async def owed(self) -> Sequence[Owed]:
        """What has to be answered before the agent goes on. Within `async with` only."""
        try:
            return (await self._open.runs.status(self._key)).owed
        except UnknownConversation:
            return ()

    async def messages(self) -> Sequence[Message]:
        """The whole conversation, oldest first. Within `async with` only."""
        messages: list[Message] = []
        try:
            while True:
                page = await self._open.runs.messages(self._key, start=len(messages), limit=_PAGE)
                messages += page.messages
                if len(messages) >= page.total:
                    return messages
        except UnknownConversation:
            return ()

    async def cancel(self) -> bool:
        """Stop the run that goes on. False: none does. Within `async with` only."""
        try:
            status = await self._open.runs.status(self._key)
        except UnknownConversation:
            return False
        if not status.running or status.run_id is None:
            return False
        return await self._open.runs.cancel(RunRef(self._key, status.run_id))

    @property
    def _open(self) -> Backend:
        if self._keeper is None:
            raise RuntimeError("this needs `async with` around the session")
        return self._keeper.backend


class _Keeper:
    """Holds a backend open in a task of its own, so that it may be closed from any other."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._close = anyio.Event()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, backend: Backend) -> "_Keeper":
        keeper = cls(backend)
        keeper._task = asyncio.create_task(keeper._keep())
        await asyncio.wait([keeper._task, keeper._opened], return_when=asyncio.FIRST_COMPLETED)
        if keeper._task.done():
            await keeper._task
        return keeper

    async def close(self) -> None:
        self._close.set()
        if self._task is not None:
            await self._task

    async def _keep(self) -> None:
        async with self.backend.running():
            self._opened.set_result(None)
            await self._close.wait()
