"""The tools of one run: find the side that executes a call, and run the server's own."""

from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from passback.core.changes import dump_message
from passback.core.errors import ConfigurationError, PassbackError, StoreError, ToolNameClash
from passback.core.messages import (
    CallId,
    ConversationKey,
    MessageId,
    ToolCall,
    ToolMessage,
    ToolResult,
    ToolSpec,
    fold_name,
)
from passback.core.permissions import Permission
from passback.core.questions import ASK_USER
from passback.core.text import replace_surrogates
from passback.core.toolsets import (
    BeginsCalls,
    Concurrent,
    Instructing,
    ReadOnlyCalls,
    ToolContext,
    Toolset,
)
from passback.core.values import value
from passback.engine.assembler import Executor, KnownTool
from passback.engine.guarding import CallBroken, guarded


@dataclass(frozen=True, slots=True, repr=False)
class ServerCall(ToolContext):
    """The context of a call for the toolbox, beside what every tool gets.

    Attributes:
        ended: to be called when the call has ended; returns the milliseconds that its tool worked,
            0 if it did not begin.
    """

    ended: Callable[[], int] = field(kw_only=True)


ContextOf: TypeAlias = Callable[[ToolCall], ServerCall]

RESULT_BYTES = 1024 * 1024  # limit of a server tool's result, whatever the toolset (P11)


CallOutcome: TypeAlias = ToolResult | StoreError | None
"""A result; None: a sub-agent in the call waits for the client; an error of its store."""


class EndedCall(NamedTuple):
    """A call that has ended, and the milliseconds that its tool worked, 0 if it did not begin."""

    call: ToolCall
    outcome: CallOutcome
    duration: int


GONE = Permission("deny", "there is no such tool any more")


class Loan:
    """Toolsets that are lent to a conversation.

    Attributes:
        ended: they are lent no longer: runs that still know their tools do not call them.
    """

    def __init__(self, toolsets: Sequence[Toolset]) -> None:
        self.toolsets = tuple(toolsets)
        self.ended = False


class LentTools:
    """The toolsets that this process lends to single conversations."""

    def __init__(self) -> None:
        self._loans: dict[ConversationKey, tuple[Loan, ...]] = {}

    def loans(self, key: ConversationKey) -> Sequence[Loan]:
        """Return the loans to a conversation, the first one first."""
        return self._loans.get(key, ())

    @contextmanager
    def lend(self, key: ConversationKey, toolsets: Sequence[Toolset]) -> Generator[None]:
        """Lend toolsets to a conversation until the context is left."""
        loan = Loan(toolsets)
        self._loans[key] = (*self.loans(key), loan)
        try:
            yield
        finally:
            loan.ended = True
            self._loans[key] = tuple(each for each in self._loans[key] if each is not loan)
            if not self._loans[key]:
                del self._loans[key]


class ServerTool(NamedTuple):
    """A tool of the server.

    `loan`: the loan that it is part of; None: it is the agent's own.
    """

    spec: ToolSpec
    toolset: Toolset
    loan: Loan | None = None

    @property
    def is_gone(self) -> bool:
        return self.loan is not None and self.loan.ended


class Toolbox:
    """Server tools by name, and the client tools that the conversation declared.

    A client tool that an older declaration left under a server tool's name is not offered: server
    tools win.

    Args:
        instructions: instructions of tool servers for the use of their tools, by server name.
        answered: as in `ToolSources`, which has heeded it.
    """

    def __init__(
        self,
        server: Mapping[str, ServerTool],
        client: Iterable[ToolSpec],
        instructions: Mapping[str, str] | None = None,
        *,
        answered: bool | None = None,
    ) -> None:
        self._server = server
        self.answered = answered
        self.instructions = instructions or {}
        taken = {fold_name(name) for name in server}
        self.client_declarations = tuple(client)
        self._client = {
            spec.name: spec
            for spec in self.client_declarations
            if fold_name(spec.name) not in taken
        }

    def refuse_clashes(self, declared: Iterable[ToolSpec]) -> None:
        """Raise `ToolNameClash` if a declared client tool has a server tool's name."""
        taken = {fold_name(name) for name in self._server}
        offered = {fold_name(name): name for name in self._client}
        for spec in declared:
            name = fold_name(spec.name)
            if name in taken or offered.get(name, spec.name) != spec.name:
                raise ToolNameClash(
                    f"the name {spec.name!r} belongs to a tool of the server",
                    details={"tool": spec.name},
                )

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the declarations of all tools."""
        return (*(tool.spec for tool in self._server.values()), *self._client.values())

    def client_tool(self, call: ToolCall) -> ToolSpec:
        """Return the declaration of the client tool that a call names."""
        return self._client[call.name]

    def server_tool(self, call: ToolCall) -> ToolSpec:
        """Return the declaration of the server tool that a call names."""
        return self._server[call.name].spec

    def permission(self, call: ToolCall) -> Permission:
        """Return a server tool's own permission for a call."""
        toolset = self._toolset_of(call)
        return GONE if toolset is None else toolset.permission(call)

    def known_tool(self, name: str) -> KnownTool | None:
        """Return the side that executes a tool and how it is shown; None: there is no such tool."""
        if (tool := self._server.get(name)) is not None:
            return None if tool.is_gone else _known_tool("server", tool.spec)
        return _known_tool("client", self._client[name]) if name in self._client else None

    @asynccontextmanager
    async def run_calls(
        self, calls: Sequence[ToolCall], context: ContextOf
    ) -> AsyncGenerator[MemoryObjectReceiveStream[EndedCall]]:
        """Run server calls together, and yield a stream of their results as they come."""
        send, receive = anyio.create_memory_object_stream[EndedCall](len(calls))
        failure: PassbackError | None = None
        async with anyio.create_task_group() as tasks:
            with send:
                for call in calls:
                    tasks.start_soon(self._run_one, call, context(call), send.clone())
            try:
                with receive:
                    yield receive
            except PassbackError as error:
                failure = error  # kept out of the task group, which would wrap it
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def perhaps_begun(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Return the open calls that a lost worker may have begun and that must not run twice
        (P10).
        """
        only_read = await self._read_only_flags(calls)
        # only calls of the first batch: the next begins when their results are stored
        return [
            call
            for batch in self._group_calls(calls, only_read)[:1]
            for call, reads in zip(batch, only_read, strict=False)
            if not (reads or self._is_repeatable(call))
        ]

    def _is_repeatable(self, call: ToolCall) -> bool:
        toolset = self._toolset_of(call)
        return toolset is not None and toolset.is_repeatable(call.name)

    def _toolset_of(self, call: ToolCall) -> Toolset | None:
        """Return the toolset of a call; None: its tool is gone, or was another worker's."""
        tool = self._server.get(call.name)
        return None if tool is None or tool.is_gone else tool.toolset

    async def batch_calls(self, calls: Sequence[ToolCall]) -> list[list[ToolCall]]:
        """Return the calls in batches that may run together, in the model's order: neighbouring
        read-only calls and sub-agents, and every other call alone.

        A batch may begin when the results of the one before are stored, so that only the first open
        one may have begun.
        """
        return self._group_calls(calls, await self._read_only_flags(calls))

    def _group_calls(
        self, calls: Sequence[ToolCall], only_read: Sequence[bool]
    ) -> list[list[ToolCall]]:
        batches: list[list[ToolCall]] = []
        together = False
        for call, reads in zip(calls, only_read, strict=True):
            # read-only calls and sub-agents cannot disturb each other; all others keep their order
            toolset = self._toolset_of(call)
            # one whose tool is gone is not made; nobody knows beside which others it was made
            parallel = toolset is None or (
                isinstance(toolset, Concurrent) and toolset.is_concurrent(call.name)
            )
            may_join = reads or parallel
            if may_join and together:
                batches[-1].append(call)
            else:
                batches.append([call])
            together = may_join
        return batches

    async def _read_only_flags(self, calls: Sequence[ToolCall]) -> list[bool]:
        """Return for each call whether it changes nothing. Toolsets that decide by arguments are
        asked concurrently.
        """
        only_read = [False] * len(calls)
        asked: list[tuple[int, ReadOnlyCalls]] = []
        for place, call in enumerate(calls):
            toolset = self._toolset_of(call)
            if toolset is not None and toolset.is_read_only(call.name):
                only_read[place] = True
            elif isinstance(toolset, ReadOnlyCalls):
                asked.append((place, toolset))

        async def ask(place: int, toolset: ReadOnlyCalls) -> None:
            only_read[place] = await toolset.is_read_only_call(calls[place])

        async with anyio.create_task_group() as tasks:
            for one in asked:
                tasks.start_soon(ask, *one)
        return only_read

    async def _call(self, call: ToolCall, context: ServerCall) -> ToolResult | None:
        toolset = self._toolset_of(call)
        if toolset is None:
            return ToolResult(f"Not executed: {GONE.reason}", is_error=True)
        if not isinstance(toolset, BeginsCalls):
            context.begin(())
        result = await toolset.call(call, context)
        return None if result is None else _storable_result(result)

    async def _run_one(
        self,
        call: ToolCall,
        context: ServerCall,
        send: MemoryObjectSendStream[EndedCall],
    ) -> None:
        given: CallOutcome
        ids = {"run_id": context.run.run_id, "call_id": call.id}
        with send:
            try:
                with guarded("toolset", ids, passing=StoreError):
                    given = await self._call(call, context)
            except StoreError as error:
                given = error
            except CallBroken:  # a broken toolset must not end the run
                given = ToolResult("The tool failed.", is_error=True)
            await send.send(EndedCall(call, given, context.ended()))


@value
class ToolSources:
    """The tools that an agent brings to each of its runs.

    Args:
        toolsets: the server's tools.
        client: client tools that are offered also if the client has not declared them; its own of
            the same name win.
        instructing: the toolsets that have instructions for the use of their tools.
        loans: server tools that are lent to the conversation. One whose name another tool of the
            server has, or `ask_user`, is left out.
        answered: whether somebody is there to answer questions: `ask_user` is offered, or not, even
            if the client has declared it. None: as `client` and the declared tools have it.
    """

    toolsets: Sequence[Toolset] = ()
    client: Sequence[ToolSpec] = ()
    instructing: Sequence[Instructing] = ()
    answered: bool | None = None
    loans: Sequence[Loan] = ()

    async def build_toolbox(self, declared: Sequence[ToolSpec] = ()) -> Toolbox:
        """Return a run's toolbox. Raises ConfigurationError if two server tools share a name."""
        server: dict[str, ServerTool] = {}
        for toolset in self.toolsets:
            for spec in await toolset.specs():
                if spec.name in server:
                    raise ConfigurationError(f"two tools are named {spec.name!r}")
                server[spec.name] = ServerTool(spec, toolset)
        if self.loans:
            server |= await self._lent_tools(server)
        client = (*self.client, *declared)
        if self.answered:
            client = (ASK_USER, *client)
        elif self.answered is False:
            client = tuple(each for each in client if each != ASK_USER)
        return Toolbox(server, client, self._instructions(), answered=self.answered)

    @property
    def _lent(self) -> list[tuple[Loan, Toolset]]:
        return [(loan, toolset) for loan in self.loans for toolset in loan.toolsets]

    async def _lent_tools(self, own: Iterable[str]) -> Mapping[str, ServerTool]:
        """Return the lent tools that can be offered beside those of the agent."""
        lent: dict[str, ServerTool] = {}
        taken = {fold_name(name) for name in (*own, ASK_USER.name)}
        for loan, toolset in self._lent:
            for spec in await toolset.specs():
                if (name := fold_name(spec.name)) not in taken:
                    taken.add(name)
                    lent[spec.name] = ServerTool(spec, toolset, loan)
        return lent

    def _instructions(self) -> Mapping[str, str]:
        lent = [toolset for _, toolset in self._lent if isinstance(toolset, Instructing)]
        found: dict[str, str] = {}
        for one in (*self.instructing, *lent):
            if said := one.instructions:
                found.setdefault(one.name, said)
        return found


def _known_tool(executor: Executor, spec: ToolSpec) -> KnownTool:
    return KnownTool(executor, spec.title, spec.kind)


def _storable_result(result: ToolResult) -> ToolResult:
    """Return the result as it can be stored. Raises ValueError if it cannot be stored."""
    if isinstance(result.content, str):
        result = replace(result, content=replace_surrogates(result.content))
    message = ToolMessage(MessageId(""), CallId(""), result.content, result.is_error)
    if len(dump_message(message)) > RESULT_BYTES:
        return ToolResult("The tool's result is too large.", is_error=True)
    return result
