"""What a model is asked and what comes back, piece by piece."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pydantic import JsonValue

from passback.core.messages import (
    Generation,
    JsonObject,
    ModelMessage,
    Reasoning,
    ToolSpec,
    Usage,
    UserMessage,
    credible,
)

_AS_SET_UP = Generation()


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What a model is asked.

    Args:
        messages: paired (`transcript.paired`); what was said beside words (`MessageContext`) is no part of them any more, but for
            how the answer is to be written.
        static: so many characters at the start of `system` are the same in every run; None: all.
        output_schema: a JSON Schema of type object that the last word of the answer has to fit, for services that can
            be told; it is checked all the same.
    """

    messages: Sequence[ModelMessage]
    system: str = ""
    tools: Sequence[ToolSpec] = ()
    options: JsonObject = field(default_factory=dict[str, JsonValue])
    output_schema: JsonObject | None = None
    static: int | None = None

    @property
    def generation(self) -> Generation:
        """How the answer to the last user message is to be written."""
        for message in reversed(self.messages):
            if isinstance(message, UserMessage):
                return (message.brief and message.brief.generation) or _AS_SET_UP
        return _AS_SET_UP


@dataclass(frozen=True, slots=True)
class TextChunk:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningChunk:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningBlock:
    """A finished block of reasoning, to be kept unedited."""

    reasoning: Reasoning


@dataclass(frozen=True, slots=True)
class ToolCallChunk:
    """A piece of one call.

    `slot` tells the calls of one answer apart: the model client gives each call its own number, whatever the
    provider did with indices and ids. `provider_id` and `name` come when they are known, whole, once.
    """

    slot: int
    provider_id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class UsageChunk:
    """The usage of the answer, as far as it is credible; a later one replaces it."""

    usage: Usage

    def __post_init__(self) -> None:
        object.__setattr__(self, "usage", credible(self.usage))


@dataclass(frozen=True, slots=True)
class LostUsageChunk:
    """The usage of an attempt that came to nothing before this answer: it is spent, and says nothing of the answer.

    Each adds to those before it.
    """

    usage: Usage

    def __post_init__(self) -> None:
        object.__setattr__(self, "usage", credible(self.usage))


@dataclass(frozen=True, slots=True)
class AnsweredBy:
    """The name of the model whose answer follows, from a client that has several. A later one replaces it."""

    model: str


FinishReason: TypeAlias = Literal["stop", "tool_calls", "length", "refusal"]


@dataclass(frozen=True, slots=True)
class Finish:
    """The model ended its answer. An answer without one broke off."""

    reason: FinishReason


ModelDelta: TypeAlias = (
    TextChunk
    | ReasoningChunk
    | ReasoningBlock
    | ToolCallChunk
    | UsageChunk
    | LostUsageChunk
    | AnsweredBy
    | Finish
)
