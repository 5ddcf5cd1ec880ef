"""One session of an editor: its prompts, one after the other, and what they are made of.

A prompt is one pending request over as many runs as it takes: a run is followed, the editor is
asked what it owes, and the next run goes on with the answers.
"""

import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import anyio

from passback.core.conversation_settings import ConversationSettings
from passback.core.errors import (
    Conflict,
    PassbackError,
    StoreError,
    ToolNameClash,
    ToolsetUnavailable,
    UnknownToolCall,
)
from passback.core.events import (
    START,
    Cancelled,
    Completed,
    Failed,
    HandedBack,
    Outcome,
    Position,
    RunFinished,
)
from passback.core.messages import (
    Answer,
    ApprovalMessage,
    Content,
    ConversationKey,
    Generation,
    MessageContext,
    Owed,
    PostedMessage,
    RunRef,
    ToolMessage,
    ToolSpec,
    UserMessage,
    new_message_id,
    single_text,
)
from passback.core.posts import Parked, StartRun
from passback.core.state import owner_view
from passback.core.toolsets import ServerTools
from passback.http.wires import Services
from passback.native.history import utc_timestamp
from passback.streams.jsonrpc import INTERNAL_ERROR, Peer, RpcError
from passback.wire.acp.asking import (
    Decision,
    PromptCancelled,
    ask_permission,
    ask_user,
    fits_questions,
    is_answered_by_text,
    is_choice,
    question_text,
)
from passback.wire.acp.client_tools import ClientTools, Refusal, Result
from passback.wire.acp.modes import (
    efforts,
    mode_of,
    modes_view,
    options_view,
    standing_decision,
)
from passback.wire.acp.posted import ClientAbilities, text_block
from passback.wire.acp.updates import (
    Abilities,
    Description,
    Update,
    Updates,
    plan_update,
    text_content,
)

logger = logging.getLogger(__name__)

_MERGE_SECONDS: Final = 0.03  # in which what a run says is gathered for one update
_PAGE: Final = 100  # messages
_CANCELLED: Final = "cancelled"
_STOP_REASONS: Final = {
    "end_turn": "end_turn",
    "max_tokens": "max_tokens",
    "max_turns": "max_turn_requests",
    "budget": "max_turn_requests",
    "refusal": "refusal",
}
_NOT_ALLOWED: Final = "The user did not allow this call."
_NOBODY: Final = "The user cannot be asked here, except in text: ask in your answer."


@dataclass(eq=False, slots=True)
class Prompt:
    """A prompt from its arrival to its answer, or a run that is only shown.

    Attributes:
        cancelled: it is to end, and to be answered as cancelled.
        run: its newest run.
    """

    cancelled: bool = False
    run: RunRef | None = None
    _waiting: anyio.CancelScope | None = None

    @contextmanager
    def interruptible(self) -> Generator[None]:
        """Leave what is done within the context as soon as the prompt is cancelled."""
        with anyio.CancelScope() as self._waiting:
            if self.cancelled:
                self._waiting.cancel()
            yield
        self._waiting = None

    def cancel(self) -> None:
        self.cancelled = True
        if self._waiting is not None:
            self._waiting.cancel()


@dataclass(slots=True)
class Beginning:
    """The values that an editor gives when it opens a session.

    Attributes:
        key: the conversation.
        settings: of the conversation.
        servers: MCP servers of the session, to be connected.
        declared: tools of the editor's own.
    """

    key: ConversationKey
    settings: ConversationSettings
    servers: Sequence[ServerTools] = ()
    declared: tuple[ToolSpec, ...] = ()


@dataclass(slots=True)
class Editor:
    """The editor, as its sessions know it.

    Attributes:
        peer: to ask it and to tell it something.
        flush: waits until it has taken what was sent.
        abilities: what it can do.
    """

    peer: Peer
    flush: Callable[[], Awaitable[None]]
    abilities: ClientAbilities


class Session:
    """An open session.

    Args:
        services: the runs and the limits.
        editor: has opened it.
        beginning: what it was opened with.
        currency: of the prices.
    """

    def __init__(
        self, services: Services, editor: Editor, beginning: Beginning, currency: str, /
    ) -> None:
        self._runs = services.runs
        self._peer, self._flush = editor.peer, editor.flush
        self._abilities = abilities = editor.abilities
        self._toolsets = beginning.servers
        self.key = beginning.key
        self.settings = beginning.settings
        self._tools = ClientTools(
            editor.peer,
            self.key.id,
            abilities=abilities,
            cwd=self.settings.cwd,
            declared=beginning.declared,
            result_bytes=services.limits.result_bytes,
        )
        shown = Abilities(abilities.session.notices, abilities.session.compaction)
        self._updates = Updates(shown, self._tools.describe, currency)
        self._prompts: list[Prompt] = []
        self._turns = anyio.Lock()  # it is fair: prompts are answered in their order
        self._configuring = anyio.Lock()
        self._connected = anyio.Event()
        self._unavailable: list[str] = []
        self._closing = anyio.Event()
        self.closed = anyio.Event()
        self._title = ""

    # ---------------------------------------------------------------- its life
    async def run(self) -> None:
        """Hold the session's MCP servers until it is closed."""
        try:
            async with AsyncExitStack() as stack:
                for toolset in self._toolsets:
                    await stack.enter_async_context(toolset.running())
                stack.enter_context(self._runs.lend(self.key, self._toolsets))
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._connect)
                    await self._closing.wait()
                    tasks.cancel_scope.cancel()
        finally:
            self.closed.set()

    async def _connect(self) -> None:
        async with anyio.create_task_group() as tasks:
            for toolset in self._toolsets:
                tasks.start_soon(self._wait_until_ready, toolset)
        self._connected.set()

    async def _wait_until_ready(self, toolset: ServerTools) -> None:
        try:
            await toolset.ready()
        except ToolsetUnavailable as error:
            self._unavailable.append(f"{error.message}; its tools are left out")

    async def close(self) -> None:
        """Cancel what goes on, and end the session's MCP servers."""
        await self.stop(self.interrupt())
        async with self._turns:  # all are answered
            self._closing.set()
        await self.closed.wait()

    @property
    def options(self) -> list[Update]:
        """Its options and their values."""
        return options_view(self.settings, self._runs.models(), self._runs.effort())

    @property
    def modes(self) -> Update:
        """Its modes and the one in force."""
        return modes_view(self.settings)

    async def configure(self, **changes: Any) -> None:
        """Change its settings, fields of `ConversationSettings`, also while a prompt goes on."""
        async with self._configuring:
            settings = replace(self.settings, **changes)
            await self._runs.configure(self.key, settings)
            self.settings = settings

    def send(self, updates: Sequence[Update], /) -> None:
        """Send updates to the editor."""
        for update in updates:
            self._peer.notify("session/update", {"sessionId": self.key.id, "update": update})

    # ---------------------------------------------------------------- the record
    async def restore(self, *, shows: bool) -> Position | None:
        """Read the conversation, and send all of it if it `shows` the editor.

        Returns:
            The end of what was read of a run that goes on; None if none does.

        Raises:
            UnknownConversation: there is none.
        """
        status = await self._runs.status(self.key)
        start = 0
        while start < status.message_count:
            limit = min(_PAGE, status.message_count - start)
            page = await self._runs.messages(self.key, start=start, limit=limit)
            for message in page.messages:
                updates = self._updates.read([message])
                self._tools.restore(message)
                if shows:
                    self.send(updates)
                    await self._flush()
            start += len(page.messages)
        self._title = status.title
        if shows and status.state.plan:
            self.send([plan_update(status.state.plan)])
        return status.committed if status.running else None

    async def show_running(self, prompt: Prompt, after: Position, /) -> None:
        """Send what a run says that goes on although nobody here has begun it."""
        try:
            async with self._turns:
                status = await self._runs.status(self.key)
                if status.running and status.run_id is not None:
                    await self._follow(prompt, RunRef(self.key, status.run_id), after)
        except PassbackError as error:
            logger.warning("a run cannot be shown: %s", error.code)
        finally:
            self._prompts.remove(prompt)

    # ---------------------------------------------------------------- prompts
    def open_prompt(self) -> Prompt:
        """Return a new prompt, which `interrupt` reaches from now on."""
        prompt = Prompt()
        self._prompts.append(prompt)
        return prompt

    def interrupt(self) -> Sequence[Prompt]:
        """Cancel all prompts that there are, and return them for `stop`."""
        prompts = tuple(self._prompts)
        for prompt in prompts:
            prompt.cancel()
        return prompts

    async def stop(self, prompts: Sequence[Prompt], /) -> None:
        """Stop the runs of cancelled prompts. Each is answered when its run has ended."""
        for prompt in prompts:
            if prompt.run is not None:
                try:
                    await self._runs.cancel(prompt.run)
                except StoreError as error:
                    logger.warning("a run cannot be cancelled: %s", error.code)

    async def answer(self, prompt: Prompt, content: Content, /) -> str:
        """Let the agent answer a prompt, and return the reason of its end (`stopReason`).

        Raises:
            PassbackError: the prompt is refused, and nothing is stored; or the store failed.
            RpcError: the agent failed.
        """
        try:
            taken = False
            with prompt.interruptible():
                await self._turns.acquire()
                taken = True
                await self._connected.wait()
            try:
                return await self._answer(prompt, content)
            finally:
                if taken:
                    self._turns.release()
        except (PassbackError, RpcError):
            if prompt.cancelled:
                return _CANCELLED
            raise
        finally:
            self._prompts.remove(prompt)

    async def _answer(self, prompt: Prompt, content: Content) -> str:
        if prompt.cancelled:
            return _CANCELLED
        self._tell_unavailable()
        try:
            run: RunRef | Parked | None = await self._begin(content)
            outcome: Outcome = Completed()
            while isinstance(run, RunRef):
                outcome = await self._follow(prompt, run)
                run = await self._go_on(prompt, outcome)
        finally:
            self.send(self._updates.settle_all())
        await self._tell_status()
        if prompt.cancelled:
            return _CANCELLED
        match outcome:
            case Cancelled():  # by another client
                return _CANCELLED
            case Failed(code, message, retryable):
                raise RpcError(INTERNAL_ERROR, message, {"code": code, "retryable": retryable})
            case Completed(reason):
                return _STOP_REASONS[reason]
            case _:  # a question in text, or for another client: the next prompt answers it
                return _STOP_REASONS["end_turn"]

    async def _begin(self, content: Content) -> RunRef | Parked:
        """Post a prompt, or with it the answer to a question that was asked in text."""
        status = await self._runs.status(self.key)
        text = single_text(content)
        message: PostedMessage = UserMessage(
            new_message_id(), content, context=self._message_context()
        )
        if text is not None and self._asks_in_text(status.owed) and not status.overdue:
            [question] = status.owed
            answer = ToolMessage(new_message_id(), question.id, text)
            # the model is shown other words as well, beside a question that is not answered
            message = answer if fits_questions(question, answer) else message
        return await self._post((message,), offers_tools=True)

    def _message_context(self) -> MessageContext:
        folders = [self.settings.cwd, *self.settings.directories]
        effort = self.settings.effort
        chooses = effort in efforts(self._runs.effort())
        return MessageContext(
            instructions=f"The user's working directory: {', '.join(filter(None, folders))}",
            generation=Generation(effort=effort) if chooses else None,
            model=self.settings.model if len(self._runs.models()) > 1 else "",
            extras={"mode": mode_of(self.settings)},
            answered=True,
        )

    async def _post(
        self, messages: tuple[PostedMessage, ...], *, offers_tools: bool = False
    ) -> RunRef | Parked:
        while True:
            tools = self._tools.specs if offers_tools else None
            try:
                return await self._runs.start(
                    StartRun(self.key, messages, tools, on_busy="enqueue", continues=True)
                )
            except ToolNameClash as error:
                # the agent may have a tool of this name itself
                if not self._tools.leave_out(str(error.details.get("tool"))):
                    raise

    async def _follow(self, prompt: Prompt, run: RunRef, after: Position = START) -> Outcome:
        """Send what a run says to its end; return how it ended."""
        prompt.run = run
        if prompt.cancelled:
            await self._runs.cancel(run)
        outcome: Outcome = Cancelled()
        async with self._runs.follow(run, after=after) as batches:
            async for batch in batches:
                updates = self._updates.feed(batch)
                self.send(updates)
                last = batch[-1].event
                if isinstance(last, RunFinished):
                    outcome = last.outcome
                elif updates:  # what comes meanwhile is sent together
                    await anyio.sleep(_MERGE_SECONDS)
                    await self._flush()
        return outcome

    async def _go_on(self, prompt: Prompt, outcome: Outcome) -> RunRef | Parked | None:
        """Answer what a run has handed back; return the next run, None if there is none."""
        if not isinstance(outcome, HandedBack):
            return None
        answers: list[Answer] = []
        if not prompt.cancelled:
            # tools that are none of the editor's are those of the client that began the run
            owed = [
                each
                for each in outcome.owed
                if each.kind != "tool_result" or self._tools.has(each.name)
            ]
            self.send([update for each in owed for update in self._updates.announce(each)])
            if self._asks_in_text(outcome.owed):
                self._ask_in_text(outcome.owed[0])
                return None
            try:
                with prompt.interruptible():
                    for each in owed:
                        answer = await self._answer_one(each)
                        answers.append(answer)
            except PromptCancelled:
                prompt.cancelled = True
        if not prompt.cancelled:
            return await self._post_answers(prompt, answers)
        # what was carried out is kept; nothing new is allowed
        done = [each for each in answers if isinstance(each, ToolMessage)]
        run = await self._post_answers(prompt, done)
        return run if isinstance(run, RunRef) else await self._runs.close_calls(self.key)

    async def _post_answers(
        self, prompt: Prompt, answers: Sequence[Answer]
    ) -> RunRef | Parked | None:
        """Post answers, those left out that another client has given meanwhile.

        Returns:
            The run that they start, or that another client has started meanwhile; None if there is
            nothing to post.
        """
        if not answers:
            return None
        try:
            return await self._post(tuple(answers))
        except (Conflict, UnknownToolCall):
            status = await self._runs.status(self.key)
            run = None if status.run_id is None else RunRef(self.key, status.run_id)
            if run is not None and run != prompt.run:
                return run
            owed = {each.id for each in status.owed}
            open_ones = [each for each in answers if each.call_id in owed]
            if len(open_ones) == len(answers):
                raise
            return await self._post_answers(prompt, open_ones)

    # ---------------------------------------------------------------- what the editor owes
    def _ask_in_text(self, question: Owed) -> None:
        block = text_block(question_text(question))
        self.send([{"sessionUpdate": "agent_message_chunk", "content": block}])
        self.send(self._updates.settle(question.id, "Asked.", is_error=False))

    async def _answer_one(self, owed: Owed) -> Answer:
        match owed.kind:
            case "approval":
                return await self._decide(owed)
            case "question":
                view = self._updates.view(owed.id)
                answer = await ask_user(
                    self._peer,
                    self.key.id,
                    owed,
                    view,
                    by_form=self._abilities.elicitation.form,
                )
                if answer is None:
                    answer = ToolMessage(new_message_id(), owed.id, _NOBODY, is_error=True)
            case _:
                result = await self._execute(owed)
                answer = ToolMessage(new_message_id(), owed.id, result.content, result.is_error)
        self.send(self._updates.settle(owed.id, answer.content, is_error=answer.is_error))
        return answer

    async def _decide(self, owed: Owed) -> ApprovalMessage:
        decision: Decision = "allow_once"
        if mode_of(self.settings) != "bypass":
            view = self._updates.view(owed.id)
            view["content"] = [*view.get("content", ()), *text_content(owed.reason)]
            decision = await ask_permission(self._peer, self.key.id, view)
        return ApprovalMessage(
            new_message_id(),
            owed.id,
            decision in {"allow_once", "allow_always"},
            always=decision in {"allow_always", "reject_always"},
        )

    async def _execute(self, owed: Owed) -> Result:
        try:
            shown = await self._tools.prepare(owed)
            if self._tools.changes_something(owed.name) and not await self._is_allowed(owed, shown):
                return Result(_NOT_ALLOWED, is_error=True)
            self.send(self._updates.begin(owed.id))
            return await self._tools.execute(
                owed, lambda content: self.send(self._updates.show(owed.id, content))
            )
        except Refusal as refusal:
            return Result(str(refusal), is_error=True)

    async def _is_allowed(self, owed: Owed, shown: Description | None) -> bool:
        """Return whether a call of the editor's tools may be made; ask, if nothing else says it."""
        decision = standing_decision(self.settings, owed.name)
        if decision is not None:
            return decision == "allow"
        view = self._updates.view(owed.id)
        if shown is not None and shown.content:
            view["content"] = list(shown.content)
        chosen = await ask_permission(self._peer, self.key.id, view)
        lasting: Literal["allow", "deny"] = "deny" if chosen.startswith("reject") else "allow"
        if chosen.endswith("_always"):
            kept = [each for each in self.settings.decisions if each[0] != owed.name]
            await self.configure(decisions=(*kept, (owed.name, lasting)))
        return lasting == "allow"

    def _asks_in_text(self, owed: Sequence[Owed]) -> bool:
        """Return whether one question is owed that can only be asked in text, and answered so."""
        if self._abilities.elicitation.form or len(owed) != 1 or owed[0].kind != "question":
            return False
        return not is_choice(owed[0]) and is_answered_by_text(owed[0])

    def _tell_unavailable(self) -> None:
        """Say which MCP servers cannot be used, once."""
        for text in self._unavailable:
            if self._abilities.session.notices:
                self.send([{"sessionUpdate": "notice", "severity": "warning", "title": text}])
            else:
                block = text_block(f"{text}.\n\n")
                self.send([{"sessionUpdate": "agent_message_chunk", "content": block}])
        self._unavailable.clear()

    async def _tell_status(self) -> None:
        """Send the cost and the title, where the prompt has changed them."""
        status = await self._runs.status(self.key)
        self.send(self._updates.spend(owner_view(status.state).cost))
        if status.title and status.title != self._title:
            self._title = status.title
            updated = utc_timestamp(status.updated)
            self.send(
                [
                    {
                        "sessionUpdate": "session_info_update",
                        "title": status.title,
                        "updatedAt": updated,
                    }
                ]
            )
