"""Titles that a model writes after a conversation's first answer. Nothing waits for them."""

import logging
from time import monotonic
from typing import Final

import anyio
import anyio.abc

from passback.core.budgets import Spent
from passback.core.changes import Status, WrittenTitle
from passback.core.deltas import ModelRequest
from passback.core.errors import PassbackError
from passback.core.messages import UNUSED, RunRef
from passback.core.side_calls import AnswerReader
from passback.core.state import TitleCall
from passback.core.text import text_tokens
from passback.core.titles import clean_title, is_first_answer, title_request
from passback.core.values import value
from passback.engine.agents import TitleModel
from passback.engine.guarding import CallBroken, guarded
from passback.engine.ledger import Ledger
from passback.engine.log import RunLog
from passback.engine.loop import Loop
from passback.engine.spending import BudgetSpent, Meter

logger = logging.getLogger(__name__)

_DEADLINE: Final = 30.0  # seconds, the wait for its turn included
_WRITE_TIMEOUT: Final = 5.0  # seconds to store what came of a call, also when the worker stops
_AT_ONCE: Final = 16  # calls of a worker
_MOST_BYTES: Final = 1000  # of text; a title has far fewer
_MOST_TOKENS: Final = 2000  # of the answer, with its reasoning


@value
class _TitleWish:
    run: RunRef
    titles: TitleModel
    request: ModelRequest
    meter: Meter

    @property
    def tokens(self) -> int:
        """Estimated tokens of the request."""
        said = (each.content for each in self.request.messages)
        texts = [self.request.system, *(each for each in said if isinstance(each, str))]
        return sum(map(text_tokens, texts))


class TitleCalls:
    """The model calls for titles in this process."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._turns = anyio.CapacityLimiter(_AT_ONCE)

    def begin(self, tasks: anyio.abc.TaskGroup, log: RunLog, loop: Loop, meter: Meter) -> None:
        """Let a model write a title, if a run has ended with its conversation's first answer.

        Nothing is raised. A worker that ends leaves the title as it is.

        Args:
            tasks: where to do it.
            log: the run's, which works no more.
            loop: its turns.
            meter: counts what it has spent.
        """
        titles = loop.spec.titles
        if (
            titles is None
            or not log.ended
            or loop.state.history_start
            or not is_first_answer(loop.messages)
        ):
            return
        if (request := title_request(loop.messages)) is not None:
            tasks.start_soon(self._contain, _TitleWish(log.lease.run, titles, request, meter))

    async def _contain(self, wish: _TitleWish) -> None:
        ids = {"run_id": wish.run.run_id, "conversation_id": wish.run.key.id}
        try:
            passing = (PassbackError, BudgetSpent)
            with guarded("title", ids, _DEADLINE, done="written", passing=passing):
                async with self._turns:
                    await self._write_title(wish)
        except CallBroken:
            pass  # it is in the log
        except BudgetSpent:
            logger.info("no budget for a title", extra={"action": "title_not_asked", **ids})
        except PassbackError as error:
            extra = {"action": "title_failed", **ids}
            logger.warning("title not written: %s", error.code, extra=extra)

    async def _write_title(self, wish: _TitleWish) -> None:
        status = await self._ledger.status(wish.run.key)
        if not status.version or status.named:  # nobody would see it
            return
        reader, began = AnswerReader(_MOST_BYTES, wish.tokens, _MOST_TOKENS), monotonic()
        try:
            with await wish.meter.reserve(wish.tokens, wish.titles.price):
                await _ask_model(wish, reader)
        finally:
            with anyio.fail_after(_WRITE_TIMEOUT, shield=True):
                await self._store_result(wish, status, reader, monotonic() - began)

    async def _store_result(
        self, wish: _TitleWish, status: Status, reader: AnswerReader, seconds: float
    ) -> None:
        answer = reader.answer(whole=reader.ended)
        title, usage = clean_title(answer.text), answer.spent or UNUSED
        if not title and usage.is_nothing:
            return
        await wish.meter.count_for_owner(ends=True)
        tokens = usage.input_tokens + usage.output_tokens
        spent = Spent(tokens, round(seconds, 3), round(wish.titles.price.of(usage), 9))
        call = TitleCall(usage, spent)
        await self._ledger.write_title(WrittenTitle(wish.run.key, status.created, title, call))


async def _ask_model(wish: _TitleWish, reader: AnswerReader) -> None:
    try:
        async with wish.titles.model.stream(wish.request) as batches:
            async for deltas in batches:
                if reader.feed(deltas):
                    break
    finally:  # paid for, even if the request failed
        wish.meter.count_usage(reader.spent, wish.titles.price)
