"""Claims: one of a user's clients says that it is at work on an owed call, so that no other one begins it too.

Not to be confused with the claims of the store, by which a worker takes a lost run over: here, clients *hold* calls.
"""

from passback.core.admission import Standing, refuse_claim
from passback.core.changes import Held, Hold, Status
from passback.core.errors import (
    CallClaimed,
    ConversationBusy,
    ResultConflict,
    UnknownConversation,
)
from passback.core.ids import new_nonce
from passback.core.messages import CallId, ConversationKey
from passback.core.ports import Store
from passback.core.posts import for_call
from passback.engine.overtaken import ATTEMPTS, step_aside


class Claims:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def hold(
        self, key: ConversationKey, call_id: CallId, claimant: str, /, *, seconds: float
    ) -> Held:
        """See `Runs.hold`; 0 seconds give the claim back."""
        for attempt in range(ATTEMPTS):
            status = await self._waiting(key, call_id)
            hold = Hold(key, new_nonce(), status.version, call_id, claimant)
            held = await self._store.hold(hold, seconds=seconds)
            if held is None:
                await step_aside(attempt)
            elif held.mine:
                return held
            else:
                wait = held.left / 1000
                raise CallClaimed("another client is at work on this call", retry_after=wait)
        raise ConversationBusy("too many requests for this conversation at once", retry_after=1)

    async def drop(self, key: ConversationKey, call_id: CallId, claimant: str, /) -> None:
        """See `Runs.drop`."""
        try:
            await self.hold(key, call_id, claimant, seconds=0)
        except ResultConflict:
            return  # with the answer, the claim was gone

    async def _waiting(self, key: ConversationKey, call_id: CallId) -> Status:
        """How the conversation stands. Raises unless the call waits in it for its result."""
        status = await self._store.status(key)
        if call_id in {call.id for call in status.owed} and not status.overdue:
            return status
        name = for_call(call_id)
        loaded = await self._store.load(key, receipts=[name], within=0)
        status = loaded.status
        if status.version == 0:
            raise UnknownConversation("there is no such conversation")
        running = status.run_id if status.running else None
        standing = Standing((), loaded.receipts, running, overdue=status.overdue)
        refuse_claim(standing, status.owed, call_id)
        return status
