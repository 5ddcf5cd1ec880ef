"""A conversation with an agent from Python, without HTTP: the same engine and the same events as the server's."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectSendStream
from pydantic import BaseModel, JsonValue

from passback.agent import Agent
from passback.backend import Backend, limits_of
from passback.core.arguments import (
    Takes,
    a,
    either,
    mapping,
    nothing,
    refuse_misfits,
    several,
    text,
)
from passback.core.errors import InvalidRequest, UnknownConversation
from passback.core.events import RunEvent
from passback.core.ids import new_conversation_id
from passback.core.messages import (
    Content,
    ConversationKey,
    JsonObject,
    Message,
    Owed,
    OwnerId,
    Part,
    PostedMessage,
    RunRef,
    ToolSpec,
)
from passback.core.ports import Parked, Runs
from passback.core.posts import StartRun
from passback.core.state import ConversationState, seen_by_owner
from passback.http.requests import conversation_id as checked_id
from passback.http.wires import RequestLimits
from passback.native.submissions import (
    read_answer,
    read_decision,
    read_declared,
    read_submission,
)
from passback.settings import load, variable

_PAGE_MESSAGES = 1000
_MAX_WAITING_EVENTS = 1000
"""Events that wait for their reader before the session reads on."""

_MessageReader: TypeAlias = Callable[[RequestLimits], Awaitable[PostedMessage]]
"""Reads what the caller says; it is not read before somebody iterates."""

_TAKES: Mapping[str, Takes] = {
    "agent": Takes("an Agent", a(Agent)),
    "store": Takes("a URL, as PASSBACK_STORE does", text),
    "conversation": Takes("an id, a text", either(nothing, text)),
    "owner": Takes("a text", text),
    "tools": Takes("a list of ToolSpecs", several(a(ToolSpec))),
    "settings": Takes("a dict of texts by texts", either(nothing, mapping(text, text))),
}


class Session:
    """One conversation with one agent.

        async with agent.session(store="sqlite:///talks.db") as session:
            async for event in session.submit("Hello"):
                ...

    Without `async with`, each iteration opens the store and closes it again. What was left cannot be used again.

    Args:
        agent: who answers.
        store: where the conversation is kept, as in `PASSBACK_STORE`; the default forgets it with the session.
        conversation: its id; None: a new one.
        owner: whose it is.
        tools: what the caller executes itself: calls of these are owed, and `answer` answers them.
        settings: others, by their names without `PASSBACK_`, such as `{"max_turns": "5"}`.

    Raises:
        ConfigurationError: an agent or settings that cannot work, or an argument that is not what it takes.
        InvalidRequest: an id that no conversation can have.
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
        given = {"agent": agent, "store": store, "conversation": conversation, "owner": owner}
        refuse_misfits("session", {**given, "tools": tools, "settings": settings}, _TAKES)
        named = {variable(name): value for name, value in (settings or {}).items()}
        self._settings = load({**named, variable("store"): store})
        self._agent = agent
        conversation_id = (
            new_conversation_id() if conversation is None else checked_id(conversation)
        )
        self._key = ConversationKey(OwnerId(owner), conversation_id)
        self._unopened: Backend | None = Backend(self._settings, [agent])
        self._limits = limits_of(self._settings)
        self._tools = tuple(tools)
        self._holder: _BackendHolder | None = None
        self._closed = False

    @property
    def conversation_id(self) -> str:
        return self._key.id

    async def __aenter__(self) -> Self:
        """Raises ConfigurationError or StoreError when the store cannot be used, InvalidRequest the second time."""
        if self._holder is not None:
            raise InvalidRequest("this session is open already")
        self._holder = await _BackendHolder.open(self._take_backend())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        holder, self._holder, self._closed = self._holder, None, True
        if holder is not None:
            await holder.close()

    def _take_backend(self) -> Backend:
        """One that nobody has opened yet."""
        self._refuse_closed()
        backend, self._unopened = self._unopened or Backend(self._settings, [self._agent]), None
        return backend

    def _refuse_closed(self) -> None:
        if self._closed:
            raise InvalidRequest("this session is closed")

    # ---------------------------------------------------------------- saying something
    def submit(
        self,
        message: Content | Sequence[Part | JsonObject],
        *,
        structured_data: JsonValue = None,
        intent: str = "",
        constraints: Sequence[str] = (),
        instructions: str = "",
        output_schema: JsonObject | type[BaseModel] | None = None,
        model: str | None = None,
    ) -> AsyncGenerator[RunEvent]:
        """Say something; iterate over what the agent says.

        Leaving the iteration early does not stop the run, and until it ends the next message is refused as busy:
        `cancel` stops it, and so does the session's end.

        Args:
            message: a text, or parts: those of `passback.core.messages`, or dicts as they are posted.
            structured_data: data to work on, any JSON. None: what was given before still counts; `/clear` forgets it.
            intent: what the user wants, in the caller's words.
            constraints: what the agent has to keep to.
            instructions: the caller's own, for this answer.
            output_schema: what the answer has to fit, a JSON Schema of type object or a pydantic model; its value comes
                as `OutputAccepted`.
            model: the name of the one that is to answer, of those that the agent or the settings allow.

        The iteration raises ClientError or StoreError when the message is not taken: what a post could not say either
        is an InvalidRequest.
        """
        data = {} if structured_data is None else {"structured_data": structured_data}
        said = {"content": message, "intent": intent, "model": model, **data}
        asked = {"constraints": constraints, "instructions": instructions}
        return self._run_events(
            partial(
                read_submission, {**said, **asked, "output_schema": output_schema}, key=self._key
            )
        )

    def answer(
        self, call_id: str, content: Content | JsonValue, *, is_error: bool = False
    ) -> AsyncGenerator[RunEvent]:
        """The result of a call that is owed, a text, parts or any JSON; the iteration is empty while others are still owed."""
        given = {"call_id": call_id, "content": content, "is_error": is_error}
        return self._run_events(partial(read_answer, given))

    def decide(
        self, call_id: str, *, approved: bool, reason: str = "", always: bool = False
    ) -> AsyncGenerator[RunEvent]:
        """Whether a call may be made that is owed an approval; as `answer`.

        `always` is an answer for all later calls of the tool, too: nobody is asked, until `retract` takes it back.
        """
        given = {"call_id": call_id, "approved": approved, "reason": reason, "always": always}
        return self._run_events(partial(read_decision, given))

    async def _run_events(self, said: _MessageReader) -> AsyncGenerator[RunEvent]:
        send, receive = anyio.create_memory_object_stream[RunEvent](_MAX_WAITING_EVENTS)
        # a task of its own holds what has to be left again: nobody may be at the yield when that is due
        reading = asyncio.create_task(self._submit_and_follow(said, send))
        try:
            async for event in receive:
                yield event
            await reading
        finally:
            receive.close()
            reading.cancel()
            await asyncio.wait([reading])

    async def _submit_and_follow(
        self, said: _MessageReader, send: MemoryObjectSendStream[RunEvent]
    ) -> None:
        with send:
            self._refuse_closed()
            message = await said(self._limits)
            tools = await read_declared(self._tools, self._limits, self._key)
            post = StartRun(self._key, (message,), tools or None)
            if self._holder is not None:
                await _send_events(self._holder.backend.runs, post, send)
                return
            holder = await _BackendHolder.open(self._take_backend())
            try:
                await _send_events(holder.backend.runs, post, send)
            finally:
                await holder.close()

    # ---------------------------------------------------------------- looking
    async def owed(self) -> Sequence[Owed]:
        """What has to be answered before the agent goes on. Within `async with` only."""
        try:
            return (await self._open_backend.runs.status(self._key)).owed
        except UnknownConversation:
            return ()

    async def state(self) -> ConversationState:
        """Plan, usage, cost, seconds, refusals, lasting permissions and structured data. Within `async with` only."""
        runs = self._open_backend.runs
        try:
            status = await runs.status(self._key)
            return seen_by_owner(status.state, await runs.data(self._key))
        except UnknownConversation:
            return ConversationState()

    async def retract(self, tool: str) -> None:
        """Take back what was answered for good (`always`) about a tool. Within `async with` only.

        Raises ConversationBusy while a run goes on.
        """
        with suppress(UnknownConversation):
            await self._open_backend.runs.retract(self._key, tool)

    async def messages(self) -> Sequence[Message]:
        """The whole conversation, oldest first. Within `async with` only."""
        messages: list[Message] = []
        try:
            while True:
                page = await self._open_backend.runs.messages(
                    self._key, start=len(messages), limit=_PAGE_MESSAGES
                )
                messages += page.messages
                if len(messages) >= page.total:
                    return messages
        except UnknownConversation:
            return ()

    async def cancel(self) -> bool:
        """Stop the run that goes on. False: none does. Within `async with` only."""
        try:
            status = await self._open_backend.runs.status(self._key)
        except UnknownConversation:
            return False
        if not status.running or status.run_id is None:
            return False
        return await self._open_backend.runs.cancel(RunRef(self._key, status.run_id))

    @property
    def _open_backend(self) -> Backend:
        self._refuse_closed()
        if self._holder is None:
            raise RuntimeError("this needs `async with` around the session")
        return self._holder.backend


async def _send_events(runs: Runs, post: StartRun, send: MemoryObjectSendStream[RunEvent]) -> None:
    started = await runs.start(post)
    if isinstance(started, Parked):
        return
    async with runs.follow(started) as batches:
        async for batch in batches:
            for logged in batch:
                await send.send(logged.event)


class _BackendHolder:
    """Holds a backend open in a task of its own, so that it may be closed from any other."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._close = anyio.Event()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, backend: Backend) -> "_BackendHolder":
        holder = cls(backend)
        holder._task = asyncio.create_task(holder._hold_open())
        await asyncio.wait([holder._task, holder._opened], return_when=asyncio.FIRST_COMPLETED)
        if holder._task.done():
            await holder._task
        return holder

    async def close(self) -> None:
        self._close.set()
        if self._task is not None:
            await self._task

    async def _hold_open(self) -> None:
        async with self.backend.running():
            self._opened.set_result(None)
            await self._close.wait()
