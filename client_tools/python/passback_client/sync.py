"""The same client for programs without `async`.

An event loop in its own thread runs the async client: there is one implementation of the
protocol, and a tool of the client's works the same in both.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Self, TypeVar, Unpack, overload

import httpx
from pydantic import JsonValue
from typing_extensions import override

from passback_client.agents import ServerAgents
from passback_client.answer import Answer
from passback_client.approvals import Approve
from passback_client.client import Client as AsyncClient
from passback_client.conversation import (
    Conversation,
    ConversationPage,
    ListedConversation,
    MessagePage,
)
from passback_client.events import Event, Include, Left, OnBusy, OnDisconnect
from passback_client.functions import AnyTool
from passback_client.limits import Limits, Retry
from passback_client.loop import Loop
from passback_client.posts import NewMessages, SendOptions
from passback_client.questions import AskUser
from passback_client.stream import Stream as AsyncStream
from passback_client.watch import Watch as AsyncWatch
from passback_client.watch import WatchEvent

F = TypeVar("F", bound=Callable[..., object])
Q = TypeVar("Q", bound=AskUser)


@overload
def _events(loop: Loop, stream: AsyncStream) -> Generator[Event]: ...


@overload
def _events(loop: Loop, stream: AsyncWatch) -> Generator[WatchEvent]: ...


def _events(loop: Loop, stream: AsyncStream | AsyncWatch) -> Generator[WatchEvent]:
    try:
        while (event := loop.run(partial(_next, stream))) is not None:
            yield event
    finally:
        if loop.is_open:
            loop.run(stream.aclose)


async def _next(stream: AsyncStream | AsyncWatch) -> WatchEvent | None:
    return await anext(stream, None)


class Stream(Iterator[Event]):
    """The events of all runs that a post leads to: as the async `passback_client.Stream`."""

    def __init__(self, loop: Loop, stream: AsyncStream) -> None:
        self._loop = loop
        self._stream = stream
        self._events = _events(loop, stream)

    @property
    def conversation_id(self) -> str | None:
        """The conversation; None before the first event of a new one."""
        return self._stream.conversation_id

    @property
    def run_id(self) -> str | None:
        """The run whose events come now."""
        return self._stream.run_id

    @property
    def cursor(self) -> str | None:
        """The place of the last event."""
        return self._stream.cursor

    @property
    def left(self) -> Left | None:
        """The rest of the limits of conversation and owner when the answer began."""
        return self._stream.left

    @override
    def __iter__(self) -> Self:
        return self

    @override
    def __next__(self) -> Event:
        return next(self._events)

    def cancel(self) -> bool:
        """Stop the run on the server and the tools that run here, from any thread."""
        return self._loop.run(self._stream.cancel)

    def close(self) -> None:
        """Close the connection. The run continues."""
        self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Watch(Iterator[WatchEvent]):
    """The events of a conversation: as the async `passback_client.Watch`."""

    def __init__(self, loop: Loop, watch: AsyncWatch) -> None:
        self._watch = watch
        self._events = _events(loop, watch)

    @property
    def cursor(self) -> str | None:
        """The place of the last event that has one."""
        return self._watch.cursor

    @override
    def __iter__(self) -> Self:
        return self

    @override
    def __next__(self) -> WatchEvent:
        return next(self._events)

    def close(self) -> None:
        """Close the connection."""
        self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Client:
    """As the async `passback_client.Client`, whose arguments, results and errors it has; open
    inside `with` only.

    Plain tools run in threads, never in the one that reads the events; `async` tools run in the
    client's loop.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        tools: Iterable[AnyTool] = (),
        approve: Approve | None = None,
        claims: bool = True,
        limits: Limits | None = None,
        retry: Retry | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._client = AsyncClient(
            url,
            api_key=api_key,
            tools=tools,
            approve=approve,
            claims=claims,
            limits=limits,
            retry=retry,
            transport=transport,
        )
        self._loop = Loop()

    # ---------------------------------------------------------------- tools
    def add_tool(self, tool: AnyTool) -> None:
        """Add a tool, or a typed function as one. Raises BadSetup."""
        self._client.add_tool(tool)

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        needs_approval: bool = False,
        title: str = "",
    ) -> Callable[[F], F]: ...

    def tool(
        self,
        function: F | None = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        needs_approval: bool = False,
        title: str = "",
    ) -> F | Callable[[F], F]:
        """Make a tool from a typed function, plain or async: as `passback_client.Client.tool`."""
        decorate = self._client.tool(
            name=name, description=description, needs_approval=needs_approval, title=title
        )
        return decorate if function is None else decorate(function)

    def questions(self, function: Q, /) -> Q:
        """Let the agent ask its user: as `passback_client.Client.questions`."""
        return self._client.questions(function)

    # ---------------------------------------------------------------- messages
    def send(self, message: NewMessages, **options: Unpack[SendOptions]) -> Stream:
        """Post a user's message: as `passback_client.Client.send`, with its keyword arguments."""
        return Stream(self._loop, self._client.send(message, **options))

    def regenerate(
        self,
        conversation_id: str,
        after: str,
        *,
        on_busy: OnBusy | None = None,
        on_disconnect: OnDisconnect | None = None,
        include: Sequence[Include] = (),
        idempotency_key: str | None = None,
        wait_while_busy: bool = False,
    ) -> Stream:
        """Have a message answered anew: as `passback_client.Client.regenerate`."""
        stream = self._client.regenerate(
            conversation_id,
            after,
            on_busy=on_busy,
            on_disconnect=on_disconnect,
            include=include,
            idempotency_key=idempotency_key,
            wait_while_busy=wait_while_busy,
        )
        return Stream(self._loop, stream)

    def resume(
        self,
        conversation_id: str,
        *,
        after: str | None = None,
        on_disconnect: OnDisconnect | None = None,
        include: Sequence[Include] = (),
    ) -> Stream:
        """Continue a conversation: as `passback_client.Client.resume`."""
        stream = self._client.resume(
            conversation_id, after=after, on_disconnect=on_disconnect, include=include
        )
        return Stream(self._loop, stream)

    def decide(
        self,
        conversation_id: str,
        interrupt_id: str,
        *,
        approved: bool,
        reason: str = "",
        always: bool = False,
        on_disconnect: OnDisconnect | None = None,
        include: Sequence[Include] = (),
        idempotency_key: str | None = None,
    ) -> Stream:
        """Answer an approval that is owed, and continue: as `passback_client.Client.decide`."""
        stream = self._client.decide(
            conversation_id,
            interrupt_id,
            approved=approved,
            reason=reason,
            always=always,
            on_disconnect=on_disconnect,
            include=include,
            idempotency_key=idempotency_key,
        )
        return Stream(self._loop, stream)

    def answer(
        self,
        conversation_id: str,
        call_id: str,
        content: JsonValue,
        *,
        is_error: bool = False,
        on_disconnect: OnDisconnect | None = None,
        include: Sequence[Include] = (),
        idempotency_key: str | None = None,
    ) -> Stream:
        """Answer a call that is owed, and continue: as `passback_client.Client.answer`."""
        stream = self._client.answer(
            conversation_id,
            call_id,
            content,
            is_error=is_error,
            on_disconnect=on_disconnect,
            include=include,
            idempotency_key=idempotency_key,
        )
        return Stream(self._loop, stream)

    def watch(
        self,
        conversation_id: str,
        *,
        after: str | None = None,
        include: Sequence[Include] = (),
    ) -> Watch:
        """Follow a conversation live: as `passback_client.Client.watch`."""
        return Watch(self._loop, self._client.watch(conversation_id, after=after, include=include))

    def ask(self, message: NewMessages, **options: Unpack[SendOptions]) -> Answer:
        """Send a message and wait for the whole answer. Raises RunFailed."""

        async def ask() -> Answer:
            return await self._client.ask(message, **options)

        return self._loop.run(ask)

    def cancel(self, conversation_id: str, *, run_id: str | None = None) -> bool:
        """Cancel a run on the server; return whether there was one."""
        return self._loop.run(partial(self._client.cancel, conversation_id, run_id=run_id))

    def retract(self, conversation_id: str, tool: str) -> None:
        """Retract a permanent decision about a tool of the server."""
        self._loop.run(partial(self._client.retract, conversation_id, tool))

    # ---------------------------------------------------------------- state
    def agents(self) -> ServerAgents:
        """Return the agents, and the limits of a post: as `passback_client.Client.agents`."""
        return self._loop.run(self._client.agents)

    def conversation(self, conversation_id: str) -> Conversation:
        """Return the state of a conversation."""
        return self._loop.run(partial(self._client.conversation, conversation_id))

    def conversations(self, *, search: str = "") -> Generator[ListedConversation]:
        """Yield all conversations, newest first: as `passback_client.Client.conversations`."""
        page = self.conversation_page(search=search)
        yield from page.conversations
        while page.next is not None:
            page = self.conversation_page(after=page.next, search=search)
            yield from page.conversations

    def conversation_page(
        self, *, after: str | None = None, limit: int = 20, search: str = ""
    ) -> ConversationPage:
        """Return some conversations: as `passback_client.Client.conversation_page`."""
        return self._loop.run(
            partial(self._client.conversation_page, after=after, limit=limit, search=search)
        )

    def rename(self, conversation_id: str, title: str) -> Conversation:
        """Give a conversation another title; return its state."""
        return self._loop.run(partial(self._client.rename, conversation_id, title))

    def switch_branch(self, conversation_id: str, message_id: str) -> Conversation:
        """Read another branch: as `passback_client.Client.switch_branch`."""
        return self._loop.run(partial(self._client.switch_branch, conversation_id, message_id))

    def fork(
        self,
        conversation_id: str,
        *,
        after: str | None = None,
        new_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> Conversation:
        """Copy a conversation into a new one: as `passback_client.Client.fork`."""
        return self._loop.run(
            partial(
                self._client.fork,
                conversation_id,
                after=after,
                new_id=new_id,
                idempotency_key=idempotency_key,
            )
        )

    def delete(self, conversation_id: str) -> None:
        """Delete a conversation."""
        self._loop.run(partial(self._client.delete, conversation_id))

    def messages(self, conversation_id: str, *, after: int = 0, limit: int = 100) -> MessagePage:
        """Return messages of a conversation, oldest first."""
        return self._loop.run(
            partial(self._client.messages, conversation_id, after=after, limit=limit)
        )

    # ---------------------------------------------------------------- closing
    def __enter__(self) -> Self:
        self._loop.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._loop.run(self._client.aclose)
        finally:
            self._loop.close()
