"""All that one post leads to: runs, the calls that they hand back, the results, the runs that these
start.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import anyio

from passback_client.approvals import Decision, interrupt_answer
from passback_client.backoff import Backoff, repeated
from passback_client.channel import Post, Which, encode
from passback_client.claims import Claims
from passback_client.conversation import Conversation, read_conversation
from passback_client.errors import LimitExceeded, Refused, is_settled, is_unfit
from passback_client.events import Decided, Event, JsonObject, Owed, OwedCall, ToolAnswer
from passback_client.execution import Execution, Hands, Told, in_place_of
from passback_client.follow import Follower, Line


class Exchange:
    """Goes on until nothing is owed that this client can answer.

    Attributes:
        follower: of the run that goes on, or was the last.

    Args:
        line: how to reach the server.
        hands: what this client answers with.
        start: what begins it.
        options: keys of the body that each further post repeats.
        is_resumed: it goes on where others may have gone on, too: the server is asked what is still
            owed.
    """

    def __init__(
        self,
        line: Line,
        hands: Hands,
        start: Post | Which,
        *,
        options: JsonObject,
        is_resumed: bool = False,
    ) -> None:
        self.follower = Follower(line, start)
        self._line = replace(line, waits_while_busy=False)
        self._hands = hands
        self._limits = hands.limits
        self._options = options
        self._is_resumed = is_resumed
        self._rounds = 1
        self._owed: Sequence[OwedCall] = ()
        self._run_id: str | None = None
        self._answered: set[str] = set()
        self._told: dict[str, Told] = {}
        self._ready: deque[Told] = deque()
        self._running: anyio.CancelScope | None = None
        self._is_stopped = False
        self._is_over = False

    async def catch_up(self) -> None:
        """Before the first event of what is resumed: what ended without being seen is not
        followed.
        """
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
        """Answer what is owed, and follow the run that this starts, or that another client's answer
        started.
        """
        self._run_id = self.follower.which.run_id or self._run_id
        calls = await self._calls()
        if self._is_stopped or not calls:
            self._is_over = True
            return
        line, name = self._line, self.follower.which.conversation_id
        async with Claims(line.channel, line.retry, line.claimant, name) as claims:
            told = await self._answer(calls, claims)
            if self._is_stopped:
                self._is_over = True
            elif not told:
                await self._follow_on()
            else:
                await self._tell(told, claims)

    async def _answer(self, calls: Sequence[OwedCall], claims: Claims) -> list[Told]:
        """Answers to those that no other client answers; a call is run once, also if its answer is
        posted again.
        """
        with anyio.CancelScope() as self._running:
            mine = await claims.take(calls)
            unread = [call for call in mine if call.id not in self._told]
            execution = Execution(self._hands, self.follower.which.conversation_id)
            told = await execution.answer(unread, claims.keep)
            self._told |= {each.call_id: each for each in told}
            return [self._told[call.id] for call in mine if call.id in self._told]
        return []

    async def _tell(self, told: Sequence[Told], claims: Claims) -> None:
        try:
            await self._hand_in(told)
        except Refused as error:
            if not is_settled(error):
                raise
            await self._follow_on(error)
            return
        claims.answered()

    async def _hand_in(self, told: Sequence[Told]) -> None:
        """Post it together, or else one by one: what is refused blocks nothing, and the model is
        told why.
        """
        try:
            await self._post(told)
        except Refused as error:
            if not is_unfit(error):
                raise
            if len(told) == 1:
                await self._post([in_place_of(told[0], error.message)])
                return
            for each in told:
                await self._hand_in([each])
                if self.follower.which.run_id is not None:
                    return  # nothing else is waited for

    async def _post(self, told: Sequence[Told]) -> None:
        await self.follower.aclose()  # what it says is owed is so no more
        follower = Follower(self._line, self._written(told))
        await follower.connect()  # so that what is told of is posted
        self.follower = follower
        for each in told:
            self._answered.add(each.call_id)
            self._told.pop(each.call_id, None)
        self._ready += told

    async def _follow_on(self, refused: Refused | None = None) -> None:
        """Others have answered: read the run that this started, or see what is left to answer."""
        seen = await self._conversation()
        if seen.run_id is not None and seen.run_id != self._run_id:
            self._told.clear()
            self.follower = Follower(self._line, Which(seen.id, seen.run_id))
            return
        self._owed = seen.owed
        left = {call.id for call in seen.owed}
        if refused is not None and self._told.keys() <= left:
            raise refused
        self._told = {call_id: told for call_id, told in self._told.items() if call_id in left}

    async def _running_run(self) -> bool:
        return (await self._conversation()).running is not None

    async def _conversation(self) -> Conversation:
        name = self.follower.which.conversation_id
        channel = self._line.channel
        backoff = Backoff(self._line.retry, channel.contact)
        return read_conversation(await repeated(backoff, lambda: channel.conversation(name)))

    async def _calls(self) -> Sequence[OwedCall]:
        """Return the calls to answer now. Raises LimitExceeded: too many, or too often."""
        if self._is_resumed:
            seen, self._is_resumed = await self._conversation(), False
            self._owed, self._run_id = seen.owed, seen.run_id
        calls = [each for each in self._owed if self._is_ours(each)]
        self._owed = ()
        self._rounds += bool(calls)
        if len(calls) > self._limits.owed_calls:
            raise LimitExceeded("the server says that too many calls are owed")
        if self._rounds > self._limits.rounds:
            raise LimitExceeded("the calls of tools do not come to an end")
        return calls

    def _is_ours(self, call: OwedCall) -> bool:
        return self._hands.can_answer(call) and call.id not in self._answered

    def _written(self, told: Sequence[Told]) -> Post:
        name = self.follower.which.conversation_id
        body: JsonObject = {**self._options, "conversationId": name}
        if results := [posted_result(each) for each in told if isinstance(each, ToolAnswer)]:
            body["messages"] = [*results]
        if decisions := [_decision(each) for each in told if isinstance(each, Decided)]:
            body["resume"] = [*decisions]
        return Post(encode(body))


def posted_result(answer: ToolAnswer) -> JsonObject:
    message: JsonObject = {
        "role": "tool",
        "toolCallId": answer.call_id,
        "content": answer.content,
    }
    return message | {"isError": True} if answer.is_error else message


def _decision(decided: Decided) -> JsonObject:
    decision = Decision(decided.approved, decided.reason, decided.always)
    return interrupt_answer(decided.call_id, decision)
