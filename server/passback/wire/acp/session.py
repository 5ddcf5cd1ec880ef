"""One session of an editor: its prompts, one after the other, and what they are made of.

A prompt is one pending request over as many runs as it takes: a run is followed, the editor is
asked what it owes, and the next run goes on with the answers.
"""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

import anyio
import anyio.abc

from passback.core.conversation_settings import ConversationSettings
from passback.core.errors import (
    Conflict,
    InvalidRequest,
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
    Cursor,
    Failed,
    HandedBack,
    Outcome,
    Position,
    RunFinished,
)
from passback.core.messages import (
    UNNAMED,
    Answer,
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
    single_text,
)
from passback.core.posts import Parked, StartRun
from passback.core.state import owner_view
from passback.core.toolsets import ServerTools
from passback.http.wires import Services
from passback.native.times import utc_timestamp
from passback.streams.jsonrpc import INTERNAL_ERROR, RpcError
from passback.wire.acp.answering import Answering, Editor
from passback.wire.acp.asking import PromptCancelled, fits_questions
from passback.wire.acp.client_tools import ClientTools
from passback.wire.acp.kept_settings import KeptSettings
from passback.wire.acp.modes import efforts, mode_of, modes_view, options_view
from passback.wire.acp.posted import text_block
from passback.wire.acp.prompts import LeftRun, Prompt
from passback.wire.acp.updates import Abilities, Update, Updates, plan_update

logger = logging.getLogger(__name__)

_MERGE_SECONDS: Final = 0.03  # in which what a run says is gathered for one update
_PAGE: Final = 100  # messages
_CANCELLED: Final = "cancelled"
_LOST: Final = "The result cannot be shown to you: "
_STOP_REASONS: Final = {
    "end_turn": "end_turn",
    "max_tokens": "max_tokens",
    "max_turns": "max_turn_requests",
    "budget": "max_turn_requests",
    "refusal": "refusal",
}
_NOT_ALLOWED: Final = "The user did not allow this call."
_NOBODY: Final = "The user cannot be asked here, except in text: ask in your answer."


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
        self._flush = editor.flush
        self._abilities = abilities = editor.abilities
        self._toolsets = beginning.servers
        self.key = beginning.key
        self.settings = KeptSettings(self._runs, self.key, beginning.settings)
        self._tools = ClientTools(
            editor.peer,
            self.key.id,
            abilities=abilities,
            cwd=beginning.settings.cwd,
            declared=beginning.declared,
            result_bytes=services.limits.result_bytes,
        )
        shown = Abilities(abilities.session.notices, abilities.session.compaction)
        self._updates = Updates(shown, self._tools.describe, currency)
        self._answering = Answering(
            editor,
            self.key.id,
            tools=self._tools,
            updates=self._updates,
            settings=self.settings,
        )
        self.send = self._answering.send
        self._prompts: list[Prompt] = []
        self._turns = anyio.Lock()  # it is fair: prompts are answered in their order
        self._configuring = anyio.Lock()
        self._connected = anyio.Event()
        self._unavailable: list[str] = []
        self._closing = anyio.Event()
        self.closed = anyio.Event()
        self._title = ""
        self._tasks: anyio.abc.TaskGroup

    # ---------------------------------------------------------------- its life
    async def run(self) -> None:
        """Hold the session's MCP servers until it is closed."""
        try:
            async with AsyncExitStack() as stack:
                for toolset in self._toolsets:
                    await stack.enter_async_context(toolset.running())
                stack.enter_context(self._runs.lend(self.key, self._toolsets))
                async with anyio.create_task_group() as self._tasks:
                    self._tasks.start_soon(self._connect)
                    await self._closing.wait()
                    self._tasks.cancel_scope.cancel()
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
    def is_busy(self) -> bool:
        """True while a prompt goes on that is not cancelled, or what was left of an earlier one."""
        return any(
            not each.cancelled and (each.run is not None or not each.is_left)
            for each in self._prompts
        )

    @property
    def options(self) -> list[Update]:
        """Its options and their values."""
        return options_view(self.settings.now, self._runs.models(), self._runs.effort())

    @property
    def modes(self) -> Update:
        """Its modes and the one in force."""
        return modes_view(self.settings.now)

    # ---------------------------------------------------------------- the record
    async def restore(self, *, shows: bool) -> LeftRun | None:
        """Read the conversation, and send all of it if it `shows` the editor.

        Returns:
            The run that goes on; None if none does.

        Raises:
            UnknownConversation: there is none.
        """
        status = await self._runs.status(self.key)
        start = 0
        while start < status.message_count:
            limit = min(_PAGE, status.message_count - start)
            page = await self._runs.messages(self.key, start=start, limit=limit)
            if not page.messages:  # a rollback has removed them
                break
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
        if not status.running or status.run_id is None:
            return None
        return LeftRun(RunRef(self.key, status.run_id), status.committed)

    async def go_on(self, prompt: Prompt, left: LeftRun | None, /) -> None:
        """Go on with what was left when the session was opened.

        A run that went on then is shown, and what is owed is answered. A prompt that comes
        meanwhile goes before what is owed.

        Args:
            prompt: stands for it.
            left: as `restore` has returned it.
        """
        try:
            async with self._turn_of(prompt):
                await self._answer_left(prompt, left)
        except (PassbackError, RpcError) as error:
            logger.warning("what was left of a session is not gone on with: %s", error)
        finally:
            if prompt.cancelled:
                self.send(self._updates.settle_all())
            self._prompts.remove(prompt)

    async def _answer_left(self, prompt: Prompt, left: LeftRun | None) -> None:
        """Follow a run that was left, or answer what is owed and follow the run it begins."""
        if left is not None and not prompt.cancelled:
            await self._run_to_end(prompt, left.run, left.after)
            return
        status = await self._runs.status(self.key)
        is_owing = bool(status.owed) and not (status.running or status.overdue)
        if prompt.cancelled or status.run_id is None or not is_owing:
            return
        prompt.run, prompt.seen = RunRef(self.key, status.run_id), status.logged
        outcome = HandedBack(status.owed)
        await self._run_to_end(prompt, await self._next_run(prompt, outcome))

    @asynccontextmanager
    async def _turn_of(self, prompt: Prompt) -> AsyncGenerator[bool]:
        """Hold the turn of a prompt, once it comes; yield False if it was cancelled before."""
        taken = False
        with prompt.interruptible():
            await self._turns.acquire()
            taken = True
            await self._connected.wait()
        try:
            yield not prompt.cancelled
        finally:
            if taken:
                self._turns.release()

    # ---------------------------------------------------------------- prompts
    def open_prompt(self, *, is_left: bool = False) -> Prompt:
        """Return a new prompt, which `interrupt` reaches from now on."""
        for earlier in self._prompts:
            if earlier.is_left:
                earlier.give_way()
        prompt = Prompt(is_left)
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
            async with self._turn_of(prompt) as comes:
                return await self._answer(prompt, content) if comes else _CANCELLED
        except (PassbackError, RpcError):
            if prompt.cancelled:
                return _CANCELLED
            raise
        finally:
            self._prompts.remove(prompt)

    async def _answer(self, prompt: Prompt, content: Content) -> str:
        self._tell_unavailable()
        try:
            outcome = await self._run_to_end(prompt, await self._begin(content))
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

    async def _run_to_end(
        self, prompt: Prompt, run: RunRef | Parked | None, after: Position = START
    ) -> Outcome:
        """Follow a run and those that go on with it; return how the last one ended."""
        outcome: Outcome = Completed()
        while isinstance(run, RunRef):
            outcome = await self._follow(prompt, run, after)
            run, after = await self._next_run(prompt, outcome), START
        return outcome

    async def _begin(self, content: Content) -> RunRef | Parked:
        """Post a prompt, or with it the answer to a question that was asked in text."""
        status = await self._runs.status(self.key)
        await self.settings.refresh()
        text = single_text(content)
        message: PostedMessage = UserMessage(UNNAMED, content, context=self._message_context())
        asked = text is not None and not status.overdue and bool(status.owed)
        if asked and self._answering.asks_in_text(status.owed):
            [question] = status.owed
            answer = ToolMessage(UNNAMED, question.id, text or "")
            # the model is shown other words as well, beside a question that is not answered
            message = answer if fits_questions(question, answer) else message
        started = await self._post((message,), offers_tools=True)
        self.send(self._updates.settle_all())  # what was open is closed by the message
        return started

    def _message_context(self) -> MessageContext:
        settings = self.settings.now
        folders, effort = [settings.cwd, *settings.directories], settings.effort
        chooses = effort in efforts(self._runs.effort())
        return MessageContext(
            instructions=f"The user's working directory: {', '.join(filter(None, folders))}",
            generation=Generation(effort=effort) if chooses else None,
            model=settings.model if settings.model in self._runs.models() else "",
            extras={"mode": mode_of(settings)},
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
                prompt.seen = batch[-1].position
                updates = self._updates.feed(batch)
                self.send(updates)
                last = batch[-1].event
                if isinstance(last, RunFinished):
                    outcome = last.outcome
                elif updates:  # what comes meanwhile is sent together
                    await anyio.sleep(_MERGE_SECONDS)
                    await self._flush()
        return outcome

    async def _next_run(self, prompt: Prompt, outcome: Outcome) -> RunRef | Parked | None:
        """Answer what a run has handed back; return the next run, None if there is none."""
        if not isinstance(outcome, HandedBack):
            return None
        answers: Sequence[Answer] = ()
        if not prompt.cancelled:
            # tools that are none of the editor's are those of the client that began the run
            owed = [each for each in outcome.owed if self._answering.is_answerable(each)]
            self.send([update for each in owed for update in self._updates.announce(each)])
            if self._answering.asks_in_text(outcome.owed):
                self._answering.ask_in_text(outcome.owed[0])
                return None
            answers = await self._answers(prompt, owed)
        return await self._use_answers(prompt, answers)

    async def _use_answers(
        self, prompt: Prompt, answers: Sequence[Answer]
    ) -> RunRef | Parked | None:
        """Post answers; return the run that goes on with them, or with another client's."""
        if prompt.other is not None:
            other, prompt.other = prompt.other, None
            return other
        if not (prompt.cancelled or prompt.gives_way):
            return await self._post_answers(prompt, answers)
        # what was carried out is kept; nothing new is allowed
        done = [each for each in answers if isinstance(each, ToolMessage)]
        run = await self._post_answers(prompt, done)
        if isinstance(run, RunRef) or prompt.gives_way:
            return run
        return await self._runs.close_calls(self.key)

    async def _answers(self, prompt: Prompt, owed: Sequence[Owed]) -> Sequence[Answer]:
        """Return answers to calls: to all, unless the prompt is cancelled or gives way, or another
        client goes on meanwhile.
        """
        await self.settings.refresh()
        answers: list[Answer] = []
        watching = anyio.CancelScope()
        self._tasks.start_soon(self._notice_others, prompt, watching)
        try:
            with prompt.interruptible(asks=True):
                for each in owed:
                    answer = await self._answering.answer(each, again=prompt.is_left)
                    answers.append(answer)
        except PromptCancelled:
            prompt.cancelled = True
        finally:
            watching.cancel()
        return answers

    async def _notice_others(self, prompt: Prompt, watching: anyio.CancelScope) -> None:
        """Leave what the editor is asked when another client goes on without its answers."""
        assert prompt.run is not None  # it has handed the calls back
        after = Cursor(prompt.run.run_id, prompt.seen)
        with watching:
            try:
                async with self._runs.watch(self.key, after=after) as batches:
                    async for batch in batches:
                        prompt.other = batch.run
                        break
                    prompt.leave()  # also if the conversation was deleted
            except PassbackError as error:  # then it is noticed when the answers are posted
                logger.warning("a session is not watched: %s", error.code)

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
        except InvalidRequest as error:
            # the model is told, and can ask for less
            told = [_refused_result(each, error) for each in answers]
            if told == [*answers]:
                raise
            return await self._post_answers(prompt, told)
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

    # ---------------------------------------------------------------- what is told beside it
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
        try:
            status = await self._runs.status(self.key)
        except StoreError as error:  # the prompt has been answered all the same
            logger.warning("a session's title and cost are not told: %s", error.code)
            return
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


def _refused_result(answer: Answer, error: InvalidRequest) -> Answer:
    """Return words in place of a result that was refused, as too large; others as they are."""
    if not isinstance(answer, ToolMessage) or (single_text(answer.content) or "").startswith(_LOST):
        return answer
    return replace(answer, content=f"{_LOST}{error.message}", is_error=True)
