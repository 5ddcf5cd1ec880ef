"""What thinks in a run."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from typing import TypeAlias

from pydantic import JsonValue

from passback.core.context import Context, ContextPolicy, Unbounded
from passback.core.deltas import ModelDelta, ModelRequest
from passback.core.limits import Budget, Price
from passback.core.messages import JsonObject, Message, ModelMessage, SystemMessage, UserMessage
from passback.core.ports import ModelClient
from passback.core.prompts import PromptBuilder, RunContext
from passback.core.transcript import unheard
from passback.core.values import value
from passback.engine.commands import Commands
from passback.engine.judging import Judge
from passback.engine.output import OutputJudge
from passback.engine.toolbox import Toolbox

Answering: TypeAlias = AbstractAsyncContextManager[AsyncIterator[Sequence[ModelDelta]]]


@value
class Brain:
    """What thinks in a run: a model, told who it is, for at most so many turns.

    Args:
        max_futile_turns: how many turns in a row may make nothing but invalid calls, or give no answer that is accepted.
        judge: says which of its calls are made.
        deps: for its tools; the model cannot see it.
        context: decides what it is shown of a transcript that becomes too large for it.
        commands: what users may say without it.
        output: says whether its last word is what was asked for.
        builder: says how it is shown the words of others, and what was posted beside them; None: the words as they are.
        told: what it is told in one run only.
        tells_time: whether it is told when a message came.
        budget: limits its runs, and with them the sub-agents that work for it.
        price: of its model's tokens.
    """

    model: ModelClient
    prompt: str = ""
    max_turns: int = 20
    max_futile_turns: int = 3
    options: JsonObject = field(default_factory=dict[str, JsonValue])
    judge: Judge = field(default_factory=Judge)
    deps: object = field(default=None, repr=False)
    context: ContextPolicy = field(default_factory=Unbounded)
    commands: Commands = field(default_factory=Commands)
    output: OutputJudge = field(default_factory=OutputJudge)
    builder: PromptBuilder | None = None
    told: RunContext | None = None
    tells_time: bool = False
    budget: Budget = field(default_factory=Budget)
    price: Price = field(default_factory=Price)

    def seen(self, messages: Sequence[Message]) -> list[Message]:
        """A transcript with all that the model is told, as its words."""
        return list(messages if self.builder is None else map(self.builder.shown, messages))

    def is_large(self, append: Sequence[Message]) -> bool:
        """Return whether new messages end with one that may be too large to be shown, and that nothing can shorten."""
        last = append[-1] if append else None
        shown = isinstance(last, UserMessage | SystemMessage) and not unheard(last)
        return shown and self.context.is_large(self.seen(append))

    def watch(self, toolbox: Toolbox, told: str = "") -> Context:
        """What the model is to be shown in a run in which it is told so."""
        return self.context.watch(self.model, self._request(toolbox, (), None, told))

    def ask(
        self,
        toolbox: Toolbox,
        messages: Sequence[ModelMessage],
        schema: JsonObject | None = None,
        told: str = "",
    ) -> Answering:
        """The model's answer to what it is shown, begun by entering it."""
        return self.model.stream(self._request(toolbox, messages, schema, told))

    def _instructed(self, toolbox: Toolbox) -> str:
        said = toolbox.instructions
        return self.builder.instructed(said) if said and self.builder is not None else ""

    def _request(
        self,
        toolbox: Toolbox,
        messages: Sequence[ModelMessage],
        schema: JsonObject | None,
        told: str,
    ) -> ModelRequest:
        system, static = self.prompt, None
        if instructed := self._instructed(toolbox):
            told = f"{instructed}\n\n{told}" if told else instructed
        if told:
            system, static = "\n\n".join(filter(None, (system, told))), len(system)
        return ModelRequest(messages, system, toolbox.specs(), self.options, schema, static)
