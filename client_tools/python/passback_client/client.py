"""The client of a passback server."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Self, TypeVar, Unpack, overload
from uuid import uuid4

import httpx
from pydantic import JsonValue

from passback_client.agents import ServerAgents, read_agents
from passback_client.answer import Answer
from passback_client.approvals import Approve, Approver, Decision, interrupt_answer
from passback_client.arguments import Rule, check_fields, is_a, optional
from passback_client.backoff import Backoff, with_retry
from passback_client.channel import ADDRESS, Channel, RunRef
from passback_client.conversation import (
    Conversation,
    ConversationPage,
    ListedConversation,
    MessagePage,
    read_conversation,
    read_conversations,
    read_page,
)
from passback_client.errors import BadSetup, Facts, Refused, RunFailed
from passback_client.events import Include, JsonObject, OnBusy, OnDisconnect, ToolAnswer
from passback_client.exchange import Exchange, posted_result
from passback_client.execution import Toolbox
from passback_client.follow import StreamSettings
from passback_client.functions import AnyTool, ToolOptions, as_tool, function_tool
from passback_client.limits import Limits, Retry
from passback_client.posts import (
    MessageContext,
    NewMessages,
    OutputSchema,
    PostOptions,
    SendOptions,
    defined,
    named_post,
    posted_messages,
)
from passback_client.questions import AskUser, questions_tool
from passback_client.stream import Stream
from passback_client.tools import Tool
from passback_client.watch import Watch

_RULES = {
    "url": Rule(ADDRESS, is_a(str)),
    "api_key": Rule("a text, or None", optional(is_a(str))),
    "tools": Rule(
        "a list of functions or `Tool`s",
        lambda tools: isinstance(tools, Iterable) and not isinstance(tools, str | bytes | Mapping),
    ),
    "approve": Rule("a function that takes an `Approval`, or None", optional(callable)),
    "claims": Rule("True or False", is_a(bool)),
    "limits": Rule("`Limits`, or None", optional(is_a(Limits))),
    "retry": Rule("a `Retry`, or None", optional(is_a(Retry))),
    "transport": Rule(
        "an `httpx.AsyncBaseTransport`, or None", optional(is_a(httpx.AsyncBaseTransport))
    ),
}
_INCLUDE = ("rewind", "run", "owed", "output")
_USAGE: Include = "usage"

F = TypeVar("F", bound=Callable[..., object])
Q = TypeVar("Q", bound=AskUser)


class Client:
    """The client of one passback server.

        async with Client("http://127.0.0.1:8000") as client:
            async for event in client.send("hi"):
                ...

    Args:
        url: of the server; it may have a path.
        api_key: sent as bearer token, and never shown.
        tools: that this client executes, each a typed function or a `Tool`; `tool` adds more.
        approve: asked before calls that need approval, of the server's tools and of this client's.
            Without it, approvals stay owed until `decide`.
        claims: whether calls are claimed before they run, so that only one of several clients runs
            them.
        limits: of sizes.
        retry: rules of retries.
        transport: instead of httpx's own.

    Raises:
        BadSetup: an argument is of another type, the address or the key cannot be used, or an item
            of `tools` is not a tool.
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
        given = {
            "url": url,
            "api_key": api_key,
            "tools": tools,
            "approve": approve,
            "claims": claims,
            "limits": limits,
            "retry": retry,
            "transport": transport,
        }
        check_fields(given, _RULES)
        self._limits = limits or Limits()
        self._retry = retry or Retry()
        self._channel = Channel(
            url, api_key, limits=self._limits, retry=self._retry, transport=transport
        )
        self._claimant = str(uuid4()) if claims else None
        self._approver = None if approve is None else Approver(approve)
        self._tools: dict[str, Tool] = {}
        for index, each in enumerate(tools):
            self._add(as_tool(each, f"tools[{index}]"))

    # ---------------------------------------------------------------- tools
    def add_tool(self, tool: AnyTool) -> None:
        """Add a tool, or a typed function as one; later posts declare it to the server.

        Raises:
            BadSetup: there is one of this name; it needs approval, and the client has no `approve`;
                it is not a tool.
        """
        self._add(as_tool(tool, "the tool"))

    def _add(self, tool: Tool) -> None:
        if tool.needs_approval and self._approver is None:
            raise BadSetup(f"tool {tool.name!r} needs approval: give the client an `approve`")
        if tool.name in self._tools:
            raise BadSetup(f"two tools are named {tool.name!r}")
        self._tools[tool.name] = tool

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
        """Make a tool from a typed function, plain or async; the function is returned unchanged.

        The model gets its name, docstring and annotations. A parameter annotated with `ToolContext`
        is filled in. A plain function runs in a thread. It returns text, a list of parts, or
        anything that pydantic can write as JSON; the model gets the text of an error that it
        raises.

        Args:
            function: the tool.
            name: instead of the function's own.
            description: instead of the docstring.
            needs_approval: the client's `approve` is asked before each call.
            title: its name for people, at most 200 characters; the model is not shown it.

        Raises:
            BadSetup: the function cannot be a tool.
        """

        def decorate(function: F) -> F:
            options = ToolOptions(name, description, needs_approval, title)
            self._add(function_tool(function, options))
            return function

        return decorate if function is None else decorate(function)

    def questions(self, function: Q, /) -> Q:
        """Let the agent ask its user by this function, plain or async, which takes `Question`s and
        returns a `Reply` to each.

        Raises:
            BadSetup: there is such a function already.
        """
        self._add(questions_tool(function))
        return function

    # ---------------------------------------------------------------- messages
    def send(
        self,
        message: NewMessages,
        *,
        conversation_id: str | None = None,
        after: str | None = None,
        agent_id: str | None = None,
        structured_data: JsonValue = None,
        intent: str | None = None,
        constraints: Sequence[str] = (),
        instructions: str | None = None,
        output_schema: OutputSchema | None = None,
        model: str | None = None,
        on_busy: OnBusy | None = None,
        on_disconnect: OnDisconnect | None = None,
        include: Sequence[Include] = (),
        idempotency_key: str | None = None,
        wait_while_busy: bool = False,
    ) -> Stream:
        """Post a user's message; run and answer the calls of client tools that follow.

        Args:
            message: a text, a list of parts, a `NewMessage`, or several of these.
            conversation_id: None begins a new one; `Stream.conversation_id` has its name.
            after: the id of the message that this one follows; what stood behind stays as another
                branch. Empty: it is the first one. None: it follows the last one.
            agent_id: the agent to ask, if the server has several.
            structured_data: data to work on.
            intent: what the user wants, in the program's words.
            constraints: rules for the agent.
            instructions: of the program, for the answer to this message.
            output_schema: of the answer, also if tool calls come first; `Answer.output` has the
                value.
            model: that answers this message, if the server lets clients choose.
            on_busy: what the message does during another run.
            on_disconnect: whether the run continues when nobody follows it.
            include: more kinds of events.
            idempotency_key: names the post, so that another process can repeat it.
            wait_while_busy: whether to retry if another run makes the server reject the message.

        Raises:
            BadSetup: a value is not JSON; the key, the agent's name or the schema cannot be sent.
        """
        context = MessageContext(
            structured_data=structured_data,
            intent=intent,
            constraints=constraints,
            instructions=instructions,
            output_schema=output_schema,
            model=model,
        )
        named = defined(conversationId=conversation_id, after=after, onBusy=on_busy)
        said: JsonObject = {"messages": posted_messages(message), **context.fields}
        settings = self._settings(include, waits_while_busy=wait_while_busy)
        options = PostOptions(settings, on_disconnect, idempotency_key, agent_id)
        return self._post({**self._declared, **said, **named}, options)

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
        """Have a message answered anew, and continue as after `send`.

        The answer so far stays as another branch. The stream is refused with the code
        `nothing_to_do` if there is nothing to answer behind the message.

        Args:
            conversation_id: the conversation.
            after: the id of a message of the user, or of the last of the results of tool calls.
            on_busy: as for `send`, and so are those that follow.
            on_disconnect: whether the run continues when nobody follows it.
            include: more kinds of events.
            idempotency_key: names the post.
            wait_while_busy: whether to retry while another run goes on.
        """
        named = defined(conversationId=conversation_id, after=after, onBusy=on_busy)
        settings = self._settings(include, waits_while_busy=wait_while_busy)
        options = PostOptions(settings, on_disconnect, idempotency_key)
        return self._post({**self._declared, **named}, options)

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
        """Answer an `Interrupt`, or an approval that is owed, and continue as after `send`.

        The stream is refused with the code `tool_result_conflict` if it has another answer already.

        Args:
            conversation_id: the conversation.
            interrupt_id: of the `Interrupt`, or the `OwedCall`.
            approved: whether the call is made.
            reason: of a denial, for the model.
            always: whether it holds for further calls of this tool in the conversation, until
                `retract`.
            on_disconnect: as for `send`, and so are the two that follow.
            include: more kinds of events.
            idempotency_key: names the post.
        """
        answer = interrupt_answer(interrupt_id, Decision(approved, reason, always))
        news: JsonObject = {"conversationId": conversation_id, "resume": answer}
        settings = self._settings(include)
        return self._post(news, PostOptions(settings, on_disconnect, idempotency_key))

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
        """Answer a call that is owed, of a client's tool or of `ask_user`, and continue as after
        `send`.

        The stream is refused with the code `tool_result_conflict` if it has another answer already.

        Args:
            conversation_id: the conversation.
            call_id: of the `OwedCall`.
            content: the result: a text, a list of parts, or any other JSON; of questions
                `{"answers": [...]}`.
            is_error: the tool failed, or the user declined to answer.
            on_disconnect: as for `send`, and so are the two that follow.
            include: more kinds of events.
            idempotency_key: names the post.
        """
        result = posted_result(ToolAnswer(call_id, "", content, is_error))
        news: JsonObject = {"conversationId": conversation_id, "messages": [result]}
        settings = self._settings(include)
        return self._post(news, PostOptions(settings, on_disconnect, idempotency_key))

    def resume(
        self,
        conversation_id: str,
        *,
        after: str | None = None,
        on_disconnect: OnDisconnect | None = None,
        include: Sequence[Include] = (),
    ) -> Stream:
        """Continue a conversation: follow the current run, and answer the calls that are owed.

        Args:
            conversation_id: the conversation.
            after: the `Stream.cursor` to continue after, also in a run that has ended. Without it,
                the current run is read from its start.
            on_disconnect: whether runs that this client's answers start continue when nobody
                follows them.
            include: more kinds of events; with `after`, the same as before.
        """
        options = PostOptions(self._settings(include), on_disconnect)
        start = RunRef(conversation_id, cursor=after)
        exchange = Exchange(
            options.settings, self._toolbox(), start, options=options.options, is_resumed=True
        )
        return Stream(exchange, self._cancel, exchange.catch_up)

    def watch(
        self,
        conversation_id: str,
        *,
        after: str | None = None,
        include: Sequence[Include] = (),
    ) -> Watch:
        """Follow a conversation live: all its runs, whoever posts. It runs no tools.

        Without `after`, the first event is `Watching`, then the run in progress follows from its
        start, or the next one. `Posted` tells the messages with which a run begins. The last event
        is `Deleted`.

        Args:
            conversation_id: the conversation.
            after: the `Watch.cursor`, or the `id` of an event of any run, to continue after.
            include: more kinds of events.
        """
        return Watch(self._settings(include), conversation_id, after)

    async def ask(self, message: NewMessages, **options: Unpack[SendOptions]) -> Answer:
        """Send a message, with the keyword arguments of `send`, and wait for the whole answer.

        It includes the usage of the model calls, for `Answer.usage`.

        Raises:
            RunFailed: the run ended with an error.
            PassbackError: as for `send` and its stream.
        """
        answer = Answer(self._limits)
        include = dict.fromkeys((*options.get("include", ()), _USAGE))
        async with self.send(message, **(options | {"include": [*include]})) as stream:
            async for event in stream:
                answer.feed(event)
            answer.conversation_id = stream.conversation_id
            answer.left = answer.left or stream.left
        if answer.failure is not None:
            failed = answer.failure
            facts = Facts(retryable=failed.retryable, retry_after=failed.retry_after)
            raise RunFailed(failed.message, code=failed.code, facts=facts)
        return answer

    async def cancel(self, conversation_id: str, *, run_id: str | None = None) -> bool:
        """Cancel a run on the server: the named one, or the current one.

        Returns:
            Whether there was a run to cancel.

        Raises:
            PassbackError: no such run; no answer.
        """
        return await self._cancel(conversation_id, run_id)

    async def retract(self, conversation_id: str, tool: str) -> None:
        """Retract a permanent decision (`always`) about a server's tool: its calls ask again.

        Raises PassbackError, with the code `conversation_busy` during a run.
        """
        channel = self._channel
        await with_retry(self._backoff(), lambda: channel.retract(conversation_id, tool))

    # ---------------------------------------------------------------- state
    async def agents(self) -> ServerAgents:
        """Return the agents, with their models and commands, and the limits of a post.

        Raises PassbackError.
        """
        return read_agents(await with_retry(self._backoff(), self._channel.agents))

    async def conversation(self, conversation_id: str) -> Conversation:
        """Return the state of a conversation. Raises PassbackError."""
        return await self._state(partial(self._channel.conversation, conversation_id))

    async def conversations(self, *, search: str = "") -> AsyncGenerator[ListedConversation]:
        """Yield the conversations of the key's owner, the one first that a client changed last.

        One that is changed meanwhile may be left out, because it has moved to the front.

        Args:
            search: only those whose title contains this text, in upper or lower case.

        Raises PassbackError.
        """
        page = await self.conversation_page(search=search)
        while True:
            for each in page.conversations:
                yield each
            if page.next is None:
                return
            page = await self.conversation_page(after=page.next, search=search)

    async def conversation_page(
        self, *, after: str | None = None, limit: int = 20, search: str = ""
    ) -> ConversationPage:
        """Return at most `limit` conversations, 1 to 100, as `conversations` does.

        `after`: the `next` of the page before. Raises PassbackError.
        """
        channel, query = self._channel, {"limit": str(limit)}
        query |= {"after": after} if after is not None else {}
        query |= {"search": search} if search else {}
        return read_conversations(
            await with_retry(self._backoff(), lambda: channel.conversations(query))
        )

    async def rename(self, conversation_id: str, title: str) -> Conversation:
        """Give a conversation another title, of 1 to 200 characters; return its state.

        Raises PassbackError.
        """
        return await self._state(partial(self._channel.rename, conversation_id, title))

    async def switch_branch(self, conversation_id: str, message_id: str) -> Conversation:
        """Read another branch from now on; return the state of the conversation.

        It is the one that ends with the newest message behind this one, such as one of
        `BranchPoint.versions`. Calls that are owed on the branch that is left are closed.

        Raises:
            Busy: a run goes on, or messages wait.
            PassbackError: no such message; no answer.
        """
        backoff, switch = self._backoff(), self._channel.switch_branch
        switched = partial(switch, conversation_id, message_id)
        return read_conversation(await with_retry(backoff, switched, waits_while_busy=False))

    async def fork(
        self,
        conversation_id: str,
        *,
        after: str | None = None,
        new_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> Conversation:
        """Copy a conversation into a new one; return the state of the copy.

        Args:
            conversation_id: the conversation.
            after: the id of the last message that is copied, of any branch; empty: none is. None:
                the last one of the branch that is read.
            new_id: of the copy; None: the server makes one.
            idempotency_key: names the copy instead, so that another process can repeat it.

        Raises PassbackError, with the code `conflict` if there is another conversation of this id.
        """
        post = named_post(defined(after=after, conversationId=new_id), idempotency_key)
        channel = self._channel
        return await self._state(lambda: channel.fork(conversation_id, post))

    async def delete(self, conversation_id: str) -> None:
        """Delete a conversation. Raises PassbackError."""
        await self._channel.delete(conversation_id)

    async def messages(
        self, conversation_id: str, *, after: int = 0, limit: int = 100
    ) -> MessagePage:
        """Return messages of a conversation, oldest first, without the first `after`. Raises
        PassbackError.
        """
        fetch = partial(self._channel.messages, conversation_id, after, limit)
        return read_page(await with_retry(self._backoff(), fetch))

    # ---------------------------------------------------------------- closing
    async def aclose(self) -> None:
        """Close all connections."""
        await self._channel.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def _post(self, news: JsonObject, options: PostOptions) -> Stream:
        post = options.post({**options.options, **news})
        exchange = Exchange(options.settings, self._toolbox(), post, options=options.options)
        return Stream(exchange, self._cancel)

    def _settings(
        self, include: Sequence[Include], *, waits_while_busy: bool = False
    ) -> StreamSettings:
        return StreamSettings(
            self._channel, self._retry, (*_INCLUDE, *include), waits_while_busy, self._claimant
        )

    async def _state(self, request: Callable[[], Awaitable[JsonObject]]) -> Conversation:
        return read_conversation(await with_retry(self._backoff(), request))

    @property
    def _declared(self) -> JsonObject:
        return {"tools": [each.declaration for each in self._tools.values()]}

    def _backoff(self) -> Backoff:
        return Backoff(self._retry, self._channel.contact)

    def _toolbox(self) -> Toolbox:
        return Toolbox(dict(self._tools), self._limits, self._approver)

    async def _cancel(self, conversation_id: str, run_id: str | None) -> bool:
        channel = self._channel
        try:
            if run_id is None:  # a repeat could stop the next run
                fields = await channel.cancel(conversation_id, None)
            else:
                fields = await with_retry(
                    self._backoff(), lambda: channel.cancel(conversation_id, run_id)
                )
        except Refused as error:
            if error.code != "conflict":
                raise
            return False
        return fields.get("cancelled") is True
