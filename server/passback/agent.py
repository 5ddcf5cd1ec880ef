"""What a user writes: an `Agent` with a prompt and tools, served by `passback serve module:agent`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pydantic import BaseModel, JsonValue, PydanticUserError, ValidationError

from passback.context.prompt import (
    ASK_GUIDE,
    CONDUCT,
    DATA_GUIDE,
    PASTED,
    Layers,
    output_guide,
    static_prompt,
)
from passback.core.arguments import (
    Takes,
    a,
    either,
    flag,
    function_of,
    json_object,
    mapping,
    nothing,
    refuse_misfit_fields,
    several,
    text,
    whole,
)
from passback.core.budgets import Budget
from passback.core.commands import NAME, Handler
from passback.core.errors import ConfigurationError
from passback.core.messages import JsonObject, ToolSpec
from passback.core.permissions import Decision, Rule, by_pattern
from passback.core.ports import ExtraPrompt, ModelClient, section
from passback.core.toolsets import Toolset
from passback.engine.guarding import ExtraPromptFunction, extra_prompt
from passback.engine.output import AnswerCheck
from passback.models.choice import refuse_unknown
from passback.schemas.declared import Unfit, fit
from passback.settings import LEAST_WINDOW, MOST_WINDOW
from passback.toolsets.data import DATA_TOOLS
from passback.toolsets.functions import Function, Functions, FunctionTool, misfits, tool
from passback.toolsets.mcp import MCPServer
from passback.toolsets.mcp.server import refuse_clashes
from passback.toolsets.plan import PlanTools

if TYPE_CHECKING:
    from passback.session import Session


@dataclass(frozen=True, slots=True)
class Fork:
    """A copy of the agent in whose `agents` it is, to which that one may give tasks as if it were a tool.

    It begins with all that the agent's model was shown when it made the call, with its prompt, tools, permissions and
    model: what the model's service has in its cache of the agent counts for the fork as well. A fork cannot fork.

    Args:
        name: of the tool.
        description: what the model is told of it.
        concurrent: whether several of them, other sub-agents and read-only tools may work side by side.

    Raises:
        ConfigurationError: an argument that is not what it takes.
    """

    name: str = "fork"
    description: str = (
        "Gives one task to a copy of you that knows all that was said here; its last words are the result. For a part of the work that "
        "needs what was said, and whose details you do not need to see. Several called together work side by side."
    )
    concurrent: bool = True

    def __post_init__(self) -> None:
        refuse_misfit_fields(self, FORK_TAKES)


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent.

    Args:
        model: a client, or a name as in `PASSBACK_MODEL` (`openai:gpt-5`); None: what the settings say.
        models: clients or names of models that a post may choose instead; of `model`, it may then choose each, too. Empty:
            it chooses none; None: what the settings say. Where the agent works for another one, it keeps its own.
        prompt: what the model is told first.
        tools: server tools: functions, decorated with `@tool` or plain.
        toolsets: other sources of server tools, such as an `MCPServer`.
        agents: other agents, that it may give tasks to as if they were tools; each needs a name and a description. A
            `Fork` is a copy of itself.
        name: what clients and other agents ask for it by; None: as `passback serve MODULE:NAME` names it.
        description: what other agents are told of it.
        concurrent: while it works for another agent, whether it may work beside that one's other sub-agents and read-only
            tools; False: alone, one task at a time.
        conduct: the section of rules behind the prompt; an empty text leaves them out.
        max_turns: model calls in one run; None: what the settings say.
        budget: what runs of it may spend; the settings' limits hold as well, the tighter ones count. While it works for
            another agent, that one's count.
        window: tokens that the model takes, request and answer together, with which older parts of a conversation make
            room for new ones; 0: nothing is left out; None: what the settings say.
        options: goes to the model's service as it is, such as `{"temperature": 0}`.
        permissions: which server tools may be called: decisions by name, the first pattern that fits counts
            (`{"delete_*": "ask", "*": "allow"}`), or a function that judges a call, plain or async, and may give None
            where it has no opinion; then the tool's own permission counts.
        ask_user: whether the model may ask the user by the built-in tool `ask_user`, also where the client has not
            declared that it shows such questions.
        plan: whether it has the tool `update_plan`, by which it says what it means to do.
        context: gives text that the model is told in one run only, behind the prompt, such as what is remembered of the
            owner: a function of the run, plain or async. It is called once in each run and has 30 seconds; up to 64 KiB
            of its text are told. Where it fails, the model is told that something is missing.
        tell_time: whether the model is told when each message came.
        data_tools: whether the model may query, summarise and validate the structured data of posts; it is then shown no
            more than an outline of what is large.
        output_schema: what every answer has to fit, where a post does not say it itself: a JSON Schema of type object, or
            a pydantic model, whose own validators judge, too (in a thread, for 10 seconds at most).
        commands: slash commands of its own, by their names without the slash: functions, plain or async, of the
            argument's text and a `CommandContext`, that give the answer; their docstrings are what users are told.
        deps: for its tools, as `ToolContext.deps`; the model cannot see it.

    Raises:
        ConfigurationError: an argument that is not what it takes; what does not go together is found at start.
    """

    model: ModelClient | str | None = None
    prompt: str = ""
    tools: Sequence[FunctionTool | Function] = ()
    toolsets: Sequence[Toolset] = ()
    agents: Sequence["Agent | Fork"] = ()
    name: str | None = None
    description: str = ""
    concurrent: bool = True
    conduct: str = CONDUCT
    max_turns: int | None = None
    options: JsonObject = field(default_factory=dict[str, JsonValue])
    permissions: Mapping[str, Decision] | Rule | None = None
    ask_user: bool = False
    window: int | None = None
    plan: bool = False
    budget: Budget = field(default_factory=Budget)
    context: ExtraPromptFunction | None = None
    tell_time: bool = True
    data_tools: bool = False
    output_schema: JsonObject | type[BaseModel] | None = None
    commands: Mapping[str, Handler] = field(default_factory=dict[str, Handler])
    deps: object = field(default=None, repr=False)
    models: Sequence[ModelClient | str] | None = None

    def __post_init__(self) -> None:
        """A mistake is to be told where it is made, not in the first run."""
        refuse_misfit_fields(self, TAKES)
        for name, models in (("model", [self.model]), ("models", self.models or ())):
            _refuse_unknown_models(name, models)
        self.rules()

    def session(
        self,
        *,
        store: str = "memory:",
        conversation: str | None = None,
        owner: str = "local",
        tools: Sequence[ToolSpec] = (),
        settings: Mapping[str, str] | None = None,
    ) -> "Session":
        """A conversation with this agent from Python: see `Session`."""
        from passback.session import Session  # noqa: PLC0415  # which knows agents

        return Session(
            self,
            store=store,
            conversation=conversation,
            owner=owner,
            tools=tools,
            settings=settings,
        )

    def own_toolsets(self) -> tuple[Toolset, ...]:
        """Without the agents.

        Raises:
            ConfigurationError: a function cannot be a tool, or two tools have one name or could get one.
        """
        functions = [one if isinstance(one, FunctionTool) else tool(one) for one in self.tools]
        servers = [one for one in self.toolsets if isinstance(one, MCPServer)]
        others = [one.name or "" for one in self.agents]
        refuse_clashes(servers, [*(one.spec.name for one in functions), *others])
        own = [Functions(functions)] if functions else []
        data, plan = [DATA_TOOLS] if self.data_tools else [], [PlanTools()] if self.plan else []
        return (*own, *data, *plan, *self.toolsets)

    def rules(self) -> tuple[Rule, ...]:
        """What the agent says of permissions. Raises ConfigurationError when it makes no sense."""
        if self.permissions is None:
            return ()
        given = self.permissions
        return (given if callable(given) else by_pattern(given),)

    def told(self, prompt: str | None = None) -> str:
        """What the model is told first in every run: `prompt`, else the agent's, and how to use what the agent offers.

        Raises ConfigurationError as `answer_schema` does.
        """
        schema = self.answer_schema()
        guides = [
            DATA_GUIDE if self.data_tools else "",
            ASK_GUIDE if self.ask_user else "",
            "" if schema is None else output_guide(schema),
        ]
        return static_prompt(prompt or self.prompt, self.conduct, guides)

    def layers(self) -> Layers:
        return Layers(PASTED if self.data_tools else None)

    def extra_prompt(self) -> ExtraPrompt | None:
        if self.context is None:
            return None
        return extra_prompt(self.context, shown=partial(section, "Context"))

    def answer_check(self) -> AnswerCheck | None:
        """What the author's own model says of an answer, beyond its schema. None: there is no such model."""
        model = self.output_schema
        return partial(_model_misfit, model) if isinstance(model, type) else None

    def answer_schema(self) -> JsonObject | None:
        """What every answer has to fit. Raises ConfigurationError when it is no schema of ours."""
        given = self.output_schema
        if given is None:
            return None
        try:
            return fit(given.model_json_schema() if isinstance(given, type) else dict(given))
        except Unfit as problem:
            raise ConfigurationError(f"the agent's output_schema: {problem}") from None
        except PydanticUserError as error:
            raise ConfigurationError(
                f"the agent's output_schema has no JSON Schema: {error.message}"
            ) from error


def _refuse_unknown_models(argument: str, models: Sequence[ModelClient | str | None]) -> None:
    for model in models:
        if isinstance(model, str):
            try:
                refuse_unknown(model)
            except ConfigurationError as error:
                raise ConfigurationError(f"Agent: {argument}: {error.message}") from None


def _is_model_name(value: object) -> bool:
    return text(value) and "," not in str(value)


def _is_model(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel)


def _is_command(value: object) -> bool:
    return isinstance(value, str) and NAME.fullmatch(value) is not None


TAKES: Mapping[str, Takes] = {
    "model": Takes(
        "a model's name, such as 'openai:gpt-5', or a client", either(nothing, text, a(ModelClient))
    ),
    "models": Takes(
        "a list of models' names, such as 'openai:gpt-5', and clients",
        either(nothing, several(either(_is_model_name, a(ModelClient)))),
    ),
    "prompt": Takes("a text in Unicode", text),
    "tools": Takes("a list of functions", several(callable)),
    "toolsets": Takes("a list of toolsets, such as an MCPServer", several(a(Toolset))),
    "agents": Takes("a list of Agents and Forks", several(either(a(Agent), a(Fork)))),
    "name": Takes("a text", either(nothing, text)),
    "description": Takes("a text in Unicode", text),
    "concurrent": Takes("True or False", flag),
    "conduct": Takes("a text in Unicode", text),
    "max_turns": Takes("a whole number from 1 on", either(nothing, whole(1))),
    "options": Takes("a dict of JSON", json_object),
    "permissions": Takes(
        "a dict of decisions by the names of tools, or a function of two arguments, the call and the run",
        either(nothing, mapping(text, lambda _: True), function_of(2)),
    ),
    "ask_user": Takes("True or False", flag),
    "window": Takes(
        f"0, or from {LEAST_WINDOW} to {MOST_WINDOW} tokens",
        either(nothing, whole(0, 0), whole(LEAST_WINDOW, MOST_WINDOW)),
    ),
    "plan": Takes("True or False", flag),
    "budget": Takes("a Budget", a(Budget)),
    "context": Takes("a function of one argument, the run", either(nothing, function_of(1))),
    "tell_time": Takes("True or False", flag),
    "data_tools": Takes("True or False", flag),
    "output_schema": Takes(
        "a JSON Schema of type object, or a pydantic model", either(nothing, _is_model, json_object)
    ),
    "commands": Takes(
        "a dict of functions of two arguments, the text and a CommandContext, by their names: at most 32 of a-z, 0-9, _ and -, "
        "a letter first",
        mapping(_is_command, function_of(2)),
    ),
}
"""What an `Agent` is checked for when it is made; `deps` may be anything."""

FORK_TAKES: Mapping[str, Takes] = {
    "name": Takes("a text", text),
    "description": TAKES["description"],
    "concurrent": TAKES["concurrent"],
}


def _model_misfit(model: type[BaseModel], answer: str) -> str | None:
    try:
        model.model_validate_json(answer)
    except ValidationError as error:
        return misfits(error, of="answer")
    return None
