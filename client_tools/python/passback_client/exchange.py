"""All that one post leads to: runs, the calls that they hand back, the results, the runs that these start."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

import anyio

from passback_client.backoff import repeated
from passback_client.channel import Post, Which, encode
from passback_client.conversation import Conversation, read_conversation
from passback_client.errors import LimitExceeded
from passback_client.events import Event, JsonObject, Owed, OwedCall, ToolAnswer
from passback_client.execution import Execution
from passback_client.follow import Follower, Line
from passback_client.limits import Limits
from passback_client.tools import Tool

_ANSWERABLE = "tool_result"


class Exchange:
    """Goes on until nothing is owed.

    Attributes:
        follower: of the run that goes on, or was the last.

    Args:
        line: how to reach the server.
        tools: those of this client.
        limits: of what is owed, and how often.
        start: what begins it.
        options: keys of the body that each further post repeats.
        is_resumed: it goes on where others may have gone on, too: the server is asked what is still owed.
    """

    def __init__(
        self,
        line: Line,
        tools: Mapping[str, Tool],
        limits: Limits,
        start: Post | Which,
        *,
        options: JsonObject,
        is_resumed: bool = False,
    ) -> None:
        self.follower = Follower(line, start)
        self._line = replace(line, waits_while_busy=False)
        self._tools = tools
        self._limits = limits
        self._options = options
        self._is_resumed = is_resumed
        self._rounds = 1
        self._owed: Sequence[OwedCall] = ()
        self._answered: set[str] = set()
        self._ready: deque[ToolAnswer] = deque()
        self._running: anyio.CancelScope | None = None
        self._is_stopped = False
        self._is_over = False

    async def catch_up(self) -> None:
        """Before the first event of what is resumed: what ended without being seen is not followed."""
        which = self.follower.which
        if which.cursor is None and not await self._running_run():
            await self.follower.aclose()

    async def next(self) -> Event | None:
        """The next event, None at the end of all."""
        while not self._is_over:
            if self._ready:
                return self._ready.popleft()
            event = await self.follower.next()
            if event is not None:
                self._note(event)
                return event
            await self._go_on()
        return None

    def stop(self) -> None:
        """Run no more tools, and cancel those that run; what is owed stays owed."""
        self._is_stopped = True
        if self._running is not None:
            self._running.cancel()

    async def aclose(self) -> None:
        self._is_over = True
        await self.follower.aclose()

    def _note(self, event: Event) -> None:
        if isinstance(event, Owed):
            self._owed = event.calls

    async def _go_on(self) -> None:
        """Answer what is owed, and follow the run that this starts."""
        calls = await self._calls()
        answers = await self._run(calls)
        if self._is_stopped or not answers:
            self._is_over = True
            return
        self._answered |= {each.call_id for each in answers}
        self.follower = Follower(self._line, self._post(answers))
        await self.follower.connect()  # so that what is told of is posted
        self._ready += answers

    async def _running_run(self) -> bool:
        return (await self._conversation()).running is not None

    async def _conversation(self) -> Conversation:
        name = self.follower.which.conversation_id
        channel = self._line.channel
        return read_conversation(
            await repeated(self._line.retry, lambda: channel.conversation(name))
        )

    async def _calls(self) -> Sequence[OwedCall]:
        """What is to be answered now. Raises LimitExceeded: too many, or too often."""
        if self._is_resumed:
            self._owed, self._is_resumed = (await self._conversation()).owed, False
        calls = [each for each in self._owed if self._is_ours(each)]
        self._owed = ()
        self._rounds += bool(calls)
        if len(calls) > self._limits.owed_calls:
            raise LimitExceeded("the server says that too many calls are owed")
        if self._rounds > self._limits.rounds:
            raise LimitExceeded("the calls of tools do not come to an end")
        return calls

    def _is_ours(self, call: OwedCall) -> bool:
        return call.kind == _ANSWERABLE and call.id not in self._answered

    async def _run(self, calls: Sequence[OwedCall]) -> list[ToolAnswer]:
        if self._is_stopped:
            return []
        execution = Execution(self._tools, self._limits, self.follower.which.conversation_id)
        with anyio.CancelScope() as self._running:
            return await execution.answer(calls)
        return []

    def _post(self, answers: Sequence[ToolAnswer]) -> Post:
        messages: list[JsonObject] = [
            {"role": "tool", "toolCallId": each.call_id, "content": each.content}
            | ({"isError": True} if each.is_error else {})
            for each in answers
        ]
        name = self.follower.which.conversation_id
        return Post(encode({**self._options, "conversationId": name, "messages": [*messages]}))
