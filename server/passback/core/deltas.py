"""A request to a model, and the deltas of its answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pydantic import JsonValue

from passback.core.messages import (
    ANY_TOOL,
    Generation,
    JsonObject,
    ModelMessage,
    Reasoning,
    ToolSpec,
    Usage,
    UserMessage,
    limit_usage,
)

_AGENTS_OWN = Generation()


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request to a model.

    Args:
        messages: paired (`transcript.paired`). Of each `MessageContext` only `generation` is used:
            the rest is already part of the text.
        static: the number of characters at the start of `system` that are the same in every run;
            None for all.
        output_schema: a JSON Schema of type object that the final answer has to fit, for services
            that support it. The answer is checked in any case.
    """

    messages: Sequence[ModelMessage]
    system: str = ""
    tools: Sequence[ToolSpec] = ()
    options: JsonObject = field(default_factory=dict[str, JsonValue])
    output_schema: JsonObject | None = None
    static: int | None = None

    @property
    def generation(self) -> Generation:
        """The options for the answer to the last user message."""
        for message in reversed(self.messages):
            if isinstance(message, UserMessage):
                return (message.context and message.context.generation) or _AGENTS_OWN
        return _AGENTS_OWN

    @property
    def must_call(self) -> str | None:
        """The tool that this answer has to call, or `ANY_TOOL`; None: it need not call any."""
        # it holds for one answer: results that follow are there to be used
        is_first = bool(self.messages) and isinstance(self.messages[-1], UserMessage)
        name = self.generation.must_call if is_first else None
        known = name == ANY_TOOL or any(name == each.name for each in self.tools)
        return name if self.tools and known else None


def default_effort(options: JsonObject, /) -> str | None:
    """Return the effort of reasoning that options of a model name; None if they name none.

    A model may refuse a request that names an effort: only its options tell that it does not.
    """
    # chat completions have one field; the Responses API and the Messages API have one in another
    nested = (options.get("reasoning"), options.get("output_config"))
    inner = [each.get("effort") for each in nested if isinstance(each, Mapping)]
    for named in (options.get("reasoning_effort"), *inner):
        if isinstance(named, str) and named:
            return named
    return None


@dataclass(frozen=True, slots=True)
class TextChunk:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningChunk:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningBlock:
    """A finished block of reasoning, to be stored unchanged."""

    reasoning: Reasoning


@dataclass(frozen=True, slots=True)
class ToolCallChunk:
    """A piece of one call.

    `slot` tells the calls of one answer apart: the model client numbers them, because indices and
    ids of providers are unreliable. `provider_id` and `name` come once, whole, when they are known.
    """

    slot: int
    provider_id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class UsageChunk:
    """The usage of the answer, made credible. A later one replaces it."""

    usage: Usage

    def __post_init__(self) -> None:
        object.__setattr__(self, "usage", limit_usage(self.usage))


@dataclass(frozen=True, slots=True)
class LostUsageChunk:
    """The usage of a failed attempt before this answer: spent, but not part of the answer's usage.

    Each one adds to those before it.
    """

    usage: Usage

    def __post_init__(self) -> None:
        object.__setattr__(self, "usage", limit_usage(self.usage))


@dataclass(frozen=True, slots=True)
class AnsweredBy:
    """The name of the model whose answer follows, from a client with several models.

    A later one replaces it.
    """

    model: str


FinishReason: TypeAlias = Literal["stop", "tool_calls", "length", "refusal"]


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of the model's answer. An answer without one was interrupted."""

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
