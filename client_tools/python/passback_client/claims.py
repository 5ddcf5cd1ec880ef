"""Claims: this client tells which calls it is at work on, so that no other client runs them too."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

import anyio

from passback_client.backoff import Backoff, repeated
from passback_client.channel import Channel
from passback_client.errors import PassbackError, is_settled
from passback_client.events import OwedCall
from passback_client.limits import Retry

_TAKEN = "call_claimed"
_AT_ONCE = 16
"""Requests of one hand-back."""
_GIVE_BACK_SECONDS = 2
"""A claim that could not be given back lapses."""


class Claims:
    """Those of one hand-back, from `async with` on; what was not answered then is given back at its
    end.

    Args:
        channel: to the server.
        retry: how requests are repeated, and for how long a call is claimed.
        claimant: this client's name. None: every call is taken without a claim.
        conversation_id: whose calls they are.
    """

    def __init__(
        self, channel: Channel, retry: Retry, claimant: str | None, conversation_id: str
    ) -> None:
        self._channel = channel
        self._retry = retry
        self._claimant = claimant
        self._conversation_id = conversation_id
        self._held: set[str] = set()

    async def take(self, calls: Sequence[OwedCall]) -> Sequence[OwedCall]:
        """Wait until some of them are this client's to answer: none when all have been settled by
        others.

        Raises:
            PassbackError: the server refuses, or does not answer.
        """
        if self._claimant is None:
            return calls
        backoff = Backoff(self._retry, self._channel.contact)
        while calls:
            refusals = await self._claim([call.id for call in calls])
            if mine := [call for call in calls if call.id not in refusals]:
                return mine
            calls = [call for call in calls if not is_settled(refusals[call.id])]
            waits = [refusals[call.id].retry_after for call in calls]
            if calls:
                soonest = min((wait for wait in waits if wait is not None), default=None)
                await anyio.sleep(backoff.pause_within(soonest))
        return ()

    async def keep(self, settled: Callable[[str], None]) -> None:
        """Renew what was taken, until all of it is settled or the task is cancelled.

        Args:
            settled: is told each call that somebody else has answered.
        """
        while self._held:
            await anyio.sleep(self._retry.claim / 3)
            with suppress(PassbackError):  # a result counts without a claim, too
                for call_id, refusal in (await self._claim(self._held)).items():
                    if is_settled(refusal):
                        settled(call_id)

    def answered(self) -> None:
        """The results were posted; with them, the claims are gone."""
        self._held.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        claimant = self._claimant
        if not self._held or claimant is None:
            return

        async def give_back(call_id: str) -> None:
            with suppress(PassbackError):
                await self._channel.give_back(self._conversation_id, call_id, claimant)

        with anyio.move_on_after(_GIVE_BACK_SECONDS, shield=True):
            await _together(give_back, self._held)

    async def _claim(self, call_ids: Iterable[str]) -> Mapping[str, PassbackError]:
        """Claim the calls; return what is settled, and what others have. Raises PassbackError."""
        claimant, seconds = self._claimant, self._retry.claim
        assert claimant is not None
        refusals: dict[str, PassbackError] = {}

        async def claim(call_id: str) -> None:
            self._held.add(call_id)  # also where the answer is lost
            name = self._conversation_id
            backoff = Backoff(self._retry, self._channel.contact)
            try:
                await repeated(
                    backoff, lambda: self._channel.claim(name, call_id, claimant, seconds)
                )
            except PassbackError as error:
                refusals[call_id] = error

        await _together(claim, call_ids)
        for call_id, refusal in refusals.items():
            if not (is_settled(refusal) or refusal.code == _TAKEN):
                raise refusal
            self._held.discard(call_id)
        return refusals


async def _together(request: Callable[[str], Awaitable[None]], call_ids: Iterable[str]) -> None:
    slots = anyio.Semaphore(_AT_ONCE)

    async def one(call_id: str) -> None:
        async with slots:
            await request(call_id)

    async with anyio.create_task_group() as tasks:
        for call_id in [*call_ids]:
            tasks.start_soon(one, call_id)
