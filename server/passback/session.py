"""A conversation with an agent from Python, without HTTP.

Engine and events are the same as the server's.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Generic, Self, TypeAlias, TypeVar

import anyio
from anyio.streams.memory import MemoryObjectSendStream
from pydantic import BaseModel, JsonValue

from passback.agent import Agent
from passback.backend import Backend, request_limits
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
from passback.core.posts import Parked, StartRun
from passback.core.runs import Runs
from passback.core.state import ConversationState, owner_view
from passback.core.values import check_arguments
from passback.http.requests import check_conversation_id as checked_id
from passback.http.wires import RequestLimits
from passback.native.submissions import (
    read_decision,
    read_submission,
    read_tool_result,
    read_tools,
)
from passback.settings import load_settings, variable_name

_PAGE_MESSAGES = 1000  # messages per read of the store
_MAX_WAITING_EVENTS = 1000  # events buffered for a slow reader; then the session stops reading

_MessageReader: TypeAlias = Callable[[RequestLimits], Awaitable[PostedMessage]]
"""Reads and checks what the caller says, once the caller iterates."""


class Session:
    """One conversation with one agent.

        async with Session(agent, store="sqlite:///talks.db") as session:
            async for event in session.submit("Hello"):
                ...

    Without `async with`, each iteration opens the store and closes it again. A session cannot be
    used after its `async with` block.

    Args:
        agent: the agent that answers.
        store: URL of the store, as in `PASSBACK_STORE`. The default keeps the conversation in
            memory, for as long as the session.
        conversation: id of the conversation. None: a new one.
        owner: owner of the conversation.
        tools: the caller's own tools. Their calls are owed, and `answer` brings the results.
        settings: other settings, by their names without `PASSBACK_`, such as `{"max_turns": "5"}`.

    Raises:
        ConfigurationError: the agent or the settings cannot work, or an argument has the wrong
            type or value.
        InvalidRequest: `conversation` is not a legal id.
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
        check_arguments(
            Session.__init__,
            agent=agent,
            store=store,
            conversation=conversation,
            owner=owner,
            tools=tools,
            settings=settings,
        )
        named = {variable_name(name): value for name, value in (settings or {}).items()}
        self._settings = load_settings({**named, variable_name("store"): store})
        self._agent = agent
        conversation_id = (
            new_conversation_id() if conversation is None else checked_id(conversation)
        )
        self._key = ConversationKey(OwnerId(owner), conversation_id)
        self._unopened: Backend | None = Backend(self._settings, [agent])
        self._limits = request_limits(self._settings)
        self._tools = tuple(tools)
        self._holder: ContextHolder[Backend] | None = None
        self._closed = False

    @property
    def conversation_id(self) -> str:
        return self._key.id

    async def __aenter__(self) -> Self:
        """Open the store.

        Raises:
            ConfigurationError, StoreError: the store cannot be used.
            InvalidRequest: the session is or was open.
        """
        if self._holder is not None:
            raise InvalidRequest("this session is open already")
        self._holder = await ContextHolder(_open(self._take_backend())).open()
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
        """Return a backend that was not opened: the first one, else a new one."""
        self._refuse_closed()
        backend, self._unopened = self._unopened or Backend(self._settings, [self._agent]), None
        return backend

    def _refuse_closed(self) -> None:
        if self._closed:
            raise InvalidRequest("this session is closed")

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
        """Send a message and iterate over the events of the answer.

        Leaving the iteration early does not stop the run, and until it ends the next message is
        refused as busy. `cancel` stops it, and so does the end of the session.

        Args:
            message: a text, or parts: those of `passback.core.messages`, or dicts as in a post.
            structured_data: data to work on, any JSON. None: the data of an earlier message
                counts; `/clear` removes it.
            intent: the user's aim, in the caller's words.
            constraints: rules for the agent.
            instructions: the caller's instructions for this answer.
            output_schema: schema of the answer, a JSON Schema of type object or a pydantic model.
                The value comes as `OutputAccepted`.
            model: name of the model, one of those that the agent or the settings allow.

        The iteration raises ClientError or StoreError if the message is refused. Arguments that
        are not legal in a post are an InvalidRequest.
        """
        data = {} if structured_data is None else {"structured_data": structured_data}
        content = {"content": message, "intent": intent, "model": model, **data}
        rules = {"constraints": constraints, "instructions": instructions}
        return self._run_events(
            partial(
                read_submission, {**content, **rules, "output_schema": output_schema}, key=self._key
            )
        )

    def answer(
        self, call_id: str, content: Content | JsonValue, *, is_error: bool = False
    ) -> AsyncGenerator[RunEvent]:
        """Send the result of an owed call and iterate over the events of the run that goes on.

        The iteration is empty while other calls are still owed.

        Args:
            call_id: the call.
            content: a text, parts or any JSON.
            is_error: the tool failed.
        """
        given = {"call_id": call_id, "content": content, "is_error": is_error}
        return self._run_events(partial(read_tool_result, given))

    def decide(
        self, call_id: str, *, approved: bool, reason: str = "", always: bool = False
    ) -> AsyncGenerator[RunEvent]:
        """Approve or deny a call that waits for it, and iterate as `answer` does.

        Args:
            call_id: the call.
            approved: True if the call may be made.
            reason: for the model.
            always: decide all later calls of the tool, too, without a question. `retract` takes
                it back.
        """
        given = {"call_id": call_id, "approved": approved, "reason": reason, "always": always}
        return self._run_events(partial(read_decision, given))

    async def _run_events(self, read_message: _MessageReader) -> AsyncGenerator[RunEvent]:
        send, receive = anyio.create_memory_object_stream[RunEvent](_MAX_WAITING_EVENTS)
        # A caller may never come back to the `yield`, so no context manager may be open around it:
        # a task holds them, and `finally` ends it.
        reading = asyncio.create_task(self._submit_and_follow(read_message, send))
        try:
            async for event in receive:
                yield event
            await reading
        finally:
            receive.close()
            reading.cancel()
            await asyncio.wait([reading])

    async def _submit_and_follow(
        self, read_message: _MessageReader, send: MemoryObjectSendStream[RunEvent]
    ) -> None:
        with send:
            self._refuse_closed()
            message = await read_message(self._limits)
            tools = await read_tools(self._tools, self._limits, self._key)
            # None keeps the conversation's tools, where an empty list would clear them
            post = StartRun(self._key, (message,), tools or None)
            if self._holder is not None:
                await _send_events(self._holder.value.runs, post, send)
                return
            holder = await ContextHolder(_open(self._take_backend())).open()
            try:
                await _send_events(holder.value.runs, post, send)
            finally:
                await holder.close()

    async def owed(self) -> Sequence[Owed]:
        """Return the calls that wait for an answer. Within `async with` only."""
        try:
            return (await self._open_backend.runs.status(self._key)).owed
        except UnknownConversation:  # a conversation exists from its first message on
            return ()

    async def state(self) -> ConversationState:
        """Return the state of the conversation. Within `async with` only.

        It has plan, usage, cost, seconds, refusals, lasting permissions and structured data.
        """
        runs = self._open_backend.runs
        try:
            status = await runs.status(self._key)
            return owner_view(status.state, await runs.data(self._key))
        except UnknownConversation:
            return ConversationState()

    async def retract(self, tool: str) -> None:
        """Remove the lasting permission (`always`) of a tool. Within `async with` only.

        Raises:
            ConversationBusy: a run goes on.
        """
        with suppress(UnknownConversation):
            await self._open_backend.runs.retract(self._key, tool)

    async def messages(self) -> Sequence[Message]:
        """Return all messages of the conversation, oldest first. Within `async with` only."""
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
        """Stop the current run; return False if there is none. Within `async with` only."""
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
        return self._holder.value


async def _send_events(runs: Runs, post: StartRun, send: MemoryObjectSendStream[RunEvent]) -> None:
    started = await runs.start(post)
    if isinstance(started, Parked):  # the result is stored, and other calls are still owed
        return
    async with runs.follow(started) as batches:
        async for batch in batches:
            for logged in batch:
                await send.send(logged.event)


T = TypeVar("T")


class ContextHolder(Generic[T]):
    """Holds a context manager open in a task of its own.

    A task group must be left by the task that entered it; a session may be closed by another one.

    Attributes:
        value: what the context manager gave.
    """

    value: T

    def __init__(self, context: AbstractAsyncContextManager[T]) -> None:
        self._context = context
        self._close = anyio.Event()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> Self:
        """Enter the context manager. Raises what it raises."""
        self._task = asyncio.create_task(self._hold_open())
        await asyncio.wait([self._task, self._opened], return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():  # opening failed: raise its error
            await self._task
        return self

    async def close(self) -> None:
        """Leave the context manager, without an error."""
        self._close.set()
        if self._task is not None:
            await self._task

    async def _hold_open(self) -> None:
        async with self._context as self.value:
            self._opened.set_result(None)
            await self._close.wait()


@asynccontextmanager
async def _open(backend: Backend) -> AsyncGenerator[Backend]:
    async with backend.running():
        yield backend
