"""The context policy: measures how full a model's window is, and makes room in three steps.

The cheapest step comes first; see docs/explanation/context.md.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from time import monotonic, time_ns
from typing import Final

from passback.context.shown import (
    Levels,
    Shown,
    frame_tokens,
    message_tokens,
    request_tokens,
)
from passback.context.summary import (
    Division,
    divide,
    last_subject,
    least_shown,
    summary_message,
    summary_request,
)
from passback.core.context import Context, CountUsage, Fitted
from passback.core.deltas import ModelRequest
from passback.core.errors import ContextTooLarge, MessageTooLarge, ModelError
from passback.core.events import (
    Compacted,
    CompactionStep,
    ContextWarned,
    RunEvent,
    UsageReported,
)
from passback.core.messages import CompactionTrigger, Message, ModelMessage, SummaryMessage, Usage
from passback.core.ports import ModelClient
from passback.core.side_calls import AnswerReader, SideAnswer
from passback.core.transcript import MintMessageId
from passback.core.values import value

logger = logging.getLogger(__name__)

DEFAULT_WINDOW: Final = 128_000  # tokens; the default where neither agent nor settings have a value

_BYTES_PER_TOKEN: Final = 4  # at most, in a summary

_LARGE_DIVISOR: Final = 4  # new messages above window / 4 are measured before they are stored

# A summary must save at least window / 10, as long as the model could be called without it.
_WORTH_DIVISOR: Final = 10


@value
class Compaction:
    """Keep requests within the model's window.

    Args:
        window: tokens of request and answer together; 0: compact only when the user asks for it.
    """

    window: int = DEFAULT_WINDOW

    def watch(self, model: ModelClient, frame: ModelRequest, mint: MintMessageId, /) -> Context:
        levels, automatic = Levels(self.window or DEFAULT_WINDOW), self.window > 0
        shown = Shown(frame_tokens(frame), levels, automatic=automatic)
        return _RunWindow(model, shown, mint, automatic=automatic)

    def is_large(self, messages: Sequence[Message], /) -> bool:
        return self.window > 0 and sum(map(message_tokens, messages)) * _LARGE_DIVISOR > self.window


class _RunWindow:
    """`Context` for the model calls of one run."""

    def __init__(
        self, model: ModelClient, shown: Shown, mint: MintMessageId, *, automatic: bool
    ) -> None:
        self._model = model
        self._shown = shown
        self._mint = mint
        self._automatic = automatic
        self._asked_estimate = 0
        self._warned = False
        self._gave_up = False
        self._refused = False

    @property
    def estimate(self) -> int:
        return self._shown.used

    @property
    def window(self) -> int | None:
        return self._shown.levels.window if self._automatic else None

    def at_once(self, messages: Sequence[Message], /) -> Sequence[ModelMessage] | None:
        self._shown.feed(messages)
        if self._automatic and self._is_due():
            return None
        return self._shown_messages()

    async def fit(self, messages: Sequence[Message], count: CountUsage, /) -> Fitted:
        shown = self._shown
        shown.feed(messages)
        if not (self._automatic and self._is_due()):
            return Fitted(self._shown_messages())
        events: list[RunEvent] = []
        if not self._warned:
            events.append(ContextWarned(shown.used, shown.levels.window))
        append: tuple[SummaryMessage, ...] = ()
        if shown.used >= shown.levels.compact:
            events += shown.ease()
            # the cheap steps may be enough
            if shown.used > shown.levels.warn:
                append = await self._summarise_if_worth(messages, events, count)
        return self._fit_window(append, events)

    async def compact(self, messages: Sequence[Message], count: CountUsage, /) -> Fitted:
        shown = self._shown
        shown.feed(messages)
        division = divide(shown, len(messages))
        events: list[RunEvent] = []
        append: tuple[SummaryMessage, ...] = ()
        if division is not None and division.is_possible:
            append = await self._append_summary(messages, division, events, count, trigger="manual")
        return self._fit_window(append, events)

    def counted(self, usage: Usage, /) -> None:
        self._shown.counted(usage, self._asked_estimate)

    def exceeded(self) -> bool:
        if self._automatic:
            window = min(self._shown.levels.window, self._shown.scale.used(self._asked_estimate))
            self._shown.levels = Levels(window)
            self._refused = True
        return self._automatic

    def refuse(self, messages: Sequence[Message], /) -> None:
        shown = self._shown
        shown.feed(messages)
        used, levels = shown.scale.used(least_shown(shown)), shown.levels
        framed = shown.scale.used(shown.frame) > levels.stop
        # a prompt that is too large by itself is not the message's fault: the run reports it
        if self._automatic and used > levels.stop and not framed:
            raise MessageTooLarge(
                f"{last_subject(shown)} too large for the model: about {used} tokens, "
                f"and there is room for {levels.stop}"
            )

    def _is_due(self) -> bool:
        """Return True if room has to be made, or a warning has to be sent."""
        used, levels = self._shown.used, self._shown.levels
        if used < levels.warn:
            self._warned = False
        return used >= levels.compact or (used >= levels.warn and not self._warned)

    def _shown_messages(self) -> Sequence[ModelMessage]:
        self._asked_estimate, self._refused = self._shown.estimate, False
        return self._shown.messages()

    def _fit_window(self, append: tuple[SummaryMessage, ...], events: list[RunEvent]) -> Fitted:
        """Return the messages to show, tightened if need be.

        Raises ContextTooLarge if they exceed the window even so.
        """
        shown = self._shown
        self._warned = shown.used >= shown.levels.warn
        if self._automatic and shown.used > shown.levels.stop:
            events += shown.tighten()
            self._check_window(shown.estimate)
        return Fitted(self._shown_messages(), append, tuple(events))

    def _check_window(self, estimate: int) -> None:
        shown = self._shown
        used, levels = shown.scale.used(estimate), shown.levels
        if used <= levels.stop:
            return
        framed = shown.scale.used(shown.frame) > levels.stop
        subject = "the agent's prompt and tools are" if framed else last_subject(shown)
        raise ContextTooLarge(
            f"{subject} too large for the model: about {used} tokens, "
            f"and there is room for {levels.stop}"
        )

    async def _summarise_if_worth(
        self, messages: Sequence[Message], events: list[RunEvent], count: CountUsage
    ) -> tuple[SummaryMessage, ...]:
        """Replace old messages by a summary, if that helps; at most once before each model call."""
        shown = self._shown
        if shown.used > shown.levels.stop:
            # fail before a summary is paid for that could not help
            self._check_window(least_shown(shown))
        division = divide(shown, len(messages), again=shown.used > shown.levels.stop)
        if division is None or not division.is_possible:
            return ()
        worth = division.saves * shown.scale.ratio * _WORTH_DIVISOR >= shown.levels.window
        if not worth:
            events += shown.tighten()
        must = shown.used > shown.levels.stop
        if not must and (self._gave_up or not worth):
            return ()
        trigger: CompactionTrigger = "forced_retry" if self._refused else "auto"
        return await self._append_summary(
            messages, division, events, count, must=must, trigger=trigger
        )

    async def _append_summary(
        self,
        messages: Sequence[Message],
        division: Division,
        events: list[RunEvent],
        count: CountUsage,
        *,
        trigger: CompactionTrigger,
        must: bool = False,
    ) -> tuple[SummaryMessage, ...]:
        shown, before = self._shown, self._shown.used
        started, began = time_ns() // 1_000_000, monotonic()
        written = SideAnswer() if self._gave_up else await self._ask_model(division, count)
        if written.spent is not None:
            events.append(UsageReported(written.spent, model=written.model or self._model.name))
        if not (written.text or must):
            self._gave_up = True
            return ()
        summary = summary_message(division, self._mint(), written.text, written.usage)
        shown.feed([*messages, summary])
        summary = replace(
            summary,
            model=written.model or self._model.name if written.text else "",
            duration=round((monotonic() - began) * 1000),
            started=started,
            window=self.window or 0,
            turns=division.turns,
            before=before,
            after=shown.used,
            trigger=trigger,
        )
        step: CompactionStep = "summary" if written.text else "cut"
        events.append(Compacted(step, before, shown.used, summary))
        events += shown.ease()
        return (summary,)

    async def _ask_model(self, division: Division, count: CountUsage) -> SideAnswer:
        """Ask the model for a summary; stop reading when it exceeds the summary's budget."""
        request = summary_request(division, self._shown)
        if request is None:
            return SideAnswer()
        shown = self._shown.scale.used(request_tokens(request))
        reader = AnswerReader(division.budget * _BYTES_PER_TOKEN, shown)
        try:
            async with self._model.stream(request) as batches:
                async for deltas in batches:
                    if reader.feed(deltas):
                        break
        except ModelError as error:
            logger.warning("no summary: %s", error.code, extra={"action": "summary_failed"})
            return reader.answer(whole=False)
        finally:
            if reader.spent is not None:  # paid for, even if the request failed
                count(reader.spent)
        return reader.answer(whole=reader.ended)
