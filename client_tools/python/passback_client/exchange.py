"""The runs of one post: a run, the calls that it leaves owed, the run that their results start."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import anyio

from passback_client.approvals import Decision, interrupt_answer
from passback_client.backoff import Backoff, with_retry
from passback_client.channel import Post, RunRef, encode
from passback_client.claims import Claims
from passback_client.conversation import Conversation, read_conversation
from passback_client.errors import LimitExceeded, Refused, is_content_error, is_settled
from passback_client.events import Decided, Event, JsonObject, Owed, OwedCall, ToolAnswer
from passback_client.execution import CallAnswer, Execution, Toolbox, refusal_answer
from passback_client.follow import Follower, StreamSettings


class Exchange:
    """Follows runs and answers calls until nothing is owed that this client can answer.

    Attributes:
        follower: of the current or last run.

    Args:
        settings: the server and the options of the stream.
        toolbox: the tools of this client.
        start: a post to make, or a run to follow.
        options: keys of the body that each further post repeats.
        is_resumed: whether to ask the server first what is still owed.
    """

    def __init__(
        self,
        settings: StreamSettings,
        toolbox: Toolbox,
        start: Post | RunRef,
        *,
        options: JsonObject,
        is_resumed: bool = False,
    ) -> None:
        self.follower = Follower(settings, start)
        self._settings = replace(settings, waits_while_busy=False)
        self._toolbox = toolbox
        self._limits = toolbox.limits
        self._options = options
        self._is_resumed = is_resumed
        self._rounds = 1
        self._owed: Sequence[OwedCall] = ()
        self._run_id: str | None = None
        self._posted: set[str] = set()
        self._unposted: dict[str, CallAnswer] = {}
        self._ready: deque[CallAnswer] = deque()
        self._running: anyio.CancelScope | None = None
        self._is_stopped = False
        self._is_over = False

    async def catch_up(self) -> None:
        """Skip a run that ended before this client followed it."""
        run = self.follower.run
        if run.cursor is None and not await self._is_running():
            await self.follower.aclose()

    async def next(self) -> Event | None:
        """Return the next event, None at the end of the last run."""
        while not self._is_over:
            if self._ready:
                return self._ready.popleft()
            event = await self.follower.next()
            if event is not None:
                self._track(event)
                return event
            await self._answer_owed()
        return None

    def stop(self) -> None:
        """Cancel running tools and start no more; calls stay owed."""
        self._is_stopped = True
        if self._running is not None:
            self._running.cancel()

    async def aclose(self) -> None:
        self._is_over = True
        await self.follower.aclose()

    def _track(self, event: Event) -> None:
        if isinstance(event, Owed):
            self._owed = event.calls

    async def _answer_owed(self) -> None:
        """Answer the owed calls; follow the run that this, or another client's answer, starts."""
        self._run_id = self.follower.run.run_id or self._run_id
        calls = await self._calls()
        if self._is_stopped or not calls:
            self._is_over = True
            return
        settings, name = self._settings, self.follower.run.conversation_id
        async with Claims(settings.channel, settings.retry, settings.claimant, name) as claims:
            answers = await self._answer(calls, claims)
            if self._is_stopped:
                self._is_over = True
            elif not answers:
                await self._follow_others()
            else:
                await self._post_answers(answers, claims)

    async def _answer(self, calls: Sequence[OwedCall], claims: Claims) -> list[CallAnswer]:
        """Answer calls that no other client answers; run each once, even if it is posted again."""
        with anyio.CancelScope() as self._running:
            mine = await claims.claim_any(calls)
            unread = [call for call in mine if call.id not in self._unposted]
            execution = Execution(self._toolbox, self.follower.run.conversation_id)
            answers = await execution.answer(unread, claims.renew)
            self._unposted |= {each.call_id: each for each in answers}
            return [self._unposted[call.id] for call in mine if call.id in self._unposted]
        return []

    async def _post_answers(self, answers: Sequence[CallAnswer], claims: Claims) -> None:
        try:
            await self._post_or_split(answers)
        except Refused as error:
            if not is_settled(error):
                raise
            await self._follow_others(error)
            return
        claims.mark_posted()

    async def _post_or_split(self, answers: Sequence[CallAnswer]) -> None:
        """Post the answers together; if the server refuses them, one by one, so that one refused
        answer does not block the others, and the model gets the reason.
        """
        try:
            await self._post(answers)
        except Refused as error:
            if not is_content_error(error):
                raise
            if len(answers) == 1:
                await self._post([refusal_answer(answers[0], error.message)])
                return
            for each in answers:
                await self._post_or_split([each])
                if self.follower.run.run_id is not None:
                    return  # the next run has started

    async def _post(self, answers: Sequence[CallAnswer]) -> None:
        await self.follower.aclose()  # its owed calls are answered now
        follower = Follower(self._settings, self._post_of(answers))
        await follower.connect()  # yield an answer only once it is posted
        self.follower = follower
        for each in answers:
            self._posted.add(each.call_id)
            self._unposted.pop(each.call_id, None)
        self._ready += answers

    async def _follow_others(self, refused: Refused | None = None) -> None:
        """Follow the run that other clients' answers have started, or update the owed calls."""
        seen = await self._conversation()
        if seen.run_id is not None and seen.run_id != self._run_id:
            self._unposted.clear()
            self.follower = Follower(self._settings, RunRef(seen.id, seen.run_id))
            return
        self._owed = seen.owed
        left = {call.id for call in seen.owed}
        if refused is not None and self._unposted.keys() <= left:
            raise refused
        self._unposted = {
            call_id: answer for call_id, answer in self._unposted.items() if call_id in left
        }

    async def _is_running(self) -> bool:
        return (await self._conversation()).running is not None

    async def _conversation(self) -> Conversation:
        name = self.follower.run.conversation_id
        channel = self._settings.channel
        backoff = Backoff(self._settings.retry, channel.contact)
        return read_conversation(await with_retry(backoff, lambda: channel.conversation(name)))

    async def _calls(self) -> Sequence[OwedCall]:
        """Return the calls to answer now. Raises LimitExceeded: too many, or too often."""
        if self._is_resumed:
            seen, self._is_resumed = await self._conversation(), False
            self._owed, self._run_id = seen.owed, seen.run_id
        calls = [each for each in self._owed if self._is_ours(each)]
        self._owed = ()
        self._rounds += bool(calls)
        if len(calls) > self._limits.owed_calls:
            raise LimitExceeded("too many calls are owed (`owed_calls` in Limits)")
        if self._rounds > self._limits.rounds:
            raise LimitExceeded("the agent calls tools without end (`rounds` in Limits)")
        return calls

    def _is_ours(self, call: OwedCall) -> bool:
        return self._toolbox.can_answer(call) and call.id not in self._posted

    def _post_of(self, answers: Sequence[CallAnswer]) -> Post:
        name = self.follower.run.conversation_id
        body: JsonObject = {**self._options, "conversationId": name}
        if results := [posted_result(each) for each in answers if isinstance(each, ToolAnswer)]:
            body["messages"] = [*results]
        if decisions := [_decision(each) for each in answers if isinstance(each, Decided)]:
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
