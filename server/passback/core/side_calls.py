"""Answers of a model to the server itself: a summary or a title. No client sees them."""

from collections.abc import Sequence
from dataclasses import replace

from passback.core.deltas import (
    AnsweredBy,
    Finish,
    LostUsageChunk,
    ModelDelta,
    ReasoningChunk,
    TextChunk,
    UsageChunk,
)
from passback.core.messages import UNUSED, Usage, add_usages
from passback.core.text import text_tokens
from passback.core.values import value


@value
class SideAnswer:
    """An answer from a model; the text is empty unless the answer was complete or long enough.

    `spent` includes earlier attempts. `model` is the name of the model that answered, if known.
    """

    text: str = ""
    usage: Usage | None = None
    spent: Usage | None = None
    model: str = ""


class AnswerReader:
    """Collect a model's answer until it ends or has more than it may have.

    Args:
        limit: bytes of text after which the answer counts as long enough.
        shown: the estimated number of tokens in the request.
        most_tokens: estimated tokens, reasoning included, after which to give up.
    """

    def __init__(self, limit: int, shown: int, most_tokens: int | None = None) -> None:
        self.ended = False
        self._finished = False
        self._shown = shown
        self._bytes_left = limit
        self._most_tokens = most_tokens
        self._output_tokens = 0
        self._pieces: list[str] = []
        self._usage: Usage | None = None
        self._lost_usage: Usage | None = None
        self._model = ""

    def feed(self, deltas: Sequence[ModelDelta]) -> bool:
        """Take a batch of deltas and return True if no more is to be read."""
        for delta in deltas:
            match delta:
                case TextChunk(text):
                    self._pieces.append(text)
                    self._output_tokens += text_tokens(text)
                    self._bytes_left -= len(text.encode("utf-8", "surrogatepass"))
                case ReasoningChunk(text):
                    self._output_tokens += text_tokens(text)
                case UsageChunk(usage):
                    self._usage = usage
                case LostUsageChunk(usage):
                    self._lost_usage = add_usages(self._lost_usage, usage)
                case AnsweredBy(model):
                    self._model = model
                case Finish(reason):
                    self._finished = True
                    self.ended = reason in ("stop", "length")
                case _:  # the request has no tools, and no reasoning is kept
                    pass
        self.ended = self.ended or self._bytes_left < 0
        most = self._most_tokens
        return self._bytes_left < 0 or (most is not None and self._output_tokens > most)

    def answer(self, *, whole: bool) -> SideAnswer:
        """Return what was read; without its text unless it is `whole`."""
        text = "".join(self._pieces).strip() if whole else ""
        return SideAnswer(text, self.usage, self.spent, self._model)

    @property
    def usage(self) -> Usage | None:
        """The service's count; for an answer that was cut, at least an estimate."""
        if self._finished or not (self._output_tokens or self._usage):
            return self._usage
        counted = self._usage or UNUSED
        return replace(
            counted,
            input_tokens=counted.input_tokens or self._shown,
            output_tokens=max(counted.output_tokens, self._output_tokens),
            estimated=True,
        )

    @property
    def spent(self) -> Usage | None:
        """The usage including earlier attempts."""
        return add_usages(self._lost_usage, self.usage)
