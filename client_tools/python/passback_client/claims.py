"""Claims of owed calls: only one client runs a call."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

import anyio

from passback_client.backoff import Backoff, with_retry
from passback_client.channel import Channel
from passback_client.errors import PassbackError, is_settled
from passback_client.events import OwedCall
from passback_client.limits import Retry

_CLAIMED_CODE = "call_claimed"
_AT_ONCE = 16
"""Number of parallel requests."""
_RELEASE_SECONDS = 2
"""A claim that cannot be released in time expires."""


class Claims:
    """The claims of one round, as a context manager that releases unanswered calls at its end.

    Args:
        channel: to the server.
        retry: rules of retries, and the duration of a claim.
        claimant: this client's name. None: nothing is claimed.
        conversation_id: whose calls they are.
    """

    def __init__(
        self, channel: Channel, retry: Retry, claimant: str | None, conversation_id: str
    ) -> None:
        self._channel = channel
        self._retry = retry
        self._claimant = claimant
        self._conversation_id = conversation_id
        self._claimed: set[str] = set()

    async def claim_any(self, calls: Sequence[OwedCall]) -> Sequence[OwedCall]:
        """Claim calls; wait until some are claimed, or all have been answered by others.

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

    async def renew(self, settled: Callable[[str], None]) -> None:
        """Renew the claims until all calls are closed or the task is cancelled.

        Args:
            settled: called with each call that another client has answered.
        """
        while self._claimed:
            await anyio.sleep(self._retry.claim / 3)
            with suppress(PassbackError):  # a result counts without a claim, too
                for call_id, refusal in (await self._claim(self._claimed)).items():
                    if is_settled(refusal):
                        settled(call_id)

    def mark_posted(self) -> None:
        """Forget the claims: posted results end them."""
        self._claimed.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        claimant = self._claimant
        if not self._claimed or claimant is None:
            return

        async def release(call_id: str) -> None:
            with suppress(PassbackError):
                await self._channel.release(self._conversation_id, call_id, claimant)

        with anyio.move_on_after(_RELEASE_SECONDS, shield=True):
            await _in_parallel(release, self._claimed)

    async def _claim(self, call_ids: Iterable[str]) -> Mapping[str, PassbackError]:
        """Claim calls; return the errors of closed and of claimed ones. Raises PassbackError."""
        claimant, seconds = self._claimant, self._retry.claim
        assert claimant is not None
        refusals: dict[str, PassbackError] = {}

        async def claim(call_id: str) -> None:
            self._claimed.add(call_id)  # even if the response is lost
            name = self._conversation_id
            backoff = Backoff(self._retry, self._channel.contact)
            try:
                await with_retry(
                    backoff, lambda: self._channel.claim(name, call_id, claimant, seconds)
                )
            except PassbackError as error:
                refusals[call_id] = error

        await _in_parallel(claim, call_ids)
        for call_id, refusal in refusals.items():
            if not (is_settled(refusal) or refusal.code == _CLAIMED_CODE):
                raise refusal
            self._claimed.discard(call_id)
        return refusals


async def _in_parallel(request: Callable[[str], Awaitable[None]], call_ids: Iterable[str]) -> None:
    slots = anyio.Semaphore(_AT_ONCE)

    async def one(call_id: str) -> None:
        async with slots:
            await request(call_id)

    async with anyio.create_task_group() as tasks:
        for call_id in [*call_ids]:
            tasks.start_soon(one, call_id)
