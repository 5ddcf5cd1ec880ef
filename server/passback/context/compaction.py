"""The context policy: watches how full the model's window is, and makes room in three steps, the cheapest first."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from passback.context.shown import Levels, Shown, Taken
from passback.context.summary import (
    Division,
    divided,
    last_named,
    least_shown,
    request_for,
    summary_of,
)
from passback.context.tokens import frame_tokens, message_tokens, request_tokens, text_tokens
from passback.core.context import Context, Count, Fitted
from passback.core.deltas import (
    AnsweredBy,
    Finish,
    LostUsageChunk,
    ModelDelta,
    ModelRequest,
    ReasoningChunk,
    TextChunk,
    UsageChunk,
)
from passback.core.errors import ContextTooLarge, MessageTooLarge, ModelError
from passback.core.events import Compacted, ContextWarned, RunEvent, UsageReported
from passback.core.ids import new_message_id
from passback.core.messages import UNUSED, Message, ModelMessage, SummaryMessage, Usage, together
from passback.core.ports import ModelClient
from passback.core.values import value

logger = logging.getLogger(__name__)

WINDOW: Final = 128_000
"""Tokens that a model is taken to have where nobody says otherwise."""

_BYTES: Final = 4
"""Bytes of one token of a summary, at most."""

_LARGE: Final = 4
"""New messages that are more than one part in so many of the window are measured before they are stored."""

_WORTH: Final = 10
"""A summary has to save one part in so many of the window, while the model could still be called without."""


@value
class Compaction:
    """Keeps what the model is shown within its window.

    Args:
        window: tokens, of request and answer together; 0: nothing is done unless it is asked for by hand.
    """

    window: int = WINDOW

    def watch(self, model: ModelClient, frame: ModelRequest, /) -> Context:
        shown = Shown(frame_tokens(frame), Levels(self.window or WINDOW))
        return _Watch(model, shown, automatic=self.window > 0)

    def is_large(self, messages: Sequence[Message], /) -> bool:
        return self.window > 0 and sum(map(message_tokens, messages)) * _LARGE > self.window


class _Watch:
    """One run's context."""

    def __init__(self, model: ModelClient, shown: Shown, *, automatic: bool) -> None:
        self._model = model
        self._shown = shown
        self._automatic = automatic
        self._asked = 0
        self._warned = False
        self._gave_up = False

    @property
    def estimate(self) -> int:
        return self._shown.used

    # ---------------------------------------------------------------- before a call of the model
    def at_once(self, messages: Sequence[Message], /) -> Sequence[ModelMessage] | None:
        self._shown.feed(messages)
        if self._automatic and self._is_due():
            return None
        return self._show()

    async def fit(self, messages: Sequence[Message], count: Count, /) -> Fitted:
        shown = self._shown
        shown.feed(messages)
        if not (self._automatic and self._is_due()):
            return Fitted(self._show())
        events: list[RunEvent] = []
        if not self._warned:
            events.append(ContextWarned(shown.used, shown.levels.window))
        append: tuple[SummaryMessage, ...] = ()
        if shown.used >= shown.levels.compact:
            events += _told(shown.ease())
            if shown.used > shown.levels.warn:
                append = await self._summarise(messages, events, count)
        return self._fitted(append, events)

    async def compact(self, messages: Sequence[Message], count: Count, /) -> Fitted:
        shown = self._shown
        shown.feed(messages)
        division = divided(shown, len(messages))
        events: list[RunEvent] = []
        append: tuple[SummaryMessage, ...] = ()
        if division is not None and division.is_possible:
            append = await self._replace(messages, division, events, count)
        return self._fitted(append, events)

    def counted(self, usage: Usage, /) -> None:
        self._shown.counted(usage, self._asked)

    def exceeded(self) -> bool:
        if self._automatic:
            window = min(self._shown.levels.window, self._shown.scale.used(self._asked))
            self._shown.levels = Levels(window)
        return self._automatic

    def refuse(self, messages: Sequence[Message], /) -> None:
        shown = self._shown
        shown.feed(messages)
        used, levels = shown.scale.used(least_shown(shown)), shown.levels
        framed = shown.scale.used(shown.frame) > levels.stop
        # a prompt that is too large is no fault of the message, and the run says so
        if self._automatic and used > levels.stop and not framed:
            raise MessageTooLarge(
                f"{last_named(shown)} too large for the model: about {used} tokens, and there is room for {levels.stop}"
            )

    def _is_due(self) -> bool:
        """Whether anything has to be done or told."""
        used, levels = self._shown.used, self._shown.levels
        if used < levels.warn:
            self._warned = False
        return used >= levels.compact or (used >= levels.warn and not self._warned)

    def _show(self) -> Sequence[ModelMessage]:
        self._asked = self._shown.estimate
        return self._shown.messages()

    def _fitted(self, append: tuple[SummaryMessage, ...], events: list[RunEvent]) -> Fitted:
        """What is shown now. Raises ContextTooLarge when it is more than the window."""
        shown = self._shown
        self._warned = shown.used >= shown.levels.warn
        if self._automatic and shown.used > shown.levels.stop:
            events += _told(shown.tighten())
            self._refuse_above_the_window(shown.estimate)
        return Fitted(self._show(), append, tuple(events))

    def _refuse_above_the_window(self, estimate: int) -> None:
        shown = self._shown
        used, levels = shown.scale.used(estimate), shown.levels
        if used <= levels.stop:
            return
        framed = shown.scale.used(shown.frame) > levels.stop
        what = "the agent's prompt and tools are" if framed else last_named(shown)
        raise ContextTooLarge(
            f"{what} too large for the model: about {used} tokens, and there is room for {levels.stop}"
        )

    # ---------------------------------------------------------------- summaries
    async def _summarise(
        self, messages: Sequence[Message], events: list[RunEvent], count: Count
    ) -> tuple[SummaryMessage, ...]:
        """Let a summary take the place of what is old, if that helps; one attempt before each call of the model."""
        shown = self._shown
        if shown.used > shown.levels.stop:
            self._refuse_above_the_window(least_shown(shown))
        division = divided(shown, len(messages), again=shown.used > shown.levels.stop)
        if division is None or not division.is_possible:
            return ()
        worth = division.saves * shown.scale.ratio * _WORTH >= shown.levels.window
        if not worth:
            events += _told(shown.tighten())
        must = shown.used > shown.levels.stop
        if not must and (self._gave_up or not worth):
            return ()
        return await self._replace(messages, division, events, count, must=must)

    async def _replace(
        self,
        messages: Sequence[Message],
        division: Division,
        events: list[RunEvent],
        count: Count,
        *,
        must: bool = False,
    ) -> tuple[SummaryMessage, ...]:
        shown, before = self._shown, self._shown.used
        written = _Written() if self._gave_up else await self._ask(division, count)
        if written.spent is not None:
            events.append(UsageReported(written.spent, model=written.model or self._model.name))
        if not (written.text or must):
            self._gave_up = True
            return ()
        summary = summary_of(division, new_message_id(), written.text, written.usage)
        shown.feed([*messages, summary])
        events.append(Compacted("summary" if written.text else "cut", before, shown.used))
        events += _told(shown.ease())
        return (summary,)

    async def _ask(self, division: Division, count: Count) -> "_Written":
        """What the model writes; it is not listened to beyond the summary's budget."""
        request = request_for(division, self._shown)
        if request is None:
            return _Written()
        shown = self._shown.scale.used(request_tokens(request))
        listener = _Listener(division.budget * _BYTES, shown)
        try:
            async with self._model.stream(request) as batches:
                async for deltas in batches:
                    if listener.feed(deltas):
                        break
        except ModelError as error:
            logger.warning("no summary: %s", error.code, extra={"action": "summary_failed"})
            return listener.written(whole=False)
        finally:
            if listener.spent is not None:
                count(listener.spent)
        return listener.written(whole=listener.ended)


@value
class _Written:
    """What a model has written; a text only if it is the whole of it, or enough.

    `spent` counts attempts before it, too. `model` is the name of the one that wrote, if it said so.
    """

    text: str = ""
    usage: Usage | None = None
    spent: Usage | None = None
    model: str = ""


class _Listener:
    """Takes the model's words until it ends, or has said more than so many bytes.

    `shown` are the tokens of what it was asked, as they are estimated.
    """

    def __init__(self, limit: int, shown: int) -> None:
        self.ended = False
        self._finished = False
        self._shown = shown
        self._left = limit
        self._said = 0
        self._pieces: list[str] = []
        self._usage: Usage | None = None
        self._lost: Usage | None = None
        self._model = ""

    def feed(self, deltas: Sequence[ModelDelta]) -> bool:
        """Whether it is enough."""
        for delta in deltas:
            match delta:
                case TextChunk(text):
                    self._pieces.append(text)
                    self._said += text_tokens(text)
                    self._left -= len(text.encode("utf-8", "surrogatepass"))
                case ReasoningChunk(text):
                    self._said += text_tokens(text)
                case UsageChunk(usage):
                    self._usage = usage
                case LostUsageChunk(usage):
                    self._lost = together(self._lost, usage)
                case AnsweredBy(model):
                    self._model = model
                case Finish(reason):
                    self._finished = True
                    self.ended = reason in ("stop", "length")
                case _:  # it has no tools, and of its reasoning nothing is kept
                    pass
        self.ended = self.ended or self._left < 0
        return self._left < 0

    def written(self, *, whole: bool) -> _Written:
        text = "".join(self._pieces).strip() if whole else ""
        return _Written(text, self.usage, self.spent, self._model)

    @property
    def usage(self) -> Usage | None:
        """What the service counted; of what was cut, at least an estimate of what was asked and said."""
        if self._finished or not (self._said or self._usage):
            return self._usage
        counted = self._usage or UNUSED
        return replace(
            counted,
            input_tokens=counted.input_tokens or self._shown,
            output_tokens=max(counted.output_tokens, self._said),
            estimated=True,
        )

    @property
    def spent(self) -> Usage | None:
        """As `usage`, with that of the attempts before."""
        return together(self._lost, self.usage)


def _told(taken: Sequence[Taken]) -> list[Compacted]:
    return [Compacted(each.step, each.before, each.after) for each in taken]
